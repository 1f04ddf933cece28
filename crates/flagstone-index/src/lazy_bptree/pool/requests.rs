//! Waiting requests: found by key, and linked in one list per block that has any.
//!
//! A request moves between lists without being copied. Lists are unordered; where order matters,
//! keys are sorted. The places of removed requests are filled with the last ones.

use super::super::super::{Key, Value};
use super::room::{grow, most, settle};
use super::table::{Table, hash};

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
    pub(super) fn growth(self) -> i32 {
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
    pub(super) stamp: u32,
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

/// A request without its value, in 16 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
struct Slot {
    key: Key,
    /// Time of arrival; the last two bits are the kind.
    stamp_and_kind: u32,
    next: u32,
}

/// All requests.
pub(in super::super) struct Requests {
    table: Table,
    slots: Vec<Slot>,
    /// The values, each of as many bytes as in a leaf.
    values: Vec<u8>,
    value_bytes: usize,
    /// Places of removed requests, until they are filled.
    holes: Vec<u32>,
}

impl Requests {
    pub(super) fn new(value_bytes: usize) -> Requests {
        Requests {
            table: Table::default(),
            slots: Vec::new(),
            values: Vec::new(),
            value_bytes,
            holes: Vec::new(),
        }
    }

    #[inline]
    pub(in super::super) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(in super::super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The waiting request for a key.
    #[inline]
    pub(in super::super) fn get(&self, key: Key) -> Option<Request> {
        let place = self.place(key)?;
        Some(self.waiting(place).1.request)
    }

    #[inline]
    pub(super) fn place(&self, key: Key) -> Option<Place> {
        let is_it = |place: u32| self.slots[place as usize].key == key;
        self.table.find(hash(key), is_it).map(Place)
    }

    #[inline]
    pub(super) fn waiting(&self, place: Place) -> (Key, Waiting) {
        let slot = self.slots[place.0 as usize];
        let from = place.0 as usize * self.value_bytes;
        let mut value = [0; 8];
        value[..self.value_bytes].copy_from_slice(&self.values[from..from + self.value_bytes]);
        let value = Value::from_le_bytes(value);
        let request = match slot.stamp_and_kind & 3 {
            0 => Request::Insert(value),
            1 => Request::Overwrite(value),
            _ => Request::Delete,
        };
        let stamp = slot.stamp_and_kind >> 2;
        (slot.key, Waiting { request, stamp })
    }

    /// Replaces a request by another for the same key.
    pub(super) fn replace(&mut self, place: Place, waiting: Waiting) {
        let (kind, value) = match waiting.request {
            Request::Insert(value) => (0, value),
            Request::Overwrite(value) => (1, value),
            Request::Delete => (2, 0),
        };
        let from = place.0 as usize * self.value_bytes;
        self.values[from..from + self.value_bytes]
            .copy_from_slice(&value.to_le_bytes()[..self.value_bytes]);
        self.slots[place.0 as usize].stamp_and_kind = waiting.stamp << 2 | kind;
    }

    /// Adds a request for a key that has none.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, key: Key, waiting: Waiting) {
        let place = Place(self.slots.len() as u32);
        grow(&mut self.slots, 1);
        self.slots.push(Slot {
            key,
            stamp_and_kind: 0,
            next: NOWHERE,
        });
        grow(&mut self.values, self.value_bytes);
        self.values.resize(self.values.len() + self.value_bytes, 0);
        self.replace(place, waiting);
        self.table
            .push(|place| hash(self.slots[place as usize].key));
        self.link(list, place);
    }

    /// Links a request that is in no list.
    #[inline]
    pub(super) fn link(&mut self, list: &mut List, place: Place) {
        self.slots[place.0 as usize].next = std::mem::replace(&mut list.0, place.0);
    }

    /// Unlinks the first request of a list.
    #[inline]
    pub(super) fn unlink_first(&mut self, list: &mut List) -> Option<Place> {
        let place = Place(list.0);
        list.0 = self.slots.get(list.0 as usize)?.next;
        Some(place)
    }

    /// Unlinks requests that satisfy a test, in one pass, and reports each.
    pub(super) fn unlink_where(
        &mut self,
        list: &mut List,
        goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        self.take_where::<false>(list, goes);
    }

    /// Removes requests of a list that satisfy a test. Their places must be filled next.
    pub(super) fn remove_where(
        &mut self,
        list: &mut List,
        goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        self.take_where::<true>(list, goes);
    }

    fn take_where<const REMOVE: bool>(
        &mut self,
        list: &mut List,
        mut goes: impl FnMut(Place, Key, Waiting) -> bool,
    ) {
        let (mut before, mut at) = (NOWHERE, list.0);
        while at != NOWHERE {
            let next = self.slots[at as usize].next;
            let (key, waiting) = self.waiting(Place(at));
            if goes(Place(at), key, waiting) {
                match before {
                    NOWHERE => list.0 = next,
                    _ => self.slots[before as usize].next = next,
                }
                if REMOVE {
                    let hash_of = |place: u32| hash(self.slots[place as usize].key);
                    self.table.remove(at, hash_of);
                    self.holes.push(at);
                }
            } else {
                before = at;
            }
            at = next;
        }
    }

    /// The places of removed requests, the last one at the end.
    pub(super) fn holes(&mut self) -> Vec<u32> {
        let mut holes = std::mem::take(&mut self.holes);
        holes.sort_unstable();
        holes
    }

    /// Fills a place with the last request, unless it is that. Returns the key of that request and
    /// where it was; its list still has it there.
    pub(super) fn fill(&mut self, hole: u32) -> Option<(Key, u32)> {
        let (last, width) = (self.slots.len() - 1, self.value_bytes);
        self.slots.swap_remove(hole as usize);
        let value = last * width..(last + 1) * width;
        self.values.copy_within(value, hole as usize * width);
        self.values.truncate(last * width);
        let key = self.slots.get(hole as usize)?.key;
        self.table.relocate(hash(key), last as u32, hole);
        Some((key, last as u32))
    }

    /// Tells a list that one of its requests has another place.
    pub(super) fn relink(&mut self, list: &mut List, from: u32, to: u32) {
        let mut at = list.0;
        if at == from {
            list.0 = to;
            return;
        }
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next == from {
                slot.next = to;
                return;
            }
            at = slot.next;
        }
    }

    /// Releases memory after removals.
    pub(super) fn settle(&mut self) {
        settle(&mut self.slots);
        settle(&mut self.values);
        self.table
            .settle(|place| hash(self.slots[place as usize].key));
    }

    /// The requests of a list, unordered.
    #[inline]
    pub(super) fn of(&self, list: List) -> impl Iterator<Item = (Place, Key, Waiting)> + '_ {
        let mut next = list.0;
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            let place = Place(std::mem::replace(&mut next, slot.next));
            let (key, waiting) = self.waiting(place);
            Some((place, key, waiting))
        })
    }

    /// The times of arrival.
    pub(super) fn stamps(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.stamp_and_kind >> 2)
    }

    /// Changes the times of arrival.
    pub(super) fn restamp(&mut self, anew: impl Fn(u32) -> u32) {
        for slot in &mut self.slots {
            slot.stamp_and_kind = anew(slot.stamp_and_kind >> 2) << 2 | slot.stamp_and_kind & 3;
        }
    }

    /// Bytes, including spare capacity.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.values.capacity() + self.table.memory()
    }

    /// The most that [`Requests::memory`] is for so many requests.
    pub(super) fn most(&self, requests: usize) -> usize {
        let slots = most(requests) * size_of::<Slot>();
        slots + most(requests * self.value_bytes) + Table::most(requests)
    }

    /// For tests: removes a request without a trace.
    #[cfg(test)]
    pub(in super::super) fn lose(&mut self, key: Key) {
        if let Some(place) = self.place(key) {
            let hash_of = |place: u32| hash(self.slots[place as usize].key);
            self.table.remove(place.0, hash_of);
        }
    }
}
