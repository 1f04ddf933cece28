//! Operations on whole stores: backup, compaction, repair.
//!
//! Each writes a new store under a hidden name, compares it page by page with the old one, makes it
//! durable, and renames it last. Until then the name refers to the old file, whatever fails.
//!
//! ```
//! use flagstone::units::Lpn;
//! use flagstone_store::{OpenOptions, PageStore, tools};
//!
//! let folder = tempfile::tempdir()?;
//! let (path, copy) = (folder.path().join("a.flag"), folder.path().join("b.flag"));
//! let options = OpenOptions::default();
//! let mut store = PageStore::open(&path, &options)?;
//! let tx = store.begin()?;
//! store.write(tx, Lpn(0), b"a page")?;
//! store.commit(tx)?;
//! store.close()?;
//!
//! let copied = tools::backup(&path, &copy, &options, false, &mut |_, _| ())?;
//! assert_eq!(copied.pages, 1);
//! tools::compact(&path, &options, &mut |_, _| ())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod draft;
mod live;
mod newest;
mod patched;
mod repair;

pub use live::{Access, Act, backup_live, backup_of, check_live, check_of};
pub use repair::{Hints, Repaired, repair};

use crate::error::{Doing, StoreError};
use crate::flash::{geometry, medium_bytes};
use crate::holds::Holds;
use crate::pages::{OpenOptions, PageStore, StoreInfo};
use crate::superblock::Lifetime;
use crate::tables::Store;
use draft::Draft;
use flagstone::commit::{DeviceError, Kind, Options};
use flagstone::ftl::{BlockState, Ftl};
use flagstone::units::{Lpn, Pbn};
use std::fs::Metadata;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of pages per commit of a copy.
const AT_ONCE: usize = 256;

/// Called with the number of finished steps, and of all steps.
///
/// Example: [`Copied`].
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The result of a copy.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::{OpenOptions, PageStore, tools};
///
/// let folder = tempfile::tempdir()?;
/// let (path, mut options) = (folder.path().join("a.flag"), OpenOptions::default());
/// options.pages_per_block = 16; // a small file
/// let mut store = PageStore::open(&path, &options)?;
/// let tx = store.begin()?;
/// (0..10).try_for_each(|page| store.write(tx, Lpn(page), b"data"))?;
/// store.commit(tx)?;
/// store.close()?;
///
/// let mut told = (0, 0);
/// let copied = tools::compact(&path, &options, &mut |done, all| told = (done, all))?;
/// assert_eq!((copied.pages, told), (10, (20, 20))); // copied and compared
/// assert!(copied.bytes <= copied.bytes_before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Number of pages that hold data.
    pub pages: u64,
    /// Size of the old store in bytes.
    pub bytes_before: u64,
    /// Size of the new store in bytes.
    pub bytes: u64,
}

/// Copies a store into a new file. No process may write to the store meanwhile. With `replaces` the
/// copy may replace an existing file. `opening` has the key of an encrypted store, which is also
/// the key of the copy.
///
/// # Errors
/// A process writes to the store, the store is damaged, the copy cannot be created, is the store
/// itself, or would replace a file without permission. Existing files are unchanged.
pub fn backup(
    from: &Path,
    to: &Path,
    opening: &OpenOptions,
    replaces: bool,
    progress: Progress<'_>,
) -> Result<Copied, StoreError> {
    let reading = OpenOptions::existing().reading().with_key_of(opening);
    let mut store = PageStore::open(from, &reading)?;
    let draft = Draft::new(to, Some(from), replaces, opening)?;
    let like = metadata(from)?;
    copy(Source::of(&mut store), draft, Some(&like), None, progress)
}

