//! The pages of a write transaction: changed pages, pages it has read, and undo data for
//! savepoints.

use super::space::Space;
use crate::error::StoreError;
use crate::pages::PageStore;
use crate::shared::{Changes, PageBytes, Turn};
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::{Images, Nodes, TreeError};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

const PAGE: usize = PageStore::PAGE_BYTES;
/// Maximum number of read pages kept here. The cache below keeps them longer.
const AT_HAND: usize = 1024;

/// The transaction's version of a page; `None` if the transaction freed it.
type Own = Option<PageBytes>;

/// The pages of a write transaction.
pub(super) struct Changed {
    pub(super) turn: Turn,
    own: FxHashMap<Lpn, Own>,
    read: RefCell<FxHashMap<Lpn, PageBytes>>,
    pub(super) space: Space,
    layers: Vec<Layer>,
}

/// Undo data of a savepoint: earlier page contents, and a position in the log of free pages.
struct Layer {
    pages: FxHashMap<Lpn, Option<Own>>,
    mark: usize,
}

fn missing(at: Lpn) -> StoreError {
    StoreError::Damaged(format!(
        "page {at} of a table holds nothing: `flagstone store check` lists what is damaged"
    ))
}

/// The bytes of a page that a tree references. An empty page is damage.
pub(super) fn whole(at: Lpn, page: Option<PageBytes>) -> Result<PageBytes, StoreError> {
    page.ok_or_else(|| missing(at))
}

impl Changed {
    pub(super) fn new(turn: Turn, space: Space) -> Changed {
        Changed {
            turn,
            own: FxHashMap::default(),
            read: RefCell::default(),
            space,
            layers: Vec::new(),
        }
    }

    /// Whether the transaction has changed pages.
    pub(super) fn has_changed(&self) -> bool {
        !self.own.is_empty()
    }

    /// Sets the contents of a page, such that a savepoint can undo it.
    pub(super) fn set(&mut self, at: Lpn, page: Own) {
        self.note(at);
        self.own.insert(at, page);
    }

    /// Saves the contents of a page before a change, for the newest savepoint.
    fn note(&mut self, at: Lpn) {
        if let Some(layer) = self.layers.last_mut() {
            let own = &self.own;
            let was = || own.get(&at).cloned();
            layer.pages.entry(at).or_insert_with(was);
        }
    }

    /// Makes a savepoint. Returns the number of savepoints.
    pub(super) fn push(&mut self) -> usize {
        self.layers.push(Layer {
            pages: FxHashMap::default(),
            mark: self.space.mark(),
        });
        self.layers.len()
    }

    /// Restores the state at savepoint `count`. It stays, as the last one.
    pub(super) fn back_to(&mut self, count: usize) {
        for layer in self.layers.drain(count - 1..).rev() {
            for (at, was) in layer.pages {
                match was {
                    Some(own) => _ = self.own.insert(at, own),
                    None => _ = self.own.remove(&at),
                }
            }
            self.space.undo_to(layer.mark);
        }
        self.push();
    }

    /// Forgets savepoint `count` and later ones. Changes stay.
    pub(super) fn forget(&mut self, count: usize) {
        // Their undo data merges into that of the previous savepoint. The oldest saved version of a
        // page wins.
        for layer in self.layers.split_off(count - 1) {
            let Some(before) = self.layers.last_mut() else {
                continue;
            };
            for (at, was) in layer.pages {
                before.pages.entry(at).or_insert(was);
            }
        }
    }

    /// Ends the transaction. Returns its turn, its changes, and the free pages as it left them.
    pub(super) fn finish(self) -> (Turn, Changes, Space) {
        let born = self.space.born();
        let mut changes = Changes::new();
        for (at, page) in self.own {
            if page.is_some() || !born.contains(&at) {
                changes.insert(at, page);
            }
        }
        (self.turn, changes, self.space)
    }

