//! One durable page of a device becomes unreadable: the result of a restart, for each page and
//! every protocol, including those that stores do not support.

use crate::small_device::unwaited;
use flagstone::commit::{Device, Kind};
use flagstone::dice::Dice;
use flagstone::forward_flash;
use flagstone::ftl::{BlockState, Config, Mistake};
use flagstone::nand::{Chip, Flash, FlashError, Geometry, Read, Shared, small};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const PAGES: u32 = 60;

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    packages_per_channel: 2,
    blocks_per_plane: 60,
    pages_per_block: 6,
    ..small::GEOMETRY
};

/// Number of transactions in a history.
const COMMITS: u32 = 120;

/// Unreadable pages, which a test can add to.
type Lost = Arc<Mutex<Vec<Ppn>>>;

/// A chip with unreadable pages.
struct Rotten {
    chip: Shared<Chip>,
    pages: Lost,
}

impl Flash for Rotten {
    forward_flash!([chip] but read peek);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.chip.read(now, at, data, spare)?;
        let pages = self.pages.lock().expect("no thread panics here");
        if pages.contains(&at) {
            Err(FlashError::Uncorrectable {
                at,
                done: read.done,
            })
        } else {
            Ok(read)
        }
    }
}

fn open(kind: Kind, chip: &Shared<Chip>, pages: &[Ppn]) -> Result<Device, String> {
    open_with(kind, chip, pages, None)
}

fn open_with(
    kind: Kind,
    chip: &Shared<Chip>,
    pages: &[Ppn],
    mistake: Option<Mistake>,
) -> Result<Device, String> {
    open_rotting(kind, chip, Arc::new(Mutex::new(pages.to_vec())), mistake)
}

fn open_rotting(
    kind: Kind,
    chip: &Shared<Chip>,
    pages: Lost,
    mistake: Option<Mistake>,
) -> Result<Device, String> {
    let chip = chip.clone();
    let flash = Box::new(Rotten { chip, pages });
    let mut config = Config::small(PAGES, Some(3));
    config.mistake = mistake.into();
    Device::open(flash, kind, config, &unwaited(kind), Nanos::ZERO)
        .map_err(|error| error.to_string())
}

/// The contents of a device: the first byte of each page that holds data.
type Holds = BTreeMap<u32, u8>;

/// Commits transactions. Returns the contents before and after the last one.
fn history(kind: Kind, chip: &Shared<Chip>, seed: u64) -> [Holds; 2] {
    let mut device = open(kind, chip, &[]).expect("it is blank");
    let (mut now, mut dice) = (device.recovered_at(), Dice(seed));
    let (mut before, mut holds) = (Holds::new(), Holds::new());
    for number in 0..COMMITS {
        let tx = device.begin(now).expect("no other one lives");
        let mut writes = Holds::new();
        for _ in 0..1 + dice.pick(4) {
            let (at, byte) = (dice.pick(PAGES), (number % 250) as u8 + 1);
            if writes.insert(at, byte).is_none() {
                let taken = device.write(now, tx, Lpn(at), &[byte]);
                now = now.max(taken.expect("there is room").next);
            }
        }
        if dice.pick(6) == 0 {
            now = now.max(device.abort(now, tx).expect("the chip is well"));
            continue;
        }
        before.clone_from(&holds);
        holds.extend(writes);
        let done = device.commit(now, tx).expect("the chip is well");
        now = now.max(done.unwrap_or(now));
        for (_, done) in device.acknowledged(now, true).expect("the chip is well") {
            now = now.max(done);
        }
    }
    [before, holds]
}

/// Counts of restart results with unreadable pages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    right: u32,
    errors: u32,
    /// The last transaction is missing as a whole.
    undecidable: u32,
    silent: u32,
}

/// Makes one page after another unreadable.
fn seen(kind: Kind, seed: u64) -> Seen {
    let chip = Shared::new(small::chip(GEOMETRY));
    let [before, holds] = history(kind, &chip, seed);
    let mut seen = Seen::default();
    for page in (0..GEOMETRY.pages()).map(Ppn) {
        if !chip.look(|chip| chip.is_programmed(page)) {
            continue;
        }
        let Ok(mut device) = open(kind, &chip, &[page]) else {
            seen.errors += 1;
            continue;
        };
        let (mut found, mut unread) = (Holds::new(), Vec::new());
        for at in 0..PAGES {
            match device.read(Nanos::ZERO, None, Lpn(at)) {
                Ok((_, Some(bytes))) => _ = found.insert(at, bytes[0]),
                Ok((_, None)) => {}
                Err(_) => unread.push(at),
            }
        }
        let is = |state: &Holds| {
            let read = state.iter().filter(|(at, _)| !unread.contains(at));
            read.eq(found.iter())
        };
        match () {
            () if is(&holds) && unread.is_empty() => seen.right += 1,
            () if is(&holds) => seen.errors += 1,
            () if is(&before) => seen.undecidable += 1,
            () => seen.silent += 1,
        }
    }
    seen
}

