//! *Paired pages*: which pages of a block share cells, and what a cut program does to the others.
//!
//! A cell of several bits holds one bit of each of several pages, which are programmed one after
//! another. Programming the upper page changes a charge that already represents the lower page. So
//! a power cut during that program can destroy a lower page that had been durable for long.
//!
//! Data sheets list the pairs in tables. The known tables follow one rule: programs alternate
//! between adjacent word lines, so that none disturbs a full one. A block of eight pages:
//!
//! ```text
//!             distance-3              distance-6              tlc (nine pages)
//! word line   lower  upper            lower  upper            lower  middle  upper
//!     0         0      2              0, 1   4, 5               0      2       5
//!     1         1      4              2, 3   6, 7               1      4       7
//!     2         3      6                                        3      6       8
//!     3         5      7
//! ```
//!
//! `distance-3` is Linux's "distance 3" pairing scheme (`dist3_pairing_scheme`, used for the
//! TC58TEG5DCLTA00). `distance-6` takes pages in twos: the H27UCG8T2BTR-BC pairs 0 with 4, 1 with
//! 5, 2 with 8, up to 251 with 255. `tlc` is the same order for three bits, and follows no
//! particular data sheet.

use super::Geometry;
use crate::settings::named;

/// Which pages of a block share cells.
///
/// ```
/// use flagstone::nand::{Cell, Geometry, Pairing};
///
/// assert_eq!("tlc".parse(), Ok(Pairing::Tlc));
/// let geometry = Geometry {
///     cell: Cell::Mlc,
///     pairing: Pairing::Tlc,
///     ..Geometry::default()
/// };
/// // 64 pages a block are not a multiple of three.
/// assert_eq!(geometry.pairing.pages_multiple(), 3);
/// assert!(geometry.validate().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Pairing {
    /// No pages share cells, or a cut does not harm the others.
    #[default]
    None,
    /// Two pages each: 0 with 2, then odd pages with the third page after them.
    Distance3,
    /// Two pages each, and word lines of two pages: 0 and 1 with 4 and 5, 2 and 3 with 8 and 9.
    Distance6,
    /// Three pages each.
    Tlc,
}

impl Pairing {
    /// All variants, with the names used in device files.
    pub const NAMES: [(&'static str, Pairing); 4] = [
        ("none", Pairing::None),
        ("distance-3", Pairing::Distance3),
        ("distance-6", Pairing::Distance6),
        ("tlc", Pairing::Tlc),
    ];

    /// Number of pages that share cells, and number of adjacent pages in a word line.
    const fn shape(self) -> (u32, u32) {
        match self {
            Pairing::None => (1, 1),
            Pairing::Distance3 => (2, 1),
            Pairing::Distance6 => (2, 2),
            Pairing::Tlc => (3, 1),
        }
    }

    /// The number of pages of a block must be a multiple of this.
    pub const fn pages_multiple(self) -> u32 {
        let (levels, abreast) = self.shape();
        levels * abreast
    }
}

named!(Pairing, |name, names| format!(
    "there is no pairing `{name}`; there are {names}"
));

/// The pages of a block grouped by shared cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    levels: usize,
    /// The pages of each cell, in the order in which they are programmed.
    pages: Vec<u32>,
    /// The index of each page in `pages`.
    places: Vec<usize>,
}

impl Cells {
    /// The groups of a block; `None` if no pages share cells.
    pub(crate) fn new(geometry: &Geometry) -> Option<Cells> {
        let (levels, abreast) = geometry.pairing.shape();
        if levels == 1 {
            return None;
        }
        let lines = geometry.pages_per_block / (levels * abreast);
        let all = (lines * levels * abreast) as usize;
        let (mut pages, mut places) = (vec![0; all], Vec::with_capacity(all));
        // Pages are programmed in steps: in step s the lowest level of word line s, then the second
        // level of word line s - 1, and so on.
        for step in 0..lines + levels - 1 {
            for level in (0..levels).filter(|level| (0..lines).contains(&step.wrapping_sub(*level)))
            {
                for side in 0..abreast {
                    let cell = (step - level) * abreast + side;
                    let place = (cell * levels + level) as usize;
                    pages[place] = places.len() as u32;
                    places.push(place);
                }
            }
        }
        Some(Cells {
            levels: levels as usize,
            pages,
            places,
        })
    }

