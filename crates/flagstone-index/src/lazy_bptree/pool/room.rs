//! How much memory the pool takes, and when it is full.

use super::Pool;
use super::blocks::{Below, Block};
use super::table::Table;

/// The limit of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Room {
    /// Maximum number of requests.
    Requests(usize),
    /// Maximum bytes of requests and blocks together.
    Bytes(usize),
}

/// The largest capacity of an array of this length.
pub(super) fn most(len: usize) -> usize {
    len + len / 32 + 4
}

/// Makes room in an array. It grows by a sixty-fourth.
#[inline]
pub(super) fn grow<T>(array: &mut Vec<T>, by: usize) {
    if array.capacity() - array.len() < by {
        array.reserve_exact(by + array.len() / 64);
    }
}

/// Releases memory of an array that has become shorter.
#[inline]
pub(super) fn settle<T>(array: &mut Vec<T>) {
    if array.capacity() > most(array.len()) {
        array.shrink_to(array.len() + array.len() / 64);
    }
}

impl Pool {
    /// Whether one more request may not have room.
    #[inline]
    pub(in super::super) fn is_full(&self) -> bool {
        match self.room {
            Room::Requests(requests) => self.requests.len() >= requests,
            // A pool with hardly any room has one request.
            Room::Bytes(bytes) => !self.requests.is_empty() && self.used_with_one_more() > bytes,
        }
    }

    /// The most bytes that the pool takes with one more request, whatever becomes of the blocks:
    /// a request in the list of an index block may get a block on each level below, and changes of
    /// the tree may add one on each level.
    fn used_with_one_more(&self) -> usize {
        let levels = usize::from(self.block(self.root).level());
        let blocks = self.blocks.len() + self.owed.blocks + 2 * levels + 2;
        let indexes = self.belows.len() + self.owed.indexes + 2 * levels + 1;
        self.requests.most(self.requests.len() + 1) + Pool::most(blocks, indexes)
    }

    /// Maximum bytes of `blocks` blocks, `indexes` of which are index blocks.
    fn most(blocks: usize, indexes: usize) -> usize {
        let children = blocks + blocks / 32 + 4 * indexes;
        most(blocks) * size_of::<Block>()
            + Table::most(blocks)
            + most(indexes) * size_of::<Below>()
            + children * size_of::<u32>()
    }

    /// Number of requests that have room. If the limit is in bytes: as many as fit when each
    /// request has a block of its own.
    pub(in super::super) fn capacity(&self) -> usize {
        const MANY: usize = 1 << 20;
        match self.room {
            Room::Requests(requests) => requests,
            Room::Bytes(bytes) => {
                let all = self.requests.most(MANY) + Pool::most(MANY, 0);
                (bytes as u64 * MANY as u64 / all as u64) as usize
            }
        }
    }

    /// Bytes of requests and blocks, including spare capacity.
    pub(in super::super) fn memory(&self) -> (u64, u64) {
        let blocks = self.blocks.capacity() * size_of::<Block>() + self.by_page.memory();
        let belows = self.belows.capacity() * size_of::<Below>();
        let children = self.belows.iter().map(|below| below.children.capacity());
        let blocks = blocks + belows + children.sum::<usize>() * size_of::<u32>();
        (self.requests.memory() as u64, blocks as u64)
    }
}
