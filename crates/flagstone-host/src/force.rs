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

use super::below::{As, Below};
use super::config::{HostConfig, ManagerInfo};
use super::engine::PLACE;
use super::frame::Frame;
use super::locks::{LockTable, Mode};
use super::manager::{
    Admission, Commit, CommitSteps, Manager, Memory, Opened, RollBack, Room, WriteBack,
};
use super::{HostError, Rid, Step, Why, wait_for};
use flagstone::commit::{Device, Kind, MergedPage, Options};
use flagstone::ftl::Config;
use flagstone::nand::Flash;
use flagstone::settings::Setting;
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::{FxHashMap, FxHashSet};

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

/// Maximum number of pages that are kept because they were changed again.
const KEPT: usize = 1 << 16;

/// A live transaction.
#[derive(Debug, Default)]
struct Tx {
    /// Its identifier on the device, once it has begun there.
    inner: Option<TxId>,
    /// Changed pages, in order of the first change.
    pages: Vec<Lpn>,
}

struct Force {
    txs: FxHashMap<TxId, Tx>,
    /// Host transactions that have written pages out, by device identifier.
    outer: FxHashMap<TxId, TxId>,
    /// The device transaction that has written out each page.
    writers: FxHashMap<Lpn, TxId>,
    /// The lock mode of a device slot, if their number is bounded.
    place: Option<Mode>,
    steals: bool,
    flushes_aborted: bool,
    /// Whether the device takes each page once per transaction.
    takes_once: bool,
    /// Pages that stay in the pool until commit because they were changed again after being written
    /// out.
    kept: FxHashSet<Lpn>,
}

/// Starts the device.
pub(super) fn open(
    flash: Box<dyn Flash>,
    kind: Kind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
    let device = Device::open(flash, kind, device, options, now)?;
    let takes_once = !kind.info().rewrites;
    let kept = config.kept.iter().filter(|_| takes_once).take(KEPT);
    let place = |live: u32| Mode::Counted(live.min(255) as u8);
    let force = Force {
        place: device.live_max().map(place),
        steals: config.steal.unwrap_or(kind.info().rewrites),
        flushes_aborted: config.settings.flag(&INFO, FLUSH_ABORTED.name)?,
        takes_once,
        kept: kept.copied().collect(),
        txs: FxHashMap::default(),
        outer: FxHashMap::default(),
        writers: FxHashMap::default(),
    };
    Ok(Opened {
        manager: Box::new(force),
        tape: None,
        pages: device.pages(),
        last_tx: device.last_tx(),
        done: device.recovered_at(),
        device: Below::pages(device),
    })
}

impl Force {
    /// Requests a device slot, unless the transaction has one.
    fn ask_place(&self, memory: &mut Memory, tx: TxId) -> Admission {
        if self.on_device(tx).is_some() {
            return Admission::Granted;
        }
        let step = self
            .place
            .and_then(|mode| wait_for(memory.locks.acquire(tx, PLACE, mode)));
        step.map_or(Admission::Enters, Admission::Refused)
    }

    /// Ends a transaction on the device. Returns its changed pages.
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
}

fn owner(frame: &Frame) -> TxId {
    frame.owner.expect("a changed page has an owner")
}

impl Manager for Force {
    fn place(&self) -> Option<Mode> {
        self.place
    }

    fn reads_in(&self, at: Lpn) -> Option<TxId> {
        self.writers.get(&at).copied()
    }

    fn loaded(&mut self, at: Lpn, frame: &mut Frame, _: &mut MergedPage) -> Result<(), HostError> {
        let writer = self.writers.get(&at);
        frame.owner = writer.and_then(|inner| self.outer.get(inner).copied());
        Ok(())
    }

    fn may_write_back(&self, locks: &LockTable, at: Lpn, frame: &Frame) -> bool {
        let tx = owner(frame);
        let is_free = |mode| locks.is_free(tx, PLACE, mode);
        self.steals
            && !self.kept.contains(&at)
            && (self.on_device(tx).is_some() || self.place.is_none_or(is_free))
    }

    fn enters(&self, frame: &Frame) -> Vec<TxId> {
        let tx = owner(frame);
        match self.on_device(tx) {
            Some(_) => Vec::new(),
            None => vec![tx],
        }
    }

