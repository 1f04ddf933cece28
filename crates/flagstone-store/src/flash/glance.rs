//! Inspects the flash on a medium, block by block and page by page, without a device above it.
//! Campaigns use this to find which programs and erases have landed. Also implements the flash's
//! own peek at a page.

use super::{
    DAMAGED, DATA_BYTES, Judged, MediumFlash, NEVER, UNKNOWN, generation_in, judge, mark_at,
    mark_page, told_generation, trailer,
};
use crate::encryption;
use crate::error::{Doing, StoreError};
use crate::medium::Medium;
use crate::pages::OpenOptions;
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use flagstone::units::{Pbn, Ppn};
use std::sync::Arc;

/// The state of a page on the medium.
///
/// Example: [`Glance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Not programmed since the last erase of its block.
    Blank,
    /// Programmed, and valid.
    Whole,
    /// Programmed, and torn.
    Torn,
}

/// A read-only view of a medium.
///
/// ```
/// use flagstone::units::Ppn;
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{Glance, OpenOptions, PageStore, Shown, StoreError};
///
/// let (medium, options) = (Recorded::default(), OpenOptions::default());
/// PageStore::on(Box::new(medium.clone()), &options)?.close()?;
/// let glance = Glance::at(Box::new(medium), &options)?.expect("a store");
/// let last = Ppn(glance.blocks() * options.pages_per_block - 1);
/// assert_eq!(glance.page(last)?, Shown::Blank);
/// # Ok::<(), StoreError>(())
/// ```
pub struct Glance {
    medium: Box<dyn Medium>,
    superblock: Superblock,
}

impl Glance {
    /// Opens a view of a medium without writing to it. `None` if the medium holds no store.
    /// `options` supplies the key.
    ///
    /// # Errors
    /// It is of another version, its key is missing, or it cannot be read.
    pub fn at(
        medium: Box<dyn Medium>,
        options: &OpenOptions,
    ) -> Result<Option<Glance>, StoreError> {
        let medium = encryption::dress(medium, options)?;
        let head = Superblock::read(medium.as_ref())?;
        // A store without blocks is one whose creation was interrupted.
        let head = head.filter(|head| head.superblock.blocks > 0);
        Ok(head.map(|head| Glance {
            medium,
            superblock: head.superblock,
        }))
    }

    /// Number of openings that wrote, according to the superblock.
    pub fn openings(&self) -> u32 {
        self.superblock.boot
    }

    /// Whether the last close left tables for the next opening.
    pub fn left_tables(&self) -> bool {
        self.superblock.closed == Some(true) && self.superblock.rested > 0
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.superblock.blocks
    }

    /// The generation of a block as an opening determines it: from the mark, or from the block's
    /// pages if the mark has not landed.
    fn generation(&self, block: Pbn) -> Result<u64, StoreError> {
        let pages = self.superblock.pages_per_block;
        let identity = self.superblock.identity;
        let place = mark_page(pages, block.0);
        let mark = mark_at(self.medium.as_ref(), place).doing("reading a mark")?;
        match generation_in(&mark, block.0, identity) {
            NEVER => told_generation(self.medium.as_ref(), pages, block.0, identity)
                .doing("reading a page"),
            known => Ok(known),
        }
    }

    /// Reads the page of the medium that holds a flash page.
    fn read(&self, at: Ppn) -> Result<[u8; MEDIUM_PAGE_BYTES], StoreError> {
        let pages = self.superblock.pages_per_block;
        let place = mark_page(pages, at.0 / pages) + 1 + u64::from(at.0 % pages);
        let mut page = [0; MEDIUM_PAGE_BYTES];
        (self.medium)
            .read_at(place * MEDIUM_PAGE_BYTES as u64, &mut page)
            .doing("reading a page")?;
        Ok(page)
    }

    /// The last erase of a block: the number of the opening that performed it, and the number of
    /// erases of that opening up to and including it. `None` if neither mark nor pages show an
    /// erase, or if the mark is damaged.
    ///
    /// # Errors
    /// The medium cannot be read.
    pub fn last_erase(&self, block: Pbn) -> Result<Option<(u32, u32)>, StoreError> {
        Ok(match self.generation(block)? {
            NEVER | DAMAGED => None,
            known => Some(((known >> 32) as u32, known as u32)),
        })
    }

    /// Data and spare area of a page that is programmed and valid; `None` for other pages.
    ///
    /// # Errors
    /// The medium cannot be read.
    pub fn contents(&self, at: Ppn) -> Result<Option<[Vec<u8>; 2]>, StoreError> {
        let generation = self.generation(Pbn(at.0 / self.superblock.pages_per_block))?;
        let page = self.read(at)?;
        let (data, end) = page.split_at(DATA_BYTES);
        Ok(
            match judge(data, end, at, generation, self.superblock.identity) {
                Judged::Whole(bytes) => Some([data[..bytes].into(), end[trailer::SPARE].into()]),
                Judged::Blank | Judged::Wrong => None,
            },
        )
    }

    /// The state of a page as an opening sees it.
    ///
    /// # Errors
    /// The medium cannot be read.
    pub fn page(&self, at: Ppn) -> Result<Shown, StoreError> {
        let pages = self.superblock.pages_per_block;
        let block = Pbn(at.0 / pages);
        let generation = self.generation(block)?;
        let page = self.read(at)?;
        let (data, end) = page.split_at(DATA_BYTES);
        Ok(
            match judge(data, end, at, generation, self.superblock.identity) {
                Judged::Blank => Shown::Blank,
                Judged::Whole(_) => Shown::Whole,
                Judged::Wrong => Shown::Torn,
            },
        )
    }
}

impl MediumFlash {
    /// [`Flash::peek`](flagstone::nand::Flash::peek): `None` for a torn page or a failed read, no
    /// data and a spare area of ones for a blank page. The generation of the block is not kept for
    /// later reads, and a damaged mark is noted.
    pub(super) fn glance_at(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        let block = self.geometry.block_of(at);
        let generation = match self.places.generation(block) {
            UNKNOWN => match self.read_mark(block).ok()? {
                NEVER => self.generation_of_pages(block),
                known => known,
            },
            known => known,
        };
        let place = self.place_of(at);
        let mut read = [0; MEDIUM_PAGE_BYTES];
        // The newest contents may wait to be written.
        let kept = self.places.state().kept(place).map(Arc::clone);
        let page = match &kept {
            Some(page) => &page[..],
            None => {
                let offset = place * MEDIUM_PAGE_BYTES as u64;
                self.medium().read_at(offset, &mut read).ok()?;
                &read
            }
        };
        let (bytes, end) = page.split_at(DATA_BYTES);
        match judge(bytes, end, at, generation, self.superblock.identity) {
            Judged::Whole(bytes) => {
                let filled = data.len().min(bytes);
                data[..filled].copy_from_slice(&page[..filled]);
                spare.copy_from_slice(&page[DATA_BYTES..][..spare.len()]);
                Some(filled)
            }
            Judged::Blank => {
                spare.fill(0xff);
                Some(0)
            }
            Judged::Wrong => None,
        }
    }
}
