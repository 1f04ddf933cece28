//! Block zones and zone sliding ([LightTx] §3.3), which LightTx and MHL-D share.
//!
//! ```text
//!             set aside                  full                       slide: no transaction that
//!             by a slide                                            matters has a page in it
//!   Free ---------------> Available ------------> Unavailable ---------------------> Checkpointed
//!    ^                    (zone and open blocks)  (pinned)                             |
//!    +---------------------------------- collected, erased ---------------------------+
//! ```
//!
//! A *slide* is a checkpoint: it writes the mapping table, and a root that names the blocks of the
//! Available and Unavailable zones and the last commit that the table contains. Recovery reads
//! these blocks only. Blocks leave the zones, and new ones are written, once that root is durable.

use super::table_bytes;
use crate::ftl::{BlockState, Ftl, FtlError, Mounted};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashSet;

layout! {
    /// What a slide keeps beside the mapping table; the block lists follow, four bytes a block.
    pub zone_blob: 24 => {
        VERSION:     8, "last TxVer that the mapping table contains (ckptVer)";
        TX:          8, "highest transaction identifier given out";
        AVAILABLE:   4, "blocks of the Available zone";
        UNAVAILABLE: 4, "blocks of the Unavailable zone";
    }
}

/// Writable blocks of the zone below which nothing but the collector gets one: one to write to, one
/// for a copy, and two for programs and erases that fail at once.
const LEAST: u32 = 4;
const NOWHERE: u32 = u32::MAX;

/// A block of the zones that has been written to.
#[derive(Debug, Clone, Default)]
struct Used {
    block: Pbn,
    /// Whose pages it holds, by the identifiers that are on flash.
    txs: Vec<u32>,
}

/// The Available and Unavailable zones.
#[derive(Debug)]
pub(super) struct Zones {
    /// Blocks that a slide sets aside.
    size: u32,
    /// Below this many blocks the zone is short, if more can be had.
    low: u32,
    used: Vec<Used>,
    /// Where a block is in `used`.
    place: Vec<u32>,
    spare: Vec<Vec<u32>>,
    /// Pages trimmed since the last slide, which will record that by itself.
    trims: Vec<Lpn>,
    /// The commit counter.
    pub(super) version: u64,
    /// The highest transaction identifier given out.
    pub(super) last_tx: TxId,
    /// When the last slide is durable: only then are its new blocks written, and those that left
    /// the zones collected.
    ready: Nanos,
    /// When all commits so far are durable: only then may what they made invalid be erased.
    durable: Nanos,
}

/// What the last slide said, as far as recovery needs it.
pub(super) struct LastSlide {
    /// The last TxVer in the mapping table.
    pub(super) version: u64,
    /// Blocks to read, those of the Available zone first.
    pub(super) blocks: Vec<Pbn>,
}

impl Zones {
    /// The zones of a mounted device, as its last slide left them.
    pub(super) fn mount(
        ftl: &mut Ftl,
        mounted: &Mounted,
        zone_blocks: u32,
    ) -> Result<(Zones, LastSlide), FtlError> {
        let geometry = *ftl.geometry();
        let low = geometry.planes().min(ftl.data_pages_per_block()) + 1;
        let size = match zone_blocks {
            0 => (geometry.blocks() / 64).max(2 * geometry.planes() + low),
            blocks => blocks.max(LEAST + 1),
        };
        let low = low.min(size / 2).max(LEAST);
        ftl.keep_writable(size + low);
        let mut zones = Zones {
            size,
            low,
            used: Vec::new(),
            place: vec![NOWHERE; geometry.blocks() as usize],
            spare: Vec::new(),
            trims: Vec::new(),
            version: 0,
            last_tx: TxId(0),
            ready: mounted.done,
            durable: mounted.done,
        };
        let mut blocks = Vec::new();
        // Before the first slide there is nothing, or a root that a bad block was the reason for.
        if !mounted.blob.is_empty() {
            let head = mounted.blob.get(..zone_blob::SIZE);
            let head =
                head.ok_or_else(|| FtlError::Foreign("the list of zones is short".into()))?;
            zones.version = get(head, zone_blob::VERSION);
            zones.last_tx = TxId(get(head, zone_blob::TX));
            let count = get(head, zone_blob::AVAILABLE) + get(head, zone_blob::UNAVAILABLE);
            let list = mounted.blob[zone_blob::SIZE..].chunks_exact(4);
            blocks.extend(list.map(|word| Pbn(get(word, 0..4) as u32)));
            if blocks.len() as u64 != count || blocks.iter().any(|b| b.0 >= geometry.blocks()) {
                return Err(FtlError::Foreign("the list of zones is damaged".into()));
            }
            let in_service =
                |b: &Pbn| !matches!(ftl.block_state(*b), BlockState::Bad | BlockState::Meta);
            blocks.retain(in_service);
        }
        let version = zones.version;
        Ok((zones, LastSlide { version, blocks }))
    }

    /// Keeps the blocks that recovery found written from being collected before the next slide.
    pub(super) fn keep(&mut self, ftl: &mut Ftl, blocks: &[Pbn]) {
        for &block in blocks {
            if ftl.block_state(block) == BlockState::Full {
                self.enter(ftl, block);
            }
        }
    }

