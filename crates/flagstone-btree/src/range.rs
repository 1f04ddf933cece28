//! Ranges: read several leaves at once that share a parent.

use super::byte_tree::{ByteTree, Step};
use super::node::{Kind, Node};
use super::nodes::Nodes;
use crate::damaged;
use flagstone::units::{Lpn, Nanos};

/// How many leaves a range reads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAhead {
    /// Leaves of the first request.
    pub first: usize,
    /// Maximum leaves of a request. Each request has up to twice as many as the one before.
    pub most: usize,
}

/// How a range continues.
struct Next {
    /// Adjacent leaves under one node that the range needs.
    leaves: Vec<Lpn>,
    /// Whether the range may need further leaves.
    more: bool,
}

impl<N: Nodes> ByteTree<N> {
    /// Passes the pairs from `from` to before `to` to `each`, while it returns `true`. Reads no
    /// leaf beyond `to`. `ahead` says how many leaves of one parent are read at once.
    ///
    /// # Errors
    /// The pages cannot be accessed, or are damaged.
    pub fn range(
        &mut self,
        mut now: Nanos,
        from: &[u8],
        to: Option<&[u8]>,
        ahead: ReadAhead,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Nanos, N::Error> {
        let most = ahead.most.max(1);
        let mut at_once = ahead.first.clamp(1, most);
        let mut from = from.to_vec();
        let mut images = Vec::new();
        while to.is_none_or(|to| &from[..] < to) {
            let (leaf, done) = self.descend(now, &from)?;
            let (next, done) = self.leaves_from(done, leaf, to)?;
            now = done;
            let mut rest = &next.leaves[..];
            while !rest.is_empty() {
                let some;
                (some, rest) = rest.split_at(at_once.min(rest.len()));
                at_once = (2 * at_once).min(most);
                // `each` may be slow, and large values are read in between.
                images.clear();
                now = self.nodes.read_together(now, some, &mut images)?;
                for (&leaf, page) in some.iter().zip(images.chunks(self.sizes.page)) {
                    let more;
                    (more, now) = self.show(now, leaf, page, &from, to, each)?;
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

    /// The leaf at the end of the path and its following siblings under the same parent, as far as
    /// they may have keys before `to`.
    fn leaves_from(
        &mut self,
        now: Nanos,
        leaf: Lpn,
        to: Option<&[u8]>,
    ) -> Result<(Next, Nanos), N::Error> {
        let Some(&Step { at, slot }) = self.path.iter().nth_back(1) else {
            let (leaves, more) = (vec![leaf], false);
            return Ok((Next { leaves, more }, now));
        };
        self.look(now, at, Kind::Inner, |node| {
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

    /// Passes the pairs of a leaf, whose contents are `page`, that lie in a range to `each`.
    /// Returns whether the range may go on behind the leaf.
    fn show(
        &mut self,
        mut now: Nanos,
        leaf: Lpn,
        page: &[u8],
        from: &[u8],
        to: Option<&[u8]>,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(bool, Nanos), N::Error> {
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
                Some((bytes, named)) => {
                    large.clear();
                    now = self.read_large(now, leaf, bytes, named, &mut large)?;
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
    fn end_of_path(&mut self, mut now: Nanos) -> Result<(Option<Vec<u8>>, Nanos), N::Error> {
        for depth in (0..self.path.len().saturating_sub(2)).rev() {
            let Step { at, slot } = self.path[depth];
            let (end, done) = self.look(now, at, Kind::Inner, |node| {
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
