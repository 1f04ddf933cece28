//! Clients that drive a small host in virtual time, and a model of its contents.

use super::small_host::{Dice, PAGES, SLOTS, SmallHost, Value, is_power_loss, rid, rids};
use super::{HostError, Rid, Step};
use crate::nand::Cut;
use crate::units::{Nanos, TxId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Delete,
    Touch,
}

/// A client: one transaction after the other.
#[derive(Debug, Default)]
struct Client {
    tx: Option<TxId>,
    /// What is left of it, the next at the end.
    ops: Vec<(Op, Rid)>,
    aborts: bool,
    writes: BTreeMap<Rid, Value>,
    /// Events of an earlier turn are void.
    turn: u64,
}

/// A commit that was asked for and not yet acknowledged.
#[derive(Debug)]
struct Doubt {
    tx: TxId,
    /// When it is, if that is known.
    when: Option<Nanos>,
    writes: BTreeMap<Rid, Value>,
}

/// Clients over a small host, with the model beside it.
pub(super) struct Rig {
    pub(super) small: SmallHost,
    dice: Dice,
    clients: Vec<Client>,
    events: BTreeSet<(Nanos, u64, usize, u64)>,
    sequence: u64,
    /// What was acknowledged.
    pub(super) model: BTreeMap<Rid, Vec<u8>>,
    doubts: Vec<Doubt>,
    pub(super) committed: u64,
    pub(super) aborted: u64,
    pub(super) page_full: u64,
    left: u64,
}

impl Rig {
    pub(super) fn new(small: SmallHost, seed: u64, clients: usize) -> Rig {
        let mut rig = Rig {
            small,
            dice: Dice(seed),
            clients: Vec::new(),
            events: BTreeSet::new(),
            sequence: 0,
            model: BTreeMap::new(),
            doubts: Vec::new(),
            committed: 0,
            aborted: 0,
            page_full: 0,
            left: 0,
        };
        rig.clients.resize_with(clients, Client::default);
        rig
    }

    fn at(&mut self, when: Nanos, client: usize) {
        self.sequence += 1;
        let turn = self.clients[client].turn;
        self.events.insert((when, self.sequence, client, turn));
    }

    /// Runs so many transactions. False if the power failed.
    pub(super) fn run(&mut self, transactions: u64) -> bool {
        self.left = transactions;
        for client in 0..self.clients.len() {
            self.clients[client].turn += 1;
            self.at(self.small.now, client);
        }
        match self.go() {
            Ok(()) => true,
            Err(error) => {
                assert!(is_power_loss(&error), "{error}");
                assert!(self.small.is_off());
                false
            }
        }
    }

    fn go(&mut self) -> Result<(), HostError> {
        for round in 0.. {
            assert!(round < 1_000_000, "it goes on for ever");
            let due = self.small.host().deadline();
            let next = self.events.first().copied();
            let flush = next.is_none();
            if next.is_none() && due.is_none() && self.doubts.is_empty() {
                break;
            }
            match (next, due) {
                (Some((when, ..)), due) if due.is_none_or(|due| when <= due) => {
                    self.now(when);
                    let (_, _, client, turn) = self.events.pop_first().expect("there is one");
                    if self.clients[client].turn == turn {
                        self.step(client)?;
                    }
                }
                (_, Some(due)) => self.now(due),
                _ => {}
            }
            let now = self.small.now;
            for (tx, when) in self.small.host().acknowledged(now, flush)? {
                self.acknowledge(tx, when);
            }
            for tx in self.small.host().woken() {
                let client = self.clients.iter().position(|c| c.tx == Some(tx));
                self.at(now, client.expect("only who waits is woken"));
            }
            if flush && due.is_none() {
                let last = self.doubts.iter().filter_map(|doubt| doubt.when).max();
                assert!(
                    last.is_some(),
                    "{:?} {:?}",
                    self.doubts,
                    self.small.host().engine.memory.locks
                );
                self.now(last.expect("all groups are over").max(now));
            }
        }
        Ok(())
    }

    /// Time goes on; commits that were acknowledged until then count.
    fn now(&mut self, now: Nanos) {
        self.small.now = self.small.now.max(now);
        let now = self.small.now;
        let model = &mut self.model;
        self.doubts.retain(|doubt| {
            let over = doubt.when.is_some_and(|when| when <= now);
            if over {
                apply(model, &doubt.writes);
            }
            !over
        });
    }

    fn acknowledge(&mut self, tx: TxId, when: Nanos) {
        let doubt = self.doubts.iter_mut().find(|doubt| doubt.tx == tx);
        doubt.expect("it has asked").when = Some(when);
        let client = self.clients.iter().position(|c| c.tx == Some(tx));
        let client = client.expect("it waits for that");
        self.committed += 1;
        self.end(client, when);
    }

    /// The client's transaction is over.
    fn end(&mut self, client: usize, when: Nanos) {
        let state = &mut self.clients[client];
        (state.tx, state.turn) = (None, state.turn + 1);
        state.writes.clear();
        self.at(when, client);
    }

