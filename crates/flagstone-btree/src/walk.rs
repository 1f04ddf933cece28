//! Reads a tree whose pages do not change meanwhile; each reader has its own position. Supports
//! single searches, parallel searches, and a cursor that steps in both directions.
//!
//! A [`Walk`] is the tree of a snapshot. It uses page handles that can be kept, so values are not
//! copied from their pages, and any number of readers share the pages.

use super::byte_tree::{Root, Sizes, named_pages, refuse_repeated};
use super::node::{Kind, Node, Value};
use crate::{TreeError, damaged};
use flagstone::units::Lpn;
use std::ops::{Deref, Range};

/// Immutable pages.
pub trait Images {
    /// A handle to the bytes of a page.
    type Page: Deref<Target = [u8]> + Clone;
    /// Why a page cannot be read, or is invalid.
    type Error: From<TreeError>;

    /// Reads a page.
    ///
    /// # Errors
    /// It cannot be read.
    fn page(&self, at: Lpn) -> Result<Self::Page, Self::Error>;

    /// Reads a page that is an inner node: nearly every search passes it.
    ///
    /// # Errors
    /// As [`Images::page`].
    fn inner(&self, at: Lpn) -> Result<Self::Page, Self::Error> {
        self.page(at)
    }

    /// Reads several pages in parallel.
    ///
    /// # Errors
    /// As [`Images::page`].
    fn pages(&self, pages: &[Lpn]) -> Result<Vec<Self::Page>, Self::Error> {
        pages.iter().map(|&at| self.page(at)).collect()
    }
}

/// A found value.
#[derive(Debug, Clone)]
pub enum FoundValue<P> {
    /// In its leaf: the page, and the range within it.
    InLeaf(P, Range<usize>),
    /// A large value, assembled from its pages.
    Whole(Vec<u8>),
}

/// The value found for each of several keys, in order.
pub type AllFound<P> = Vec<Option<FoundValue<P>>>;

impl<P: Deref<Target = [u8]>> Deref for FoundValue<P> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FoundValue::InLeaf(page, place) => &page[place.clone()],
            FoundValue::Whole(bytes) => bytes,
        }
    }
}

#[inline]
pub(super) fn node<'a, P: Deref<Target = [u8]>>(
    page: &'a P,
    at: Lpn,
    kind: Kind,
) -> Result<Node<'a>, TreeError> {
    match Node::of(page, kind) {
        Some(node) => Ok(node),
        None => damaged(at, "it is not the node that its parent names"),
    }
}

/// A read-only tree.
#[derive(Debug, Clone)]
pub struct Walk<I> {
    pub(super) images: I,
    pub(super) root: Root,
    pub(super) sizes: Sizes,
}

impl<I: Images> Walk<I> {
    /// The tree with root `root`, in pages of `page_bytes` bytes.
    ///
    /// # Errors
    /// The page size is out of range, or the root has an impossible height.
    #[inline]
    pub fn new(images: I, page_bytes: usize, root: Root) -> Result<Walk<I>, TreeError> {
        root.doubt()?;
        let sizes = Sizes::new(page_bytes)?;
        Ok(Walk {
            images,
            root,
            sizes,
        })
    }

    /// The pages.
    pub fn images(&self) -> &I {
        &self.images
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// A page cannot be read, or is damaged.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<FoundValue<I::Page>>, I::Error> {
        let mut at = self.root.at;
        for _ in 1..self.root.height {
            let page = self.images.inner(at)?;
            let inner = node(&page, at, Kind::Inner)?;
            at = inner.child(inner.route(key));
        }
        let page = self.images.page(at)?;
        let leaf = node(&page, at, Kind::Leaf)?;
        let Ok(slot) = leaf.find(key) else {
            return Ok(None);
        };
        self.found(&page, at, leaf.value(slot)).map(Some)
    }

