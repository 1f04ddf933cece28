//! A bare page-mapping loop: what the FTL must agree with, and what its speed is held against.
//!
//! It keeps a map, an inverse map and the greedy victim's lists, and nothing else: no time, no
//! spare areas, no faults, no trait objects. It shares no code with `flagstone::ftl`, and follows
//! the same policy within the same [limits](BareLimits), so that both copy the same pages for the
//! same requests:
//!
//! 1. Host pages and copies have an open block each on every plane, and take the planes in turn,
//!    one of each channel before the next of any.
//! 2. A plane without an open block takes its least worn free block, the lowest numbered of equals;
//!    a plane that has none is passed over. The last few free blocks are for copies only.
//! 3. When too few blocks are free after a host write, the full block with the fewest valid pages
//!    is copied and erased, again and again. Among equals the block is taken that has been so for
//!    longest.

use flagstone::ftl::{BlockState, Ftl};
use flagstone::nand::Geometry;
use flagstone::units::{Lpn, Pbn};
use flagstone_lab::workload::{Request, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// What the loop has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BareStats {
    /// Pages that the host wrote.
    pub(crate) host_pages: u64,
    /// Pages copied out of victims.
    pub(crate) copied: u64,
    /// Summary pages, one a block that was filled, if blocks have one.
    pub(crate) summaries: u64,
    /// Blocks erased.
    pub(crate) erases: u64,
}

impl BareStats {
    /// Pages programmed for whatever reason.
    pub(crate) fn programs(&self) -> u64 {
        self.host_pages + self.copied + self.summaries
    }

    /// Pages programmed for each page that the host wrote.
    pub(crate) fn write_amplification(&self) -> f64 {
        self.programs() as f64 / self.host_pages as f64
    }
}

#[derive(Debug, Clone, Copy)]
struct Block {
    valid: u32,
    erases: u32,
    full: bool,
    next: u32,
    prev: u32,
}

/// First and last block of a list.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// Open block and next page in it, a plane each; `NONE` where no block is open.
#[derive(Debug, Clone)]
struct Head {
    open: Vec<(u32, u32)>,
    /// Planes in the order in which they are taken, and which is next.
    order: Vec<usize>,
    turn: usize,
}

/// The loop.
#[derive(Debug, Clone)]
pub(crate) struct Bare {
    pages_per_block: u32,
    data_pages: u32,
    blocks_per_plane: u32,
    free_wanted: u32,
    free_for_copies: u32,
    map: Vec<u32>,
    /// The logical page of each valid physical page, `NONE` for all others.
    inverse: Vec<u32>,
    blocks: Vec<Block>,
    /// Full blocks by number of valid pages.
    lists: Vec<List>,
    fewest: usize,
    free: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    free_count: u32,
    host: Head,
    copies: Head,
    stats: BareStats,
}

/// What the loop and the FTL must have in common besides their shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BareLimits {
    /// Pages that the host can write.
    pub(crate) logical_pages: u32,
    /// Pages of a block that can hold data.
    pub(crate) data_pages: u32,
    /// Collection starts when fewer blocks than this are free.
    pub(crate) free_wanted: u32,
    /// The last free blocks, as many as this, are for copies only.
    pub(crate) free_for_copies: u32,
    /// Blocks that hold what is no data: roots, mapping pages, logs; and bad ones.
    pub(crate) unusable: Vec<Pbn>,
}

impl BareLimits {
    /// The limits of a device that was just started.
    pub(crate) fn of(ftl: &Ftl) -> BareLimits {
        let unusable = |block: &Pbn| {
            let state = ftl.blocks().state(*block);
            matches!(state, BlockState::Meta | BlockState::Bad)
        };
        BareLimits {
            logical_pages: ftl.logical_pages(),
            data_pages: ftl.data_pages_per_block(),
            free_wanted: ftl.gc_threshold_blocks(),
            free_for_copies: ftl.gc_reserve_blocks(),
            unusable: (0..ftl.geometry().blocks())
                .map(Pbn)
                .filter(unusable)
                .collect(),
        }
    }
}

