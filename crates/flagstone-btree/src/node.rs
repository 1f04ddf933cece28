//! Node encoding: the common prefix of all keys is stored once. Slots, sorted by key, grow from the
//! start; cells of any length grow from the end.
//!
//! ```text
//!   | head | prefix | slot 0 | slot 1 | …   →   free   ←   … | cell | cell |
//! ```
//!
//! A slot has the first bytes of its key as a number, so a bisection rarely reads a cell.

use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::Lpn;

layout! {
    /// The head of a node of a prefix B+-tree. What all keys begin with follows it, then the slots;
    /// the cells are at the end of the page.
    pub prefix_node_head: 16 => {
        KIND:   2, "1 of a leaf, 2 of an inner node";
        COUNT:  2, "entries";
        PREFIX: 2, "bytes that all keys begin with; cells do not repeat them";
        CELLS:  3, "where the first cell begins";
        DEAD:   3, "bytes of cells that are not used any more";
        FIRST:  4, "inner node: the child with the keys before the first; leaf: 0";
    }
}

layout! {
    /// A slot of a prefix B+-tree's node.
    pub prefix_slot: 8 => {
        HEAD: 4, "the first four bytes of the key behind the prefix as a number, the first one \
                  weighs most";
        AT:   2, "where the cell begins";
        KEY:  2, "bytes of the key behind the prefix";
    }
}

layout! {
    /// The head of a cell of a prefix B+-tree's node. The key behind the prefix follows, then the
    /// value; in an inner node that is the page of the child with the keys from this one on.
    pub prefix_cell_head: 2 => {
        VALUE: 2, "bytes of the value; with the top bit, it lies in pages of its own";
    }
}

layout! {
    /// What a leaf has of a value that lies in pages of its own. The numbers of these follow, four
    /// bytes each; where an entry has no room for them, those of pages full of their numbers.
    pub large_value_head: 4 => {
        BYTES: 4, "bytes of the value";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[
    prefix_node_head::RECORD,
    prefix_slot::RECORD,
    prefix_cell_head::RECORD,
    large_value_head::RECORD,
];

const HEAD: usize = prefix_node_head::SIZE;
const SLOT: usize = prefix_slot::SIZE;
const CELL: usize = prefix_cell_head::SIZE;
const LARGE: u64 = 1 << 15;

/// Size of an entry in a node without a prefix, including its slot.
pub(super) const fn entry_bytes(key: usize, value: usize) -> usize {
    SLOT + CELL + key + value
}

/// Bytes of a page available for entries and the prefix.
pub(super) const fn room(page_bytes: usize) -> usize {
    page_bytes.saturating_sub(HEAD)
}

/// Length of the common prefix of two keys.
pub(super) fn alike(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The first bytes of a key as a number.
#[inline]
fn head_of(key: &[u8]) -> u32 {
    if let Some(head) = key.first_chunk::<4>() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    head[..key.len()].copy_from_slice(key);
    u32::from_be_bytes(head)
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Leaf = 1,
    Inner = 2,
}

/// The value of a key, as stored in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value<'a> {
    pub(super) bytes: &'a [u8],
    /// The bytes name the pages of a large value.
    pub(super) large: bool,
}

impl Value<'_> {
    /// Length and pages of a large value.
    pub(super) fn pages(self) -> Option<(usize, Vec<Lpn>)> {
        let (head, list) = self.bytes.split_at_checked(large_value_head::SIZE)?;
        let page = |at: &[u8]| Lpn(get(at, 0..4) as u32);
        let pages = list.chunks_exact(4).map(page).collect();
        self.large
            .then(|| (get(head, large_value_head::BYTES) as usize, pages))
    }
}

/// What a leaf stores about a large value.
pub(super) fn page_list(bytes: usize, pages: &[Lpn]) -> Vec<u8> {
    let mut list = vec![0; large_value_head::SIZE];
    put(&mut list, large_value_head::BYTES, bytes as u64);
    list.extend(pages.iter().flat_map(|page| page.0.to_le_bytes()));
    list
}

/// A read-only view of a node in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    page: &'a [u8],
    /// Number of entries.
    pub(super) len: usize,
    prefix: usize,
    cells: usize,
}

