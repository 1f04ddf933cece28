//! The papers' evaluations, claim by claim.
//!
//! ```text
//!   claims/PAPER.toml        what is published, and what is held against it    claims, verdict
//!   experiments/PAPER.toml   figures: sweeps, series, settings                 figures, measure
//!         |  a run for each point, equal ones once
//!      engine                settings -> metrics, a pure function              engine, execute
//!         |
//!      verdicts              holds, direction holds, differs           verdict, counts, report
//!         |
//!   claims/verdicts.toml     those of docs/reproduction.md                     recorded
//! ```
//!
//! [`sensitivity`] repeats the runs with other values of settings that the papers leave open.
//!
//! To add an experiment, add to a file; only new kinds of runs need code, in [`engine`].

pub mod claims;
mod counts;
pub mod engine;
pub mod execute;
pub mod figures;
pub mod measure;
pub mod recorded;
pub mod report;
pub mod sensitivity;
pub mod verdict;
#[cfg(test)]
mod verdict_tests;

pub use counts::{Basis, Counts};
pub(crate) use figures::{lay, put, value_of, word};

use claims::{Claim, Tolerances};
use engine::{AnyRun, Outcome, RunError};
use figures::{Cell, Experiment, Mode, Over, Spec};
use flagstone_lab::nearest;
use measure::{Data, Reading};
use std::collections::{BTreeMap, BTreeSet};
use toml::Table;
use verdict::{Judgement, Verdict};

const CLAIMS: [&str; 5] = [
    include_str!("../../claims/flagcommit.toml"),
    include_str!("../../claims/mixsl.toml"),
    include_str!("../../claims/lighttx.toml"),
    include_str!("../../claims/lazybtree.toml"),
    include_str!("../../claims/sal.toml"),
];

const EXPERIMENTS: [&str; 5] = [
    include_str!("../../experiments/flagcommit.toml"),
    include_str!("../../experiments/mixsl.toml"),
    include_str!("../../experiments/lighttx.toml"),
    include_str!("../../experiments/lazybtree.toml"),
    include_str!("../../experiments/sal.toml"),
];

/// Claims and experiments.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// The published claims.
    pub claims: Vec<Claim>,
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// Allowed deviations.
    pub tolerances: Tolerances,
}

/// A measured figure.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The paper's key.
    pub paper: String,
    /// Its specification.
    pub spec: Spec,
    /// Its points.
    pub cells: Vec<Cell>,
    /// Its data.
    pub data: Data,
}

/// A judged claim.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// The basis of the judgement.
    pub basis: Basis,
    /// The judgement.
    pub judgement: Judgement,
    /// The verdict under each seed.
    pub seeds: Vec<Verdict>,
    /// Wall-clock time of the runs that the judgement uses.
    pub seconds: f64,
}

/// All measurements and judgements.
#[derive(Debug, Clone)]
pub struct Results {
    /// The size of the runs.
    pub mode: Mode,
    /// Figures, in the papers' order.
    pub figures: Vec<Measured>,
    /// Claims, in the papers' order.
    pub claims: Vec<Judged>,
}

impl Results {
    /// The number of seeds.
    pub fn seeds(&self) -> usize {
        let seeds = self.claims.iter().map(|judged| judged.seeds.len());
        seeds.max().unwrap_or(1)
    }

    /// The number of verdicts of each kind.
    pub fn counts(&self) -> Counts {
        let claims = self.claims.iter();
        Counts::of(claims.map(|judged| (judged.basis, judged.judgement.verdict)))
    }

    /// Merges the results of several seeds: figures are those of the first seed, and claims have
    /// the verdicts of all.
    ///
    /// # Panics
    /// If `all` is empty, or if the results have different claims.
    pub fn across(all: Vec<Results>) -> Results {
        let mut all = all.into_iter();
        let mut results = all.next().expect("a seed");
        for other in all {
            assert_eq!(results.claims.len(), other.claims.len(), "equal selections");
            for (judged, other) in results.claims.iter_mut().zip(other.claims) {
                judged.seeds.extend(other.seeds);
                judged.seconds += other.seconds;
            }
        }
        for judged in &mut results.claims {
            let verdict = Verdict::across(&judged.seeds);
            judged.judgement.verdict = verdict.expect("a seed");
        }
        results
    }
}

/// Selected figures and claims.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    claims: BTreeSet<String>,
    /// Paper and figure.
    figures: BTreeSet<(String, String)>,
}

impl Selection {
    /// The selected claims.
    pub fn claims(&self) -> &BTreeSet<String> {
        &self.claims
    }

