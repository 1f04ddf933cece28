//! Salvages a damaged store into a new one. The damaged store is not changed.
//!
//! Missing essential parts are reconstructed in memory. A superblock is derived from the other
//! copy, the marks, the length, and hints of the user. A mark is derived from the generation in the
//! pages of its block, each of which has its own checksum. Then the store is opened for reading,
//! with the recovery of its protocol, and each readable page is copied to the new store.
//!
//! An unreadable page is listed by number if a summary or the mapping identifies it. Otherwise the
//! new store has an older version of the page, or nothing; the report then gives the place on the
//! medium instead of a number.

use super::draft::Draft;
use super::patched::Patched;
use super::{Progress, Source, compare, fill, has_pages, metadata, newest};
use crate::encryption;
use crate::error::{Doing, StoreError};
use crate::flash::signer_of;
use crate::flash::{DAMAGED, NEVER, blocks_in, emit_mark, generation_in, geometry, highest_page};
use crate::flash::{
    is_mark_lost, last_used, mark_at, mark_page, medium_bytes, page_generation, signed_mark,
    told_generation,
};
use crate::holds::Holds;
use crate::identity::Identity;
use crate::medium::gaps::{Gaps, Misreads};
use crate::medium::{Disk, Medium};
use crate::pages::{OpenOptions, PageStore};
use crate::superblock::{Lifetime, MEDIUM_PAGE_BYTES, Superblock};
use crate::tables::{LostKeys, Store};
use flagstone::commit::Kind;
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::path::Path;

/// Hints of the user about a store with two damaged superblocks.
///
/// Example: [`Repaired`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// The commit protocol of the damaged store.
    pub protocol: Option<Kind>,
    /// Pages per block. If `None`, derived from the distance of the marks.
    pub pages_per_block: Option<u32>,
    /// Take the newest valid version of each page, committed or not. For stores that the protocol's
    /// recovery cannot open.
    pub newest: bool,
}

/// The report of a repair.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::tools::{Hints, repair};
/// use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore};
///
/// let folder = tempfile::tempdir()?;
/// let (path, new) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
/// let mut options = OpenOptions::default();
/// options.pages_per_block = 16; // a small file
/// let mut store = PageStore::open(&path, &options)?;
/// let tx = store.begin()?;
/// store.write(tx, Lpn(0), b"a page")?;
/// store.commit(tx)?;
/// store.close()?;
///
/// // The first page of the file, with a superblock, is lost.
/// let mut bytes = std::fs::read(&path)?;
/// bytes[..MEDIUM_PAGE_BYTES].fill(0);
/// std::fs::write(&path, bytes)?;
/// let hints = Hints::default();
/// let report = repair(&path, &new, &options, &hints, false, &mut |_, _| ())?;
/// assert_eq!((report.pages, report.is_whole(), report.mended.len()), (1, true, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Repaired {
    /// Number of pages in the new store.
    pub pages: u64,
    /// Lost pages: they are unreadable.
    pub lost: Vec<Lpn>,
    /// Keys of tables that were on lost pages. The tables of the new store lack them.
    pub keys: Vec<LostKeys>,
    /// Damage that was repaired without a loss.
    pub mended: Vec<String>,
    /// Other losses, for which the affected pages are unknown.
    pub missing: Vec<String>,
    /// Number of pages of the medium with a wrong checksum that nothing refers to. In a store that
    /// was ever not closed, these may be torn writes.
    pub torn: u64,
}

impl Repaired {
    /// Whether nothing was lost, as far as is known.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.keys.is_empty() && self.missing.is_empty()
    }
}

