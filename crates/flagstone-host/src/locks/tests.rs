//! The lock table by examples, and compared with a model that recomputes everything.

use super::Mode::{Counted, Exclusive, Shared};
use super::*;
use flagstone::dice::Dice;
use std::collections::BTreeMap;

const PAGE: Resource = Resource::Page(Lpn(7));
const RECORD: Resource = Resource::Record(Lpn(7), 3);
const UPDATERS: Resource = Resource::Updaters(Lpn(7));

/// A table that checks its invariants at each step.
#[derive(Default)]
struct Checked(LockTable);

impl Checked {
    fn ask(&mut self, tx: u64, what: Resource, mode: Mode) -> Grant {
        let grant = self.0.acquire(TxId(tx), what, mode);
        assert_eq!(self.0.check(), Ok(()));
        grant
    }

    fn end(&mut self, tx: u64) -> Vec<u64> {
        let mut woken = Vec::new();
        self.0.release_all(TxId(tx), &mut woken);
        assert_eq!(self.0.check(), Ok(()));
        woken.into_iter().map(|tx| tx.0).collect()
    }
}

fn deadlock(victim: u64) -> Grant {
    Grant::Deadlock {
        victim: TxId(victim),
    }
}

#[test]
fn what_excludes_what() {
    let cases = [
        (PAGE, Shared, Shared, Grant::Granted),
        (PAGE, Shared, Exclusive, Grant::Waits),
        (RECORD, Exclusive, Shared, Grant::Waits),
        (RECORD, Exclusive, Exclusive, Grant::Waits),
        (UPDATERS, Counted(2), Counted(2), Grant::Granted),
        (UPDATERS, Counted(1), Counted(1), Grant::Waits),
        (UPDATERS, Counted(1), Counted(2), Grant::Waits),
        (UPDATERS, Counted(2), Counted(1), Grant::Waits),
    ];
    for (what, first, second, answer) in cases {
        let mut locks = Checked::default();
        assert_eq!(locks.ask(1, what, first), Grant::Granted);
        assert_eq!(locks.ask(2, what, second), answer, "{first:?}, {second:?}");
        assert_eq!(locks.ask(2, what, second), answer, "asked again");
        let woken = locks.end(1);
        assert_eq!(woken.contains(&2), answer == Grant::Waits);
        assert_eq!(locks.ask(2, what, second), Grant::Granted);
        assert_eq!(locks.0.held(TxId(2), what), Some(second));
        assert_eq!(locks.end(2), []);
        assert!(locks.0.is_empty() && locks.0.locks.is_empty());
    }
}

#[test]
fn resources_are_apart() {
    let mut locks = Checked::default();
    let others = [
        PAGE,
        RECORD,
        Resource::Record(Lpn(7), 4),
        Resource::Page(Lpn(8)),
    ];
    for (tx, what) in others.into_iter().enumerate() {
        assert_eq!(locks.ask(tx as u64, what, Exclusive), Grant::Granted);
    }
}

#[test]
fn a_weaker_lock_is_not_asked_for_again() {
    let mut locks = Checked::default();
    assert_eq!(locks.ask(1, PAGE, Exclusive), Grant::Granted);
    assert_eq!(locks.ask(1, PAGE, Shared), Grant::Granted);
    assert_eq!(locks.0.held(TxId(1), PAGE), Some(Exclusive));
    assert_eq!(locks.0.stats().requests, 1);
}

#[test]
fn an_upgrade_waits_for_other_readers_and_goes_before_the_queue() {
    let mut locks = Checked::default();
    assert_eq!(locks.ask(1, PAGE, Shared), Grant::Granted);
    assert_eq!(
        locks.ask(1, PAGE, Exclusive),
        Grant::Granted,
        "alone: at once"
    );
    locks.end(1);
    assert_eq!(locks.ask(2, PAGE, Shared), Grant::Granted);
    assert_eq!(locks.ask(3, PAGE, Shared), Grant::Granted);
    assert_eq!(locks.ask(4, PAGE, Exclusive), Grant::Waits);
    assert_eq!(locks.ask(2, PAGE, Exclusive), Grant::Waits);
    assert_eq!(locks.end(3), [2]);
    assert_eq!(locks.0.held(TxId(2), PAGE), Some(Exclusive));
    assert_eq!(locks.end(2), [4]);
    assert_eq!(locks.0.stats().upgrades, 2);
    assert_eq!(locks.0.stats().waits, 2);
}

