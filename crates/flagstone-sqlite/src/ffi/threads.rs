//! Moves a store between threads.

use flagstone_store::{Chunks, PageStore};
use std::ops::{Deref, DerefMut};

/// A store owned as a whole, so that it may move to another thread.
pub(crate) struct Movable(pub(crate) Chunks<PageStore>);

// SAFETY: a `PageStore` is not `Send` only because its device holds its flash and its protocol
// behind traits that other implementations share across handles (`Rc`). Those of a store do not:
// its flash is its own, over a `Medium`, which is `Send`; the protocols keep plain tables. The
// chunks over it keep plain bytes. Nothing
// that a store lends outlives the borrow. Connections reach it under a mutex only.
unsafe impl Send for Movable {}

impl Deref for Movable {
    type Target = Chunks<PageStore>;

    fn deref(&self) -> &Chunks<PageStore> {
        &self.0
    }
}

impl DerefMut for Movable {
    fn deref_mut(&mut self) -> &mut Chunks<PageStore> {
        &mut self.0
    }
}
