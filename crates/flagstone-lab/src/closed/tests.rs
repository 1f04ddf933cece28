//! Runs on small devices with every stack, and databases with mistakes, which must be detected.

use super::*;
use crate::driver::{Backend, Counted};
use crate::replay::{Latency, Played, ReplayRecord, Script, script_of};
use crate::tpcc::Scale;
use crate::tpcc::pages::{self, Pages};
use crate::workload::{Pattern, Workload};
use flagstone::commit::Kind;
use flagstone::nand::Cell;
use flagstone::units::{Lpn, TxId};
use flagstone_host::Rid;
use std::collections::BTreeSet;

fn closed(stack: Stack) -> Closed {
    let mut device = DeviceSpec::load("small").expect("a preset");
    device.geometry.blocks_per_plane = 24;
    device.config.over_provision = 0.3;
    // One for the page, and one flag for each transaction with records in it.
    device.geometry.cell = Cell::Slc {
        partial_programs: 4,
    };
    Closed {
        stack,
        options: Options::default(),
        device,
        settings: Settings::new(),
        policy_settings: Settings::new(),
        terms: Terms {
            clients: 6,
            frames: 160,
            log_pages: 128,
            back_off_ms: 2.0,
            abort_ratio: 0.05,
            fill: 0.6,
            overwrite: true,
            warm_up: 50,
            transactions: 300,
            seed: 11,
            check: true,
            ..Terms::default()
        },
        workload: "tpcc".into(),
    }
}

fn tpcc(closed: &Closed) -> Pages {
    let scale = Scale {
        warehouses: 2,
        customers: 60,
        items: 200,
    };
    let options = pages::PagesOptions {
        page_bytes: closed.device.geometry.page_bytes,
        ..pages::PagesOptions::new(scale, 5)
    };
    Pages::new(&options).expect("a small database")
}

fn run(closed: &Closed) -> ClosedRecord {
    let record = closed.run(&mut tpcc(closed));
    record.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_stack_runs_every_transaction_to_its_end_and_the_same_twice() {
    let mut structures = BTreeSet::new();
    for stack in Stack::all() {
        let closed = closed(stack);
        let first = run(&closed);
        assert_eq!(first.committed + first.rolled_back, 300, "{stack}");
        assert!(first.issued >= 350 && first.rolled_back > 0, "{stack}");
        assert!(first.records_checked > Some(1_000), "{stack}");
        assert!(first.recovery_ns > 0 && first.virtual_ns > 0, "{stack}");
        assert!(first.response_ns.mean >= first.attempt_ns.mean, "{stack}");
        structures.extend(first.memory_bytes.keys().copied());
        assert_eq!(
            run(&closed).without_wall_clock(),
            first.without_wall_clock(),
            "{stack}"
        );
    }
    structures.retain(|name| !ReplayRecord::STRUCTURES.contains(name));
    let known = ClosedRecord::STRUCTURES.iter().copied();
    assert_eq!(structures, known.collect());
}

#[test]
fn a_transaction_that_never_fits_the_pool_is_given_up_in_words() {
    let mut closed = closed(Stack::Force(Kind::Scc));
    closed.terms.frames = 20;
    closed.terms.steal = false;
    // A single client, so that it is aborted for no other reason.
    closed.terms.clients = 1;
    let error = closed.run(&mut tpcc(&closed)).unwrap_err().to_string();
    assert!(
        error.contains("force:scc on small") && error.contains("pool_exhausted"),
        "{error}"
    );
}

/// A database that sometimes makes a mistake, and that requires calls in order of instants.
struct Mistaken {
    host: Host,
    last: Nanos,
    mistake: Mistake,
    calls: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// Every hundredth write is acknowledged but not executed.
    ForgetsWrites,
    /// No transaction is woken.
    ForgetsWaiters,
    /// Every tenth rollback commits.
    CommitsRollbacks,
}

impl Mistaken {
    fn called(&mut self, now: Nanos) {
        assert!(
            now >= self.last,
            "a call at {now} after one at {}",
            self.last
        );
        self.last = now;
    }

    fn time(&mut self, mistake: Mistake, every: u32) -> bool {
        self.calls += u32::from(self.mistake == mistake);
        self.mistake == mistake && self.calls.is_multiple_of(every)
    }
}

impl Backend for Mistaken {
    fn begin(&mut self, now: Nanos) -> Result<Option<TxId>, HostError> {
        self.called(now);
        self.host.begin(now).map(Some)
    }

    fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        self.called(now);
        self.host.touch(now, tx, page)
    }

    fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError> {
        self.called(now);
        self.host.read(now, tx, rid, into)
    }

    fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        self.called(now);
        if self.time(Mistake::ForgetsWrites, 100) {
            return Ok(Step::Done((), now));
        }
        self.host.write(now, tx, rid, bytes)
    }

    fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        self.called(now);
        self.host.commit(now, tx)
    }

    fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        self.called(now);
        if self.time(Mistake::CommitsRollbacks, 10)
            && let Step::Done((), done) = self.host.commit(now, tx)?
        {
            return Ok(done);
        }
        self.host.abort(now, tx)
    }

    fn woken(&mut self) -> Vec<TxId> {
        let woken = self.host.woken();
        if self.mistake == Mistake::ForgetsWaiters {
            return Vec::new();
        }
        woken
    }

    fn acknowledged(&mut self, now: Nanos, flush: bool) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.called(now);
        self.host.acknowledged(now, flush)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.host.deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.host.memory()
    }

    fn reached(&mut self, now: Nanos) {
        self.host.reached(now);
    }
}

