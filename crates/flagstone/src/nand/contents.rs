//! The whole state of a chip as plain data, so that a program can save a simulated device and load
//! it again. This library itself reads and writes no files.

use super::chip::Damage;
use super::{Chip, Geometry, Timing};
use crate::units::{Pbn, Ppn};

/// The state of a chip's cells: their contents, wear and damage.
///
/// ```
/// use flagstone::nand::small::{TINY, chip};
/// use flagstone::nand::{Chip, Contents, Flash};
/// use flagstone::units::{Nanos, Ppn};
///
/// let mut chip = chip(TINY);
/// chip.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
///
/// // A copy has the same contents. Contents that do not suit the geometry are refused.
/// let contents = chip.contents();
/// let copy = Chip::with_contents(*chip.geometry(), *chip.timing(), contents.clone())?;
/// assert_eq!(copy.contents(), contents);
/// assert!(Contents::default().check(chip.geometry()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Bytes of each spare area that are kept.
    pub spare_kept: usize,
    /// Programs since the last erase, for each page.
    pub programs: Vec<u8>,
    /// Spare areas, [`Contents::spare_kept`] bytes for each page.
    pub spare: Vec<u8>,
    /// Data of the pages that hold some, in the order of the pages.
    pub data: Vec<(Ppn, Box<[u8]>)>,
    /// For each block whose last page is a summary: bytes of each spare area that the summary
    /// repeats. 0 for other blocks.
    pub summary: Vec<u16>,
    /// Erases of each block.
    pub erases: Vec<u32>,
    /// For each block, the next page that strict program order allows.
    pub next_page: Vec<u16>,
    /// Blocks that the manufacturer marked as bad, ascending.
    pub factory_bad: Vec<Pbn>,
    /// Blocks that no longer erase, ascending.
    pub worn_out: Vec<Pbn>,
    /// Damaged pages, ascending.
    pub damage: Vec<(Ppn, Damage)>,
}

impl Contents {
    /// Checks that a chip with this geometry can have these contents.
    ///
    /// # Errors
    /// Names the part that is wrong.
    pub fn check(&self, geometry: &Geometry) -> Result<(), String> {
        geometry.validate().map_err(|error| error.0)?;
        let (pages, blocks) = (geometry.pages() as usize, geometry.blocks() as usize);
        let counts = [
            ("program counts", self.programs.len(), pages),
            (
                "spare bytes",
                self.spare.len(),
                pages * self.spare_kept.min(1 << 16),
            ),
            ("summary marks", self.summary.len(), blocks),
            ("erase counts", self.erases.len(), blocks),
            ("next pages", self.next_page.len(), blocks),
        ];
        for (what, found, wanted) in counts {
            if found != wanted {
                return Err(format!("{found} {what} where there must be {wanted}"));
            }
        }
        if self.spare_kept > geometry.spare_bytes as usize {
            return Err(format!(
                "{} bytes are kept of spare areas of {}",
                self.spare_kept, geometry.spare_bytes
            ));
        }
        let most = geometry.cell.programs_per_page();
        if let Some(page) = self.programs.iter().position(|&n| n > most) {
            return Err(format!("page {page} was programmed more than {most} times"));
        }
        let others = geometry.pages_per_block as usize - 1;
        let room = self
            .spare_kept
            .min(geometry.page_bytes as usize / others.max(1));
        if let Some(block) = self.summary.iter().position(|&n| usize::from(n) > room) {
            return Err(format!("the summary of block {block} does not fit a page"));
        }
        let last = geometry.pages_per_block;
        if let Some(block) = self.next_page.iter().position(|&n| u32::from(n) > last) {
            return Err(format!(
                "block {block} goes on behind its last page, {last}"
            ));
        }
        let is_page = |at: &Ppn| at.index() < pages;
        let is_block = |at: &Pbn| at.index() < blocks;
        let holds = |(at, data): &(Ppn, Box<[u8]>)| {
            is_page(at)
                && self.programs[at.index()] > 0
                && data.len() <= geometry.page_bytes as usize
        };
        if let Some((at, _)) = self.data.iter().find(|page| !holds(page)) {
            return Err(format!("page {at} cannot hold the data that it has"));
        }
        if !self.data.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("the data of pages is not in the order of the pages".into());
        }
        if !self.damage.iter().all(|(at, _)| is_page(at)) {
            return Err("a page beyond the device is damaged".into());
        }
        for list in [&self.factory_bad, &self.worn_out] {
            if !list.iter().all(is_block) || !list.is_sorted_by(|a, b| a < b) {
                return Err(
                    "a list of blocks is out of order, or names one beyond the device".into(),
                );
            }
        }
        Ok(())
    }
}

