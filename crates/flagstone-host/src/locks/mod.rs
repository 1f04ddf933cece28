//! Strict two-phase locking: grants locks on pages and records, queues requests, and chooses the
//! victim of a deadlock (\[FlagCommit] §5.1).
//!
//! A state machine without threads. [`LockTable::acquire`] answers at once.
//! [`LockTable::release_all`] names the transactions that continue. A transaction acquires locks
//! one by one and releases all of them when it ends.
//!
//! ```text
//!            acquire                release_all of others
//!   running ─────────> Waits ──────────────────────────────> woken: running, has the lock
//!      │  └──────────> Granted
//!      └─────────────> Deadlock: the request is withdrawn; abort the victim, then ask again
//! ```
//!
//! **Fairness.** A request waits behind all earlier requests for the same resource, even if it
//! could be granted. Upgrades come before other requests: none of these can be granted while the
//! shared lock that is to be upgraded is held.
//!
//! **The graph of waits.** A shared request waits for the exclusive holder, and for exclusive
//! requests before it in the queue. An exclusive request waits for all other holders and all
//! requests before it. A counted request waits for every holder, although it can go on when any of
//! them ends. So the graph is conservative. No deadlock is missed: the members of one wait for
//! members only, so that there is a cycle among them. But a cycle may be reported although a holder
//! outside of it would end and let the waiter go on. Then a transaction is aborted without need.
//! Telling these cases apart would be a search for knots instead of cycles, for a handful of
//! holders.
//!
//! Invariants  1. Holders of a resource are compatible.
//!             2. The first request of a queue cannot be granted.
//!             3. The graph of waits has no cycle: a request that would close one does not wait. A
//!                grant adds edges only to a transaction that runs, so that a search for cycles at
//!                each wait is enough.

#[cfg(test)]
mod tests;

use flagstone::page::SlotNo;
use flagstone::units::Lpn;
use flagstone::units::TxId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

/// A resource that can be locked. A stack locks pages or records, not both: there are no intention
/// locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Resource {
    /// A page, shared or exclusive.
    Page(Lpn),
    /// A record in a page, shared or exclusive.
    Record(Lpn, SlotNo),
    /// The right to have pending records in a page, counted (\[FlagCommit] §4.2).
    Updaters(Lpn),
    /// A slot for a live transaction on the device, counted.
    Device,
}

/// How a resource is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mode {
    /// Shared with other readers.
    Shared,
    /// Exclusive.
    Exclusive,
    /// Shared by at most this number of holders. If holders name different numbers, the smallest
    /// applies.
    Counted(u8),
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grant {
    /// The transaction has the lock.
    Granted,
    /// The transaction waits until [`LockTable::release_all`] names it.
    Waits,
    /// Waiting would close a cycle. The request is withdrawn. Abort the victim, then ask again,
    /// unless the victim is the requester.
    Deadlock {
        /// The youngest transaction of the cycle: the one with the highest identifier.
        victim: TxId,
    },
}

/// The counters of a lock table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LockStats {
    /// Requests for a lock that the transaction did not have. A repeated request counts again.
    pub requests: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that would have closed a cycle.
    pub deadlocks: u64,
    /// Shared locks that became exclusive.
    pub upgrades: u64,
}

#[derive(Debug, Default)]
struct Lock {
    /// The transactions that hold the lock, in order of arrival.
    holders: Vec<(TxId, Mode)>,
    /// Upgrades, then other requests, each in order of arrival.
    queue: VecDeque<Request>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    tx: TxId,
    mode: Mode,
    is_upgrade: bool,
}

#[derive(Debug, Default)]
struct Party {
    /// Held resources, in the order in which they were granted.
    held: Vec<Resource>,
    /// The resource that the transaction waits for.
    awaited: Option<Resource>,
}

/// The locks of a database.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    locks: FxHashMap<Resource, Lock>,
    parties: FxHashMap<TxId, Party>,
    stats: LockStats,
}

impl Lock {
    fn mode_of(&self, tx: TxId) -> Option<Mode> {
        let holder = self.holders.iter().find(|(holder, _)| *holder == tx);
        holder.map(|&(_, mode)| mode)
    }

