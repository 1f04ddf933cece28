//! The mapping table, and its entries: where a logical page is.

use super::config::Sizes;
use super::map_cache::MapCache;
use super::{Ftl, PageKind};
use crate::units::{Lpn, Ppn};
use std::ops::Range;

/// The place of a logical page.
///
/// ```
/// use flagstone::ftl::{PageKind, Slot};
/// use flagstone::units::Ppn;
///
/// let slot = Slot::of(PageKind::Trim, Ppn(3));
/// assert_eq!(slot, Slot::Trimmed(Ppn(3)));
/// assert_eq!((slot.ppn(), Slot::Empty.ppn()), (Some(Ppn(3)), None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Never written, or forgotten.
    Empty,
    /// The page that holds its version.
    Page(Ppn),
    /// The page with its trim, or a list of trims that names it.
    Trimmed(Ppn),
}

/// Bytes of an entry.
pub(super) const SLOT_BYTES: usize = 4;
/// All bytes of an empty entry have this value.
pub(super) const EMPTY_BYTE: u8 = 0xff;
/// No version.
const EMPTY: u32 = u32::from_le_bytes([EMPTY_BYTE; SLOT_BYTES]);
/// Set in the entry of a trimmed page.
const TRIMMED: u32 = 1 << 31;

impl Slot {
    #[inline]
    pub(crate) fn decode(word: u32) -> Slot {
        if word == EMPTY {
            Slot::Empty
        } else if word & TRIMMED != 0 {
            Slot::Trimmed(Ppn(word & !TRIMMED))
        } else {
            Slot::Page(Ppn(word))
        }
    }

    #[inline]
    pub(crate) fn encode(self) -> u32 {
        match self {
            Slot::Empty => EMPTY,
            Slot::Page(at) => at.0,
            Slot::Trimmed(at) => at.0 | TRIMMED,
        }
    }

    /// The entry of a logical page whose newest version is the page `at` of this kind.
    #[inline]
    pub fn of(kind: PageKind, at: Ppn) -> Slot {
        match kind {
            PageKind::Trim | PageKind::Trims => Slot::Trimmed(at),
            _ => Slot::Page(at),
        }
    }

    /// The physical page, whether data or trim.
    #[inline]
    pub fn ppn(self) -> Option<Ppn> {
        match self {
            Slot::Empty => None,
            Slot::Page(at) | Slot::Trimmed(at) => Some(at),
        }
    }
}

/// The mapping table.
#[derive(Debug, Clone)]
pub(super) struct Map {
    /// Number of logical pages.
    pages: u32,
    /// A [`Slot`] for each logical page, encoded as in translation pages.
    bytes: Vec<u8>,
    /// A bit for each translation page: whether it has changed since the last checkpoint. Empty if
    /// the table is not on flash.
    dirty: Vec<u64>,
    entries_per_page: u32,
    /// The entries that are in memory on a device that does not keep all of them there.
    pub(super) cache: Option<MapCache>,
}

impl Map {
    /// A table of the size `sizes` with these bytes; without them it is empty.
    pub(super) fn new(bytes: Option<Vec<u8>>, sizes: &Sizes) -> Map {
        let mut map = Map {
            pages: 0,
            bytes: bytes.unwrap_or_default(),
            dirty: Vec::new(),
            entries_per_page: sizes.entries_per_page,
            cache: None,
        };
        map.resize(sizes);
        map
    }

    /// Adapts to another number of logical pages.
    pub(super) fn resize(&mut self, sizes: &Sizes) {
        self.pages = sizes.logical_pages;
        let bytes = self.pages as usize * SLOT_BYTES;
        self.bytes.resize(bytes, EMPTY_BYTE);
        self.dirty
            .resize((sizes.map_pages as usize).div_ceil(64), 0);
    }

    /// All logical pages.
    pub(super) fn lpns(&self) -> impl Iterator<Item = Lpn> + use<> {
        (0..self.pages).map(Lpn)
    }

    /// Number of logical pages.
    #[inline]
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    #[inline]
    pub(super) fn words(&self) -> &[[u8; SLOT_BYTES]] {
        self.bytes.as_chunks().0
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Moves the bytes out. The table cannot be used any more.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The bytes of a translation page and of all behind it.
    pub(super) fn bytes_from(&mut self, page: u32) -> &mut [u8] {
        &mut self.bytes[(page * self.entries_per_page) as usize * SLOT_BYTES..]
    }

    /// The contents of a translation page.
    pub(super) fn translation_page(&self, page: u32) -> &[u8] {
        let bytes = self.entries_per_page as usize * SLOT_BYTES;
        let mut pages = self.bytes.chunks(bytes);
        pages.nth(page as usize).expect("the table has this page")
    }

    /// The translation page of a logical page.
    #[inline]
    pub(super) fn translation_page_of(&self, at: Lpn) -> u32 {
        at.0 / self.entries_per_page
    }

    /// The logical pages of a translation page.
    pub(super) fn lpns_of(&self, page: u32) -> Range<Lpn> {
        let first = page * self.entries_per_page;
        Lpn(first)..Lpn((first + self.entries_per_page).min(self.pages))
    }

    #[inline]
    fn replace(&mut self, at: Lpn, slot: Slot) -> Slot {
        let words = self.bytes.as_chunks_mut().0;
        let old = std::mem::replace(&mut words[at.index()], slot.encode().to_le_bytes());
        if !self.dirty.is_empty() {
            self.mark(self.translation_page_of(at));
        }
        if let Some(cache) = &mut self.cache {
            cache.change(at);
        }
        Slot::decode(u32::from_le_bytes(old))
    }

    /// Marks a translation page as changed.
    pub(super) fn mark(&mut self, page: u32) {
        self.dirty[page as usize / 64] |= 1 << (page % 64);
    }

    /// The changed translation pages, in order. They count as unchanged from now on.
    pub(super) fn take_changed(&mut self) -> Vec<u32> {
        let mut changed = Vec::new();
        for (word, bits) in self.dirty.iter_mut().enumerate() {
            let mut bits = std::mem::take(bits);
            while bits != 0 {
                changed.push(word as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        changed
    }

    /// Memory of the marks of changed translation pages in bytes.
    pub(super) fn memory_of_marks(&self) -> u64 {
        self.dirty.len() as u64 * 8
    }
}

impl Ftl {
    /// Checks that every mapped page is live.
    pub(super) fn check_slots(&self) -> Result<(), String> {
        let mapped = self.map.lpns();
        let mut mapped = mapped.filter_map(|lpn| Some((lpn, self.slot(lpn).ppn()?)));
        match mapped.find(|&(_, at)| !self.blocks.is_live(at)) {
            Some((lpn, at)) => Err(format!(
                "logical page {lpn} is at page {at}, which is not live"
            )),
            None => Ok(()),
        }
    }

    /// The place of a logical page.
    #[inline]
    pub fn slot(&self, at: Lpn) -> Slot {
        Slot::decode(u32::from_le_bytes(self.map.words()[at.index()]))
    }

    /// Maps a logical page to a new version, and returns the old entry. Does not change which pages
    /// are live.
    #[inline]
    pub fn set_slot(&mut self, at: Lpn, slot: Slot) -> Slot {
        let old = self.move_slot(at, slot);
        if !self.snapshots.is_empty() {
            self.retain_for_snapshots(at, old);
        }
        old
    }

    /// Maps a logical page to another place of the same version, as after a copy, and returns the
    /// old entry. Snapshots do not keep the old place.
    #[inline]
    pub fn move_slot(&mut self, at: Lpn, slot: Slot) -> Slot {
        self.map.replace(at, slot)
    }
}
