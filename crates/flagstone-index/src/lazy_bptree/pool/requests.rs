//! Waiting requests: found by key, and linked in one list per block that has any.
//!
//! A request moves between lists without being copied. Lists are unordered; where order matters,
//! keys are sorted.

use super::super::super::{Key, Value};
use rustc_hash::FxHashMap;

/// The change requested for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Request {
    /// Insert the key. The tree may have it, unless inserted keys are always new.
    Insert(Value),
    /// Set the value of a key that exists in the tree.
    Overwrite(Value),
    /// Delete the key.
    Delete,
}

impl Request {
    /// The value that a query finds; `None` for a deletion.
    #[inline]
    pub(in super::super) fn value(self) -> Option<Value> {
        match self {
            Request::Insert(value) | Request::Overwrite(value) => Some(value),
            Request::Delete => None,
        }
    }

    /// Number of entries by which the request enlarges a leaf, as far as known without reading the
    /// leaf.
    #[inline]
    pub(super) fn growth(self) -> i64 {
        match self {
            Request::Insert(_) => 1,
            Request::Overwrite(_) => 0,
            Request::Delete => -1,
        }
    }
}

/// A waiting request and its time of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Waiting {
    pub(in super::super) request: Request,
    pub(super) stamp: u64,
}

/// The index of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

/// No index.
const NOWHERE: u32 = u32::MAX;

/// The requests of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct List(u32);

impl List {
    pub(super) const EMPTY: List = List(NOWHERE);
}

/// A request in 32 bytes. A free slot links to the next free one.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: Key,
    value: Value,
    /// Time of arrival; the last two bits are the kind.
    stamp_and_kind: u64,
    next: u32,
}

impl Slot {
    #[inline]
    fn put(&mut self, waiting: Waiting) {
        let (kind, value) = match waiting.request {
            Request::Insert(value) => (0, value),
            Request::Overwrite(value) => (1, value),
            Request::Delete => (2, 0),
        };
        self.value = value;
        self.stamp_and_kind = waiting.stamp << 2 | kind;
    }

    #[inline]
    fn waiting(&self) -> Waiting {
        let request = match self.stamp_and_kind & 3 {
            0 => Request::Insert(self.value),
            1 => Request::Overwrite(self.value),
            _ => Request::Delete,
        };
        let stamp = self.stamp_and_kind >> 2;
        Waiting { request, stamp }
    }
}

/// All requests.
pub(in super::super) struct Requests {
    at: FxHashMap<Key, u32>,
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
}

impl Requests {
    /// An entry in the index of keys, with its control byte.
    const ENTRY: usize = size_of::<(Key, u32)>() + 1;
    /// A slot, and its entry.
    pub(super) const BYTES_A_REQUEST: usize = size_of::<Slot>() + Requests::ENTRY;

    pub(super) fn new() -> Requests {
        Requests {
            at: FxHashMap::default(),
            slots: Vec::new(),
            free: NOWHERE,
        }
    }

    #[inline]
    pub(in super::super) fn len(&self) -> usize {
        self.at.len()
    }

    #[inline]
    pub(in super::super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The waiting request for a key.
    #[inline]
    pub(in super::super) fn get(&self, key: Key) -> Option<Request> {
        let &slot = self.at.get(&key)?;
        Some(self.slots[slot as usize].waiting().request)
    }

    #[inline]
    pub(super) fn place(&self, key: Key) -> Option<Place> {
        self.at.get(&key).copied().map(Place)
    }

    #[inline]
    pub(super) fn waiting(&self, place: Place) -> (Key, Waiting) {
        let slot = &self.slots[place.0 as usize];
        (slot.key, slot.waiting())
    }

    /// Replaces a request by another for the same key.
    pub(super) fn replace(&mut self, place: Place, waiting: Waiting) {
        self.slots[place.0 as usize].put(waiting);
    }

    /// Adds a request for a key that has none.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, key: Key, waiting: Waiting) {
        let mut slot = Slot {
            key,
            value: 0,
            stamp_and_kind: 0,
            next: NOWHERE,
        };
        slot.put(waiting);
        let mut at = self.free;
        if at == NOWHERE {
            at = self.slots.len() as u32;
            self.slots.push(slot);
        } else {
            self.free = self.slots[at as usize].next;
            self.slots[at as usize] = slot;
        }
        self.at.insert(key, at);
        self.link(list, Place(at));
    }

    /// Links a request that is in no list.
    #[inline]
    pub(super) fn link(&mut self, list: &mut List, place: Place) {
        self.slots[place.0 as usize].next = std::mem::replace(&mut list.0, place.0);
    }

    /// Unlinks requests that satisfy a test, in one pass, and reports each.
    pub(super) fn unlink_where(
        &mut self,
        list: &mut List,
        goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        self.take_where::<false>(list, goes);
    }

    /// Removes requests of a list that satisfy a test.
    pub(super) fn remove_where(
        &mut self,
        list: &mut List,
        goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        self.take_where::<true>(list, goes);
    }

    fn take_where<const FREE: bool>(
        &mut self,
        list: &mut List,
        mut goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        let (mut before, mut at) = (NOWHERE, list.0);
        while at != NOWHERE {
            let slot = self.slots[at as usize];
            if goes(Place(at), slot.key, slot.waiting()) {
                match before {
                    NOWHERE => list.0 = slot.next,
                    _ => self.slots[before as usize].next = slot.next,
                }
                if FREE {
                    self.at.remove(&slot.key);
                    self.slots[at as usize].next = std::mem::replace(&mut self.free, at);
                }
            } else {
                before = at;
            }
            at = slot.next;
        }
    }

    /// The requests of a list, unordered.
    #[inline]
    pub(super) fn of(&self, list: List) -> impl Iterator<Item = (Place, Key, Waiting)> + '_ {
        let mut next = list.0;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            let place = Place(std::mem::replace(&mut next, slot.next));
            Some((place, slot.key, slot.waiting()))
        })
    }

    /// Bytes, including spare capacity.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.at.capacity() * Requests::ENTRY
    }

    /// For tests: removes a request without a trace.
    #[cfg(test)]
    pub(in super::super) fn lose(&mut self, key: Key) {
        self.at.remove(&key);
    }
}