    #[inline]
    fn enter(&mut self, ftl: &mut Ftl, block: Pbn) -> usize {
        let place = self.place[block.index()];
        if place != NOWHERE {
            return place as usize;
        }
        ftl.pin(block);
        let place = self.used.len();
        self.place[block.index()] = place as u32;
        let txs = self.spare.pop().unwrap_or_default();
        self.used.push(Used { block, txs });
        place
    }

    /// A page of a transaction, or none's, has been programmed.
    #[inline]
    pub(super) fn note(&mut self, ftl: &mut Ftl, at: Ppn, tx: Option<u32>) {
        let place = self.enter(ftl, ftl.geometry().block_of(at));
        self.used[place].txs.extend(tx);
    }

    /// A committed transaction has trimmed a page.
    pub(super) fn trimmed(&mut self, at: Lpn) {
        self.trims.push(at);
    }

    /// The next TxVer.
    #[inline]
    pub(super) fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// A commit will be durable at `done`.
    #[inline]
    pub(super) fn committed(&mut self, done: Nanos) {
        self.durable = self.durable.max(done);
    }

    /// When what is asked for at `now` may be written.
    #[inline]
    pub(super) fn writable(&self, now: Nanos) -> Nanos {
        now.max(self.ready)
    }

    /// When a block may be erased: the slide that let it out of the zones, and the commits that
    /// made its pages invalid, are durable.
    pub(super) fn erasable(&self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        ftl.sync(now.max(self.ready), self.durable)
    }

    /// Whether the zone is short of blocks and a slide would help.
    #[inline]
    pub(super) fn is_short(&self, ftl: &Ftl) -> bool {
        let left = ftl.zone_left();
        left < LEAST || (left < self.low && ftl.free_blocks() >= self.low)
    }

    /// Whether there is a block for the collector's next copies.
    pub(super) fn is_empty(&self, ftl: &Ftl) -> bool {
        ftl.zone_left() < LEAST
    }

    /// Slides the zones. Returns when that is durable.
    pub(super) fn slide(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        live: impl Iterator<Item = u32>,
    ) -> Result<Nanos, FtlError> {
        // The table must not name a page that may yet be lost.
        let now = ftl.sync(now.max(self.ready), self.durable)?;
        // Transactions whose pages keep a block: live ones, and dead ones with a page in a block
        // that is not full.
        let mut keeping: FxHashSet<u32> = live.collect();
        let open = |used: &&Used| ftl.block_state(used.block) == BlockState::Open;
        for used in self.used.iter().filter(open) {
            keeping.extend(&used.txs);
        }
        let stays = |used: &Used| used.txs.iter().any(|tx| keeping.contains(tx));
        let (mut kept, mut leaving) = (Vec::new(), Vec::new());
        let mut unavailable = Vec::new();
        for used in self.used.drain(..) {
            if ftl.block_state(used.block) == BlockState::Open {
                kept.push(used);
            } else if stays(&used) {
                unavailable.push(used.block);
                kept.push(used);
            } else {
                leaving.push(used);
            }
        }
        for at in self.trims.drain(..) {
            ftl.forget_trimmed(at);
        }
        ftl.zone_add(self.size.saturating_sub(ftl.zone_left()));
        let available = ftl.zone_blocks();
        let mut blob = vec![0; zone_blob::SIZE];
        put(&mut blob, zone_blob::VERSION, self.version);
        put(&mut blob, zone_blob::TX, self.last_tx.0);
        put(&mut blob, zone_blob::AVAILABLE, available.len() as u64);
        put(&mut blob, zone_blob::UNAVAILABLE, unavailable.len() as u64);
        for block in available.iter().chain(&unavailable) {
            blob.extend_from_slice(&block.0.to_le_bytes());
        }
        self.ready = ftl.checkpoint(now, blob)?;
        self.durable = self.durable.max(self.ready);
        self.used = kept;
        for (place, used) in self.used.iter().enumerate() {
            self.place[used.block.index()] = place as u32;
        }
        for mut used in leaving {
            self.place[used.block.index()] = NOWHERE;
            ftl.unpin(used.block);
            used.txs.clear();
            self.spare.push(used.txs);
        }
        Ok(self.ready)
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> u64 {
        let txs: usize = self.used.iter().map(|used| used.txs.len()).sum();
        (self.place.len() * 4 + txs * 4 + self.used.len() * size_of::<Used>()) as u64
            + table_bytes::<Lpn, ()>(self.trims.len())
    }

    /// Whether a block is in the zones and written.
    pub(super) fn holds(&self, block: Pbn) -> bool {
        self.place[block.index()] != NOWHERE
    }

    /// Checks that each block knows its place.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (place, used) in self.used.iter().enumerate() {
            if self.place[used.block.index()] != place as u32 {
                return Err(format!("block {} is lost in the zones", used.block));
            }
            let state = ftl.block_state(used.block);
            if !matches!(state, BlockState::Open | BlockState::Full) {
                return Err(format!("block {} is {state:?} in the zones", used.block));
            }
        }
        Ok(())
    }
}
