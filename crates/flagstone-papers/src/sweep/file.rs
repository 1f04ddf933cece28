//! The file of a sweep, and its tasks.
//!
//! `[setting]` has the common settings of all runs, with the keys of an experiment file. Each
//! `[[axis]]` varies one key, or several through named points. Without `[sample]` the axes form a
//! grid. With it, axes with ranges are sampled together. Each value of an axis with a list is
//! combined with each point of the sample, so that all protocols are compared at the same points.

use super::Task;
use super::map::Better;
use super::sample::{DIMENSIONS_MAX, SAMPLE_MAX, unit};
use crate::reproduce::engine::RunError;
use crate::reproduce::figures::{Named, ParseError, find, section};
use crate::reproduce::{lay, put, value_of, word};
use flagstone_lab::no_such;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// Maximum number of tasks per sweep: more indicate a mistake in the file.
const TASKS_MAX: u64 = 1_000_000;

/// A sweep: its file, and its tasks.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Description in one line.
    pub title: String,
    /// The varied settings.
    pub axes: Vec<Axis>,
    /// The sample; `None` for a grid.
    pub sample: Option<SampleSpec>,
    /// How to draw the map, if the file says so.
    pub map: Option<MapSpec>,
    /// The tasks, in the order of the axes; the last one varies fastest.
    pub tasks: Vec<Task>,
}

/// The format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    setting: Table,
    axis: Vec<Axis>,
    sample: Option<SampleSpec>,
    map: Option<MapSpec>,
}

/// A varied setting: by a list, a range, or named points that set several keys.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axis {
    /// Its name in results and maps; the key by default.
    pub name: String,
    /// The varied key; dots lead into tables.
    pub key: String,
    /// Its values.
    pub values: Vec<Value>,
    /// The lower end of a range.
    pub from: Option<f64>,
    /// The upper end of a range.
    pub to: Option<f64>,
    /// Number of values of the range in a grid, including both ends.
    pub steps: Option<u32>,
    /// Whether the range is divided by factors, not differences.
    pub log: bool,
    /// Whether the values are integers.
    pub whole: bool,
    /// Named points.
    pub points: Vec<Named>,
}

/// How a sample is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSpec {
    /// Number of points; powers of two fill the space most evenly.
    pub points: u32,
    /// Different seeds give different samples.
    #[serde(default = "one")]
    pub seed: u32,
}

fn one() -> u32 {
    1
}

/// How to draw a map: horizontal and vertical axis, competitors, and metric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapSpec {
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis.
    pub y: String,
    /// The axis of the competitors; by default `protocol`, `stack` or `index`.
    pub of: Option<String>,
    /// The metric; several can be added, `a+b`.
    #[serde(default = "rate")]
    pub metric: String,
    /// Whether higher or lower is better.
    #[serde(default)]
    pub better: Better,
    /// With a single seed: relative distance from the best up to which a result ties.
    #[serde(default = "tenth")]
    pub margin: f64,
}

impl Default for MapSpec {
    /// Throughput, with the margin of `flagstone compare`.
    fn default() -> MapSpec {
        MapSpec {
            x: String::new(),
            y: String::new(),
            of: None,
            metric: rate(),
            better: Better::Higher,
            margin: tenth(),
        }
    }
}

fn rate() -> String {
    "throughput_tps".into()
}

fn tenth() -> f64 {
    0.1
}

impl Axis {
    fn range(&self) -> Option<(f64, f64)> {
        Some((self.from?, self.to?))
    }

    /// Uses the key as name if the axis has no name.
    pub(crate) fn name_by_key(&mut self) {
        if self.name.is_empty() {
            self.name.clone_from(&self.key);
        }
    }

