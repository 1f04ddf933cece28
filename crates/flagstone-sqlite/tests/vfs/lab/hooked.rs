//! A store that asks a test before it is opened, written to or committed: the test looks around, or
//! refuses. Or a store that makes a mistake on purpose, for controls.

use flagstone_sqlite::{Bytes, StoreFile, Trouble, TroubleKind, View};
use flagstone_store::medium::Memory;
use flagstone_store::{Asked, Looked, OpenOptions, PageStore};
use std::sync::{Arc, Mutex};

/// What is done too early: before it is durable, or known to become so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// Readers see a commit.
    Shows,
    /// Groups of transactions are acknowledged.
    Acknowledges,
    /// Transactions join a group before it is known whether they find room beside it.
    Joins,
}

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
        Hooked {
            file,
            hooks: self.clone(),
            mistake: None,
        }
    }
}

impl Early {
    /// A store that makes this mistake.
    pub(super) fn of(self, file: StoreFile) -> Hooked {
        let nothing = PageStore::on(Box::new(Memory::default()), &OpenOptions::default());
        Hooked {
            file,
            hooks: Hooks::default(),
            mistake: Some((self, nothing.expect("memory").asked())),
        }
    }
}

pub(super) struct Hooked {
    file: StoreFile,
    hooks: Hooks,
    /// With what a store has asked for that asks nothing of its medium.
    mistake: Option<(Early, Asked)>,
}

impl Hooked {
    fn view(&self, view: View) -> View {
        match (view, &self.mistake) {
            (View::Snapshot(_), Some((Early::Shows, _))) => View::Committed,
            (other, _) => other,
        }
    }

    /// A store that is refused something has rolled back before it says so.
    fn or_abort(&mut self, asked: Result<(), Trouble>) -> Result<(), Trouble> {
        if asked.is_err() {
            self.file.abort();
        }
        asked
    }

    fn ask_to_commit(&mut self) -> Result<(), Trouble> {
        let hook = self.hooks.asks().commit.take();
        self.or_abort(act(hook))
    }

    fn ask_to_write(&mut self) -> Result<(), Trouble> {
        let mut asks = self.hooks.asks();
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
        self.file.size(self.view(view))
    }

    fn read(&mut self, view: View, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        let view = self.view(view);
        self.file.read(view, at, into)
    }

    fn look(&self, view: View, at: u64, bytes: usize) -> Result<Option<Looked>, Trouble> {
        self.file.look(self.view(view), at, bytes)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        self.ask_to_write()?;
        self.file.write(at, data)
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        self.file.truncate(size)
    }

    fn has_changes(&self) -> bool {
        self.file.has_changes()
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        self.ask_to_commit()?;
        self.file.commit()
    }

    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.ask_to_commit()?;
        self.file.commit_apart()
    }

    fn outcome(&mut self) -> Result<(), Trouble> {
        self.file.outcome()
    }

    /// One that asks a test commits each transaction by itself.
    fn can_join(&self) -> bool {
        self.mistake.is_some() && self.file.can_join()
    }

    fn keep(&mut self, keeps: bool) {
        self.file.keep(keeps);
    }

    fn may_join(&self) -> bool {
        self.file.may_join()
    }

    fn has_room_to_join(&mut self) -> bool {
        matches!(self.mistake, Some((Early::Joins, _))) || self.file.has_room_to_join()
    }

    fn join(&mut self) {
        self.file.join();
    }

    fn has_joined(&self) -> bool {
        self.file.has_joined()
    }

    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        let asked = self.file.commit_joined()?;
        match &self.mistake {
            Some((Early::Acknowledges, nothing)) => Ok(nothing.clone()),
            _ => Ok(asked),
        }
    }

    fn drop_joined(&mut self) {
        self.file.drop_joined();
    }

    fn abort(&mut self) {
        self.file.abort();
    }

    fn snapshot(&mut self) -> Result<Option<u64>, Trouble> {
        self.file.snapshot()
    }

    fn share_snapshot(&mut self, snapshot: u64) {
        self.file.share_snapshot(snapshot);
    }

    fn is_current(&self, snapshot: u64) -> bool {
        self.file.is_current(snapshot)
    }

    fn store(&mut self) -> Option<&mut PageStore> {
        Bytes::store(&mut self.file)
    }

    fn end_snapshot(&mut self, snapshot: u64) {
        self.file.end_snapshot(snapshot);
    }
}
