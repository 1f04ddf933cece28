//! Experiments as data: one TOML file per paper, in which each figure defines a sweep, series and a
//! metric.
//!
//! A point of a figure is one run. Its settings are the paper's `setting`, then `quick` or `full`,
//! then those of the figure, the series and the point, each overriding earlier ones. Points with
//! equal settings, in any figures, share one run.

use super::engine::{AnyRun, RunError, Settings};
use super::measure::{Data, Point, Reading, Term};
use flagstone_lab::nearest;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use toml::{Table, Value};

/// The size of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Shorter windows and scaled devices: a few minutes in total.
    Quick,
    /// The papers' sizes.
    Full,
}

impl Mode {
    /// The name in files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Quick => "quick",
            Mode::Full => "full",
        }
    }
}

/// The experiments of one paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Key of the paper: the first part of its claims' ids.
    pub paper: String,
    /// The paper's name in tables; empty to use the key.
    #[serde(default)]
    pub name: String,
    /// Its title.
    pub title: String,
    /// Authors, venue and year.
    pub cite: String,
    /// Decisions of this file that the paper leaves open, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The choices that decide the verdicts on the paper's claims.
    #[serde(default)]
    pub decides: Vec<Decides>,
    /// Common settings of all runs.
    pub setting: Table,
    /// Settings for `--quick`.
    #[serde(default)]
    pub quick: Table,
    /// Settings for `--full`.
    #[serde(default)]
    pub full: Table,
    /// Figures and tables.
    pub figure: Vec<Spec>,
    /// Settings that override all others in some of the runs; not in files.
    #[serde(skip)]
    pub over: Vec<Over>,
}

/// Something that decides verdicts: a choice, or a property of the model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decides {
    /// The name by which claims refer to it.
    pub id: String,
    /// The choice or property.
    pub what: String,
    /// Its effect.
    pub says: String,
}

/// Settings that override those of a figure, its series and its sweep, in runs that match a
/// condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Over {
    /// Settings that a run must have; a list stands for any of its values.
    pub only: Table,
    /// The overriding settings.
    pub set: Table,
}

/// Whether a table has all settings of another one.
fn has(table: &Table, asked: &Table) -> bool {
    asked
        .iter()
        .all(|(key, asked)| match (table.get(key), asked) {
            (Some(Value::Table(own)), Value::Table(asked)) => has(own, asked),
            (Some(own), Value::Array(any)) => any.contains(own),
            (own, asked) => own == Some(asked),
        })
}

/// One figure or table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its id, such as `fig7`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its place in the paper.
    #[serde(rename = "where")]
    pub place: String,
    /// The metric of the engine, see [`super::engine`].
    pub metric: String,
    /// Label of the y axis, with its unit.
    pub y: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The series.
    pub series: Axis,
    /// Settings of the figure.
    #[serde(default)]
    pub set: Table,
    /// Settings of the figure for `--quick`.
    #[serde(default)]
    pub quick: Table,
    /// Settings of the figure for `--full`.
    #[serde(default)]
    pub full: Table,
    /// The point that all others are divided by.
    pub normalise: Option<String>,
    /// Bars or lines.
    pub chart: Chart,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// How to draw a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// One group of bars per point of the sweep.
    Bars,
    /// One line per series.
    Lines,
}

/// The values of an axis or of the series: of one key, or named points that set several keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axis {
    /// Label, with unit.
    pub label: String,
    /// The key that gets the values; dots lead into tables.
    pub key: Option<String>,
    /// The values of the key.
    pub values: Vec<Value>,
    /// Named points.
    pub points: Vec<Named>,
}

/// A point that sets several keys.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub set: Table,
}

impl Axis {
    /// Names and settings of the points.
    fn steps(&self) -> Vec<(String, Table)> {
        let of = |value: &Value| {
            let mut table = Table::new();
            put(&mut table, self.key.as_deref().unwrap_or(""), value.clone());
            (word(value), table)
        };
        let values = self.values.iter().map(of);
        let named = self
            .points
            .iter()
            .map(|point| (point.name.clone(), point.set.clone()));
        values.chain(named).collect()
    }
}

/// A value without quotes.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// The value that [`word`] prints as this text.
pub(crate) fn value_of(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    if let Ok(number) = text.parse::<f64>() {
        return number.into();
    }
    match text.parse::<bool>() {
        Ok(flag) => flag.into(),
        Err(_) => text.into(),
    }
}

/// Sets the value of a key; dots lead into tables.
pub(crate) fn put(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.into(), value);
        }
        Some((outer, inner)) => {
            let slot = table
                .entry(outer)
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(table) = slot {
                put(table, inner, value);
            }
        }
    }
}

