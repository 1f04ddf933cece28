//! Entries of the mapping table: where a logical page is.

use super::{Ftl, PageKind};
use crate::units::{Lpn, Ppn};

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

impl Ftl {
    /// The mapping table.
    #[inline]
    pub(super) fn words(&self) -> &[[u8; SLOT_BYTES]] {
        self.map.as_chunks().0
    }

    /// Checks that every mapped page is live.
    pub(super) fn check_slots(&self) -> Result<(), String> {
        let mapped = (0..self.logical_pages).map(Lpn);
        let mut mapped = mapped.filter_map(|lpn| Some((lpn, self.slot(lpn).ppn()?)));
        match mapped.find(|&(_, at)| !self.is_live(at)) {
            Some((lpn, at)) => Err(format!(
                "logical page {lpn} is at page {at}, which is not live"
            )),
            None => Ok(()),
        }
    }

    /// The place of a logical page.
    #[inline]
    pub fn slot(&self, at: Lpn) -> Slot {
        Slot::decode(u32::from_le_bytes(self.words()[at.index()]))
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
        let words = self.map.as_chunks_mut().0;
        let old = std::mem::replace(&mut words[at.index()], slot.encode().to_le_bytes());
        if self.format.persist_map {
            let page = at.0 / self.meta.entries_per_page;
            self.dirty_map_pages[page as usize / 64] |= 1 << (page % 64);
        }
        Slot::decode(u32::from_le_bytes(old))
    }
}
