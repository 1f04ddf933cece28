//! Merges sparse nodes of a tree. Deletions leave a node unchanged until its entries would fill
//! less than a quarter of a page without a prefix. So a tree may have four times the pages that it
//! needs, and more if keys share prefixes.
//!
//! Each level is processed in key order, leaves first. A node is compared with its right sibling
//! under the same parent. If both fit one page, they are merged. If the left one is less than two
//! thirds full, it takes as many entries from the right one as fit:
//!
//! ```text
//!   before    | a b . . . . | c d . . . . | e f g h . . | i j k l . . |
//!   merged    | a b c d . . | e f g h . . | i j k l . . |
//!   filled    | a b c d . . | e f g h i j | k l . . . . |
//! ```
//!
//! Each part of the pass can be a transaction: the tree is consistent after each node.

use super::apart::{Apart, Cut};
use super::byte_tree::{ByteTree, Step};
use super::node::{self, Kind, Node};
use super::nodes::Nodes;
use super::walk::{Images, Walk, node as node_of};
use crate::damaged;
use flagstone::units::Nanos;
use std::collections::BTreeSet;

const ZERO: Nanos = Nanos::ZERO;

/// Number of nodes that a count requests at once.
const READ_AHEAD: usize = 64;

/// Where a part of [`ByteTree::merge`] begins. The default is the start of the pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeFrom {
    /// Level above the leaves.
    level: u32,
    /// A key that the node covers.
    key: Vec<u8>,
}

fn kind_at(level: u32) -> Kind {
    if level > 0 { Kind::Inner } else { Kind::Leaf }
}

/// The next node of a level.
enum Next {
    /// The same node, which has a new sibling.
    Same,
    /// The node of this key; `None` after the last one.
    Behind(Option<Vec<u8>>),
}

impl<N: Nodes> ByteTree<N> {
    /// Merges and fills nodes, beginning at `from`. Subtracts nodes examined and pages written from
    /// `left`, and ends after the node at which nothing is left. Returns where to continue; `None`
    /// at the root. Pages of large values stay.
    ///
    /// # Errors
    /// The pages cannot be accessed or are damaged, or none is free for a split by a longer key.
    pub fn merge(
        &mut self,
        mut from: MergeFrom,
        left: &mut usize,
    ) -> Result<Option<MergeFrom>, N::Error> {
        while from.level + 1 < self.height {
            if *left == 0 {
                return Ok(Some(from));
            }
            match self.merge_at(&from, left)? {
                Next::Same => {}
                Next::Behind(Some(key)) if key > from.key => from.key = key,
                Next::Behind(Some(_)) => return damaged(self.root, "its keys are in no order"),
                Next::Behind(None) => {
                    from.level += 1;
                    from.key.clear();
                }
            }
        }
        Ok(None)
    }

    /// Merges the node at `from` with its right sibling, or fills it from there. Returns the next
    /// node. Subtracts one from `left` for the node, and three for the pages written: the node, the
    /// sibling or its freed page, and the parent.
    fn merge_at(&mut self, from: &MergeFrom, left: &mut usize) -> Result<Next, N::Error> {
        let kind = kind_at(from.level);
        self.descend(ZERO, &from.key)?;
        let depth = (self.height - 1 - from.level) as usize;
        let above = self.path[depth - 1];
        *left = left.saturating_sub(1);
        let (mut parent, _) = self.apart(ZERO, above.at, Kind::Inner)?;
        let Some(right) = parent.child(above.slot + 1) else {
            return Ok(Next::Behind(self.behind_parent(depth - 1)?));
        };
        let at = self.path[depth].at;
        if at == right {
            return damaged(above.at, "it names a child twice");
        }
        let (own, _) = self.apart(ZERO, at, kind)?;
        let (sibling, _) = self.apart(ZERO, right, kind)?;
        // A fill must give the node more entries than it has.
        let (has, size) = (own.entries.len(), own.size());
        let between = parent.entries[above.slot].key.clone();
        let all = own.join(&between, sibling);
        if all.size() <= self.sizes.room {
            self.make_sure(0, true, false)?;
            self.counts.merges += 1;
            self.write_node(ZERO, at, &all)?;
            self.drop_page(ZERO, right)?;
            parent.entries.remove(above.slot);
            *left = left.saturating_sub(3);
            self.balance(ZERO, depth - 1, parent, Cut::Middle)?;
            return Ok(Next::Same);
        }
        let takes = self.takes(&all, size).filter(|&cut| cut > has);
        let Some(cut) = takes else {
            return Ok(Next::Behind(Some(between)));
        };
        self.make_sure(0, true, false)?;
        self.counts.redistributions += 1;
        let (own, between, sibling) = all.cut_at(cut);
        self.write_node(ZERO, at, &own)?;
        self.write_node(ZERO, right, &sibling)?;
        parent.entries[above.slot].key.clone_from(&between);
        *left = left.saturating_sub(3);
        self.balance(ZERO, depth - 1, parent, Cut::Middle)?;
        Ok(Next::Behind(Some(between)))
    }

    /// Where to split a node and its sibling that together do not fit one page, if the node is so
    /// sparse that it should be filled.
    fn takes(&self, all: &Apart, size: usize) -> Option<usize> {
        if 3 * size >= 2 * self.sizes.room {
            return None;
        }
        all.cut(self.sizes.room, Cut::End)
    }

