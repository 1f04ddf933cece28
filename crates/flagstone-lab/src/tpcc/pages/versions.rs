//! Rows represented by their versions, as a multi-version database shows them in a trace.
//!
//! PostgreSQL never updates a row in place. An update keeps the old version and adds a new one.
//! Readers use the old one and do not wait. As records of pages, two updates of a row are therefore
//! two records of one page. Under page locks they conflict. Under record locks they do not; there,
//! only the maximum number of transactions that change a page limits them.
//!
//! Here a row has one place per version in its page, and updates use the places in turn. A place is
//! reused after as many updates, like a pruned version; so that many live transactions would have
//! to change a row before two conflict in a record. A reader uses the place that will be written
//! last.
//!
//! A trace of page requests shows one thing more: a transaction that changes a page has requested
//! it before, to find the row or room. If the host sees that read as well (`reads_first`), a change
//! of a heap requests a shared lock and then an exclusive one, and two conflicting changes wait for
//! each other until one is restarted. Under record locks this only happens to updates: no other
//! transaction requests a row that does not exist yet.

use super::relation::Relation;
use crate::workload::{Access, Rid, Verb};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone)]
pub(super) struct Versions {
    /// Places per row; with one, a row is a single record for life.
    places: u16,
    /// Whether a change of a row reads it first.
    reads_first: bool,
    /// Number of updates of each row so far.
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

    /// Renames the records of heaps, and adds reads. Index entries are unchanged.
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
                // Half of the places away from the one written last.
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

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        let updates = self.updates.capacity() * (size_of::<(Rid, u16)>() + 1);
        (updates + self.scratch.capacity() * size_of::<Access>()) as u64
    }
}
