//! Atomic-Write and MHL-M: what a commit costs, groups that are longer than a page, full logs, and
//! the order of several logs.
//!
//! Codes       D2, D4 of [`aw`]
//! Codes       D5 of [`mhl_m`]

use crate::small_device::{EVERYTHING, NOTHING, PAGES, Small, form};
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::nand::Cut;
use flagstone::units::Lpn;

const BOTH: [Kind; 2] = [Kind::Aw, Kind::MhlM];
/// Entries per page of the small device.
const ENTRIES: u32 = 16;

fn small(kind: Kind) -> Small {
    Small::new(kind, Options::default())
}

#[test]
fn a_commit_costs_one_log_page() {
    for kind in BOTH {
        let mut small = small(kind);
        for i in 0..20 {
            small.put(&[(i, 1), (i + 1, 1), (i + 2, 1)]);
        }
        let tx = small.begin();
        small.write(tx, 0, 2);
        small.abort(tx);
        let tx = small.begin();
        small.commit(tx);
        let stats = small.device().stats();
        assert_eq!(stats.collections, 0, "copies would be logged as well");
        assert_eq!(stats.count(Operation::Program, Cause::Log), 20);
    }
}

#[test]
fn the_pages_that_a_collection_moved_cost_one_log_page() {
    for kind in BOTH {
        let mut small = small(kind);
        for at in 0..PAGES {
            small.put(&[(at, 1)]);
        }
        let logged = |device: &Device| device.stats().count(Operation::Program, Cause::Log);
        small.churn(0..PAGES, |device| logged(device) >= 400);
        small.check();
        let commits = small.device().request_stats().committed;
        let stats = small.device().stats();
        let (moved, collections) = (stats.relocated, stats.collections);
        let of_copies = stats.count(Operation::Program, Cause::Log) - commits;
        assert!(
            (1..=collections).contains(&of_copies) && moved > of_copies,
            "{of_copies} log pages for {moved} pages out of {collections} blocks"
        );
    }
}

#[test]
fn a_group_of_several_pages_counts_as_a_whole_at_any_cut() {
    for kind in BOTH {
        let pages = |value: u8| {
            (0..ENTRIES + 3)
                .map(move |at| (at, value))
                .collect::<Vec<_>>()
        };
        let (mut at, mut whole) = (0, 0);
        loop {
            let mut fell = true;
            for dice in 0..12 {
                let mut small = small(kind);
                small.put(&pages(1));
                let mut small = small.arm(Cut {
                    at,
                    dice,
                    torn: dice % 3 == 1,
                });
                // Pages are programmed at once, and the first commits open blocks of the logs.
                let now = small.now;
                let ahead = small.device().erase_ahead(now).map(|done| small.now = done);
                let opened = ahead.and_then(|()| small.try_put(&[(50, 1)]));
                let opened = opened.and_then(|()| small.try_put(&[(51, 1)]));
                fell = opened.and_then(|()| small.try_put(&pages(2))).is_err();
                let mut small = small.restart(EVERYTHING);
                let first = small.value(0);
                assert!(first == 2 || (first == 1 && fell), "cut {at}, dice {dice}");
                whole += u32::from(fell && first == 2);
                for page in 1..ENTRIES + 3 {
                    assert_eq!(
                        small.value(page),
                        first,
                        "cut {at}, dice {dice}, page {page}"
                    );
                }
            }
            at += 1;
            if !fell {
                break;
            }
        }
        assert!(whole > 0, "some cut finds both pages of the group");
    }
}

#[test]
fn full_logs_start_anew_after_a_checkpoint() {
    for kind in BOTH {
        let mut small = small(kind);
        for round in 1..=3u8 {
            for i in 0..60 {
                small.put(&[(i, round)]);
            }
            small = small.restart(NOTHING);
            assert!((0..60).all(|at| small.value(at) == round));
            small.check();
        }
        for i in 0..120u32 {
            // Long groups reach the end of the logs half-way.
            let value = i as u8 + 10;
            small.put(&(0..2 * ENTRIES).map(|at| (at, value)).collect::<Vec<_>>());
            if i % 7 == 0 {
                small = small.restart(NOTHING);
                assert!((0..2 * ENTRIES).all(|at| small.value(at) == value));
            }
        }
    }
}

#[test]
fn d2_a_trim_is_an_entry_without_a_page() {
    for kind in BOTH {
        let mut small = small(kind);
        small.put(&[(0, 1), (1, 1)]);
        let tx = small.begin();
        small.trim(tx, 0);
        small.write(tx, 1, 2);
        small.trim(tx, 1);
        small.write(tx, 1, 3);
        assert_eq!([0, 1].map(|at| small.value_in(Some(tx), at)), [0, 3]);
        assert_eq!(small.values(2), [1, 1]);
        small.commit(tx);
        assert_eq!(small.restart(NOTHING).values(2), [0, 3]);
    }
}

#[test]
fn aw_takes_one_transaction_at_a_time_and_mhl_m_one_a_head() {
    for (kind, heads) in [(Kind::Aw, 1), (Kind::MhlM, 2), (Kind::MhlM, 3)] {
        let options = Options::default().with("log_heads", heads);
        let mut small = Small::new(kind, options);
        let txs: Vec<_> = (0..heads).map(|_| small.begin()).collect();
        let now = small.now;
        let refused = small.device().begin(now);
        assert!(
            matches!(refused, Err(DeviceError::TooManyLive { limit, .. }) if limit == heads),
            "{refused:?}"
        );
        small.abort(txs[0]);
        small.begin();
    }
}

#[test]
fn d5_groups_in_several_logs_count_in_the_order_of_the_commits() {
    // Heads 0 and 1 in both orders, so that neither the order of the logs nor that of the begins
    // gives the right result by chance.
    for swap in [false, true] {
        let mut small = small(Kind::MhlM);
        let (a, b) = (small.begin(), small.begin());
        let (first, second) = if swap { (b, a) } else { (a, b) };
        small.write(first, 0, 1);
        small.write(second, 0, 2);
        small.commit(first);
        small.commit(second);
        assert_eq!(small.restart(NOTHING).value(0), 2);
    }
}

#[test]
fn d4_a_group_whose_page_never_landed_is_absent_and_the_printed_form_believes_it() {
    // Two pages and their log page are in flight together. Whichever of the three is missing, the
    // repaired form has the old versions.
    for kind in BOTH {
        let mut believed = 0;
        for published in [false, true] {
            for (at, dice) in (0..60).flat_map(|at| (0..40).map(move |dice| (at, dice))) {
                let mut small = Small::new(kind, form(published));
                small.put(&[(0, 1), (1, 1)]);
                let mut small = small.arm(Cut {
                    at,
                    dice,
                    torn: dice % 3 == 1,
                });
                let ended = small.try_put(&[(0, 2), (1, 2)]).is_ok();
                let mut small = small.restart(EVERYTHING);
                let now = small.now;
                let mut value = |at| match small.device().read(now, None, Lpn(at)) {
                    Ok((_, Some(bytes))) if !bytes.is_empty() => bytes[0],
                    _ => 0,
                };
                let found = (value(0), value(1));
                let whole = found == (2, 2) || (found == (1, 1) && !ended);
                assert!(whole || published, "cut {at}, dice {dice}: {found:?}");
                believed += u32::from(!whole);
                if ended {
                    break;
                }
            }
        }
        assert!(
            believed > 0,
            "the printed form never fails: is anything tested?"
        );
    }
}
