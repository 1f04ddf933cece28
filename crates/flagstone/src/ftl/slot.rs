//! The place of a logical page, as an entry of the mapping table.

use super::Kind;
use crate::units::Ppn;

/// Where a logical page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Never written, or forgotten.
    Empty,
    /// Its version.
    Page(Ppn),
    /// A page that says it was trimmed.
    Trimmed(Ppn),
}

/// No version.
pub(super) const EMPTY: u32 = u32::MAX;
/// Set in the word of a page that says it was trimmed.
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

    /// The slot of a logical page whose newest version is the page `at` of this kind.
    #[inline]
    pub fn of(kind: Kind, at: Ppn) -> Slot {
        match kind {
            Kind::Trim => Slot::Trimmed(at),
            _ => Slot::Page(at),
        }
    }

    /// The physical page, data or trim.
    #[inline]
    pub fn ppn(self) -> Option<Ppn> {
        match self {
            Slot::Empty => None,
            Slot::Page(at) | Slot::Trimmed(at) => Some(at),
        }
    }
}
