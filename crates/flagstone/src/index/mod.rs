//! The indexes: from the key of a record to its place, in pages on flash.
//!
//! An index keeps its pages in a [`BackingStore`]: on the simulated device, in the host's
//! transactions, or in a file. A cache keeps some of the pages in memory. An index is a state
//! machine without threads: a call says at which instant it is made, and the answer says when it is
//! done.
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
//! use flagstone::index::{IndexError, IndexKind, MemStore, Settings};
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

mod bucket;
mod buckets;
mod cache;
mod device_store;
mod host_store;
mod journal;
mod meta;
mod recoverable;
mod settings;
mod space;
mod store;

// An index each.
mod bptree;
mod bw_delta;
mod extendible;
mod lazy_bptree;
mod lazy_split;
mod linear;
pub mod prefix_bptree;
pub mod sal;

#[cfg(test)]
mod failing_calls;
#[cfg(test)]
mod model;
#[cfg(test)]
mod odd_keys;
#[cfg(test)]
mod registry_tests;

pub use crate::settings::{Setting, Settings};
pub use bucket::hash;
pub(crate) use cache::Cache;
pub use device_store::DeviceStore;
pub use host_store::HostStore;
pub use prefix_bptree::{ByteIndex, Limits};
pub use recoverable::{Mistake, Recoverable};
pub use settings::COMMON;
pub use store::{BackingError, BackingStore, MemStore};

use crate::buffer::PoolStats;
use crate::layout::Layout;
use crate::settings::{BadSetting, registry};
use crate::units::{Lpn, Nanos};
use std::fmt;

/// Records that the indexes keep in pages.
pub const LAYOUTS: &[&[Layout]] = &[
    meta::LAYOUTS,
    space::LAYOUTS,
    journal::LAYOUTS,
    bucket::LAYOUTS,
    buckets::LAYOUTS,
    bw_delta::LAYOUTS,
    bptree::LAYOUTS[0],
    bptree::LAYOUTS[1],
    prefix_bptree::LAYOUTS[0],
    prefix_bptree::LAYOUTS[1],
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
    /// Its name on the command line.
    pub name: &'static str,
    /// One line on how it works.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// Whether it gives ranges of keys in order.
    pub ordered: bool,
    /// Whether it keeps changes in memory beyond [`Index::settle`]. Then changes since the last
    /// [`Index::flush`] survive a restart only if the caller keeps a journal of them.
    pub buffers: bool,
    /// Its own settings, besides those that all indexes have ([`COMMON`]).
    pub settings: &'static [Setting],
    /// Settings for tests and campaigns: with these, all operations of the index occur within a few
    /// pages of 256 bytes.
    pub tiny: &'static [(&'static str, &'static str)],
    /// Page reads and programs for an operation: a search, an insertion, a split or merge. For the
    /// table of costs in the docs.
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
    /// Requests that read several pages side by side.
    pub coarse_reads: u64,
    /// Requests that wrote several pages side by side.
    pub coarse_writes: u64,
    /// Pages written by these requests.
    pub coarse_pages: u64,
    /// Key comparisons, a measure of processor time that is the same on every machine.
    pub comparisons: u64,
    /// Accesses to pages and evictions.
    pub pool: PoolStats,
}

/// Why an index refused or could not go on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum IndexError {
    /// A setting makes no sense, or two do not go together.
    Settings(String),
    /// The store has no free page left.
    Full {
        /// Pages of the store.
        pages: u32,
    },
    /// A page does not have what the index wrote there.
    Damaged {
        /// The page.
        at: Lpn,
        /// What is wrong with it.
        why: String,
    },
    /// A byte string is longer than the index takes.
    TooLong {
        /// Whether it is a key or a value.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// Those that there may be.
        most: usize,
        /// Bytes of a page.
        page: usize,
    },
    /// Ranges were asked of an index without order.
    Unordered(&'static str),
    /// The store refused.
    Store(BackingError),
}

/// What a call of an index gives: most give an answer, and the instant at which it is there.
pub type Result<T, E = IndexError> = std::result::Result<T, E>;

/// The error of a page that does not have what the index wrote there.
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

impl From<BackingError> for IndexError {
    fn from(error: BackingError) -> Self {
        IndexError::Store(error)
    }
}

