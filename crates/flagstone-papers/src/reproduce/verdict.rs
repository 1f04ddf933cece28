//! Derives verdicts from measured figures.
//!
//! *holds*: the direction is as published and the figure is within the tolerance of its kind.
//! *direction holds*: only the direction. *differs*: neither. *too few to say*: a compared value
//! counts or averages fewer events than `claims/tolerances.toml` asks for. *not measured*: no
//! experiment was run that could decide. The verdict of a claim is the worst of its parts. With
//! several seeds there is also *tie*: the direction is as published under some seeds but not under
//! others.

use super::claims::{Claim, ClaimKind, Figure, Measures, Rule, Tolerances};
use super::measure::{Data, Expr, Point, Term};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// The verdict on a claim, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Nothing relevant was measured.
    #[serde(rename = "not measured")]
    NotMeasured,
    /// The claim does not hold.
    #[serde(rename = "differs")]
    Differs,
    /// A compared value rests on too few events.
    #[serde(rename = "too few to say")]
    TooFew,
    /// The direction is as published under some seeds but not under others.
    #[serde(rename = "tie")]
    Tie,
    /// The claim holds in direction only.
    #[serde(rename = "direction holds")]
    Direction,
    /// The claim holds.
    #[serde(rename = "holds")]
    Holds,
}

impl Verdict {
    /// All verdicts, best first.
    pub const ALL: [Verdict; 6] = [
        Verdict::Holds,
        Verdict::Direction,
        Verdict::Tie,
        Verdict::TooFew,
        Verdict::Differs,
        Verdict::NotMeasured,
    ];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::NotMeasured => "not measured",
            Verdict::Differs => "differs",
            Verdict::TooFew => "too few to say",
            Verdict::Tie => "tie",
            Verdict::Direction => "direction holds",
            Verdict::Holds => "holds",
        }
    }

    /// Combines the verdicts of several seeds: the worst, or a tie if the direction is as published
    /// under some seeds but not under others. Too few events under one seed are too few in all.
    /// `None` if `seeds` is empty.
    pub fn across(seeds: &[Verdict]) -> Option<Verdict> {
        let (worst, best) = (seeds.iter().min()?, seeds.iter().max()?);
        if *worst == Verdict::Differs && seeds.contains(&Verdict::TooFew) {
            return Some(Verdict::TooFew);
        }
        if *worst == Verdict::Differs && *best >= Verdict::Direction {
            return Some(Verdict::Tie);
        }
        Some(*worst)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A judged part of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The measured expression.
    pub what: String,
    /// The expression, if its value is compared with a published figure.
    pub expr: Option<Expr>,
    /// The published or required result, as text.
    pub published: String,
    /// The accepted results, as text.
    pub accepted: String,
    /// The measured result, as text.
    pub measured: String,
    /// The value, if it is a single number.
    pub value: Option<f64>,
    /// Ratio of measured to published, minus 1.
    pub deviation: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The judgement on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The parts.
    pub parts: Vec<Part>,
    /// The worst verdict of the parts.
    pub verdict: Verdict,
}

impl Judgement {
    /// The deviation with the largest absolute value.
    pub fn deviation(&self) -> Option<f64> {
        let deviations = self.parts.iter().filter_map(|part| part.deviation);
        deviations.max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }
}

/// Judges a claim; `data` returns the data of a figure, if it was measured.
pub fn judge(
    claim: &Claim,
    tolerances: &Tolerances,
    data: &dyn Fn(&str) -> Option<Data>,
) -> Judgement {
    let mut parts = Vec::new();
    for rule in &claim.rule {
        match data(&rule.figure) {
            Some(data) => parts.append(
                &mut Judge {
                    claim,
                    tolerances,
                    data: &data,
                }
                .rule(rule),
            ),
            None => parts.push(unmeasured(&format!("figure {}", rule.figure))),
        }
    }
    let verdict = parts.iter().map(|part| part.verdict).min();
    Judgement {
        parts,
        verdict: verdict.unwrap_or(Verdict::NotMeasured),
    }
}

fn unmeasured(what: &str) -> Part {
    Part {
        what: what.into(),
        expr: None,
        published: String::new(),
        accepted: String::new(),
        measured: "not measured".into(),
        value: None,
        deviation: None,
        verdict: Verdict::NotMeasured,
    }
}