/// Enough for waits, restarts and steals under every stack.
const CALLS: u64 = 800;

fn drive(mistake: Mistake, stack: Stack) -> Result<Counted, DriverError> {
    let closed = closed(stack);
    drive_from(mistake, &closed, &mut tpcc(&closed))
}

fn drive_from(
    mistake: Mistake,
    closed: &Closed,
    source: &mut impl Source,
) -> Result<Counted, DriverError> {
    let host = closed
        .open(closed.fill().unwrap().filled(&History::default()).unwrap())
        .unwrap();
    let start = host.recovered_at();
    let host = Mistaken {
        host,
        last: start,
        mistake,
        calls: 0,
    };
    let mut driver = Driver::new(closed.terms.plan(), Admission::Free, host, source, start);
    let counted = driver.run(Span::Transactions(CALLS))?;
    driver.drain()?;
    Ok(counted)
}

/// Number of erases for the measured transactions, and of collections among them.
fn erases(closed: &Closed, pages: u64) -> (u64, u64) {
    let mut source = tpcc(closed);
    let past = Past {
        pages,
        clients: closed.terms.clients,
        frames: closed.terms.frames as usize,
        abort_ratio: 0.2,
        seed: 3,
    };
    let history = History::of(&mut source, &past).unwrap();
    assert!(history.pages() >= pages);
    let chip = closed.fill().unwrap().filled(&history).unwrap();
    let record = closed.run_on(chip, &mut source).unwrap();
    let erases = record.flash_operations(Operation::Erase, Cause::Gc);
    (erases, record.collections)
}

#[test]
fn a_device_with_a_history_collects_from_the_first_transaction_on() {
    for stack in ["force:afc", "force:bpcc", "force:g-mixsl", "wal", "afc-ex"] {
        let mut closed = closed(stack.parse().unwrap());
        (closed.terms.fill, closed.terms.overwrite) = (0.5, false);
        (closed.terms.warm_up, closed.terms.transactions) = (0, 60);
        assert_eq!(erases(&closed, 0), (0, 0), "{stack}");
        // Free blocks were erased while no client ran.
        let (all, collections) = erases(&closed, 40_000);
        assert!(collections > 0, "{stack}");
        assert_eq!(all, collections, "{stack}");
    }
}

#[test]
fn the_free_blocks_of_a_device_that_was_at_work_are_erased_when_they_are_used() {
    let closed = closed("force:afc".parse().unwrap());
    let (all, collections) = erases(&closed, 0);
    assert!(all > collections, "{all} erases, {collections} collections");
}

#[test]
fn calls_are_in_the_order_of_their_instants() {
    for stack in Stack::all() {
        let counted = drive(Mistake::None, stack);
        if stack != Stack::Force(Kind::Plain) || counted.is_ok() {
            let counted = counted.unwrap_or_else(|error| panic!("{stack}: {error}"));
            assert_eq!(counted.committed + counted.rolled_back, CALLS, "{stack}");
        }
        let mut open = closed(stack);
        open.terms.speedup = Some(0.01);
        let script = script();
        let counted = drive_from(Mistake::None, &open, &mut Played::new(&script));
        if stack == Stack::Force(Kind::Plain) {
            // Control: a device without transactions cannot undo stolen pages.
            assert!(matches!(counted, Err(DriverError::WrongRead { .. })));
            continue;
        }
        let counted = counted.unwrap_or_else(|error| panic!("{stack}: {error}"));
        assert_eq!(counted.committed + counted.rolled_back, 600, "{stack}");
    }
}

#[test]
fn mistakes_of_a_database_are_noticed() {
    for mistake in [Mistake::ForgetsWrites, Mistake::CommitsRollbacks] {
        let error = drive(mistake, Stack::Wal).unwrap_err();
        assert!(matches!(error, DriverError::WrongRead { .. }), "{error}");
    }
    let error = drive(Mistake::ForgetsWaiters, Stack::Wal).unwrap_err();
    assert!(matches!(error, DriverError::Stuck { .. }), "{error}");
}

