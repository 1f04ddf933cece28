//! Searches and changes of a tree of byte strings over any pages, and values in pages of their own.

use super::super::{IndexError, Result, counters, damaged};
use super::INFO;
use super::apart::{Apart, Cut, Entry};
use super::node::{self, Kind, Node, Value, entry_bytes, page_list};
use super::nodes::Nodes;
use crate::layout::get;
use crate::units::{Lpn, Nanos};

/// The longest key and the longest value of an index, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of a key.
    pub key: usize,
    /// Of a value.
    pub value: usize,
}

/// Where the root of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Its page.
    pub at: Lpn,
    /// Levels; 1 if the root is a leaf.
    pub height: u32,
}

/// Levels of a tree at most.
const HEIGHT_MAX: u32 = 64;

impl Root {
    /// Doubts a root that was read from a page.
    ///
    /// # Errors
    /// It has no height that can be.
    #[inline]
    pub(super) fn doubt(self) -> Result<()> {
        match self.height {
            1..=HEIGHT_MAX => Ok(()),
            _ => damaged(self.at, "the tree has no height that can be"),
        }
    }
}

/// A node on the way from the root to a leaf, and which child comes next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) at: Lpn,
    pub(super) slot: usize,
}

counters! {
    /// What was counted.
    pub(super) struct Counts {
        splits,
        merges,
        redistributions,
        grown,
        shrunk,
        /// Values that were written to pages of their own.
        large_values,
    }
}

/// How much fits, from the bytes of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) page: usize,
    /// Bytes that entries and prefix of a node can have.
    pub(super) room: usize,
    /// Those of an entry at most, with its slot and without a prefix.
    pub(super) entry: usize,
    /// Those of an entry that is never so long that its value has pages of its own.
    pub(super) short: usize,
    /// Pages of a value that an entry can name.
    direct: usize,
    pub(super) limits: Limits,
}

