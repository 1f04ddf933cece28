//! Page checksums ([`Config::checksums`]), for errors that the ECC does not notice. Every read and
//! program of the FTL goes through this module.
//!
//! ```text
//!   spare   | header | tail, flag bytes at its end | checksum | horizon, if there is one |
//! ```
//!
//! There are two checksums, because a restart reads spare areas alone. The first covers the data.
//! The second covers the spare record without its flag bytes, the first checksum, the page's place,
//! and the [`statement`] of the horizon if the page has one. A page with a wrong checksum reads as
//! [`FlashError::Uncorrectable`]. A blank page has no checksums; it reads as uncorrectable where a
//! live page should be.
//!
//! | what the flash does without an error | noticed |
//! |---|---|
//! | bits flip in data or spare record | yes, but not in flag bytes, of which the majority counts |
//! | a read gives, or a program hits, another page | yes, by the place |
//! | an erase does nothing | when a page of the block is programmed and read: it holds both |
//! | a program does nothing | when the page is read while it is live; a scan takes it for blank |
//! | a read gives older contents of the same place | no: their sums are right |
//!
//! A page with checksums has the bit [`CHECKED`] in its kind, one of the page's [`Marks`].

#[cfg(doc)]
use super::Config;
use super::horizon::{Programmed, statement};
use super::spare::{CHECKED, Marks};
use super::{Format, Ftl, TAIL_BYTES_MAX, header};
use crate::layout;
use crate::layout::{get, put};
use crate::nand::{FlashError, Read};
use crate::units::{Nanos, Ppn};

layout! {
    /// The bytes behind the tail in the spare area of every page, if the device has checksums.
    pub sums: 8 => {
        DATA:  4, "CRC-32 of the data";
        SPARE: 4, "CRC-32 of header and tail without the flag bytes, of DATA, of the number of the physical page (4 bytes), and of the horizon if the page has one";
    }
}

/// Maximum length of a spare area in use.
pub(super) const WHOLE_BYTES_MAX: usize =
    header::SIZE + TAIL_BYTES_MAX + sums::SIZE + statement::SIZE;

impl Ftl {
    /// Reads a page and the first bytes of its spare area.
    #[inline]
    pub(super) fn read_page(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.read_to_copy(now, at, data, spare, false)
    }

    /// [`Ftl::read_page`]. A read `inside` a plane does not use the channel.
    #[inline]
    pub(super) fn read_to_copy(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
        inside: bool,
    ) -> Result<Read, FlashError> {
        let read = if self.marks.is_none() {
            self.read_flash(now, at, data, spare, inside)?
        } else {
            self.read_marked(now, at, data, spare, inside)?
        };
        if read.corrected >= self.scrub.bits() {
            self.wants_refresh(at, read.corrected);
        }
        Ok(read)
    }

    #[inline]
    fn read_flash(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
        inside: bool,
    ) -> Result<Read, FlashError> {
        if inside {
            self.flash.read_inside(now, at, data, spare)
        } else {
            self.flash.read(now, at, data, spare)
        }
    }

    /// [`Ftl::read_flash`] on a device with marks: removes them from the spare area. With
    /// checksums, reads the whole spare area, and reports a page with a wrong one as uncorrectable.
    #[cold]
    fn read_marked(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
        inside: bool,
    ) -> Result<Read, FlashError> {
        if !self.config.checksums {
            let read = self.read_flash(now, at, data, spare, inside)?;
            self.marks.toggle(spare);
            return Ok(read);
        }
        let mut whole = [0xff; WHOLE_BYTES_MAX];
        let whole = &mut whole[..self.format.spare_bytes(&self.config)];
        let read = self.read_flash(now, at, data, whole, inside)?;
        let filled = (!data.is_empty()).then(|| &data[..read.data_bytes]);
        if !self.is_right(at, filled, whole) {
            self.stats.checksum_errors += 1;
            let done = read.done;
            return Err(FlashError::Uncorrectable { at, done });
        }
        self.marks.toggle(whole);
        spare.copy_from_slice(&whole[..spare.len()]);
        Ok(read)
    }

    /// Reads a page like [`Ftl::read_page`], but without a simulated read and unchecked.
    pub(super) fn peek_page(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        let bytes = self.flash.peek(at, data, spare)?;
        self.marks.toggle(spare);
        Some(bytes)
    }

