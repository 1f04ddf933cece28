//! The blocks of the pool: contents and tree structure.

use super::super::super::Key;
use super::super::super::bptree::Span;
use super::clock::NEVER;
use super::requests::List;
use super::room::{grow, settle};
use super::table::hash;
use super::{Least, Policy, Pool};
use flagstone::units::Lpn;

/// Identifies a block that may have been removed, by its node. No node gets another block while an
/// operation keeps this: requests only leave meanwhile.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct BlockId {
    at: Lpn,
    /// The block's index, unless it has moved.
    index: u32,
}

impl PartialEq for BlockId {
    fn eq(&self, other: &BlockId) -> bool {
        self.at == other.at
    }
}

impl BlockId {
    /// The first block of a pool.
    pub(super) fn first(at: Lpn) -> BlockId {
        BlockId { at, index: 0 }
    }
}

/// The known facts about a node that requests lead to, in 44 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(in super::super) struct Block {
    /// The node, and its range.
    pub(super) low: Key,
    pub(in super::super) high: Key,
    pub(super) at: Lpn,
    /// The index of the parent, or [`NONE`].
    pub(super) parent: u32,
    /// The block's own requests, and their number.
    pub(super) list: List,
    pub(in super::super) own: u32,
    /// When the latest request arrived. Of an index block, and of a group with the policy Fifo, a
    /// lower bound of when the oldest did.
    pub(super) time: u32,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Group {
        /// Number of entries in the leaf, or [`UNKNOWN`].
        size: u16,
        /// Number of entries by which the requests enlarge it.
        growth: i32,
    },
    Index {
        level: u8,
        below: u32,
    },
}

/// No index of a block.
pub(super) const NONE: u32 = u32::MAX;

/// The size of a leaf that was never read.
const UNKNOWN: u16 = u16::MAX;

/// The children of an index block.
#[derive(Debug)]
pub(super) struct Below {
    /// Indexes, sorted by range.
    pub(super) children: Vec<u32>,
    /// The best victims below the block, valid from the last selection until they may have changed.
    /// If known here, they are known in all index blocks below.
    pub(super) least: Option<Least>,
    /// The index of the block.
    owner: u32,
}

/// Numbers of blocks that divisions of lists may add.
#[derive(Debug, Default)]
pub(super) struct Owed {
    pub(super) blocks: usize,
    /// Index blocks among them.
    pub(super) indexes: usize,
}

impl Block {
    #[inline]
    pub(in super::super) fn span(&self) -> Span {
        let Block { at, low, high, .. } = *self;
        Span { at, low, high }
    }

    /// Level; 0 for a group block.
    #[inline]
    pub(in super::super) fn level(&self) -> u8 {
        match self.kind {
            Kind::Group { .. } => 0,
            Kind::Index { level, .. } => level,
        }
    }

    #[inline]
    pub(super) fn below(&self) -> Option<usize> {
        match self.kind {
            Kind::Group { .. } => None,
            Kind::Index { below, .. } => Some(below as usize),
        }
    }

    /// Number of entries by which a group's requests enlarge the leaf.
    #[inline]
    pub(in super::super) fn growth(&self) -> i32 {
        match self.kind {
            Kind::Group { growth, .. } => growth,
            Kind::Index { .. } => 0,
        }
    }

    #[inline]
    pub(in super::super) fn grow(&mut self, by: i32) {
        if let Kind::Group { growth, .. } = &mut self.kind {
            *growth += by;
        }
    }

    /// Number of entries in the leaf, if known.
    #[inline]
    pub(in super::super) fn node_size(&self) -> Option<usize> {
        match self.kind {
            Kind::Group { size, .. } if size != UNKNOWN => Some(usize::from(size)),
            _ => None,
        }
    }

    pub(in super::super) fn set_node_size(&mut self, len: Option<usize>) {
        if let Kind::Group { size, .. } = &mut self.kind {
            *size = len.map_or(UNKNOWN, |len| len as u16);
        }
    }

    /// Records that a request arrived.
    #[inline]
    pub(super) fn arrive(&mut self, stamp: u32, policy: Policy) {
        self.time = if self.has_latest(policy) {
            self.time.max(stamp)
        } else {
            self.time.min(stamp)
        };
    }

    /// Whether the time is that of the latest request.
    #[inline]
    pub(super) fn has_latest(&self, policy: Policy) -> bool {
        policy != Policy::Fifo && self.level() == 0
    }