    fn plan(&mut self, client: usize) {
        let ops = 1 + self.dice.below(7);
        let aborts = self.dice.below(8) == 0;
        let mut all = Vec::new();
        for _ in 0..ops {
            let hot = self.dice.below(3) == 0;
            let page = self.dice.below(if hot { 3 } else { PAGES.into() }) as u32;
            let op = match self.dice.below(10) {
                0..3 => Op::Read,
                3 => Op::Delete,
                4 => Op::Touch,
                _ => Op::Write,
            };
            all.push((op, rid(page, self.dice.below(SLOTS.into()) as u16)));
        }
        (self.clients[client].ops, self.clients[client].aborts) = (all, aborts);
    }

    fn step(&mut self, client: usize) -> Result<(), HostError> {
        let now = self.small.now;
        let Some(tx) = self.clients[client].tx else {
            if self.left > 0 {
                self.left -= 1;
                self.plan(client);
                let tx = self.small.host().begin(now)?;
                self.clients[client].tx = Some(tx);
                self.at(now, client);
            }
            return Ok(());
        };
        let Some(&(op, rid)) = self.clients[client].ops.last() else {
            return self.finish(client, tx);
        };
        let host = self.small.host.as_mut().expect("the power is on");
        let done = match op {
            Op::Touch => host.touch(now, tx, rid.page)?,
            Op::Read => {
                let mut bytes = Vec::new();
                match host.read(now, tx, rid, &mut bytes)? {
                    Step::Done(there, done) => {
                        let found = there.then_some(bytes);
                        let own = self.clients[client].writes.get(&rid).cloned();
                        let wanted = own.unwrap_or_else(|| self.model.get(&rid).cloned());
                        assert_eq!(found, wanted, "{tx} reads {rid:?}");
                        Step::Done((), done)
                    }
                    Step::Waits => Step::Waits,
                    Step::Abort { victim, why } => Step::Abort { victim, why },
                }
            }
            Op::Write | Op::Delete => {
                // The value comes from the transaction, so that asking again asks for the same.
                let mut dice = Dice(tx.0 * 1000 + self.clients[client].ops.len() as u64);
                let len = 4 + dice.below(40) as usize;
                let fill = dice.below(256) as u8;
                let mut bytes = vec![fill; len];
                bytes[len / 2] = tx.0 as u8;
                let value = (op == Op::Write).then_some(bytes);
                match host.write(now, tx, rid, value.as_deref()) {
                    Ok(Step::Done((), done)) => {
                        self.clients[client].writes.insert(rid, value);
                        Step::Done((), done)
                    }
                    Err(HostError::PageFull { .. }) => {
                        self.page_full += 1;
                        Step::Done((), now)
                    }
                    other => other?,
                }
            }
        };
        match done {
            Step::Done((), done) => {
                self.clients[client].ops.pop();
                self.at(done, client);
            }
            Step::Waits => {}
            Step::Abort { victim, .. } => self.victim(client, tx, victim)?,
        }
        Ok(())
    }

    fn victim(&mut self, client: usize, tx: TxId, victim: TxId) -> Result<(), HostError> {
        let now = self.small.now;
        let done = self.small.host().abort(now, victim)?;
        self.aborted += 1;
        self.doubts.retain(|doubt| doubt.tx != victim);
        let whose = self.clients.iter().position(|c| c.tx == Some(victim));
        self.end(whose.expect("a live one"), done + Nanos::from_micros(500));
        if victim != tx {
            self.at(now, client);
        }
        Ok(())
    }

    fn finish(&mut self, client: usize, tx: TxId) -> Result<(), HostError> {
        let now = self.small.now;
        if self.clients[client].aborts {
            let done = self.small.host().abort(now, tx)?;
            self.aborted += 1;
            self.end(client, done);
            return Ok(());
        }
        let writes = self.clients[client].writes.clone();
        if self.doubts.iter().all(|doubt| doubt.tx != tx) {
            self.doubts.push(Doubt {
                tx,
                when: None,
                writes,
            });
        }
        match self.small.host().commit(now, tx)? {
            Step::Done((), done) => self.acknowledge(tx, done),
            Step::Waits => {}
            Step::Abort { victim, .. } => self.victim(client, tx, victim)?,
        }
        Ok(())
    }

    /// After a cut: restarts, and says what is wrong, if anything is. The model then takes over
    /// those commits in doubt that came back.
    pub(super) fn recover(&mut self, cut: Option<Cut>) -> Result<(), String> {
        self.small.restart(cut);
        self.events.clear();
        for client in &mut self.clients {
            *client = Client {
                turn: client.turn + 1,
                ..Client::default()
            };
        }
        let found = self.small.contents();
        for doubt in std::mem::take(&mut self.doubts) {
            let changes = |rid: &Rid, value: &Value| self.model.get(rid) != value.as_ref();
            let mut changed = doubt.writes.iter().filter(|(rid, v)| changes(rid, v));
            // What it changed tells; the rest of it must agree.
            if changed.any(|(rid, value)| found.get(rid) == value.as_ref()) {
                apply(&mut self.model, &doubt.writes);
            }
        }
        for rid in rids() {
            let (wanted, found) = (self.model.get(&rid), found.get(&rid));
            if wanted != found {
                return Err(format!("{rid:?} is {found:?}, it should be {wanted:?}"));
            }
        }
        Ok(())
    }
}

fn apply(model: &mut BTreeMap<Rid, Vec<u8>>, writes: &BTreeMap<Rid, Value>) {
    for (&rid, value) in writes {
        match value {
            Some(value) => model.insert(rid, value.clone()),
            None => model.remove(&rid),
        };
    }
}