#[test]
fn two_upgrades_of_the_same_lock_are_a_deadlock() {
    let mut locks = Checked::default();
    locks.ask(1, PAGE, Shared);
    locks.ask(2, PAGE, Shared);
    assert_eq!(locks.ask(2, PAGE, Exclusive), Grant::Waits);
    assert_eq!(
        locks.ask(1, PAGE, Exclusive),
        deadlock(2),
        "the younger one, not the one that asks"
    );
    assert_eq!(locks.0.awaited(TxId(1)), None, "the request is withdrawn");
    assert_eq!(locks.end(2), []);
    assert_eq!(locks.ask(1, PAGE, Exclusive), Grant::Granted);
    assert_eq!(locks.0.stats().deadlocks, 1);
}

#[test]
fn the_youngest_of_three_is_the_victim_whoever_closes_the_cycle() {
    let records = [0, 1, 2].map(|slot| Resource::Record(Lpn(1), slot));
    for last in 0..3 {
        let mut locks = Checked::default();
        let txs = [5, 9, 6];
        for (tx, what) in txs.into_iter().zip(records) {
            assert_eq!(locks.ask(tx, what, Exclusive), Grant::Granted);
        }
        // An older and a younger one wait outside the shortest cycle.
        assert_eq!(locks.ask(1, records[0], Shared), Grant::Waits);
        assert_eq!(locks.ask(12, records[1], Shared), Grant::Waits);
        for step in 1..=3 {
            let at = (last + step) % 3;
            let answer = locks.ask(txs[at], records[(at + 1) % 3], Exclusive);
            let closes = step == 3;
            assert_eq!(answer, if closes { deadlock(9) } else { Grant::Waits });
        }
        let woken = locks.end(9);
        assert!(woken.contains(&12), "{woken:?}");
        if txs[last] != 9 {
            let answer = locks.ask(txs[last], records[(last + 1) % 3], Exclusive);
            assert_eq!(answer, Grant::Waits, "there was one cycle only");
        }
    }
}

#[test]
fn a_cycle_may_lead_through_a_counted_resource() {
    let mut locks = Checked::default();
    locks.ask(1, UPDATERS, Counted(2));
    locks.ask(2, UPDATERS, Counted(2));
    locks.ask(3, RECORD, Exclusive);
    assert_eq!(locks.ask(1, RECORD, Shared), Grant::Waits);
    // Transaction 2 could end and let 3 in: waiting for all holders is conservative.
    assert_eq!(locks.ask(3, UPDATERS, Counted(2)), deadlock(3));
    assert_eq!(locks.end(3), [1]);
    assert_eq!(locks.ask(4, UPDATERS, Counted(2)), Grant::Waits);
    assert_eq!(locks.ask(5, UPDATERS, Counted(2)), Grant::Waits);
    assert_eq!(locks.end(2), [4], "first come, first served");
    assert_eq!(locks.end(1), [5]);
}

#[test]
fn a_writer_does_not_starve_though_readers_keep_coming() {
    let mut locks = Checked::default();
    locks.ask(1, PAGE, Shared);
    assert_eq!(locks.ask(2, PAGE, Exclusive), Grant::Waits);
    for tx in 3..50 {
        assert_eq!(locks.ask(tx, PAGE, Shared), Grant::Waits);
    }
    assert_eq!(locks.end(1), [2]);
    assert_eq!(
        locks.end(2),
        (3..50).collect::<Vec<_>>(),
        "all readers at once, in order"
    );
}

#[test]
fn who_ends_while_it_waits_leaves_the_queue_and_lets_those_behind_go_on() {
    let mut locks = Checked::default();
    locks.ask(1, PAGE, Shared);
    assert_eq!(locks.ask(2, PAGE, Exclusive), Grant::Waits);
    assert_eq!(locks.ask(3, PAGE, Shared), Grant::Waits);
    assert_eq!(locks.end(2), [3]);
    assert_eq!(
        locks.end(9),
        [],
        "a transaction without locks gives none back"
    );
}

#[test]
#[should_panic(expected = "T2 waits and asks for more")]
fn who_waits_cannot_ask_for_something_else() {
    let mut locks = Checked::default();
    locks.ask(1, PAGE, Exclusive);
    locks.ask(2, PAGE, Exclusive);
    locks.ask(2, RECORD, Shared);
}

#[test]
#[should_panic(expected = "T1 asks for Page(Lpn(7)) as Counted(2)")]
fn pages_are_not_counted() {
    Checked::default().ask(1, PAGE, Counted(2));
}

