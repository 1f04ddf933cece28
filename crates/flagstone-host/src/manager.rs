//! The interface between the host's engine and its recovery managers. A manager decides when pages
//! and log records are written, and what a restart does with them. The engine executes these
//! decisions. A manager sees the host's memory ([`Memory`], and its log) but has no device: it can
//! only name the next step.

use super::below::{As, Below};
use super::config::HostConfig;
use super::frame::Frame;
use super::locks::{LockTable, Mode};
use super::log::{Log, LogRecord, Lsn, Tape};
use super::{HostError, Rid, Step};
use crate::buffer::Pool;
use flagstone::commit::MergedPage;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// The commit waits for its group.
    Committing,
    /// The transaction ends when its locks are released.
    Ending,
}

/// Frames, locks, live transactions.
pub(super) struct Memory {
    pub(super) pool: Pool<Frame>,
    pub(super) locks: LockTable,
    pub(super) txs: BTreeMap<TxId, Phase>,
    pub(super) config: HostConfig,
    pub(super) last_tx: TxId,
    pub(super) page_bytes: usize,
    /// The instant of the last call. It never decreases.
    pub(super) clock: Nanos,
}

impl Memory {
    pub(super) fn new(config: &HostConfig, page_bytes: usize, last_tx: TxId) -> Memory {
        Memory {
            pool: Pool::new(config.frames, config.policy, &config.policy_settings),
            locks: LockTable::default(),
            txs: BTreeMap::new(),
            config: config.clone(),
            last_tx,
            page_bytes,
            clock: Nanos::ZERO,
        }
    }

    /// The frame of a fetched page.
    pub(super) fn frame(&mut self, at: Lpn) -> &mut Frame {
        self.pool.peek_mut(at).expect("it was fetched")
    }

    /// Tells the pool whether a page has changed. Until then a write access counts as a change.
    pub(super) fn mark(&mut self, at: Lpn) {
        if let Some(frame) = self.pool.peek(at) {
            let changed = frame.changed != 0;
            self.pool.set_dirty(at, changed);
        }
    }

    /// Changed pages with the LSN of their first change, in frame order.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Lpn, Lsn)> {
        let frames = self.pool.iter().map(|(at, frame)| (at, frame.changed));
        frames.filter(|&(_, since)| since != 0)
    }
}

/// A database whose device and log are open and whose recovery follows.
pub(super) struct Opened {
    pub(super) device: Below,
    pub(super) manager: Box<dyn Manager>,
    /// The contents of the log.
    pub(super) tape: Option<Tape>,
    /// Number of logical pages for records.
    pub(super) pages: u32,
    /// The highest transaction identifier on the device.
    pub(super) last_tx: TxId,
    pub(super) done: Nanos,
}

/// Whether a transaction may change a record.
pub(super) enum Admission {
    Granted,
    /// Yes, once it has begun on the device.
    Enters,
    Refused(Step<()>),
}

/// The conditions for writing a page out.
pub(super) struct WriteBack {
    /// The page is not written before this instant,
    pub(super) not_before: Nanos,
    /// and not before the log is durable up to this position.
    pub(super) log_to: Option<Lsn>,
    pub(super) how: As,
}

/// Whether the log has room for a change.
pub(super) enum Room {
    Enough,
    /// No space is needed: nothing would be changed.
    Unneeded,
    /// After the waiting group of commits is written. Then ask the manager again.
    AfterGroup,
    /// After a checkpoint that writes all pages out.
    AfterCheckpoint,
    /// After this transaction is aborted.
    AfterAbort(TxId),
}

/// The steps of a commit.
pub(super) enum Commit {
    /// The transaction must wait first.
    Refused(Step<()>),
    /// The transaction changed nothing.
    Nothing,
    /// Its commit record is in the log and is written with its group, now or later.
    Waits,
    WithGroup,
    Steps(CommitSteps),
}

/// Steps of a commit, in this order.
#[derive(Default)]
pub(super) struct CommitSteps {
    /// Whether to begin the transaction on the device.
    pub(super) enters: bool,
    /// Wait until this instant.
    pub(super) not_before: Nanos,
    /// Write these pages, each when the device has accepted the one before.
    pub(super) pages: Vec<Lpn>,
    /// Force the log, which commits the transaction. The engine then does not wait for the device's
    /// own commit.
    pub(super) log_to: Option<Lsn>,
}

/// Steps of a roll-back.
pub(super) enum RollBack {
    /// The transaction changed nothing.
    Nothing,
    /// Its changes were removed from the frames.
    Forgotten,
    /// Undo its changes one by one, beginning with this log record.
    From(Lsn),
}

/// Changes of a page that a restart redoes.
pub(super) type Redo<'t> = (Lpn, Vec<(Lsn, LogRecord<'t>)>);

/// A recovery manager. Before each call the engine has checked the arguments and holds the locks.
pub(super) trait Manager {
    /// Bytes of a page to reserve while one of its records is changed.
    fn overhead(&self) -> usize {
        0
    }

    /// The manager's log.
    fn log(&self) -> Option<&Log> {
        None
    }

    /// The manager's log, for the engine to write.
    fn log_mut(&mut self) -> Option<&mut Log> {
        None
    }

