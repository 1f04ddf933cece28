//! A node in memory, and the encoding of its fragments.

use super::super::{Key, Value};
use super::log::Link;
use flagstone::layout;
use flagstone::layout::{get, put};

layout! {
    /// The head of a fragment in the log of a bw-delta index. A base's records follow, each a key
    /// of 8 bytes and a value, or deltas, each a byte that is 1 if it gives a value and 0 if it
    /// deletes, and a record. Values of inner nodes are the numbers of nodes, of 4 bytes.
    pub bw_fragment: 18 => {
        NODE:    4, "the node's number, from 1; 0 where the segment has no more fragments";
        VERSION: 2, "which base of the node this is, or follows";
        LEVEL:   1, "0 in a leaf, one more in each level above";
        KIND:    1, "1 a base, 2 deltas";
        COUNT:   2, "how many records or deltas follow";
        PREV:    8, "position and length of the fragment before it, 0 in a base";
    }
}

/// A change of a record: its new value, or `None` if deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) key: Key,
    pub(super) value: Option<Value>,
}

/// A node that is in memory.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) level: u8,
    /// The node's fragments on flash.
    pub(super) links: Vec<Link>,
    /// The records, with all deltas applied.
    pub(super) records: Vec<(Key, Value)>,
    /// The base on flash is obsolete: the next fragment must be a base.
    pub(super) rebased: bool,
    /// Deltas that are not on flash, oldest first. Empty if `rebased`.
    pub(super) deltas: Vec<Delta>,
    /// Deltas since the last consolidation, in memory and on flash.
    pub(super) chain: u16,
    /// The structure on flash is incomplete until this node is written.
    pub(super) structural: bool,
    /// Size of the node at the last count, in bytes.
    pub(super) counted: usize,
    /// Neighbours in the order of use.
    pub(super) newer: u32,
    pub(super) older: u32,
}

impl Node {
    /// Whether the node has changes that are not on flash.
    pub(super) fn is_dirty(&self) -> bool {
        self.rebased || !self.deltas.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Node>()
            + self.records.capacity() * size_of::<(Key, Value)>()
            + self.deltas.capacity() * size_of::<Delta>()
            + self.links.capacity() * size_of::<Link>()
    }

    /// The index of the last record with a key up to `key`. `None` only in a damaged tree: inner
    /// nodes begin at the lowest key that leads to them.
    #[inline]
    pub(super) fn child(&self, key: Key) -> Option<usize> {
        let behind = self.records.partition_point(|&(low, _)| low <= key);
        behind.checked_sub(1)
    }
}

/// Applies a delta to sorted records. Returns whether anything changed.
#[inline]
pub(super) fn apply(records: &mut Vec<(Key, Value)>, delta: Delta) -> bool {
    match (
        records.binary_search_by_key(&delta.key, |&(key, _)| key),
        delta.value,
    ) {
        (Ok(slot), Some(value)) => records[slot].1 = value,
        (Ok(slot), None) => {
            records.remove(slot);
        }
        (Err(slot), Some(value)) => {
            if records.len() == records.capacity() {
                // Grow by a few records only: doubling would waste memory.
                records.reserve_exact(8);
            }
            records.insert(slot, (delta.key, value));
        }
        (Err(_), None) => return false,
    }
    true
}

/// The decoded head of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) node: u32,
    pub(super) version: u16,
    pub(super) level: u8,
    pub(super) is_base: bool,
    pub(super) count: usize,
    pub(super) prev: Link,
}

impl Head {
    /// Decodes the head. Returns `None` if the bytes are not a fragment.
    pub(super) fn parse(bytes: &[u8]) -> Option<Head> {
        let head = bytes.get(..bw_fragment::SIZE)?;
        let node = get(head, bw_fragment::NODE) as u32;
        let kind = get(head, bw_fragment::KIND);
        (node != 0 && (kind == 1 || kind == 2)).then(|| Head {
            node,
            version: get(head, bw_fragment::VERSION) as u16,
            level: get(head, bw_fragment::LEVEL) as u8,
            is_base: kind == 1,
            count: get(head, bw_fragment::COUNT) as usize,
            prev: Link(get(head, bw_fragment::PREV)),
        })
    }
}

/// Encodes and decodes fragments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codec {
    pub(super) value_bytes: usize,
}

impl Codec {
    fn value_bytes(self, level: u8) -> usize {
        if level == 0 { self.value_bytes } else { 4 }
    }

    /// Size of a fragment with this head.
    pub(super) fn length(self, head: &Head) -> usize {
        let record = 8 + self.value_bytes(head.level) + usize::from(!head.is_base);
        bw_fragment::SIZE + head.count * record
    }

    /// Replaces the contents of `into` by an encoded head.
    fn head(into: &mut Vec<u8>, head: &Head) {
        let mut bytes = [0; bw_fragment::SIZE];
        put(&mut bytes, bw_fragment::NODE, u64::from(head.node));
        put(&mut bytes, bw_fragment::VERSION, u64::from(head.version));
        put(&mut bytes, bw_fragment::LEVEL, u64::from(head.level));
        put(
            &mut bytes,
            bw_fragment::KIND,
            if head.is_base { 1 } else { 2 },
        );
        put(&mut bytes, bw_fragment::COUNT, head.count as u64);
        put(&mut bytes, bw_fragment::PREV, head.prev.0);
        into.clear();
        into.extend_from_slice(&bytes);
    }

    /// Encodes a base.
    pub(super) fn base(self, node: &Node, version: u16, into: &mut Vec<u8>) {
        let head = Head {
            node: node.number,
            version,
            level: node.level,
            is_base: true,
            count: node.records.len(),
            prev: Link::NONE,
        };
        Codec::head(into, &head);
        let value_bytes = self.value_bytes(node.level);
        for &(key, value) in &node.records {
            into.extend_from_slice(&key.to_le_bytes());
            into.extend_from_slice(&value.to_le_bytes()[..value_bytes]);
        }
    }

    /// Encodes the deltas that are not on flash, as many as the head says, oldest first.
    pub(super) fn deltas(self, head: &Head, deltas: &[Delta], into: &mut Vec<u8>) {
        Codec::head(into, head);
        let value_bytes = self.value_bytes(head.level);
        for delta in deltas {
            into.push(u8::from(delta.value.is_some()));
            into.extend_from_slice(&delta.key.to_le_bytes());
            let value = delta.value.unwrap_or(0).to_le_bytes();
            into.extend_from_slice(&value[..value_bytes]);
        }
    }

    /// Decodes the records of a base.
    pub(super) fn read_base(self, head: &Head, bytes: &[u8], into: &mut Vec<(Key, Value)>) {
        let size = 8 + self.value_bytes(head.level);
        into.clear();
        into.reserve_exact(head.count + 8);
        let records = bytes[bw_fragment::SIZE..].chunks_exact(size);
        into.extend(records.map(|record| (get(record, 0..8), get(record, 8..size))));
    }

    /// Decodes and appends deltas, newest first.
    pub(super) fn read_deltas(self, head: &Head, bytes: &[u8], into: &mut Vec<Delta>) {
        let size = 9 + self.value_bytes(head.level);
        let deltas = bytes[bw_fragment::SIZE..].chunks_exact(size).rev();
        into.extend(deltas.map(|delta| Delta {
            key: get(delta, 1..9),
            value: (delta[0] == 1).then(|| get(delta, 9..size)),
        }));
    }
}