impl<'a> Node<'a> {
    /// The node in a page; `None` if the page has no node of this kind.
    #[inline]
    pub(super) fn of(page: &'a [u8], kind: Kind) -> Option<Node<'a>> {
        let node = Node::any(page)?;
        (field(page, prefix_node_head::KIND) == kind as usize).then_some(node)
    }

    /// The node in a page, of either kind.
    #[inline]
    fn any(page: &'a [u8]) -> Option<Node<'a>> {
        if page.len() < HEAD {
            return None;
        }
        let field = |name| field(page, name);
        let node = Node {
            page,
            len: field(prefix_node_head::COUNT),
            prefix: field(prefix_node_head::PREFIX),
            cells: field(prefix_node_head::CELLS),
        };
        let slots = HEAD + node.prefix + node.len * SLOT;
        let sound = slots <= node.cells && node.cells <= page.len();
        sound.then_some(node)
    }

    /// The common prefix of all keys.
    pub(super) fn prefix(self) -> &'a [u8] {
        &self.page[HEAD..HEAD + self.prefix]
    }

    #[inline]
    fn slot(self, slot: usize) -> &'a [u8] {
        &self.page[HEAD + self.prefix + slot * SLOT..][..SLOT]
    }

    /// Offset of a cell, and the length of its key.
    #[inline]
    fn cell(self, slot: usize) -> (usize, usize) {
        let slot = self.slot(slot);
        let at = get(slot, prefix_slot::AT) as usize;
        (at, get(slot, prefix_slot::KEY) as usize)
    }

