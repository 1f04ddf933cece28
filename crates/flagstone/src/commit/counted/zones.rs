//! Block zones and zone sliding ([LightTx] §3.3), common to LightTx and MHL-D.
//!
//! ```text
//!             set aside                  full                       slide: no transaction that
//!             by a slide                                            matters has a page in it
//!   Free ---------------> Available ------------> Unavailable ---------------------> Checkpointed
//!    ^                    (zone and open blocks)  (pinned)                             |
//!    +---------------------------------- collected, erased ---------------------------+
//! ```
//!
//! A *slide* is a checkpoint: it writes the mapping table, and a root that lists the blocks of the
//! Available and Unavailable zones and the last commit in the table. Recovery reads only these
//! blocks. Blocks leave the zones, and new ones are written, once that root is durable. Until then
//! the host writes to the rest of the zone.
//!
//! A full block stays in the zones while a live transaction has a page in it, or while a dead one
//! may that also has a page in an open block. The latter is decided without a list of transactions
//! per block: full blocks are kept in the order in which they became full, and a block that became
//! full before a transaction began holds no page of it. Such a block is kept for one slide only, so
//! that an idle log head does not keep everything written since.

use crate::commit::roots::blocks;
use crate::commit::show::fields_of;
use crate::commit::{Field, Table};
use crate::ftl::{BlockState, Ftl, FtlError, Mounted, Stream, doubt_number};
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

/// With fewer writable blocks in the zone, only the collector gets one: one to write to, one for a
/// copy, and two for programs and erases that fail at the same time.
const LEAST: u32 = 4;
const NOWHERE: Pbn = Pbn(u32::MAX);

/// An open block of the zones.
#[derive(Debug, Clone, Copy)]
struct Open {
    block: Pbn,
    /// How many blocks were full when the oldest transaction with a page in it began.
    since: u64,
}

const CLOSED: Open = Open {
    block: NOWHERE,
    since: 0,
};

/// The Available and Unavailable zones.
#[derive(Debug, Clone)]
pub(super) struct Zones {
    /// Configured number of blocks that a slide reserves, or 0.
    zone_blocks: u32,
    /// Number of blocks that a slide reserves.
    size: u32,
    /// With fewer blocks than this the zone is short, if more can be reserved.
    low: u32,
    /// Open blocks, by stream and plane.
    open: Vec<Open>,
    /// Full blocks, in the order in which they became so; those from before the last slide first.
    full: Vec<Pbn>,
    /// Number of full blocks from before the last slide.
    from_before_slide: usize,
    /// Full blocks that hold only copies, or that a restart found written. The next slide lets all
    /// of them out.
    copies: Vec<Pbn>,
    /// Number of blocks with pages of transactions that ever became full.
    filled: u64,
    /// Pages trimmed since the last slide. The next slide records them in the mapping table.
    trims: Vec<Lpn>,
    /// The commit counter.
    pub(super) version: u64,
    /// The highest assigned transaction identifier.
    pub(super) last_tx: TxId,
    /// When the last slide is durable. Its new blocks are not written earlier, and blocks that left
    /// the zones are not erased earlier.
    ready: Nanos,
    /// By block: when all commits that have pages in it are durable. A page is not copied earlier,
    /// since its copy counts by itself. Only commits in flight matter, of which a real device has a
    /// list, so [`Zones::memory`] leaves these times out.
    commits_in: Vec<Nanos>,
    /// When all commits so far are durable. The versions that they replaced are not erased earlier.
    durable: Nanos,
    /// When all copies so far are durable; the mapping table refers to them.
    copied: Nanos,
}

/// The data of the last slide that recovery needs.
#[derive(Clone, Default)]
pub(super) struct LastSlide {
    /// The last TxVer in the mapping table.
    pub(super) version: u64,
    /// The highest assigned transaction identifier.
    tx: TxId,
    /// Blocks of the Available zone, possibly not written yet.
    pub(super) available: Vec<Pbn>,
    /// Blocks of the Unavailable zone, all full.
    pub(super) unavailable: Vec<Pbn>,
}

