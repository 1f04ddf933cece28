//! The pages below a tree of byte strings: those of an index, through its cache, or those changed
//! by a transaction of a store of tables.

use crate::TreeError;
use flagstone::units::{Lpn, Nanos};
use std::fmt::Display;

/// Pages that a tree of byte strings reads and changes, and allocates.
pub trait Nodes {
    /// Why a page cannot be accessed, or the tree cannot continue.
    type Error: From<TreeError> + Display;

    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Reads a page.
    ///
    /// # Errors
    /// The page cannot be read.
    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos), Self::Error>;

    /// A page to modify.
    ///
    /// # Errors
    /// The page cannot be read.
    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos), Self::Error>;

    /// A page to overwrite: zeros, and not read.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos), Self::Error>;

    /// Reads whole pages in parallel and concatenates them in `into`.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn read_past(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut [u8],
    ) -> Result<Nanos, Self::Error>;

    /// Reads whole pages that are needed next, in parallel, and appends them to `into`. By default
    /// as [`Nodes::read_past`]; pages with a cache may keep them there.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn read_together(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut Vec<u8>,
    ) -> Result<Nanos, Self::Error> {
        let start = into.len();
        into.resize(start + pages.len() * self.page_bytes(), 0);
        self.read_past(now, pages, &mut into[start..])
    }

    /// Writes whole pages in parallel.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, Self::Error>;

    /// Allocates a page.
    ///
    /// # Errors
    /// There is none.
    fn take(&mut self) -> Result<Lpn, Self::Error>;

    /// Frees a page that nothing references any more.
    ///
    /// # Errors
    /// The pages cannot be accessed.
    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, Self::Error>;

    /// Whether a page is allocated. By default each referenced page is: only damage empties one.
    fn is_taken(&self, at: Lpn) -> bool {
        let _ = at;
        true
    }

    /// Number of pages that can still be taken.
    fn left(&self) -> u32;

    /// The error of a tree that needs more pages than are left.
    fn full(&self) -> Self::Error;

    /// Lets a tree continue without a page if `error` reports that page as damaged. By default it
    /// never does.
    ///
    /// # Errors
    /// Returns `error` if the tree cannot continue.
    fn pass_over(&mut self, error: Self::Error) -> Result<(), Self::Error> {
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
    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>, Self::Error>;
}
