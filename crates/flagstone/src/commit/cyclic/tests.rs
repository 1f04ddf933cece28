//! Tests common to SCC and BPCC, on a small device: links of aborted transactions, and waits before
//! the next version.

use super::bench::bench;
use super::link;
use crate::commit::small_device::{EVERYTHING, Small};
use crate::commit::{DeviceError, Kind, Options};
use crate::ftl::header;
use crate::layout::put;
use crate::nand::{Chip, Flash, Timing};

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
fn a_page_is_taken_once_in_a_transaction() {
    for kind in BOTH {
        let mut bench = bench(kind, false);
        let refused = bench.try_open(1, &[0, 1, 0]);
        assert!(matches!(refused, Err(DeviceError::WrittenTwice { .. })));
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
    let end = (1u32 << 31) / 16 * 15;
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
