//! The store below an index with transactions: what a flush writes waits until its closing
//! record is durable.

use crate::index::{BackingError, BackingStore};
use crate::units::{Lpn, Nanos};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What is below: the log, and the pages of the index behind it.
pub(super) struct Below {
    pub(super) store: Box<dyn BackingStore>,
    pub(super) skip: u32,
    /// Pages that a flush has written and the store has not.
    pub(super) waiting: BTreeMap<Lpn, Vec<u8>>,
}

/// The index's pages.
pub(super) struct Behind(pub(super) Rc<RefCell<Below>>);

impl BackingStore for Behind {
    fn page_bytes(&self) -> usize {
        self.0.borrow().store.page_bytes()
    }

    fn pages(&self) -> u32 {
        let below = self.0.borrow();
        below.store.pages() - below.skip
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let below = &mut *self.0.borrow_mut();
        if let Some(page) = below.waiting.get(&at) {
            into.copy_from_slice(page);
            return Ok(now);
        }
        below.store.read(now, Lpn(at.0 + below.skip), into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        let below = &mut *self.0.borrow_mut();
        for &(at, data) in pages {
            let mut page = data.to_vec();
            page.resize(below.store.page_bytes(), 0);
            below.waiting.insert(at, page);
        }
        Ok(now)
    }

    fn trim(&mut self, now: Nanos, _: Lpn) -> Result<Nanos, BackingError> {
        // The flush that gives a page back may be undone by never having been.
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        Ok(now)
    }
}
