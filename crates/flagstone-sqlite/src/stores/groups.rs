//! Group commit: transactions of several connections become durable with one flush.
//!
//! ```text
//!   connection ──COMMIT──> joined ──one of those who wait leads──> flushing ──sync──> durable
//!                            │
//!                            └─ the next connection has the write lock, and reads it
//! ```
//!
//! COMMIT of a small transaction keeps its changes in memory, passes the write lock to the next
//! connection, and waits. One of the waiting connections becomes the leader: it commits all joined
//! transactions as one transaction of the store, and flushes. Later transactions form the next
//! group. COMMIT returns when the group is durable.
//!
//! Until then only connections that intend to write see the changes. Readers get the last durable
//! state. If a connection intended to write, has read a state that is not durable yet, and then
//! wrote nothing, its transaction waits for that state before it ends.
//!
//! A transaction without room beside the group commits by itself once the group is durable, and
//! fails alone if there is still no room. If a group is refused nevertheless, for example because a
//! file system lacks promised room, the whole group fails. The transaction with the write lock
//! fails as well if it has read a lost state. For a while each transaction then commits by itself.
//!
//! Some transactions never join: large ones, those that truncate the file or change the schema,
//! parts of a transaction over several databases, and those of connections that continue to read.
//! They wait until all others are durable, and commit by themselves.

use super::Handle;
use super::shared::{Inner, Shared, Snapshot, not_open, not_poisoned};
use crate::bytes::{Trouble, TroubleKind};
use crate::locks::Level;
use flagstone_store::{Asked, Pace};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Instant;

/// The result of a group, once it is known.
pub(super) type Outcome = Arc<OnceLock<Result<(), Trouble>>>;

/// Number of transactions that commit by themselves after a group has found no room.
const CAREFUL: u32 = 64;

/// The forming group, and the one before it.
#[derive(Default)]
pub(super) struct Groups {
    members: usize,
    outcome: Outcome,
    /// The result of the group that is being flushed.
    flushing: Option<Outcome>,
    has_leader: bool,
    pace: Pace,
    /// Number of transactions that must still commit by themselves.
    careful: u32,
    /// The connection with the write lock, if it has read a lost state.
    misled: Option<u64>,
}

impl Inner {
    /// The number of the newest durable state, which readers see.
    fn durable_state(&self) -> u64 {
        self.before.map_or(self.stored, |before| before.state)
    }

    pub(super) fn is_durable(&self, state: u64) -> bool {
        state <= self.durable_state()
    }

    fn has_joined(&self) -> bool {
        let bytes = self.bytes.as_ref();
        bytes.is_some_and(|bytes| bytes.has_joined())
    }

    /// Whether a group is not durable yet.
    pub(super) fn has_open_group(&self) -> bool {
        self.has_joined() || self.groups.flushing.is_some()
    }

    /// Called when the connection with the write lock begins to write. Decides whether its
    /// transaction may join a group.
    pub(super) fn begin_to_write(&mut self) {
        let is_shared = self.connections > 1 && self.alone.is_empty();
        let Some(bytes) = &mut self.bytes else {
            return;
        };
        if !bytes.has_changes() {
            let is_careful = self.groups.careful > 0;
            self.groups.careful = self.groups.careful.saturating_sub(1);
            bytes.keep(is_shared && !is_careful && bytes.can_join());
        }
    }

