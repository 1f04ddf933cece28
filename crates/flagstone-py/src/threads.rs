//! Parts of a store that go from thread to thread, as objects of Python do.

/// A store, or a transaction of one.
pub(crate) struct Movable<T>(pub(crate) T);

// SAFETY: stores and transactions are not `Send` only because the device below holds its flash and
// its protocol behind traits that other implementations share across handles (`Rc`). Those of a
// store do not: its flash is its own, over a `Medium`, which is `Send`; the protocols keep plain
// tables. A store reaches its device, and transactions reach their store, under mutexes only.
unsafe impl<T> Send for Movable<T> {}