/// Salvages a damaged store into a new one. `opening` has the key of an encrypted store, and of the
/// new one. An encrypted store needs one intact superblock, which holds the data key.
///
/// # Errors
/// A process writes to the store, there is no store, it cannot be opened even with the
/// reconstructed parts, a required hint is missing, or the new store cannot be created.
pub fn repair(
    from: &Path,
    to: &Path,
    opening: &OpenOptions,
    hints: &Hints,
    replaces: bool,
    progress: Progress<'_>,
) -> Result<Repaired, StoreError> {
    let disk = Disk::open(from, false, true)?;
    let misreads = Misreads::default();
    let refreshed = disk.refresh().doing("dropping what is cached");
    refreshed.map_err(|error| error.at(from))?;
    let draft = Draft::new(to, Some(from), replaces, opening)?;
    let opening = OpenOptions::existing().reading().with_key_of(opening);
    let disk = encryption::dress(
        Box::new(Gaps::over(Box::new(disk), misreads.clone())),
        &opening,
    )
    .map_err(|error| error.at(from))?;
    let mut report = Repaired::default();
    let patched = patch(disk, hints, &mut report).map_err(|error| error.at(from))?;
    if hints.newest {
        let head = Superblock::read(&patched)?;
        let head = head.expect("it was made up for");
        draft.has_room(patched.bytes)?;
        report.pages = newest::salvage(&patched, &head.superblock, &draft, progress)?;
        report.missing.push(
            "the commit state of transactions: the copy also has pages of uncommitted \
             transactions, and older versions of damaged pages"
                .into(),
        );
        report.missing.extend(misreads.told());
        mend_tables(&draft, hints, &mut report)?;
        draft.finish(Some(&metadata(from)?))?;
        return Ok(report);
    }
    let mut reading = OpenOptions::existing().reading();
    reading.salvage = true;
    let mut store = match PageStore::on(Box::new(patched), &reading) {
        Err(StoreError::Damaged(_)) => {
            return Err(StoreError::Damaged(format!(
                "{}: data that the protocol needs for recovery is damaged; `--newest` salvages the \
                 newest intact version of each page, whether or not its transaction committed",
                from.display()
            )));
        }
        other => other.map_err(|error| error.at(from))?,
    };
    let (mut done, all) = (0, 3 * store.held().count() as u64);
    let mut step = |steps: u64| {
        done += steps;
        progress(done, all);
    };
    let found = store.check_with(&mut step)?;
    report.torn = found.torn;
    // Marks that could not be reconstructed are in the report already.
    report.missing.extend(found.wrong);
    let mut source = Source::of(&mut store);
    report.lost = fill(&mut source, &draft, None, &mut step)?;
    let is_lost = |at: &Lpn| report.lost.binary_search(at).is_ok();
    source.held.retain(|at| !is_lost(at));
    compare(&mut source, &draft, &mut step)?;
    report.missing.extend(misreads.told());
    report.pages = source.held.len() as u64;
    drop(source);
    mend_tables(&draft, hints, &mut report)?;
    draft.finish(Some(&metadata(from)?))?;
    Ok(report)
}

/// Removes lost keys from the tables of the new store, if it has tables. Pages of different moments
/// may be inconsistent; then the report says so.
fn mend_tables(draft: &Draft, hints: &Hints, report: &mut Repaired) -> Result<(), StoreError> {
    let existing = draft.keyed(OpenOptions::existing());
    let mut pages = draft.open(&existing)?;
    let holds = Holds::of_store(&mut pages)?.0;
    if hints.newest && !pages.holds(Lpn(0)) {
        let first = "the first page, which says whether the store holds tables, or a disk";
        report.missing.push(first.into());
    }
    pages.close()?;
    if holds != Holds::Tables {
        return Ok(());
    }
    let tables = Store::on(draft.disk(false)?, &existing)?;
    match tables.mend() {
        Ok((keys, missing)) => {
            report.keys = keys;
            report.missing.extend(missing);
            let checked = if hints.newest { tables.check() } else { Ok(()) };
            report.missing.extend(checked.err().map(|why| {
                format!(
                    "the consistency of the tables, whose pages are from different moments \
                     ({why}): do not write to these tables; copy their rows with `flagstone store \
                     scan`"
                )
            }));
        }
        Err(error) if error.is_damage() => {
            let as_they_were =
                format!("the damaged parts of the tables, which were not repaired: {error}");
            report.missing.push(as_they_were);
        }
        Err(error) => return Err(error),
    }
    tables.close()
}

