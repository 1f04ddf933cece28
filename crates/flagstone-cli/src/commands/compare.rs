//! `flagstone compare`: runs the same transactions on several protocols and compares the costs.

mod checks;
mod over;
pub(super) mod page;
mod replayed;
mod report;
mod stacks;
mod table;

use super::settings::{Given, Owner};
use super::{Failure, named, protocols_of, runs, share};
use flagstone::commit::{Isolation, Kind, Options};
use flagstone::ftl::PairedPages;
use flagstone::nand::Pairing;
use flagstone_lab::device::{DeviceSpec, presets};
use flagstone_lab::image;
use flagstone_lab::output::Output;
use flagstone_lab::ranking::Measured;
use flagstone_lab::replay::{
    InputName, ReplayError, ReplayRecord, Script, Setup, Terms, Times, script_of, write_times,
};
use flagstone_lab::trace::{Trace, file};
use flagstone_lab::workload::{Drawn, Pattern};
use report::{Outcome, Printed, report, run_all};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// The trace that ships with the project, built into the program.
const SHIPPED: &[u8] = include_bytes!("../../../../data/tpcc-postgres.parquet");

/// The name of this trace in results.
const SHIPPED_NAME: &str = "tpcc-postgres";

/// The default number of clients.
const CLIENTS: u32 = 16;

/// The default share of the logical pages that are filled.
const FILL: f64 = 0.7;

/// Replay transactions on commit protocols in virtual time and compare the costs.
///
/// Without arguments: the included trace, recorded from PostgreSQL, on all protocols. With --stack:
/// on databases above the protocols.
#[derive(clap::Args, Clone)]
#[command(after_help = "--help explains the columns", after_long_help = definitions())]
pub(crate) struct Args {
    /// Trace to replay [default: the included one, data/tpcc-postgres.parquet].
    trace: Option<PathBuf>,
    /// A preset (see `flagstone device list`) or a TOML file.
    #[arg(long, default_value = "small")]
    device: String,
    /// Protocols, separated by commas, or `all` [default: all].
    #[arg(long)]
    protocols: Option<String>,
    /// Isolation: how far transactions may overlap [default: as far as each protocol supports].
    #[arg(long, value_parser = named(Isolation::ALL.map(|level| (level, level.name()))))]
    isolation: Option<Isolation>,
    /// Abort this share of the transactions, in addition to the trace's own rollbacks.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    abort_ratio: f64,
    /// Collect garbage when fewer than this share of the blocks are free [default: the device's
    /// setting].
    #[arg(long, value_parser = share)]
    gc_threshold: Option<f64>,
    /// Protection of pages that share cells: ignored, closed or slc [default: the device's
    /// setting].
    #[arg(long)]
    paired_pages: Option<PairedPages>,
    /// Share of the logical pages to fill before the run [default: 0.7].
    #[arg(long, value_parser = share)]
    fill: Option<f64>,
    /// Start from devices saved by `flagstone device fill` instead of filling new ones, one per
    /// protocol; may be repeated. --device must name the device of the images.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["protocols", "fill", "stack"])]
    image: Vec<PathBuf>,
    /// Concurrent clients in a closed loop: each starts a transaction when its previous one ends
    /// [default: 16].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: Option<u32>,
    /// Open loop: transactions arrive at their recorded times, accelerated by this factor.
    #[arg(long, conflicts_with = "clients", value_parser = speedup)]
    speedup: Option<f64>,
    /// Seed of the fill, of extra aborts, of back-off and of the workload [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    /// Repeat each run with this many seeds. The table then shows means, and rows whose ranges
    /// overlap count as ties [default: 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// Generate transactions instead of replaying a trace: uniform, zipf:THETA, sequential, or
    /// sequential:SHARE (this share of the transactions accesses pages in order).
    #[arg(long, conflicts_with = "trace")]
    workload: Option<Pattern>,
    /// Repeat all transactions this many times.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with = "stack")]
    repeat: u32,
    /// Number of requests to generate [default: 200000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Share of reads among the generated requests [default: 0].
    #[arg(long, value_parser = share)]
    read_share: Option<f64>,
    /// Requests per generated transaction [default: 8].
    #[arg(long)]
    pages_per_transaction: Option<u32>,
    /// Compare at each point of a grid of one or two settings, and report which protocol wins
    /// where: `abort-ratio=0..0.5`, `fill=0.3..0.9:7`, `clients=1:4:16`, separated by commas. A
    /// range has five points unless it gives a number. Settings: abort-ratio, clients, fill,
    /// gc-threshold, load (--speedup), read-share, theta (of zipf) and transaction-pages.
    #[arg(long, value_name = "SETTING=VALUES", value_delimiter = ',',
          conflicts_with_all = ["stack", "image"])]
    over: Vec<over::Axis>,
    /// Also write the latencies of each transaction to this Parquet file (see docs/compare.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stack", "over", "image"])]
    latencies: Option<PathBuf>,
    /// Also write the comparison to this file, a self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Run the protocols as published instead of the repaired variants, where the two differ.
    #[arg(long)]
    as_published: bool,
    /// Set a parameter of a protocol or, with --stack, of a recovery manager or an eviction policy
    /// (see `flagstone protocols`); may be repeated. Applies to all that have it, or to one:
    /// `lighttx.zone_blocks=64`.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    host: stacks::HostArgs,
    /// Number of threads [default: one per core]. Does not affect the results.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: Option<u64>,
    /// Print all columns, whatever the width of the terminal. In a file or pipe, the table is
    /// otherwise limited to 100 characters.
    #[arg(long)]
    wide: bool,
    /// Print one JSON object per run, one per line.
    #[arg(long, group = "format")]
    json: bool,
    /// Print comma-separated values, one line per run.
    #[arg(long, group = "format")]
    csv: bool,
    /// Print a Markdown table, with all columns.
    #[arg(long, group = "format")]
    markdown: bool,
    /// Add machine-dependent figures, wall-clock time and memory, to --json or --csv.
    #[arg(long)]
    timing: bool,
}