    /// Whether a request is compatible with the locks of other transactions.
    fn admits(&self, tx: TxId, mode: Mode) -> bool {
        let mut others = self.holders.iter().filter(|(holder, _)| *holder != tx);
        match mode {
            Mode::Shared => others.all(|&(_, held)| held == Mode::Shared),
            Mode::Exclusive => others.next().is_none(),
            Mode::Counted(max) => {
                let counts = others.clone().map(|&(_, held)| match held {
                    Mode::Counted(max) => max,
                    Mode::Shared | Mode::Exclusive => 0,
                });
                others.count() < usize::from(counts.min().map_or(max, |least| max.min(least)))
            }
        }
    }

    fn enqueue(&mut self, request: Request) {
        let place = if request.is_upgrade {
            let upgrades = self.queue.iter().take_while(|other| other.is_upgrade);
            upgrades.count()
        } else {
            self.queue.len()
        };
        self.queue.insert(place, request);
    }

    fn withdraw(&mut self, tx: TxId) {
        self.queue.retain(|request| request.tx != tx);
    }

    /// The transactions for which a waiting transaction waits.
    fn blockers(&self, tx: TxId) -> impl Iterator<Item = TxId> + '_ {
        let place = self.queue.iter().position(|request| request.tx == tx);
        let place = place.expect("a request of whoever waits");
        let mode = self.queue[place].mode;
        let holders = self.holders.iter().filter(move |(holder, held)| {
            *holder != tx && !(mode == Mode::Shared && *held == Mode::Shared)
        });
        let before = self.queue.range(..place).filter(move |other| match mode {
            Mode::Shared => other.mode == Mode::Exclusive,
            Mode::Exclusive => true,
            // They wait for the same holders.
            Mode::Counted(_) => false,
        });
        let holders = holders.map(|&(holder, _)| holder);
        holders.chain(before.map(|request| request.tx))
    }
}

impl LockTable {
    /// Requests a lock. Granted at once if the transaction already has it, or a stronger one. A
    /// shared lock is upgraded if `mode` is exclusive.
    ///
    /// # Panics
    /// The transaction waits for another lock; or the mode does not fit the resource:
    /// [`Resource::Updaters`] and [`Resource::Device`] are counted, by 1 or more, the others are
    /// not.
    pub(super) fn acquire(&mut self, tx: TxId, what: Resource, mode: Mode) -> Grant {
        let is_counted = matches!(mode, Mode::Counted(1..));
        assert_eq!(
            matches!(what, Resource::Updaters(_) | Resource::Device),
            is_counted,
            "{tx} asks for {what:?} as {mode:?}"
        );
        let awaited = self.awaited(tx);
        if awaited.is_some() {
            assert_eq!(awaited, Some((what, mode)), "{tx} waits and asks for more");
            return Grant::Waits;
        }
        let lock = self.locks.entry(what).or_default();
        let held = lock.mode_of(tx);
        if held.is_some_and(|held| mode != Mode::Exclusive || held == Mode::Exclusive) {
            return Grant::Granted;
        }
        self.stats.requests += 1;
        let request = Request {
            tx,
            mode,
            is_upgrade: held.is_some(),
        };
        if (request.is_upgrade || lock.queue.is_empty()) && lock.admits(tx, mode) {
            self.grant(what, request);
            return Grant::Granted;
        }
        lock.enqueue(request);
        self.parties.entry(tx).or_default().awaited = Some(what);
        let Some(victim) = self.youngest_of_cycle(tx) else {
            self.stats.waits += 1;
            return Grant::Waits;
        };
        self.stats.deadlocks += 1;
        let lock = self.locks.get_mut(&what).expect("it has a queue");
        lock.withdraw(tx);
        let party = self.parties.get_mut(&tx).expect("it was to wait");
        party.awaited = None;
        if party.held.is_empty() {
            self.parties.remove(&tx);
        }
        Grant::Deadlock { victim }
    }