impl Bare {
    /// An empty device.
    pub(crate) fn new(geometry: &Geometry, limits: &BareLimits) -> Bare {
        let planes = geometry.planes();
        let empty = Block {
            valid: 0,
            erases: 0,
            full: false,
            next: NONE,
            prev: NONE,
        };
        let no_block = List {
            first: NONE,
            last: NONE,
        };
        let of_channel = (planes / geometry.channels) as usize;
        let channels = geometry.channels as usize;
        let head = Head {
            open: vec![(NONE, 0); planes as usize],
            order: (0..planes as usize)
                .map(|turn| turn % channels * of_channel + turn / channels)
                .collect(),
            turn: 0,
        };
        let mut free = vec![BinaryHeap::new(); planes as usize];
        let usable = (0..geometry.blocks()).filter(|b| !limits.unusable.contains(&Pbn(*b)));
        for block in usable {
            free[(block / geometry.blocks_per_plane) as usize].push(Reverse((0, block)));
        }
        Bare {
            pages_per_block: geometry.pages_per_block,
            data_pages: limits.data_pages,
            blocks_per_plane: geometry.blocks_per_plane,
            free_wanted: limits.free_wanted,
            free_for_copies: limits.free_for_copies,
            map: vec![NONE; limits.logical_pages as usize],
            inverse: vec![NONE; geometry.pages() as usize],
            blocks: vec![empty; geometry.blocks() as usize],
            lists: vec![no_block; geometry.pages_per_block as usize + 1],
            fewest: 0,
            free_count: free.iter().map(|heap| heap.len() as u32).sum(),
            free,
            host: head.clone(),
            copies: head,
            stats: BareStats::default(),
        }
    }

    /// What was done since the start, or since it was last forgotten.
    pub(crate) fn stats(&self) -> BareStats {
        self.stats
    }

