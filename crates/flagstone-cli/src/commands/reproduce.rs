//! `flagstone reproduce`: reproduces the papers' evaluations, claim by claim.

use super::{Failure, note, plain_table, runs, say};
use flagstone_lab::output::{Output, OutputError};
use flagstone_papers::reproduce::engine::AnyRun;
use flagstone_papers::reproduce::execute::execute;
use flagstone_papers::reproduce::figures::{Experiment, Mode};
use flagstone_papers::reproduce::recorded::Recorded;
use flagstone_papers::reproduce::report::{self, Report};
use flagstone_papers::reproduce::verdict::Verdict;
use flagstone_papers::reproduce::{Catalogue, Results};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run the papers' experiments and compare the results with the published ones.
///
/// An interrupted run continues where it stopped: results are kept below DIR. The exit code is 0
/// whatever the verdicts are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Papers (lighttx), figures (lighttx.fig7, or fig7 of every paper), claims, or all.
    #[arg(value_name = "PAPER|FIGURE|CLAIM", default_value = "all")]
    names: Vec<String>,
    /// Use shorter windows and scaled devices: an hour for everything on two cores (the default).
    #[arg(long, group = "size")]
    quick: bool,
    /// Use the papers' sizes. A run of SAL-hashing then takes up to 10 GB of memory: see --jobs.
    #[arg(long, group = "size")]
    full: bool,
    /// Make each run with this many seeds. A claim that has the published direction under only some
    /// seeds is a tie; any other gets the verdict of its worst seed. Figures are those of the first
    /// seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// Concurrent runs [default: one per core]. Does not affect the results.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Folder for results and the report, DIR/index.html.
    #[arg(long, value_name = "DIR", default_value = "reproduction")]
    out: PathBuf,
    /// Your own experiments: a TOML file like those in crates/flagstone-papers/experiments.
    /// Replaces the included file of the same paper.
    #[arg(long, value_name = "FILE")]
    experiment: Vec<PathBuf>,
    /// Print one JSON object per claim, one per line.
    #[arg(long)]
    json: bool,
    /// Write the verdicts to FILE, replacing those on the same claims. docs/reproduction.md counts
    /// the verdicts in crates/flagstone-papers/claims/verdicts.toml.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// List the papers, figures and claims, or the selected ones, and run nothing.
    #[arg(long, conflicts_with_all = ["json", "jobs", "out", "quick", "full", "seeds", "record"])]
    list: bool,
}

/// Reproduces the selected claims, and writes the report. With several seeds, each is a plan of its
/// own.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut catalogue = Catalogue::shipped();
    let mut own = Vec::new();
    for path in &args.experiment {
        let experiment = runs::read(path, Experiment::parse)?;
        own.push(experiment.paper.clone());
        catalogue.add(experiment);
    }
    // If only a user's file is given and no name, run its paper only.
    let is_all = args.names.len() == 1 && args.names[0] == "all";
    let names = if is_all && !own.is_empty() {
        &own
    } else {
        &args.names
    };
    let selection = catalogue.select(names).map_err(Failure::Usage)?;
    if args.list {
        let names = if is_all {
            catalogue.names()
        } else {
            selection.names()
        };
        names.iter().for_each(|name| say(name));
        return Ok(ExitCode::SUCCESS);
    }
    let mode = if args.full { Mode::Full } else { Mode::Quick };
    let seeds = (1..=args.seeds).map(|seed| catalogue.seeded(seed));
    let plans = seeds.map(|seeded| seeded.plan(&selection, mode));
    let plans: Vec<_> = plans.collect();
    let all: BTreeMap<_, _> = plans
        .iter()
        .flat_map(|plan| flagstone_papers::reproduce::runs(plan))
        .collect();
    all.values()
        .try_for_each(AnyRun::ready)
        .map_err(Failure::Failed)?;
    let unwritten = |error: OutputError| {
        let failure = Failure::from(error);
        failure.tip("make room there, or name another folder with --out")
    };
    let figures = plans[0]
        .iter()
        .map(|(paper, spec, _)| (&**paper, &*spec.id));
    let traces = all.values().filter_map(AnyRun::input);
    let inputs: Vec<&Path> = traces
        .chain(args.experiment.iter().map(|path| &**path))
        .collect();
    let report = Report::new(&args.out, figures, &inputs).map_err(unwritten)?;
    let record = args.record.as_ref();
    let record = record.map(|path| record_in(path, &inputs)).transpose()?;
    let (jobs, folder) = (runs::threads(args.jobs), args.out.join("runs"));
    let outcomes = runs::watched("reproducing", || {
        execute(&all, jobs, &folder, &runs::unheard)
    });
    let outcomes = outcomes.map_err(Failure::Failed)?;
    let judged = plans
        .into_iter()
        .map(|plan| catalogue.judge(&selection, mode, plan, &outcomes));
    let results = Results::across(judged.collect());
    let page = report.write(&catalogue, &results);
    if let Some((output, mut recorded)) = record {
        recorded
            .merge(&catalogue, &results)
            .map_err(Failure::Usage)?;
        output.write(recorded.text().as_bytes())?;
    }
    if args.json {
        for judged in &results.claims {
            say(&report::json(judged).to_string());
        }
    } else {
        table(&results);
    }
    // Print the results even if the page could not be written.
    let page = page.map_err(unwritten)?;
    note(&format!("report: {}", page.display()));
    Ok(ExitCode::SUCCESS)
}

/// The output file for verdicts, and the verdicts in it.
fn record_in(path: &Path, inputs: &[&Path]) -> Result<(Output, Recorded), Failure> {
    let recorded = if path.exists() {
        runs::read(path, Recorded::parse)?
    } else {
        Recorded::default()
    };
    Ok((Output::new(path, inputs)?, recorded))
}

/// Prints a row for each claim, and the number of verdicts of each kind.
fn table(results: &Results) {
    let mut table = plain_table();
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_width(flagstone_terminal::width().unwrap_or(160));
    table.set_header([
        "claim",
        "published",
        "measured",
        "deviation",
        "verdict",
        "s",
    ]);
    for judged in &results.claims {
        let summary = report::summary(judged);
        table.add_row([
            judged.claim.id.clone(),
            summary.published,
            summary.measured,
            summary.deviation,
            judged.judgement.verdict.to_string(),
            format!("{:.0}", judged.seconds),
        ]);
    }
    say(&table.to_string());
    let all = results.counts();
    let counts = Verdict::ALL.map(|own| format!("{} {}", all.measured(own), own.name()));
    let apart = all.apart().into_iter().map(|words| format!("; {words}"));
    say(&format!(
        "\n{} claims, {}: {}{}",
        all.claims(),
        results.mode.name(),
        counts.join(", "),
        apart.collect::<String>()
    ));
}