    /// The first key after the node at `depth` in the path; `None` if it is the last one.
    fn behind_parent(&mut self, depth: usize) -> Result<Option<Vec<u8>>, N::Error> {
        for above in (0..depth).rev() {
            let Step { at, slot } = self.path[above];
            let key = |node: Node<'_>| (slot < node.len).then(|| node.key(slot));
            if let (Some(key), _) = self.look(ZERO, at, Kind::Inner, key)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl<I: Images> Walk<I> {
    /// The number of nodes, and of pages that their entries would fill. Does not read pages of
    /// large values.
    ///
    /// # Errors
    /// A page cannot be read, or is damaged. A node that occurs twice is damage: a node below
    /// itself would otherwise never end.
    pub fn nodes(&self) -> Result<(u64, u64), I::Error> {
        let (mut seen, mut bytes) = (BTreeSet::new(), 0);
        let mut above = vec![self.root.at];
        for level in (0..self.root.height).rev() {
            let mut below = Vec::new();
            for some in above.chunks(READ_AHEAD) {
                for (page, &at) in self.images.pages(some)?.iter().zip(some) {
                    if !seen.insert(at) {
                        return damaged(at, "the tree uses the page twice");
                    }
                    let node = node_of(page, at, kind_at(level))?;
                    bytes += (node::room(page.len()) - node.spare()) as u64;
                    if level > 0 {
                        below.extend((0..=node.len).map(|slot| node.child(slot)));
                    }
                }
            }
            above = below;
        }
        let full = node::room(self.sizes.page) as u64;
        Ok((seen.len() as u64, bytes.div_ceil(full)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, Memory};
    use crate::{Counts, ReadAhead};
    use flagstone::dice::Dice;
    use std::collections::BTreeMap;

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A key: short, with a common prefix, or so long that an inner node has few.
    fn key(shape: u64, most: usize, number: u64) -> Vec<u8> {
        let number = (number as u32).to_be_bytes();
        match shape {
            0 => number.to_vec(),
            1 => [&vec![b'p'; most - 4][..], &number].concat(),
            _ => [&number[..], &vec![b'l'; most - 8], &number].concat(),
        }
    }

    fn rows_of(tree: &mut ByteTree<Memory>) -> Map {
        let mut rows = Map::new();
        let ahead = ReadAhead { first: 1, most: 16 };
        let done = tree.range(ZERO, b"", None, ahead, &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            true
        });
        done.expect("no damage");
        rows
    }

    /// Number of nodes of a tree, and of pages that their entries need.
    fn nodes(tree: &mut ByteTree<Memory>) -> (usize, f64) {
        let pages = tree.pages().expect("no damage");
        let (mut nodes, mut bytes) = (0, 0);
        for at in pages {
            let page = tree.nodes.inspect(at).expect("no fault");
            let kinds = [Kind::Leaf, Kind::Inner];
            if let Some(node) = kinds.into_iter().find_map(|kind| Node::of(&page, kind)) {
                nodes += 1;
                bytes += node::room(page.len()) - node.spare();
            }
        }
        (nodes, bytes as f64 / tree.sizes.room as f64)
    }

    /// A tree is consistent after each part, holds the same pairs, and ends up two thirds full.
    /// Fails if a node is lost or referenced twice, a level is left out, or entries are misplaced.
    #[test]
    fn a_sparse_tree_becomes_dense_in_parts_of_any_size() {
        let mut sparse = 0;
        for (page, shape, step) in [
            (128, 0, 1),
            (256, 1, 1),
            (256, 2, 7),
            (512, 2, 1),
            (1024, 0, 64),
            (1024, 1, 999),
        ] {
            let mut tree = memory::tree(page);
            let (mut dice, mut map) = (Dice(page as u64 + shape), Map::new());
            let (most, longest) = (tree.limits().key, page as u64 / 6);
            for _ in 0..6_000 {
                let key = key(shape, most, dice.below(1 << 32));
                let value = vec![7; dice.below(longest) as usize];
                tree.change(ZERO, &key, Some(&value)).expect("room");
                map.insert(key, value);
            }
            map.retain(|key, _| {
                let stays = dice.below(20) == 0;
                if !stays {
                    tree.change(ZERO, key, None).expect("no fault");
                }
                stays
            });
            let (before, _) = nodes(&mut tree);
            let (mut next, mut parts) = (Some(MergeFrom::default()), 0);
            while let Some(from) = next {
                next = tree.merge(from, &mut { step }).expect("a tree");
                parts += 1;
                if parts % 16 == 0 || next.is_none() {
                    memory::check(&mut tree);
                    assert!(rows_of(&mut tree) == map, "page {page}, shape {shape}");
                }
            }
            let (after, needed) = nodes(&mut tree);
            let text = format!("page {page}, shape {shape}: {before}, {after} nodes, {needed}");
            assert!(after as f64 <= 1.5 * needed + 4.0, "{text}");
            sparse += usize::from(before as f64 > 1.6 * needed);
            // Merged parents make other nodes siblings: the next pass changes fewer.
            let mut changes = usize::MAX;
            while changes > 0 {
                let count = |counts: Counts| (counts.merges + counts.redistributions) as usize;
                let before = count(tree.counts);
                let all = &mut { usize::MAX };
                tree.merge(MergeFrom::default(), all).expect("a tree");
                let again = count(tree.counts) - before;
                assert!(
                    again < changes.min(after),
                    "{text}: {again} nodes change again"
                );
                changes = again;
            }
        }
        assert!(sparse >= 5, "{sparse} trees were sparse");
    }
}
