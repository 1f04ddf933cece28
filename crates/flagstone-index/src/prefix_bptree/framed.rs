//! The pages of an index, as a tree of byte strings uses them.

use super::super::space::Space;
use super::super::{Cache, IndexError, Result};
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::Nodes;

/// The pages of an index: in frames of its cache, and in its space.
pub(super) struct Framed {
    pub(super) cache: Cache,
    pub(super) space: Space,
}

impl Nodes for Framed {
    type Error = IndexError;

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

    fn read_together(&mut self, now: Nanos, pages: &[Lpn], into: &mut Vec<u8>) -> Result<Nanos> {
        let each = |_, page: &[u8]| into.extend_from_slice(page);
        Ok(self.cache.read_together(now, pages, each)?)
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