    fn write_back(&mut self, _: Nanos, at: Lpn, frame: &Frame) -> WriteBack {
        let inner = self.on_device(owner(frame)).expect("it has entered");
        self.writers.insert(at, inner);
        WriteBack {
            not_before: Nanos::ZERO,
            log_to: None,
            how: As::In(inner),
        }
    }

    fn entered(&mut self, tx: TxId, on_device: TxId) {
        self.txs.entry(tx).or_default().inner = Some(on_device);
        self.outer.insert(on_device, tx);
    }

    fn on_device(&self, tx: TxId) -> Option<TxId> {
        self.txs.get(&tx)?.inner
    }

    fn of_device(&self, on_device: TxId) -> TxId {
        self.outer[&on_device]
    }

    fn admit(&mut self, memory: &mut Memory, tx: TxId, rid: Rid) -> Admission {
        let inner = self.on_device(tx);
        if self.takes_once && inner.is_some() && self.writers.get(&rid.page) == inner.as_ref() {
            // D2: bounds the memory for kept pages.
            if self.kept.len() == KEPT {
                self.kept.clear();
            }
            self.kept.insert(rid.page);
            let (victim, why) = (tx, Why::WrittenOut);
            return Admission::Refused(Step::Abort { victim, why });
        }
        // Write-through needs the slot before anything is changed.
        if memory.config.write_through {
            self.ask_place(memory, tx)
        } else {
            Admission::Granted
        }
    }

    fn room(&mut self, _: &Memory, _: TxId, _: Rid, _: Option<&[u8]>) -> Result<Room, HostError> {
        Ok(Room::Enough)
    }

    fn update(
        &mut self,
        memory: &mut Memory,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<(), HostError> {
        let page_bytes = memory.page_bytes;
        let frame = memory.frame(rid.page);
        let set = frame.page.set(rid.slot, bytes, page_bytes);
        set.map_err(|error| HostError::no_room(rid.page, error))?;
        if frame.owner != Some(tx) {
            frame.owner = Some(tx);
            self.txs.entry(tx).or_default().pages.push(rid.page);
        }
        frame.changed = 1;
        Ok(())
    }

    fn commit(&mut self, memory: &mut Memory, _: Nanos, tx: TxId) -> Result<Commit, HostError> {
        let pages = match self.txs.get(&tx) {
            Some(known) if !known.pages.is_empty() => known.pages.clone(),
            _ => return Ok(Commit::Nothing),
        };
        let enters = match self.ask_place(memory, tx) {
            Admission::Refused(step) => return Ok(Commit::Refused(step)),
            Admission::Enters => true,
            Admission::Granted => false,
        };
        Ok(Commit::Steps(CommitSteps {
            enters,
            pages,
            ..CommitSteps::default()
        }))
    }

    fn committed(&mut self, memory: &mut Memory, tx: TxId, _: Nanos) {
        for at in self.leave(tx) {
            if let Some(frame) = memory.pool.peek_mut(at) {
                frame.owner = None;
            }
        }
    }

    fn writes_before_abort(&self, memory: &Memory, tx: TxId) -> Vec<Lpn> {
        let changed = match self.txs.get(&tx) {
            Some(known) if self.flushes_aborted => &known.pages[..],
            _ => &[],
        };
        let may = |at: &&Lpn| {
            let frame = memory.pool.peek(**at);
            let own = frame.filter(|frame| frame.changed != 0 && frame.owner == Some(tx));
            own.is_some_and(|frame| self.may_write_back(&memory.locks, **at, frame))
        };
        changed.iter().filter(may).copied().collect()
    }

    fn abort(&mut self, memory: &mut Memory, tx: TxId) -> Result<RollBack, HostError> {
        for at in self.leave(tx) {
            memory.pool.remove(at);
        }
        Ok(RollBack::Forgotten)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let pages: usize = self.txs.values().map(|tx| tx.pages.capacity()).sum();
        let txs = self.txs.capacity() * size_of::<(TxId, Tx)>() + pages * size_of::<Lpn>();
        let outer = self.outer.capacity() * size_of::<(TxId, TxId)>();
        let writers = self.writers.capacity() * size_of::<(Lpn, TxId)>();
        vec![("host_tx_table", (txs + outer + writers) as u64)]
    }
}
