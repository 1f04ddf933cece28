//! Which settings are tried: the default, each setting alone at each of its values, and a sample
//! over all of them as Saltelli has it for total effects.
//!
//! The sample has two independent halves A and B of a Sobol sequence, and for each setting *i* the
//! points of A with the value of *i* from B. A sample of N points is N (k + 2) runs of k settings.

use super::OpenSettings;
use crate::reproduce::{lay, word};
use crate::sweep::unit;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Where a point of a design comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The experiment as it is.
    Default,
    /// One setting, of this number, is changed.
    One(usize),
    /// A point of the search for one at which more claims hold, in this round.
    Climb(u32),
    /// A point of the first half of the sample.
    A(u32),
    /// The same of the second half.
    B(u32),
    /// A point of the first half with the value of a setting from the second.
    Mixed(u32, usize),
}

/// A point of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Where it comes from.
    pub kind: Kind,
    /// What is set, by the names of the settings.
    pub at: BTreeMap<String, Value>,
    /// What lies over the experiment's settings.
    pub set: Table,
}

/// Points, in the order in which they are tried.
#[derive(Debug, Clone)]
pub struct Design {
    /// Names of the settings.
    pub settings: Vec<String>,
    /// How many points each half of the sample has.
    pub sample: u32,
    /// The points.
    pub points: Vec<Point>,
}

impl Point {
    /// This point with what another sets besides; nothing if both set the same.
    pub(super) fn with(&self, other: &Point, round: u32) -> Option<Point> {
        if other.at.keys().any(|name| self.at.contains_key(name)) {
            return None;
        }
        let mut both = self.clone();
        both.kind = Kind::Climb(round);
        both.at.extend(other.at.clone());
        lay(&mut both.set, &other.set);
        Some(both)
    }

    /// What is set, in words.
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
    /// The design over these settings, with so many points in each half of the sample.
    ///
    /// # Panics
    /// More settings or points than a Sobol sequence has.
    pub fn new(open: &OpenSettings, sample: u32, seed: u32) -> Design {
        let axes: Vec<_> = open.open.iter().map(|open| &open.axis).collect();
        let mut points = vec![Point {
            kind: Kind::Default,
            at: BTreeMap::new(),
            set: Table::new(),
        }];
        for (nth, axis) in axes.iter().enumerate() {
            for (value, set) in axis.steps() {
                let at = BTreeMap::from([(axis.name.clone(), value)]);
                let kind = Kind::One(nth);
                points.push(Point { kind, at, set });
            }
        }
        let all = axes.len();
        // Both halves are columns of one sequence.
        let coordinates = |of: u32, from: usize| -> Vec<f64> {
            (0..all).map(|nth| unit(of, from + nth, seed)).collect()
        };
        let point = |kind: Kind, units: &[f64]| {
            let (mut at, mut set) = (BTreeMap::new(), Table::new());
            for (axis, &unit) in axes.iter().zip(units) {
                let (value, own) = axis.at_unit(unit);
                at.insert(axis.name.clone(), value);
                lay(&mut set, &own);
            }
            Point { kind, at, set }
        };
        for of in 0..sample {
            let (a, b) = (coordinates(of, 0), coordinates(of, all));
            points.push(point(Kind::A(of), &a));
            points.push(point(Kind::B(of), &b));
            for nth in 0..all {
                let mut mixed = a.clone();
                mixed[nth] = b[nth];
                points.push(point(Kind::Mixed(of, nth), &mixed));
            }
        }
        Design {
            settings: axes.iter().map(|axis| axis.name.clone()).collect(),
            sample,
            points,
        }
    }
}
