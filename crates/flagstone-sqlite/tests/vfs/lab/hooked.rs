//! A store that asks a test before it is opened, written to or committed: the test looks around, or
//! refuses.

use flagstone_sqlite::{Bytes, StoreFile, Trouble, TroubleKind, View};
use flagstone_store::{Asked, Looked, PageStore};
use std::sync::{Arc, Mutex};

/// What a test does then.
type Hook = Box<dyn FnOnce() -> Result<(), Trouble> + Send>;

/// What a store asks for, each once. A clone is the same.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<Mutex<Asks>>);

#[derive(Default)]
struct Asks {
    open: Option<Hook>,
    /// After so many writes.
    write: Option<(u32, Hook)>,
    commit: Option<Hook>,
}

/// The refusal of a medium without room.
pub(crate) fn full() -> Result<(), Trouble> {
    Err(Trouble::new(TroubleKind::Full, "there is no room"))
}

/// Does what a test wants done, if anything.
fn act(hook: Option<Hook>) -> Result<(), Trouble> {
    hook.map_or(Ok(()), |hook| hook())
}

impl Hooks {
    fn asks(&self) -> std::sync::MutexGuard<'_, Asks> {
        self.0.lock().expect("one at a time")
    }

    /// Does this before the next opening.
    pub(crate) fn at_open(&self, hook: impl FnOnce() -> Result<(), Trouble> + Send + 'static) {
        self.asks().open = Some(Box::new(hook));
    }

    /// Does this before the write that comes after so many.
    pub(crate) fn at_write(
        &self,
        after: u32,
        hook: impl FnOnce() -> Result<(), Trouble> + Send + 'static,
    ) {
        self.asks().write = Some((after, Box::new(hook)));
    }

    /// Does this before the next commit.
    pub(crate) fn at_commit(&self, hook: impl FnOnce() -> Result<(), Trouble> + Send + 'static) {
        self.asks().commit = Some(Box::new(hook));
    }

    /// A store is to be opened.
    pub(super) fn open(&self) -> Result<(), Trouble> {
        let hook = self.asks().open.take();
        act(hook)
    }

    /// A store that asks these.
    pub(super) fn over(&self, file: StoreFile) -> Hooked {
        Hooked(file, self.clone())
    }
}

pub(super) struct Hooked(StoreFile, Hooks);

impl Hooked {
    /// A store that is refused something has rolled back before it says so.
    fn or_abort(&mut self, asked: Result<(), Trouble>) -> Result<(), Trouble> {
        if asked.is_err() {
            self.0.abort();
        }
        asked
    }

    fn ask_to_commit(&mut self) -> Result<(), Trouble> {
        let hook = self.1.asks().commit.take();
        self.or_abort(act(hook))
    }

    fn ask_to_write(&mut self) -> Result<(), Trouble> {
        let mut asks = self.1.asks();
        let hook = match asks.write.take() {
            Some((0, hook)) => Some(hook),
            Some((after, hook)) => {
                asks.write = Some((after - 1, hook));
                None
            }
            None => None,
        };
        drop(asks);
        self.or_abort(act(hook))
    }
}

impl Bytes for Hooked {
    fn size(&self, view: View) -> u64 {
        self.0.size(view)
    }

    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        self.0.read(view, at, into)
    }

    fn look(&self, view: View, at: u64, bytes: usize) -> Result<Option<Looked>, Trouble> {
        self.0.look(view, at, bytes)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        self.ask_to_write()?;
        self.0.write(at, data)
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        self.0.truncate(size)
    }

    fn has_changes(&self) -> bool {
        self.0.has_changes()
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        self.ask_to_commit()?;
        self.0.commit()
    }

    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.ask_to_commit()?;
        self.0.commit_apart()
    }

    fn outcome(&mut self) -> Result<(), Trouble> {
        self.0.outcome()
    }

    fn abort(&mut self) {
        self.0.abort();
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        self.0.snapshot()
    }

    fn share_snapshot(&mut self, snapshot: u64) {
        self.0.share_snapshot(snapshot);
    }

    fn is_current(&self, snapshot: u64) -> bool {
        self.0.is_current(snapshot)
    }

    fn store(&mut self) -> Option<&mut PageStore> {
        Bytes::store(&mut self.0)
    }

    fn end_snapshot(&mut self, snapshot: u64) {
        self.0.end_snapshot(snapshot);
    }
}