impl LastSlide {
    /// Parses the data of a slide in its root.
    pub(super) fn parse(blob: &[u8], blocks: u32) -> Result<LastSlide, FtlError> {
        let foreign = |what: &str| FtlError::Foreign(format!("the list of zones {what}"));
        let (head, list) = (blob.split_at_checked(zone_blob::SIZE)).ok_or(foreign("is short"))?;
        let list = list.chunks_exact(4);
        let mut available: Vec<Pbn> = list.map(|word| Pbn(get(word, 0..4) as u32)).collect();
        let count = get(head, zone_blob::AVAILABLE) + get(head, zone_blob::UNAVAILABLE);
        let mut sorted = available.clone();
        sorted.sort_unstable();
        let is_sound = sorted.is_sorted_by(|a, b| a < b) && sorted.iter().all(|b| b.0 < blocks);
        if available.len() as u64 != count || !is_sound {
            return Err(foreign("is damaged"));
        }
        let unavailable = available.split_off(get(head, zone_blob::AVAILABLE) as usize);
        Ok(LastSlide {
            version: doubt_number("TxVer", get(head, zone_blob::VERSION), 64)?,
            tx: TxId(get(head, zone_blob::TX)),
            available,
            unavailable,
        })
    }
}

/// The number of blocks that a slide reserves, and the number below which the zone is short.
fn sizes(ftl: &Ftl, zone_blocks: u32) -> (u32, u32) {
    let geometry = ftl.geometry();
    // One block per plane, so that pages do not pile up on the planes that have one left.
    let low = geometry.planes() + 1;
    let size = match zone_blocks {
        0 => (geometry.blocks() / 64).max(2 * geometry.planes() + low),
        blocks => blocks.max(LEAST + 1),
    };
    (size, low.min(size / 2).max(LEAST))
}

impl Zones {
    /// The zones of a mounted device, as its last slide left them.
    pub(super) fn mount(
        ftl: &mut Ftl,
        mounted: &Mounted,
        zone_blocks: u32,
    ) -> Result<(Zones, LastSlide), FtlError> {
        let geometry = *ftl.geometry();
        let (size, low) = sizes(ftl, zone_blocks);
        ftl.keep_writable(size + low);
        let mut zones = Zones {
            zone_blocks,
            size,
            low,
            open: vec![CLOSED; 2 * geometry.planes() as usize],
            full: Vec::new(),
            from_before_slide: 0,
            copies: Vec::new(),
            filled: 0,
            trims: Vec::new(),
            version: 0,
            last_tx: TxId(0),
            ready: mounted.done,
            commits_in: vec![mounted.done; geometry.blocks() as usize],
            durable: mounted.done,
            copied: mounted.done,
        };
        let mut last = LastSlide::default();
        // Before the first slide there is no root, or only one that was written because of a bad
        // block.
        if !mounted.blob.is_empty() {
            last = LastSlide::parse(&mounted.blob, geometry.blocks())?;
            (zones.version, zones.last_tx) = (last.version, last.tx);
            let in_service =
                |b: &Pbn| !matches!(ftl.blocks.state(*b), BlockState::Bad | BlockState::Meta);
            last.available.retain(in_service);
            last.unavailable.retain(in_service);
        }
        Ok((zones, last))
    }

    /// The device has become larger.
    pub(super) fn grown(&mut self, ftl: &Ftl) {
        (self.size, self.low) = sizes(ftl, self.zone_blocks);
        let blocks = ftl.geometry().blocks() as usize;
        self.commits_in.resize(blocks, Nanos::ZERO);
    }

    /// The zones, for people. A slide is a checkpoint that lets full blocks out of the zones, so
    /// full blocks are listed by what the next one will do with them. It lets out those that a
    /// slide has kept before, unless a live transaction has pages in them; of those that became
    /// full since, it also keeps the ones in which a dead transaction may have pages; it lets out
    /// all of copies and all found by a restart.
    pub(super) fn table(&self) -> Table {
        let list = |blocks: Vec<Pbn>| {
            let blocks: Vec<String> = blocks.iter().map(|block| format!("b{block}")).collect();
            blocks.join(" ")
        };
        let open = self.open.iter().map(|open| open.block);
        let open = open.filter(|&block| block != NOWHERE).collect();
        let row = |what: &str, blocks| vec![what.to_string(), blocks];
        Table {
            name: "zones",
            columns: &["zone", "blocks"],
            rows: vec![
                row("being written", list(open)),
                row(
                    "full, kept by a slide",
                    list(self.full[..self.from_before_slide].to_vec()),
                ),
                row(
                    "full since the slide",
                    list(self.full[self.from_before_slide..].to_vec()),
                ),
                row(
                    "full, of copies or found by the restart",
                    list(self.copies.clone()),
                ),
                row("last TxVer", self.version.to_string()),
            ],
        }
    }

