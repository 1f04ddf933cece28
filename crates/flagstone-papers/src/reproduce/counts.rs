//! Counts of verdicts. Claims that measurements cannot prove are counted separately.

use super::verdict::Verdict;
use std::collections::BTreeMap;

/// The basis of the verdict on a claim. Only measurements prove something.
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

/// The number of verdicts of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Verdicts on measured claims.
    pub measured: BTreeMap<Verdict, usize>,
    /// Verdicts on other claims, by basis.
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

    /// The separately counted claims, as text: `4 formula: holds`.
    pub fn apart(&self) -> Vec<String> {
        let apart = self.apart.iter();
        let words =
            apart.map(|((basis, verdict), count)| format!("{count} {}: {verdict}", basis.name()));
        words.collect()
    }
}
