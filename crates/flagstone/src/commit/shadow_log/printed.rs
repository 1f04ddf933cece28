//! Garbage collection and recovery as published ([MixSL] algorithms 1 and 2), where links alone say
//! what is obsolete (D2 and D3). This form loses data; it exists to be measured, and to be detected
//! by campaigns.
//!
//! A pass reads the whole log and every spare area, and then collects every block that holds a page
//! that is invalid by its rules. The rules treat pages of live transactions as garbage, and follow
//! links to any page that is now at their target.

use super::{ShadowLog, parse_tail};
use crate::ftl::{BlockState, Cause, Ftl, FtlError, Header, LogPage, Slot, collect, header};
use crate::nand::{FlashError, Geometry};
use crate::units::{Lpn, Nanos, Pbn, Ppn};

/// State that only the printed form needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Printed {
    /// Pages of the log, which each pass reads.
    log: Vec<Ppn>,
    /// Whether a pass is in progress: the collections that it requests are part of it.
    running: bool,
    bitmap_bytes: u64,
}

impl Printed {
    pub(super) fn new(logs: &[LogPage]) -> Printed {
        Printed {
            log: logs.iter().map(|page| page.at).collect(),
            ..Printed::default()
        }
    }

    pub(super) fn logged(&mut self, at: Ppn) {
        self.log.push(at);
    }

    pub(super) fn log_restarts(&mut self) {
        self.log.clear();
    }

    /// Memory of the bitmaps in the last pass, which drops them at its end.
    pub(super) fn bitmap_bytes(&self) -> u64 {
        self.bitmap_bytes
    }
}

/// The PBA-bitmap: existing pages, and those that a link or their transaction declares invalid.
pub(super) struct Links {
    programmed: Vec<u64>,
    invalid: Vec<u64>,
}

fn set(bits: &mut [u64], at: Ppn) {
    // A link can name any page; links beyond the device are ignored.
    if let Some(word) = bits.get_mut(at.index() / 64) {
        *word |= 1 << (at.0 % 64);
    }
}

fn is_set(bits: &[u64], at: Ppn) -> bool {
    bits[at.index() / 64] >> (at.0 % 64) & 1 == 1
}

impl Links {
    pub(super) fn new(geometry: &Geometry) -> Links {
        let words = (geometry.pages() as usize).div_ceil(64);
        Links {
            programmed: vec![0; words],
            invalid: vec![0; words],
        }
    }

    /// The third loop of both algorithms, for one page.
    pub(super) fn see(&mut self, at: Ppn, link: Ppn, counts: bool) {
        set(&mut self.programmed, at);
        if !counts {
            set(&mut self.invalid, at);
        } else if link != Ppn::NONE {
            set(&mut self.invalid, link);
        }
    }

    fn is_invalid(&self, at: Ppn) -> bool {
        is_set(&self.programmed, at) && is_set(&self.invalid, at)
    }

    fn has_invalid(&self, geometry: &Geometry, block: Pbn) -> bool {
        (0..geometry.pages_per_block).any(|page| self.is_invalid(geometry.page(block, page)))
    }

    fn bytes(&self) -> u64 {
        (self.programmed.len() + self.invalid.len()) as u64 * 8
    }

    /// The last loop of algorithm 2: reads each valid page again and takes it for the version of
    /// its logical page. If two are valid, the higher address wins.
    pub(super) fn valid_versions(
        &self,
        ftl: &mut Ftl,
        now: Nanos,
    ) -> Result<(Vec<(Lpn, Slot)>, Nanos), FtlError> {
        let (mut found, mut done) = (Vec::new(), now);
        let mut spare = [0xff; header::SIZE];
        for at in (0..ftl.geometry().pages()).map(Ppn) {
            if !is_set(&self.programmed, at) || is_set(&self.invalid, at) {
                continue;
            }
            match ftl.read(now, at, &mut [], &mut spare, Cause::Recovery) {
                Ok(read) => done = done.max(read.done),
                Err(FlashError::Uncorrectable { .. }) => continue,
                Err(other) => return Err(other.into()),
            }
            if let Some(head) = Header::parse(&spare).filter(Header::is_version)
                && head.lpn.0 < ftl.logical_pages()
            {
                found.push((head.lpn, Slot::of(head.kind, at)));
            }
        }
        Ok((found, done))
    }
}

