//! SCC and BPCC on a small device: links of aborted transactions, waits before the next version,
//! pages that are written again, and versions that stay.
//!
//! Codes       D1, D2, D3 of [`scc`]
//! Codes       D1, D2 of [`bpcc`]

use crate::layouts::field;
use crate::small_device::{EVERYTHING, Small, form};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Cause, Config, Operation, header};
use flagstone::layout::put;
use flagstone::nand::{Cell, Chip, Flash, Geometry, Timing, small};

const BOTH: [Kind; 2] = [Kind::Scc, Kind::Bpcc];

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    planes_per_package: 2,
    blocks_per_plane: 12,
    pages_per_block: 5,
    cell: Cell::Mlc,
    ..small::GEOMETRY
};

/// A blank device.
fn bench(kind: Kind, as_published: bool) -> Small {
    bench_with(kind, form(as_published))
}

/// Like [`bench`], with options.
fn bench_with(kind: Kind, options: Options) -> Small {
    let config = Config::small(8, Some(2));
    Small::on(small::chip(GEOMETRY), config, kind, options)
}

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
        for _ in 0..=1023 {
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
    // Numbers have 27 bits.
    let end = (1u32 << 26) / 16 * 15;
    for kind in BOTH {
        let mut bench = bench(kind, false);
        bench.set(1, &[0]);
        let mut contents = bench.chip(|chip| chip.contents());
        let page = contents.programs.iter().position(|&n| n > 0);
        let tail = page.expect("one") * contents.spare_kept + header::SIZE;
        let tail = &mut contents.spare[tail..];
        for name in ["NUMBER", "NEXT_NUMBER"] {
            put(tail, field("cyclic::link", name), (end - 4).into());
        }
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

#[test]
fn d3_a_block_that_is_being_written_is_sealed_and_erased() {
    let mut bench = bench(Kind::Scc, false);
    bench.set(1, &[0, 1, 2, 3]);
    bench.roll_back(2, &[0, 1]);
    let collections = bench.device().stats().collections;
    let erases = bench.count(Operation::Erase, Cause::Gc);
    bench.set(3, &[0]);
    let stats = bench.device().stats();
    assert_eq!(stats.collections, collections + 1);
    assert!(stats.count(Operation::Erase, Cause::Gc) > erases);
    bench.check();
    assert_eq!(bench.restart(EVERYTHING).values(4), [3, 1, 1, 1]);
}

#[test]
fn d1_a_number_that_was_named_is_not_given_again_after_a_restart() {
    let mut bench = bench(Kind::Bpcc, false);
    bench.roll_back(1, &[0, 1]);
    let mut bench = bench.restart(EVERYTHING);
    bench.set(2, &[1]);
    assert_eq!(bench.restart(EVERYTHING).values(2), [0, 2]);
}

#[test]
fn a_superseded_version_stays_while_it_straddles_something_on_flash() {
    let live = |bench: &mut Small| bench.device().ftl().blocks().live_pages();
    let mut bench = bench(Kind::Bpcc, false);
    bench.set(1, &[0, 1]);
    bench.roll_back(2, &[0, 1]); // 0.2, which names 1.2
    bench.set(3, &[0]); // 0.3 straddles 0.2
    bench.set(4, &[1]); // 1.3 straddles what 0.2 names
    assert_eq!(live(&mut bench), 2);
    bench.set(5, &[0, 1]);
    assert_eq!(live(&mut bench), 4, "0.3 and 1.3 stay");
    bench.check();
    let mut bench = bench.restart(EVERYTHING);
    assert_eq!(live(&mut bench), 4, "recovery finds out the same");
    assert_eq!(bench.values(2), [5, 5]);
    // The kept versions can be erased once wear levelling has moved the block with 0.2.
    for _ in 0..400 {
        bench.set(6, &[4]);
    }
    bench.check();
    assert_eq!(live(&mut bench), 3);
    assert_eq!(bench.restart(EVERYTHING).values(5), [5, 5, 0, 0, 6]);
}

/// With one set per page, later versions stay until the last of the page's sets is empty.
#[test]
fn with_a_set_for_each_page_all_of_its_later_versions_stay() {
    let live = |bench: &mut Small| bench.device().ftl().blocks().live_pages();
    let naive = Options::default().with("keeps_obsolete", "all");
    let mut bench = bench_with(Kind::Bpcc, naive);
    bench.set(1, &[0, 1]);
    bench.roll_back(2, &[0, 1]); // 0.2, which names 1.2
    bench.set(3, &[0, 1]); // 0.3 and 1.3 straddle these
    assert_eq!(live(&mut bench), 2, "what came before may go");
    for value in 4..7 {
        bench.set(value, &[0, 1]);
    }
    assert_eq!(live(&mut bench), 2 + 6, "0.3 to 0.5, 1.3 to 1.5");
    bench.check();
    let mut bench = bench.restart(EVERYTHING);
    assert_eq!(live(&mut bench), 2 + 6, "recovery finds out the same");
    assert_eq!(bench.values(2), [6, 6]);
    // Until the block with 0.2 has been moved.
    for _ in 0..400 {
        bench.set(7, &[4]);
        bench.check();
    }
    assert_eq!(live(&mut bench), 3);
    assert_eq!(bench.restart(EVERYTHING).values(5), [6, 6, 0, 0, 7]);
}
