//! Validation during a mount, of a flash that another program may have written: places beyond the
//! device, and pages that are mapped twice. Bit errors are left to the ECC.

use super::{Ftl, FtlError, Slot};
use crate::units::{Lpn, Pbn, Ppn};

/// Validates a counter that has `bits` bits on flash: it must be able to count on for long.
///
/// # Errors
/// The counter is in the upper half of its range, which no device reaches.
pub fn doubt_number(what: &str, number: u64, bits: u32) -> Result<u64, FtlError> {
    match number >> (bits - 1) {
        0 => Ok(number),
        _ => foreign(format!("it has {what} {number}, which no device comes to")),
    }
}

/// Checks a counter before new work that increments it. The last sixteenth of the range that
/// [`doubt_number`] accepts is reserved for work in progress and for restarts: a device that
/// refuses new work can still be read.
///
/// # Errors
/// The counter is in the reserved part.
pub fn spare_number(what: &str, number: u64, bits: u32) -> Result<(), FtlError> {
    let end = 1 << (bits - 1);
    if number < end - end / 16 {
        Ok(())
    } else {
        Err(FtlError::Spent(format!(
            "{what} {number} is one of the last that the device can give out: it can be read, and \
             takes no new work; copy what is on it to another device"
        )))
    }
}

pub(super) fn foreign<T>(what: String) -> Result<T, FtlError> {
    Err(FtlError::Foreign(what))
}

/// Refuses a device that holds a logical page beyond its settings' number of pages.
pub(super) fn refuse_size<T>(lpn: Lpn, pages: u32) -> Result<T, FtlError> {
    foreign(format!(
        "it holds logical page {lpn}, and its settings leave {pages} pages: open it with as many \
         logical pages as when it was written"
    ))
}

/// Refuses a device on which this page tells that it was written with another `summary_pages`.
pub(super) fn refuse_summaries<T>(at: Ppn) -> Result<T, FtlError> {
    foreign(format!(
        "one of the device and its settings has a summary in the last page of each block, and the \
         other has none, as page {at} shows: open it with `summary_pages` as it was when the device \
         was first written"
    ))
}

impl Ftl {
    /// Checks that the mapping table refers only to data pages of the device.
    pub(super) fn doubt_map(&self) -> Result<(), FtlError> {
        let pages = self.geometry.pages();
        let is_data = |at: Ppn| at.0 < pages && self.geometry.page_in_block(at) < self.data_pages;
        let stray = self.map.lpns().find_map(|lpn| {
            let at = self.slot(lpn).ppn().filter(|&at| !is_data(at))?;
            Some((lpn, at))
        });
        match stray {
            Some((lpn, at)) if at.0 >= pages => foreign(format!(
                "its mapping table has logical page {lpn} in page {at}, which there is not"
            )),
            Some((_, at)) => refuse_summaries(at),
            None => Ok(()),
        }
    }

    /// Whether a page can be a version of the logical page in its spare area. A restart may know
    /// the page only from the summary of its block, so it is checked when it is read: a live page
    /// to which another logical page is mapped is not valid. Lists of trims are checked by their
    /// contents.
    pub(crate) fn believes(&self, at: Ppn, lpn: Lpn) -> bool {
        let is_mapped = |lpn: Lpn| self.slot(lpn).ppn() == Some(at);
        if lpn.0 >= self.map.pages() || self.trims.has(at) {
            return false;
        }
        // Pages written since the restart are trusted. Only live versions that are not mapped need
        // a search, and a restart leaves few of them.
        let is_found = self.blocks.is_from_before(at);
        is_mapped(lpn) || !is_found || !self.blocks.is_live(at) || !self.map.lpns().any(is_mapped)
    }

