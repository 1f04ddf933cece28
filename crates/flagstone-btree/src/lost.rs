//! Finds the unreadable parts of a tree, and removes them so that the tree can be used.
//!
//! An unreadable node is removed from its parent, with everything below it. A value with an
//! unreadable page is removed with its key.

use super::apart::Cut;
use super::byte_tree::{ByteTree, Step};
use super::node::Kind;
use super::nodes::Nodes;
use crate::damaged;
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeSet;

const ZERO: Nanos = Nanos::ZERO;

/// An unreadable part of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The unreadable node; for a value, the leaf with its key.
    pub at: Lpn,
    /// Levels from that node down to the leaves; 0 for a value.
    pub height: u32,
    /// The first lost key; for a value, its key.
    pub from: Vec<u8>,
    /// The first key after the lost ones; `None` for a value, and for a loss that extends to the
    /// end of the tree.
    pub to: Option<Vec<u8>>,
}

impl<N: Nodes> ByteTree<N> {
    /// The unreadable parts of the tree, those nearest to the root first and values last, and
    /// referenced pages that are unreadable. Reads all pages. Values are last since a leaf without
    /// its value may be merged with another one, which must be readable.
    ///
    /// # Errors
    /// The pages cannot be accessed, or two nodes reference the same one.
    pub fn lost(&mut self) -> Result<(Vec<Lost>, Vec<Lpn>), N::Error> {
        let (mut lost, mut pages, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut values = Vec::new();
        let mut level = vec![Lost {
            at: self.root,
            height: self.height,
            from: Vec::new(),
            to: None,
        }];
        while !level.is_empty() {
            let mut below = Vec::new();
            for part in level {
                let is_leaf = part.height == 1;
                let kind = if is_leaf { Kind::Leaf } else { Kind::Inner };
                let node = match self.apart(ZERO, part.at, kind) {
                    Ok((node, _)) if seen.insert(part.at) => node,
                    Ok(_) => return damaged(part.at, "the tree uses the page twice"),
                    Err(error) => {
                        self.nodes.pass_over(error)?;
                        pages.push(part.at);
                        lost.push(part);
                        continue;
                    }
                };
                if is_leaf {
                    for entry in &node.entries {
                        let Some((bytes, named)) = entry.value().pages() else {
                            continue;
                        };
                        let unread = self.unread(part.at, bytes, named)?;
                        if !unread.is_empty() {
                            pages.extend(unread);
                            values.push(Lost {
                                at: part.at,
                                height: 0,
                                from: entry.key.clone(),
                                to: None,
                            });
                        }
                    }
                    continue;
                }
                let key = |slot: usize| node.entries.get(slot).map(|entry| entry.key.clone());
                for slot in 0..=node.entries.len() {
                    let low = slot.checked_sub(1).and_then(key);
                    below.extend(node.child(slot).map(|at| Lost {
                        at,
                        height: part.height - 1,
                        from: low.unwrap_or_else(|| part.from.clone()),
                        to: key(slot).or_else(|| part.to.clone()),
                    }));
                }
            }
            level = below;
        }
        lost.extend(values);
        Ok((lost, pages))
    }

    /// The unreadable pages of a large value: pages that list others, or else pages of the value.
    /// The leaf itself if these pages can be read, but do not name the pages of such a value.
    fn unread(&mut self, leaf: Lpn, bytes: usize, named: Vec<Lpn>) -> Result<Vec<Lpn>, N::Error> {
        let mut unread = Vec::new();
        let is_list = self.sizes.pages_of(bytes).1 > 0;
        if is_list {
            for &at in &named {
                self.try_page(at, &mut unread)?;
            }
        }
        if unread.is_empty() {
            match self.value_pages(ZERO, leaf, bytes, named) {
                Ok((pages, _)) => {
                    for at in pages {
                        self.try_page(at, &mut unread)?;
                    }
                }
                Err(error) => {
                    self.nodes.pass_over(error)?;
                    unread.push(leaf);
                }
            }
        }
        Ok(unread)
    }

    fn try_page(&mut self, at: Lpn, unread: &mut Vec<Lpn>) -> Result<(), N::Error> {
        let mut image = vec![0; self.sizes.page];
        if let Err(error) = self.nodes.read_past(ZERO, &[at], &mut image) {
            self.nodes.pass_over(error)?;
            unread.push(at);
        }
        Ok(())
    }

    /// Removes a part that [`ByteTree::lost`] found. Parts must be removed in the order in which
    /// they were found. Pages that only the lost page referenced stay allocated.
    ///
    /// # Errors
    /// The pages cannot be accessed, or are damaged.
    pub fn give_up(&mut self, lost: &Lost) -> Result<(), N::Error> {
        if lost.height == 0 {
            return self.change(ZERO, &lost.from, None).map(drop);
        }
        self.path.clear();
        let mut at = self.root;
        for _ in 0..self.height - lost.height.min(self.height) {
            let ((slot, child), _) = self.look(ZERO, at, Kind::Inner, |node| {
                let slot = node.route(&lost.from);
                (slot, node.child(slot))
            })?;
            self.path.push(Step { at, slot });
            at = child;
        }
        if at != lost.at {
            return damaged(lost.at, "the tree does not lead to it any more");
        }
        self.cut_off(at)
    }

    /// Removes the node `at`, the child that the path leads to, and parents left without children.
    /// If nothing is left, the root becomes an empty leaf.
    fn cut_off(&mut self, mut at: Lpn) -> Result<(), N::Error> {
        while let Some(&Step { at: parent, slot }) = self.path.last() {
            self.drop_page(ZERO, at)?;
            let (mut node, _) = self.apart(ZERO, parent, Kind::Inner)?;
            if node.entries.is_empty() {
                self.path.pop();
                at = parent;
                continue;
            }
            let gone = node.entries.remove(slot.saturating_sub(1));
            if slot == 0 {
                node.first = gone.child();
            }
            return self
                .balance(ZERO, self.path.len() - 1, node, Cut::Middle)
                .map(drop);
        }
        let (page, _) = self.nodes.fill(ZERO, at)?;
        super::write_empty(page);
        (self.root, self.height) = (at, 1);
        Ok(())
    }
}
