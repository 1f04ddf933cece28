//! The design of an analysis: the default, each setting alone at each of its values, and a sample
//! over all settings as in Saltelli's method for total effects. Or a grid of few settings.
//!
//! The sample consists of two independent halves A and B of a Sobol sequence, and, for each setting
//! *i*, the points of A with the value of *i* from B. N points and k settings take N (k + 2) runs.

use super::{Open, OpenSettings};
use crate::reproduce::figures::Over;
use crate::reproduce::{lay, word};
use crate::sweep::unit;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The origin of a point in a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PointKind {
    /// The unchanged experiment.
    Default,
    /// One setting, by index, is changed.
    One(usize),
    /// A point of a grid: several settings are changed, each to one of its values.
    Grid,
    /// A point of the search for more holding claims, in this round.
    Climb(u32),
    /// A point of the first half of the sample.
    A(u32),
    /// A point of the second half.
    B(u32),
    /// A point of the first half, with the value of one setting from the second.
    Mixed(u32, usize),
}

/// A point of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its origin.
    pub kind: PointKind,
    /// Values of the settings, by name.
    pub at: BTreeMap<String, Value>,
    /// Settings that override the experiment's, but not those of its figures.
    pub set: Table,
    /// Settings that override those of figures, in some of the runs.
    pub over: Vec<Over>,
}

/// Points, in the order of trying them.
#[derive(Debug, Clone)]
pub struct Design {
    /// Names of the settings.
    pub settings: Vec<String>,
    /// Number of points in each half of the sample.
    pub sample: u32,
    /// The points.
    pub points: Vec<Point>,
}

impl Point {
    /// Combines this point with another one; `None` if both set the same setting.
    pub(super) fn with(&self, other: &Point, round: u32) -> Option<Point> {
        if other.at.keys().any(|name| self.at.contains_key(name)) {
            return None;
        }
        let mut both = self.clone();
        both.kind = PointKind::Climb(round);
        both.at.extend(other.at.clone());
        lay(&mut both.set, &other.set);
        both.over.extend(other.over.clone());
        Some(both)
    }

    fn default() -> Point {
        Point {
            kind: PointKind::Default,
            at: BTreeMap::new(),
            set: Table::new(),
            over: Vec::new(),
        }
    }

    /// Assigns a value to a setting; `set` are the resulting settings.
    fn put(&mut self, open: &Open, value: Value, set: Table) {
        self.at.insert(open.axis.name.clone(), value);
        if open.only.is_empty() {
            lay(&mut self.set, &set)
        } else {
            let only = open.only.clone();
            self.over.push(Over { only, set });
        }
    }

    /// Describes the values.
    pub fn name(&self) -> String {
        if self.at.is_empty() {
            return "default".into();
        }
        let each = self.at.iter();
        let each = each.map(|(name, value)| format!("{name} {}", word(value)));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl Design {
    /// The grid of these settings: every combination of their values and their defaults, those of
    /// the last setting changing fastest. Points that change at most one setting are those of
    /// [`Design::new`].
    pub fn grid(open: &OpenSettings) -> Design {
        let mut points = vec![Point::default()];
        for (nth, open) in open.open.iter().enumerate() {
            let steps = open.axis.steps();
            let with_values = |point: Point| {
                let changed = steps.iter().map(|(value, set)| {
                    let mut changed = point.clone();
                    changed.kind = match point.kind {
                        PointKind::Default => PointKind::One(nth),
                        _ => PointKind::Grid,
                    };
                    changed.put(open, value.clone(), set.clone());
                    changed
                });
                let changed: Vec<Point> = changed.collect();
                std::iter::once(point).chain(changed)
            };
            points = points.into_iter().flat_map(with_values).collect();
        }
        Design {
            settings: open.names(),
            sample: 0,
            points,
        }
    }

    /// The design for these settings, with `sample` points in each half of the sample.
    ///
    /// # Panics
    /// There are more settings or points than a Sobol sequence supports.
    pub fn new(open: &OpenSettings, sample: u32, seed: u32) -> Design {
        let mut points = vec![Point::default()];
        for (nth, open) in open.open.iter().enumerate() {
            for (value, set) in open.axis.steps() {
                let mut point = Point::default();
                point.kind = PointKind::One(nth);
                point.put(open, value, set);
                points.push(point);
            }
        }
        let all = open.open.len();
        // Both halves are columns of one sequence.
        let coordinates = |of: u32, from: usize| -> Vec<f64> {
            (0..all).map(|nth| unit(of, from + nth, seed)).collect()
        };
        let point = |kind: PointKind, units: &[f64]| {
            let mut point = Point::default();
            point.kind = kind;
            for (open, &unit) in open.open.iter().zip(units) {
                let (value, set) = open.axis.at_unit(unit);
                point.put(open, value, set);
            }
            point
        };
        for of in 0..sample {
            let (a, b) = (coordinates(of, 0), coordinates(of, all));
            points.push(point(PointKind::A(of), &a));
            points.push(point(PointKind::B(of), &b));
            for nth in 0..all {
                let mut mixed = a.clone();
                mixed[nth] = b[nth];
                points.push(point(PointKind::Mixed(of, nth), &mixed));
            }
        }
        Design {
            settings: open.names(),
            sample,
            points,
        }
    }
}
