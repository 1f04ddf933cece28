//! The log region of a set: a head page with Bloom filters and pointers, and append-only log pages.
//! [SAL] §3.2.

use super::logs::{Change, Log};
use crate::bucket::hash;
use crate::{Key, Result, Value, damaged};
use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::units::Lpn;

layout! {
    /// The head of a log region's head page; its entries follow, one a log page, oldest first.
    pub region_head: 16 => {
        SET:   4, "the set";
        PAGES: 4, "how many log pages it has";
        LOGS:  8, "logs in all of them";
    }
}

layout! {
    /// An entry of a log region's head page; the Bloom filter of the page's keys follows.
    pub region_entry: 6 => {
        PAGE: 4, "the log page";
        LOGS: 2, "how many logs it has";
    }
}

layout! {
    /// The head of a log page; its logs follow, oldest first.
    pub log_head: 8 => {
        SET:  4, "the set";
        LOGS: 4, "how many follow";
    }
}

layout! {
    /// A log, which is a change of a key. The value follows.
    pub log_entry: 9 => {
        KIND: 1, "0 inserted, 1 changed, 2 deleted, 3 deleted and never counted";
        KEY:  8, "the key";
    }
}

/// Maximum number of filters in a head.
pub(super) const FILTERS: usize = 32;
/// Maximum number of bits per key in a filter.
const PROBES: usize = 24;

/// Layout of log regions in pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Regions {
    value_bytes: usize,
    /// Logs per page.
    pub(super) page_logs: usize,
    /// Maximum number of log pages per region: the paper's d.
    pub(super) pages: usize,
    filter_bytes: usize,
    /// Bits of a key that are looked at, and that are set: the fewest and the most that any
    /// probability makes of filters of this size. A store does not say with which it was written.
    probes: usize,
    set: usize,
}

/// The bits of a key, the same for every filter of a head.
pub(super) struct Probes {
    bits: [u16; PROBES],
}

impl Regions {
    /// Log regions whose filters have this error probability if a log page is full. `None` if a
    /// head has no room for such a filter.
    pub(super) fn new(
        page_bytes: usize,
        value_bytes: usize,
        false_positive: f64,
    ) -> Option<Regions> {
        let page_logs = (page_bytes - log_head::SIZE) / (log_entry::SIZE + value_bytes);
        let ln2 = std::f64::consts::LN_2;
        let bits = -(page_logs as f64) * false_positive.ln() / (ln2 * ln2);
        let filter_bytes = (bits / 8.0).ceil() as usize;
        let probes = |bytes: usize| {
            let probes = (bytes as f64 * 8.0 / page_logs as f64 * ln2).round();
            (probes.max(1.0) as usize).min(PROBES)
        };
        let pages = (page_bytes - region_head::SIZE) / (region_entry::SIZE + filter_bytes);
        (pages > 0 && filter_bytes <= 8191).then_some(Regions {
            value_bytes,
            page_logs,
            pages: pages.min(FILTERS),
            filter_bytes,
            probes: probes(filter_bytes.saturating_sub(1)),
            set: probes(filter_bytes),
        })
    }

    /// Size of a filter in bytes.
    pub(super) fn filter(self) -> usize {
        self.filter_bytes
    }

    /// The bits of a key.
    pub(super) fn probes(self, key: Key) -> Probes {
        // Keys of a set share the low bits of their hash, so use the product's high bits.
        let mixed = hash(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (mut at, step) = ((mixed >> 32) as u32, (mixed >> 13) as u32 | 1);
        let mut probes = Probes { bits: [0; PROBES] };
        let bits = self.filter_bytes as u64 * 8;
        for bit in &mut probes.bits[..self.set] {
            *bit = ((u64::from(at) * bits) >> 32) as u16;
            at = at.wrapping_add(step);
        }
        probes
    }

    fn entry(self, i: usize) -> usize {
        region_head::SIZE + i * (region_entry::SIZE + self.filter_bytes)
    }

    /// Initializes a region's head.
    pub(super) fn start(self, head: &mut [u8], set: u32) {
        head.fill(0);
        put(head, region_head::SET, u64::from(set));
    }

    /// Whether a page is the head of this set's region.
    pub(super) fn is_head(self, head: &[u8], set: u32) -> bool {
        get(head, region_head::SET) == u64::from(set)
            && (1..=self.pages).contains(&self.len(head))
            && self.logs(head) <= (self.pages * self.page_logs) as u64
    }

    /// Number of log pages in a region.
    pub(super) fn len(self, head: &[u8]) -> usize {
        get(head, region_head::PAGES) as usize
    }

    /// Number of logs in a region.
    pub(super) fn logs(self, head: &[u8]) -> u64 {
        get(head, region_head::LOGS)
    }

    /// A log page, and its number of logs.
    pub(super) fn page(self, head: &[u8], i: usize) -> (Lpn, usize) {
        let entry = &head[self.entry(i)..];
        let page = Lpn(get(entry, region_entry::PAGE) as u32);
        (page, get(entry, region_entry::LOGS) as usize)
    }

    /// Records a new, empty log page.
    pub(super) fn add_page(self, head: &mut [u8], page: Lpn) {
        let i = self.len(head);
        let at = self.entry(i);
        put(&mut head[at..], region_entry::PAGE, u64::from(page.0));
        put(&mut head[at..], region_entry::LOGS, 0);
        put(head, region_head::PAGES, i as u64 + 1);
    }

    /// Records in a region's head that logs were added to its last log page: number and filter.
    pub(super) fn note(self, head: &mut [u8], logs: &[Log]) {
        let last = self.len(head) - 1;
        let at = self.entry(last);
        let (_, before) = self.page(head, last);
        let filter = at + region_entry::SIZE;
        for log in logs {
            let probes = self.probes(log.key);
            for &bit in &probes.bits[..self.set] {
                head[filter + usize::from(bit / 8)] |= 1 << (bit % 8);
            }
        }
        put(
            &mut head[at..],
            region_entry::LOGS,
            (before + logs.len()) as u64,
        );
        let all = self.logs(head) + logs.len() as u64;
        put(head, region_head::LOGS, all);
    }

    /// Whether the page may have the key, by its filter.
    #[inline]
    pub(super) fn may_have(self, head: &[u8], i: usize, probes: &Probes) -> bool {
        let filter = &head[self.entry(i) + region_entry::SIZE..][..self.filter_bytes];
        let mut bits = probes.bits[..self.probes].iter();
        bits.all(|&bit| filter[usize::from(bit / 8)] & (1 << (bit % 8)) != 0)
    }

    /// Appends logs to a log page with room for them.
    pub(super) fn append(self, page: &mut [u8], set: u32, logs: &[Log]) {
        let before = get(page, log_head::LOGS) as usize;
        let size = log_entry::SIZE + self.value_bytes;
        for (i, log) in logs.iter().enumerate() {
            let entry = &mut page[log_head::SIZE + (before + i) * size..][..size];
            put(entry, log_entry::KIND, log.change as u64);
            put(entry, log_entry::KEY, log.key);
            put(entry, log_entry::SIZE..size, log.value);
        }
        put(page, log_head::SET, u64::from(set));
        put(page, log_head::LOGS, (before + logs.len()) as u64);
    }

    /// Logs of a page, newest first.
    pub(super) fn iter(self, page: &[u8]) -> impl Iterator<Item = Log> + '_ {
        let size = log_entry::SIZE + self.value_bytes;
        let len = (get(page, log_head::LOGS) as usize).min(self.page_logs);
        let entries = page[log_head::SIZE..].chunks_exact(size).take(len).rev();
        entries.map(move |entry| Log {
            key: get(entry, log_entry::KEY),
            value: get(entry, log_entry::SIZE..size),
            change: Change::from_bits(get(entry, log_entry::KIND) as u32),
        })
    }

