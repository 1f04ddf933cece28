//! Taking a tree down a few pages at a time, so that each part can be one transaction: no page goes
//! before those that only it leads to. Whatever is left of the tree leads to all that is left.

use super::byte_tree::{ByteTree, named_pages};
use super::node::Kind;
use super::nodes::Nodes;
use crate::index::Result;
use crate::units::{Lpn, Nanos};

/// What is taken at a time.
struct Axe<'a> {
    is_gone: &'a dyn Fn(Lpn) -> bool,
    most: usize,
    taken: Vec<Lpn>,
}

impl Axe<'_> {
    /// Takes a page, unless it is gone. Says whether it is, by now.
    fn take(&mut self, at: Lpn) -> bool {
        if (self.is_gone)(at) {
            return true;
        }
        let has_room = self.taken.len() < self.most;
        if has_room {
            self.taken.push(at);
        }
        has_room
    }
}

impl<N: Nodes> ByteTree<N> {
    /// Pages of the tree that can go next, so many at most, in an order in which they can go one by
    /// one; and whether that is all that is left of it. Of earlier calls `is_gone` says which pages
    /// have gone.
    ///
    /// # Errors
    /// Pages that cannot go on, or are damaged.
    pub fn fell(&mut self, most: usize, is_gone: &dyn Fn(Lpn) -> bool) -> Result<(Vec<Lpn>, bool)> {
        let mut axe = Axe {
            is_gone,
            most,
            taken: Vec::new(),
        };
        let is_all = self.fell_below(self.root, self.height, &mut axe)?;
        Ok((axe.taken, is_all))
    }

    fn fell_below(&mut self, at: Lpn, height: u32, axe: &mut Axe<'_>) -> Result<bool> {
        if (axe.is_gone)(at) {
            return Ok(true);
        }
        let kind = if height > 1 { Kind::Inner } else { Kind::Leaf };
        let (node, _) = self.apart(Nanos::ZERO, at, kind)?;
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
            let here = count.min(named_pages(&image).count());
            count -= here;
            if (axe.is_gone)(list) {
                continue;
            }
            self.nodes.read_past(Nanos::ZERO, &[list], &mut image)?;
            let mut pages = named_pages(&image).take(here);
            if !pages.all(|at| axe.take(at)) || !axe.take(list) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
