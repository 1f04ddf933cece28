//! An unpacked node, and where to split one.
//!
//! Keys and values have any length, so a node is full by bytes, not by entries. No entry takes more
//! than half of a page, and an inner node's entry little more than an eighth. Then two pages always
//! suffice, and without prefixes the entries of each would fill at least a quarter of one:
//!
//! - The new entry shares the prefix of the others, which were in one page. Together they take at
//!   most a page and a half. A cut as close to the middle as possible gives parts that differ by at
//!   most half a page: the larger is at most one page, the smaller at least a quarter.
//! - The new entry does not share the prefix, or a node has too few entries. The entry is at one
//!   end. Entries from there that fill a quarter take less than three quarters. The rest fits as
//!   before, and is more than a quarter, since all together exceed a page.

use super::node::{self, Kind, Node, Value, alike, entry_bytes};
use flagstone::units::Lpn;
use std::cmp::Reverse;

/// A single entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    value: Vec<u8>,
    large: bool,
}

impl Entry {
    pub(super) fn new(key: &[u8], value: Value<'_>) -> Entry {
        Entry {
            key: key.to_vec(),
            value: value.bytes.to_vec(),
            large: value.large,
        }
    }

    /// An entry that leads to a child.
    pub(super) fn to_child(key: Vec<u8>, child: Lpn) -> Entry {
        Entry {
            key,
            value: child.0.to_le_bytes().to_vec(),
            large: false,
        }
    }

    pub(super) fn child(&self) -> Lpn {
        let child = self.value.first_chunk::<4>();
        Lpn(child.map_or(0, |child| u32::from_le_bytes(*child)))
    }

    pub(super) fn value(&self) -> Value<'_> {
        Value {
            bytes: &self.value,
            large: self.large,
        }
    }

    /// Size of the entry in a node without a prefix.
    fn bytes(&self) -> usize {
        entry_bytes(self.key.len(), self.value.len())
    }
}

/// How to split a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Fill both parts as evenly as possible.
    Middle,
    /// Fill the left part: entries arrive in order, and none will be added to it.
    End,
}

impl Cut {
    /// How to split a node to which an entry was added at `slot`.
    pub(super) fn after(node: &Apart, slot: usize) -> Cut {
        if slot + 1 == node.entries.len() {
            Cut::End
        } else {
            Cut::Middle
        }
    }
}

/// An unpacked node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Apart {
    pub(super) kind: Kind,
    /// The child of an inner node for keys before the first.
    pub(super) first: Lpn,
    pub(super) entries: Vec<Entry>,
}

impl Apart {
    pub(super) fn of(node: Node<'_>, kind: Kind) -> Apart {
        let entry = |slot| Entry::new(&node.key(slot), node.value(slot));
        Apart {
            kind,
            first: node.child(0),
            entries: (0..node.len).map(entry).collect(),
        }
    }

    /// A child of an inner node; children outnumber entries by one.
    pub(super) fn child(&self, slot: usize) -> Option<Lpn> {
        match slot.checked_sub(1) {
            None => Some(self.first),
            Some(entry) => Some(self.entries.get(entry)?.child()),
        }
    }

    /// Replaces the child in a slot of an inner node.
    pub(super) fn set_child(&mut self, slot: usize, child: Lpn) {
        match slot.checked_sub(1) {
            None => self.first = child,
            Some(entry) => self.entries[entry].value = child.0.to_le_bytes().to_vec(),
        }
    }

    /// Total size of the entries without a prefix: the measure of a node's fill.
    pub(super) fn fill(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }

    /// Length of the common prefix of all keys.
    fn prefix(&self) -> usize {
        match &self.entries[..] {
            [] => 0,
            [first, .., last] => alike(&first.key, &last.key),
            [only] => only.key.len(),
        }
    }

    /// Total size of the entries in a page, with the prefix stored once.
    pub(super) fn size(&self) -> usize {
        size(self.fill(), self.entries.len(), self.prefix())
    }

    /// Joins both nodes; `between` is the key that separates them.
    pub(super) fn join(mut self, between: &[u8], right: Apart) -> Apart {
        if self.kind == Kind::Inner {
            let entry = Entry::to_child(between.to_vec(), right.first);
            self.entries.push(entry);
        }
        self.entries.extend(right.entries);
        self
    }

    /// The position at which to split the node, if there is one: both parts fit a page with `room`
    /// bytes, and would fill a quarter of it without prefixes. `cut` says which part is to be as
    /// large as possible: the smaller one, or the left one. Accepts an eighth less for a shorter
    /// separator ([PrefixBTree]: the split interval).
    ///
    /// In an inner node the entry at that position moves up, so the right part begins after it.
    pub(super) fn cut(&self, room: usize, cut: Cut) -> Option<usize> {
        let (len, all) = (self.entries.len(), self.fill());
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        let up = usize::from(self.kind == Kind::Inner);
        // Size of the entries before the position.
        let mut left = 0;
        // Position, size of the part to maximize, length of the separator.
        let mut cuts: Vec<(usize, usize, usize)> = Vec::new();
        for at in 1..len - up {
            let (before, after) = (&self.entries[at - 1], &self.entries[at]);
            let next = &self.entries[at + up];
            left += before.bytes();
            let right = all - left - up * after.bytes();
            let sizes = [
                size(left, at, alike(&first.key, &before.key)),
                size(right, len - at - up, alike(&next.key, &last.key)),
            ];
            let key = match self.kind {
                Kind::Leaf => alike(&before.key, &after.key) + 1,
                Kind::Inner => after.key.len(),
            };
            if sizes[0].max(sizes[1]) <= room && left.min(right) >= room / 4 {
                let large = match cut {
                    Cut::Middle => sizes[0].min(sizes[1]),
                    Cut::End => sizes[0],
                };
                cuts.push((at, large, key));
            }
        }
        let best = cuts.iter().map(|cut| cut.1).max()?;
        cuts.retain(|cut| cut.1 >= best - best / 8);
        let cut = cuts.iter().min_by_key(|cut| (cut.2, Reverse(cut.1)))?;
        Some(cut.0)
    }

