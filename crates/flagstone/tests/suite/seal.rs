//! Failure cases of SEAL, each with the right outcome; and the rules left out on purpose, whose
//! absence must be detected.

use crate::small_device::{EVERYTHING, FILLER, NOTHING, PAGES, Small};
use flagstone::commit::{Kind, Mistake, Options};
use flagstone::ftl::{BlockState, Cause, Config, Operation};
use flagstone::nand::{Geometry, small};
use flagstone::units::{Pbn, TxId};

/// Options with which `linger` full blocks may wait for their transactions.
fn lingering(linger: u32, mistake: Option<Mistake>) -> Options {
    let mut options = Options::default().with("linger", linger);
    options.mistake = mistake.into();
    options
}

/// A device on which `linger` full blocks may wait for their transactions.
fn seal(linger: u32, mistake: Option<Mistake>) -> Small {
    Small::new(Kind::Seal, lingering(linger, mistake))
}

#[test]
fn a_commit_programs_nothing_but_its_pages() {
    let mut small = seal(2, None);
    for pages in 1..6 {
        let before = small.device().stats().clone();
        let all: Vec<u32> = (0..pages).collect();
        small.set(pages as u8, &all);
        let stats = small.device().stats();
        let programs = |cause| {
            stats.count(Operation::Program, cause) - before.count(Operation::Program, cause)
        };
        assert_eq!(programs(Cause::Host), u64::from(pages));
        assert_eq!(programs(Cause::Log), 0);
        assert_eq!(programs(Cause::Mapping), stats.summaries - before.summaries);
    }
}

#[test]
fn leftovers_of_an_aborted_transaction_are_not_counted_with_those_of_another() {
    let mut small = seal(2, None);
    small.roll_back(5, &[0, 1, 2]);
    small.set(3, &[3]);
    let mut small = small.restart(EVERYTHING);
    assert_eq!(small.values(4), [0, 0, 0, 3]);
    small.set(7, &[0, 1, 2]);
    assert_eq!(small.restart(NOTHING).values(4), [7, 7, 7, 3]);
}

#[test]
fn identifiers_go_on_above_all_that_are_on_flash() {
    let mut small = seal(2, None);
    let aborted = small.open(5, &[0, 1, 2]);
    small.abort(aborted);
    let mut small = small.restart(EVERYTHING);
    assert!(small.begin() > aborted);
}

#[test]
fn the_order_of_the_commits_decides() {
    for seals in [0, 60] {
        let mut small = seal(2, None);
        let (first, second) = (small.open(1, &[0, 1]), small.open(2, &[0, 2]));
        small.write(first, 3, 1);
        small.commit(second);
        small.commit(first);
        small.fill(seals);
        assert_eq!(small.values(4), [1, 1, 2, 1]);
        assert_eq!(small.restart(NOTHING).values(4), [1, 1, 2, 1]);
    }
}

#[test]
fn of_two_versions_in_one_transaction_the_later_counts() {
    for seals in [0, 60] {
        let mut small = seal(2, None);
        let tx = small.begin();
        for (at, value) in [(0, 1), (1, 1), (0, 2), (2, 1), (0, 3), (1, 2)] {
            small.write(tx, at, value);
        }
        assert_eq!(small.value_in(Some(tx), 0), 3);
        small.commit(tx);
        small.check();
        small.fill(seals);
        assert_eq!(small.restart(NOTHING).values(3), [3, 2, 1]);
    }
}

/// Overwrites a few pages in one transaction, many times the capacity of the device. Returns the
/// device and the transaction.
fn overwrites_itself(kind: Kind, linger: u32, mistake: Option<Mistake>) -> (Small, TxId) {
    let mut small = Small::new(kind, lingering(linger, mistake));
    small.set(1, &[0, 1, 2, 3]);
    let pages = small.device().geometry().pages();
    let tx = small.begin();
    for n in 0..3 * pages {
        let written = small.try_write(tx, n % 5, (n % 200) as u8 + 2);
        assert_eq!(written, Ok(()), "{kind}, write {n} of {pages} pages");
    }
    for at in 0..5 {
        small.write(tx, at, at as u8 + 100);
    }
    small.check();
    (small, tx)
}