    /// Restricts the claims to `claims`; keeps all figures.
    #[must_use]
    pub(crate) fn only(&self, claims: &BTreeSet<String>) -> Selection {
        Selection {
            claims: self.claims.intersection(claims).cloned().collect(),
            figures: self.figures.clone(),
        }
    }

    /// The papers of the selection.
    pub fn papers(&self) -> Vec<String> {
        let of_claims = self.claims.iter().filter_map(|id| id.split('.').next());
        let papers = self.figures.iter().map(|(paper, _)| paper.as_str());
        let papers: BTreeSet<&str> = papers.chain(of_claims).collect();
        papers.into_iter().map(str::to_string).collect()
    }

    /// The selected figures (`paper.figure`) and claims.
    pub fn names(&self) -> Vec<String> {
        let figures = self.figures.iter();
        let mut names: Vec<String> = figures.map(|(paper, id)| format!("{paper}.{id}")).collect();
        names.extend(self.claims.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
}

impl Catalogue {
    /// The shipped catalogue.
    ///
    /// # Panics
    /// The shipped files are inconsistent; tests read all of them.
    pub fn shipped() -> Catalogue {
        let claims = CLAIMS.map(|text| claims::parse(text).expect("a shipped file"));
        let experiments = EXPERIMENTS.map(|text| Experiment::parse(text).expect("a shipped file"));
        Catalogue {
            claims: claims.into_iter().flatten().collect(),
            experiments: experiments.into_iter().collect(),
            tolerances: Tolerances::shipped(),
        }
    }

    /// A copy of the catalogue in which all runs use `seed`.
    #[must_use]
    pub fn seeded(&self, seed: u32) -> Catalogue {
        let mut seeded = self.clone();
        let over = Over {
            only: Table::new(),
            set: Table::from_iter([("seed".to_string(), i64::from(seed).into())]),
        };
        for experiment in &mut seeded.experiments {
            experiment.over.push(over.clone());
        }
        seeded
    }

    /// What the verdict on a claim rests on.
    pub fn basis(&self, claim: &Claim) -> Basis {
        if claim.given.is_some() {
            return Basis::Given;
        }
        let own = self
            .experiments
            .iter()
            .filter(|experiment| experiment.paper == claim.paper());
        let figures = own.flat_map(|experiment| {
            let figures = experiment.figure.iter();
            let figures = figures.filter(|spec| claim.figures().contains(&spec.id.as_str()));
            figures.flat_map(|spec| experiment.cells(spec, Mode::Quick).unwrap_or_default())
        });
        let mut formulas = figures
            .map(|cell| matches!(cell.run, AnyRun::Formula(_)))
            .peekable();
        if formulas.peek().is_some() && formulas.all(|formula| formula) {
            Basis::Formula
        } else {
            Basis::Measured
        }
    }

    /// Adds an experiment, replacing the shipped one of the same paper.
    pub fn add(&mut self, experiment: Experiment) {
        self.experiments
            .retain(|other| other.paper != experiment.paper);
        self.experiments.push(experiment);
    }

    /// The names that can be selected: papers, figures (`paper.figure`) and claims.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec!["all".to_string()];
        for experiment in &self.experiments {
            names.push(experiment.paper.clone());
            let figures = experiment.figure.iter();
            names.extend(figures.map(|spec| format!("{}.{}", experiment.paper, spec.id)));
        }
        names.extend(self.claims.iter().map(|claim| claim.paper().to_string()));
        names.extend(self.claims.iter().map(|claim| claim.id.clone()));
        names.sort();
        names.dedup();
        names
    }

    /// Selects by names: papers, figures with or without their paper, claims, `all`.
    ///
    /// # Errors
    /// A name selects nothing; suggests a similar one.
    pub fn select<S: AsRef<str>>(&self, names: &[S]) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for name in names.iter().map(AsRef::as_ref) {
            let mut found = false;
            for claim in &self.claims {
                if name == "all" || claim.paper() == name || claim.id == name {
                    found = true;
                    selection.claims.insert(claim.id.clone());
                    let figures = claim.figures().into_iter();
                    let figures = figures.map(|id| (claim.paper().to_string(), id.to_string()));
                    selection.figures.extend(figures);
                }
                // Figures without an experiment still have claims.
                for id in claim.figures() {
                    if name == id || name == format!("{}.{id}", claim.paper()) {
                        found = true;
                        let figure = (claim.paper().to_string(), id.to_string());
                        selection.figures.insert(figure);
                    }
                }
            }
            for experiment in &self.experiments {
                let paper = &experiment.paper;
                for spec in &experiment.figure {
                    let full = format!("{paper}.{}", spec.id);
                    if name == "all" || name == paper || name == spec.id || name == full {
                        found = true;
                        selection.figures.insert((paper.clone(), spec.id.clone()));
                    }
                }
            }
            if !found {
                let mut known = self.names();
                let short = self
                    .experiments
                    .iter()
                    .flat_map(|experiment| &experiment.figure);
                known.extend(short.map(|spec| spec.id.clone()));
                let meant = nearest(name, &known);
                let meant = meant.map_or(String::new(), |name| format!(", did you mean `{name}`"));
                return Err(format!(
                    "there is no paper, figure or claim `{name}`{meant}; `flagstone reproduce --list` \
                     names them all"
                ));
            }
        }
        // Figures also select claims that depend only on them.
        for claim in &self.claims {
            let paper = claim.paper().to_string();
            let has = |id: &&str| selection.figures.contains(&(paper.clone(), id.to_string()));
            if claim.figures().iter().all(has) {
                selection.claims.insert(claim.id.clone());
            }
        }
        Ok(selection)
    }