impl Args {
    fn drawn(&self) -> Drawn {
        Drawn {
            requests: self.requests,
            read_share: self.read_share,
            pages_per_transaction: self.pages_per_transaction,
        }
    }
}

fn speedup(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if factor > 0.0 && f64::is_finite(factor) => Ok(factor),
        _ => Err("must be a number above 0".into()),
    }
}

/// Definitions of the columns, for --help.
fn definitions() -> String {
    let mut lines = vec!["Columns for protocols:".to_string()];
    let of_protocols: Vec<_> = replayed::COLUMNS.iter().map(|it| it.defined()).collect();
    lines.extend(table::definitions(of_protocols.iter().copied()));
    lines.push("\nColumns for databases (--stack) that differ:".into());
    let of_stacks = stacks::COLUMNS.iter().map(|it| it.defined());
    let differ = of_stacks.filter(|it| !of_protocols.contains(it));
    lines.extend(table::definitions(differ));
    lines.push(
        "\nTimes are virtual. Columns that do not fit are left out; --wide shows all.".into(),
    );
    lines.join("\n")
}

/// The seeds with which a comparison is run.
#[derive(Debug, Clone, Copy)]
struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    fn of(args: &Args) -> Seeds {
        Seeds {
            first: args.seed.unwrap_or(1),
            count: args.seeds.unwrap_or(1),
        }
    }

    fn nth(self, nth: usize) -> u64 {
        self.first.wrapping_add(nth as u64)
    }

    fn all(self) -> impl Iterator<Item = u64> {
        (0..self.count as usize).map(move |nth| self.nth(nth))
    }
}

/// A protocol to compare, and the saved device from which it starts, if any.
#[derive(Debug, Clone, Copy)]
struct Subject<'a> {
    kind: Kind,
    image: Option<&'a PathBuf>,
}

