//! The tree itself, without the traits: searches, changes, and values in pages of their own.

use super::super::bptree::read_ahead;
use super::super::meta::Meta;
use super::super::space::Space;
use super::super::{Cache, IndexError, Limits, Settings, Store};
use super::INFO;
use super::apart::{Apart, Entry};
use super::node::{self, Kind, Node, Value, entry_bytes, page_list};
use crate::layout;
use crate::layout::{Layout, get, put};
use crate::units::{Lpn, Nanos};

layout! {
    /// What a prefix B+-tree keeps of itself in its metadata.
    pub prefix_tree_meta: 16 => {
        ROOT:   4, "the root";
        HEIGHT: 4, "levels; 1 if the root is a leaf";
        LEN:    8, "keys";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[prefix_tree_meta::RECORD];

/// A node on the way from the root to a leaf, and which child comes next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) at: Lpn,
    pub(super) slot: usize,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) splits: u64,
    pub(super) merges: u64,
    pub(super) redistributions: u64,
    pub(super) grown: u64,
    pub(super) shrunk: u64,
    /// Values that were written to pages of their own.
    pub(super) large: u64,
}

/// How much fits, from the bytes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    page: usize,
    /// Bytes that entries and prefix of a node can have.
    pub(super) room: usize,
    /// Those of an entry at most, with its slot and without a prefix.
    pub(super) entry: usize,
    pub(super) limits: Limits,
}

impl Sizes {
    /// # Errors
    /// The page is too small.
    pub(super) fn new(page: usize) -> Result<Sizes, IndexError> {
        let room = node::room(page);
        let entry = room / 4;
        // Half for the key, the other half for the pages of a value.
        let key = entry.saturating_sub(entry_bytes(0, 0)) / 2;
        let pages = key.saturating_sub(node::large_value_head::SIZE) / 4;
        if pages == 0 || page > 1 << 16 {
            return Err(IndexError::Settings(format!(
                "pages of {page} bytes are too small or too large for {}: use 128 to 65536",
                INFO.name
            )));
        }
        let value = pages * page;
        Ok(Sizes {
            page,
            room,
            entry,
            limits: Limits { key, value },
        })
    }

    /// Bytes of a node's entries, those of a full key each, below which it is mended.
    pub(super) fn least(self) -> usize {
        self.room / 4
    }

    fn check(self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        let (limits, page) = (self.limits, self.page);
        for (what, bytes, most) in [
            ("key", key.len(), limits.key),
            ("value", value.len(), limits.value),
        ] {
            if bytes > most {
                return Err(IndexError::TooLong {
                    what,
                    bytes,
                    most,
                    page,
                });
            }
        }
        Ok(())
    }
}

/// A B+-tree of byte strings.
pub(super) struct Tree {
    pub(super) cache: Cache,
    pub(super) meta: Meta,
    pub(super) space: Space,
    pub(super) sizes: Sizes,
    value_bytes: usize,
    /// Leaves that a range asks for at once.
    pub(super) read_ahead: usize,
    pub(super) root: Lpn,
    /// Levels.
    pub(super) height: u32,
    /// Keys.
    pub(super) len: u64,
    /// From the root to the leaf that was looked for last.
    pub(super) path: Vec<Step>,
    pub(super) counts: Counts,
}

pub(super) fn damaged<T>(at: Lpn, why: &str) -> Result<T, IndexError> {
    let why = why.to_string();
    Err(IndexError::Damaged { at, why })
}

/// What a change finds in the leaf.
struct LeafPlace {
    slot: Result<usize, usize>,
    /// The bytes of the old entry there, those of its key and value, and the value's own pages.
    taken: usize,
    bytes: usize,
    pages: Vec<Lpn>,
    /// Bytes for an entry with the key, counted without a prefix; 0 if it does not begin with it.
    spare: usize,
    /// Bytes that the leaf is full by.
    fill: usize,
}

