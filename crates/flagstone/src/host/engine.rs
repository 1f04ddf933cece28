//! What all recovery managers have below them: frames, locks, the live transactions, the counters;
//! and the seam, [`Manager`], which says what they decide.

use super::config::HostConfig;
use super::frame::Frame;
use super::locks::LockTable;
use super::log::Lsn;
use super::{HostError, HostStats, LogStats, Rid, Step};
use crate::buffer::Pool;
use crate::ftl::Ftl;
use crate::nand::Flash;
use crate::units::{Lpn, Nanos, TxId};
use std::collections::{BTreeMap, BTreeSet};

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Live,
    /// It waits for its group.
    Committing,
    /// It is over at the instant at which its locks are released.
    Ending,
}

/// Frames, locks, transactions.
pub(super) struct Engine {
    pub(super) pool: Pool<Frame>,
    pub(super) locks: LockTable,
    pub(super) txs: BTreeMap<TxId, Phase>,
    /// When transactions that have ended release their locks.
    pub(super) endings: BTreeSet<(Nanos, TxId)>,
    pub(super) woken: Vec<TxId>,
    pub(super) config: HostConfig,
    pub(super) stats: HostStats,
    pub(super) last_tx: TxId,
    pub(super) page_bytes: usize,
    /// The instant of the last call: no later one is for an earlier instant, though what a call
    /// waits for lies behind it.
    pub(super) clock: Nanos,
}

/// A recovery manager: what has to be written when, and what a restart makes of it. The engine has
/// checked the arguments and holds the locks before any of these is called.
pub(super) trait Manager {
    /// Bytes that a page needs beside its records while one of them is changed.
    fn overhead(&self) -> usize {
        0
    }

    /// Logical pages that the host may use, and the highest transaction identifier on the device.
    fn space(&self) -> (u32, TxId);

    /// Brings the database back after a restart. Returns when it is.
    fn restart(&mut self, engine: &mut Engine, now: Nanos) -> Result<Nanos, HostError>;

    /// Reads a page into an empty frame. Returns when it is there.
    fn load(&mut self, now: Nanos, at: Lpn, frame: &mut Frame) -> Result<Nanos, HostError>;

    /// Whether a dirty page may be written out now.
    fn may_write_back(&self, locks: &LockTable, at: Lpn, frame: &Frame) -> bool;

    /// Writes a dirty page out. Returns when its frame can be used again.
    fn write_back(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        at: Lpn,
        frame: &mut Frame,
    ) -> Result<Nanos, HostError>;

    /// A transaction has the lock and wants to change a record: whether it may go on.
    fn admit(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
    ) -> Result<Step<()>, HostError> {
        let _ = (engine, tx, rid);
        Ok(Step::Done((), now))
    }

