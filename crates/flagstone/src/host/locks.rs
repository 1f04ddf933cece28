//! Strict two-phase locks: who holds what, who waits for whom.

use crate::page::SlotNo;
use crate::units::{Lpn, TxId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What can be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A page.
    Page(Lpn),
    /// A record.
    Record(Lpn, SlotNo),
    /// A place among those that may change a page.
    Updaters(Lpn),
    /// A place among the transactions of the device.
    Device,
}

/// How it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// With others that read.
    Shared,
    /// Alone.
    Exclusive,
    /// At most so many holders.
    Counted(u8),
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// It holds the lock.
    Granted,
    /// It waits.
    Waits,
    /// A circle of waits.
    Deadlock {
        /// Its youngest: abort it, then ask again.
        victim: TxId,
    },
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockStats {
    /// Requests that had to wait.
    pub waits: u64,
    /// Circles found.
    pub deadlocks: u64,
}

#[derive(Debug, Default)]
struct Queue {
    holders: Vec<(TxId, Mode)>,
    waiting: VecDeque<(TxId, Mode)>,
}

/// All locks.
#[derive(Debug, Default)]
pub struct LockTable {
    queues: BTreeMap<Resource, Queue>,
    held: BTreeMap<TxId, Vec<Resource>>,
    waits: BTreeMap<TxId, Resource>,
    stats: LockStats,
}

impl Queue {
    fn fits(&self, tx: TxId, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|(holder, _)| *holder != tx);
        match mode {
            Mode::Shared => others.all(|(_, held)| *held == Mode::Shared),
            Mode::Exclusive => others.next().is_none(),
            Mode::Counted(limit) => others.count() < usize::from(limit),
        }
    }
}

impl LockTable {
    /// Asks for a lock.
    pub fn acquire(&mut self, tx: TxId, what: Resource, mode: Mode) -> Grant {
        let queue = self.queues.entry(what).or_default();
        let own = queue.holders.iter().position(|(holder, _)| *holder == tx);
        if let Some(own) = own {
            let held = queue.holders[own].1;
            if held == mode || held == Mode::Exclusive {
                return Grant::Granted;
            }
        }
        let ahead = own.is_none()
            && queue
                .waiting
                .iter()
                .take_while(|(waiter, _)| *waiter != tx)
                .next()
                .is_some();
        if !ahead && queue.fits(tx, mode) {
            queue.waiting.retain(|(waiter, _)| *waiter != tx);
            self.waits.remove(&tx);
            match own {
                Some(own) => queue.holders[own].1 = mode,
                None => {
                    queue.holders.push((tx, mode));
                    self.held.entry(tx).or_default().push(what);
                }
            }
            return Grant::Granted;
        }
        if self.waits.insert(tx, what).is_none() {
            self.stats.waits += 1;
            match own {
                Some(_) => queue.waiting.push_front((tx, mode)),
                None => queue.waiting.push_back((tx, mode)),
            }
        }
        match self.circle(tx) {
            Some(victim) => {
                self.stats.deadlocks += 1;
                Grant::Deadlock { victim }
            }
            None => Grant::Waits,
        }
    }

    fn blockers(&self, tx: TxId) -> Vec<TxId> {
        let Some(what) = self.waits.get(&tx) else {
            return Vec::new();
        };
        let queue = &self.queues[what];
        let ahead = queue.waiting.iter().take_while(|(other, _)| *other != tx);
        let all = queue.holders.iter().chain(ahead);
        all.map(|(other, _)| *other).filter(|&o| o != tx).collect()
    }

    /// The youngest of a circle through `tx`.
    fn circle(&self, tx: TxId) -> Option<TxId> {
        let mut path = vec![(tx, self.blockers(tx))];
        let mut seen = BTreeSet::from([tx]);
        while let Some((_, next)) = path.last_mut() {
            match next.pop() {
                None => {
                    path.pop();
                }
                Some(other) if other == tx => return path.iter().map(|(on, _)| *on).max(),
                Some(other) => {
                    if seen.insert(other) {
                        path.push((other, self.blockers(other)));
                    }
                }
            }
        }
        None
    }

    /// Takes back what a transaction waits for.
    pub fn cancel(&mut self, tx: TxId, woken: &mut Vec<TxId>) {
        if let Some(what) = self.waits.remove(&tx) {
            let queue = self.queues.get_mut(&what).expect("it waits there");
            queue.waiting.retain(|(waiter, _)| *waiter != tx);
            self.grant(what, woken);
        }
    }

    fn grant(&mut self, what: Resource, woken: &mut Vec<TxId>) {
        let queue = self.queues.get_mut(&what).expect("it is known");
        while let Some(&(tx, mode)) = queue.waiting.front()
            && queue.fits(tx, mode)
        {
            queue.waiting.pop_front();
            self.waits.remove(&tx);
            match queue.holders.iter_mut().find(|(holder, _)| *holder == tx) {
                Some((_, held)) => *held = mode,
                None => {
                    queue.holders.push((tx, mode));
                    self.held.entry(tx).or_default().push(what);
                }
            }
            woken.push(tx);
        }
        if queue.holders.is_empty() && queue.waiting.is_empty() {
            self.queues.remove(&what);
        }
    }

    /// Releases all that a transaction holds. Appends who was granted what it waited for.
    pub fn release_all(&mut self, tx: TxId, woken: &mut Vec<TxId>) {
        self.cancel(tx, woken);
        for what in self.held.remove(&tx).unwrap_or_default() {
            let queue = self.queues.get_mut(&what).expect("it is held");
            queue.holders.retain(|(holder, _)| *holder != tx);
            self.grant(what, woken);
        }
    }

    /// Who holds it.
    pub fn holders(&self, what: Resource) -> usize {
        self.queues.get(&what).map_or(0, |queue| queue.holders.len())
    }

    /// What was counted.
    pub fn stats(&self) -> &LockStats {
        &self.stats
    }

    /// Counts from here.
    pub fn reset_stats(&mut self) {
        self.stats = LockStats::default();
    }

    /// Bytes in memory.
    pub fn memory(&self) -> u64 {
        (self.queues.len() * size_of::<(Resource, Queue)>()) as u64
    }
}
