//! A database that is open once in this process and shared by its connections: their locks, the
//! snapshots that they read, and the commit in progress.
//!
//! Everything is protected by one mutex, with two exceptions: a looked-up page is read without it,
//! and a commit is awaited without it.
//!
//! A commit has ended when SQLite says so, not when the store has it: while another database of the
//! transaction can fail, SQLite may undo it. A connection that begins to read meanwhile gets the
//! snapshot from before that commit.
//!
//! SQLite keeps cached pages as long as a counter in the first page does not change. The counter
//! does not distinguish all states. It goes back if SQLite undoes a commit, or if the store is
//! reopened after another process has used it. It does not change while a connection keeps its
//! locks. So each state has a unique number here.

use super::How;
use super::groups::Groups;
use super::turns::Turns;
use crate::bytes::{Bytes, Trouble, TroubleKind, View};
use crate::locks::{Level, Locks};
use flagstone_store::Asked;
use flagstone_store::medium::identity;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, LockResult, Mutex, MutexGuard};
use std::time::Instant;

/// A database that is open, or will be when another process closes it.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// The process that opened it. A forked process must not use it.
    pub(super) process: u32,
    /// Identifies the open file.
    pub(super) identity: Mutex<Option<(u64, u64)>>,
    inner: Mutex<Inner>,
    /// Notified when a waiting connection may get the write lock.
    pub(super) turn_is_free: Condvar,
    /// Notified when enough transactions have joined a group.
    pub(super) one_has_come: Condvar,
    /// Notified when a group is durable.
    pub(super) one_is_done: Condvar,
}

/// A snapshot of a state of a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    pub(super) id: u64,
    /// The number of the state.
    pub(super) state: u64,
}

/// A request for a lock level.
pub(super) struct Asks {
    pub(super) who: u64,
    /// The state that the connection has seen last.
    pub(super) seen: Option<u64>,
    pub(super) has: Level,
    pub(super) wants: Level,
    /// Whether the connection begins to read in order to write.
    pub(super) means_to_write: bool,
}

/// The data under the mutex.
pub(super) struct Inner {
    pub(super) bytes: Option<Box<dyn Bytes>>,
    /// The options with which the database was opened, or will be.
    pub(super) how: How,
    /// Whether the database is open only for reading because there was too little space to open it
    /// for writing.
    pub(super) is_short: bool,
    pub(super) locks: Locks,
    /// Connections with a journal.
    pub(super) journals: Vec<u64>,
    /// Connections that read from a snapshot, because another one is writing or has written since.
    snapshots: BTreeMap<u64, Snapshot>,
    /// The snapshot given to connections that begin to read during a commit, or while a group is
    /// not durable.
    pub(super) before: Option<Snapshot>,
    /// The number of the committed state. Each commit and each opening creates a new one.
    pub(super) state: u64,
    /// The number of the state in the store. It lags while transactions have joined.
    pub(super) stored: u64,
    pub(super) groups: Groups,
    /// Connections that wait for the write lock.
    pub(super) turns: Turns,
    /// Number of connections.
    pub(super) connections: usize,
    /// Connections that keep their locks (`locking_mode=EXCLUSIVE`). They require exclusive access:
    /// neither they nor connections concurrent with them get snapshots.
    pub(super) alone: BTreeSet<u64>,
}

impl Inner {
    /// The view that a connection reads.
    pub(super) fn view(&self, who: u64) -> View {
        match self.snapshots.get(&who) {
            _ if self.locks.writer() == Some(who) => View::Own,
            Some(&snapshot) => View::Snapshot(snapshot.id),
            None if self.locks.has(who) => View::Newest,
            None => self
                .before
                .map_or(View::Committed, |before| View::Snapshot(before.id)),
        }
    }

    /// The number of the state for a connection that begins to read now.
    pub(super) fn state_for(&self, who: u64) -> u64 {
        let snapshot = self.snapshots.get(&who);
        snapshot.map_or(self.state, |snapshot| snapshot.state)
    }

    /// Gives connection `who` a snapshot, if it has none: of the state before the commit in
    /// progress, or else of the stored state. Returns whether it has one; `false` if snapshots are
    /// not supported.
    fn give_snapshot(&mut self, who: u64) -> Result<bool, Trouble> {
        if self.has_snapshot(who) {
            return Ok(true);
        }
        let Some(bytes) = &mut self.bytes else {
            return Ok(false);
        };
        let taken = match self.before {
            Some(before) => {
                bytes.share_snapshot(before.id);
                Some(before)
            }
            None => bytes.snapshot()?.map(|id| Snapshot {
                id,
                state: self.stored,
            }),
        };
        self.snapshots.extend(taken.map(|taken| (who, taken)));
        Ok(taken.is_some())
    }

