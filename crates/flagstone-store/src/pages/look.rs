//! What a store is and holds, whether it is whole, and what an opening must not believe.

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

/// What a store is and holds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The commit protocol.
    pub protocol: Kind,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Blocks.
    pub blocks: u32,
    /// Of them, those that hold nothing.
    pub free_blocks: u32,
    /// Openings that wrote to it, before this one.
    pub openings: u32,
    /// Whether it was closed when this opening found it: nothing if it is of a version that does
    /// not say. One that was not closed needed recovery, which the opening has carried out.
    pub closed: Option<bool>,
    /// Whether the tables that the last close has left spared this opening the reading of the
    /// blocks.
    pub resumed: bool,
    /// What was done to it in its life, this opening included.
    pub life: Lifetime,
    /// How often its blocks were erased: the least, the median, the most. After a crash a block
    /// that is not full counts as the mean of the others.
    pub erases: [u32; 3],
    /// Bytes of the medium that the store uses.
    pub bytes: u64,
    /// Pages that hold something.
    pub pages: u64,
    /// Bytes of tables in memory.
    pub memory: u64,
}

/// What a check of a whole store has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Pages that were read.
    pub pages: u64,
    /// Those that cannot be read.
    pub unreadable: Vec<Lpn>,
    /// Books that do not agree, and what is damaged beside pages.
    pub wrong: Vec<String>,
    /// Pages of the medium that nothing refers to and that have a wrong checksum. Writes that a
    /// power cut tore are like this. In a store that was always closed they are damage, and are
    /// in `wrong` as well.
    pub torn: u64,
}

/// Where a page lies, and what its spare area says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageFacts {
    /// The page.
    pub at: Lpn,
    /// Bytes that it has; nothing if it cannot be read.
    pub bytes: Option<usize>,
    /// The block in which its current version lies.
    pub block: u32,
    /// Its place there.
    pub page_in_block: u32,
    /// The write sequence: every write of a page takes the next.
    pub sequence: Option<u64>,
    /// The transaction, where the protocol writes it down and it still counts.
    pub transaction: Option<u64>,
    /// Pages of that transaction, in the last of them.
    pub pages_of_transaction: Option<u64>,
    /// The spare area; empty if the page cannot be read.
    pub spare: Vec<u8>,
}

impl CheckReport {
    /// Whether all is well.
    pub fn is_well(&self) -> bool {
        self.unreadable.is_empty() && self.wrong.is_empty()
    }
}

/// Holds the head of a store against its medium.
///
/// # Errors
/// The medium ends before the store does, or the superblock that counts has been lost.
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
    // The newer one may also be one of which the write was lost: then both look right. A medium of
    // a fixed size may hold a later life of the store, of which an older copy was put back.
    let may_have_grown = medium.most().is_none();
    if head.may_be_older() || may_have_grown {
        // A store that is new has at most the blocks of one growth behind it; none has a mark.
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
    // Blocks that are left of a larger store are empty. If one is not, the store grew again, and
    // the writes of both superblocks since then were lost.
    let left = blocks..superblock.left.min(blocks_in(has, pages));
    if highest_page(medium, pages, left, superblock.identity)
        .doing("reading a page")?
        .is_some()
    {
        return Err(newest_is_lost());
    }
    Ok(())
}

/// Holds the pages on a medium against those that a device has, where the superblock may be an
/// older one: a store may have grown for pages with higher numbers, without using its new blocks
/// yet. Such pages are passed over by a recovery. All blocks are read, if the medium is long enough
/// for that.
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
    match highest.is_some_and(|at| at.0 >= pages_of_device) {
        true => Err(newest_is_lost()),
        false => Ok(()),
    }
}

/// Looks whether a medium without superblocks is blank indeed.
///
/// # Errors
/// There are blocks of a store whose superblocks are gone.
pub(crate) fn doubt_blank(medium: &dyn Medium) -> Result<(), StoreError> {
    let has = medium.bytes().doing("asking for the length")?;
    // As much as a new store takes, in which there is a mark if there is any.
    let end = (has / MEDIUM_PAGE_BYTES as u64).min(mark_page(128, super::FIRST_BLOCKS));
    for place in mark_page(128, 0)..end {
        let bytes = signed_mark(medium, place).doing("looking for an older store")?;
        if signer_of(&bytes).is_some() {
            return Err(StoreError::NotAStore(
                "both superblocks are zeros, and there are blocks of a store behind them; nothing \
                 was changed: `flagstone store repair` salvages it, or discard all of the medium"
                    .into(),
            ));
        }
    }
    Ok(())
}

/// Threads that ask for what an opening reads. A request is a call of the system that takes half as
/// long as a read, so that one thread alone keeps two reads under way.
pub(super) const ASKING: u32 = 4;

/// Asks for what an opening reads of some of the blocks, those of one of the threads: their marks
/// and first pages, and before that the summary of the block before.
pub(super) fn expect_marks(expecting: &Expecting, superblock: &Superblock, thread: u32) {
    let (pages, blocks) = (superblock.pages_per_block, superblock.blocks);
    for block in (thread..=blocks).step_by(ASKING as usize) {
        let place = mark_page(pages, block) - 1;
        expecting(place * MEDIUM_PAGE_BYTES as u64, 3 * MEDIUM_PAGE_BYTES);
    }
}