impl Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// Compares protocols: over a grid (`--over`), below databases (`--stack`), or at one point.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    checks::options(args)?;
    if let Some(path) = &args.html {
        output(args, path)?;
    }
    if !args.over.is_empty() {
        return over::run(args);
    }
    if let Some(list) = &args.host.stack {
        return stacks::run(args, list);
    }
    let comparison = Comparison::new(args)?;
    checks::page_sizes(comparison.sizes);
    let latencies = args.latencies.as_deref();
    let latencies = latencies.map(|path| output(args, path)).transpose()?;
    let outcomes = runs::watched("comparing", || comparison.run());
    if let Some(output) = latencies {
        let times = comparison.times.lock().expect("no thread panics with it");
        write_times(times.values(), &output)?;
    }
    let suits = |subject: &Subject<'_>, device: &DeviceSpec| comparison.suits(subject.kind, device);
    let about = |record: &ReplayRecord| comparison.about(record);
    let printed = Printed {
        columns: replayed::COLUMNS,
        structures: ReplayRecord::STRUCTURES,
        about: &about,
        reasons: replayed::reasons,
    };
    report(
        args,
        &comparison.device,
        outcomes,
        &printed,
        "protocol",
        suits,
    )
}

/// The output file `path`, which must be none of the files that are read.
fn output(args: &Args, path: &Path) -> Result<Output, Failure> {
    let read = args.trace.iter().chain(&args.image).map(PathBuf::as_path);
    let read: Vec<&Path> = read.chain([Path::new(&args.device)]).collect();
    Ok(Output::new(path, &read)?)
}

/// A comparison of protocols. Each has a device of its own and runs the same transactions.
struct Comparison<'a> {
    args: &'a Args,
    device: DeviceSpec,
    set: Given,
    owners: Vec<Owner>,
    subjects: Vec<Subject<'a>>,
    seeds: Seeds,
    input: Arc<Input>,
    source: InputName,
    /// Bytes of a page of the trace, and of a page of the device.
    sizes: Option<(u32, u32)>,
    /// The times of single transactions by protocol and seed, with `--latencies`.
    times: Mutex<BTreeMap<(String, usize), Times>>,
}

impl<'a> Comparison<'a> {
    /// Prepares a comparison: reads the trace or generates the workload.
    fn new(args: &'a Args) -> Result<Comparison<'a>, Failure> {
        Comparison::after(args, None)
    }

    /// Prepares a comparison after `last`, at another point of a grid. Both replay the same trace,
    /// which is not read again.
    fn after(args: &'a Args, last: Option<&Comparison<'_>>) -> Result<Comparison<'a>, Failure> {
        let kinds = match &args.image[..] {
            [] => protocols_of(args.protocols.as_deref().unwrap_or("all"))?,
            images => images
                .iter()
                .map(|path| image::protocol(path))
                .collect::<Result<_, _>>()
                .map_err(|error| Failure::Usage(error.to_string()))?,
        };
        checks::protocols(args, &kinds)?;
        let set = Given::parse(&args.set)?;
        let owners: Vec<Owner> = kinds.iter().map(|kind| Owner::of(kind.info())).collect();
        set.check(&owners, &Owner::protocols())?;
        let device = device_of(args)?;
        let seeds = Seeds::of(args);
        let capacity = |kind: Kind, device: &DeviceSpec| {
            let setup = setup(args, &set, device, kind, seeds.first);
            setup.capacity()
        };
        for &kind in &kinds {
            checks::values(&setup(args, &set, &device, kind, seeds.first).fill())?;
        }
        // The number of pages that are filled under every protocol, for generated transactions.
        let smallest = || {
            least_of(kinds.iter().map(|&kind| {
                let elsewhere = || elsewhere(args, &device, |other| capacity(kind, other).is_ok());
                capacity(kind, &device).map_err(|error| format!("{error}{}", elsewhere()))
            }))
        };
        let (input, source, sizes) = match last {
            Some(last) if args.workload.is_none() => {
                (last.input.clone(), last.source.clone(), last.sizes)
            }
            _ => {
                let (input, source) = input_of(args, smallest)?;
                let mut sizes = None;
                let input = match input {
                    Input::Trace(trace) => {
                        let page_bytes = device.geometry.page_bytes;
                        sizes = Some((trace.page_bytes, page_bytes));
                        Input::Workloads(vec![Script::from_trace(&trace, page_bytes)?])
                    }
                    input @ Input::Workloads(_) => input,
                }
                .repeated(args.repeat as usize);
                (Arc::new(input), source, sizes)
            }
        };
        let starts = input.script(0).transactions().iter();
        let last = starts.map(|transaction| transaction.start_ns).max();
        checks::arrivals(args, last.unwrap_or(0), &device)?;
        let images = args.image.iter().map(Some).chain(std::iter::repeat(None));
        let subjects = kinds.into_iter().zip(images);
        Ok(Comparison {
            args,
            device,
            set,
            owners,
            subjects: subjects
                .map(|(kind, image)| Subject { kind, image })
                .collect(),
            seeds,
            input,
            source,
            sizes,
            times: Mutex::default(),
        })
    }

