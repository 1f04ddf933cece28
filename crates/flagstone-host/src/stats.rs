//! The counters of a host.

use super::LogStats;
use super::locks::LockStats;
use crate::buffer::PoolStats;

/// Counters of one host since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HostStats {
    /// Transactions begun.
    pub begun: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions rolled back, whatever the reason.
    pub aborted: u64,
    /// Pages read without a lock.
    pub touches: u64,
    /// Records read.
    pub reads: u64,
    /// Records written or deleted.
    pub writes: u64,
    /// Data pages read from the device.
    pub pages_read: u64,
    /// Data pages written to the device, for any reason.
    pub pages_written: u64,
    /// Data pages evicted while the transaction that last changed them was live.
    pub pages_stolen: u64,
    /// Data pages read from the device for roll-backs.
    pub pages_read_back: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// The log.
    pub log: LogStats,
    /// The buffer pool.
    pub pool: PoolStats,
    /// The locks.
    pub locks: LockStats,
}
