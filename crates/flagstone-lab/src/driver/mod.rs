//! Clients in virtual time over a [`Backend`]: a database, or a page device. Events are in a heap
//! by instant, ties in the order of creation.
//!
//! A client is in one of these states; only those with an event are in the heap:
//!
//! ```text
//!   Runs       its next request is due at its event
//!   Waits      for a lock, a frame, a place: until the database names it as woken
//!   Grouped    its commit waits for a group: until the backend names it as acknowledged
//!   Ends       its commit or rollback is over at its event
//!   BacksOff   it was a victim and starts again at its event
//!   Idle       until its next transaction may begin
//! ```
//!
//! Idle clients form a queue, the one that has waited longest first. In an open loop, arrived
//! transactions form another queue. [`Admission`] decides when the next transaction begins. An
//! aborted transaction keeps its accesses and gets a new identifier. If all clients wait and
//! nothing is due, groups are flushed. If that does not help, the backend has lost a client, and
//! the run fails with an error.

mod admission;
mod backend;
mod client;
mod load;
mod oracle;
mod pages;
mod plan;
mod source;

pub use admission::Admission;
pub use backend::Backend;
pub use load::Load;
pub use oracle::{Oracle, WrongRead};
pub(crate) use pages::PageDevice;
pub use plan::{Counted, Driven, DriverError, Plan, Span};
pub use source::{Source, SourceError};

use crate::effort;
use crate::stop;
use crate::workload::{Access, Transaction, Verb};
use client::{Client, State};
use flagstone::units::{Nanos, TxId};
use flagstone_host::{HostError, Step, Why};
use load::Written;
use plan::ATTEMPTS;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// An event: instant, order, client, epoch.
type Event = Reverse<(Nanos, u64, u32, u32)>;

/// Client number that marks an arrival event.
const ARRIVAL: u32 = u32::MAX;

/// Clients, their events, and counters.
pub struct Driver<B, S> {
    engine: B,
    source: S,
    plan: Plan,
    admission: Admission,
    now: Nanos,
    origin: Nanos,
    /// When the last transaction ended.
    end: Nanos,
    heap: BinaryHeap<Event>,
    order: u64,
    clients: Vec<Client>,
    /// Idle clients, and since when they are idle.
    idle: BTreeSet<(Nanos, u32)>,
    /// Open loop: arrival times of transactions that have not begun.
    queue: VecDeque<Nanos>,
    /// The next transaction to begin, valid if `dealt` is set.
    next: Transaction,
    dealt: bool,
    /// Events from this instant on are not part of the current span.
    until: Option<Nanos>,
    by_tx: FxHashMap<TxId, u32>,
    aborts: Pcg64Mcg,
    delays: Pcg64Mcg,
    oracle: Option<Oracle>,
    buffer: Vec<u8>,
    counted: Counted,
    /// Open loop: instants of all arrivals, sorted.
    arrivals: Vec<u64>,
    /// Open loop: when each transaction began and ended, and what it wrote.
    written: Vec<Written>,
    issued: u64,
    completed: u64,
    /// Whether no new transaction begins.
    draining: bool,
}

/// An error of the backend, with its instant.
fn failed(at: Nanos) -> impl Fn(HostError) -> DriverError {
    move |error| DriverError::Host { at, error }
}

impl<B: Backend, S: Source> Driver<B, S> {
    /// A driver whose clients are ready to begin at `start`.
    pub fn new(plan: Plan, admission: Admission, engine: B, source: S, start: Nanos) -> Self {
        let mut driver = Driver {
            engine,
            source,
            plan,
            admission,
            now: start,
            origin: start,
            end: start,
            heap: BinaryHeap::new(),
            order: 0,
            clients: Vec::new(),
            idle: BTreeSet::new(),
            queue: VecDeque::new(),
            next: Transaction::default(),
            dealt: false,
            until: None,
            by_tx: FxHashMap::default(),
            aborts: Pcg64Mcg::seed_from_u64(plan.seed ^ 0xab07),
            delays: Pcg64Mcg::seed_from_u64(plan.seed ^ 0xbac0ff),
            oracle: plan.check.then(Oracle::default),
            buffer: Vec::new(),
            counted: Counted::default(),
            arrivals: Vec::new(),
            written: Vec::new(),
            issued: 0,
            completed: 0,
            draining: false,
        };
        if plan.speedup.is_none() {
            for client in 0..plan.clients.max(1) {
                driver.clients.push(Client::idle());
                driver.push(start, client);
            }
        }
        driver.plan_arrival();
        driver
    }

