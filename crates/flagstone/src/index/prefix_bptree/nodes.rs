//! The pages below a tree of byte strings: those of an index, behind its cache, or those that a
//! transaction of a store of tables changes.

use super::super::space::Space;
use super::super::{Cache, IndexError, Result};
use crate::units::{Lpn, Nanos};

/// Pages that a tree of byte strings reads and changes, and free ones to take.
pub trait Nodes {
    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// A page to look at.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos)>;

    /// A page to change in part.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)>;

    /// A page to write anew: zeros, and not read.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)>;

    /// Reads whole pages side by side, one after the other into `into`.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn read_past(&mut self, now: Nanos, pages: &[Lpn], into: &mut [u8]) -> Result<Nanos>;

    /// Writes whole pages side by side.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos>;

    /// Takes a free page.
    ///
    /// # Errors
    /// There is none.
    fn take(&mut self) -> Result<Lpn>;

    /// Gives a page back that nothing refers to any more.
    ///
    /// # Errors
    /// Pages that cannot go on.
    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos>;

    /// Pages that can still be taken.
    fn left(&self) -> u32;

    /// The error of a tree that needs more pages than are left.
    fn full(&self) -> IndexError;

    /// Lets a tree go on without a page if `error` says that the page is damaged. Without a method
    /// of its own it never does.
    ///
    /// # Errors
    /// `error`, if the tree cannot go on.
    fn pass_over(&mut self, error: IndexError) -> Result<()> {
        Err(error)
    }

    /// Is told of comparisons of keys, to count them.
    fn compared(&mut self, keys: u64) {
        let _ = keys;
    }

    /// A page for a check, which counts nothing.
    ///
    /// # Errors
    /// Pages that cannot go on.
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
