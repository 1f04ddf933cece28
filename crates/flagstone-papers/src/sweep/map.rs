//! Maps of the winning protocols over two axes of a sweep, including ties.
//!
//! A *place* of a sweep consists of the tasks that differ only in competitor and seed. The best
//! figure of a place is first. Others tie with it as in `flagstone compare`: if their ranges over
//! the seeds overlap, or, with one seed, if they are within a margin. A cell of the map has all
//! places with the same two coordinates. Its winners are those that are first or tied at most
//! places.

use super::{Axis, Kept, MapSpec, Sweep, Task};
use crate::reproduce::word;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Value;

/// Number of parts of a sampled axis, if its file does not set `steps`.
const PARTS: u32 = 5;

/// Whether higher or lower figures win.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Higher, as for throughput.
    #[default]
    Higher,
    /// Lower, as for latency.
    Lower,
}

/// An axis of a map.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// The axis.
    pub name: String,
    /// Its values, or the parts of its range, in order.
    pub values: Vec<String>,
}

/// One cell of a map.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MapCell {
    /// Number of places.
    pub places: usize,
    /// The winners at most places; several if they tie. The best mean comes first.
    pub winners: Vec<String>,
    /// The mean of each competitor over places and seeds; `None` if it has no figure.
    pub means: Vec<(String, Option<f64>)>,
}

/// A map.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// The horizontal axis.
    pub across: Side,
    /// The vertical axis.
    pub down: Side,
    /// The competitors, in the order of their axis.
    pub contenders: Vec<String>,
    /// Cells, row by row.
    pub cells: Vec<MapCell>,
}

/// The figures of one place: per competitor, one figure per seed.
type Place = BTreeMap<usize, Vec<f64>>;

impl Map {
    /// The map of a sweep's results, which are in the order of its tasks.
    ///
    /// # Errors
    /// The sweep lacks the axes, or no run has the metric.
    pub fn of(sweep: &Sweep, spec: &MapSpec, results: &[Kept]) -> Result<Map, String> {
        sweep.check_map(spec)?;
        let of = sweep.contenders(spec)?;
        let (across, down) = (sweep.side(&spec.x)?, sweep.side(&spec.y)?);
        let contenders = sweep.side(of)?;
        let mut places: BTreeMap<(usize, usize), BTreeMap<String, Place>> = BTreeMap::new();
        let mut found = false;
        for (task, kept) in sweep.tasks.iter().zip(results) {
            let cell = (down.place(task), across.place(task));
            let place = places.entry(cell).or_default();
            let place = place.entry(sweep.without(task, of)).or_default();
            let Some(figure) = kept
                .metric(&spec.metric)
                .filter(|figure| figure.is_finite())
            else {
                continue;
            };
            found = true;
            // A run that commits nothing, cannot keep up with arrivals, or does not keep
            // transactions atomic never wins.
            let commits = kept.metric("committed") != Some(0.0);
            let keeps_up = kept.metric("saturated") != Some(1.0);
            if commits && keeps_up && task.run().is_atomic() {
                let figures = place.entry(contenders.place(task)).or_default();
                figures.push(figure);
            }
        }
        if !found {
            return Err(format!(
                "no result has the metric `{}`: the results of --json name all that there are",
                spec.metric
            ));
        }
        let names = &contenders.values;
        let cell = |row: usize, column: usize| match places.get(&(row, column)) {
            None => MapCell::default(),
            Some(places) => cell(spec, names, places),
        };
        let rows = 0..down.values.len();
        let cells = rows.flat_map(|row| (0..across.values.len()).map(move |column| (row, column)));
        let cells = cells.map(|(row, column)| cell(row, column)).collect();
        let side = |coordinates: Coordinates<'_>| Side {
            name: coordinates.axis.name.clone(),
            values: coordinates.values,
        };
        Ok(Map {
            cells,
            contenders: contenders.values.clone(),
            across: side(across),
            down: side(down),
        })
    }
}

