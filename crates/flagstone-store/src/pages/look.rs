//! Describes and checks stores, and detects superblocks and tables that an opening must not trust.

use super::room::next_blocks;
use super::{OpenOptions, PageStore};
use crate::error::{Doing, StoreError};
use crate::flash::{Notes, blocks_in, geometry, highest_page};
use crate::flash::{last_used, mark_page, medium_bytes, signed_mark, signer_of};
use crate::medium::{Expecting, Medium};
use crate::superblock::{Head, Lifetime, MEDIUM_PAGE_BYTES, Superblock};
use flagstone::commit::{DeviceError, Kind, seal_count};
use flagstone::ftl::{BlockState, Header, Slot, header};
use flagstone::layout::get;
use flagstone::units::{Lpn, Pbn, SnapshotId};
use std::path::Path;

/// Properties and contents of a store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// for page in 0..10 {
///     let tx = store.begin()?;
///     store.write(tx, Lpn(page), &[7; 1000])?;
///     store.commit(tx)?;
/// }
/// let (info, medium) = (store.info(), store.medium_stats());
/// assert_eq!((info.pages, info.life.commits), (10, 10));
/// assert_eq!((medium.commits, medium.user_bytes), (10, 10_000));
/// assert!(medium.syncs >= 10);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The commit protocol.
    pub protocol: Kind,
    /// Pages per block.
    pub pages_per_block: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of blocks that are free.
    pub free_blocks: u32,
    /// Number of writing openings before this one.
    pub openings: u32,
    /// Whether the store had been closed when this handle opened it; `None` if its format version
    /// does not record that. If not closed, this opening has run recovery.
    pub closed: Option<bool>,
    /// Whether this opening used the tables that the last close left, and did not read the blocks.
    pub resumed: bool,
    /// Counters over the life of the store, including this opening.
    pub life: Lifetime,
    /// Erase counts of its blocks: minimum, median, maximum. After a crash a block that is not full
    /// counts as the mean of the others.
    pub erases: [u32; 3],
    /// Bytes of the medium that the store uses.
    pub bytes: u64,
    /// Pages that hold data.
    pub pages: u64,
    /// Bytes of the tables in memory.
    pub memory: u64,
}

/// The result of a check of a whole store.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let (medium, mut options) = (Recorded::default(), OpenOptions::default());
/// options.pages_per_block = 16; // a small store
/// let mut store = PageStore::on(Box::new(medium.clone()), &options)?;
/// let tx = store.begin()?;
/// store.write(tx, Lpn(5), b"the fifth page")?;
/// store.commit(tx)?;
/// assert!(store.check()?.is_well());
/// store.close()?;
///
/// // One bit of the page flips.
/// let mut bytes = medium.to_vec();
/// let place = bytes.windows(14).position(|bytes| bytes == b"the fifth page");
/// bytes[place.expect("it was written")] ^= 1;
/// let mut store = PageStore::on(Box::new(Recorded::with(&bytes)), &options)?;
/// let report = store.check()?;
/// assert_eq!((report.is_well(), report.unreadable), (false, vec![Lpn(5)]));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of pages read.
    pub pages: u64,
    /// Pages that cannot be read.
    pub unreadable: Vec<Lpn>,
    /// Inconsistencies in the metadata, and damage other than to pages.
    pub wrong: Vec<String>,
    /// Unreferenced pages of the medium with a wrong checksum. A power cut leaves such pages by
    /// tearing writes. In a store that was always closed they are damage, and are in `wrong` too.
    pub torn: u64,
}

/// Address and spare area of a page.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Memory;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let mut store = PageStore::on(Box::new(Memory::default()), &OpenOptions::default())?;
/// let tx = store.begin()?;
/// store.write(tx, Lpn(5), b"five")?;
/// store.commit(tx)?;
/// let facts = store.facts(Lpn(5)).expect("the page holds data");
/// assert_eq!((facts.at, facts.bytes), (Lpn(5), Some(4)));
/// assert_eq!((facts.transaction, facts.pages_of_transaction), (Some(tx.0), Some(1)));
/// assert_eq!(store.facts(Lpn(6)), None);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageFacts {
    /// The page.
    pub at: Lpn,
    /// Length in bytes. `None` if the page cannot be read.
    pub bytes: Option<usize>,
    /// The block of the current version.
    pub block: u32,
    /// The page's index in that block.
    pub page_in_block: u32,
    /// The write sequence: each page write takes the next number.
    pub sequence: Option<u64>,
    /// The transaction, if the protocol records it and the record is still valid.
    pub transaction: Option<u64>,
    /// Number of pages of that transaction, stored in its last page.
    pub pages_of_transaction: Option<u64>,
    /// The spare area; empty if the page cannot be read.
    pub spare: Vec<u8>,
}

