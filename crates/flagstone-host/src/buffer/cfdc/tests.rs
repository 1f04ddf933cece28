//! Compares CFDC with a model that recomputes P(c) of each cluster, and with worked examples.

use super::super::history;
use super::*;
use std::collections::BTreeMap;

/// The defect of a wrong model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// IPD is always 1, as in public code.
    Ipd,
    /// A cluster that was chosen is no longer drained.
    Drain,
    /// A promotion keeps ts.
    Promotion,
}

struct Naive {
    working: Vec<FrameId>,
    clean: Vec<FrameId>,
    /// Pages, ts, and whether the cluster is being drained.
    clusters: BTreeMap<u32, (Vec<FrameId>, u64, bool)>,
    pages: BTreeMap<FrameId, (Lpn, bool)>,
    working_max: usize,
    cluster_pages: u32,
    time: u64,
    wrong: Wrong,
}

impl Naive {
    fn new(frames: usize, (cluster_pages, priority): (u32, usize), wrong: Wrong) -> Naive {
        let priority = frames * priority / 100;
        Naive {
            working: Vec::new(),
            clean: Vec::new(),
            clusters: BTreeMap::new(),
            pages: BTreeMap::new(),
            working_max: (frames - priority).max(1),
            cluster_pages,
            time: 0,
            wrong,
        }
    }

    fn demote(&mut self, frame: FrameId) {
        let (page, dirty) = self.pages[&frame];
        if !dirty {
            self.clean.push(frame);
            return;
        }
        let new = (Vec::new(), self.time, false);
        let cluster = self
            .clusters
            .entry(page.0 / self.cluster_pages)
            .or_insert(new);
        cluster.0.push(frame);
        self.time += 1;
    }

    fn leave(&mut self, frame: FrameId, promoted: bool) {
        self.working.retain(|&other| other != frame);
        self.clean.retain(|&other| other != frame);
        for (pages, ts, _) in self.clusters.values_mut() {
            let before = pages.len();
            pages.retain(|&other| other != frame);
            if promoted && pages.len() < before && self.wrong != Wrong::Promotion {
                *ts = self.time;
            }
        }
        self.clusters.retain(|_, (pages, ..)| !pages.is_empty());
    }

    fn enter(&mut self, frame: FrameId) {
        self.working.push(frame);
        if self.working.len() > self.working_max {
            let oldest = self.working.remove(0);
            self.demote(oldest);
        }
    }

    /// P(c) as a float, which is precise enough here.
    fn priority(&self, (pages, ts, is_drained): &(Vec<FrameId>, u64, bool)) -> f64 {
        if *is_drained && self.wrong != Wrong::Drain {
            return 0.0;
        }
        let at = |frame: &FrameId| f64::from(self.pages[frame].0.0);
        let pairs = pages.windows(2);
        let mut ipd: f64 = pairs.map(|pair| (at(&pair[0]) - at(&pair[1])).abs()).sum();
        if pages.len() == 1 || self.wrong == Wrong::Ipd {
            ipd = 1.0;
        }
        let age = (self.time - ts).max(1);
        ipd / (pages.len() as f64).powi(2) / age as f64
    }
}

impl Policy for Naive {
    fn inserted(&mut self, frame: FrameId, page: Lpn, write: bool) {
        self.pages.insert(frame, (page, write));
        self.enter(frame);
    }
    fn touched(&mut self, frame: FrameId, write: bool) {
        self.leave(frame, true);
        self.pages.get_mut(&frame).expect("it is there").1 |= write;
        self.enter(frame);
    }
    fn marked(&mut self, frame: FrameId, dirty: bool) {
        self.pages.get_mut(&frame).expect("it is there").1 = dirty;
        if !self.working.contains(&frame) {
            self.leave(frame, false);
            self.demote(frame);
        }
    }
    fn removed(&mut self, frame: FrameId) {
        self.leave(frame, false);
    }
    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        if let Some(&frame) = self.clean.iter().find(|frame| may(**frame)) {
            return Some(frame);
        }
        let mut order: Vec<_> = self
            .clusters
            .iter()
            .map(|(&number, cluster)| (self.priority(cluster), cluster.1, number))
            .collect();
        // Rounding may separate equal values; different values are never this close.
        order.sort_by(|a, b| {
            let close = (a.0 - b.0).abs() < 1e-12;
            let by_priority = a.0.total_cmp(&b.0);
            let by_priority = if close {
                std::cmp::Ordering::Equal
            } else {
                by_priority
            };
            by_priority.then((a.1, a.2).cmp(&(b.1, b.2)))
        });
        for (_, _, number) in order {
            let cluster = self.clusters.get_mut(&number).expect("in the order");
            if let Some(&frame) = cluster.0.iter().find(|frame| may(**frame)) {
                cluster.2 = true;
                return Some(frame);
            }
        }
        self.working.iter().copied().find(|&frame| may(frame))
    }
}

fn settings((cluster_pages, priority): (u32, usize)) -> Settings {
    let settings = Settings::new().with("cluster_pages", cluster_pages);
    settings.with("priority", priority)
}