    /// The estimated effort of all runs.
    fn effort(&self) -> u64 {
        let of = |nth| {
            self.subjects
                .iter()
                .map(move |subject| self.effort_of(subject, nth))
        };
        (0..self.seeds.count as usize).flat_map(of).sum()
    }

    /// The estimated effort of one run.
    fn effort_of(&self, subject: &Subject<'_>, nth: usize) -> u64 {
        let script = self.input.script(nth).effort();
        match subject.image {
            Some(_) => script,
            None => {
                let seed = self.seeds.nth(nth);
                setup(self.args, &self.set, &self.device, subject.kind, seed)
                    .fill()
                    .filling()
                    + script
            }
        }
    }

    /// Runs each subject with each seed. A subject with a saved image starts from it. Others first
    /// fill a new device, and collect latencies if these are asked for.
    fn run(&self) -> Vec<Outcome<Subject<'a>, ReplayRecord, ReplayError>> {
        let threads = self.args.threads;
        let effort_of = |subject: &Subject<'_>, nth| self.effort_of(subject, nth);
        run_all(
            &self.subjects,
            self.seeds,
            threads,
            effort_of,
            |subject, nth| {
                let seed = self.seeds.nth(nth);
                let setup = setup(self.args, &self.set, &self.device, subject.kind, seed);
                let script = self.input.script(nth);
                match subject.image {
                    Some(image) => setup.run_saved(image, script, &self.source),
                    None if self.args.latencies.is_some() => {
                        let (record, times) = setup.run_timed(script, &self.source)?;
                        let mut all = self.times.lock().expect("no thread panics with it");
                        all.insert((subject.kind.to_string(), nth), times);
                        Ok(record)
                    }
                    None => setup.run(script, &self.source),
                }
            },
        )
    }

    fn suits(&self, kind: Kind, device: &DeviceSpec) -> bool {
        let setup = setup(self.args, &self.set, device, kind, self.seeds.first);
        setup.capacity().is_ok()
    }

    /// Describes what was compared, in lines of text.
    fn about(&self, record: &ReplayRecord) -> Vec<String> {
        let script = self.input.script(0);
        let only_read = |transaction: &&_| script.changes(transaction).is_empty();
        let only_read = match script.transactions().iter().filter(only_read).count() {
            0 => String::new(),
            count => format!(" ({count} of them read-only)"),
        };
        let mut lines = vec![
            format!(
                "{}: {} committed and {} rolled back transactions{only_read}, {} page writes, {}",
                self.source.name,
                record.transactions_committed,
                record.transactions_aborted,
                record.host_pages_written,
                arrivals(record.clients, record)
            ),
            about(&self.device, Some(record.fill)),
        ];
        if record.pages_filled_for_reads > 0 {
            lines.push(format!(
                "{} pages that the trace reads before it writes them were filled beforehand",
                record.pages_filled_for_reads
            ));
        }
        lines.extend(self.set.about(&self.owners));
        lines
    }
}

