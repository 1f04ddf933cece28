//! Compares FD-buffer with a model that searches lists, and tests its adaptation.

use super::super::history;
use super::*;
use crate::buffer::{PolicyKind, Pool};
use flagstone::dice::Dice;
use std::collections::BTreeMap;

/// Both pools as lists of (frame, page), and both stacks as lists of pages, oldest first.
#[derive(Default)]
struct Naive {
    pools: [Vec<(FrameId, Lpn)>; 2],
    stacks: [Vec<Lpn>; 2],
    /// Weights of past hits, by pool, distance, and whether the hit is a write in D.
    weights: BTreeMap<(usize, usize, bool), u32>,
    accesses: usize,
    target: usize,
    limit: usize,
    frames: usize,
    costs: (u64, u64),
    /// A wrong model: a page that is read back leaves D's stack.
    is_wrong: bool,
}

impl Naive {
    fn new(frames: usize, costs: (u64, u64), is_wrong: bool) -> Naive {
        Naive {
            target: frames / 2,
            limit: frames / 2,
            frames,
            costs,
            is_wrong,
            ..Naive::default()
        }
    }

    fn cost(&self, n: usize) -> i128 {
        let mut cost = 0;
        for (&(pool, distance, write), &weight) in &self.weights {
            let (reads, writes) = self.costs;
            let (reads, writes) = (i128::from(reads), i128::from(writes));
            let weight = i128::from(weight);
            let size = if pool == 0 { self.frames - n } else { n };
            // Kinds of hit: a read in C, any hit in D, and additionally a write in D.
            let unit = if pool == 1 && write { writes } else { reads };
            if distance > size {
                cost += weight * unit;
            }
        }
        cost
    }

    fn count(&mut self, pool: usize, distance: usize, is_write_of_d: bool) {
        *self
            .weights
            .entry((pool, distance, is_write_of_d))
            .or_default() += 1;
    }

    fn learn(&mut self, page: Lpn, write: bool, dirty: bool) {
        let mut distances = [None; 2];
        for (stack, distance) in self.stacks.iter_mut().zip(&mut distances) {
            let place = stack.iter().position(|&other| other == page);
            *distance = place.map(|place| stack.len() - place);
            stack.retain(|&other| other != page);
        }
        match distances {
            [_, Some(d)] if write => {
                self.count(1, d, false);
                self.count(1, d, true);
            }
            [_, None] if write => {}
            [Some(c), Some(d)] if (0..=self.frames).all(|n| n >= d || self.frames - n >= c) => {}
            [c, d] => {
                if let Some(c) = c {
                    self.count(0, c, false);
                }
                if let Some(d) = d {
                    self.count(1, d, false);
                }
            }
        }
        if !dirty {
            self.stacks[0].push(page);
        }
        if dirty || (distances[1].is_some() && !self.is_wrong) {
            self.stacks[1].push(page);
        }
        self.shorten();
        if self.limit < self.target {
            self.limit += 1;
        } else if self.limit > self.target {
            self.limit -= 1;
        }
        self.accesses += 1;
        if self.accesses.is_multiple_of(self.frames) {
            let now = self.target;
            let best = (0..=self.frames).min_by_key(|&n| (self.cost(n), n.abs_diff(now), n));
            self.target = best.expect("there is a size");
            for weight in self.weights.values_mut() {
                *weight /= 2;
            }
        }
    }

    fn shorten(&mut self) {
        for stack in &mut self.stacks {
            if stack.len() > self.frames {
                stack.remove(0);
            }
        }
    }

    fn push(&mut self, frame: FrameId, page: Lpn, dirty: bool) {
        self.pools[usize::from(dirty)].push((frame, page));
    }

    fn unlink(&mut self, frame: FrameId) -> (Lpn, bool) {
        for pool in 0..2 {
            if let Some(place) = self.pools[pool].iter().position(|page| page.0 == frame) {
                return (self.pools[pool].remove(place).1, pool == 1);
            }
        }
        panic!("it is there");
    }
}

