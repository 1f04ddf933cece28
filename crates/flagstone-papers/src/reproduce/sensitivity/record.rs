//! Results of analyses, as data shipped with the program: `experiments/found.toml`.
//!
//! An analysis takes hours, a report minutes. So results of long analyses are stored. `flagstone
//! reproduce` shows them beside claims, and `flagstone sensitivity --found` prints them.

use super::{Design, Needed, OpenSettings, PointKind, Tried, Value, best, needed, total_effects};
use crate::reproduce::Catalogue;
use crate::reproduce::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const SHIPPED: &str = include_str!("../../../experiments/found.toml");

/// An analysis of some claims of one paper, over points of its open settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// The paper's key.
    pub paper: String,
    /// The analysed figures and claims.
    pub names: Vec<String>,
    /// The command options that determined the points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Number of points that could be run, other than the default.
    pub points: usize,
    /// The point at which most claims hold.
    pub best: String,
    /// The claims that do not hold with the default settings.
    #[serde(default)]
    pub claim: Vec<Answer>,
    /// Verdicts on all claims: at the default, at the best point, and at points where claims hold
    /// that do not by default.
    pub place: Vec<Place>,
    /// Total effects, if there is a sample: one entry for each figure of each claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effect: Vec<Moved>,
}

/// The settings that a claim's figure depends on, from a sample of all settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// The claim.
    pub claim: String,
    /// The figure, as an expression.
    pub what: String,
    /// Number of points in each half of the sample that have the figure with all settings.
    pub points: usize,
    /// The settings, the largest total first.
    pub share: Vec<Share>,
}

/// A setting's contribution to a figure's variance: its total effect, with a 90 % bootstrap
/// interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The setting.
    pub setting: String,
    /// The total effect, to three places.
    pub total: f64,
    /// The fifth percentile of the bootstrap.
    pub low: f64,
    /// The 95th percentile.
    pub high: f64,
}

/// The results for a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The claim.
    pub id: String,
    /// Its verdict at the default, with the length of the analysis's runs.
    pub default: Verdict,
    /// Number of points with a verdict on it, other than the default.
    pub tried: usize,
    /// The points at which the claim holds. The point at which most claims hold comes first.
    pub holds_at: Vec<String>,
}

/// The verdicts at one point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The point.
    pub at: String,
    /// Claims that hold at the point.
    pub holds: Vec<String>,
    /// Claims of which only the direction holds.
    pub direction: Vec<String>,
    /// Claims that differ at the point.
    pub differs: Vec<String>,
}

/// The contents of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    analysis: Vec<Analysis>,
}

impl Place {
    fn of(tried: &Tried) -> Place {
        let claims = tried.claims.iter().flatten();
        let claims: Vec<(&String, Verdict)> = claims.map(|(id, (own, _))| (id, *own)).collect();
        let with = |verdict: Verdict| {
            let own = claims.iter().filter(|(_, own)| *own == verdict);
            own.map(|(id, _)| (*id).clone()).collect()
        };
        Place {
            at: tried.point.name(),
            holds: with(Verdict::Holds),
            direction: with(Verdict::Direction),
            differs: with(Verdict::Differs),
        }
    }

    /// The number of claims by verdict, as text.
    pub fn counts(&self) -> String {
        format!(
            "{} hold, {} in direction, {} differ",
            self.holds.len(),
            self.direction.len(),
            self.differs.len()
        )
    }
}

impl Answer {
    /// Describes where the claim holds; names up to `shown` points.
    pub fn words(&self, shown: usize) -> String {
        let named = self.holds_at.len().min(shown);
        match self.holds_at.len() {
            0 => format!("at none of {} points tried", self.tried),
            all if all > named => format!(
                "at {all} of {} points, among them {}",
                self.tried,
                self.holds_at[..named].join("; ")
            ),
            all => format!("at {all} of {}: {}", self.tried, self.holds_at.join("; ")),
        }
    }
}