/// Gives back unused room: copies the pages into a new file that replaces the old one. Needs room
/// for the new file until then. Tables are moved to the lowest pages first ([`Store::compact`]).
/// `opening` has the key, as for [`backup`].
///
/// # Errors
/// The store is in use, damaged, on a block device, or has a second name (hard link), or there is
/// no room. The contents of the store are unchanged.
pub fn compact(
    path: &Path,
    opening: &OpenOptions,
    progress: Progress<'_>,
) -> Result<Copied, StoreError> {
    let named = path;
    // Replaces the file, not a symbolic link to it.
    let real = path.canonicalize();
    let path = &real.doing(format!("opening {}", named.display()))?;
    let existing = OpenOptions::existing().with_key_of(opening);
    let mut store = PageStore::open(path, &existing)?;
    let meta = metadata(path)?;
    let refuse = |why: &str| Err(StoreError::Options(format!("{}: {why}", named.display())));
    if !meta.is_file() {
        return refuse("a block device has a fixed size, so compaction cannot free space");
    }
    if meta.nlink() > 1 {
        return refuse("the file has another name (a hard link), which would keep the old store");
    }
    if Holds::of_store(&mut store)?.0 == Holds::Tables {
        store.close()?;
        let tables = Store::with(path, &existing)?;
        tables.compact()?;
        tables.close()?;
        store = PageStore::open(path, &existing)?;
    }
    let draft = Draft::new(path, None, true, opening)?;
    let life = store.info().life;
    copy(
        Source::of(&mut store),
        draft,
        Some(&meta),
        Some(life),
        progress,
    )
}

/// Size of a copy in bytes, as written by `compact` and `backup`.
pub fn bytes_of_copy(store: &PageStore) -> u64 {
    let (info, ftl) = (store.info(), store.device().ftl());
    let full = info.pages.div_ceil(ftl.data_pages_per_block().into());
    let is_meta = |&block: &u32| ftl.blocks().state(Pbn(block)) == BlockState::Meta;
    let meta = (0..info.blocks).filter(is_meta).count() as u64;
    // In addition to open blocks and those waiting for their summary. The copy then need not grow.
    let spare = u64::from(ftl.gc_threshold_blocks()) + meta + 5;
    let least = (full + spare).max(crate::pages::FIRST_BLOCKS.into());
    let least = u32::try_from(least).unwrap_or(u32::MAX);
    // The number of the highest page determines the number of blocks.
    let top = store.highest().map_or(0, |at| at.0 + 1);
    let reaches = |blocks: u32| has_pages(info.protocol, info.pages_per_block, blocks, top);
    medium_bytes(info.pages_per_block, first(least..=info.blocks, reaches))
}

/// The first of `numbers` for which `holds` returns `true`, by bisection. At the end it does.
pub(crate) fn first(numbers: RangeInclusive<u32>, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = numbers.into_inner();
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle
        } else {
            low = middle + 1
        }
    }
    low
}

/// Whether a store of `blocks` blocks has at least `pages` pages.
pub(crate) fn has_pages(protocol: Kind, pages_per_block: u32, blocks: u32, pages: u32) -> bool {
    let shape = geometry(pages_per_block, blocks);
    let format = protocol.info().format_on(&shape, &Options::default());
    let has = format.map(|format| Ftl::capacity(&shape, &crate::pages::config(), &format));
    has.is_ok_and(|has| has.is_ok_and(|has| has >= pages))
}

fn metadata(path: &Path) -> Result<Metadata, StoreError> {
    std::fs::metadata(path).doing(format!("looking at {}", path.display()))
}

/// The pages to copy, from one state of the store.
struct Source<'a> {
    /// The pages that hold data, in ascending order.
    held: Vec<Lpn>,
    info: StoreInfo,
    /// Size of a copy in bytes.
    takes: u64,
    read: Box<dyn Read + 'a>,
}

/// Reads a page into a buffer. Returns its length, or `None` if it holds nothing.
trait Read: FnMut(Lpn, &mut [u8]) -> Result<Option<usize>, StoreError> {}

impl<T: FnMut(Lpn, &mut [u8]) -> Result<Option<usize>, StoreError>> Read for T {}

