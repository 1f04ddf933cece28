//! The stores that this process has open, by path, and its connections to them.
//!
//! A store is opened once per process; connections share it under a mutex, with SQLite's locks
//! between them. If another process has it open, a connection is *busy*: the store is opened at the
//! first lock, so that SQLite's busy handler waits as for any database. A file that is no store is
//! detected then as well, as SQLite detects a file that is no database.

mod backing;
mod copies;
mod groups;
mod shared;
pub(crate) mod turns;

use crate::bytes::{Bytes, Trouble, TroubleKind, View};
use crate::locks::Level;
use flagstone_store::medium::identity;
use shared::{Asks, Shared, not_open};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub use backing::{Backing, Files, How};

/// Smallest possible first page of a database in bytes.
const FIRST_PAGE_MIN: u64 = 512;

/// The open stores.
pub(crate) struct Stores {
    backing: Box<dyn Backing>,
    open: Mutex<Vec<Weak<Shared>>>,
    next: AtomicU64,
}

impl Stores {
    pub(crate) fn new(backing: Box<dyn Backing>) -> Stores {
        Stores {
            backing,
            open: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        // The list is consistent after each step that changes it.
        self.open.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Connects to a database, only to read if the system permits no more. A store that is busy or
    /// damaged, or a file that is none, is no error yet: the first lock opens it again.
    pub(crate) fn connect(self: &Arc<Self>, path: &Path, how: How) -> Result<Handle, Trouble> {
        let mut open = self.list();
        open.retain(|shared| shared.strong_count() > 0);
        let known = open.iter().filter_map(Weak::upgrade);
        let shared = known.into_iter().find(|shared| shared.is_at(path));
        let shared = shared.unwrap_or_else(|| {
            let shared = Arc::new(Shared::new(path, how.clone()));
            open.push(Arc::downgrade(&shared));
            shared
        });
        let mut handle = Handle {
            stores: Arc::clone(self),
            shared,
            id: self.next.fetch_add(1, Ordering::Relaxed),
            path: path.to_path_buf(),
            level: Level::None,
            keeps_locks: false,
            how,
            seen: None,
            is_other: false,
            joins: false,
            is_early: false,
            was_stale: false,
            lets_go: false,
        };
        let mut opened = handle.open();
        let is_denied = |trouble: &Trouble| trouble.kind == TroubleKind::Denied;
        if opened.as_ref().is_err_and(is_denied) && !handle.how.read_only {
            handle.how.read_only = true;
            opened = handle.open();
        }
        if let Err(trouble) = opened
            && !matches!(
                trouble.kind,
                TroubleKind::Busy | TroubleKind::NotAStore | TroubleKind::Damaged
            )
        {
            return Err(trouble);
        }
        handle.shared.lock()?.connections += 1;
        Ok(handle)
    }

    /// Records that the connection that intends to write to a database has opened its journal.
    pub(crate) fn journal_opened(&self, database: &Path) -> Option<JournalOf> {
        let open = self.list();
        let mut known = open.iter().filter_map(Weak::upgrade);
        let shared = known.find(|shared| {
            let is_ours = shared.process == std::process::id();
            is_ours && shared.path == database || shared.is_at(database)
        })?;
        let mut inner = shared.lock().ok()?;
        let who = inner.locks.writer()?;
        inner.journals.push(who);
        drop(inner);
        Some(JournalOf { shared, who })
    }
}

/// The journal of a connection, while it is open.
pub(crate) struct JournalOf {
    shared: Arc<Shared>,
    who: u64,
}

impl Drop for JournalOf {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.shared.lock()
            && let Some(place) = inner.journals.iter().position(|who| *who == self.who)
        {
            inner.journals.swap_remove(place);
        }
    }
}

/// Why a connection begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Only to read.
    Read,
    /// To write, possibly to another database.
    WriteSomewhere,
    /// To write to this database.
    Write,
}

