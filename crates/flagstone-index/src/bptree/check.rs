//! Checks the whole tree: order, fences, fill, links in both directions, levels, and that each page
//! is used once.

use super::super::Key;
use super::node::Shape;
use super::tree::{Above, Span, Tree};
use flagstone::units::Lpn;

impl<A: Above> Tree<A> {
    /// Checks everything. Returns all nodes, each with its level and number of entries.
    ///
    /// # Errors
    /// Describes the inconsistency and its place.
    pub(in super::super) fn check(&mut self) -> Result<Vec<(Span, u32, usize)>, String> {
        let mut nodes = Vec::new();
        let mut used = self.meta.pages().to_vec();
        let (low, high) = (0, Key::MAX);
        let at = self.root;
        let mut level = vec![Span { at, low, high }];
        for height in (1..self.height).rev() {
            let mut below = Vec::new();
            for span in level {
                used.push(span.at);
                let len = self.check_inner(span, height, &mut below)?;
                nodes.push((span, height, len));
            }
            level = below;
        }
        used.extend(level.iter().map(|span| span.at));
        self.check_leaves(level, &mut nodes)?;
        self.space.check(used)?;
        Ok(nodes)
    }

    /// Checks an inner node and appends its children to `below`. Returns its number of keys.
    fn check_inner(
        &mut self,
        span: Span,
        height: u32,
        below: &mut Vec<Span>,
    ) -> Result<usize, String> {
        let Span { at, low, high } = span;
        let page = self.cache.inspect(at).map_err(|error| error.to_string())?;
        let order = self.shape.inner_order;
        let is_root = at == self.root;
        let least = if is_root { 1 } else { order };
        let len = self.shape.inner_len(&page);
        let len = len.ok_or_else(|| format!("page {at} of level {height} is no inner node"))?;
        if len < least {
            return Err(format!(
                "inner node {at} has {len} keys, fewer than {least}"
            ));
        }
        let mut before = None;
        for slot in 0..len {
            let key = Shape::inner_key(&page, slot);
            let in_order = before.is_none_or(|before| before < key);
            if !in_order || key <= low || key > high {
                return Err(format!(
                    "key {key} of inner node {at} is not in order, or not in {low}..={high}"
                ));
            }
            before = Some(key);
        }
        below.extend((0..=len).map(|slot| {
            let (low, high) = Shape::bounds(&page, len, slot, low, high);
            let at = Shape::child(&page, slot);
            Span { at, low, high }
        }));
        Ok(len)
    }

    /// Checks the leaves, which are in order, and their links. Appends them to `nodes`.
    fn check_leaves(
        &mut self,
        leaves: Vec<Span>,
        nodes: &mut Vec<(Span, u32, usize)>,
    ) -> Result<(), String> {
        let neighbour = |i: usize| leaves.get(i).map(|span| span.at);
        for (i, &span) in leaves.iter().enumerate() {
            let Span { at, low, high } = span;
            let page = self.cache.inspect(at).map_err(|error| error.to_string())?;
            let len = self.shape.leaf_len(&page);
            let len = len.ok_or_else(|| format!("page {at} is no leaf"))?;
            if len < self.shape.leaf_order && self.height > 1 {
                return Err(format!("leaf {at} has {len} entries, too few"));
            }
            let mut before: Option<Key> = None;
            for (key, _) in self.shape.entries(&page, len) {
                if before.is_some_and(|before| before >= key) || key < low || key > high {
                    return Err(format!(
                        "key {key} of leaf {at} is not in order, or not in {low}..={high}"
                    ));
                }
                before = Some(key);
            }
            let wanted = (i.checked_sub(1).and_then(neighbour), neighbour(i + 1));
            let found: (Option<Lpn>, Option<Lpn>) = Shape::links(&page);
            if found != wanted {
                return Err(format!(
                    "leaf {at} has the neighbours {found:?}, not {wanted:?}"
                ));
            }
            nodes.push((span, 0, len));
        }
        Ok(())
    }
}