#[test]
fn versions_that_a_live_transaction_has_overwritten_are_collected() {
    for kind in [Kind::Seal, Kind::SealR] {
        for linger in [0, 2] {
            for dice in [NOTHING, EVERYTHING] {
                let (mut small, tx) = overwrites_itself(kind, linger, None);
                assert_eq!(small.values(5), [1, 1, 1, 1, 0], "{kind}");
                small.commit(tx);
                let mut small = small.restart(dice);
                assert_eq!(small.values(5), [100, 101, 102, 103, 104], "{kind}");
                small.fill(60);
                assert_eq!(
                    small.restart(dice).values(4),
                    [100, 101, 102, 103],
                    "{kind}"
                );
                let (mut small, tx) = overwrites_itself(kind, linger, None);
                small.abort(tx);
                assert_eq!(small.restart(dice).values(5), [1, 1, 1, 1, 0], "{kind}");
                let (small, _) = overwrites_itself(kind, linger, None);
                assert_eq!(small.restart(dice).values(5), [1, 1, 1, 1, 0], "{kind}");
            }
        }
    }
}

/// Fails if the erase of such a block is not noticed: another page of its transaction would lose
/// its evidence.
#[test]
fn a_block_of_overwritten_versions_speaks_for_its_transaction() {
    for (before, after) in (0..8).flat_map(|before| (0..8).map(move |after| (before, after))) {
        let mut small = seal(2, None);
        let tx = small.open(1, &[0, 1]);
        small.fill(before);
        small.write(tx, 0, 2);
        small.fill(after);
        small.write(tx, 1, 2);
        small.write(tx, 2, 2);
        small.commit(tx);
        small.check();
        for _ in 0..6 {
            small.fill(2);
            small.check();
        }
        let now = small.now;
        for block in small.device().ftl().blocks().for_data() {
            if small.device().ftl().blocks().state(block) == BlockState::Full {
                let done = small.device().collect(now, block);
                assert!(done.expect("it can be collected").is_some());
                small.check();
            }
        }
        let mut small = small.restart(EVERYTHING);
        assert_eq!(small.values(3), [2, 2, 2], "{before} {after}");
    }
}

#[test]
fn a_trim_is_a_page_of_its_transaction() {
    let mut small = seal(2, None);
    small.set(1, &[0, 1, 2]);
    let aborted = small.begin();
    small.trim(aborted, 0);
    small.write(aborted, 1, 9);
    small.abort(aborted);
    let tx = small.begin();
    small.trim(tx, 2);
    small.write(tx, 1, 2);
    small.commit(tx);
    for _ in 0..2 {
        let mut again = small.restart(NOTHING);
        assert_eq!(again.values(3), [1, 2, 0]);
        again.fill(30);
        small = again;
    }
}

#[test]
fn blocks_wait_for_their_transactions_and_then_say_everything() {
    let mut small = seal(2, None);
    let tx = small.open(1, &[0, 1]);
    small.fill(9);
    let closing = small.device().ftl().writer().closing().len();
    assert!(closing > 0, "a full block waits for {tx}");
    small.commit(tx);
    small.fill(20);
    assert_eq!(small.memory("evidence"), 0);
    let open = small.memory("waiting_blocks");
    assert!(open < 200, "{open} bytes for blocks that are sealed");
    assert_eq!(small.restart(NOTHING).values(2), [1, 1]);
}

/// Two pages of a transaction in two blocks that were sealed before it ended, and a third one in a
/// block without a summary; then the first is overwritten and its block is collected. Returns the
/// contents of the second page after a restart, and the number of roots written.
fn counted_page_is_erased(mistake: Option<Mistake>) -> (u8, u64) {
    let mut small = seal(0, mistake);
    let tx = small.open(1, &[0, 1]);
    small.fill(9);
    small.write(tx, 2, 1);
    small.commit(tx);
    let block = {
        let first = small.block_of(0);
        assert_eq!(small.device().ftl().blocks().state(first), BlockState::Full);
        assert_ne!(first, small.block_of(2));
        first
    };
    small.set(2, &[0]);
    let roots = |small: &mut Small| {
        let stats = small.device().stats();
        stats.count(Operation::Program, Cause::Mapping) - stats.summaries
    };
    let before = roots(&mut small);
    small.collect(block);
    let roots = roots(&mut small) - before;
    let mut small = small.restart(EVERYTHING);
    (small.value(2), roots)
}

#[test]
fn a_transaction_is_listed_before_a_page_is_erased_that_was_counted() {
    assert_eq!(counted_page_is_erased(None), (1, 1));
    for mistake in [Mistake::EvidenceDropped, Mistake::CountDropped] {
        assert_eq!(counted_page_is_erased(Some(mistake)).0, 0, "{mistake:?}");
    }
}

