//! A medium that fails writes for lack of room although the room was allocated: a copy-on-write
//! file system (btrfs), or a thin volume.

use super::{Medium, Recorded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// No limit on writes.
const MANY: i64 = i64::MAX;

/// A medium that becomes full on demand. Clones share the medium.
///
/// ```
/// use flagstone_store::medium::{Medium, Tight};
/// use std::io::ErrorKind;
///
/// let medium = Tight::default();
/// medium.reserve(4096)?;
/// // One more write has room.
/// medium.give(Some(1), 0);
/// medium.write_at(0, &[7; 512])?;
/// let refused = medium.write_at(512, &[7; 512]);
/// assert!(refused.is_err_and(|error| error.kind() == ErrorKind::StorageFull));
/// assert_eq!(medium.refused(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Tight {
    below: Recorded,
    plan: Arc<Plan>,
}

struct Plan {
    /// Number of writes that still find space.
    left: AtomicI64,
    refused: AtomicU64,
    /// How many sectors of a refused write land.
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
    /// A medium over `below` with unlimited room.
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

    /// Lets the next `writes` writes find room, and no further ones. `None`: no limit. Of each
    /// refused write at most `sectors` sectors land.
    pub fn give(&self, writes: Option<u64>, sectors: u64) {
        let writes = writes.map_or(MANY, |writes| writes as i64);
        self.plan.left.store(writes, Ordering::SeqCst);
        self.plan.lands.store(sectors, Ordering::SeqCst);
    }

    /// Number of refused writes so far.
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
