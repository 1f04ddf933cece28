//! A journal of an index's operations since its last flush, in pages of their own. A restart
//! replays it to restore the changes in the index's buffers.
//!
//! Pages are written in order, and the last one is rewritten with each operation. So they belong in
//! a store with transactions. A flush starts a new generation at the first page.

use super::store::BackingStore;
use super::{Key, Result, Value, damaged};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};

layout! {
    /// The head of a page of an index's journal.
    pub journal_head: 10 => {
        GENERATION: 8, "flushes before it; pages of another generation do not count";
        OPERATIONS: 2, "how many follow";
    }
}

layout! {
    /// An operation in an index's journal.
    pub journal_entry: 17 => {
        KIND:  1, "1 insert, 2 update, 3 delete";
        KEY:   8, "the key";
        VALUE: 8, "the value; 0 of a deletion";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[journal_head::RECORD, journal_entry::RECORD];

/// An operation that changes an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Insert(Key, Value),
    Update(Key, Value),
    Delete(Key),
}

/// The journal's pages, which are the first of the store.
#[derive(Debug)]
pub(super) struct Journal {
    pages: u32,
    generation: u64,
    /// The page being filled, and the number of its operations.
    at: u32,
    operations: usize,
    image: Vec<u8>,
}

const STRANGE: &str = "it is no page of the journal";

fn per_page(page_bytes: usize) -> usize {
    (page_bytes - journal_head::SIZE) / journal_entry::SIZE
}

impl Journal {
    /// Reads the operations of the journal, in order, from the first `pages` pages of the store.
    /// The journal ends at a page that is not full, or before one of another generation.
    ///
    /// # Errors
    /// A page is damaged, or the store cannot continue.
    pub(super) fn load(
        store: &mut dyn BackingStore,
        pages: u32,
        mut now: Nanos,
    ) -> Result<(Journal, Vec<Operation>, Nanos)> {
        let mut journal = Journal {
            pages,
            generation: 0,
            at: 0,
            operations: 0,
            image: vec![0; store.page_bytes()],
        };
        let mut all = Vec::new();
        for page in 0..pages {
            let mut image = vec![0; store.page_bytes()];
            now = store.read(now, Lpn(page), &mut image)?;
            let generation = get(&image, journal_head::GENERATION);
            if page == 0 {
                journal.generation = generation;
            } else if generation != journal.generation {
                break;
            }
            let operations = get(&image, journal_head::OPERATIONS) as usize;
            let entries = image[journal_head::SIZE..].chunks_exact(journal_entry::SIZE);
            if operations > entries.len() {
                return damaged(Lpn(page), STRANGE);
            }
            for entry in entries.take(operations) {
                let (key, value) = (
                    get(entry, journal_entry::KEY),
                    get(entry, journal_entry::VALUE),
                );
                all.push(match entry[0] {
                    1 => Operation::Insert(key, value),
                    2 => Operation::Update(key, value),
                    3 => Operation::Delete(key),
                    _ => return damaged(Lpn(page), STRANGE),
                });
            }
            (journal.at, journal.operations, journal.image) = (page, operations, image);
            if operations < per_page(store.page_bytes()) {
                break;
            }
        }
        Ok((journal, all, now))
    }

    /// Number of operations.
    pub(super) fn len(&self) -> u32 {
        self.at * per_page(self.image.len()) as u32 + self.operations as u32
    }

    /// Whether there is no room for another operation.
    pub(super) fn is_full(&self) -> bool {
        self.at + 1 == self.pages && self.operations == per_page(self.image.len())
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The store cannot continue.
    ///
    /// # Panics
    /// The journal is full.
    pub(super) fn append(
        &mut self,
        store: &mut dyn BackingStore,
        operation: Operation,
        now: Nanos,
    ) -> Result<Nanos> {
        assert!(!self.is_full(), "the journal is full");
        if self.operations == per_page(self.image.len()) {
            (self.at, self.operations) = (self.at + 1, 0);
            self.image.fill(0);
        }
        let start = journal_head::SIZE + self.operations * journal_entry::SIZE;
        let entry = &mut self.image[start..start + journal_entry::SIZE];
        let (kind, key, value) = match operation {
            Operation::Insert(key, value) => (1, key, value),
            Operation::Update(key, value) => (2, key, value),
            Operation::Delete(key) => (3, key, 0),
        };
        put(entry, journal_entry::KIND, kind);
        put(entry, journal_entry::KEY, key);
        put(entry, journal_entry::VALUE, value);
        self.operations += 1;
        self.write(store, now)
    }

    /// Forgets all operations.
    ///
    /// # Errors
    /// The store cannot continue.
    pub(super) fn clear(&mut self, store: &mut dyn BackingStore, now: Nanos) -> Result<Nanos> {
        (self.at, self.operations) = (0, 0);
        self.generation += 1;
        self.image.fill(0);
        self.write(store, now)
    }

    fn write(&mut self, store: &mut dyn BackingStore, now: Nanos) -> Result<Nanos> {
        put(&mut self.image, journal_head::GENERATION, self.generation);
        let operations = self.operations as u64;
        put(&mut self.image, journal_head::OPERATIONS, operations);
        Ok(store.write(now, &[(Lpn(self.at), &self.image)])?)
    }
}
