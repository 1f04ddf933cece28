//! What damaged stores said, counted by their damage.

use super::damage::{Aim, Harm};
use super::id::RotRunId;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// What a damaged store said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All data is there.
    Right,
    /// It did not open.
    Opening,
    /// Some data cannot be read, and `check` says that something is wrong.
    Reading,
    /// The newest transactions are missing as a whole, as after a power cut, and nothing on the
    /// medium says that they were durable.
    Undecidable,
    /// Data is missing without an error, of a store that has lost at once every page of a full
    /// block, or of a block with its mark, or everything that one flush wrote. Nothing that is
    /// left names them.
    LostWhole,
    /// Other data is there, or none, without an error.
    Silent(Silence),
}

impl Outcome {
    /// The names of columns, in this order.
    pub const NAMES: [&'static str; 6] = [
        "right",
        "error at opening",
        "error at reading",
        "undecidable",
        "lost whole",
        "SILENT",
    ];

    /// Its column.
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
    /// Reading gives other data, or nothing.
    Data,
    /// Data cannot be read, and `check` says that all is well.
    Check,
    /// `repair` names no loss, and the new store lacks something.
    Repair,
    /// The store panics.
    Panic,
}

impl Silence {
    /// All of them, with a word for each.
    pub const ALL: [(Silence, &'static str); 4] = [
        (Silence::Data, "other data"),
        (Silence::Check, "a check that sees nothing"),
        (Silence::Repair, "a repair that names no loss"),
        (Silence::Panic, "a panic"),
    ];
}

/// The counts of runs with rot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotTally {
    /// Histories.
    pub histories: u64,
    /// Histories that failed before any damage.
    pub before: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Blocks that were collected.
    pub collections: u64,
    /// By [`Aim`], [`Harm`] and [`Outcome`].
    pub(super) counts: [[[u64; 6]; Harm::ALL.len()]; Aim::ALL.len()],
    /// Silent losses, by [`End`](super::End).
    pub silent_by_end: [u64; 4],
    /// Silent losses, by [`Silence`].
    pub silent_by_way: [u64; 4],
    /// A silent loss of each kind.
    pub examples: BTreeMap<(Aim, Harm), RotRunId>,
    /// The first silent loss.
    pub first: Option<(RotRunId, String)>,
    /// The story of a single run that is no silent loss.
    pub told: Option<String>,
}

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

    /// How many damaged stores said what, in the order of [`Outcome::NAMES`].
    pub fn outcomes(&self) -> [u64; 6] {
        sum(self.counts.as_flattened())
    }

    /// The same for pages of one kind.
    pub fn by_aim(&self, aim: Aim) -> [u64; 6] {
        sum(&self.counts[aim as usize])
    }

    /// The same for damage of one kind.
    pub fn by_harm(&self, harm: Harm) -> [u64; 6] {
        let all: Vec<[u64; 6]> = self.counts.iter().map(|row| row[harm as usize]).collect();
        sum(&all)
    }

    /// Silent losses by damage of one kind to pages of one kind.
    pub fn silent_by(&self, aim: Aim, harm: Harm) -> u64 {
        self.counts[aim as usize][harm as usize][5]
    }

    /// Damaged stores.
    pub fn damaged(&self) -> u64 {
        self.outcomes().iter().sum()
    }

    /// Silent losses, and histories that failed before any damage.
    pub fn silent(&self) -> u64 {
        self.outcomes()[5] + self.before
    }
}

/// The sums of columns.
fn sum(rows: &[[u64; 6]]) -> [u64; 6] {
    std::array::from_fn(|at| rows.iter().map(|row| row[at]).sum())
}
