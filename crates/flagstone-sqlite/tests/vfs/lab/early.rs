//! Stores that make a mistake on purpose, for controls.

use flagstone_sqlite::{Bytes, StoreFile, Trouble, View};
use flagstone_store::medium::Memory;
use flagstone_store::{Asked, Looked, OpenOptions, PageStore};

/// What is done before it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// Readers see a commit.
    Shows,
    /// Groups of transactions are acknowledged.
    Acknowledges,
}

impl Early {
    /// A store that makes this mistake.
    pub(super) fn of(self, file: StoreFile) -> Mistaken {
        let nothing = PageStore::on(Box::new(Memory::default()), &OpenOptions::default());
        Mistaken {
            file,
            mistake: self,
            nothing: StoreFile::new(nothing.expect("memory")).expect("an empty file"),
        }
    }
}

pub(super) struct Mistaken {
    file: StoreFile,
    mistake: Early,
    /// A store that asks nothing of its medium.
    nothing: StoreFile,
}

impl Mistaken {
    fn view(&self, view: View) -> View {
        match view {
            View::Snapshot(_) if self.mistake == Early::Shows => View::Committed,
            other => other,
        }
    }
}

impl Bytes for Mistaken {
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
        self.file.write(at, data)
    }

    fn truncate(&mut self, size: u64) -> Result<(), Trouble> {
        self.file.truncate(size)
    }

    fn has_changes(&self) -> bool {
        self.file.has_changes()
    }

    fn commit(&mut self) -> Result<(), Trouble> {
        self.file.commit()
    }

    fn commit_apart(&mut self) -> Result<Option<Asked>, Trouble> {
        self.file.commit_apart()
    }

    fn can_join(&self) -> bool {
        self.file.can_join()
    }

    fn keep(&mut self, keeps: bool) {
        self.file.keep(keeps);
    }

    fn may_join(&self) -> bool {
        Bytes::may_join(&self.file)
    }

    fn join(&mut self) {
        self.file.join();
    }

    fn has_joined(&self) -> bool {
        self.file.has_joined()
    }

    fn commit_joined(&mut self) -> Result<Asked, Trouble> {
        let asked = self.file.commit_joined()?;
        match self.mistake {
            Early::Shows => Ok(asked),
            Early::Acknowledges => Ok(self.nothing.store().asked()),
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

    fn end_snapshot(&mut self, snapshot: u64) {
        self.file.end_snapshot(snapshot);
    }
}