impl<'a> Source<'a> {
    /// The committed state of a store.
    fn of(store: &'a mut PageStore) -> Source<'a> {
        Source {
            held: store.held().collect(),
            info: store.info(),
            takes: bytes_of_copy(store),
            read: Box::new(|at, page| store.read(None, at, page)),
        }
    }
}

/// Copies a store into a draft, compares the two, and renames the draft.
fn copy(
    mut source: Source<'_>,
    draft: Draft,
    like: Option<&Metadata>,
    life: Option<Lifetime>,
    progress: Progress<'_>,
) -> Result<Copied, StoreError> {
    let (mut done, all) = (0, 2 * source.held.len() as u64);
    let mut step = |steps: u64| {
        done += steps;
        progress(done, all);
    };
    let lost = fill(&mut source, &draft, life, &mut step)?;
    if let Some(at) = lost.first() {
        return Err(StoreError::Damaged(format!(
            "page {at} cannot be read: `flagstone store check` lists all damaged pages, and \
             `flagstone store repair` salvages the other pages"
        )));
    }
    let bytes = compare(&mut source, &draft, &mut step)?;
    draft.finish(like)?;
    Ok(Copied {
        pages: source.held.len() as u64,
        bytes_before: source.info.bytes,
        bytes,
    })
}

/// Writes pages into the new store of a draft, after checking for room. Returns the unreadable
/// ones.
fn fill(
    source: &mut Source<'_>,
    draft: &Draft,
    life: Option<Lifetime>,
    step: &mut dyn FnMut(u64),
) -> Result<Vec<Lpn>, StoreError> {
    let info = &source.info;
    let mut options = draft.keyed(OpenOptions::default().with_protocol(info.protocol));
    options.pages_per_block = info.pages_per_block;
    options.bytes = source.takes;
    draft.has_room(options.bytes)?;
    let mut new = draft.open(&options)?;
    let (mut page, mut lost) = (vec![0; PageStore::PAGE_BYTES], Vec::new());
    for some in source.held.chunks(AT_ONCE) {
        let tx = new.begin()?;
        for &at in some {
            match (source.read)(at, &mut page) {
                Ok(Some(bytes)) => new.write(tx, at, &page[..bytes])?,
                Ok(None) => {}
                Err(StoreError::Device(DeviceError::Unreadable(_))) => lost.push(at),
                Err(error) => return Err(error),
            }
        }
        new.commit(tx)?;
        step(some.len() as u64);
    }
    if let Some(life) = life {
        new.go_on_counting(life);
    }
    new.close()?;
    Ok(lost)
}

/// Opens the new store of a draft and compares it with pages of the old one. Returns the size of
/// the new store in bytes.
fn compare(
    source: &mut Source<'_>,
    draft: &Draft,
    step: &mut dyn FnMut(u64),
) -> Result<u64, StoreError> {
    // Reads the new store from the medium, not from the page cache.
    let reading = draft.keyed(OpenOptions::existing().reading().uncached());
    let mut new = draft.open(&reading)?;
    let wrong = |what: String| {
        StoreError::Damaged(format!(
            "the copy differs from the store: {what}; try again"
        ))
    };
    let (mut old_page, mut new_page) = (
        vec![0; PageStore::PAGE_BYTES],
        vec![0; PageStore::PAGE_BYTES],
    );
    for &at in &source.held {
        let old = (source.read)(at, &mut old_page)?;
        let copied = new.read(None, at, &mut new_page)?;
        let (old, copied) = (old.map(|n| &old_page[..n]), copied.map(|n| &new_page[..n]));
        if old != copied {
            return Err(wrong(format!("page {at}")));
        }
        step(1);
    }
    if new.held().count() != source.held.len() {
        return Err(wrong("it holds more pages".into()));
    }
    let report = new.check()?;
    if report.is_well() {
        Ok(new.info().bytes)
    } else {
        Err(wrong(format!("its check says {report:?}")))
    }
}

#[cfg(test)]
mod tests;
