//! Searches and changes of a tree of byte strings over any pages, with separate large values.

use super::apart::{Apart, Cut, Entry};
use super::node::{self, Kind, Node, Value, entry_bytes, page_list};
use super::nodes::Nodes;
use crate::{TreeError, damaged};
use flagstone::layout::get;
use flagstone::units::{Lpn, Nanos};

/// Maximum length of a key and of a value, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a key.
    pub key: usize,
    /// Maximum length of a value.
    pub value: usize,
}

impl Limits {
    /// The limits of a tree in pages of `page_bytes` bytes.
    ///
    /// # Errors
    /// A tree cannot use pages of this size.
    pub fn of(page_bytes: usize) -> Result<Limits, TreeError> {
        Ok(Sizes::new(page_bytes)?.limits)
    }
}

/// The root of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// The root page.
    pub at: Lpn,
    /// Number of levels; 1 if the root is a leaf.
    pub height: u32,
}

/// Maximum number of levels of a tree.
const HEIGHT_MAX: u32 = 64;

impl Root {
    /// Validates a root that was read from a page.
    ///
    /// # Errors
    /// The height is impossible.
    #[inline]
    pub(super) fn doubt(self) -> Result<(), TreeError> {
        match self.height {
            1..=HEIGHT_MAX => Ok(()),
            _ => damaged(self.at, "the tree has no height that can be"),
        }
    }
}

/// A node on the path from the root to a leaf, and the slot of the next child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) at: Lpn,
    pub(super) slot: usize,
}

/// How often a tree changed its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Nodes that were split.
    pub splits: u64,
    /// Pairs of nodes that were merged.
    pub merges: u64,
    /// Pairs of nodes that redistributed their entries.
    pub redistributions: u64,
    /// Levels that were added.
    pub grown: u64,
    /// Levels that were removed.
    pub shrunk: u64,
    /// Values written to pages of their own.
    pub large_values: u64,
    /// Values replaced or removed whose pages stay taken, since a page that lists them is damaged.
    pub left_values: u64,
}

/// Size limits that follow from the page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) page: usize,
    /// Bytes available for the entries and the prefix of a node.
    pub(super) room: usize,
    /// Maximum size of an entry, including its slot and without a prefix.
    pub(super) entry: usize,
    /// Size up to which an entry never has its value in pages of its own.
    pub(super) short: usize,
    /// Number of pages of a value that an entry can name.
    direct: usize,
    pub(super) limits: Limits,
}

impl Sizes {
    /// The size limits for pages of `page` bytes.
    ///
    /// # Errors
    /// The page is too small.
    #[inline]
    pub(super) fn new(page: usize) -> Result<Sizes, TreeError> {
        let room = node::room(page);
        let (entry, short) = (room / 2, room / 4);
        // Half of a short entry for the key, the other half for page numbers of a value.
        let key = short.saturating_sub(entry_bytes(0, 0)) / 2;
        let pages = key.saturating_sub(node::large_value_head::SIZE) / 4;
        if pages == 0 || page > 1 << 16 {
            return Err(TreeError::PageBytes(page));
        }
        let value = (pages * (page / 4) * page).min(u32::MAX as usize);
        Ok(Sizes {
            page,
            room,
            entry,
            short,
            direct: pages,
            limits: Limits { key, value },
        })
    }

    /// The minimum fill of a node, by entries with full keys. A smaller node is rebalanced.
    pub(super) fn least(self) -> usize {
        self.room / 4
    }

    /// Number of pages for a large value of `bytes` bytes, and of pages that list them if an entry
    /// cannot name them all.
    pub(super) fn pages_of(self, bytes: usize) -> (usize, usize) {
        let pages = bytes.div_ceil(self.page);
        if pages > self.direct {
            (pages, pages.div_ceil(self.page / 4))
        } else {
            (pages, 0)
        }
    }