impl Policy for Naive {
    fn inserted(&mut self, frame: FrameId, page: Lpn, write: bool) {
        self.learn(page, write, write);
        self.push(frame, page, write);
    }
    fn touched(&mut self, frame: FrameId, write: bool) {
        let (page, dirty) = self.unlink(frame);
        self.learn(page, write, dirty || write);
        self.push(frame, page, dirty || write);
    }
    fn marked(&mut self, frame: FrameId, dirty: bool) {
        let (page, _) = self.unlink(frame);
        for stack in &mut self.stacks {
            stack.retain(|&other| other != page);
        }
        self.stacks[usize::from(dirty)].push(page);
        self.shorten();
        self.push(frame, page, dirty);
    }
    fn removed(&mut self, frame: FrameId) {
        self.unlink(frame);
    }
    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        let [clean, dirty] = &self.pools;
        let order = if dirty.len() > self.limit {
            [dirty, clean]
        } else {
            [clean, dirty]
        };
        let mut frames = order.into_iter().flatten().map(|&(frame, _)| frame);
        frames.find(|&frame| may(frame))
    }
}

fn pair(frames: usize, is_wrong: bool) -> [Box<dyn Policy>; 2] {
    let costs = (Nanos::from_micros(25).0, Nanos::from_micros(200).0);
    let naive = Naive::new(frames, costs, is_wrong);
    [
        start(frames, &Settings::new()).expect("all defaults"),
        Box::new(naive),
    ]
}

#[test]
fn d3_d4_d5_it_chooses_as_two_lists_that_are_searched() {
    history::assert_same(&|frames| pair(frames, false));
    history::assert_different(&|frames| pair(frames, true));
}

/// The target after an epoch of hits at one distance per pool.
fn target(hits: [(u32, usize); 3], read_us: u64, write_us: u64) -> usize {
    let mut histograms = Histograms::new(10);
    let [(clean, at), (dirty, to), (writes, and)] = hits;
    histograms.clean_reads[at - 1] = clean;
    histograms.dirty_hits[to - 1] = dirty;
    histograms.dirty_writes[and - 1] = writes;
    histograms.best(5, Nanos::from_micros(read_us), Nanos::from_micros(write_us))
}

#[test]
fn d1_the_target_follows_the_asymmetry_of_the_device() {
    // Reads that need eight clean frames against fewer writes that need six dirty ones.
    let hits = [(100, 8), (50, 6), (50, 6)];
    assert_eq!(target(hits, 25, 25), 6, "equal: the nearer one of 2 and 6");
    assert_eq!(target(hits, 25, 20), 2, "reads win: C gets what it needs");
    assert_eq!(target(hits, 25, 200), 6, "writes win: D gets what it needs");
    assert_eq!(
        target([(0, 1), (0, 1), (0, 1)], 25, 200),
        5,
        "nothing known"
    );
}

#[test]
fn d2_a_pool_of_writes_grows_and_one_of_reads_shrinks() {
    let run = |write: bool| {
        let mut pool = Pool::new(64, PolicyKind::FdBuffer, &Settings::new());
        let mut dice = Dice(5);
        for _ in 0..20_000 {
            // Sixty pages that are all written or all read, with occasional accesses of the other
            // kind to many pages.
            let (at, write) = match dice.pick(4) {
                0 => (Lpn(1_000 + dice.pick(4_000)), !write),
                _ => (Lpn(dice.pick(60)), write),
            };
            if pool.get(at, write).is_none() {
                if pool.is_full() {
                    let victim = pool.victim(&mut |_, _| true).expect("a page");
                    pool.remove(victim);
                }
                pool.insert(at, (), write);
            }
        }
        pool.dirty().count()
    };
    let (of_writes, of_reads) = (run(true), run(false));
    assert!(of_writes > 50, "{of_writes} of 64 pages are dirty");
    assert!(of_reads < 14, "{of_reads} of 64 pages are dirty");
}
