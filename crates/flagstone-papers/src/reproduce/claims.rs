//! The papers' claims as data: one file of claims per paper, and one tolerance rule per kind of
//! claim.
//!
//! A claim states what is published and where; its rules state which figures of which experiment
//! are compared with that. `flagstone reproduce` judges them ([`super::verdict`]).

use super::measure::{Expr, Term};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The kind of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimKind {
    /// A ratio of two figures: 1.35 means "35 % more".
    Ratio,
    /// An absolute figure.
    Value,
    /// The order of series.
    Order,
    /// The trend of a series over a sweep.
    Trend,
    /// The crossing of two series.
    Cross,
}

impl ClaimKind {
    /// The name in files and results.
    pub const fn name(self) -> &'static str {
        match self {
            ClaimKind::Ratio => "ratio",
            ClaimKind::Value => "value",
            ClaimKind::Order => "order",
            ClaimKind::Trend => "trend",
            ClaimKind::Cross => "cross",
        }
    }
}

/// A published figure or range.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// One number.
    One(f64),
    /// Lower and upper end.
    Range([f64; 2]),
}

impl Figure {
    /// Both ends.
    pub fn ends(self) -> (f64, f64) {
        match self {
            Figure::One(value) => (value, value),
            Figure::Range([low, high]) => (low, high),
        }
    }
}

/// Everything that a claim publishes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// One figure or range; with `at`, it applies to two points.
    Figure(Figure),
    /// Figures at the points of `at`.
    List(Vec<f64>),
    /// Figures by name.
    Named(BTreeMap<String, Figure>),
}

/// The expressions that a claim compares: one, several, or one per published name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Measures {
    /// One expression.
    One(Expr),
    /// One expression per published point; or several, each compared with the one published figure.
    Many(Vec<Expr>),
    /// One expression per published name.
    Named(BTreeMap<String, Expr>),
}

/// A comparison of measured figures with a claim. Which keys a rule has depends on the claim's
/// kind. All rules of a claim must hold.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// The figure of the paper's experiments that contains the named series.
    pub figure: String,
    /// Ratio, value: what to measure.
    pub measure: Option<Measures>,
    /// Order: from lowest to highest. `a~b` are comparable, `a|b` are in any order.
    pub order: Vec<String>,
    /// Trend: series that rise from end to end.
    pub rises: Vec<String>,
    /// Trend: series that fall from end to end.
    pub falls: Vec<String>,
    /// Trend: series that stay constant.
    pub flat: Vec<String>,
    /// Trend: series that never fall.
    pub never_falls: Vec<String>,
    /// Trend: series that rise up to this point of the sweep.
    pub rises_until: BTreeMap<String, f64>,
    /// Trend: series that fall up to this point of the sweep.
    pub falls_until: BTreeMap<String, f64>,
    /// Trend: series that rise from this point of the sweep on.
    pub rises_from: BTreeMap<String, f64>,
    /// Trend: series that are highest at this point of the sweep.
    pub peak: BTreeMap<String, f64>,
    /// Cross: the first series is below the second before the crossing, and above it afterwards.
    pub cross: Option<[String; 2]>,
    /// Cross: the two series are equal from the crossing on, within the tolerance for comparable
    /// series.
    pub converge: bool,
    /// Order: points (`series@x`) that a protocol supports.
    pub present: Vec<Expr>,
    /// Order: points that it does not support.
    pub absent: Vec<Expr>,
}

impl Rule {
    /// The rule's trends: each series, the words for its trend, and the point of the sweep that it
    /// refers to.
    pub fn trends(&self) -> Vec<(&str, &'static str, Option<f64>)> {
        let lists = [
            (&self.rises, "rises"),
            (&self.falls, "falls"),
            (&self.flat, "flat"),
            (&self.never_falls, "rises or stays"),
        ];
        let places = [
            (&self.rises_until, "rises until"),
            (&self.falls_until, "falls until"),
            (&self.rises_from, "rises from"),
            (&self.peak, "highest at"),
        ];
        let mut all = Vec::new();
        for (list, what) in lists {
            all.extend(list.iter().map(|series| (series.as_str(), what, None)));
        }
        for (list, what) in places {
            all.extend(
                list.iter()
                    .map(|(series, at)| (series.as_str(), what, Some(*at))),
            );
        }
        all
    }

