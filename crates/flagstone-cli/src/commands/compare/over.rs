//! `flagstone compare --over`: makes the comparison at each point of a grid, and shows which
//! protocol wins where.

mod axis;
mod page;

pub(super) use axis::{Axis, Setting};

use super::report::{Failed, Outcome};
use super::table::{csv, whole, width, wrap};
use super::{Args, Comparison, checks, output};
use crate::commands::winners::{self, Cell, Winners, table};
use crate::commands::{Failure, NOT_DONE, note, runs, say};
use axis::set;
use flagstone_lab::effort::Effort;
use flagstone_lab::ranking::{Figure, Measured, Row, Standing, millis};
use flagstone_lab::replay::ReplayRecord;
use flagstone_papers::sweep::Side;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// A point of the grid and its measurements.
struct Point {
    /// The value on each axis.
    at: Vec<f64>,
    rows: Vec<Row<ReplayRecord>>,
    /// The winners: the first protocol, and those that are not clearly behind it.
    winners: Vec<String>,
}

impl Point {
    fn new(at: Vec<f64>, rows: Vec<Row<ReplayRecord>>) -> Point {
        let near = Standing::of(&rows).near();
        let winners = near.iter().map(|row| row.name().to_string()).collect();
        Point { at, rows, winners }
    }

    fn row(&self, protocol: &str) -> Option<&Row<ReplayRecord>> {
        self.rows.iter().find(|row| row.name() == protocol)
    }
}

/// All points of a grid, ordered by the first axis and then by the second.
struct Grid<'a> {
    axes: &'a [Axis],
    points: Vec<Point>,
    by: Figure,
    /// The protocols, in the order of the arguments.
    protocols: Vec<String>,
    /// Describes what was compared, in one line.
    about: String,
    seeds: u64,
}

/// Makes the comparison at each point of the grid and prints all of them. A protocol that does not
/// support the options of a point is left out there.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let axes = &args.over;
    axis::check(args, axes)?;
    // Each point has a value of every axis; the last axis varies fastest.
    let mut places: Vec<Vec<f64>> = vec![Vec::new()];
    for axis in axes {
        let longer = |place: &Vec<f64>| {
            let each = axis.values.iter();
            let each = each.map(|&value| [place.clone(), vec![value]].concat());
            each.collect::<Vec<_>>()
        };
        places = places.iter().flat_map(longer).collect();
    }
    // Check the arguments of all points before the first run.
    let points: Vec<(Vec<f64>, Args)> = places
        .into_iter()
        .map(|place| (place.clone(), set(args, axes, &place)))
        .collect();
    for (place, args) in &points {
        checks::options(args).map_err(|failure| of_point(axes, place, failure))?;
    }
    let mut grid = Grid {
        axes,
        points: Vec::new(),
        by: Figure::Rate,
        protocols: Vec::new(),
        about: String::new(),
        seeds: args.seeds.unwrap_or(1),
    };
    let (left_out, failed) = runs::watched("comparing", || grid.measure(&points))?;
    left_out.iter().for_each(|why| note(why));
    if grid.points.iter().all(|point| point.rows.is_empty()) {
        return Err(Failure::Usage("no protocol supports these options".into()));
    }
    if let Some(path) = &args.html {
        output(args, path)?.write(page::page(&grid).as_bytes())?;
    }
    print(args, &mut grid);
    Ok(if failed {
        ExitCode::from(NOT_DONE)
    } else {
        ExitCode::SUCCESS
    })
}

