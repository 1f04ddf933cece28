//! Every stack in small scenarios. The lab's campaigns have interleaved clients and power cuts.

use super::small_host::{SmallHost, chip, config, device, rid, rids};
use super::{Host, HostConfig, HostError, Machine, Rid, Stack, Step, Why};
use flagstone::commit::{Kind, Options};
use flagstone::dice::Dice;
use flagstone::ftl::{Cause, Operation};
use flagstone::nand::{Fault, FaultPlan, Faulty, Shared};
use flagstone::units::Nanos;
use std::collections::BTreeMap;

#[test]
fn a_page_is_dirty_if_it_was_changed_and_not_if_it_was_only_accessed_for_a_write() {
    for stack in [Stack::Force(Kind::Cfc), Stack::Wal, Stack::CfcEx] {
        let mut small = SmallHost::new(stack, config());
        let tx = small.begin();
        let is_dirty = |small: &mut SmallHost| {
            let host = small.host();
            host.verify().unwrap();
            host.tools.pool.is_dirty(rid(3, 0).page)
        };
        if stack != Stack::Force(Kind::Cfc) {
            small.write(tx, rid(3, 0), None);
            assert!(!is_dirty(&mut small), "{stack}: nothing was deleted");
        }
        small.write(tx, rid(3, 0), Some(b"here"));
        assert!(is_dirty(&mut small), "{stack}");
        // A wrong mark is detected.
        let pool = &mut small.host().tools.pool;
        pool.set_dirty(rid(3, 0).page, false);
        assert!(small.host().verify().is_err(), "{stack}");
    }
}

#[test]
fn a_pool_full_of_pages_that_cannot_be_stolen_costs_the_youngest() {
    let steal = false;
    let stays = HostConfig { steal, ..config() };
    let mut small = SmallHost::new(Stack::Force(Kind::Scc), stays);
    let (old, young) = (small.begin(), small.begin());
    for page in 0..3 {
        small.write(young, rid(page, 0), Some(b"young"));
        small.write(old, rid(page + 10, 0), Some(b"old"));
    }
    let now = small.now;
    let full = small.host().write(now, old, rid(19, 0), Some(b"more"));
    let (victim, why) = (young, Why::PoolExhausted);
    assert_eq!(full, Ok(Step::Abort { victim, why }));
    small.abort(young);
    small.write(old, rid(19, 0), Some(b"more"));
    small.commit(old);
    assert_eq!(small.contents().len(), 4);
    assert_eq!(small.host().stats().pages_stolen, 0);
    // With steal, no transaction is aborted.
    let mut small = SmallHost::new(Stack::Force(Kind::Scc), config());
    let tx = small.begin();
    for page in 0..10 {
        small.write(tx, rid(page, 0), Some(b"much"));
    }
    assert_eq!(small.value(tx, rid(0, 0)), Some(b"much".to_vec()));
    assert!(small.host().stats().pages_stolen >= 4);
    small.abort(tx);
    assert!(small.contents().is_empty());
}

#[test]
fn who_waits_for_a_place_on_the_device_is_woken_when_it_is_free() {
    let mut small = SmallHost::new(Stack::Force(Kind::Aw), config());
    let (one, two) = (small.begin(), small.begin());
    small.write(one, rid(0, 0), Some(b"one"));
    small.write(two, rid(1, 0), Some(b"two"));
    let now = small.now;
    let Ok(Step::Done((), done)) = small.host().commit(now, one) else {
        panic!("the place was free");
    };
    assert_eq!(small.host().commit(now, two), Ok(Step::Waits));
    assert_eq!(
        small.host().touch(now, two, rid(0, 0).page),
        Ok(Step::Waits)
    );
    assert_eq!(small.host().deadline(), Some(done));
    assert_eq!(small.host().acknowledged(done, false), Ok(Vec::new()));
    assert_eq!(small.host().woken(), [two]);
    small.now = done;
    small.commit(two);
    assert_eq!(small.contents().len(), 2);
}