    /// The newest log of a key in a page, if there is one: its value, or `None` for a deletion.
    /// Also returns the number of keys compared.
    #[inline]
    pub(super) fn find(self, page: &[u8], key: Key) -> (Option<Option<Value>>, u64) {
        let mut compared = 0;
        for log in self.iter(page) {
            compared += 1;
            if log.key == key {
                return (Some(log.found()), compared);
            }
        }
        (None, compared)
    }

    /// Whether a log page belongs to this set and has `logs` logs.
    pub(super) fn is_page(self, page: &[u8], set: u32, logs: usize) -> bool {
        get(page, log_head::SET) == u64::from(set) && get(page, log_head::LOGS) as usize == logs
    }

    /// Validates a log page that was read.
    ///
    /// # Errors
    /// It is not such a page.
    pub(super) fn check_page(self, page: &[u8], set: u32, at: Lpn, logs: usize) -> Result<()> {
        if self.is_page(page, set, logs) {
            return Ok(());
        }
        damaged(
            at,
            format!("it is not a log page of set {set} with {logs} logs"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(key: Key) -> Log {
        Log {
            key,
            value: key + 1,
            change: Change::Insert,
        }
    }

    #[test]
    fn a_page_of_the_paper_has_as_many_filters_as_a_head_holds() {
        let regions = Regions::new(4096, 8, 0.01).expect("room");
        assert_eq!((regions.page_logs, regions.probes), (240, 7));
        // D6: a byte more than a record on flash, four in memory.
        assert_eq!((4096 - log_head::SIZE) / 240, 17);
        assert_eq!(super::super::logs::ENTRY_BYTES, 20);
        assert_eq!((regions.filter_bytes, regions.pages), (288, 13));
        assert!(Regions::new(256, 8, 1e-70).is_none());
    }

    #[test]
    fn filters_miss_no_key_and_fire_about_as_often_as_they_should() {
        let regions = Regions::new(4096, 8, 0.01).expect("room");
        let mut head = vec![0; 4096];
        regions.start(&mut head, 3);
        let logs: Vec<Log> = (0..240).map(|i| log(i * 7)).collect();
        regions.add_page(&mut head, Lpn(9));
        regions.note(&mut head, &logs[..100]);
        regions.note(&mut head, &logs[100..]);
        assert_eq!(regions.page(&head, 0), (Lpn(9), 240));
        for log in &logs {
            assert!(regions.may_have(&head, 0, &regions.probes(log.key)));
        }
        let others = (0..20_000).map(|i| i * 7 + 1);
        let fired = others.filter(|&key| regions.may_have(&head, 0, &regions.probes(key)));
        let rate = fired.count() as f64 / 20_000.0;
        assert!((0.005..0.02).contains(&rate), "{rate}");
    }

    #[test]
    fn the_newest_log_of_a_key_is_found() {
        let regions = Regions::new(256, 8, 0.01).expect("room");
        let mut page = vec![0; 256];
        regions.append(&mut page, 1, &[log(5), log(6)]);
        let gone = Log {
            change: Change::Delete,
            ..log(5)
        };
        regions.append(&mut page, 1, &[gone]);
        assert_eq!(regions.find(&page, 5), (Some(None), 1));
        assert_eq!(regions.find(&page, 6), (Some(Some(7)), 2));
        assert_eq!(regions.find(&page, 7), (None, 3));
    }
}