impl Chip {
    /// A chip with the given contents. Its virtual time starts anew.
    ///
    /// # Errors
    /// No chip with this geometry can have these contents.
    pub fn with_contents(
        geometry: Geometry,
        timing: Timing,
        contents: Contents,
    ) -> Result<Chip, String> {
        contents.check(&geometry)?;
        let mut chip = Chip::new(geometry, timing, contents.spare_kept);
        chip.set_contents(contents);
        Ok(chip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nand::{Flash, small};
    use crate::units::Nanos;

    fn written() -> Chip {
        let mut chip = Chip::new(small::TINY, Timing::default(), 8).with_factory_bad(vec![Pbn(7)]);
        for page in 0..3u8 {
            chip.program(Nanos::ZERO, Ppn(page.into()), &[9; 64], &[page, 7])
                .unwrap();
        }
        // Repeats the spare areas before it, so it is stored as a flag.
        chip.program(Nanos::ZERO, Ppn(3), &[0, 1, 2], &[5]).unwrap();
        chip.reprogram(Nanos::ZERO, Ppn(1), 1, &[3]).unwrap();
        chip.erase(Nanos::ZERO, Pbn(2)).unwrap();
        chip.wear_out(Pbn(3));
        chip
    }

    #[test]
    fn a_chip_with_the_contents_of_another_reads_the_same() {
        let chip = written();
        let contents = chip.contents();
        let mut copy =
            Chip::with_contents(small::TINY, Timing::default(), contents.clone()).unwrap();
        assert_eq!(copy.contents(), contents);
        let mut chip = written();
        for page in 0..small::TINY.pages() {
            let (mut data, mut other) = ([0; 64], [0; 64]);
            let (mut spare, mut other_spare) = ([0; 8], [0; 8]);
            let read = chip.read(Nanos::ZERO, Ppn(page), &mut data, &mut spare);
            let again = copy.read(Nanos::ZERO, Ppn(page), &mut other, &mut other_spare);
            assert_eq!(
                read.unwrap().data_bytes,
                again.unwrap().data_bytes,
                "{page}"
            );
            assert_eq!((data, spare), (other, other_spare));
        }
        assert_eq!(copy.erase_counts(), chip.erase_counts());
        assert!(copy.is_factory_bad(Pbn(7)));
        assert!(copy.erase(Nanos::ZERO, Pbn(3)).is_err());
    }

    #[test]
    fn contents_that_cannot_be_are_refused() {
        let good = written().contents();
        let refuse = |change: fn(&mut Contents)| {
            let mut bad = good.clone();
            change(&mut bad);
            Chip::with_contents(small::TINY, Timing::default(), bad).unwrap_err()
        };
        assert!(refuse(|c| c.spare.truncate(5)).contains("5 spare bytes"));
        assert!(refuse(|c| c.programs[1] = 3).contains("page 1"));
        assert!(refuse(|c| c.data[0].0 = Ppn(30)).contains("page 30"));
        assert!(refuse(|c| c.data.swap(0, 1)).contains("order"));
        assert!(refuse(|c| c.next_page[2] = 5).contains("block 2"));
        assert!(refuse(|c| c.summary[0] = 40).contains("block 0"));
        assert!(refuse(|c| c.worn_out.push(Pbn(99))).contains("beyond"));
        assert!(refuse(|c| c.damage.push((Ppn(99), Damage::Weak))).contains("damaged"));
        assert!(refuse(|c| c.spare_kept = 17).contains("spare"));
    }
}
