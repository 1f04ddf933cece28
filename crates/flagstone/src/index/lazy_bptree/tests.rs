//! Tests of the lazy-update B+-tree: histories against a map under every policy and technique, the
//! paper's examples, the cancel-out rule that loses updates, victims against an exhaustive search.

use super::super::IndexKind;
use super::super::model::History;
use super::*;

const KIND: IndexKind = IndexKind::LazyBPlusTree;

/// A little of everything: 256-byte pages, eight frames, a pool of sixteen requests.
fn small(order: usize) -> Settings {
    Settings::new()
        .with("order", order)
        .with("value_bytes", 8)
        .with("memory", 2304)
        .with("pool_share", 0.12)
}

fn history(settings: Settings, seed: u64) -> History {
    History {
        kind: KIND,
        settings,
        page_bytes: 256,
        seed,
        operations: 5000,
        keys: 500,
    }
}

#[test]
fn agrees_with_a_map_under_every_policy() {
    for (seed, policy) in ["big", "cost", "lru", "fifo"].into_iter().enumerate() {
        for prune in [true, false] {
            let settings = small(2).with("policy", policy).with("prune", prune);
            history(settings, 10 * seed as u64).assert_agrees(2);
        }
    }
}

#[test]
fn agrees_with_a_map_with_super_groups() {
    for policy in ["big", "cost"] {
        for approach in ["first", "second"] {
            for order in [1, 3] {
                let settings = small(order)
                    .with("policy", policy)
                    .with("super_group", approach);
                history(settings, order as u64).assert_agrees(2);
            }
        }
    }
}