    /// Bytes of the page; empty if a damaged page has no such range.
    #[inline]
    fn bytes(self, at: usize, len: usize) -> &'a [u8] {
        self.page.get(at..at + len).unwrap_or_default()
    }

    /// A key without the prefix.
    #[inline]
    pub(super) fn suffix(self, slot: usize) -> &'a [u8] {
        let (at, key) = self.cell(slot);
        self.bytes(at + CELL, key)
    }

    /// A whole key.
    pub(super) fn key(self, slot: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(slot)].concat()
    }

    /// A value.
    #[inline]
    pub(super) fn value(self, slot: usize) -> Value<'a> {
        let (at, key) = self.cell(slot);
        let head = match self.bytes(at, CELL) {
            [] => 0,
            head => get(head, prefix_cell_head::VALUE),
        };
        Value {
            bytes: self.bytes(at + CELL + key, (head & (LARGE - 1)) as usize),
            large: head & LARGE != 0,
        }
    }

    /// Number of leading entries for which `holds` is true. It receives the first key bytes from
    /// the slot, and the slot.
    #[inline]
    fn part(self, holds: impl Fn(u32, usize) -> bool) -> usize {
        let test = |slot: usize| {
            let head = get(self.slot(slot), prefix_slot::HEAD) as u32;
            holds(head, slot)
        };
        let (mut first, mut rest) = (0, self.len);
        // Almost no branch depends on a key: such branches would be mispredicted half of the time.
        while rest > 1 {
            let half = rest / 2;
            first += if test(first + half - 1) { half } else { 0 };
            rest -= half;
        }
        first + usize::from(rest == 1 && test(first))
    }

    /// A key without the prefix. If it lacks the prefix, the error is the slot before or after all
    /// entries.
    #[inline]
    fn behind(self, key: &[u8]) -> Result<&[u8], usize> {
        if self.prefix == 0 {
            return Ok(key);
        }
        let prefix = self.prefix();
        match key.get(..prefix.len()) {
            Some(begin) if begin == prefix => Ok(&key[prefix.len()..]),
            _ if key < prefix => Err(0),
            _ => Err(self.len),
        }
    }

    /// The slot of a key (`Ok`), or the slot where it would be inserted (`Err`).
    #[inline]
    pub(super) fn find(self, key: &[u8]) -> Result<usize, usize> {
        let key = self.behind(key)?;
        let head = head_of(key);
        let slot =
            self.part(|other, slot| other < head || other == head && self.suffix(slot) < key);
        if slot < self.len && self.suffix(slot) == key {
            Ok(slot)
        } else {
            Err(slot)
        }
    }

    /// The slot of the child that covers a key.
    #[inline]
    pub(super) fn route(self, key: &[u8]) -> usize {
        let key = match self.behind(key) {
            Ok(key) => key,
            Err(slot) => return slot,
        };
        let head = head_of(key);
        self.part(|other, slot| other < head || other == head && self.suffix(slot) <= key)
    }

    /// Space for another entry with this key, not counting the prefix; 0 if the key lacks the
    /// prefix.
    pub(super) fn room_for(self, key: &[u8]) -> usize {
        self.behind(key).map_or(0, |_| self.spare() + self.prefix)
    }

    /// A child of an inner node; children outnumber entries by one.
    #[inline]
    pub(super) fn child(self, slot: usize) -> Lpn {
        let Some(entry) = slot.checked_sub(1) else {
            return Lpn(get(self.page, prefix_node_head::FIRST) as u32);
        };
        match self.value(entry).bytes.first_chunk::<4>() {
            Some(child) => Lpn(u32::from_le_bytes(*child)),
            None => Lpn(0),
        }
    }

    /// Size of an entry in this node.
    pub(super) fn taken(self, slot: usize) -> usize {
        SLOT + CELL + self.suffix(slot).len() + self.value(slot).bytes.len()
    }

    fn gap(self) -> usize {
        self.cells - HEAD - self.prefix - self.len * SLOT
    }

    fn dead(self) -> usize {
        get(self.page, prefix_node_head::DEAD) as usize
    }

    /// Bytes available for further entries.
    pub(super) fn spare(self) -> usize {
        self.gap() + self.dead()
    }

    /// Size of the entries without a prefix: the measure of a node's fill.
    pub(super) fn fill(self) -> usize {
        let taken = room(self.page.len()) - self.prefix;
        taken.saturating_sub(self.spare()) + self.len * self.prefix
    }

    /// Checks the page by itself: cells within the page, no overlaps, counts.
    ///
    /// # Errors
    /// Describes the inconsistency.
    pub(super) fn check(self) -> Result<(), String> {
        let mut cells = Vec::with_capacity(self.len);
        for slot in 0..self.len {
            let (at, key) = self.cell(slot);
            let end = at + CELL + key + self.value(slot).bytes.len();
            let head = get(self.slot(slot), prefix_slot::HEAD) as u32;
            let inside = at >= self.cells && end <= self.page.len();
            if !inside || head != head_of(self.suffix(slot)) {
                return Err(format!("slot {slot} does not fit its cell"));
            }
            cells.push((at, end));
        }
        cells.sort_unstable();
        if cells.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err("two cells overlap".to_string());
        }
        let used: usize = cells.iter().map(|(at, end)| end - at).sum();
        let all = self.page.len() - self.cells;
        if used + self.dead() != all {
            let dead = self.dead();
            return Err(format!(
                "{used} bytes of {all} are used, not all but {dead}"
            ));
        }
        Ok(())
    }
}

fn set(page: &mut [u8], field: std::ops::Range<usize>, value: usize) {
    put(page, field, value as u64);
}

#[inline]
fn field(page: &[u8], field: std::ops::Range<usize>) -> usize {
    get(page, field) as usize
}

/// Formats a zeroed page as a node without entries.
pub(super) fn write_head(page: &mut [u8], kind: Kind, prefix: &[u8], first: Lpn) {
    let cells = page.len();
    page[HEAD..HEAD + prefix.len()].copy_from_slice(prefix);
    set(page, prefix_node_head::KIND, kind as usize);
    set(page, prefix_node_head::PREFIX, prefix.len());
    set(page, prefix_node_head::CELLS, cells);
    set(page, prefix_node_head::FIRST, first.index());
}