#[test]
fn the_check_finds_what_is_wrong() {
    let mut locks = Checked::default();
    locks.ask(1, PAGE, Exclusive);
    locks.ask(2, PAGE, Exclusive);
    let lock = locks.0.locks.get_mut(&PAGE).expect("held");
    lock.holders.push((TxId(2), Exclusive));
    assert!(locks.0.check().unwrap_err().contains("exclude each other"));
    let lock = locks.0.locks.get_mut(&PAGE).expect("held");
    lock.holders.clear();
    assert!(locks.0.check().is_err());
}

/// Holders and queue of each resource as plain lists, from which all answers are computed.
#[derive(Default)]
struct Naive {
    held: Vec<(TxId, Resource, Mode)>,
    /// In the order of arrival.
    waiting: Vec<(TxId, Resource, Mode)>,
    /// A wrong model: grants any compatible request, regardless of earlier ones.
    is_unfair: bool,
}

impl Naive {
    fn mode_of(&self, tx: TxId, what: Resource) -> Option<Mode> {
        let mut held = self.held.iter();
        held.find(|held| (held.0, held.1) == (tx, what))
            .map(|held| held.2)
    }

    /// Other holders and requests that conflict with a request.
    fn in_the_way(&self, (tx, what, mode): (TxId, Resource, Mode)) -> Vec<TxId> {
        let others = self
            .held
            .iter()
            .filter(|held| held.1 == what && held.0 != tx);
        let conflicting = others.filter(|held| held.2 != Shared || mode != Shared);
        conflicting.map(|held| held.0).collect()
    }

    fn can_go(&self, request: (TxId, Resource, Mode)) -> bool {
        let others = self.in_the_way(request);
        match request.2 {
            // All counted requests of a history use the same limit.
            Counted(max) => others.len() < usize::from(max),
            Shared | Exclusive => others.is_empty(),
        }
    }

    /// Requests for a resource, upgrades first.
    fn queue(&self, what: Resource) -> Vec<(TxId, Resource, Mode)> {
        let all = self
            .waiting
            .iter()
            .copied()
            .filter(|request| request.1 == what);
        let (mut upgrades, rest): (Vec<_>, Vec<_>) =
            all.partition(|request| self.mode_of(request.0, what).is_some());
        upgrades.extend(rest);
        upgrades
    }

    /// Grants until nothing more can be granted. Returns the granted transactions.
    fn grant_all(&mut self) -> Vec<TxId> {
        let mut woken = Vec::new();
        loop {
            let resources: BTreeSet<Resource> = self.waiting.iter().map(|it| it.1).collect();
            let next = resources.iter().find_map(|&what| {
                let looked_at = if self.is_unfair { usize::MAX } else { 1 };
                let queue = self.queue(what).into_iter().take(looked_at);
                queue.into_iter().find(|&request| self.can_go(request))
            });
            let Some((tx, what, mode)) = next else {
                return woken;
            };
            self.waiting.retain(|request| request.0 != tx);
            self.held.retain(|held| (held.0, held.1) != (tx, what));
            self.held.push((tx, what, mode));
            woken.push(tx);
        }
    }

    /// All transactions that `from` waits for, directly or not, with identifiers up to `up_to`.
    fn reach(&self, from: TxId, up_to: TxId) -> BTreeSet<TxId> {
        let mut edges = BTreeMap::new();
        for &request in &self.waiting {
            let mut to = self.in_the_way(request);
            for before in self.queue(request.1) {
                if before == request {
                    break;
                }
                if before.2 == Exclusive || request.2 == Exclusive {
                    to.push(before.0);
                }
            }
            edges.insert(request.0, to);
        }
        let mut reached = BTreeSet::new();
        loop {
            let before = reached.len();
            let froms: Vec<TxId> = reached.iter().copied().chain([from]).collect();
            for tx in froms {
                let to = edges.get(&tx).into_iter().flatten();
                reached.extend(to.copied().filter(|to| *to <= up_to));
            }
            if reached.len() == before {
                return reached;
            }
        }
    }