impl Sizes {
    /// # Errors
    /// The page is too small.
    #[inline]
    pub(super) fn new(page: usize) -> Result<Sizes> {
        let room = node::room(page);
        let (entry, short) = (room / 2, room / 4);
        // Half of a short one for the key, the other half for the pages of a value.
        let key = short.saturating_sub(entry_bytes(0, 0)) / 2;
        let pages = key.saturating_sub(node::large_value_head::SIZE) / 4;
        if pages == 0 || page > 1 << 16 {
            return Err(IndexError::Settings(format!(
                "pages of {page} bytes are too small or too large for {}: use 128 to 65536",
                INFO.name
            )));
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

    /// Bytes of a node's entries, those of a full key each, below which it is mended.
    pub(super) fn least(self) -> usize {
        self.room / 4
    }

    /// Pages that a value of so many bytes has of its own, and pages that list these, where they
    /// are more than an entry can name.
    pub(super) fn pages_of(self, bytes: usize) -> (usize, usize) {
        let pages = bytes.div_ceil(self.page);
        match pages > self.direct {
            true => (pages, pages.div_ceil(self.page / 4)),
            false => (pages, 0),
        }
    }

    /// What [`Sizes::pages_of`] says of a value whose entry names these pages.
    ///
    /// # Errors
    /// The value is too long, or the entry names other pages than such a value has.
    pub(super) fn pages_named(
        self,
        leaf: Lpn,
        bytes: usize,
        named: &[Lpn],
    ) -> Result<(usize, usize)> {
        if bytes > self.limits.value {
            return damaged(leaf, "a value is longer than a value can be");
        }
        let (count, lists) = self.pages_of(bytes);
        if named.len() != if lists > 0 { lists } else { count } {
            return damaged(leaf, "a value has not as many pages as it needs");
        }
        doubt_pages(leaf, named)?;
        Ok((count, lists))
    }

    fn check(self, key: &[u8], value: &[u8]) -> Result<()> {
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

/// A B+-tree of byte strings in pages of any kind. It keeps where its root is, and no pages.
pub struct ByteTree<N> {
    pub(super) nodes: N,
    pub(super) sizes: Sizes,
    pub(super) root: Lpn,
    /// Levels.
    pub(super) height: u32,
    /// From the root to the leaf that was looked for last.
    pub(super) path: Vec<Step>,
    pub(super) counts: Counts,
}

/// The page numbers in pages that list them.
pub(super) fn named_pages(image: &[u8]) -> impl Iterator<Item = Lpn> + '_ {
    let page = |at: &[u8]| Lpn(get(at, 0..4) as u32);
    image.chunks_exact(4).map(page)
}

/// Doubts the pages of a value: a few pages must not stand for a value of any length.
///
/// # Errors
/// One of them is there twice.
pub(super) fn doubt_pages(leaf: Lpn, pages: &[Lpn]) -> Result<()> {
    let mut pages = pages.to_vec();
    pages.sort_unstable();
    match pages.is_sorted_by(|before, after| before < after) {
        true => Ok(()),
        false => damaged(leaf, "a value has a page twice"),
    }
}

/// What a change finds in the leaf.
struct LeafPlace {
    slot: Result<usize, usize>,
    /// The bytes of the old entry there, those of its key and value; the length of the value and
    /// the pages that its entry names, if it lies in pages of its own.
    taken: usize,
    bytes: usize,
    large: Option<(usize, Vec<Lpn>)>,
    /// Bytes for an entry with the key, counted without a prefix; 0 if it does not begin with it.
    spare: usize,
    /// Bytes that the leaf is full by.
    fill: usize,
}

/// Makes a page of zeros an empty tree of one level, whose root it is.
pub fn write_empty(page: &mut [u8]) {
    node::write_head(page, Kind::Leaf, &[], Lpn(0));
}

impl<N: Nodes> ByteTree<N> {
    pub(super) fn new(nodes: N, sizes: Sizes, root: Root) -> ByteTree<N> {
        ByteTree {
            nodes,
            sizes,
            root: root.at,
            height: root.height,
            path: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The tree with a root, which [`write_empty`] made or [`ByteTree::root`] gave.
    ///
    /// # Errors
    /// The pages are too small or too large, or the root has no height that can be.
    pub fn over(nodes: N, root: Root) -> Result<ByteTree<N>> {
        root.doubt()?;
        let sizes = Sizes::new(nodes.page_bytes())?;
        Ok(ByteTree::new(nodes, sizes, root))
    }

    /// The root after the changes so far.
    pub fn root(&self) -> Root {
        Root {
            at: self.root,
            height: self.height,
        }
    }

    /// The longest key and value.
    pub fn limits(&self) -> Limits {
        self.sizes.limits
    }

    /// The pages below.
    pub fn nodes(&self) -> &N {
        &self.nodes
    }

    /// Looks at a node, and counts the comparisons of a bisection.
    #[inline]
    pub(super) fn look<T>(
        &mut self,
        now: Nanos,
        at: Lpn,
        kind: Kind,
        look: impl FnOnce(Node<'_>) -> T,
    ) -> Result<(T, Nanos)> {
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

    /// Goes from the root to the leaf that has a key, along `path`.
    #[inline]
    pub(super) fn descend(&mut self, mut now: Nanos, key: &[u8]) -> Result<(Lpn, Nanos)> {
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
    ///
    /// # Errors
    /// Pages that cannot go on, or are damaged.
    pub fn get(&mut self, now: Nanos, key: &[u8], into: &mut Vec<u8>) -> Result<(bool, Nanos)> {
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
            Some(Some(large)) => {
                let now = self.read_large(now, leaf, large, into)?;
                Ok((true, now))
            }
        }
    }

    /// The pages of a value, from those that its entry names: these, or those that these list.
    pub(super) fn value_pages(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        (bytes, named): (usize, Vec<Lpn>),
    ) -> Result<(Vec<Lpn>, Nanos)> {
        let (count, lists) = self.sizes.pages_named(leaf, bytes, &named)?;
        if lists == 0 {
            return Ok((named, now));
        }
        let mut image = vec![0; lists * self.sizes.page];
        let now = self.nodes.read_past(now, &named, &mut image)?;
        let pages: Vec<Lpn> = named_pages(&image).take(count).collect();
        doubt_pages(leaf, &pages)?;
        Ok((pages, now))
    }

    /// The pages of a value, and those that list them.
    pub(super) fn all_pages(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        (bytes, named): (usize, Vec<Lpn>),
    ) -> Result<(Vec<Lpn>, Nanos)> {
        let lists = self.sizes.pages_of(bytes).1;
        let (mut pages, now) = self.value_pages(now, leaf, (bytes, named.clone()))?;
        if lists > 0 {
            pages.extend(named);
        }
        Ok((pages, now))
    }

    /// Appends a value from its own pages, which are read side by side.
    pub(super) fn read_large(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        (bytes, named): (usize, Vec<Lpn>),
        into: &mut Vec<u8>,
    ) -> Result<Nanos> {
        let (pages, now) = self.value_pages(now, leaf, (bytes, named))?;
        let from = into.len();
        into.resize(from + pages.len() * self.sizes.page, 0);
        let now = self.nodes.read_past(now, &pages, &mut into[from..])?;
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
    ) -> Result<(Vec<u8>, Nanos)> {
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

    /// Gives a key a value or takes it away; says whether it had one.
    ///
    /// # Errors
    /// [`IndexError::TooLong`] or no room: nothing has changed. Or pages that cannot go on, or are
    /// damaged.
    pub fn change(
        &mut self,
        now: Nanos,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(bool, Nanos)> {
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
        if let Some(large) = found.large {
            match self.all_pages(now, leaf, large) {
                Ok(found) => (had, now) = found,
                // The key gets its value, and the pages of the old one stay taken.
                Err(error) => self.nodes.pass_over(error)?,
            }
        }
        // What the leaf will have of it, and the pages of its own.
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
            return match written {
                true => Ok((there, now)),
                false => damaged(leaf, "it has less room than it says"),
            };
        }
        let (mut node, now) = self.apart(now, leaf, Kind::Leaf)?;
        let (Ok(slot) | Err(slot)) = found.slot;
        let new = value.map(|value| Entry::new(key, value));
        node.entries.splice(slot..slot + usize::from(there), new);
        let cut = Cut::after(&node, slot);
        let now = self.balance(now, self.path.len() - 1, node, cut)?;
        Ok((there, now))
    }

    /// Whether there are pages for what comes: for a value, and a split at each level with a root
    /// above. What grows the tree leaves enough for what shrinks it, where a longer key between
    /// two nodes may split their parent, and so on.
    pub(super) fn make_sure(&self, pages: usize, splits: bool, grows: bool) -> Result<()> {
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

    pub(super) fn apart(&mut self, now: Nanos, at: Lpn, kind: Kind) -> Result<(Apart, Nanos)> {
        self.look(now, at, kind, |node| Apart::of(node, kind))
    }

    pub(super) fn drop_page(&mut self, now: Nanos, at: Lpn) -> Result<Nanos> {
        self.nodes.give(now, at)
    }
}
