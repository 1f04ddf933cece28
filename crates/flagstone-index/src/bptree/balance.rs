//! Rebalances nodes with too many or too few entries: splits, borrowing from siblings, merges, and
//! the same for their parents.
//!
//! A step replaces adjacent nodes under one parent by others with the same key range, notifies the
//! layer above, and then updates the parent's list of children in the same way.

use super::super::{Key, Result, Value, damaged};
use super::node::{Links, Shape};
use super::tree::{Above, Span, Step, Tree};
use flagstone::units::{Lpn, Nanos};
use std::ops::Range;

/// Distributes `all` items evenly over `parts` parts; the first ones get one more.
fn parts(all: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    (0..parts).scan(0, move |from, part| {
        let start = *from;
        *from += all / parts + usize::from(part < all % parts);
        Some(start..*from)
    })
}

/// Children of a node that are replaced, and their replacements.
struct Replaced {
    /// The first replaced child.
    slot: usize,
    /// Number of replaced children.
    old: usize,
    new: Vec<Span>,
}

/// An unpacked inner node.
struct Inner {
    keys: Vec<Key>,
    children: Vec<Lpn>,
}

impl Inner {
    /// The keys between the children of a part.
    fn keys(&self, part: &Range<usize>) -> &[Key] {
        &self.keys[part.start..part.end - 1]
    }

    /// The key bounds of children `first` to `last`, in a node with the bounds `span`.
    fn bounds(&self, first: usize, last: usize, span: Span) -> (Key, Key) {
        let low = first
            .checked_sub(1)
            .map_or(span.low, |slot| self.keys[slot]);
        let high = self.keys.get(last).map_or(span.high, |key| key - 1);
        (low, high)
    }
}

impl<A: Above> Tree<A> {
    /// Writes entries to the leaf at the end of the path. The number of entries may be invalid for
    /// a leaf; then splits, borrows or merges.
    pub(super) fn balance_leaf(&mut self, now: Nanos, entries: &[(Key, Value)]) -> Result<Nanos> {
        let most = 2 * self.shape.leaf_order;
        if entries.len() <= most {
            return self.mend_leaf(now, entries);
        }
        let count = entries.len().div_ceil(most);
        // Every level may split, into fewer parts the higher it is.
        let needed = 2 * count + 2 * self.path.len();
        if (self.space.left() as usize) < needed {
            return Err(self.space.full());
        }
        self.split_leaf(now, entries, count)
    }

    /// Fills an empty tree with sorted pairs, using as few nodes as possible.
    pub(in super::super) fn build(&mut self, now: Nanos, pairs: &[(Key, Value)]) -> Result<Nanos> {
        let Some(&(first, _)) = pairs.first() else {
            return Ok(now);
        };
        let (leaf, now) = self.descend(now, first)?;
        if pairs.len() > 2 * self.shape.leaf_order {
            return self.balance_leaf(now, pairs);
        }
        let shape = self.shape;
        let (page, now) = self.change(now, leaf)?;
        shape.write_entries(page, pairs);
        Ok(now)
    }

    fn leaf_links(&mut self, now: Nanos, at: Lpn) -> Result<(Links, Nanos)> {
        self.look(now, at, |_, page, shape| {
            shape.leaf_len(page)?;
            Some(Shape::links(page))
        })
    }

    /// Distributes sorted entries over leaves in `pages`, whose keys are from `low` to `high`, and
    /// links them between the leaves `left` and `right`. Does not change these two.
    fn write_leaves(
        &mut self,
        mut now: Nanos,
        pages: &[Lpn],
        (left, right): Links,
        low: Key,
        high: Key,
        entries: &[(Key, Value)],
    ) -> Result<(Vec<Span>, Nanos)> {
        let shape = self.shape;
        if !entries.is_sorted_by(|one, next| one.0 < next.0) {
            return damaged(pages[0], "its records are not in their order");
        }
        let mut spans: Vec<Span> = Vec::with_capacity(pages.len());
        for (i, part) in parts(entries.len(), pages.len()).enumerate() {
            let low = if i == 0 { low } else { entries[part.start].0 };
            if let Some(before) = spans.last_mut() {
                before.high = low - 1;
            }
            let at = pages[i];
            spans.push(Span { at, low, high });
            let (page, done) = self.fill(now, at)?;
            now = done;
            shape.write_entries(page, &entries[part]);
            Shape::set_left(page, if i == 0 { left } else { Some(pages[i - 1]) });
            Shape::set_right(page, pages.get(i + 1).copied().or(right));
        }
        Ok((spans, now))
    }

