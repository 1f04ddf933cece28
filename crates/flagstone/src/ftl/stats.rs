//! Flash operations and the time they took, by kind and by cause.

use crate::units::Nanos;

/// Why a flash operation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The host read or wrote a page.
    Host,
    /// A transaction committed or aborted.
    Commit,
    /// Garbage collection and wear levelling.
    Gc,
    /// Keeping the mapping: summary pages, translation pages, roots.
    Mapping,
    /// A log of the protocol, or the host's.
    Log,
    /// Starting up.
    Recovery,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 6] = [
        Cause::Host,
        Cause::Commit,
        Cause::Gc,
        Cause::Mapping,
        Cause::Log,
        Cause::Recovery,
    ];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Host => "host",
            Cause::Commit => "commit",
            Cause::Gc => "gc",
            Cause::Mapping => "mapping",
            Cause::Log => "log",
            Cause::Recovery => "recovery",
        }
    }
}

/// The four flash operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// All operations, in the order of their numbers.
    pub const ALL: [Operation; 4] = [
        Operation::Read,
        Operation::Program,
        Operation::Reprogram,
        Operation::Erase,
    ];

    /// The name that reports use.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    counts: [[u64; 6]; 4],
    /// From the choice of the victim to the end of its erase, summed over all collections.
    pub gc_ns: Nanos,
    /// Victims collected.
    pub collections: u64,
    /// Live pages that were copied out of victims.
    pub relocated: u64,
    /// Summary pages written; they are counted under [`Cause::Mapping`] as well.
    pub summaries: u64,
    /// Mapping checkpoints (roots) written.
    pub checkpoints: u64,
    /// Blocks taken out of service.
    pub retired: u64,
}

impl Stats {
    /// Operations of a kind for a cause.
    pub fn count(&self, operation: Operation, cause: Cause) -> u64 {
        self.counts[operation as usize][cause as usize]
    }

    /// Operations of a kind, whatever the cause.
    pub fn total(&self, operation: Operation) -> u64 {
        self.counts[operation as usize].iter().sum()
    }

    #[inline]
    pub(super) fn add(&mut self, operation: Operation, cause: Cause) {
        self.counts[operation as usize][cause as usize] += 1;
    }
}
