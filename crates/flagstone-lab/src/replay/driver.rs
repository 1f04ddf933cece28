//! Clients in virtual time: each plays the next transaction as soon as its last one has ended
//! (closed loop), or as soon as it arrived in the recording (open loop).
//!
//! The events of a run are a heap by instant; ties go in the order in which they were made, so that
//! clients take turns page by page. Isolation is kept here, as a database would above the device:
//!
//! - strict: one transaction at a time, with a barrier after each commit and abort;
//! - no-page-conflict: transactions run side by side until one comes that writes a page of the
//!   current segment; it waits until the segment is over and opens the next ([LightTx] §4.2);
//! - serializable: side by side, whatever they write; the order of the commits decides.

use super::load::Load;
use super::script::{Script, Transaction};
use crate::effort;
use crate::stop;
use flagstone::commit::{Device, DeviceError, Isolation};
use flagstone::units::{Lpn, Nanos, TxId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// What a driver counted besides the device.
#[derive(Debug, Clone, Default)]
pub(super) struct Timings {
    /// Of committed transactions: what their clients waited for them, from the end of the client's
    /// last one (closed loop) or the arrival (open loop) to the acknowledgement.
    pub(super) response_ns: Vec<u64>,
    /// Of this, until isolation and the protocol let the transaction begin.
    pub(super) isolation_wait_ns: Vec<u64>,
    /// Of this, from the request to commit to the acknowledgement.
    pub(super) commit_ns: Vec<u64>,
    /// Open loop: when transactions arrived, in order.
    pub(super) arrivals: Vec<u64>,
    /// Open loop: when they ended, committed or not.
    pub(super) ends: Vec<u64>,
    /// When the last transaction ended.
    pub(super) end: Nanos,
    /// Transactions that were begun, and those that ended.
    pub(super) issued: u64,
    pub(super) completed: u64,
    /// The largest size of each structure in memory that was seen.
    pub(super) memory: Vec<(&'static str, u64)>,
}

impl Timings {
    /// Whether an open loop kept up.
    pub(super) fn load(&self) -> Load {
        Load::of(&self.arrivals, &self.ends, 0)
    }
}

/// How a script is played.
#[derive(Debug, Clone, Copy)]
pub(super) struct Play<'a> {
    pub(super) script: &'a Script,
    pub(super) isolation: Isolation,
    pub(super) clients: u32,
    /// Open loop: the recording's times are divided by it.
    pub(super) speedup: Option<f64>,
    /// Which transactions are rolled back, one flag each.
    pub(super) aborted: &'a [bool],
}

/// Where a transaction is.
struct Running {
    index: usize,
    tx: TxId,
    /// Since when its client waits for it.
    asked: Nanos,
    begun: Nanos,
    step: usize,
    commit_asked: Nanos,
    /// When what it has programmed is done.
    written: Nanos,
}

struct Driver<'a, 'd> {
    play: Play<'a>,
    device: &'d mut Device,
    start: Nanos,
    heap: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    order: u64,
    /// What each client does.
    slots: Vec<Option<Running>>,
    /// Clients that do nothing, and since when: the one that has waited longest is the next.
    idle: BTreeSet<(Nanos, usize)>,
    /// Open loop: transactions that have arrived and not begun, by index.
    queue: VecDeque<(usize, Nanos)>,
    next: usize,
    live: usize,
    segment: FxHashSet<u32>,
    /// Nothing begins before it: the end of the last segment, or of the last transaction.
    barrier: Nanos,
    /// Slots that wait for their group.
    waiting: FxHashMap<TxId, usize>,
    timings: Timings,
}

/// An instant for the arrival of the next transaction of an open loop.
const ARRIVAL: usize = usize::MAX;

/// Memory is looked at after so many transactions.
const MEMORY_EVERY: u64 = 64;

/// Plays a script from `start` on until its last transaction has ended.
pub(super) fn play(
    device: &mut Device,
    play: Play<'_>,
    start: Nanos,
) -> Result<Timings, DeviceError> {
    let slots = match play.speedup {
        None => play.clients as usize,
        Some(_) => 0,
    };
    let mut driver = Driver {
        play,
        device,
        start,
        heap: BinaryHeap::new(),
        order: 0,
        slots: (0..slots).map(|_| None).collect(),
        idle: (0..slots).map(|slot| (start, slot)).collect(),
        queue: VecDeque::new(),
        next: 0,
        live: 0,
        segment: FxHashSet::default(),
        barrier: Nanos::ZERO,
        waiting: FxHashMap::default(),
        timings: Timings::default(),
    };
    driver.run()?;
    driver.timings.end = driver.timings.end.max(start);
    Ok(driver.timings)
}

impl Driver<'_, '_> {
    fn run(&mut self) -> Result<(), DeviceError> {
        if self.play.speedup.is_some() {
            self.plan_arrival();
        }
        self.begin_what_can(self.start)?;
        loop {
            stop::point();
            let next = self.heap.peek().map(|Reverse((at, _, _))| *at);
            // A group whose time is up commits before anything later happens.
            if let Some(deadline) = self.device.deadline()
                && next.is_none_or(|at| deadline < at)
                && !self.waiting.is_empty()
            {
                let flush = next.is_none();
                self.acknowledge(deadline, flush)?;
                continue;
            }
            let Some(Reverse((now, _, slot))) = self.heap.pop() else {
                if self.waiting.is_empty() {
                    break;
                }
                let end = self.timings.end.max(self.start);
                self.acknowledge(end, true)?;
                continue;
            };
            if slot == ARRIVAL {
                self.queue.push_back((self.next, now));
                self.timings.arrivals.push(now.0);
                self.next += 1;
                self.plan_arrival();
                self.begin_what_can(now)?;
            } else {
                self.step(now, slot)?;
            }
        }
        assert!(self.queue.is_empty() && self.live == 0, "a run ended early");
        self.look_at_memory();
        Ok(())
    }

    fn plan_arrival(&mut self) {
        let Some(speedup) = self.play.speedup else {
            return;
        };
        if let Some(transaction) = self.play.script.transactions().get(self.next) {
            let after = (transaction.start_ns as f64 / speedup) as u64;
            self.push(self.start + Nanos(after), ARRIVAL);
        }
    }

    fn push(&mut self, at: Nanos, slot: usize) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, slot)));
    }

    /// Begins as many transactions as clients, isolation and the protocol allow.
    fn begin_what_can(&mut self, now: Nanos) -> Result<(), DeviceError> {
        while let Some((index, asked, slot)) = self.next_in_line() {
            let transaction = &self.play.script.transactions()[index];
            if !self.may_begin(transaction) {
                return Ok(());
            }
            // A client of which the end is already known may still be busy until then.
            let now = now.max(self.barrier).max(asked);
            let tx = match self.device.begin(now) {
                Ok(tx) => tx,
                Err(DeviceError::TooManyLive { .. }) if self.live > 0 => return Ok(()),
                Err(error) => return Err(error),
            };
            self.take_up(slot);
            self.slots[slot] = Some(Running {
                index,
                tx,
                asked,
                begun: now,
                step: 0,
                commit_asked: now,
                written: now,
            });
            self.live += 1;
            self.timings.issued += 1;
            if self.play.isolation == Isolation::NoPageConflict {
                self.segment.extend(self.play.script.changes(transaction));
            }
            self.push(now, slot);
        }
        Ok(())
    }

    /// The next transaction, since when its client waits for it, and the place of the client: in
    /// an open loop what has arrived, with a client of its own; in a closed one the script's next,
    /// if a client does nothing.
    fn next_in_line(&self) -> Option<(usize, Nanos, usize)> {
        let idle = self.idle.first();
        if self.play.speedup.is_some() {
            let &(index, arrived) = self.queue.front()?;
            let slot = idle.map_or(self.slots.len(), |&(_, slot)| slot);
            return Some((index, arrived, slot));
        }
        let left = self.next < self.play.script.transactions().len();
        idle.filter(|_| left)
            .map(|&(since, slot)| (self.next, since, slot))
    }

    /// The next transaction in line begins in this place.
    fn take_up(&mut self, slot: usize) {
        self.idle.pop_first();
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        if self.play.speedup.is_some() {
            self.queue.pop_front();
        } else {
            self.next += 1;
        }
    }

    fn may_begin(&mut self, transaction: &Transaction) -> bool {
        match self.play.isolation {
            Isolation::Strict => {
                self.barrier = self.timings.end;
                self.live == 0
            }
            Isolation::Serializable => true,
            Isolation::NoPageConflict => {
                let changes = self.play.script.changes(transaction);
                if self.live == 0 {
                    self.segment.clear();
                    self.barrier = self.timings.end;
                }
                !changes.iter().any(|page| self.segment.contains(page))
            }
        }
    }

    /// The next request of a transaction.
    fn step(&mut self, now: Nanos, slot: usize) -> Result<(), DeviceError> {
        let script = self.play.script;
        let running = self.slots[slot]
            .as_mut()
            .expect("only running transactions have events");
        let transaction = &script.transactions()[running.index];
        let (reads, trims, writes) = (
            script.reads(transaction),
            script.trims(transaction),
            script.writes(transaction),
        );
        let (tx, step) = (running.tx, running.step);
        running.step += 1;
        effort::did(effort::REPLAYED);
        let done = if step < reads.len() {
            self.device.read(now, Some(tx), Lpn(reads[step]))?.0
        } else if step < reads.len() + trims.len() {
            self.device
                .trim(now, tx, Lpn(trims[step - reads.len()]))?
                .next
        } else if step < reads.len() + trims.len() + writes.len() {
            let at = Lpn(writes[step - reads.len() - trims.len()]);
            let taken = self.device.write(now, tx, at, &[])?;
            running.written = running.written.max(taken.done);
            taken.next
        } else {
            return self.finish(now, slot);
        };
        self.push(done, slot);
        Ok(())
    }

    /// The transaction has made all its requests.
    fn finish(&mut self, now: Nanos, slot: usize) -> Result<(), DeviceError> {
        let running = self.slots[slot]
            .as_mut()
            .expect("only running transactions have events");
        let (index, tx, written) = (running.index, running.tx, running.written);
        running.commit_asked = now;
        if self.play.aborted[index] {
            let mut done = self.device.abort(now, tx)?;
            if self.play.isolation == Isolation::Strict || self.play.speedup.is_some() {
                // Barriers, which a recording is replayed with, wait for every request, those that
                // were made in vain as well ([LightTx] §4.2).
                done = done.max(written);
            }
            return self.end(done, slot, false);
        }
        match self.device.commit(now, tx)? {
            Some(done) => self.end(done, slot, true),
            None => {
                self.waiting.insert(tx, slot);
                // With every client waiting nobody would ever fill the group.
                let all = self.live == self.waiting.len() && !self.may_begin_more();
                self.acknowledge(now, all)
            }
        }
    }

    fn may_begin_more(&mut self) -> bool {
        if self
            .heap
            .iter()
            .any(|Reverse((_, _, slot))| *slot == ARRIVAL)
        {
            return true;
        }
        let Some((index, ..)) = self.next_in_line() else {
            return false;
        };
        let transaction = self.play.script.transactions()[index];
        self.may_begin(&transaction)
    }

    fn acknowledge(&mut self, now: Nanos, flush: bool) -> Result<(), DeviceError> {
        for (tx, done) in self.device.acknowledged(now, flush)? {
            let slot = self
                .waiting
                .remove(&tx)
                .expect("only what waits is acknowledged");
            self.end(done, slot, true)?;
        }
        Ok(())
    }

    fn end(&mut self, done: Nanos, slot: usize, committed: bool) -> Result<(), DeviceError> {
        let running = self.slots[slot].take().expect("it was running");
        self.live -= 1;
        self.idle.insert((done, slot));
        let timings = &mut self.timings;
        timings.completed += 1;
        timings.end = timings.end.max(done);
        if self.play.speedup.is_some() {
            timings.ends.push(done.0);
        }
        if committed {
            let waited = running.begun.since(running.asked);
            timings.response_ns.push(done.since(running.asked).0);
            timings.isolation_wait_ns.push(waited.0);
            let commit = done.since(running.commit_asked);
            timings.commit_ns.push(commit.0);
        }
        if timings.completed % MEMORY_EVERY == 1 {
            self.look_at_memory();
        }
        self.begin_what_can(done)
    }

    fn look_at_memory(&mut self) {
        for (name, bytes) in self.device.memory() {
            match self
                .timings
                .memory
                .iter_mut()
                .find(|(known, _)| *known == name)
            {
                Some((_, most)) => *most = bytes.max(*most),
                None => self.timings.memory.push((name, bytes)),
            }
        }
    }
}