impl Tree {
    /// Finds the tree in a store, or makes one with an empty leaf.
    pub(super) fn open(
        store: Box<dyn Store>,
        settings: &Settings,
        now: Nanos,
    ) -> Result<(Tree, Nanos), IndexError> {
        let value_bytes = settings.value_bytes(&INFO)?;
        let sizes = Sizes::new(store.page_bytes())?;
        let pages = store.pages();
        let frames = settings.memory(&INFO)? as usize / store.page_bytes();
        let mut cache = Cache::new(store, frames, settings.buffer(&INFO)?);
        let (meta, loaded, mut now) = Meta::load(&mut cache, INFO.name, value_bytes, now)?;
        let (space, root, height, len) = match loaded {
            Some((space, own)) => {
                if own.len() != prefix_tree_meta::SIZE {
                    return damaged(Lpn(0), "the metadata is not that of a tree");
                }
                let field = |field| get(&own, field);
                let root = Lpn(field(prefix_tree_meta::ROOT) as u32);
                let height = field(prefix_tree_meta::HEIGHT) as u32;
                (space, root, height, field(prefix_tree_meta::LEN))
            }
            None => {
                let mut space = Space::new(1, pages);
                let root = space.take()?;
                let (page, done) = cache.fill(now, root)?;
                node::write_head(page, Kind::Leaf, &[], Lpn(0));
                now = done;
                (space, root, 1, 0)
            }
        };
        if height == 0 || height > 64 {
            return damaged(Lpn(0), "the tree has no height that can be");
        }
        let tree = Tree {
            cache,
            meta,
            space,
            sizes,
            value_bytes,
            read_ahead: read_ahead(settings, &INFO)?,
            root,
            height,
            len,
            path: Vec::new(),
            counts: Counts::default(),
        };
        Ok((tree, now))
    }