impl CheckReport {
    /// Whether no damage was found.
    pub fn is_well(&self) -> bool {
        self.unreadable.is_empty() && self.wrong.is_empty()
    }
}

/// Compares the head of a store with its medium.
///
/// # Errors
/// The medium is shorter than the store, or the newest superblock was lost.
pub(crate) fn doubt_head(medium: &dyn Medium, head: &Head) -> Result<(), StoreError> {
    let superblock = &head.superblock;
    let (pages, blocks) = (superblock.pages_per_block, superblock.blocks);
    geometry(pages, blocks)
        .validate()
        .map_err(|error| StoreError::Damaged(format!("the superblock is wrong: {error}")))?;
    let has = medium.bytes().doing("asking for the length")?;
    let wanted = medium_bytes(pages, blocks);
    if has < wanted {
        return Err(StoreError::Damaged(format!(
            "the end of the store is missing: it has {has} of {wanted} bytes; `flagstone store \
             repair` salvages what can be read"
        )));
    }
    // A lost superblock write leaves both superblocks valid, but old. And a medium of a fixed size
    // may hold a later life of the store, if an older copy was put back over it.
    let may_have_grown = medium.most().is_none();
    if head.may_be_older() || may_have_grown {
        // A new store has at most one growth's blocks beyond its end, all without marks.
        let end = match head.damaged {
            Some(_) => blocks_in(has, pages),
            None => blocks_in(has, pages).min(blocks.saturating_add(next_blocks(pages, blocks))),
        };
        let begin = blocks.max(superblock.left);
        let behind =
            last_used(medium, pages, begin..end, superblock.identity).doing("reading a mark")?;
        if behind.is_some() {
            return Err(newest_is_lost());
        }
    }
    // Blocks left over from a larger store are empty. If one is not, the store grew again, and the
    // writes of both superblocks since then were lost.
    let left = blocks..superblock.left.min(blocks_in(has, pages));
    if highest_page(medium, pages, left, superblock.identity)
        .doing("reading a page")?
        .is_some()
    {
        return Err(newest_is_lost());
    }
    Ok(())
}

/// Compares the pages on a medium with those of the device, for a superblock that may be old. The
/// store may have grown for pages with higher numbers, and not have used its new blocks yet.
/// Recovery would ignore such pages. Reads all blocks if the medium is long enough.
///
/// # Errors
/// There are pages beyond the device, or the medium fails.
pub(super) fn doubt_pages(
    medium: &dyn Medium,
    head: &Head,
    pages_of_device: u32,
) -> Result<(), StoreError> {
    let (pages, blocks) = (head.superblock.pages_per_block, head.superblock.blocks);
    let has = medium.bytes().doing("asking for the length")?;
    if !head.may_be_older() || has < medium_bytes(pages, blocks.saturating_add(1)) {
        return Ok(());
    }
    let highest =
        highest_page(medium, pages, 0..blocks, head.superblock.identity).doing("reading a page")?;
    if highest.is_some_and(|at| at.0 >= pages_of_device) {
        Err(newest_is_lost())
    } else {
        Ok(())
    }
}

/// Verifies that a medium without superblocks is really blank.
///
/// # Errors
/// There are blocks of a store whose superblocks are lost.
pub(crate) fn doubt_blank(medium: &dyn Medium) -> Result<(), StoreError> {
    let has = medium.bytes().doing("asking for the length")?;
    // The room of a new store: if there are marks, one lies within it.
    let end = (has / MEDIUM_PAGE_BYTES as u64).min(mark_page(128, super::FIRST_BLOCKS));
    for place in mark_page(128, 0)..end {
        let bytes = signed_mark(medium, place).doing("looking for an older store")?;
        if signer_of(&bytes).is_some() {
            return Err(StoreError::NotAStore(
                "both superblocks are zeros, but blocks of a store follow; nothing was changed: \
                 salvage the store with `flagstone store repair`, or discard the whole medium"
                    .into(),
            ));
        }
    }
    Ok(())
}

/// Threads that request read-ahead for an opening. A request is a system call that takes half as
/// long as a read, so one thread alone keeps two reads in flight.
pub(super) const ASKING: u32 = 4;

