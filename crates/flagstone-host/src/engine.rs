//! The engine executes the decisions of recovery managers ([`Manager`]) and counts operations. Only
//! the engine uses the device, and knows when each step completes.

use super::below::Below;
use super::config::Mistake;
use super::frame::Frame;
use super::locks::Resource;
use super::log::{Log, LogRecord, LogStats, Lsn, Tape};
use super::manager::{
    Admission, Commit, CommitSteps, Manager, Memory, Opened, Phase, RollBack, Room,
};
use super::{HostConfig, HostError, HostStats, Rid, Step, Why};
use flagstone::commit::MergedPage;
use flagstone::page::Page;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeSet;

/// The lock resource that represents a slot for a live transaction on the device.
pub(super) const PLACE: Resource = Resource::Device;

/// A device, the host's memory, and the manager that decides what is moved between them.
pub(super) struct Engine {
    pub(super) memory: Memory,
    pub(super) device: Below,
    manager: Box<dyn Manager>,
    /// Ended transactions, with the instant at which they release their locks.
    pub(super) endings: BTreeSet<(Nanos, TxId)>,
    pub(super) woken: Vec<TxId>,
    pub(super) stats: HostStats,
    image: Vec<u8>,
    merged: MergedPage,
}

impl Engine {
    /// Fails when ids or write sequences are nearly used up; reads still work.
    pub(super) fn has_numbers(&self) -> Result<(), HostError> {
        Ok(self.device.has_numbers(self.memory.last_tx)?)
    }

    /// Recovers a database after a restart. Returns when it is ready.
    pub(super) fn start(
        opened: Opened,
        config: &HostConfig,
        page_bytes: usize,
    ) -> Result<(Engine, Nanos), HostError> {
        let mut engine = Engine {
            memory: Memory::new(config, page_bytes, opened.last_tx),
            device: opened.device,
            manager: opened.manager,
            endings: BTreeSet::new(),
            woken: Vec::new(),
            stats: HostStats::default(),
            image: Vec::new(),
            merged: MergedPage::default(),
        };
        let done = match opened.tape {
            Some(tape) => {
                engine.device.lend_reserve(true);
                let done = engine.restart(opened.done, &tape)?;
                engine.device.lend_reserve(false);
                done
            }
            None => opened.done,
        };
        Ok((engine, done))
    }

    fn restart(&mut self, now: Nanos, tape: &Tape) -> Result<Nanos, HostError> {
        let mut done = self.device.resolve(now, tape)?;
        for changes in self.manager.analyse(tape)? {
            let at = changes.0;
            let fetched = self.fetch(done, at, true)?;
            done = fetched.expect("every page can be written out");
            self.manager.redo(&mut self.memory, changes)?;
            self.memory.mark(at);
        }
        if self.manager.cleans_redone() {
            let frames: Vec<Lpn> = self.memory.pool.iter().map(|(at, _)| at).collect();
            for at in frames {
                done = done.max(self.clean(done, at)?);
            }
        }
        while let Some(entry) = self.manager.next_undo(tape)? {
            done = self.undo(done, &entry)?;
        }
        let older_than = self.manager.restarted(&self.memory)?;
        self.checkpoint(done, older_than)
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.memory.config.mistake.is(mistake)
    }

    /// Loads a page into the pool. Returns when it arrives; `None` if no frame can be emptied.
    pub(super) fn fetch(
        &mut self,
        now: Nanos,
        at: Lpn,
        write: bool,
    ) -> Result<Option<Nanos>, HostError> {
        if let Some(frame) = self.memory.pool.get(at, write) {
            return Ok(Some(now.max(frame.ready)));
        }
        let mut now = now;
        while self.memory.pool.is_full() {
            let Memory { pool, locks, .. } = &mut self.memory;
            let chosen = pool.victim(&mut |at, frame| {
                frame.changed == 0 || self.manager.may_write_back(locks, at, frame)
            });
            let Some(victim) = chosen else {
                return Ok(None);
            };
            if self.memory.frame(victim).changed != 0 {
                now = self.write_back(now, victim)?;
                let owner = self.memory.frame(victim).owner;
                let owner = owner.and_then(|tx| self.memory.txs.get(&tx));
                self.stats.pages_stolen += u64::from(owner == Some(&Phase::Live));
            }
            self.memory.pool.remove(victim);
        }
        let reader = self.manager.reads_in(at);
        let ready = self.device.read(now, reader, at, &mut self.merged)?;
        let damaged = |error| HostError::PageDamaged(at, error);
        let mut frame = Frame {
            page: Page::parse(&self.merged.image).map_err(damaged)?,
            ready,
            ..Frame::default()
        };
        self.manager.loaded(at, &mut frame, &mut self.merged)?;
        self.stats.pages_read += 1;
        let changed = frame.changed != 0;
        self.memory.pool.insert(at, frame, write);
        if changed {
            self.memory.mark(at);
        }
        Ok(Some(ready))
    }

