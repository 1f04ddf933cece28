//! The tree as an index: over a store with a cache, with metadata and a count of its keys.

use super::super::bptree::read_ahead;
use super::super::meta::Meta;
use super::super::{BackingStore, Cache, Result, Settings, damaged};
use super::INFO;
use super::framed::Framed;
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::{Lpn, Nanos};
use flagstone_btree::{ByteTree, Limits, ReadAhead, Root, write_empty};

layout! {
    /// The tree's own metadata.
    pub prefix_tree_meta: 16 => {
        ROOT:   4, "the root";
        HEIGHT: 4, "levels; 1 if the root is a leaf";
        LEN:    8, "keys";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[prefix_tree_meta::RECORD];

/// An ordered index from byte strings to byte strings, which may be empty. Keys are in byte order;
/// a key comes before longer keys that begin with it.
///
/// A key-value store can be built on it. [`Index::bytes`](crate::Index::bytes) gives this
/// view of an index in the registry, [`Recoverable`](crate::Recoverable) adds transactions
/// and restarts.
///
/// ```
/// use flagstone_index::{IndexError, IndexKind, MemStore, Settings};
/// use flagstone::units::Nanos;
///
/// let store = Box::new(MemStore::new(4096, 100));
/// let kind = IndexKind::by_name("prefix-bptree").expect("it is in the registry");
/// let (mut index, now) = kind.open(store, &Settings::new(), Nanos::ZERO)?;
/// let tree = index.bytes().expect("it has byte strings");
/// let now = tree.insert(now, b"lemon", b"yellow")?;
/// let now = tree.insert(now, b"lime", b"")?;
/// let mut found = Vec::new();
/// tree.range(now, b"le", None, &mut |key, value| {
///     found.push((key.to_vec(), value.to_vec()));
///     true
/// })?;
/// assert_eq!(found[0], (b"lemon".to_vec(), b"yellow".to_vec()));
/// assert_eq!(found.len(), 2);
/// # Ok::<(), IndexError>(())
/// ```
pub struct ByteIndex {
    pub(super) bytes: ByteTree<Framed>,
    pub(super) meta: Meta,
    /// Number of leaves that a range requests at once.
    pub(super) read_ahead: usize,
    /// Number of keys.
    pub(super) len: u64,
}

impl ByteIndex {
    /// Opens the tree in a store, or creates one with an empty leaf.
    pub(super) fn open(
        store: Box<dyn BackingStore>,
        settings: &Settings,
        now: Nanos,
    ) -> Result<(ByteIndex, Nanos)> {
        let value_bytes = INFO.value_bytes(settings)?;
        // Refuse an unsuitable page size before reading anything.
        Limits::of(store.page_bytes())?;
        let frames = INFO.memory(settings)? as usize / store.page_bytes();
        let mut cache = Cache::new(store, frames, INFO.buffer(settings)?);
        let ((meta, mut space, own), mut now) =
            Meta::load(&mut cache, INFO.name, value_bytes, now)?;
        let (root, height, len) = match own {
            Some(own) => {
                if own.len() != prefix_tree_meta::SIZE {
                    return damaged(Lpn(0), "the metadata is not that of a tree");
                }
                let field = |field| get(&own, field);
                let root = Lpn(field(prefix_tree_meta::ROOT) as u32);
                let height = field(prefix_tree_meta::HEIGHT) as u32;
                (root, height, field(prefix_tree_meta::LEN))
            }
            None => {
                let root = space.take()?;
                let (page, done) = cache.fill(now, root)?;
                write_empty(page);
                now = done;
                (root, 1, 0)
            }
        };
        let root = Root { at: root, height };
        let tree = ByteIndex {
            bytes: ByteTree::over(Framed { cache, space }, root)?,
            meta,
            read_ahead: read_ahead(settings, &INFO)?,
            len,
        };
        Ok((tree, now))
    }

    /// Maximum length of keys and values.
    pub fn limits(&self) -> Limits {
        self.bytes.limits()
    }

    /// The number of keys.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the value of a key, whether or not it had one.
    ///
    /// # Errors
    /// [`TooLong`](crate::IndexError::TooLong), no space, or the store cannot continue. After the
    /// first two nothing has changed.
    pub fn insert(&mut self, now: Nanos, key: &[u8], value: &[u8]) -> Result<Nanos> {
        Ok(self.change(now, key, Some(value))?.1)
    }

    /// Removes a key. Returns whether it existed.
    ///
    /// # Errors
    /// The store cannot continue.
    pub fn delete(&mut self, now: Nanos, key: &[u8]) -> Result<(bool, Nanos)> {
        self.change(now, key, None)
    }

    /// Reads the value of a key into `into`, replacing its contents. Returns whether the key has a
    /// value.
    ///
    /// # Errors
    /// The store cannot continue.
    pub fn get(&mut self, now: Nanos, key: &[u8], into: &mut Vec<u8>) -> Result<(bool, Nanos)> {
        self.bytes.get(now, key, into)
    }

    /// Calls `each` for the pairs with `from <= key`, and `key < to` if given, in ascending order.
    /// Stops when `each` returns `false`.
    ///
    /// # Errors
    /// The store cannot continue.
    pub fn range(
        &mut self,
        now: Nanos,
        from: &[u8],
        to: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Nanos> {
        // `each` may stop long before `to`. Starting with one leaf, and doubling, wastes at most
        // half of the reads.
        self.range_ahead(now, from, to, 1, each)
    }

    /// Like [`ByteIndex::range`]. Reads several leaves at once: first `first` of them, then twice
    /// as many each time, up to `read_ahead`.
    pub(super) fn range_ahead(
        &mut self,
        now: Nanos,
        from: &[u8],
        to: Option<&[u8]>,
        first: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Nanos> {
        // Read-ahead must not evict all other pages, nor its own.
        let most = self.read_ahead.min(self.bytes.nodes.cache.frames() / 2);
        let ahead = ReadAhead { first, most };
        self.bytes.range(now, from, to, ahead, each)
    }

    /// Sets or removes the value of a key. Returns whether it had one.
    pub(super) fn change(
        &mut self,
        now: Nanos,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(bool, Nanos)> {
        let (there, now) = self.bytes.change(now, key, value)?;
        self.len = (self.len + u64::from(value.is_some())).saturating_sub(u64::from(there));
        Ok((there, now))
    }

    /// Writes changed pages.
    pub(super) fn settle(&mut self, now: Nanos) -> Result<Nanos> {
        let mut own = [0; prefix_tree_meta::SIZE];
        let Root { at, height } = self.bytes.root();
        put(&mut own, prefix_tree_meta::ROOT, u64::from(at.0));
        put(&mut own, prefix_tree_meta::HEIGHT, u64::from(height));
        put(&mut own, prefix_tree_meta::LEN, self.len);
        let Framed { cache, space } = &mut self.bytes.nodes;
        self.meta.settle(cache, space, &own, now)
    }

    /// Checks everything: the nodes, the number of keys, and that each page is used once or free.
    ///
    /// # Errors
    /// Describes the inconsistency and its place.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let (len, mut used) = self.bytes.check()?;
        if len != self.len {
            return Err(format!("there are {len} keys, and not {}", self.len));
        }
        used.extend(self.meta.pages());
        self.bytes.nodes.space.check(used)
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use crate::model::{assert_reads_ahead, blank};
    use crate::{IndexKind, MemStore, Settings};

    #[test]
    fn a_range_asks_for_several_leaves_at_once_and_for_few_in_vain() {
        assert_reads_ahead(IndexKind::PrefixBPlusTree);
        let (mut index, now) = blank(open, &Settings::new(), 256, 1024);
        (0..2000).for_each(|key| _ = index.insert(now, key, key).expect("room"));
        index.flush(now).expect("room");
        let mut store = index.into_store();
        for wanted in [1, 30, 200] {
            let reads = [1, 16].map(|read_ahead| {
                let settings = Settings::new().with("read_ahead", read_ahead);
                let blank = Box::new(MemStore::new(256, 1));
                let opened = open(std::mem::replace(&mut store, blank), &settings, now);
                let mut index = opened.expect("a tree").0;
                index.reset_stats();
                let (tree, mut left) = (index.bytes().expect("byte strings"), wanted);
                let mut each = |_: &[u8], _: &[u8]| {
                    left -= 1;
                    left > 0
                };
                tree.range(now, b"", None, &mut each).expect("a range");
                let reads = index.stats().reads;
                store = index.into_store();
                reads
            });
            assert!(
                (reads[0]..=2 * reads[0]).contains(&reads[1]),
                "{wanted}: {reads:?}"
            );
        }
    }
}