/// Merges `over` into `under`, overriding existing values.
pub(crate) fn lay(under: &mut Table, over: &Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => lay(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A point of a figure: its run, and the metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The series.
    pub series: String,
    /// The point of the sweep.
    pub x: String,
    /// The run.
    pub run: AnyRun,
    /// The metric.
    pub metric: String,
}

impl Experiment {
    /// The paper's name in tables.
    pub fn name(&self) -> &str {
        match self.name.as_str() {
            "" => &self.paper,
            name => name,
        }
    }

    /// Parses a file of experiments, and checks all settings.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Experiment, ParseError> {
        let experiment: Experiment =
            toml::from_str(text).map_err(|error| ParseError::of_toml(text, &error))?;
        for (index, spec) in experiment.figure.iter().enumerate() {
            let what = |why: &str| format!("figure {}: {why}", spec.id);
            let own = section(text, "[[figure]]", index);
            if spec.x.steps().is_empty() || spec.series.steps().is_empty() {
                let why = what("x and series need a key with values, or points");
                let at = find(text, own.clone(), &spec.id);
                return Err(ParseError::new(text, why, at));
            }
            for mode in [Mode::Quick, Mode::Full] {
                experiment.cells(spec, mode).map_err(|error| {
                    let key = error.key.as_deref();
                    let key = key.map(|key| key.rsplit('.').next().unwrap_or(key));
                    let at = key.and_then(|key| {
                        find(text, own.clone(), key).or_else(|| find(text, 0..text.len(), key))
                    });
                    ParseError::new(text, what(&error.why), at)
                })?;
            }
        }
        Ok(experiment)
    }

    /// The points of a figure, series by series. Settings of the file, the size, the figure, the
    /// series and the point override each other in this order; `over` entries that apply come last.
    ///
    /// # Errors
    /// A setting is unknown to every engine.
    pub fn cells(&self, spec: &Spec, mode: Mode) -> Result<Vec<Cell>, RunError> {
        let mut cells = Vec::new();
        for (series, of_series) in spec.series.steps() {
            for (x, of_x) in spec.x.steps() {
                let mut table = self.setting.clone();
                let (size, own_size) = match mode {
                    Mode::Quick => (&self.quick, &spec.quick),
                    Mode::Full => (&self.full, &spec.full),
                };
                for over in [size, &spec.set, own_size, &of_series, &of_x] {
                    lay(&mut table, over);
                }
                let own = self.over.iter().filter(|over| has(&table, &over.only));
                let sets: Vec<&Table> = own.map(|over| &over.set).collect();
                sets.into_iter().for_each(|set| lay(&mut table, set));
                let metric = match table.remove("metric") {
                    Some(metric) => word(&metric),
                    None => spec.metric.clone(),
                };
                let run = Settings(table).run()?;
                let series = series.clone();
                cells.push(Cell {
                    series,
                    x,
                    run,
                    metric,
                });
            }
        }
        Ok(cells)
    }
}

impl Spec {
    /// The data of a figure, from the metrics of the runs.
    pub fn data(&self, cells: &[Cell], reading: &dyn Fn(&Cell) -> Option<Reading>) -> Data {
        let mut data = Data::default();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for cell in cells {
            let next = places.len();
            let place = *places.entry(&cell.x).or_insert(next);
            let reading = reading(cell);
            let point = Point {
                name: cell.x.clone(),
                x: cell.x.parse().unwrap_or(place as f64),
                y: reading.map(|reading| reading.value),
                events: reading.and_then(|reading| reading.events),
            };
            match data
                .series
                .iter_mut()
                .find(|(name, _)| *name == cell.series)
            {
                Some((_, points)) => points.push(point),
                None => data.series.push((cell.series.clone(), vec![point])),
            }
        }
        // The point by which all others are divided.
        let one = self.normalise.as_deref().and_then(|term| {
            let (series, at) = term.split_once('@').unwrap_or((term, ""));
            let at = (!at.is_empty()).then(|| at.to_string());
            data.value(&Term {
                series: series.into(),
                at,
            })
        });
        if let Some(one) = one {
            for point in data.series.iter_mut().flat_map(|(_, points)| points) {
                point.y = point.y.map(|y| y / one);
            }
        }
        data
    }
}

/// Why a file of experiments is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// What is wrong.
    pub why: String,
    /// A suggested correction.
    pub help: Option<String>,
    /// Byte range of the error in the text.
    pub at: Option<Range<usize>>,
    /// The start of `at` as line and column, from 1.
    place: Option<(usize, usize)>,
}

impl ParseError {
    pub(crate) fn new(text: &str, why: String, at: Option<Range<usize>>) -> ParseError {
        let place = at.as_ref().map(|at| {
            let before = &text[..at.start];
            let line = before.rfind('\n').map_or(0, |end| end + 1);
            let number = before.matches('\n').count() + 1;
            (number, before[line..].chars().count() + 1)
        });
        ParseError {
            why,
            help: None,
            at,
            place,
        }
    }

    /// The parser names a wrong key between backquotes, and then lists the valid ones.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> ParseError {
        let message = error.message();
        let mut names = message.split('`').skip(1).step_by(2);
        let meant = match (message.starts_with("unknown"), names.next()) {
            (true, Some(wrong)) => nearest(wrong, &names.collect::<Vec<_>>()),
            _ => None,
        };
        let why = message.trim_end().replace('\n', "; ");
        ParseError {
            help: meant.map(|name| format!("did you mean `{name}`?")),
            ..ParseError::new(text, why, error.span())
        }
    }
}

