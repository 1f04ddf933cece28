//! CFC's recovery table and its departures, case by case.
//!
//! Codes       D1, D2, D3, D4, D6, @A, @B, @C of [`cfc`]

use crate::laid::{Laid, Three, bench, churn, laid, link_to, page_flags, shapes};
use crate::small_device::{EVERYTHING, Small, below};
use flagstone::cases::{Case, cases, prove, rows_that_differ};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Cause, Config, Operation};
use flagstone::nand::{Geometry, small};
use flagstone::units::{Nanos, Pbn};

/// The flags on flash.
const FALSE: u8 = 0xff;
const TRUE: u8 = 0x00;

/// A transaction with two heads: page 0 alone, and page 2 linked to page 1.
fn two_heads(flags: [u8; 2]) -> [Laid; 3] {
    let page = |at, lpn, seq, link, flag| Laid {
        at,
        lpn,
        xid: 5,
        seq,
        link,
        flag,
    };
    let first = page((10, 0), 0, 20, None, flags[0]);
    let second = page((11, 0), 1, 21, None, FALSE);
    let third = page((11, 1), 2, 22, link_to(second), flags[1]);
    [first, second, third]
}

/// The table in the header of the protocol. The verdict is whether the transaction counts.
const TABLE: [Case<Three, bool>; 3] = cases! { |facts|
    "@A": !heads(facts).contains(&true) => false;
    "@B": !heads(facts).contains(&false) => true;
    "@C": heads(facts).contains(&true) && heads(facts).contains(&false) => false;
};

/// All transactions that satisfy invariant 4: no two pages link to the same one.
fn all() -> Vec<Three> {
    let mut links = shapes();
    links.retain(|[_, second, third]| second.is_none() || second != third);
    Three::all(&links, &[FALSE, TRUE])
}

/// Whether each head is TRUE. Heads: pages without an incoming link, or the only cluster.
fn heads(facts: &Three) -> Vec<bool> {
    if facts.is_cluster() {
        return vec![facts.flags.contains(&TRUE)];
    }
    let is_head = |page: &usize| !facts.links.contains(&Some(*page));
    let heads = (0..3).filter(is_head);
    heads.map(|page| facts.flags[page] == TRUE).collect()
}

#[test]
fn every_row_of_the_recovery_table() {
    prove(&TABLE, &all(), |facts| {
        let counting = facts.counting(Kind::Cfc);
        assert!(counting.iter().all(|&counts| counts == counting[0]));
        counting[0]
    });
}

#[test]
fn one_true_head_is_not_enough() {
    let one_head = |facts: &Three| heads(facts).contains(&true);
    assert_eq!(rows_that_differ(&TABLE, &all(), one_head), ["@C"]);
}

#[test]
fn with_block_flags_any_page_of_a_cluster_speaks_for_all() {
    // In block 11 the older of two pages is TRUE; the other one links to it.
    let mut pages = two_heads([TRUE, FALSE]);
    pages[1].flag = TRUE;
    let mut bench = laid(Kind::Cfc, Options::default(), &pages);
    assert_eq!(bench.values(3), [20, 21, 22]);
    let mut bench = laid(Kind::Cfc, page_flags(false), &pages);
    assert_eq!(
        bench.values(3),
        [0, 0, 0],
        "page 2 is a FALSE head of its own"
    );
}

#[test]
fn d1_a_link_to_what_was_written_there_since_leads_nowhere() {
    // The target of transaction 5's link is gone; transaction 6, in progress, wrote there.
    let gone = two_heads([TRUE, TRUE])[0];
    let foreign = Laid {
        xid: 6,
        seq: 40,
        lpn: 3,
        flag: FALSE,
        ..gone
    };
    let linked = Laid {
        at: (11, 0),
        lpn: 1,
        seq: 21,
        link: link_to(gone),
        ..gone
    };
    let found = |as_published| {
        let options = page_flags(as_published);
        laid(Kind::Cfc, options, &[foreign, linked]).values(4)
    };
    assert_eq!(found(false), [0, 21, 0, 0]);
    assert_eq!(
        found(true),
        [0, 21, 0, 40],
        "it commits what never committed"
    );
}

#[test]
fn d2_aborted_pages_stay_aborted_when_they_are_collected() {
    // Page 1 is aborted; the newer page that links to it is erased first.
    for block_flags in [false, true] {
        let mut bench = bench(Kind::Cfc, block_flags, false);
        bench.set(1, &[0, 1, 2]);
        for round in 0..8 {
            let tx = bench.open(50 + round, &[0, 1, 2, 0, 1, 3]);
            bench.abort(tx);
            bench = bench.restart(EVERYTHING);
            churn(&mut bench, &[4, 5], 6);
            assert_eq!(bench.values(4), [1, 1, 1, 0], "round {round}");
        }
    }
}