    /// Writes a changed page out. Returns when its frame can be used again.
    fn write_back(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, HostError> {
        for tx in self.manager.enters(self.memory.frame(at)) {
            self.enter(now, tx)?;
        }
        let frame = self.memory.pool.peek(at).expect("it is in the pool");
        let step = self.manager.write_back(now, at, frame);
        let damaged = |error| HostError::PageDamaged(at, error);
        let emitted = frame.page.emit(self.memory.page_bytes, &mut self.image);
        emitted.map_err(damaged)?;
        let mut issue = now.max(step.not_before);
        if let Some(lsn) = step.log_to {
            issue = self.force(issue, lsn)?;
        }
        let taken = self.device.write(issue, at, &self.image, &step.how)?;
        self.stats.pages_written += 1;
        let frame = self.memory.frame(at);
        frame.changed = 0;
        self.manager.written(frame, &step.how, taken.done);
        self.memory.mark(at);
        Ok(taken.next)
    }

    /// Writes a page of the pool out if it has changed, and leaves it there.
    fn clean(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, HostError> {
        match self.memory.pool.peek(at) {
            Some(frame) if frame.changed != 0 => self.write_back(now.max(frame.ready), at),
            _ => Ok(now),
        }
    }

    /// Begins a transaction on the device if it has a free slot.
    fn enter(&mut self, now: Nanos, tx: TxId) -> Result<(), HostError> {
        if let Some(mode) = self.manager.place() {
            self.memory.locks.give(tx, PLACE, mode);
        }
        let on_device = self.device.begin(now, tx)?;
        self.manager.entered(tx, on_device);
        Ok(())
    }

    /// Makes the log durable up to `to`.
    fn force(&mut self, now: Nanos, to: Lsn) -> Result<Nanos, HostError> {
        match self.manager.log_mut() {
            Some(log) => log.force(&mut self.device, now, to),
            None => Ok(now),
        }
    }

    /// Writes the log if its buffer is full. Callers do not wait for that.
    fn spill(&mut self, now: Nanos) -> Result<(), HostError> {
        if let Some(log) = self.manager.log_mut()
            && log.is_buffer_full()
        {
            let end = log.end();
            log.force(&mut self.device, now, end)?;
        }
        Ok(())
    }

    /// Whether a transaction that holds the lock may change a record.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
    ) -> Result<Option<Step<()>>, HostError> {
        match self.manager.admit(&mut self.memory, tx, rid) {
            Admission::Granted => Ok(None),
            Admission::Enters => self.enter(now, tx).map(|()| None),
            Admission::Refused(step) => Ok(Some(step)),
        }
    }

    /// Changes a record of a fetched page. Nothing was changed unless the answer is `Done`.
    pub(super) fn update(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let updated = self.change(now, tx, rid, bytes);
        self.memory.mark(rid.page);
        let step = updated?;
        if let Step::Done((), done) = step {
            self.stats.writes += 1;
            if self.memory.config.write_through {
                return Ok(Step::Done((), self.clean(done, rid.page)?));
            }
        }
        Ok(step)
    }

    fn change(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        loop {
            match self.manager.room(&self.memory, tx, rid, bytes)? {
                Room::Enough => break,
                Room::Unneeded => return Ok(Step::Done((), now)),
                Room::AfterGroup => self.write_group(now)?,
                Room::AfterCheckpoint => {
                    self.memory.pool.pin(rid.page);
                    let taken = self.checkpoint(now, Lsn::MAX);
                    self.memory.pool.unpin(rid.page);
                    taken?;
                    break;
                }
                Room::AfterAbort(victim) => {
                    let why = Why::LogFull;
                    return Ok(Step::Abort { victim, why });
                }
            }
        }
        if self.manager.log_begin(tx)? {
            self.spill(now)?;
        }
        self.manager.update(&mut self.memory, tx, rid, bytes)?;
        self.spill(now)?;
        Ok(Step::Done((), now))
    }

    /// Commits. Returns `Waits`, with the transaction in `Phase::Committing`, if it waits for its
    /// group.
    pub(super) fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let step = match self.manager.commit(&mut self.memory, now, tx)? {
            Commit::Refused(step) => return Ok(step),
            Commit::Nothing => {
                // The transaction may have begun on the device for a page that then could not be
                // written.
                if let Some(on_device) = self.manager.on_device(tx) {
                    self.device.abort(now, on_device)?;
                }
                self.manager.committed(&mut self.memory, tx, now);
                return Ok(Step::Done((), now));
            }
            Commit::Waits => None,
            Commit::WithGroup => {
                self.write_group(now)?;
                Some(self.manager.told_last())
            }
            Commit::Steps(steps) => self.commit_by(now, tx, steps)?,
        };
        self.checkpoint_if_due(now)?;
        Ok(match step {
            Some(done) => Step::Done((), done),
            None => {
                self.memory.txs.insert(tx, Phase::Committing);
                Step::Waits
            }
        })
    }

