//! `flagstone compare`: the same transactions on every protocol, side by side.

mod stacks;
mod table;

use super::{Failure, progress_bar, protocols_of, say, share};
use flagstone::commit::{Isolation, Kind, Options};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::image;
use flagstone_lab::replay::{Record, ReplayError, Script, Setup, Source, script_of};
use flagstone_lab::trace::{Trace, file};
use flagstone_lab::workload::{Pattern, Workload};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the shipped trace is, from the root of a clone.
const SHIPPED: &str = "data/tpcc-postgres.parquet";

/// Replay transactions on commit protocols in virtual time, and compare what they cost.
///
/// Without arguments: the shipped trace, recorded from PostgreSQL, on all protocols. With --stack:
/// on databases that stand on them.
#[derive(clap::Args)]
pub struct Args {
    /// The trace to replay [default: the shipped one, from the root of a clone].
    trace: Option<PathBuf>,
    /// A preset (see `flagstone device list`) or a TOML file.
    #[arg(long, default_value = "small")]
    device: String,
    /// Protocols, separated by commas, or `all`.
    #[arg(long, default_value = "all")]
    protocols: String,
    /// How far transactions may overlap [default: as far as each protocol supports].
    #[arg(long, value_parser = Isolation::ALL.map(Isolation::name).to_vec())]
    isolation: Option<String>,
    /// Roll back this share of the transactions, besides those that were rolled back in the trace.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    abort_ratio: f64,
    /// Collect garbage when fewer than this share of the blocks are free [default: the device's].
    #[arg(long, value_parser = share)]
    gc_threshold: Option<f64>,
    /// How full the device is before it starts: this share of its logical pages.
    #[arg(long, default_value_t = 0.7, value_parser = share)]
    fill: f64,
    /// Start from devices that `flagstone device fill` saved, each with its protocol, instead of
    /// filling them; may be given several times. --device is that of the images.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["protocols", "fill", "stack"])]
    image: Vec<PathBuf>,
    /// Clients, each of which starts its next transaction when its last has ended.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// Open loop: transactions arrive at their recorded times, so many times faster.
    #[arg(long, conflicts_with = "clients")]
    speedup: Option<f64>,
    /// Seed of the fill, of extra aborts and of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Generate transactions instead of replaying a trace: uniform, or zipf:THETA.
    #[arg(long, conflicts_with = "trace")]
    workload: Option<Pattern>,
    /// Requests of the workload.
    #[arg(long, default_value_t = 200_000, requires = "workload",
          value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Share of them that read.
    #[arg(long, default_value_t = 0.0, requires = "workload", value_parser = share)]
    read_share: f64,
    /// Requests in one transaction of the workload.
    #[arg(long, default_value_t = 8, requires = "workload")]
    pages_per_transaction: u32,
    /// Run the forms as printed where these differ, instead of the repaired ones.
    #[arg(long)]
    as_published: bool,
    #[command(flatten)]
    host: stacks::HostArgs,
    /// Threads to run on [default: one a core]. The figures do not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Print one JSON object a run, one a line.
    #[arg(long, group = "format")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long, group = "format")]
    csv: bool,
    /// Print a Markdown table.
    #[arg(long, group = "format")]
    markdown: bool,
}

/// One run and how it ended.
type Outcome = (Kind, Result<Record, ReplayError>);

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args
        .speedup
        .is_some_and(|speedup| !(speedup > 0.0 && speedup.is_finite()))
    {
        return Err(Failure::Usage("--speedup takes a number above 0".into()));
    }
    if let Some(threads) = args.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build_global()
            .map_err(|error| Failure::Usage(format!("--threads: {error}")))?;
    }
    if let Some(list) = &args.host.stack {
        return stacks::run(args, list);
    }
    let kinds = match &args.image[..] {
        [] => protocols_of(&args.protocols)?,
        images => images
            .iter()
            .map(|path| image::protocol(path))
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::Usage(error.to_string()))?,
    };
    let device = device_of(args)?;
    let setups: Vec<Setup> = kinds
        .iter()
        .map(|&kind| setup(args, &device, kind))
        .collect();
    let smallest = || least_of(setups.iter().map(Setup::capacity));
    let (script, source) = match input_of(args, smallest)? {
        (Input::Trace(trace), source) => {
            let page_bytes = device.geometry.page_bytes;
            (Script::from_trace(&trace, page_bytes)?, source)
        }
        (Input::Workload(script), source) => (script, source),
    };
    let bar = progress_bar(setups.len() as u64, "comparing");
    let outcomes: Vec<Outcome> = setups
        .par_iter()
        .enumerate()
        .map(|(index, setup)| {
            let outcome = match args.image.get(index) {
                Some(image) => setup.run_saved(image, &script, &source),
                None => setup.run(&script, &source),
            };
            bar.inc(1);
            (setup.kind, outcome)
        })
        .collect();
    bar.finish_and_clear();
    print(args, &device, &source, &outcomes)
}