    pub(super) fn take_snapshot_back(&mut self, who: u64) {
        if let (Some(taken), Some(bytes)) = (self.snapshots.remove(&who), &mut self.bytes) {
            bytes.end_snapshot(taken.id);
        }
    }

    pub(super) fn has_snapshot(&self, who: u64) -> bool {
        self.snapshots.contains_key(&who)
    }

    /// Whether the state that connection `who` reads is not the newest one, or was lost. `seen` is
    /// the state with which its transaction began.
    pub(super) fn is_stale(&self, who: u64, seen: Option<u64>) -> bool {
        let is_other = seen.is_some_and(|seen| seen != self.state);
        let snapshot = self.snapshots.get(&who).zip(self.bytes.as_ref());
        let is_old = snapshot
            .is_some_and(|(taken, bytes)| taken.state != self.state || !bytes.is_current(taken.id));
        is_other || is_old
    }

    /// Whether a connection may begin to write: not if others have committed since it began to read
    /// the state `seen`.
    fn may_write(&mut self, who: u64, seen: Option<u64>) -> bool {
        let is_current = !self.is_stale(who, seen);
        if is_current && !self.locks.is_exclusive() {
            self.take_snapshot_back(who);
        }
        is_current
    }

    /// Begins to read a snapshot of the visible state, for a copy. Returns it, or `None` if
    /// snapshots are not supported. The store stays open, as for any reader.
    pub(super) fn begin_copy(&mut self, who: u64) -> Result<Option<u64>, Trouble> {
        if self.give_snapshot(who)? {
            self.locks.raise(who, Level::None, Level::Shared, true);
        }
        Ok(self.snapshots.get(&who).map(|taken| taken.id))
    }

    /// Ends the copy begun by [`Inner::begin_copy`].
    pub(super) fn end_copy(&mut self, who: u64) {
        self.locks.lower(who, Level::Shared, Level::None);
        self.take_snapshot_back(who);
    }

    /// Commits the live transaction, if any. Others see it after [`Inner::end_commit`]. If there
    /// are other connections, or if the transaction is over several databases, the caller carries
    /// out the returned requests to the medium, and then calls [`Inner::outcome`].
    pub(super) fn commit(&mut self, is_of_several: bool) -> Result<Option<Asked>, Trouble> {
        let Some(bytes) = &mut self.bytes else {
            return Err(not_open());
        };
        // SQLite requests another commit when it has committed: there is nothing left to do.
        if !bytes.has_changes() {
            return Ok(None);
        }
        // SQLite may commit again before the commit has ended: to undo it, or to truncate the file.
        // Others still get the state before the first one.
        let is_first = self.before.is_none();
        if is_first && (self.connections > 1 || is_of_several) {
            let state = self.state;
            let taken = bytes.snapshot()?;
            self.before = taken.map(|id| Snapshot { id, state });
        }
        let committed = match self.before {
            Some(_) => bytes.commit_apart(),
            None => bytes.commit().map(|()| None),
        };
        match committed {
            Ok(_) => {
                self.state += 1;
                self.stored = self.state;
            }
            Err(_) if is_first => self.end_commit(),
            Err(_) => {}
        }
        committed
    }

    /// Abandons a store that found no promised room, so that the caller can reopen it: its state in
    /// memory is ahead of the durable one. Fails while a connection has a lock, or a commit is in
    /// progress.
    pub(super) fn give_up_if_lost(&mut self) -> Result<(), Trouble> {
        if !self.bytes.as_ref().is_some_and(|it| it.has_lost_room()) {
            return Ok(());
        }
        if !self.locks.is_idle() || self.is_committing() {
            return Err(Trouble::new(
                TroubleKind::Busy,
                "the file system had no space for a commit: the store reopens when all older \
                 transactions have ended",
            ));
        }
        if let Some(mut lost) = self.bytes.take()
            && let Some(store) = lost.store()
        {
            store.abandon();
        }
        Ok(())
    }

    /// Lets the store release free space, unless a transaction or commit is in progress.
    pub(super) fn give_room_back(&mut self) {
        if !self.is_committing()
            && self.locks.writer().is_none()
            && let Some(bytes) = &mut self.bytes
        {
            bytes.give_room_back();
        }
    }