/// Holds the marks that an opening has read against the superblock.
///
/// # Errors
/// One is of an opening that the superblock does not know.
pub(super) fn doubt_marks(notes: &Notes) -> Result<(), StoreError> {
    match notes.damage().newer.is_empty() {
        true => Ok(()),
        false => Err(newest_is_lost()),
    }
}

/// Whether an opening that has read the blocks knows what each of them holds.
///
/// # Errors
/// A mark is damaged. A cut tears none: its block holds pages that cannot be told.
pub(super) fn doubt_damaged_marks(notes: &Notes) -> Result<(), StoreError> {
    match notes.damage().marks.first() {
        None => Ok(()),
        Some(block) => Err(StoreError::Damaged(format!(
            "the mark of block {block} is damaged: older versions of its pages could take their \
             place; `flagstone store repair` salvages what can be read"
        ))),
    }
}

fn newest_is_lost() -> StoreError {
    StoreError::Damaged(
        "the newest superblock was damaged: the other one is older than what the store holds; \
         `flagstone store repair` salvages what can be read"
            .into(),
    )
}

impl PageStore {
    /// What the store is and holds.
    pub fn info(&self) -> StoreInfo {
        let ftl = self.device.ftl();
        let geometry = self.device.geometry();
        let superblock = &self.opened.superblock;
        let blocks = (0..geometry.blocks()).map(|block| ftl.erases_of(Pbn(block)));
        let mut erases: Vec<u32> = blocks.collect();
        erases.sort_unstable();
        let (least, most) = (erases[0], erases[erases.len() - 1]);
        StoreInfo {
            protocol: superblock.protocol,
            pages_per_block: geometry.pages_per_block,
            blocks: geometry.blocks(),
            free_blocks: ftl.free_blocks(),
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

    /// Where a page lies and what its spare area says; nothing for a page that holds nothing.
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
        // Only SEAL has the transaction at a place of its own.
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

    /// Goes on with the counters of an older store, whose contents this one has.
    pub(crate) fn go_on_counting(&mut self, older: Lifetime) {
        *self.notes.before() = Lifetime {
            carried: true,
            ..older
        };
        let mut stats = self.notes.stats();
        stats.user_bytes = 0;
        stats.commits = 0;
    }

    /// Reads everything and compares the books. It changes nothing.
    ///
    /// # Errors
    /// The medium fails.
    pub fn check(&mut self) -> Result<CheckReport, StoreError> {
        self.check_with(&mut |_| ())
    }

    /// As [`PageStore::check`]; `progress` hears of the pages that were read since it was called
    /// last.
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
                "{} pages have a wrong checksum that no power cut can have torn: the store was \
                 always closed",
                report.torn
            ));
        }
        Ok(report)
    }

    /// Compares the books, and says what was found damaged beside pages. It reads no page.
    pub(crate) fn check_books(&self) -> Result<CheckReport, StoreError> {
        self.is_well()?;
        let mut report = CheckReport::default();
        report.wrong.extend(self.device.check().err());
        if let Some(copy) = self.opened.damaged {
            let which = ["first", "second"][usize::from(copy)];
            report.wrong.push(format!(
                "the {which} superblock is damaged; the other one is whole, and the next opening \
                 that writes mends it"
            ));
        }
        if let Some(why) = &self.left_wrong {
            report.wrong.push(format!(
                "what the last close has left behind the blocks is wrong: {why}; the next opening \
                 that writes takes it back"
            ));
        }
        let misreads = [&self.misreads, &self.notes.misreads];
        report
            .wrong
            .extend(misreads.iter().filter_map(|reads| reads.told()));
        for damage in self.device.damage() {
            report.wrong.push(format!(
                "{damage}: what it held is not known, and an older version of a page may stand \
                 in its place"
            ));
        }
        for block in &self.notes.damage().older {
            report.wrong.push(format!(
                "the mark of block {block} is older than its pages, which are whole"
            ));
        }
        for block in &self.notes.damage().marks {
            report.wrong.push(format!(
                "the mark of block {block} is damaged: none of its pages can be read"
            ));
        }
        Ok(report)
    }

    /// The pages that hold something in a snapshot, in ascending order.
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

    /// Pages of the medium that nothing refers to and that have a wrong checksum, but for those of
    /// blocks whose mark is damaged.
    fn torn(&self, but: &[u32]) -> u64 {
        let (ftl, geometry) = (self.device.ftl(), self.device.geometry());
        let mut torn = 0;
        for block in (0..geometry.blocks()).map(Pbn) {
            if but.contains(&block.0) || ftl.block_state(block) == BlockState::Free {
                continue;
            }
            for page in 0..geometry.pages_per_block {
                let at = geometry.page(block, page);
                if !ftl.is_live(at) {
                    torn += u64::from(ftl.peek(at, &mut [], &mut []).is_none());
                }
            }
        }
        torn
    }
}