    /// Marks, while mounting, every page in the mapping table as live.
    ///
    /// # Errors
    /// Two logical pages are mapped to one page that is not a trim.
    pub fn revive_mapped(&mut self) -> Result<(), FtlError> {
        // The previous number of live pages of each block, and the last page revived in it.
        let mut revived: Vec<Option<(u32, Lpn)>> = vec![None; self.blocks.len() as usize];
        for lpn in self.map.lpns() {
            let slot = self.slot(lpn);
            let Some(at) = slot.ppn() else {
                continue;
            };
            if self.blocks.is_live(at) && slot == Slot::Trimmed(at) {
                self.trims.add(at);
                continue;
            }
            if self.blocks.is_live(at) {
                return foreign(format!(
                    "logical page {lpn} and another one are both in page {at}"
                ));
            }
            let block = self.blocks.addresses.block_of(at);
            let live = self.blocks.live_in(block);
            let (_, last) = revived[block.index()].get_or_insert((live, lpn));
            *last = lpn;
            self.blocks.set_live(at);
        }
        let is_listed = |&lpn: &Lpn| match self.slot(lpn) {
            Slot::Page(at) => self.trims.has(at),
            _ => false,
        };
        if !self.trims.is_empty()
            && let Some(lpn) = self.map.lpns().find(is_listed)
        {
            return foreign(format!("logical page {lpn} is in a list of trims"));
        }
        // The candidates are listed in the order in which they reached their number of live pages.
        let revived = (0..).map(Pbn).zip(revived);
        let mut moved: Vec<(Lpn, Pbn, u32)> = revived
            .filter_map(|(id, revived)| revived.map(|(before, last)| (last, id, before)))
            .filter(|&(_, id, _)| self.blocks.is_candidate(id))
            .collect();
        moved.sort_unstable();
        for (_, id, before) in moved {
            self.blocks.victims.remove(id, before);
            self.blocks.victims.insert(id, self.blocks.live_in(id));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::ftl::{Config, Format};
    use crate::nand::{Flash, small};
    use crate::units::Nanos;

    /// A blank device with a mapping table on flash.
    pub(in crate::ftl) fn ftl() -> Ftl {
        let config = Config::small(200, None);
        let format = Format {
            persist_map: true,
            ..Format::default()
        };
        let flash: Box<dyn Flash> = Box::new(small::chip(small::GEOMETRY));
        Ftl::mount(flash, config, format, Nanos::ZERO)
            .expect("the device is blank")
            .0
    }

    pub(in crate::ftl) fn why<T>(outcome: Result<T, FtlError>) -> String {
        outcome.err().expect("it is refused").to_string()
    }

    #[test]
    fn a_mapping_table_that_names_what_there_is_not_or_twice_is_refused() {
        let mut ftl = ftl();
        ftl.set_slot(Lpn(3), Slot::Page(Ppn(1000)));
        ftl.set_slot(Lpn(4), Slot::Trimmed(Ppn(1001)));
        assert_eq!(ftl.doubt_map(), Ok(()));
        ftl.set_slot(Lpn(5), Slot::Page(Ppn(1024)));
        assert!(why(ftl.doubt_map()).contains("logical page 5 in page 1024"));
        ftl.set_slot(Lpn(5), Slot::Page(Ppn(1001)));
        assert!(why(ftl.revive_mapped()).contains("both in page 1001"));
    }

    /// Fails if the candidates for collection are ordered differently than if pages were revived
    /// one by one: then a device would behave differently after a restart.
    #[test]
    fn pages_that_are_revived_at_once_leave_the_candidates_as_one_by_one() {
        let mapped = || {
            let mut ftl = ftl();
            let blocks = ftl.blocks.for_data();
            for &block in blocks.iter().skip(2) {
                ftl.blocks.fill(block);
            }
            ftl.blocks.pin(blocks[3]);
            let (mut dice, mut next) = (Dice(5), vec![0; blocks.len()]);
            for lpn in (0..100).map(Lpn) {
                let which = dice.pick(blocks.len() as u32) as usize;
                if next[which] < ftl.data_pages {
                    let at = ftl.geometry.page(blocks[which], next[which]);
                    ftl.set_slot(lpn, Slot::Page(at));
                    next[which] += 1;
                }
            }
            ftl
        };
        let candidates = |ftl: &Ftl| ftl.blocks.victims.iter().collect::<Vec<_>>();
        let (mut at_once, mut each, mut backwards) = (mapped(), mapped(), mapped());
        at_once.revive_mapped().expect("no page is named twice");
        let pages = (0..100).filter_map(|lpn| each.slot(Lpn(lpn)).ppn());
        let pages: Vec<Ppn> = pages.collect();
        pages.iter().for_each(|&at| each.revive(at));
        pages.iter().rev().for_each(|&at| backwards.revive(at));
        assert_eq!(candidates(&at_once), candidates(&each));
        assert_eq!(at_once.blocks.live_pages(), each.blocks.live_pages());
        assert_ne!(candidates(&backwards), candidates(&each), "the control");
    }

    #[test]
    fn work_is_refused_before_a_mount_would_be() {
        for bits in [32, 48, 64] {
            let end = 1u64 << (bits - 1);
            assert_eq!(
                spare_number("write sequence", end / 16 * 15 - 1, bits),
                Ok(())
            );
            let why = why(spare_number("write sequence", end / 16 * 15, bits));
            assert!(why.contains("can be read"), "{why}");
            assert!(doubt_number("write sequence", end / 16 * 15, bits).is_ok());
            assert!(doubt_number("write sequence", end - 1, bits).is_ok());
        }
    }

    #[test]
    fn numbers_in_the_upper_half_of_their_range_are_refused() {
        assert_eq!(
            doubt_number("version", (1 << 31) - 1, 32),
            Ok((1 << 31) - 1)
        );
        assert!(why(doubt_number("version", 1 << 31, 32)).contains("it has version 2147483648"));
        assert!(doubt_number("group", u64::MAX, 64).is_err());
    }
}
