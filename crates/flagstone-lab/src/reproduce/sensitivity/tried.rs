//! Points that were tried: the experiment's runs with other settings, and what became of the
//! claims.

use super::{OpenSettings, Point};
use crate::reproduce::engine::{Outcome, Run};
use crate::reproduce::execute::{Step, execute, kept};
use crate::reproduce::figures::{Cell, Mode, Spec};
use crate::reproduce::verdict::Verdict;
use crate::reproduce::{Catalogue, Judged, Selection, lay, runs};
use std::collections::BTreeMap;
use std::path::Path;

/// A figure of a claim: one of its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// What was measured, as an expression.
    pub what: String,
    /// What came out; nothing where it is no number.
    pub value: Option<f64>,
}

/// What became of the claims at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The point.
    pub point: Point,
    /// Each claim's verdict and figures; or why the point cannot be run.
    pub claims: Result<BTreeMap<String, (Verdict, Vec<Value>)>, String>,
}

impl Tried {
    /// The verdict on a claim; nothing where the point could not be run.
    pub fn verdict(&self, claim: &str) -> Option<Verdict> {
        let claims = self.claims.as_ref().ok()?;
        claims.get(claim).map(|(verdict, _)| *verdict)
    }

    /// How many claims have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let claims = self.claims.iter().flat_map(BTreeMap::values);
        claims.filter(|(own, _)| *own == verdict).count()
    }

    /// A figure of a claim.
    pub fn value(&self, claim: &str, part: usize) -> Option<f64> {
        let (_, values) = self.claims.as_ref().ok()?.get(claim)?;
        values.get(part)?.value.filter(|value| value.is_finite())
    }
}

/// Tries points for the claims of one paper.
#[derive(Debug)]
pub struct Trier<'a> {
    catalogue: &'a Catalogue,
    open: &'a OpenSettings,
    selection: &'a Selection,
    mode: Mode,
}

/// Outcomes of runs, by their names.
type Outcomes = BTreeMap<String, Outcome>;

/// The figures of a point with their cells, as the engine of `reproduce` takes them.
pub(super) type Figures = Vec<(String, Spec, Vec<Cell>)>;

impl<'a> Trier<'a> {
    /// For these claims.
    pub fn new(
        catalogue: &'a Catalogue,
        open: &'a OpenSettings,
        selection: &'a Selection,
        mode: Mode,
    ) -> Trier<'a> {
        Trier {
            catalogue,
            open,
            selection,
            mode,
        }
    }

    /// The runs of a point.
    pub(super) fn figures(&self, point: &Point) -> Result<Figures, String> {
        let mut catalogue = self.catalogue.clone();
        for experiment in &mut catalogue.experiments {
            for size in [&mut experiment.quick, &mut experiment.full] {
                lay(size, &self.open.window);
                lay(size, &point.set);
            }
            experiment.over.clone_from(&point.over);
        }
        catalogue
            .try_plan(self.selection, self.mode)
            .map_err(|error| error.to_string())
    }

    /// How many runs a point takes.
    pub fn runs(&self, point: &Point) -> usize {
        self.figures(point)
            .map_or(0, |figures| runs(&figures).len())
    }

    /// Tries a point. Results are kept in `folder`, and what is there is not run again.
    pub fn run(
        &self,
        point: &Point,
        jobs: usize,
        folder: &Path,
        watch: &(dyn Fn(&Run, Step) + Sync),
    ) -> Tried {
        let outcomes = |figures: &Figures| execute(&runs(figures), jobs, folder, watch);
        self.judged(point, &outcomes)
    }

    /// What became of a point whose runs are all kept; nothing where one is missing.
    pub fn kept(&self, point: &Point, folder: &Path) -> Option<Tried> {
        let figures = self.figures(point).ok()?;
        let outcomes = runs(&figures)
            .into_iter()
            .map(|(hash, run)| Some((hash, kept(&run, folder)?)))
            .collect::<Option<Outcomes>>()?;
        Some(self.judged(point, &|_| Ok(outcomes.clone())))
    }

    fn judged(
        &self,
        point: &Point,
        outcomes: &dyn Fn(&Figures) -> Result<Outcomes, String>,
    ) -> Tried {
        let claims = self.figures(point).and_then(|figures| {
            let outcomes = outcomes(&figures)?;
            let results = self
                .catalogue
                .judge(self.selection, self.mode, figures, &outcomes);
            let verdict = |judged: Judged| {
                let parts = judged.judgement.parts.into_iter();
                let values = parts.map(|part| Value {
                    what: part.what,
                    value: part.value,
                });
                (
                    judged.claim.id,
                    (judged.judgement.verdict, values.collect()),
                )
            };
            Ok(results.claims.into_iter().map(verdict).collect())
        });
        Tried {
            point: point.clone(),
            claims,
        }
    }
}
