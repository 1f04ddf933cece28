//! Rows as their versions, as a trace of a database shows them that keeps several.
//!
//! PostgreSQL never writes a row in place. An update leaves the old version where it is and adds a
//! new one. Readers take the old one and do not wait. Seen as records of pages, two updates of a
//! row are therefore two records of one page. Under locks on pages they meet. Under locks on
//! records they do not; there the number of transactions that may change a page at once bounds
//! them.
//!
//! Here a row has as many places in its page as it has versions, and its updates go round. A place
//! comes round again after that many updates, as one that has been pruned; so as many live
//! transactions would have to change a row before two meet in one record. A reader takes the place
//! that is written last.
//!
//! A trace of page requests shows one thing more: a transaction that changes a page has asked for
//! it before, to look at the row or for the room. Where the host is told of that read as well
//! (`reads_first`), a change of a heap asks for a shared lock and then for an exclusive one, and
//! two that meet in between wait for each other until one of them is restarted. Under locks on
//! records this happens to updates only: no other transaction asks for a row that is not there yet.

use super::relation::Relation;
use super::{Access, Rid, Verb};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone)]
pub(super) struct Versions {
    /// Places of a row; with one, a row is one record for life.
    places: u16,
    /// Whether a change of a row reads it first.
    reads_first: bool,
    /// Updates of each row so far.
    updates: FxHashMap<Rid, u16>,
    scratch: Vec<Access>,
}

impl Versions {
    pub(super) fn new(places: u16, reads_first: bool) -> Versions {
        Versions {
            places: places.max(1),
            reads_first,
            updates: FxHashMap::default(),
            scratch: Vec::new(),
        }
    }

    /// Renames the records of heaps, and adds the reads. Entries of indexes are what they were.
    pub(super) fn name(
        &mut self,
        accesses: &mut Vec<Access>,
        relation_of: impl Fn(u32) -> Relation,
    ) {
        if self.places == 1 && !self.reads_first {
            return;
        }
        let places = self.places;
        for Access { verb, at } in accesses.drain(..) {
            if verb == Verb::Touch || !relation_of(at.page.0).is_heap() {
                self.scratch.push(Access { verb, at });
                continue;
            }
            let mut push = |verb, place: u16| {
                let slot = at.slot * places + place % places;
                let at = Rid { slot, ..at };
                self.scratch.push(Access { verb, at });
            };
            let newest = self.updates.get(&at).copied().unwrap_or(0);
            if self.reads_first && verb != Verb::Read {
                push(Verb::Read, newest);
            }
            match verb {
                // Half a round away from where transactions write now.
                Verb::Read => push(verb, newest + places / 2),
                Verb::Update if places > 1 => {
                    push(verb, newest + 1);
                    self.updates.insert(at, (newest + 1) % places);
                }
                _ => push(verb, newest),
            }
        }
        std::mem::swap(accesses, &mut self.scratch);
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> u64 {
        let updates = self.updates.capacity() * (size_of::<(Rid, u16)>() + 1);
        (updates + self.scratch.capacity() * size_of::<Access>()) as u64
    }
}
