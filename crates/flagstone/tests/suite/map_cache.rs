//! Devices with a part of their mapping table in memory (DFTL): they hold the same as devices with
//! all of it, also after a power cut, and a missing entry costs a read.

use crate::small_device::{EVERYTHING, NOTHING, PAGES, Small, chip, unwaited};
use flagstone::commit::{DeviceError, Kind, Options};
use flagstone::dice::Dice;
use flagstone::forward_flash;
use flagstone::ftl::{Cause, Config, Header, Operation, PageKind, header};
use flagstone::nand::{Cut, Flash, FlashError, PowerCut, Read, Shared, Timing};
use flagstone::units::{Lpn, Nanos, Ppn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The protocols that support it.
const KINDS: [Kind; 2] = [Kind::LightTx, Kind::MhlD];

fn options(kind: Kind, entries: u32) -> Options {
    unwaited(kind).with("map_cache", entries)
}

/// What a run has cost.
#[derive(Debug, PartialEq)]
struct Cost {
    lookups: u64,
    misses: u64,
    checkpoints: u64,
    /// Maximum memory of the mapping table, in bytes.
    memory: u64,
}

/// Runs random transactions, some of which are rolled back, and restarts the device now and then.
/// Checks every page that it reads.
fn run(kind: Kind, entries: u32) -> Cost {
    let mut small = Small::new(kind, options(kind, entries));
    let mut model = [0; PAGES as usize];
    let mut dice = Dice(5);
    let mut cost = Cost {
        lookups: 0,
        misses: 0,
        checkpoints: 0,
        memory: 0,
    };
    for step in 1..1_500u32 {
        let mut new = model;
        let tx = small.begin();
        for _ in 0..dice.pick(4) {
            let at = dice.skewed(PAGES);
            if dice.one_in(9) {
                small.trim(tx, at);
                new[at as usize] = 0;
            } else {
                let value = 1 + dice.pick(250) as u8;
                small.write(tx, at, value);
                new[at as usize] = value;
            }
        }
        if dice.one_in(5) {
            small.abort(tx);
        } else {
            small.commit(tx);
            model = new;
        }
        for _ in 0..3 {
            let at = dice.skewed(PAGES);
            assert_eq!(small.value(at), model[at as usize], "{kind}, {entries}");
        }
        small.check();
        let memory = small.device().memory();
        let [(_, table), _] = memory[..2] else {
            panic!("the mapping table comes first")
        };
        cost.memory = cost.memory.max(table);
        if step % 300 == 0 {
            let stats = small.device().stats();
            cost.lookups += stats.map_lookups;
            cost.misses += stats.map_misses;
            cost.checkpoints += stats.checkpoints;
            small = small.restart(if step % 600 == 0 { NOTHING } else { EVERYTHING });
            assert_eq!(small.values(PAGES), model, "{kind}, {entries}");
        }
    }
    cost
}

#[test]
fn a_device_with_a_part_of_its_table_holds_the_same_and_pays_in_reads() {
    for kind in KINDS {
        let costs = [0, 40, 12, 3, 1].map(|entries| run(kind, entries));
        assert_eq!((costs[0].lookups, costs[0].misses), (0, 0), "{kind}");
        assert_eq!(costs[0].memory, 4 * u64::from(PAGES), "{kind}: all entries");
        let [_, cached @ ..] = &costs;
        for pair in cached.windows(2) {
            let [larger, smaller] = pair else { continue };
            assert!(larger.misses < smaller.misses, "{kind}: {costs:?}");
            assert!(larger.memory > smaller.memory, "{kind}: {costs:?}");
            assert!(
                larger.checkpoints <= smaller.checkpoints,
                "{kind}: {costs:?}"
            );
            assert_eq!(larger.lookups, smaller.lookups, "{kind}: {costs:?}");
        }
        assert!(costs[4].misses < costs[4].lookups, "{kind}: {costs:?}");
    }
}

/// An entry that is not in memory delays a read by the read of its translation page.
#[test]
fn a_missing_entry_costs_one_read_and_a_cached_one_none() {
    for kind in KINDS {
        let mut small = Small::new(kind, options(kind, 8));
        (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
        let mut small = small.restart(NOTHING);
        // The restart has changed more entries than there is room for: a checkpoint comes first.
        small.put(&[(1, 1)]);
        let mut read = || {
            let reads = |small: &mut Small| {
                let stats = small.device().stats();
                stats.count(Operation::Read, Cause::Mapping)
            };
            let before = reads(&mut small);
            small.now += Nanos::from_micros(10_000);
            let began = small.now;
            let read = small.device().read(began, None, Lpn(0));
            let (done, _) = read.expect("it reads");
            (reads(&mut small) - before, done.since(began))
        };
        let (missing, late) = read();
        let (cached, soon) = read();
        assert_eq!((missing, cached), (1, 0), "{kind}");
        let one = Timing::default().read;
        assert!(late.0 >= soon.0 + one.0, "{kind}: {late:?}, {soon:?}");
    }
}

/// The value of each transaction until the power fails: the last acknowledged one, and the one
/// under way. With `early`, for a control, a commit counts when it is asked for.
fn commits(small: &mut Small, early: bool) -> (u8, Option<u8>) {
    let mut last = 0;
    for value in 1..60 {
        if early {
            last = value;
        }
        // Two pages of its own evict the entry of page 0 in between.
        let own = 1 + u32::from(value) % (PAGES - 2);
        if small
            .try_put(&[(own, value), (0, value), (own + 1, value)])
            .is_err()
        {
            return (last, (!early).then_some(value));
        }
        last = value;
    }
    (last, None)
}

#[test]
fn what_is_acknowledged_survives_a_cut_at_any_operation() {
    for kind in KINDS {
        let lost = |early: bool| {
            let (mut lost, mut cuts, mut misses) = (0, 0, 0);
            for at in 1..220 {
                for dice in [NOTHING, EVERYTHING, at] {
                    let small = Small::new(kind, options(kind, 3));
                    let torn = dice == at;
                    let mut small = small.arm(Cut { at, dice, torn });
                    let (last, asked) = commits(&mut small, early);
                    misses += small.device().stats().map_misses;
                    let mut small = small.restart(dice);
                    let value = small.value(0);
                    // All pages of the transaction, or none.
                    let own = 1 + u32::from(value.max(1)) % (PAGES - 2);
                    let is_whole = value == 0 || small.value(own + 1) == value;
                    let is_kept = value == last || Some(value) == asked;
                    cuts += 1;
                    lost += u32::from(!is_whole || !is_kept);
                }
            }
            assert!(cuts > 600 && misses > 1_000, "{kind}: {cuts}, {misses}");
            lost
        };
        assert_eq!(lost(false), 0, "{kind}");
        assert!(lost(true) > 0, "{kind}: the control");
    }
}

/// Flash whose translation pages cannot be read while `lost` is set.
struct Maps {
    flash: Shared<PowerCut>,
    lost: Arc<AtomicBool>,
}

impl Flash for Maps {
    forward_flash!([flash] but read peek);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.flash.read(now, at, data, spare)?;
        let mut bytes = [0xff; header::SIZE];
        self.flash.peek(at, &mut [], &mut bytes);
        let is_map = Header::parse(&bytes).is_some_and(|head| head.kind == PageKind::Map);
        if is_map && self.lost.load(Ordering::Relaxed) {
            let done = read.done;
            return Err(FlashError::Uncorrectable { at, done });
        }
        Ok(read)
    }
}

/// Without its entry a page can be neither read nor replaced. That is an error, and no other
/// version; a transaction that hits it can be rolled back.
#[test]
fn an_entry_that_cannot_be_read_is_an_error_and_changes_nothing() {
    for kind in KINDS {
        let lost = Arc::new(AtomicBool::new(false));
        let config = Config::small(PAGES, Some(3));
        let set = Arc::clone(&lost);
        let mut small = Small::over(chip(), config, kind, options(kind, 8), move |flash| {
            let lost = Arc::clone(&set);
            Box::new(Maps { flash, lost })
        });
        (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
        let mut small = small.restart(NOTHING);
        // A checkpoint, for which what the restart has changed gives cause.
        small.put(&[(2, 1)]);
        assert_eq!(small.value(1), 1, "it is in memory from here on");
        lost.store(true, Ordering::Relaxed);
        let now = small.now;
        let read = small.device().read(now, None, Lpn(0)).map(|_| ());
        assert_eq!(read, Err(DeviceError::Unreadable(Lpn(0))), "{kind}");
        assert_eq!(small.value(1), 1, "{kind}");
        let tx = small.open(7, &[1]);
        let refused = small.try_write(tx, 0, 7);
        let why = refused.expect_err("the entry is lost").to_string();
        assert!(why.contains("cannot be read"), "{kind}: {why}");
        small.abort(tx);
        lost.store(false, Ordering::Relaxed);
        assert_eq!(small.values(2), [1, 1], "{kind}");
        small.set(9, &[0, 1]);
        assert_eq!(small.restart(NOTHING).values(2), [9, 9], "{kind}");
    }
}

#[test]
fn only_protocols_without_a_log_of_mappings_take_the_setting() {
    for &kind in Kind::ALL {
        let takes = kind.info().settings.iter().any(|it| it.name == "map_cache");
        assert_eq!(takes, KINDS.contains(&kind), "{kind}");
    }
}