    /// For tests: another level, of an index block.
    #[cfg(test)]
    pub(in super::super) fn lift(&mut self) {
        if let Kind::Index { level, .. } = &mut self.kind {
            *level += 1;
        }
    }

    /// Forgets the requests.
    pub(super) fn clear(&mut self, policy: Policy) {
        (self.list, self.own) = (List::EMPTY, 0);
        self.time = if self.has_latest(policy) { 0 } else { NEVER };
        self.grow(-self.growth());
    }
}

/// The hash of a block's page.
fn hash_of(blocks: &[Block], index: u32) -> Option<u64> {
    Some(hash(u64::from(blocks[index as usize].at.0)))
}

impl Pool {
    /// The index of a block that may have been removed.
    #[inline]
    pub(super) fn find(&self, id: BlockId) -> Option<u32> {
        match self.blocks.get(id.index as usize) {
            Some(block) if block.at == id.at => Some(id.index),
            _ => self.index_of(id.at),
        }
    }

    /// The index of an existing block.
    #[inline]
    pub(in super::super) fn index(&self, id: BlockId) -> u32 {
        self.find(id).expect("the node has a block")
    }

    #[inline]
    fn index_of(&self, at: Lpn) -> Option<u32> {
        let is_it = |index: u32| self.blocks[index as usize].at == at;
        self.by_page.find(hash(u64::from(at.0)), is_it)
    }

    #[inline]
    pub(super) fn id(&self, index: u32) -> BlockId {
        let at = self.blocks[index as usize].at;
        BlockId { at, index }
    }

    #[inline]
    pub(in super::super) fn get(&self, id: BlockId) -> Option<&Block> {
        self.find(id).map(|index| &self.blocks[index as usize])
    }

