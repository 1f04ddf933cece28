//! The check of the whole tree: cells, order, fences, fill, levels, the number of keys,
//! and each page used once, those of long values included.

use super::apart::Apart;
use super::node::{Kind, Node, entry_bytes};
use super::tree::Tree;
use crate::units::Lpn;

/// A node and its keys: from the first on, before the second.
struct Span {
    at: Lpn,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Tree {
    /// Checks everything.
    ///
    /// # Errors
    /// Says what does not hold, and where.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut used = self.meta.pages().to_vec();
        let mut len = 0;
        let mut level = vec![Span {
            at: self.root,
            low: Vec::new(),
            high: None,
        }];
        for height in (0..self.height).rev() {
            let kind = if height == 0 { Kind::Leaf } else { Kind::Inner };
            let mut below = Vec::new();
            for span in level {
                used.push(span.at);
                let image = self.cache.inspect(span.at);
                let image = image.map_err(|error| error.to_string())?;
                let wrong = |what: String| format!("page {} of level {height}: {what}", span.at);
                let node = Node::of(&image, kind);
                let node = node.ok_or_else(|| wrong(format!("it is no {kind:?}")))?;
                node.check().map_err(wrong)?;
                self.check_node(node, kind, &span).map_err(wrong)?;
                match kind {
                    Kind::Inner => below.extend(children(&Apart::of(node, kind), &span)),
                    Kind::Leaf => {
                        len += node.len as u64;
                        for slot in 0..node.len {
                            used.extend(self.check_value(node, slot).map_err(wrong)?);
                        }
                    }
                }
            }
            level = below;
        }
        if len != self.len {
            return Err(format!("there are {len} keys, and not {}", self.len));
        }
        self.space.check(used)
    }

    fn check_node(&self, node: Node<'_>, kind: Kind, span: &Span) -> Result<(), String> {
        let (low, high) = (&span.low, span.high.as_deref());
        if kind == Kind::Leaf && node.child(0) != Lpn(0) {
            return Err("a leaf has a child".to_string());
        }
        let is_root = span.at == self.root;
        let (fill, least) = (node.fill(), self.sizes.least());
        let few = match kind {
            Kind::Inner if is_root => node.len == 0,
            _ => fill < least && !is_root,
        };
        if few {
            return Err(format!("it is full by {fill} bytes, fewer than {least}"));
        }
        let mut before: Option<Vec<u8>> = None;
        for slot in 0..node.len {
            let key = node.key(slot);
            let ordered = before.is_none_or(|before| before < key);
            // What tells two children apart is not the first key of the first of them.
            let first = if kind == Kind::Leaf {
                &key >= low
            } else {
                &key > low
            };
            if !ordered || !first || high.is_some_and(|high| &key[..] >= high) {
                return Err(format!("key {key:?} is not in order, or beyond its bounds"));
            }
            let bytes = entry_bytes(key.len(), node.value(slot).bytes.len());
            if bytes > self.sizes.entry || key.len() > self.sizes.limits.key {
                return Err(format!("the entry of key {key:?} is too long"));
            }
            before = Some(key);
        }
        Ok(())
    }

    /// The pages that a value has of its own.
    fn check_value(&self, node: Node<'_>, slot: usize) -> Result<Vec<Lpn>, String> {
        let value = node.value(slot);
        let Some((bytes, pages)) = value.pages() else {
            return match value.large {
                true => Err(format!("the value of slot {slot} is no list of pages")),
                false => Ok(Vec::new()),
            };
        };
        let key = node.key(slot);
        if entry_bytes(key.len(), bytes) <= self.sizes.entry {
            return Err(format!(
                "the value of key {key:?} is short, and lies elsewhere"
            ));
        }
        if bytes.div_ceil(self.cache.page_bytes()) != pages.len() {
            let count = pages.len();
            return Err(format!("key {key:?} has {count} pages for {bytes} bytes"));
        }
        Ok(pages)
    }
}

fn children(node: &Apart, span: &Span) -> Vec<Span> {
    let key = |slot: usize| node.entries.get(slot).map(|entry| entry.key.clone());
    let child = |slot: usize| Span {
        at: node.child(slot).unwrap_or(Lpn(0)),
        low: slot
            .checked_sub(1)
            .and_then(key)
            .unwrap_or_else(|| span.low.clone()),
        high: key(slot).or_else(|| span.high.clone()),
    };
    (0..=node.entries.len()).map(child).collect()
}
