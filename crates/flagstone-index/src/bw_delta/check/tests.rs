//! Controls of the check: it must find and report every defect of a tree. Histories rely on it.

use super::super::{INFO, Mapped, Node, start};
use super::*;
use crate::Index;
use crate::model::blank;
use flagstone::dice::Dice;

/// A tree with nodes in memory and on flash only, deltas on flash, and deltas that wait.
fn grown() -> BwDelta {
    let settings = INFO.tiny().with("memory", 12_000);
    let (mut tree, mut now) = blank(start, &settings, 256, 1 << 16);
    let mut dice = Dice(5);
    for round in 0..4000 {
        let key = dice.below(2000);
        now = match round % 5 {
            0 => tree.delete(now, key),
            _ => tree.insert(now, key, round),
        }
        .expect("room");
    }
    tree
}

/// The first number whose row satisfies `is`.
fn number(tree: &BwDelta, is: impl Fn(&Mapped) -> bool) -> usize {
    let reached = |number: &usize| !tree.unused.contains(&(*number as u32));
    let mut numbers = (1..tree.map.len()).filter(reached);
    let found = numbers.find(|&number| is(&tree.map[number]));
    found.expect("a tree of this size has one")
}

/// A number of a node that is only on flash.
fn on_flash(tree: &BwDelta) -> usize {
    number(tree, |row| row.slot().is_none() && row.waiting == 0)
}

fn node(tree: &mut BwDelta, is: impl Fn(&Node) -> bool) -> &mut Node {
    let slots: Vec<u32> = tree.map.iter().filter_map(Mapped::slot).collect();
    let found = slots
        .into_iter()
        .find(|&slot| is(&tree.nodes[slot as usize]));
    &mut tree.nodes[found.expect("such a node is in memory") as usize]
}

/// Replaces the root's records, as if it had been changed.
fn in_root(tree: &mut BwDelta, change: impl FnOnce(&mut Vec<(Key, Value)>)) {
    let root = tree.root;
    let node = node(tree, |node| node.number == root);
    (node.rebased, node.structural) = (true, true);
    change(&mut node.records);
}

type Break = fn(&mut BwDelta);

#[test]
fn whatever_is_wrong_is_found() {
    assert_eq!(grown().check_all(), Ok(()));
    let breaks: [(Break, &str); 24] = [
        (|t| in_root(t, |r| r.swap(1, 2)), "are not in order"),
        (|t| in_root(t, |r| r[1].0 += 1), "is not from"),
        (|t| in_root(t, |r| r.truncate(1)), "has two children"),
        (
            |t| {
                let root = t.root.into();
                in_root(t, |r| r[1].1 = root);
            },
            "it is reached twice",
        ),
        (
            |t| in_root(t, |r| r[1].1 = 1 << 30),
            "there is no such number",
        ),
        (
            |t| in_root(t, |r| r.extend((0..99).map(|i| (1 << 40 | i, 1)))),
            "records are not",
        ),
        (
            |t| {
                let at = on_flash(t);
                t.map[at].version += 1;
            },
            "is another node's",
        ),
        (
            |t| {
                let at = on_flash(t);
                t.map[at].link.0 += 1;
            },
            "has a wrong length",
        ),
        (
            |t| {
                let at = on_flash(t);
                (t.map[at].link, t.map[at].at) = (Link::NONE, NONE);
            },
            "it is nowhere",
        ),
        (
            |t| {
                let at = number(t, |row| row.slot().is_none() && row.chain > 0);
                t.map[at].chain = 0;
            },
            "deltas, counted were 0",
        ),
        (
            |t| {
                let at = number(t, |row| row.waiting > 0);
                t.map[at].chain = t.chain_max as u8;
            },
            "of which some wait",
        ),
        (
            |t| node(t, |_| true).number += 1,
            "another node is in its place",
        ),
        (
            |t| {
                let most = t.chain_max;
                node(t, |_| true).chain = most;
            },
            "was not consolidated",
        ),
        (
            |t| {
                node(t, |n| !n.links.is_empty() && !n.is_dirty())
                    .links
                    .clear()
            },
            "other fragments than there are",
        ),
        (
            |t| node(t, |n| !n.links.is_empty() && !n.is_dirty()).records[0].1 ^= 1,
            "memory and flash have different records",
        ),
        (
            |t| node(t, |n| n.level > 0 && !n.is_dirty()).rebased = true,
            "a settle would not write it",
        ),
        (|t| t.unused.push(t.root), "is unused and reached"),
        (|t| t.unused.extend([t.root, t.root]), "is unused twice"),
        (
            |t| {
                t.map.push(Mapped {
                    at: 0,
                    ..Mapped::UNUSED
                });
                t.unused.push(t.map.len() as u32 - 1);
            },
            "is unused and has a place",
        ),
        (|t| t.log.segments[0].live += 1, "live bytes, counted were"),
        (|t| t.log.live += 1, "bytes live, counted were"),
        (
            |t| t.nodes[t.newest as usize].newer = 0,
            "the order of use is broken",
        ),
        (|t| node(t, |_| true).counted += 1, "changed uncounted"),
        (|t| t.used += 1, "are not counted rightly"),
    ];
    for (broken, says) in breaks {
        let mut tree = grown();
        broken(&mut tree);
        let why = tree.check_all().expect_err(says);
        assert!(why.contains(says), "{says}: {why}");
    }
}

#[test]
fn what_is_counted_wrongly_is_found() {
    let mut tree = grown();
    tree.budget = 0;
    assert!(tree.check_all().unwrap_err().contains("nodes use"));
    let mut tree = grown();
    let live = tree
        .log
        .segments
        .iter()
        .position(|segment| segment.live > 0);
    tree.log.free.push(live.expect("one has fragments") as u32);
    assert!(
        tree.check_all()
            .unwrap_err()
            .contains("is free and has live bytes")
    );
    let mut tree = grown();
    let page = tree.log.pages_of(0).next().expect("a segment has pages");
    tree.space.give(page).expect("it was taken");
    assert!(tree.check_all().is_err(), "a page of the log is free");
}
