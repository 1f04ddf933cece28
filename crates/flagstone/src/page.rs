//! Pages of records: the contents of a logical page of a database.
//!
//! This module lies below the commit protocols, because some of them commit records (\[FlagCommit]
//! §4.2) and merge versions of a page record by record.
//!
//! ```text
//!  | head: lsn, records | slot, length, bytes | slot, length, bytes | ...   by slot, no gaps
//! ```
//!
//! A record is identified by its slot, which never changes. Removing a record frees its slot. An
//! image is as long as its records need. An empty image is a page without records.
//!
//! ```
//! use flagstone::page::{Page, PageError};
//!
//! let mut page = Page::default();
//! page.put(3, b"a record", 4096)?;
//! let mut image = Vec::new();
//! page.emit(4096, &mut image)?;
//! assert_eq!(Page::parse(&image)?.get(3), Some(&b"a record"[..]));
//! # Ok::<(), PageError>(())
//! ```

use crate::layout;
use crate::layout::{Layout, get, put};
use std::fmt;

layout! {
    /// The head of a page of records.
    pub page_head: 10 => {
        LSN:     8, "the last log record that changed the page; 0 if none did";
        RECORDS: 2, "how many follow";
    }
}

layout! {
    /// The head of a record in a page.
    pub record_head: 4 => {
        SLOT:  2, "by which the record is known";
        BYTES: 2, "bytes that follow";
    }
}

/// Records that this module keeps on flash.
pub const LAYOUTS: &[Layout] = &[page_head::RECORD, record_head::RECORD];

/// The number of a record in its page.
///
/// Example: [`Page`].
pub type SlotNo = u16;

/// Why bytes are not a valid page, or a record does not fit.
///
/// ```
/// use flagstone::page::{Page, PageError};
///
/// assert_eq!(Page::parse(&[1, 2, 3]).err(), Some(PageError::Damaged { at: 0 }));
/// let full = Page::default().put(0, &[0; 60], 64).unwrap_err();
/// assert!(matches!(full, PageError::Full { page_bytes: 64, .. }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// The image ends early, or its slots do not ascend.
    Damaged {
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The page has no room.
    Full {
        /// Bytes that the page would need.
        needed: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageError::Damaged { at } => write!(f, "no page of records: wrong at byte {at}"),
            PageError::Full { needed, page_bytes } => write!(
                f,
                "the records of the page would take {needed} bytes, a page has {page_bytes}"
            ),
        }
    }
}

impl std::error::Error for PageError {}

#[derive(Debug, Clone, Copy)]
struct Extent {
    slot: SlotNo,
    len: u16,
    start: u32,
}

/// A page of records in memory.
///
/// ```
/// use flagstone::page::{Page, PageError, SlotNo};
///
/// const SLOT: SlotNo = 3;
/// let mut page = Page::default();
/// page.put(SLOT, b"old", 4096)?;
/// page.put(SLOT, b"new", 4096)?;
/// page.set_lsn(17);
/// assert_eq!((page.get(SLOT), page.lsn()), (Some(&b"new"[..]), 17));
/// assert!(page.remove(SLOT));
/// assert_eq!(page.records().count(), 0);
/// # Ok::<(), PageError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Page {
    lsn: u64,
    /// Extents of the records, by slot.
    entries: Vec<Extent>,
    /// The records' bytes in any order, with gaps where records were replaced.
    bytes: Vec<u8>,
    /// Bytes of `bytes` that belong to a record.
    used: usize,
}

impl Page {
    /// Decodes an image. Ignores bytes after the last record.
    ///
    /// # Errors
    /// [`PageError::Damaged`].
    pub fn parse(image: &[u8]) -> Result<Page, PageError> {
        let mut page = Page::default();
        if image.is_empty() {
            return Ok(page);
        }
        let damaged = |at| PageError::Damaged { at };
        let head = image.get(..page_head::SIZE).ok_or(damaged(0))?;
        page.lsn = get(head, page_head::LSN);
        let mut at = page_head::SIZE;
        for _ in 0..get(head, page_head::RECORDS) {
            let head = image.get(at..at + record_head::SIZE).ok_or(damaged(at))?;
            let slot = get(head, record_head::SLOT) as SlotNo;
            let len = get(head, record_head::BYTES) as u16;
            if page.entries.last().is_some_and(|last| last.slot >= slot) {
                return Err(damaged(at));
            }
            let start = at + record_head::SIZE;
            let bytes = image.get(start..start + usize::from(len));
            page.entries.push(Extent {
                slot,
                len,
                start: page.bytes.len() as u32,
            });
            page.bytes.extend_from_slice(bytes.ok_or(damaged(start))?);
            at = start + usize::from(len);
        }
        page.used = page.bytes.len();
        Ok(page)
    }

