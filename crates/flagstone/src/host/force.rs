//! Force: a commit writes all pages of its transaction, and the device makes them count at once.
//!
//! Paper       [FlagCommit] §3 and §5.2: force buffer management and page-level locks above each
//!             page-level protocol.
//! Idea        The device is transactional, so the host keeps no log. Each write of a page carries
//!             its transaction; a commit writes what is still dirty and commits on the device.
//! Cost        A program for each page that the transaction changed, and the protocol's own. An
//!             abort forgets frames and writes nothing. A restart is the device's.
//!
//! Invariants  1. A page in the pool is what its transaction sees: pages that were written out in a
//!                transaction are read back in it until it ends, whoever asks.
//!             2. At most one live transaction has changed a page (page locks).
//!             3. As many transactions are live on the device as the protocol supports. Each holds
//!                a place among the locks from its first write there until it ends, so that who
//!                waits for one is in the wait-for graph.
//!             4. Protocols that take each page once in a transaction get it once.
//!
//! Recovery    the device's; pages hold committed records and nothing else
//!
//! Departures  D1. If all frames hold dirty pages of live transactions that may not be written out,
//!                 the youngest of them is aborted. The paper does not say what happens.
//!             D2. Under protocols that take each page once, pages are kept until commit. Told to
//!                 steal all the same, as the paper does, the host aborts a transaction that
//!                 changes a page again after that was written out, and keeps that page from then
//!                 on. As printed it would be written twice.

use super::config::{HostConfig, Sabotage};
use super::engine::{Engine, Manager, Phase};
use super::frame::Frame;
use super::locks::{LockTable, Mode, Resource};
use super::{HostError, Rid, Step, Why, wait_for};
use crate::commit::{Device, Kind, Options};
use crate::ftl::{Config, Ftl};
use crate::nand::Flash;
use crate::page::Page;
use crate::units::{Lpn, Nanos, TxId};
use rustc_hash::{FxHashMap, FxHashSet};

/// A place among the transactions of the device.
const PLACE: Resource = Resource::Device;

/// Pages that are kept because they were changed again, at the most.
const KEPT: usize = 1 << 16;

/// A live transaction.
#[derive(Debug, Default)]
struct Tx {
    /// Its identifier on the device, once it has one.
    inner: Option<TxId>,
    /// Pages that it changed, in the order in which it did.
    pages: Vec<Lpn>,
}

struct Force {
    device: Device,
    txs: FxHashMap<TxId, Tx>,
    /// Transactions that have written pages out, by their identifier on the device.
    outer: FxHashMap<TxId, TxId>,
    /// Who has written a page out, by its identifier on the device.
    writers: FxHashMap<Lpn, TxId>,
    /// Transactions that the device takes at once, if that is bounded.
    places: Option<u8>,
    steals: bool,
    /// Whether the device takes each page once in a transaction.
    takes_once: bool,
    /// Pages that were changed again after they had been written out; these are not any more.
    kept: FxHashSet<Lpn>,
    sabotage: Option<Sabotage>,
    image: Vec<u8>,
}

