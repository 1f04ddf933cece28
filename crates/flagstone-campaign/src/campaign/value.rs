//! The bytes of a record: writer, number of the write, and padding up to the length of the record.

use crate::payload::{Payload, Place, payload, write_of};

/// Minimum and maximum length in bytes.
pub(super) type Lengths = (u16, u16);

/// Appends `number` as a varint: seven bits per byte, lowest first; the highest bit says that more
/// bytes follow.
fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a varint from the front of `bytes`; `None` if there is none.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Encodes a payload as a record. Its length is between the two of `Lengths`, determined by the
/// payload; only a record whose name and number need more bytes is longer.
pub(super) fn emit(payload: &Payload, (from, to): Lengths, into: &mut Vec<u8>) {
    let (name, nth) = write_of(payload).expect("it is a payload");
    into.clear();
    put(name, into);
    put(nth.into(), into);
    let mix = (name << 16 | u64::from(nth)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let length = u64::from(from) + mix % u64::from(to - from + 1);
    while (into.len() as u64) < length {
        into.push((mix as u8).wrapping_add(into.len() as u8));
    }
}

/// The payload of a record; `None` if it is not one for this place.
pub(super) fn parse(mut bytes: &[u8], place: Place, lengths: Lengths) -> Option<Payload> {
    let all = bytes;
    let name = take(&mut bytes)?;
    let nth = u16::try_from(take(&mut bytes)?).ok()?;
    let found = payload(name, place, nth);
    let mut right = Vec::new();
    emit(&found, lengths, &mut right);
    (right == all).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_who_wrote_it_and_has_a_length_of_its_own() {
        let mut lengths = std::collections::BTreeSet::new();
        for (name, nth) in (1..60).zip(0..).chain([(300, 7), (70_000, 400)]) {
            let (written, mut bytes) = (payload(name, 9, nth), Vec::new());
            emit(&written, (1, 12), &mut bytes);
            lengths.insert(bytes.len());
            assert_eq!(parse(&bytes, 9, (1, 12)), Some(written));
            let last = bytes.last_mut().unwrap();
            *last ^= 0x11;
            assert_ne!(parse(&bytes, 9, (1, 12)), Some(written));
            bytes.push(0);
            assert_eq!(parse(&bytes, 9, (1, 12)), None);
        }
        // A name and a number take two bytes.
        let ends = (lengths.first().copied(), lengths.last().copied());
        assert_eq!(ends, (Some(2), Some(12)), "{lengths:?}");
        assert!(lengths.len() > 4, "{lengths:?}");
    }
}
