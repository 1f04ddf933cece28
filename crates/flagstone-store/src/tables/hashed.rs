//! Records of a hashed table. The keys of its tree are 8-byte hashes, and the value of a hash holds
//! all records whose keys have that hash, in sequence. So keys can have any length, and keys with
//! the same hash are told apart.
//!
//! ```text
//!   | bytes of the key 4 | bytes of the value 4 | key | value |   and so on
//! ```

use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use std::ops::Range;

layout! {
    /// The head of a record of a hashed table; the key follows, then the value.
    pub hashed_head: 8 => {
        KEY:   4, "bytes of the key";
        VALUE: 4, "bytes of the value";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: [Layout; 1] = [hashed_head::RECORD];

const HEAD: usize = hashed_head::SIZE;

/// The hash of a key, as a key of the tree.
pub(super) fn hash(key: &[u8]) -> [u8; 8] {
    twox_hash::XxHash3_64::oneshot(key).to_be_bytes()
}

/// A record: the positions of its key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
}

/// The records of a hash. Stops at the first invalid one.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Place> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = bytes.get(at..at + HEAD)?;
        let key = at + HEAD..at + HEAD + get(head, hashed_head::KEY) as usize;
        let value = key.end..key.end + get(head, hashed_head::VALUE) as usize;
        at = value.end;
        (at <= bytes.len()).then_some(Place { key, value })
    })
}

/// The position of a key's value in the records of its hash.
pub(super) fn find(bytes: &[u8], key: &[u8]) -> Option<Place> {
    records(bytes).find(|place| bytes[place.key.clone()] == *key)
}

/// The number of records of a hash. `None` if bytes are left, or a key has another hash.
pub(super) fn count(hash_of_all: &[u8], bytes: &[u8]) -> Option<u64> {
    let (mut count, mut end) = (0, 0);
    for place in records(bytes) {
        if hash(&bytes[place.key]) != *hash_of_all {
            return None;
        }
        (count, end) = (count + 1, place.value.end);
    }
    (count > 0 && end == bytes.len()).then_some(count)
}

/// The records of a hash after `key` is set to `value`, or removed.
pub(super) fn change(bytes: &[u8], key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let mut changed = Vec::with_capacity(bytes.len());
    for place in records(bytes) {
        if bytes[place.key.clone()] != *key {
            changed.extend_from_slice(&bytes[place.key.start - HEAD..place.value.end]);
        }
    }
    if let Some(value) = value {
        let mut head = [0; HEAD];
        put(&mut head, hashed_head::KEY, key.len() as u64);
        put(&mut head, hashed_head::VALUE, value.len() as u64);
        changed.extend_from_slice(&head);
        changed.extend_from_slice(key);
        changed.extend_from_slice(value);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_if_all_of_them_have_the_hash() {
        let bytes = change(&[], b"key", Some(b"value"));
        assert_eq!(count(&hash(b"key"), &bytes), Some(1));
        assert_eq!(count(&hash(b"kez"), &bytes), None);
        assert_eq!(count(&hash(b"key"), &bytes[..bytes.len() - 1]), None);
        assert_eq!(count(&hash(b"key"), &[]), None);
        let two = change(&bytes, b"another key", Some(b""));
        assert_eq!(count(&hash(b"key"), &two), None);
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let mut bytes = Vec::new();
        for (key, value) in [(&b"one"[..], &b"1"[..]), (b"two", b""), (b"", b"none")] {
            bytes = change(&bytes, key, Some(value));
        }
        let value =
            |bytes: &[u8], key: &[u8]| find(bytes, key).map(|place| bytes[place.value].to_vec());
        assert_eq!(value(&bytes, b"two"), Some(Vec::new()));
        assert_eq!(value(&bytes, b""), Some(b"none".to_vec()));
        assert_eq!(value(&bytes, b"tw"), None);
        bytes = change(&bytes, b"one", Some(b"more"));
        bytes = change(&bytes, b"two", None);
        assert_eq!(value(&bytes, b"one"), Some(b"more".to_vec()));
        assert_eq!(records(&bytes).count(), 2);
        assert_eq!(value(&bytes, b"two"), None);
        // Stored data depends on this function: its results must never change.
        assert_eq!(hash(b"key"), XXH3_OF_KEY);
    }

    const XXH3_OF_KEY: [u8; 8] = [187, 234, 13, 99, 160, 81, 101, 227];
}