/// Algorithm 1, started because `victim` is to be collected. Returns when that collection may go
/// on.
pub(super) fn collect_all(
    this: &mut ShadowLog,
    ftl: &mut Ftl,
    now: Nanos,
    victim: Pbn,
) -> Result<Nanos, FtlError> {
    let printed = this.printed.as_mut().expect("only the printed form does");
    // A collection that a pass requests belongs to it, and begins no other pass.
    if std::mem::replace(&mut printed.running, true) {
        return Ok(now);
    }
    let outcome = pass(this, ftl, now, victim);
    this.printed.as_mut().expect("as above").running = false;
    outcome
}

/// Reads the log and all spare areas, then collects every block with a page that is invalid by the
/// links, except `victim`: its collection is in progress. Returns when all of that was read.
fn pass(this: &mut ShadowLog, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
    let geometry = *ftl.geometry();
    let mut known = now;
    // The first two loops: the status of each transaction. The data is in memory, but the reads are
    // simulated.
    for &at in &this.printed.as_ref().expect("as above").log {
        match ftl.read(now, at, &mut [], &mut [], Cause::Gc) {
            Ok(read) => known = known.max(read.done),
            Err(FlashError::Uncorrectable { done, .. }) => known = known.max(done),
            Err(other) => return Err(other.into()),
        }
    }
    // The third loop: reads every spare area.
    let mut links = Links::new(&geometry);
    let empty = |state| matches!(state, BlockState::Free | BlockState::Zone);
    let mut blocks = ftl.blocks.for_data();
    blocks.retain(|&block| !empty(ftl.blocks.state(block)));
    for &block in &blocks {
        let read = ftl.block_records(now, block, Cause::Gc, |at, _, bytes| {
            let (tx, link) = parse_tail(bytes);
            let counts = !this.live.contains_key(&tx) && !this.aborted.contains(tx);
            links.see(at, link, counts);
        })?;
        known = known.max(read.done);
    }
    this.printed.as_mut().expect("as above").bitmap_bytes = links.bytes();
    // The last loop: collects blocks with an invalid page, without these pages.
    blocks.retain(|&block| {
        let collectable = block == victim || ftl.blocks.state(block) == BlockState::Full;
        collectable && links.has_invalid(&geometry, block)
    });
    drop_invalid(this, ftl, &links, &blocks);
    for block in blocks {
        if block != victim {
            collect(ftl, this, known, block)?;
        }
    }
    Ok(known)
}

/// Kills pages in `blocks`, which ascend, that are invalid by the links but not by the tables.
fn drop_invalid(this: &mut ShadowLog, ftl: &mut Ftl, links: &Links, blocks: &[Pbn]) {
    let geometry = *ftl.geometry();
    let doomed =
        |at: Ppn| links.is_invalid(at) && blocks.binary_search(&geometry.block_of(at)).is_ok();
    let mut rows: Vec<(Lpn, Ppn)> = this.x_map.iter().map(|(&lpn, row)| (lpn, row.at)).collect();
    rows.retain(|&(_, at)| doomed(at));
    rows.sort_unstable();
    for (lpn, at) in rows {
        this.x_map.remove(&lpn);
        ftl.kill(at);
    }
    for lpn in (0..ftl.logical_pages()).map(Lpn) {
        if let Some(at) = ftl.slot(lpn).ppn()
            && doomed(at)
        {
            ftl.set_slot(lpn, Slot::Empty);
            ftl.kill(at);
        }
    }
}
