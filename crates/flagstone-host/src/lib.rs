//! The host: a database above the device, with records in pages, a buffer pool, strict two-phase
//! locking, and a recovery manager that makes transactions atomic and durable.
//!
//! A state machine without threads. Each call names its instant. The answer ([`Step`]) is the
//! result and its instant, or that the transaction must wait, or that a transaction must be aborted
//! first. Calls are made in ascending order of instants. A transaction makes its next call when its
//! last answer is due; until then other transactions may call.
//!
//! ```text
//!   Host      arguments, locks, waiting                      this file
//!   Machine   a recovery manager that owns its device        machine.rs; force.rs, wal/, flag_ex/
//!   Tools     frames, transactions, clock, counters, the     tools.rs
//!             verbs of a machine
//!   Log       a ring of pages, a stream of records           log/
//! ```
//!
//! docs/host.md says what each machine does.
//!
//! Two transactions, one of which has to wait for the other's lock:
//!
//! ```
//! use flagstone_host::{Host, HostError, Rid, Stack, Step};
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
//!
//! The crate does no I/O, reads no clock, draws no random numbers, starts no thread and has no
//! `unsafe`. Time is virtual, as in the crate `flagstone` below.
#![forbid(unsafe_code)]

pub mod buffer;
#[doc(hidden)]
pub mod fuzzing;

mod config;
mod error;
mod frame;
mod locks;
mod log;
mod machine;
mod stats;
mod tools;

// One module per machine.
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

use flagstone::commit::{Options, RecordKind, room_beside};
use flagstone::ftl::{Config, Ftl};
use flagstone::layout::Layout;
use flagstone::nand::Flash;
use flagstone::page::{SlotNo, page_head, record_head};
use flagstone::units::{Lpn, Nanos, TxId};
use locks::{Grant, Mode, Resource};
use log::Log;
use machine::{Machine, Opened};
use tools::{Phase, Tools};

/// Record layouts of the host's own pages.
pub const LAYOUTS: &[&[Layout]] = &[log::LAYOUTS, wal::LAYOUTS];

/// A record's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// The page.
    pub page: Lpn,
    /// The slot in the page.
    pub slot: SlotNo,
}

/// Why a transaction must be aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The transaction is the youngest of a deadlock cycle.
    Deadlock,
    /// No frame can be emptied: dirty pages of live transactions fill the pool. The transaction is
    /// the youngest of these.
    PoolExhausted,
    /// The log is full, and its oldest needed record belongs to this transaction.
    LogFull,
}

impl Why {
    /// All causes.
    pub const ALL: [Why; 3] = [Why::Deadlock, Why::PoolExhausted, Why::LogFull];

    /// The name used in results and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Deadlock => "deadlock",
            Why::PoolExhausted => "pool_exhausted",
            Why::LogFull => "log_full",
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// The result, and when it is available.
    Done(T, Nanos),
    /// The transaction waits, and so do its further requests. Ask again once [`Host::woken`] names
    /// it. If [`Host::acknowledged`] names it instead, its commit is complete.
    Waits,
    /// Nothing was done. Abort the victim, which may be the transaction itself; then ask again.
    Abort {
        /// The transaction to abort.
        victim: TxId,
        /// The reason.
        why: Why,
    },
}

/// A database.
pub struct Host {
    tools: Tools,
    machine: Machine,
    granularity: Granularity,
    record_bytes_max: usize,
    pages: u32,
    recovered_at: Nanos,
}

impl Host {
    /// Opens a database from its flash alone, blank or not, with default settings at time zero.
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

