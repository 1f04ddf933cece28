//! Force: a commit writes all pages of its transaction, and the device makes them count at once.
//!
//! Paper       [FlagCommit] §3 and §5.2: force buffer management and page-level locks above each
//!             page-level protocol.
//! Idea        The device is transactional, so the host keeps no log. Each write of a page carries
//!             its transaction; a commit writes what is still dirty and commits on the device.
//! Cost        A program for each page that the transaction changed, and the protocol's own. An
//!             abort forgets frames and writes nothing, unless `flush_aborted` is set. A restart is
//!             the device's.
//!
//! Invariants  1. A page in the pool is what its transaction sees: pages that were written out in a
//!                transaction are read back in it until it ends, by any transaction.
//!             2. At most one live transaction has changed a page (page locks).
//!             3. As many transactions are live on the device as the protocol supports. Each holds
//!                a place among the locks from its first write there until it ends, so that a wait
//!                for a place is in the graph of waits.
//!
//! Recovery    the device's; pages hold committed records and nothing else
//!
//! Departures  D1. If all frames hold dirty pages of live transactions that may not be written out
//!                 (`steal` is false), the youngest of them is aborted. The paper does not say what
//!                 happens.

use super::config::{HostConfig, ManagerInfo, Mistake};
use super::frame::Frame;
use super::locks::{LockTable, Mode, Resource};
use super::machine::{Machine, Opened};
use super::tools::{Phase, Tools, Verbs};
use super::{HostError, Rid, Step, wait_for};
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::Config;
use flagstone::nand::Flash;
use flagstone::settings::Setting;
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::FxHashMap;

pub(super) const INFO: ManagerInfo = ManagerInfo {
    name: "force",
    settings: &[FLUSH_ABORTED],
    check: |settings| settings.flag(&INFO, FLUSH_ABORTED.name).map(|_| ()),
};

const FLUSH_ABORTED: Setting = Setting {
    name: "flush_aborted",
    default: "false",
    what: "whether a transaction that is rolled back or restarted first writes all its changed \
           pages, as far as `steal` allows; like a buffer pool that writes pages early",
};

/// The lock resource that represents a slot for a live transaction on the device.
const PLACE: Resource = Resource::Device;

/// A live transaction.
#[derive(Debug, Default)]
struct Tx {
    /// Its identifier on the device, once it has begun there.
    inner: Option<TxId>,
    /// Changed pages, in order of the first change.
    pages: Vec<Lpn>,
}

pub(super) struct Force {
    pub(super) device: Box<Device>,
    txs: FxHashMap<TxId, Tx>,
    /// Host transactions that have begun on the device, by device identifier.
    outer: FxHashMap<TxId, TxId>,
    /// The device transaction that has written out each page.
    writers: FxHashMap<Lpn, TxId>,
    /// The lock mode of a device slot, if their number is bounded.
    place: Option<Mode>,
    steals: bool,
    flushes_aborted: bool,
}

/// Starts the device, which recovers by itself.
pub(super) fn open(
    flash: Box<dyn Flash>,
    kind: Kind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let device = Device::open(flash, kind, device, options, now)?;
    let place = |live: u32| Mode::Counted(live.min(255) as u8);
    let tools = Tools::new(config, page_bytes, device.last_tx())?;
    let (pages, recovered_at) = (device.pages(), device.recovered_at());
    let force = Force {
        place: device.live_max().map(place),
        steals: config.steal,
        flushes_aborted: config.settings.flag(&INFO, FLUSH_ABORTED.name)?,
        device: Box::new(device),
        txs: FxHashMap::default(),
        outer: FxHashMap::default(),
        writers: FxHashMap::default(),
    };
    Ok(Opened {
        machine: Machine::Force(force),
        tools,
        pages,
        recovered_at,
    })
}

impl Force {
    /// The transaction's identifier on the device, if it has begun there.
    fn inner(&self, tx: TxId) -> Option<TxId> {
        self.txs.get(&tx)?.inner
    }

