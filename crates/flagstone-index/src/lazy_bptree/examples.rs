//! The worked examples of [LazyBtree]: figure 1 and the counts in its text, the orthogonal list of
//! figure 2, the cost saving cases of figure 3.

use super::super::bptree::open_plain;
use super::tests::open_lazy;
use super::*;

const START: Nanos = Nanos::ZERO;

/// Figure 1(a), as far as the text describes it: leaves D to H, with D and E under one node. With
/// this structure the first four requests, applied one by one, take 7 writes.
const BUILD: [(Key, bool); 10] = [
    (30, true),
    (45, true),
    (90, true),
    (95, true),
    (5, true),
    (20, true),
    (60, true),
    (80, true),
    (40, true),
    (30, false),
];
const LEAVES: [&[Key]; 5] = [&[5, 20], &[40], &[45, 60], &[80], &[90, 95]];

/// The requests of figure 1(b), and the four after them.
const REQUESTS: [(Key, bool); 8] = [
    (6, true),
    (30, true),
    (5, false),
    (90, false),
    (40, false),
    (95, false),
    (99, true),
    (100, true),
];

fn settings(policy: &str) -> Settings {
    Settings::new()
        .with("order", 1)
        .with("memory", 1 << 16)
        .with("prune", false)
        .with("policy", policy)
}

/// Figure 1(a), with a pool for four requests.
fn figure_1(policy: &str) -> LazyTree {
    let mut index = open_lazy(&settings(policy), 1 << 10);
    for (key, insert) in BUILD {
        request(&mut index, key, insert);
        index.flush(START).expect("room");
    }
    index.tree.above.room = Room::Requests(4);
    index.reset_stats();
    index
}

fn request(index: &mut dyn Index, key: Key, insert: bool) {
    let done = if insert {
        index.insert(START, key, 1)
    } else {
        index.delete(START, key)
    };
    done.expect("room");
}

/// Number of pages written since the last call.
fn written(index: &mut LazyTree) -> u64 {
    let before = index.stats().writes;
    index.tree.cache.write_all(START).expect("a store");
    index.stats().writes - before
}

fn keys(index: &mut dyn Index, from: Key, to: Key) -> Vec<Key> {
    let mut found = Vec::new();
    index.range(START, from, to, &mut found).expect("a range");
    found.into_iter().map(|(key, _)| key).collect()
}

/// The number of requests in the block of a key, and the level of the block.
fn waiting(index: &LazyTree, key: Key) -> (u32, usize) {
    let block = index.tree.above.block(index.tree.above.locate(key));
    (block.level().into(), block.own as usize)
}

#[test]
fn figure_1_is_what_the_text_says() {
    let mut index = figure_1("big");
    let nodes = index.tree.check().expect("a tree");
    let leaves = nodes.iter().filter(|(_, level, _)| *level == 0);
    let spans: Vec<Span> = leaves.map(|&(span, ..)| span).collect();
    let found: Vec<Vec<Key>> = spans
        .iter()
        .map(|span| keys(&mut index, span.low, span.high))
        .collect();
    assert_eq!(found, LEAVES);
    // §2.2: the range query [5, 80] reads A, B, D, E, F, G.
    let (_, now) = index.tree.settle(START).map(|now| ((), now)).expect("room");
    let store = Box::new(index).into_store();
    let (mut index, now) = LazyTree::open(store, &settings("big"), now).expect("the tree");
    index.reset_stats();
    let mut found = Vec::new();
    index.range(now, 5, 80, &mut found).expect("a range");
    assert_eq!(found.len(), 6);
    assert_eq!(index.stats().reads, 6);
}

