//! Encodes the numeric keys and values of all indexes as byte strings of any length. So the common
//! histories, workloads and power cuts also cover byte strings.
//!
//! ```text
//!   key 7, 8 bytes       00 00 00 00 00 00 00 07
//!   key 7, 12 bytes      00 00 00 00 00 00 00 04  xx xx xx  03
//! ```
//!
//! A key is its number in big-endian order, which preserves the order. In a longer key the last two
//! bits come at the end, so four adjacent keys share everything before. A value is its number plus
//! padding. The padding depends on the number and is checked on every read, so that a byte of
//! another key or of an older value is detected.

use super::super::bucket::hash;
use super::super::{Key, Value};

/// A range of lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Lengths {
    /// Parses `24` or `9..60`.
    pub(super) fn parse(text: &str) -> Option<Lengths> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
        (least <= most).then_some(Lengths { least, most })
    }

    /// A length derived from `seed`, uniformly distributed.
    fn any(self, seed: u64) -> usize {
        self.least + (seed % (self.most - self.least + 1) as u64) as usize
    }

    /// Like `any`, but half of the lengths are in the first sixteenth of the range.
    fn rather_short(self, seed: u64) -> usize {
        let share = (seed >> 40) as f64 / (1u64 << 24) as f64;
        let way = (self.most - self.least + 1) as f64;
        self.least + (way * share.powi(4)) as usize
    }
}

/// How numbers are encoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// Length of keys, at least eight.
    pub(super) key: Lengths,
    /// Length of values, at least `value_bytes`.
    pub(super) value: Lengths,
    /// Bytes of a value's number.
    pub(super) value_bytes: usize,
}

/// The low bits of a key that are stored at its end.
const LAST: u64 = 3;

/// Appends `len` bytes that depend on `seed` alone.
fn fill(into: &mut Vec<u8>, seed: u64, len: usize) {
    let to = into.len() + len;
    let mut state = seed;
    while into.len() < to {
        state = hash(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
        let bytes = state.to_le_bytes();
        into.extend_from_slice(&bytes[..bytes.len().min(to - into.len())]);
    }
}

impl Numbers {
    /// Encodes a key into `into`, replacing its contents.
    #[inline]
    pub(super) fn key(self, key: Key, into: &mut Vec<u8>) {
        into.clear();
        // All but the bits that come last. The length depends on them only, which keeps the order.
        let front = key & !LAST;
        let seed = hash(!front);
        let len = self.key.any(seed);
        if len <= 8 {
            into.extend_from_slice(&key.to_be_bytes());
        } else {
            into.extend_from_slice(&front.to_be_bytes());
            fill(into, seed, len - 9);
            into.push((key & LAST) as u8);
        }
    }

    /// Decodes a key; `scratch` is a buffer. `None` if the bytes encode no key.
    pub(super) fn key_of(self, bytes: &[u8], scratch: &mut Vec<u8>) -> Option<Key> {
        let front = Key::from_be_bytes(*bytes.first_chunk::<8>()?);
        let last = if bytes.len() > 8 { *bytes.last()? } else { 0 };
        let key = front | u64::from(last);
        self.key(key, scratch);
        (scratch == bytes).then_some(key)
    }

    /// Encodes a key's value into `into`, replacing its contents.
    #[inline]
    pub(super) fn value(self, key: Key, value: Value, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&value.to_le_bytes()[..self.value_bytes]);
        if self.value.most > self.value_bytes {
            let seed = hash(key ^ hash(value));
            let len = self.value.rather_short(seed);
            fill(into, seed, len.saturating_sub(self.value_bytes));
        }
    }

    /// Decodes the value of a key; `scratch` is a buffer.
    #[inline]
    pub(super) fn value_of(self, key: Key, bytes: &[u8], scratch: &mut Vec<u8>) -> Option<Value> {
        let mut word = [0; 8];
        word[..self.value_bytes].copy_from_slice(bytes.get(..self.value_bytes)?);
        let value = Value::from_le_bytes(word);
        self.value(key, value, scratch);
        (scratch == bytes).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::dice::Dice;

    fn numbers(key: &str, value: &str, value_bytes: usize) -> Numbers {
        Numbers {
            key: Lengths::parse(key).expect("lengths"),
            value: Lengths::parse(value).expect("lengths"),
            value_bytes,
        }
    }

    #[test]
    fn bytes_keep_the_order_of_the_numbers_and_lead_back() {
        let numbers = numbers("8..40", "0..500", 5);
        let mut dice = Dice(1);
        let mut keys: Vec<Key> = (0..2000).map(|i| dice.next() >> (i % 64)).collect();
        keys.extend(0..300);
        keys.sort_unstable();
        keys.dedup();
        let (mut before, mut bytes, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        let mut lengths = std::collections::BTreeSet::new();
        for key in keys {
            numbers.key(key, &mut bytes);
            assert!(before < bytes, "{key}");
            assert_eq!(numbers.key_of(&bytes, &mut scratch), Some(key));
            lengths.insert(bytes.len());
            before.clone_from(&bytes);
            let value = dice.below(1 << 40);
            numbers.value(key, value, &mut bytes);
            assert_eq!(numbers.value_of(key, &bytes, &mut scratch), Some(value));
            // A changed byte, and the value of another key, are detected.
            let other = numbers.value_of(key ^ 1, &bytes, &mut scratch);
            assert!(bytes.len() < 13 || other.is_none(), "{key}");
            if let Some(last) = bytes[5..].last_mut() {
                *last ^= 1;
                assert_eq!(numbers.value_of(key, &bytes, &mut scratch), None);
            }
        }
        assert_eq!(lengths, (8..=40).collect());
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        let lengths = |least, most| Some(Lengths { least, most });
        assert_eq!(Lengths::parse("24"), lengths(24, 24));
        assert_eq!(Lengths::parse("9..60"), lengths(9, 60));
        for wrong in ["", "..", "60..9", "9..", "x", "-1"] {
            assert_eq!(Lengths::parse(wrong), None, "{wrong}");
        }
    }
}