/// Right, errors, undecidable and silent; docs/campaigns.md has the silent ones.
const PRINTED: [(Kind, [u32; 4]); 10] = [
    (Kind::Aw, [1209, 229, 15, 24]),
    (Kind::Scc, [880, 205, 7, 24]),
    (Kind::Bpcc, [1086, 217, 9, 10]),
    (Kind::Cfc, [1086, 217, 5, 14]),
    (Kind::Afc, [1384, 94, 5, 413]),
    (Kind::MhlM, [1209, 229, 15, 24]),
    (Kind::MhlD, [1169, 226, 9, 9]),
    (Kind::LightTx, [1169, 226, 9, 9]),
    (Kind::MixSl, [1234, 223, 4, 40]),
    (Kind::GMixSl, [1234, 223, 4, 40]),
];

#[test]
fn a_restart_with_an_unreadable_page_is_seen_under_every_protocol() {
    for &kind in Kind::ALL.iter().filter(|kind| kind.info().atomic) {
        let mut all = Seen::default();
        for seed in 1..=4 {
            let Seen {
                right,
                errors,
                undecidable,
                silent,
            } = seen(kind, seed);
            all.right += right;
            all.errors += errors;
            all.undecidable += undecidable;
            all.silent += silent;
        }
        match PRINTED.iter().find(|(printed, _)| *printed == kind) {
            Some((_, [right, errors, undecidable, silent])) => {
                let (right, errors) = (*right, *errors);
                let (undecidable, silent) = (*undecidable, *silent);
                let printed = Seen {
                    right,
                    errors,
                    undecidable,
                    silent,
                };
                assert_eq!(all, printed, "{kind}");
            }
            None => assert!(all.right > 0 && all.errors > 0, "{kind}: {all:?}"),
        }
    }
}

/// A transaction overwrites its own page, another one commits, and then the first one commits. The
/// pages of the other one become unreadable one by one, each alone and together with each page that
/// the first transaction has programmed since, except its last. Returns the number of programs of
/// the second commit, and the results of restarts. The last page of the first transaction is data,
/// or a list of trims.
fn commit_with_a_sum(ends_in_list: bool, mistake: Option<Mistake>) -> (u32, Seen) {
    let geometry = Geometry {
        packages_per_channel: 1,
        pages_per_block: 10,
        ..GEOMETRY
    };
    let chip = Shared::new(small::chip(geometry));
    let programmed = || -> Vec<Ppn> {
        let pages = (0..geometry.pages()).map(Ppn);
        let is_programmed = |page: &Ppn| chip.look(|chip| chip.is_programmed(*page));
        pages.filter(is_programmed).collect()
    };
    let mut device = open_with(Kind::Seal, &chip, &[], mistake).expect("it is blank");
    let mut now = device.recovered_at();
    let put = |device: &mut Device, now: Nanos, tx, at, byte| {
        let taken = device.write(now, tx, Lpn(at), &[byte]);
        now.max(taken.expect("there is room").next)
    };
    let of_many = device.begin(Nanos::ZERO).expect("none lives");
    for (at, byte) in [(10, 1), (11, 1), (11, 2)] {
        now = put(&mut device, now, of_many, at, byte);
    }
    if ends_in_list {
        now = put(&mut device, now, of_many, 11, 3);
        for at in [11, 12] {
            let taken = device.trim(now, of_many, Lpn(at));
            now = now.max(taken.expect("there is room").next);
        }
    }
    let other = device.begin(now).expect("one more can live");
    let old = programmed();
    now = put(&mut device, now, other, 0, 7);
    now = put(&mut device, now, other, 1, 7);
    let done = device.commit(now, other).expect("the chip is well");
    now = now.max(done.unwrap_or(now));
    let with_other = programmed();
    device.commit(now, of_many).expect("the chip is well");
    drop(device);
    let since: Vec<Ppn> = programmed()
        .into_iter()
        .filter(|page| !with_other.contains(page))
        .collect();
    let mut seen = Seen::default();
    for &page in with_other.iter().filter(|page| !old.contains(page)) {
        let alone = std::iter::once(vec![page]);
        let with_another = since.iter().rev().skip(1).map(|&other| vec![page, other]);
        for pages in alone.chain(with_another) {
            let Ok(mut device) = open_with(Kind::Seal, &chip, &pages, mistake) else {
                seen.errors += 1;
                continue;
            };
            let read = device.read(Nanos::ZERO, None, Lpn(0));
            if read.is_ok_and(|(_, found)| found.is_some()) {
                seen.right += 1
            } else {
                seen.silent += 1
            }
        }
    }
    (since.len() as u32, seen)
}

