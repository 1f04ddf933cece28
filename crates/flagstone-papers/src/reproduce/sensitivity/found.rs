//! Results of a design: the settings that affect a claim's figure, the point at which most claims
//! hold, and what each claim that does not hold would need.

use super::effects::{Row, effects};
use super::{Design, Effects, Point, PointKind, Tried};
use crate::reproduce::verdict::Verdict;
use std::collections::BTreeMap;

/// The effect of one setting, changed alone, on a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Range {
    /// The setting.
    pub setting: String,
    /// The minimum and maximum of the figure, including the default.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// The points of minimum and maximum, as text.
    pub low_at: String,
    /// See `low_at`.
    pub high_at: String,
}

/// The points at which a claim holds that does not hold by default.
#[derive(Debug, Clone, PartialEq)]
pub struct Needed {
    /// The claim.
    pub claim: String,
    /// Its verdict at the default.
    pub default: Verdict,
    /// Number of points, other than the default, with a verdict on the claim.
    pub tried: usize,
    /// Indices of the tried points at which the claim holds. The point at which most claims hold
    /// comes first.
    pub holds_at: Vec<usize>,
}

/// The default point.
fn default(tried: &[Tried]) -> Option<&Tried> {
    tried
        .iter()
        .find(|tried| tried.point.kind == PointKind::Default)
}

/// The settings by their effect on a claim's figure when changed alone, largest first.
pub fn one_at_a_time(design: &Design, tried: &[Tried], claim: &str, part: usize) -> Vec<Range> {
    let start = default(tried).and_then(|tried| tried.value(claim, part));
    let Some(start) = start else {
        return Vec::new();
    };
    let of = |(nth, setting): (usize, &String)| {
        let mut range = Range {
            setting: setting.clone(),
            low: start,
            high: start,
            low_at: "default".into(),
            high_at: "default".into(),
        };
        let own = tried
            .iter()
            .filter(|tried| tried.point.kind == PointKind::One(nth));
        for tried in own {
            let Some(value) = tried.value(claim, part) else {
                continue;
            };
            if value < range.low {
                (range.low, range.low_at) = (value, tried.point.name());
            }
            if value > range.high {
                (range.high, range.high_at) = (value, tried.point.name());
            }
        }
        range
    };
    let mut ranges: Vec<Range> = design.settings.iter().enumerate().map(of).collect();
    ranges.sort_by(|a, b| (b.high - b.low).total_cmp(&(a.high - a.low)));
    ranges
}

/// The settings with their indices for a claim's figure, largest total first, and the number of
/// sample points used. Points with a missing run are left out.
pub fn total_effects(
    design: &Design,
    tried: &[Tried],
    claim: &str,
    part: usize,
) -> Option<(usize, Vec<(String, Effects)>)> {
    let by: BTreeMap<PointKind, f64> = tried
        .iter()
        .filter_map(|tried| Some((tried.point.kind, tried.value(claim, part)?)))
        .collect();
    let row = |of: u32| {
        let mixed = 0..design.settings.len();
        let mixed = mixed.map(|nth| by.get(&PointKind::Mixed(of, nth)).copied());
        Some(Row {
            a: *by.get(&PointKind::A(of))?,
            b: *by.get(&PointKind::B(of))?,
            mixed: mixed.collect::<Option<_>>()?,
        })
    };
    let rows: Vec<Row> = (0..design.sample).filter_map(row).collect();
    let found = effects(&rows)?;
    let mut named: Vec<_> = design.settings.iter().cloned().zip(found).collect();
    named.sort_by(|a, b| b.1.total.value.total_cmp(&a.1.total.value));
    Some((rows.len(), named))
}

/// Indices of the tried points by number of claims that hold, then by number whose direction holds,
/// best first. Points that could not be run are left out.
pub fn best(tried: &[Tried]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..tried.len())
        .filter(|&at| tried[at].claims.is_ok())
        .collect();
    let rank = |tried: &Tried| (tried.count(Verdict::Holds), tried.count(Verdict::Direction));
    // Among equally good points the one tried first wins, so the default comes first.
    places.sort_by_key(|&at| std::cmp::Reverse(rank(&tried[at])));
    places
}

/// The points of the next round of a climb: the best point so far, with one additional setting
/// each. Only settings are used that alone make a claim hold that does not by default. Empty if the
/// last round, `round - 1`, found nothing better.
pub fn climb(tried: &[Tried], round: u32) -> Vec<Point> {
    let Some(start) = default(tried) else {
        return Vec::new();
    };
    let Some(top) = best(tried).first().map(|&at| &tried[at]) else {
        return Vec::new();
    };
    if round > 0 && top.point.kind != PointKind::Climb(round - 1) {
        return Vec::new();
    }
    let claims = start.claims.iter().flat_map(BTreeMap::keys);
    let claims: Vec<&String> = claims.collect();
    let holds = |tried: &Tried, claim: &str| tried.verdict(claim) == Some(Verdict::Holds);
    let helps = |tried: &&Tried| {
        matches!(tried.point.kind, PointKind::One(_))
            && claims
                .iter()
                .any(|claim| holds(tried, claim) && !holds(start, claim))
    };
    let helping = tried.iter().filter(helps);
    let points = helping.filter_map(|tried| top.point.with(&tried.point, round));
    points.collect()
}

/// For each claim that does not hold at the default, the points at which it holds.
pub fn needed(tried: &[Tried]) -> Vec<Needed> {
    let claims = default(tried).and_then(|tried| tried.claims.as_ref().ok());
    let order = best(tried);
    let of = |(claim, (verdict, _)): (&String, &(Verdict, _))| {
        let others = tried
            .iter()
            .filter(|tried| tried.point.kind != PointKind::Default);
        let holds = |at: &usize| tried[*at].verdict(claim) == Some(Verdict::Holds);
        Needed {
            claim: claim.clone(),
            default: *verdict,
            tried: others
                .filter(|tried| {
                    let verdict = tried.verdict(claim);
                    verdict.is_some_and(|own| own != Verdict::NotMeasured)
                })
                .count(),
            holds_at: order.iter().copied().filter(holds).collect(),
        }
    };
    let claims = claims.into_iter().flatten();
    let open = claims.filter(|(_, (verdict, _))| *verdict != Verdict::Holds);
    open.map(of).collect()
}
