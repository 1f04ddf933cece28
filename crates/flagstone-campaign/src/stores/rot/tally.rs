//! Results of damaged stores, counted by damage.

use super::damage::{Aim, Harm};
use super::id::RotRunId;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The result of a damaged store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All data is there.
    Right,
    /// It did not open.
    Opening,
    /// Some data cannot be read, and `check` reports damage.
    Reading,
    /// The newest transactions are missing entirely, as after a power cut, and nothing on the
    /// medium proves that they were durable.
    Undecidable,
    /// Data is missing without an error, in a store that has lost at once every page of a full
    /// block, or of a block with its mark, or everything that one flush wrote. Nothing that
    /// survives refers to the lost data.
    LostWhole,
    /// Wrong or missing data without an error.
    Silent(Silence),
}

impl Outcome {
    /// Column names, in this order.
    pub const NAMES: [&'static str; 6] = [
        "right",
        "error at opening",
        "error at reading",
        "undecidable",
        "lost whole",
        "SILENT",
    ];

    /// The column of the result.
    pub(super) fn column(self) -> usize {
        match self {
            Outcome::Right => 0,
            Outcome::Opening => 1,
            Outcome::Reading => 2,
            Outcome::Undecidable => 3,
            Outcome::LostWhole => 4,
            Outcome::Silent(_) => 5,
        }
    }
}

/// How a loss was silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Reads return wrong data, or nothing.
    Data,
    /// Data cannot be read, but `check` reports no damage.
    Check,
    /// `repair` reports no loss, but the new store lacks data.
    Repair,
    /// The store panics.
    Panic,
}

impl Silence {
    /// All kinds, each with a word.
    pub const ALL: [(Silence, &'static str); 4] = [
        (Silence::Data, "other data"),
        (Silence::Check, "a check that sees nothing"),
        (Silence::Repair, "a repair that names no loss"),
        (Silence::Panic, "a panic"),
    ];
}

/// Counts of runs with rot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotTally {
    /// Number of histories.
    pub histories: u64,
    /// Histories that failed before any damage.
    pub before: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Blocks collected.
    pub collections: u64,
    /// Counts by [`Aim`], [`Harm`] and [`Outcome`].
    pub(super) counts: [[[u64; 6]; Harm::ALL.len()]; Aim::ALL.len()],
    /// Silent losses, by the end of the history ([`End`](super::End)).
    pub silent_by_end: [u64; 4],
    /// Silent losses, by [`Silence`].
    pub silent_by_way: [u64; 4],
    /// An example of a silent loss for each combination.
    pub examples: BTreeMap<(Aim, Harm), RotRunId>,
    /// The first silent loss.
    pub first: Option<(RotRunId, String)>,
    /// The report of a single run without a silent loss.
    pub told: Option<String>,
}

/// Keeps `first` and `told`: the findings of a campaign have the first loss of each run.
impl AddAssign for RotTally {
    fn add_assign(&mut self, other: RotTally) {
        self.histories += other.histories;
        self.before += other.before;
        self.commits += other.commits;
        self.collections += other.collections;
        let counts = self.counts.as_flattened_mut().as_flattened_mut();
        for (count, more) in counts
            .iter_mut()
            .zip(other.counts.as_flattened().as_flattened())
        {
            *count += more;
        }
        for (kind, id) in other.examples {
            self.examples.entry(kind).or_insert(id);
        }
        let ends = self.silent_by_end.iter_mut().zip(other.silent_by_end);
        for (count, more) in ends.chain(self.silent_by_way.iter_mut().zip(other.silent_by_way)) {
            *count += more;
        }
    }
}

impl RotTally {
    pub(super) fn count(&mut self, aim: Aim, harm: Harm, outcome: Outcome) {
        self.counts[aim as usize][harm as usize][outcome.column()] += 1;
    }

    /// Number of damaged stores by result, in the order of [`Outcome::NAMES`].
    pub fn outcomes(&self) -> [u64; 6] {
        sum(self.counts.as_flattened())
    }

    /// Results for one kind of pages.
    pub fn by_aim(&self, aim: Aim) -> [u64; 6] {
        sum(&self.counts[aim as usize])
    }

    /// Results for one kind of damage.
    pub fn by_harm(&self, harm: Harm) -> [u64; 6] {
        let all: Vec<[u64; 6]> = self.counts.iter().map(|row| row[harm as usize]).collect();
        sum(&all)
    }

    /// Silent losses by one kind of damage to one kind of pages.
    pub fn silent_by(&self, aim: Aim, harm: Harm) -> u64 {
        self.counts[aim as usize][harm as usize][5]
    }

    /// Number of damaged stores.
    pub fn damaged(&self) -> u64 {
        self.outcomes().iter().sum()
    }

    /// Silent losses, and histories that failed before any damage.
    pub fn silent(&self) -> u64 {
        self.outcomes()[5] + self.before
    }
}

/// The sum of each column.
fn sum(rows: &[[u64; 6]]) -> [u64; 6] {
    std::array::from_fn(|at| rows.iter().map(|row| row[at]).sum())
}
