//! Data bytes of a chip's pages, kept where someone wrote some; and the memory of those that went,
//! for the next ones.

use crate::nand::Geometry;
use crate::units::Pbn;

/// Data bytes of the pages of one block.
pub(super) type BlockData = Box<[Option<Box<[u8]>>]>;

/// Bytes of pages, by block.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    blocks: Vec<Option<BlockData>>,
    pages_per_block: usize,
    page_bytes: usize,
    emptied: Emptied,
}

/// Memory of whole pages whose bytes went.
#[derive(Debug, Default)]
struct Emptied(Vec<Box<[u8]>>);

/// No more of it than a few blocks' worth.
const EMPTIED_MAX: usize = 1024;

impl Clone for Emptied {
    fn clone(&self) -> Self {
        Emptied::default()
    }
}

impl Pages {
    /// None yet.
    pub(super) fn new(geometry: &Geometry) -> Pages {
        Pages {
            blocks: vec![None; geometry.blocks() as usize],
            pages_per_block: geometry.pages_per_block as usize,
            page_bytes: geometry.page_bytes as usize,
            emptied: Emptied::default(),
        }
    }

    /// The bytes of a page, if it has any.
    #[inline]
    pub(super) fn get(&self, block: Pbn, page: u32) -> Option<&[u8]> {
        self.blocks[block.index()].as_ref()?[page as usize].as_deref()
    }

    /// Gives a page its bytes.
    #[inline]
    pub(super) fn put(&mut self, block: Pbn, page: u32, bytes: &[u8]) {
        let pages = self.pages_per_block;
        let data = self.blocks[block.index()].get_or_insert_with(|| vec![None; pages].into());
        let kept = self
            .emptied
            .0
            .pop_if(|kept| kept.len() == bytes.len())
            .map(|mut kept| {
                kept.copy_from_slice(bytes);
                kept
            });
        data[page as usize] = Some(kept.unwrap_or_else(|| bytes.into()));
    }

    /// Drops the bytes of a page.
    #[inline]
    pub(super) fn forget(&mut self, block: Pbn, page: u32) {
        if let Some(pages) = &mut self.blocks[block.index()] {
            let bytes = pages[page as usize].take();
            self.empty(bytes);
        }
    }

    /// Drops the bytes of a block.
    pub(super) fn drop_block(&mut self, block: Pbn) {
        for bytes in self.blocks[block.index()].take().into_iter().flatten() {
            self.empty(bytes);
        }
    }

    fn empty(&mut self, bytes: Option<Box<[u8]>>) {
        let whole = bytes.filter(|bytes| bytes.len() == self.page_bytes);
        if self.emptied.0.len() < EMPTIED_MAX {
            self.emptied.0.extend(whole);
        }
    }

    /// All bytes of a block.
    pub(super) fn block(&self, block: Pbn) -> Option<&BlockData> {
        self.blocks[block.index()].as_ref()
    }

    /// Puts all bytes of a block back.
    pub(super) fn set_block(&mut self, block: Pbn, data: Option<BlockData>) {
        self.blocks[block.index()] = data;
    }

    /// Every page that has bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pbn, usize, &[u8])> + '_ {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(|(block, pages)| {
            let pages = pages.iter().flatten().enumerate();
            pages.filter_map(move |(page, data)| Some((Pbn(block as u32), page, data.as_deref()?)))
        })
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        let blocks = self.blocks.iter().flatten();
        let bytes = |pages: &BlockData| -> usize {
            let held: usize = pages.iter().flatten().map(|data| data.len()).sum();
            held + pages.len() * size_of::<Option<Box<[u8]>>>()
        };
        blocks.map(|pages| bytes(pages) as u64).sum()
    }
}