    /// Splits the node at a position that [`Apart::cut`] found. Returns the left part, the
    /// separator for their parent, and the right part. Between leaves the separator is the shortest
    /// key that distinguishes them; of an inner node it is the key that moves up.
    pub(super) fn cut_at(mut self, at: usize) -> (Apart, Vec<u8>, Apart) {
        let mut right = Apart {
            kind: self.kind,
            first: Lpn(0),
            entries: self.entries.split_off(at),
        };
        let between = if self.kind == Kind::Inner {
            let up = right.entries.remove(0);
            right.first = up.child();
            up.key
        } else {
            let (before, after) = (&self.entries[at - 1].key, &right.entries[0].key);
            let len = alike(before, after) + 1;
            after.get(..len).unwrap_or(after).to_vec()
        };
        (self, between, right)
    }

    /// Writes the node to a zeroed page. Returns `false` only if the keys are not sorted, in a
    /// damaged node.
    #[must_use]
    pub(super) fn write(&self, page: &mut [u8]) -> bool {
        let prefix = match self.entries.first() {
            Some(first) => &first.key[..self.prefix()],
            None => &[],
        };
        node::write_head(page, self.kind, prefix, self.first);
        let mut entries = self.entries.iter().enumerate();
        entries.all(|(slot, entry)| node::insert(page, slot, &entry.key, entry.value()))
    }
}

/// Size of entries that take `fill` bytes without a prefix, if the prefix is stored once.
fn size(fill: usize, len: usize, prefix: usize) -> usize {
    (prefix + fill).saturating_sub(len * prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byte_tree::Sizes;
    use flagstone::dice::Dice;

    fn apart(kind: Kind, keys: &[(&[u8], usize)]) -> Apart {
        let entry = |&(key, len): &(&[u8], usize)| {
            let bytes = &vec![1; len][..];
            Entry::new(
                key,
                Value {
                    bytes,
                    large: false,
                },
            )
        };
        Apart {
            kind,
            first: Lpn(9),
            entries: keys.iter().map(entry).collect(),
        }
    }

    #[test]
    fn two_parts_are_always_enough_and_both_are_a_quarter_full() {
        let mut dice = Dice(1);
        for i in 0..30_000 {
            let sizes = Sizes::new([128, 251, 1024][i % 3]).expect("a page");
            let (room, most, key_most) = (sizes.room, sizes.entry, sizes.limits.key as u64);
            let kind = if i % 2 == 0 { Kind::Leaf } else { Kind::Inner };
            // Entries of one length, of any length, or only of extreme lengths; most share a
            // prefix, but a few do not.
            let (long, alike) = (dice.below(100), dice.below(key_most - 2));
            let mut node = apart(kind, &[]);
            while node.size() <= room {
                let is_long = dice.below(100) < long;
                let end = if is_long { key_most } else { alike + 2 };
                let mut key = vec![7; end as usize];
                let number = (dice.below(5000) as u16).to_be_bytes();
                key[alike as usize..][..2].copy_from_slice(&number);
                if dice.below(60) == 0 {
                    key[0] = dice.below(2) as u8 * 255;
                }
                let rest = most - entry_bytes(key.len(), 0);
                let value = match kind {
                    Kind::Inner => 4,
                    Kind::Leaf if is_long => rest,
                    Kind::Leaf => dice.below(rest as u64 / 4 + 1) as usize,
                };
                let found = node.entries.binary_search_by(|entry| entry.key.cmp(&key));
                if let Err(slot) = found {
                    let entry = apart(kind, &[(&key, value)]).entries.remove(0);
                    node.entries.insert(slot, entry);
                }
            }
            let towards = [Cut::Middle, Cut::End][i / 2 % 2];
            let cut = node.cut(room, towards).expect("a cut");
            let (left, between, right) = node.clone().cut_at(cut);
            for part in [&left, &right] {
                let holds = part.fill() >= room / 4 && part.size() <= room;
                assert!(holds, "{node:?} at {cut}");
            }
            let last = &left.entries[left.entries.len() - 1].key;
            assert!(last < &between && between <= right.entries[0].key);
            if kind == Kind::Inner {
                assert_eq!(left.join(&between, right), node);
            }
        }
    }

    #[test]
    fn the_key_between_two_leaves_is_the_shortest_that_tells_them_apart() {
        let keys: Vec<(&[u8], usize)> = vec![
            (b"communist", 20),
            (b"community", 20),
            (b"commute", 20),
            (b"computer", 20),
            (b"electron", 20),
            (b"electronic", 20),
            (b"electronics", 20),
        ];
        let node = apart(Kind::Leaf, &keys);
        let (left, between, right) = node.clone().cut_at(4);
        assert_eq!((left.entries.len(), &between[..]), (4, &b"e"[..]));
        assert_eq!(right.entries[0].key, b"electron");
        // A cut exactly in the middle is not worth eight bytes of separator.
        assert_eq!(node.cut(240, Cut::Middle), Some(4));
        assert_eq!(node.clone().cut_at(5).1, b"electroni");
        assert_eq!(node.cut_at(2).1, b"commut");
    }
}