/// Inserts an entry with its full key. Returns whether there was space; `false` only if the node is
/// damaged.
#[must_use]
pub(super) fn insert(page: &mut [u8], slot: usize, key: &[u8], value: Value<'_>) -> bool {
    let Some(Node { len, prefix, .. }) = Node::any(page).filter(|node| slot <= node.len) else {
        return false;
    };
    let key = key.get(prefix..).unwrap_or_default();
    let bytes = CELL + key.len() + value.bytes.len();
    let slots = HEAD + prefix;
    let (from, end) = (slots + slot * SLOT, slots + len * SLOT);
    let fits = |page: &[u8]| end + SLOT + bytes <= field(page, prefix_node_head::CELLS);
    if !(fits(page) || compact(page).is_some() && fits(page)) {
        return false;
    }
    let at = field(page, prefix_node_head::CELLS) - bytes;
    write_cell(&mut page[at..at + bytes], key, value);
    page.copy_within(from..end, from + SLOT);
    let slot = &mut page[from..from + SLOT];
    put(slot, prefix_slot::HEAD, u64::from(head_of(key)));
    set(slot, prefix_slot::AT, at);
    set(slot, prefix_slot::KEY, key.len());
    set(page, prefix_node_head::COUNT, len + 1);
    set(page, prefix_node_head::CELLS, at);
    true
}

fn write_cell(cell: &mut [u8], key: &[u8], value: Value<'_>) {
    let large = if value.large { LARGE } else { 0 };
    let head = large | value.bytes.len() as u64;
    put(cell, prefix_cell_head::VALUE, head);
    cell[CELL..][..key.len()].copy_from_slice(key);
    cell[CELL + key.len()..].copy_from_slice(value.bytes);
}

/// Removes an entry from a node.
pub(super) fn remove(page: &mut [u8], slot: usize) {
    let Some(node) = Node::any(page).filter(|node| slot < node.len) else {
        return;
    };
    let (len, dead) = (node.len, node.dead() + node.taken(slot) - SLOT);
    let slots = HEAD + node.prefix;
    let (from, end) = (slots + (slot + 1) * SLOT, slots + len * SLOT);
    page.copy_within(from..end, from - SLOT);
    set(page, prefix_node_head::DEAD, dead);
    set(page, prefix_node_head::COUNT, len - 1);
}

/// Replaces the value of an entry if the length is equal. Returns whether it did.
pub(super) fn overwrite(page: &mut [u8], slot: usize, value: Value<'_>) -> bool {
    let Some(node) = Node::any(page).filter(|node| slot < node.len) else {
        return false;
    };
    let (old, (at, key)) = (node.value(slot), node.cell(slot));
    let same = old.bytes.len() == value.bytes.len() && old.large == value.large;
    let place = page.get_mut(at + CELL + key..).filter(|_| same);
    if let Some(place) = place {
        place[..value.bytes.len()].copy_from_slice(value.bytes);
    }
    same
}

/// Moves the cells to the end of the page, so that the space of removed ones joins the gap. `None`
/// if the page is too small for their lengths: it is damaged.
fn compact(page: &mut [u8]) -> Option<()> {
    let old = page.to_vec();
    let node = Node::any(&old)?;
    let slots = HEAD + node.prefix;
    let least = slots + node.len * SLOT;
    let mut cells = page.len();
    for slot in 0..node.len {
        let (key, value) = (node.suffix(slot), node.value(slot));
        let bytes = CELL + key.len() + value.bytes.len();
        let at = cells.checked_sub(bytes).filter(|&at| at >= least)?;
        write_cell(&mut page[at..cells], key, value);
        let slot = &mut page[slots + slot * SLOT..][..SLOT];
        set(slot, prefix_slot::AT, at);
        set(slot, prefix_slot::KEY, key.len());
        cells = at;
    }
    set(page, prefix_node_head::CELLS, cells);
    set(page, prefix_node_head::DEAD, 0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_no_room_for_a_head_is_no_node() {
        let mut page = vec![0; HEAD];
        write_head(&mut page, Kind::Leaf, b"", Lpn(0));
        assert!(Node::of(&page, Kind::Leaf).is_some());
        assert!((0..HEAD).all(|len| Node::of(&page[..len], Kind::Leaf).is_none()));
        assert!(!insert(
            &mut page[..3],
            0,
            b"key",
            Value {
                bytes: b"",
                large: false
            }
        ));
    }
}