    /// The bytes of a page: as this transaction left it, or as the turn reads it. Pages that were
    /// read stay at hand, at most [`AT_HAND`].
    fn image(&self, at: Lpn) -> Result<PageBytes, StoreError> {
        if let Some(own) = self.own.get(&at) {
            return whole(at, own.clone());
        }
        let mut read = self.read.borrow_mut();
        if let Some(page) = read.get(&at) {
            return Ok(page.clone());
        }
        let page = whole(at, self.turn.read(at)?)?;
        if read.len() >= AT_HAND {
            read.clear();
        }
        read.insert(at, page.clone());
        Ok(page)
    }
}

impl Images for &Changed {
    type Page = PageBytes;
    type Error = StoreError;

    fn page(&self, at: Lpn) -> Result<PageBytes, StoreError> {
        self.image(at)
    }

    fn pages(&self, pages: &[Lpn]) -> Result<Vec<PageBytes>, StoreError> {
        let mut read = self.read.borrow_mut();
        let is_known = |at: &Lpn| self.own.contains_key(at) || read.contains_key(at);
        let missing: Vec<Lpn> = pages.iter().copied().filter(|at| !is_known(at)).collect();
        if read.len() + missing.len() > AT_HAND {
            read.clear();
        }
        let found = self.turn.read_many(&missing)?;
        for (&at, page) in missing.iter().zip(found) {
            read.insert(at, whole(at, page)?);
        }
        drop(read);
        pages.iter().map(|&at| self.image(at)).collect()
    }
}

impl Nodes for &mut Changed {
    type Error = StoreError;

    fn page_bytes(&self) -> usize {
        PAGE
    }

    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos), StoreError> {
        if !self.own.contains_key(&at) {
            self.image(at)?;
            let page = self.read.get_mut().get(&at);
            return Ok((page.expect("it was fetched"), now));
        }
        if self.own[&at].is_none() {
            self.image(at)?;
        }
        let page = self.own[&at].as_ref();
        Ok((page.expect("it holds something, or fetching fails"), now))
    }

    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos), StoreError> {
        let page = self.image(at)?;
        self.note(at);
        // Shared copies stay unchanged: the first change makes a private copy.
        self.read.get_mut().remove(&at);
        let own = self.own.entry(at).or_insert(None);
        if own.is_none() {
            *own = Some(page);
        } else {
            drop(page);
        }
        let own = own.as_mut().expect("it was put there");
        Ok((Arc::make_mut(own), now))
    }

    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos), StoreError> {
        self.set(at, Some(vec![0; PAGE].into()));
        let own = self.own.get_mut(&at).and_then(Option::as_mut);
        Ok((Arc::make_mut(own.expect("it was put there")), now))
    }

    fn read_past(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut [u8],
    ) -> Result<Nanos, StoreError> {
        for (&at, into) in pages.iter().zip(into.chunks_mut(PAGE)) {
            let page = self.image(at)?;
            into.fill(0);
            into[..page.len()].copy_from_slice(&page);
        }
        Ok(now)
    }

    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, StoreError> {
        for &(at, bytes) in pages {
            self.set(at, Some(bytes.into()));
        }
        Ok(now)
    }

    fn take(&mut self) -> Result<Lpn, StoreError> {
        let page = self.space.take();
        page.ok_or_else(|| self.full())
    }

    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, StoreError> {
        self.space.give(at);
        self.set(at, None);
        Ok(now)
    }

    fn is_taken(&self, at: Lpn) -> bool {
        !self.space.is_free(at)
    }

    fn left(&self) -> u32 {
        self.space.left()
    }

    fn pass_over(&mut self, error: StoreError) -> Result<(), StoreError> {
        if error.is_damage() {
            return Ok(());
        }
        Err(error)
    }

    fn full(&self) -> StoreError {
        let pages = self.space.most();
        StoreError::Tree(TreeError::Full { pages })
    }

    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>, StoreError> {
        Ok(self.image(at)?.to_vec())
    }
}