#[test]
fn what_a_root_lists_outlives_restarts_until_nothing_needs_it() {
    let mut small = seal(0, None);
    let tx = small.open(1, &[0, 1]);
    small.fill(9);
    small.write(tx, 2, 1);
    small.commit(tx);
    let block = small.block_of(0);
    small.set(2, &[0]);
    small.collect(block);
    for _ in 0..3 {
        small = small.restart(EVERYTHING);
        assert_eq!(small.values(3), [2, 1, 1]);
    }
    small.churn(0..PAGES / 2, |device| {
        let evidence = device
            .memory()
            .into_iter()
            .find(|(name, _)| *name == "evidence");
        evidence.is_some_and(|(_, bytes)| bytes == 0)
    });
}

/// Blocks with pages of a transaction are sealed before it ends, and two after a root has listed
/// it. Fails if one of these two, whose summaries have a verdict as well, replaces the root as
/// evidence: then its erase would require another root.
#[test]
fn what_a_root_lists_is_not_listed_again_for_a_summary_that_says_the_same() {
    let mut small = seal(0, None);
    let tx = small.open(1, &[0]);
    small.write(tx, 1, 1);
    small.fill(9);
    small.write(tx, 2, 1);
    small.write(tx, 3, 1);
    small.fill(5);
    small.write(tx, 4, 1);
    small.commit(tx);
    let [first, third, last] = [0, 3, 4].map(|at| small.block_of(at));
    assert!(first != third && third != last && first != last);
    let roots = |small: &mut Small| {
        let stats = small.device().stats();
        stats.count(Operation::Program, Cause::Mapping) - stats.summaries
    };
    let collect = |small: &mut Small, block| {
        assert_eq!(small.device().ftl().blocks().state(block), BlockState::Full);
        let before = roots(small);
        small.collect(block);
        roots(small) - before
    };
    small.set(2, &[0]);
    let listed = collect(&mut small, first);
    small.fill(9);
    small.set(2, &[3, 4]);
    let erased = [last, third].map(|block| collect(&mut small, block));
    assert_eq!((listed, erased), (1, [0, 0]));
    let mut small = small.restart(NOTHING);
    assert_eq!(small.values(5), [2, 1, 1, 2, 2]);
}

#[test]
fn a_copy_of_a_committed_page_needs_its_transaction_no_more() {
    let mut small = seal(2, None);
    small.set(1, &[0, 1, 2]);
    small.fill(20);
    for at in 0..3 {
        let block = small.block_of(at);
        if small.device().ftl().blocks().state(block) == BlockState::Full {
            small.collect(block);
        }
    }
    small.set(2, &[1]);
    assert_eq!(small.restart(NOTHING).values(3), [1, 2, 1]);
}

#[test]
fn pages_of_a_live_transaction_can_be_collected() {
    for (mistake, holds) in [(None, true), (Some(Mistake::LiveResolved), false)] {
        for commits in [true, false] {
            let mut small = seal(0, mistake);
            small.set(1, &[0, 1, 2]);
            let tx = small.open(2, &[0, 1, 0, 2]);
            small.fill(9);
            let now = small.now;
            let device = small.device();
            let blocks: Vec<Pbn> = device.ftl().blocks().for_data();
            let mut collected = 0;
            for block in blocks {
                let ftl = device.ftl();
                if ftl.blocks().state(block) == BlockState::Full && ftl.blocks().live_in(block) > 0
                {
                    let done = device.collect(now, block);
                    assert!(done.expect("it can be collected").is_some());
                    collected += 1;
                }
            }
            assert!(collected > 1);
            if commits {
                small.commit(tx)
            } else {
                small.abort(tx)
            }
            let mut small = small.restart(EVERYTHING);
            let right = if commits { [2, 2, 2] } else { [1, 1, 1] };
            assert_eq!(small.values(3) == right, holds, "{mistake:?} {commits}");
        }
    }
}

/// Many transactions of two pages, each with a page that later ones do not overwrite, on a device
/// that seals its blocks at once: most pages stay undecided. Returns the maximum number of blocks
/// that needed evidence, and the number of collections.
fn undecided_of_many(kind: Kind, undecided: u32) -> (usize, u64) {
    let options = Options::default()
        .with("linger", 0)
        .with("undecided", undecided);
    let mut small = Small::new(kind, options);
    let mut most = 0;
    for n in 0..400u32 {
        let tx = small.open((n % 200) as u8, &[n % PAGES]);
        small.put(&[(FILLER, 99)]);
        small.write(tx, (n + PAGES / 2) % PAGES, 1);
        small.commit(tx);
        most = most.max(small.memory("evidence"));
    }
    small.check();
    let collections = small.device().stats().collections;
    let before = small.values(PAGES);
    let mut small = small.restart(NOTHING);
    assert_eq!(small.values(PAGES), before, "{kind} {undecided}");
    (most as usize, collections)
}