#[test]
fn waits_deadlocks_and_restarts_happen_and_are_counted() {
    let mut closed = closed(Stack::Force(Kind::Cfc));
    closed.terms.transactions = 2_000;
    let record = run(&closed);
    assert!(record.waits > 100, "{}", record.waits);
    assert!(record.restarts["deadlock"] > 10, "{:?}", record.restarts);
    assert!(record.response_ns.mean > record.attempt_ns.mean);
    let delay = |record: &ClosedRecord| record.response_ns.mean - record.attempt_ns.mean;
    closed.terms.back_off_ms = 500.0;
    assert!(
        delay(&run(&closed)) > 2.0 * delay(&record),
        "back-off takes its time"
    );
}

#[test]
fn a_wait_for_a_place_is_a_wait_for_isolation_and_not_the_commit() {
    let run = |stack, clients| {
        let mut closed = closed(Stack::Force(stack));
        (closed.terms.clients, closed.terms.abort_ratio) = (clients, 0.0);
        closed.terms.transactions = 1_000;
        run(&closed)
    };
    // Atomic-Write allows one transaction on the device at a time, LightTx any number.
    let (queued, alone, free) = (run(Kind::Aw, 6), run(Kind::Aw, 1), run(Kind::LightTx, 6));
    assert_eq!(alone.isolation_wait_ns, Latency::default());
    assert!(alone.commit_ns.mean > 0.0);
    // Both wait for locks.
    assert!(queued.isolation_wait_ns.mean > free.isolation_wait_ns.mean);
    assert!(
        queued.commit_ns.mean < 1.5 * alone.commit_ns.mean,
        "{} beside {}",
        queued.commit_ns.mean,
        alone.commit_ns.mean
    );
    for record in [queued, alone, free] {
        let parts = record.isolation_wait_ns.mean + record.commit_ns.mean;
        assert!(parts <= record.response_ns.mean, "{}", record.stack);
        // A transaction that begins when its client's previous one has ended is always waited for.
        let ended = (record.committed + record.rolled_back) as f64;
        let busy = ended * record.response_ns.mean / record.virtual_ns as f64;
        let clients = f64::from(record.clients.unwrap());
        assert!((busy / clients - 1.0).abs() < 0.05, "{busy} of {clients}");
    }
}

#[test]
fn rollbacks_are_as_many_as_asked_for() {
    let share = |abort_ratio: f64| {
        let mut closed = closed(Stack::Wal);
        closed.terms.abort_ratio = abort_ratio;
        closed.terms.transactions = 1_000;
        let record = run(&closed);
        assert_eq!(record.committed + record.rolled_back, 1_000);
        record.rolled_back as f64 / 1_000.0
    };
    assert!(share(0.0) < 0.02, "New-Orders with an unused item only");
    assert!((share(0.3) - 0.3).abs() < 0.05);
    assert_eq!(share(1.0), 1.0);
}

#[test]
fn a_window_of_time_is_as_long_as_asked_for() {
    let closed = closed(Stack::Wal);
    let chip = closed.fill().unwrap().filled(&History::default()).unwrap();
    let (host, mut source) = (closed.open(chip).unwrap(), tpcc(&closed));
    let start = host.recovered_at();
    let mut driver = Driver::new(
        closed.terms.plan(),
        Admission::Free,
        host,
        &mut source,
        start,
    );
    let counted = driver.run(Span::Time(Nanos::from_micros(50_000))).unwrap();
    assert_eq!(counted.to.since(counted.from).0, 50_000_000);
    assert!(counted.committed > 10, "{}", counted.committed);
}

fn script() -> Script {
    let workload = Workload {
        pattern: Pattern::Zipf { theta: 0.8 },
        pages: 500,
        requests: 3_000,
        read_share: 0.3,
        pages_per_transaction: 5,
        seed: 9,
    };
    script_of(&workload).unwrap()
}

#[test]
fn an_open_loop_begins_transactions_when_they_arrive() {
    let script = script();
    let run = |speedup| {
        let mut closed = closed(Stack::Wal);
        closed.terms.speedup = Some(speedup);
        (closed.terms.warm_up, closed.terms.transactions) = (0, u64::MAX);
        closed.run(&mut Played::new(&script)).unwrap()
    };
    // One begin per microsecond of the recording: a thousandth of the speed leaves time for each.
    let slow = run(0.001);
    let fast = run(1.0);
    assert_eq!((slow.issued, fast.issued), (600, 600));
    assert!(slow.virtual_ns >= 599_000_000);
    assert!(fast.virtual_ns < slow.virtual_ns);
    assert!(
        fast.response_ns.mean > 2.0 * slow.response_ns.mean,
        "they queue"
    );
    assert_eq!((slow.saturated, fast.saturated), (Some(false), Some(true)));
    assert!((slow.arrivals_tps.unwrap() - 1_000.0).abs() < 1.0);
}

#[test]
fn a_closed_loop_plays_a_script_to_its_end() {
    let script = script();
    let mut closed = closed(Stack::Force(Kind::GMixSl));
    (closed.terms.warm_up, closed.terms.transactions) = (0, u64::MAX);
    let record = closed.run(&mut Played::new(&script)).unwrap();
    assert_eq!(record.committed + record.rolled_back, 600);
}
