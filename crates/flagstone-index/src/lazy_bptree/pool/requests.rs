//! Waiting requests: found by key, and linked in one list per block that has any.
//!
//! A request moves between lists without being copied. Lists are unordered; where order matters,
//! keys are sorted. New requests take the places of removed ones. When these become many, the last
//! requests are moved there.

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
    /// Time of arrival; the last two bits are the kind, or those of a free slot.
    stamp_and_kind: u32,
    next: u32,
}

/// In the place of the time and kind: a free slot.
const FREE: u32 = u32::MAX;

/// The hash of a slot's key, if that is in use.
fn hash_of(slots: &[Slot], place: u32) -> Option<u64> {
    let slot = &slots[place as usize];
    (slot.stamp_and_kind != FREE).then(|| hash(slot.key))
}

/// All requests.
pub(in super::super) struct Requests {
    table: Table,
    slots: Vec<Slot>,
    /// The values, each of one word or two.
    values: Vec<u32>,
    words: usize,
    /// The first free slot, which links to the next.
    free: u32,
}

impl Requests {
    pub(super) fn new(value_bytes: usize) -> Requests {
        Requests {
            table: Table::default(),
            slots: Vec::new(),
            values: Vec::new(),
            words: value_bytes.div_ceil(size_of::<u32>()),
            free: NOWHERE,
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
        let words = &self.values[place.0 as usize * self.words..];
        let high = if self.words > 1 { words[1] } else { 0 };
        let value = Value::from(high) << 32 | Value::from(words[0]);
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
        let words = &mut self.values[place.0 as usize * self.words..];
        words[0] = value as u32;
        if self.words > 1 {
            words[1] = (value >> 32) as u32;
        }
        self.slots[place.0 as usize].stamp_and_kind = waiting.stamp << 2 | kind;
    }

    /// Adds a request for a key that has none.
    #[inline]
    pub(super) fn push(&mut self, list: &mut List, key: Key, waiting: Waiting) {
        let place = match self.free {
            NOWHERE => {
                grow(&mut self.slots, 1);
                self.slots.push(Slot {
                    key,
                    stamp_and_kind: 0,
                    next: NOWHERE,
                });
                grow(&mut self.values, self.words);
                self.values.resize(self.values.len() + self.words, 0);
                self.slots.len() as u32 - 1
            }
            free => {
                let slot = &mut self.slots[free as usize];
                (slot.key, self.free) = (key, slot.next);
                free
            }
        };
        self.replace(Place(place), waiting);
        let slots = &self.slots;
        self.table
            .insert(place, slots.len() as u32, |place| hash_of(slots, place));
        self.link(list, Place(place));
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

    /// Unlinks requests of a list that satisfy a test. With `REMOVE` they are gone; otherwise they
    /// keep their slots, and the caller links them into another list.
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
                    let slots = &self.slots;
                    self.table.remove(at, |place| hash_of(slots, place));
                    let slot = &mut self.slots[at as usize];
                    slot.stamp_and_kind = FREE;
                    slot.next = std::mem::replace(&mut self.free, at);
                }
            } else {
                before = at;
            }
            at = next;
        }
    }

    /// Whether so many slots are free that others should move there.
    #[inline]
    pub(super) fn has_many_free(&self) -> bool {
        self.slots.len() > most(self.len())
    }

    /// Takes the free slots, in ascending order.
    pub(super) fn take_free(&mut self) -> Vec<u32> {
        let mut holes = Vec::new();
        while let Some(slot) = self.slots.get(self.free as usize) {
            holes.push(std::mem::replace(&mut self.free, slot.next));
        }
        holes.sort_unstable();
        holes
    }

    /// Gives free slots back.
    pub(super) fn free(&mut self, holes: Vec<u32>) {
        for hole in holes {
            self.slots[hole as usize].next = std::mem::replace(&mut self.free, hole);
        }
    }

    /// The key in the last slot, and its place.
    pub(super) fn last(&self) -> (Key, u32) {
        let last = self.slots.len() - 1;
        (self.slots[last].key, last as u32)
    }

    /// Moves the request in the last slot to the last free one, or removes that if it is the same.
    pub(super) fn fill(&mut self, hole: u32) {
        let (last, words) = (self.slots.len() - 1, self.words);
        self.table
            .relocate(hash(self.slots[last].key), last as u32, hole);
        self.slots.swap_remove(hole as usize);
        let value = last * words..(last + 1) * words;
        self.values.copy_within(value, hole as usize * words);
        self.values.truncate(last * words);
    }

    /// Changes the place of a request in a list. Returns whether it is there.
    pub(super) fn relink(&mut self, list: &mut List, from: u32, to: u32) -> bool {
        let mut at = list.0;
        if at == from {
            list.0 = to;
            return true;
        }
        while let Some(slot) = self.slots.get_mut(at as usize) {
            if slot.next == from {
                slot.next = to;
                return true;
            }
            at = slot.next;
        }
        false
    }

    /// Releases memory after removals.
    pub(super) fn settle(&mut self) {
        settle(&mut self.slots);
        settle(&mut self.values);
        let slots = &self.slots;
        self.table
            .settle(slots.len() as u32, |place| hash_of(slots, place));
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
        let used = self.slots.iter().filter(|slot| slot.stamp_and_kind != FREE);
        used.map(|slot| slot.stamp_and_kind >> 2)
    }

    /// Changes the times of arrival.
    pub(super) fn restamp(&mut self, anew: impl Fn(u32) -> u32) {
        let slots = self.slots.iter_mut();
        for slot in slots.filter(|slot| slot.stamp_and_kind != FREE) {
            slot.stamp_and_kind = anew(slot.stamp_and_kind >> 2) << 2 | slot.stamp_and_kind & 3;
        }
    }

    /// Bytes, including spare capacity.
    pub(super) fn memory(&self) -> usize {
        let values = self.values.capacity() * size_of::<u32>();
        self.slots.capacity() * size_of::<Slot>() + values + self.table.memory()
    }

    /// The most that [`Requests::memory`] is for so many requests.
    pub(super) fn most(&self, requests: usize) -> usize {
        let slots = most(requests);
        let values = most(slots * self.words) * size_of::<u32>();
        most(slots) * size_of::<Slot>() + values + Table::most(requests)
    }

    /// For tests: removes a request without a trace.
    #[cfg(test)]
    pub(in super::super) fn lose(&mut self, key: Key) {
        if let Some(place) = self.place(key) {
            let slots = &self.slots;
            self.table.remove(place.0, |place| hash_of(slots, place));
        }
    }
}
