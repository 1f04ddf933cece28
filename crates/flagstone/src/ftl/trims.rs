//! Lists of trims: pages that say of many logical pages that they hold nothing.
//!
//! A list is a version of each logical page that it names. They are all mapped to it, and it is
//! live as long as one of them is: it may hide an older version that was not erased yet. A page
//! that is written after it has a newer version. So a copy that is a version of its own, and newer
//! than that, leaves such pages out ([`Owner::keeps_trim`]).
//!
//! ```text
//!   data    | count 4 | checksum 4 | logical page 4 | logical page 4 | ...
//! ```

use super::{Cause, Ftl, FtlError, Owner, Slot};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Ppn};
use rustc_hash::FxHashMap;

layout! {
    /// The head of the data of a list of trims.
    pub trim_list: 8 => {
        COUNT: 4, "logical pages that it names: 4 bytes each follow";
        SUM:   4, "CRC-32 of these";
    }
}

const NUMBER_BYTES: usize = 4;

/// The data of a page that lists trims.
pub fn trims_page(named: &[Lpn]) -> Vec<u8> {
    let mut bytes = vec![0; trim_list::SIZE];
    bytes.extend(named.iter().flat_map(|at| at.0.to_le_bytes()));
    put_head(&mut bytes, named.len());
    bytes
}

fn put_head(bytes: &mut [u8], count: usize) {
    let end = trim_list::SIZE + count * NUMBER_BYTES;
    let sum = crc32fast::hash(&bytes[trim_list::SIZE..end]);
    put(bytes, trim_list::COUNT, count as u64);
    put(bytes, trim_list::SUM, sum.into());
}

/// The logical pages that a list of trims names, by its data; nothing if that is no whole list.
pub fn trims_in(data: &[u8]) -> Option<Vec<Lpn>> {
    let (head, numbers) = data.split_at_checked(trim_list::SIZE)?;
    let count = get(head, trim_list::COUNT) as usize;
    let numbers = numbers.get(..count.checked_mul(NUMBER_BYTES)?)?;
    let is_right = get(head, trim_list::SUM) == u64::from(crc32fast::hash(numbers));
    let words = numbers.as_chunks().0.iter();
    is_right.then(|| words.map(|word| Lpn(u32::from_le_bytes(*word))).collect())
}

impl Ftl {
    /// Logical pages that a list of trims can name.
    pub fn trims_in_page(&self) -> usize {
        (self.geometry.page_bytes as usize).saturating_sub(trim_list::SIZE) / NUMBER_BYTES
    }

    /// Reads a list of trims, while mounting. Returns when it was read, and what it names: no page
    /// above the one that its spare area has.
    ///
    /// # Errors
    /// It cannot be read, or the power fails.
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

    /// Maps logical pages to a list of trims that was programmed, and lets the collector have what
    /// they were mapped to. A list without any is left to it as well.
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
            _ => self.note_list(list, count),
        }
    }

    fn note_list(&mut self, list: Ppn, count: u32) {
        if count > 1 {
            self.lists.insert(list, count);
        }
    }

    /// Takes a logical page off a list of trims. Returns whether others are still mapped to it.
    #[cold]
    pub(super) fn is_listed_on(&mut self, at: Ppn) -> bool {
        let Some(count) = self.lists.get_mut(&at) else {
            return false;
        };
        *count -= 1;
        if *count == 1 {
            self.lists.remove(&at);
        }
        true
    }

    /// The logical pages of a list that are mapped to it.
    fn mapped_to(&self, list: Ppn, data: &[u8]) -> Vec<Lpn> {
        let mut named = trims_in(data).unwrap_or_default();
        named.retain(|&at| at.0 < self.logical_pages && self.slot(at) == Slot::Trimmed(list));
        named
    }

    /// As [`Ftl::believes`], of a list of trims: it names all that are mapped to it. None is to one
    /// of a live transaction, which was written since the restart.
    pub(super) fn believes_list(&self, at: Ppn, data: &[u8]) -> bool {
        let mapped = self.mapped_to(at, data).len() as u32;
        let was_found = self.blocks[self.addresses.block_of(at).index()].stale;
        let is_whole = trims_in(data).is_some();
        match mapped {
            0 => is_whole && !was_found && !self.lists.contains_key(&at),
            _ => mapped == self.lists.get(&at).copied().unwrap_or(1),
        }
    }

    /// Takes those logical pages out of the data of a list that its copy must not name.
    pub(super) fn shorten_list(&self, owner: &dyn Owner, list: Ppn, data: &mut [u8]) {
        let mut named = trims_in(data).expect("it was believed");
        named.retain(|&at| owner.keeps_trim(self, at, list));
        for (place, at) in (trim_list::SIZE..).step_by(NUMBER_BYTES).zip(&named) {
            data[place..place + NUMBER_BYTES].copy_from_slice(&at.0.to_le_bytes());
        }
        put_head(data, named.len());
    }

    /// A list was copied: the logical pages that are mapped to it follow.
    pub(super) fn move_list(&mut self, data: &[u8], from: Ppn, to: Ppn) {
        let mapped = self.mapped_to(from, data);
        self.lists.remove(&from);
        self.note_list(to, mapped.len() as u32);
        for at in mapped {
            self.set_slot(at, Slot::Trimmed(to));
        }
    }

    /// Bytes of the table of lists.
    pub(super) fn memory_of_lists(&self) -> u64 {
        (self.lists.len() * size_of::<(Ppn, u32)>()) as u64
    }

    /// Checks that each list counts the logical pages that are mapped to it.
    pub(super) fn check_lists(&self) -> Result<(), String> {
        let mut counts: FxHashMap<Ppn, u32> = FxHashMap::default();
        for at in (0..self.logical_pages).map(Lpn) {
            if let Slot::Trimmed(list) = self.slot(at) {
                *counts.entry(list).or_default() += 1;
            }
        }
        counts.retain(|_, count| *count > 1);
        match counts == self.lists {
            true => Ok(()),
            false => Err(format!(
                "lists of trims count {:?}, and are {counts:?}",
                self.lists
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_one_that_is_damaged_does_not() {
        for count in [0, 1, 7, 500] {
            let named: Vec<Lpn> = (0..count).map(|at| Lpn(at * at)).collect();
            let bytes = trims_page(&named);
            assert_eq!(bytes.len(), trim_list::SIZE + 4 * named.len());
            assert_eq!(trims_in(&bytes).as_ref(), Some(&named));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 4;
                assert_eq!(trims_in(&damaged), None, "byte {at} of {count}");
            }
            assert_eq!(trims_in(&bytes[..bytes.len() - 1]), None);
        }
    }
}