impl Analysis {
    /// The analysis of these points of a design, the first of which is the default.
    pub fn new(paper: &str, names: &[String], design: &Design, tried: &[Tried]) -> Analysis {
        let order = best(tried);
        let name = |at: usize| tried[at].point.name();
        let found = needed(tried);
        let default = tried
            .iter()
            .position(|tried| tried.point.kind == PointKind::Default);
        let first = |needed: &Needed| needed.holds_at.first().copied();
        let mut shown: BTreeSet<usize> = found.iter().filter_map(first).collect();
        shown.extend(default);
        shown.extend(order.first());
        let answer = |needed: Needed| Answer {
            id: needed.claim,
            default: needed.default,
            tried: needed.tried,
            holds_at: needed.holds_at.into_iter().map(name).collect(),
        };
        Analysis {
            paper: paper.into(),
            names: names.into(),
            options: Vec::new(),
            points: order.len().saturating_sub(1),
            best: order.first().map_or(String::new(), |&at| name(at)),
            claim: found.into_iter().map(answer).collect(),
            place: shown.into_iter().map(|at| Place::of(&tried[at])).collect(),
            effect: moved(design, tried),
        }
    }

    /// The analysis as a section of a file.
    ///
    /// # Panics
    /// Never: an analysis is plain data.
    pub fn toml(&self) -> String {
        let analysis = vec![self.clone()];
        toml::to_string_pretty(&File { analysis }).expect("an analysis is plain data")
    }

    /// Parses a file.
    ///
    /// # Errors
    /// Line and reason.
    pub fn parse(text: &str) -> Result<Vec<Analysis>, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        Ok(file.analysis)
    }

    /// All shipped analyses.
    ///
    /// # Panics
    /// The shipped file is invalid; a test reads it.
    pub fn shipped() -> Vec<Analysis> {
        Analysis::parse(SHIPPED).expect("a shipped file")
    }

    /// The verdicts at the point with this name.
    pub fn at(&self, name: &str) -> Option<&Place> {
        self.place.iter().find(|place| place.at == name)
    }

    /// Number of claims with a verdict.
    pub fn claims(&self) -> usize {
        let default = self.at("default");
        default.map_or(0, |at| {
            at.holds.len() + at.direction.len() + at.differs.len()
        })
    }

    /// The analysis as Markdown.
    pub fn markdown(&self) -> String {
        let short = |id: &String| -> String {
            let id = id.split_once('.').map_or(id.as_str(), |(_, rest)| rest);
            id.into()
        };
        let list = |ids: &[String]| match ids {
            [] => "none".into(),
            ids => ids.iter().map(short).collect::<Vec<String>>().join(", "),
        };
        let mut text = String::new();
        let quoted = |word: &String| {
            if word.contains(' ') {
                format!("'{word}'")
            } else {
                word.clone()
            }
        };
        let words = self.names.iter().chain(&self.options).map(quoted);
        let words = words.collect::<Vec<String>>().join(" ");
        let _ = writeln!(text, "`flagstone sensitivity {words}`\n");
        let (claims, s) = (self.claims(), if self.claims() == 1 { "" } else { "s" });
        let _ = write!(text, "{claims} claim{s}, {} points", self.points);
        if let (Some(best), Some(default)) = (self.at(&self.best), self.at("default")) {
            let _ = write!(text, ". With the default settings {}", default.counts());
            if best.at != default.at {
                let _ = write!(text, "; at the best point, {}, {}", best.at, best.counts());
            }
        }
        text += ".\n\n";
        if !self.claim.is_empty() {
            text += "| claim | default | it holds |\n|---|---|---|\n";
        }
        for answer in &self.claim {
            let words = answer.words(4);
            let id = short(&answer.id);
            let _ = writeln!(text, "| {id} | {} | {words} |", answer.default);
        }
        text += if self.claim.is_empty() { "" } else { "\n" };
        for place in &self.place {
            let _ = writeln!(
                text,
                "- **{}**. Hold: {}. In direction: {}. Differ: {}.",
                place.at,
                list(&place.holds),
                list(&place.direction),
                list(&place.differs)
            );
        }
        if !self.effect.is_empty() {
            text += "\nTotal effects, with the interval of nine in ten bootstrap samples; settings \
                     below 0.01 are left out:\n\n| figure | points | settings |\n|---|---:|---|\n";
        }
        for moved in &self.effect {
            let shown = moved.share.iter().filter(|share| share.total >= 0.01);
            let shares: Vec<String> = shown
                .map(|share| {
                    let Share {
                        setting,
                        total,
                        low,
                        high,
                    } = share;
                    format!("{setting} {total:.2} ({low:.2} to {high:.2})")
                })
                .collect();
            let (what, points) = (&moved.what, moved.points);
            let _ = writeln!(text, "| {what} | {points} | {} |", shares.join("; "));
        }
        text
    }
}

