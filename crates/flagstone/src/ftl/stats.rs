//! Counters of flash operations and their time, by kind and by cause.

use crate::nand::{Geometry, Timing};
use crate::units::Nanos;

/// The reason for a flash operation.
///
/// Example: [`Stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The host read or wrote a page.
    Host,
    /// A transaction committed or aborted.
    Commit,
    /// Garbage collection and wear levelling.
    Gc,
    /// Maintenance of the mapping: summary pages, translation pages, roots.
    Mapping,
    /// A log of the protocol, or the host's.
    Log,
    /// Starting up.
    Recovery,
    /// Scrubbing: reads by the patrol, and moves and erases of refreshed blocks.
    Scrub,
}

impl Cause {
    /// All causes, in the order of their discriminants.
    pub const ALL: [Cause; 7] = [
        Cause::Host,
        Cause::Commit,
        Cause::Gc,
        Cause::Mapping,
        Cause::Log,
        Cause::Recovery,
        Cause::Scrub,
    ];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::Commit => "commit",
            Cause::Gc => "gc",
            Cause::Mapping => "mapping",
            Cause::Log => "log",
            Cause::Recovery => "recovery",
            Cause::Scrub => "scrub",
        }
    }
}

/// The four flash operations.
///
/// Example: [`Stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// A page read.
    Read,
    /// A page program.
    Program,
    /// A partial program of a spare area.
    Reprogram,
    /// A block erase.
    Erase,
}

impl Operation {
    /// All operations, in the order of their discriminants.
    pub const ALL: [Operation; 4] = [
        Operation::Read,
        Operation::Program,
        Operation::Reprogram,
        Operation::Erase,
    ];

    /// The name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Program => "program",
            Operation::Reprogram => "reprogram",
            Operation::Erase => "erase",
        }
    }
}

/// Counters of one device since it was started.
///
/// ```
/// use flagstone::prelude::*;
///
/// let mut device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let now = device.recovered_at();
/// let tx = device.begin(now)?;
/// for page in 0..3 {
///     device.write(now, tx, Lpn(page), b"data")?;
/// }
/// device.commit(now, tx)?;
/// let stats = device.stats();
/// assert_eq!(stats.count(Operation::Program, Cause::Host), 3);
/// assert_eq!(stats.total(Operation::Erase), stats.count(Operation::Erase, Cause::Gc));
/// assert_eq!((Cause::Gc.name(), stats.collections), ("gc", 0));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    counts: [[u64; 7]; 4],
    /// Reads of spare areas only.
    spare_reads: [u64; 7],
    /// Reads and programs of the collector without transfers.
    pub(super) inside: u64,
    /// Time from the choice of a victim to the end of its erase, summed over all collections.
    pub gc_ns: Nanos,
    /// Victims collected.
    pub collections: u64,
    /// Live pages that were copied out of victims.
    pub relocated: u64,
    /// Summary pages written; also counted under [`Cause::Mapping`].
    pub summaries: u64,
    /// Mapping checkpoints (roots) written.
    pub checkpoints: u64,
    /// Uses of mapping entries, on a device that keeps only some in memory ([`Ftl::cache_map`]).
    ///
    /// [`Ftl::cache_map`]: super::Ftl::cache_map
    pub map_lookups: u64,
    /// Those of [`Stats::map_lookups`] that read a translation page. Also counted under
    /// [`Cause::Mapping`].
    pub map_misses: u64,
    /// Blocks taken out of service.
    pub retired: u64,
    /// Reads of pages whose checksum was wrong ([`Config::checksums`](super::Config)).
    pub checksum_errors: u64,
    /// Pages of data blocks that were left blank because of shared cells
    /// ([`Config::paired_pages`](super::Config)).
    pub left_out: u64,
    /// Blocks refreshed by scrubbing ([`Config::scrub`](super::Config)). Not included in
    /// [`Stats::collections`].
    pub refreshed: u64,
    /// Pages that the patrol read.
    pub patrolled: u64,
    /// Maximum number of bits corrected in one read of a block in use, if that required a refresh.
    pub corrected_most: u16,
}

impl Stats {
    /// Number of operations of a kind for a cause.
    pub fn count(&self, operation: Operation, cause: Cause) -> u64 {
        self.counts[operation as usize][cause as usize]
    }

    /// Number of operations of a kind, for all causes.
    pub fn total(&self, operation: Operation) -> u64 {
        self.counts[operation as usize].iter().sum()
    }

    /// Time of planes and channels for the operations of a cause. Cells and transfers are added up,
    /// even if they overlapped.
    pub fn busy(&self, cause: Cause, timing: &Timing, geometry: &Geometry) -> Nanos {
        let count = |operation| self.count(operation, cause);
        let spare_reads = self.spare_reads[cause as usize];
        let page_transfer = timing.transfer(geometry.page_bytes + geometry.spare_bytes);
        let spare_transfer = timing.transfer(geometry.spare_bytes);
        let cells = [timing.read, timing.program, timing.reprogram, timing.erase];
        let cells = Operation::ALL.into_iter().zip(cells);
        let cells: u64 = cells.map(|(op, each)| count(op) * each.0).sum();
        let inside = if cause == Cause::Gc { self.inside } else { 0 };
        let pages = count(Operation::Read) - spare_reads + count(Operation::Program) - inside;
        Nanos(cells + pages * page_transfer.0 + spare_reads * spare_transfer.0)
    }

    /// [`Stats::busy`] of collection, without erases of blocks before their first use.
    pub fn gc_busy(&self, timing: &Timing, geometry: &Geometry) -> Nanos {
        let first_uses = self
            .count(Operation::Erase, Cause::Gc)
            .saturating_sub(self.collections);
        let all = self.busy(Cause::Gc, timing, geometry);
        Nanos(all.0 - first_uses * timing.erase.0)
    }

    /// [`Stats::gc_busy`] as a share of the time of all flash operations; 0 if there were none.
    pub fn gc_share(&self, timing: &Timing, geometry: &Geometry) -> f64 {
        let busy = |cause| self.busy(cause, timing, geometry).0;
        let all: u64 = Cause::ALL.into_iter().map(busy).sum();
        self.gc_busy(timing, geometry).0 as f64 / all.max(1) as f64
    }

    /// Counts a read of a page, or of its spare area alone.
    #[inline]
    pub(super) fn add_read(&mut self, cause: Cause, spare_only: bool) {
        self.add(Operation::Read, cause);
        self.spare_reads[cause as usize] += u64::from(spare_only);
    }

    #[inline]
    pub(super) fn add(&mut self, operation: Operation, cause: Cause) {
        self.counts[operation as usize][cause as usize] += 1;
    }
}
