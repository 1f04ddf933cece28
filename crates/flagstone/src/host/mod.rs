//! The host: a database above the device. It has records in pages, a buffer pool, strict two-phase
//! locks, and a recovery manager that makes transactions atomic and durable.
//!
//! It is a state machine without threads. A call says at which instant it is made. The answer is
//! one of three: the result and when it is there, or that the transaction has to wait, or that a
//! transaction has to be aborted first ([`Step`]). The caller makes its calls in the order of their
//! instants. A transaction calls again when its last answer is due; until then other transactions
//! may call.
//!
//! ```text
//!   Host      arguments, locks, waiting                       this file
//!   Engine    frames, steps, instants, counters               engine.rs
//!   Manager   what is written when, and recovery: decisions   manager.rs; force.rs, wal/, flag_ex/
//!   Log       a ring of pages, a stream of records            log/
//!   Below     the device                                      below.rs
//! ```
//!
//! docs/host.md says what each manager decides.
//!
//! Two transactions, one of which has to wait for the other's lock:
//!
//! ```
//! use flagstone::host::{Host, HostError, Rid, Stack, Step};
//! use flagstone::nand::Chip;
//! use flagstone::units::Lpn;
//!
//! let mut host = Host::with_defaults(Chip::default(), Stack::Wal)?;
//! let now = host.recovered_at();
//! let (one, two) = (host.begin(now)?, host.begin(now)?);
//! let rid = Rid { page: Lpn(4), slot: 0 };
//! let Step::Done((), written) = host.write(now, one, rid, Some(b"of one"))? else {
//!     panic!("nobody else has a lock");
//! };
//! let mut record = Vec::new();
//! assert_eq!(host.read(written, two, rid, &mut record)?, Step::Waits);
//!
//! let Step::Done((), committed) = host.commit(written, one)? else {
//!     panic!("it waits for nothing");
//! };
//! // What is due by then is done: the lock goes, and the other transaction is woken.
//! host.acknowledged(committed, false)?;
//! assert_eq!(host.woken(), [two]);
//! let Step::Done(found, _) = host.read(committed, two, rid, &mut record)? else {
//!     panic!("the lock is free");
//! };
//! assert!(found && record == b"of one");
//! # Ok::<(), HostError>(())
//! ```

mod below;
mod config;
mod engine;
mod error;
mod frame;
mod locks;
mod log;
mod manager;
mod stats;

// A recovery manager each.
mod flag_ex;
mod force;
mod wal;

#[cfg(test)]
mod small_host;
#[cfg(test)]
mod tests;

pub use config::{Granularity, HostConfig, ManagerInfo, Mistake, Stack};
pub use error::HostError;
pub use locks::LockStats;
pub use log::LogStats;
pub use stats::HostStats;

use crate::commit::{DeviceError, Options, RecordKind, doubt_tx};
use crate::ftl::{Config, Ftl};
use crate::layout::Layout;
use crate::nand::Flash;
use crate::page::{SlotNo, page_head, record_head};
use crate::units::{Lpn, Nanos, TxId};
use engine::Engine;
use locks::{Grant, Mode, Resource};
pub(crate) use log::is_log;
use manager::Phase;

/// Records that the host keeps in pages of its own.
pub const LAYOUTS: &[&[Layout]] = &[log::LAYOUTS, wal::LAYOUTS];

/// A record's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// Its page.
    pub page: Lpn,
    /// Its slot there.
    pub slot: SlotNo,
}

/// Why a transaction has to be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It waits in a circle with others and is the youngest of them.
    Deadlock,
    /// No frame can be emptied: dirty pages of live transactions fill the pool. It is the youngest
    /// of these transactions.
    PoolExhausted,
    /// It changes a page that was already written out for it, and the device takes each page once
    /// in a transaction.
    WrittenOut,
    /// The log is full, and it is the oldest that keeps it from being shortened.
    LogFull,
}

impl Why {
    /// All causes.
    pub const ALL: [Why; 4] = [
        Why::Deadlock,
        Why::PoolExhausted,
        Why::WrittenOut,
        Why::LogFull,
    ];