    /// Whether the table's answer is right. Brings the model to the same state.
    fn agrees(&mut self, request: (TxId, Resource, Mode), answer: Grant) -> bool {
        let (tx, what, mode) = request;
        if self
            .mode_of(tx, what)
            .is_some_and(|held| held == mode || held == Exclusive)
        {
            return answer == Grant::Granted;
        }
        self.waiting.push(request);
        let woken = self.grant_all();
        assert!(woken.iter().all(|woken| *woken == tx));
        let everyone = TxId(u64::MAX);
        if !woken.is_empty() {
            return answer == Grant::Granted;
        }
        if !self.reach(tx, everyone).contains(&tx) {
            return answer == Grant::Waits;
        }
        // There may be several cycles; the victim is the youngest of any one.
        let is_right = match answer {
            Grant::Deadlock { victim } => {
                tx <= victim
                    && self.reach(tx, victim).contains(&victim)
                    && self.reach(victim, victim).contains(&tx)
            }
            _ => false,
        };
        self.waiting.pop();
        is_right
    }

    fn release_all(&mut self, tx: TxId) -> Vec<TxId> {
        self.held.retain(|held| held.0 != tx);
        self.waiting.retain(|request| request.0 != tx);
        self.grant_all()
    }
}

/// Plays a random history. Returns the first step at which table and model differ, and counters.
fn play(seed: u64, is_unfair: bool) -> (Option<u64>, LockStats) {
    let (mut locks, mut dice) = (Checked::default(), Dice(seed));
    let mut naive = Naive {
        is_unfair,
        ..Naive::default()
    };
    let clients = 3 + seed % 10;
    let mut live: Vec<TxId> = (1..=clients).map(TxId).collect();
    let mut last = clients;
    let mut ended = 0;
    for step in 0..4_000 {
        let running: Vec<TxId> = live
            .iter()
            .copied()
            .filter(|&tx| locks.0.awaited(tx).is_none())
            .collect();
        assert!(!running.is_empty(), "seed {seed}: everyone waits");
        let tx = running[dice.below(running.len() as u64) as usize];
        let request = match dice.below(10) {
            // A transaction ends; sometimes one that waits, as if its client had disconnected.
            0 | 1 => None,
            2 => Some((Resource::Updaters(Lpn(dice.pick(2))), Counted(3))),
            some => {
                let slot = dice.below(6) as u16;
                let mode = if some % 3 == 0 { Exclusive } else { Shared };
                Some((Resource::Record(Lpn(0), slot), mode))
            }
        };
        let gone = match request {
            Some((what, mode)) => {
                let answer = locks.ask(tx.0, what, mode);
                if !naive.agrees((tx, what, mode), answer) {
                    return (Some(step), *locks.0.stats());
                }
                match answer {
                    Grant::Deadlock { victim } => Some(victim),
                    Grant::Granted | Grant::Waits => None,
                }
            }
            None if dice.below(5) == 0 => Some(live[dice.below(live.len() as u64) as usize]),
            None => Some(tx),
        };
        if let Some(gone) = gone {
            let mut woken = locks.end(gone.0);
            woken.sort();
            let mut expected = naive.release_all(gone);
            expected.sort();
            if !woken.into_iter().map(TxId).eq(expected) {
                return (Some(step), *locks.0.stats());
            }
            last += 1;
            ended += 1;
            live.retain(|&tx| tx != gone);
            live.push(TxId(last));
        }
        let table_waits: Vec<TxId> = live
            .iter()
            .copied()
            .filter(|&tx| locks.0.awaited(tx).is_some())
            .collect();
        let mut naive_waits: Vec<TxId> = naive.waiting.iter().map(|request| request.0).collect();
        naive_waits.sort();
        assert_eq!(table_waits, naive_waits, "seed {seed}, step {step}");
        for &(tx, what, mode) in &naive.held {
            assert_eq!(
                locks.0.held(tx, what),
                Some(mode),
                "seed {seed}, step {step}"
            );
        }
    }
    assert!(ended > 100, "seed {seed}: {ended} transactions ended");
    (None, *locks.0.stats())
}

#[test]
fn long_random_histories_go_as_in_a_model_that_computes_everything_from_scratch() {
    let mut all = LockStats::default();
    for seed in 0..24 {
        let (difference, stats) = play(seed, false);
        assert_eq!(difference, None, "seed {seed}");
        all.waits += stats.waits;
        all.deadlocks += stats.deadlocks;
        all.upgrades += stats.upgrades;
    }
    assert!(
        all.waits > 1_000 && all.deadlocks > 100 && all.upgrades > 100,
        "{all:?}"
    );
    let found = (0..24).filter(|&seed| play(seed, true).0.is_some()).count();
    assert!(
        found > 20,
        "the control, an unfair model, passes {} times",
        24 - found
    );
}
