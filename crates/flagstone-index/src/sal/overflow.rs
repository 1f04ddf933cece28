//! Locates the second halves of virtually split buckets: one bit per bucket, and entries in memory
//! pages shared by several segments of 1024 buckets until a page is full. [SAL] §3.4.
//!
//! A cluster is a run of segments with at most one memory page between them. The page has counters
//! of eight sub-clusters, followed by the entries of each sub-cluster: a bucket's label within it,
//! and a page number. A cluster of one segment needs no labels: it is an array.

use super::analysis;
use flagstone::units::Lpn;

/// Buckets per segment.
const SEGMENT: u32 = 1024;
/// Size of a memory page, independent of the store's page size.
const PAGE: usize = 4096;
/// Binary logarithm of the number of sub-clusters.
const K: u32 = 3;
/// Bits before the counters, for the cluster's start and length.
const START: usize = 32;
const COUNTER: usize = 10;
const ENTRIES: usize = START + (COUNTER << K);

type Page = Box<[u64; PAGE / 8]>;

#[derive(Debug)]
struct Cluster {
    /// The first segment.
    start: u32,
    /// Binary logarithm of the number of segments.
    bits: u32,
    len: usize,
    /// Present while there are entries.
    page: Option<Page>,
}

/// The index of overflow pages.
#[derive(Debug)]
pub(super) struct Overflows {
    /// One bit per bucket.
    split: Vec<u64>,
    /// Cover all segments, in order.
    clusters: Vec<Cluster>,
    segments: u32,
    entries: usize,
    /// How often a cluster's page was full.
    splits: u64,
}

fn get(page: &Page, at: usize, bits: usize) -> u64 {
    let (word, shift) = (at / 64, at % 64);
    let mut value = page[word] >> shift;
    if shift + bits > 64 {
        value |= page[word + 1] << (64 - shift);
    }
    value & ((1 << bits) - 1)
}

fn put(page: &mut Page, at: usize, bits: usize, value: u64) {
    let (word, shift) = (at / 64, at % 64);
    let mask = (1u64 << bits) - 1;
    page[word] = (page[word] & !(mask << shift)) | (value << shift);
    if shift + bits > 64 {
        let kept = 64 - shift;
        page[word + 1] = (page[word + 1] & !(mask >> kept)) | (value >> kept);
    }
}

impl Cluster {
    fn empty(start: u32, bits: u32) -> Cluster {
        Cluster {
            start,
            bits,
            len: 0,
            page: None,
        }
    }

    /// Bits of a label in a sub-cluster.
    fn label(&self) -> usize {
        (10 + self.bits - K) as usize
    }

    fn entry(&self) -> usize {
        self.label() + 32
    }

    fn is_full(&self) -> bool {
        // As many segments as make the formula's head as long as this one.
        let segments = 1u32 << (START / 2);
        let room = analysis::shared_page_entries(K, PAGE as u32, segments, 1 << self.bits);
        self.bits > 0 && self.len >= room as usize
    }

    /// The entry range of a bucket's sub-cluster, and the bucket's label there.
    fn range(&self, bucket: u32) -> (usize, usize, u64) {
        let offset = bucket - self.start * SEGMENT;
        let sub = (offset >> self.label()) as usize;
        let page = self.page.as_ref().expect("it has entries");
        let counter = |i| get(page, START + i * COUNTER, COUNTER) as usize;
        let from: usize = (0..sub).map(counter).sum();
        let label = u64::from(offset) & ((1 << self.label()) - 1);
        (from, from + counter(sub), label)
    }

    /// The position of a bucket's entry in a shared page.
    fn position(&self, bucket: u32) -> Option<usize> {
        let (from, to, label) = self.range(bucket);
        let page = self.page.as_ref()?;
        (from..to).find(|&i| get(page, ENTRIES + i * self.entry(), self.label()) == label)
    }

    fn find(&self, bucket: u32) -> Option<Lpn> {
        let page = self.page.as_ref()?;
        let at = if self.bits == 0 {
            (bucket - self.start * SEGMENT) as usize * 32
        } else {
            ENTRIES + self.position(bucket)? * self.entry() + self.label()
        };
        Some(Lpn(get(page, at, 32) as u32))
    }

    /// Adds `by` to the numbers of entries of the cluster and of a bucket's sub-cluster.
    fn count(&mut self, bucket: u32, by: i64) {
        self.len = (self.len as i64 + by) as usize;
        let sub = ((bucket - self.start * SEGMENT) >> self.label()) as usize;
        if let (true, Some(page)) = (self.bits > 0, self.page.as_mut()) {
            let at = START + sub * COUNTER;
            let count = get(page, at, COUNTER) as i64 + by;
            put(page, at, COUNTER, count as u64);
        }
    }