/// Requests read-ahead for one thread's share of the blocks: marks and first pages, and before each
/// the summary of the previous block.
pub(super) fn expect_marks(expecting: &Expecting, superblock: &Superblock, thread: u32) {
    let (pages, blocks) = (superblock.pages_per_block, superblock.blocks);
    for block in (thread..=blocks).step_by(ASKING as usize) {
        let place = mark_page(pages, block) - 1;
        expecting(place * MEDIUM_PAGE_BYTES as u64, 3 * MEDIUM_PAGE_BYTES);
    }
}

/// Compares the marks that an opening has read with the superblock.
///
/// # Errors
/// A mark belongs to an opening that the superblock does not know.
pub(super) fn doubt_marks(notes: &Notes) -> Result<(), StoreError> {
    if notes.damage().newer.is_empty() {
        Ok(())
    } else {
        Err(newest_is_lost())
    }
}

/// Verifies that an opening knows the contents of every block it has read.
///
/// # Errors
/// A mark is damaged, so pages of its block cannot be identified. A power cut tears no marks.
pub(super) fn doubt_damaged_marks(notes: &Notes) -> Result<(), StoreError> {
    match notes.damage().marks.first() {
        None => Ok(()),
        Some(block) => Err(StoreError::Damaged(format!(
            "the mark of block {block} is damaged, so older versions of its pages could return; \
             `flagstone store repair` salvages what can be read"
        ))),
    }
}

fn newest_is_lost() -> StoreError {
    StoreError::Damaged(
        "the newest superblock is damaged, and the other one is older than the data of the store; \
         `flagstone store repair` salvages what can be read"
            .into(),
    )
}

impl PageStore {
    /// Describes the store.
    pub fn info(&self) -> StoreInfo {
        let ftl = self.device.ftl();
        let geometry = self.device.geometry();
        let superblock = &self.opened.superblock;
        let blocks = (0..geometry.blocks()).map(|block| ftl.blocks().erases_of(Pbn(block)));
        let mut erases: Vec<u32> = blocks.collect();
        erases.sort_unstable();
        let (least, most) = (erases[0], erases[erases.len() - 1]);
        StoreInfo {
            protocol: superblock.protocol,
            pages_per_block: geometry.pages_per_block,
            blocks: geometry.blocks(),
            free_blocks: ftl.blocks().free_blocks(),
            openings: superblock.boot,
            closed: superblock.closed,
            resumed: self.resumed,
            life: self.notes.life(),
            erases: [least, erases[erases.len() / 2], most],
            bytes: medium_bytes(geometry.pages_per_block, geometry.blocks()),
            pages: self.held().count() as u64,
            memory: self.device.memory().iter().map(|(_, bytes)| bytes).sum(),
        }
    }

    /// Address and spare area of a page. `None` if the page is empty.
    pub fn facts(&self, at: Lpn) -> Option<PageFacts> {
        let ftl = self.device.ftl();
        let Slot::Page(place) = (at.0 < self.device.pages()).then(|| ftl.slot(at))? else {
            return None;
        };
        let geometry = self.device.geometry();
        let mut spare = vec![0; geometry.spare_bytes as usize];
        let bytes = ftl.peek(place, &mut [0; PageStore::PAGE_BYTES], &mut spare);
        if bytes.is_none() {
            spare.clear();
        }
        // Only SEAL has a field for the transaction.
        let field = |name: &str| {
            let is_seal = matches!(self.opened.superblock.protocol, Kind::Seal | Kind::SealR);
            let mut layouts = flagstone::commit::LAYOUTS.iter();
            let tail = layouts.find(|layout| is_seal && layout.path.ends_with("seal::tail"))?;
            let (_, start, bytes, _) = tail.fields.iter().find(|field| field.0 == name)?;
            let start = header::SIZE + start;
            let word = spare.get(start..start + bytes)?;
            Some(get(word, 0..word.len())).filter(|&number| number > 0)
        };
        Some(PageFacts {
            at,
            bytes,
            block: geometry.block_of(place).0,
            page_in_block: geometry.page_in_block(place),
            sequence: bytes
                .and_then(|_| Header::parse(&spare))
                .map(|head| head.seq),
            transaction: field("XID"),
            pages_of_transaction: field("COUNT").map(|word| seal_count(word).0.into()),
            spare,
        })
    }