    /// Describes an error in the axis; `None` if there is none.
    pub(crate) fn wrong(&self) -> Option<String> {
        let given = [
            !self.values.is_empty(),
            self.from.is_some() || self.to.is_some(),
            !self.points.is_empty(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            return Some("it needs one of `values`, `from` with `to`, and `points`".into());
        }
        if self.key.is_empty() == self.points.is_empty() {
            return Some("values and ranges need a `key`, and points set keys themselves".into());
        }
        if !given[1] {
            let stray = self.steps.is_some() || self.log || self.whole;
            return stray.then(|| "`steps`, `log` and `whole` apply only to a range".into());
        }
        let Some((from, to)) = self.range() else {
            return Some("a range has `from` and `to`".into());
        };
        if !(from.is_finite() && to.is_finite() && from < to) {
            return Some(format!("a range from {from} to {to} is empty"));
        }
        if self.log && from <= 0.0 {
            return Some("a range by factors begins above 0".into());
        }
        if self.whole && (from.fract() != 0.0 || to.fract() != 0.0) {
            return Some("the ends of a range of whole numbers are whole numbers".into());
        }
        match self.steps {
            Some(steps) if !(2..=10_000).contains(&steps) => {
                Some(format!("a range must have 2 to 10000 steps, not {steps}"))
            }
            _ => None,
        }
    }

    /// The values of the axis, or the ends of its range, as text.
    pub fn bounds(&self) -> String {
        match self.range() {
            Some((from, to)) => format!("{from} to {to}"),
            None => {
                let values = self.steps().into_iter().map(|(value, _)| word(&value));
                values.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The value at position `share` of the range, from 0 to 1.
    pub fn along(&self, share: f64) -> Value {
        let (from, to) = self.range().expect("it has a range");
        let value = match (self.log, self.whole) {
            (true, _) => from * (to / from).powf(share),
            (false, false) => from + (to - from) * share,
            // Each integer gets an equal part of a sample.
            (false, true) => return Value::Integer((from + (to - from) * share).round() as i64),
        };
        if self.whole {
            return Value::Integer(value.round() as i64);
        }
        // Enough digits for any setting, but still readable.
        Value::Float(format!("{value:.6e}").parse().expect("a number"))
    }

    /// The value for a coordinate of a sample.
    fn sampled(&self, unit: f64) -> Value {
        match (self.whole && !self.log, self.range()) {
            (true, Some((from, to))) => {
                let each = from + (unit * (to - from + 1.0)).floor();
                Value::Integer(each.min(to) as i64)
            }
            _ => self.along(unit),
        }
    }

    /// The value for a coordinate of a sample, and its settings. A list has an additional value for
    /// which nothing is set.
    pub(crate) fn at_unit(&self, unit: f64) -> (Value, Table) {
        if self.range().is_some() {
            return self.setting(self.sampled(unit));
        }
        let mut steps = self.steps();
        match ((unit * (steps.len() + 1) as f64) as usize).checked_sub(1) {
            None => (Value::from("default"), Table::new()),
            Some(nth) => steps.swap_remove(nth.min(steps.len() - 1)),
        }
    }

    fn setting(&self, value: Value) -> (Value, Table) {
        let mut table = Table::new();
        put(&mut table, &self.key, value.clone());
        (value, table)
    }

    /// Replaces the values by these, as [`word`] prints values. Of an axis of named points, keeps
    /// the points of these names.
    ///
    /// # Errors
    /// The name of no point; suggests a similar one.
    pub(crate) fn only(&mut self, values: &[&str]) -> Result<(), String> {
        if self.points.is_empty() {
            self.values = values.iter().map(|text| value_of(text)).collect();
            (self.from, self.to, self.steps) = (None, None, None);
            (self.log, self.whole) = (false, false);
            return Ok(());
        }
        let known: Vec<&str> = self.points.iter().map(|point| &point.name[..]).collect();
        if let Some(wrong) = values.iter().find(|value| !known.contains(value)) {
            return Err(no_such("value", wrong, &known));
        }
        self.points
            .retain(|point| values.contains(&&point.name[..]));
        Ok(())
    }

    /// Names and settings of the points in a grid.
    pub(crate) fn steps(&self) -> Vec<(Value, Table)> {
        if !self.points.is_empty() {
            let named = self.points.iter();
            let named = named.map(|point| (Value::from(point.name.as_str()), point.set.clone()));
            return named.collect();
        }
        let mut values = match self.range() {
            None => self.values.clone(),
            Some(_) => {
                let steps = self.steps.unwrap_or(5);
                let share = |nth| f64::from(nth) / f64::from(steps - 1);
                (0..steps).map(|nth| self.along(share(nth))).collect()
            }
        };
        // Adjacent values may round to the same integer.
        values.dedup();
        values
            .into_iter()
            .map(|value| self.setting(value))
            .collect()
    }
}

impl Sweep {
    /// Parses the file of a sweep, and checks every task.
    ///
    /// # Errors
    /// Describes the error and its place.
    pub fn parse(text: &str) -> Result<Sweep, ParseError> {
        let file: File = toml::from_str(text).map_err(|error| ParseError::of_toml(text, &error))?;
        let wrong =
            |why: String, word: &str| ParseError::new(text, why, find(text, 0..text.len(), word));
        let mut axes = file.axis;
        for (nth, axis) in axes.iter_mut().enumerate() {
            axis.name_by_key();
            if let Some(why) = axis.wrong() {
                let word = if axis.key.is_empty() {
                    &axis.name
                } else {
                    &axis.key
                };
                let part = section(text, "[[axis]]", nth);
                let why = format!("axis {}: {why}", axis.name);
                return Err(ParseError::new(text, why, find(text, part, word)));
            }
        }
        let names: BTreeSet<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        if names.len() < axes.len() || names.contains("") {
            return Err(wrong("each axis needs a name of its own".into(), "axis"));
        }
        let tasks = tasks(&file.setting, &axes, file.sample).map_err(|error| {
            let key = error.key.as_deref().unwrap_or("setting");
            wrong(error.why.clone(), key.rsplit('.').next().unwrap_or(key))
        })?;
        let sweep = Sweep {
            title: file.title,
            axes,
            sample: file.sample,
            map: file.map,
            tasks,
        };
        if let Some(map) = &sweep.map {
            sweep.check_map(map).map_err(|why| wrong(why, "map"))?;
        }
        Ok(sweep)
    }

    /// The axis called `name`.
    ///
    /// # Errors
    /// There is no such axis; suggests a similar name.
    pub fn axis(&self, name: &str) -> Result<&Axis, String> {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let found = self.axes.iter().find(|axis| axis.name == name);
        found.ok_or_else(|| flagstone_lab::no_such("axis", name, &names))
    }

    /// The name of the competitors' axis.
    ///
    /// # Errors
    /// The sweep has no such axis.
    pub fn contenders(&self, map: &MapSpec) -> Result<&str, String> {
        if let Some(name) = &map.of {
            return Ok(&self.axis(name)?.name);
        }
        let found = self.axes.iter().find(|axis| {
            let last = axis.key.as_str();
            ["protocol", "stack", "index"].contains(&last)
        });
        let found = found.map(|axis| axis.name.as_str());
        found.ok_or_else(|| {
            "a map shows who wins, and no axis is `protocol`, `stack` or `index`: name the axis of \
             those that compete as `of` in [map]"
                .into()
        })
    }

    /// Checks whether a map can be drawn.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_map(&self, map: &MapSpec) -> Result<(), String> {
        let of = self.contenders(map)?;
        let (x, y) = (&self.axis(&map.x)?.name, &self.axis(&map.y)?.name);
        if x == y || x == of || y == of {
            return Err(format!(
                "a map needs three axes, and {x}, {y} and {of} are not"
            ));
        }
        if !(0.0..1.0).contains(&map.margin) {
            return Err(format!(
                "the margin must be a share of the first, not {}",
                map.margin
            ));
        }
        Ok(())
    }
}

/// All tasks. Identical points give one task.
fn tasks(
    setting: &Table,
    axes: &[Axis],
    sample: Option<SampleSpec>,
) -> Result<Vec<Task>, RunError> {
    let fail = |why: String| RunError {
        key: Some("sample".into()),
        why,
    };
    let is_sampled = |axis: &&Axis| sample.is_some() && axis.from.is_some();
    let sampled: Vec<&Axis> = axes.iter().filter(is_sampled).collect();
    let listed: Vec<&Axis> = axes.iter().filter(|axis| !is_sampled(axis)).collect();
    let steps: Vec<Vec<(Value, Table)>> = listed.iter().map(|axis| axis.steps()).collect();
    let points = match sample {
        None => 1,
        Some(_) if sampled.is_empty() => {
            return Err(fail("a sample needs an axis with `from` and `to`".into()));
        }
        Some(_) if sampled.len() > DIMENSIONS_MAX => {
            return Err(fail(format!("a sample has at most {DIMENSIONS_MAX} axes")));
        }
        Some(spec) if spec.points == 0 || spec.points > SAMPLE_MAX => {
            let why = format!(
                "a sample must have 1 to {SAMPLE_MAX} points, not {}",
                spec.points
            );
            return Err(fail(why));
        }
        Some(spec) => spec.points,
    };
    let grid = steps
        .iter()
        .try_fold(1u64, |all, one| all.checked_mul(one.len() as u64));
    let all = grid.and_then(|grid| grid.checked_mul(points.into()));
    if all.is_none_or(|all| all > TASKS_MAX) {
        let why = format!("the sweep has more than {TASKS_MAX} tasks: use fewer values or points");
        return Err(RunError {
            key: Some("axis".into()),
            why,
        });
    }
    let (mut tasks, mut known) = (Vec::new(), BTreeSet::new());
    for point in 0..points {
        let (mut under, mut at) = (setting.clone(), BTreeMap::new());
        for (dimension, axis) in sampled.iter().enumerate() {
            let seed = sample.map_or(1, |spec| spec.seed);
            let value = axis.sampled(unit(point, dimension, seed));
            put(&mut under, &axis.key, value.clone());
            at.insert(axis.name.clone(), value);
        }
        for mut nth in 0..grid.unwrap_or(0) {
            let (mut settings, mut at) = (under.clone(), at.clone());
            // The digits of `nth` choose a step of each listed axis; the last axis varies fastest.
            let mut chosen = Vec::new();
            for (axis, steps) in listed.iter().zip(&steps).rev() {
                let all = steps.len() as u64;
                chosen.push((axis, &steps[(nth % all) as usize]));
                nth /= all;
            }
            for (axis, (value, table)) in chosen.into_iter().rev() {
                lay(&mut settings, table);
                at.insert(axis.name.clone(), value.clone());
            }
            let task = Task::new(settings, at.clone()).map_err(|error| RunError {
                why: format!("{}: {}", words(&at), error.why),
                ..error
            })?;
            if known.insert((task.hash.clone(), words(&task.at))) {
                tasks.push(task);
            }
        }
    }
    Ok(tasks)
}

fn words(at: &BTreeMap<String, Value>) -> String {
    let each = at
        .iter()
        .map(|(name, value)| format!("{name} {}", word(value)));
    each.collect::<Vec<_>>().join(", ")
}
