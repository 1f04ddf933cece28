//! Node encoding: sorted entries in a page, found by bisection directly on the bytes.

use super::super::{IndexError, Key, Result, Value};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::Lpn;

layout! {
    /// The head of a leaf of a B+-tree; the entries follow in order, each a key of 8 bytes and a
    /// value of as many as the index has. Short links let 170 entries of 12 bytes fit 2 KB.
    pub leaf_head: 8 => {
        COUNT: 2, "entries; the top bit is set";
        LEFT:  3, "the leaf with the next smaller keys, 0 in the first";
        RIGHT: 3, "the leaf with the next greater keys, 0 in the last";
    }
}

layout! {
    /// The head of an inner node of a B+-tree; the entries follow in order, each a key of 8 bytes
    /// and the page of the child with the keys from this one on.
    pub inner_head: 8 => {
        COUNT:  2, "entries";
        UNUSED: 2, "zero";
        FIRST:  4, "the child with the keys before the first";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[leaf_head::RECORD, inner_head::RECORD];

/// Upper limit of page numbers in leaf links.
pub(in super::super) const PAGES_MAX: u32 = 1 << 24;

/// The top bit of a leaf's count, which tells leaves from inner nodes.
const LEAF: u64 = 1 << 15;
/// Size of an inner node's entry.
const INNER: usize = 12;

/// A change of a key: its new value, or `None` to delete it.
pub(in super::super) type Change = (Key, Option<Value>);

/// Left and right neighbours of a leaf.
pub(super) type Links = (Option<Lpn>, Option<Lpn>);

/// The sizes of nodes, and operations on the bytes of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Shape {
    value_bytes: usize,
    /// A leaf has at least this many entries and at most twice as many.
    pub(in super::super) leaf_order: usize,
    /// An inner node has at least this many keys and at most twice as many.
    pub(in super::super) inner_order: usize,
}

impl Shape {
    /// The shape of nodes with `order` to `2 * order` entries or keys. 0: as many as fit, which
    /// differs between leaves and inner nodes.
    ///
    /// # Errors
    /// The order does not fit the page, or no order does.
    pub(super) fn new(page_bytes: usize, value_bytes: usize, order: usize) -> Result<Shape> {
        let room = page_bytes.saturating_sub(leaf_head::SIZE);
        // The largest order with entries of this size. A node has up to twice as many entries, and
        // their count must stay below the bit LEAF.
        let most = |entry: usize| (room / entry / 2).min(LEAF as usize / 4);
        let (leaf, inner) = (most(8 + value_bytes), most(INNER));
        if leaf == 0 || inner == 0 || order > leaf.min(inner) {
            return Err(IndexError::Settings(format!(
                "order {order} does not fit pages of {page_bytes} bytes with values of \
                 {value_bytes}: use at most {}, or 0 for what fits",
                leaf.min(inner)
            )));
        }
        let given = |most: usize| if order == 0 { most } else { order };
        Ok(Shape {
            value_bytes,
            leaf_order: given(leaf),
            inner_order: given(inner),
        })
    }

    fn stride(self) -> usize {
        8 + self.value_bytes
    }

    #[inline]
    fn key(page: &[u8], at: usize) -> Key {
        Key::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Length of the prefix of `len` fixed-width entries for whose keys `test` is true.
    #[inline]
    fn part(page: &[u8], stride: usize, len: usize, test: impl Fn(Key) -> bool) -> usize {
        let holds = |slot: usize| test(Shape::key(page, leaf_head::SIZE + slot * stride));
        let (mut first, mut rest) = (0, len);
        // No branch depends on a key: such branches would be mispredicted half of the time.
        while rest > 1 {
            let half = rest / 2;
            first += if holds(first + half - 1) { half } else { 0 };
            rest -= half;
        }
        first + usize::from(rest == 1 && holds(first))
    }

    /// Number of entries of a leaf; `None` if the page is not a leaf.
    #[inline]
    pub(in super::super) fn leaf_len(self, page: &[u8]) -> Option<usize> {
        let count = get(page, leaf_head::COUNT);
        let len = (count & (LEAF - 1)) as usize;
        (count & LEAF != 0 && len <= 2 * self.leaf_order).then_some(len)
    }

    /// The slot of a key in a leaf (`Ok`), or the slot where it would be inserted (`Err`).
    #[inline]
    pub(super) fn find(self, page: &[u8], len: usize, key: Key) -> Result<usize, usize> {
        let slot = Shape::part(page, self.stride(), len, |other| other < key);
        if slot < len && self.leaf_key(page, slot) == key {
            Ok(slot)
        } else {
            Err(slot)
        }
    }

    fn at(self, slot: usize) -> usize {
        leaf_head::SIZE + slot * self.stride()
    }

    #[inline]
    pub(super) fn leaf_key(self, page: &[u8], slot: usize) -> Key {
        Shape::key(page, self.at(slot))
    }

    #[inline]
    pub(super) fn value(self, page: &[u8], slot: usize) -> Value {
        let at = self.at(slot) + 8;
        get(page, at..at + self.value_bytes)
    }

    #[inline]
    pub(super) fn set_value(self, page: &mut [u8], slot: usize, value: Value) {
        let at = self.at(slot) + 8;
        put(page, at..at + self.value_bytes, value);
    }

    pub(super) fn set_leaf_len(page: &mut [u8], len: usize) {
        put(page, leaf_head::COUNT, LEAF | len as u64);
    }

    /// Inserts an entry into a leaf that is not full.
    pub(super) fn insert(self, page: &mut [u8], len: usize, slot: usize, key: Key, value: Value) {
        let (from, to) = (self.at(slot), self.at(len));
        page.copy_within(from..to, from + self.stride());
        put(page, from..from + 8, key);
        self.set_value(page, slot, value);
        Shape::set_leaf_len(page, len + 1);
    }

    /// Removes an entry from a leaf.
    pub(super) fn remove(self, page: &mut [u8], len: usize, slot: usize) {
        let (from, to) = (self.at(slot + 1), self.at(len));
        page.copy_within(from..to, self.at(slot));
        page[self.at(len - 1)..to].fill(0);
        Shape::set_leaf_len(page, len - 1);
    }

    /// First and last key of a leaf.
    pub(in super::super) fn keys(self, page: &[u8], len: usize) -> Option<(Key, Key)> {
        let last = len.checked_sub(1)?;
        Some((self.leaf_key(page, 0), self.leaf_key(page, last)))
    }

    /// The entries of a leaf.
    pub(super) fn entries(
        self,
        page: &[u8],
        len: usize,
    ) -> impl Iterator<Item = (Key, Value)> + '_ {
        (0..len).map(move |slot| (self.leaf_key(page, slot), self.value(page, slot)))
    }

    /// Replaces all entries of a leaf. The links are not changed.
    pub(super) fn write_entries(self, page: &mut [u8], entries: &[(Key, Value)]) {
        for (slot, &(key, value)) in entries.iter().enumerate() {
            let at = self.at(slot);
            put(page, at..at + 8, key);
            self.set_value(page, slot, value);
        }
        page[self.at(entries.len())..].fill(0);
        Shape::set_leaf_len(page, entries.len());
    }

    /// Replaces the contents of `into` by the entries of a leaf after changes that are sorted by
    /// key. Returns `true` if they differ from the old ones.
    pub(super) fn merge(
        self,
        page: &[u8],
        len: usize,
        changes: &[Change],
        into: &mut Vec<(Key, Value)>,
    ) -> bool {
        into.clear();
        let mut old = self.entries(page, len).peekable();
        let mut differs = false;
        for &(key, value) in changes {
            while let Some(entry) = old.next_if(|&(other, _)| other < key) {
                into.push(entry);
            }
            let before = old.next_if(|&(other, _)| other == key).map(|entry| entry.1);
            differs |= before != value;
            into.extend(value.map(|value| (key, value)));
        }
        into.extend(old);
        differs
    }

    /// Applies changes to a leaf in place if it keeps between d and 2d entries. Returns its number
    /// of entries, or `None` if it was left unchanged.
    pub(in super::super) fn amend(self, page: &mut [u8], changes: &[Change]) -> Option<usize> {
        let mut entries = Vec::new();
        let len = self.leaf_len(page)?;
        self.merge(page, len, changes, &mut entries);
        let fits = (self.leaf_order..=2 * self.leaf_order).contains(&entries.len());
        if fits {
            self.write_entries(page, &entries);
        }
        fits.then_some(entries.len())
    }

    /// The links of a leaf, to the left and to the right.
    pub(super) fn links(page: &[u8]) -> Links {
        let link = |field| {
            let at = get(page, field) as u32;
            (at != 0).then_some(Lpn(at))
        };
        (link(leaf_head::LEFT), link(leaf_head::RIGHT))
    }

    pub(super) fn set_left(page: &mut [u8], left: Option<Lpn>) {
        put(page, leaf_head::LEFT, left.map_or(0, |at| u64::from(at.0)));
    }

    pub(super) fn set_right(page: &mut [u8], right: Option<Lpn>) {
        put(
            page,
            leaf_head::RIGHT,
            right.map_or(0, |at| u64::from(at.0)),
        );
    }

    /// Number of keys of an inner node; `None` if the page is not one.
    #[inline]
    pub(in super::super) fn inner_len(self, page: &[u8]) -> Option<usize> {
        let len = get(page, inner_head::COUNT) as usize;
        // A new root temporarily has one child and no key.
        (len <= 2 * self.inner_order).then_some(len)
    }

    /// The slot of the child that covers a key.
    #[inline]
    pub(in super::super) fn route(page: &[u8], len: usize, key: Key) -> usize {
        Shape::part(page, INNER, len, |other| other <= key)
    }

    #[inline]
    pub(in super::super) fn inner_key(page: &[u8], slot: usize) -> Key {
        Shape::key(page, inner_head::SIZE + slot * INNER)
    }

    /// A child of an inner node; children outnumber keys by one.
    #[inline]
    pub(in super::super) fn child(page: &[u8], slot: usize) -> Lpn {
        let at = inner_head::SIZE + slot * INNER;
        // The first child is stored at the end of the head, where the child of a preceding entry
        // would be.
        Lpn(get(page, at - 4..at) as u32)
    }

    /// The key bounds of a child in a node with the bounds `low..=high`.
    #[inline]
    pub(in super::super) fn bounds(
        page: &[u8],
        len: usize,
        slot: usize,
        low: Key,
        high: Key,
    ) -> (Key, Key) {
        (
            match slot {
                0 => low,
                _ => Shape::inner_key(page, slot - 1),
            },
            match slot {
                _ if slot == len => high,
                _ => Shape::inner_key(page, slot).wrapping_sub(1),
            },
        )
    }

    /// Writes an inner node.
    pub(super) fn write_inner(page: &mut [u8], keys: &[Key], children: &[Lpn]) {
        page.fill(0);
        put(page, inner_head::COUNT, keys.len() as u64);
        for (slot, child) in children.iter().enumerate() {
            let at = inner_head::SIZE + slot * INNER;
            put(page, at - 4..at, u64::from(child.0));
        }
        for (slot, &key) in keys.iter().enumerate() {
            let at = inner_head::SIZE + slot * INNER;
            put(page, at..at + 8, key);
        }
    }
}