#[test]
fn pages_of_the_log_are_counted_as_log() {
    for stack in [Stack::Wal, Stack::CfcEx, Stack::AfcEx] {
        let mut small = SmallHost::new(stack, config());
        for n in 0..70 {
            if n == 10 {
                small.host().reset_stats();
            }
            let tx = small.begin();
            (0..2).for_each(|k| small.write(tx, rid((7 * n + k) % 20, 0), Some(b"one of many")));
            small.commit(tx);
        }
        let host = small.host();
        let (stats, flash) = (host.stats(), host.ftl().stats());
        let programs = |cause| flash.count(Operation::Program, cause);
        assert!(stats.log.pages_written > 50 && stats.pages_written > 20);
        assert_eq!(programs(Cause::Log), stats.log.pages_written, "{stack}");
        assert_eq!(programs(Cause::Host), stats.pages_written, "{stack}");
        assert!(flash.count(Operation::Read, Cause::Host) > 0, "{stack}");
    }
}

#[test]
fn a_database_whose_numbers_are_near_their_end_takes_no_writes_and_can_be_read() {
    for stack in Stack::all() {
        let mut small = SmallHost::new(stack, config());
        let tx = small.begin();
        small.write(tx, rid(1, 0), Some(b"kept"));
        small.commit(tx);
        let last = &mut small.host().tools.last_tx;
        last.0 = (1 << 47) / 16 * 15 - 2;
        let tx = small.begin();
        small.write(tx, rid(1, 1), Some(b"last"));
        let (now, next) = (small.now, small.begin());
        let refused = small.host().write(now, next, rid(2, 0), Some(b"none"));
        let why = refused.expect_err("it is spent").to_string();
        assert!(why.contains("can be read"), "{stack}: {why}");
        small.abort(next);
        small.commit(tx);
        small.restart(None);
        let tx = small.begin();
        assert_eq!(small.value(tx, rid(1, 0)).as_deref(), Some(&b"kept"[..]));
        assert_eq!(small.value(tx, rid(1, 1)).as_deref(), Some(&b"last"[..]));
    }
}

#[test]
fn a_transaction_that_is_rolled_back_leaves_its_pages_on_flash_if_asked_to() {
    for kind in [Kind::Scc, Kind::Bpcc, Kind::Cfc, Kind::Afc] {
        let written = |flush: bool, steal: bool| {
            let config = HostConfig { steal, ..config() };
            let config = config.with("flush_aborted", flush);
            let mut small = SmallHost::new(Stack::Force(kind), config);
            let tx = small.begin();
            for page in 0..3 {
                small.write(tx, rid(page, 0), Some(b"never"));
            }
            small.abort(tx);
            let written = small.host().stats().pages_written;
            let reader = small.begin();
            assert_eq!(small.value(reader, rid(1, 0)), None, "{kind}");
            written
        };
        assert_eq!(written(true, true), 3, "{kind}");
        assert_eq!(written(false, true), 0, "{kind}: the default");
        assert_eq!(written(true, false), 0, "{kind}: pages stay until commit");
    }
}

/// Fails if a stack with a log takes changes until positions in the log wrap around.
#[test]
fn a_host_whose_log_is_near_its_end_takes_no_changes_and_can_be_read() {
    for stack in [Stack::Wal, Stack::CfcEx, Stack::AfcEx] {
        let mut small = SmallHost::new(stack, config());
        let tx = small.begin();
        small.write(tx, rid(1, 0), Some(b"here"));
        small.commit(tx);
        let tx = small.begin();
        let log = match &mut small.host().machine {
            Machine::Wal(wal) => &mut wal.log,
            Machine::FlagEx(flag_ex) => &mut flag_ex.log,
            Machine::Force(_) => panic!("it has no log"),
        };
        log.skip((1 << 47) / 16 * 15 - log.end());
        let now = small.now;
        let refused = small.host().write(now, tx, rid(2, 0), Some(b"there"));
        let why = refused.expect_err("positions are spent").to_string();
        assert!(why.contains("log position"), "{stack}: {why}");
        let value = small.value(tx, rid(1, 0));
        assert_eq!(value, Some(b"here".to_vec()), "{stack}");
    }
}

/// A commit that is in the log alone vanishes if the log is taken for a new one. The control is the
/// size with which the database was made.
#[test]
fn a_database_with_a_larger_log_is_refused() {
    for stack in [Stack::Wal, Stack::CfcEx, Stack::AfcEx] {
        let made = config().log_pages;
        let mut opened = Vec::new();
        for log_pages in made..40 {
            let mut small = SmallHost::new(stack, config());
            let tx = small.begin();
            small.write(tx, rid(3, 0), Some(b"here"));
            small.commit(tx);
            small.host = None;
            small.config.log_pages = log_pages;
            if small.open().is_ok() {
                let tx = small.begin();
                assert_eq!(small.value(tx, rid(3, 0)), Some(b"here".to_vec()));
                opened.push(log_pages);
            }
        }
        assert_eq!(opened, [made], "{stack}");
    }
}