/// Reconstructs damaged superblocks and marks.
fn patch(
    disk: Box<dyn Medium>,
    hints: &Hints,
    report: &mut Repaired,
) -> Result<Patched, StoreError> {
    let bytes = disk.bytes().doing("asking for the length")?;
    let mut superblock = head(disk.as_ref(), bytes, hints, report)?;
    let pages = superblock.pages_per_block;
    let there = blocks_in(bytes, pages);
    let known = superblock.blocks;
    geometry(pages, known.max(1)).validate().map_err(|error| {
        StoreError::Damaged(format!(
            "the known geometry of the store is invalid: {error}"
        ))
    })?;
    let mut patches = BTreeMap::new();
    let mut boot = superblock.boot;
    for block in 0..known.min(there) {
        let place = mark_page(pages, block);
        let bytes = mark_at(disk.as_ref(), place).doing("reading a mark")?;
        let mut generation = generation_in(&bytes, block, superblock.identity);
        if generation == DAMAGED {
            let (whole, unreadable);
            (generation, whole, unreadable) =
                generation_of_pages(disk.as_ref(), &superblock, block)?;
            patches.insert(place, emit_mark(block, generation, superblock.identity));
            match (whole, unreadable) {
                (0, _) => report.missing.push(format!(
                    "block {block}: its mark is damaged, and none of its pages is whole"
                )),
                (_, 0) => report.missing.push(format!(
                    "block {block}: its mark is damaged; {whole} of its pages are whole; if it was \
                     erased since they were written, older versions of pages may be back"
                )),
                // Without the mark it is unknown whether these pages are valid.
                _ => report.missing.push(format!(
                    "block {block}: its mark is damaged, and what {unreadable} of its pages held; \
                     {whole} are whole"
                )),
            }
        }
        if generation == NEVER && superblock.protocol == Kind::Seal {
            // By the pages that an opening reads: of others it has restored no mark.
            let newest = told_generation(disk.as_ref(), pages, block, superblock.identity)
                .doing("reading a page")?;
            if is_mark_lost(superblock.protocol, superblock.boot, newest) {
                generation = newest;
                patches.insert(place, emit_mark(block, generation, superblock.identity));
                report.missing.push(format!(
                    "block {block}: its mark is lost; if it was erased since its pages were \
                     written, older versions of pages may be back"
                ));
            }
        }
        boot = boot.max((generation >> 32) as u32);
    }
    if boot > superblock.boot {
        report.mended.push(format!(
            "the superblock knows {} openings, and the blocks {boot}",
            superblock.boot
        ));
        superblock.boot = boot;
    }
    if there < known {
        report.missing.push(format!(
            "the end of the store is missing: {} of {known} blocks, with up to {} pages",
            known - there,
            u64::from(known - there) * u64::from(pages)
        ));
    }
    // Both copies in their places, newer than the old ones: the tables of the last close are
    // ignored.
    superblock.sequence = (superblock.sequence | 1) + 1;
    patches.insert(0, superblock.emit());
    superblock.sequence += 1;
    patches.insert(1, superblock.emit());
    Ok(Patched {
        disk,
        pages: patches,
        bytes: bytes.max(medium_bytes(pages, known)),
    })
}

/// Reconstructs the superblock from its remains and from hints.
fn head(
    disk: &dyn Medium,
    bytes: u64,
    hints: &Hints,
    report: &mut Repaired,
) -> Result<Superblock, StoreError> {
    let Some(head) = Superblock::find(disk)?.head else {
        let pages_per_block = match hints.pages_per_block {
            Some(pages) => pages,
            None => distance_of_marks(disk, bytes)?,
        };
        let protocol = hints.protocol.ok_or_else(|| {
            StoreError::Damaged(
                "both superblocks are damaged: give the protocol of the store (`--protocol seal`, \
                 unless it was created with another)"
                    .into(),
            )
        })?;
        let identity = identity_of_marks(disk, bytes, pages_per_block)?;
        let blocks = match identity {
            Some(identity) => marked_blocks(disk, bytes, pages_per_block, identity)?,
            None => 0,
        };
        if blocks == 0 {
            return Err(StoreError::NotAStore(format!(
                "there is no store here with {pages_per_block} pages a block: neither a \
                 superblock nor the mark of a block"
            )));
        }
        let mut superblock = Superblock {
            pages_per_block,
            blocks,
            boot: 0,
            sequence: 0,
            protocol,
            rested: 0,
            left: 0,
            sealed: None,
            identity: identity.unwrap_or_default(),
            closed: Some(false),
            life: Lifetime::default(),
        };
        superblock.blocks = blocks_for_pages(disk, &superblock, blocks)?;
        report.mended.push(format!(
            "both superblocks are damaged; given or found: the protocol {protocol}, and {} blocks \
             of {pages_per_block} pages",
            superblock.blocks
        ));
        return Ok(superblock);
    };
    let mut superblock = head.superblock;
    let wrong = |what: &str, said: String, has: String| {
        StoreError::Options(format!(
            "the superblock of the store has {what} {has}, not {said}: leave that option out"
        ))
    };
    if let Some(said) = hints.protocol.filter(|&said| said != superblock.protocol) {
        let has = superblock.protocol.to_string();
        return Err(wrong("the protocol", said.to_string(), has));
    }
    let pages = superblock.pages_per_block;
    if let Some(said) = hints.pages_per_block.filter(|&said| said != pages) {
        return Err(wrong("pages a block:", said.to_string(), pages.to_string()));
    }
    // If the store was not closed, the newest write may be lost although both copies look intact.
    let may_be_older = head.may_be_older()
        || superblock.closed != Some(true)
        || openings_of_marks(disk, &superblock)? > superblock.boot;
    let marked = if may_be_older {
        marked_blocks(disk, bytes, pages, superblock.identity)?.max(superblock.blocks)
    } else {
        superblock.blocks
    };
    if marked == 0 {
        return Err(StoreError::NotAStore(
            "the creation of this store was interrupted: it holds nothing to salvage".into(),
        ));
    }
    if may_be_older {
        // The newer superblock may be lost: count all blocks that have marks, and as many as the
        // highest page requires.
        let blocks = blocks_for_pages(disk, &superblock, marked)?;
        if head.damaged.is_some() || blocks > superblock.blocks {
            report.mended.push(format!(
                "the newest superblock is damaged or lost; the other one knows {} of {blocks} blocks",
                superblock.blocks
            ));
            superblock.closed = Some(false);
        }
        superblock.blocks = blocks;
    }
    Ok(superblock)
}