    /// Whether a commit is in progress, or a group is not durable.
    pub(super) fn is_committing(&self) -> bool {
        self.before.is_some() || self.has_open_group()
    }

    /// The result of the work that [`Inner::commit`] left to the caller.
    pub(super) fn outcome(&mut self) -> Result<(), Trouble> {
        self.bytes.as_mut().map_or(Ok(()), |bytes| bytes.outcome())
    }

    /// Ends the commit in progress: others now see the committed state.
    pub(super) fn end_commit(&mut self) {
        if let (Some(before), Some(bytes)) = (self.before.take(), &mut self.bytes) {
            bytes.end_snapshot(before.id);
        }
    }

    /// Raises the level of a connection like [`Locks::raise`]. A connection gets a snapshot if it
    /// reads while another one writes, or begins to read while a group is not durable.
    pub(super) fn raise(&mut self, asks: &Asks) -> Result<Level, Trouble> {
        let &Asks {
            who,
            seen,
            has,
            wants,
            means_to_write,
        } = asks;
        let has_seen = seen.filter(|_| has > Level::None);
        if wants > Level::Shared && !self.may_write(who, has_seen) {
            // Others have committed since it began to read.
            return Ok(has);
        }
        let is_new = wants > Level::Shared && self.locks.writer().is_none();
        if is_new && self.turns.is_promised(who, Instant::now()) {
            // The write lock is promised to another connection.
            return Ok(has);
        }
        // Whether all connections that read beside the writer have snapshots.
        let mut apart = true;
        let is_other = |writer| writer != who;
        if wants == Level::Exclusive && !self.locks.writer().is_some_and(is_other) {
            // The writer is about to write to the file: other readers keep the state before.
            let others: Vec<u64> = self.locks.others(who).collect();
            for other in others {
                apart &= !self.alone.contains(&other) && self.give_snapshot(other)?;
            }
        }
        if has == Level::None && self.locks.is_pending() {
            // A new reader beside a writer that commits or waits for readers.
            let mut both = self.locks.writer().into_iter().chain([who]);
            apart = !both.any(|one| self.alone.contains(&one)) && self.give_snapshot(who)?;
        } else if has == Level::None && self.has_open_group() && !means_to_write {
            self.give_snapshot(who)?;
        }
        let gets = self.locks.raise(who, has, wants, apart);
        if is_new && gets > Level::Shared {
            self.turns.leave(who);
        }
        if gets == Level::None {
            // Refused: it reads nothing.
            self.take_snapshot_back(who);
        }
        Ok(gets)
    }
}

/// The error of calls before the store is open.
pub(super) fn not_open() -> Trouble {
    Trouble::new(TroubleKind::Busy, "the store is not open yet")
}

/// Checks that no call has panicked while it held the mutex.
pub(super) fn not_poisoned<T>(held: LockResult<T>) -> Result<T, Trouble> {
    held.map_err(|_| {
        Trouble::new(
            TroubleKind::Io,
            "an earlier call panicked: close the database and open it again",
        )
    })
}

impl Shared {
    /// A database that this process will open with these options.
    pub(super) fn new(path: &Path, how: How) -> Shared {
        Shared {
            path: path.to_path_buf(),
            process: std::process::id(),
            identity: Mutex::default(),
            inner: Mutex::new(Inner {
                bytes: None,
                how,
                is_short: false,
                locks: Locks::default(),
                journals: Vec::new(),
                snapshots: BTreeMap::new(),
                before: None,
                state: 0,
                stored: 0,
                groups: Groups::default(),
                turns: Turns::default(),
                connections: 0,
                alone: BTreeSet::new(),
            }),
            turn_is_free: Condvar::new(),
            one_has_come: Condvar::new(),
            one_is_done: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Inner>, Trouble> {
        not_poisoned(self.inner.lock())
    }

    /// Whether a path leads to this database.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        if self.process != std::process::id() {
            return false;
        }
        let open = *self
            .identity
            .lock()
            .unwrap_or_else(|held| held.into_inner());
        // A database that is not open yet will be opened by its own path.
        if open.is_none() && self.path == path {
            return true;
        }
        let known = open.or_else(|| identity(&self.path));
        known.is_some() && known == identity(path)
    }
}

impl Drop for Shared {
    /// Does not close a store on which a call has panicked: its state in memory may be
    /// inconsistent.
    fn drop(&mut self) {
        if let Err(panicked) = self.inner.get_mut()
            && let Some(bytes) = &mut panicked.into_inner().bytes
            && let Some(store) = bytes.store()
        {
            store.abandon();
        }
    }
}