    /// Whether the live transaction is kept in memory and may still join a group.
    pub(super) fn can_keep(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| bytes.may_join())
    }

    /// Whether there is a live transaction that may join a group.
    pub(super) fn may_join(&self) -> bool {
        let bytes = self.bytes.as_ref();
        self.can_keep() && bytes.is_some_and(|bytes| bytes.has_changes())
    }

    /// Whether a connection can be granted a lock only once all groups are durable: it requires
    /// exclusive access, or others have begun with a state that is not durable, of which there is
    /// no snapshot.
    pub(super) fn must_wait_for_groups(&self, who: u64, wants: Level) -> bool {
        let mut others = self.locks.others(who);
        let writes = wants == Level::Exclusive && others.any(|other| !self.has_snapshot(other));
        self.has_open_group() && (writes || self.alone.contains(&who))
    }

    /// Fails if the transaction with the write lock has read a lost state.
    pub(super) fn is_misled(&self, who: u64) -> Result<(), Trouble> {
        match self.groups.misled {
            Some(misled) if misled == who => Err(is_gone()),
            _ => Ok(()),
        }
    }

    /// Called when the connection releases the write lock.
    pub(super) fn is_over(&mut self, who: u64) {
        if self.groups.misled == Some(who) {
            self.groups.misled = None;
        }
    }

    /// Commits the forming group in the store; the caller carries out the returned requests to the
    /// medium. Until [`Inner::end_commit`] new readers get a snapshot of the state before. If the
    /// group finds no room, its state is lost, and so is a transaction that has read it.
    fn commit_group(&mut self) -> Result<Asked, Trouble> {
        let state = self.stored;
        let Some(bytes) = &mut self.bytes else {
            return Err(not_open());
        };
        let taken = bytes.snapshot();
        let committed = taken.and_then(|taken| {
            self.before = taken.map(|id| Snapshot { id, state });
            bytes.commit_joined()
        });
        match &committed {
            Ok(_) => self.stored = self.state,
            Err(_) => {
                bytes.drop_joined();
                self.end_commit();
                // The previous state is back, under a new number, since connections have seen the
                // lost one.
                self.state += 1;
                self.stored = self.state;
                self.groups.careful = CAREFUL;
                self.groups.misled = self.locks.writer();
            }
        }
        committed
    }
}

/// The error for a connection that has read a lost state.
pub(super) fn is_gone() -> Trouble {
    Trouble::new(
        TroubleKind::Full,
        "an earlier transaction, whose changes this one has read, failed for lack of space: start \
         this transaction again",
    )
}

/// The leading thread. Wakes the others even if it panics.
struct Leading<'a>(&'a Shared);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.one_is_done.notify_all();
    }
}

impl Shared {
    /// Passes the write lock to the next waiting connection.
    pub(super) fn pass_turn(&self, inner: &mut Inner) {
        if !inner.turns.is_empty() {
            inner.turns.pass(Instant::now());
            self.turn_is_free.notify_all();
        }
    }

    /// Waits until a group is durable. Leads the flush if no other thread does.
    pub(super) fn wait_for(&self, outcome: &Outcome) -> Result<(), Trouble> {
        let mut inner = self.lock()?;
        loop {
            if let Some(outcome) = outcome.get() {
                return outcome.clone();
            }
            if inner.groups.has_leader {
                inner = not_poisoned(self.one_is_done.wait(inner))?;
            } else {
                inner.groups.has_leader = true;
                self.lead(inner)?;
                inner = self.lock()?;
            }
        }
    }

    /// Makes the forming group durable, and notifies its members. The medium writes and syncs
    /// without the mutex.
    fn lead<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> Result<(), Trouble> {
        let leading = Leading(self);
        let gathered = Pace::gather(inner, &self.one_has_come, |inner| {
            (&inner.groups.pace, inner.groups.members)
        });
        let mut inner = not_poisoned(gathered)?;
        let members = std::mem::take(&mut inner.groups.members);
        let outcome = std::mem::take(&mut inner.groups.outcome);
        inner.groups.flushing = Some(Arc::clone(&outcome));
        let began = Instant::now();
        let committed = match inner.commit_group() {
            Ok(asked) => {
                drop(inner);
                let carried = catch_unwind(AssertUnwindSafe(|| asked.carry_out()));
                inner = self.lock()?;
                if let Err(panicked) = carried {
                    // Unwind while holding the mutex, which poisons it: the state may be
                    // inconsistent.
                    resume_unwind(panicked);
                }
                inner.end_commit();
                inner.outcome()
            }
            Err(trouble) => Err(trouble),
        };
        let groups = &mut inner.groups;
        groups.flushing = None;
        groups.has_leader = false;
        let meanwhile = groups.members;
        groups.pace.flushed(members, meanwhile, began.elapsed());
        let _ = outcome.set(committed);
        drop(inner);
        drop(leading);
        Ok(())
    }

    /// Waits until everything committed by now is durable.
    pub(super) fn next_durable<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>, Trouble> {
        if !inner.has_open_group() {
            return Ok(inner);
        }
        let newest = inner.groups.newest();
        drop(inner);
        // The members get their own results.
        let _ = self.wait_for(&newest);
        self.lock()
    }