/// The total effects on each varying figure of each claim.
fn moved(design: &Design, tried: &[Tried]) -> Vec<Moved> {
    let default = tried
        .iter()
        .find(|tried| tried.point.kind == PointKind::Default)
        .and_then(|tried| tried.claims.as_ref().ok());
    let figures = default.into_iter().flatten().flat_map(|(id, (_, values))| {
        let values = values.iter().enumerate();
        values.map(move |(part, value)| (id, part, value))
    });
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let of = |(id, part, value): (&String, usize, &Value)| {
        let (points, effects) = total_effects(design, tried, id, part)?;
        let share = effects.into_iter().map(|(setting, effects)| Share {
            setting,
            total: round(effects.total.value),
            low: round(effects.total.low),
            high: round(effects.total.high),
        });
        Some(Moved {
            claim: id.clone(),
            what: value.what.clone(),
            points,
            share: share.collect(),
        })
    };
    figures.filter_map(of).collect()
}

/// The claims that no analysis has judged.
pub fn unanswered(analyses: &[Analysis], claims: &BTreeSet<String>) -> BTreeSet<String> {
    let judged = analyses
        .iter()
        .filter_map(|analysis| analysis.at("default"));
    let judged: BTreeSet<&String> = judged
        .flat_map(|place| [&place.holds, &place.direction, &place.differs])
        .flatten()
        .collect();
    let left = claims.iter().filter(|id| !judged.contains(id));
    left.cloned().collect()
}

/// The claims that hold at no tried point while untried points exist. For each, the number of tried
/// points that change one setting, and the number of all such points.
pub fn partly(
    analyses: &[Analysis],
    claims: &BTreeSet<String>,
) -> BTreeMap<String, (usize, usize)> {
    let mut found = BTreeMap::new();
    for (id, (analysis, answer)) in answers(analyses) {
        let Some(open) = OpenSettings::shipped(&analysis.paper) else {
            continue;
        };
        let all = Design::new(&open, 0, 1).points.len() - 1;
        let is_half = analysis.points < all;
        if claims.contains(id) && answer.holds_at.is_empty() && is_half {
            found.insert(id.to_string(), (analysis.points, all));
        }
    }
    found
}

/// The results for each claim, from all analyses.
pub fn answers<'a>(analyses: &'a [Analysis]) -> BTreeMap<&'a str, (&'a Analysis, &'a Answer)> {
    let of = |analysis: &'a Analysis| {
        let each = analysis.claim.iter();
        each.map(move |answer| (answer.id.as_str(), (analysis, answer)))
    };
    analyses.iter().flat_map(of).collect()
}