/// Starts the device.
pub(super) fn open(
    flash: Box<dyn Flash>,
    kind: Kind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<(Box<dyn Manager>, Nanos), HostError> {
    let device = Device::open(flash, kind, device, options, now)?;
    let opened = device.recovered_at();
    let takes_once = !kind.info().rewrites;
    let kept = config.kept.iter().filter(|_| takes_once).take(KEPT);
    let force = Force {
        places: device.live_max().map(|live| live.min(255) as u8),
        steals: config.steal.unwrap_or(kind.info().rewrites),
        takes_once,
        kept: kept.copied().collect(),
        sabotage: config.sabotage,
        device,
        txs: FxHashMap::default(),
        outer: FxHashMap::default(),
        writers: FxHashMap::default(),
        image: Vec::new(),
    };
    Ok((Box::new(force), opened))
}

impl Force {
    /// Makes the transaction one of the device's, if there is a place for it.
    fn enter(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
    ) -> Result<Option<Step<()>>, HostError> {
        if self.txs.get(&tx).is_some_and(|known| known.inner.is_some()) {
            return Ok(None);
        }
        if let Some(mode) = self.place()
            && let Some(step) = wait_for(engine.locks.acquire(tx, PLACE, mode))
        {
            return Ok(Some(step));
        }
        self.begin(now, tx)?;
        Ok(None)
    }

    fn begin(&mut self, now: Nanos, tx: TxId) -> Result<TxId, HostError> {
        let inner = self.device.begin(now)?;
        self.txs.entry(tx).or_default().inner = Some(inner);
        self.outer.insert(inner, tx);
        Ok(inner)
    }

    /// How a place on the device is locked, if places are bounded.
    fn place(&self) -> Option<Mode> {
        self.places.map(Mode::Counted)
    }

    fn write_page(
        &mut self,
        now: Nanos,
        inner: TxId,
        at: Lpn,
        page: &Page,
    ) -> Result<Nanos, HostError> {
        let page_bytes = self.device.geometry().page_bytes as usize;
        page.emit(page_bytes, &mut self.image)
            .map_err(|error| HostError::PageDamaged(at, error))?;
        self.writers.insert(at, inner);
        Ok(self.device.write(now, inner, at, &self.image)?.next)
    }

    /// The transaction is over on the device.
    fn leave(&mut self, tx: TxId) -> Tx {
        let ended = self.txs.remove(&tx).unwrap_or_default();
        if let Some(inner) = ended.inner {
            self.outer.remove(&inner);
            for at in &ended.pages {
                if self.writers.get(at) == Some(&inner) {
                    self.writers.remove(at);
                }
            }
        }
        ended
    }
}

impl Manager for Force {
    fn space(&self) -> (u32, TxId) {
        (self.device.pages(), self.device.last_tx())
    }

    fn restart(&mut self, _: &mut Engine, now: Nanos) -> Result<Nanos, HostError> {
        Ok(now)
    }

    fn load(&mut self, now: Nanos, at: Lpn, frame: &mut Frame) -> Result<Nanos, HostError> {
        let writer = self.writers.get(&at).copied();
        frame.owner = writer.and_then(|inner| self.outer.get(&inner).copied());
        let (done, bytes) = self.device.read(now, writer, at)?;
        frame.page = Page::parse(bytes.unwrap_or_default())
            .map_err(|error| HostError::PageDamaged(at, error))?;
        Ok(done)
    }

    fn may_write_back(&self, locks: &LockTable, at: Lpn, frame: &Frame) -> bool {
        let tx = frame.owner.expect("a changed page has an owner");
        let has_place = self.txs.get(&tx).is_some_and(|known| known.inner.is_some());
        self.steals
            && !self.kept.contains(&at)
            && (has_place || self.place().is_none_or(|m| locks.is_free(tx, PLACE, m)))
    }

    fn write_back(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        at: Lpn,
        frame: &mut Frame,
    ) -> Result<Nanos, HostError> {
        let tx = frame.owner.expect("a changed page has an owner");
        let inner = match self.txs.get(&tx).and_then(|known| known.inner) {
            Some(inner) => inner,
            None => {
                // It may be waiting for something else; its place is free (`may_write_back`).
                if let Some(mode) = self.place() {
                    engine.locks.give(tx, PLACE, mode);
                }
                self.begin(now, tx)?
            }
        };
        engine.stats.pages_written += 1;
        self.write_page(now, inner, at, &frame.page)
    }

    fn admit(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
    ) -> Result<Step<()>, HostError> {
        let inner = self.txs.get(&tx).and_then(|known| known.inner);
        if self.takes_once && inner.is_some() && self.writers.get(&rid.page) == inner.as_ref() {
            // D2
            if self.kept.len() == KEPT {
                self.kept.clear();
            }
            self.kept.insert(rid.page);
            let (victim, why) = (tx, Why::WrittenOut);
            return Ok(Step::Abort { victim, why });
        }
        // What is written through needs its place before it changes anything.
        if engine.config.write_through
            && let Some(step) = self.enter(engine, now, tx)?
        {
            return Ok(step);
        }
        Ok(Step::Done((), now))
    }

    fn update(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        let page_bytes = engine.page_bytes;
        let frame = engine.pool.peek_mut(rid.page).expect("it was fetched");
        match bytes {
            Some(bytes) => frame
                .page
                .put(rid.slot, bytes, page_bytes)
                .map_err(|error| HostError::no_room(rid.page, error))?,
            None => {
                frame.page.remove(rid.slot);
            }
        }
        if frame.owner != Some(tx) {
            frame.owner = Some(tx);
            self.txs.entry(tx).or_default().pages.push(rid.page);
        }
        frame.changed = 1;
        Ok(Step::Done((), now))
    }

    fn commit(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        if self.txs.get(&tx).is_none_or(|known| known.pages.is_empty()) {
            // It may have entered to write what it then could not.
            if let Some(inner) = self.leave(tx).inner {
                self.device.abort(now, inner)?;
            }
            return Ok(Step::Done((), now));
        }
        if let Some(step) = self.enter(engine, now, tx)? {
            return Ok(step);
        }
        let inner = self.txs[&tx].inner.expect("it has entered");
        let pages = std::mem::take(&mut self.txs.get_mut(&tx).expect("it is live").pages);
        let mut ready = now;
        for &at in &pages {
            let Some(slot) = engine.pool.peek_mut(at) else {
                continue;
            };
            if slot.changed == 0 {
                continue;
            }
            let frame = std::mem::take(slot);
            let issue = ready.max(frame.ready);
            engine.stats.pages_written += 1;
            ready = self.write_page(issue, inner, at, &frame.page)?;
            let slot = engine.pool.peek_mut(at).expect("it was there");
            *slot = frame;
            slot.changed = 0;
            engine.pool.set_dirty(at, false);
        }
        let committed = self.device.commit(ready, inner)?;
        self.txs.get_mut(&tx).expect("it is live").pages = pages;
        let Some(done) = committed else {
            engine.txs.insert(tx, Phase::Committing);
            return Ok(Step::Waits);
        };
        for at in self.leave(tx).pages {
            if let Some(frame) = engine.pool.peek_mut(at) {
                frame.owner = None;
            }
        }
        let early = self.sabotage == Some(Sabotage::EarlyAcknowledgement);
        Ok(Step::Done((), if early { now } else { done }))
    }

    fn abort(&mut self, engine: &mut Engine, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let ended = self.leave(tx);
        for at in ended.pages {
            engine.pool.remove(at);
        }
        match ended.inner {
            Some(inner) => Ok(self.device.abort(now, inner)?),
            None => Ok(now),
        }
    }

    fn acknowledged(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        let mut all = self.device.acknowledged(now, flush)?;
        for (tx, _) in &mut all {
            *tx = self.outer[tx];
            for at in self.leave(*tx).pages {
                if let Some(frame) = engine.pool.peek_mut(at) {
                    frame.owner = None;
                }
            }
        }
        Ok(all)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.device.deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.device.memory();
        let pages: usize = self.txs.values().map(|tx| tx.pages.capacity()).sum();
        let txs = self.txs.capacity() * size_of::<(TxId, Tx)>() + pages * size_of::<Lpn>();
        let outer = self.outer.capacity() * size_of::<(TxId, TxId)>();
        let writers = self.writers.capacity() * size_of::<(Lpn, TxId)>();
        all.push(("host_tx_table", (txs + outer + writers) as u64));
        all
    }

    fn reset_stats(&mut self) {
        self.device.reset_stats();
    }

    fn erase_ahead(&mut self, now: Nanos) -> Result<Nanos, HostError> {
        Ok(self.device.erase_ahead(now)?)
    }

    fn ftl(&self) -> &Ftl {
        self.device.ftl()
    }

    fn check(&self) -> Result<(), String> {
        self.device.check()
    }

    fn into_flash(self: Box<Self>) -> Box<dyn Flash> {
        self.device.into_flash()
    }
}
