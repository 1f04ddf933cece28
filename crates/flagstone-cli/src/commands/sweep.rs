//! `flagstone sweep`: varies a configuration over several settings, keeps a result file for each
//! task, and maps which protocol wins where.

use super::compare::page::{paragraphs, whole};
use super::winners::{self, Cell, Winners, table};
use super::{Failure, runs, say};
use flagstone_lab::chart::escape;
use flagstone_lab::output::Output;
use flagstone_papers::sweep::{self, Kept, Map, MapCell, MapSpec, Sweep, Task, Tasked};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// Run a configuration over a grid or a Sobol sample of its settings, and map which protocol wins
/// where.
///
/// Each task has a result file below DIR, named by a hash of its configuration. An interrupted
/// sweep continues where it stopped. A truncated or modified result file is an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sweep: a TOML file like those in crates/flagstone-papers/sweeps.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder for the result files.
    #[arg(long, value_name = "DIR", default_value = "sweep")]
    out: PathBuf,
    /// List the tasks, each with the name of its result file, and run nothing; with --json as JSON
    /// objects.
    #[arg(long, conflicts_with_all = ["out", "threads", "map", "html"])]
    list: bool,
    /// Run only this task; may be repeated.
    #[arg(long, value_name = "HASH", conflicts_with_all = ["list", "map", "html"])]
    only: Vec<String>,
    /// Map the winners over these two axes, instead of those in the sweep file.
    #[arg(long, value_name = "X,Y")]
    map: Option<Over>,
    /// Also write the map to this file, a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of threads [default: one per core]. Does not affect the results.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Print one JSON object per task, one per line.
    #[arg(long)]
    json: bool,
}

/// The two axes of a map.
#[derive(Debug, Clone)]
struct Over {
    x: String,
    y: String,
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Over, String> {
        match text.split_once(',') {
            Some((x, y)) if !x.is_empty() && !y.is_empty() && !y.contains(',') => Ok(Over {
                x: x.into(),
                y: y.into(),
            }),
            _ => Err("must be two axes, such as clients,abort_ratio".into()),
        }
    }
}

/// Runs the tasks of a sweep that have no result yet, and prints results and the map. `--only`
/// selects tasks, whose results make no map.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut sweep = runs::read(&args.file, Sweep::parse)?;
    let map = map_of(args, &sweep)?;
    if args.list {
        for task in &sweep.tasks {
            if args.json {
                say(&task.json())
            } else {
                say(&format!("{}  {}", task.hash, task.place()))
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !args.only.is_empty() {
        let is_known = |hash: &&String| sweep.tasks.iter().any(|task| task.hash == **hash);
        if let Some(hash) = args.only.iter().find(|hash| !is_known(hash)) {
            let file = args.file.display();
            let why = format!("there is no task `{hash}` in {file}; --list lists all tasks");
            return Err(Failure::Usage(why));
        }
        sweep.tasks.retain(|task| args.only.contains(&task.hash));
    }
    let traces: Vec<&Path> = sweep
        .tasks
        .iter()
        .filter_map(|task| task.run().input())
        .collect();
    let page = args.html.as_ref().map(|path| {
        let inputs = [&traces[..], &[&args.file]].concat();
        Output::new(path, &inputs)
    });
    let page = page.transpose()?;
    let threads = runs::threads(args.threads);
    let results = runs::watched("sweeping", || {
        sweep::run(&sweep, threads, &args.out, &runs::unheard)
    });
    let results = results.map_err(Failure::Failed)?;
    if args.json {
        for (task, kept) in sweep.tasks.iter().zip(&results) {
            say(&record(task, kept));
        }
    }
    let drawn = map.filter(|_| args.only.is_empty());
    let Some(spec) = drawn else {
        if !args.json {
            lines(&sweep, &results).iter().for_each(|line| say(line));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let map = Map::of(&sweep, &spec, &results).map_err(Failure::Usage)?;
    let drawing = Drawing {
        title: format!(
            "{}: {} over {} and {}",
            sweep.title, spec.metric, spec.x, spec.y
        ),
        winners: winners_of(&map),
        legend: legend(&sweep, &spec, &map),
        map: &map,
    };
    if let Some(page) = page {
        page.write(drawing.page().as_bytes())?;
    }
    if !args.json {
        say(&drawing.title);
        say("");
        drawing
            .winners
            .text(false)
            .iter()
            .for_each(|line| say(line));
        say("");
        say(&drawing.legend);
        say(&drawing.verdict());
    }
    Ok(ExitCode::SUCCESS)
}

/// The map that the arguments or the sweep file ask for.
fn map_of(args: &Args, sweep: &Sweep) -> Result<Option<MapSpec>, Failure> {
    let spec = match (&args.map, &sweep.map) {
        (None, None) if args.html.is_some() => {
            return Err(Failure::Usage(
                "--html draws a map: give its axes with --map X,Y".into(),
            ));
        }
        (None, of_file) => of_file.clone(),
        (Some(over), of_file) => Some(MapSpec {
            x: over.x.clone(),
            y: over.y.clone(),
            ..of_file.clone().unwrap_or_default()
        }),
    };
    if let Some(spec) = &spec {
        sweep
            .check_map(spec)
            .map_err(|why| Failure::Usage(format!("--map: {why}")))?;
    }
    Ok(spec)
}

/// A result as JSON: the varied settings, and the outcome.
fn record(task: &Task, kept: &Kept) -> String {
    let mut record = json!({ "task": task.hash, "at": task.at });
    match &kept.result {
        Tasked::Metrics(metrics) => record["metrics"] = json!(metrics),
        Tasked::Refused(why) => record["refused"] = json!(why),
    }
    record.to_string()
}

/// A line of text for each task, for sweeps without a map.
fn lines(sweep: &Sweep, results: &[Kept]) -> Vec<String> {
    let metric = MapSpec::default().metric;
    let mut head: Vec<String> = sweep.axes.iter().map(|axis| axis.name.clone()).collect();
    head.extend([metric.clone(), "task".into()]);
    let line = |(task, kept): (&Task, &Kept)| {
        let mut cells: Vec<String> = sweep
            .axes
            .iter()
            .map(|axis| task.value(&axis.name))
            .collect();
        cells.push(match kept.metric(&metric) {
            Some(figure) => format!("{figure:.1}"),
            None => "-".into(),
        });
        cells.push(task.hash.clone());
        cells
    };
    let lines: Vec<Vec<String>> = sweep.tasks.iter().zip(results).map(line).collect();
    let mut lines = table(head, &lines, false);
    lines.push(format!(
        "\n{} tasks; --json has all metrics, --map shows who wins",
        results.len()
    ));
    lines
}

/// A map that is ready to be drawn.
struct Drawing<'a> {
    title: String,
    winners: Winners<'a>,
    legend: String,
    map: &'a Map,
}

fn figure(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| {
        if value.abs() >= 100.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.3}")
        }
    })
}

