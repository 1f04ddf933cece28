//! Indexes from keys of records to their addresses, stored in pages on flash.
//!
//! An index keeps its pages in a [`BackingStore`]: on the simulated device, in the host's
//! transactions, or in a file. A cache keeps some of the pages in memory. An index is a state
//! machine without threads: each call names its instant, and the answer has the instant of
//! completion.
//!
//! ```text
//!   Recoverable   transactions of several operations, restarts    recoverable.rs
//!   Index         a file each                                      bptree.rs, …
//!   Cache         pages in memory, by a policy of buffer           cache.rs
//!   BackingStore  pages below                                      store.rs
//! ```
//!
//! To add an index: a file with `INFO` and `open`, and a line in `indexes!`.
//!
//! An index in memory, with its settings by name:
//!
//! ```
//! use flagstone_index::{IndexError, IndexKind, MemStore, Settings};
//! use flagstone::units::Nanos;
//!
//! let store = Box::new(MemStore::new(4096, 1000));
//! let settings = Settings::new().with("memory", 64 * 1024);
//! let (mut index, mut now) = IndexKind::BPlusTree.open(store, &settings, Nanos::ZERO)?;
//! for key in 0..5000 {
//!     now = index.insert(now, key, key * key)?;
//! }
//! assert_eq!(index.get(now, 70)?.0, Some(4900));
//! let mut found = Vec::new();
//! index.range(now, 3, 5, &mut found)?;
//! assert_eq!(found, [(3, 9), (4, 16), (5, 25)]);
//! println!("{} pages read", index.stats().reads);
//! # Ok::<(), IndexError>(())
//! ```
//!
//! Without the feature `file` the crate does no I/O and reads no clock; it draws no random numbers
//! and has no `unsafe`.
#![forbid(unsafe_code)]

mod bucket;
mod buckets;
mod cache;
mod device_store;
#[cfg(feature = "file")]
mod file_store;
#[doc(hidden)]
pub mod fuzzing;
mod host_store;
mod journal;
mod meta;
mod recoverable;
mod settings;
mod space;
mod store;

// One module per index.
mod bptree;
mod bw_delta;
mod extendible;
mod lazy_bptree;
mod lazy_split;
mod linear;
mod prefix_bptree;
pub mod sal;

#[cfg(test)]
mod failing_calls;
#[cfg(test)]
mod model;
#[cfg(test)]
mod odd_keys;
#[cfg(test)]
mod registry_tests;

pub use bucket::hash;
pub use device_store::DeviceStore;
#[cfg(feature = "file")]
pub use file_store::{FileOptions, FileStore, OpenError};
pub use flagstone::settings::{Setting, Settings};
pub use flagstone_btree::Limits;
pub use host_store::HostStore;
pub use prefix_bptree::ByteIndex;
pub use recoverable::{Mistake, Recoverable};
pub use settings::COMMON;
pub use store::{BackingError, BackingStore, MemStore};

use cache::Cache;
use flagstone::layout::Layout;
use flagstone::settings::{BadSetting, registry};
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::TreeError;
use flagstone_host::buffer::PoolStats;
use std::fmt;

/// Record layouts of all indexes.
pub const LAYOUTS: &[&[Layout]] = &[
    meta::LAYOUTS,
    space::LAYOUTS,
    journal::LAYOUTS,
    bucket::LAYOUTS,
    buckets::LAYOUTS,
    bw_delta::LAYOUTS,
    bptree::LAYOUTS[0],
    bptree::LAYOUTS[1],
    flagstone_btree::LAYOUTS,
    prefix_bptree::LAYOUTS,
    sal::LAYOUTS,
];

/// The key of a record. Keys of fewer bits are numbers below `u64::MAX` too. The lazy-update tree's
/// paper has real numbers in [0, 1] as keys: the caller scales them.
pub type Key = u64;

/// The value of a key: the record's address, or a small record itself.
pub type Value = u64;

/// A description of an index.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct IndexInfo {
    /// The name on the command line.
    pub name: &'static str,
    /// One line on how it works.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// Whether it supports ordered ranges.
    pub ordered: bool,
    /// Whether it buffers changes in memory beyond [`Index::settle`]. If so, changes since the last
    /// [`Index::flush`] survive a restart only if the caller journals them.
    pub buffers: bool,
    /// The index's own settings, in addition to the common ones ([`COMMON`]).
    pub settings: &'static [Setting],
    /// Settings for tests and campaigns, under which all operations of the index occur within a few
    /// pages of 256 bytes.
    pub tiny: &'static [(&'static str, &'static str)],
    /// Page reads and programs of a search, an insertion, and a split or merge. For the table of
    /// costs in the docs.
    pub costs: [&'static str; 3],
}