    /// Adds a bucket's entry: in its place in the array, or after those of its sub-cluster.
    fn insert(&mut self, bucket: u32, to: Lpn) {
        self.page.get_or_insert_with(|| Box::new([0; PAGE / 8]));
        let (entry, label_bits) = (self.entry(), self.label());
        if self.bits == 0 {
            let at = (bucket - self.start * SEGMENT) as usize * 32;
            let page = self.page.as_mut().expect("it was made");
            put(page, at, 32, u64::from(to.0));
        } else {
            let (_, end, label) = self.range(bucket);
            let len = self.len;
            let page = self.page.as_mut().expect("it was made");
            for i in (end..len).rev() {
                let moved = get(page, ENTRIES + i * entry, entry);
                put(page, ENTRIES + (i + 1) * entry, entry, moved);
            }
            let whole = label | u64::from(to.0) << label_bits;
            put(page, ENTRIES + end * entry, entry, whole);
        }
        self.count(bucket, 1);
    }

    /// Removes a bucket's entry, and the page with the last one.
    fn remove(&mut self, bucket: u32) {
        if self.bits > 0 {
            let entry = self.entry();
            let at = self.position(bucket).expect("an entry that is there");
            let len = self.len;
            let page = self.page.as_mut().expect("it has entries");
            for i in at + 1..len {
                let moved = get(page, ENTRIES + i * entry, entry);
                put(page, ENTRIES + (i - 1) * entry, entry, moved);
            }
        }
        self.count(bucket, -1);
        if self.len == 0 {
            self.page = None;
        }
    }
}

impl Overflows {
    /// An empty index.
    pub(super) fn new() -> Overflows {
        Overflows {
            split: Vec::new(),
            clusters: vec![Cluster::empty(0, 0)],
            segments: 1,
            entries: 0,
            splits: 0,
        }
    }

    /// Makes room for buckets below `buckets`.
    pub(super) fn grow(&mut self, buckets: u32) {
        self.split.resize(buckets.div_ceil(64) as usize, 0);
        while self.segments * SEGMENT < buckets {
            let bits = self.segments.trailing_zeros();
            match &mut self.clusters[..] {
                // An empty cluster of all segments covers the new ones as well.
                [all] if all.len == 0 => all.bits += 1,
                _ => self.clusters.push(Cluster::empty(self.segments, bits)),
            }
            self.segments *= 2;
        }
    }

    /// Whether a bucket is virtually split.
    #[inline]
    pub(super) fn has(&self, bucket: u32) -> bool {
        let word = self.split.get(bucket as usize / 64);
        word.is_some_and(|word| word >> (bucket % 64) & 1 == 1)
    }

    fn cluster(&self, bucket: u32) -> usize {
        let segment = bucket / SEGMENT;
        self.clusters
            .partition_point(|cluster| cluster.start <= segment)
            - 1
    }

    /// The page with the second half of a bucket.
    #[inline]
    pub(super) fn find(&self, bucket: u32) -> Option<Lpn> {
        if !self.has(bucket) {
            return None;
        }
        self.clusters[self.cluster(bucket)].find(bucket)
    }

    /// Adds the page with the second half of a bucket that has none yet.
    pub(super) fn insert(&mut self, bucket: u32, page: Lpn) {
        debug_assert!(!self.has(bucket));
        let mut i = self.cluster(bucket);
        while self.clusters[i].is_full() {
            self.divide(i);
            i = self.cluster(bucket);
        }
        self.clusters[i].insert(bucket, page);
        self.split[bucket as usize / 64] |= 1 << (bucket % 64);
        self.entries += 1;
    }

    /// Gives each half of a cluster its own page.
    fn divide(&mut self, i: usize) {
        let old = &self.clusters[i];
        let half = old.bits - 1;
        let middle = old.start + (1 << half);
        let mut halves = [
            Cluster::empty(old.start, half),
            Cluster::empty(middle, half),
        ];
        let end = (middle + (1 << half)) * SEGMENT;
        for bucket in old.start * SEGMENT..end {
            if let (true, Some(page)) = (self.has(bucket), old.find(bucket)) {
                halves[usize::from(bucket / SEGMENT >= middle)].insert(bucket, page);
            }
        }
        self.clusters.splice(i..=i, halves);
        self.splits += 1;
    }

