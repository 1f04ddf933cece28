//! Compares a walk with a map of the same contents, also over damaged pages.

use super::*;
use crate::memory::{self, Memory};
use crate::node::{insert, page_list, write_head};
use crate::{ByteTree, write_empty};
use flagstone::dice::Dice;
use flagstone::units::Nanos;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, TreeError>;

/// So small that a value of 129 bytes needs a page that lists its pages.
const PAGE: usize = 128;
const ZERO: Nanos = Nanos::ZERO;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A tree after many insertions and deletions, and a map with the same contents.
fn tree(keys: u32, seed: u64) -> (ByteTree<Memory>, Map) {
    let mut tree = memory::tree(PAGE);
    let (mut map, mut dice) = (Map::new(), Dice(seed));
    for _ in 0..2 * keys {
        let key = format!("{:x}", dice.pick(keys * 4 / 3)).into_bytes();
        let bytes = match dice.below(8) {
            0 => 0,
            1..=5 => dice.pick(20) as usize,
            6 => 30 + dice.pick(PAGE as u32 - 29) as usize,
            _ => PAGE + 1 + dice.pick(600) as usize,
        };
        // No page of a value looks like a node.
        let value: Vec<u8> = (0..bytes).map(|_| dice.next() as u8 | 4).collect();
        let value = (!dice.one_in(5)).then_some(value);
        let (there, _) = tree.change(ZERO, &key, value.as_deref()).expect("room");
        let before = match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
        assert_eq!(there, before.is_some());
    }
    (tree, map)
}

fn walk(memory: &Memory, root: Root) -> Walk<&Memory> {
    Walk::new(memory, PAGE, root).expect("a root")
}

/// Fails if a walk routes, bisects or assembles a value differently from the tree that wrote the
/// pages, or reads a page twice or needlessly.
#[test]
fn a_walk_finds_what_a_map_has_and_asks_for_each_page_once() {
    let (mut tree, map) = tree(400, 1);
    let (len, mut used) = tree.check().expect("a tree");
    let pages = tree.pages().expect("a tree");
    used.sort_unstable();
    assert_eq!((len, &pages), (map.len() as u64, &used));
    assert_eq!(used.len() + tree.nodes.free.len(), tree.nodes.pages.len());

    let root = tree.root();
    assert!(root.height >= 4, "{root:?}");
    let walk = walk(&tree.nodes, root);
    assert_eq!(walk.count().expect("a tree"), map.len() as u64);
    let nodes = walk.images().asked();
    assert!(nodes.len() + 50 < used.len(), "values have many pages");

    let all: Vec<Vec<u8>> = (0..600).map(|n| format!("{n:x}").into_bytes()).collect();
    // Unsorted, with duplicates.
    let keys: Vec<&[u8]> = (0..900).map(|n| &all[n * 7 % 600][..]).collect();
    walk.prefetch(&keys).expect("a tree");
    assert_eq!(walk.images().asked(), nodes);
    let found = walk.get_many(&keys).expect("a tree");
    let mut asked = walk.images().asked();
    asked.dedup();
    assert_eq!(asked, used);
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), map.get(*key).map(|value| &value[..]));
        let one = walk.get(key).expect("a tree");
        assert_eq!(one.as_deref(), map.get(*key).map(|value| &value[..]));
    }
    let asked = walk.images().asked().len();
    assert!(asked >= keys.len() * root.height as usize, "{asked}");
}

/// Fails if a cursor skips an entry at the border of two leaves, or reverses at the wrong place.
#[test]
fn a_cursor_steps_both_ways_as_over_the_list_of_a_map() {
    let (tree, map) = tree(300, 2);
    let walk = walk(&tree.nodes, tree.root());
    let list: Vec<(&Vec<u8>, &Vec<u8>)> = map.iter().collect();
    let (mut dice, mut key) = (Dice(3), Vec::new());
    let mut ends = [0; 2];
    for round in 0..120 {
        let from = format!("{:x}", dice.pick(450)).into_bytes();
        let (mut cursor, mut place) = match round % 6 {
            0 => (walk.end().expect("a tree"), list.len()),
            1 => (walk.seek(&[]).expect("a tree"), 0),
            _ => {
                let place = list.partition_point(|(key, _)| **key < from);
                (walk.seek(&from).expect("a tree"), place)
            }
        };
        let forward = dice.below(5);
        for _ in 0..150 {
            let (found, expected) = if dice.below(5) < forward {
                let expected = list.get(place);
                place += usize::from(expected.is_some());
                ends[0] += u32::from(expected.is_none());
                (walk.next(&mut cursor, &mut key), expected)
            } else {
                let before = place.checked_sub(1);
                place = before.unwrap_or(0);
                ends[1] += u32::from(before.is_none());
                (
                    walk.previous(&mut cursor, &mut key),
                    before.map(|at| &list[at]),
                )
            };
            let found = found.expect("a tree");
            let found = found.as_deref().map(|value| (&key[..], value));
            let expected = expected.map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(found, expected);
        }
    }
    assert!(ends[0] > 100 && ends[1] > 100, "{ends:?}");
}

/// Results for trees with one changed byte: the errors, and how often there was none.
#[derive(Debug, Default)]
struct Said {
    damages: BTreeMap<String, u32>,
    nothing: u32,
}

impl Said {
    fn note<T>(&mut self, answer: Result<T>) {
        match answer {
            Ok(_) => self.nothing += 1,
            Err(TreeError::Damaged { why, .. }) => *self.damages.entry(why).or_default() += 1,
            Err(other) => panic!("{other}"),
        }
    }
}