/// The results of the shipped analyses as Markdown, one section per paper. All papers if `papers`
/// is empty.
pub fn found_for(catalogue: &Catalogue, papers: &[String]) -> String {
    let shipped = Analysis::shipped();
    let mut text = String::new();
    for experiment in &catalogue.experiments {
        let is_wanted = papers.is_empty() || papers.contains(&experiment.paper);
        let own = shipped.iter();
        let own = own.filter(|analysis| is_wanted && analysis.paper == experiment.paper);
        let texts: Vec<String> = own.map(Analysis::markdown).collect();
        if !texts.is_empty() {
            let space = if text.is_empty() { "" } else { "\n" };
            let _ = write!(
                text,
                "{space}## {}\n\n{}",
                experiment.title,
                texts.join("\n")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes what is wrong with an analysis, given the known claims.
    fn wrong(analysis: &Analysis, known: &[String]) -> Option<String> {
        let places = analysis.place.iter();
        let listed = places.flat_map(|place| [&place.holds, &place.direction, &place.differs]);
        let answered = analysis.claim.iter().map(|answer| &answer.id);
        for id in listed.flatten().chain(answered) {
            if !known.contains(id) || !id.starts_with(&format!("{}.", analysis.paper)) {
                return Some(format!("{id} is no claim of {}", analysis.paper));
            }
        }
        let Some(default) = analysis.at("default") else {
            return Some("the default is missing".into());
        };
        for answer in &analysis.claim {
            let is_in = |list: &[String]| list.contains(&answer.id);
            let listed = [&default.holds, &default.direction, &default.differs].map(|it| is_in(it));
            let right = match answer.default {
                Verdict::Direction => [false, true, false],
                Verdict::Differs => [false, false, true],
                // A place does not list it.
                Verdict::TooFew | Verdict::NotMeasured => [false; 3],
                // An answer is about a claim that does not hold; one seed makes no tie.
                Verdict::Holds | Verdict::Tie => return Some(format!("{} holds", answer.id)),
            };
            if listed != right {
                return Some(format!("{} has two verdicts by default", answer.id));
            }
            if answer.tried > analysis.points || answer.holds_at.len() > answer.tried {
                return Some(format!("{} has more points than there are", answer.id));
            }
            let Some(first) = answer.holds_at.first() else {
                continue;
            };
            let holds = |place: &Place| place.holds.contains(&answer.id);
            if !analysis.at(first).is_some_and(holds) {
                return Some(format!("{} does not hold at {first}", answer.id));
            }
        }
        None
    }

    #[test]
    fn what_is_shipped_agrees_with_itself_and_with_the_claims() {
        let catalogue = Catalogue::shipped();
        let known: Vec<String> = catalogue.claims.iter().map(|one| one.id.clone()).collect();
        let shipped = Analysis::shipped();
        for analysis in &shipped {
            assert_eq!(wrong(analysis, &known), None);
            catalogue.select(&analysis.names).unwrap();
            assert_eq!(
                Analysis::parse(&analysis.toml()).unwrap(),
                std::slice::from_ref(analysis)
            );
        }
        // Control: a manually changed answer is detected.
        let with = shipped.iter().find(|analysis| {
            let mut claims = analysis.claim.iter();
            claims.any(|answer| !answer.holds_at.is_empty())
        });
        let mut changed = with.unwrap().clone();
        let answer = changed.claim.iter_mut();
        let answer = answer.max_by_key(|answer| answer.holds_at.len()).unwrap();
        answer.holds_at[0] = "default".into();
        assert!(
            wrong(&changed, &known)
                .unwrap()
                .contains("does not hold at")
        );
    }

    #[test]
    fn what_was_found_is_printed_by_paper() {
        let catalogue = Catalogue::shipped();
        let all = found_for(&catalogue, &[]);
        let shipped = Analysis::shipped();
        let papers: BTreeSet<&str> = shipped.iter().map(|one| one.paper.as_str()).collect();
        assert!(
            papers.len() > 3 && all.matches("## ").count() == papers.len(),
            "{all}"
        );
        let one = found_for(&catalogue, &["sal".into()]);
        assert!(
            all.contains(&one) && one.matches("## ").count() == 1,
            "{one}"
        );
        assert_eq!(found_for(&catalogue, &["none".into()]), "");
    }
}