    /// Like [`Catalogue::select`], but a claim does not select others that depend on its figures.
    ///
    /// # Errors
    /// As [`Catalogue::select`].
    pub fn select_alone<S: AsRef<str>>(&self, names: &[S]) -> Result<Selection, String> {
        let names = names.iter().map(AsRef::as_ref);
        let claim = |name: &str| self.claims.iter().find(|claim| claim.id == name);
        let (alone, others): (Vec<&str>, Vec<&str>) = names.partition(|name| claim(name).is_some());
        let mut selection = self.select(&others)?;
        for claim in alone.into_iter().filter_map(claim) {
            selection.claims.insert(claim.id.clone());
            let figures = claim.figures().into_iter();
            let figures = figures.map(|id| (claim.paper().to_string(), id.to_string()));
            selection.figures.extend(figures);
        }
        Ok(selection)
    }

    /// The figures of a selection, each with its points.
    ///
    /// # Panics
    /// A setting is unknown to every engine, which [`Experiment::parse`] has checked.
    pub fn plan(&self, selection: &Selection, mode: Mode) -> Vec<(String, Spec, Vec<Cell>)> {
        let plan = self.try_plan(selection, mode);
        plan.expect("it was checked when it was read")
    }

    /// Like `plan`, for experiments whose settings were changed after the check.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn try_plan(
        &self,
        selection: &Selection,
        mode: Mode,
    ) -> Result<Vec<(String, Spec, Vec<Cell>)>, RunError> {
        let mut plan = Vec::new();
        for experiment in &self.experiments {
            for spec in &experiment.figure {
                let key = (experiment.paper.clone(), spec.id.clone());
                if selection.figures.contains(&key) {
                    let cells = experiment.cells(spec, mode)?;
                    plan.push((key.0, spec.clone(), cells));
                }
            }
        }
        Ok(plan)
    }

    /// Judges the claims of a selection from the results of the plan's runs.
    pub fn judge(
        &self,
        selection: &Selection,
        mode: Mode,
        plan: Vec<(String, Spec, Vec<Cell>)>,
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Results {
        let outcome = |cell: &Cell| outcomes.get(&cell.run.hash());
        let figures: Vec<Measured> = plan
            .into_iter()
            .map(|(paper, spec, cells)| {
                let data = spec.data(&cells, &|cell| {
                    let outcome = outcome(cell)?;
                    Some(Reading {
                        value: outcome.metric(&cell.metric)?,
                        events: outcome.events(&cell.metric),
                    })
                });
                Measured {
                    paper,
                    spec,
                    cells,
                    data,
                }
            })
            .collect();
        let selected = self
            .claims
            .iter()
            .filter(|claim| selection.claims.contains(&claim.id));
        let claims = selected
            .map(|claim| {
                let own = |measured: &&Measured| {
                    measured.paper == claim.paper()
                        && claim.figures().contains(&measured.spec.id.as_str())
                };
                let find = |id: &str| {
                    let found = figures
                        .iter()
                        .filter(own)
                        .find(|measured| measured.spec.id == id);
                    found.map(|measured| measured.data.clone())
                };
                let runs: BTreeMap<String, f64> = figures
                    .iter()
                    .filter(own)
                    .flat_map(|measured| &measured.cells)
                    .filter_map(|cell| Some((cell.run.hash(), outcome(cell)?.seconds())))
                    .collect();
                let judgement = verdict::judge(claim, &self.tolerances, &find);
                Judged {
                    seeds: vec![judgement.verdict],
                    judgement,
                    seconds: runs.values().sum(),
                    basis: self.basis(claim),
                    claim: claim.clone(),
                }
            })
            .collect();
        Results {
            mode,
            figures,
            claims,
        }
    }
}

