//! `flagstone sensitivity`: finds the settings left open by papers that decide whether claims hold.

use super::winners::table;
use super::{Failure, note, progress_bar, runs, say};
use flagstone_papers::reproduce::Catalogue;
use flagstone_papers::reproduce::engine::AnyRun;
use flagstone_papers::reproduce::execute::RunEvent;
use flagstone_papers::reproduce::figures::Mode;
use flagstone_papers::reproduce::sensitivity::{
    Analysis, Design, OpenSettings, Point, PointKind, Tried, Trier, best, climb, found_for, needed,
    one_at_a_time, partly, total_effects, unanswered,
};
use flagstone_papers::reproduce::verdict::{Verdict, number};
use flagstone_papers::sweep::SAMPLE_MAX;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum number of settings in the ranking table, and of points in the table of the best points.
const SHOWN: usize = 6;

/// Vary the settings that a paper leaves open, and report which of them its claims depend on.
///
/// Varies each setting alone and, with --samples, all together. The runs are those of `flagstone
/// reproduce`, with a shorter window. Results are kept below DIR, so an interrupted analysis
/// continues where it stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Figures (flagcommit.fig12a) and claims of one paper, or the paper itself. A claim selects
    /// only itself, not the others of its figure.
    #[arg(
        value_name = "PAPER|FIGURE|CLAIM",
        required_unless_present_any = ["unanswered", "found"]
    )]
    names: Vec<String>,
    /// Vary only this setting; may be repeated. With values, try these instead of the listed ones
    /// [default: all open settings].
    #[arg(long, value_name = "NAME[=VALUE,…]")]
    setting: Vec<String>,
    /// Try every combination of the settings' values and defaults, not each setting alone.
    #[arg(long, requires = "setting", conflicts_with_all = ["samples", "climb"])]
    grid: bool,
    /// Points in each half of a Sobol sample over all settings; each adds as many points as there
    /// are settings, plus two.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(SAMPLE_MAX)))]
    samples: u32,
    /// Rounds of hill climbing: each round adds to the best point the setting that makes the most
    /// claims hold.
    #[arg(long, value_name = "ROUNDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20))]
    climb: u32,
    /// At each point, judge only the claims that fail with the default settings; judge all of them
    /// where one of these holds.
    #[arg(long)]
    failing: bool,
    /// List the claims that no saved analysis has judged, with the points and runs that each needs,
    /// and those judged at only some of the points; run nothing [default: of all papers].
    #[arg(long, conflicts_with_all = ["setting", "grid", "samples", "climb", "failing", "seed", "out", "threads", "kept", "list", "json", "record"])]
    unanswered: bool,
    /// Print the included findings of long analyses, and run nothing: settings where claims hold
    /// that fail by default [default: of all papers].
    #[arg(long, conflicts_with_all = ["setting", "grid", "samples", "climb", "failing", "unanswered", "seed", "out", "threads", "kept", "list", "json", "record"])]
    found: bool,
    /// Seed of the sample [default: 1].
    #[arg(long, default_value_t = 1, hide_default_value = true)]
    seed: u32,
    /// Folder for the results of runs.
    #[arg(long, value_name = "DIR", default_value = "sensitivity")]
    out: PathBuf,
    /// Concurrent runs [default: one per core]. Does not affect the results.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Run nothing; judge only points whose runs are all saved.
    #[arg(long)]
    kept: bool,
    /// List the settings with their bounds and why the paper allows them, and run nothing.
    #[arg(long, conflicts_with_all = ["grid", "samples", "climb", "seed", "out", "threads", "kept", "json", "record"])]
    list: bool,
    /// Print the findings as TOML: for each claim, where it holds, and what happens to the other
    /// claims there. crates/flagstone-papers/experiments/found.toml keeps such findings for the
    /// report.
    #[arg(long, conflicts_with = "json")]
    record: bool,
    /// Print one JSON object per point, one per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let catalogue = Catalogue::shipped();
    if args.unanswered {
        return list_unanswered(&catalogue, &args.names);
    }
    let selection = catalogue
        .select_alone(&args.names)
        .map_err(Failure::Usage)?;
    let papers = selection.papers();
    if args.found {
        say(found_for(&catalogue, &papers).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let [paper] = &papers[..] else {
        return Err(Failure::Usage(format!(
            "analyse one paper at a time; {} are selected: {}",
            papers.len(),
            papers.join(", ")
        )));
    };
    let open = OpenSettings::shipped(paper).ok_or_else(|| {
        let known: Vec<String> = OpenSettings::all()
            .into_iter()
            .map(|open| open.paper)
            .collect();
        Failure::Usage(format!(
            "there is no list of the settings that {paper} leaves open; there are lists for: {}",
            known.join(", ")
        ))
    })?;
    let open = if args.setting.is_empty() {
        open
    } else {
        open.only(&args.setting).map_err(Failure::Usage)?
    };
    if args.list {
        list(&open);
        return Ok(ExitCode::SUCCESS);
    }
    let design = if args.grid {
        Design::grid(&open)
    } else {
        Design::new(&open, args.samples, args.seed)
    };
    let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
    let threads = runs::threads(args.threads);
    if !args.kept {
        let (points, runs) = (design.points.len(), trier.runs(&design.points[0]));
        note(&format!("{points} points of {runs} runs each"));
    }
    let bar = progress_bar(design.points.len() as u64, "trying settings");
    let watch = |run: &AnyRun, event: RunEvent| {
        if event == RunEvent::Started {
            bar.set_message(run.name());
        }
    };
    let mut tried: Vec<Tried> = Vec::new();
    let try_all = |points: &[Point], tried: &mut Vec<Tried>| {
        let run = |trier: &Trier<'_>, point: &Point| {
            if args.kept {
                trier.kept(point, &args.out)
            } else {
                Some(trier.run(point, threads, &args.out, &watch))
            }
        };
        for point in points {
            let made = match tried.first().filter(|_| args.failing) {
                Some(default) => trier.run_failing(point, default, &run),
                None => run(&trier, point),
            };
            bar.inc(1);
            let Some(made) = made else { continue };
            if let Err(why) = &made.claims {
                note(&format!("cannot be run: {}: {why}", made.point.name()));
            }
            tried.push(made);
        }
    };
    let is_alone = |point: &&Point| matches!(point.kind, PointKind::Default | PointKind::One(_));
    let (first, others): (Vec<&Point>, Vec<&Point>) = design.points.iter().partition(is_alone);
    let own = |points: Vec<&Point>| -> Vec<Point> { points.into_iter().cloned().collect() };
    try_all(&own(first), &mut tried);
    if let Some(Err(why)) = tried.first().map(|tried| &tried.claims) {
        return Err(Failure::Failed(format!("the default settings fail: {why}")));
    }
    for round in 0..args.climb {
        let points = climb(&tried, round);
        if points.is_empty() {
            break;
        }
        bar.inc_length(points.len() as u64);
        try_all(&points, &mut tried);
    }
    try_all(&own(others), &mut tried);
    bar.finish_and_clear();
    if tried
        .first()
        .is_none_or(|tried| tried.point.kind != PointKind::Default)
    {
        return Err(Failure::Failed(format!(
            "{} has no results of the default settings: run the command without --kept first",
            args.out.display()
        )));
    }
    if args.record {
        let analysis = Analysis::new(paper, &args.names, &design, &tried);
        let options = options(args);
        say(Analysis {
            options,
            ..analysis
        }
        .toml()
        .trim_end());
    } else if args.json {
        tried.iter().for_each(|tried| say(&record(tried)));
    } else {
        report(&design, &tried);
    }
    Ok(ExitCode::SUCCESS)
}