    /// Keeps the blocks that recovery found written from being collected before the next slide.
    pub(super) fn keep(&mut self, ftl: &mut Ftl, blocks: impl Iterator<Item = Pbn>) {
        for block in blocks {
            if ftl.blocks.state(block) == BlockState::Full {
                ftl.blocks.pin(block);
                self.copies.push(block);
            }
        }
    }

    /// Number of blocks that have become full. A new transaction remembers it.
    #[inline]
    pub(super) fn filled(&self) -> u64 {
        self.filled
    }

    /// Records that a page of a stream was programmed. `since` is the number of full blocks when
    /// the page's transaction began.
    #[inline]
    pub(super) fn note(&mut self, ftl: &mut Ftl, stream: Stream, at: Ppn, since: u64) {
        let block = ftl.geometry().block_of(at);
        let planes = ftl.geometry().planes();
        let place = stream as usize * planes as usize + ftl.geometry().plane_of(block) as usize;
        if self.open[place].block != block {
            self.close(place);
            ftl.blocks.pin(block);
            self.open[place] = Open { block, since };
        }
        self.open[place].since = self.open[place].since.min(since);
        if ftl.blocks.state(block) != BlockState::Open {
            self.close(place);
        }
    }

    fn close(&mut self, place: usize) {
        let Open { block, .. } = std::mem::replace(&mut self.open[place], CLOSED);
        if block == NOWHERE {
            return;
        }
        if place < self.open.len() / 2 {
            self.full.push(block);
            self.filled += 1;
        } else {
            self.copies.push(block);
        }
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

    /// A commit with pages in these blocks will be durable at `done`.
    #[inline]
    pub(super) fn committed(&mut self, done: Nanos, blocks: &[Pbn]) {
        self.durable = self.durable.max(done);
        for block in blocks {
            let durable = &mut self.commits_in[block.index()];
            *durable = done.max(*durable);
        }
    }

    /// When the pages of a block outside of the zones may be copied.
    pub(super) fn copyable(&self, now: Nanos, block: Pbn) -> Nanos {
        now.max(self.commits_in[block.index()])
    }

    /// A page was copied, which is done at `done`.
    pub(super) fn copied(&mut self, done: Nanos) {
        self.copied = self.copied.max(done);
    }

    /// When a block may be erased: the slide that let it out of the zones, and the commits that
    /// made its pages invalid, are durable.
    pub(super) fn erasable(&self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        ftl.sync(now.max(self.ready), self.durable)
    }

    /// Whether the zone is short of blocks and a slide would help.
    #[inline]
    pub(super) fn is_short(&self, ftl: &Ftl) -> bool {
        let left = ftl.blocks.zone_left();
        left < LEAST || (left < self.low && ftl.blocks.free_blocks() >= self.low)
    }

    /// Whether no block is left for the collector's next copies.
    pub(super) fn is_empty(&self, ftl: &Ftl) -> bool {
        ftl.blocks.zone_left() < LEAST
    }

    /// Slides the zones: adds free blocks to the Available zone, writes a checkpoint, and lets go
    /// the full blocks that no transaction needs. `live` has the blocks with pages of live
    /// transactions. Returns when the slide is durable.
    pub(super) fn slide(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        live: &FxHashSet<Pbn>,
    ) -> Result<Nanos, FtlError> {
        // The table must not refer to a page that may still be lost.
        let now = ftl.sync(now.max(self.ready), self.durable.max(self.copied))?;
        for place in 0..self.open.len() {
            // The block was closed because a program in it failed; nothing was written to it since.
            let block = self.open[place].block;
            if block != NOWHERE && ftl.blocks.state(block) != BlockState::Open {
                self.close(place);
            }
        }
        // Number of full blocks when the oldest transaction with a page in an open block began.
        let (host, _) = self.open.split_at(self.open.len() / 2);
        let written = host.iter().filter(|open| open.block != NOWHERE);
        let since = written.map(|open| open.since).min().unwrap_or(self.filled);
        // Blocks from this index on became full later: such a transaction, dead by now, may have
        // pages in them. A block is kept for that reason by one slide only.
        let recent = self.full.len() - ((self.filled - since) as usize).min(self.full.len());
        let recent = recent.max(self.from_before_slide);
        let keeps = |i: usize, block: &Pbn| i >= recent || live.contains(block);
        let (mut unavailable, mut leaving) = (Vec::new(), Vec::new());
        for (i, &block) in self.full.iter().enumerate() {
            let zone = if keeps(i, &block) {
                &mut unavailable
            } else {
                &mut leaving
            };
            zone.push(block);
        }
        leaving.extend(&self.copies);
        for at in self.trims.drain(..) {
            ftl.forget_trimmed(at);
        }
        ftl.blocks
            .zone_add(self.size.saturating_sub(ftl.blocks.zone_left()));
        let available = ftl.zone_blocks();
        let mut blob = vec![0; zone_blob::SIZE];
        put(&mut blob, zone_blob::VERSION, self.version);
        put(&mut blob, zone_blob::TX, self.last_tx.0);
        put(&mut blob, zone_blob::AVAILABLE, available.len() as u64);
        put(&mut blob, zone_blob::UNAVAILABLE, unavailable.len() as u64);
        for block in available.iter().chain(&unavailable) {
            blob.extend_from_slice(&block.0.to_le_bytes());
        }
        // If the root fails, the added blocks are given back: no restart would read them.
        let written = ftl.checkpoint(now, blob);
        self.ready = written.inspect_err(|_| ftl.blocks.zone_give_back())?;
        ftl.blocks.zone_from(self.ready);
        self.durable = self.durable.max(self.ready);
        self.copies.clear();
        self.full = unavailable;
        self.from_before_slide = self.full.len();
        for block in leaving {
            ftl.blocks.unpin(block);
        }
        Ok(self.ready)
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        let full = (self.full.len() + self.copies.len()) * size_of::<Pbn>();
        let trims = self.trims.len() * size_of::<Lpn>();
        (full + self.open.len() * size_of::<Open>() + trims) as u64
    }

    /// The open and full blocks in the zones.
    pub(super) fn written(&self) -> impl Iterator<Item = Pbn> + '_ {
        let open = self.open.iter().map(|open| open.block);
        let full = self.full.iter().chain(&self.copies).copied();
        open.filter(|&block| block != NOWHERE).chain(full)
    }