/// An index from keys to values. A key has at most one value.
///
/// After [`Index::settle`] the pages in the store are a whole structure, which `open` finds. The
/// value of each key is then as new as the last [`Index::flush`], or newer. Between two calls of
/// `settle` the pages may be in any state.
pub trait Index {
    /// The description of this index.
    fn info(&self) -> &'static IndexInfo;

    /// Gives a key a value, whether it had one or not. It is done at the instant of the answer. It
    /// is durable only after a flush.
    ///
    /// # Errors
    /// There is no room, or the store cannot go on.
    fn insert(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos>;

    /// Fills an empty index with pairs, in the order of their keys, each once. A tree packs them
    /// into full nodes, as bulk loads do; others insert one after the other.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn build(&mut self, mut now: Nanos, pairs: &[(Key, Value)]) -> Result<Nanos> {
        for &(key, value) in pairs {
            now = self.insert(now, key, value)?;
        }
        Ok(now)
    }

    /// Gives a key that has a value a new one. For most indexes this is an insertion. Some save
    /// work if they know whether a key is new.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn update(&mut self, now: Nanos, key: Key, value: Value) -> Result<Nanos> {
        self.insert(now, key, value)
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn delete(&mut self, now: Nanos, key: Key) -> Result<Nanos>;

    /// The value of a key.
    ///
    /// # Errors
    /// A store that cannot go on.
    fn get(&mut self, now: Nanos, key: Key) -> Result<(Option<Value>, Nanos)>;

    /// Appends the pairs with `from <= key <= to` to `into`, by ascending key.
    ///
    /// # Errors
    /// [`IndexError::Unordered`], or the store cannot go on.
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

    /// The index as one of byte strings, if it is one. Both views have the same pairs: numbers are
    /// stored as byte strings. Use one view only for a store.
    fn bytes(&mut self) -> Option<&mut ByteIndex> {
        None
    }

    /// Writes changed pages, and all else that `open` needs to find the structure. Changes in a
    /// buffer of the index may stay there.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn settle(&mut self, now: Nanos) -> Result<Nanos>;

    /// Brings all changes into the structure and settles.
    ///
    /// # Errors
    /// As [`Index::insert`].
    fn flush(&mut self, now: Nanos) -> Result<Nanos> {
        self.settle(now)
    }

    /// Whether it may take more pages than are free to bring so many changes into the structure,
    /// each of a key of its own. An index without buffers has brought all in, and says no.
    fn may_lack_room(&self, changes: u32) -> bool {
        let _ = changes;
        false
    }

    /// Checks the whole structure: order, fences, reachability, fill, counts, filters, and that
    /// each page is used once. It reads all pages, without counting.
    ///
    /// # Errors
    /// Says what does not hold, and where.
    fn check(&mut self) -> Result<(), String>;

    /// The counters.
    fn stats(&self) -> IndexStats;

    /// Sets the counters to zero.
    fn reset_stats(&mut self);

    /// Bytes of each structure in memory.
    fn memory(&self) -> Vec<(&'static str, u64)>;

    /// Figures of this kind of index, by name: splits, merges, pages that a buffer saved.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The store of its pages.
    fn store(&mut self) -> &mut dyn BackingStore;

    /// Gives the store back. Changes since the last settle are lost.
    fn into_store(self: Box<Self>) -> Box<dyn BackingStore>;
}

/// In an implementation of [`Index`]: its description, and the methods that are those of the cache
/// in the first field. In the other fields is what it counts besides.
macro_rules! of_cache {
    ($($cache:ident).+ $(, $($counts:ident).+)*) => {
        fn info(&self) -> &'static $crate::index::IndexInfo {
            &INFO
        }

        fn stats(&self) -> $crate::index::IndexStats {
            self.$($cache).+.stats()
        }

        fn reset_stats(&mut self) {
            self.$($cache).+.reset_stats();
            $(self.$($counts).+ = Default::default();)*
        }

        fn store(&mut self) -> &mut dyn $crate::index::BackingStore {
            self.$($cache).+.store()
        }

        fn into_store(self: Box<Self>) -> Box<dyn $crate::index::BackingStore> {
            self.$($cache).+.into_store()
        }
    };
}
use of_cache;

/// Declares what an index counts. `figures` gives the counters by the names of the fields.
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
            /// Opens the index that is in a store, or makes an empty one in a blank store.
            ///
            /// # Errors
            /// The index does not have these settings, the store holds something else, or the store
            /// cannot go on.
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
