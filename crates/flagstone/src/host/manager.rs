//! The seam between the host's engine and its recovery managers. A manager decides which pages and
//! log records are written when, and what a restart does with them. The engine carries the
//! decisions out. A manager sees the memory of the host ([`Memory`], and its log). It has no
//! device: it can only name the next step.

use super::below::{As, Below};
use super::config::HostConfig;
use super::frame::Frame;
use super::locks::{LockTable, Mode};
use super::log::{Log, LogRecord, Lsn, Tape};
use super::{HostError, Rid, Step};
use crate::buffer::Pool;
use crate::commit::MergedPage;
use crate::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// It waits for its group.
    Committing,
    /// It is over at the instant at which its locks are released.
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
    /// The instant of the last call. No later call has an earlier instant. The instants that a call
    /// waits for lie after it.
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

    /// A page that was fetched.
    pub(super) fn frame(&mut self, at: Lpn) -> &mut Frame {
        self.pool.peek_mut(at).expect("it was fetched")
    }

    /// Tells the pool whether a page has changed. Until then an access for a write counts as a
    /// change.
    pub(super) fn mark(&mut self, at: Lpn) {
        if let Some(frame) = self.pool.peek(at) {
            let changed = frame.changed != 0;
            self.pool.set_dirty(at, changed);
        }
    }

    /// Pages that have changed, with the LSN of the first change, in the order of the frames.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Lpn, Lsn)> {
        let frames = self.pool.iter().map(|(at, frame)| (at, frame.changed));
        frames.filter(|&(_, since)| since != 0)
    }
}

/// A database whose device and log are open, and whose recovery comes next.
pub(super) struct Opened {
    pub(super) device: Below,
    pub(super) manager: Box<dyn Manager>,
    /// The contents of the log.
    pub(super) tape: Option<Tape>,
    /// Logical pages for records.
    pub(super) pages: u32,
    /// The highest transaction identifier on the device.
    pub(super) last_tx: TxId,
    pub(super) done: Nanos,
}

/// Whether a transaction may change a record.
pub(super) enum Admission {
    Granted,
    /// Yes, once the transaction has begun on the device.
    Enters,
    Refused(Step<()>),
}

/// The conditions for writing a page out.
pub(super) struct WriteBack {
    /// Not before this instant,
    pub(super) not_before: Nanos,
    /// nor before the log is durable up to here.
    pub(super) log_to: Option<Lsn>,
    pub(super) how: As,
}

/// Whether the log takes a change.
pub(super) enum Room {
    Enough,
    /// There is nothing to change.
    Unneeded,
    /// There is, once the commits that wait for each other are written. Then the manager is asked
    /// again.
    AfterGroup,
    /// There is, once a checkpoint has written all pages out.
    AfterCheckpoint,
    /// There is, once this transaction is aborted.
    AfterAbort(TxId),
}

/// The steps of a commit.
pub(super) enum Commit {
    /// The transaction has to wait before anything is done.
    Refused(Step<()>),
    /// It changed nothing.
    Nothing,
    /// Its record is in the log, and is written with its group: later, or now.
    Waits,
    WithGroup,
    Steps(CommitSteps),
}

/// These steps, one after the other.
#[derive(Default)]
pub(super) struct CommitSteps {
    /// The device has to know the transaction.
    pub(super) enters: bool,
    /// Wait until then.
    pub(super) not_before: Nanos,
    /// Write these pages, each when the device has taken the one before.
    pub(super) pages: Vec<Lpn>,
    /// Force the log, which commits the transaction. The device's own commit is then not waited
    /// for.
    pub(super) log_to: Option<Lsn>,
}

/// The steps of a roll-back.
pub(super) enum RollBack {
    /// The transaction changed nothing.
    Nothing,
    /// Its changes are out of the frames.
    Forgotten,
    /// Its changes are taken back one by one, the one with this log record first.
    From(Lsn),
}

/// Changes of a page that a restart redoes.
pub(super) type Redo<'t> = (Lpn, Vec<(Lsn, LogRecord<'t>)>);

/// A recovery manager. The engine has checked the arguments and holds the locks before any of these
/// is called.
pub(super) trait Manager {
    /// Bytes that a page needs beside its records while one of them is changed.
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

    /// How a place among the device's live transactions is locked, if their number is bounded.
    fn place(&self) -> Option<Mode> {
        None
    }

    /// The transaction of the device in which a page is read.
    fn reads_in(&self, _at: Lpn) -> Option<TxId> {
        None
    }

    /// A page was read.
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

    /// Transactions that have to begin on the device before a page is written.
    fn enters(&self, _frame: &Frame) -> Vec<TxId> {
        Vec::new()
    }

