//! Salvages the newest valid version of each page if the protocol's recovery fails. Each page of
//! the medium has its logical page number and its write sequence. Ignores whether its transaction
//! committed.

use super::AT_ONCE;
use super::draft::Draft;
use super::patched::Patched;
use super::repair::generation_of_pages;
use crate::error::{Doing, StoreError};
use crate::flash::{DATA_BYTES, generation_in, mark_at, mark_page, page_generation, trailer};
use crate::identity::Identity;
use crate::medium::Medium;
use crate::pages::{OpenOptions, PageStore};
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use flagstone::ftl::{Header, PageKind, trims_in};
use flagstone::layout::get;
use flagstone::units::Lpn;
use std::collections::BTreeMap;

/// By logical page: the place of the newest version on the medium (`None` for a trim), and its
/// write sequence.
type Versions = BTreeMap<u32, (u64, Option<u64>)>;

type Page = [u8; MEDIUM_PAGE_BYTES];

fn read(medium: &Patched, place: u64, into: &mut [u8]) -> Result<(), StoreError> {
    medium
        .read_at(place * MEDIUM_PAGE_BYTES as u64, into)
        .doing("reading a page")
}

/// The generation of a block: that of its mark, or of its newest pages if that mark was lost. These
/// may be newer than an earlier mark that is there, but no pages are newer than the last mark.
fn generation_of(medium: &Patched, superblock: &Superblock, block: u32) -> Result<u64, StoreError> {
    let place = mark_page(superblock.pages_per_block, block);
    let bytes = mark_at(medium, place).doing("reading a page")?;
    let marked = generation_in(&bytes, block, superblock.identity);
    if superblock.identity == Identity::NONE {
        // Pages of an older store look the same.
        return Ok(marked);
    }
    Ok(generation_of_pages(medium, superblock, block)?
        .0
        .max(marked))
}

/// Scans all pages of the medium.
fn versions(medium: &Patched, superblock: &Superblock) -> Result<Versions, StoreError> {
    let mut versions = Versions::new();
    let pages = superblock.pages_per_block;
    let mut page: Page = [0; MEDIUM_PAGE_BYTES];
    for block in 0..superblock.blocks {
        let generation = generation_of(medium, superblock, block)?;
        for number in 0..pages {
            let place = mark_page(pages, block) + 1 + u64::from(number);
            read(medium, place, &mut page)?;
            let found = page_generation(&page, block * pages + number, superblock.identity);
            if found != Some(generation) {
                continue;
            }
            let head = Header::parse(&page[DATA_BYTES..][trailer::SPARE]);
            let Some(head) = head.filter(Header::is_version) else {
                continue;
            };
            let place = (head.kind == PageKind::Data).then_some(place);
            let pages = match head.kind {
                PageKind::Trims => trims_in(&page[..DATA_BYTES]).unwrap_or_default(),
                _ => vec![head.lpn],
            };
            for at in pages {
                let version = versions.entry(at.0).or_insert((head.seq, place));
                if head.seq >= version.0 {
                    *version = (head.seq, place);
                }
            }
        }
    }
    Ok(versions)
}

/// Creates a store of the newest versions and compares it. Returns its number of pages.
pub(super) fn salvage(
    medium: &Patched,
    superblock: &Superblock,
    draft: &Draft,
    progress: super::Progress<'_>,
) -> Result<u64, StoreError> {
    let versions = versions(medium, superblock)?;
    let held = versions
        .iter()
        .filter_map(|(&at, (_, place))| Some((Lpn(at), (*place)?)));
    let held: Vec<(Lpn, u64)> = held.collect();
    let all = 2 * held.len() as u64;
    let mut options = draft.keyed(OpenOptions::default().with_protocol(superblock.protocol));
    options.pages_per_block = superblock.pages_per_block;
    options.bytes = medium.bytes;
    let mut store = draft.open(&options)?;
    let (mut page, mut done): (Page, u64) = ([0; MEDIUM_PAGE_BYTES], 0);
    let data = |page: &Page| get(&page[DATA_BYTES..], trailer::BYTES) as usize;
    for some in held.chunks(AT_ONCE) {
        let tx = store.begin()?;
        for &(at, place) in some {
            read(medium, place, &mut page)?;
            store.write(tx, at, &page[..data(&page)])?;
        }
        store.commit(tx)?;
        done += some.len() as u64;
        progress(done, all);
    }
    store.close()?;
    let reading = draft.keyed(OpenOptions::existing().reading());
    let mut store = draft.open(&reading)?;
    let mut copied = vec![0; PageStore::PAGE_BYTES];
    for &(at, place) in &held {
        read(medium, place, &mut page)?;
        let bytes = store.read(None, at, &mut copied)?;
        if bytes.map(|bytes| &copied[..bytes]) != Some(&page[..data(&page)]) {
            return Err(StoreError::Damaged(format!(
                "the new store differs from what was salvaged at page {at}; try again"
            )));
        }
        done += 1;
        progress(done, all);
    }
    Ok(held.len() as u64)
}