    /// The backend.
    pub fn engine(&mut self) -> &mut B {
        &mut self.engine
    }

    /// The backend, and the oracle if there is one.
    pub fn into_parts(self) -> (B, Option<Oracle>) {
        (self.engine, self.oracle)
    }

    /// Number of transactions begun and ended since the start.
    pub fn issued_and_completed(&self) -> (u64, u64) {
        (self.issued, self.completed)
    }

    /// Open loop: whether arrivals from `since` on were served in time.
    pub fn load(&self, since: Nanos) -> Option<Load> {
        let is_open = self.plan.speedup.is_some();
        let ends = self.written.iter().map(|one| one.to);
        is_open.then(|| Load::of(&self.arrivals, ends.collect(), since.0))
    }

    /// Open loop: the largest number of pages that transactions under way had at one instant, of
    /// all transactions that have ended. A transaction has its pages until its commit is durable
    /// or it is rolled back.
    pub fn pages_under_way(&self) -> Option<u64> {
        let is_open = self.plan.speedup.is_some();
        is_open.then(|| load::pages_at_most(&self.written))
    }

    /// Continues for a span, or until the source is exhausted. Discards earlier counts.
    ///
    /// # Errors
    /// The backend or the source cannot continue, or a read returned wrong data.
    pub fn run(&mut self, span: Span) -> Driven<Counted> {
        self.counted = Counted {
            from: self.now,
            ..Counted::default()
        };
        let (wanted, until) = match span {
            Span::Transactions(wanted) => (wanted, None),
            Span::Time(time) => (u64::MAX, Some(self.now + time)),
        };
        self.until = until;
        while self.counted.committed + self.counted.rolled_back < wanted && self.advance()? {}
        if !self.heap.is_empty() {
            self.now = until.unwrap_or(self.now);
        }
        self.counted.to = self.over();
        self.counted.remember(self.engine.memory());
        Ok(std::mem::take(&mut self.counted))
    }

