//! A medium that promises room, and has none at a write while it is full: a file system that copies
//! on write (btrfs), a thin volume.

use super::{Medium, Recorded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Writes that a medium has room for if it is not full.
const MANY: i64 = i64::MAX;

/// A medium that is full when it is told so. Copies are of the same medium.
#[derive(Clone, Default)]
pub struct Tight {
    below: Recorded,
    plan: Arc<Plan>,
}

struct Plan {
    /// Writes for which there is room.
    left: AtomicI64,
    refused: AtomicU64,
    /// Parts of a refused write that land, in sectors.
    lands: AtomicU64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            left: AtomicI64::new(MANY),
            refused: AtomicU64::new(0),
            lands: AtomicU64::new(0),
        }
    }
}

impl Tight {
    /// On this medium, with room.
    pub fn on(below: Recorded) -> Tight {
        Tight {
            below,
            ..Tight::default()
        }
    }

    /// The medium below.
    pub fn below(&self) -> &Recorded {
        &self.below
    }

    /// Has room for so many writes from now on, and for no other; nothing for all of them. Of each
    /// write that finds none, at most `sectors` land.
    pub fn give(&self, writes: Option<u64>, sectors: u64) {
        let writes = writes.map_or(MANY, |writes| writes as i64);
        self.plan.left.store(writes, Ordering::SeqCst);
        self.plan.lands.store(sectors, Ordering::SeqCst);
    }

    /// Writes that have found no room so far.
    pub fn refused(&self) -> u64 {
        self.plan.refused.load(Ordering::SeqCst)
    }
}

impl Medium for Tight {
    crate::forward_medium!(below: read_at sync bytes reserve shorten);

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.plan.left.load(Ordering::SeqCst) == MANY {
            return self.below.write_at(offset, bytes);
        }
        if self.plan.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return self.below.write_at(offset, bytes);
        }
        self.plan.refused.fetch_add(1, Ordering::SeqCst);
        let lands = self.plan.lands.load(Ordering::SeqCst);
        let lands = lands.saturating_mul(super::SECTOR_BYTES as u64);
        let lands = (bytes.len() as u64).min(lands) as usize;
        self.below.write_at(offset, &bytes[..lands])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn refresh(&self) -> io::Result<()> {
        self.below.refresh()
    }
}
