//! Checks the whole tree: cells, order, fences, fill, levels, the number of keys, and that each
//! page, including those of large values, is used once.

use super::apart::Apart;
use super::byte_tree::{ByteTree, named_pages};
use super::node::{Kind, Node, entry_bytes};
use super::nodes::Nodes;
use crate::{TreeError, damaged};
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeSet;

/// A node and its key range: from the first key, and before the second.
struct Span {
    at: Lpn,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl<N: Nodes> ByteTree<N> {
    /// Checks all nodes. Returns the number of keys, and the pages that the tree uses.
    ///
    /// # Errors
    /// Describes the inconsistency and its place.
    pub fn check(&mut self) -> Result<(u64, Vec<Lpn>), String> {
        let mut used = Vec::new();
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
                let image = self.nodes.inspect(span.at);
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
        Ok((len, used))
    }

    /// All pages that the tree uses, in ascending order: nodes, and those of large values.
    ///
    /// # Errors
    /// The pages cannot be accessed, or are damaged. A page that is used twice is damage: a node
    /// below itself would otherwise never end.
    pub fn pages(&mut self) -> Result<Vec<Lpn>, N::Error> {
        let (mut used, mut level) = (BTreeSet::new(), vec![self.root]);
        let mut uses = |at: Lpn| -> Result<(), TreeError> {
            if used.insert(at) {
                return Ok(());
            }
            damaged(at, "the tree uses the page twice")
        };
        for height in (0..self.height).rev() {
            let kind = if height == 0 { Kind::Leaf } else { Kind::Inner };
            let mut below = Vec::new();
            for at in level {
                uses(at)?;
                let (node, _) = self.apart(Nanos::ZERO, at, kind)?;
                match kind {
                    Kind::Inner => {
                        below.extend((0..=node.entries.len()).map_while(|i| node.child(i)))
                    }
                    Kind::Leaf => {
                        for entry in &node.entries {
                            if let Some((bytes, named)) = entry.value().pages() {
                                let (pages, _) = self.all_pages(Nanos::ZERO, at, bytes, named)?;
                                pages.into_iter().try_for_each(&mut uses)?;
                            }
                        }
                    }
                }
            }
            level = below;
        }
        Ok(used.into_iter().collect())
    }

    /// Checks the fill and the keys of a node against its place in the tree, `span`.
    fn check_node(&self, node: Node<'_>, kind: Kind, span: &Span) -> Result<(), String> {
        let (low, high) = (&span.low, span.high.as_deref());
        if kind == Kind::Leaf && node.child(0) != Lpn(0) {
            return Err("a leaf has a child".to_string());
        }
        let is_root = span.at == self.root;
        let (fill, least) = (node.fill(), self.sizes.least());
        // A root may have few entries, but an inner one has two children at least.
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
            // An inner node's keys exceed the separator on its left; a leaf may have it as a key.
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

    /// Checks the value in slot `slot` of a leaf. Returns the pages of a large value, and those
    /// that list them.
    fn check_value(&mut self, node: Node<'_>, slot: usize) -> Result<Vec<Lpn>, String> {
        let value = node.value(slot);
        let Some((bytes, named)) = value.pages() else {
            return if value.large {
                Err(format!("the value of slot {slot} is no list of pages"))
            } else {
                Ok(Vec::new())
            };
        };
        let key = node.key(slot);
        // Older versions stored values separately from a quarter of a node on; now from half on.
        if entry_bytes(key.len(), bytes) <= self.sizes.short {
            return Err(format!(
                "the value of key {key:?} is short, and lies elsewhere"
            ));
        }
        if bytes > self.sizes.limits.value {
            return Err(format!(
                "the value of key {key:?} is longer than a value can be"
            ));
        }
        let (count, lists) = self.sizes.pages_of(bytes);
        let mut pages = named.clone();
        if lists > 0 {
            let mut image = Vec::new();
            for &list in &named {
                let list = self.nodes.inspect(list);
                image.extend(list.map_err(|error| error.to_string())?);
            }
            pages.extend(named_pages(&image).take(count));
        }
        if pages.len() != count + lists {
            let found = pages.len();
            return Err(format!("key {key:?} has {found} pages for {bytes} bytes"));
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