fn device_of(args: &Args) -> Result<DeviceSpec, Failure> {
    let mut device = super::device::load(&args.device)?;
    if let Some(threshold) = args.gc_threshold {
        device.config.gc_threshold = threshold;
    }
    Ok(device)
}

fn setup(args: &Args, device: &DeviceSpec, kind: Kind) -> Setup {
    let by_name = |name: &String| {
        Isolation::ALL
            .into_iter()
            .find(|level| level.name() == name)
    };
    Setup {
        kind,
        options: Options {
            as_published: args.as_published,
            ..Options::default()
        },
        device: device.clone(),
        isolation: args.isolation.as_ref().and_then(by_name),
        clients: args.clients,
        speedup: args.speedup,
        abort_ratio: args.abort_ratio,
        fill: args.fill,
        overwrite: true,
        recorded_aborts: true,
        seed: args.seed,
    }
}

/// What is to be played.
enum Input {
    Trace(Trace),
    Workload(Script),
}

/// The least capacity of devices, or why none has any.
fn least_of<E: std::fmt::Display>(
    capacities: impl Iterator<Item = Result<u32, E>>,
) -> Result<u32, String> {
    let (mut least, mut refused) = (None, Vec::new());
    for capacity in capacities {
        match capacity {
            Ok(pages) => least = Some(least.map_or(pages, |least: u32| least.min(pages))),
            Err(error) => refused.push(error.to_string()),
        }
    }
    refused.dedup();
    least.ok_or_else(|| refused.join("\n"))
}

/// The trace, or the workload over the pages that are filled on the smallest of the devices.
fn input_of(
    args: &Args,
    smallest: impl Fn() -> Result<u32, String>,
) -> Result<(Input, Source), Failure> {
    if let Some(pattern) = args.workload {
        let least = smallest().map_err(Failure::Usage)?;
        let filled = (f64::from(least) * args.fill) as u32;
        let workload = Workload {
            pattern,
            pages: if filled == 0 { least } else { filled },
            requests: args.requests,
            read_share: args.read_share,
            pages_per_transaction: args.pages_per_transaction,
            seed: args.seed,
        };
        let script = script_of(&workload).map_err(|error| Failure::Usage(error.to_string()))?;
        let name = pattern.to_string();
        return Ok((Input::Workload(script), Source { name, sha256: None }));
    }
    let path = args.trace.as_deref().unwrap_or(Path::new(SHIPPED));
    if args.trace.is_none() && !path.exists() {
        return Err(Failure::Usage(format!(
            "{SHIPPED} is not here: run this from the root of a clone, name a trace, or use \
             --workload"
        )));
    }
    let trace = file::read(path)?;
    let sha256 = Some(file::sha256(path)?);
    let name = path
        .file_stem()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Ok((Input::Trace(trace), Source { name, sha256 }))
}

fn print(
    args: &Args,
    device: &DeviceSpec,
    source: &Source,
    outcomes: &[Outcome],
) -> Result<ExitCode, Failure> {
    let records: Vec<&Record> = outcomes
        .iter()
        .filter_map(|(_, run)| run.as_ref().ok())
        .collect();
    if args.json {
        for record in &records {
            say(&serde_json::to_string(record).expect("records have plain fields"));
        }
    } else if args.csv {
        table::csv(&records).iter().for_each(|line| say(line));
    } else if args.markdown {
        table::markdown(&records).iter().for_each(|line| say(line));
    } else {
        table::text(device, source, &records)
            .iter()
            .for_each(|line| say(line));
    }
    let not_made = outcomes.iter().filter_map(|(kind, outcome)| {
        let error = outcome.as_ref().err()?;
        Some((kind.to_string(), error.to_string(), error.is_refusal()))
    });
    conclude(not_made, outcomes.len(), "protocol")
}

/// Says which of `all` runs were not made, by whose name, why, and whether that was refused; gives
/// the exit code.
fn conclude(
    not_made: impl Iterator<Item = (String, String, bool)>,
    all: usize,
    what: &str,
) -> Result<ExitCode, Failure> {
    let mut failed = false;
    let mut refused = Vec::new();
    for (name, why, is_refusal) in not_made {
        if is_refusal {
            refused.push(why);
        } else {
            failed = true;
            eprintln!("error: {name}: {why}");
        }
    }
    let none = refused.len() == all;
    refused.sort();
    refused.dedup();
    for why in refused {
        eprintln!("left out: {why}");
    }
    if none {
        return Err(Failure::Usage(format!("no {what} supports what was asked")));
    }
    Ok(ExitCode::from(u8::from(failed)))
}