#[test]
fn figure_1_costs_seven_writes_one_by_one_and_three_in_groups() {
    let mut plain = open_plain(&settings("big"), 1 << 10);
    let mut writes = 0;
    for (i, (key, insert)) in BUILD.into_iter().chain(REQUESTS).take(14).enumerate() {
        if insert {
            plain.insert(START, key, 1).expect("room");
        } else {
            plain.delete(START, key).expect("room");
        }
        let before = plain.cache.stats().writes;
        plain.cache.write_all(START).expect("a store");
        if i >= BUILD.len() {
            writes += plain.cache.stats().writes - before;
        }
    }
    assert_eq!(writes, 7);

    let mut index = figure_1("big");
    for (key, insert) in REQUESTS.into_iter().take(4) {
        request(&mut index, key, insert);
    }
    assert_eq!(written(&mut index), 0);
    index.commit_everything(START).expect("room");
    assert_eq!(written(&mut index), 3);
    assert_eq!(index.tree.counts.splits, 0);
}

#[test]
fn all_at_once_writes_five_pages_and_the_biggest_group_three() {
    let mut index = figure_1("big");
    let mut batches = 0;
    for batch in REQUESTS.chunks(4) {
        for &(key, insert) in batch {
            request(&mut index, key, insert);
        }
        index.commit_everything(START).expect("room");
        batches += written(&mut index);
    }
    assert_eq!(batches, 5);

    let mut index = figure_1("big");
    let mut groups = 0;
    for (key, insert) in REQUESTS {
        request(&mut index, key, insert);
        groups += written(&mut index);
    }
    index.commit_everything(START).expect("room");
    groups += written(&mut index);
    assert_eq!(groups, 3);
    assert_eq!(keys(&mut index, 0, 1000), [6, 20, 30, 45, 60, 80, 99, 100]);
}

#[test]
fn deleting_40_takes_45_from_the_sibling() {
    // §2.2; in this test E and F have the same parent.
    let mut index = open_lazy(&settings("big"), 1 << 10);
    let build = [70, 80, 90, 95, 5, 20, 30, 40].map(|key| (key, true));
    let build = build.into_iter().chain([
        (30, false),
        (45, true),
        (70, false),
        (60, true),
        (40, false),
    ]);
    for (i, (key, insert)) in build.enumerate() {
        if i == 12 {
            index.reset_stats();
        }
        request(&mut index, key, insert);
        index.flush(START).expect("room");
    }
    assert_eq!(index.tree.counts.redistributions, 1);
    assert_eq!(index.tree.counts.merges, 0);
    index.insert(START, 44, 1).expect("room");
    index.form_groups(START).expect("pages");
    let block = index.tree.above.block(index.tree.above.locate(44)).span();
    assert_eq!(keys(&mut index, block.low, block.high), [44, 45]);
}

#[test]
fn figure_2_is_the_list_of_figure_1() {
    let mut index = figure_1("cost");
    for (key, insert) in REQUESTS.into_iter().take(4) {
        request(&mut index, key, insert);
    }
    // Initially all are in the root block.
    assert_eq!(waiting(&index, 6), (2, 4));
    // Algorithm 4: a query for 20 passes A and B and leaves C's requests in C's block.
    index.get(START, 20).expect("pages");
    assert_eq!(waiting(&index, 6), (0, 2));
    assert_eq!(waiting(&index, 30), (0, 1));
    assert_eq!(waiting(&index, 90), (1, 1));
    // Algorithm 3: all requests are in groups.
    index.form_groups(START).expect("pages");
    assert_eq!(waiting(&index, 90), (0, 1));
    index.check().expect("a tree and its pool");
    // Updates of 5 to 6 and back: two pairs of opposite types. The deletion and the later insertion
    // become one request (D1); the insertion of 6 is deleted.
    request(&mut index, 5, true);
    request(&mut index, 6, false);
    assert_eq!(keys(&mut index, 0, 29), [5, 20]);
}