    /// Whether a page is the first in its group to be programmed.
    pub(crate) fn is_lowest(&self, page: u32) -> bool {
        self.places[page as usize].is_multiple_of(self.levels)
    }

    /// The pages in the same group that are programmed before `page`.
    pub(crate) fn below(&self, page: u32) -> &[u32] {
        let place = self.places[page as usize];
        &self.pages[place - place % self.levels..place]
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;

    fn cells(pairing: Pairing, pages_per_block: u32) -> Cells {
        let geometry = Geometry {
            pairing,
            pages_per_block,
            cell: Cell::Mlc,
            ..Geometry::default()
        };
        geometry.validate().unwrap();
        Cells::new(&geometry).unwrap()
    }

    /// The group of a page.
    fn group(cells: &Cells, page: u32) -> Vec<u32> {
        let (all, below) = (cells.places.len() as u32, cells.below(page));
        let shares = |&other: &u32| {
            other == page || below.contains(&other) || cells.below(other).contains(&page)
        };
        (0..all).filter(shares).collect()
    }

    #[test]
    fn pairs_are_those_of_the_data_sheets() {
        let all = |pairing, pages, of: &[u32]| -> Vec<Vec<u32>> {
            let cells = cells(pairing, pages);
            of.iter().map(|&page| group(&cells, page)).collect()
        };
        let [first, last] = [[0, 2], [253, 255]];
        assert_eq!(
            all(Pairing::Distance3, 256, &[0, 1, 3, 251, 253]),
            [first, [1, 4], [3, 6], [251, 254], last]
        );
        assert_eq!(
            all(Pairing::Distance6, 256, &[0, 1, 2, 3, 6, 250, 251]),
            [
                [0, 4],
                [1, 5],
                [2, 8],
                [3, 9],
                [6, 12],
                [250, 254],
                [251, 255]
            ]
        );
        assert_eq!(
            all(Pairing::Tlc, 9, &[0, 1, 3]),
            [[0, 2, 5], [1, 4, 7], [3, 6, 8]]
        );
    }

    #[test]
    fn every_page_is_in_one_group_and_after_those_below_it() {
        for (pairing, pages) in [
            (Pairing::Distance3, 4),
            (Pairing::Distance3, 64),
            (Pairing::Distance6, 4),
            (Pairing::Distance6, 128),
            (Pairing::Tlc, 6),
            (Pairing::Tlc, 192),
        ] {
            let cells = cells(pairing, pages);
            let mut seen = 0;
            for page in (0..pages).filter(|&page| cells.is_lowest(page)) {
                let group = group(&cells, page);
                assert!(group.is_sorted() && group[0] == page, "{pairing} {group:?}");
                assert_eq!(group.len() as u32, pairing.shape().0);
                for &other in &group {
                    assert_eq!(self::group(&cells, other), group);
                    assert_eq!(cells.is_lowest(other), other == page);
                }
                seen += group.len() as u32;
            }
            assert_eq!(seen, pages);
        }
    }

    #[test]
    fn a_name_comes_back_as_its_pairing() {
        for (name, pairing) in Pairing::NAMES {
            assert_eq!(name.parse(), Ok(pairing));
            assert_eq!(pairing.to_string(), name);
        }
        let error = "distance-4".parse::<Pairing>().unwrap_err();
        assert!(error.contains("there are none, distance-3"), "{error}");
    }

    #[test]
    fn a_block_that_the_pairs_do_not_fill_is_refused() {
        let refused = |pairing, pages_per_block, cell| {
            let geometry = Geometry {
                pairing,
                pages_per_block,
                cell,
                ..Geometry::default()
            };
            geometry.validate().unwrap_err().0
        };
        let error = refused(Pairing::Tlc, 64, Cell::Mlc);
        assert!(error.contains("a multiple of 3"), "{error}");
        let slc = Cell::Slc {
            partial_programs: 2,
        };
        let error = refused(Pairing::Distance3, 64, slc);
        assert!(error.starts_with("pairing"), "{error}");
    }
}