    /// Completes running transactions and begins none. Returns the instant at which every
    /// transaction has ended.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn drain(&mut self) -> Driven<Nanos> {
        (self.draining, self.until) = (true, None);
        while self.advance()? {}
        assert_eq!(
            self.issued, self.completed,
            "every transaction that began has ended"
        );
        Ok(self.now)
    }

    /// The instant up to which all events have been processed.
    fn over(&self) -> Nanos {
        if self.admission.is_ahead() {
            return self.end;
        }
        self.now
    }

    /// Processes the next event of the current span. Returns whether there was one.
    fn advance(&mut self) -> Driven<bool> {
        stop::point();
        let next = self.heap.peek().map(|Reverse((at, ..))| *at);
        if let Some(deadline) = self.engine.deadline()
            && next.is_none_or(|at| self.admission.is_due(deadline, at))
        {
            if self.until.is_some_and(|until| deadline >= until) {
                return Ok(false);
            }
            self.now = self.admission.not_before(self.now, deadline);
            // If no other client can come, a group need not wait for more members.
            self.acknowledge(self.now, next.is_none())?;
            return Ok(true);
        }
        if let (Some(at), Some(until)) = (next, self.until)
            && at >= until
        {
            return Ok(false);
        }
        let Some(Reverse((now, _, client, epoch))) = self.heap.pop() else {
            return self.flush();
        };
        self.now = now;
        self.engine.reached(now);
        if client == ARRIVAL {
            self.arrive(now)?;
        } else if self.clients[client as usize].epoch == epoch {
            self.step(now, client)?;
        }
        Ok(true)
    }

    /// Called when nothing is due: flushes groups, if any transaction waits for one. Returns
    /// whether anything is left to do.
    fn flush(&mut self) -> Driven<bool> {
        let waiting = self.by_tx.len();
        if waiting == 0 {
            return Ok(false);
        }
        self.acknowledge(self.over(), true)?;
        let is_stuck = self.heap.is_empty() && self.by_tx.len() == waiting;
        if is_stuck && self.engine.deadline().is_none() {
            return Err(DriverError::Stuck {
                at: self.now,
                waiting,
            });
        }
        Ok(true)
    }

    fn push(&mut self, at: Nanos, client: u32) {
        self.order += 1;
        let epoch = match client {
            ARRIVAL => 0,
            client => self.clients[client as usize].epoch,
        };
        self.heap.push(Reverse((at, self.order, client, epoch)));
    }

    /// Schedules the arrival of the next transaction after those in the queue (open loop).
    fn plan_arrival(&mut self) {
        let Some(speedup) = self.plan.speedup else {
            return;
        };
        let before = self.queue.len() - usize::from(self.dealt);
        if let Some(at) = self.source.arrival(before) {
            let at = Nanos((at as f64 / speedup) as u64);
            self.push((self.origin + at).max(self.now), ARRIVAL);
        }
    }

    /// Processes an arrival.
    fn arrive(&mut self, now: Nanos) -> Driven<()> {
        if self.draining {
            return Ok(());
        }
        self.queue.push_back(now);
        self.arrivals.push(now.0);
        // The next transaction may arrive before this one's requests are answered.
        self.plan_arrival();
        self.begin_what_can(now)
    }

    /// Processes an event of a client.
    fn step(&mut self, now: Nanos, client: u32) -> Driven<()> {
        match self.clients[client as usize].state {
            State::Idle => {
                self.idle.insert((now, client));
                self.begin_what_can(now)
            }
            State::BacksOff => {
                let tx = self.engine.begin(now).map_err(failed(now))?;
                let tx = tx.expect("a database has room for those that start again");
                self.attempt(now, client, tx);
                self.requests(now, client)
            }
            State::Runs => self.requests(now, client),
            State::Ends { committed } => {
                effort::did(effort::TRANSACTED);
                self.end(now, client, committed)
            }
            State::Waits | State::Grouped => unreachable!("who waits has no event"),
        }
    }

    /// Begins as many transactions as clients, admission and the backend allow.
    fn begin_what_can(&mut self, now: Nanos) -> Driven<()> {
        while let Some((client, asked)) = self.next_in_line()? {
            let Some(from) = self.admitted_from() else {
                return Ok(());
            };
            // A client whose end is already known may still be busy until then.
            let begun = now.max(from).max(asked);
            let Some(tx) = self.engine.begin(begun).map_err(failed(begun))? else {
                return Ok(());
            };
            self.admission.begun(&self.next);
            self.idle.pop_first();
            self.queue.pop_front();
            // A new client of an open loop.
            if client as usize == self.clients.len() {
                self.clients.push(Client::idle());
            }
            self.issued += 1;
            self.dealt = false;
            let own = &mut self.clients[client as usize];
            std::mem::swap(&mut own.transaction, &mut self.next);
            (own.asked, own.restarts, own.waited) = (asked, 0, begun.since(asked));
            self.attempt(begun, client, tx);
            if self.admission.is_ahead() {
                self.push(begun, client);
            } else {
                self.requests(begun, client)?;
            }
        }
        Ok(())
    }

    /// The client that begins the next transaction, and since when it waits for that. In an open
    /// loop: an idle or a new client, if a transaction has arrived. In a closed loop: an idle
    /// client. `None` if no transaction is left.
    fn next_in_line(&mut self) -> Driven<Option<(u32, Nanos)>> {
        if self.draining {
            return Ok(None);
        }
        let idle = self.idle.first().copied();
        let first = match self.plan.speedup {
            None => idle.map(|(since, client)| (client, since)),
            Some(_) => self.queue.front().map(|&arrived| {
                let client = idle.map_or(self.clients.len() as u32, |(_, client)| client);
                (client, arrived)
            }),
        };
        let Some((client, asked)) = first else {
            return Ok(None);
        };
        if !self.dealt {
            let ratio = self.plan.abort_ratio.clamp(0.0, 1.0);
            let roll_back = ratio > 0.0 && self.aborts.random_bool(ratio);
            self.dealt = self.source.deal(client, roll_back, &mut self.next)?;
        }
        Ok(self.dealt.then_some((client, asked)))
    }

    /// The earliest instant at which the dealt transaction may begin, if it may.
    fn admitted_from(&mut self) -> Option<Nanos> {
        self.admission
            .admits(&self.next, self.by_tx.len(), self.end)
    }

    fn attempt(&mut self, now: Nanos, client: u32, tx: TxId) {
        self.by_tx.insert(tx, client);
        let client = &mut self.clients[client as usize];
        client.state = State::Runs;
        client.tx = tx;
        client.step = 0;
        client.read_until = Nanos::ZERO;
        client.attempted = now;
        client.commit_asked = None;
        (client.waits_since, client.waited_in_commit) = (None, Nanos::ZERO);
    }

    /// Makes the next requests of a transaction. Continues at once while no other event, deadline
    /// or end of the span is due before an answer; otherwise the client continues by an event.
    fn requests(&mut self, start: Nanos, client: u32) -> Driven<()> {
        let mut now = start;
        loop {
            let own = &mut self.clients[client as usize];
            let Some(access) = own.transaction.accesses.get(own.step) else {
                return self.finish(now, client);
            };
            let (at, tx) = (access.at, own.tx);
            let answer = match access.verb {
                Verb::Touch => self.engine.touch(now, tx, at.page).map_err(failed(now))?,
                Verb::Read => {
                    let read = self.engine.read(now, tx, at, &mut self.buffer);
                    match read.map_err(failed(now))? {
                        Step::Done(there, done) => {
                            if let Some(oracle) = &self.oracle {
                                let found = there.then_some(&self.buffer[..]);
                                let wrong = oracle.read(tx, at, found);
                                wrong.map_err(|wrong| DriverError::WrongRead { at: now, wrong })?;
                            }
                            Step::Done((), done)
                        }
                        Step::Waits => Step::Waits,
                        Step::Abort { victim, why } => Step::Abort { victim, why },
                    }
                }
                Verb::Update | Verb::Insert | Verb::Expire | Verb::Delete => {
                    let payload = own.transaction.payload(own.step);
                    let bytes = (access.verb != Verb::Delete).then_some(&payload[..]);
                    let answer = self.engine.write(now, tx, at, bytes);
                    let answer = answer.map_err(failed(now))?;
                    if let (Step::Done(..), Some(oracle)) = (&answer, &mut self.oracle) {
                        oracle.wrote(tx, at, bytes);
                    }
                    answer
                }
            };
            self.wake(now);
            let Some(done) = self.answered(now, client, answer)? else {
                return Ok(());
            };
            let own = &mut self.clients[client as usize];
            let done = if self.source.reads_together() {
                own.goes_on(now, done)
            } else {
                done
            };
            own.step += 1;
            self.counted.accesses += 1;
            let next = self.heap.peek().map(|Reverse((at, ..))| *at);
            let earlier = |at: Option<Nanos>| at.is_some_and(|at| at <= done);
            if earlier(next) || earlier(self.engine.deadline()) || earlier(self.until) {
                self.push(done, client);
                return Ok(());
            }
            now = done;
            self.now = now;
        }
    }

    /// Handles a request's answer. Returns when the client continues, if it does.
    fn answered(&mut self, now: Nanos, client: u32, answer: Step<()>) -> Driven<Option<Nanos>> {
        match answer {
            Step::Done((), done) => return Ok(Some(done)),
            Step::Waits => {
                self.counted.waits += 1;
                let own = &mut self.clients[client as usize];
                (own.state, own.waits_since) = (State::Waits, Some(now));
            }
            Step::Abort { victim, why } => {
                let loser = self.by_tx[&victim];
                let done = self.restart(now, loser, why)?;
                if loser != client {
                    // A deadlock is resolved at once; a frame or log pages are free only when the
                    // victim has been rolled back.
                    let again = if why == Why::Deadlock { now } else { done };
                    self.push(again, client);
                }
            }
        }
        Ok(None)
    }

    /// Aborts a transaction, which its client restarts after a random delay. Returns when it has
    /// been rolled back.
    fn restart(&mut self, now: Nanos, client: u32, why: Why) -> Driven<Nanos> {
        let tx = self.clients[client as usize].tx;
        let done = self.roll_back(now, tx)?;
        *self.counted.restarts.entry(why).or_default() += 1;
        // From 0 to twice the mean delay.
        let longest = self.plan.back_off.0.saturating_mul(2);
        let delay = Nanos(self.delays.random_range(0..=longest));
        let own = &mut self.clients[client as usize];
        own.has_waited(now);
        own.state = State::BacksOff;
        own.epoch = own.epoch.wrapping_add(1);
        own.restarts += 1;
        if own.restarts == ATTEMPTS {
            let mut pages = Vec::new();
            own.transaction.distinct_pages(Access::writes, &mut pages);
            return Err(DriverError::Starved {
                at: now,
                pages: pages.len(),
                why,
            });
        }
        self.push(done + delay, client);
        Ok(done)
    }

    fn roll_back(&mut self, now: Nanos, tx: TxId) -> Driven<Nanos> {
        let done = self.engine.abort(now, tx).map_err(failed(now))?;
        self.by_tx.remove(&tx);
        if let Some(oracle) = &mut self.oracle {
            oracle.ended(tx, false);
        }
        self.wake(now);
        Ok(done)
    }

    /// Handles a transaction that has made all its requests.
    fn finish(&mut self, now: Nanos, client: u32) -> Driven<()> {
        let own = &mut self.clients[client as usize];
        own.commit_asked.get_or_insert(now);
        let tx = own.tx;
        if !own.transaction.commits {
            let done = self.roll_back(now, tx)?;
            return self.ends(client, done, false);
        }
        let answer = self.engine.commit(now, tx).map_err(failed(now))?;
        self.wake(now);
        if answer == Step::Waits {
            // The commit waits for a group, which will acknowledge it, or for a device slot, after
            // which it is woken.
            let own = &mut self.clients[client as usize];
            (own.state, own.waits_since) = (State::Grouped, Some(now));
            // If every client waits, the group would never fill.
            let flush = self.heap.is_empty()
                && (self.next_in_line()?.is_none() || self.admitted_from().is_none());
            return self.acknowledge(now, flush);
        }
        if let Some(done) = self.answered(now, client, answer)? {
            self.committed(tx);
            self.ends(client, done, true)?;
        }
        Ok(())
    }

    /// Processes due work of the backend: released locks and completed groups.
    fn acknowledge(&mut self, now: Nanos, flush: bool) -> Driven<()> {
        let acknowledged = self.engine.acknowledged(now, flush);
        for (tx, done) in acknowledged.map_err(failed(now))? {
            let client = self.by_tx[&tx];
            self.committed(tx);
            self.ends(client, self.admission.not_before(now, done), true)?;
        }
        self.wake(now);
        Ok(())
    }

    fn committed(&mut self, tx: TxId) {
        self.by_tx.remove(&tx);
        if let Some(oracle) = &mut self.oracle {
            oracle.ended(tx, true);
        }
    }

    /// Called when the end of a transaction is known.
    fn ends(&mut self, client: u32, done: Nanos, committed: bool) -> Driven<()> {
        if self.admission.is_ahead() {
            return self.end(done, client, committed);
        }
        self.clients[client as usize].state = State::Ends { committed };
        self.push(done, client);
        Ok(())
    }

    /// Lets transactions continue whose lock or slot was granted.
    fn wake(&mut self, now: Nanos) {
        for tx in self.engine.woken() {
            let Some(&client) = self.by_tx.get(&tx) else {
                continue;
            };
            let own = &mut self.clients[client as usize];
            if matches!(own.state, State::Waits | State::Grouped) {
                // A woken client has waited for a lock or slot, even if it requested a commit.
                own.has_waited(now);
                own.state = State::Runs;
                self.push(now, client);
            }
        }
    }

    /// Ends a transaction; its client becomes idle.
    fn end(&mut self, now: Nanos, client: u32, committed: bool) -> Driven<()> {
        let own = &mut self.clients[client as usize];
        own.state = State::Idle;
        self.idle.insert((now, client));
        self.completed += 1;
        self.end = self.end.max(now);
        if self.plan.speedup.is_some() {
            let mut pages = Vec::new();
            own.transaction.distinct_pages(Access::writes, &mut pages);
            self.written.push(Written {
                from: own.attempted.0,
                to: now.0,
                pages: pages.len() as u64,
            });
        }
        self.counted.ended(own, now, committed);
        if self.completed % self.admission.memory_every() == 1 {
            self.counted.remember(self.engine.memory());
        }
        self.begin_what_can(now)
    }
}