    /// Number of pages of a value of `bytes` bytes whose entry in `leaf` names the pages `named`,
    /// and number of pages that list them: 0 if the entry names them itself, otherwise `named` are
    /// the lists.
    ///
    /// # Errors
    /// The value is too long, the entry names another number of pages than such a value needs, or
    /// it names a page twice.
    pub(super) fn pages_named(
        self,
        leaf: Lpn,
        bytes: usize,
        named: &[Lpn],
    ) -> Result<(usize, usize), TreeError> {
        if bytes > self.limits.value {
            return damaged(leaf, "a value is longer than a value can be");
        }
        let (count, lists) = self.pages_of(bytes);
        let needed = if lists > 0 { lists } else { count };
        if named.len() != needed {
            return damaged(leaf, "a value has not as many pages as it needs");
        }
        refuse_repeated(leaf, named)?;
        Ok((count, lists))
    }

    /// Checks the lengths of a key and a value against the limits.
    fn check(self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let (limits, page) = (self.limits, self.page);
        for (what, bytes, most) in [
            ("key", key.len(), limits.key),
            ("value", value.len(), limits.value),
        ] {
            if bytes > most {
                return Err(TreeError::TooLong {
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

/// A B+-tree of byte strings in pages of any kind. Keeps its root in memory, and caches no pages.
pub struct ByteTree<N> {
    /// The underlying pages.
    pub nodes: N,
    pub(super) sizes: Sizes,
    pub(super) root: Lpn,
    /// Number of levels.
    pub(super) height: u32,
    /// From the root to the last leaf searched for.
    pub(super) path: Vec<Step>,
    /// How often the tree changed its shape.
    pub counts: Counts,
}

/// The page numbers in a page that lists pages.
pub(super) fn named_pages(image: &[u8]) -> impl Iterator<Item = Lpn> + '_ {
    let page = |at: &[u8]| Lpn(get(at, 0..4) as u32);
    image.chunks_exact(4).map(page)
}

/// Validates the pages of a value: a few pages must not represent a value of any length.
///
/// # Errors
/// A page occurs twice.
pub(super) fn refuse_repeated(leaf: Lpn, pages: &[Lpn]) -> Result<(), TreeError> {
    let mut pages = pages.to_vec();
    pages.sort_unstable();
    if pages.is_sorted_by(|before, after| before < after) {
        Ok(())
    } else {
        damaged(leaf, "a value has a page twice")
    }
}

/// The leaf and entry that a change finds.
struct LeafPlace {
    /// The slot of the key, or where it would be inserted.
    slot: Result<usize, usize>,
    /// Size of the old entry in the leaf, without the prefix of its key.
    taken: usize,
    /// Size of the old entry with its full key, as `fill` counts it.
    bytes: usize,
    /// Length of an old large value, and the pages that its entry names.
    large: Option<(usize, Vec<Lpn>)>,
    /// Room for an entry with the key, not counting the prefix; 0 if the key lacks the prefix.
    spare: usize,
    /// Size of all entries of the leaf with full keys.
    fill: usize,
}

/// Formats a zeroed page as the root of an empty one-level tree.
pub fn write_empty(page: &mut [u8]) {
    node::write_head(page, Kind::Leaf, &[], Lpn(0));
}

impl<N: Nodes> ByteTree<N> {
    /// A tree with a root from [`write_empty`] or [`ByteTree::root`].
    ///
    /// # Errors
    /// The page size is out of range, or the root has an impossible height.
    pub fn over(nodes: N, root: Root) -> Result<ByteTree<N>, N::Error> {
        root.doubt()?;
        let sizes = Sizes::new(nodes.page_bytes())?;
        Ok(ByteTree {
            nodes,
            sizes,
            root: root.at,
            height: root.height,
            path: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// The current root.
    pub fn root(&self) -> Root {
        Root {
            at: self.root,
            height: self.height,
        }
    }

    /// Maximum length of keys and values.
    pub fn limits(&self) -> Limits {
        self.sizes.limits
    }

    /// The leaf of the last search or change, if there was one.
    pub fn last_leaf(&self) -> Option<Lpn> {
        self.path.last().map(|step| step.at)
    }

    /// Reads a node of kind `kind`, and passes it to `look`, which searches it: counts the
    /// comparisons of one bisection.
    #[inline]
    pub(super) fn look<T>(
        &mut self,
        now: Nanos,
        at: Lpn,
        kind: Kind,
        look: impl FnOnce(Node<'_>) -> T,
    ) -> Result<(T, Nanos), N::Error> {
        let (page, now) = self.nodes.read(now, at)?;
        let Some(node) = Node::of(page, kind) else {
            return damaged(at, "it is not the node that its parent names");
        };
        let len = node.len;
        let seen = look(node);
        self.nodes
            .compared(u64::from(usize::BITS - len.leading_zeros()));
        Ok((seen, now))
    }

    /// Descends from the root to the leaf that covers a key, recording `path`.
    #[inline]
    pub(super) fn descend(&mut self, mut now: Nanos, key: &[u8]) -> Result<(Lpn, Nanos), N::Error> {
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

    /// Puts the value of a key into `into`. Returns whether the key has one.
    ///
    /// # Errors
    /// The pages cannot be accessed, or are damaged.
    #[inline]
    pub fn get(
        &mut self,
        now: Nanos,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(bool, Nanos), N::Error> {
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
            Some(Some((bytes, named))) => {
                let now = self.read_large(now, leaf, bytes, named, into)?;
                Ok((true, now))
            }
        }
    }

    /// The pages of a large value of `bytes` bytes: those that its entry in `leaf` names, or those
    /// that the named pages list.
    pub(super) fn value_pages(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        bytes: usize,
        named: Vec<Lpn>,
    ) -> Result<(Vec<Lpn>, Nanos), N::Error> {
        let (count, lists) = self.sizes.pages_named(leaf, bytes, &named)?;
        if lists == 0 {
            return Ok((named, now));
        }
        let mut image = vec![0; lists * self.sizes.page];
        let now = self.nodes.read_past(now, &named, &mut image)?;
        let pages: Vec<Lpn> = named_pages(&image).take(count).collect();
        refuse_repeated(leaf, &pages)?;
        Ok((pages, now))
    }

    /// The pages of a value, and the pages that list them.
    pub(super) fn all_pages(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        bytes: usize,
        named: Vec<Lpn>,
    ) -> Result<(Vec<Lpn>, Nanos), N::Error> {
        let lists = self.sizes.pages_of(bytes).1;
        let (mut pages, now) = self.value_pages(now, leaf, bytes, named.clone())?;
        if lists > 0 {
            pages.extend(named);
        }
        Ok((pages, now))
    }

    /// Appends a large value to `into`, reading its pages in parallel. `named` are the pages that
    /// its entry in `leaf` names.
    pub(super) fn read_large(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        bytes: usize,
        named: Vec<Lpn>,
        into: &mut Vec<u8>,
    ) -> Result<Nanos, N::Error> {
        let (pages, now) = self.value_pages(now, leaf, bytes, named)?;
        let from = into.len();
        into.resize(from + pages.len() * self.sizes.page, 0);
        let now = self.nodes.read_past(now, &pages, &mut into[from..])?;
        into.truncate(from + bytes);
        Ok(now)
    }

    /// Writes a large value in parallel. Reuses pages of the old value, and leaves the others in
    /// `had`. Returns the list of pages that the leaf stores in place of the value.
    fn write_large(
        &mut self,
        now: Nanos,
        value: &[u8],
        had: &mut Vec<Lpn>,
    ) -> Result<(Vec<u8>, Nanos), N::Error> {
        let size = self.sizes.page;
        let (count, lists) = self.sizes.pages_of(value.len());
        let left = had.split_off((count + lists).min(had.len()));
        let mut pages = std::mem::replace(had, left);
        while pages.len() < count + lists {
            pages.push(self.nodes.take()?);
        }
        let lists = pages.split_off(count);
        let mut image = value.to_vec();
        image.resize(count * size, 0);
        if !lists.is_empty() {
            image.extend(pages.iter().flat_map(|page| page.0.to_le_bytes()));
            image.resize((count + lists.len()) * size, 0);
        }
        let all = pages.iter().chain(&lists).copied();
        let parts: Vec<(Lpn, &[u8])> = all.zip(image.chunks(size)).collect();
        let now = self.nodes.write_past(now, &parts)?;
        self.counts.large_values += 1;
        let named = if lists.is_empty() { &pages } else { &lists };
        Ok((page_list(value.len(), named), now))
    }

    /// Sets or removes the value of a key. Returns whether it had one.
    ///
    /// # Errors
    /// [`TreeError::TooLong`] or no room: nothing has changed. Or the pages cannot be accessed, or
    /// are damaged.
    pub fn change(
        &mut self,
        now: Nanos,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(bool, Nanos), N::Error> {
        self.sizes.check(key, value.unwrap_or_default())?;
        let (leaf, now) = self.descend(now, key)?;
        let (found, mut now) = self.look(now, leaf, Kind::Leaf, |node| {
            let slot = node.find(key);
            let old = slot.ok().map(|slot| node.value(slot));
            LeafPlace {
                slot,
                taken: slot.map_or(0, |slot| node.taken(slot)),
                bytes: old.map_or(0, |old| entry_bytes(key.len(), old.bytes.len())),
                large: old.and_then(Value::pages),
                spare: node.room_for(key),
                fill: node.fill(),
            }
        })?;
        let there = found.slot.is_ok();
        if !there && value.is_none() {
            return Ok((false, now));
        }
        // All pages of the old value.
        let mut had = Vec::new();
        if let Some((bytes, named)) = found.large {
            match self.all_pages(now, leaf, bytes, named) {
                Ok(found) => {
                    (had, now) = found;
                    // A page that damage has emptied is free already.
                    had.retain(|&page| self.nodes.is_taken(page));
                }
                // The key still gets its value, but the pages of the old one stay taken.
                Err(error) => {
                    self.nodes.pass_over(error)?;
                    self.counts.left_values += 1;
                }
            }
        }
        // What the leaf stores, and the large value's own pages.
        let (bytes, pages) = match value {
            None => (0, 0),
            Some(value) if entry_bytes(key.len(), value.len()) <= self.sizes.entry => {
                (entry_bytes(key.len(), value.len()), 0)
            }
            Some(value) => {
                let (pages, lists) = self.sizes.pages_of(value.len());
                let named = if lists > 0 { lists } else { pages };
                let list = node::large_value_head::SIZE + 4 * named;
                (entry_bytes(key.len(), list), pages + lists)
            }
        };
        let fits = bytes <= found.spare + found.taken;
        // Whether the leaf would be underfull. A root may be.
        let few = found.fill + bytes < self.sizes.least() + found.bytes && self.path.len() > 1;
        self.make_sure(
            pages.saturating_sub(had.len()),
            !fits || few,
            value.is_some(),
        )?;
        let mut list = Vec::new();
        if let (Some(value), 1..) = (value, pages) {
            (list, now) = self.write_large(now, value, &mut had)?;
        }
        let value = value.map(|value| Value {
            bytes: if pages > 0 { &list } else { value },
            large: pages > 0,
        });
        for page in had {
            now = self.drop_page(now, page)?;
        }
        if fits && !few {
            // The leaf is changed in its page.
            let (page, done) = self.nodes.change(now, leaf)?;
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
            return if written {
                Ok((there, now))
            } else {
                damaged(leaf, "it has less room than it says")
            };
        }
        // The leaf is unpacked, changed, and split or rebalanced.
        let (mut node, now) = self.apart(now, leaf, Kind::Leaf)?;
        let (Ok(slot) | Err(slot)) = found.slot;
        let new = value.map(|value| Entry::new(key, value));
        node.entries.splice(slot..slot + usize::from(there), new);
        let cut = Cut::after(&node, slot);
        let now = self.balance(now, self.path.len() - 1, node, cut)?;
        Ok((there, now))
    }

    /// Checks that enough pages are free: `pages` of them for a value, and with `splits` one for
    /// each level. A deletion splits no leaf, but its parents and the root, by longer separators.
    /// An insertion (`grows`) needs one more, and leaves enough for a deletion in a higher tree.
    pub(super) fn make_sure(
        &self,
        pages: usize,
        splits: bool,
        grows: bool,
    ) -> Result<(), N::Error> {
        if pages == 0 && !splits {
            return Ok(());
        }
        let levels = self.path.len();
        let needed = pages + levels + if grows { 2 + levels } else { 0 };
        if (self.nodes.left() as usize) < needed {
            return Err(self.nodes.full());
        }
        Ok(())
    }

    pub(super) fn apart(
        &mut self,
        now: Nanos,
        at: Lpn,
        kind: Kind,
    ) -> Result<(Apart, Nanos), N::Error> {
        self.look(now, at, kind, |node| Apart::of(node, kind))
    }

    pub(super) fn drop_page(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, N::Error> {
        self.nodes.give(now, at)
    }
}
