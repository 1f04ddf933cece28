//! FD-buffer, reconstructed: a clean and a dirty pool, sized by the costs of misses and writes.
//!
//! Paper       [FDBuffer], of which only the abstract was at hand: it says that clean and dirty
//!             pages have a pool each, and that the ratio of their sizes follows the asymmetry of
//!             the device and the workload, by average I/O cost an access. All else is our own.
//! Idea        Pools C and D, each an LRU list. A page that is written goes to D. The victim is the
//!             oldest page of D if D has more pages than its target, or C has none; else the oldest
//!             of C. A stack of the last B pages for each pool, evicted ones included (*ghosts*),
//!             says at which distance each hit was, and histograms of the distances say what pools
//!             of other sizes would have had. Every B accesses the target becomes the n with the
//!             smallest Cr · misses(C = B - n, D = n) + Cw · evictions from D(n).
//! Symbols     B frames of the pool; Cr, Cw cost of a page read and of a page write; as in the
//!             abstract otherwise
//! Cost        an access and a choice are logarithmic in B; the target is found in B steps every B
//!             accesses
//!
//! Departures  D1. A reconstruction: nothing here can be held against the paper's body.
//!             D2. An access that writes and is no hit in D(n) brings a page into D(n) that will be
//!                 evicted from it once: that is how evictions from D(n) are counted.
//!             D3. Hits in C are counted if they read. A write moves the page to D at any size.
//!                 A page that was evicted from D and read again is in C, and in D's stack as well,
//!                 since a larger D would still have it: if it is near enough in both that it is a
//!                 hit at any size, it is not counted. Were it taken out of D's stack, a D that is
//!                 too small would never learn what it misses.
//!             D4. Histograms are halved each time. D's limit moves towards the target by one page
//!                 an access. Among equal costs the target stays as near as it can.
//!             D5. A page that is written out while it stays goes to the young end of C; one that
//!                 becomes dirty without a hit goes to the young end of D.

use super::FrameId;
use super::Policy;
use super::PolicyInfo;
use super::distances::Stack;
use super::list::Links;
use super::list::List;
use flagstone::settings::{BadSetting, Settings, settings};
use flagstone::units::Lpn;
use flagstone::units::Nanos;
use std::cmp::Ordering;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "fd-buffer",
    idea: "the oldest page of the clean or of the dirty pool, whose sizes follow costs",
    paper: "FDBuffer",
    settings: settings! {
        read_us: "25", "assumed microseconds for reading a missing page";
        write_us: "200",
            "assumed microseconds for writing a dirty page; as for SLC flash in [SSDTradeoffs]";
    },
};

struct FdBuffer {
    links: Links,
    /// Pools C and D.
    sides: [Side; 2],
    pages: Vec<Page>,
    histograms: Histograms,
    accesses: usize,
    /// Target size of D.
    target: usize,
    /// Current maximum size of D.
    limit: usize,
    read_cost: Nanos,
    write_cost: Nanos,
}

/// One of the two pools.
struct Side {
    list: List,
    stack: Stack,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    at: Lpn,
    dirty: bool,
}

/// Hits by distance; the first element is distance 1.
#[derive(Debug)]
struct Histograms {
    clean_reads: Vec<u32>,
    dirty_hits: Vec<u32>,
    dirty_writes: Vec<u32>,
}

impl Histograms {
    fn new(frames: usize) -> Histograms {
        Histograms {
            clean_reads: vec![0; frames],
            dirty_hits: vec![0; frames],
            dirty_writes: vec![0; frames],
        }
    }

    /// The size of D with the least cost; among equals, the nearest to `now`. The cost of misses
    /// and evictions is a constant minus the savings by hits; the constant is ignored.
    fn best(&self, now: usize, read_cost: Nanos, write_cost: Nanos) -> usize {
        let frames = self.clean_reads.len();
        let clean_reads: u64 = self.clean_reads.iter().map(|&hits| u64::from(hits)).sum();
        let (mut reads, mut writes) = (clean_reads, 0);
        let (mut best, mut most) = (0, None);
        for n in 0..=frames {
            if n > 0 {
                reads += u64::from(self.dirty_hits[n - 1]);
                reads -= u64::from(self.clean_reads[frames - n]);
                writes += u64::from(self.dirty_writes[n - 1]);
            }
            let saved = u128::from(reads) * u128::from(read_cost.0)
                + u128::from(writes) * u128::from(write_cost.0);
            if most < Some(saved) || (most == Some(saved) && n.abs_diff(now) < now.abs_diff(best)) {
                (best, most) = (n, Some(saved));
            }
        }
        best
    }