#[test]
fn d3_a_transaction_cut_between_two_flags_stays_aborted() {
    for flags in [[TRUE, FALSE], [FALSE, TRUE]] {
        let mut bench = laid(Kind::Cfc, page_flags(false), &two_heads(flags));
        for _ in 0..12 {
            churn(&mut bench, &[6, 7, 8], 1);
            bench = bench.restart(EVERYTHING);
            assert_eq!(bench.values(3), [0, 0, 0], "{flags:?}");
        }
    }
}

#[test]
fn d4_a_commit_waits_for_the_erase_of_blocks_that_it_was_moved_out_of() {
    let mut bench = bench(Kind::Cfc, false, false);
    let tx = bench.open(1, &[0, 1, 2]);
    let before = bench.slot(0);
    while bench.slot(0) == before {
        churn(&mut bench, &[4, 5, 6], 1);
    }
    bench.commit(tx);
    let flags = bench.count(Operation::Reprogram, Cause::Commit);
    assert!(flags >= 2, "copies are heads of their own: {flags} flags");
    assert_eq!(bench.restart(EVERYTHING).values(3), [1, 1, 1]);
}

#[test]
fn d6_one_chain_commits_with_its_last_page() {
    for strict_order in [false, true] {
        let mut bench = bench(Kind::Cfc, false, strict_order);
        let start = bench.now;
        bench.set(1, &[0, 1, 2, 0]);
        assert_eq!(bench.count(Operation::Program, Cause::Host), 4);
        assert_eq!(bench.device().stats().total(Operation::Reprogram), 0);
        assert!(bench.now.since(start) >= Nanos::from_micros(4 * 200));
        assert_eq!(bench.restart(EVERYTHING).values(3), [1, 1, 1]);
    }
}

#[test]
fn d6_a_page_in_memory_is_read_replaced_and_dropped() {
    let mut bench = bench(Kind::Cfc, true, false);
    let tx = bench.open(1, &[0, 0, 0]);
    assert_eq!(bench.count(Operation::Program, Cause::Host), 0);
    assert_eq!(bench.value_in(Some(tx), 0), 1);
    assert_eq!(bench.values(1), [0]);
    bench.abort(tx);
    assert_eq!(bench.count(Operation::Program, Cause::Host), 0);
    assert_eq!(bench.restart(EVERYTHING).values(1), [0]);
}

/// D3: on a device of strict order the room runs out between two flags of a commit. Once it is
/// rolled back, no order of collections and restarts may bring its TRUE pages back.
#[test]
fn d3_a_commit_without_room_for_all_of_its_flags_never_comes_back() {
    let (pages, blocks) = (30, 21);
    let chip = small::chip(Geometry {
        channels: 1,
        packages_per_channel: 1,
        blocks_per_plane: blocks,
        pages_per_block: 5,
        strict_order: true,
        ..small::GEOMETRY
    });
    let config = Config::small(pages, None);
    let mut bench = Small::on(chip, config, Kind::Cfc, Options::default());
    let mut right = vec![1; pages as usize];
    for at in 0..pages {
        bench.put(&[(at, 1)]);
    }
    let (mut dice, mut half_flagged) = (7, 0);
    for round in 0..1_000 {
        let value = 2 + (round % 200) as u8;
        let mut wanted = right.clone();
        let tx = bench.begin();
        for _ in 0..below(&mut dice, 3 * pages) {
            let at = below(&mut dice, pages);
            if bench.try_write(tx, at, value).is_ok() {
                wanted[at as usize] = value;
            }
        }
        let carriers = bench.memory("flag_carriers");
        if bench.try_commit(tx).is_ok() {
            right = wanted;
            continue;
        }
        half_flagged += u32::from(bench.memory("flag_carriers") > carriers);
        bench.abort(tx);
        bench.check();
        for _ in 0..below(&mut dice, 60) {
            let (now, block) = (bench.now, Pbn(below(&mut dice, blocks)));
            if let Ok(Some(done)) = bench.device().collect(now, block) {
                bench.now = done;
            }
        }
        bench = bench.restart(EVERYTHING);
        assert_eq!(bench.values(pages), right, "round {round}");
    }
    assert!(half_flagged > 10, "{half_flagged}");
}