/// Formats a number for reading.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if size >= 1e4 {
        format!("{value:.0}")
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 10.0 {
        format!("{value:.2}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else if size >= 1e-4 {
        let digits = 2.0 - size.log10().floor();
        format!("{value:.*}", digits.max(2.0) as usize)
    } else {
        format!("{value:.2e}")
    }
}

fn range(low: f64, high: f64) -> String {
    if low == high {
        number(low)
    } else {
        format!("{} to {}", number(low), number(high))
    }
}

/// The measured values that are accepted for a published figure.
struct Accepted {
    /// Those for which the claim holds.
    holds: RangeInclusive<f64>,
    /// Those for which at least the direction is as published.
    direction: RangeInclusive<f64>,
}

struct Judge<'a> {
    claim: &'a Claim,
    tolerances: &'a Tolerances,
    data: &'a Data,
}

impl Judge<'_> {
    /// The verdict on a part that compares `terms`: too few to say if one of them rests on too few
    /// events, otherwise `verdict`.
    fn too_few_or(&self, terms: &[Term], verdict: Verdict) -> Verdict {
        let least = self.tolerances.count.least;
        match self.data.events(terms) {
            Some(events) if events < least && verdict != Verdict::NotMeasured => Verdict::TooFew,
            _ => verdict,
        }
    }

    fn rule(&self, rule: &Rule) -> Vec<Part> {
        match self.claim.kind {
            ClaimKind::Ratio | ClaimKind::Value => self.figures(rule),
            ClaimKind::Order => self.orders(rule),
            ClaimKind::Trend => self.trends(rule),
            ClaimKind::Cross => vec![self.cross(rule)],
        }
    }

    /// Ratios and absolute figures: compares each measure with its published figure.
    fn figures(&self, rule: &Rule) -> Vec<Part> {
        let points = self.claim.points();
        let pairs: Vec<(&Expr, &Figure)> = match rule.measure.as_ref() {
            None => Vec::new(),
            Some(Measures::One(expr)) => vec![(expr, &points[0].1)],
            Some(Measures::Many(list)) => {
                let figures = points.iter().map(|(_, figure)| figure).cycle();
                list.iter().zip(figures).collect()
            }
            Some(Measures::Named(named)) => {
                let figures = points.iter().map(|(name, figure)| (&named[name], figure));
                figures.collect()
            }
        };
        pairs
            .into_iter()
            .map(|(expr, figure)| self.figure(rule, expr, *figure))
            .collect()
    }

    /// The values accepted for a published figure from `low` to `high`. Tolerances of ratios widen
    /// this range by a share of its logarithm, those of values by a factor.
    fn accepted(&self, low: f64, high: f64) -> Accepted {
        if self.claim.kind == ClaimKind::Ratio {
            let tolerance = &self.tolerances.ratio;
            let room = |end: f64| (tolerance.floor + tolerance.share * end.ln().abs()).exp();
            let (from, to) = (low / room(low), high * room(high));
            // No tolerance extends across 1, unless 1 is published.
            let (least, most) = match (low, high) {
                (low, _) if low > 1.0 => (1.0, f64::INFINITY),
                (_, high) if high < 1.0 => (0.0, 1.0),
                _ => (from, to),
            };
            Accepted {
                holds: from.max(least)..=to.min(most),
                direction: least..=most,
            }
        } else {
            let tolerance = &self.tolerances.value;
            let (holds, direction) = (tolerance.holds, tolerance.direction);
            Accepted {
                holds: low / holds..=high * holds,
                direction: low / direction..=high * direction,
            }
        }
    }

    /// Compares the value of `expr` with its published figure.
    fn figure(&self, rule: &Rule, expr: &Expr, published: Figure) -> Part {
        let (low, high) = published.ends();
        let accepted = self.accepted(low, high);
        let unit = self
            .claim
            .unit
            .as_ref()
            .map_or(String::new(), |unit| format!(" {unit}"));
        let mut part = Part {
            what: format!("{}: {expr}", rule.figure),
            expr: Some(expr.clone()),
            published: range(low, high) + &unit,
            accepted: range(*accepted.holds.start(), *accepted.holds.end()),
            ..unmeasured("")
        };
        let Some(value) = self.data.eval(expr).filter(|value| value.is_finite()) else {
            return part;
        };
        part.measured = number(value) + &unit;
        part.value = Some(value);
        // Relative to the nearest end of the range; within the range there is no deviation.
        let nearest = value.clamp(low, high);
        part.deviation = (nearest != 0.0).then(|| value / nearest - 1.0);
        // A ratio of exactly 1 has no direction.
        let has_direction = self.claim.kind != ClaimKind::Ratio || value != 1.0;
        part.verdict = if accepted.holds.contains(&value) {
            Verdict::Holds
        } else if has_direction && accepted.direction.contains(&value) {
            Verdict::Direction
        } else {
            Verdict::Differs
        };
        part.verdict = self.too_few_or(&expr.terms(), part.verdict);
        part
    }

    /// Claims of an order of series, and claims that a combination is supported or is not.
    fn orders(&self, rule: &Rule) -> Vec<Part> {
        let mut parts = Vec::new();
        if rule.order.len() > 1 {
            parts.push(self.order(rule));
        }
        for (list, there) in [(&rule.present, true), (&rule.absent, false)] {
            for expr in list {
                let is = self.data.eval(expr).is_some();
                let say = |there: bool| if there { "supported" } else { "not supported" };
                parts.push(Part {
                    published: say(there).into(),
                    accepted: say(there).into(),
                    measured: say(is).into(),
                    verdict: if is == there {
                        Verdict::Holds
                    } else {
                        Verdict::Differs
                    },
                    ..unmeasured(&expr.to_string())
                });
            }
        }
        parts
    }

    /// An order of groups of series, lowest first. It holds if means are in order, and points as
    /// well with some slack; members of a group with `~` must also be alike.
    fn order(&self, rule: &Rule) -> Part {
        let wanted = rule.order.join(" < ");
        let mut part = Part {
            published: wanted.clone(),
            accepted: wanted.clone(),
            ..unmeasured(&format!("{}: {wanted}", rule.figure))
        };
        let groups: Vec<(bool, Vec<Expr>)> = rule
            .order
            .iter()
            .map(|group| {
                let members = group.split(['~', '|']).map(|name| Expr::parse(name.trim()));
                (group.contains('~'), members.flatten().collect())
            })
            .collect();
        let means = self.row(&groups, &|expr| self.data.eval(expr));
        let measured: usize = means.iter().map(|(_, group)| group.len()).sum();
        if measured < rule.ordered().count() {
            return part;
        }
        // If all values are zero, any order holds and nothing was measured.
        let mut all = means.iter().flat_map(|(_, group)| group);
        if all.all(|mean| *mean == 0.0) {
            part.measured = "nought everywhere".into();
            return part;
        }
        let rows = self.rows(&groups);
        let rows = if rows.is_empty() {
            vec![means.clone()]
        } else {
            rows
        };
        let slack = self.tolerances.order.slack;
        let on_average = in_order(&means, 0.0);
        let everywhere = rows.iter().all(|row| in_order(row, slack));
        let alike = rows.iter().chain([&means]).all(|row| {
            row.iter().filter(|(alike, _)| *alike).all(|(_, group)| {
                let (low, high) = ends(group);
                high <= low * self.tolerances.order.alike
            })
        });
        part.verdict = match (on_average, everywhere && alike) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Direction,
            (false, _) => Verdict::Differs,
        };
        let exprs = groups.iter().flat_map(|(_, group)| group);
        let terms: Vec<Term> = exprs.flat_map(Expr::terms).collect();
        part.verdict = self.too_few_or(&terms, part.verdict);
        let mut named: Vec<(f64, String)> = groups
            .iter()
            .flat_map(|(_, group)| group)
            .filter_map(|expr| self.data.eval(expr).map(|mean| (mean, expr.to_string())))
            .collect();
        named.sort_by(|a, b| a.0.total_cmp(&b.0));
        let words = named
            .iter()
            .map(|(mean, name)| format!("{name} {}", number(*mean)));
        part.measured = words.collect::<Vec<_>>().join(" < ");
        part
    }

    /// Each group's values at one point of the sweep.
    fn row(
        &self,
        groups: &[(bool, Vec<Expr>)],
        value: &dyn Fn(&Expr) -> Option<f64>,
    ) -> Vec<(bool, Vec<f64>)> {
        let of =
            |(alike, group): &(bool, Vec<Expr>)| (*alike, group.iter().filter_map(value).collect());
        groups.iter().map(of).collect()
    }

    /// The values at each point where every group has one; only for whole series.
    fn rows(&self, groups: &[(bool, Vec<Expr>)]) -> Vec<Vec<(bool, Vec<f64>)>> {
        let at = |name: &str| {
            self.row(groups, &|expr| match expr {
                Expr::Term(term) if term.at.is_none() => {
                    let points = self.data.points(&term.series)?;
                    points.iter().find(|point| point.name == name)?.y
                }
                expr => self.data.eval(expr),
            })
        };
        let rows = self.data.names().into_iter().map(at);
        rows.filter(|row: &Vec<_>| row.iter().all(|(_, group)| !group.is_empty()))
            .collect()
    }

    fn trends(&self, rule: &Rule) -> Vec<Part> {
        let each = rule.trends().into_iter();
        each.map(|(series, what, at)| self.trend(rule, series, what, at))
            .collect()
    }

    /// The trend of a series over the sweep: `what` in words of [`Rule::trends`], and the point
    /// `at` that some trends refer to.
    fn trend(&self, rule: &Rule, series: &str, what: &str, at: Option<f64>) -> Part {
        let wanted = match at {
            Some(at) => format!("{what} {}", number(at)),
            None => what.to_string(),
        };
        let mut part = Part {
            published: wanted.clone(),
            accepted: wanted,
            ..unmeasured(&format!("{}: {series}", rule.figure))
        };
        let known = |point: &Point| point.y.map(|y| (point.x, y));
        let points = self.data.points(series).unwrap_or_default();
        let all: Vec<(f64, f64)> = points.iter().filter_map(known).collect();
        if all.len() < 2 {
            return part;
        }
        let words = |(_, y): &(f64, f64)| number(*y);
        part.measured = all.iter().map(words).collect::<Vec<_>>().join(", ");
        part.verdict = match (what, at) {
            ("rises", _) => self.monotone(&all, 1.0, false),
            ("falls", _) => self.monotone(&all, -1.0, false),
            ("rises or stays", _) => self.monotone(&all, 1.0, true),
            ("flat", _) => {
                let (low, high) = ends(&all.iter().map(|(_, y)| *y).collect::<Vec<_>>());
                let tolerance = &self.tolerances.trend;
                match growth(low, high) {
                    spread if spread <= tolerance.flat => Verdict::Holds,
                    spread if spread <= tolerance.nearly_flat => Verdict::Direction,
                    _ => Verdict::Differs,
                }
            }
            ("rises until" | "falls until", Some(until)) => {
                let sign = if what == "falls until" { -1.0 } else { 1.0 };
                let part: Vec<_> = all.iter().copied().filter(|(x, _)| *x <= until).collect();
                self.monotone(&part, sign, false)
            }
            ("rises from", Some(from)) => {
                let part: Vec<_> = all.iter().copied().filter(|(x, _)| *x >= from).collect();
                self.monotone(&part, 1.0, false)
            }
            // Highest at a point.
            (_, Some(peak)) => self.peak(&all, peak),
            _ => unreachable!("every trend has its words"),
        };
        part.verdict = self.too_few_or(&[Term::whole(series)], part.verdict);
        part
    }

    /// Whether a series rises (`sign` 1) or falls (-1) overall, and never reverses. With `may_stay`
    /// it need not change.
    fn monotone(&self, points: &[(f64, f64)], sign: f64, may_stay: bool) -> Verdict {
        let step = self.tolerances.trend.step;
        let change = |a: f64, b: f64| sign * growth(a, b);
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return Verdict::NotMeasured;
        };
        let whole = change(first.1, last.1);
        let steady = points
            .windows(2)
            .all(|pair| change(pair[0].1, pair[1].1) >= -step);
        let least = if may_stay { -step } else { step };
        match (whole >= least, steady) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Direction,
            (false, _) if whole > 0.0 => Verdict::Direction,
            _ => Verdict::Differs,
        }
    }

    /// A maximum at the published point holds; at a neighbouring point the direction holds.
    fn peak(&self, points: &[(f64, f64)], peak: f64) -> Verdict {
        let best = (0..points.len()).max_by(|&a, &b| points[a].1.total_cmp(&points[b].1));
        let wanted = points.iter().position(|(x, _)| *x == peak);
        match (best, wanted) {
            (Some(best), Some(wanted)) if best == wanted => Verdict::Holds,
            (Some(best), Some(wanted)) if best.abs_diff(wanted) == 1 => Verdict::Direction,
            (Some(_), Some(_)) => Verdict::Differs,
            _ => Verdict::NotMeasured,
        }
    }

    /// The point of the sweep at which the first of two series overtakes the second, or from which
    /// on they are alike (`converge`).
    fn cross(&self, rule: &Rule) -> Part {
        let [a, b] = rule
            .cross
            .clone()
            .expect("a rule of this kind names two series");
        let points = self.claim.points();
        let published = points.first().map(|(_, figure)| figure.ends().0);
        let factor = self.tolerances.cross.holds;
        let accepted = published
            .map(|x| range(x / factor, x * factor))
            .unwrap_or_default();
        let mut part = Part {
            published: published.map(number).unwrap_or_default(),
            accepted,
            ..unmeasured(&format!("{a} over {b}"))
        };
        let rows = |series: &str| self.data.points(series).unwrap_or_default();
        // Per point: x, and the logarithm of the quotient, which is 0 where they cross.
        let pairs: Vec<(f64, f64)> = rows(&a)
            .iter()
            .zip(rows(&b))
            .filter_map(|(a, b)| Some((a.x, (a.y? / b.y?).ln())))
            .collect();
        if pairs.len() < 2 {
            return part;
        }
        let found = if rule.converge {
            let alike = self.tolerances.trend.flat;
            let apart = pairs.iter().rposition(|(_, gap)| gap.abs() > alike);
            // They are alike from the point after the last one at which they are apart.
            apart.map_or(Some(pairs[0].0), |last| {
                pairs.get(last + 1).map(|(x, _)| *x)
            })
        } else {
            crossing(&pairs)
        };
        match (found, published) {
            (None, _) => {
                part.measured = "they do not cross".into();
                let rising = pairs.last().expect("two points").1 > pairs[0].1;
                let nearer = pairs.last().expect("two points").1.abs() < pairs[0].1.abs();
                let right = if rule.converge { nearer } else { rising };
                part.verdict = if right {
                    Verdict::Direction
                } else {
                    Verdict::Differs
                };
            }
            (Some(x), None) => {
                part.measured = number(x);
                part.value = Some(x);
                part.verdict = Verdict::Holds;
            }
            (Some(x), Some(published)) => {
                part.measured = number(x);
                part.value = Some(x);
                part.deviation = Some(x / published - 1.0);
                let apart = (x / published).max(published / x);
                let near = apart <= factor;
                part.verdict = if near {
                    Verdict::Holds
                } else {
                    Verdict::Direction
                };
            }
        }
        part.verdict = self.too_few_or(&[Term::whole(&a), Term::whole(&b)], part.verdict);
        part
    }
}

/// Where the first series finally rises above the second, by linear interpolation. `pairs` has the
/// position in the sweep and the logarithm of the ratio of first to second.
fn crossing(pairs: &[(f64, f64)]) -> Option<f64> {
    let at = (1..pairs.len())
        .rev()
        .find(|&at| pairs[at - 1].1 <= 0.0 && pairs[at].1 > 0.0)?;
    if pairs[at..].iter().any(|(_, gap)| *gap <= 0.0) {
        return None;
    }
    let ((x0, y0), (x1, y1)) = (pairs[at - 1], pairs[at]);
    Some(x0 + (x1 - x0) * -y0 / (y1 - y0))
}

/// How much of `from` is gained on the way to `to`: 0 if they are equal, also from 0 to 0.
fn growth(from: f64, to: f64) -> f64 {
    if from == to { 0.0 } else { to / from - 1.0 }
}

fn ends(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// Whether no group is lower than an earlier one by more than `slack`.
fn in_order(row: &[(bool, Vec<f64>)], slack: f64) -> bool {
    row.windows(2).all(|pair| {
        let (_, high) = ends(&pair[0].1);
        let (low, _) = ends(&pair[1].1);
        low >= high * (1.0 - slack)
    })
}