    /// The name in results and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Deadlock => "deadlock",
            Why::PoolExhausted => "pool_exhausted",
            Why::WrittenOut => "written_out",
            Why::LogFull => "log_full",
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// The result, and when it is there.
    Done(T, Nanos),
    /// The transaction waits, and all its further requests wait, too. Ask again once
    /// [`Host::woken`] names it. If [`Host::acknowledged`] names it instead, its commit is over.
    Waits,
    /// Nothing was done. Abort the victim, which may be the transaction itself; then ask again.
    Abort {
        /// Whom to abort.
        victim: TxId,
        /// Why.
        why: Why,
    },
}

/// A database.
pub struct Host {
    engine: Engine,
    granularity: Granularity,
    pages: u32,
    recovered_at: Nanos,
}

impl Host {
    /// Starts a database from its flash alone, blank or not. All settings have their defaults and
    /// the time is zero.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub fn with_defaults(flash: impl Flash + 'static, stack: Stack) -> Result<Host, HostError> {
        let (device, options, config) =
            (Config::default(), Options::default(), HostConfig::default());
        Host::open(
            Box::new(flash),
            stack,
            device,
            &options,
            &config,
            Nanos::ZERO,
        )
    }

    /// Starts a database from its flash alone, blank or not.
    ///
    /// # Errors
    /// The settings do not suit the device, another stack wrote the device, or the power fails
    /// meanwhile.
    pub fn open(
        flash: Box<dyn Flash>,
        stack: Stack,
        device: Config,
        options: &Options,
        config: &HostConfig,
        now: Nanos,
    ) -> Result<Host, HostError> {
        config.check(stack)?;
        let page_bytes = flash.geometry().page_bytes as usize;
        let opened = match stack {
            Stack::Force(kind) => force::open(flash, kind, device, options, config, now)?,
            Stack::Wal => wal::open(flash, device, options, config, now)?,
            Stack::CfcEx => flag_ex::open(flash, RecordKind::CfcEx, device, options, config, now)?,
            Stack::AfcEx => flag_ex::open(flash, RecordKind::AfcEx, device, options, config, now)?,
        };
        let pages = opened.pages;
        doubt_tx(opened.last_tx).map_err(DeviceError::from)?;
        let (engine, recovered_at) = Engine::start(opened, config, page_bytes)?;
        Ok(Host {
            engine,
            granularity: config.granularity.unwrap_or(stack.granularity()),
            pages,
            recovered_at,
        })
    }

    /// When recovery was over.
    pub fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    /// The number of pages for records. The pages of the log lie behind them.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The longest record, which has a page for itself.
    pub fn record_bytes_max(&self) -> usize {
        let heads = page_head::SIZE + record_head::SIZE + self.engine.overhead();
        let room = self.engine.memory.page_bytes - heads;
        room.min(usize::from(u16::MAX) / 2 - 64)
    }

    /// Starts a transaction. Identifiers ascend. No identifier that is on the flash is used again
    /// after a restart.
    ///
    /// # Errors
    /// None with the stacks there are.
    pub fn begin(&mut self, now: Nanos) -> Result<TxId, HostError> {
        self.engine.release_due(now);
        let memory = &mut self.engine.memory;
        let tx = TxId(memory.last_tx.0 + 1);
        memory.last_tx = tx;
        memory.txs.insert(tx, Phase::Live);
        self.engine.stats.begun += 1;
        Ok(tx)
    }

    fn check(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<(), HostError> {
        self.check_live(now, tx)?;
        self.check_page(page)
    }

    fn check_page(&self, page: Lpn) -> Result<(), HostError> {
        if page.0 >= self.pages {
            let pages = self.pages;
            return Err(HostError::OutOfRange { page, pages });
        }
        Ok(())
    }

    fn check_live(&mut self, now: Nanos, tx: TxId) -> Result<(), HostError> {
        self.engine.release_due(now);
        match self.engine.memory.txs.get(&tx) {
            Some(Phase::Live) => Ok(()),
            _ => Err(HostError::NoTransaction(tx)),
        }
    }

    fn lock<T>(&mut self, tx: TxId, rid: Rid, mode: Mode) -> Option<Step<T>> {
        let what = match self.granularity {
            Granularity::Page => Resource::Page(rid.page),
            Granularity::Record => Resource::Record(rid.page, rid.slot),
        };
        if self.engine.memory.locks.awaited(tx).is_some() {
            return Some(Step::Waits);
        }
        wait_for(self.engine.memory.locks.acquire(tx, what, mode))
    }

    /// Brings a page into the pool. If no frame can be emptied, says whom to abort.
    fn fetch<T>(
        &mut self,
        now: Nanos,
        page: Lpn,
        write: bool,
    ) -> Result<Result<Nanos, Step<T>>, HostError> {
        if let Some(ready) = self.engine.fetch(now, page, write)? {
            return Ok(Ok(ready));
        }
        let why = Why::PoolExhausted;
        match self.engine.youngest_owner() {
            Some(victim) => Ok(Err(Step::Abort { victim, why })),
            None => Err(HostError::PoolFull {
                frames: self.engine.memory.config.frames,
            }),
        }
    }

    /// Reads a page into the pool without a lock, as a search through an index does.
    ///
    /// # Errors
    /// The page is beyond the host's, or the device cannot go on.
    pub fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        self.check(now, tx, page)?;
        if self.engine.memory.locks.awaited(tx).is_some() {
            return Ok(Step::Waits);
        }
        Ok(match self.fetch(now, page, false)? {
            Ok(ready) => {
                self.engine.stats.touches += 1;
                Step::Done((), ready)
            }
            Err(step) => step,
        })
    }

    /// Reads a record into `into`, under a shared lock. Says whether there is one.
    ///
    /// # Errors
    /// As [`Host::touch`].
    pub fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError> {
        self.check(now, tx, rid.page)?;
        if let Some(step) = self.lock(tx, rid, Mode::Shared) {
            return Ok(step);
        }
        let ready = match self.fetch(now, rid.page, false)? {
            Ok(ready) => ready,
            Err(step) => return Ok(step),
        };
        Ok(Step::Done(self.copy(rid, into), ready))
    }

    /// Reads a record as it is now, outside of all transactions and without a lock. It reads
    /// uncommitted data, so use it only when no transaction is live. Says whether there is a
    /// record, and when it was read.
    ///
    /// # Errors
    /// As [`Host::touch`], or live transactions leave no frame for the page.
    pub fn look(
        &mut self,
        now: Nanos,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<(bool, Nanos), HostError> {
        self.engine.release_due(now);
        self.check_page(rid.page)?;
        match self.engine.fetch(now, rid.page, false)? {
            Some(ready) => Ok((self.copy(rid, into), ready)),
            None => Err(HostError::PoolFull {
                frames: self.engine.memory.config.frames,
            }),
        }
    }

    /// The record of a page that is in the pool.
    fn copy(&mut self, rid: Rid, into: &mut Vec<u8>) -> bool {
        self.engine.stats.reads += 1;
        into.clear();
        let frame = self
            .engine
            .memory
            .pool
            .peek(rid.page)
            .expect("it was fetched");
        let record = frame.page.get(rid.slot);
        into.extend_from_slice(record.unwrap_or_default());
        record.is_some()
    }

    /// Writes a record, or deletes it, under an exclusive lock.
    ///
    /// # Errors
    /// As [`Host::touch`], or the record is too long, or the page has no room for it. Nothing was
    /// changed then.
    pub fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        self.check(now, tx, rid.page)?;
        self.engine.has_numbers()?;
        let (len, limit) = (bytes.map_or(0, <[u8]>::len), self.record_bytes_max());
        if len > limit {
            return Err(HostError::RecordTooLong { bytes: len, limit });
        }
        if let Some(step) = self.lock(tx, rid, Mode::Exclusive) {
            return Ok(step);
        }
        if let Some(step) = self.engine.admit(now, tx, rid)? {
            return Ok(step);
        }
        match self.fetch(now, rid.page, true)? {
            Ok(ready) => self.engine.update(ready, tx, rid, bytes),
            Err(step) => Ok(step),
        }
    }

    /// Commits. The answer has the instant from which the transaction survives a power cut. Its
    /// locks are released then. After `Waits` one of two calls names the transaction. If
    /// [`Host::woken`] does, ask again. If [`Host::acknowledged`] does, it has committed with its
    /// group.
    ///
    /// # Errors
    /// No such transaction, or a device that cannot go on.
    pub fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        self.check_live(now, tx)?;
        if self.engine.memory.locks.awaited(tx).is_some() {
            return Ok(Step::Waits);
        }
        let step = self.engine.commit(now, tx)?;
        if let Step::Done((), when) = step {
            self.engine.end(tx, when);
            self.engine.stats.committed += 1;
        }
        Ok(step)
    }

    /// Rolls a transaction back, also one that waits. Its locks are released at the instant of the
    /// answer.
    ///
    /// # Errors
    /// No such transaction, or one that has committed, or a device that cannot go on.
    pub fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        self.check_live(now, tx)?;
        let engine = &mut self.engine;
        engine.memory.locks.withdraw(tx, &mut engine.woken);
        engine.woken.retain(|woken| *woken != tx);
        let done = self.engine.abort(now, tx)?;
        self.engine.end(tx, done);
        self.engine.stats.aborted += 1;
        Ok(done)
    }

    /// Transactions that have been granted the lock that they waited for, since the last call.
    pub fn woken(&mut self) -> Vec<TxId> {
        std::mem::take(&mut self.engine.woken)
    }

    /// Does the work that is due at `now`: releases the locks of transactions that have ended, and
    /// commits groups whose time is up. With `flush`, it commits all that wait. Returns the commits
    /// that are over, each with its instant. Call it at [`Host::deadline`], and after each commit
    /// that waits.
    ///
    /// # Errors
    /// A device that cannot go on.
    pub fn acknowledged(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.engine.release_due(now);
        let done = self.engine.acknowledged(now, flush)?;
        for &(tx, when) in &done {
            self.engine.end(tx, when);
            self.engine.stats.committed += 1;
        }
        Ok(done)
    }

    /// When [`Host::acknowledged`] should be called next, if nothing else is called until then.
    pub fn deadline(&self) -> Option<Nanos> {
        let ending = self.engine.endings.first().map(|&(when, _)| when);
        [ending, self.engine.group_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The counters since the start or [`Host::reset_stats`].
    pub fn stats(&self) -> HostStats {
        self.engine.stats()
    }

    /// Sets the counters to zero: the end of a warm-up.
    pub fn reset_stats(&mut self) {
        self.engine.reset_stats();
    }

    /// Bytes of each structure in memory. The device's structures are included and the frames of
    /// the buffer pool are not, as in \[FlagCommit] §5.1.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        self.engine.memory_bytes()
    }

    /// Erases free blocks before they are needed, as an idle device does; see
    /// [`Ftl::erase_ahead`].
    ///
    /// # Errors
    /// The power fails.
    pub fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        Ok(self.engine.device.erase_ahead(now)?)
    }

    /// Says that no request will be made at an earlier instant; see
    /// [`Flash::reached`].
    pub fn reached(&mut self, now: Nanos) {
        self.engine.device.reached(now);
    }

    /// The layer below the device's protocol, to look at.
    pub fn ftl(&self) -> &Ftl {
        self.engine.device.ftl()
    }

    /// Checks the invariants of the device and the pool, in tests and campaigns.
    ///
    /// # Errors
    /// Says which one does not hold.
    pub fn verify(&self) -> Result<(), String> {
        self.engine.check()
    }

    /// The flash, which is all that a power cut leaves.
    pub fn into_flash(self) -> Box<dyn Flash> {
        self.engine.device.into_flash()
    }
}

/// The answer for a transaction that was not granted a lock at once.
fn wait_for<T>(grant: Grant) -> Option<Step<T>> {
    match grant {
        Grant::Granted => None,
        Grant::Waits => Some(Step::Waits),
        Grant::Deadlock { victim } => Some(Step::Abort {
            victim,
            why: Why::Deadlock,
        }),
    }
}
