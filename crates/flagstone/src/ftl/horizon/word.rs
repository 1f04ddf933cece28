//! The owner's word of a page, which replaces the statement.
//!
//! A spare area has no bytes to spare for data that only a few pages have. A bit in the tail of a
//! page marks a word ([`Format::word_flag`](crate::ftl::Format::word_flag)); such a page states
//! nothing but its own number. Summaries do not repeat words.

use super::{IS_COPY, UNSAID, statement};
use crate::ftl::write::Target;
use crate::ftl::{Cause, Ftl, FtlError, PageKind, Stream, Written};
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos};
use std::ops::Range;

/// The range of the word within the statement.
const WORD: Range<usize> = statement::HOST.start..statement::COPIES.end;
/// Size of a word.
pub(in crate::ftl) const WORD_BYTES: usize = WORD.end - WORD.start;

/// In a copy with a word that keeps its original's write sequence: its number, as the distance from
/// that sequence, low byte first; all ones if the distance is too large.
const DISTANCE: [usize; 3] = [
    statement::SEALED.start,
    statement::ROOT.start,
    statement::ERASE.start,
];
const FAR: u64 = (1 << (8 * DISTANCE.len())) - 1;

/// The number of the program of a page with a word; 0 if unknown.
pub(super) fn number(seq: u64, bytes: &[u8]) -> u64 {
    if get(bytes, statement::LAG) != IS_COPY {
        return seq;
    }
    let places = DISTANCE.iter().rev();
    match places.fold(0, |number, &at| number << 8 | u64::from(bytes[at])) {
        FAR => 0,
        distance => seq.saturating_add(distance),
    }
}

/// The statement of a page with a word: its number, if that is not its write sequence.
pub(super) fn emit(word: u64, seq: u64, number: u64) -> [u8; statement::SIZE] {
    let mut words = UNSAID;
    put(&mut words, WORD, word);
    if number != seq {
        put(&mut words, statement::LAG, IS_COPY);
        let distance = (number - seq).min(FAR);
        for (shift, at) in DISTANCE.into_iter().enumerate() {
            words[at] = (distance >> (8 * shift)) as u8;
        }
    }
    words
}

impl Ftl {
    /// The word in a spare area that was read, if there is one.
    pub(in crate::ftl) fn word_of(&self, spare: &[u8]) -> Option<u64> {
        let place = self.horizon_in_spare()?;
        let has_word = self.format.has_word(spare);
        has_word.then(|| get(&spare[place], WORD))
    }

    /// [`Ftl::append`] for a page with a word. Its tail must mark the word
    /// ([`Format::word_flag`](crate::ftl::Format::word_flag)). A scan that reads the page itself
    /// finds the word again; a summary lacks it.
    pub fn append_word(
        &mut self,
        now: Nanos,
        to: (Stream, Option<u32>),
        page: (PageKind, Lpn, Option<u64>),
        tail: &[u8],
        word: u64,
        data: &[u8],
        cause: Cause,
    ) -> Result<Written, FtlError> {
        let (stream, plane) = to;
        let to = Target {
            stream,
            plane,
            inside: false,
            word: Some(word),
        };
        self.append_to(now, to, page, data, cause, |_, bytes| {
            bytes.copy_from_slice(tail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_a_word_says_its_number_as_far_as_there_is_room() {
        for word in [0, 1, u64::MAX] {
            for seq in [1, 0x1234_5678_9abc] {
                for distance in [0, 1, 0x01_02_03, FAR - 1] {
                    let words = emit(word, seq, seq + distance);
                    assert_eq!(get(&words, WORD), word);
                    assert_eq!(number(seq, &words), seq + distance);
                }
                for distance in [FAR, FAR + 1, 1 << 40] {
                    let words = emit(word, seq, seq + distance);
                    assert_eq!((get(&words, WORD), number(seq, &words)), (word, 0));
                }
            }
        }
    }
}