/// A walk that trusts a length, position or kind would panic here, or continue silently.
#[test]
fn damaged_pages_are_errors_and_no_panics() {
    let (mut tree, map) = tree(60, 4);
    let (root, (_, used)) = (tree.root(), tree.check().expect("a tree"));
    assert!(root.height >= 2);
    let keys: Vec<&[u8]> = map.keys().map(|key| &key[..]).collect();
    let whole = tree.nodes.clone();
    let mut said = Said::default();
    for &page in &used {
        for at in 0..PAGE {
            for bit in [0x80, 0x02] {
                let mut memory = whole.clone();
                memory.pages[page.index()][at] ^= bit;
                let walk = walk(&memory, root);
                let all = walk.get_many(&keys);
                let is_node = Node::of(&whole.pages[page.index()], Kind::Leaf).is_some()
                    || Node::of(&whole.pages[page.index()], Kind::Inner).is_some();
                assert!(all.is_err() || !is_node || at >= 2, "{page}: byte {at}");
                said.note(all);
                said.note(walk.count());
                let mut key = Vec::new();
                let forwards = walk.seek(b"").and_then(|mut cursor| {
                    while walk.next(&mut cursor, &mut key)?.is_some() {}
                    Ok(())
                });
                said.note(forwards);
                let backwards = walk.end().and_then(|mut cursor| {
                    while walk.previous(&mut cursor, &mut key)?.is_some() {}
                    Ok(())
                });
                said.note(backwards);
            }
        }
    }
    for why in [
        "it is not the node that its parent names",
        "a value is no list of pages",
        "a value has not as many pages as it needs",
        "there is no such page",
    ] {
        assert!(said.damages.contains_key(why), "{why}: {said:?}");
    }
    // Bytes of values, and unused bytes.
    assert!(said.nothing > 1_000, "{said:?}");
}

/// Otherwise a value would lack its last bytes, and a walk of height 0 would seek a leaf in any
/// page.
#[test]
fn pages_that_are_too_short_and_heights_that_cannot_be_are_refused() {
    let (tree, map) = tree(60, 4);
    let (key, value) = map
        .iter()
        .find(|(_, value)| value.len() > 2 * PAGE)
        .unwrap();
    let mut memory = tree.nodes.clone();
    let holds = |page: &Vec<u8>| page.starts_with(&value[..PAGE]);
    let at = memory.pages.iter().position(holds).expect("its first page");
    memory.short = Some(Lpn(at as u32));
    let found = walk(&memory, tree.root()).get(key);
    let said = found.err().map(|error| error.to_string());
    assert!(said.is_some_and(|said| said.ends_with("a value has pages that are too short")));
    for height in [0, 65] {
        let root = Root {
            height,
            ..tree.root()
        };
        assert!(Walk::new(&memory, PAGE, root).is_err(), "{height}");
        assert!(ByteTree::over(memory.clone(), root).is_err(), "{height}");
    }
    assert!(Walk::new(&memory, 64, tree.root()).is_err(), "tiny pages");
}

fn why<T>(answer: Result<T>) -> String {
    match answer {
        Err(TreeError::Damaged { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => "nothing".to_string(),
    }
}

/// Fails if an endless tree is walked to its end: that takes as long as its height allows.
#[test]
fn a_node_below_itself_is_a_page_that_is_used_twice() {
    let mut page = vec![0; PAGE];
    write_head(&mut page, Kind::Inner, &[], Lpn(0));
    let child = Value {
        bytes: &[0; 4],
        large: false,
    };
    assert!(insert(&mut page, 0, b"k", child));
    let memory = Memory::with(vec![page]);
    let root = Root {
        at: Lpn(0),
        height: 16,
    };
    let mut tree = ByteTree::over(memory, root).expect("a root");
    assert_eq!(why(tree.pages()), "the tree uses the page twice");
}

/// Fails if a value's length is accepted as its entry states it.
#[test]
fn a_value_is_as_long_as_different_pages_can_hold() {
    let pages = |from: u32| (from..from + 32).flat_map(u32::to_le_bytes).collect();
    let said = |bytes: usize, named: &[u32], list: Vec<u8>| {
        let named: Vec<Lpn> = named.iter().copied().map(Lpn).collect();
        let mut memory = Memory::with(vec![vec![0; PAGE]; 70]);
        memory.pages[1] = list;
        memory.pages[2] = pages(36);
        let page = &mut memory.pages[0];
        write_empty(page);
        let entry = Value {
            bytes: &page_list(bytes, &named),
            large: true,
        };
        assert!(insert(page, 0, b"k", entry));
        let root = Root {
            at: Lpn(0),
            height: 1,
        };
        let mut tree = ByteTree::over(memory, root).expect("a root");
        let answers = [
            why(walk(&tree.nodes, root).get(b"k")),
            why(tree.get(ZERO, b"k", &mut Vec::new())),
            why(tree.pages()),
            why(tree.change(ZERO, b"k", None)),
        ];
        assert!(
            answers.iter().all(|said| *said == answers[0]),
            "{answers:?}"
        );
        answers[0].clone()
    };
    let most = Sizes::new(PAGE).expect("pages of a size").limits.value;
    assert_eq!(most, 32 * PAGE);
    assert_eq!(said(most, &[1], pages(3)), "nothing");
    let longer = "a value is longer than a value can be";
    assert_eq!(said(most + 1, &[1, 2], pages(3)), longer);
    assert_eq!(said(most + 1, &[1, 1], pages(3)), longer);
    let twice = "a value has a page twice";
    assert_eq!(said(most, &[1], 3u32.to_le_bytes().repeat(32)), twice);
}