    /// Encodes the page into `image`, replacing its contents.
    ///
    /// # Errors
    /// [`PageError::Full`] if the records take more than `page_bytes`.
    pub fn emit(&self, page_bytes: usize, image: &mut Vec<u8>) -> Result<(), PageError> {
        let needed = self.image_bytes();
        if needed > page_bytes {
            return Err(PageError::Full { needed, page_bytes });
        }
        image.clear();
        image.resize(page_head::SIZE, 0);
        put(image, page_head::LSN, self.lsn);
        put(image, page_head::RECORDS, self.entries.len() as u64);
        for (slot, bytes) in self.records() {
            let mut head = [0; record_head::SIZE];
            put(&mut head, record_head::SLOT, slot.into());
            put(&mut head, record_head::BYTES, bytes.len() as u64);
            image.extend_from_slice(&head);
            image.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Size of the image in bytes.
    pub fn image_bytes(&self) -> usize {
        page_head::SIZE + self.entries.len() * record_head::SIZE + self.used
    }

    /// LSN of the last log record that changed the page; 0 if none did.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Sets the LSN of the log record that changed the page.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.lsn = lsn;
    }

    fn place(&self, slot: SlotNo) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&slot, |entry| entry.slot)
    }

    fn bytes_of(&self, entry: Extent) -> &[u8] {
        &self.bytes[entry.start as usize..][..usize::from(entry.len)]
    }

    /// The record in a slot, if there is one.
    pub fn get(&self, slot: SlotNo) -> Option<&[u8]> {
        let place = self.place(slot).ok()?;
        Some(self.bytes_of(self.entries[place]))
    }

    /// Sets the record in a slot, replacing any previous one.
    ///
    /// # Errors
    /// [`PageError::Full`] if the image would be too long, or have more than 65,535 records; the
    /// page is unchanged.
    pub fn put(&mut self, slot: SlotNo, record: &[u8], page_bytes: usize) -> Result<(), PageError> {
        let place = self.place(slot);
        let before = match place {
            Ok(place) => usize::from(self.entries[place].len) + record_head::SIZE,
            Err(_) => 0,
        };
        let needed = self.image_bytes() - before + record_head::SIZE + record.len();
        // The head of a page has two bytes for the number of records, and that of a record for its
        // length.
        let most = usize::from(u16::MAX);
        let is_one_more = place.is_err() && self.entries.len() == most;
        if needed > page_bytes || record.len() > most || is_one_more {
            return Err(PageError::Full { needed, page_bytes });
        }
        if let Ok(place) = place {
            let entry = &mut self.entries[place];
            if usize::from(entry.len) >= record.len() {
                self.used -= usize::from(entry.len) - record.len();
                entry.len = record.len() as u16;
                self.bytes[entry.start as usize..][..record.len()].copy_from_slice(record);
                return Ok(());
            }
            self.used -= usize::from(entry.len);
        }
        if self.bytes.len() > 2 * page_bytes {
            self.close_gaps();
        }
        let entry = Extent {
            slot,
            len: record.len() as u16,
            start: self.bytes.len() as u32,
        };
        self.bytes.extend_from_slice(record);
        self.used += record.len();
        match place {
            Ok(place) => self.entries[place] = entry,
            Err(place) => self.entries.insert(place, entry),
        }
        Ok(())
    }

    /// Removes the record in a slot. Returns whether there was one.
    pub fn remove(&mut self, slot: SlotNo) -> bool {
        match self.place(slot) {
            Ok(place) => {
                self.used -= usize::from(self.entries.remove(place).len);
                true
            }
            Err(_) => false,
        }
    }

    /// Sets or removes the record in a slot.
    ///
    /// # Errors
    /// As [`Page::put`].
    pub fn set(
        &mut self,
        slot: SlotNo,
        record: Option<&[u8]>,
        page_bytes: usize,
    ) -> Result<(), PageError> {
        match record {
            Some(record) => self.put(slot, record, page_bytes),
            None => {
                self.remove(slot);
                Ok(())
            }
        }
    }

    /// Copies a slot from another page. If that page has no such record, removes it.
    ///
    /// # Errors
    /// As [`Page::put`].
    pub fn copy_from(
        &mut self,
        other: &Page,
        slot: SlotNo,
        page_bytes: usize,
    ) -> Result<(), PageError> {
        match other.get(slot) {
            Some(record) => self.put(slot, record, page_bytes),
            None => {
                self.remove(slot);
                Ok(())
            }
        }
    }

    /// All records, by slot.
    pub fn records(&self) -> impl Iterator<Item = (SlotNo, &[u8])> {
        let pair = |&entry: &Extent| (entry.slot, self.bytes_of(entry));
        self.entries.iter().map(pair)
    }

    fn close_gaps(&mut self) {
        let mut bytes = Vec::with_capacity(self.used);
        for entry in &mut self.entries {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(&self.bytes[entry.start as usize..][..usize::from(entry.len)]);
            entry.start = start;
        }
        self.bytes = bytes;
    }
}