fn pair(frames: usize, of: (u32, usize), wrong: Wrong) -> [Box<dyn Policy>; 2] {
    let naive = Naive::new(frames, of, wrong);
    let cfdc = start(frames, &settings(of)).expect("numbers");
    [cfdc, Box::new(naive)]
}

#[test]
fn it_chooses_as_a_search_over_all_clusters() {
    for of in [(16, 50), (64, 50), (4, 90), (1, 100), (16, 0)] {
        history::assert_same(&|frames| pair(frames, of, Wrong::Nothing));
    }
}

#[test]
fn wrong_models_are_found_out_d3() {
    for wrong in [Wrong::Ipd, Wrong::Drain, Wrong::Promotion] {
        history::assert_different(&|frames| pair(frames, (16, 90), wrong));
    }
}

/// A pool of 100 frames with one frame in the working region: each page is demoted by the next.
/// Frames have the numbers of their pages.
fn filled(dirty: &[u32]) -> Cfdc {
    let mut cfdc = Cfdc::new(100, &settings((16, 99))).expect("numbers");
    for &page in dirty {
        cfdc.inserted(FrameId(page), Lpn(page), true);
    }
    cfdc.inserted(FrameId(99), Lpn(99), false);
    assert_eq!(cfdc.check(), Ok(()));
    cfdc
}

#[test]
fn ipd_is_summed_in_the_order_of_arrival() {
    let cfdc = filled(&[3, 9, 4, 40]);
    let (ipd, len, ts, time) = cfdc.clusters.facts(0);
    assert_eq!((ipd, len, ts, time), (6 + 5, 3, 0, 4));
    // In the order of page numbers the distance would be 6.
    let (ipd, len, ts, _) = cfdc.clusters.facts(2);
    assert_eq!((ipd, len, ts), (1, 1, 3), "a single page counts 1");
}

#[test]
fn d1_d2_the_cluster_that_is_dense_or_old_goes_first_and_is_drained() {
    // P(0) = 11 / (9 · 6), P(2) = 1 / (4 · 3), P(4) = 1 / (1 · 1): 0.20, 0.083, 1.
    let mut cfdc = filled(&[3, 9, 4, 40, 41, 64]);
    assert_eq!(cfdc.clusters.facts(0), (11, 3, 0, 6));
    assert_eq!(cfdc.clusters.facts(2), (1, 2, 3, 6));
    assert_eq!(cfdc.clusters.facts(4), (1, 1, 5, 6));
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(40)));
    cfdc.removed(FrameId(40));
    // By its pages P(2) would be 1/3, so P(0) would be next; but cluster 2 is being drained.
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(41)));
    cfdc.removed(FrameId(41));
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(3)));
    // A cluster that is being drained stays so when a page joins it.
    cfdc.touched(FrameId(99), false);
    cfdc.inserted(FrameId(5), Lpn(5), true);
    cfdc.inserted(FrameId(98), Lpn(98), false);
    cfdc.removed(FrameId(3));
    cfdc.removed(FrameId(99));
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(9)));
}

#[test]
fn a_promotion_renews_ts_and_a_demotion_keeps_it() {
    let mut cfdc = filled(&[3, 9, 40]);
    assert_eq!(cfdc.clusters.facts(0), (6, 2, 0, 3));
    // Demotion into an existing cluster: the timestamp stays, globaltime advances.
    cfdc.inserted(FrameId(4), Lpn(4), true);
    cfdc.inserted(FrameId(97), Lpn(97), false);
    assert_eq!(cfdc.clusters.facts(0), (6 + 5, 3, 0, 4));
    // A hit removes page 9: 3 and 4 become neighbours, and the cluster is young again.
    cfdc.touched(FrameId(9), false);
    assert_eq!(
        cfdc.clusters.facts(0),
        (1, 2, 4, 4),
        "d2: an age of zero counts as one"
    );
    assert_eq!(cfdc.check(), Ok(()));
    // Old clean pages first, then the single old page: P(2) = 1 / 2 against P(0) = 1 / 4.
    let is_dirty = |frame: FrameId| frame.0 < 50;
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(99)));
    assert_eq!(cfdc.victim(&mut |frame| is_dirty(frame)), Some(FrameId(3)));
}

#[test]
fn d4_a_page_that_is_written_out_becomes_the_youngest_clean_one_and_its_cluster_keeps_ts() {
    let mut cfdc = filled(&[3, 9, 4]);
    cfdc.inserted(FrameId(98), Lpn(98), false);
    cfdc.marked(FrameId(9), false);
    assert_eq!(cfdc.clusters.facts(0), (1, 2, 0, 3));
    assert_eq!(cfdc.victim(&mut |_| true), Some(FrameId(99)));
    assert_eq!(cfdc.victim(&mut |frame| frame.0 != 99), Some(FrameId(9)));
    cfdc.marked(FrameId(9), true);
    assert_eq!(cfdc.clusters.facts(0), (1 + 5, 3, 0, 4));
}

#[test]
fn d5_the_working_region_is_asked_last() {
    let mut cfdc = filled(&[3]);
    assert_eq!(cfdc.victim(&mut |frame| frame.0 == 99), Some(FrameId(99)));
    assert_eq!(cfdc.victim(&mut |_| false), None);
}
