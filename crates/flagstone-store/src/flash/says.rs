//! Statements in marks: what was durable at an erase, and the order of erases. The translation
//! layer uses them on a flash that never fails.

use super::{DAMAGED, MediumFlash, NEVER, SAYS_AT, UNKNOWN, mark, mark_says};
use crate::superblock::MEDIUM_PAGE_BYTES;
use flagstone::layout::{get, put};
use flagstone::nand::SaidAtErase;
use flagstone::units::Pbn;

impl MediumFlash {
    /// Writes the statement of the translation layer into a mark.
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

    /// The newest mark with a statement: block and statement. All marks must have been read.
    ///
    /// Newer erases may lack one: a block gets its first pages before its mark is durable, and if a
    /// cut takes the mark, the block is recognised by its pages.
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

    /// The statement in a block's mark, if the mark is valid and has one.
    fn mark_says(&self, block: Pbn) -> Option<(u64, Vec<u8>)> {
        let mut page = [0; SAYS_AT + mark_says::SIZE];
        let offset = self.mark_of(block) * MEDIUM_PAGE_BYTES as u64;
        self.medium().read_at(offset, &mut page).ok()?;
        let (mark, record) = page.split_at(SAYS_AT);
        let is_right = get(record, mark_says::CRC) == self.sum_of_says(mark, record);
        let says = || record[mark_says::STATEMENT].to_vec();
        is_right.then(|| (get(record, mark_says::NUMBER), says()))
    }

    /// The number of the last erase of an opening, among blocks that were not erased since.
    pub(super) fn last_erase_of_opening(&self, opening: u64) -> u32 {
        let state = self.places.state();
        let marks = state.generations.iter();
        let of_opening = marks.filter(|&generation| generation >> 32 == opening);
        of_opening.max().map_or(0, |&last| last as u32)
    }

    /// Whether `block` was erased later than the erase whose number ends in byte `erase`; that one
    /// came before a page of block `other` was programmed. The erases of an opening are numbered.
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

/// Reconstructs the number of an erase from its last byte `said` and the last erase found in a
/// mark. The two are close: few erases follow the newest statement, and few marks are lost in a
/// cut.
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
