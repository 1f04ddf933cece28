//! The dirty clusters of CFDC: their pages, and the cluster with the smallest P(c).
//!
//! P(c) changes with time. Among clusters of equal shape (n, IPD) the order is constant: the one
//! with the smallest timestamp has the smallest P(c). So clusters are sorted by shape and
//! timestamp, and a choice compares the first one of each shape.

use super::super::FrameId;
use super::super::list::Links;
use super::super::list::List;
use flagstone::units::Lpn;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

pub(super) struct Clusters {
    links: Links,
    /// The page in each frame that is in a cluster.
    pages: Vec<Lpn>,
    cluster_pages: u32,
    clusters: FxHashMap<u32, Cluster>,
    /// Clusters that have lost no page to eviction yet, as (ts, number).
    shapes: BTreeMap<Shape, BTreeSet<(u64, u32)>>,
    /// Clusters being drained, whose P(c) is zero.
    drained: BTreeSet<(u64, u32)>,
    /// The paper's globaltime.
    time: u64,
}

#[derive(Debug, Clone, Copy)]
struct Cluster {
    list: List,
    ipd: u64,
    ts: u64,
    is_drained: bool,
}

/// The inputs of P(c) other than time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    len: u32,
    ipd: u64,
}

impl Cluster {
    fn shape(&self) -> Shape {
        Shape {
            len: self.list.len() as u32,
            ipd: self.ipd,
        }
    }
}

/// P(c) of a shape and a timestamp, as a fraction.
fn priority(shape: Shape, ts: u64, time: u64) -> (u64, u128) {
    let age = (time - ts).max(1);
    let ipd = if shape.len == 1 { 1 } else { shape.ipd };
    (ipd, u128::from(shape.len).pow(2) * u128::from(age))
}

/// Compares two fractions. IPD and n are bounded by a cluster's pages, so the products cannot
/// overflow.
fn compare(a: (u64, u128), b: (u64, u128)) -> Ordering {
    (u128::from(a.0) * b.1).cmp(&(u128::from(b.0) * a.1))
}

impl Clusters {
    pub(super) fn new(frames: usize, cluster_pages: u32) -> Clusters {
        Clusters {
            links: Links::new(frames),
            pages: vec![Lpn(0); frames],
            cluster_pages,
            clusters: FxHashMap::default(),
            shapes: BTreeMap::new(),
            drained: BTreeSet::new(),
            time: 0,
        }
    }

    /// Adds a dirty page to its cluster.
    pub(super) fn push(&mut self, frame: FrameId, at: Lpn) {
        let number = at.0 / self.cluster_pages;
        let mut cluster = self.take(number).unwrap_or(Cluster {
            list: List::EMPTY,
            ipd: 0,
            ts: self.time,
            is_drained: false,
        });
        if let Some(last) = cluster.list.back() {
            cluster.ipd += u64::from(at.0.abs_diff(self.pages[last.index()].0));
        }
        self.pages[frame.index()] = at;
        self.links.push_back(&mut cluster.list, frame);
        self.put(number, cluster);
        self.time += 1;
    }

    /// Removes a page from its cluster. `promoted` is `true` if a hit moves it to the working
    /// region.
    pub(super) fn remove(&mut self, frame: FrameId, at: Lpn, promoted: bool) {
        let number = at.0 / self.cluster_pages;
        let mut cluster = self.take(number).expect("a cluster for each of its pages");
        let page = |frame: FrameId| self.pages[frame.index()].0;
        let before = self.links.before(frame).map(page);
        let behind = self.links.behind(frame).map(page);
        for neighbour in [before, behind].into_iter().flatten() {
            cluster.ipd -= u64::from(at.0.abs_diff(neighbour));
        }
        if let (Some(before), Some(behind)) = (before, behind) {
            cluster.ipd += u64::from(before.abs_diff(behind));
        }
        self.links.remove(&mut cluster.list, frame);
        if promoted {
            cluster.ts = self.time;
        }
        if !cluster.list.is_empty() {
            self.put(number, cluster);
        }
    }

