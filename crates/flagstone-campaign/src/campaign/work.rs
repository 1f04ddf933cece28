//! Counts of the work of runs, which a campaign prints and a test checks.

use flagstone::ftl::{Operation, Stats};

/// The work of a run, summed over its phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Power cuts that occurred.
    pub cuts: u64,
    /// If every outcome is tried: operations at which the power failed. Each outcome is a cut.
    pub points: u64,
    /// Points of which all outcomes were tried, not a sample.
    pub points_whole: u64,
    /// Cuts during recovery.
    pub cuts_in_recovery: u64,
    /// Recoveries that were checked.
    pub recoveries: u64,
    /// Client steps.
    pub steps: u64,
    /// Waits of database transactions for others.
    pub waits: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Mapping checkpoints and zone slides.
    pub checkpoints: u64,
    /// Blocks retired.
    pub retired: u64,
    /// Databases and indexes that stopped because their device was full, plus transactions rolled
    /// back for that reason.
    pub full: u64,
    /// Flash operations issued (programs, reprograms, erases).
    pub operations: u64,
}

impl Work {
    /// Adds the counters of an FTL.
    pub(super) fn add(&mut self, stats: &Stats) {
        self.collections += stats.collections;
        self.checkpoints += stats.checkpoints;
        self.retired += stats.retired;
        debug_assert!(stats.total(Operation::Erase) >= stats.retired);
    }
}

impl std::ops::AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        self.cuts += other.cuts;
        self.points += other.points;
        self.points_whole += other.points_whole;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.recoveries += other.recoveries;
        self.steps += other.steps;
        self.waits += other.waits;
        self.collections += other.collections;
        self.checkpoints += other.checkpoints;
        self.retired += other.retired;
        self.full += other.full;
        self.operations += other.operations;
    }
}