/// The winners of the places of a cell.
fn cell(spec: &MapSpec, names: &[String], places: &BTreeMap<String, Place>) -> MapCell {
    let mut wins = vec![0; names.len()];
    for place in places.values() {
        for winner in winners(spec, place) {
            wins[winner] += 1;
        }
    }
    let mean = |contender: usize| {
        let figures = places.values().filter_map(|place| place.get(&contender));
        let figures: Vec<f64> = figures.flatten().copied().collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    let means: Vec<Option<f64>> = (0..names.len()).map(mean).collect();
    let most = wins.iter().copied().max().unwrap_or(0);
    let mut first: Vec<usize> = (0..names.len())
        .filter(|&contender| most > 0 && wins[contender] == most)
        .collect();
    first.sort_by(|&a, &b| {
        let (a, b) = (means[a].unwrap_or(f64::NAN), means[b].unwrap_or(f64::NAN));
        spec.better.order(a, b)
    });
    MapCell {
        places: places.len(),
        winners: first.into_iter().map(|at| names[at].clone()).collect(),
        means: names.iter().cloned().zip(means).collect(),
    }
}

/// The index of the best competitor of a place, and those that tie with it.
fn winners(spec: &MapSpec, place: &Place) -> Vec<usize> {
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
    let mut order: Vec<(usize, f64)> = place
        .iter()
        .map(|(&contender, figures)| (contender, mean(figures)))
        .collect();
    order.sort_by(|a, b| spec.better.order(a.1, b.1));
    let Some(&(first, best)) = order.first() else {
        return Vec::new();
    };
    let ends = |contender: usize| {
        let figures = place[&contender].iter().copied();
        (
            figures.clone().fold(f64::INFINITY, f64::min),
            figures.fold(f64::NEG_INFINITY, f64::max),
        )
    };
    // With several seeds ranges must overlap, with one the difference is within the margin.
    let ties = |&(contender, figure): &(usize, f64)| {
        if place[&first].len() > 1 {
            let ((low, high), (least, most)) = (ends(first), ends(contender));
            return low <= most && least <= high;
        }
        match spec.better {
            Better::Higher => figure >= best * (1.0 - spec.margin),
            Better::Lower => figure <= best * (1.0 + spec.margin),
        }
    };
    order.into_iter().filter(ties).map(|(at, _)| at).collect()
}

impl Better {
    fn order(self, a: f64, b: f64) -> std::cmp::Ordering {
        match self {
            Better::Higher => b.total_cmp(&a),
            Better::Lower => a.total_cmp(&b),
        }
    }
}

/// The values of an axis on a map.
struct Coordinates<'a> {
    axis: &'a Axis,
    values: Vec<String>,
    /// Number of parts, for a sampled axis.
    parts: Option<u32>,
}

impl Coordinates<'_> {
    /// The position of a task on the axis.
    fn place(&self, task: &Task) -> usize {
        let value = &task.at[&self.axis.name];
        match self.parts {
            Some(parts) => self.axis.part(value, parts) as usize,
            None => {
                let value = word(value);
                let found = self.values.iter().position(|known| *known == value);
                found.expect("its values are those of the tasks")
            }
        }
    }
}

impl Sweep {
    /// The values of an axis in a map: those of the tasks, or parts of the range of a sampled axis.
    fn side(&self, name: &str) -> Result<Coordinates<'_>, String> {
        let axis = self.axis(name)?;
        if self.sample.is_some() && axis.from.is_some() {
            let parts = axis.steps.unwrap_or(PARTS);
            return Ok(Coordinates {
                axis,
                values: (0..parts).map(|nth| axis.part_name(nth, parts)).collect(),
                parts: Some(parts),
            });
        }
        let mut values: Vec<String> = Vec::new();
        for task in &self.tasks {
            let value = word(&task.at[name]);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Ok(Coordinates {
            axis,
            values,
            parts: None,
        })
    }

    /// The place of a task: all varied settings except competitor and seed.
    fn without(&self, task: &Task, of: &str) -> String {
        let is_seed = |name: &str| {
            let mut axes = self.axes.iter();
            axes.any(|axis| axis.name == name && axis.key == "seed")
        };
        let others = task.at.iter();
        let others = others.filter(|(name, _)| *name != of && !is_seed(name));
        let each = others.map(|(name, value)| format!("{name} {}", word(value)));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl Axis {
    /// The part of the range that contains a value.
    fn part(&self, value: &Value, parts: u32) -> u32 {
        let number = value.as_float().or(value.as_integer().map(|n| n as f64));
        let number = number.unwrap_or(f64::NAN);
        let bound = |nth: u32| self.bound(nth, parts);
        (0..parts - 1)
            .find(|&nth| number < bound(nth + 1))
            .unwrap_or(parts - 1)
    }

    fn bound(&self, nth: u32, parts: u32) -> f64 {
        let (from, to) = (self.from.unwrap_or(0.0), self.to.unwrap_or(0.0));
        let share = f64::from(nth) / f64::from(parts);
        if self.log {
            from * (to / from).powf(share)
        } else {
            from + (to - from) * share
        }
    }

    fn part_name(&self, nth: u32, parts: u32) -> String {
        let short = |value: f64| {
            let rounded: f64 = format!("{value:.2e}").parse().expect("a number");
            rounded.to_string()
        };
        let (from, to) = (self.bound(nth, parts), self.bound(nth + 1, parts));
        format!("{}–{}", short(from), short(to))
    }
}
