//! Frees a tree a few pages at a time, so that each step can be a transaction. A page is freed
//! after all pages that only it references, so the rest of the tree stays reachable.
//!
//! Damaged pages are freed like others. Pages that only a damaged page referenced are not found.

use super::byte_tree::{ByteTree, named_pages};
use super::node::Kind;
use super::nodes::Nodes;
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeSet;

/// Pages of a tree that can be freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Felled {
    /// The pages, in an order in which they can be freed one by one.
    pub pages: Vec<Lpn>,
    /// Whether these are all remaining pages of the tree.
    pub is_all: bool,
    /// Whether one of the pages is damaged, so that pages that only it referenced are missing here.
    pub has_lost: bool,
}

/// State of one step.
struct Axe<'a> {
    /// Whether a page was freed by an earlier step.
    is_gone: &'a dyn Fn(Lpn) -> bool,
    /// Maximum number of pages to take.
    most: usize,
    /// Pages to be freed, in order, and the same as a set.
    taken: Vec<Lpn>,
    is_taken: BTreeSet<Lpn>,
    /// Visited nodes. A damaged tree may reach a node twice, or from itself.
    seen: BTreeSet<Lpn>,
    has_lost: bool,
}

impl Axe<'_> {
    /// Takes a page unless it was freed. Returns whether it is taken or freed.
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
    /// Collects at most `most` pages of the tree that can be freed next. `is_gone` returns `true`
    /// for pages that were freed after earlier calls.
    ///
    /// # Errors
    /// The pages cannot be accessed. Damage is skipped.
    pub fn fell(&mut self, most: usize, is_gone: &dyn Fn(Lpn) -> bool) -> Result<Felled, N::Error> {
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

    /// Collects the pages of the node `at` and everything below it, the node last. Returns whether
    /// all of them are taken or freed; otherwise there was no room for more.
    fn fell_below(&mut self, at: Lpn, height: u32, axe: &mut Axe<'_>) -> Result<bool, N::Error> {
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
                children.try_fold(true, |all, child| {
                    if all {
                        self.fell_below(child, height - 1, axe)
                    } else {
                        Ok(false)
                    }
                })?
            }
            Kind::Leaf => {
                let mut values = node
                    .entries
                    .iter()
                    .filter_map(|entry| entry.value().pages());
                values.try_fold(true, |all, (bytes, named)| {
                    if all {
                        self.fell_value(bytes, named, axe)
                    } else {
                        Ok(false)
                    }
                })?
            }
        };
        Ok(is_bare && axe.take(at))
    }

    /// Collects the pages of a large value, and each page that lists some after these. Returns
    /// whether all of them are taken or freed.
    fn fell_value(
        &mut self,
        bytes: usize,
        named: Vec<Lpn>,
        axe: &mut Axe<'_>,
    ) -> Result<bool, N::Error> {
        let (mut count, lists) = self.sizes.pages_of(bytes);
        if lists == 0 {
            return Ok(named.into_iter().all(|at| axe.take(at)));
        }
        for list in named {
            let mut image = vec![0; self.sizes.page];
            // Number of pages that this one lists.
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
