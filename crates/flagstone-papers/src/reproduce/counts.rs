//! Counts of verdicts. Claims that measurements cannot prove are counted apart.

use super::verdict::Verdict;
use std::collections::BTreeMap;

/// What the verdict on a claim rests on. Only measurements prove something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Measurements.
    Measured,
    /// Arithmetic on the paper's formulas.
    Formula,
    /// A setting that was chosen by the claim.
    Given,
}

impl Basis {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Formula => "formula",
            Basis::Given => "given",
        }
    }
}

/// The number of verdicts of each kind, of some claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those of measured claims.
    pub measured: BTreeMap<Verdict, usize>,
    /// Those of the others, by basis.
    pub apart: BTreeMap<(Basis, Verdict), usize>,
}

impl Counts {
    /// Counts bases and verdicts.
    pub fn of(claims: impl Iterator<Item = (Basis, Verdict)>) -> Counts {
        let mut counts = Counts::default();
        for (basis, verdict) in claims {
            *match basis {
                Basis::Measured => counts.measured.entry(verdict).or_default(),
                basis => counts.apart.entry((basis, verdict)).or_default(),
            } += 1;
        }
        counts
    }

    /// The number of measured claims.
    pub fn claims(&self) -> usize {
        self.measured.values().sum()
    }

    /// The number of measured claims with a verdict.
    pub fn measured(&self, verdict: Verdict) -> usize {
        self.measured.get(&verdict).copied().unwrap_or(0)
    }

    /// The claims that are counted apart, as text: `4 formula: holds`.
    pub fn apart(&self) -> Vec<String> {
        let apart = self.apart.iter();
        let words =
            apart.map(|((basis, verdict), count)| format!("{count} {}: {verdict}", basis.name()));
        words.collect()
    }
}
