//! Tests of the B+-tree: histories compared with a map, the paper's example, invalid structures.

use super::super::model::{History, assert_reads_ahead, blank, figure};
use super::super::{IndexError, IndexKind};
use super::*;
use flagstone::dice::Dice;

fn open_tree(order: usize, frames: u64) -> Box<dyn Index> {
    let settings = Settings::new()
        .with("order", order)
        .with("value_bytes", 4)
        .with("memory", frames * 256);
    blank(open, &settings, 256, 4096).0
}

fn keys(index: &mut dyn Index) -> Vec<Key> {
    let mut found = Vec::new();
    let range = index.range(Nanos::ZERO, 0, Key::MAX, &mut found);
    range.expect("a range");
    found.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn agrees_with_a_map_at_every_small_order() {
    for order in [1, 2, 3, 0] {
        let history = History {
            kind: IndexKind::BPlusTree,
            settings: Settings::new().with("memory", 6 * 128).with("order", order),
            page_bytes: 128,
            seed: 1 + order,
            operations: 6000,
            keys: 700,
        };
        history.assert_agrees(3);
    }
}

/// D3: reads the same number of pages in less time.
#[test]
fn a_range_asks_for_several_leaves_at_once() {
    assert_reads_ahead(IndexKind::BPlusTree);
}

#[test]
fn everything_happens_in_a_long_history() {
    let mut index = open_tree(1, 8);
    let mut dice = Dice(3);
    for phase in 0..4 {
        for _ in 0..1500 {
            let key = dice.below(400);
            if (dice.below(10) < 7) == (phase % 2 == 0) {
                index.insert(Nanos::ZERO, key, 1).expect("room");
            } else {
                index.delete(Nanos::ZERO, key).expect("room");
            }
        }
        index.check().expect("a tree");
    }
    for key in 0..400 {
        index.delete(Nanos::ZERO, key).expect("room");
        index.check().expect("a tree");
    }
    for name in ["splits", "merges", "redistributions", "grown", "shrunk"] {
        assert!(figure(index.as_ref(), name) > 0.0, "{name}");
    }
    assert_eq!(keys(index.as_mut()), []);
}

#[test]
fn a_node_of_the_paper_fills_its_page() {
    let shape = Shape::new(2048, 4, 0).expect("a page");
    assert_eq!((shape.leaf_order, shape.inner_order), (85, 85));
    assert!(Shape::new(2048, 4, 86).is_err());
    assert!(Shape::new(16, 4, 0).is_err());
}

#[test]
fn a_tree_is_opened_with_the_order_that_it_was_made_with() {
    let settings = Settings::new().with("order", 2);
    let (mut index, now) = blank(open, &settings, 256, 64);
    index.insert(now, 1, 1).expect("room");
    index.flush(now).expect("room");
    let store = index.into_store();
    let refused = open(store, &settings.with("order", 3), now);
    assert!(matches!(refused.err(), Some(IndexError::Settings(_))));
}

#[test]
fn a_full_store_is_refused_before_anything_is_lost() {
    let settings = Settings::new().with("order", 1).with("memory", 2048);
    let (mut index, now) = blank(open, &settings, 128, 40);
    let mut inserted = 0;
    let error = loop {
        match index.insert(now, inserted, 7) {
            Ok(_) => inserted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, IndexError::Full { pages: 40 });
    assert_eq!(index.check(), Ok(()));
    assert_eq!(keys(index.as_mut()), (0..inserted).collect::<Vec<_>>());
}

#[test]
fn damage_is_said_to_be_some() {
    // Reading a node that was overwritten by something else is an error.
    let settings = Settings::new().with("order", 2);
    for page in 1..8 {
        let (mut index, now) = blank(open, &settings, 256, 64);
        for key in 0..14 {
            index.insert(now, key, key).expect("room");
        }
        index.flush(now).expect("room");
        let mut store = index.into_store();
        store
            .write(now, &[(flagstone::units::Lpn(page), &[0x7f; 256])])
            .expect("a page");
        let (mut index, now) = open(store, &settings, now).expect("metadata");
        let outcome = (0..14).try_for_each(|key| index.get(now, key).map(|_| ()));
        let used = index.check().is_err();
        assert_eq!(outcome.is_err(), used, "page {page}");
        assert!(used || page > 6, "page {page} is in use");
    }
}

/// Number of entries of each leaf, from left to right.
fn leaf_sizes(tree: &mut Tree<()>) -> Vec<usize> {
    let nodes = tree.check().expect("a tree");
    let mut leaves: Vec<(Key, usize)> = nodes
        .iter()
        .filter(|(_, level, _)| *level == 0)
        .map(|&(span, _, len)| (span.low, len))
        .collect();
    leaves.sort_unstable();
    leaves.into_iter().map(|(_, len)| len).collect()
}

/// A tree of order 2 with leaves of the given sizes: the first leaf has keys from 0 on, the second
/// from 400 on, a hundred apart.
fn tree_of(sizes: &[usize]) -> Tree<()> {
    let mut tree = open_plain(&Settings::new().with("order", 2), 64);
    let pairs: Vec<(Key, Value)> = (0..4 * sizes.len() as Key).map(|n| (n * 100, 1)).collect();
    tree.build(Nanos::ZERO, &pairs).expect("room");
    for (leaf, &size) in (0..).zip(sizes) {
        for surplus in size as Key..4 {
            let key = (4 * leaf + surplus) * 100;
            tree.delete(Nanos::ZERO, key).expect("room");
        }
    }
    assert_eq!(leaf_sizes(&mut tree), sizes);
    tree
}

/// D1: the right sibling lends first, and afterwards both have equally many entries.
#[test]
fn entries_come_from_the_right_sibling_first_and_both_have_as_many() {
    for (before, after) in [([4, 2, 4], [4, 3, 2]), ([4, 2, 2], [3, 2, 2])] {
        let mut tree = tree_of(&before);
        tree.delete(Nanos::ZERO, 400).expect("room");
        assert_eq!(leaf_sizes(&mut tree), after, "{before:?}");
    }
}

/// D2: the odd entry stays on the left; a batch splits a leaf into as many parts as needed.
#[test]
fn a_leaf_splits_into_as_many_as_its_changes_take() {
    let mut tree = tree_of(&[4, 2]);
    tree.insert(Nanos::ZERO, 50, 1).expect("room");
    assert_eq!(leaf_sizes(&mut tree), [3, 2, 2]);
    let mut tree = tree_of(&[4, 2]);
    let batch: Vec<Change> = (50..59).map(|key| (key, Some(1))).collect();
    let (leaf, now) = tree.descend(Nanos::ZERO, 50).expect("a leaf");
    tree.change_leaf(now, leaf, &batch).expect("room");
    assert_eq!(leaf_sizes(&mut tree), [4, 3, 3, 3, 2]);
}

#[test]
fn a_tree_that_is_built_at_once_has_full_leaves_and_all_its_keys() {
    for count in [0, 1, 4, 5, 1000] {
        let mut tree = open_plain(&Settings::new().with("order", 2), 1024);
        let pairs: Vec<(Key, Value)> = (0..count).map(|key| (key * 3, key)).collect();
        tree.build(Nanos::ZERO, &pairs).expect("room");
        let sizes = leaf_sizes(&mut tree);
        assert_eq!(sizes.len(), (count as usize).div_ceil(4).max(1), "{count}");
        for &(key, value) in &pairs {
            assert_eq!(tree.get(Nanos::ZERO, key).expect("a page").0, Some(value));
        }
    }
}

#[test]
fn a_few_changes_of_a_leaf_are_those_of_a_merge() {
    let mut dice = Dice(21);
    for round in 0..500 {
        let mut trees = [0, 1].map(|_| tree_of(&[3, 4, 3, 2]));
        let mut batch: Vec<Change> = (0..1 + dice.below(5))
            .map(|_| {
                (
                    400 + 25 * dice.below(16),
                    Some(dice.below(3)).filter(|v| *v > 0),
                )
            })
            .collect();
        batch.sort_unstable();
        batch.dedup_by_key(|change| change.0);
        let [few, merged] = &mut trees;
        let (leaf, now) = few.descend(Nanos::ZERO, 400).expect("a leaf");
        few.change_leaf(now, leaf, &batch).expect("room");
        for &(key, value) in &batch {
            match value {
                Some(value) => merged.insert(now, key, value),
                None => merged.delete(now, key),
            }
            .expect("room");
        }
        for key in (0..1600).step_by(25) {
            let [one, other] =
                [&mut *few, &mut *merged].map(|t| t.get(now, key).expect("a page").0);
            assert_eq!(one, other, "{round}: {batch:?}, key {key}");
        }
        few.check().expect("a tree");
    }
}