fn device_of(args: &Args) -> Result<DeviceSpec, Failure> {
    let mut device = super::device::load(&args.device)?;
    if let Some(threshold) = args.gc_threshold {
        device.config.gc_threshold = threshold;
    }
    if let Some(way) = args.paired_pages {
        device.config.paired_pages = way;
    }
    Ok(device)
}

/// The replay of one protocol with one seed.
fn setup(args: &Args, set: &Given, device: &DeviceSpec, kind: Kind, seed: u64) -> Setup {
    let mut options = Options::default();
    options.as_published = args.as_published;
    options.settings = set.of(kind.info());
    Setup {
        kind,
        options,
        device: device.clone(),
        isolation: args.isolation,
        terms: Terms {
            clients: args.clients.unwrap_or(CLIENTS),
            speedup: args.speedup,
            abort_ratio: args.abort_ratio,
            // As recorded, on a device that is already collecting garbage.
            recorded_aborts: true,
            fill: args.fill.unwrap_or(FILL),
            overwrite: true,
            seed,
        },
    }
}

/// The transactions to run.
enum Input {
    Trace(Trace),
    /// Generated workloads: one script for each seed, or one for all seeds.
    Workloads(Vec<Script>),
}

impl Input {
    /// The input repeated `times` times.
    fn repeated(self, times: usize) -> Input {
        match self {
            Input::Workloads(scripts) if times > 1 => {
                let longer =
                    |script: &Script| script.with_length(script.transactions().len() * times);
                Input::Workloads(scripts.iter().map(longer).collect())
            }
            input => input,
        }
    }

    /// The script for the nth seed.
    fn script(&self, nth: usize) -> &Script {
        match self {
            Input::Workloads(scripts) => scripts.get(nth).unwrap_or(&scripts[0]),
            Input::Trace(_) => unreachable!("a trace is made into what is played first"),
        }
    }
}

/// The smallest capacity of the devices that can be made, or the errors if none can.
fn least_of(capacities: impl Iterator<Item = Result<u32, String>>) -> Result<u32, String> {
    let (mut least, mut refused) = (None, Vec::new());
    for capacity in capacities {
        match capacity {
            Ok(pages) => least = Some(least.map_or(pages, |least: u32| least.min(pages))),
            Err(error) => refused.push(error),
        }
    }
    refused.dedup();
    least.ok_or_else(|| refused.join("\n"))
}

/// Advice on presets that meet the condition `suits`, if the device does not.
fn elsewhere(args: &Args, device: &DeviceSpec, suits: impl Fn(&DeviceSpec) -> bool) -> String {
    if suits(device) {
        return String::new();
    }
    let mut others = presets().to_vec();
    for preset in &mut others {
        let own = preset.config.gc_threshold;
        preset.config.gc_threshold = args.gc_threshold.unwrap_or(own);
        let own = preset.config.paired_pages;
        preset.config.paired_pages = args.paired_pages.unwrap_or(own);
    }
    others.retain(|preset| suits(preset));
    let names: Vec<&str> = others.iter().map(|preset| preset.name.as_str()).collect();
    match names[..] {
        [] => String::new(),
        [one] => format!(" (--device {one} suits it)"),
        [one, ref more @ ..] => {
            format!(" (--device {one} suits it, and so do {})", more.join(", "))
        }
    }
}

/// The trace, or a workload over the pages that are filled on the smallest device.
fn input_of(
    args: &Args,
    smallest: impl Fn() -> Result<u32, String>,
) -> Result<(Input, InputName), Failure> {
    if let Some(pattern) = args.workload {
        let least = smallest().map_err(Failure::Usage)?;
        let (drawn, fill) = (args.drawn(), args.fill.unwrap_or(FILL));
        let script = |seed| script_of(&drawn.over(pattern, least, fill, seed));
        let scripts: Result<Vec<Script>, _> = Seeds::of(args).all().map(script).collect();
        let scripts = scripts.map_err(|error| Failure::Usage(error.to_string()))?;
        let name = pattern.to_string();
        return Ok((Input::Workloads(scripts), InputName { name, sha256: None }));
    }
    let Some(path) = &args.trace else {
        let trace = file::read_bytes(SHIPPED, Path::new(SHIPPED_NAME))?;
        let name = SHIPPED_NAME.to_string();
        let sha256 = Some(file::sha256_of(SHIPPED));
        return Ok((Input::Trace(trace), InputName { name, sha256 }));
    };
    let trace = file::read(path)?;
    let sha256 = Some(file::sha256(path)?);
    let name = path
        .file_stem()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    Ok((Input::Trace(trace), InputName { name, sha256 }))
}

