//! Ranges: read several leaves at once that share a parent.

use super::super::{Result, damaged};
use super::byte_tree::Step;
use super::node::{Kind, Node};
use super::tree::ByteIndex;
use crate::units::{Lpn, Nanos};

/// How a range continues.
struct Next {
    /// Adjacent leaves under one node that the range needs.
    leaves: Vec<Lpn>,
    /// Whether the range may need further leaves.
    more: bool,
}

impl ByteIndex {
    /// Passes the pairs from `from` to before `to` to `each`, while it returns `true`. Reads
    /// several leaves at once: first `first` of them, then twice as many each time, up to
    /// `read_ahead`. Reads no leaf beyond `to`.
    pub(super) fn range_ahead(
        &mut self,
        mut now: Nanos,
        from: &[u8],
        to: Option<&[u8]>,
        first: usize,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Nanos> {
        // Read-ahead must not evict all other pages, nor its own.
        let most = self
            .read_ahead
            .min(self.bytes.nodes.cache.frames() / 2)
            .max(1);
        let mut at_once = first.min(most);
        let mut from = from.to_vec();
        let mut images = Vec::new();
        while to.is_none_or(|to| &from[..] < to) {
            let (leaf, done) = self.bytes.descend(now, &from)?;
            let (next, done) = self.leaves_from(done, leaf, to)?;
            now = done;
            let mut rest = &next.leaves[..];
            while !rest.is_empty() {
                let some;
                (some, rest) = rest.split_at(at_once.min(rest.len()));
                at_once = (2 * at_once).min(most);
                // `each` may be slow, and large values are read in between.
                images.clear();
                let cache = &mut self.bytes.nodes.cache;
                now = cache.read_together(now, some, |_, page| images.extend_from_slice(page))?;
                for (&leaf, page) in some
                    .iter()
                    .zip(images.chunks(self.bytes.nodes.cache.page_bytes()))
                {
                    let more;
                    (more, now) = self.show(now, leaf, page, (&from, to), each)?;
                    if !more {
                        return Ok(now);
                    }
                }
            }
            let (end, done) = self.end_of_path(now)?;
            now = done;
            match end.filter(|_| next.more) {
                Some(end) if end > from => from = end,
                Some(_) => return damaged(leaf, "it has keys that are not its own"),
                None => break,
            }
        }
        Ok(now)
    }

    /// The leaf at the end of the path and its following siblings, as far as they have keys before
    /// `to`.
    fn leaves_from(&mut self, now: Nanos, leaf: Lpn, to: Option<&[u8]>) -> Result<(Next, Nanos)> {
        let Some(&Step { at, slot }) = self.bytes.path.iter().nth_back(1) else {
            let (leaves, more) = (vec![leaf], false);
            return Ok((Next { leaves, more }, now));
        };
        self.bytes.look(now, at, Kind::Inner, |node| {
            let last = match to.map(|to| node.find(to)) {
                None => node.len,
                Some(Ok(slot) | Err(slot)) => slot,
            };
            Next {
                leaves: (slot..=last).map(|slot| node.child(slot)).collect(),
                more: last == node.len,
            }
        })
    }

    /// Passes the pairs of a leaf that lie in a range. Returns whether more may be needed.
    fn show(
        &mut self,
        mut now: Nanos,
        leaf: Lpn,
        page: &[u8],
        (from, to): (&[u8], Option<&[u8]>),
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(bool, Nanos)> {
        let Some(node) = Node::of(page, Kind::Leaf) else {
            return damaged(leaf, "it is not the node that its parent names");
        };
        let (Ok(first) | Err(first)) = node.find(from);
        let (mut key, mut large) = (node.prefix().to_vec(), Vec::new());
        for slot in first..node.len {
            key.truncate(node.prefix().len());
            key.extend_from_slice(node.suffix(slot));
            if to.is_some_and(|to| &key[..] >= to) {
                return Ok((false, now));
            }
            let value = node.value(slot);
            let more = match value.pages() {
                None => each(&key, value.bytes),
                Some(pages) => {
                    large.clear();
                    now = self.bytes.read_large(now, leaf, pages, &mut large)?;
                    each(&key, &large)
                }
            };
            if !more {
                return Ok((false, now));
            }
        }
        Ok((true, now))
    }

    /// The upper key bound of the parent of the leaf at the end of the path: the separator in the
    /// nearest ancestor that has one.
    fn end_of_path(&mut self, mut now: Nanos) -> Result<(Option<Vec<u8>>, Nanos)> {
        for depth in (0..self.bytes.path.len().saturating_sub(2)).rev() {
            let Step { at, slot } = self.bytes.path[depth];
            let (end, done) = self.bytes.look(now, at, Kind::Inner, |node| {
                (slot < node.len).then(|| node.key(slot))
            })?;
            now = done;
            if end.is_some() {
                return Ok((end, now));
            }
        }
        Ok((None, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use crate::index::model::{assert_reads_ahead, blank};
    use crate::index::{IndexKind, MemStore, Settings};

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
