//! Pages for several threads: writers take turns, readers hold snapshots.
//!
//! [`SharedPages`] is a [`PageStore`] that a process shares. One [`Turn`] at a time reads the
//! newest pages and commits a set of changes, whole or not at all. A commit gives a [`Ticket`], and
//! the next turn may begin before the ticket is due. A [`PageSnapshot`] shows what was durable when
//! it was taken, for as long as it is held.

use crate::error::StoreError;
use crate::medium::Medium;
use crate::pages::{OpenOptions, PageStore};
use flagstone::units::{Lpn, SnapshotId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The bytes of a page, at most [`PageStore::PAGE_BYTES`]. They never change.
pub type PageBytes = Arc<[u8]>;

/// What a transaction does: the new bytes of a page, or nothing where the page is to hold nothing.
pub type Changes = BTreeMap<Lpn, Option<PageBytes>>;

/// A store of pages that threads share. A clone is the same store.
#[derive(Clone)]
pub struct SharedPages(Arc<Inner>);

struct Inner {
    store: Mutex<PageStore>,
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

impl Inner {
    fn store(&self) -> MutexGuard<'_, PageStore> {
        self.store.lock().expect("no thread panics here")
    }
}

impl SharedPages {
    /// Opens a store in a file or on a block device.
    ///
    /// # Errors
    /// As [`PageStore::open`], or its protocol cannot give snapshots: `seal` can.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<SharedPages, StoreError> {
        SharedPages::over(PageStore::open(path, options)?)
    }

    /// Opens a store on a medium.
    ///
    /// # Errors
    /// As [`SharedPages::open`].
    pub fn on(medium: Box<dyn Medium>, options: &OpenOptions) -> Result<SharedPages, StoreError> {
        SharedPages::over(PageStore::on(medium, options)?)
    }

    fn over(mut store: PageStore) -> Result<SharedPages, StoreError> {
        let first = store.snapshot()?;
        store.end_snapshot(first);
        Ok(SharedPages(Arc::new(Inner {
            store: Mutex::new(store),
            is_taken: Mutex::new(false),
            is_free: Condvar::new(),
        })))
    }

    /// Waits for the turn to write. One that is dropped changes nothing.
    ///
    /// # Errors
    /// The store was opened for reading, or failed before.
    pub fn turn(&self) -> Result<Turn, StoreError> {
        let mut is_taken = self.0.is_taken.lock().expect("no thread panics here");
        while *is_taken {
            let waited = self.0.is_free.wait(is_taken);
            is_taken = waited.expect("no thread panics here");
        }
        *is_taken = true;
        Ok(Turn(self.clone()))
    }

    /// Takes a snapshot of what is durable. It waits for no writer.
    ///
    /// # Errors
    /// The store failed before.
    pub fn snapshot(&self) -> Result<PageSnapshot, StoreError> {
        let id = self.0.store().snapshot()?;
        Ok(PageSnapshot {
            pages: self.clone(),
            id,
        })
    }
}

/// The turn of a writer. It is given up when it is dropped or committed.
pub struct Turn(SharedPages);

impl Turn {
    /// The newest bytes of a page, whether they are durable yet or not; nothing if it holds none.
    ///
    /// # Errors
    /// The page was lost, or the medium fails.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let bytes = self.0.0.store().read(None, at, &mut page)?;
        Ok(bytes.map(|bytes| page[..bytes].into()))
    }

    /// Commits changes, whole or not at all, and gives up the turn. The next turn sees them at
    /// once; snapshots see them when they are durable.
    ///
    /// # Errors
    /// The store is full: nothing has changed. Or the medium fails.
    pub fn commit(self, changes: Changes) -> Result<Ticket, StoreError> {
        let mut store = self.0.0.store();
        let tx = store.begin()?;
        for (&at, bytes) in &changes {
            let done = match bytes {
                Some(bytes) => store.write(tx, at, bytes),
                None => store.trim(tx, at),
            };
            if let Err(error) = done {
                store.abort(tx)?;
                return Err(error);
            }
        }
        store.commit(tx)?;
        Ok(Ticket(()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.0.is_taken.lock().expect("no thread panics here") = false;
        self.0.0.is_free.notify_one();
    }
}

/// A commit that may not be durable yet.
#[must_use = "a commit is durable when its ticket was waited for"]
pub struct Ticket(());

impl Ticket {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// The medium fails: whether the transaction has committed is open until the store is opened
    /// again.
    pub fn wait(self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What was durable at a moment. To drop it gives it back.
pub struct PageSnapshot {
    pages: SharedPages,
    id: SnapshotId,
}

impl PageSnapshot {
    /// The bytes of a page; nothing if it held none.
    ///
    /// # Errors
    /// The snapshot has ended (see [`PageStore::snapshot`]), the page was lost, or the medium
    /// fails.
    pub fn read(&self, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let bytes = self.pages.0.store().read_snapshot(self.id, at, &mut page)?;
        Ok(bytes.map(|bytes| page[..bytes].into()))
    }

    /// The bytes of several pages, read side by side.
    ///
    /// # Errors
    /// As [`PageSnapshot::read`].
    pub fn read_many(&self, pages: &[Lpn]) -> Result<Vec<Option<PageBytes>>, StoreError> {
        pages.iter().map(|&at| self.read(at)).collect()
    }
}

impl Drop for PageSnapshot {
    fn drop(&mut self) {
        self.pages.0.store().end_snapshot(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::Memory;

    #[test]
    fn a_snapshot_stays_what_it_was_and_a_turn_sees_the_newest() {
        let pages = SharedPages::on(Box::new(Memory::default()), &OpenOptions::default());
        let pages = pages.expect("a new store");
        let set = |bytes: &[u8]| {
            let changes = Changes::from([(Lpn(3), Some(bytes.into()))]);
            let turn = pages.turn().expect("it may write");
            turn.commit(changes).expect("room").wait().expect("durable");
        };
        set(b"one");
        let before = pages.snapshot().expect("seal has them");
        set(b"two");
        let seen = before.read(Lpn(3)).expect("it is there");
        assert_eq!(seen.as_deref(), Some(&b"one"[..]));
        let turn = pages.turn().expect("it may write");
        let newest = turn.read(Lpn(3)).expect("it is there");
        assert_eq!(newest.as_deref(), Some(&b"two"[..]));
    }
}