    /// Whether the checksums of a page are correct. `data` is `None` if only the spare area was
    /// read.
    fn is_right(&self, at: Ppn, data: Option<&[u8]>, whole: &[u8]) -> bool {
        let (record, after) = whole.split_at(self.record_bytes());
        if whole.iter().all(|&byte| byte == 0xff) {
            return data.is_none_or(<[u8]>::is_empty) && !self.blocks.is_live(at);
        }
        let (of_data, of_spare) = (get(after, sums::DATA), get(after, sums::SPARE));
        // Pages of a device without horizons have none.
        let is_there = |horizon: &&[u8]| horizon.iter().any(|&byte| byte != 0xff);
        let horizon = Some(&after[sums::SIZE..])
            .filter(is_there)
            .unwrap_or_default();
        let has_sum = |record: &[u8]| {
            let sum = sum_of_spare(&self.format, record, of_data as u32, at, horizon);
            of_spare == u64::from(sum)
        };
        if after.ends_with(&[0xff; sums::SIZE]) && Marks::is_page_without_sums(record) {
            // A page without checksums, where a horizon is in their place: the mount refuses it. Or
            // a bit error has taken the mark of one that has them.
            let mut marked = [0; header::SIZE + TAIL_BYTES_MAX];
            let marked = &mut marked[..record.len()];
            marked.copy_from_slice(record);
            marked[header::KIND.start] |= CHECKED;
            return !has_sum(marked);
        }
        data.is_none_or(|data| of_data == u64::from(crc32fast::hash(data)))
            && record[header::KIND.start] & CHECKED != 0
            && has_sum(record)
    }

    /// Programs a page with checksums. The rest of the record after `spare` stays blank.
    #[inline(always)]
    pub(super) fn program_checked(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
        what: Programmed,
    ) -> Result<Nanos, FlashError> {
        if self.format.horizons {
            return self.program_stated(now, at, data, spare, what);
        }
        if self.marks.is_none() {
            self.program_flash(now, at, data, spare, what)
        } else {
            self.program_marked(now, at, data, spare, &[], what)
        }
    }

    #[inline(always)]
    fn program_flash(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
        what: Programmed,
    ) -> Result<Nanos, FlashError> {
        if matches!(what, Programmed::Page { inside: true, .. }) {
            self.flash.program_inside(now, at, data, spare)
        } else {
            self.flash.program(now, at, data, spare)
        }
    }

    /// Programs a page with a statement.
    fn program_stated(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
        what: Programmed,
    ) -> Result<Nanos, FlashError> {
        let words = self.state_horizon(now, at, spare, what);
        let programmed = if self.marks.is_none() {
            let mut whole = [0xff; WHOLE_BYTES_MAX];
            let (record, end) = (self.record_bytes(), self.record_bytes() + words.len());
            whole[..spare.len()].copy_from_slice(spare);
            whole[record..end].copy_from_slice(&words);
            self.program_flash(now, at, data, &whole[..end], what)
        } else {
            self.program_marked(now, at, data, spare, &words, what)
        };
        let done = match &programmed {
            Ok(done) | Err(FlashError::ProgramFailed { done, .. }) => *done,
            Err(_) => return programmed,
        };
        // A failed program takes its number as well, but leaves no version.
        let what = match programmed {
            Ok(_) => what,
            Err(_) => Programmed::Other,
        };
        self.note_program(done, at, what);
        programmed
    }

    /// [`Ftl::program_flash`] on a device with marks: adds them, checksums if the device has them,
    /// and `horizon` at the end of the spare area.
    #[cold]
    fn program_marked(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
        horizon: &[u8],
        what: Programmed,
    ) -> Result<Nanos, FlashError> {
        let mut whole = [0xff; WHOLE_BYTES_MAX];
        let whole = &mut whole[..self.format.spare_bytes(&self.config)];
        whole[..spare.len()].copy_from_slice(spare);
        self.marks.toggle(&mut whole[..spare.len()]);
        let behind = whole.len() - horizon.len();
        whole[behind..].copy_from_slice(horizon);
        if !self.config.checksums {
            let used = if horizon.is_empty() {
                spare.len()
            } else {
                whole.len()
            };
            return self.program_flash(now, at, data, &whole[..used], what);
        }
        let (record, after) = whole.split_at_mut(self.record_bytes());
        let of_data = crc32fast::hash(data);
        let of_spare = sum_of_spare(&self.format, record, of_data, at, horizon);
        put(after, sums::DATA, of_data.into());
        put(after, sums::SPARE, of_spare.into());
        let whole: &[u8] = whole;
        self.program_flash(now, at, data, whole, what)
    }
}

fn sum_of_spare(format: &Format, record: &[u8], of_data: u32, at: Ppn, horizon: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&record[..record.len() - format.flag_bytes]);
    sum.update(&of_data.to_le_bytes());
    sum.update(&at.0.to_le_bytes());
    sum.update(horizon);
    sum.finalize()
}
