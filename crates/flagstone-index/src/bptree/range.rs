//! Range searches: along the links of the leaves, or several leaves at once that share a parent.

use super::super::{Key, Result, Value, damaged};
use super::node::Shape;
use super::tree::{Above, Tree, bisection};
use flagstone::units::{Lpn, Nanos};

/// What a range found in a leaf.
struct Seen {
    len: usize,
    /// The next leaf, if the range may continue there.
    next: Option<Lpn>,
}

impl Shape {
    /// Appends the pairs of a leaf that lie in a range. `None` if the page is not a leaf.
    fn collect(
        self,
        page: &[u8],
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Option<Seen> {
        let len = self.leaf_len(page)?;
        let first = self.find(page, len, from).unwrap_or_else(|slot| slot);
        let wanted = (first..len)
            .map(|slot| (self.leaf_key(page, slot), self.value(page, slot)))
            .take_while(|&(key, _)| key <= to);
        into.extend(wanted);
        let ended = len > 0 && self.leaf_key(page, len - 1) >= to;
        let next = Shape::links(page).1.filter(|_| !ended);
        Some(Seen { len, next })
    }
}

impl<A: Above> Tree<A> {
    /// Appends the pairs of `from..=to` to `into`, following leaf links from the leaf of `from`.
    pub(in super::super) fn range_from(
        &mut self,
        mut now: Nanos,
        leaf: Lpn,
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        // No range passes more leaves than there are pages, unless the links form a cycle.
        let (mut next, mut left) = (Some(leaf), self.space.used());
        while let Some(at) = next {
            let Some(fewer) = left.checked_sub(1) else {
                return damaged(at, "the links of the leaves lead round in a circle");
            };
            left = fewer;
            let (seen, done) = self.look(now, at, |_, page, shape| {
                shape.collect(page, from, to, into)
            })?;
            now = done;
            self.bisected(seen.len);
            next = seen.next;
        }
        Ok(now)
    }
}

impl Tree<()> {
    /// Appends the pairs of `from..=to` to `into`, reading up to `read_ahead` leaves at once. Reads
    /// no leaf beyond the range: the parent has the key bounds.
    pub(super) fn range(
        &mut self,
        mut now: Nanos,
        mut from: Key,
        to: Key,
        read_ahead: usize,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        // Read-ahead must not evict all other pages, nor its own.
        let at_once = read_ahead.min(self.cache.frames() / 2);
        loop {
            let (leaf, done) = self.descend(now, from)?;
            // A root that is a leaf has no parent.
            let parent = self.path.iter().nth_back(1).copied();
            let Some(parent) = parent.filter(|_| at_once > 1) else {
                return self.range_from(done, leaf, from, to, into);
            };
            if self.path.last().is_some_and(|step| step.span.high >= to) {
                return self.collect_all(done, &[leaf], from, to, into);
            }
            let (leaves, done) = self.look(done, parent.span.at, |_, page, shape| {
                let len = shape.inner_len(page)?;
                let last = Shape::route(page, len, to);
                let child = |slot| Shape::child(page, slot);
                Some((parent.slot..=last).map(child).collect::<Vec<Lpn>>())
            })?;
            now = done;
            for some in leaves.chunks(at_once) {
                now = self.collect_all(now, some, from, to, into)?;
            }
            let high = parent.span.high;
            if high >= to {
                return Ok(now);
            }
            if high < from {
                return damaged(parent.span.at, "its keys are not in order");
            }
            from = high + 1;
        }
    }

    /// Appends the pairs of a range in leaves that are read at once.
    fn collect_all(
        &mut self,
        now: Nanos,
        leaves: &[Lpn],
        from: Key,
        to: Key,
        into: &mut Vec<(Key, Value)>,
    ) -> Result<Nanos> {
        let (shape, mut compared) = (self.shape, 0);
        let mut strange = None;
        let now = self.cache.read_together(now, leaves, |at, page| {
            match shape.collect(page, from, to, into) {
                Some(seen) => compared += bisection(seen.len),
                None => strange = Some(at),
            }
        })?;
        self.cache.compared(compared);
        match strange {
            Some(at) => damaged(at, "it is not the node that its parent names"),
            None => Ok(now),
        }
    }
}
