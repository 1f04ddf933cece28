//! Bounded restarts: a restart reads only blocks that a root has announced.
//!
//! Free blocks are reserved in *lots*, and written once the root that lists them is durable. If a
//! restart would have to read too many blocks, that root is a checkpoint: the mapping table is
//! written before it, and it lists only blocks that may get pages missing in the table. These are
//! the blocks of the lot, open blocks, blocks without a summary, and blocks with pages of live
//! transactions.

use super::evidence::Evidence;
use super::{Mistake, Seal, listed};
use crate::commit::Field;
use crate::commit::roots::{blocks, records};
use crate::commit::show::fields_of;
use crate::ftl::{BlockState, Ftl, FtlError, Mounted, doubt_number};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, TxId};

layout! {
    /// What a root says of restarts; the blocks follow, four bytes each, then the transactions.
    pub bounds_blob: 16 => {
        UNTO:   6, "write sequence up to which the mapping table on flash has all commits";
        XID:    6, "highest transaction identifier given out";
        BLOCKS: 4, "blocks that a restart reads";
    }
}

/// With fewer announced blocks, only the collector gets one: one to write to, one for a copy, and
/// two for programs and erases that fail at the same time.
const LEAST: u32 = 4;

/// The blocks that a restart would read.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Number of blocks per lot.
    lot: u32,
    /// With fewer announced blocks than this the next lot is announced, if blocks are free.
    low: u32,
    /// The configured value of `most`, or 0.
    asked: u32,
    /// A checkpoint is due when a restart would read more blocks than this.
    most: usize,
    unto: u64,
    last_tx: TxId,
    /// Ascending.
    blocks: Vec<Pbn>,
    /// When the newest root is durable.
    ready: Nanos,
    /// When everything in the newest checkpoint was durable.
    durable_at: Nanos,
    /// A root could not be written. The tables in memory are those after that root, so the device
    /// accepts no more work: it could lose what the previous root still lists.
    is_spent: bool,
}

impl Bounds {
    /// The state in the newest root of a mounted device. `most` is the configured maximum of blocks
    /// that a restart reads; 0 means the default.
    pub(super) fn mount(ftl: &mut Ftl, mounted: &Mounted, most: u32) -> Result<Bounds, FtlError> {
        let geometry = *ftl.geometry();
        // As many as the collector keeps free: with fewer blocks to choose from, pages pile up on
        // the planes that have one left.
        let lot = ftl.gc_threshold_blocks().max(LEAST + 1);
        let low = (lot / 2).max(LEAST);
        let mut bounds = Bounds {
            lot,
            low,
            asked: most,
            most: 0,
            unto: 0,
            last_tx: TxId(0),
            blocks: Vec::new(),
            ready: mounted.done,
            durable_at: mounted.done,
            is_spent: false,
        };
        bounds.grown(ftl);
        // Before the first lot there is no root, or only one that was written because of a bad
        // block.
        if let Some((head, list)) = mounted.blob.split_at_checked(bounds_blob::SIZE) {
            let foreign = || FtlError::Foreign("the list of blocks in its root is damaged".into());
            let count = get(head, bounds_blob::BLOCKS) as usize;
            let list = list.get(..count.saturating_mul(4)).ok_or_else(foreign)?;
            let blocks = list.chunks_exact(4).map(|word| Pbn(get(word, 0..4) as u32));
            bounds.blocks = blocks.collect();
            let is_sound = bounds.blocks.is_sorted_by(|a, b| a < b)
                && bounds
                    .blocks
                    .last()
                    .is_none_or(|last| last.0 < geometry.blocks());
            if !is_sound {
                return Err(foreign());
            }
            bounds.unto = doubt_number("write sequence", get(head, bounds_blob::UNTO), 48)?;
            bounds.last_tx = TxId(get(head, bounds_blob::XID));
        }
        Ok(bounds)
    }

    /// Adapts to the size of the device.
    pub(super) fn grown(&mut self, ftl: &Ftl) {
        let most = match self.asked {
            0 => ftl.geometry().blocks() / 5,
            asked => asked,
        };
        self.most = most.max(2 * self.lot) as usize;
    }

    /// Length of this data in a root; the listed transactions follow.
    pub(super) fn bytes(&self) -> usize {
        bounds_blob::SIZE + 4 * self.blocks.len()
    }

    /// Encodes this data for a root.
    pub(super) fn emit(&self, last_tx: TxId) -> Vec<u8> {
        let mut blob = vec![0; bounds_blob::SIZE];
        put(&mut blob, bounds_blob::UNTO, self.unto);
        put(&mut blob, bounds_blob::XID, last_tx.0);
        put(&mut blob, bounds_blob::BLOCKS, self.blocks.len() as u64);
        let blocks = self.blocks.iter().flat_map(|block| block.0.to_le_bytes());
        blob.extend(blocks);
        blob
    }

    /// The write sequence up to which the mapping table on flash has all commits.
    pub(super) fn unto(&self) -> u64 {
        self.unto
    }

    /// The highest transaction identifier in the newest root.
    pub(super) fn last_tx(&self) -> TxId {
        self.last_tx
    }

