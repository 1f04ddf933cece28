//! Trims take few programs, and survive collections and power cuts.

use crate::small_device::{EVERYTHING, FILLER, NOTHING, PAGES, Small, below};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Cause, Operation};

const KINDS: [Kind; 2] = [Kind::Seal, Kind::SealR];

fn with_lists_of(kind: Kind, most: u32) -> Small {
    Small::new(kind, Options::default().with("trims", most))
}

fn programs(small: &mut Small) -> u64 {
    small
        .device()
        .stats()
        .count(Operation::Program, Cause::Host)
}

/// Trims pages in one transaction. Returns the number of programs.
fn trim(small: &mut Small, pages: impl Iterator<Item = u32>) -> u64 {
    let before = programs(small);
    let tx = small.begin();
    pages.for_each(|at| small.trim(tx, at));
    small.commit(tx);
    programs(small) - before
}

/// Fails if each trim takes a page.
#[test]
fn many_trims_take_a_page() {
    for kind in KINDS {
        for (most, pages) in [(0, 1), (1, 40), (2, 20), (13, 4), (40, 1)] {
            let mut small = with_lists_of(kind, most);
            let all: Vec<u32> = (0..40).collect();
            small.set(5, &all);
            assert_eq!(trim(&mut small, 0..40), pages, "{kind}, lists of {most}");
            assert_eq!(small.values(40), [0; 40]);
            let mut small = small.restart(NOTHING);
            assert_eq!(small.values(40), [0; 40]);
            small.set(6, &[3, 7]);
            small.fill(100);
            let values = |small: &mut Small| [2, 3, 7, 8].map(|at| small.value_in(None, at));
            assert_eq!(values(&mut small), [0, 6, 6, 0]);
            assert_eq!(values(&mut small.restart(EVERYTHING)), [0, 6, 6, 0]);
        }
    }
}

/// Fails if trims that share a page cause as many collections of undecided blocks as separate ones.
#[test]
fn trims_of_a_list_collect_as_one_page_does() {
    let options = Options::default()
        .with("linger", 0)
        .with("undecided", 4)
        .with("trims", 200);
    let mut small = Small::new(Kind::Seal, options);
    for n in 0..200u32 {
        let tx = small.open((n % 200) as u8, &[n % PAGES]);
        small.put(&[(FILLER, 99)]);
        small.write(tx, (n + PAGES / 2) % PAGES, 1);
        small.commit(tx);
    }
    let before = small.device().stats().collections;
    trim(&mut small, 0..PAGES / 2);
    let by_trims = small.device().stats().collections - before;
    assert!(by_trims <= 1, "{by_trims} blocks are collected");
    let after: Vec<(u32, u8)> = (0..PAGES / 2).map(|at| (at, 7)).collect();
    small.put(&after);
    let by_writes = small.device().stats().collections - before - by_trims;
    assert!(by_writes > 4, "the control: {by_writes} blocks");
    small.check();
}

#[test]
fn what_a_transaction_did_last_to_a_page_counts() {
    for kind in KINDS {
        for most in [0, 2] {
            let mut small = with_lists_of(kind, most);
            small.set(5, &[0, 1, 2, 3, 4, 5]);
            let tx = small.begin();
            small.write(tx, 0, 6);
            for at in [0, 1, 2, 3, 4, 1] {
                small.trim(tx, at);
            }
            small.write(tx, 1, 7);
            small.write(tx, 2, 7);
            small.trim(tx, 2);
            small.write(tx, 4, 8);
            let right = [0, 7, 0, 0, 8, 5];
            let own: Vec<u8> = (0..6).map(|at| small.value_in(Some(tx), at)).collect();
            assert_eq!(own, right);
            assert_eq!(small.values(6), [5; 6]);
            small.commit(tx);
            assert_eq!(small.values(6), right);
            let mut small = small.restart(NOTHING);
            assert_eq!(small.values(6), right);
            let tx = small.begin();
            (0..6).for_each(|at| small.trim(tx, at));
            small.abort(tx);
            assert_eq!(small.restart(EVERYTHING).values(6), right);
        }
    }
}

/// Fails if a list is dropped or shortened, or names pages that were written since.
#[test]
fn lists_hold_through_collections_restarts_and_tables_at_rest() {
    for seed in 1..24 {
        let mut dice = seed;
        let kind = KINDS[seed as usize % 2];
        let mut small = with_lists_of(kind, [0, 2, 3, 7][seed as usize / 2 % 4]);
        let mut right = vec![0; PAGES as usize];
        for round in 0..120 {
            let tx = small.begin();
            let mut then = right.clone();
            let (first, count) = (below(&mut dice, 40), 1 + below(&mut dice, 12));
            for at in first..first + count {
                match below(&mut dice, 3) {
                    0 => small.write(tx, at, round as u8),
                    _ => small.trim(tx, at),
                }
                then[at as usize] = small.value_in(Some(tx), at);
            }
            if below(&mut dice, 5) == 0 {
                small.abort(tx);
            } else {
                small.commit(tx);
                right = then;
            }
            if round % 16 == 15 {
                small.device().check().expect("the books agree");
                small = small.restart(if round % 32 == 31 {
                    NOTHING
                } else {
                    EVERYTHING
                });
                assert_eq!(small.values(PAGES), right, "seed {seed}, round {round}");
            }
            let now = small.now;
            if round % 24 == 23
                && let Some(tables) = small.device().rest(now).expect("there is no cut")
            {
                small = small.both_ways(tables).1.expect("they are its own");
                assert_eq!(small.values(PAGES), right, "seed {seed}, round {round}");
            }
        }
    }
}