impl<'a> Grid<'a> {
    /// Runs the comparison at all points. Returns a note for each refusal, and whether a
    /// run failed.
    fn measure(
        &mut self,
        points: &'a [(Vec<f64>, Args)],
    ) -> Result<(BTreeSet<String>, bool), Failure> {
        let axes = self.axes;
        let (mut left_out, mut failed) = (BTreeSet::new(), false);
        let effort = Effort::current();
        let mut last: Option<Comparison<'_>> = None;
        for (done, (place, args)) in points.iter().enumerate() {
            let comparison = Comparison::after(args, last.as_ref());
            let comparison = comparison.map_err(|failure| of_point(axes, place, failure))?;
            // The plan has as much for each later point as for the first. A point drops its share,
            // since its runs plan their own.
            let to_come = (points.len() - done) as u64;
            match done {
                0 => {
                    checks::page_sizes(comparison.sizes);
                    effort.plan((to_come - 1) * comparison.effort());
                }
                _ => effort.drop((effort.planned() - effort.done()) / to_come),
            }
            let (mut rows, mut why) = (Vec::new(), Failed::default());
            let outcomes = comparison.run();
            let all = outcomes.len();
            for Outcome { of, ended } in outcomes {
                let name = of.to_string();
                let ended: Result<Vec<ReplayRecord>, _> = ended.into_iter().collect();
                match ended {
                    Ok(runs) => rows.push(Row { runs }),
                    Err(error) if error.is_refusal() => {
                        left_out.insert(format!("left out: {error}"));
                    }
                    Err(error) => {
                        failed = true;
                        why.add(name.clone(), format!("at {}: {error}", at(axes, place)));
                    }
                }
                if !self.protocols.contains(&name) {
                    self.protocols.push(name);
                }
            }
            why.note(all);
            if let Some(row) = rows.first() {
                self.by = Standing::of(&rows).by;
                let fill = (!axis::names(axes, Setting::Fill)).then_some(row.runs[0].fill);
                let device = super::about(&comparison.device, fill);
                self.about = format!("{}, on {device}", row.runs[0].trace);
            }
            self.points.push(Point::new(place.clone(), rows));
            last = Some(comparison);
        }
        Ok((left_out, failed))
    }
}