    /// Whether a restart reads a block.
    pub(super) fn reads(&self, block: Pbn) -> bool {
        self.blocks.contains(&block)
    }

    /// The blocks that a restart reads, if they are in service and written. Also returns when that
    /// was determined.
    pub(super) fn written(&self, ftl: &mut Ftl, now: Nanos) -> Result<(Vec<Pbn>, Nanos), FtlError> {
        let (mut written, mut done) = (Vec::new(), now);
        for &block in &self.blocks {
            if matches!(ftl.blocks.state(block), BlockState::Bad | BlockState::Meta) {
                continue;
            }
            let (read, is_written) = ftl.look_into(now, block)?;
            done = done.max(read);
            written.extend(is_written.then_some(block));
        }
        Ok((written, done))
    }

    /// When a collection requested at `now` may begin. A copy of a page in the newest checkpoint
    /// must be a new version, or a restart would not look for it. So the transaction of that page
    /// must be durable.
    pub(super) fn collects_from(&self, now: Nanos) -> Nanos {
        now.max(self.durable_at)
    }

    /// Whether few announced blocks are left, and enough others are free to justify a root.
    #[inline]
    pub(super) fn is_short(&self, ftl: &Ftl) -> bool {
        let is_worth_it =
            ftl.blocks.zone_left() < self.low && ftl.blocks.free_blocks() >= self.low / 2;
        is_worth_it || self.is_empty(ftl)
    }

    /// Whether the collector may run out of blocks for its next copies while another one is free.
    #[inline]
    pub(super) fn is_empty(&self, ftl: &Ftl) -> bool {
        ftl.blocks.zone_left() < LEAST && ftl.blocks.free_blocks() > 0
    }

    /// Refuses work after a root could not be written.
    #[inline]
    pub(super) fn doubt(&self) -> Result<(), FtlError> {
        if self.is_spent {
            Err(FtlError::MetaFull)
        } else {
            Ok(())
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        (self.blocks.len() * size_of::<Pbn>()) as u64
    }
}

impl Seal {
    /// Announces the next lot of blocks, with a checkpoint if one is due.
    #[cold]
    pub(super) fn announce(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let announced = self.announce_lot(ftl, now);
        if announced == Err(FtlError::MetaFull)
            && let Some(bounds) = &mut self.bounds
        {
            bounds.is_spent = true;
        }
        announced
    }

    /// Reserves the next lot of blocks and writes a root that lists them, so that a restart reads
    /// them. The root is a checkpoint if a restart would read too many blocks otherwise.
    fn announce_lot(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        let bounds = self.bounds.as_mut().expect("restarts are bounded");
        let is_checkpoint = bounds.blocks.len() + bounds.lot as usize > bounds.most;
        let mut now = now.max(bounds.ready);
        if is_checkpoint && !self.mistake.is(Mistake::TableEarly) {
            // The table must not refer to pages that may still be lost.
            now = ftl.sync(now, self.relied_until)?;
        }
        let added = ftl
            .blocks
            .zone_add(bounds.lot.saturating_sub(ftl.blocks.zone_left()));
        if is_checkpoint {
            (bounds.unto, bounds.durable_at) = (ftl.last_seq(), now);
            bounds.blocks = ftl.zone_blocks();
            bounds
                .blocks
                .extend(ftl.writer.closing().map(|(block, _)| block));
            if !self.mistake.is(Mistake::LiveNotRead) {
                let live = self.live.iter().flat_map(|(_, active)| active.places(ftl));
                bounds.blocks.extend(live);
            }
            self.evidence = Evidence::default();
            self.listing.clear();
        } else if !self.mistake.is(Mistake::NotAnnounced) {
            bounds.blocks.extend(added);
        }
        bounds.blocks.sort_unstable();
        bounds.blocks.dedup();
        // A root that is no checkpoint also lists everything in the previous one.
        let blob = self.root();
        let ready = if is_checkpoint {
            ftl.checkpoint(now, blob)?
        } else {
            ftl.keep_in_root(now, blob)?
        };
        ftl.blocks.zone_from(ready);
        self.bounds.as_mut().expect("it is there").ready = ready;
        self.relied_until = self.relied_until.max(ready);
        Ok(())
    }
}

/// Decodes the data about restarts and transactions in a root.
pub(super) fn fields(blob: &[u8]) -> Vec<Vec<Field>> {
    let Some((head, rest)) = blob.split_at_checked(bounds_blob::SIZE) else {
        return Vec::new();
    };
    let named = (4 * get(head, bounds_blob::BLOCKS) as usize).min(rest.len());
    let (named, listed) = rest.split_at(named);
    let mut lines = vec![
        fields_of(&[bounds_blob::RECORD], head),
        blocks(named, "BLOCK", "a block that a restart reads"),
    ];
    lines.extend(records(listed::RECORD, listed));
    lines
}

impl super::Seal {
    /// The contents of a root: the blocks that a restart reads, if restarts are bounded, and the
    /// listed transactions.
    pub(super) fn root(&self) -> Vec<u8> {
        let mut blob = match &self.bounds {
            Some(bounds) => bounds.emit(self.last_tx),
            None => Vec::new(),
        };
        blob.extend(&self.listing);
        blob
    }
}