#[test]
fn blocks_without_the_last_word_do_not_pile_up() {
    let (unbounded, few) = undecided_of_many(Kind::Seal, 1 << 20);
    let (bounded, more) = undecided_of_many(Kind::Seal, 4);
    assert!(bounded * 2 < unbounded, "{bounded} of {unbounded} bytes");
    assert!(
        more > few,
        "{more} collections, and {few} without the bound"
    );
}

/// Runs transactions with pages in several blocks that are sealed before they end, and then many of
/// one page. Returns the blocks that still hold their pages, and the collections.
fn after_long_ones(transactions: u32, undecided: u32) -> (Vec<Pbn>, u64) {
    let options = Options::default().with("linger", 0);
    let mut small = Small::new(Kind::Seal, options.with("undecided", undecided));
    let long = PAGES - FILLER;
    let each = long / transactions;
    for first in (0..long).step_by(each as usize) {
        let at = |page| page + if page < FILLER { 0 } else { 5 };
        let pages: Vec<u32> = (first..(first + each).min(long)).map(at).collect();
        let tx = small.open(7, &pages);
        small.commit(tx);
    }
    small.fill(40);
    small.check();
    let blocks = (0..FILLER).map(|at| small.block_of(at)).collect();
    let collections = small.device().stats().collections;
    let values = small.values(PAGES);
    assert_eq!(small.restart(NOTHING).values(PAGES), values);
    (blocks, collections)
}

#[test]
fn blocks_that_one_transaction_has_filled_are_left_alone() {
    const UNBOUNDED: u32 = 1 << 20;
    let alone = after_long_ones(1, 1);
    assert_eq!(alone, after_long_ones(1, UNBOUNDED));
    // Several such transactions exceed this bound.
    let (of_four, free) = (after_long_ones(4, 1), after_long_ones(4, UNBOUNDED));
    assert!(
        of_four.1 > free.1,
        "{of_four:?}, without the bound {free:?}"
    );
}

#[test]
fn a_transaction_that_finds_the_device_full_leaves_nothing_behind() {
    for kind in [Kind::Seal, Kind::SealR] {
        assert!(Small::gives_up_cleanly(kind, &Options::default()), "{kind}");
    }
}

/// A device on which one long transaction and many of one page alternate until it is full: both
/// have pages in all blocks.
fn filled_in_turns(kind: Kind) -> (Small, TxId) {
    let geometry = Geometry {
        channels: 1,
        ..small::GEOMETRY
    };
    let mut config = Config::small(geometry.pages(), None);
    config.thin = true;
    let mut small = Small::on(small::chip(geometry), config, kind, Options::default());
    let long = small.begin();
    for at in 0..geometry.pages() / 2 {
        let is_taken = small.try_put(&[(at, 1)]).is_ok()
            && small.try_write(long, geometry.pages() / 2 + at, 2).is_ok();
        if !is_taken {
            return (small, long);
        }
    }
    panic!("{kind} is not full");
}

#[test]
fn a_device_takes_writes_again_once_the_transaction_that_filled_it_is_rolled_back() {
    for kind in [Kind::Seal, Kind::SealR] {
        let (mut small, long) = filled_in_turns(kind);
        small.abort(long);
        for at in 0..100 {
            assert_eq!(small.try_put(&[(at, 3)]), Ok(()), "{kind}, page {at}");
        }
        small.check();
        assert_eq!(small.restart(NOTHING).values(100), [3; 100], "{kind}");
    }
}

/// The number of pages that a restart reads after a long history, and the contents it finds.
fn restart_after(kind: Kind, transactions: u32) -> (u64, Vec<u8>) {
    let mut small = Small::new(kind, Options::default().with("linger", 2));
    for n in 0..transactions {
        let at = n * 7 % 30;
        let tx = small.open((n % 200) as u8, &[at, at + 30, at + 60]);
        match n % 5 {
            0 => small.abort(tx),
            _ => small.commit(tx),
        }
    }
    small.check();
    let before = small.values(PAGES);
    let mut small = small.restart(NOTHING);
    assert_eq!(small.values(PAGES), before, "{kind}");
    (small.count(Operation::Read, Cause::Recovery), before)
}

#[test]
fn a_bounded_restart_reads_what_was_announced_and_finds_the_same() {
    for transactions in [1, 40, 400] {
        let (all, found) = restart_after(Kind::Seal, transactions);
        let (few, as_well) = restart_after(Kind::SealR, transactions);
        assert_eq!(found, as_well);
        assert!(few < all, "{few} of {all} pages after {transactions}");
    }
}
