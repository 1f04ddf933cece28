//! The blocks of the pool: contents and tree structure.

use super::super::super::Key;
use super::super::super::bptree::Span;
use super::requests::List;
use super::{Least, Pool, Rank};
use flagstone::units::Lpn;
use std::num::NonZeroU32;

/// Identifies a block that may have been removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct BlockId {
    pub(super) index: u32,
    pub(super) serial: NonZeroU32,
}

/// A block, and its range.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Child {
    pub(in super::super) low: Key,
    pub(in super::super) high: Key,
    pub(in super::super) id: BlockId,
}

/// The known facts about a node that requests lead to, in one cache line. The time of its latest
/// request is in its rank.
#[derive(Debug)]
#[repr(align(64))]
pub(in super::super) struct Block {
    /// The node, and its range.
    pub(in super::super) span: Span,
    pub(in super::super) parent: Option<BlockId>,
    /// The child blocks of an index block.
    pub(super) below: Option<Box<Below>>,
    /// A lower bound of the arrival of the block's oldest request.
    pub(in super::super) born: u64,
    /// The block's own requests, and their number.
    pub(super) list: List,
    pub(in super::super) own: u32,
    /// Number of entries by which the block's requests enlarge the node.
    pub(in super::super) growth: i32,
    /// Number of entries in the leaf, or [`UNKNOWN`].
    pub(super) size: u16,
    /// Level; 0 for a group block.
    pub(in super::super) level: u8,
}

/// The size of a leaf that was never read.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// The children of an index block.
#[derive(Debug, Default)]
pub(super) struct Below {
    /// Sorted by range.
    pub(super) children: Vec<Child>,
    /// The best victims below the block, valid from the last selection until they may have changed.
    /// If known here, they are known in all index blocks below.
    pub(super) least: Option<Least>,
}

/// The contents of a removed block, which the caller must handle.
pub(super) struct Dropped {
    pub(super) level: u8,
    pub(super) list: List,
    pub(super) children: Vec<Child>,
}

/// Frequently used data of a block; for a group, its quality as a victim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub(super) rank: Rank,
    pub(super) serial: NonZeroU32,
    pub(super) is_taken: bool,
}

impl Block {
    /// The child blocks, sorted by range.
    #[inline]
    pub(in super::super) fn children(&self) -> &[Child] {
        self.below.as_ref().map_or(&[], |below| &below.children)
    }

    /// The child blocks, without ranges.
    pub(in super::super) fn groups(&self) -> Vec<BlockId> {
        self.children().iter().map(|child| child.id).collect()
    }

    /// The best victims below, if known.
    #[inline]
    pub(in super::super) fn least(&self) -> Option<Least> {
        self.below.as_ref()?.least
    }

    #[inline]
    pub(super) fn least_mut(&mut self) -> Option<&mut Least> {
        self.below.as_mut()?.least.as_mut()
    }

    /// Number of entries in the leaf, if known.
    #[inline]
    pub(in super::super) fn node_size(&self) -> Option<usize> {
        (self.size != UNKNOWN).then_some(usize::from(self.size))
    }

    pub(in super::super) fn set_node_size(&mut self, size: usize) {
        self.size = size as u16;
    }
}

impl Pool {
    #[inline]
    pub(in super::super) fn get(&self, id: BlockId) -> Option<&Block> {
        let seat = &self.seats[id.index as usize];
        (seat.is_taken && seat.serial == id.serial).then(|| &self.blocks[id.index as usize])
    }

    /// An existing block.
    #[inline]
    pub(in super::super) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index as usize]
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index as usize]
    }

    /// A block for tests to corrupt.
    #[cfg(test)]
    pub(in super::super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.slot_mut(id)
    }

    /// Removes the children of a block, for tests.
    #[cfg(test)]
    pub(in super::super) fn lose_children(&mut self, id: BlockId) {
        self.slot_mut(id).below = Some(Box::default());
    }

    /// Adds a block without requests.
    pub(super) fn add(&mut self, span: Span, level: u8, parent: Option<BlockId>) -> BlockId {
        let block = Block {
            span,
            parent,
            below: (level > 0).then(Box::default),
            born: u64::MAX,
            list: List::EMPTY,
            own: 0,
            growth: 0,
            size: UNKNOWN,
            level,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.blocks[index as usize] = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.seats.push(Seat {
                    rank: Rank::default(),
                    serial: NonZeroU32::MIN,
                    is_taken: false,
                });
                self.blocks.len() as u32 - 1
            }
        };
        let seat = &mut self.seats[index as usize];
        seat.serial = seat.serial.checked_add(1).unwrap_or(NonZeroU32::MIN);
        seat.is_taken = true;
        seat.rank = Rank::default();
        let serial = seat.serial;
        let id = BlockId { index, serial };
        self.by_page.insert(span.at, id);
        id
    }

    /// Removes a block. The caller handles its children and requests.
    pub(super) fn drop_block(&mut self, id: BlockId) -> Dropped {
        self.free.push(id.index);
        self.seats[id.index as usize].is_taken = false;
        let block = &mut self.blocks[id.index as usize];
        let (at, level, list) = (block.span.at, block.level, block.list);
        let below = block.below.take();
        if self.by_page.get(&at) == Some(&id) {
            self.by_page.remove(&at);
        }
        let children = below.map_or_else(Vec::new, |below| below.children);
        Dropped {
            level,
            list,
            children,
        }
    }

    /// The child block whose range covers a key.
    #[inline]
    pub(super) fn child_with(&self, id: BlockId, key: Key) -> Option<BlockId> {
        let children = self.block(id).children();
        let after = children.partition_point(|child| child.low <= key);
        let child = children.get(after.checked_sub(1)?)?;
        (key <= child.high).then_some(child.id)
    }

    /// The deepest block whose range covers a key.
    pub(in super::super) fn locate(&self, key: Key) -> BlockId {
        let mut id = self.root;
        while let Some(child) = self.child_with(id, key) {
            id = child;
        }
        id
    }

    /// The block of a node.
    #[inline]
    pub(in super::super) fn of_page(&self, at: Lpn) -> Option<BlockId> {
        self.by_page.get(&at).copied()
    }

    /// Removes a block without requests and children, and then such parents.
    pub(super) fn tidy(&mut self, id: BlockId) {
        let block = self.block(id);
        if block.own > 0 || !block.children().is_empty() {
            return;
        }
        let Some(parent) = block.parent else {
            return;
        };
        self.orphan(id);
        self.drop_block(id);
        self.tidy(parent);
    }

    /// Detaches a block from its parent.
    pub(super) fn orphan(&mut self, id: BlockId) {
        let Block { span, parent, .. } = *self.block(id);
        let parent = parent.expect("the root has no sibling");
        self.forget(parent);
        let Some(below) = &mut self.slot_mut(parent).below else {
            return;
        };
        let children = &mut below.children;
        let place = children.partition_point(|child| child.low < span.low);
        if children.get(place).is_some_and(|child| child.id == id) {
            children.remove(place);
        }
    }

    /// Attaches a block to a parent.
    pub(super) fn adopt(&mut self, parent: BlockId, id: BlockId) {
        let Span { low, high, .. } = self.block(id).span;
        self.slot_mut(id).parent = Some(parent);
        let Some(below) = &mut self.slot_mut(parent).below else {
            return;
        };
        let children = &mut below.children;
        let place = children.partition_point(|child| child.low < low);
        children.insert(place, Child { low, high, id });
    }
}
