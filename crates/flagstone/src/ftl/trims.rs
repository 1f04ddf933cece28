//! Lists of trims: pages that trim many logical pages at once.
//!
//! A list is a version of each logical page that it names. These are mapped to the list, and it is
//! live as long as one of them is: it may hide an older version that is not erased yet. A page that
//! is written later has a newer version. If the list is copied as a new program, which is newer
//! still, the copy omits such pages ([`Owner::keeps_trim`]).
//!
//! The page numbers ascend. Each is stored as the number of skipped pages since the previous one,
//! in a variable-length code of one to five bytes: one for adjacent pages.
//!
//! ```text
//!   data    | count 4 | checksum 4 | left out | left out | ...
//! ```

use super::{Cause, Ftl, FtlError, Owner, Slot};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Ppn};
use rustc_hash::FxHashMap;

layout! {
    /// The head of the data of a list of trims.
    pub trim_list: 8 => {
        COUNT: 4, "logical pages that it names, in ascending order: of each follows how many are left out before it, seven bits a byte, the lowest first; the highest bit is set in all but the last byte";
        SUM:   4, "CRC-32 of what follows";
    }
}

/// Maximum length of a number.
const WIDEST: usize = 5;

/// Number of bytes of page `at` in a list, after the page `before`.
pub fn trim_width(before: Option<Lpn>, at: Lpn) -> usize {
    let left_out = left_out(before, at);
    (1..WIDEST)
        .find(|bytes| left_out >> (7 * bytes) == 0)
        .unwrap_or(WIDEST)
}

fn left_out(before: Option<Lpn>, at: Lpn) -> u32 {
    before.map_or(at.0, |before| at.0 - before.0 - 1)
}

/// Encodes a list of trims. `named` must ascend.
pub fn trims_page(named: &[Lpn]) -> Vec<u8> {
    let mut bytes = vec![0; trim_list::SIZE];
    let mut before = None;
    for &at in named {
        let mut rest = left_out(before.replace(at), at);
        while rest >> 7 > 0 {
            bytes.push(rest as u8 | 1 << 7);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    let sum = crc32fast::hash(&bytes[trim_list::SIZE..]);
    put(&mut bytes, trim_list::COUNT, named.len() as u64);
    put(&mut bytes, trim_list::SUM, sum.into());
    bytes
}

/// Decodes the logical pages in a list of trims. `None` if the data is not a valid list.
pub fn trims_in(data: &[u8]) -> Option<Vec<Lpn>> {
    let (head, bytes) = data.split_at_checked(trim_list::SIZE)?;
    let (mut named, mut end) = (Vec::new(), 0);
    let mut next = 0u64;
    for _ in 0..get(head, trim_list::COUNT) {
        let mut left_out = 0;
        let mut shift = 0;
        loop {
            let byte = *bytes.get(end).filter(|_| shift < 7 * WIDEST)?;
            left_out |= u64::from(byte & 0x7f) << shift;
            (end, shift) = (end + 1, shift + 7);
            if byte >> 7 == 0 {
                break;
            }
        }
        named.push(Lpn(u32::try_from(next + left_out).ok()?));
        next += left_out + 1;
    }
    let is_right = get(head, trim_list::SUM) == u64::from(crc32fast::hash(&bytes[..end]));
    is_right.then_some(named)
}

/// The lists of trims with several mapped logical pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TrimLists {
    /// Number of logical pages mapped to each; at least two.
    mapped: FxHashMap<Ppn, u32>,
}

impl TrimLists {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.mapped.is_empty()
    }

    #[inline]
    pub(super) fn has(&self, at: Ppn) -> bool {
        self.mapped.contains_key(&at)
    }

    /// Sets the number of logical pages that are mapped to a list.
    fn set(&mut self, list: Ppn, mapped: u32) {
        if mapped > 1 {
            self.mapped.insert(list, mapped);
        }
    }

    /// Adds a logical page to a trim that has one or more.
    pub(super) fn add(&mut self, list: Ppn) {
        *self.mapped.entry(list).or_insert(1) += 1;
    }

    /// Removes a logical page from a list. Returns whether others are mapped to it.
    #[cold]
    pub(super) fn remove_one(&mut self, at: Ppn) -> bool {
        let Some(mapped) = self.mapped.get_mut(&at) else {
            return false;
        };
        *mapped -= 1;
        if *mapped == 1 {
            self.mapped.remove(&at);
        }
        true
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        (self.mapped.len() * size_of::<(Ppn, u32)>()) as u64
    }
}

impl Ftl {
    /// Bytes of a list of trims after its head; 0 if there is no room for any two trims.
    pub fn trim_bytes(&self) -> usize {
        let bytes = (self.geometry.page_bytes as usize).saturating_sub(trim_list::SIZE);
        if bytes < 2 * WIDEST { 0 } else { bytes }
    }

    /// Number of trims that always fit into a list; 0 if it cannot hold any two.
    #[inline]
    pub fn trims_of_list(&self) -> usize {
        self.trim_bytes() / WIDEST
    }

