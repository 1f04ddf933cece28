//! Test helper: a tree in pages in memory.

use super::{ByteTree, Images, Nodes, Root, TreeError, damaged, write_empty};
use flagstone::units::{Lpn, Nanos};
use std::cell::RefCell;

/// Pages in memory. The tree changes them; the requests of a walk are recorded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Memory {
    /// Bytes of a page.
    pub(crate) page_bytes: usize,
    pub(crate) pages: Vec<Vec<u8>>,
    pub(crate) free: Vec<Lpn>,
    asked: RefCell<Vec<Lpn>>,
    /// A page that is returned without its last byte, as damage.
    pub(crate) short: Option<Lpn>,
}

type Result<T> = std::result::Result<T, TreeError>;

impl Nodes for Memory {
    type Error = TreeError;

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos)> {
        Ok((&self.pages[at.index()], now))
    }

    fn change(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        Ok((&mut self.pages[at.index()], now))
    }

    fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos)> {
        self.pages[at.index()].fill(0);
        self.change(now, at)
    }

    fn read_past(&mut self, now: Nanos, pages: &[Lpn], into: &mut [u8]) -> Result<Nanos> {
        for (at, into) in pages.iter().zip(into.chunks_mut(self.page_bytes)) {
            into.copy_from_slice(&self.pages[at.index()]);
        }
        Ok(now)
    }

    fn write_past(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos> {
        for (at, image) in pages {
            self.pages[at.index()].copy_from_slice(image);
        }
        Ok(now)
    }

    fn take(&mut self) -> Result<Lpn> {
        Ok(self.free.pop().unwrap_or_else(|| {
            self.pages.push(vec![0; self.page_bytes]);
            Lpn(self.pages.len() as u32 - 1)
        }))
    }

    fn give(&mut self, now: Nanos, at: Lpn) -> Result<Nanos> {
        self.free.push(at);
        Ok(now)
    }

    fn left(&self) -> u32 {
        u32::MAX
    }

    fn full(&self) -> TreeError {
        unreachable!("there is always one more")
    }

    fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>> {
        Ok(self.pages[at.index()].clone())
    }
}

impl<'a> Images for &'a Memory {
    type Page = &'a [u8];
    type Error = TreeError;

    fn page(&self, at: Lpn) -> Result<&'a [u8]> {
        self.asked.borrow_mut().push(at);
        let Some(page) = self.pages.get(at.index()) else {
            return damaged(at, "there is no such page");
        };
        let bytes = self.page_bytes - usize::from(self.short == Some(at));
        Ok(&page[..bytes])
    }
}

impl Memory {
    /// These pages, all of one size.
    pub(crate) fn with(pages: Vec<Vec<u8>>) -> Memory {
        Memory {
            page_bytes: pages[0].len(),
            pages,
            ..Memory::default()
        }
    }

    /// The pages requested since the last call, in ascending order.
    pub(crate) fn asked(&self) -> Vec<Lpn> {
        let mut asked = self.asked.take();
        asked.sort_unstable();
        asked
    }
}

/// An empty tree in pages of `page_bytes` bytes.
pub(crate) fn tree(page_bytes: usize) -> ByteTree<Memory> {
    let mut root = vec![0; page_bytes];
    write_empty(&mut root);
    let (at, height) = (Lpn(0), 1);
    ByteTree::over(Memory::with(vec![root]), Root { at, height }).expect("pages of a size")
}

/// Checks a tree, and that each page is used once or free. Returns the number of keys.
pub(crate) fn check(tree: &mut ByteTree<Memory>) -> u64 {
    let (len, mut pages) = tree.check().expect("a whole tree");
    pages.extend(&tree.nodes.free);
    pages.sort_unstable();
    assert!(
        pages
            .iter()
            .map(|at| at.index())
            .eq(0..tree.nodes.pages.len())
    );
    len
}
