//! Which pages a medium says it holds, whatever its superblock says: a superblock that is older
//! than the store may know fewer pages than were written. A recovery passes over those that lie
//! beyond.

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

/// The highest page of which some blocks have a version, whether or not it was committed. Pages of
/// the medium that are damaged, or that it refuses to read, are passed over.
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
            // A mark that is damaged does not say which of them count.
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

/// Reads pages from the page `first` of the medium on. Those that it refuses read as zeros.
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
