//! Finds blocks and pages on a medium independently of its superblock: a superblock that is older
//! than the rest of the store may count fewer blocks than were written. Recovery ignores the blocks
//! that it does not count.

use super::life::pages_that_tell;
use super::{
    DAMAGED, DATA_BYTES, NEVER, generation_in, mark_at, mark_page, page_generation, trailer,
};
use crate::identity::Identity;
use crate::medium::Medium;
use crate::medium::gaps::is_bad_sector;
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::ftl::Header;
use flagstone::units::Lpn;
use std::io;
use std::ops::Range;

/// The highest logical page of which the given blocks hold a version, committed or not. Skips pages
/// of the medium that are damaged or cannot be read.
pub(crate) fn highest_page(
    medium: &dyn Medium,
    pages_per_block: u32,
    blocks: Range<u32>,
    identity: Identity,
) -> io::Result<Option<Lpn>> {
    let mut highest = None;
    let mut pages = vec![[0; MEDIUM_PAGE_BYTES]; pages_per_block as usize];
    for block in blocks {
        let place = mark_page(pages_per_block, block);
        let generation = match mark_at(medium, place) {
            Err(error) if is_bad_sector(&error) => DAMAGED,
            mark => generation_in(&mark?, block, identity),
        };
        if generation == NEVER {
            continue;
        }
        read_pages(medium, place + 1, &mut pages)?;
        for (page, number) in pages.iter().zip(block * pages_per_block..) {
            let of = page_generation(page, number, identity);
            // A damaged mark does not tell which pages of the block are valid.
            if of.is_none_or(|of| of != generation && generation != DAMAGED) {
                continue;
            }
            let head = Header::parse(&page[DATA_BYTES..][trailer::SPARE]);
            if let Some(head) = head.filter(Header::is_version) {
                highest = highest.max(Some(head.lpn));
            }
        }
    }
    Ok(highest)
}

/// The last of the given blocks that has a valid mark, or valid pages where the mark is lost.
/// `None` if there is no such block.
pub(crate) fn last_used(
    medium: &dyn Medium,
    pages_per_block: u32,
    blocks: Range<u32>,
    identity: Identity,
) -> io::Result<Option<u32>> {
    for block in blocks.rev() {
        let mark = mark_at(medium, mark_page(pages_per_block, block))?;
        let is_marked = !matches!(generation_in(&mark, block, identity), NEVER | DAMAGED);
        if is_marked || told_generation(medium, pages_per_block, block, identity)? != NEVER {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// The generation of a block with a zeroed mark, told by those of its pages that an opening reads
/// too. [`NEVER`] without an identity, since the pages cannot be told from those of an older store
/// then.
pub(crate) fn told_generation(
    medium: &dyn Medium,
    pages_per_block: u32,
    block: u32,
    identity: Identity,
) -> io::Result<u64> {
    let mut newest = NEVER;
    if identity == Identity::NONE {
        return Ok(newest);
    }
    let first = mark_page(pages_per_block, block) + 1;
    let mut bytes = [0; MEDIUM_PAGE_BYTES];
    for page in pages_that_tell(pages_per_block) {
        let place = first + u64::from(page);
        read_pages(medium, place, std::slice::from_mut(&mut bytes))?;
        let said = page_generation(&bytes, block * pages_per_block + page, identity);
        newest = newest.max(said.filter(|&said| said < Identity::LEAST).unwrap_or(NEVER));
    }
    Ok(newest)
}

/// Reads pages of the medium from page `first` on. Unreadable pages become zeros.
fn read_pages(
    medium: &dyn Medium,
    first: u64,
    pages: &mut [[u8; MEDIUM_PAGE_BYTES]],
) -> io::Result<()> {
    let offset = first * MEDIUM_PAGE_BYTES as u64;
    match medium.read_at(offset, pages.as_flattened_mut()) {
        Err(error) if is_bad_sector(&error) => {}
        read => return read,
    }
    for (page, place) in pages.iter_mut().zip(first..) {
        match medium.read_at(place * MEDIUM_PAGE_BYTES as u64, page) {
            Err(error) if is_bad_sector(&error) => page.fill(0),
            read => read?,
        }
    }
    Ok(())
}