/// The options that determine the points, for repeating the analysis.
fn options(args: &Args) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in &args.setting {
        all.extend(["--setting".into(), name.clone()]);
    }
    for (name, given) in [("--grid", args.grid), ("--failing", args.failing)] {
        if given {
            all.push(name.into());
        }
    }
    let counts = [
        ("--climb", args.climb, 0),
        ("--samples", args.samples, 0),
        ("--seed", args.seed, 1),
    ];
    for (name, value, default) in counts {
        if value != default {
            all.extend([name.into(), value.to_string()]);
        }
    }
    all
}

fn list(open: &OpenSettings) {
    for open in &open.open {
        say(&format!("{}: {}", open.axis.name, open.axis.bounds()));
        say(&format!("    {} {}", open.place, open.reason));
    }
}

/// Lists the claims that no analysis has judged, by paper, each with the cost of an analysis.
fn list_unanswered(catalogue: &Catalogue, names: &[String]) -> Result<ExitCode, Failure> {
    let names = match names {
        [] => &["all".to_string()],
        names => names,
    };
    let selection = catalogue.select_alone(names).map_err(Failure::Usage)?;
    let left = unanswered(&Analysis::shipped(), selection.claims());
    let all = selection.claims().len();
    say(&format!(
        "{} of {all} claims have not been analysed",
        left.len()
    ));
    for paper in selection.papers() {
        let own: Vec<&String> = left
            .iter()
            .filter(|id| id.split('.').next() == Some(paper.as_str()))
            .collect();
        let (Some(open), false) = (OpenSettings::shipped(&paper), own.is_empty()) else {
            continue;
        };
        let design = Design::new(&open, 0, 1);
        say(&format!("\n{paper}: {} points", design.points.len()));
        for id in own {
            let alone = catalogue.select_alone(&[id]).map_err(Failure::Usage)?;
            let trier = Trier::new(catalogue, &open, &alone, Mode::Quick);
            let runs = trier.runs(&design.points[0]);
            say(&format!("    {id}: {runs} runs a point"));
        }
    }
    let half = partly(&Analysis::shipped(), selection.claims());
    if !half.is_empty() {
        say("\nhold at no tried point, with points left to try:");
    }
    for (id, (tried, all)) in &half {
        say(&format!("    {id}: {tried} of {all} points"));
    }
    if !left.is_empty() || !half.is_empty() {
        say("\nRun `flagstone sensitivity CLAIM… --failing --record` to analyse a claim.");
    }
    Ok(ExitCode::SUCCESS)
}

