//! What machines share: frames, locks, live transactions, the clock and counters; how pages come
//! into the pool and leave it. Also [`Verbs`], the trait of machines.

use super::config::Mistake;
use super::frame::Frame;
use super::locks::LockTable;
use super::log::Lsn;
use super::{HostConfig, HostError, HostStats, Rid, Step, Why};
use crate::buffer::Pool;
use flagstone::commit::{DeviceError, doubt_tx};
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::{BTreeMap, BTreeSet};

/// The verbs of a machine. Before each call the host has checked the arguments and holds the locks.
pub(super) trait Verbs {
    /// Reads page `at` from the device.
    fn read_page(&mut self, now: Nanos, at: Lpn) -> Result<Frame, HostError>;

    /// Whether a changed page may be written out now.
    fn may_write_back(&self, _locks: &LockTable, _frame: &Frame) -> bool {
        true
    }

    /// Writes a changed page of the pool out. Returns when its frame can be used again.
    fn write_back(&mut self, tools: &mut Tools, now: Nanos, at: Lpn) -> Result<Nanos, HostError>;

    /// Writes or deletes a record. Nothing was changed unless the answer is `Done`.
    fn write(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError>;

    /// Commits. Called again after a wait for a lock. Returns `Waits`, with the transaction in
    /// `Phase::Committing`, if the commit waits for its group.
    fn commit(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Step<()>, HostError>;

    /// Whether a live transaction whose commit failed may have committed all the same.
    fn may_have_committed(&self, _tx: TxId) -> bool {
        false
    }

    /// The commits that waited for their group and are now durable, each with its instant. Writes
    /// the group if its time is up, or if `flush` is set.
    fn acknowledged(
        &mut self,
        _tools: &mut Tools,
        _now: Nanos,
        _flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        Ok(Vec::new())
    }

    /// When the group must be written, or its members be reported.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Rolls back. Returns when the roll-back is complete.
    fn abort(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Nanos, HostError>;

    /// Bytes of each structure in memory.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Checks the machine's invariants.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// The commit waits for its group.
    Committing,
    /// The commit failed and may be durable: it can only be asked for again.
    InDoubt,
    /// The roll-back failed on its way: it can only be asked for again.
    RollingBack,
    /// The transaction ends when its locks are released.
    Ending,
}

/// The state that all machines share.
pub(super) struct Tools {
    pub(super) pool: Pool<Frame>,
    pub(super) locks: LockTable,
    pub(super) txs: BTreeMap<TxId, Phase>,
    /// Ended transactions, with the instant at which they release their locks.
    pub(super) endings: BTreeSet<(Nanos, TxId)>,
    /// Transactions that were granted a lock that they waited for.
    pub(super) woken: Vec<TxId>,
    pub(super) config: HostConfig,
    pub(super) last_tx: TxId,
    pub(super) page_bytes: usize,
    /// The instant of the last call. It never decreases.
    pub(super) clock: Nanos,
    pub(super) stats: HostStats,
    /// The image of the page that is being written out.
    pub(super) image: Vec<u8>,
}

/// What a commit or a roll-back tells of the checkpoint after it: only that the power failed. A
/// later one takes the checkpoint again.
pub(super) fn told_of(checkpoint: Result<(), HostError>) -> Result<(), HostError> {
    let is_told =
        |error: &HostError| matches!(error, HostError::Device(device) if device.is_power_loss());
    checkpoint.or_else(|error| if is_told(&error) { Err(error) } else { Ok(()) })
}

impl Tools {
    /// `last_tx`: the highest transaction identifier on the device.
    pub(super) fn new(
        config: &HostConfig,
        page_bytes: usize,
        last_tx: TxId,
    ) -> Result<Tools, HostError> {
        Ok(Tools {
            pool: Pool::new(config.frames, config.policy, &config.policy_settings),
            locks: LockTable::default(),
            txs: BTreeMap::new(),
            endings: BTreeSet::new(),
            woken: Vec::new(),
            config: config.clone(),
            last_tx: doubt_tx(last_tx).map_err(DeviceError::from)?,
            page_bytes,
            clock: Nanos::ZERO,
            stats: HostStats::default(),
            image: Vec::new(),
        })
    }

    /// Whether the host makes this mistake on purpose.
    pub(super) fn has(&self, mistake: Mistake) -> bool {
        self.config.mistake.is(mistake)
    }

    /// The frame of a fetched page.
    pub(super) fn frame(&self, at: Lpn) -> &Frame {
        self.pool.peek(at).expect("it was fetched")
    }

    /// Like [`Tools::frame`], but mutable.
    pub(super) fn frame_mut(&mut self, at: Lpn) -> &mut Frame {
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

    /// Loads a page into the pool, for a change if `write` is set; the caller calls [`Tools::mark`]
    /// after the change. Returns when the page arrives; `None` if no frame can be emptied.
    pub(super) fn fetch(
        &mut self,
        machine: &mut dyn Verbs,
        now: Nanos,
        at: Lpn,
        write: bool,
    ) -> Result<Option<Nanos>, HostError> {
        if let Some(frame) = self.pool.get(at, write) {
            return Ok(Some(now.max(frame.ready)));
        }
        let mut now = now;
        while self.pool.is_full() {
            let locks = &self.locks;
            let chosen = self
                .pool
                .victim(&mut |_, frame| frame.changed == 0 || machine.may_write_back(locks, frame));
            let Some(victim) = chosen else {
                return Ok(None);
            };
            if self.frame(victim).changed != 0 {
                now = machine.write_back(self, now, victim)?;
                let owner = self.frame(victim).owner;
                let owner = owner.and_then(|tx| self.txs.get(&tx));
                self.stats.pages_stolen += u64::from(owner == Some(&Phase::Live));
            }
            self.pool.remove(victim);
        }
        let frame = machine.read_page(now, at)?;
        self.stats.pages_read += 1;
        let (ready, changed) = (frame.ready, frame.changed != 0);
        self.pool.insert(at, frame, write);
        // `flag_ex` puts back records that are not on flash when it reads their page.
        if changed {
            self.mark(at);
        }
        Ok(Some(ready))
    }

    /// The answer if [`Tools::fetch`] finds no frame: the transaction to abort. It is the youngest
    /// with a changed page in the pool.
    pub(super) fn exhausted<T>(&self) -> Result<Step<T>, HostError> {
        let frames = self.pool.iter();
        let changed = frames.filter(|(_, frame)| frame.changed != 0);
        let youngest = changed.filter_map(|(_, frame)| frame.owner).max();
        let victim = youngest.ok_or_else(|| self.pool_full())?;
        let why = Why::PoolExhausted;
        Ok(Step::Abort { victim, why })
    }

    /// The error if no frame can be emptied and no abort would help.
    pub(super) fn pool_full(&self) -> HostError {
        HostError::PoolFull {
            frames: self.config.frames,
        }
    }

    /// Puts the image of a page of the pool into `image`.
    pub(super) fn emit(&mut self, at: Lpn) -> Result<(), HostError> {
        let frame = self.pool.peek(at).expect("it is in the pool");
        let emitted = frame.page.emit(self.page_bytes, &mut self.image);
        emitted.map_err(|error| HostError::PageDamaged(at, error))
    }

    /// Notes that a page of the pool was written out.
    pub(super) fn written(&mut self, at: Lpn) {
        self.stats.pages_written += 1;
        self.frame_mut(at).changed = 0;
        self.mark(at);
    }

    /// Writes a page of the pool out if it has changed, and leaves it there.
    pub(super) fn clean(
        &mut self,
        machine: &mut dyn Verbs,
        now: Nanos,
        at: Lpn,
    ) -> Result<Nanos, HostError> {
        let changed = self.pool.peek(at).filter(|frame| frame.changed != 0);
        let Some(ready) = changed.map(|frame| frame.ready) else {
            return Ok(now);
        };
        machine.write_back(self, now.max(ready), at)
    }

    /// Writes out all pages that changed before `older_than`, each from `now` on. Returns when the
    /// last of their frames can be used again.
    pub(super) fn clean_before(
        &mut self,
        machine: &mut dyn Verbs,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        let old = self.changed().filter(|&(_, since)| since < older_than);
        let mut old: Vec<Lpn> = old.map(|(at, _)| at).collect();
        old.sort_unstable();
        let mut ready = now;
        for at in old {
            ready = ready.max(self.clean(machine, now, at)?);
        }
        Ok(ready)
    }

    /// Ends a write: marks the fetched page `at`, counts, and writes through if the host does that.
    /// `changed` is the result of the change.
    pub(super) fn end_write(
        &mut self,
        machine: &mut dyn Verbs,
        at: Lpn,
        changed: Result<Step<()>, HostError>,
    ) -> Result<Step<()>, HostError> {
        self.mark(at);
        let step = changed?;
        if let Step::Done((), done) = step {
            self.stats.writes += 1;
            if self.config.write_through {
                return Ok(Step::Done((), self.clean(machine, done, at)?));
            }
        }
        Ok(step)
    }

    /// Ends a transaction at `when`; its locks are released then.
    pub(super) fn end(&mut self, tx: TxId, when: Nanos) {
        self.txs.insert(tx, Phase::Ending);
        self.endings.insert((when, tx));
    }

    /// Releases the locks of transactions that have ended by `now`.
    pub(super) fn release_due(&mut self, now: Nanos) {
        self.clock = self.clock.max(now);
        while let Some(&(when, tx)) = self.endings.first()
            && when <= now
        {
            self.endings.pop_first();
            self.txs.remove(&tx);
            self.locks.release_all(tx, &mut self.woken);
        }
    }

    /// Checks the invariants of pool and locks.
    pub(super) fn check(&self) -> Result<(), String> {
        self.pool.check()?;
        self.locks.check()?;
        for (at, frame) in self.pool.iter() {
            let since = frame.changed;
            if self.pool.is_dirty(at) != (since != 0) {
                return Err(format!(
                    "page {at} has changed since {since}, the pool differs"
                ));
            }
        }
        Ok(())
    }
}