impl ParseError {
    /// Place and reason, without the suggestion.
    pub fn without_help(&self) -> String {
        match self.place {
            Some((line, column)) => format!("line {line}, column {column}: {}", self.why),
            None => self.why.clone(),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_help())?;
        self.help
            .as_ref()
            .map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl std::error::Error for ParseError {}

/// The byte range of the `nth` part of the text that begins with the line `head`.
pub(crate) fn section(text: &str, head: &str, nth: usize) -> Range<usize> {
    let starts = |(at, _): &(usize, &str)| *at == 0 || text[..*at].ends_with('\n');
    let mut heads = text.match_indices(head).filter(starts).map(|(at, _)| at);
    let start = heads.nth(nth).unwrap_or(0);
    start..heads.next().unwrap_or(text.len())
}

/// The first occurrence of a word in a part of a text, ignoring comments.
pub(crate) fn find(text: &str, part: Range<usize>, word: &str) -> Option<Range<usize>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut at = part.start;
    for line in text[part].split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        for (within, _) in code.match_indices(word) {
            let (before, after) = (&code[..within], &code[within + word.len()..]);
            if !before.ends_with(is_word) && !after.starts_with(is_word) {
                return Some(at + within..at + within + word.len());
            }
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
paper = "p"
title = "t"
cite = "c"
[setting]
engine = "replay"
trace = "t.parquet"
device = { preset = "small" }
clients = 4
fill = 0.5
overwrite = false
[quick]
transactions = 100
[[figure]]
id = "fig1"
title = "f"
where = "1"
metric = "throughput_tps"
y = "tx/s"
chart = "lines"
x = { label = "abort ratio", key = "abort_ratio", values = [0.0, 0.5] }
series = { key = "protocol", values = ["aw", "scc"] }
"#;

    fn read(value: f64) -> Reading {
        Reading {
            value,
            events: None,
        }
    }

    #[test]
    fn a_figure_is_a_run_for_each_series_and_point() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let spec = &experiment.figure[0];
        let quick = experiment.cells(spec, Mode::Quick).unwrap();
        let names: Vec<String> = quick
            .iter()
            .map(|c| format!("{} {}", c.series, c.x))
            .collect();
        assert_eq!(names, ["aw 0", "aw 0.5", "scc 0", "scc 0.5"]);
        let full = experiment.cells(spec, Mode::Full).unwrap();
        assert_ne!(quick[0].run, full[0].run);
        let data = spec.data(&quick, &|cell| (cell.series == "scc").then(|| read(2.0)));
        assert_eq!(data.points("aw").unwrap()[1].y, None);
        assert_eq!(data.points("scc").unwrap()[1].x, 0.5);
    }

    #[test]
    fn a_wrong_key_is_said_with_its_line() {
        let wrong = |from: &str, to: &str| {
            let text = TEXT.replace(from, to);
            let error = Experiment::parse(&text).unwrap_err();
            let at = error.at.clone().unwrap();
            (error.to_string(), text[at].to_string())
        };
        let (error, at) = wrong("clients", "client");
        assert!(error.starts_with("line 9, column 1: "), "{error}");
        assert!(error.contains("did you mean `clients`"), "{error}");
        assert_eq!(at, "client");
        let (error, at) = wrong("\"abort_ratio\"", "\"abort_rate\"");
        assert!(error.starts_with("line 21, column 37: "), "{error}");
        assert_eq!(at, "abort_rate");
        let (error, at) = wrong("chart", "chat");
        assert!(error.starts_with("line 20, column 1: "), "{error}");
        assert!(error.ends_with("did you mean `chart`?"), "{error}");
        assert_eq!(at, "chat");
        let (error, _) = wrong("preset =", "presets =");
        assert!(error.starts_with("line 8, column 12: "), "{error}");
        let (error, at) = wrong("\"scc\"", "\"sccc\"");
        assert!(error.contains("did you mean `scc`"), "{error}");
        assert_eq!(at, "sccc");
        // Of two figures, the wrong one is reported.
        let more = TEXT.split_once("[[figure]]").unwrap().1;
        let text = format!("{TEXT}[[figure]]{}", more.replace("\"aw\"", "\"awe\""));
        let error = Experiment::parse(&text).unwrap_err();
        assert!(error.to_string().starts_with("line 31, "), "{error}");
        let error = Experiment::parse("paper = ").unwrap_err();
        assert!(
            error.to_string().starts_with("line 1, column 9: "),
            "{error}"
        );
    }

    #[test]
    fn normalised_figures_are_divided_by_one_point() {
        let text = format!("{TEXT}normalise = \"aw@0\"\n");
        let experiment = Experiment::parse(&text).unwrap();
        let spec = &experiment.figure[0];
        let cells = experiment.cells(spec, Mode::Full).unwrap();
        let data = spec.data(&cells, &|cell| {
            Some(read(if cell.series == "aw" { 4.0 } else { 6.0 }))
        });
        assert_eq!(data.points("scc").unwrap()[0].y, Some(1.5));
    }
}
