//! A word of the owner of a page, in the place of the statement.
//!
//! A spare area has no more bytes for what few pages have. The tail of a page says by a bit
//! ([`Format::word_flag`](crate::ftl::Format::word_flag)) that a word lies there; such a page says
//! nothing of what was durable but its own number. Summaries do not repeat words.

use super::{IS_COPY, UNSAID, statement};
use crate::ftl::{Cause, Ftl, FtlError, PageKind, Stream, Written};
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos};
use std::ops::Range;

/// Where the word is in the statement.
const WORD: Range<usize> = statement::HOST.start..statement::COPIES.end;
/// Bytes of a word.
pub(in crate::ftl) const WORD_BYTES: usize = WORD.end - WORD.start;

/// In a copy that has a word and the write sequence of another page: its number, as its distance
/// from that sequence, the low byte first; all ones if that is too far.
const DISTANCE: [usize; 3] = [
    statement::SEALED.start,
    statement::ROOT.start,
    statement::ERASE.start,
];
const FAR: u64 = (1 << (8 * DISTANCE.len())) - 1;

/// The number of the program of a page that has a word of its owner; 0 if it is not known.
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

/// What a page says that has a word of its owner: its number, if that is not its write sequence.
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
    /// The word of its owner in a page whose spare area was read, if it has one.
    pub(in crate::ftl) fn word_of(&self, spare: &[u8]) -> Option<u64> {
        let place = self.horizon_in_spare()?;
        let has_word = self.format.has_word(spare);
        has_word.then(|| get(&spare[place], WORD))
    }

    /// [`Ftl::append`] of a page that has a word of its owner: its tail says so
    /// ([`Format::word_flag`](crate::ftl::Format::word_flag)). A scan that reads the page itself
    /// finds the word again; a summary does not have it.
    pub fn append_word(
        &mut self,
        now: Nanos,
        to: (Stream, Option<u32>),
        page: (PageKind, Lpn, Option<u64>),
        (tail, word): (&[u8], u64),
        data: &[u8],
        cause: Cause,
    ) -> Result<Written, FtlError> {
        self.horizon.word = Some(word);
        let written = self.append(now, to, page, tail, data, cause);
        self.horizon.word = None;
        written
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