    /// Changes a record whose page is in the pool. Any answer but `Done` changes nothing.
    fn update(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError>;

    /// Commits. `Waits` with the transaction in `Phase::Committing`: it waits for its group.
    fn commit(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Step<()>, HostError>;

    /// Rolls back. Returns when that is over.
    fn abort(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Nanos, HostError>;

    /// Commits that waited for their group, with the instant of each.
    fn acknowledged(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        let _ = (engine, now, flush);
        Ok(Vec::new())
    }

    /// When those stop waiting.
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Bytes of each structure in memory, the device's included.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// What the log, if there is one, has counted.
    fn log_stats(&self) -> LogStats {
        LogStats::default()
    }

    /// Forgets what the device and the log have counted.
    fn reset_stats(&mut self);

    /// See [`Ftl::erase_ahead`].
    fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError>;

    fn ftl(&self) -> &Ftl;

    fn check(&self) -> Result<(), String>;

    fn into_flash(self: Box<Self>) -> Box<dyn Flash>;
}

impl Engine {
    pub(super) fn new(config: &HostConfig, page_bytes: usize) -> Engine {
        Engine {
            pool: Pool::new(config.frames, config.policy, &config.policy_options),
            locks: LockTable::default(),
            txs: BTreeMap::new(),
            endings: BTreeSet::new(),
            woken: Vec::new(),
            config: config.clone(),
            stats: HostStats::default(),
            last_tx: TxId(0),
            page_bytes,
            clock: Nanos::ZERO,
        }
    }

    /// Brings a page into the pool. Returns when it is there; nothing if no frame can be emptied.
    pub(super) fn fetch(
        &mut self,
        manager: &mut dyn Manager,
        now: Nanos,
        at: Lpn,
        write: bool,
    ) -> Result<Option<Nanos>, HostError> {
        if let Some(frame) = self.pool.get(at, write) {
            return Ok(Some(now.max(frame.ready)));
        }
        let mut now = now;
        let mut frame = Frame::default();
        while self.pool.is_full() {
            // What is dirty has changed; what has changed but was written out is clean.
            let locks = &self.locks;
            let chosen = self.pool.victim(&mut |at, frame| {
                frame.changed == 0 || manager.may_write_back(locks, at, frame)
            });
            let Some(victim) = chosen else {
                return Ok(None);
            };
            frame = self.pool.remove(victim).expect("it was chosen");
            if frame.changed != 0 {
                now = manager.write_back(self, now, victim, &mut frame)?;
                let owner = frame.owner.and_then(|tx| self.txs.get(&tx));
                self.stats.pages_stolen += u64::from(owner == Some(&Phase::Live));
            }
        }
        (frame.changed, frame.owner) = (0, None);
        frame.ready = manager.load(now, at, &mut frame)?;
        self.stats.pages_read += 1;
        let ready = frame.ready;
        self.pool.insert(at, frame, write);
        Ok(Some(ready))
    }

    /// Writes a page of the pool out if it has changed, and leaves it there.
    pub(super) fn clean(
        &mut self,
        manager: &mut dyn Manager,
        now: Nanos,
        at: Lpn,
    ) -> Result<Nanos, HostError> {
        let Some(slot) = self.pool.peek_mut(at) else {
            return Ok(now);
        };
        let mut frame = std::mem::take(slot);
        let mut done = now;
        if frame.changed != 0 {
            done = manager.write_back(self, now.max(frame.ready), at, &mut frame)?;
            frame.changed = 0;
            self.pool.set_dirty(at, false);
        }
        *self.pool.peek_mut(at).expect("nothing was removed") = frame;
        Ok(done)
    }

    /// Writes out the pages that changed before `older_than`, as [`Engine::clean`] does. Returns
    /// when that is done.
    pub(super) fn clean_older(
        &mut self,
        manager: &mut dyn Manager,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        let changed = |&(_, since): &(Lpn, Lsn)| since != 0 && since < older_than;
        let frames = self.pool.iter().map(|(at, frame)| (at, frame.changed));
        let mut old: Vec<(Lpn, Lsn)> = frames.filter(changed).collect();
        old.sort_unstable();
        let mut ready = now;
        for (at, _) in old {
            ready = ready.max(self.clean(manager, now, at)?);
        }
        Ok(ready)
    }

    /// Log bytes from one checkpoint to the next.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        let pages = match self.config.checkpoint_every {
            0 => self.config.log_pages / 4,
            pages => pages,
        };
        u64::from(pages.max(1)) * self.page_bytes as u64
    }

    /// The youngest live transaction that keeps a dirty page in the pool.
    pub(super) fn youngest_owner(&self) -> Option<TxId> {
        let owners = self.pool.iter().filter(|(_, frame)| frame.changed != 0);
        owners.filter_map(|(_, frame)| frame.owner).max()
    }

    /// The transaction is over at `when`; its locks go then.
    pub(super) fn end(&mut self, tx: TxId, when: Nanos) {
        self.txs.insert(tx, Phase::Ending);
        self.endings.insert((when, tx));
    }

    /// Releases what is due.
    pub(super) fn settle(&mut self, now: Nanos) {
        self.clock = self.clock.max(now);
        while let Some(&(when, tx)) = self.endings.first()
            && when <= now
        {
            self.endings.pop_first();
            self.txs.remove(&tx);
            self.locks.release_all(tx, &mut self.woken);
        }
    }
}