    /// Begins a transaction on the device, which has a free slot. Returns its identifier there.
    fn begin(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<TxId, HostError> {
        if let Some(mode) = self.place {
            tools.locks.give(tx, PLACE, mode);
        }
        let inner = self.device.begin_more(now)?;
        self.txs.entry(tx).or_default().inner = Some(inner);
        self.outer.insert(inner, tx);
        Ok(inner)
    }

    /// Begins a transaction on the device, unless it has begun there. Returns the answer if it must
    /// wait for a slot.
    fn enter(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
    ) -> Result<Option<Step<()>>, HostError> {
        if self.inner(tx).is_some() {
            return Ok(None);
        }
        let acquire = |mode| wait_for(tools.locks.acquire(tx, PLACE, mode));
        let waits = self.place.and_then(acquire);
        if waits.is_none() {
            self.begin(tools, now, tx)?;
        }
        Ok(waits)
    }

    /// Changes a record of a fetched page.
    fn change(
        &mut self,
        tools: &mut Tools,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError> {
        let page_bytes = tools.page_bytes;
        let frame = tools.frame_mut(rid.page);
        frame.set(rid, bytes, page_bytes)?;
        if frame.owner != Some(tx) {
            frame.owner = Some(tx);
            self.txs.entry(tx).or_default().pages.push(rid.page);
        }
        // There is no log: any LSN but 0 says that the page has changed.
        frame.changed = 1;
        Ok(())
    }

    /// Ends a committed transaction: its pages in the pool have no owner any more.
    fn committed(&mut self, tools: &mut Tools, tx: TxId) {
        for at in self.leave(tx) {
            if let Some(frame) = tools.pool.peek_mut(at) {
                frame.owner = None;
            }
        }
    }

    /// Forgets an ended transaction, also as the writer of pages. Returns its changed pages.
    fn leave(&mut self, tx: TxId) -> Vec<Lpn> {
        let ended = self.txs.remove(&tx).unwrap_or_default();
        if let Some(inner) = ended.inner {
            self.outer.remove(&inner);
            for at in &ended.pages {
                if self.writers.get(at) == Some(&inner) {
                    self.writers.remove(at);
                }
            }
        }
        ended.pages
    }

    /// The changed pages of a transaction that may be written out now.
    fn may_be_written(&self, tools: &Tools, tx: TxId) -> Vec<Lpn> {
        let may = |at: &&Lpn| {
            let frame = tools.pool.peek(**at);
            let own = frame.filter(|frame| frame.changed != 0 && frame.owner == Some(tx));
            own.is_some_and(|frame| self.may_write_back(&tools.locks, frame))
        };
        let changed = self.txs.get(&tx).map_or(&[][..], |known| &known.pages);
        changed.iter().filter(may).copied().collect()
    }
}

fn owner(frame: &Frame) -> TxId {
    frame.owner.expect("a changed page has an owner")
}

impl Verbs for Force {
    fn read_page(&mut self, now: Nanos, at: Lpn) -> Result<Frame, HostError> {
        let writer = self.writers.get(&at).copied();
        let (ready, bytes) = self.device.read(now, writer, at)?;
        let mut frame = Frame::parse(at, bytes.unwrap_or_default(), ready)?;
        frame.owner = writer.and_then(|inner| self.outer.get(&inner).copied());
        Ok(frame)
    }

    fn may_write_back(&self, locks: &LockTable, frame: &Frame) -> bool {
        let tx = owner(frame);
        let is_free = |mode| locks.is_free(tx, PLACE, mode);
        self.steals && (self.inner(tx).is_some() || self.place.is_none_or(is_free))
    }

    fn write_back(&mut self, tools: &mut Tools, now: Nanos, at: Lpn) -> Result<Nanos, HostError> {
        let tx = owner(tools.frame(at));
        let inner = match self.inner(tx) {
            Some(inner) => inner,
            None => self.begin(tools, now, tx)?,
        };
        self.writers.insert(at, inner);
        tools.emit(at)?;
        let taken = self.device.write(now, inner, at, &tools.image)?;
        tools.written(at);
        Ok(taken.next)
    }

    /// Changes a record in the pool.
    fn write(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        // Write-through needs the slot before anything is changed.
        if tools.config.write_through
            && let Some(waits) = self.enter(tools, now, tx)?
        {
            return Ok(waits);
        }
        let Some(ready) = tools.fetch(self, now, rid.page, true)? else {
            return tools.exhausted();
        };
        let changed = self.change(tools, tx, rid, bytes);
        tools.end_write(self, rid.page, changed.map(|()| Step::Done((), ready)))
    }

    /// Writes the pages of the transaction that are still dirty, and commits on the device.
    fn commit(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        let pages = self.txs.get(&tx).map(|known| known.pages.clone());
        let Some(pages) = pages.filter(|pages| !pages.is_empty()) else {
            // The transaction may have begun on the device for a page that then could not be
            // written.
            if let Some(inner) = self.inner(tx) {
                self.device.abort(now, inner)?;
            }
            self.leave(tx);
            return Ok(Step::Done((), now));
        };
        if let Some(waits) = self.enter(tools, now, tx)? {
            return Ok(waits);
        }
        let mut done = now;
        for at in pages {
            done = tools.clean(self, done, at)?;
        }
        let inner = self.inner(tx).expect("it has begun on the device");
        let Some(committed) = self.device.commit(done, inner)? else {
            tools.txs.insert(tx, Phase::Committing);
            return Ok(Step::Waits);
        };
        self.committed(tools, tx);
        let early = tools.has(Mistake::EarlyAcknowledgement);
        Ok(Step::Done((), if early { now } else { committed }))
    }

    fn acknowledged(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, HostError> {
        let mut all = self.device.acknowledged(now, flush)?;
        for (tx, _) in &mut all {
            *tx = self.outer[tx];
            self.committed(tools, *tx);
        }
        Ok(all)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.device.deadline()
    }

    /// Drops the changed pages from the pool; the device has their committed versions.
    fn abort(&mut self, tools: &mut Tools, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        let mut now = now;
        if self.flushes_aborted {
            for at in self.may_be_written(tools, tx) {
                now = tools.clean(self, now, at)?;
            }
        }
        let inner = self.inner(tx);
        for at in self.leave(tx) {
            tools.pool.remove(at);
        }
        match inner {
            Some(inner) => Ok(self.device.abort(now, inner)?),
            None => Ok(now),
        }
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let pages: usize = self.txs.values().map(|tx| tx.pages.capacity()).sum();
        let txs = self.txs.capacity() * size_of::<(TxId, Tx)>() + pages * size_of::<Lpn>();
        let outer = self.outer.capacity() * size_of::<(TxId, TxId)>();
        let writers = self.writers.capacity() * size_of::<(Lpn, TxId)>();
        vec![("host_tx_table", (txs + outer + writers) as u64)]
    }
}
