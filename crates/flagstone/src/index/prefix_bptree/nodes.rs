//! The pages below a tree of byte strings: those of an index, through its cache, or those changed
//! by a transaction of a store of tables.

use super::super::space::Space;
use super::super::{Cache, IndexError, Result};
use crate::units::{Lpn, Nanos};

/// Pages that a tree of byte strings reads and changes, and allocates.
pub trait Nodes {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Reads a page.
    ///
    /// # Errors
    /// The page cannot be read.
    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos)>;

    /// A page to modify.
    ///
    /// # Errors
    /// The page cannot be read.
    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)>;

    /// A page to overwrite: zeros, and not read.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)>;

    /// Reads whole pages in parallel and concatenates them in `into`.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn read_past(&mut self, now: Nanos, pages: &[Lpn], into: &mut [u8]) -> Result<Nanos>;

    /// Writes whole pages in parallel.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos>;

    /// Allocates a page.
    ///
    /// # Errors
    /// There is none.
    fn take(&mut self) -> Result<Lpn>;

    /// Frees a page that nothing references any more.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos>;

    /// Number of pages that can still be taken.
    fn left(&self) -> u32;

    /// The error of a tree that needs more pages than are left.
    fn full(&self) -> IndexError;

    /// Lets a tree continue without a page if `error` reports that page as damaged. By default it
    /// never does.
    ///
    /// # Errors
    /// `error`, if the tree cannot continue.
    fn pass_over(&mut self, error: IndexError) -> Result<()> {
        Err(error)
    }

    /// Counts key comparisons.
    fn compared(&mut self, keys: u64) {
        let _ = keys;
    }

    /// Reads a page for a check, without counting.
    ///
    /// # Errors
    /// The page cannot be read.
    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>>;
}

/// The pages of an index: in frames of its cache, and in its space.
pub(super) struct Framed {
    pub(super) cache: Cache,
    pub(super) space: Space,
}

impl Nodes for Framed {
    fn page_bytes(&self) -> usize {
        self.cache.page_bytes()
    }

    #[inline]
    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos)> {
        Ok(self.cache.read(now, at)?)
    }

    #[inline]
    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        Ok(self.cache.change(now, at)?)
    }

    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        Ok(self.cache.fill(now, at)?)
    }

    fn read_past(&mut self, now: Nanos, pages: &[Lpn], into: &mut [u8]) -> Result<Nanos> {
        Ok(self.cache.read_past(now, pages, into)?)
    }

    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos> {
        Ok(self.cache.write_past(now, pages)?)
    }

    fn take(&mut self) -> Result<Lpn> {
        self.space.take()
    }

    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos> {
        self.space.give(at)?;
        Ok(self.cache.forget(now, at)?)
    }

    fn left(&self) -> u32 {
        self.space.left()
    }

    fn full(&self) -> IndexError {
        self.space.full()
    }

    #[inline]
    fn compared(&mut self, keys: u64) {
        self.cache.compared(keys);
    }

    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>> {
        Ok(self.cache.inspect(at)?)
    }
}