    /// Reads a list of trims while mounting. Returns when it was read, and its logical pages: none
    /// is above the one in its spare area.
    ///
    /// # Errors
    /// The list is unreadable, or the power fails.
    pub fn read_trims(
        &mut self,
        now: Nanos,
        at: Ppn,
        highest: Lpn,
    ) -> Result<(Nanos, Vec<Lpn>), FtlError> {
        let mut data = std::mem::take(&mut self.page_buffer);
        let read = self.read(now, at, &mut data, &mut [], Cause::Recovery);
        let named = read
            .as_ref()
            .ok()
            .and_then(|read| trims_in(&data[..read.data_bytes]));
        self.page_buffer = data;
        let named = named.filter(|named| named.iter().all(|&at| at <= highest));
        Ok((read?.done, named.ok_or(FtlError::Unreadable { at })?))
    }

    /// Maps logical pages to a programmed list of trims, and kills their old versions. Kills the
    /// list if it is empty.
    pub fn map_trims(&mut self, list: Ppn, named: impl Iterator<Item = Lpn>) {
        let mut count = 0;
        for at in named {
            count += 1;
            if let Some(old) = self.set_slot(at, Slot::Trimmed(list)).ppn() {
                self.kill(old);
            }
        }
        match count {
            0 => self.kill(list),
            _ => self.trims.set(list, count),
        }
    }

    /// Whether a logical page shares its list of trims with others: a write of it then takes an
    /// additional page, since the list is still needed.
    pub fn shares_list(&self, at: Lpn) -> bool {
        match self.slot(at) {
            Slot::Trimmed(list) => self.trims.has(list),
            _ => false,
        }
    }

    /// The logical pages of a list that are mapped to it.
    fn mapped_to(&self, list: Ppn, data: &[u8]) -> Vec<Lpn> {
        let mut named = trims_in(data).unwrap_or_default();
        named.retain(|&at| at.0 < self.map.pages() && self.slot(at) == Slot::Trimmed(list));
        named
    }

    /// [`Ftl::believes`] for a list of trims: it must name all pages that are mapped to it. No page
    /// is mapped to a list of a live transaction, which was written since the restart.
    pub(super) fn believes_list(&self, at: Ppn, data: &[u8]) -> bool {
        let mapped = self.mapped_to(at, data).len() as u32;
        let was_found = self.blocks.is_from_before(at);
        let is_whole = trims_in(data).is_some();
        match mapped {
            0 => is_whole && !was_found && !self.trims.has(at),
            _ => mapped == self.trims.mapped.get(&at).copied().unwrap_or(1),
        }
    }

    /// Removes the logical pages from a list that its copy must not name.
    pub(super) fn shorten_list(&self, owner: &dyn Owner, list: Ppn, data: &mut [u8]) {
        let mut named = trims_in(data).expect("it was believed");
        named.retain(|&at| owner.keeps_trim(self, at, list));
        let shorter = trims_page(&named);
        data[..shorter.len()].copy_from_slice(&shorter);
    }

    /// Remaps logical pages from a list to its copy.
    pub(super) fn move_list(&mut self, data: &[u8], from: Ppn, to: Ppn) {
        let mapped = self.mapped_to(from, data);
        self.trims.mapped.remove(&from);
        self.trims.set(to, mapped.len() as u32);
        for at in mapped {
            self.move_slot(at, Slot::Trimmed(to));
        }
    }

    /// Checks that the count of each list equals the number of logical pages mapped to it.
    pub(super) fn check_lists(&self) -> Result<(), String> {
        let mut counts: FxHashMap<Ppn, u32> = FxHashMap::default();
        for at in self.map.lpns() {
            if let Slot::Trimmed(list) = self.slot(at) {
                *counts.entry(list).or_default() += 1;
            }
        }
        counts.retain(|_, count| *count > 1);
        if counts == self.trims.mapped {
            Ok(())
        } else {
            Err(format!(
                "lists of trims count {:?}, and are {counts:?}",
                self.trims.mapped
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_one_that_is_damaged_does_not() {
        for (count, far) in [(0, 1), (1, 1), (7, 1), (500, 1), (500, 130), (60, 1 << 26)] {
            let named: Vec<Lpn> = (0..count).map(|at| Lpn(at * far)).collect();
            let bytes = trims_page(&named);
            let before = std::iter::once(None).chain(named.iter().copied().map(Some));
            let widths = before
                .zip(&named)
                .map(|(before, &at)| trim_width(before, at));
            assert_eq!(bytes.len(), trim_list::SIZE + widths.sum::<usize>());
            assert_eq!(trims_in(&bytes).as_ref(), Some(&named));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 4;
                assert_eq!(trims_in(&damaged), None, "byte {at} of {count}");
            }
            assert_eq!(trims_in(&bytes[..bytes.len() - 1]), None);
        }
    }

    /// A shortened list fits where the original was.
    #[test]
    fn a_list_without_one_of_its_pages_is_no_longer() {
        let named: Vec<Lpn> = [0, 1, 127, 255, 383, 16_383, 32_767, 1 << 21, u32::MAX]
            .map(Lpn)
            .into();
        let whole = trims_page(&named).len();
        for left_out in 0..named.len() {
            let mut others = named.clone();
            others.remove(left_out);
            assert!(trims_page(&others).len() <= whole, "{left_out}");
        }
    }
}