    /// Ends a transaction: releases all its locks and withdraws its request. Appends to `woken` the
    /// transactions whose requests are now granted, resource by resource in the order in which this
    /// transaction acquired them.
    pub(super) fn release_all(&mut self, tx: TxId, woken: &mut Vec<TxId>) {
        let Some(party) = self.parties.remove(&tx) else {
            return;
        };
        if let Some(what) = party.awaited {
            let lock = self.locks.get_mut(&what).expect("it has a queue");
            lock.withdraw(tx);
        }
        for &what in &party.held {
            let lock = self.locks.get_mut(&what).expect("it has a holder");
            lock.holders.retain(|(holder, _)| *holder != tx);
        }
        let awaited = party.awaited.filter(|what| !party.held.contains(what));
        for what in party.held.into_iter().chain(awaited) {
            self.serve(what, woken);
        }
    }

    /// Whether a transaction has a lock, or would be granted it at once.
    pub(super) fn is_free(&self, tx: TxId, what: Resource, mode: Mode) -> bool {
        let Some(lock) = self.locks.get(&what) else {
            return true;
        };
        lock.mode_of(tx).is_some() || (lock.queue.is_empty() && lock.admits(tx, mode))
    }

    /// Grants a lock that [`LockTable::is_free`] to a transaction that did not request it, and that
    /// may be waiting for another lock. No request waits for this lock, so nobody new waits for the
    /// transaction.
    ///
    /// # Panics
    /// The lock is not free.
    pub(super) fn give(&mut self, tx: TxId, what: Resource, mode: Mode) {
        assert!(self.is_free(tx, what, mode), "{what:?} is taken");
        if self.held(tx, what).is_some() {
            return;
        }
        self.stats.requests += 1;
        self.locks.entry(what).or_default().holders.push((tx, mode));
        self.parties.entry(tx).or_default().held.push(what);
    }

    /// Withdraws a transaction's request. Appends to `woken` the transactions that can now
    /// continue.
    pub(super) fn withdraw(&mut self, tx: TxId, woken: &mut Vec<TxId>) {
        let Some((what, _)) = self.awaited(tx) else {
            return;
        };
        self.locks
            .get_mut(&what)
            .expect("it has a queue")
            .withdraw(tx);
        let party = self.parties.get_mut(&tx).expect("it waits");
        party.awaited = None;
        if party.held.is_empty() {
            self.parties.remove(&tx);
        }
        self.serve(what, woken);
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> u64 {
        let requests = |lock: &Lock| {
            lock.holders.capacity() * size_of::<(TxId, Mode)>()
                + lock.queue.capacity() * size_of::<Request>()
        };
        let lists: usize = self.locks.values().map(requests).sum();
        let held = |party: &Party| party.held.capacity() * size_of::<Resource>();
        let held: usize = self.parties.values().map(held).sum();
        let locks = self.locks.capacity() * (size_of::<(Resource, Lock)>() + 1);
        let parties = self.parties.capacity() * (size_of::<(TxId, Party)>() + 1);
        (lists + held + locks + parties) as u64
    }

    /// Grants requests from the head of the queue as far as possible.
    fn serve(&mut self, what: Resource, woken: &mut Vec<TxId>) {
        loop {
            let lock = self.locks.get_mut(&what).expect("it was just used");
            let Some(&request) = lock.queue.front() else {
                if lock.holders.is_empty() {
                    self.locks.remove(&what);
                }
                return;
            };
            if !lock.admits(request.tx, request.mode) {
                return;
            }
            lock.queue.pop_front();
            self.grant(what, request);
            woken.push(request.tx);
        }
    }

    fn grant(&mut self, what: Resource, request: Request) {
        let lock = self.locks.get_mut(&what).expect("it was just used");
        let party = self.parties.entry(request.tx).or_default();
        party.awaited = None;
        if request.is_upgrade {
            let mut holders = lock.holders.iter_mut();
            let held = holders.find(|(holder, _)| *holder == request.tx);
            held.expect("an upgrade of what is held").1 = request.mode;
            self.stats.upgrades += 1;
        } else {
            lock.holders.push((request.tx, request.mode));
            party.held.push(what);
        }
    }

    /// Searches the graph of waits from a transaction that begins to wait. If the search leads back
    /// to it, returns the youngest transaction on the shortest cycle. All cycles include the new
    /// waiter. The youngest on a longer cycle might not be on the shorter one, so aborting it would
    /// not break that cycle.
    fn youngest_of_cycle(&self, tx: TxId) -> Option<TxId> {
        let mut seen = BTreeSet::from([tx]);
        // Reached transactions by distance, each with the index of its predecessor.
        let mut reached = vec![(tx, 0)];
        let mut place = 0;
        while let Some(&(from, _)) = reached.get(place) {
            for next in self.blockers(from) {
                if next == tx {
                    let way =
                        std::iter::successors(Some(place), |&at| (at > 0).then(|| reached[at].1));
                    return way.map(|at| reached[at].0).max();
                }
                if seen.insert(next) {
                    reached.push((next, place));
                }
            }
            place += 1;
        }
        None
    }

    /// The transactions that `tx` waits for; none if it runs.
    fn blockers(&self, tx: TxId) -> impl Iterator<Item = TxId> + '_ {
        let awaited = self.parties.get(&tx).and_then(|party| party.awaited);
        let blockers = awaited.map(|what| self.locks[&what].blockers(tx));
        blockers.into_iter().flatten()
    }