    /// Commits with these steps. Returns when the commit is durable; `None` if it waits for its
    /// group on the device.
    fn commit_by(
        &mut self,
        now: Nanos,
        tx: TxId,
        steps: CommitSteps,
    ) -> Result<Option<Nanos>, HostError> {
        if steps.enters {
            self.enter(now, tx)?;
        }
        let start = now.max(steps.not_before);
        let mut done = start;
        for at in steps.pages {
            done = self.clean(done, at)?;
        }
        if let Some(lsn) = steps.log_to {
            done = self.force(done, lsn)?;
        }
        if let Some(on_device) = self.manager.on_device(tx) {
            let from = if self.has(Mistake::FlagsBeforeLog) {
                start
            } else {
                done
            };
            let Some(committed) = self.device.commit(from, on_device)? else {
                return Ok(None);
            };
            if steps.log_to.is_none() {
                done = committed;
            }
        }
        if self.has(Mistake::EarlyAcknowledgement) {
            done = now;
        }
        self.manager.committed(&mut self.memory, tx, done);
        Ok(Some(done))
    }

    /// Makes the waiting group of commits durable, and ends their transactions.
    fn write_group(&mut self, now: Nanos) -> Result<(), HostError> {
        let Some(to) = self.manager.group() else {
            return Ok(());
        };
        let done = if self.has(Mistake::EarlyAcknowledgement) {
            now
        } else {
            self.force(now, to)?
        };
        self.manager.group_written(done)
    }

    /// The commits that waited for their group and are now durable, each with its instant. Writes
    /// the group if its time is up, or if `flush` is set.
    pub(super) fn acknowledged(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        if self.manager.log().is_some() {
            if flush || self.manager.deadline().is_some_and(|due| due <= now) {
                self.write_group(now)?;
            }
            return Ok(self.manager.told());
        }
        let mut all = self.device.acknowledged(now, flush)?;
        for (tx, when) in &mut all {
            *tx = self.manager.of_device(*tx);
            self.manager.committed(&mut self.memory, *tx, *when);
        }
        Ok(all)
    }

    /// When the group must be written.
    pub(super) fn group_deadline(&self) -> Option<Nanos> {
        self.manager.deadline().or(self.device.deadline())
    }

