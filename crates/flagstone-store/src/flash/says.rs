//! What marks say of what was durable at their erase, and which erases came after one: what the
//! translation layer asks of a flash that never fails.

use super::{DAMAGED, MediumFlash, NEVER, SAYS_AT, UNKNOWN, mark, mark_says};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::layout::{get, put};
use flagstone::nand::SaidAtErase;
use flagstone::units::Pbn;

impl MediumFlash {
    /// Has a mark say what the translation layer says at the erase.
    pub(super) fn put_says(&self, page: &mut [u8; MEDIUM_PAGE_BYTES], number: u64, says: &[u8]) {
        let (mark, record) = page.split_at_mut(SAYS_AT);
        put(record, mark_says::NUMBER, number);
        record[mark_says::STATEMENT].copy_from_slice(says);
        let sum = self.sum_of_says(mark, record);
        put(record, mark_says::CRC, sum);
    }

    fn sum_of_says(&self, mark: &[u8], record: &[u8]) -> u64 {
        let identity = self.superblock.identity.number().to_le_bytes();
        let (mark, record) = (&mark[..mark::CRC.start], &record[..mark_says::CRC.start]);
        crate::sum::crc32c_of(&[mark, record, &identity]).into()
    }

    /// The block of the newest mark that says something, and what. All marks have been read.
    ///
    /// There may be newer ones that say nothing: a block that never had a page gets some before its
    /// mark is durable, and where a cut has taken the mark it is known by its pages.
    pub(super) fn newest_mark_says(&self) -> Option<SaidAtErase> {
        let state = self.places.state();
        let known = |generation: &u64| !matches!(*generation, NEVER | DAMAGED | UNKNOWN);
        let marks = state.generations.iter().copied().zip(0..);
        let mut marks: Vec<_> = marks.filter(|(generation, _)| known(generation)).collect();
        drop(state);
        marks.sort_unstable();
        let last = marks.last().map(|&(_, block)| Pbn(block));
        marks.into_iter().rev().find_map(|(_, block)| {
            let (number, says) = self.mark_says(Pbn(block))?;
            Some(SaidAtErase {
                block: Pbn(block),
                number,
                says,
                is_last: Some(Pbn(block)) == last,
            })
        })
    }

    /// What the mark of a block says, if it is whole and says something.
    fn mark_says(&self, block: Pbn) -> Option<(u64, Vec<u8>)> {
        let mut page = [0; SAYS_AT + mark_says::SIZE];
        let offset = self.mark_of(block) * MEDIUM_PAGE_BYTES as u64;
        self.medium().read_at(offset, &mut page).ok()?;
        let (mark, record) = page.split_at(SAYS_AT);
        let is_right = get(record, mark_says::CRC) == self.sum_of_says(mark, record);
        let says = || record[mark_says::STATEMENT].to_vec();
        is_right.then(|| (get(record, mark_says::NUMBER), says()))
    }

    /// The number of the last erase of an opening, by the blocks that were not erased since.
    pub(super) fn last_erase_of_opening(&self, opening: u64) -> u32 {
        let state = self.places.state();
        let marks = state.generations.iter();
        let of_opening = marks.filter(|&generation| generation >> 32 == opening);
        of_opening.max().map_or(0, |&last| last as u32)
    }

    /// Whether a block was erased after an erase of which the last byte of its number is known, and
    /// which came before a page of block `other` was programmed. Erases of one opening are
    /// numbered.
    pub(super) fn erased_after(&self, block: Pbn, other: Pbn, erase: u8) -> bool {
        let state = self.places.state();
        let [block, other] = [block, other].map(|block| state.generations[block.index()]);
        let opening = other >> 32;
        if block >> 32 != opening {
            return true;
        }
        drop(state);
        block as u32 > number_of(erase, self.last_erase_of_opening(opening))
    }
}

/// The number of an erase of which a page says the last byte, near that of the last erase whose
/// mark is there: few come after the newest page that says something, and of those before it the
/// last marks may have been lost in a cut.
fn number_of(said: u8, last: u32) -> u32 {
    let ahead = said.wrapping_sub(last as u8) as i8;
    last.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn an_erase_is_known_by_its_last_byte() {
        for last in [0, 13, 300, 1 << 20, u32::MAX] {
            for ahead in -100i32..100 {
                let number = last.saturating_add_signed(ahead);
                assert_eq!(number_of(number as u8, last), number, "{last}, {ahead}");
            }
        }
    }
}