    /// The conditions for writing a changed page out at `now`.
    fn write_back(&mut self, now: Nanos, at: Lpn, frame: &Frame) -> WriteBack;

    /// A page was written out, and is durable at `done` at the earliest.
    fn written(&mut self, _frame: &mut Frame, _how: &As, _done: Nanos) {}

    /// A transaction has begun on the device, where it has another identifier.
    fn entered(&mut self, _tx: TxId, _on_device: TxId) {}

    /// Its identifier on the device, if it has begun there.
    fn on_device(&self, _tx: TxId) -> Option<TxId> {
        None
    }

    /// The host's identifier of a transaction of the device.
    fn of_device(&self, on_device: TxId) -> TxId {
        on_device
    }

    /// Whether a transaction that has the lock may go on to change a record.
    fn admit(&mut self, _memory: &mut Memory, _tx: TxId, _rid: Rid) -> Admission {
        Admission::Granted
    }

    /// Whether there is room for a change of a record whose page is in the pool, in the page and in
    /// the log.
    fn room(
        &mut self,
        memory: &Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Room, HostError>;

    /// Logs that a transaction begins, if it has to be logged. Says whether it did.
    fn log_begin(&mut self, _tx: TxId) -> Result<bool, HostError> {
        Ok(false)
    }

    /// Changes a record. An error changes nothing.
    fn update(
        &mut self,
        memory: &mut Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError>;

    /// Commits. After a wait for a lock it is called again.
    fn commit(&mut self, memory: &mut Memory, now: Nanos, tx: TxId) -> Result<Commit, HostError>;

    /// The steps of a commit are done, at `done`.
    fn committed(&mut self, _memory: &mut Memory, _tx: TxId, _done: Nanos) {}

    /// The commits that wait for each other are to be written. Returns up to where the log has to
    /// be forced.
    fn group(&mut self) -> Option<Lsn> {
        None
    }

    /// The group is durable.
    fn group_written(&mut self, _done: Nanos) -> Result<(), HostError> {
        Ok(())
    }

    /// When the member that joined the group last is durable. It is then not named by
    /// [`Manager::told`].
    fn told_last(&mut self) -> Nanos {
        unreachable!("only a manager with groups answers `WithGroup`")
    }

    /// Members of groups that are written, with the instant of each, since the last call.
    fn told(&mut self) -> Vec<(TxId, Nanos)> {
        Vec::new()
    }

    /// When the group has to be written, or asked for.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Pages in the pool that are written out before a transaction is rolled back.
    fn writes_before_abort(&self, _memory: &Memory, _tx: TxId) -> Vec<Lpn> {
        Vec::new()
    }

    /// Rolls back.
    fn abort(&mut self, memory: &mut Memory, tx: TxId) -> Result<RollBack, HostError>;

    /// Takes a logged change back. Its page has been fetched.
    fn undo(&mut self, _memory: &mut Memory, _entry: &LogRecord<'_>) -> Result<(), HostError> {
        Ok(())
    }

    /// All changes of a transaction are taken back.
    fn undone(&mut self, _tx: TxId) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether a checkpoint is due. If so, pages that have changed since the record returned may
    /// stay dirty.
    fn checkpoint_due(&self) -> Option<Lsn> {
        None
    }

    /// Pages that are not in the pool and have a change older than `older_than` that is not on
    /// flash.
    fn absent(&self, _older_than: Lsn) -> Vec<Lpn> {
        Vec::new()
    }

    /// Logs a checkpoint. Returns where it begins, and the oldest record that a restart needs.
    fn checkpoint(&mut self, _memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        unreachable!("a manager with a log takes checkpoints")
    }

    /// The changes in the log that a restart redoes, in this order.
    fn analyse<'t>(&mut self, _tape: &'t Tape) -> Result<Vec<Redo<'t>>, HostError> {
        Ok(Vec::new())
    }

    /// Redoes the changes that a page lacks. The page has been fetched.
    fn redo(&mut self, _memory: &mut Memory, _changes: Redo<'_>) -> Result<(), HostError> {
        Ok(())
    }

    /// Whether pages that were redone have to be on flash before anything else is logged.
    fn cleans_redone(&self) -> bool {
        false
    }

    /// The next change that a restart undoes.
    fn next_undo<'t>(&mut self, _tape: &'t Tape) -> Result<Option<LogRecord<'t>>, HostError> {
        Ok(None)
    }

    /// Redo and undo are over, and the checkpoint comes next. Pages that have changed since the
    /// record returned may stay dirty.
    fn restarted(&mut self, _memory: &Memory) -> Result<Lsn, HostError> {
        Ok(0)
    }

    /// Bytes of each structure in memory.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