    /// Splits the leaf at the end of the path into `count` leaves with `entries`; the first one
    /// keeps its page. The caller has checked that there are enough free pages.
    fn split_leaf(
        &mut self,
        mut now: Nanos,
        entries: &[(Key, Value)],
        count: usize,
    ) -> Result<Nanos> {
        if self.path.len() == 1 {
            now = self.grow(now)?;
        }
        let Span { at, low, high } = self.path[self.path.len() - 1].span;
        let ((left, right), done) = self.leaf_links(now, at)?;
        let mut pages = vec![at];
        for _ in 1..count {
            pages.push(self.space.take()?);
        }
        self.counts.splits += count as u64 - 1;
        let links = (left, right);
        let (new, done) = self.write_leaves(done, &pages, links, low, high, entries)?;
        now = done;
        if let Some(right) = right {
            let (page, done) = self.change(now, right)?;
            Shape::set_left(page, pages.last().copied());
            now = done;
        }
        self.above.reshaped(&[at], &new);
        let (depth, old) = (self.path.len() - 2, 1);
        let slot = self.path[depth].slot;
        self.replace(now, depth, Replaced { slot, old, new })
    }

    /// Rebalances the leaf at the end of the path, whose new `entries` are too few. Borrows from
    /// the right sibling, or else the left one, if that one and the leaf have 2d entries together;
    /// otherwise merges with the right sibling, or the left one if there is no right one.
    fn mend_leaf(&mut self, mut now: Nanos, entries: &[(Key, Value)]) -> Result<Nanos> {
        let depth = self.path.len() - 2;
        let Step { span: parent, slot } = self.path[depth];
        let own = self.path[depth + 1].span.at;
        let (node, done) = self.inner(now, parent.at)?;
        now = done;
        // The left slot of the chosen pair of siblings, and the pair's entries.
        let mut chosen: Option<(usize, Vec<(Key, Value)>)> = None;
        self.kept.clear();
        for other in [slot + 1, slot.wrapping_sub(1)] {
            let Some(&at) = node.children.get(other) else {
                continue;
            };
            let mut all = Vec::new();
            let ((), done) = self.look(now, at, |_, page, shape| {
                let found = shape.entries(page, shape.leaf_len(page)?);
                if other > slot {
                    all.extend_from_slice(entries);
                    all.extend(found);
                } else {
                    all.extend(found);
                    all.extend_from_slice(entries);
                }
                Some(())
            })?;
            now = done;
            self.kept.push(at);
            let lends = all.len() >= 2 * self.shape.leaf_order;
            if lends || chosen.is_none() {
                chosen = Some((slot.min(other), all));
            }
            if lends {
                break;
            }
        }
        let Some((first, all)) = chosen else {
            return damaged(own, "its parent has one child only");
        };
        let done = self.mend_pair(now, depth, first, &node, &all);
        self.kept.clear();
        match done? {
            (Some(gone), now) => self.drop_page(now, gone),
            (None, now) => Ok(now),
        }
    }

    /// Distributes `all`, the entries of the children `first` and `first + 1` of `node`, over both;
    /// or moves all to the left one and returns the right one's page, which the caller frees.
    /// `depth` is the place of the parent, `node`, in the path.
    fn mend_pair(
        &mut self,
        now: Nanos,
        depth: usize,
        first: usize,
        node: &Inner,
        all: &[(Key, Value)],
    ) -> Result<(Option<Lpn>, Nanos)> {
        let pair = [node.children[first], node.children[first + 1]];
        let (low, high) = node.bounds(first, first + 1, self.path[depth].span);
        let ((left, _), now) = self.leaf_links(now, pair[0])?;
        let ((_, right), now) = self.leaf_links(now, pair[1])?;
        let count = if all.len() >= 2 * self.shape.leaf_order {
            self.counts.redistributions += 1;
            2
        } else {
            self.counts.merges += 1;
            1
        };
        let links = (left, right);
        let (new, mut now) = self.write_leaves(now, &pair[..count], links, low, high, all)?;
        if let Some(right) = right.filter(|_| count == 1) {
            let (page, done) = self.change(now, right)?;
            Shape::set_left(page, Some(pair[0]));
            now = done;
        }
        self.above.reshaped(&pair, &new);
        let (slot, old) = (first, 2);
        let now = self.replace(now, depth, Replaced { slot, old, new })?;
        Ok(((count == 1).then_some(pair[1]), now))
    }

    fn inner(&mut self, now: Nanos, at: Lpn) -> Result<(Inner, Nanos)> {
        self.look(now, at, |_, page, shape| {
            let len = shape.inner_len(page)?;
            let keys: Vec<Key> = (0..len).map(|slot| Shape::inner_key(page, slot)).collect();
            // Key 0 never separates children.
            let is_ordered = keys.first() != Some(&0) && keys.is_sorted_by(|one, next| one < next);
            let children = (0..=len).map(|slot| Shape::child(page, slot)).collect();
            is_ordered.then_some(Inner { keys, children })
        })
    }