/// Pages per block, derived from the place of the first mark after that of block 0.
fn distance_of_marks(disk: &dyn Medium, bytes: u64) -> Result<u32, StoreError> {
    for place in mark_page(0, 0) + 1..bytes.div_ceil(MEDIUM_PAGE_BYTES as u64) {
        let page = signed_mark(disk, place).doing("looking for marks")?;
        let Some((block, _)) = signer_of(&page).filter(|&(block, _)| block > 0) else {
            continue;
        };
        let pages = (16..=128).find(|&pages| mark_page(pages, block) == place);
        if let Some(pages) = pages {
            return Ok(pages);
        }
    }
    Err(StoreError::Damaged(
        "both superblocks are damaged, and no marks show the size of blocks: give the pages per \
         block (`--pages-per-block 128`, unless it was created with another)"
            .into(),
    ))
}

/// The identity of the store, from the first mark found. `None` without marks. Marks of an older
/// store on a block device are behind the blocks of this store.
fn identity_of_marks(
    disk: &dyn Medium,
    bytes: u64,
    pages_per_block: u32,
) -> Result<Option<Identity>, StoreError> {
    for block in 0..blocks_in(bytes, pages_per_block) {
        let page = signed_mark(disk, mark_page(pages_per_block, block));
        let page = page.doing("reading a mark")?;
        if let Some((_, identity)) = signer_of(&page).filter(|&(marked, _)| marked == block) {
            return Ok(Some(identity));
        }
    }
    Ok(None)
}

/// Number of blocks up to the last one with a mark, or with pages if its mark is lost.
fn marked_blocks(
    disk: &dyn Medium,
    bytes: u64,
    pages_per_block: u32,
    identity: Identity,
) -> Result<u32, StoreError> {
    let there = 0..blocks_in(bytes, pages_per_block);
    let last = last_used(disk, pages_per_block, there, identity).doing("reading a mark")?;
    Ok(last.map_or(0, |block| block + 1))
}

/// The number of openings when the newest mark was written, among the blocks that the superblock
/// counts.
fn openings_of_marks(disk: &dyn Medium, superblock: &Superblock) -> Result<u32, StoreError> {
    let mut openings = 0;
    for block in 0..superblock.blocks {
        let place = mark_page(superblock.pages_per_block, block);
        let bytes = mark_at(disk, place).doing("reading a mark")?;
        let generation = generation_in(&bytes, block, superblock.identity);
        if generation != DAMAGED {
            openings = openings.max((generation >> 32) as u32);
        }
    }
    Ok(openings)
}

/// Number of blocks required by the highest page in the `marked` blocks, at least `marked`.
fn blocks_for_pages(
    disk: &dyn Medium,
    superblock: &Superblock,
    marked: u32,
) -> Result<u32, StoreError> {
    let pages = superblock.pages_per_block;
    let highest =
        highest_page(disk, pages, 0..marked, superblock.identity).doing("reading a page")?;
    let needed = highest.map_or(0, |at| at.0.saturating_add(1));
    let suits = |blocks| has_pages(superblock.protocol, pages, blocks, needed);
    let most = marked.saturating_add(needed / pages).saturating_mul(2);
    let found = (marked..most).find(|&blocks| suits(blocks));
    Ok(found.unwrap_or(marked))
}

/// The newest generation among the pages of a block, the number of pages that have it, and the
/// number of pages that are neither blank nor valid.
pub(super) fn generation_of_pages(
    disk: &dyn Medium,
    superblock: &Superblock,
    block: u32,
) -> Result<(u64, u32, u32), StoreError> {
    let (pages, identity) = (superblock.pages_per_block, superblock.identity);
    let (mut newest, mut count, mut unreadable) = (NEVER, 0, 0);
    let mut bytes = [0; MEDIUM_PAGE_BYTES];
    for page in 0..pages {
        let place = (mark_page(pages, block) + 1 + u64::from(page)) * MEDIUM_PAGE_BYTES as u64;
        disk.read_at(place, &mut bytes).doing("reading a page")?;
        let Some(generation) = page_generation(&bytes, block * pages + page, identity) else {
            unreadable += u32::from(bytes.iter().any(|&byte| byte != 0));
            continue;
        };
        // Tables of a close are no pages of the block that has taken their place.
        if generation >= Identity::LEAST {
            continue;
        }
        match generation.cmp(&newest) {
            std::cmp::Ordering::Greater => (newest, count) = (generation, 1),
            std::cmp::Ordering::Equal => count += 1,
            std::cmp::Ordering::Less => {}
        }
    }
    Ok((newest, count, unreadable))
}
