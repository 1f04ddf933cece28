//! AFC's recovery table and its departures, case by case.
//!
//! Codes       D1, D3, D4, D5, D8, @A, @B of [`afc`]

use crate::laid::{Laid, Three, bench, churn, laid, link_to, page_flags, shapes};
use crate::small_device::EVERYTHING;
use flagstone::cases::{Case, cases, prove, rows_that_differ};
use flagstone::commit::Kind;
use flagstone::ftl::{Cause, Operation};
use flagstone::units::{Lpn, Nanos, Pbn};

/// The flag of the first page of a transaction until it commits.
const FALSE_AT_FIRST: u8 = 0xff;
const TRUE: u8 = 0xf0;
/// The flag of a page of an aborted transaction.
const FALSE: u8 = 0x00;

/// A transaction of three pages, each linked to the one before.
fn chain(flags: [u8; 3]) -> [Laid; 3] {
    let first = Laid {
        at: (10, 0),
        lpn: 0,
        xid: 5,
        seq: 20,
        link: None,
        flag: flags[0],
    };
    let second = Laid {
        at: (11, 0),
        lpn: 1,
        seq: 21,
        link: link_to(first),
        flag: flags[1],
        ..first
    };
    let third = Laid {
        at: (12, 0),
        lpn: 2,
        seq: 22,
        link: link_to(second),
        flag: flags[2],
        ..first
    };
    [first, second, third]
}

/// One page of a transaction of three.
#[derive(Debug)]
struct Facts {
    of: Three,
    page: usize,
}

/// The table in the header of the protocol. The verdict is whether the page counts.
const TABLE: [Case<Facts, bool>; 2] = cases! { |facts|
    "@A": facts.part().iter().all(|&flag| flag == TRUE) => true;
    "@B": facts.part().iter().any(|&flag| flag != TRUE) => false;
};

impl Facts {
    fn all() -> Vec<Facts> {
        let all = Three::all(&shapes(), &[FALSE_AT_FIRST, TRUE, FALSE]);
        let pages = |of: Three| (0..3).map(move |page| Facts { of, page });
        all.into_iter().flat_map(pages).collect()
    }

    /// The flags of the pages in the same part.
    fn part(&self) -> Vec<u8> {
        let mut part = [0, 1, 2];
        for (from, to) in self.of.links.iter().enumerate() {
            if let Some(to) = *to {
                let (from, to) = (part[from], part[to]);
                part = part.map(|other| if other == from { to } else { other });
            }
        }
        if self.of.is_cluster() {
            part = [0; 3];
        }
        let of_part = (0..3).filter(|&page| part[page] == part[self.page]);
        of_part.map(|page| self.of.flags[page]).collect()
    }

    fn counts(&self) -> bool {
        self.of.counting(Kind::Afc)[self.page]
    }
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &Facts::all(), Facts::counts);
}

#[test]
fn the_flag_of_the_page_itself_is_not_enough() {
    let own_flag = |facts: &Facts| facts.of.flags[facts.page] == TRUE;
    assert_eq!(rows_that_differ(&TABLE, &Facts::all(), own_flag), ["@B"]);
}

#[test]
fn a_chain_whose_target_is_gone_ends_there() {
    let [_, second, third] = chain([FALSE_AT_FIRST, TRUE, TRUE]);
    let mut bench = laid(Kind::Afc, page_flags(false), &[second, third]);
    assert_eq!(bench.values(3), [0, 21, 22]);
}

#[test]
fn d1_a_link_to_what_was_written_there_since_leads_nowhere() {
    let [gone, second, third] = chain([TRUE; 3]);
    let foreign = Laid {
        lpn: 3,
        xid: 6,
        seq: 40,
        flag: FALSE_AT_FIRST,
        ..gone
    };
    let found = |as_published| {
        let options = page_flags(as_published);
        laid(Kind::Afc, options, &[foreign, second, third]).values(4)
    };
    assert_eq!(found(false), [0, 21, 22, 0]);
    assert_eq!(found(true), [0; 4], "another's flag undoes a commit");
}

#[test]
fn d3_pages_in_progress_are_not_moved() {
    let mut bench = bench(Kind::Afc, true, false);
    let tx = bench.open(1, &[0, 1]);
    let before = [0, 1].map(|page| bench.slot(page));
    churn(&mut bench, &[4, 5, 6], 40);
    let after = [0, 1].map(|page| bench.slot(page));
    assert_eq!(before, after);
    bench.commit(tx);
    assert_eq!(bench.count(Operation::Reprogram, Cause::Gc), 0);
    assert_eq!(bench.restart(EVERYTHING).values(2), [1, 1]);
}