    /// Removes and returns the page with the second half of a bucket.
    pub(super) fn remove(&mut self, bucket: u32) -> Option<Lpn> {
        let page = self.find(bucket)?;
        let mut i = self.cluster(bucket);
        self.clusters[i].remove(bucket);
        self.split[bucket as usize / 64] &= !(1 << (bucket % 64));
        self.entries -= 1;
        // Join two empty halves again.
        while self.clusters[i].len == 0 {
            let Cluster { start, bits, .. } = self.clusters[i];
            let buddy = start ^ (1 << bits);
            let is_buddy =
                |other: &Cluster| other.start == buddy && other.bits == bits && other.len == 0;
            let first = i - usize::from(buddy < start && i > 0);
            let other = if buddy < start { first } else { i + 1 };
            if other == i || !self.clusters.get(other).is_some_and(is_buddy) {
                break;
            }
            let joined = Cluster::empty(start.min(buddy), bits + 1);
            self.clusters.splice(first..first + 2, [joined]);
            i = first;
        }
        Some(page)
    }

    /// All entries, by bucket.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Lpn)> + '_ {
        let buckets = 0..self.split.len() as u32 * 64;
        buckets.filter_map(|bucket| Some((bucket, self.find(bucket)?)))
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Number of memory pages.
    pub(super) fn pages(&self) -> usize {
        self.clusters.iter().filter(|c| c.page.is_some()).count()
    }

    /// How often a cluster was divided.
    pub(super) fn splits(&self) -> u64 {
        self.splits
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        let clusters = self.clusters.capacity() * size_of::<Cluster>();
        (self.pages() * PAGE + self.split.capacity() * 8 + clusters) as u64
    }

    /// Checks that clusters cover all segments, and every bit has its entry.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut next = 0;
        for cluster in &self.clusters {
            if cluster.start != next {
                return Err(format!("a cluster begins at segment {}", cluster.start));
            }
            next = cluster.start + (1 << cluster.bits);
        }
        let found = self.iter().count();
        let bits: u32 = self.split.iter().map(|word| word.count_ones()).sum();
        let len: usize = self.clusters.iter().map(|cluster| cluster.len).sum();
        if next != self.segments || [found, bits as usize, len] != [self.entries; 3] {
            return Err(format!(
                "the overflow index has {} entries, and finds {found} of {bits} bits",
                self.entries
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::dice::Dice;
    use std::collections::BTreeMap;

    fn agree(overflows: &Overflows, map: &BTreeMap<u32, Lpn>) {
        overflows.check().expect("whole");
        assert!(overflows.iter().eq(map.iter().map(|(&b, &p)| (b, p))));
    }

    #[test]
    fn entries_come_back_from_any_history() {
        let mut dice = Dice(7);
        let (mut overflows, mut map) = (Overflows::new(), BTreeMap::new());
        let mut buckets = 1000;
        for round in 0..60u32 {
            if round % 6 == 5 && buckets < 60_000 {
                buckets *= 2;
            }
            overflows.grow(buckets);
            for _ in 0..400 {
                let bucket = dice.below(u64::from(buckets)) as u32;
                if round % 9 < 6 {
                    let page = Lpn(dice.next() as u32);
                    assert_eq!(overflows.remove(bucket), map.insert(bucket, page));
                    overflows.insert(bucket, page);
                } else {
                    let near = map.range(bucket..).next().map(|(&near, _)| near);
                    let bucket = near.unwrap_or(bucket);
                    assert_eq!(overflows.remove(bucket), map.remove(&bucket));
                }
            }
            agree(&overflows, &map);
        }
        assert!(overflows.splits() > 0);
        for bucket in map.keys() {
            overflows.remove(*bucket);
        }
        assert_eq!((overflows.len(), overflows.pages()), (0, 0));
    }

    #[test]
    fn a_full_page_divides_its_cluster_until_segments_have_their_own() {
        let mut overflows = Overflows::new();
        overflows.grow(16 * SEGMENT);
        let room = analysis::shared_page_entries(K, 4096, 1 << 16, 16) as u32;
        for bucket in 0..room {
            overflows.insert(bucket * 16, Lpn(bucket));
        }
        assert_eq!(overflows.pages(), 1, "{room} entries fit a page");
        overflows.insert(1, Lpn(1));
        assert_eq!((overflows.pages(), overflows.splits()), (2, 1));
        for bucket in 0..16 * SEGMENT {
            if !overflows.has(bucket) {
                overflows.insert(bucket, Lpn(bucket));
            }
        }
        assert_eq!(overflows.pages(), 16, "four bytes an entry: the optimum");
        overflows.check().expect("whole");
    }
}