    /// Continues the counters of an older store, whose contents this store has.
    pub(crate) fn go_on_counting(&mut self, older: Lifetime) {
        *self.notes.before() = Lifetime {
            carried: true,
            ..older
        };
        let mut stats = self.notes.stats();
        stats.user_bytes = 0;
        stats.commits = 0;
    }

    /// Reads everything and checks the metadata for consistency. Changes nothing.
    ///
    /// # Errors
    /// The medium fails.
    pub fn check(&mut self) -> Result<CheckReport, StoreError> {
        self.check_with(&mut |_| ())
    }

    /// Like [`PageStore::check`]. `progress` receives the number of pages read since its last call.
    ///
    /// # Errors
    /// As [`PageStore::check`].
    pub fn check_with(&mut self, progress: &mut dyn FnMut(u64)) -> Result<CheckReport, StoreError> {
        let mut report = self.check_books()?;
        let mut page = vec![0; PageStore::PAGE_BYTES];
        for at in self.held().collect::<Vec<_>>() {
            report.pages += 1;
            match self.read(None, at, &mut page) {
                Err(StoreError::Device(DeviceError::Unreadable(_))) => report.unreadable.push(at),
                other => {
                    other?;
                }
            }
            progress(1);
        }
        let marks = self.notes.damage().marks.clone();
        report.torn = self.torn(&marks.into_iter().collect::<Vec<_>>());
        let superblock = &self.opened.superblock;
        let always_closed = superblock.closed == Some(true)
            && superblock.life.unclosed == 0
            && superblock.life.since == 0;
        if report.torn > 0 && always_closed {
            report.wrong.push(format!(
                "{} pages have a wrong checksum, and a power cut cannot be the cause: the store \
                 was always closed",
                report.torn
            ));
        }
        Ok(report)
    }

    /// Checks the metadata, and reports known damage other than to pages. Reads no page.
    pub(crate) fn check_books(&self) -> Result<CheckReport, StoreError> {
        self.is_well()?;
        let mut report = CheckReport::default();
        report.wrong.extend(self.device.check().err());
        if let Some(copy) = self.opened.damaged {
            let which = ["first", "second"][usize::from(copy)];
            report.wrong.push(format!(
                "the {which} superblock is damaged; the other one is intact, and the next opening \
                 for writing repairs it"
            ));
        }
        if let Some(why) = &self.left_wrong {
            report.wrong.push(format!(
                "the tables saved by the last close are damaged: {why}; the next opening for \
                 writing removes them"
            ));
        }
        let misreads = [&self.misreads, &self.notes.misreads];
        report
            .wrong
            .extend(misreads.iter().filter_map(|reads| reads.told()));
        for damage in self.device.damage() {
            report.wrong.push(format!(
                "{damage}: its contents are unknown, and an older version of a page may be read \
                 instead"
            ));
        }
        for block in &self.notes.damage().older {
            report.wrong.push(format!(
                "the mark of block {block} is older than its pages, which are intact"
            ));
        }
        for block in &self.notes.damage().marks {
            report.wrong.push(format!(
                "the mark of block {block} is damaged: none of its pages can be read"
            ));
        }
        Ok(report)
    }

    /// The pages that hold data in a snapshot, in ascending order.
    pub(crate) fn held_in(&self, id: SnapshotId) -> Result<Vec<Lpn>, StoreError> {
        let ftl = self.device.ftl();
        let mut held = Vec::new();
        for at in (0..self.device.pages()).map(Lpn) {
            let slot = ftl.snapshot_slot(id, at);
            let slot = slot.ok_or(StoreError::SnapshotEnded)?;
            held.extend(matches!(slot, Slot::Page(_)).then_some(at));
        }
        Ok(held)
    }

    /// The file of the store, if it was opened by name.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Options with the key of the store.
    pub(crate) fn keyed(&self) -> OpenOptions {
        self.keyed.clone()
    }

    /// Number of unreferenced pages with a wrong checksum. Ignores the blocks `unmarked`, whose
    /// marks are damaged: all of their pages look torn.
    fn torn(&self, unmarked: &[u32]) -> u64 {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        let mut torn = 0;
        for block in (0..geometry.blocks()).map(Pbn) {
            if unmarked.contains(&block.0) || ftl.blocks().state(block) == BlockState::Free {
                continue;
            }
            for page in 0..geometry.pages_per_block {
                let at = geometry.page(block, page);
                if !ftl.blocks().is_live(at) {
                    torn += u64::from(ftl.peek(at, &mut [], &mut []).is_none());
                }
            }
        }
        torn
    }
}
