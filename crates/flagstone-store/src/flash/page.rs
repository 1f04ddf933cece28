//! The format of a page on the medium: writes and verifies its trailer with generation and
//! checksum. All of these depend on the identity of the store.

use super::{DAMAGED, DATA_BYTES, NEVER, trailer};
use crate::identity::Identity;
use crate::sum::crc32c_of;
use flagstone::layout::{get, put};
use flagstone::units::Ppn;

/// The checksum of a page of the medium, given the bytes before it and its page number counted over
/// all blocks: the record `trailer` in docs/store-format.md.
///
/// `identity` is the store's identity in its superblock, or 0 if there is none.
pub fn page_sum(bytes: &[u8], number: u32, identity: u64) -> u32 {
    Identity::of(identity).end_of_sum(number, |last| crc32c_of(&[bytes, last]))
}

/// The checksum of a page, from its data and its trailer.
pub(super) fn sum(data: &[u8], end: &[u8], at: Ppn, identity: Identity) -> u64 {
    let end = &end[..trailer::CRC.start];
    let sum = identity.end_of_sum(at.0, |last| crc32c_of(&[data, end, last]));
    sum.into()
}

/// Writes the trailer of a page with `bytes` data bytes. The spare area is in place already.
pub(super) fn end_page(
    data: &[u8],
    end: &mut [u8],
    bytes: usize,
    generation: u64,
    at: Ppn,
    identity: Identity,
) {
    put(end, trailer::BYTES, bytes as u64);
    put(end, trailer::GENERATION, identity.combine(generation));
    let sum = sum(data, end, at, identity);
    put(end, trailer::CRC, sum);
}

/// Decodes and verifies page `at` of the medium, whose block has generation `generation`. `end` is
/// the trailer.
pub(super) fn judge(
    data: &[u8],
    end: &[u8],
    at: Ppn,
    generation: u64,
    identity: Identity,
) -> Judged {
    if generation == DAMAGED {
        return Judged::Wrong;
    }
    if generation == NEVER || get(end, trailer::GENERATION) != identity.combine(generation) {
        return Judged::Blank;
    }
    let bytes = get(end, trailer::BYTES) as usize;
    if get(end, trailer::CRC) == sum(data, end, at, identity) && bytes <= DATA_BYTES {
        Judged::Whole(bytes)
    } else {
        Judged::Wrong
    }
}

pub(super) enum Judged {
    /// Not written since the last erase of its block.
    Blank,
    /// Valid, with this number of data bytes.
    Whole(usize),
    /// Torn or damaged, or in a block with a damaged mark.
    Wrong,
}