    fn halve(&mut self) {
        let all = [
            &mut self.clean_reads,
            &mut self.dirty_hits,
            &mut self.dirty_writes,
        ];
        for hits in all.into_iter().flatten() {
            *hits /= 2;
        }
    }
}

pub(super) fn start(frames: usize, settings: &Settings) -> Result<Box<dyn Policy>, BadSetting> {
    let cost = |name| {
        Ok(Nanos::from_micros(settings.number(
            &INFO,
            name,
            0,
            1 << 32,
        )?))
    };
    let side = || Side {
        list: List::EMPTY,
        stack: Stack::new(frames),
    };
    let nothing = Page {
        at: Lpn(0),
        dirty: false,
    };
    Ok(Box::new(FdBuffer {
        links: Links::new(frames),
        sides: [side(), side()],
        pages: vec![nothing; frames],
        histograms: Histograms::new(frames),
        accesses: 0,
        target: frames / 2,
        limit: frames / 2,
        read_cost: cost("read_us")?,
        write_cost: cost("write_us")?,
    }))
}

impl FdBuffer {
    /// Records how pools of other sizes would have served an access to a page, cached or not.
    /// `dirty` is the state after the access.
    fn learn(&mut self, page: Lpn, write: bool, dirty: bool) {
        let histograms = &mut self.histograms;
        let [c, d] = &mut self.sides;
        let (in_c, in_d) = (c.stack.take(page), d.stack.take(page));
        let at_any_size = !write
            && in_c
                .zip(in_d)
                .is_some_and(|(c, d)| c + d <= self.pages.len() + 1);
        if let Some(distance) = in_d.filter(|_| !at_any_size) {
            histograms.dirty_hits[distance - 1] += 1;
            histograms.dirty_writes[distance - 1] += u32::from(write);
        }
        if let Some(distance) = in_c.filter(|_| !at_any_size && !write) {
            histograms.clean_reads[distance - 1] += 1;
        }
        if !dirty {
            c.stack.push(page);
        }
        if dirty || in_d.is_some() {
            d.stack.push(page);
        }
        match self.limit.cmp(&self.target) {
            Ordering::Less => self.limit += 1,
            Ordering::Equal => {}
            Ordering::Greater => self.limit -= 1,
        }
        self.accesses += 1;
        if self.accesses == self.pages.len() {
            self.accesses = 0;
            let best = self
                .histograms
                .best(self.target, self.read_cost, self.write_cost);
            self.target = best;
            self.histograms.halve();
        }
    }

    fn push(&mut self, frame: FrameId, dirty: bool) {
        self.pages[frame.index()].dirty = dirty;
        let side = &mut self.sides[usize::from(dirty)];
        self.links.push_back(&mut side.list, frame);
    }

    fn unlink(&mut self, frame: FrameId) {
        let page = self.pages[frame.index()];
        let side = &mut self.sides[usize::from(page.dirty)];
        self.links.remove(&mut side.list, frame);
    }
}

impl Policy for FdBuffer {
    fn inserted(&mut self, frame: FrameId, page: Lpn, write: bool) {
        self.learn(page, write, write);
        self.pages[frame.index()].at = page;
        self.push(frame, write);
    }

    fn touched(&mut self, frame: FrameId, write: bool) {
        let page = self.pages[frame.index()];
        let dirty = page.dirty || write;
        self.learn(page.at, write, dirty);
        self.unlink(frame);
        self.push(frame, dirty);
    }

    fn marked(&mut self, frame: FrameId, dirty: bool) {
        self.unlink(frame);
        let page = self.pages[frame.index()].at;
        for side in &mut self.sides {
            side.stack.take(page);
        }
        self.sides[usize::from(dirty)].stack.push(page);
        self.push(frame, dirty);
    }

    fn removed(&mut self, frame: FrameId) {
        self.unlink(frame);
    }

    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        let [clean, dirty] = &self.sides;
        let order = if dirty.list.len() > self.limit {
            [dirty, clean]
        } else {
            [clean, dirty]
        };
        let mut frames = order.iter().flat_map(|side| self.links.iter(&side.list));
        frames.find(|&frame| may(frame))
    }

    fn check(&self) -> Result<(), String> {
        for (side, dirty) in self.sides.iter().zip([false, true]) {
            let mut frames = self.links.iter(&side.list);
            if frames.any(|frame| self.pages[frame.index()].dirty != dirty) {
                return Err("a page is in the wrong pool".into());
            }
            if side.stack.len() > self.pages.len() {
                return Err(format!("a stack has {} pages", side.stack.len()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