#[test]
fn two_pages_before_the_sum_say_what_was_durable() {
    let errors = Seen {
        errors: 6,
        ..Seen::default()
    };
    for ends_in_list in [false, true] {
        assert_eq!(commit_with_a_sum(ends_in_list, None), (3, errors));
    }
    let silent = Seen {
        silent: 2,
        ..Seen::default()
    };
    for ends_in_list in [false, true] {
        let unstated = Some(Mistake::WordUnstated);
        assert_eq!(commit_with_a_sum(ends_in_list, unstated), (1, silent));
    }
}

/// Fails if a collection that leaves its block as it is, because a page of it is lost, is said to
/// have erased it.
#[test]
fn a_block_with_a_lost_page_is_not_said_to_be_collected() {
    let mut stuck = 0;
    for &kind in Kind::ALL {
        let chip = Shared::new(small::chip(GEOMETRY));
        history(kind, &chip, 1);
        let first = |device: &Device| {
            let ftl = device.ftl();
            let pages = (0..PAGES).filter_map(|at| ftl.slot(Lpn(at)).ppn());
            let mut full = pages.filter(|&page| {
                let block = GEOMETRY.block_of(page);
                ftl.blocks().state(block) == BlockState::Full
            });
            full.next()
        };
        let Some(lost) = first(&open(kind, &chip, &[]).expect("it is whole")) else {
            continue;
        };
        let Ok(mut device) = open(kind, &chip, &[lost]) else {
            continue;
        };
        let block = GEOMETRY.block_of(lost);
        let collected = device.collect(device.recovered_at(), block);
        let collected = collected.expect("there is room");
        let state = device.ftl().blocks().state(block);
        assert_eq!(collected.is_some(), state == BlockState::Free, "{kind}");
        stuck += u32::from(state == BlockState::Stuck);
        let before = *device.request_stats();
        let read = (0..PAGES).filter(|&at| device.read(Nanos::ZERO, None, Lpn(at)).is_ok());
        let read = read.count() as u64;
        assert_eq!(device.request_stats().pages_read - before.pages_read, read);
    }
    assert!(stuck > 3, "{stuck} protocols had a stuck block");
}

/// Fails if what a collection had moved before it met a lost page is recorded only after the host
/// has written newer versions: a restart then takes the older ones.
#[test]
fn pages_that_left_a_stuck_block_stay_as_they_are_written_later() {
    let mut stuck = 0;
    // Without atomic commits a rollback takes nothing back.
    for &kind in Kind::ALL.iter().filter(|kind| kind.info().atomic) {
        for seed in 1..=4 {
            stuck += u32::from(goes_on_beside_a_stuck_block(kind, seed));
        }
    }
    assert!(stuck > 12, "{stuck} histories had a stuck block");
}