/// What a history on a failing device has left of its records: what has committed, and what may
/// have.
type Left = (BTreeMap<Rid, u8>, Option<BTreeMap<Rid, u8>>);

/// Small transactions on a device whose programs and erases fail, until one neither commits nor is
/// known not to. Counts the commits that failed.
fn wear_out(host: &mut Host, dice: &mut Dice, failed: &mut u32) -> Left {
    let (mut now, mut sure) = (host.recovered_at(), BTreeMap::new());
    for step in 0..400 {
        let Ok(tx) = host.begin(now) else { continue };
        let mut new = sure.clone();
        let mut goes_on = true;
        for _ in 0..=dice.pick(6) {
            let (rid, value) = (rid(dice.pick(8), dice.pick(4) as u16), step as u8);
            let bytes = [value; 40];
            match host.write(now, tx, rid, Some(&bytes)) {
                Ok(Step::Done((), done)) => now = done,
                _ => goes_on = false,
            }
            new.insert(rid, value);
        }
        let committed = match goes_on.then(|| host.commit(now, tx)) {
            Some(Ok(Step::Done((), done))) => Some(done),
            Some(Ok(Step::Waits)) => {
                let all = host.acknowledged(now, true).unwrap_or_default();
                all.iter().find(|(of, _)| *of == tx).map(|of| of.1)
            }
            _ => None,
        };
        if let Some(done) = committed {
            (now, sure) = (done, new);
        } else {
            *failed += 1;
            match host.abort(now, tx) {
                Ok(done) => now = done,
                Err(_) => return (sure, Some(new)),
            }
        }
        // It releases locks, also where the device is full.
        let _ = host.acknowledged(now, false);
        assert_eq!(host.verify(), Ok(()), "step {step}");
    }
    (sure, None)
}

/// Fails if the books of a device are called wrong where a block has failed and no root could leave
/// it out, or if a restart finds what was said to be rolled back.
#[test]
fn a_database_whose_device_wears_out_keeps_its_books_and_what_has_committed() {
    let (mut failed, mut kept) = (0, 0);
    for (seed, stack) in
        (70..78).flat_map(|seed| Stack::all().into_iter().map(move |of| (seed, of)))
    {
        let mut dice = Dice(seed);
        let mut plan = FaultPlan::default();
        let mut at = 60;
        for _ in 0..400 {
            at += 1 + u64::from(dice.pick(5));
            let erases = dice.one_in(4);
            let fault = if erases {
                Fault::EraseFails
            } else {
                Fault::ProgramFails
            };
            plan.faults.push((at, fault));
        }
        let flash = Shared::new(Faulty::new(chip(stack), plan));
        let open = || {
            let (flash, config) = (Box::new(flash.clone()), config().keep_those_of(stack));
            Host::open(
                flash,
                stack,
                device(),
                &Options::default(),
                &config,
                Nanos::ZERO,
            )
        };
        let mut host = open().expect("a blank device");
        let (sure, may) = wear_out(&mut host, &mut dice, &mut failed);
        drop(host);
        // Without room for a root, or for a page of the log or of the pool, it cannot be read.
        let Ok(mut host) = open() else { continue };
        let (now, mut bytes) = (host.recovered_at(), Vec::new());
        let look = |rid| {
            let (is_there, _) = host.look(now, rid, &mut bytes)?;
            Ok::<_, HostError>(is_there.then(|| (rid, bytes[0])))
        };
        let looked: Result<Vec<_>, _> = rids().map(look).collect();
        if let Ok(looked) = looked
            && stack != Stack::Force(Kind::Plain)
        {
            let found: BTreeMap<Rid, u8> = looked.into_iter().flatten().collect();
            assert!(found == sure || Some(found) == may, "{stack}, seed {seed}");
            kept += 1;
        }
    }
    assert!(failed > 20 && kept > 20, "{failed}, {kept}");
}
