//! The verdicts of a complete reproduction, as data included in the program:
//! `claims/verdicts.toml`. The table in docs/reproduction.md is generated from them.

use super::figures::ParseError;
use super::verdict::Verdict;
use super::{Catalogue, Counts, Results};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

const SHIPPED: &str = include_str!("../../claims/verdicts.toml");

const HEAD: &str = "\
# The verdict on each claim. `flagstone reproduce NAMES --record crates/flagstone-papers/claims/verdicts.toml` puts those of
# the named claims into this file; docs/reproduction.md is made of it (see crates/flagstone-papers/src/reproduce/recorded.rs).

";

/// Verdicts by paper.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recorded {
    papers: BTreeMap<String, OfPaper>,
}

/// The verdicts on the claims of a paper, and how they were measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPaper {
    size: String,
    seeds: usize,
    /// Verdicts by claim id without the paper.
    verdict: BTreeMap<String, Verdict>,
}

impl Recorded {
    /// The shipped verdicts.
    ///
    /// # Panics
    /// The shipped file is invalid; a test reads it.
    pub fn shipped() -> Recorded {
        Recorded::parse(SHIPPED).expect("a shipped file")
    }

    /// Parses a file.
    ///
    /// # Errors
    /// The line, and what is wrong there.
    pub fn parse(text: &str) -> Result<Recorded, ParseError> {
        toml::from_str(text).map_err(|error| ParseError::of_toml(text, &error))
    }

    /// The contents of the file.
    ///
    /// # Panics
    /// Never: verdicts are plain data.
    pub fn text(&self) -> String {
        HEAD.to_string() + &toml::to_string_pretty(self).expect("verdicts are plain data")
    }

    /// The verdict on a claim.
    pub fn verdict(&self, id: &str) -> Option<Verdict> {
        let (paper, rest) = id.split_once('.')?;
        self.papers.get(paper)?.verdict.get(rest).copied()
    }

    /// The ids of all claims that have a verdict.
    pub fn ids(&self) -> Vec<String> {
        let papers = self.papers.iter();
        let ids = papers.flat_map(|(paper, own)| {
            own.verdict
                .keys()
                .map(move |rest| format!("{paper}.{rest}"))
        });
        ids.collect()
    }

    /// Replaces the verdicts on the claims of `results`. Drops claims that are not in the
    /// catalogue.
    ///
    /// # Errors
    /// The remaining verdicts on a paper were measured with another size, or with other seeds.
    pub fn merge(&mut self, catalogue: &Catalogue, results: &Results) -> Result<(), String> {
        for judged in &results.claims {
            let (paper, rest) = judged.claim.id.split_once('.').unwrap_or_default();
            let (size, seeds) = (results.mode.name().to_string(), judged.seeds.len());
            let own = self.papers.entry(paper.into()).or_insert_with(|| OfPaper {
                size: size.clone(),
                seeds,
                verdict: BTreeMap::new(),
            });
            let of_paper = |id: &str| {
                id.strip_prefix(paper)?
                    .strip_prefix('.')
                    .map(str::to_string)
            };
            let known = catalogue
                .claims
                .iter()
                .filter_map(|claim| of_paper(&claim.id));
            let known: Vec<String> = known.collect();
            own.verdict.retain(|rest, _| known.contains(rest));
            if (&own.size, own.seeds) != (&size, seeds) {
                let judged = results
                    .claims
                    .iter()
                    .filter_map(|judged| of_paper(&judged.claim.id));
                let judged: Vec<String> = judged.collect();
                if known.iter().any(|rest| !judged.contains(rest)) {
                    return Err(format!(
                        "the other verdicts of {paper} are of size {} and {} seeds: name the paper",
                        own.size, own.seeds
                    ));
                }
                (own.size, own.seeds) = (size, seeds);
            }
            own.verdict.insert(rest.into(), judged.judgement.verdict);
        }
        Ok(())
    }

