//! Tried points: the experiment's runs with other settings, and the resulting verdicts.

use super::{OpenSettings, Point};
use crate::reproduce::claims::{Claim, Rule};
use crate::reproduce::engine::{AnyRun, Outcome};
use crate::reproduce::execute::{RunEvent, execute, kept};
use crate::reproduce::figures::{Cell, Mode, Spec};
use crate::reproduce::measure::Term;
use crate::reproduce::verdict::Verdict;
use crate::reproduce::{Catalogue, Judged, Selection, lay};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The measured value of one part of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The expression.
    pub what: String,
    /// The value; `None` if it is not a number.
    pub value: Option<f64>,
}

/// The verdicts at one point.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The point.
    pub point: Point,
    /// Each claim's verdict and values; or why the point cannot be run.
    pub claims: Result<BTreeMap<String, (Verdict, Vec<Value>)>, String>,
}

impl Tried {
    /// The verdict on a claim; `None` if the point could not be run.
    pub fn verdict(&self, claim: &str) -> Option<Verdict> {
        let claims = self.claims.as_ref().ok()?;
        claims.get(claim).map(|(verdict, _)| *verdict)
    }

    /// Number of claims with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let claims = self.claims.iter().flat_map(BTreeMap::values);
        claims.filter(|(own, _)| *own == verdict).count()
    }

    /// The value of a part of a claim.
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
    selection: Selection,
    mode: Mode,
}

/// Outcomes of runs, by their names.
type Outcomes = BTreeMap<String, Outcome>;

/// The figures of a point with their cells, as in the plan of `reproduce`.
pub(super) type Figures = Vec<(String, Spec, Vec<Cell>)>;

impl<'a> Trier<'a> {
    /// A trier for these claims.
    pub fn new(
        catalogue: &'a Catalogue,
        open: &'a OpenSettings,
        selection: &'a Selection,
        mode: Mode,
    ) -> Trier<'a> {
        Trier {
            catalogue,
            open,
            selection: selection.clone(),
            mode,
        }
    }

    /// Restricts the claims.
    #[must_use]
    pub fn only(&self, claims: &BTreeSet<String>) -> Trier<'a> {
        let selection = self.selection.only(claims);
        Trier { selection, ..*self }
    }

    /// The distinct runs of these figures that are needed to judge the claims.
    pub(super) fn read(&self, figures: &Figures) -> BTreeMap<String, AnyRun> {
        let claims = self.catalogue.claims.iter();
        let claims: Vec<&Claim> = claims
            .filter(|claim| self.selection.claims().contains(&claim.id))
            .collect();
        let mut runs = BTreeMap::new();
        for (paper, spec, cells) in figures {
            let own = claims.iter().filter(|claim| claim.paper() == paper);
            let rules = own.flat_map(|claim| &claim.rule);
            let rules = rules.filter(|rule| rule.figure == spec.id);
            let mut terms: Vec<Term> = rules.flat_map(Rule::terms).collect();
            if !terms.is_empty() {
                // The point by which all others are divided.
                let one = spec.normalise.iter();
                terms.extend(one.filter_map(|one| Term::parse(one).ok()));
            }
            let is_read = |cell: &&Cell| {
                let mut terms = terms.iter();
                terms.any(|term| term.series == cell.series && term.is_at(&cell.x))
            };
            let read = cells.iter().filter(is_read);
            runs.extend(read.map(|cell| (cell.run.hash(), cell.run.clone())));
        }
        runs
    }

    /// The figures of a point.
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
            .try_plan(&self.selection, self.mode)
            .map_err(|error| error.to_string())
    }

    /// Number of runs that a point needs: those that a claim uses.
    pub fn runs(&self, point: &Point) -> usize {
        self.figures(point)
            .map_or(0, |figures| self.read(&figures).len())
    }

    /// Tries a point. Results are stored in `folder`; stored ones are not run again.
    pub fn run(
        &self,
        point: &Point,
        jobs: usize,
        folder: &Path,
        watch: &(dyn Fn(&AnyRun, RunEvent) + Sync),
    ) -> Tried {
        let outcomes = |figures: &Figures| execute(&self.read(figures), jobs, folder, watch);
        self.judged(point, &outcomes)
    }

    /// The verdicts at a point whose results are all stored; `None` if one is missing.
    pub fn kept(&self, point: &Point, folder: &Path) -> Option<Tried> {
        let figures = self.figures(point).ok()?;
        let outcomes = self
            .read(&figures)
            .into_iter()
            .map(|(hash, run)| Some((hash, kept(&run, folder)?)))
            .collect::<Option<Outcomes>>()?;
        Some(self.judged(point, &|_| Ok(outcomes.clone())))
    }

    /// Tries a point for the claims that do not hold at the default, and for all claims if one of
    /// those then holds.
    pub fn run_failing(
        &self,
        point: &Point,
        default: &Tried,
        run: &dyn Fn(&Trier<'_>, &Point) -> Option<Tried>,
    ) -> Option<Tried> {
        let failing: BTreeSet<String> = default
            .claims
            .iter()
            .flatten()
            .filter(|(_, (verdict, _))| *verdict != Verdict::Holds)
            .map(|(id, _)| id.clone())
            .collect();
        let tried = run(&self.only(&failing), point)?;
        match tried.count(Verdict::Holds) {
            0 => Some(tried),
            _ => run(self, point),
        }
    }

    /// Judges the claims at a point, from the outcomes of its runs.
    fn judged(
        &self,
        point: &Point,
        outcomes: &dyn Fn(&Figures) -> Result<Outcomes, String>,
    ) -> Tried {
        let claims = self.figures(point).and_then(|figures| {
            let outcomes = outcomes(&figures)?;
            let results = self
                .catalogue
                .judge(&self.selection, self.mode, figures, &outcomes);
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
