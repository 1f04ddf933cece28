//! Bucket pages of hash indexes: records in any order, and the number of the bucket's next page.
//! Also the hash function of all hash indexes.

use super::{Cache, IndexError, Key, Result, Value, damaged};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};

layout! {
    /// The head of a bucket page; the records follow, each a key of 8 bytes and a value of as many
    /// as the index has.
    pub bucket_head: 12 => {
        RECORDS: 2, "how many follow";
        TAG:     2, "what the index keeps of the bucket, such as its depth";
        NEXT:    4, "the page with the records that found no room, 0 if all did";
        PREV:    4, "the page before it, where an index links both ways; 0 in the first";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[bucket_head::RECORD];

/// Hashes keys to 64 bits, identically on every machine (the finaliser of MurmurHash3).
#[inline]
pub fn hash(key: Key) -> u64 {
    let mut x = key;
    x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}

/// The bucket of a hash among `buckets`: its lowest bits, as many as the last bucket's number has,
/// or one bit less if that bucket does not exist yet. The function h of [SAL] §3.1.
#[inline]
pub(super) fn address(hash: u64, buckets: u32) -> u32 {
    let mask = u32::MAX.checked_shr((buckets - 1).leading_zeros());
    let mask = mask.unwrap_or(0);
    let bucket = hash as u32 & mask;
    if bucket < buckets {
        bucket
    } else {
        bucket & (mask >> 1)
    }
}

/// Counts a page of a list that names a next page: no list has more overflow pages than exist.
///
/// # Errors
/// It has more, so the list is a cycle.
#[inline]
pub(super) fn pass(passed: &mut u64, overflow: u64, at: Lpn) -> Result<()> {
    *passed += 1;
    if *passed > overflow {
        return damaged(at, "its list of overflow pages has no end");
    }
    Ok(())
}

/// The result of a search along a list of bucket pages: the page of the key, or the last page; and
/// the slot in it, with the value.
pub(super) type Seat = (Lpn, Option<(usize, Value)>);

/// Searches a list of at most `overflow` overflow pages, starting at page `at`. `find` returns the
/// slot of the key in a page, and the number of keys compared.
///
/// # Errors
/// A page is not a bucket, the list is a cycle, or the store cannot continue.
#[inline]
pub(super) fn walk(
    cache: &mut Cache,
    shape: Shape,
    mut now: Nanos,
    mut at: Lpn,
    overflow: u64,
    mut find: impl FnMut(Lpn, &[u8]) -> (Option<usize>, u64),
) -> Result<(Seat, Nanos)> {
    let mut passed = 0;
    loop {
        let (page, done) = cache.read(now, at)?;
        shape.check_read(page, at)?;
        let (slot, compared) = find(at, page);
        let record = slot.map(|slot| (slot, shape.record(page, slot).1));
        let next = shape.next(page);
        now = done;
        cache.compared(compared);
        match next {
            Some(next) if record.is_none() => {
                pass(&mut passed, overflow, at)?;
                at = next;
            }
            _ => return Ok(((at, record), now)),
        }
    }
}

/// The position of a key among records of `BYTES` bytes. Compares eight at a time without branches,
/// which the compiler vectorizes.
#[inline]
fn position<const BYTES: usize>(records: &[u8], key: Key) -> Option<usize> {
    let same = |record: &[u8; BYTES]| get(record, 0..8) == key;
    let (records, _) = records.as_chunks::<BYTES>();
    let (blocks, rest) = records.as_chunks::<8>();
    for (i, block) in blocks.iter().enumerate() {
        if block.iter().fold(false, |any, record| any | same(record)) {
            return Some(i * 8 + block.iter().position(same)?);
        }
    }
    let slot = rest.iter().position(same)?;
    Some(blocks.len() * 8 + slot)
}

/// Layout of records in a bucket page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    value_bytes: usize,
    capacity: usize,
}

impl Shape {
    pub(super) fn new(page_bytes: usize, value_bytes: usize) -> Shape {
        Shape {
            value_bytes,
            capacity: (page_bytes - bucket_head::SIZE) / (8 + value_bytes),
        }
    }

    /// Number of records per page.
    pub(super) fn capacity(self) -> usize {
        self.capacity
    }

    fn at(self, slot: usize) -> usize {
        bucket_head::SIZE + slot * (8 + self.value_bytes)
    }

    pub(super) fn len(self, page: &[u8]) -> usize {
        get(page, bucket_head::RECORDS) as usize
    }

    pub(super) fn is_full(self, page: &[u8]) -> bool {
        self.len(page) == self.capacity
    }

    /// The next page of the bucket, with records that did not fit here.
    pub(super) fn next(self, page: &[u8]) -> Option<Lpn> {
        let next = get(page, bucket_head::NEXT) as u32;
        (next != 0).then_some(Lpn(next))
    }

    pub(super) fn set_next(self, page: &mut [u8], next: Option<Lpn>) {
        put(
            page,
            bucket_head::NEXT,
            next.map_or(0, |page| u64::from(page.0)),
        );
    }

    /// The previous page.
    pub(super) fn prev(self, page: &[u8]) -> Option<Lpn> {
        let prev = get(page, bucket_head::PREV) as u32;
        (prev != 0).then_some(Lpn(prev))
    }

    pub(super) fn set_prev(self, page: &mut [u8], prev: Lpn) {
        put(page, bucket_head::PREV, u64::from(prev.0));
    }

    pub(super) fn tag(self, page: &[u8]) -> u16 {
        get(page, bucket_head::TAG) as u16
    }

    pub(super) fn set_tag(self, page: &mut [u8], tag: u16) {
        put(page, bucket_head::TAG, u64::from(tag));
    }

    /// The slot of a key.
    #[inline]
    pub(super) fn find(self, page: &[u8], key: Key) -> Option<usize> {
        let records = &page[bucket_head::SIZE..self.at(self.len(page))];
        match self.value_bytes {
            8 => position::<16>(records, key),
            4 => position::<12>(records, key),
            _ => {
                let wanted = key.to_le_bytes();
                records
                    .chunks_exact(8 + self.value_bytes)
                    .position(|record| record[..8] == wanted)
            }
        }
    }

    /// The slot of a key, and the number of keys compared.
    #[inline]
    pub(super) fn search(self, page: &[u8], key: Key) -> (Option<usize>, u64) {
        let slot = self.find(page, key);
        let compared = slot.map_or(self.len(page), |slot| slot + 1);
        (slot, compared as u64)
    }

    /// The key in a slot.
    #[inline]
    pub(super) fn key(self, page: &[u8], slot: usize) -> Key {
        let at = self.at(slot);
        get(page, at..at + 8)
    }

    /// The record in a slot.
    #[inline]
    pub(super) fn record(self, page: &[u8], slot: usize) -> (Key, Value) {
        let at = self.at(slot);
        (
            get(page, at..at + 8),
            get(page, at + 8..at + 8 + self.value_bytes),
        )
    }

    /// All records.
    pub(super) fn records(self, page: &[u8]) -> impl Iterator<Item = (Key, Value)> + '_ {
        (0..self.len(page)).map(move |slot| self.record(page, slot))
    }

    /// Replaces the value of the key in a slot.
    pub(super) fn replace(self, page: &mut [u8], slot: usize, value: Value) {
        let at = self.at(slot) + 8;
        put(page, at..at + self.value_bytes, value);
    }

    /// Appends a record.
    ///
    /// # Panics
    /// The page is full.
    pub(super) fn push(self, page: &mut [u8], key: Key, value: Value) {
        let len = self.len(page);
        assert!(len < self.capacity, "the bucket is full");
        let at = self.at(len);
        put(page, at..at + 8, key);
        put(page, bucket_head::RECORDS, len as u64 + 1);
        self.replace(page, len, value);
    }

    /// Removes the record in a slot; the last one takes its place.
    pub(super) fn remove(self, page: &mut [u8], slot: usize) {
        let last = self.len(page) - 1;
        let (from, to, len) = (self.at(last), self.at(slot), 8 + self.value_bytes);
        page.copy_within(from..from + len, to);
        put(page, bucket_head::RECORDS, last as u64);
    }

    /// Checks whether a page can be a bucket.
    ///
    /// # Errors
    /// Says why it cannot.
    pub(super) fn check(self, page: &[u8]) -> Result<(), String> {
        if self.len(page) > self.capacity {
            return Err(format!(
                "a bucket page says that it has {} records, at most {} fit",
                self.len(page),
                self.capacity
            ));
        }
        Ok(())
    }

    /// Checks a page that was read, so that an excessive record count is never used.
    ///
    /// # Errors
    /// The page is not a bucket.
    #[inline]
    pub(super) fn check_read(self, page: &[u8], at: Lpn) -> Result<()> {
        self.check(page)
            .map_err(|why| IndexError::Damaged { at, why })
    }
}
