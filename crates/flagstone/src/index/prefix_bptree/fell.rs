//! Taking a tree down a few pages at a time, so that each part can be one transaction: no page goes
//! before those that only it leads to. Whatever is left of the tree leads to all that is left.
//!
//! A page that is damaged goes like the others. What only that page led to is not found.

use super::byte_tree::{ByteTree, named_pages};
use super::node::Kind;
use super::nodes::Nodes;
use crate::index::Result;
use crate::units::{Lpn, Nanos};
use std::collections::BTreeSet;

/// Pages of a tree that can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Felled {
    /// In an order in which they can go one by one.
    pub pages: Vec<Lpn>,
    /// Whether they are all that is left of the tree.
    pub is_all: bool,
    /// Whether one of them is damaged: pages that only it leads to are not among these.
    pub has_lost: bool,
}

/// What is taken at a time.
struct Axe<'a> {
    is_gone: &'a dyn Fn(Lpn) -> bool,
    most: usize,
    taken: Vec<Lpn>,
    is_taken: BTreeSet<Lpn>,
    /// Nodes on the way. A damaged tree may lead to a node twice, or from a node to itself.
    seen: BTreeSet<Lpn>,
    has_lost: bool,
}

impl Axe<'_> {
    /// Takes a page, unless it is gone. Says whether it is, by now.
    fn take(&mut self, at: Lpn) -> bool {
        if (self.is_gone)(at) || self.is_taken.contains(&at) {
            return true;
        }
        let has_room = self.taken.len() < self.most;
        if has_room {
            self.taken.push(at);
            self.is_taken.insert(at);
        }
        has_room
    }
}

impl<N: Nodes> ByteTree<N> {
    /// At most `most` pages of the tree that can go next. Of earlier calls `is_gone` says which
    /// pages have gone.
    ///
    /// # Errors
    /// Pages that cannot go on. Damage is passed over.
    pub fn fell(&mut self, most: usize, is_gone: &dyn Fn(Lpn) -> bool) -> Result<Felled> {
        let mut axe = Axe {
            is_gone,
            most,
            taken: Vec::new(),
            is_taken: BTreeSet::new(),
            seen: BTreeSet::new(),
            has_lost: false,
        };
        let is_all = self.fell_below(self.root, self.height, &mut axe)?;
        Ok(Felled {
            pages: axe.taken,
            is_all,
            has_lost: axe.has_lost,
        })
    }

    fn fell_below(&mut self, at: Lpn, height: u32, axe: &mut Axe<'_>) -> Result<bool> {
        if (axe.is_gone)(at) || !axe.seen.insert(at) {
            return Ok(true);
        }
        let kind = if height > 1 { Kind::Inner } else { Kind::Leaf };
        let node = match self.apart(Nanos::ZERO, at, kind) {
            Ok((node, _)) => node,
            Err(error) => {
                self.nodes.pass_over(error)?;
                axe.has_lost = true;
                return Ok(axe.take(at));
            }
        };
        let is_bare = match kind {
            Kind::Inner => {
                let mut children = (0..=node.entries.len()).map_while(|i| node.child(i));
                children.try_fold(true, |all, child| match all {
                    true => self.fell_below(child, height - 1, axe),
                    false => Ok(false),
                })?
            }
            Kind::Leaf => {
                let mut values = node
                    .entries
                    .iter()
                    .filter_map(|entry| entry.value().pages());
                values.try_fold(true, |all, value| match all {
                    true => self.fell_value(value, axe),
                    false => Ok(false),
                })?
            }
        };
        Ok(is_bare && axe.take(at))
    }

    /// The pages of a value, and then those that list them.
    fn fell_value(&mut self, (bytes, named): (usize, Vec<Lpn>), axe: &mut Axe<'_>) -> Result<bool> {
        let (mut count, lists) = self.sizes.pages_of(bytes);
        if lists == 0 {
            return Ok(named.into_iter().all(|at| axe.take(at)));
        }
        for list in named {
            let mut image = vec![0; self.sizes.page];
            let here = count.min(self.sizes.page / 4);
            count -= here;
            if (axe.is_gone)(list) {
                continue;
            }
            if let Err(error) = self.nodes.read_past(Nanos::ZERO, &[list], &mut image) {
                self.nodes.pass_over(error)?;
                axe.has_lost = true;
                if !axe.take(list) {
                    return Ok(false);
                }
                continue;
            }
            let mut pages = named_pages(&image).take(here);
            if !pages.all(|at| axe.take(at)) || !axe.take(list) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