/// A map for printing: the winners of each cell, with the means of all as a hint.
fn winners_of(map: &Map) -> Winners<'_> {
    let cell = |cell: &MapCell| -> String {
        let means = cell.means.iter();
        let means = means.map(|(name, mean)| format!("{name} {}", figure(*mean)));
        means.collect::<Vec<_>>().join("\n")
    };
    Winners {
        down: map.down.clone(),
        across: map.across.clone(),
        names: &map.contenders,
        cells: map
            .cells
            .iter()
            .map(|of| Cell {
                winners: &of.winners,
                hint: cell(of),
            })
            .collect(),
    }
}

/// Says who is first in a cell, and what a tie is.
fn legend(sweep: &Sweep, spec: &MapSpec, map: &Map) -> String {
    let places = map.cells.iter().map(|cell| cell.places).max().unwrap_or(0);
    let cell = match places {
        0 | 1 => "The first of each cell, and how many tie with it".to_string(),
        places => format!(
            "The protocol that is first at most places of each cell, and how many tie with it (up \
             to {places} places per cell)"
        ),
    };
    let ties = if sweep.axes.iter().any(|axis| axis.key == "seed") {
        "ranges over the seeds that overlap".to_string()
    } else {
        format!("within {:.0} % of the first", spec.margin * 100.0)
    };
    format!(
        "{cell}. A tie: {ties}. A protocol without atomic transactions, without commits, or that \
         does not keep up is never first."
    )
}

impl Drawing<'_> {
    fn verdict(&self) -> String {
        let cells = self.map.cells.iter().filter(|cell| cell.places > 0);
        let points: Vec<&[String]> = cells.map(|cell| &cell.winners[..]).collect();
        winners::verdict(&self.map.contenders, &points)
    }

    /// The map as a web page, with the means of all cells.
    fn page(&self) -> String {
        let mut head = vec![self.map.down.name.clone(), self.map.across.name.clone()];
        head.extend(self.map.contenders.iter().cloned());
        let columns = self.map.across.values.len();
        let line = |(nth, cell): (usize, &MapCell)| {
            let mut line = vec![
                escape(&self.map.down.values[nth / columns]),
                escape(&self.map.across.values[nth % columns]),
            ];
            line.extend(cell.means.iter().map(|(_, mean)| figure(*mean)));
            line
        };
        let lines: Vec<Vec<String>> = self.map.cells.iter().enumerate().map(line).collect();
        let mut body = paragraphs(&[self.verdict()]);
        body += &self.winners.html();
        body += &format!("<p class=\"soft\">{}</p>\n", escape(&self.legend));
        body += &winners::figures(&head, &lines, "means of each cell", false);
        body += "<p class=\"soft\">Times and rates are virtual, and exact for their seeds.</p>\n";
        whole(&format!("Flagstone: {}", self.title), &body)
    }
}
