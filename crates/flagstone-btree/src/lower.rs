//! Moves the pages of a tree to lower numbers. The highest page determines the size of a store,
//! however few pages the tree has.
//!
//! Only pages beyond an end move, each to a free page before it. The parent of a moved page is
//! rewritten:
//!
//! ```text
//!   before    root 2 | leaf 7 | leaf 3 | leaf 9          free: 4, 5, 6, 8       end: 6
//!   after     root 2 | leaf 4 | leaf 3 | leaf 5          free from 6 on
//! ```
//!
//! Proceeds through the tree in key order, one part at a time, so that each part can be a
//! transaction.

use super::apart::{Apart, Entry};
use super::byte_tree::ByteTree;
use super::node::{Kind, Value, page_list};
use super::nodes::Nodes;
use crate::damaged;
use flagstone::units::{Lpn, Nanos};

const ZERO: Nanos = Nanos::ZERO;

/// A part of the pass over the tree.
struct Part<'a> {
    /// Pages from here on are moved.
    end: Lpn,
    /// Leaves that may still be read plus pages that may still be written before the part ends.
    left: &'a mut usize,
    /// The key where the next part begins, set when this one ends.
    rest: Option<Vec<u8>>,
}

impl Part<'_> {
    fn spend(&mut self, pages: usize) {
        *self.left = self.left.saturating_sub(pages);
    }
}

impl<N: Nodes> ByteTree<N> {
    /// Moves pages from number `end` on to free ones below, beginning with the leaf that covers
    /// `from`. Subtracts leaves read and pages written from `left`, and ends after the leaf at
    /// which nothing is left. Returns the key to continue with; `None` at the end of the tree. A
    /// leaf and its values move together.
    ///
    /// # Errors
    /// The pages cannot be accessed, or are damaged.
    pub fn lower(
        &mut self,
        end: Lpn,
        from: &[u8],
        left: &mut usize,
    ) -> Result<Option<Vec<u8>>, N::Error> {
        let mut part = Part {
            end,
            left,
            rest: None,
        };
        self.root = self.lower_below(self.root, self.height, from, &mut part)?;
        Ok(part.rest)
    }

    /// Moves a node and everything below it to lower pages, beginning with the leaf that covers
    /// `from`, until the part ends. A node moves in the part in which the last one below it does.
    /// Returns the node's page, which may be new.
    fn lower_below(
        &mut self,
        at: Lpn,
        height: u32,
        from: &[u8],
        part: &mut Part<'_>,
    ) -> Result<Lpn, N::Error> {
        let kind = if height > 1 { Kind::Inner } else { Kind::Leaf };
        let (mut node, _) = self.apart(ZERO, at, kind)?;
        let is_changed = match kind {
            Kind::Inner => self.lower_children(&mut node, height, from, part)?,
            Kind::Leaf => {
                part.spend(1);
                self.lower_values(at, &mut node, part)?
            }
        };
        let to = match part.rest {
            None => self.lower_page(at, part)?,
            Some(_) => at,
        };
        if to != at || is_changed {
            let (page, _) = self.nodes.fill(ZERO, to)?;
            if !node.write(page) {
                return damaged(at, "its keys are in no order");
            }
            part.spend(1);
        }
        Ok(to)
    }

    /// Moves what is below an inner node, beginning with the child that covers `from`. Ends the
    /// part after a child at which nothing is left. Returns whether `node` names new pages.
    fn lower_children(
        &mut self,
        node: &mut Apart,
        height: u32,
        from: &[u8],
        part: &mut Part<'_>,
    ) -> Result<bool, N::Error> {
        let mut is_changed = false;
        let first = node.entries.partition_point(|entry| &entry.key[..] <= from);
        for slot in first..=node.entries.len() {
            if part.rest.is_none() && slot > first && *part.left == 0 {
                part.rest = Some(node.entries[slot - 1].key.clone());
            }
            if part.rest.is_some() {
                break;
            }
            let Some(child) = node.child(slot) else { break };
            let from = if slot == first { from } else { b"" };
            let to = self.lower_below(child, height - 1, from, part)?;
            if to != child {
                node.set_child(slot, to);
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Moves the pages of a leaf's large values, and those that list them, to lower pages. Returns
    /// whether `node` names new pages.
    fn lower_values(
        &mut self,
        leaf: Lpn,
        node: &mut Apart,
        part: &mut Part<'_>,
    ) -> Result<bool, N::Error> {
        let mut is_changed = false;
        for entry in &mut node.entries {
            let Some((bytes, named)) = entry.value().pages() else {
                continue;
            };
            let lists = self.sizes.pages_named(leaf, bytes, &named)?.1;
            if lists > 0 {
                self.lower_listed(leaf, bytes, &named, part)?;
            }
            let mut to = Vec::with_capacity(named.len());
            for &at in &named {
                to.push(self.lower_copy(at, part)?);
            }
            if to != named {
                let list = page_list(bytes, &to);
                let (bytes, large) = (&list[..], true);
                *entry = Entry::new(&entry.key, Value { bytes, large });
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Moves the pages that `lists` list, those of a value in `leaf`, to lower pages, and rewrites
    /// `lists` in place.
    fn lower_listed(
        &mut self,
        leaf: Lpn,
        bytes: usize,
        lists: &[Lpn],
        part: &mut Part<'_>,
    ) -> Result<(), N::Error> {
        let (pages, _) = self.value_pages(ZERO, leaf, bytes, lists.to_vec())?;
        let mut image = vec![0; lists.len() * self.sizes.page];
        let mut is_changed = false;
        for (&at, number) in pages.iter().zip(image.chunks_exact_mut(4)) {
            let to = self.lower_copy(at, part)?;
            number.copy_from_slice(&to.0.to_le_bytes());
            is_changed |= to != at;
        }
        if is_changed {
            let parts = lists.iter().copied().zip(image.chunks(self.sizes.page));
            self.nodes.write_past(ZERO, &parts.collect::<Vec<_>>())?;
            part.spend(lists.len());
        }
        Ok(())
    }

    /// Copies an unchanged page to a lower number. Returns the new number.
    fn lower_copy(&mut self, at: Lpn, part: &mut Part<'_>) -> Result<Lpn, N::Error> {
        if at < part.end {
            return Ok(at);
        }
        let mut image = vec![0; self.sizes.page];
        self.nodes.read_past(ZERO, &[at], &mut image)?;
        let to = self.lower_page(at, part)?;
        if to != at {
            self.nodes.write_past(ZERO, &[(to, &image)])?;
            part.spend(1);
        }
        Ok(to)
    }

    /// Allocates a lower number for a page at or beyond the end, and frees the page. Returns its
    /// own number if no lower page is free.
    fn lower_page(&mut self, at: Lpn, part: &Part<'_>) -> Result<Lpn, N::Error> {
        if at < part.end {
            return Ok(at);
        }
        let to = self.nodes.take()?;
        let (stays, goes) = if to < at { (to, at) } else { (at, to) };
        self.nodes.give(ZERO, goes)?;
        Ok(stays)
    }
}
