//! Tests for departures of the lazy-update B+-tree from its paper (D2, D3, D4, D8, D9; others are
//! in `tests.rs` and `examples.rs`), and for a victim that disappears before it is committed.

use super::super::model::figure;
use super::tests::{busy, open_lazy, small};
use super::*;

const START: Nanos = Nanos::ZERO;

/// D4: a dirty leaf is evicted together with its waiting requests, unless it would split.
#[test]
fn a_dirty_leaf_takes_its_requests_along_unless_it_would_split() {
    for (inserted, committed) in [(1, 1.0), (3, 0.0)] {
        let mut index = open_lazy(&small(2), 1 << 10);
        for key in 0..40 {
            index.insert(START, key * 10, 1).expect("room");
            index.flush(START).expect("room");
        }
        // The first leaf has three entries, and is the only dirty page when it is evicted.
        index.insert(START, 0, 2).expect("room");
        index.commit_everything(START).expect("room");
        index.reset_stats();
        for key in 1..=inserted {
            index.insert(START, key, 3).expect("room");
        }
        for key in 10..40 {
            index.get(START, key * 10).expect("pages");
        }
        assert_eq!(figure(&index, "committed_on_eviction"), committed);
        assert_eq!(index.get(START, 1).expect("pages").0, Some(3));
        index.check().expect("a tree and its pool");
    }
}

/// Reading a leaf to choose a victim takes a frame; the evicted dirty leaf may belong to the best
/// victim, whose group is then committed already.
#[test]
fn a_victim_that_was_committed_while_it_was_chosen_is_not_committed_again() {
    // Two frames, and five leaves of three entries under one root.
    let settings = Settings::new()
        .with("order", 2)
        .with("memory", 640)
        .with("pool_share", 0.1);
    let mut index = open_lazy(&settings, 1 << 10);
    for key in 0..14 {
        index.insert(START, key * 10, 1).expect("room");
        index.flush(START).expect("room");
    }
    assert_eq!(index.tree.cache.frames(), 2);
    // The third leaf is dirty, and not used afterwards.
    index.insert(START, 60, 2).expect("room");
    index.commit_everything(START).expect("room");
    index.tree.above.room = Room::Requests(5);
    // Its two requests cost one write; the three of the first leaf would split that, which is only
    // known after reading it, and makes it no better.
    for key in [60, 70] {
        index.update(START, key, 3).expect("room");
    }
    for key in [1, 2, 3] {
        index.insert(START, key, 3).expect("room");
    }
    index.form_groups(START).expect("pages");
    index.reset_stats();
    index.insert(START, 200, 3).expect("room");
    assert_eq!(figure(&index, "committed_on_eviction"), 1.0);
    assert_eq!(figure(&index, "groups_committed"), 1.0);
    index.check().expect("a tree and its pool");
    let waiting = index.tree.above.between(0, Key::MAX);
    let waiting: Vec<Key> = waiting.into_iter().map(|(key, _)| key).collect();
    assert_eq!(waiting, [1, 2, 3, 200]);
    assert_eq!(index.get(START, 60).expect("a page").0, Some(3));
}

/// D2: a request is found by key without its block, and is in the list of the block where the
/// paper's search by ranges ends. D3: requests move down when a range grows.
#[test]
fn requests_are_in_the_lists_of_the_paper_and_found_without_them() {
    let crowded = small(1).with("memory", 4096).with("pool_share", 0.5);
    let crowded = crowded.with("policy", "big");
    let index = busy(&crowded);
    assert!(figure(&index, "requests_pulled_down") > 0.0);
    let pool = &index.tree.above;
    let mut waits_in = Vec::new();
    for (key, waiting) in pool.between(0, Key::MAX) {
        assert_eq!(pool.requests.get(key), Some(waiting.request));
        waits_in.push(pool.locate(key));
    }
    assert!(!waits_in.is_empty());
    for &block in &waits_in {
        let count = waits_in.iter().filter(|&&other| other == block).count();
        assert_eq!(pool.block(block).own as usize, count, "{block:?}");
    }
}

/// D8: the limit of waiting requests uses the paper's size. `memory` reports the actual bytes,
/// which are more.
#[test]
fn the_memory_of_the_pool_is_told_with_its_blocks() {
    let index = busy(&small(2).with("memory", 65536).with("pool_share", 0.5));
    let waiting = figure(&index, "pool_requests") as u64;
    assert_eq!(figure(&index, "pool_capacity"), 32768.0 / 16.0);
    let part = |name| {
        let memory = index.memory();
        memory.iter().find(|part| part.0 == name).expect("a part").1
    };
    assert!(part("requests") > 16 * waiting && part("blocks") > 0);
}

/// D9: finding a normal group's super group reads nothing; the second approach reads.
#[test]
fn super_groups_of_normal_victims_read_no_leaf() {
    let reads = |approach: &str| {
        let settings = Settings::new()
            .with("order", 2)
            .with("memory", 640)
            .with("pool_share", 0.1)
            .with("super_group", approach);
        let mut index = open_lazy(&settings, 1 << 10);
        for key in 0..14 {
            index.insert(START, key * 10, 1).expect("room");
            index.flush(START).expect("room");
        }
        index.tree.above.room = Room::Requests(7);
        // The second leaf's group is the largest; its neighbours would split.
        for (key, value) in [(30, 2), (40, 2), (50, 2)] {
            index.update(START, key, value).expect("room");
        }
        for key in [1, 2, 61, 62] {
            index.insert(START, key, 2).expect("room");
        }
        index.form_groups(START).expect("pages");
        index.tree.settle(START).expect("room");
        index.reset_stats();
        let victims = if approach == "second" {
            index.select(START).expect("pages").0
        } else {
            let victim = index.tree.above.locate(30);
            index.super_group(START, victim).expect("pages").0
        };
        (victims.len(), index.stats().reads)
    };
    assert_eq!(reads("first"), (1, 0));
    let (together, read) = reads("second");
    assert!(together == 3 && read >= 2, "{together}, {read}");
}