/// The distinct runs of a plan, by name.
pub fn runs(plan: &[(String, Spec, Vec<Cell>)]) -> BTreeMap<String, AnyRun> {
    let cells = plan.iter().flat_map(|(_, _, cells)| cells);
    cells
        .map(|cell| (cell.run.hash(), cell.run.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_name_figures_series_and_points_that_there_are() {
        let catalogue = Catalogue::shipped();
        let mut ids = BTreeSet::new();
        for claim in &catalogue.claims {
            assert!(ids.insert(&claim.id), "{} is there twice", claim.id);
        }
        for experiment in &catalogue.experiments {
            for claim in catalogue
                .claims
                .iter()
                .filter(|c| c.paper() == experiment.paper)
            {
                for rule in &claim.rule {
                    let spec = experiment.figure.iter().find(|spec| spec.id == rule.figure);
                    let spec = spec.unwrap_or_else(|| panic!("{}: {}", claim.id, rule.figure));
                    let cells = experiment.cells(spec, Mode::Full).unwrap();
                    let data = spec.data(&cells, &|_| {
                        Some(Reading {
                            value: 1.0,
                            events: None,
                        })
                    });
                    for term in rule.terms() {
                        assert!(data.value(&term).is_some(), "{}: {term}", claim.id);
                    }
                }
            }
        }
    }

    #[test]
    fn names_select_papers_figures_and_claims() {
        let catalogue = Catalogue::shipped();
        let count = |names: &[&str]| {
            let selection = catalogue.select(names).unwrap();
            (selection.claims.len(), selection.figures.len())
        };
        assert_eq!(count(&["lighttx.fig7.npc"]), (3, 1));
        // A figure selects the claims that depend only on it.
        assert_eq!(count(&["lighttx.fig17"]), (1, 1));
        assert_eq!(count(&["lighttx.fig10"]), (0, 1));
        let without_10 = count(&["lighttx.fig9"]).0;
        assert_eq!(
            count(&["lighttx.fig9", "lighttx.fig10"]),
            (without_10 + 1, 2)
        );
        let (all, _) = count(&["all"]);
        assert_eq!(all, catalogue.claims.len());
        assert_eq!(count(&["fig19", "lighttx.fig19"]), count(&["fig19"]));
        // Alone, a claim selects no others; other names select their own claims.
        let alone = |names: &[&str]| {
            let selection = catalogue.select_alone(names).unwrap();
            (selection.claims.len(), selection.figures.len())
        };
        assert_eq!(alone(&["lighttx.fig7.npc"]), (1, 1));
        assert_eq!(alone(&["lighttx.fig7.npc", "lighttx.fig17"]), (2, 2));
        assert_eq!(alone(&["lighttx"]), count(&["lighttx"]));
        let error = catalogue.select(&["lightx"]).unwrap_err();
        assert!(error.contains("did you mean `lighttx`"), "{error}");
    }

    #[test]
    fn what_proves_nothing_is_told_apart() {
        let catalogue = Catalogue::shipped();
        let with = |basis: Basis| -> Vec<&str> {
            let claims = catalogue.claims.iter();
            let own = claims.filter(|claim| catalogue.basis(claim) == basis);
            own.map(|claim| claim.id.as_str()).collect()
        };
        assert_eq!(with(Basis::Given), ["lighttx.fig7.serializable"]);
        let formulas = ["fig3.worst", "fig14.optimum", "fig15.shape", "memory"];
        assert_eq!(with(Basis::Formula), formulas.map(|id| format!("sal.{id}")));
    }

    #[test]
    fn another_seed_makes_other_runs_of_all_but_formulas() {
        let catalogue = Catalogue::shipped();
        let all = catalogue.select(&["all"]).unwrap();
        let runs = |of: &Catalogue| runs(&of.plan(&all, Mode::Quick));
        let [first, second] = [1, 2].map(|seed| runs(&catalogue.seeded(seed)));
        assert!(
            first.keys().eq(runs(&catalogue).keys()),
            "one is the default"
        );
        let mut same = second.iter().filter(|(hash, _)| first.contains_key(*hash));
        assert!(same.all(|(_, run)| matches!(run, AnyRun::Formula(_))));
        assert_eq!(first.len(), second.len());
    }

    #[test]
    fn equal_settings_of_two_figures_are_one_run() {
        let catalogue = Catalogue::shipped();
        let both = catalogue
            .select(&["lighttx.fig9.aw", "lighttx.fig11.scc"])
            .unwrap();
        let plan = catalogue.plan(&both, Mode::Quick);
        let cells: usize = plan.iter().map(|(_, _, cells)| cells.len()).sum();
        assert!(
            runs(&plan).len() < cells,
            "figures 9 and 11 are measured in the same runs"
        );
    }
}