/// Collects a block whose last live page is lost, writes the others again, collects other blocks,
/// and restarts. Returns whether the block has become stuck.
fn goes_on_beside_a_stuck_block(kind: Kind, seed: u64) -> bool {
    let chip = Shared::new(small::chip(GEOMETRY));
    let [_, mut holds] = history(kind, &chip, seed);
    let whole = open(kind, &chip, &[]).expect("it is whole");
    let mut pages: Vec<(Ppn, u32)> = (0..PAGES)
        .filter_map(|at| whole.ftl().slot(Lpn(at)).ppn().map(|page| (page, at)))
        .filter(|&(page, _)| {
            let block = GEOMETRY.block_of(page);
            whole.ftl().blocks().state(block) == BlockState::Full
        })
        .collect();
    pages.sort_unstable();
    let same_block =
        |a: &(Ppn, u32), b: &(Ppn, u32)| GEOMETRY.block_of(a.0) == GEOMETRY.block_of(b.0);
    let together = pages.chunk_by(same_block).max_by_key(|pages| pages.len());
    let Some([others @ .., (lost, lost_at)]) = together else {
        return false;
    };
    let (lost, lost_at) = (*lost, *lost_at);
    drop(whole);
    let Ok(mut device) = open(kind, &chip, &[lost]) else {
        return false;
    };
    let mut now = device.recovered_at();
    let block = GEOMETRY.block_of(lost);
    device.collect(now, block).expect("there is room");
    if device.ftl().blocks().state(block) != BlockState::Stuck {
        return false;
    }
    for &(_, at) in others {
        let tx = device.begin(now).expect("no other one lives");
        let taken = device.write(now, tx, Lpn(at), &[255]);
        now = now.max(taken.expect("there is room").next);
        let done = device.commit(now, tx).expect("the chip is well");
        now = now.max(done.unwrap_or(now));
        for (_, done) in device.acknowledged(now, true).expect("the chip is well") {
            now = now.max(done);
        }
        holds.insert(at, 255);
    }
    let full = |device: &Device| {
        let blocks = device.ftl().blocks();
        let mut full = blocks.for_data();
        full.retain(|&block| blocks.state(block) == BlockState::Full);
        full
    };
    for block in full(&device).into_iter().take(3) {
        let collected = device.collect(now, block).expect("there is room");
        now = now.max(collected.unwrap_or(now));
    }
    device.check().expect("the books agree");
    drop(device);
    let mut device = open(kind, &chip, &[lost]).expect("it starts");
    for (at, byte) in holds.into_iter().filter(|&(at, _)| at != lost_at) {
        let (_, found) = device.read(Nanos::ZERO, None, Lpn(at)).expect("it reads");
        assert_eq!(found, Some(&[byte][..]), "{kind} {seed}: page {at}");
    }
    true
}

/// Fails if a copied version of a live transaction is forgotten whose original stays in a block
/// with a lost page: once the transaction is rolled back, a restart takes the original for a
/// version of the next one. Fails also if the block stays stuck although nothing in it is needed
/// any more.
#[test]
fn versions_in_a_stuck_block_are_rolled_back_with_their_transaction() {
    for kind in [Kind::Scc, Kind::Bpcc] {
        for seed in 1..=4 {
            let chip = Shared::new(small::chip(GEOMETRY));
            let [_, mut holds] = history(kind, &chip, seed);
            let lost = Lost::default();
            let opened = open_rotting(kind, &chip, Arc::clone(&lost), None);
            let mut device = opened.expect("it is whole");
            let mut now = device.recovered_at();
            let pages = |count: u32| (0..count).map(move |at| (at * 7 + seed as u32) % PAGES);
            let put = |device: &mut Device, mut now: Nanos, count, byte| {
                let tx = device.begin(now).expect("no other one lives");
                for at in pages(count) {
                    let taken = device.write(now, tx, Lpn(at), &[byte]);
                    now = now.max(taken.expect("there is room").next);
                }
                (tx, now)
            };
            let (tx, later) = put(&mut device, now, 14, 254);
            now = later;
            // A block that it has filled.
            let ftl = device.ftl();
            let slots = (0..PAGES).filter_map(|at| ftl.slot(Lpn(at)).ppn());
            let mapped: Vec<Pbn> = slots.map(|at| GEOMETRY.block_of(at)).collect();
            let blocks = ftl.blocks();
            let data_pages = ftl.data_pages_per_block();
            let own = blocks.for_data().into_iter().find(|block| {
                let is_full = blocks.state(*block) == BlockState::Full;
                is_full && blocks.live_in(*block) == data_pages && !mapped.contains(block)
            });
            let block = own.expect("it has filled a block");
            let last = GEOMETRY.page(block, data_pages - 1);
            lost.lock().expect("no thread panics here").push(last);
            let state = |device: &Device| device.ftl().blocks().state(block);
            assert_eq!(device.collect(now, block), Ok(None));
            assert_eq!(state(&device), BlockState::Stuck);
            now = device.abort(now, tx).expect("the chip is well");
            assert_eq!(state(&device), BlockState::Full, "{kind} {seed}");
            // The lost page is not among these: then the block would be erased first.
            let (tx, now) = put(&mut device, now, 8, 255);
            device.commit(now, tx).expect("the chip is well");
            device.check().expect("the books agree");
            drop(device);
            holds.extend(pages(8).map(|at| (at, 255)));
            let mut device = open_rotting(kind, &chip, lost, None).expect("it starts");
            for (at, byte) in holds {
                let (_, found) = device.read(Nanos::ZERO, None, Lpn(at)).expect("it reads");
                assert_eq!(found, Some(&[byte][..]), "{kind} {seed}: page {at}");
            }
        }
    }
}