    /// The resource that a transaction waits for, and the requested mode.
    pub(super) fn awaited(&self, tx: TxId) -> Option<(Resource, Mode)> {
        let what = self.parties.get(&tx)?.awaited?;
        let mut queue = self.locks[&what].queue.iter();
        let request = queue.find(|request| request.tx == tx);
        request.map(|request| (what, request.mode))
    }

    /// How a transaction holds a resource, if it does.
    pub(super) fn held(&self, tx: TxId, what: Resource) -> Option<Mode> {
        self.locks.get(&what)?.mode_of(tx)
    }

    /// Whether there are no locks and no requests.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }

    /// The counters since the start or [`LockTable::reset_stats`].
    pub(super) fn stats(&self) -> &LockStats {
        &self.stats
    }

    /// Resets the counters.
    pub(super) fn reset_stats(&mut self) {
        self.stats = LockStats::default();
    }

    /// Checks the invariants, in tests and campaigns.
    ///
    /// # Errors
    /// Describes the violated invariant.
    pub(super) fn check(&self) -> Result<(), String> {
        // Each check covers one resource or transaction. Reports the first violation in their
        // order.
        let mut wrong = BTreeSet::new();
        for (&what, lock) in &self.locks {
            wrong.extend(self.wrong_with(what, lock));
        }
        for (&tx, party) in &self.parties {
            if party.held.is_empty() && party.awaited.is_none() {
                wrong.insert(format!("{tx} neither holds nor waits"));
            }
            if party.held.iter().any(|&what| self.held(tx, what).is_none()) {
                wrong.insert(format!("{tx} does not hold what it should"));
            }
            if party.awaited.is_some() && self.awaited(tx).is_none() {
                wrong.insert(format!("{tx} is not in the queue it should be in"));
            } else if party.awaited.is_some() && self.blockers(tx).next().is_none() {
                wrong.insert(format!("{tx} waits for nobody"));
            } else if self.youngest_of_cycle(tx).is_some() {
                wrong.insert(format!("{tx} waits for itself"));
            }
        }
        wrong.pop_first().map_or(Ok(()), Err)
    }

    /// The first violated invariant of a resource's lock, if any.
    fn wrong_with(&self, what: Resource, lock: &Lock) -> Option<String> {
        let party = |tx: TxId| self.parties.get(&tx);
        let holders = &lock.holders;
        let is_known = |&(tx, _): &(TxId, Mode)| party(tx).is_some_and(|p| p.held.contains(&what));
        let waits = |request: &Request| {
            party(request.tx).is_some_and(|party| party.awaited == Some(what))
                && request.is_upgrade == lock.mode_of(request.tx).is_some()
        };
        let upgrades = lock.queue.iter().map(|request| !request.is_upgrade);
        if !holders.iter().all(|&(tx, mode)| lock.admits(tx, mode)) {
            Some(format!("{what:?} has holders that exclude each other"))
        } else if !holders.iter().all(is_known) {
            Some(format!("{what:?} has a holder that does not know"))
        } else if !lock.queue.iter().all(waits) {
            Some(format!("{what:?} has a request of one that does not wait"))
        } else if !upgrades.is_sorted() {
            Some(format!("{what:?} has an upgrade behind others"))
        } else if lock
            .queue
            .front()
            .is_some_and(|first| lock.admits(first.tx, first.mode))
        {
            Some(format!(
                "{what:?} could be granted to the first in its queue"
            ))
        } else {
            None
        }
    }
}