    /// Opens a database from its flash alone, blank or not.
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
            Stack::Force(kind) => force::open(flash, kind, device, options, config, now),
            Stack::Wal => wal::open(flash, device, options, config, now),
            Stack::CfcEx => flag_ex::open(flash, RecordKind::CfcEx, device, options, config, now),
            Stack::AfcEx => flag_ex::open(flash, RecordKind::AfcEx, device, options, config, now),
        };
        let Opened {
            machine,
            tools,
            pages,
            recovered_at,
        } = opened?;
        let room = if stack.record_kind().is_some() {
            room_beside(page_bytes, 1, 1)
        } else {
            page_bytes
        };
        let room = room - page_head::SIZE - record_head::SIZE;
        Ok(Host {
            tools,
            machine,
            granularity: config.granularity.unwrap_or(stack.granularity()),
            // A log record with the old and the new contents must fit the 65,535 bytes that it can
            // have.
            record_bytes_max: room.min(usize::from(u16::MAX) / 2 - 64),
            pages,
            recovered_at,
        })
    }

    /// When recovery was complete.
    pub fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    /// The number of pages for records. The log's pages follow them.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// The maximum length of a record, which then fills a page.
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Begins a transaction. Identifiers ascend, and an identifier found on flash is not reused
    /// after a restart.
    ///
    /// # Errors
    /// None with the current stacks.
    pub fn begin(&mut self, now: Nanos) -> Result<TxId, HostError> {
        let tools = &mut self.tools;
        tools.release_due(now);
        let tx = TxId(tools.last_tx.0 + 1);
        tools.last_tx = tx;
        tools.txs.insert(tx, Phase::Live);
        tools.stats.begun += 1;
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
        self.check_phase(now, tx, Phase::Live)
    }

    /// Fails unless the transaction is live, or in the phase `or`.
    fn check_phase(&mut self, now: Nanos, tx: TxId, or: Phase) -> Result<(), HostError> {
        self.tools.release_due(now);
        match self.tools.txs.get(&tx) {
            Some(&phase) if phase == Phase::Live || phase == or => Ok(()),
            _ => Err(HostError::NoTransaction(tx)),
        }
    }

    /// Requests the lock for a record. Returns the answer to give if it was not granted at once.
    fn lock<T>(&mut self, tx: TxId, rid: Rid, mode: Mode) -> Option<Step<T>> {
        let what = match self.granularity {
            Granularity::Page => Resource::Page(rid.page),
            Granularity::Record => Resource::Record(rid.page, rid.slot),
        };
        if self.tools.locks.awaited(tx).is_some() {
            return Some(Step::Waits);
        }
        wait_for(self.tools.locks.acquire(tx, what, mode))
    }

    /// Loads a page into the pool to read it. Returns when it arrives; `None` if no frame can be
    /// emptied.
    fn fetch(&mut self, now: Nanos, page: Lpn) -> Result<Option<Nanos>, HostError> {
        let machine = self.machine.verbs_mut();
        self.tools.fetch(machine, now, page, false)
    }

    /// Reads a page into the pool without a lock, as an index search does.
    ///
    /// # Errors
    /// The page is beyond the host's pages, or the device cannot continue.
    pub fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        self.check(now, tx, page)?;
        if self.tools.locks.awaited(tx).is_some() {
            return Ok(Step::Waits);
        }
        let Some(ready) = self.fetch(now, page)? else {
            return self.tools.exhausted();
        };
        self.tools.stats.touches += 1;
        Ok(Step::Done((), ready))
    }

    /// Reads a record into `into` under a shared lock. Returns whether it exists.
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
        let Some(ready) = self.fetch(now, rid.page)? else {
            return self.tools.exhausted();
        };
        Ok(Step::Done(self.copy(rid, into), ready))
    }

    /// Reads the current version of a record, outside of transactions and without a lock. It may be
    /// uncommitted, so use this only when no transaction is live. Returns whether the record
    /// exists, and when it was read.
    ///
    /// # Errors
    /// As [`Host::touch`], or live transactions leave no frame for the page.
    pub fn look(
        &mut self,
        now: Nanos,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<(bool, Nanos), HostError> {
        self.tools.release_due(now);
        self.check_page(rid.page)?;
        let fetched = self.fetch(now, rid.page)?;
        let ready = fetched.ok_or_else(|| self.tools.pool_full())?;
        Ok((self.copy(rid, into), ready))
    }

    /// Copies a record of a page that is in the pool.
    fn copy(&mut self, rid: Rid, into: &mut Vec<u8>) -> bool {
        self.tools.stats.reads += 1;
        into.clear();
        let record = self.tools.frame(rid.page).page.get(rid.slot);
        into.extend_from_slice(record.unwrap_or_default());
        record.is_some()
    }

    /// Writes or deletes a record under an exclusive lock.
    ///
    /// # Errors
    /// As [`Host::touch`], or the record is too long, or the page has no room for it. Nothing is
    /// changed then.
    pub fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        self.check(now, tx, rid.page)?;
        self.machine.has_numbers(self.tools.last_tx)?;
        let (len, limit) = (bytes.map_or(0, <[u8]>::len), self.record_bytes_max);
        if len > limit {
            return Err(HostError::RecordTooLong { bytes: len, limit });
        }
        if let Some(step) = self.lock(tx, rid, Mode::Exclusive) {
            return Ok(step);
        }
        let machine = self.machine.verbs_mut();
        machine.write(&mut self.tools, now, tx, rid, bytes)
    }

    /// Commits. The answer has the instant from which the transaction survives a power cut; its
    /// locks are released then. After `Waits` one of two calls names the transaction: if
    /// [`Host::woken`] does, ask again; if [`Host::acknowledged`] does, it has committed with its
    /// group.
    ///
    /// # Errors
    /// No such transaction, or the device cannot continue. The transaction may have committed then:
    /// if [`Host::abort`] does not know it, it can only be asked to commit again.
    pub fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        self.check_phase(now, tx, Phase::InDoubt)?;
        if self.tools.locks.awaited(tx).is_some() {
            return Ok(Step::Waits);
        }
        let step = self.machine.verbs_mut().commit(&mut self.tools, now, tx);
        let phase = self.tools.txs.get_mut(&tx).expect("it was there");
        if step.is_err() && *phase == Phase::Live && self.machine.verbs().may_have_committed(tx) {
            *phase = Phase::InDoubt;
        }
        let step = step?;
        if let Step::Done((), when) = step {
            self.tools.end(tx, when);
            self.tools.stats.committed += 1;
        }
        Ok(step)
    }

    /// Rolls a transaction back, even one that waits. Its locks are released at the returned
    /// instant.
    ///
    /// # Errors
    /// No such transaction, or it has committed or may have, or the device cannot continue. After
    /// the last of these only another roll-back can follow.
    pub fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        self.check_phase(now, tx, Phase::RollingBack)?;
        let tools = &mut self.tools;
        tools.locks.withdraw(tx, &mut tools.woken);
        tools.woken.retain(|woken| *woken != tx);
        let done = self.machine.verbs_mut().abort(tools, now, tx);
        let done = done.inspect_err(|_| {
            tools.txs.insert(tx, Phase::RollingBack);
        })?;
        tools.end(tx, done);
        tools.stats.aborted += 1;
        Ok(done)
    }

    /// Transactions that were granted their awaited lock since the last call.
    pub fn woken(&mut self) -> Vec<TxId> {
        std::mem::take(&mut self.tools.woken)
    }

    /// Does the work that is due at `now`: releases the locks of ended transactions, and commits
    /// groups whose time is up; with `flush`, all waiting groups. Returns completed commits, each
    /// with its instant. Call it at [`Host::deadline`], and after each commit that waits.
    ///
    /// # Errors
    /// The device cannot continue.
    pub fn acknowledged(
        &mut self,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.tools.release_due(now);
        let machine = self.machine.verbs_mut();
        let done = machine.acknowledged(&mut self.tools, now, flush)?;
        for &(tx, when) in &done {
            self.tools.end(tx, when);
            self.tools.stats.committed += 1;
        }
        Ok(done)
    }

    /// When to call [`Host::acknowledged`] next, if there are no other calls until then.
    pub fn deadline(&self) -> Option<Nanos> {
        let ending = self.tools.endings.first().map(|&(when, _)| when);
        let group = self.machine.verbs().deadline();
        ending.into_iter().chain(group).min()
    }

    /// The counters since the start or [`Host::reset_stats`].
    pub fn stats(&self) -> HostStats {
        HostStats {
            pool: *self.tools.pool.stats(),
            locks: *self.tools.locks.stats(),
            log: self.machine.log().map_or(LogStats::default(), Log::stats),
            ..self.tools.stats
        }
    }

    /// Resets the counters, at the end of a warm-up.
    pub fn reset_stats(&mut self) {
        self.tools.stats = HostStats::default();
        self.tools.pool.reset_stats();
        self.tools.locks.reset_stats();
        self.machine.reset_stats();
    }

    /// Bytes of each structure in memory, including the device's and excluding the frames of the
    /// buffer pool, as in \[FlagCommit] §5.1.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.machine.memory();
        // Each frame stores when it became dirty.
        let frames = self.tools.pool.capacity() as u64;
        all.push(("dirty_page_table", frames * size_of::<u64>() as u64));
        all.push(("lock_table", self.tools.locks.memory()));
        all
    }

    /// Erases free blocks before they are needed, as an idle device does; see
    /// [`Ftl::erase_ahead`].
    ///
    /// # Errors
    /// The power fails.
    pub fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        self.machine.erase_ahead(now)
    }

    /// Promises that no later request has an earlier instant; see [`Flash::reached`].
    pub fn reached(&mut self, now: Nanos) {
        self.machine.reached(now);
    }

    /// The layer below the device's protocol, for inspection.
    pub fn ftl(&self) -> &Ftl {
        self.machine.ftl()
    }

    /// Checks the invariants of the device and the pool, in tests and campaigns.
    ///
    /// # Errors
    /// Describes the violated invariant.
    pub fn verify(&self) -> Result<(), String> {
        self.tools.check()?;
        self.machine.check()
    }

    /// Returns the flash: all that a power cut leaves.
    pub fn into_flash(self) -> Box<dyn Flash> {
        self.machine.into_flash()
    }
}

/// The answer for a lock that was not granted at once; `None` if it was.
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