    /// Checks that each block is in the zones once, and in a valid state.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let mut seen = FxHashSet::default();
        for block in self.written() {
            let state = ftl.blocks.state(block);
            if !matches!(state, BlockState::Open | BlockState::Full) {
                return Err(format!("block {block} is {state:?} in the zones"));
            }
            if !seen.insert(block) {
                return Err(format!("block {block} is in the zones twice"));
            }
        }
        if self.from_before_slide > self.full.len()
            || self.filled < (self.full.len() - self.from_before_slide) as u64
        {
            return Err("the zones have lost count of their full blocks".into());
        }
        Ok(())
    }
}

/// Decodes the data of a slide into fields.
pub(super) fn fields(blob: &[u8]) -> Vec<Vec<Field>> {
    let Some((head, list)) = blob.split_at_checked(zone_blob::SIZE) else {
        return Vec::new();
    };
    let available = (4 * get(head, zone_blob::AVAILABLE) as usize).min(list.len());
    let (available, unavailable) = list.split_at(available);
    vec![
        fields_of(&[zone_blob::RECORD], head),
        blocks(
            available,
            "AVAILABLE_BLOCK",
            "a block of the Available zone",
        ),
        blocks(
            unavailable,
            "UNAVAILABLE_BLOCK",
            "a block of the Unavailable zone",
        ),
    ]
}

/// For fuzzing: whether bytes are the data of a slide.
pub(in crate::commit) fn is_blob(bytes: &[u8]) -> bool {
    LastSlide::parse(bytes, 64).is_ok()
}