    /// Waits until everything committed is durable. No transaction joins meanwhile: connection
    /// `who` has the write lock, or requires exclusive access. Fails if the state that it has read
    /// is lost.
    pub(super) fn when_durable<'a>(
        &'a self,
        who: u64,
        mut inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>, Trouble> {
        loop {
            inner.is_misled(who)?;
            if !inner.has_open_group() {
                return Ok(inner);
            }
            // The leader need not wait for more members.
            inner.groups.pace.hurry();
            self.one_has_come.notify_one();
            inner = self.next_durable(inner)?;
        }
    }

    /// Makes the transaction of a connection commit by itself. Waits like [`Shared::when_durable`].
    pub(super) fn by_itself<'a>(
        &'a self,
        who: u64,
        inner: MutexGuard<'a, Inner>,
    ) -> Result<MutexGuard<'a, Inner>, Trouble> {
        let mut inner = self.when_durable(who, inner)?;
        if let Some(bytes) = &mut inner.bytes {
            bytes.keep(false);
        }
        Ok(inner)
    }
}

impl Groups {
    /// The outcome of the group that made the newest state.
    fn newest(&self) -> Outcome {
        match &self.flushing {
            Some(outcome) if self.members == 0 => Arc::clone(outcome),
            _ => Arc::clone(&self.outcome),
        }
    }
}

impl Handle {
    /// Waits until the state that this connection has seen is durable.
    ///
    /// # Errors
    /// The state is lost.
    pub(super) fn wait_until_durable(&self) -> Result<(), Trouble> {
        let inner = self.shared.lock()?;
        let early = self.seen.filter(|seen| !inner.is_durable(*seen));
        let Some(seen) = early.filter(|_| inner.has_open_group()) else {
            return Ok(());
        };
        let outcome = match &inner.groups.flushing {
            Some(outcome) if seen <= inner.stored => Arc::clone(outcome),
            _ => Arc::clone(&inner.groups.outcome),
        };
        drop(inner);
        self.shared.wait_for(&outcome)
    }

    /// Whether the transaction of this connection may join a group, and there is room for it.
    pub(crate) fn may_join(&self) -> bool {
        if !self.lets_go || self.keeps_locks || self.how.shares_cache {
            return false;
        }
        let Ok(mut inner) = self.shared.lock() else {
            return false;
        };
        let is_one = inner.locks.writer() == Some(self.id) && inner.may_join();
        let bytes = inner.bytes.as_mut().filter(|_| is_one);
        bytes.is_some_and(|bytes| bytes.has_room_to_join())
    }

    /// Records that several SQLite connections act as this one, whose transactions then join no
    /// group.
    pub(crate) fn share_cache(&mut self) {
        self.how.shares_cache = true;
    }

    /// Lets the transaction join a group when SQLite ends its commit.
    pub(crate) fn join_later(&mut self) {
        self.joins = true;
    }

    /// Whether the transaction will join a group.
    pub(crate) fn joins(&self) -> bool {
        self.joins
    }

    /// Commits the transaction as a member of a group, and releases the write lock. Returns the
    /// future result; `None` if it must commit by itself.
    pub(super) fn join(&mut self) -> Result<Option<Outcome>, Trouble> {
        let mut inner = self.shared.lock()?;
        inner.is_misled(self.id)?;
        if inner.locks.writer() != Some(self.id) || !inner.may_join() {
            return Ok(None);
        }
        if let Some(bytes) = &mut inner.bytes {
            bytes.join();
        }
        inner.state += 1;
        self.seen = Some(inner.state);
        inner.groups.members += 1;
        if inner.groups.pace.has_all(inner.groups.members) {
            self.shared.one_has_come.notify_one();
        }
        let outcome = Arc::clone(&inner.groups.outcome);
        // The write lock is free for the next connection. SQLite still counts on a shared lock
        // until the commit has ended, but reads nothing before.
        inner.locks.lower(self.id, self.level, Level::None);
        self.level = Level::Shared;
        self.shared.pass_turn(&mut inner);
        Ok(Some(outcome))
    }
}