/// Order 2: five leaves of three entries under one root, the last of two; then the keys `deleted`
/// are deleted.
fn family(deleted: &[Key]) -> LazyTree {
    let settings = Settings::new().with("order", 2).with("memory", 1 << 16);
    let mut index = open_lazy(&settings, 1 << 10);
    for key in 0..14 {
        index.insert(START, key * 10, 1).expect("room");
        index.flush(START).expect("room");
    }
    for &key in deleted {
        index.delete(START, key).expect("room");
        index.flush(START).expect("room");
    }
    let nodes = index.tree.check().expect("a tree");
    let leaves = nodes.iter().filter(|(_, level, _)| *level == 0).count();
    assert_eq!(leaves, 5);
    index
}

/// Commits `requests`, each a key and whether it is inserted or deleted. Returns the number of
/// pages written: by each commit of a group, or once after all of them if `together`.
fn cost(deleted: &[Key], requests: &[(Key, bool)], together: bool) -> u64 {
    let mut index = family(deleted);
    written(&mut index);
    for &(key, insert) in requests {
        request(&mut index, key, insert);
    }
    let mut pages = 0;
    while !index.tree.above.requests.is_empty() {
        index.form_groups(START).expect("pages");
        let key = index.tree.above.between(0, Key::MAX)[0].0;
        let group = index.tree.above.locate(key);
        index.commit(START, group).expect("room");
        if !together {
            pages += written(&mut index);
        }
    }
    pages + written(&mut index)
}

/// The first keys of the leaves that algorithm 6 commits together with the leaf of the first of
/// `requests`: its super group. Each request is a key and whether it is inserted or deleted.
fn super_group(deleted: &[Key], requests: &[(Key, bool)]) -> Vec<Key> {
    let mut index = family(deleted);
    for &(key, insert) in requests {
        request(&mut index, key, insert);
    }
    index.form_groups(START).expect("pages");
    let group = index.tree.above.locate(requests[0].0);
    let (members, _) = index.super_group(START, group).expect("pages");
    let pool = &index.tree.above;
    let mut lows: Vec<Key> = members
        .iter()
        .map(|&id| pool.block(id).span().low)
        .collect();
    lows.sort_unstable();
    lows
}

/// D7 is case 3: a merge with the right leaf.
#[test]
fn figure_3_groups_that_save_a_write_go_together() {
    let (split_0, split_90) = ([(1, true), (2, true)], [(91, true), (92, true)]);
    let small_0 = [(0, false), (10, false)];
    /// Name, keys deleted before, requests, first keys of the leaves of the super group.
    type Case<'a> = (&'a str, &'a [Key], Vec<(Key, bool)>, &'a [Key]);
    let cases: [Case; 7] = [
        ("case 1", &[], [split_0, split_90].concat(), &[0, 90]),
        (
            "case 2",
            &[],
            [&split_0[..], &[(40, false)]].concat(),
            &[0, 30],
        ),
        (
            "case 3",
            &[50],
            [&small_0[..], &[(70, false)]].concat(),
            &[0, 60],
        ),
        // Controls: nothing is saved, so groups are committed separately.
        ("normal", &[], vec![(1, true), (31, true)], &[0]),
        ("far", &[], [&split_0[..], &[(70, false)]].concat(), &[0]),
        ("lent", &[], [&small_0[..], &[(70, false)]].concat(), &[0]),
        (
            "merge far",
            &[50],
            [&small_0[..], &[(91, true)]].concat(),
            &[0],
        ),
    ];
    for (what, deleted, requests, members) in cases {
        assert_eq!(super_group(deleted, &requests), members, "{what}");
        let alone = cost(deleted, &requests, false);
        let together = cost(deleted, &requests, true);
        assert_eq!(
            together < alone,
            members.len() > 1,
            "{what}: {alone}, {together}"
        );
    }
}

#[test]
fn super_groups_are_closed_under_the_cases() {
    // Leaf 0 splits, its neighbour does not; the leaf at 90 splits too and adds its neighbours.
    let requests = [
        (1, true),
        (2, true),
        (40, false),
        (70, false),
        (91, true),
        (92, true),
        (121, true),
    ];
    assert_eq!(super_group(&[], &requests), [0, 30, 60, 90, 120]);
}