    /// Looks at a node, and counts the comparisons of a bisection.
    #[inline]
    pub(super) fn look<T>(
        &mut self,
        now: Nanos,
        at: Lpn,
        kind: Kind,
        look: impl FnOnce(Node<'_>) -> T,
    ) -> Result<(T, Nanos), IndexError> {
        let (page, now) = self.cache.read(now, at)?;
        let Some(node) = Node::of(page, kind) else {
            return damaged(at, "it is not the node that its parent names");
        };
        let len = node.len;
        let seen = look(node);
        self.cache
            .compared(u64::from(usize::BITS - len.leading_zeros()));
        Ok((seen, now))
    }

    /// Goes from the root to the leaf that has a key, along `path`.
    #[inline]
    pub(super) fn descend(
        &mut self,
        mut now: Nanos,
        key: &[u8],
    ) -> Result<(Lpn, Nanos), IndexError> {
        self.path.clear();
        let mut at = self.root;
        for _ in 1..self.height {
            let ((slot, child), done) = self.look(now, at, Kind::Inner, |node| {
                let slot = node.route(key);
                (slot, node.child(slot))
            })?;
            now = done;
            self.path.push(Step { at, slot });
            at = child;
        }
        self.path.push(Step { at, slot: 0 });
        Ok((at, now))
    }

    /// Puts the value of a key into `into`; says whether it has one.
    #[inline]
    pub(super) fn get(
        &mut self,
        now: Nanos,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(bool, Nanos), IndexError> {
        into.clear();
        let (leaf, now) = self.descend(now, key)?;
        let (found, now) = self.look(now, leaf, Kind::Leaf, |node| {
            let value = node.value(node.find(key).ok()?);
            if !value.large {
                into.extend_from_slice(value.bytes);
                return Some(None);
            }
            Some(value.pages())
        })?;
        match found {
            None => Ok((false, now)),
            Some(None) => Ok((true, now)),
            Some(Some((bytes, pages))) => {
                let now = self.read_large(now, leaf, bytes, &pages, into)?;
                Ok((true, now))
            }
        }
    }

    /// Appends a value from its own pages, which are read side by side.
    pub(super) fn read_large(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        bytes: usize,
        pages: &[Lpn],
        into: &mut Vec<u8>,
    ) -> Result<Nanos, IndexError> {
        if bytes.div_ceil(self.sizes.page) != pages.len() {
            return damaged(leaf, "a value has not as many pages as it needs");
        }
        let from = into.len();
        into.resize(from + pages.len() * self.sizes.page, 0);
        let now = self.cache.read_past(now, pages, &mut into[from..])?;
        into.truncate(from + bytes);
        Ok(now)
    }

    /// Writes a value to pages of its own, side by side: to those that it had, as far as they
    /// reach. Gives what the leaf keeps of it.
    fn write_large(
        &mut self,
        now: Nanos,
        value: &[u8],
        had: &mut Vec<Lpn>,
    ) -> Result<(Vec<u8>, Nanos), IndexError> {
        let size = self.sizes.page;
        let count = value.len().div_ceil(size);
        let left = had.split_off(count.min(had.len()));
        let mut pages = std::mem::replace(had, left);
        while pages.len() < count {
            pages.push(self.space.take()?);
        }
        let mut image = value.to_vec();
        image.resize(count * size, 0);
        let parts: Vec<(Lpn, &[u8])> = pages.iter().copied().zip(image.chunks(size)).collect();
        let now = self.cache.write_past(now, &parts)?;
        self.counts.large += 1;
        Ok((page_list(value.len(), &pages), now))
    }

    /// Gives a key a value or takes it away; says whether it had one.
    pub(super) fn change(
        &mut self,
        now: Nanos,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(bool, Nanos), IndexError> {
        self.sizes.check(key, value.unwrap_or_default())?;
        let (leaf, now) = self.descend(now, key)?;
        let (mut found, mut now) = self.look(now, leaf, Kind::Leaf, |node| {
            let slot = node.find(key);
            let old = slot.ok().map(|slot| node.value(slot));
            LeafPlace {
                slot,
                taken: slot.map_or(0, |slot| node.taken(slot)),
                bytes: old.map_or(0, |old| entry_bytes(key.len(), old.bytes.len())),
                pages: old.and_then(Value::pages).map_or(Vec::new(), |old| old.1),
                spare: node.room_for(key),
                fill: node.fill(),
            }
        })?;
        let there = found.slot.is_ok();
        if !there && value.is_none() {
            return Ok((false, now));
        }
        // What the leaf will have of it, and the pages of its own.
        let (bytes, pages) = match value {
            None => (0, 0),
            Some(value) if entry_bytes(key.len(), value.len()) <= self.sizes.entry => {
                (entry_bytes(key.len(), value.len()), 0)
            }
            Some(value) => {
                let pages = value.len().div_ceil(self.sizes.page);
                let list = node::large_value_head::SIZE + 4 * pages;
                (entry_bytes(key.len(), list), pages)
            }
        };
        let fits = bytes <= found.spare + found.taken;
        let few = found.fill + bytes < self.sizes.least() + found.bytes && self.path.len() > 1;
        self.make_sure(
            pages.saturating_sub(found.pages.len()),
            !fits || few,
            value.is_some(),
        )?;
        let mut list = Vec::new();
        if let (Some(value), 1..) = (value, pages) {
            (list, now) = self.write_large(now, value, &mut found.pages)?;
        }
        let value = value.map(|value| Value {
            bytes: if pages > 0 { &list } else { value },
            large: pages > 0,
        });
        for page in std::mem::take(&mut found.pages) {
            now = self.drop_page(now, page)?;
        }
        self.len = (self.len + u64::from(value.is_some())).saturating_sub(u64::from(there));
        if fits && !few {
            let (page, done) = self.cache.change(now, leaf)?;
            now = done;
            let written = match (found.slot, value) {
                (Ok(slot), Some(value)) if node::overwrite(page, slot, value) => true,
                (Ok(slot) | Err(slot), value) => {
                    if there {
                        node::remove(page, slot);
                    }
                    value.is_none_or(|value| node::insert(page, slot, key, value))
                }
            };
            return match written {
                true => Ok((there, now)),
                false => damaged(leaf, "it has less room than it says"),
            };
        }
        let (mut node, now) = self.apart(now, leaf, Kind::Leaf)?;
        let (Ok(slot) | Err(slot)) = found.slot;
        let new = value.map(|value| Entry::new(key, value));
        node.entries.splice(slot..slot + usize::from(there), new);
        let now = self.balance(now, self.path.len() - 1, node)?;
        Ok((there, now))
    }

    /// Whether there are pages for what comes: for a value, and a split at each level with a root
    /// above. What grows the tree leaves enough for what shrinks it, where a longer key between
    /// two nodes may split their parent, and so on.
    fn make_sure(&self, pages: usize, splits: bool, grows: bool) -> Result<(), IndexError> {
        if pages == 0 && !splits {
            return Ok(());
        }
        let levels = self.path.len();
        let needed = pages + levels + if grows { 2 + levels } else { 0 };
        if (self.space.left() as usize) < needed {
            return Err(self.space.full());
        }
        Ok(())
    }

    pub(super) fn apart(
        &mut self,
        now: Nanos,
        at: Lpn,
        kind: Kind,
    ) -> Result<(Apart, Nanos), IndexError> {
        self.look(now, at, kind, |node| Apart::of(node, kind))
    }

    pub(super) fn drop_page(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, IndexError> {
        self.space.give(at);
        Ok(self.cache.forget(now, at)?)
    }

    /// Writes changed pages.
    pub(super) fn settle(&mut self, now: Nanos) -> Result<Nanos, IndexError> {
        let now = self.cache.write_all(now)?;
        let mut own = [0; prefix_tree_meta::SIZE];
        put(&mut own, prefix_tree_meta::ROOT, u64::from(self.root.0));
        put(&mut own, prefix_tree_meta::HEIGHT, u64::from(self.height));
        put(&mut own, prefix_tree_meta::LEN, self.len);
        let (meta, cache, space) = (&mut self.meta, &mut self.cache, &mut self.space);
        meta.save(cache, INFO.name, self.value_bytes, space, &own, now)
    }
}
