//! Indexes whose keys and values are byte strings.
//!
//! A key-value store can be built on such an index. It is in the registry like the others and uses
//! the same stores. [`Index::bytes`](super::Index::bytes) gives this view of it.
//! [`Recoverable`](super::Recoverable) adds transactions and restarts.
//!
//! ```
//! use flagstone::index::{IndexError, IndexKind, MemStore, Settings};
//! use flagstone::units::Nanos;
//!
//! let store = Box::new(MemStore::new(4096, 100));
//! let kind = IndexKind::by_name("prefix-bptree").expect("it is in the registry");
//! let (mut index, now) = kind.open(store, &Settings::new(), Nanos::ZERO)?;
//! let tree = index.bytes().expect("it has byte strings");
//! let now = tree.insert(now, b"lemon", b"yellow")?;
//! let now = tree.insert(now, b"lime", b"")?;
//! let mut found = Vec::new();
//! tree.range(now, b"le", None, &mut |key, value| {
//!     found.push((key.to_vec(), value.to_vec()));
//!     true
//! })?;
//! assert_eq!(found[0], (b"lemon".to_vec(), b"yellow".to_vec()));
//! assert_eq!(found.len(), 2);
//! # Ok::<(), IndexError>(())
//! ```

use super::Result;
use crate::units::Nanos;

/// The longest key and the longest value of an index, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of a key.
    pub key: usize,
    /// Of a value.
    pub value: usize,
}

/// An ordered index from byte strings to byte strings. Keys and values may be empty. Keys are in
/// the order of their bytes; a key comes before all longer keys that begin with it.
pub trait ByteIndex {
    /// The longest key and value that it takes.
    fn limits(&self) -> Limits;

    /// The number of keys.
    fn len(&self) -> u64;

    /// Whether there are no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives a key a value, whether it had one or not.
    ///
    /// # Errors
    /// [`TooLong`](super::IndexError::TooLong), no room, or the store cannot go on. After the first
    /// two nothing has changed.
    fn insert(&mut self, now: Nanos, key: &[u8], value: &[u8]) -> Result<Nanos>;

    /// Removes a key; says whether it was there.
    ///
    /// # Errors
    /// A store that cannot go on.
    fn delete(&mut self, now: Nanos, key: &[u8]) -> Result<(bool, Nanos)>;

    /// Writes the value of a key into `into`, in place of its old contents. Says whether the key
    /// has a value.
    ///
    /// # Errors
    /// A store that cannot go on.
    fn get(&mut self, now: Nanos, key: &[u8], into: &mut Vec<u8>) -> Result<(bool, Nanos)>;

    /// Calls `each` for the pairs with `from <= key`, and `key < to` if there is a `to`, by
    /// ascending key. It stops when `each` returns `false`.
    ///
    /// # Errors
    /// A store that cannot go on.
    fn range(
        &mut self,
        now: Nanos,
        from: &[u8],
        to: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Nanos>;
}
