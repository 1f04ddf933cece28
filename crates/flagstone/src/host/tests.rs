//! Every stack beside a model: interleaved clients, power cuts, and controls that must fail.

use super::config::Mistake;
use super::rig::Rig;
use super::small_host::{SmallHost, config, rid, variants};
use super::{HostConfig, Stack, Step, Why};
use crate::commit::{Kind, Options};
use crate::ftl::{Cause, Operation};
use crate::nand::Cut;

fn name(stack: Stack, config: &HostConfig, seed: u64) -> String {
    let (through, what) = (config.write_through, config.granularity);
    let set: Vec<_> = config.settings.given().collect();
    format!("{stack}, write-through {through}, locks {what:?}, {set:?}, seed {seed}")
}

/// Clients that wait for each other, dead-lock and roll back see what they should; and it is there
/// after a restart.
#[test]
fn interleaved_transactions_agree_with_a_map() {
    for (stack, config) in variants() {
        for seed in 0..4 {
            let name = name(stack, &config, seed);
            let small = SmallHost::new(stack, config.clone());
            let mut rig = Rig::new(small, seed, 4);
            assert!(rig.run(300));
            let stats = rig.small.host().stats();
            rig.small.host().verify().unwrap();
            assert!(rig.committed > 100 && rig.aborted > 20, "{name}: {stats:?}");
            assert!(stats.locks.waits > 10, "{name}: {stats:?}");
            rig.recover(None)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Cuts the power at an operation, checks, goes on, and checks again. Gives what is wrong.
fn cut_once(stack: Stack, config: &HostConfig, seed: u64, cut: Cut) -> Result<bool, String> {
    let mut small = SmallHost::with(stack, config.clone(), Options::default(), None);
    small.arm(cut);
    let mut rig = Rig::new(small, seed, 4);
    let fell = !rig.run(60) || rig.small.cut_restarts > 0;
    // Half of the cuts are followed by another one, which may fall into the restart.
    let again = Cut {
        at: cut.dice % 13,
        dice: cut.dice / 7,
        torn: !cut.torn,
    };
    rig.recover(cut.dice.is_multiple_of(2).then_some(again))?;
    if !rig.run(20) {
        rig.recover(None)?;
        rig.run(20);
    }
    rig.recover(None)?;
    Ok(fell)
}

pub(super) fn cuts(
    stack: Stack,
    config: &HostConfig,
    seeds: std::ops::Range<u64>,
    step: u64,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for seed in seeds {
        let mut at = seed % step;
        loop {
            let dice = (seed << 20 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
            let torn = dice & 4 != 0;
            let cut = Cut { at, dice, torn };
            match cut_once(stack, config, seed, cut) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    complaints.push(format!("{}, {cut:?}: {error}", name(stack, config, seed)));
                    break;
                }
            }
            at += step;
        }
        let is_fine = complaints.is_empty();
        assert!(!is_fine || at > 3 * step, "there was something to cut");
    }
    complaints
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_and_nothing_survives_in_part() {
    for (stack, config) in variants() {
        let complaints = cuts(stack, &config, 0..3, 11);
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

/// The controls: what the tests above must be able to see.
#[test]
fn mistakes_are_found() {
    let mistakes = [
        (Stack::Wal, Some(Mistake::PageBeforeLog)),
        (Stack::Wal, Some(Mistake::EarlyAcknowledgement)),
        (Stack::Wal, Some(Mistake::NoUndo)),
        (Stack::Wal, Some(Mistake::UndoCompensation)),
        (Stack::Force(Kind::Cfc), Some(Mistake::EarlyAcknowledgement)),
        (Stack::Force(Kind::Plain), None),
    ];
    let mistakes = mistakes.map(|(stack, mistake)| (stack, mistake, 0));
    let early = Some(Mistake::EarlyAcknowledgement);
    let grouped = [(Stack::Wal, early, 700)];
    for (stack, mistake, group_wait) in mistakes.into_iter().chain(grouped) {
        let config = HostConfig {
            mistake: mistake.into(),
            ..config().with("group_wait_us", group_wait)
        };
        let found = (0..20).any(|seed| !cuts(stack, &config, seed..seed + 1, 3).is_empty());
        assert!(found, "{stack} with {mistake:?} passes");
    }
}

#[test]
fn a_page_is_dirty_if_it_was_changed_and_not_if_it_was_only_accessed_for_a_write() {
    for stack in [Stack::Force(Kind::Cfc), Stack::Wal, Stack::CfcEx] {
        let mut small = SmallHost::new(stack, config());
        let tx = small.begin();
        let is_dirty = |small: &mut SmallHost| {
            let engine = &small.host().engine;
            engine.check().unwrap();
            engine.memory.pool.is_dirty(rid(3, 0).page)
        };
        if stack != Stack::Force(Kind::Cfc) {
            small.write(tx, rid(3, 0), None);
            assert!(!is_dirty(&mut small), "{stack}: nothing was deleted");
        }
        small.write(tx, rid(3, 0), Some(b"here"));
        assert!(is_dirty(&mut small), "{stack}");
        // A mark that is wrong is found.
        let pool = &mut small.host().engine.memory.pool;
        pool.set_dirty(rid(3, 0).page, false);
        assert!(small.host().engine.check().is_err(), "{stack}");
    }
}

#[test]
fn a_pool_full_of_pages_that_cannot_be_stolen_costs_the_youngest() {
    let mut small = SmallHost::new(Stack::Force(Kind::Scc), config());
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
    // Where a page can be stolen, nobody has to go.
    let mut small = SmallHost::new(Stack::Force(Kind::Cfc), config());
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
        let small = SmallHost::new(stack, config());
        let mut rig = Rig::new(small, 7, 4);
        assert!(rig.run(10));
        rig.small.host().reset_stats();
        assert!(rig.run(100));
        let host = rig.small.host();
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
        let last = &mut small.host().engine.memory.last_tx;
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
            let steal = Some(steal);
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