    /// The series that the rule's order names.
    pub fn ordered(&self) -> impl Iterator<Item = &str> {
        self.order.iter().flat_map(|group| group.split(['~', '|']))
    }

    /// Every point and series of the figure that the rule names.
    pub fn terms(&self) -> Vec<Term> {
        let mut exprs: Vec<Expr> = match &self.measure {
            None => Vec::new(),
            Some(Measures::One(expr)) => vec![expr.clone()],
            Some(Measures::Many(list)) => list.clone(),
            Some(Measures::Named(named)) => named.values().cloned().collect(),
        };
        let names = self.ordered();
        let names = names.chain(self.trends().into_iter().map(|(series, ..)| series));
        let names = names.chain(self.cross.iter().flatten().map(String::as_str));
        exprs.extend(names.filter_map(|name| Expr::parse(name.trim()).ok()));
        exprs.extend(self.present.iter().chain(&self.absent).cloned());
        exprs.iter().flat_map(Expr::terms).collect()
    }
}

/// One published statement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `paper.figure.what`.
    pub id: String,
    /// The kind of statement.
    pub kind: ClaimKind,
    /// The published figures, if it has any.
    pub published: Option<Published>,
    /// The published statement in words, for claims without figures.
    pub says: Option<String>,
    /// Names of the published points.
    #[serde(default)]
    pub at: Vec<String>,
    /// The place in the paper.
    #[serde(rename = "where")]
    pub place: String,
    /// The quantity that is compared.
    pub metric: String,
    /// Unit of the published figures.
    pub unit: Option<String>,
    /// The comparisons that must hold.
    pub rule: Vec<Rule>,
    /// Set if a setting of the experiment was chosen to match this claim, so that the claim proves
    /// nothing. Says how it was chosen.
    pub given: Option<String>,
    /// Why the claim does not hold, in one sentence.
    pub cause: Option<String>,
    /// The entry of `decides` in the paper's experiments that explains the cause, by its id.
    pub decided_by: Option<String>,
}

impl Claim {
    /// The paper's key: the id up to the first dot.
    pub fn paper(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }

    /// The figures of the paper that the claim is about.
    pub fn figures(&self) -> Vec<&str> {
        let mut figures: Vec<&str> = self.rule.iter().map(|rule| rule.figure.as_str()).collect();
        figures.sort_unstable();
        figures.dedup();
        figures
    }

    /// Published figures with their names, in the order of the measures.
    pub fn points(&self) -> Vec<(String, Figure)> {
        match &self.published {
            None => Vec::new(),
            Some(Published::Figure(Figure::Range(ends))) if self.at.len() == 2 => {
                let ends = ends.map(Figure::One);
                self.at.iter().cloned().zip(ends).collect()
            }
            Some(Published::Figure(figure)) => vec![(String::new(), *figure)],
            Some(Published::List(list)) => {
                let figures = list.iter().map(|value| Figure::One(*value));
                self.at.iter().cloned().zip(figures).collect()
            }
            Some(Published::Named(named)) => named
                .iter()
                .map(|(name, figure)| (name.clone(), *figure))
                .collect(),
        }
    }