#[test]
fn d4_a_page_waits_for_the_first_and_the_flag_for_all() {
    let mut bench = bench(Kind::Afc, false, false);
    bench.set(9, &[7]);
    let start = bench.now;
    bench.set(1, &[0, 1]);
    assert_eq!(bench.now.since(start), Nanos::from_micros(2 * 200 + 200));
    assert_eq!(bench.count(Operation::Reprogram, Cause::Commit), 2);
    assert_eq!(bench.restart(EVERYTHING).values(2), [1, 1]);
}

#[test]
fn d4_further_pages_wait_for_the_first_only_also_if_they_are_issued_before_it_is_durable() {
    let mut bench = bench(Kind::Afc, false, false);
    let now = bench.now;
    let tx = bench.device().begin(now).expect("it begins");
    let taken = [0, 1, 2].map(|at| {
        let write = bench.device().write(now, tx, Lpn(at), &[1]);
        write.expect("it is taken").next
    });
    assert!(
        taken[0] == now && taken[1] > now && taken[2] == taken[1],
        "{taken:?}"
    );
}

#[test]
fn d5_every_part_of_an_aborted_chain_keeps_a_false_flag() {
    for (block_flags, strict_order) in [(false, false), (true, false), (true, true)] {
        let mut bench = bench(Kind::Afc, block_flags, strict_order);
        bench.set(1, &[0, 1, 2, 3]);
        for round in 0..10 {
            // The pages of the aborted transaction are spread over many blocks.
            let tx = bench.open(50 + round, &[0]);
            for page in [1, 2, 3, 0, 1] {
                churn(&mut bench, &[5, 6], 1);
                bench.write(tx, page, 50 + round);
            }
            bench.abort(tx);
            churn(&mut bench, &[5, 6, 7], 4);
            bench = bench.restart(EVERYTHING);
            assert_eq!(bench.values(4), [1; 4], "round {round}");
        }
    }
}

/// A transaction that is larger than the collector's reserve leaves a star behind when it is rolled
/// back: all pages link to the first. The erase of the first would cost a carrier for each.
#[test]
fn d8_a_chain_with_more_ends_than_there_is_room_for_carriers_is_collected_from_its_ends() {
    for pages in [24, 48, 72] {
        let mut bench = bench(Kind::Afc, false, true);
        bench.set(1, &[0, 1, 2, 3]);
        let large: Vec<u32> = (0..pages).map(|write| write % 4).collect();
        let tx = bench.open(200, &large);
        bench.abort(tx);
        for round in 2..60 {
            bench.set(round, &[0, 1, 2, 3]);
            if round % 10 == 0 {
                bench = bench.restart(EVERYTHING);
            }
            assert_eq!(bench.values(4), [round; 4], "{pages} pages");
        }
    }
}

/// A cut can tear a FALSE flag, which then needs a carrier, and undo the erases of all free blocks.
/// The block whose erase needs that flag must not keep the collector from the others.
#[test]
fn d8_a_block_without_room_for_its_carriers_waits_for_the_others() {
    const TORN: u8 = 0x70;
    let blocks = bench(Kind::Afc, false, false)
        .device()
        .ftl()
        .blocks()
        .for_data();
    let alone = |(seq, block): (u64, &Pbn)| Laid {
        at: (block.0, 0),
        lpn: 0,
        xid: seq,
        seq,
        link: None,
        flag: FALSE_AT_FIRST,
    };
    let mut pages: Vec<Laid> = (20..).zip(&blocks).map(alone).collect();
    pages[1] = Laid {
        xid: pages[0].xid,
        link: link_to(pages[0]),
        flag: TORN,
        ..pages[1]
    };
    let mut bench = laid(Kind::Afc, page_flags(false), &pages);
    assert_eq!(bench.device().ftl().blocks().free_blocks(), 0);
    bench.set(1, &[0]);
    let stats = bench.device().stats();
    let erases = stats.count(Operation::Erase, Cause::Gc);
    assert_eq!(
        stats.collections, erases,
        "a block that waits is not collected"
    );
    assert_eq!(bench.restart(EVERYTHING).values(1), [1]);
}

#[test]
fn aborts_cost_reprograms_and_commits_cost_none_when_they_are_collected() {
    let reprograms = |aborts: bool| {
        let mut bench = bench(Kind::Afc, false, false);
        for _ in 0..60 {
            let tx = bench.open(1, &[0, 1, 2, 3, 4, 5]);
            if aborts {
                bench.abort(tx);
            } else {
                bench.commit(tx);
            }
        }
        assert!(bench.device().stats().collections > 10);
        bench.count(Operation::Reprogram, Cause::Gc)
    };
    assert_eq!(reprograms(false), 0);
    assert!(reprograms(true) > 10);
}