    /// Writes an inner node, whose keys are from `low` to `high`, to one page, or in equal parts to
    /// several. Returns the written nodes with their key bounds.
    fn write_inners(
        &mut self,
        mut now: Nanos,
        pages: &[Lpn],
        low: Key,
        high: Key,
        node: &Inner,
    ) -> Result<(Vec<Span>, Nanos)> {
        let mut spans: Vec<Span> = Vec::with_capacity(pages.len());
        for (part, &at) in parts(node.children.len(), pages.len()).zip(pages) {
            let low = if part.start == 0 {
                low
            } else {
                node.keys[part.start - 1]
            };
            if let Some(before) = spans.last_mut() {
                before.high = low - 1;
            }
            spans.push(Span { at, low, high });
            let (page, done) = self.fill(now, at)?;
            now = done;
            Shape::write_inner(page, node.keys(&part), &node.children[part]);
        }
        Ok((spans, now))
    }

    /// Replaces children of the inner node at `depth` in the path; 0 is the root. Then splits the
    /// node or rebalances it with a sibling if needed, and removes a root with one child.
    fn replace(&mut self, now: Nanos, mut depth: usize, replaced: Replaced) -> Result<Nanos> {
        let Span { at, low, high } = self.path[depth].span;
        let (mut node, mut now) = self.inner(now, at)?;
        let Replaced { slot, old, new } = replaced;
        if slot + old > node.children.len() {
            return damaged(at, "it has fewer children than it had");
        }
        node.children
            .splice(slot..slot + old, new.iter().map(|span| span.at));
        node.keys
            .splice(slot..slot + old - 1, new[1..].iter().map(|span| span.low));
        let order = self.shape.inner_order;
        if depth == 0 && node.keys.is_empty() {
            self.root = node.children[0];
            self.height -= 1;
            self.counts.shrunk += 1;
            self.above.shrunk(self.root);
            return self.drop_page(now, at);
        }
        if node.keys.len() < order && depth > 0 {
            return self.mend_inner(now, depth, node);
        }
        if node.keys.len() <= 2 * order {
            let (page, now) = self.fill(now, at)?;
            Shape::write_inner(page, &node.keys, &node.children);
            return Ok(now);
        }
        if depth == 0 {
            now = self.grow(now)?;
            depth = 1;
        }
        let count = node.children.len().div_ceil(2 * order + 1);
        let mut pages = vec![at];
        for _ in 1..count {
            pages.push(self.space.take()?);
        }
        self.counts.splits += count as u64 - 1;
        let (new, now) = self.write_inners(now, &pages, low, high, &node)?;
        self.above.reshaped(&[at], &new);
        let (slot, old) = (self.path[depth - 1].slot, 1);
        self.replace(now, depth - 1, Replaced { slot, old, new })
    }

    /// Rebalances the inner node at `depth` in the path, whose new contents, `own`, have too few
    /// keys. Works like `mend_leaf`, but the key between the siblings moves through the parent.
    fn mend_inner(&mut self, mut now: Nanos, depth: usize, own: Inner) -> Result<Nanos> {
        let Step { span: parent, slot } = self.path[depth - 1];
        let (node, done) = self.inner(now, parent.at)?;
        now = done;
        let order = self.shape.inner_order;
        let mut chosen: Option<(usize, Inner)> = None;
        for other in [slot + 1, slot.wrapping_sub(1)] {
            let Some(&at) = node.children.get(other) else {
                continue;
            };
            let (found, done) = self.inner(now, at)?;
            now = done;
            let lends = found.keys.len() + own.keys.len() >= 2 * order;
            if lends || chosen.is_none() {
                chosen = Some((other, found));
            }
            if lends {
                break;
            }
        }
        let Some((other, sibling)) = chosen else {
            return damaged(parent.at, "it has one child only");
        };
        let first = slot.min(other);
        let (mut all, right) = if other > slot {
            (own, sibling)
        } else {
            (sibling, own)
        };
        let lends = all.keys.len() + right.keys.len() >= 2 * order;
        all.keys.push(node.keys[first]);
        all.keys.extend(right.keys);
        all.children.extend(right.children);
        let pair = [node.children[first], node.children[first + 1]];
        let count = if lends {
            self.counts.redistributions += 1;
            2
        } else {
            self.counts.merges += 1;
            now = self.drop_page(now, pair[1])?;
            1
        };
        let (low, high) = node.bounds(first, first + 1, parent);
        let (new, now) = self.write_inners(now, &pair[..count], low, high, &all)?;
        self.above.reshaped(&pair, &new);
        let (slot, old) = (first, 2);
        self.replace(now, depth - 1, Replaced { slot, old, new })
    }

    /// Adds a new root above the root, its only child: the caller then splits that.
    fn grow(&mut self, now: Nanos) -> Result<Nanos> {
        let root = self.space.take()?;
        let below = self.root;
        let (page, now) = self.fill(now, root)?;
        Shape::write_inner(page, &[], &[below]);
        self.root = root;
        self.height += 1;
        self.counts.grown += 1;
        let (low, high) = (0, Key::MAX);
        let span = Span {
            at: root,
            low,
            high,
        };
        self.path.insert(0, Step { span, slot: 0 });
        self.above.grown(root);
        Ok(now)
    }

    fn drop_page(&mut self, now: Nanos, at: Lpn) -> Result<Nanos> {
        self.space.give(at)?;
        Ok(self.cache.forget(now, at)?)
    }
}