    /// Checks that the claim is consistent.
    fn check(&self) -> Result<(), String> {
        let fail = |what: &str| Err(format!("claim {}: {what}", self.id));
        if self.rule.is_empty() {
            return fail("it has no rule");
        }
        for rule in &self.rule {
            let right = match self.kind {
                ClaimKind::Ratio | ClaimKind::Value => rule.measure.is_some(),
                ClaimKind::Order => {
                    rule.order.len() > 1 || !rule.present.is_empty() || !rule.absent.is_empty()
                }
                ClaimKind::Trend => !rule.trends().is_empty(),
                ClaimKind::Cross => rule.cross.is_some(),
            };
            if !right {
                return fail(&format!("a rule lacks what a {} needs", self.kind.name()));
            }
            let points = self.points();
            let fits = match &rule.measure {
                None => true,
                Some(Measures::One(_)) => points.len() == 1,
                Some(Measures::Many(list)) => points.len() == 1 || points.len() == list.len(),
                Some(Measures::Named(named)) => {
                    points.len() == named.len() && points.iter().all(|(n, _)| named.contains_key(n))
                }
            };
            if !fits {
                return fail("its measures do not match what is published");
            }
        }
        if self.decided_by.is_some() && self.cause.is_none() {
            return fail("decided_by belongs to a cause");
        }
        if self.published.is_none() && self.says.is_none() {
            return fail("it publishes neither a figure (published) nor a statement (says)");
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimFile {
    claim: Vec<Claim>,
}

/// Parses a file of claims.
///
/// # Errors
/// Line and reason.
pub fn parse(text: &str) -> Result<Vec<Claim>, String> {
    let file: ClaimFile = toml::from_str(text).map_err(|error| error.to_string())?;
    file.claim.iter().try_for_each(Claim::check)?;
    Ok(file.claim)
}

/// Tolerances. `claims/tolerances.toml` is the only source of these numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Tolerances {
    pub ratio: RatioTolerance,
    pub value: ValueTolerance,
    pub order: OrderTolerance,
    pub trend: TrendTolerance,
    pub cross: CrossTolerance,
    pub count: CountTolerance,
}

/// For ratios.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RatioTolerance {
    pub floor: f64,
    pub share: f64,
    pub reason: String,
}

/// For absolute figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ValueTolerance {
    pub holds: f64,
    pub direction: f64,
    pub reason: String,
}

/// For orders.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct OrderTolerance {
    pub slack: f64,
    pub alike: f64,
    pub reason: String,
}

/// For trends.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct TrendTolerance {
    pub step: f64,
    pub flat: f64,
    pub nearly_flat: f64,
    pub reason: String,
}

/// For crossings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct CrossTolerance {
    pub holds: f64,
    pub reason: String,
}

/// For counts of events, whatever the kind of claim.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct CountTolerance {
    pub least: f64,
    pub reason: String,
}

impl Tolerances {
    /// The shipped tolerances.
    pub fn shipped() -> Tolerances {
        toml::from_str(include_str!("../../claims/tolerances.toml")).expect("a shipped file")
    }

    /// The reason for the tolerance of a kind of claims.
    pub fn reason(&self, kind: ClaimKind) -> &str {
        match kind {
            ClaimKind::Ratio => &self.ratio.reason,
            ClaimKind::Value => &self.value.reason,
            ClaimKind::Order => &self.order.reason,
            ClaimKind::Trend => &self.trend.reason,
            ClaimKind::Cross => &self.cross.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_points_and_names_are_told_apart() {
        let text = "[[claim]]\nid = \"p.a\"\nkind = \"ratio\"\nwhere = \"1\"\nmetric = \"m\"\n";
        let one = |rest: &str| parse(&format!("{text}{rest}"));
        let range = one("published = [0.8, 0.9]\nrule = [{ figure = \"f\", measure = \"a / b\" }]");
        assert_eq!(
            range.unwrap()[0].points(),
            [(String::new(), Figure::Range([0.8, 0.9]))]
        );
        let ends = one("published = [1.1, 1.4]\nat = [\"low\", \"high\"]\n\
             rule = [{ figure = \"f\", measure = [\"a@1 / b@1\", \"a@2 / b@2\"] }]");
        let points = ends.unwrap()[0].points();
        assert_eq!(points[1], ("high".to_string(), Figure::One(1.4)));
        let named = one("published = { x = 1.0, y = [2.0, 3.0] }\n\
             rule = [{ figure = \"f\", measure = { x = \"a\", y = \"b\" } }]");
        assert_eq!(named.unwrap()[0].points().len(), 2);
        let missing = one(
            "published = { x = 1.0, y = 2.0 }\nrule = [{ figure = \"f\", measure = { x = \"a\" } }]",
        );
        assert!(missing.unwrap_err().contains("claim p.a"));
        let wrong = one("published = 1.0\nrule = [{ figure = \"f\", order = [\"a\", \"b\"] }]");
        assert!(wrong.unwrap_err().contains("lacks what a ratio needs"));
        let unknown = one("published = 1.0\nrules = []").unwrap_err();
        assert!(
            unknown.contains("line 7") && unknown.contains("rules"),
            "{unknown}"
        );
    }
}