/// A connection to a database.
pub(crate) struct Handle {
    stores: Arc<Stores>,
    shared: Arc<Shared>,
    id: u64,
    /// The file name with which this connection was opened; the file may have several names.
    path: PathBuf,
    level: Level,
    /// `locking_mode=EXCLUSIVE`.
    keeps_locks: bool,
    how: How,
    /// The number of the state that SQLite's cache may hold; `None` before the first lock.
    seen: Option<u64>,
    /// Whether SQLite must still be told that the state has changed.
    is_other: bool,
    /// Whether the transaction will commit as a member of a group.
    joins: bool,
    /// Whether the connection began a write with a state that may not be durable yet.
    is_early: bool,
    /// Whether the connection was refused the write lock because its state was outdated, and has
    /// not begun again since.
    was_stale: bool,
    /// Whether the connection has ever released the write lock: SQLite can be built to keep all
    /// locks.
    lets_go: bool,
}

impl Handle {
    /// Whether this connection is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.how.read_only
    }

    /// The file name with which this connection was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Opens the store if it is closed, or opens it again if it is open only for reading and this
    /// connection may write. If the file system is too full to open it for writing, opens it for
    /// reading (`is_short`).
    fn open(&mut self) -> Result<(), Trouble> {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.lock()?;
        if inner.bytes.is_some() && inner.how.key != self.how.key {
            return Err(Trouble::new(
                TroubleKind::NotAStore,
                "another connection of this process has the store open with another key source, or \
                 without a key: give the key in the same way",
            ));
        }
        inner.give_up_if_lost()?;
        let is_enough = self.how.read_only || !inner.how.read_only || inner.is_short;
        if inner.bytes.is_some() && is_enough {
            return Ok(());
        }
        if !inner.locks.is_idle() {
            return Err(Trouble::new(
                TroubleKind::Busy,
                "another connection of this process has the store open for reading only",
            ));
        }
        // How the store was open, only for reading.
        let reader = inner.bytes.take().map(|_| inner.how.clone());
        // Another process may have changed the store before it is reopened here.
        inner.state += 1;
        inner.stored = inner.state;
        let open = |how| self.stores.backing.open(&shared.path, how);
        let opened = open(&self.how);
        inner.is_short = false;
        let (bytes, opened) = match (opened, reader) {
            (Ok(bytes), _) => {
                inner.how = self.how.clone();
                (Some(bytes), Ok(()))
            }
            // Too little space even to mark the store as open. Committed data can still be read.
            (Err(trouble), None) if trouble.kind == TroubleKind::Full && !self.how.read_only => {
                let how = self.how.to_read();
                match open(&how) {
                    Ok(bytes) => {
                        (inner.how, inner.is_short) = (how, true);
                        (Some(bytes), Ok(()))
                    }
                    Err(_) => (None, Err(trouble)),
                }
            }
            // Read-only connections continue to read.
            (Err(trouble), Some(how)) => (open(&how).ok(), Err(trouble)),
            (Err(trouble), None) => (None, Err(trouble)),
        };
        let found = bytes.as_ref().and_then(|_| identity(&shared.path));
        inner.bytes = bytes;
        *shared
            .identity
            .lock()
            .unwrap_or_else(|held| held.into_inner()) = found;
        opened
    }

    /// Whether the store is open only for reading because the file system lacks space.
    fn is_short(&self) -> bool {
        self.shared.lock().is_ok_and(|inner| inner.is_short)
    }

    /// Reopens the store for writing if it is open only for reading for lack of space and no
    /// connection reads: the file system may have space now.
    fn try_for_room(&mut self) -> Result<(), Trouble> {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.lock()?;
        if inner.is_short && inner.locks.is_idle() {
            inner.bytes = None;
            drop(inner);
            self.open()?;
        }
        Ok(())
    }

    /// Calls `act` with the file's bytes, and this connection's view of them. Fails if the state
    /// that the connection has begun to read is lost.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut dyn Bytes, View) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut inner = self.shared.lock()?;
        inner.is_misled(self.id)?;
        let view = inner.view(self.id);
        let state = inner.state_for(self.id);
        if self.level == Level::Shared && self.seen.is_some_and(|seen| seen != state) {
            return Err(groups::is_gone());
        }
        match &mut inner.bytes {
            Some(bytes) => act(bytes.as_mut(), view),
            None => Err(not_open()),
        }
    }

    /// Whether the store is open here. `false` while another process has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.lock().is_ok_and(|inner| inner.bytes.is_some())
    }

    /// Whether this connection's file name now leads to a file other than the open store, or to
    /// none: writes would be lost when the last connection closes.
    pub(crate) fn has_moved(&self) -> bool {
        let known = self.shared.identity.lock();
        let known = *known.unwrap_or_else(|held| held.into_inner());
        known.is_some() && identity(&self.path) != known
    }

    /// Whether this connection has opened a journal through the VFS.
    pub(crate) fn has_journal(&self) -> bool {
        let inner = self.shared.lock();
        inner.is_ok_and(|inner| inner.journals.contains(&self.id))
    }

    /// The size of the database. Without locks (`nolock=1`, `immutable=1`) this opens the store if
    /// it is closed, as the first lock does otherwise.
    pub(crate) fn size(&mut self) -> Result<u64, Trouble> {
        if self.level == Level::None {
            self.open()?;
        }
        self.with(|bytes, view| Ok(bytes.size(view)))
    }

    /// Reads like [`Bytes::read`]. A page in the store is looked up under the mutex, and read
    /// without it. A connection with a state that is not durable yet (`is_early`) first waits for
    /// it, except at the first page, which SQLite reads before a write.
    pub(crate) fn read(&mut self, at: u64, into: &mut [u8]) -> Result<usize, Trouble> {
        if self.is_early && self.level == Level::Shared && at >= FIRST_PAGE_MIN {
            // A query, whose results must be durable before the application sees them.
            self.wait_until_durable()?;
            self.is_early = false;
        }
        let looked = self.with(|bytes, view| match bytes.look(view, at, into.len())? {
            Some(looked) => Ok(ControlFlow::Continue(looked)),
            None => bytes.read(view, at, into).map(ControlFlow::Break),
        })?;
        let looked = match looked {
            ControlFlow::Continue(looked) => looked,
            ControlFlow::Break(has) => return Ok(has),
        };
        if let Some(page) = into.first_chunk_mut()
            && let Some(has) = looked.read(page)
        {
            into[has..].fill(0);
            return Ok(into.len());
        }
        // The collector has moved the page, or there is an error.
        self.with(|bytes, view| bytes.read(view, at, into))
    }

    /// Makes a change in the live transaction. Afterwards the transaction can still join a group if
    /// it could before and `stays_small` is set.
    fn change(
        &self,
        stays_small: bool,
        act: impl FnOnce(&mut dyn Bytes) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        if self.how.read_only {
            return Err(Trouble::new(
                TroubleKind::ReadOnly,
                "the database was opened for reading only",
            ));
        }
        let mut inner = self.shared.lock()?;
        inner.is_misled(self.id)?;
        if inner.is_short {
            return Err(Trouble::new(
                TroubleKind::Full,
                "the file system is full: the store is open for reading only until there is free \
                 space",
            ));
        }
        if inner.view(self.id) != View::Own {
            return Err(Trouble::new(
                TroubleKind::Io,
                "writing to a store needs file locks: do not use nolock=1",
            ));
        }
        inner.begin_to_write();
        if !(stays_small && inner.can_keep()) {
            inner = self.shared.by_itself(self.id, inner)?;
        }
        match &mut inner.bytes {
            Some(bytes) => act(bytes.as_mut()),
            None => Err(not_open()),
        }
    }

    /// Writes like [`Bytes::write`].
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        self.change(true, |bytes| bytes.write(at, data))
    }

    /// Changes the size like [`Bytes::truncate`].
    pub(crate) fn truncate(&self, size: u64) -> Result<(), Trouble> {
        self.change(false, |bytes| bytes.truncate(size))
    }

    /// Commits this connection's changes, possibly as part of a transaction over several databases.
    /// A connection that begins to read before [`Handle::end_commit`] sees the previous state. The
    /// medium writes and syncs without the mutex.
    pub(crate) fn commit(&mut self, is_of_several: bool) -> Result<(), Trouble> {
        let inner = self.shared.lock()?;
        if inner.locks.writer() != Some(self.id) {
            return Ok(());
        }
        let mut inner = self.shared.by_itself(self.id, inner)?;
        let asked = inner.commit(is_of_several)?;
        // SQLite has the written pages in its cache.
        self.seen = Some(inner.state);
        drop(inner);
        let Some(asked) = asked else {
            return Ok(());
        };
        asked.carry_out();
        self.shared.lock()?.outcome()
    }

    /// Called when the transaction has committed in all databases. Commits remaining changes, and
    /// makes the new state visible to other connections.
    pub(crate) fn end_commit(&mut self) -> Result<(), Trouble> {
        if std::mem::take(&mut self.joins)
            && let Some(outcome) = self.join()?
        {
            return self.shared.wait_for(&outcome);
        }
        let committed = self.commit(false);
        let mut inner = self.shared.lock()?;
        if inner.locks.writer() == Some(self.id) && !inner.has_open_group() {
            inner.end_commit();
        }
        committed
    }

    /// Whether the state differs from the one SQLite has seen. Returns `true` only once.
    pub(crate) fn is_other(&mut self) -> bool {
        std::mem::take(&mut self.is_other)
    }

    /// Announces that all pages will be rewritten, after which the store releases free space.
    pub(crate) fn overwrites_all(&mut self) {
        if let Ok(mut inner) = self.shared.lock()
            && let Some(bytes) = &mut inner.bytes
        {
            bytes.overwrites_all();
        }
    }

    /// Collects garbage ahead of need, moving at most `pages` pages. Returns the number of moved
    /// pages, 0 while a commit waits for the disk.
    pub(crate) fn idle(&mut self, pages: u32) -> Result<u32, Trouble> {
        self.open()?;
        let mut inner = self.shared.lock()?;
        if inner.is_committing() {
            return Ok(0);
        }
        let store = inner.bytes.as_mut().and_then(|bytes| bytes.store());
        let moved = store.map(|store| store.idle(pages)).transpose()?;
        if moved == Some(0) {
            inner.give_room_back();
        }
        Ok(moved.unwrap_or(0))
    }

    /// Requests a lock level. Returns whether it was granted. The first lock of a transaction opens
    /// the store, and chooses the state to read: the newest one if the connection means to write,
    /// else a durable one. `aim` says for what it begins to read.
    pub(crate) fn lock(&mut self, wants: Level, aim: impl Fn() -> Aim) -> Result<bool, Trouble> {
        if self.shared.process != std::process::id() {
            return Err(Trouble::new(
                TroubleKind::CannotOpen,
                "the database was opened before this process was forked: open it again in this \
                 process",
            ));
        }
        let begins = self.level == Level::None;
        if begins {
            self.open()?;
            if !self.how.read_only && self.is_short() && aim() != Aim::Read {
                self.try_for_room()?;
            }
        }
        let mut inner = self.shared.lock()?;
        inner.is_misled(self.id)?;
        if inner.must_wait_for_groups(self.id, wants) {
            inner = self.shared.when_durable(self.id, inner)?;
        }
        let was_stale = begins && std::mem::take(&mut self.was_stale);
        let mut means_to_write = false;
        if begins && inner.has_open_group() {
            let aim = aim();
            means_to_write = aim == Aim::Write || aim == Aim::WriteSomewhere && was_stale;
            if !means_to_write && (was_stale || aim == Aim::WriteSomewhere) {
                // The durable state is too old for a write, but this transaction may only read.
                inner = self.shared.next_durable(inner)?;
            }
        }
        let asks = Asks {
            who: self.id,
            seen: self.seen,
            has: self.level,
            wants,
            means_to_write,
        };
        self.level = inner.raise(&asks)?;
        if begins && self.level > Level::None {
            let state = inner.state_for(self.id);
            self.is_other |= self.seen.is_some_and(|seen| seen != state);
            self.seen = Some(state);
            self.is_early = !inner.is_durable(state);
        }
        if wants == Level::Reserved {
            let is_refused = self.level < wants;
            self.was_stale = is_refused && inner.is_stale(self.id, self.seen);
            drop(inner);
            if is_refused {
                turns::refused(&self.shared, self.id);
            }
        }
        Ok(self.level >= wants)
    }

    /// Lowers the lock level. Below [`Level::Reserved`] the connection's uncommitted writes are
    /// rolled back, and the write lock passes to the next connection.
    pub(crate) fn unlock(&mut self, to: Level) -> Result<(), Trouble> {
        if to >= self.level {
            return Ok(());
        }
        if self.shared.process != std::process::id() {
            // The store and its waiting threads belong to the process that opened it.
            self.level = to;
            return Ok(());
        }
        let mut inner = self.shared.lock()?;
        let gives_turn_up = inner.locks.writer() == Some(self.id) && to < Level::Reserved;
        // An error if the state that the connection has read is lost. If SQLite keeps a lock, it
        // continues with data of that state.
        let has_state = inner.is_misled(self.id);
        if gives_turn_up {
            (self.joins, self.lets_go) = (false, true);
            if let Some(bytes) = &mut inner.bytes {
                bytes.abort();
            }
            if !inner.has_open_group() {
                inner.end_commit();
            }
            inner.is_over(self.id);
        }
        inner.locks.lower(self.id, self.level, to);
        if gives_turn_up {
            self.shared.pass_turn(&mut inner);
        }
        if to == Level::None {
            inner.take_snapshot_back(self.id);
            if !self.keeps_locks {
                inner.alone.remove(&self.id);
            }
        }
        self.level = to;
        inner.give_room_back();
        drop(inner);
        if !gives_turn_up {
            return Ok(());
        }
        // The application has seen what this connection has read.
        let is_durable = has_state.and_then(|()| self.wait_until_durable());
        match to {
            // No lock is held any more: SQLite would not understand an error.
            Level::None => Ok(()),
            _ => is_durable,
        }
    }

    /// Sets whether this connection keeps its locks. Without `keeps`, it still holds present locks
    /// until its next transaction ends.
    pub(crate) fn keep_locks(&mut self, keeps: bool) {
        self.keeps_locks = keeps;
        if let Ok(mut inner) = self.shared.lock() {
            if keeps {
                inner.alone.insert(self.id);
            } else if self.level == Level::None {
                inner.alone.remove(&self.id);
            }
        }
    }

    /// Whether a connection intends to write.
    pub(crate) fn is_reserved(&self) -> Result<bool, Trouble> {
        Ok(self.shared.lock()?.locks.is_reserved())
    }

    /// Closes the connection. The last one closes the store.
    pub(crate) fn close(mut self) {
        if self.shared.process != std::process::id() {
            // The store belongs to the process that opened it, and only that process may close it.
            std::mem::forget(self);
            return;
        }
        let _ = self.unlock(Level::None);
        self.keep_locks(false);
        if let Ok(mut inner) = self.shared.lock() {
            inner.connections -= 1;
            inner.turns.leave(self.id);
            if inner.connections == 0 {
                inner.give_room_back();
            }
        }
        let stores = Arc::clone(&self.stores);
        // No other connection may open it while it is being closed.
        let open = stores.list();
        drop(self);
        drop(open);
    }
}

#[cfg(test)]
mod tests;