/// Describes how transactions arrive.
fn arrivals(clients: Option<u32>, run: &impl Measured) -> String {
    match (clients, run.arrivals()) {
        (Some(clients), _) => format!("{clients} clients"),
        (None, Some(rate)) => format!("{rate:.1} arrivals per second"),
        (None, None) => "all arriving at once".into(),
    }
}

/// Describes a device in one line.
fn about(device: &DeviceSpec, fill: Option<f64>) -> String {
    let g = &device.geometry;
    let pairs = match g.pairing {
        Pairing::None => String::new(),
        pairing => format!(" paired {pairing} and {}", device.config.paired_pages),
    };
    let fill = fill.map_or(String::new(), |fill| {
        format!(", {:.0} % full before it starts", fill * 100.0)
    });
    format!(
        "device {}: {} MiB, pages of {} bytes, {} planes, {} cells{pairs}{fill}",
        device.name,
        g.bytes() >> 20,
        g.page_bytes,
        g.planes(),
        g.cell,
    )
}

#[cfg(test)]
mod tests {
    use super::{Args, Comparison};
    use clap::Parser;
    use flagstone_lab::ranking::separation::{Cause, cause};
    use flagstone_lab::ranking::{Measured, Row};
    use flagstone_lab::replay::ReplayRecord;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn rows(options: &str) -> Vec<Row<ReplayRecord>> {
        let line = Line::parse_from(std::iter::once("compare").chain(options.split(' ')));
        let comparison = Comparison::new(&line.args).unwrap_or_else(|_| panic!("{options}"));
        let outcomes = comparison.run().into_iter();
        let row = |ended: Vec<Result<ReplayRecord, _>>| Row {
            runs: ended.into_iter().map(|run| run.expect("it runs")).collect(),
        };
        outcomes.map(|outcome| row(outcome.ended)).collect()
    }

    /// How much more device time a transaction of the second row takes, as a share.
    fn gap([first, last]: &[Row<ReplayRecord>; 2]) -> f64 {
        let rate = |row: &Row<ReplayRecord>| row.mean(Measured::rate);
        rate(first) / rate(last) - 1.0
    }

    fn pair(options: &str) -> [Row<ReplayRecord>; 2] {
        rows(options).try_into().expect("two protocols")
    }

    /// Without the blamed cause, less than half of the difference must remain.
    #[test]
    fn without_what_is_blamed_the_difference_goes() {
        let small = "--workload uniform --requests 24000 --fill 0.3 --protocols seal,aw";
        let one_plane = format!("{small} --device lazybtree --pages-per-transaction");
        let rolls_back = "--device lazybtree --workload zipf:0.9 --requests 24000 --fill 0.9 \
                          --protocols seal,scc --abort-ratio";
        let cases = [
            (
                format!("{small} --pages-per-transaction 1"),
                Cause::Isolation,
                format!("{small} --pages-per-transaction 1 --isolation strict"),
            ),
            (
                format!("{one_plane} 1"),
                Cause::Protocol,
                format!("{one_plane} 64"),
            ),
            (
                format!("{rolls_back} 0.3"),
                Cause::Collection,
                format!("{rolls_back} 0"),
            ),
        ];
        for (with, blamed, without) in cases {
            let rows = pair(&with);
            assert_eq!(cause(&rows[0], &rows[1]), Some(blamed), "{with}");
            let (before, after) = (gap(&rows), gap(&pair(&without)));
            assert!(
                after < before / 2.0,
                "{before} with {with}, {after} with {without}"
            );
        }
    }
}