    /// Chooses the oldest page that `may` allows, of the cluster with the smallest P(c) that has
    /// such a page. The cluster is drained from then on.
    pub(super) fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
        for (_, number) in &self.drained {
            let mut pages = self.links.iter(&self.clusters[number].list);
            if let Some(frame) = pages.find(|&frame| may(frame)) {
                return Some(frame);
            }
        }
        // The clusters of each shape that were not looked at yet, the one with the smallest P(c)
        // first.
        let mut shapes: Vec<_> = self
            .shapes
            .iter()
            .map(|(&shape, clusters)| (shape, clusters.iter().peekable()))
            .collect();
        let mut chosen = None;
        while chosen.is_none() {
            let heads = shapes.iter_mut().enumerate();
            let heads = heads.filter_map(|(index, (shape, clusters))| {
                let &&(ts, number) = clusters.peek()?;
                Some((index, priority(*shape, ts, self.time), (ts, number)))
            });
            let (index, _, (_, number)) =
                heads.min_by(|a, b| compare(a.1, b.1).then(a.2.cmp(&b.2)))?;
            shapes[index].1.next();
            let mut pages = self.links.iter(&self.clusters[&number].list);
            chosen = pages.find(|&frame| may(frame)).map(|frame| (number, frame));
        }
        let (number, frame) = chosen?;
        let mut cluster = self.take(number).expect("it was looked at");
        cluster.is_drained = true;
        self.put(number, cluster);
        Some(frame)
    }

    /// Removes a cluster from the sorted sets, so that it can be changed.
    fn take(&mut self, number: u32) -> Option<Cluster> {
        let cluster = self.clusters.remove(&number)?;
        let key = (cluster.ts, number);
        if cluster.is_drained {
            self.drained.remove(&key);
        } else {
            let shape = cluster.shape();
            let clusters = self.shapes.get_mut(&shape).expect("the shape of a cluster");
            clusters.remove(&key);
            if clusters.is_empty() {
                self.shapes.remove(&shape);
            }
        }
        Some(cluster)
    }

    /// Puts a cluster back into the sorted sets.
    fn put(&mut self, number: u32, cluster: Cluster) {
        let key = (cluster.ts, number);
        if cluster.is_drained {
            self.drained.insert(key);
        } else {
            self.shapes.entry(cluster.shape()).or_default().insert(key);
        }
        self.clusters.insert(number, cluster);
    }

    /// Checks that each cluster is sorted once, by its own facts, and that its IPD is that of its
    /// pages.
    pub(super) fn check(&self) -> Result<(), String> {
        let sorted = self.shapes.values().map(BTreeSet::len).sum::<usize>() + self.drained.len();
        if sorted != self.clusters.len() {
            return Err(format!(
                "{sorted} clusters are sorted, of {}",
                self.clusters.len()
            ));
        }
        let by_shape = self.shapes.iter().flat_map(|(&shape, clusters)| {
            let keys = clusters.iter();
            keys.map(move |&key| (key, Some(shape)))
        });
        let drained = self.drained.iter().map(|&key| (key, None));
        for ((ts, number), shape) in by_shape.chain(drained) {
            let cluster = self.clusters.get(&number).ok_or("a cluster that is gone")?;
            let pages: Vec<u32> = self
                .links
                .iter(&cluster.list)
                .map(|frame| self.pages[frame.index()].0)
                .collect();
            let ipd: u64 = pages
                .windows(2)
                .map(|pair| u64::from(pair[0].abs_diff(pair[1])))
                .sum();
            let as_sorted = match shape {
                Some(shape) => !cluster.is_drained && cluster.shape() == shape,
                None => cluster.is_drained,
            };
            let is_whole = pages.iter().all(|page| page / self.cluster_pages == number);
            if ipd != cluster.ipd || ts != cluster.ts || !as_sorted || !is_whole {
                return Err(format!("cluster {number} {cluster:?} has pages {pages:?}"));
            }
        }
        Ok(())
    }

    /// IPD, n, ts, and globaltime of a cluster, for the worked examples.
    #[cfg(test)]
    pub(super) fn facts(&self, number: u32) -> (u64, usize, u64, u64) {
        let cluster = &self.clusters[&number];
        let (ipd, _) = priority(cluster.shape(), cluster.ts, self.time);
        (ipd, cluster.list.len(), cluster.ts, self.time)
    }
}