    /// An existing block.
    #[inline]
    pub(in super::super) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[self.index(id) as usize]
    }

    #[inline]
    pub(super) fn block_at(&mut self, index: u32) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    /// A block for tests to corrupt.
    #[cfg(test)]
    pub(in super::super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        let index = self.index(id);
        self.block_at(index)
    }

    /// Removes the children of a block, for tests.
    #[cfg(test)]
    pub(in super::super) fn lose_children(&mut self, id: BlockId) {
        if let Some(below) = self.block(id).below() {
            self.belows[below].children.clear();
        }
    }

    /// The child blocks, sorted by range.
    #[inline]
    pub(super) fn children(&self, index: u32) -> &[u32] {
        let below = self.blocks[index as usize].below();
        below.map_or(&[], |below| &self.belows[below].children)
    }

    /// The child blocks, sorted by range.
    #[inline]
    pub(in super::super) fn groups(
        &self,
        id: BlockId,
    ) -> impl DoubleEndedIterator<Item = BlockId> + ExactSizeIterator {
        let children = self.children(self.index(id)).iter();
        children.map(|&child| self.id(child))
    }

    pub(in super::super) fn parent(&self, id: BlockId) -> Option<BlockId> {
        let parent = self.block(id).parent;
        (parent != NONE).then(|| self.id(parent))
    }

    /// Adds a block without requests.
    pub(super) fn add(&mut self, span: Span, level: u8) -> u32 {
        let Span { at, low, high } = span;
        let index = self.blocks.len() as u32;
        let kind = if level == 0 {
            let (size, growth) = (UNKNOWN, 0);
            Kind::Group { size, growth }
        } else {
            let below = self.belows.len() as u32;
            grow(&mut self.belows, 1);
            self.belows.push(Below {
                children: Vec::new(),
                least: None,
                owner: index,
            });
            Kind::Index { level, below }
        };
        let mut block = Block {
            low,
            high,
            at,
            parent: NONE,
            list: List::EMPTY,
            own: 0,
            time: 0,
            kind,
        };
        block.clear(self.policy);
        grow(&mut self.blocks, 1);
        self.blocks.push(block);
        let blocks = &self.blocks;
        self.by_page
            .insert(index, index + 1, |index| hash_of(blocks, index));
        index
    }

    /// Removes a block. Returns it, and its children, which have no parent then. The caller handles
    /// the children and the block's requests.
    pub(super) fn drop_block(&mut self, index: u32) -> (Block, Vec<BlockId>) {
        let block = self.blocks[index as usize];
        let last = self.blocks.len() as u32 - 1;
        let children: Vec<BlockId> = self.groups(self.id(index)).collect();
        for child in &children {
            self.block_at(child.index).parent = NONE;
        }
        self.owe(block.level(), block.own, 0);
        if let Some(below) = block.below() {
            self.belows.swap_remove(below);
            if let Some(moved) = self.belows.get(below) {
                self.blocks[moved.owner as usize].kind = Kind::Index {
                    level: self.blocks[moved.owner as usize].level(),
                    below: below as u32,
                };
            }
            settle(&mut self.belows);
        }
        let blocks = &self.blocks;
        self.by_page.remove(index, |index| hash_of(blocks, index));
        let hash = hash(u64::from(blocks[last as usize].at.0));
        self.by_page.relocate(hash, last, index);
        self.blocks.swap_remove(index as usize);
        if index != last {
            self.moved(last, index);
        }
        settle(&mut self.blocks);
        let blocks = &self.blocks;
        self.by_page.settle(last, |index| hash_of(blocks, index));
        (block, children)
    }

    /// Updates all references to a block whose index has changed: the root, the children and the
    /// parent, and cached victims above.
    fn moved(&mut self, from: u32, to: u32) {
        let block = self.blocks[to as usize];
        if self.root.index == from {
            self.root.index = to;
        }
        if let Some(below) = block.below() {
            self.belows[below].owner = to;
            for &child in &self.belows[below].children {
                self.blocks[child as usize].parent = to;
            }
        }
        let mut above = block.parent;
        while let Some(parent) = self.blocks.get(above as usize).copied() {
            let Some(below) = parent.below().map(|below| &mut self.belows[below]) else {
                break;
            };
            if above == block.parent
                && let Some(child) = below.children.iter_mut().find(|child| **child == from)
            {
                *child = to;
            }
            if let Some((_, group)) = below.least.as_mut().and_then(|least| least.group.as_mut())
                && *group == from
            {
                *group = to;
            }
            above = parent.parent;
        }
    }

    /// Counts the blocks that divisions may add, after the number of requests in a block's list
    /// changed: each request may get a block on each level below.
    #[inline]
    pub(super) fn owe(&mut self, level: u8, before: u32, now: u32) {
        let level = usize::from(level);
        let blocks = |own: u32| own as usize * level;
        let indexes = |own: u32| own as usize * level.saturating_sub(1);
        self.owed.blocks = self.owed.blocks + blocks(now) - blocks(before);
        self.owed.indexes = self.owed.indexes + indexes(now) - indexes(before);
    }

    /// The child block whose range covers a key.
    #[inline]
    pub(super) fn child_with(&self, index: u32, key: Key) -> Option<u32> {
        let children = self.children(index);
        let after = children.partition_point(|&child| self.blocks[child as usize].low <= key);
        let child = *children.get(after.checked_sub(1)?)?;
        (key <= self.blocks[child as usize].high).then_some(child)
    }

    /// The deepest block whose range covers a key.
    pub(in super::super) fn locate(&self, key: Key) -> BlockId {
        self.id(self.locate_index(key))
    }

    pub(super) fn locate_index(&self, key: Key) -> u32 {
        let mut index = self.index(self.root);
        while let Some(child) = self.child_with(index, key) {
            index = child;
        }
        index
    }

    /// The block of a node.
    #[inline]
    pub(in super::super) fn of_page(&self, at: Lpn) -> Option<BlockId> {
        let index = self.index_of(at)?;
        Some(BlockId { at, index })
    }

    /// Removes a block without requests and children, and then such parents.
    pub(super) fn tidy(&mut self, id: BlockId) {
        let index = self.index(id);
        if self.blocks[index as usize].own > 0 || !self.children(index).is_empty() {
            return;
        }
        let Some(parent) = self.parent(id) else {
            return;
        };
        self.orphan(index);
        self.drop_block(index);
        self.tidy(parent);
    }

    /// Detaches a block from its parent.
    pub(super) fn orphan(&mut self, index: u32) {
        let parent = self.blocks[index as usize].parent;
        self.forget(parent);
        let Some(below) = self.blocks[parent as usize].below() else {
            return;
        };
        let children = &mut self.belows[below].children;
        if let Some(place) = children.iter().position(|&child| child == index) {
            children.remove(place);
            settle(children);
        }
    }

    /// Attaches a block to a parent.
    pub(super) fn adopt(&mut self, parent: u32, index: u32) {
        self.blocks[index as usize].parent = parent;
        let low = self.blocks[index as usize].low;
        let Some(below) = self.blocks[parent as usize].below() else {
            return;
        };
        let children = &mut self.belows[below].children;
        let blocks = &self.blocks;
        let place = children.partition_point(|&child| blocks[child as usize].low < low);
        grow(children, 1);
        children.insert(place, index);
    }
}