impl IndexInfo {
    /// The settings for tests and campaigns.
    pub fn tiny(&self) -> Settings {
        let settings = Settings::new().with("memory", 2048);
        let own = self.tiny.iter();
        own.fold(settings, |settings, (name, value)| {
            settings.with(name, value)
        })
    }
}

/// The counters of an index since the start or [`Index::reset_stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct IndexStats {
    /// Pages read from the store.
    pub reads: u64,
    /// Pages written to the store.
    pub writes: u64,
    /// Requests that read several pages in parallel.
    pub coarse_reads: u64,
    /// Requests that wrote several pages in parallel.
    pub coarse_writes: u64,
    /// Pages written by these requests.
    pub coarse_pages: u64,
    /// Key comparisons: a machine-independent measure of processor time.
    pub comparisons: u64,
    /// Page accesses and evictions.
    pub pool: PoolStats,
}

/// Why an index refused a request or cannot continue.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum IndexError {
    /// A setting is invalid, or two settings contradict each other.
    Settings(String),
    /// The store has no free page left.
    Full {
        /// Pages of the store.
        pages: u32,
    },
    /// A page does not contain what the index wrote there.
    Damaged {
        /// The page.
        at: Lpn,
        /// What is wrong with it.
        why: String,
    },
    /// A byte string is longer than the index supports.
    TooLong {
        /// Whether it is a key or a value.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum length.
        most: usize,
        /// The page size.
        page: usize,
    },
    /// A range was requested from an unordered index.
    Unordered(&'static str),
    /// The store refused.
    Store(BackingError),
}

/// The result of an index call: usually an answer and the instant of completion.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// The error for a page that does not contain what the index wrote there.
fn damaged<T>(at: Lpn, why: impl Into<String>) -> Result<T> {
    let why = why.into();
    Err(IndexError::Damaged { at, why })
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Settings(why) => f.write_str(why),
            IndexError::Full { pages } => write!(
                f,
                "all {pages} pages of the store are in use: give it more pages or delete records"
            ),
            IndexError::Damaged { at, why } => write!(f, "page {at} of the index: {why}"),
            IndexError::TooLong {
                what,
                bytes,
                most,
                page,
            } => write!(
                f,
                "a {what} of {bytes} bytes is too long: pages of {page} bytes take a {what} of \
                 {most}; shorten it, or use a store with larger pages"
            ),
            IndexError::Unordered(name) => write!(
                f,
                "{name} keeps no order among keys and gives no ranges: use a tree"
            ),
            IndexError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<BadSetting> for IndexError {
    fn from(error: BadSetting) -> Self {
        IndexError::Settings(error.0)
    }
}

impl From<TreeError> for IndexError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Full { pages } => IndexError::Full { pages },
            TreeError::Damaged { at, why } => IndexError::Damaged { at, why },
            TreeError::TooLong {
                what,
                bytes,
                most,
                page,
            } => IndexError::TooLong {
                what,
                bytes,
                most,
                page,
            },
            other => IndexError::Settings(other.to_string()),
        }
    }
}

impl From<BackingError> for IndexError {
    fn from(error: BackingError) -> Self {
        IndexError::Store(error)
    }
}

/// An index from keys to values. A key has at most one value.
///
/// After [`Index::settle`] the pages in the store form a complete structure, which `open` finds.
/// The value of each key is then at least as new as the last [`Index::flush`]. Between calls of
/// `settle` the pages may be inconsistent.
pub trait Index {
    /// The static description of this index.
    fn info(&self) -> &'static IndexInfo;

    /// Sets the value of a key, whether or not it had one. Complete at the returned instant, but
    /// durable only after a flush.
    ///
    /// # Errors
    /// The store has no space, or cannot continue.
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos>;