    /// The table of docs/reproduction.md: the number of verdicts of each kind by paper.
    pub fn table(&self, catalogue: &Catalogue) -> String {
        let shown = [
            Verdict::Holds,
            Verdict::Direction,
            Verdict::Tie,
            Verdict::TooFew,
            Verdict::Differs,
        ];
        let heads = shown.map(Verdict::name).join(" | ");
        let mut text = format!(
            "| | claims | {heads} |\n|---|---:|{}\n",
            "---:|".repeat(shown.len())
        );
        let counts = |paper: Option<&str>| {
            let own = catalogue.claims.iter();
            let own = own.filter(|claim| paper.is_none_or(|paper| claim.paper() == paper));
            Counts::of(own.map(|claim| {
                let verdict = self.verdict(&claim.id).unwrap_or(Verdict::NotMeasured);
                (catalogue.basis(claim), verdict)
            }))
        };
        let mut row = |name: &str, counts: &Counts| {
            let cells = shown.map(|verdict| counts.measured(verdict).to_string());
            let _ = writeln!(
                text,
                "| {name} | {} | {} |",
                counts.claims(),
                cells.join(" | ")
            );
        };
        for experiment in &catalogue.experiments {
            row(experiment.name(), &counts(Some(&experiment.paper)));
        }
        let all = counts(None);
        row("all", &all);
        let _ = writeln!(
            text,
            "\nCounted apart, since they prove nothing: {}.",
            all.apart().join(", ")
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reproduction.md");
    const BEGIN: &str = "<!-- verdicts: begin -->\n";
    const END: &str = "<!-- verdicts: end -->\n";

    #[test]
    fn the_page_has_the_recorded_verdicts() {
        let page = fs::read_to_string(PAGE).unwrap();
        let (head, rest) = page.split_once(BEGIN).expect("the begin of the table");
        let (table, tail) = rest.split_once(END).expect("its end");
        let wanted = format!("\n{}\n", Recorded::shipped().table(&Catalogue::shipped()));
        if std::env::var_os("FLAGSTONE_BLESS").is_some() {
            fs::write(PAGE, format!("{head}{BEGIN}{wanted}{END}{tail}")).unwrap();
        } else {
            let help =
                "FLAGSTONE_BLESS=1 cargo test -p flagstone-papers --lib recorded rewrites it";
            assert_eq!(table, wanted, "docs/reproduction.md is out of date: {help}");
        }
    }

    /// What is wrong with recorded verdicts.
    fn wrong(recorded: &Recorded, catalogue: &Catalogue) -> Vec<String> {
        let known: BTreeSet<String> = catalogue.claims.iter().map(|one| one.id.clone()).collect();
        let judged: BTreeSet<String> = recorded.ids().into_iter().collect();
        let apart = known.symmetric_difference(&judged);
        let mut wrong: Vec<String> = apart
            .map(|id| format!("{id}: no claim and verdict"))
            .collect();
        for claim in &catalogue.claims {
            let verdict = recorded.verdict(&claim.id);
            if verdict.is_some_and(|own| own != Verdict::Holds) && claim.cause.is_none() {
                wrong.push(format!("{}: it does not hold, without a cause", claim.id));
            }
            let mut papers = catalogue.experiments.iter();
            let own = papers.find(|experiment| experiment.paper == claim.paper());
            let known = own.into_iter().flat_map(|experiment| &experiment.decides);
            let known: Vec<&String> = known.map(|entry| &entry.id).collect();
            if claim
                .decided_by
                .as_ref()
                .is_some_and(|id| !known.contains(&id))
            {
                wrong.push(format!("{}: nothing of that name decides", claim.id));
            }
        }
        wrong
    }

    #[test]
    fn each_claim_has_a_verdict_and_a_cause_if_it_does_not_hold() {
        let (recorded, catalogue) = (Recorded::shipped(), Catalogue::shipped());
        assert_eq!(wrong(&recorded, &catalogue), [""; 0]);
        assert_eq!(Recorded::parse(&recorded.text()), Ok(recorded.clone()));
        // Controls: a claim without a verdict, a verdict without a claim, and no cause.
        let mut fewer = catalogue.clone();
        let last = fewer.claims.pop().expect("a claim");
        assert_eq!(
            wrong(&recorded, &fewer),
            [format!("{}: no claim and verdict", last.id)]
        );
        let mut silent = catalogue.clone();
        silent
            .claims
            .iter_mut()
            .for_each(|claim| claim.cause = None);
        assert!(wrong(&recorded, &silent)[0].ends_with("without a cause"));
        let mut undecided = catalogue.clone();
        undecided
            .experiments
            .iter_mut()
            .for_each(|own| own.decides.clear());
        assert!(wrong(&recorded, &undecided)[0].ends_with("nothing of that name decides"));
        let mut missing = recorded;
        missing.papers.pop_first();
        assert!(wrong(&missing, &catalogue)[0].ends_with("no claim and verdict"));
    }

    #[test]
    fn verdicts_take_the_place_of_those_of_the_same_claims() {
        let catalogue = Catalogue::shipped();
        let judged = |names: &[&str], seeds| {
            let selection = catalogue.select_alone(names).unwrap();
            let plan = catalogue.plan(&selection, super::super::Mode::Quick);
            let none = BTreeMap::new();
            let one =
                || catalogue.judge(&selection, super::super::Mode::Quick, plan.clone(), &none);
            Results::across((0..seeds).map(|_| one()).collect())
        };
        let mut recorded = Recorded::shipped();
        let before = recorded.clone();
        let seeds = before.papers["lighttx"].seeds;
        recorded
            .merge(&catalogue, &judged(&["lighttx.fig8"], seeds))
            .unwrap();
        assert_eq!(recorded.verdict("lighttx.fig8"), Some(Verdict::NotMeasured));
        assert_eq!(recorded.ids(), before.ids());
        let error = recorded.merge(&catalogue, &judged(&["lighttx.fig8"], seeds + 1));
        assert!(error.unwrap_err().contains("name the paper"));
        recorded
            .merge(&catalogue, &judged(&["lighttx"], seeds + 1))
            .unwrap();
        assert_eq!(recorded.papers["lighttx"].seeds, seeds + 1);
        assert_eq!(recorded.papers["sal"], before.papers["sal"]);
    }
}
