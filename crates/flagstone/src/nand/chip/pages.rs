//! Data bytes of a chip's pages, stored only where they were written. The memory of dropped pages
//! is reused.
//!
//! Whole pages are stored in a few large arrays, so that a page is found by an index instead of a
//! pointer, and the system can use huge memory pages. Shorter data has its own allocation.

use crate::nand::Geometry;
use crate::units::Pbn;

/// Data bytes of the pages of one block.
pub(super) type BlockData = Box<[Option<Box<[u8]>>]>;

/// Where the bytes of a page are. 0: nowhere. Otherwise one plus an index into the whole pages, or,
/// with the highest bit set, into the short ones.
type Place = u32;

const SHORT: u32 = 1 << 31;

/// Pages per array.
const CHUNK: usize = 8192;

/// Bytes of pages, by block.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    /// A place for each page of the blocks that have any bytes.
    blocks: Vec<Option<Box<[Place]>>>,
    pages_per_block: usize,
    page_bytes: usize,
    /// Pages per array: fewer on a small device.
    chunk: usize,
    /// Whole pages, consecutive, and the free ones among them.
    whole: Vec<Vec<u8>>,
    free: Vec<u32>,
    short: Vec<Box<[u8]>>,
    free_short: Vec<u32>,
}

impl Pages {
    /// No pages.
    pub(super) fn new(geometry: &Geometry) -> Pages {
        Pages {
            blocks: vec![None; geometry.blocks() as usize],
            pages_per_block: geometry.pages_per_block as usize,
            page_bytes: geometry.page_bytes as usize,
            chunk: CHUNK.min(geometry.pages() as usize),
            whole: Vec::new(),
            free: Vec::new(),
            short: Vec::new(),
            free_short: Vec::new(),
        }
    }

    #[inline]
    fn bytes(&self, place: Place) -> Option<&[u8]> {
        let at = (place & !SHORT).checked_sub(1)? as usize;
        if place & SHORT != 0 {
            return Some(&self.short[at]);
        }
        let start = at % CHUNK * self.page_bytes;
        Some(&self.whole[at / CHUNK][start..start + self.page_bytes])
    }

    /// The bytes of a page, if it has any.
    #[inline]
    pub(super) fn get(&self, block: Pbn, page: u32) -> Option<&[u8]> {
        self.bytes(self.blocks[block.index()].as_ref()?[page as usize])
    }

    /// Stores the bytes of a page.
    #[inline]
    pub(super) fn put(&mut self, block: Pbn, page: u32, bytes: &[u8]) {
        self.forget(block, page);
        let place = self.keep(bytes);
        let pages = self.pages_per_block;
        let places = self.blocks[block.index()].get_or_insert_with(|| vec![0; pages].into());
        places[page as usize] = place;
    }

    /// Stores bytes, in memory of dropped pages if there is some. Returns their place.
    fn keep(&mut self, bytes: &[u8]) -> Place {
        if bytes.len() < self.page_bytes {
            let at = self.free_short.pop().unwrap_or(self.short.len() as u32);
            match self.short.get_mut(at as usize) {
                Some(free) => *free = bytes.into(),
                None => self.short.push(bytes.into()),
            }
            return SHORT | (at + 1);
        }
        if let Some(at) = self.free.pop() {
            let start = at as usize % CHUNK * self.page_bytes;
            let chunk = &mut self.whole[at as usize / CHUNK];
            chunk[start..start + self.page_bytes].copy_from_slice(bytes);
            return at + 1;
        }
        let full = CHUNK * self.page_bytes;
        if self.whole.last().is_none_or(|chunk| chunk.len() == full) {
            let room = self.chunk * self.page_bytes;
            self.whole.push(Vec::with_capacity(room));
        }
        let before = (self.whole.len() - 1) * CHUNK;
        let chunk = self.whole.last_mut().expect("there is one now");
        chunk.extend_from_slice(bytes);
        (before + chunk.len() / self.page_bytes) as u32
    }

    /// Drops the bytes of a page.
    #[inline]
    pub(super) fn forget(&mut self, block: Pbn, page: u32) {
        if let Some(places) = &mut self.blocks[block.index()] {
            let place = std::mem::take(&mut places[page as usize]);
            self.empty(place);
        }
    }

    /// Drops the bytes of a block.
    pub(super) fn drop_block(&mut self, block: Pbn) {
        for place in self.blocks[block.index()].take().into_iter().flatten() {
            self.empty(place);
        }
    }

    #[inline]
    fn empty(&mut self, place: Place) {
        let Some(at) = (place & !SHORT).checked_sub(1) else {
            return;
        };
        if place & SHORT != 0 {
            self.short[at as usize] = Box::default();
            self.free_short.push(at);
        } else {
            self.free.push(at);
        }
    }

    /// All bytes of a block.
    pub(super) fn block(&self, block: Pbn) -> Option<BlockData> {
        let places = self.blocks[block.index()].as_ref()?;
        Some(
            places
                .iter()
                .map(|&at| self.bytes(at).map(Box::from))
                .collect(),
        )
    }

    /// Restores all bytes of a block.
    pub(super) fn set_block(&mut self, block: Pbn, data: Option<BlockData>) {
        self.drop_block(block);
        for (page, bytes) in data.into_iter().flatten().enumerate() {
            if let Some(bytes) = bytes {
                self.put(block, page as u32, &bytes);
            }
        }
    }

    /// All pages that have bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pbn, usize, &[u8])> + '_ {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(move |(block, places)| {
            let places = places.iter().flatten().enumerate();
            places.filter_map(move |(page, &at)| Some((Pbn(block as u32), page, self.bytes(at)?)))
        })
    }

    /// Memory use in bytes.
    pub(super) fn memory(&self) -> u64 {
        let blocks = self.blocks.iter().flatten();
        let places: usize = blocks.map(|places| size_of_val::<[Place]>(places)).sum();
        let short: usize = self.short.iter().map(|bytes| bytes.len()).sum();
        let whole: usize = self.whole.iter().map(Vec::len).sum();
        (places + whole + short) as u64
    }
}