    /// The lock mode of a device slot, if the number of live transactions is bounded.
    fn place(&self) -> Option<Mode> {
        None
    }

    /// The device transaction in which to read a page.
    fn reads_in(&self, _at: Lpn) -> Option<TxId> {
        None
    }

    /// Called when a page was read.
    fn loaded(
        &mut self,
        _at: Lpn,
        _frame: &mut Frame,
        _read: &mut MergedPage,
    ) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether a changed page may be written out now.
    fn may_write_back(&self, _locks: &LockTable, _at: Lpn, _frame: &Frame) -> bool {
        true
    }

    /// Transactions that must begin on the device before a page is written.
    fn enters(&self, _frame: &Frame) -> Vec<TxId> {
        Vec::new()
    }

    /// The conditions for writing a changed page out at `now`.
    fn write_back(&mut self, now: Nanos, at: Lpn, frame: &Frame) -> WriteBack;

    /// Called when a page was written out; it is durable at `done` at the earliest.
    fn written(&mut self, _frame: &mut Frame, _how: &As, _done: Nanos) {}

    /// Called when a transaction has begun on the device, with its identifier there.
    fn entered(&mut self, _tx: TxId, _on_device: TxId) {}

    /// The transaction's identifier on the device, if it has begun there.
    fn on_device(&self, _tx: TxId) -> Option<TxId> {
        None
    }

    /// The host's identifier of a device transaction.
    fn of_device(&self, on_device: TxId) -> TxId {
        on_device
    }

    /// Whether a transaction that holds the lock may change a record.
    fn admit(&mut self, _memory: &mut Memory, _tx: TxId, _rid: Rid) -> Admission {
        Admission::Granted
    }

    /// Whether page and log have room to change a record. Its page is in the pool.
    fn room(
        &mut self,
        memory: &Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Room, HostError>;

    /// Logs the beginning of a transaction if necessary. Returns whether it did.
    fn log_begin(&mut self, _tx: TxId) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Changes a record. On error nothing is changed.
    fn update(
        &mut self,
        memory: &mut Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError>;

    /// Commits. Called again after a wait for a lock.
    fn commit(&mut self, memory: &mut Memory, now: Nanos, tx: TxId) -> Result<Commit, HostError>;

    /// Called when the steps of a commit are complete, at `done`.
    fn committed(&mut self, _memory: &mut Memory, _tx: TxId, _done: Nanos) {}

    /// Closes the waiting group of commits. Returns the LSN up to which the log must be forced.
    fn group(&mut self) -> Option<Lsn> {
        None
    }

    /// Called when the group is durable.
    fn group_written(&mut self, _done: Nanos) -> Result<(), HostError> {
        Ok(())
    }

    /// When the member that joined the group last is durable. [`Manager::told`] then does not
    /// report that member.
    fn told_last(&mut self) -> Nanos {
        unreachable!("only a manager with groups answers `WithGroup`")
    }

    /// Transactions of groups that became durable since the last call, each with the instant at
    /// which it was durable.
    fn told(&mut self) -> Vec<(TxId, Nanos)> {
        Vec::new()
    }

    /// When the group must be written, or its members be reported.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Cached pages to write out before a transaction is rolled back.
    fn writes_before_abort(&self, _memory: &Memory, _tx: TxId) -> Vec<Lpn> {
        Vec::new()
    }

    /// Rolls back.
    fn abort(&mut self, memory: &mut Memory, tx: TxId) -> Result<RollBack, HostError>;

    /// Undoes a logged change. Its page has been fetched.
    fn undo(&mut self, _memory: &mut Memory, _entry: &LogRecord<'_>) -> Result<(), HostError> {
        Ok(())
    }

    /// Called when all changes of a transaction are undone.
    fn undone(&mut self, _tx: TxId) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether a checkpoint is due. If so, pages that changed after the returned LSN may stay
    /// dirty.
    fn checkpoint_due(&self) -> Option<Lsn> {
        None
    }

    /// Pages outside the pool with a change older than `older_than` that is not on flash.
    fn absent(&self, _older_than: Lsn) -> Vec<Lpn> {
        Vec::new()
    }

    /// Logs a checkpoint. Returns its start, and the oldest record that a restart needs.
    fn checkpoint(&mut self, _memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        unreachable!("a manager with a log takes checkpoints")
    }

    /// The changes in the log that a restart redoes, in order.
    fn analyse<'t>(&mut self, _tape: &'t Tape) -> Result<Vec<Redo<'t>>, HostError> {
        Ok(Vec::new())
    }

    /// Redoes the changes that a fetched page lacks.
    fn redo(&mut self, _memory: &mut Memory, _changes: Redo<'_>) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether redone pages must be on flash before anything else is logged.
    fn cleans_redone(&self) -> bool {
        false
    }

    /// The next change that a restart undoes.
    fn next_undo<'t>(&mut self, _tape: &'t Tape) -> Result<Option<LogRecord<'t>>, HostError> {
        Ok(None)
    }

    /// Called after redo and undo, before the checkpoint. Pages that changed after the returned LSN
    /// may stay dirty.
    fn restarted(&mut self, _memory: &Memory) -> Result<Lsn, HostError> {
        Ok(0)
    }

    /// Bytes of each structure in memory.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