    /// The values of several keys, in order. The pages of each level are read in parallel.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<AllFound<I::Page>, I::Error> {
        let mut found: AllFound<I::Page> = keys.iter().map(|_| None).collect();
        self.leaves(keys, |i, page, at| {
            let leaf = node(page, at, Kind::Leaf)?;
            if let Ok(slot) = leaf.find(keys[i]) {
                found[i] = Some(self.found(page, at, leaf.value(slot))?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads the pages on which several keys lie, each level in parallel, but no pages of large
    /// values. A caching source then has them.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn prefetch(&self, keys: &[&[u8]]) -> Result<(), I::Error> {
        self.leaves(keys, |_, _, _| Ok(()))
    }

    /// Finds the leaf of each of several keys. `see` gets the index of the key, a handle to the
    /// leaf's bytes, and its page number. Reads each page once, and those of a level in parallel.
    fn leaves(
        &self,
        keys: &[&[u8]],
        mut see: impl FnMut(usize, &I::Page, Lpn) -> Result<(), I::Error>,
    ) -> Result<(), I::Error> {
        // Sorted, keys on one page are adjacent. `at` has the next page of each key.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&i| keys[i]);
        let mut at = vec![self.root.at; keys.len()];
        for level in (0..self.root.height).rev() {
            let mut wanted: Vec<Lpn> = order.iter().map(|&i| at[i]).collect();
            wanted.dedup();
            let pages = self.images.pages(&wanted)?;
            let mut next = 0;
            for &i in &order {
                while wanted[next] != at[i] {
                    next += 1;
                }
                let page = &pages[next];
                if level > 0 {
                    let inner = node(page, at[i], Kind::Inner)?;
                    at[i] = inner.child(inner.route(keys[i]));
                } else {
                    see(i, page, at[i])?;
                }
            }
        }
        Ok(())
    }

    /// Extracts a value from the leaf `at`, without a copy unless it is large.
    fn found(
        &self,
        page: &I::Page,
        at: Lpn,
        value: Value<'_>,
    ) -> Result<FoundValue<I::Page>, I::Error> {
        if value.large {
            return self.large(at, value).map(FoundValue::Whole);
        }
        // The value borrows from the page, so the distance of both is its offset.
        let place = match value.bytes {
            [] => 0,
            bytes => bytes.as_ptr() as usize - page.as_ptr() as usize,
        };
        Ok(FoundValue::InLeaf(
            page.clone(),
            place..place + value.bytes.len(),
        ))
    }

    /// Assembles a large value, whose entry is in `leaf`, from its pages.
    fn large(&self, leaf: Lpn, value: Value<'_>) -> Result<Vec<u8>, I::Error> {
        let Some((bytes, mut pages)) = value.pages() else {
            return damaged(leaf, "a value is no list of pages");
        };
        let (count, lists) = self.sizes.pages_named(leaf, bytes, &pages)?;
        if lists > 0 {
            let lists = self.images.pages(&pages)?;
            let named = lists.iter().flat_map(|list| named_pages(list));
            pages = named.take(count).collect();
            refuse_repeated(leaf, &pages)?;
        }
        if pages.len() < count {
            return damaged(leaf, "a value has pages that are too short");
        }
        let mut whole = Vec::with_capacity(bytes);
        for page in self.images.pages(&pages)? {
            match page.get(..self.sizes.page.min(bytes - whole.len())) {
                Some(more) => whole.extend_from_slice(more),
                None => return damaged(leaf, "a value has pages that are too short"),
            }
        }
        Ok(whole)
    }

    /// A cursor before the first key at or after `key`.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn seek(&self, key: &[u8]) -> Result<Cursor<I::Page>, I::Error> {
        let mut cursor = Cursor::default();
        self.go_to(&mut cursor, key)?;
        Ok(cursor)
    }

    /// Moves a cursor before the first key at or after `key`.
    ///
    /// # Errors
    /// As [`Walk::get`]. The cursor is then at the unreadable part, as after an error of
    /// [`Walk::next`].
    pub fn go_to(&self, cursor: &mut Cursor<I::Page>, key: &[u8]) -> Result<(), I::Error> {
        cursor.path.clear();
        let mut at = self.root.at;
        for _ in 1..self.root.height {
            let page = self.images.inner(at)?;
            let inner = node(&page, at, Kind::Inner)?;
            let slot = inner.route(key);
            let child = inner.child(slot);
            cursor.path.push(Level { at, page, slot });
            at = child;
        }
        let page = self.images.page(at)?;
        let (Ok(slot) | Err(slot)) = node(&page, at, Kind::Leaf)?.find(key);
        cursor.path.push(Level { at, page, slot });
        Ok(())
    }

    /// A cursor after the last key.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn end(&self) -> Result<Cursor<I::Page>, I::Error> {
        let mut cursor = Cursor::default();
        self.go_to_end(&mut cursor)?;
        Ok(cursor)
    }

    /// Moves a cursor after the last key.
    ///
    /// # Errors
    /// As [`Walk::go_to`].
    pub fn go_to_end(&self, cursor: &mut Cursor<I::Page>) -> Result<(), I::Error> {
        cursor.path.clear();
        self.go_down(cursor, self.root.at, true)
    }

    /// The key range of the unreadable part at which a cursor stands after an error: from the first
    /// key, and before the second or up to the end of the tree. `None` if the cursor is at an
    /// entry.
    ///
    /// # Errors
    /// A page is damaged.
    pub fn gap(&self, cursor: &Cursor<I::Page>) -> Result<Option<Gap>, I::Error> {
        if cursor.path.len() == self.root.height as usize {
            return Ok(None);
        }
        let (mut low, mut high) = (Vec::new(), None);
        for level in &cursor.path {
            let inner = node(&level.page, level.at, Kind::Inner)?;
            if let Some(before) = level.slot.checked_sub(1) {
                low = inner.key(before);
            }
            if level.slot < inner.len {
                high = Some(inner.key(level.slot));
            }
        }
        Ok(Some((low, high)))
    }

    /// Extends the path from the node `at`, the next below it, down to a leaf: to the first entry
    /// below that node, or with `to_last` after the last one.
    fn go_down(
        &self,
        cursor: &mut Cursor<I::Page>,
        mut at: Lpn,
        to_last: bool,
    ) -> Result<(), I::Error> {
        while cursor.path.len() + 1 < self.root.height as usize {
            let page = self.images.inner(at)?;
            let inner = node(&page, at, Kind::Inner)?;
            let slot = if to_last { inner.len } else { 0 };
            let child = inner.child(slot);
            cursor.path.push(Level { at, page, slot });
            at = child;
        }
        let page = self.images.page(at)?;
        let leaf = node(&page, at, Kind::Leaf)?;
        let slot = if to_last { leaf.len } else { 0 };
        cursor.path.push(Level { at, page, slot });
        Ok(())
    }

    /// Advances over the next entry: writes its key to `key` and returns its value. Returns `None`
    /// at the end.
    ///
    /// # Errors
    /// As [`Walk::get`]. The next call continues after the entry with the unreadable value, or
    /// after the unreadable node ([`Walk::gap`]).
    pub fn next(
        &self,
        cursor: &mut Cursor<I::Page>,
        key: &mut Vec<u8>,
    ) -> Result<Option<FoundValue<I::Page>>, I::Error> {
        loop {
            if let Some(level) = self.leaf_of(cursor)
                && level.slot < node(&level.page, level.at, Kind::Leaf)?.len
            {
                let slot = level.slot;
                level.slot += 1;
                return self.show(level, slot, key).map(Some);
            }
            if !self.turn(cursor, 1)? {
                return Ok(None);
            }
        }
    }

    /// Steps back over the previous entry and returns it as [`Walk::next`] does.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn previous(
        &self,
        cursor: &mut Cursor<I::Page>,
        key: &mut Vec<u8>,
    ) -> Result<Option<FoundValue<I::Page>>, I::Error> {
        loop {
            if let Some(level) = self.leaf_of(cursor).filter(|level| level.slot > 0) {
                level.slot -= 1;
                let slot = level.slot;
                return self.show(level, slot, key).map(Some);
            }
            if !self.turn(cursor, -1)? {
                return Ok(None);
            }
        }
    }