    /// Rolls back. Returns when the roll-back is complete.
    pub(super) fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let mut now = now;
        for at in self.manager.writes_before_abort(&self.memory, tx) {
            now = self.clean(now, at)?;
        }
        let on_device = self.manager.on_device(tx);
        match self.manager.abort(&mut self.memory, tx)? {
            RollBack::Nothing => return Ok(now),
            RollBack::Forgotten => {}
            RollBack::From(last) => {
                self.spill(now)?;
                now = self.roll_back(now, last)?;
                self.manager.undone(tx)?;
                self.spill(now)?;
            }
        }
        if let Some(on_device) = on_device {
            now = self.device.abort(now, on_device)?;
        }
        self.checkpoint_if_due(now)?;
        Ok(now)
    }

    /// Undoes the changes of a transaction along its chain of log records.
    fn roll_back(&mut self, now: Nanos, last: Lsn) -> Result<Nanos, HostError> {
        let (mut now, mut next, mut record) = (now, last, Vec::new());
        while next != 0 {
            let log = self.manager.log_mut().expect("changes are logged");
            now = log.read(&mut self.device, now, next, &mut record)?;
            let damaged = HostError::LogDamaged(log.page_of_lsn(next));
            let (entry, _) = LogRecord::parse(&record).ok_or(damaged)?;
            if entry.what.is_change() {
                now = self.undo(now, &entry)?;
            }
            next = entry.prev;
        }
        Ok(now)
    }

    /// Undoes a change of a page. Returns when done.
    fn undo(&mut self, now: Nanos, entry: &LogRecord<'_>) -> Result<Nanos, HostError> {
        let here = self.memory.pool.contains(entry.page);
        let fetched = self.fetch(now, entry.page, true)?;
        let now = fetched.ok_or(HostError::PoolFull {
            frames: self.memory.config.frames,
        })?;
        self.stats.pages_read_back += u64::from(!here);
        self.manager.undo(&mut self.memory, entry)?;
        self.spill(now)?;
        Ok(now)
    }

    fn checkpoint_if_due(&mut self, now: Nanos) -> Result<(), HostError> {
        if let Some(older_than) = self.manager.checkpoint_due() {
            self.checkpoint(now, older_than)?;
        }
        Ok(())
    }

    /// Takes a checkpoint, after writing out the pages that changed before `older_than`. Returns
    /// when the checkpoint is valid. No transaction waits for it.
    fn checkpoint(&mut self, now: Nanos, older_than: Lsn) -> Result<Nanos, HostError> {
        self.write_group(now)?;
        let mut ready = now;
        for at in self.manager.absent(older_than) {
            if let Some(there) = self.fetch(now, at, true)? {
                ready = ready.max(there);
            }
        }
        let changed = self.memory.changed();
        let mut old: Vec<Lpn> = changed
            .filter(|&(_, since)| since < older_than)
            .map(|(at, _)| at)
            .collect();
        old.sort_unstable();
        for at in old {
            ready = ready.max(self.clean(now, at)?);
        }
        // Changes that the checkpoint does not list must be durable.
        let start = if self.has(Mistake::EarlyCheckpoint) {
            now
        } else {
            self.device.wait_for_pages(ready)?
        };
        let (begin, oldest) = self.manager.checkpoint(&self.memory)?;
        let log = self.manager.log_mut().expect("checkpoints are logged");
        let end = log.end();
        let durable = log.force(&mut self.device, start, end)?;
        let last_tx = self.memory.last_tx;
        let done = log.point_to(&mut self.device, durable, begin, oldest, last_tx)?;
        self.stats.checkpoints += 1;
        Ok(done)
    }

    /// The youngest live transaction with a changed page in the pool.
    pub(super) fn youngest_owner(&self) -> Option<TxId> {
        let frames = self.memory.pool.iter();
        let changed = frames.filter(|(_, frame)| frame.changed != 0);
        changed.filter_map(|(_, frame)| frame.owner).max()
    }

    /// Ends a transaction at `when`; its locks are released then.
    pub(super) fn end(&mut self, tx: TxId, when: Nanos) {
        self.memory.txs.insert(tx, Phase::Ending);
        self.endings.insert((when, tx));
    }

    /// Releases the locks of transactions that have ended by `now`.
    pub(super) fn release_due(&mut self, now: Nanos) {
        self.memory.clock = self.memory.clock.max(now);
        while let Some(&(when, tx)) = self.endings.first()
            && when <= now
        {
            self.endings.pop_first();
            self.memory.txs.remove(&tx);
            self.memory.locks.release_all(tx, &mut self.woken);
        }
    }

    /// Bytes of a page to reserve while one of its records is changed.
    pub(super) fn overhead(&self) -> usize {
        self.manager.overhead()
    }

    /// The counters since the start or [`Engine::reset_stats`].
    pub(super) fn stats(&self) -> HostStats {
        let log = self.manager.log();
        HostStats {
            pool: *self.memory.pool.stats(),
            locks: *self.memory.locks.stats(),
            log: log.map_or(LogStats::default(), Log::stats),
            ..self.stats
        }
    }

    pub(super) fn reset_stats(&mut self) {
        self.stats = HostStats::default();
        self.memory.pool.reset_stats();
        self.memory.locks.reset_stats();
        self.device.reset_stats();
        if let Some(log) = self.manager.log_mut() {
            log.reset_stats();
        }
    }

    /// Bytes of each structure in memory, except the pool.
    pub(super) fn memory_bytes(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.device.memory();
        all.extend(self.manager.memory());
        // Each frame stores when it became dirty.
        let frames = self.memory.pool.capacity() as u64;
        all.push(("dirty_page_table", frames * size_of::<u64>() as u64));
        all.push(("lock_table", self.memory.locks.memory()));
        all
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.memory.pool.check()?;
        self.memory.locks.check()?;
        for (at, frame) in self.memory.pool.iter() {
            if self.memory.pool.is_dirty(at) != (frame.changed != 0) {
                let since = frame.changed;
                return Err(format!(
                    "page {at} has changed since {since}, the pool differs"
                ));
            }
        }
        self.manager.check()?;
        self.device.check()
    }
}