    /// Forgets what was counted so far.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = BareStats::default();
    }

    /// Where a page is, for reads.
    #[inline]
    pub(crate) fn read(&self, at: Lpn) -> Option<u32> {
        let page = self.map[at.index()];
        (page != NONE).then_some(page)
    }

    /// Plays a workload.
    ///
    /// # Panics
    /// Some parameter of the workload cannot be, it reads a page that was not written, or as
    /// [`Bare::write`].
    pub(crate) fn play(&mut self, workload: &Workload) {
        let mut transactions = workload.transactions().expect("the workload is sound");
        while let Some(requests) = transactions.advance() {
            for &request in requests {
                match request {
                    Request::Read(at) => assert!(self.read(at).is_some(), "{at} was written"),
                    Request::Write(at) => self.write(at),
                }
            }
        }
    }

    /// Writes all pages, and then `overwrites` times as many at random, as `steady::age` does.
    ///
    /// # Panics
    /// As [`Bare::write`].
    pub(crate) fn age(&mut self, pages: u32, overwrites: f64, seed: u64) {
        (0..pages).for_each(|page| self.write(Lpn(page)));
        let requests = (f64::from(pages) * overwrites).round() as u64;
        self.play(&Workload::uniform_writes(pages, requests, seed));
    }

    /// Writes a page, and collects garbage if there is need to.
    ///
    /// # Panics
    /// When no block can be gained: the device is too full.
    #[inline]
    pub(crate) fn write(&mut self, at: Lpn) {
        let to = self.program(false, at.0);
        let old = std::mem::replace(&mut self.map[at.index()], to);
        if old != NONE {
            self.inverse[old as usize] = NONE;
            self.lose(old / self.pages_per_block);
        }
        self.stats.host_pages += 1;
        while self.free_count < self.free_wanted && self.collect() {}
    }

    /// Puts a page into the next open block of the host's pages or of the copies.
    #[inline]
    fn program(&mut self, copy: bool, lpn: u32) -> u32 {
        let planes = self.free.len();
        let head = if copy {
            &mut self.copies
        } else {
            &mut self.host
        };
        let mut plane = head.order[head.turn];
        head.turn = if head.turn + 1 == planes {
            0
        } else {
            head.turn + 1
        };
        if head.open[plane].0 == NONE {
            plane = self.open(copy, plane);
        }
        let head = if copy {
            &mut self.copies
        } else {
            &mut self.host
        };
        let (block, page) = head.open[plane];
        let to = block * self.pages_per_block + page;
        self.inverse[to as usize] = lpn;
        self.blocks[block as usize].valid += 1;
        head.open[plane].1 += 1;
        if page + 1 == self.data_pages {
            head.open[plane].0 = NONE;
            self.stats.summaries += u64::from(self.pages_per_block - self.data_pages);
            self.blocks[block as usize].full = true;
            self.link(block);
        }
        to
    }

    #[cold]
    fn open(&mut self, copy: bool, first: usize) -> usize {
        let planes = self.free.len();
        for plane in (0..planes).map(|step| (first + step) % planes) {
            let head = if copy {
                &mut self.copies
            } else {
                &mut self.host
            };
            if head.open[plane].0 != NONE {
                return plane;
            }
            if !copy && self.free_count <= self.free_for_copies {
                continue;
            }
            if let Some(Reverse((_, block))) = self.free[plane].pop() {
                self.free_count -= 1;
                head.open[plane] = (block, 0);
                return plane;
            }
        }
        panic!("the device is full");
    }

    /// Copies and erases one block; false if there is none that would gain a page.
    #[cold]
    fn collect(&mut self) -> bool {
        while self.fewest < self.data_pages as usize && self.lists[self.fewest].first == NONE {
            self.fewest += 1;
        }
        if self.fewest >= self.data_pages as usize {
            return false;
        }
        let victim = self.lists[self.fewest].first;
        self.unlink(victim);
        self.blocks[victim as usize].full = false;
        let first = victim * self.pages_per_block;
        for from in first..first + self.data_pages {
            let lpn = self.inverse[from as usize];
            if lpn != NONE {
                self.inverse[from as usize] = NONE;
                self.map[lpn as usize] = self.program(true, lpn);
                self.stats.copied += 1;
            }
        }
        let block = &mut self.blocks[victim as usize];
        block.valid = 0;
        block.erases += 1;
        let plane = (victim / self.blocks_per_plane) as usize;
        self.free[plane].push(Reverse((block.erases, victim)));
        self.free_count += 1;
        self.stats.erases += 1;
        true
    }

    /// A block has one valid page less.
    #[inline]
    fn lose(&mut self, block: u32) {
        if self.blocks[block as usize].full {
            self.unlink(block);
            self.blocks[block as usize].valid -= 1;
            self.link(block);
        } else {
            self.blocks[block as usize].valid -= 1;
        }
    }

    #[inline]
    fn link(&mut self, block: u32) {
        let valid = self.blocks[block as usize].valid as usize;
        let last = std::mem::replace(&mut self.lists[valid].last, block);
        match last {
            NONE => self.lists[valid].first = block,
            last => self.blocks[last as usize].next = block,
        }
        let entry = &mut self.blocks[block as usize];
        (entry.prev, entry.next) = (last, NONE);
        self.fewest = self.fewest.min(valid);
    }

    #[inline]
    fn unlink(&mut self, block: u32) {
        let Block {
            valid, prev, next, ..
        } = self.blocks[block as usize];
        let list = &mut self.lists[valid as usize];
        match prev {
            NONE => list.first = next,
            prev => self.blocks[prev as usize].next = next,
        }
        match next {
            NONE => list.last = prev,
            next => self.blocks[next as usize].prev = prev,
        }
    }
}