    /// The leaf at which a cursor stands; `None` if it is at an unreadable part.
    fn leaf_of<'a>(&self, cursor: &'a mut Cursor<I::Page>) -> Option<&'a mut Level<I::Page>> {
        let is_whole = cursor.path.len() == self.root.height as usize;
        cursor.path.last_mut().filter(|_| is_whole)
    }

    fn show(
        &self,
        level: &Level<I::Page>,
        slot: usize,
        key: &mut Vec<u8>,
    ) -> Result<FoundValue<I::Page>, I::Error> {
        let leaf = node(&level.page, level.at, Kind::Leaf)?;
        key.clear();
        key.extend_from_slice(leaf.prefix());
        key.extend_from_slice(leaf.suffix(slot));
        self.found(&level.page, level.at, leaf.value(slot))
    }

    /// Moves to the adjacent leaf on the right (`by` is 1) or left (-1). Returns whether there is
    /// one; otherwise the cursor stays. At an unreadable part, moves past that part.
    fn turn(&self, cursor: &mut Cursor<I::Page>, by: isize) -> Result<bool, I::Error> {
        let inner = cursor.path.len().min(self.root.height as usize - 1);
        for depth in (0..inner).rev() {
            let level = &mut cursor.path[depth];
            let inner = node(&level.page, level.at, Kind::Inner)?;
            let beside = level.slot.checked_add_signed(by);
            let Some(slot) = beside.filter(|&slot| slot <= inner.len) else {
                continue;
            };
            let child = inner.child(slot);
            level.slot = slot;
            cursor.path.truncate(depth + 1);
            self.go_down(cursor, child, by < 0)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The number of keys. Reads all nodes.
    ///
    /// # Errors
    /// As [`Walk::get`].
    pub fn count(&self) -> Result<u64, I::Error> {
        let mut cursor = Cursor::default();
        self.go_down(&mut cursor, self.root.at, false)?;
        let mut keys = 0;
        loop {
            if let Some(level) = cursor.path.last() {
                keys += node(&level.page, level.at, Kind::Leaf)?.len as u64;
            }
            if !self.turn(&mut cursor, 1)? {
                return Ok(keys);
            }
        }
    }
}

/// A key range of a tree: from the first key, and before the second or up to the end.
pub type Gap = (Vec<u8>, Option<Vec<u8>>);

/// A position between two entries of a tree, or at an unreadable part. In the latter case the path
/// ends at the node that references that part.
#[derive(Debug, Clone)]
pub struct Cursor<P> {
    path: Vec<Level<P>>,
}

impl<P> Default for Cursor<P> {
    fn default() -> Self {
        Cursor { path: Vec::new() }
    }
}

#[derive(Debug, Clone)]
struct Level<P> {
    at: Lpn,
    page: P,
    slot: usize,
}

#[cfg(test)]
mod tests;