    /// Fills an empty index with pairs, sorted by distinct keys. Trees pack them into full nodes,
    /// like a bulk load; other indexes insert them one by one.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn build(&mut self, mut now: Nanos, pairs: &[(Key, Value)]) -> Result<Nanos> {
        for &(key, value) in pairs {
            now = self.insert(now, key, value)?;
        }
        Ok(now)
    }

    /// Sets the value of an existing key. For most indexes this is an insertion. Some save work if
    /// they know whether a key is new.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.insert(now, key, value)
    }

    /// Removes a key, if it exists.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos>;

    /// The value of a key.
    ///
    /// # Errors
    /// The store cannot continue.
    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)>;

    /// Appends the pairs with `from <= key <= to` to `into`, in ascending key order.
    ///
    /// # Errors
    /// [`IndexError::Unordered`], or the store cannot continue.
    fn range(
        &mut self,
        now: Nanos,
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        let _ = (now, from, to, into);
        Err(IndexError::Unordered(self.info().name))
    }

    /// The index as an index of byte strings, if it is one. Both views have the same pairs: numbers
    /// are stored as byte strings. Use only one view per store.
    fn bytes(&mut self) -> Option<&mut ByteIndex> {
        None
    }

    /// Writes changed pages, and everything else that `open` needs to find the structure. Buffered
    /// changes may stay in memory.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn settle(&mut self, now: Nanos) -> Result<Nanos>;

    /// Applies all buffered changes and settles.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn flush(&mut self, now: Nanos) -> Result<Nanos> {
        self.settle(now)
    }

    /// Whether applying `changes` buffered changes of different keys may take more pages than are
    /// free. An index without buffers has applied all and returns `false`.
    fn may_lack_room(&self, changes: u32) -> bool {
        let _ = changes;
        false
    }

    /// Checks the whole structure: order, fences, reachability, fill, counts, filters, and that
    /// each page is used once. Reads all pages, without counting.
    ///
    /// # Errors
    /// Describes the inconsistency and its place.
    fn check(&mut self) -> Result<(), String>;

    /// The counters.
    fn stats(&self) -> IndexStats;

    /// Sets the counters to zero.
    fn reset_stats(&mut self);

    /// Bytes of each structure in memory.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Figures of this kind of index, by name: splits, merges, pages saved by a buffer.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The store with the index's pages.
    fn store(&mut self) -> &mut dyn BackingStore;

    /// Returns the store. Changes since the last settle are lost.
    fn into_store(self: Box<Self>) -> Box<dyn BackingStore>;
}

/// Implements the [`Index`] methods that the cache in the first field provides, and the
/// description. Further fields are the index's own counters.
macro_rules! of_cache {
    ($($cache:ident).+ $(, $($counts:ident).+)*) => {
        fn info(&self) -> &'static $crate::IndexInfo {
            &INFO
        }

        fn stats(&self) -> $crate::IndexStats {
            self.$($cache).+.stats()
        }

        fn reset_stats(&mut self) {
            self.$($cache).+.reset_stats();
            $(self.$($counts).+ = Default::default();)*
        }

        fn store(&mut self) -> &mut dyn $crate::BackingStore {
            self.$($cache).+.store()
        }

        fn into_store(self: Box<Self>) -> Box<dyn $crate::BackingStore> {
            self.$($cache).+.into_store()
        }
    };
}
use of_cache;

/// Declares an index's counters. `figures` returns them by field name.
macro_rules! counters {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $field:ident,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default)]
        $vis struct $name {
            $($(#[$of_field])* $vis $field: u64,)+
        }

        impl $name {
            $vis fn figures(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($field), self.$field as f64)),+]
            }
        }
    };
}
use counters;

macro_rules! indexes {
    ($($(#[$doc:meta])* $variant:ident => $module:ident;)*) => {
        registry! {
            /// The registry of indexes.
            IndexKind: IndexInfo {
                $($(#[$doc])* $variant => $module;)*
            }
        }

        impl IndexKind {
            /// Opens the index in a store, or creates an empty one in a blank store.
            ///
            /// # Errors
            /// The settings are invalid, the store holds something else, or the store cannot
            /// continue.
            pub fn open(
                self,
                store: Box<dyn BackingStore>,
                settings: &Settings,
                now: Nanos,
            ) -> Result<(Box<dyn Index>, Nanos)> {
                settings.check(self.info())?;
                match self {
                    $(IndexKind::$variant => $module::open(store, settings, now),)*
                }
            }
        }
    };
}

indexes! {
    /// Extendible hashing.
    Extendible => extendible;
    /// Linear hashing.
    Linear => linear;
    /// Lazy-split hashing.
    LazySplit => lazy_split;
    /// The Bw-delta tree.
    BwDelta => bw_delta;
    /// A B+-tree.
    BPlusTree => bptree;
    /// A B+-tree with a pool of requests that are committed in groups.
    LazyBPlusTree => lazy_bptree;
    /// A B+-tree of byte strings.
    PrefixBPlusTree => prefix_bptree;
    /// SAL-hashing.
    Sal => sal;
}
