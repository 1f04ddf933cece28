//! What happens to nodes that have too many bytes or too few: splits, entries that move to a
//! sibling, merges; and so on upwards.
//!
//! A leaf and an inner node differ in one thing: between two leaves the parent has a key of its
//! own making, between two inner nodes one that goes up and down.
//!
//! A key that is longer than the one that it replaces may split the parent, whatever happened
//! below: also where keys were deleted.

use super::super::IndexError;
use super::apart::{Apart, Entry};
use super::node::{Kind, alike};
use super::tree::{Step, Tree, damaged};
use crate::units::{Lpn, Nanos};

/// The keys of a node: from the first on and before the second, if there is one.
pub(super) type Bounds = (Vec<u8>, Option<Vec<u8>>);

/// Bytes that all keys within the bounds begin with.
pub(super) fn prefix(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| alike(low, high))
}

impl Tree {
    /// The keys of the node at a depth of the path, which those above it tell.
    pub(super) fn bounds(
        &mut self,
        mut now: Nanos,
        depth: usize,
    ) -> Result<(Bounds, Nanos), IndexError> {
        let (mut low, mut high) = (None, None);
        for above in (0..depth).rev() {
            let Step { at, slot } = self.path[above];
            let ((before, after), done) = self.look(now, at, Kind::Inner, |node| {
                let before = slot.checked_sub(1).filter(|_| low.is_none());
                let after = (slot < node.len && high.is_none()).then_some(slot);
                (before.map(|s| node.key(s)), after.map(|s| node.key(s)))
            })?;
            now = done;
            low = low.or(before);
            high = high.or(after);
        }
        Ok(((low.unwrap_or_default(), high), now))
    }

    fn write_node(
        &mut self,
        now: Nanos,
        at: Lpn,
        node: &Apart,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<Nanos, IndexError> {
        let (page, now) = self.cache.fill(now, at)?;
        node.write(page, prefix(low, high));
        Ok(now)
    }

    /// Gives the node at a depth of the path its entries, as many bytes as they may have.
    pub(super) fn balance(
        &mut self,
        now: Nanos,
        depth: usize,
        node: Apart,
    ) -> Result<Nanos, IndexError> {
        let at = self.path[depth].at;
        let (bounds, now) = self.bounds(now, depth)?;
        let (low, high) = (&bounds.0, bounds.1.as_deref());
        if node.size(prefix(low, high)) > self.sizes.room {
            return self.split(now, depth, node, bounds);
        }
        if depth > 0 && node.fill() < self.sizes.least() {
            return self.mend(now, depth, node);
        }
        if depth == 0 && node.kind == Kind::Inner && node.entries.is_empty() {
            self.root = node.first;
            self.height -= 1;
            self.counts.shrunk += 1;
            return self.drop_page(now, at);
        }
        self.write_node(now, at, &node, low, high)
    }

    fn split(
        &mut self,
        mut now: Nanos,
        mut depth: usize,
        node: Apart,
        (low, high): Bounds,
    ) -> Result<Nanos, IndexError> {
        let at = self.path[depth].at;
        let (prefix, room) = (prefix(&low, high.as_deref()), self.sizes.room);
        let fits = |left, right| left <= room && right <= room;
        let Some(cut) = node.cut(prefix, room, fits) else {
            return damaged(at, "its entries are longer than they may be");
        };
        let (left, between, right) = node.cut_at(cut);
        let new = self.space.take()?;
        let mut parent = if depth == 0 {
            self.root = self.space.take()?;
            self.height += 1;
            self.counts.grown += 1;
            let (root, slot) = (self.root, 0);
            self.path.insert(0, Step { at: root, slot });
            depth = 1;
            let (kind, entries) = (Kind::Inner, Vec::new());
            Apart {
                kind,
                first: at,
                entries,
            }
        } else {
            let (parent, done) = self.apart(now, self.path[depth - 1].at, Kind::Inner)?;
            now = done;
            parent
        };
        self.counts.splits += 1;
        now = self.write_node(now, at, &left, &low, Some(&between))?;
        now = self.write_node(now, new, &right, &between, high.as_deref())?;
        let slot = self.path[depth - 1].slot;
        let entry = Entry::to_child(between, new);
        parent.entries.insert(slot, entry);
        self.balance(now, depth - 1, parent)
    }

    /// A node that has too little merges with a sibling, the right one if that can be, or takes
    /// from one what makes the smaller of both as large as can be.
    fn mend(&mut self, mut now: Nanos, depth: usize, own: Apart) -> Result<Nanos, IndexError> {
        let Step { at, slot } = self.path[depth - 1];
        let (mut parent, done) = self.apart(now, at, Kind::Inner)?;
        let (bounds, done) = self.bounds(done, depth - 1)?;
        now = done;
        let room = self.sizes.room;
        // The left one of the pair, all its entries, and the bytes of the pair's prefix.
        let mut pair: Option<(usize, Apart, usize)> = None;
        for other in [slot + 1, slot.wrapping_sub(1)] {
            let Some(sibling) = parent.child(other) else {
                continue;
            };
            let (sibling, done) = self.apart(now, sibling, own.kind)?;
            now = done;
            let first = slot.min(other);
            let between = &parent.entries[first].key;
            let all = if other > slot {
                own.clone().join(between, sibling)
            } else {
                sibling.join(between, own.clone())
            };
            let (low, high) = pair_bounds(&parent, first, &bounds);
            let prefix = prefix(low, high);
            let merges = all.size(prefix) <= room;
            if merges || pair.is_none() {
                pair = Some((first, all, prefix));
            }
            if merges {
                break;
            }
        }
        let Some((first, all, prefix)) = pair else {
            return damaged(at, "it has one child only");
        };
        let (Some(left), Some(right)) = (parent.child(first), parent.child(first + 1)) else {
            return damaged(at, "it has fewer children than it had");
        };
        let (low, high) = pair_bounds(&parent, first, &bounds);
        if all.size(prefix) <= room {
            self.counts.merges += 1;
            now = self.write_node(now, left, &all, low, high)?;
            parent.entries.remove(first);
            now = self.drop_page(now, right)?;
            return self.balance(now, depth - 1, parent);
        }
        // What stays in the sibling fits there, for it was there before, with a prefix that does
        // not become shorter.
        let fits = |left, right| {
            if first == slot {
                left <= room
            } else {
                right <= room
            }
        };
        let Some(cut) = all.cut(prefix, room, fits) else {
            return damaged(left, "its entries are longer than they may be");
        };
        self.counts.redistributions += 1;
        let (to_left, between, to_right) = all.cut_at(cut);
        now = self.write_node(now, left, &to_left, low, Some(&between))?;
        now = self.write_node(now, right, &to_right, &between, high)?;
        parent.entries[first].key = between;
        self.balance(now, depth - 1, parent)
    }
}

/// The keys of two children side by side, in a parent that has those of `bounds`.
fn pair_bounds<'a>(
    parent: &'a Apart,
    first: usize,
    bounds: &'a Bounds,
) -> (&'a [u8], Option<&'a [u8]>) {
    let key = |slot: usize| parent.entries.get(slot).map(|entry| &entry.key[..]);
    let low = first.checked_sub(1).and_then(key);
    (
        low.unwrap_or(&bounds.0),
        key(first + 1).or(bounds.1.as_deref()),
    )
}
