//! Tests common to SCC and BPCC, on a small device: links of aborted transactions, waits before the
//! next version, and pages that are written again.

use super::bench::bench;
use super::{AGAIN_MAX, Link, NUMBER_BITS, Version, link};
use crate::commit::small_device::{EVERYTHING, Small};
use crate::commit::{Kind, Options};
use crate::ftl::{Cause, Operation, header};
use crate::layout::{get, put};
use crate::nand::{Chip, Flash, Timing};
use crate::units::Lpn;

const BOTH: [Kind; 2] = [Kind::Scc, Kind::Bpcc];

#[test]
fn d1_a_link_of_an_aborted_transaction_never_finds_what_it_names() {
    for kind in BOTH {
        let story = |as_published| {
            let mut bench = bench(kind, as_published);
            bench.roll_back(1, &[0, 1]); // page 0 is on flash and names page 1, which was kept back
            bench.set(2, &[1]);
            bench.check();
            bench.restart(EVERYTHING).values(2)
        };
        assert_eq!(story(false), [0, 2]);
        assert_eq!(story(true), [1, 2], "page 0 was rolled back");
    }
}

#[test]
fn d2_the_next_version_waits_for_its_predecessor() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        let early = bench.now;
        bench.set(1, &[0, 1]);
        let acknowledged = bench.now;
        assert!(acknowledged > early);
        bench.now = early;
        let tx = bench.open(2, &[0, 2]);
        assert_eq!(
            bench.now, acknowledged,
            "page 0 is programmed as early as that"
        );
        // Not only the first writer waits: its version may be rolled back.
        bench.abort(tx);
        bench.now = early;
        bench.open(3, &[0, 2]);
        assert!(bench.now >= acknowledged);
    }
}

#[test]
fn a_page_that_is_written_again_is_its_last_version_or_none() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        bench.set(1, &[0, 1, 2]);
        let tx = bench.open(2, &[0, 1]);
        for (page, value) in [(0, 3), (2, 3), (1, 4), (0, 5)] {
            bench.write(tx, page, value);
        }
        assert_eq!([0, 1, 2].map(|at| bench.value_in(Some(tx), at)), [5, 4, 3]);
        assert_eq!(bench.values(3), [1; 3]);
        bench.check();
        bench.commit(tx);
        bench.check();
        assert_eq!(bench.values(3), [5, 4, 3]);
        let mut bench = bench.restart(EVERYTHING);
        assert_eq!(bench.values(3), [5, 4, 3]);
        bench.roll_back(6, &[0, 1, 0, 2, 1, 0, 1]);
        bench.check();
        // Also if the blocks of what was rolled back are erased, and the pages are written again.
        for value in 10..40 {
            bench.set(value, &[3]);
        }
        bench.set(7, &[1, 2]);
        assert_eq!(bench.restart(EVERYTHING).values(4), [5, 7, 7, 39]);
    }
}

#[test]
fn the_version_that_is_held_back_is_replaced_in_place() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        let programs = |bench: &mut Small| bench.count(Operation::Program, Cause::Host);
        let before = programs(&mut bench);
        bench.set(1, &[0, 0, 1, 1, 1]);
        assert_eq!(programs(&mut bench) - before, 2);
        assert_eq!(bench.restart(EVERYTHING).values(2), [1, 1]);
    }
}

#[test]
fn a_page_is_written_as_often_as_its_ring_can_count_and_no_more() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        bench.set(1, &[0, 1]);
        let tx = bench.begin();
        for _ in 0..=AGAIN_MAX {
            bench.write(tx, 0, 2);
            bench.write(tx, 1, 2);
        }
        let refused = bench.try_write(tx, 0, 3).expect_err("it cannot be counted");
        assert!(refused.to_string().contains("1024 times"), "{refused}");
        bench.commit(tx);
        bench.check();
        assert_eq!(bench.restart(EVERYTHING).values(2), [2, 2]);
    }
}

/// A device from before pages could be written again has zeros in the place of the count.
#[test]
fn a_link_is_what_was_written() {
    for (number, again, next) in [(1, 0, 7), (9, 31, 8), (3, 32, 1), ((1 << 27) - 1, 1023, 5)] {
        let next = Version {
            page: Lpn(u32::MAX),
            number: next,
        };
        let link = Link {
            number,
            again,
            next,
        };
        let mut tail = [0; link::SIZE];
        link.put(&mut tail);
        assert_eq!(Link::get(&tail), link);
        assert_eq!(
            again == 0,
            get(&tail, link::NUMBER) == u64::from(number) && again < 32
        );
    }
}

#[test]
fn own_writes_are_read_before_the_commit_and_trims_last() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        bench.set(1, &[0, 1]);
        let tx = bench.open(2, &[0, 1]);
        assert_eq!([0, 1].map(|page| bench.value_in(Some(tx), page)), [2, 2]);
        assert_eq!(bench.values(2), [1, 1]);
        bench.commit(tx);
        let tx = bench.begin();
        bench.trim(tx, 1);
        bench.commit(tx);
        assert_eq!(bench.values(2), [2, 0]);
        assert_eq!(bench.restart(EVERYTHING).values(2), [2, 0]);
    }
}

/// A version of page 0 on flash with a number near the maximum, which links to itself.
#[test]
fn a_page_whose_numbers_are_near_their_end_is_written_no_more() {
    let end = (1u32 << (NUMBER_BITS - 1)) / 16 * 15;
    for kind in BOTH {
        let mut bench = bench(kind, false);
        bench.set(1, &[0]);
        let mut contents = bench.chip(|chip| chip.contents());
        let page = contents.programs.iter().position(|&n| n > 0);
        let tail = page.expect("one") * contents.spare_kept + header::SIZE;
        let tail = &mut contents.spare[tail..];
        put(tail, link::NUMBER, (end - 4).into());
        put(tail, link::NEXT_NUMBER, (end - 4).into());
        let geometry = bench.chip(|chip| *chip.geometry());
        let chip = Chip::with_contents(geometry, Timing::default(), contents).expect("they fit");
        let config = *bench.device().ftl().config();
        let mut bench = Small::on(chip, config, kind, Options::default());
        assert_eq!(bench.value(0), 1);
        for value in 2..5 {
            bench.set(value, &[0]);
        }
        let tx = bench.begin();
        let refused = bench.try_write(tx, 0, 9).expect_err("it is spent");
        assert!(refused.to_string().contains("version"), "{refused}");
        bench.write(tx, 1, 9);
        bench.commit(tx);
        assert_eq!(bench.restart(EVERYTHING).values(2), [4, 9]);
    }
}
