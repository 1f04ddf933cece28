//! The loop: clients that each begin their next transaction when their last one has ended, events
//! in a heap by instant, ties in the order in which they were made.
//!
//! A client is in one of these states; only those with an event are in the heap:
//!
//! ```text
//!   Runs       its next request is due at its event
//!   Waits      for a lock, a frame, a place: until the database names it as woken
//!   Grouped    its commit waits for a group: until the database names it as acknowledged
//!   Ends       its commit or rollback is over at its event
//!   BacksOff   it was a victim and starts again at its event
//!   Idle       (open loop) until a transaction arrives
//! ```
//!
//! A transaction that is made to abort keeps its accesses and gets a new identifier. Where all wait
//! and nothing is due, the groups are flushed; if that does not help, the database has lost
//! somebody, and the run fails and says so.

use super::Backend;
use super::client::{Client, State};
use super::oracle::Oracle;
use super::plan::{ATTEMPTS, Counted, Driven, DriverError, Plan, Span};
use super::source::Source;
use crate::effort;
use crate::replay::Load;
use crate::stop;
use crate::tpcc::pages::{Access, Verb};
use flagstone::host::{Step, Why};
use flagstone::units::{Nanos, TxId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event: instant, order, client, epoch.
type Event = Reverse<(Nanos, u64, u32, u32)>;

/// The client of an arrival.
const ARRIVAL: u32 = u32::MAX;

/// Memory is looked at after so many transactions.
const MEMORY_EVERY: u64 = 256;

/// Clients, their events, and what they count.
pub struct Driver {
    plan: Plan,
    now: Nanos,
    origin: Nanos,
    /// Whether the first arrival of an open loop is planned.
    arriving: bool,
    heap: BinaryHeap<Event>,
    order: u64,
    clients: Vec<Client>,
    /// Idle clients of an open loop.
    idle: Vec<u32>,
    /// What is due from here on is not of the running span.
    until: Option<Nanos>,
    by_tx: FxHashMap<TxId, u32>,
    aborts: Pcg64Mcg,
    delays: Pcg64Mcg,
    oracle: Option<Oracle>,
    buffer: Vec<u8>,
    counted: Counted,
    /// Open loop: when transactions arrived since the start, in order, and when they ended.
    arrivals: Vec<u64>,
    ends: Vec<u64>,
    issued: u64,
    completed: u64,
    /// No transaction begins any more.
    draining: bool,
    /// The source has no more.
    exhausted: bool,
}

impl Driver {
    /// Clients that are about to begin, at this instant.
    pub fn new(plan: Plan, start: Nanos) -> Driver {
        let mut driver = Driver {
            plan,
            now: start,
            origin: start,
            arriving: false,
            heap: BinaryHeap::new(),
            order: 0,
            clients: Vec::new(),
            idle: Vec::new(),
            until: None,
            by_tx: FxHashMap::default(),
            aborts: Pcg64Mcg::seed_from_u64(plan.seed ^ 0xab07),
            delays: Pcg64Mcg::seed_from_u64(plan.seed ^ 0xbac0ff),
            oracle: plan.check.then(Oracle::default),
            buffer: Vec::new(),
            counted: Counted {
                from: start,
                to: start,
                ..Counted::default()
            },
            arrivals: Vec::new(),
            ends: Vec::new(),
            issued: 0,
            completed: 0,
            draining: false,
            exhausted: false,
        };
        if plan.speedup.is_none() {
            for client in 0..plan.clients.max(1) {
                driver.clients.push(Client::idle());
                driver.push(start, client);
            }
        }
        driver
    }

    /// What the oracle knows, if there is one.
    pub fn oracle(&self) -> Option<&Oracle> {
        self.oracle.as_ref()
    }

    /// Transactions that began and that ended, since the start.
    pub fn issued_and_completed(&self) -> (u64, u64) {
        (self.issued, self.completed)
    }

    /// Of an open loop: whether what arrived from an instant on was served in time.
    pub fn load(&self, since: Nanos) -> Load {
        Load::of(&self.arrivals, &self.ends, since.0)
    }

    /// Runs on for a span, or until the source has no more. What was counted before is forgotten.
    ///
    /// # Errors
    /// A database that cannot go on, a source that cannot, a read that found what it should not.
    pub fn run(
        &mut self,
        engine: &mut impl Backend,
        source: &mut impl Source,
        span: Span,
    ) -> Driven<Counted> {
        self.counted = Counted {
            from: self.now,
            to: self.now,
            ..Counted::default()
        };
        if !std::mem::replace(&mut self.arriving, true) {
            self.plan_arrival(source);
        }
        let (wanted, until) = match span {
            Span::Transactions(wanted) => (wanted, None),
            Span::Time(time) => (u64::MAX, Some(self.now + time)),
        };
        self.until = until;
        while self.counted.committed + self.counted.rolled_back < wanted
            && self.advance(engine, source)?
        {}
        if !self.heap.is_empty() {
            self.now = until.unwrap_or(self.now);
        }
        self.counted.to = self.now;
        self.look_at_memory(engine);
        Ok(std::mem::take(&mut self.counted))
    }

    /// Lets what runs come to its end and begins nothing new. Every transaction that began has
    /// ended then. Returns when.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn drain(&mut self, engine: &mut impl Backend, source: &mut impl Source) -> Driven<Nanos> {
        (self.draining, self.until) = (true, None);
        while self.advance(engine, source)? {}
        assert_eq!(
            self.issued, self.completed,
            "every transaction that began has ended"
        );
        Ok(self.now)
    }

    /// The next event of the running span. Says whether there was one.
    fn advance(&mut self, engine: &mut impl Backend, source: &mut impl Source) -> Driven<bool> {
        stop::point();
        let next = self.heap.peek().map(|Reverse((at, ..))| *at);
        if let Some(deadline) = engine.deadline()
            && next.is_none_or(|at| deadline <= at)
        {
            if self.until.is_some_and(|until| deadline >= until) {
                return Ok(false);
            }
            self.now = self.now.max(deadline);
            let deadline = self.now;
            // Where nobody else can come, a group has no reason to wait for more.
            self.acknowledge(engine, deadline, next.is_none())?;
            return Ok(true);
        }
        if let (Some(at), Some(until)) = (next, self.until)
            && at >= until
        {
            return Ok(false);
        }
        let Some(Reverse((now, _, client, epoch))) = self.heap.pop() else {
            return self.flush(engine);
        };
        self.now = now;
        if client == ARRIVAL {
            self.arrive(engine, source, now)?;
        } else if self.clients[client as usize].epoch == epoch {
            self.step(engine, source, now, client)?;
        }
        Ok(true)
    }

    /// Nothing is due: all that is left waits for a group, or nothing is left.
    fn flush(&mut self, engine: &mut impl Backend) -> Driven<bool> {
        let waiting = self.by_tx.len();
        if waiting == 0 {
            return Ok(false);
        }
        self.acknowledge(engine, self.now, true)?;
        if self.heap.is_empty() && engine.deadline().is_none() {
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

    fn plan_arrival(&mut self, source: &impl Source) {
        if let (Some(speedup), Some(at)) = (self.plan.speedup, source.arrival()) {
            let at = Nanos((at as f64 / speedup) as u64);
            self.push((self.origin + at).max(self.now), ARRIVAL);
        }
    }

    /// A transaction of an open loop: an idle client takes it, or a new one.
    fn arrive(
        &mut self,
        engine: &mut impl Backend,
        source: &mut impl Source,
        now: Nanos,
    ) -> Driven<()> {
        if self.draining {
            return Ok(());
        }
        let client = self.idle.pop().unwrap_or(self.clients.len() as u32);
        if client as usize == self.clients.len() {
            self.clients.push(Client::idle());
        }
        self.begin(engine, source, now, client)
    }

    /// An event of a client.
    fn step(
        &mut self,
        engine: &mut impl Backend,
        source: &mut impl Source,
        now: Nanos,
        client: u32,
    ) -> Driven<()> {
        match self.clients[client as usize].state {
            State::Idle => self.begin(engine, source, now, client),
            State::BacksOff => {
                self.attempt(engine, now, client)?;
                self.requests(engine, now, client)
            }
            State::Runs => self.requests(engine, now, client),
            State::Ends { committed } => {
                self.end(engine, now, client, committed);
                if self.plan.speedup.is_some() {
                    self.idle.push(client);
                    return Ok(());
                }
                self.begin(engine, source, now, client)
            }
            State::Waits | State::Grouped => unreachable!("who waits has no event"),
        }
    }

    /// A client begins its next transaction.
    fn begin(
        &mut self,
        engine: &mut impl Backend,
        source: &mut impl Source,
        now: Nanos,
        client: u32,
    ) -> Driven<()> {
        if self.draining || self.exhausted {
            return Ok(());
        }
        let ratio = self.plan.abort_ratio.clamp(0.0, 1.0);
        let roll_back = ratio > 0.0 && self.aborts.random_bool(ratio);
        let into = &mut self.clients[client as usize].transaction;
        if !source.deal(client, roll_back, into)? {
            self.exhausted = true;
            return Ok(());
        }
        self.issued += 1;
        if self.plan.speedup.is_some() {
            self.arrivals.push(now.0);
        }
        // The next one may arrive before this one's requests are answered.
        self.plan_arrival(source);
        let own = &mut self.clients[client as usize];
        (own.begun, own.restarts, own.waited) = (now, 0, Nanos::ZERO);
        self.attempt(engine, now, client)?;
        self.requests(engine, now, client)
    }

    fn attempt(&mut self, engine: &mut impl Backend, now: Nanos, client: u32) -> Driven<()> {
        let tx = engine
            .begin(now)
            .map_err(|error| DriverError::Host { at: now, error })?;
        self.by_tx.insert(tx, client);
        let client = &mut self.clients[client as usize];
        client.state = State::Runs;
        client.tx = tx;
        client.step = 0;
        client.attempted = now;
        client.commit_asked = None;
        (client.waits_since, client.waited_in_commit) = (None, Nanos::ZERO);
        Ok(())
    }

    /// Makes requests of a transaction as long as their answers are due before anything else is.
    fn requests(&mut self, engine: &mut impl Backend, start: Nanos, client: u32) -> Driven<()> {
        let mut now = start;
        loop {
            let failed = |error| DriverError::Host { at: now, error };
            let own = &mut self.clients[client as usize];
            let Some(access) = own.transaction.accesses.get(own.step) else {
                return self.finish(engine, now, client);
            };
            let (at, tx) = (access.at, own.tx);
            let answer = match access.verb {
                Verb::Touch => engine.touch(now, tx, at.page).map_err(failed)?,
                Verb::Read => match engine.read(now, tx, at, &mut self.buffer).map_err(failed)? {
                    Step::Done(there, done) => {
                        if let Some(oracle) = &self.oracle {
                            let found = there.then_some(&self.buffer[..]);
                            let violation = oracle.read(tx, at, found);
                            violation.map_err(|violation| DriverError::Violation {
                                at: now,
                                violation,
                            })?;
                        }
                        Step::Done((), done)
                    }
                    Step::Waits => Step::Waits,
                    Step::Abort { victim, why } => Step::Abort { victim, why },
                },
                Verb::Update | Verb::Insert | Verb::Expire | Verb::Delete => {
                    let payload = own.transaction.payload(own.step);
                    let bytes = (access.verb != Verb::Delete).then_some(&payload[..]);
                    let answer = engine.write(now, tx, at, bytes).map_err(failed)?;
                    if let (Step::Done(..), Some(oracle)) = (&answer, &mut self.oracle) {
                        oracle.wrote(tx, at, bytes);
                    }
                    answer
                }
            };
            self.wake(engine, now);
            let Some(done) = self.answered(engine, now, client, answer)? else {
                return Ok(());
            };
            self.clients[client as usize].step += 1;
            self.counted.accesses += 1;
            let next = self.heap.peek().map(|Reverse((at, ..))| *at);
            let earlier = |at: Option<Nanos>| at.is_some_and(|at| at <= done);
            if earlier(next) || earlier(engine.deadline()) || earlier(self.until) {
                self.push(done, client);
                return Ok(());
            }
            now = done;
            self.now = now;
        }
    }

    /// What a request's answer means for its client; the instant at which it goes on, if it does.
    fn answered(
        &mut self,
        engine: &mut impl Backend,
        now: Nanos,
        client: u32,
        answer: Step<()>,
    ) -> Driven<Option<Nanos>> {
        match answer {
            Step::Done((), done) => return Ok(Some(done)),
            Step::Waits => {
                self.counted.waits += 1;
                let own = &mut self.clients[client as usize];
                (own.state, own.waits_since) = (State::Waits, Some(now));
            }
            Step::Abort { victim, why } => {
                let loser = self.by_tx[&victim];
                let done = self.restart(engine, now, loser, why)?;
                if loser != client {
                    // A circle is broken at once; a frame or log pages are free when the victim
                    // has been rolled back.
                    let again = if why == Why::Deadlock { now } else { done };
                    self.push(again, client);
                }
            }
        }
        Ok(None)
    }

    /// Aborts a transaction, to be started again.
    fn restart(
        &mut self,
        engine: &mut impl Backend,
        now: Nanos,
        client: u32,
        why: Why,
    ) -> Driven<Nanos> {
        let tx = self.clients[client as usize].tx;
        let done = self.roll_back(engine, now, tx)?;
        *self.counted.restarts.entry(why).or_default() += 1;
        let most = self.plan.back_off.0.saturating_mul(2);
        let delay = Nanos(self.delays.random_range(0..=most));
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

    fn roll_back(&mut self, engine: &mut impl Backend, now: Nanos, tx: TxId) -> Driven<Nanos> {
        let failed = |error| DriverError::Host { at: now, error };
        let done = engine.abort(now, tx).map_err(failed)?;
        self.by_tx.remove(&tx);
        if let Some(oracle) = &mut self.oracle {
            oracle.ended(tx, false);
        }
        self.wake(engine, now);
        Ok(done)
    }

    /// A transaction has made all its requests.
    fn finish(&mut self, engine: &mut impl Backend, now: Nanos, client: u32) -> Driven<()> {
        let own = &mut self.clients[client as usize];
        own.commit_asked.get_or_insert(now);
        let tx = own.tx;
        if !own.transaction.commits {
            let done = self.roll_back(engine, now, tx)?;
            self.ends(client, done, false);
            return Ok(());
        }
        let failed = |error| DriverError::Host { at: now, error };
        let answer = engine.commit(now, tx).map_err(failed)?;
        self.wake(engine, now);
        if answer == Step::Waits {
            // Either for a group, which acknowledges it, or for a place, for which it is woken.
            let own = &mut self.clients[client as usize];
            (own.state, own.waits_since) = (State::Grouped, Some(now));
            let flush = self.heap.is_empty();
            return self.acknowledge(engine, now, flush);
        }
        if let Some(done) = self.answered(engine, now, client, answer)? {
            self.committed(tx);
            self.ends(client, done, true);
        }
        Ok(())
    }

    /// Calls what has to be called now and then: locks of what has ended go, groups are over.
    fn acknowledge(&mut self, engine: &mut impl Backend, now: Nanos, flush: bool) -> Driven<()> {
        let failed = |error| DriverError::Host { at: now, error };
        for (tx, done) in engine.acknowledged(now, flush).map_err(failed)? {
            let client = self.by_tx[&tx];
            self.committed(tx);
            self.ends(client, done.max(now), true);
        }
        self.wake(engine, now);
        Ok(())
    }

    fn committed(&mut self, tx: TxId) {
        self.by_tx.remove(&tx);
        if let Some(oracle) = &mut self.oracle {
            oracle.ended(tx, true);
        }
    }

    fn ends(&mut self, client: u32, done: Nanos, committed: bool) {
        self.clients[client as usize].state = State::Ends { committed };
        self.push(done, client);
    }

    /// Transactions that have been granted what they waited for ask again.
    fn wake(&mut self, engine: &mut impl Backend, now: Nanos) {
        for tx in engine.woken() {
            let Some(&client) = self.by_tx.get(&tx) else {
                continue;
            };
            let own = &mut self.clients[client as usize];
            if matches!(own.state, State::Waits | State::Grouped) {
                // Who is woken has waited for a lock or a place, also where it asked to commit.
                own.has_waited(now);
                own.state = State::Runs;
                self.push(now, client);
            }
        }
    }

    fn end(&mut self, engine: &impl Backend, now: Nanos, client: u32, committed: bool) {
        let own = &mut self.clients[client as usize];
        own.state = State::Idle;
        self.completed += 1;
        effort::did(effort::TRANSACTED);
        if self.plan.speedup.is_some() {
            self.ends.push(now.0);
        }
        if committed {
            let asked = own.commit_asked.expect("it asked to commit");
            self.counted.committed += 1;
            let commit = now.since(asked).since(own.waited_in_commit);
            self.counted.response_ns.push(now.since(own.begun).0);
            self.counted.isolation_wait_ns.push(own.waited.0);
            self.counted.attempt_ns.push(now.since(own.attempted).0);
            self.counted.commit_ns.push(commit.0);
        } else {
            self.counted.rolled_back += 1;
        }
        if self.completed % MEMORY_EVERY == 1 {
            self.look_at_memory(engine);
        }
    }

    fn look_at_memory(&mut self, engine: &impl Backend) {
        for (name, bytes) in engine.memory() {
            let known = self
                .counted
                .memory
                .iter_mut()
                .find(|(known, _)| *known == name);
            match known {
                Some((_, most)) => *most = bytes.max(*most),
                None => self.counted.memory.push((name, bytes)),
            }
        }
    }
}