/// A tried point as JSON.
fn record(tried: &Tried) -> String {
    let claims = tried.claims.as_ref().map(|claims| {
        let each = claims.iter().map(|(id, (verdict, values))| {
            let values: Vec<_> = values
                .iter()
                .map(|value| json!({ "what": value.what, "value": value.value }))
                .collect();
            (id.clone(), json!({ "verdict": verdict, "figures": values }))
        });
        each.collect::<serde_json::Map<_, _>>()
    });
    let mut record = json!({ "point": kind(tried.point.kind), "at": tried.point.at });
    match claims {
        Ok(claims) => record["claims"] = claims.into(),
        Err(why) => record["failed"] = json!(why),
    }
    record.to_string()
}

fn kind(kind: PointKind) -> String {
    match kind {
        PointKind::Default => "default".into(),
        PointKind::One(_) => "one".into(),
        PointKind::Grid => "grid".into(),
        PointKind::Climb(round) => format!("climb {round}"),
        PointKind::A(of) => format!("sample a{of}"),
        PointKind::B(of) => format!("sample b{of}"),
        PointKind::Mixed(of, nth) => format!("sample a{of} b{nth}"),
    }
}

/// Prints what was found: the effects of settings, the points at which most claims hold, and for
/// each claim that does not hold at the default the points at which it holds.
fn report(design: &Design, tried: &[Tried]) {
    let failed = tried.iter().filter(|tried| tried.claims.is_err()).count();
    say(&format!(
        "{} points of {} settings tried, {failed} of which failed to run",
        tried.len(),
        design.settings.len()
    ));
    moves(design, tried);
    say("\nWhere most claims hold:\n");
    let line = |&at: &usize| {
        let mut cells: Vec<String> = Verdict::ALL[..3]
            .iter()
            .map(|&verdict| tried[at].count(verdict).to_string())
            .collect();
        cells.insert(0, tried[at].point.name());
        cells
    };
    let places = best(tried);
    let mut shown: Vec<usize> = places.iter().copied().take(SHOWN).collect();
    if !shown.contains(&0) {
        shown.push(0);
    }
    let head = ["setting", "holds", "direction", "differs"].map(str::to_string);
    let lines: Vec<Vec<String>> = shown.iter().map(line).collect();
    table(head.into(), &lines, false)
        .iter()
        .for_each(|line| say(line));
    say("\nClaims that do not hold with the default settings:\n");
    for needed in needed(tried) {
        let found = match needed.holds_at.first() {
            None => format!("at none of {} tried points", needed.tried),
            Some(&at) => {
                let count = |verdict| tried[at].count(verdict);
                format!(
                    "holds at {} of {} tried points; for example at {}, where {} claims hold, {} \
                     hold in direction and {} differ",
                    needed.holds_at.len(),
                    needed.tried,
                    tried[at].point.name(),
                    count(Verdict::Holds),
                    count(Verdict::Direction),
                    count(Verdict::Differs),
                )
            }
        };
        say(&format!("{} ({}): {found}", needed.claim, needed.default));
    }
}

/// Prints which settings change each figure of each claim.
fn moves(design: &Design, tried: &[Tried]) {
    let Some(Ok(claims)) = tried.first().map(|tried| &tried.claims) else {
        return;
    };
    for (claim, (verdict, values)) in claims {
        for (part, value) in values.iter().enumerate() {
            let Some(default) = value.value else { continue };
            let ranges = one_at_a_time(design, tried, claim, part);
            let moved = ranges.iter().filter(|range| range.high > range.low);
            say(&format!(
                "\n{claim}: {} is {} ({verdict})",
                value.what,
                number(default)
            ));
            for range in moved.take(SHOWN) {
                say(&format!(
                    "    {:18} {} to {}  ({} to {})",
                    range.setting,
                    number(range.low),
                    number(range.high),
                    range.low_at,
                    range.high_at
                ));
            }
            let Some((points, effects)) = total_effects(design, tried, claim, part) else {
                continue;
            };
            say(&format!(
                "    total effects over {points} points of a sample:"
            ));
            for (setting, effects) in effects.iter().take(SHOWN) {
                say(&format!(
                    "    {setting:18} {:.2} ({:.2} to {:.2}), alone {:.2}",
                    effects.total.value, effects.total.low, effects.total.high, effects.first.value
                ));
            }
        }
    }
}