/// Describes the location of a point.
fn at(axes: &[Axis], place: &[f64]) -> String {
    let each = axes.iter().zip(place);
    let each = each.map(|(axis, value)| format!("{} {value}", axis.setting.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// Adds the location of the point to a failure.
fn of_point(axes: &[Axis], place: &[f64], failure: Failure) -> Failure {
    let with = |text: String| format!("at {}: {text}", at(axes, place));
    match failure {
        Failure::Usage(text) => Failure::Usage(with(text)),
        Failure::Failed(text) => Failure::Failed(with(text)),
    }
}

/// Prints the grid: records for programs, a row for each point of one axis, or a map for two.
fn print(args: &Args, grid: &mut Grid<'_>) {
    if !args.timing {
        let rows = grid.points.iter_mut().flat_map(|point| &mut point.rows);
        rows.flat_map(|row| &mut row.runs)
            .for_each(Measured::forget_timing);
    }
    if args.json || args.csv {
        return for_programs(args, grid);
    }
    let lines = match grid.axes.len() {
        1 => grid.lines(args.markdown),
        _ => grid.map().text(args.markdown),
    };
    if args.markdown {
        return lines.iter().for_each(|line| say(line));
    }
    let text = |text: &str| wrap(text, width()).iter().for_each(|line| say(line));
    text(&grid.about);
    text(&grid.title());
    say("");
    lines.iter().for_each(|line| say(line));
    say("");
    text(&match grid.axes.len() {
        1 => grid.legend(),
        _ => format!(
            "{} --json has all figures, --html draws them.",
            grid.legend()
        ),
    });
    text(&grid.verdict());
}

/// Prints a record for each run, with its location on the grid.
fn for_programs(args: &Args, grid: &Grid<'_>) {
    let of_point = |point: &Point| -> serde_json::Map<String, serde_json::Value> {
        let each = grid.axes.iter().zip(&point.at);
        each.map(|(axis, &value)| (axis.setting.name().to_string(), value.into()))
            .collect()
    };
    if args.json {
        for point in &grid.points {
            for run in point.rows.iter().flat_map(|row| &row.runs) {
                let mut value = serde_json::to_value(run).expect("records have plain fields");
                value["over"] = of_point(point).into();
                say(&value.to_string());
            }
        }
        return;
    }
    let runs: Vec<&ReplayRecord> = grid
        .points
        .iter()
        .flat_map(|point| point.rows.iter().flat_map(|row| &row.runs))
        .collect();
    let mut places = Vec::new();
    for point in &grid.points {
        let values: Vec<String> = point.at.iter().map(f64::to_string).collect();
        let count = point.rows.iter().map(|row| row.runs.len()).sum();
        places.extend(std::iter::repeat_n(values.join(","), count));
    }
    let names = grid.axes.iter().map(|axis| axis.setting.name());
    let names: Vec<String> = names.map(|name| format!("over.{name}")).collect();
    places.insert(0, names.join(","));
    for (place, line) in places.iter().zip(csv(&runs, ReplayRecord::STRUCTURES)) {
        say(&format!("{place},{line}"));
    }
}

impl Grid<'_> {
    fn figure(&self, row: &Row<ReplayRecord>) -> f64 {
        row.mean(|run| self.by.of(run))
    }

    /// A formatted figure with its mark: `*` for the first, `~` for one not clearly behind, `!` for
    /// one that is saturated; `-` for one that commits nothing.
    fn cell(&self, point: &Point, protocol: &str) -> String {
        let Some(row) = point.row(protocol).filter(|row| row.commits()) else {
            return "-".into();
        };
        let figure = self.figure(row);
        let text = match self.by {
            Figure::Rate => whole(figure),
            Figure::Tail => millis(figure),
        };
        match point.winners.iter().position(|name| name == protocol) {
            _ if row.is_saturated() => format!("{text}!"),
            Some(0) => format!("{text}*"),
            Some(_) => format!("{text}~"),
            None => format!("{text} "),
        }
    }

    /// A table for a grid of one axis: a line for each value, a column for each protocol.
    fn lines(&self, markdown: bool) -> Vec<String> {
        let mut head = vec![self.axes[0].setting.name().to_string()];
        head.extend(self.protocols.iter().cloned());
        let line = |point: &Point| {
            let mut cells = vec![point.at[0].to_string()];
            cells.extend(self.protocols.iter().map(|name| self.cell(point, name)));
            cells
        };
        let lines: Vec<Vec<String>> = self.points.iter().map(line).collect();
        table(head, &lines, markdown)
    }

    /// A map for a grid of two axes: the winners at each point.
    fn map(&self) -> Winners<'_> {
        let [down, across] = self.axes else {
            unreachable!("a grid has one axis or two")
        };
        let side = |axis: &Axis| Side {
            name: axis.setting.name().to_string(),
            values: axis.values.iter().map(f64::to_string).collect(),
        };
        let cell = |point| {
            let figures = self.protocols.iter();
            let figures = figures.map(|name| format!("{name} {}", self.cell(point, name).trim()));
            Cell {
                winners: &point.winners,
                hint: figures.collect::<Vec<_>>().join("\n"),
            }
        };
        Winners {
            down: side(down),
            across: side(across),
            names: &self.protocols,
            cells: self.points.iter().map(cell).collect(),
        }
    }

    fn title(&self) -> String {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.setting.name()).collect();
        format!("{} over {}", self.by.name(), names.join(" and "))
    }

    /// Explains the marks of cells.
    fn legend(&self) -> String {
        let by = match self.seeds {
            1 => format!(
                "within {:.0} % of the first, which another seed may change",
                self.by.margin() * 100.0
            ),
            seeds => format!("ranges over {seeds} seeds that overlap"),
        };
        match self.axes.len() {
            1 => format!(
                "*: the first; ~: tied with it ({by}); !: saturated, more transactions arrive than \
                 complete. plain has no atomic transactions and is never first."
            ),
            _ => format!(
                "The first of each point, and how many tie with it ({by}). plain has no atomic \
                 transactions and is never first."
            ),
        }
    }

    /// Says at how many points each protocol wins.
    fn verdict(&self) -> String {
        let points = self.points.iter();
        let points: Vec<&[String]> = points.map(|point| &point.winners[..]).collect();
        winners::verdict(&self.protocols, &points)
    }
}