impl PartialEq for Page {
    fn eq(&self, other: &Page) -> bool {
        self.lsn == other.lsn && self.records().eq(other.records())
    }
}

impl Eq for Page {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const BYTES: usize = 200;

    fn image(page: &Page) -> Vec<u8> {
        let mut image = Vec::new();
        page.emit(BYTES, &mut image).unwrap();
        image
    }

    /// Random puts and removes, compared with a map; the image is encoded and decoded at each step.
    #[test]
    fn a_page_is_a_map_from_slots_to_records_with_a_limit() {
        let (mut page, mut model) = (Page::default(), BTreeMap::<SlotNo, Vec<u8>>::new());
        let (mut word, mut refused) = (1u64, 0);
        for step in 0..20_000u64 {
            word = word
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (slot, len) = ((word >> 33) as u16 % 12, (word >> 50) as usize % 40);
            if word >> 61 == 0 {
                assert_eq!(page.remove(slot), model.remove(&slot).is_some());
            } else {
                let record = vec![step as u8; len];
                let mut wanted = model.clone();
                wanted.insert(slot, record.clone());
                let bytes: usize = wanted.values().map(|r| r.len() + record_head::SIZE).sum();
                let fits = page_head::SIZE + bytes <= BYTES;
                assert_eq!(page.put(slot, &record, BYTES).is_ok(), fits);
                if fits { model = wanted } else { refused += 1 }
            }
            page.set_lsn(step);
            let again = Page::parse(&image(&page)).unwrap();
            assert_eq!(again, page);
            let records = again.records().map(|(slot, bytes)| (slot, bytes.to_vec()));
            assert_eq!(records.collect::<BTreeMap<_, _>>(), model);
            assert_eq!(
                page.get(slot).map(<[u8]>::to_vec),
                model.get(&slot).cloned()
            );
        }
        assert!(refused > 100);
    }

    /// Fails if the head of a page says a lower number of records.
    #[test]
    fn a_page_has_no_more_records_than_its_head_can_say() {
        let (mut page, bytes, mut image) = (Page::default(), 1 << 20, Vec::new());
        for slot in 0..u16::MAX {
            page.put(slot, b"", bytes).expect("there is room");
        }
        let one_more = page.put(u16::MAX, b"", bytes);
        assert!(matches!(one_more, Err(PageError::Full { .. })));
        page.put(7, b"seven", bytes).expect("it is there already");
        page.emit(bytes, &mut image).expect("it fits");
        assert!(Page::parse(&image).expect("a page") == page);
    }

    #[test]
    fn damage_is_an_error_and_no_bytes_are_an_empty_page() {
        let mut page = Page::default();
        for slot in [3, 9, 1] {
            page.put(slot, &[slot as u8; 5], BYTES).unwrap();
        }
        let image = image(&page);
        for cut in 1..image.len() {
            assert!(Page::parse(&image[..cut]).is_err(), "cut at {cut}");
        }
        let mut swapped = image.clone();
        put(&mut swapped[page_head::SIZE..], record_head::SLOT, 7);
        assert!(matches!(
            Page::parse(&swapped),
            Err(PageError::Damaged { .. })
        ));
        assert_eq!(Page::parse(&[]).unwrap(), Page::default());
    }

    #[test]
    fn a_slot_is_copied_also_where_it_is_empty() {
        let (mut one, mut two) = (Page::default(), Page::default());
        one.put(1, b"one", BYTES).unwrap();
        two.put(2, b"two", BYTES).unwrap();
        one.copy_from(&two, 2, BYTES).unwrap();
        one.copy_from(&two, 1, BYTES).unwrap();
        assert_eq!(one, two);
    }
}
