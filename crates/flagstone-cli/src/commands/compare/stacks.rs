//! `flagstone compare --stack`: the same transactions on databases, side by side.

use super::{Args, Failure, Input, conclude, device_of, input_of, least_of};
use super::{progress_bar, say, table};
use flagstone::buffer::PolicyKind;
use flagstone::commit::{DeviceError, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::host::{HostConfig, HostError, Stack};
use flagstone::units::Nanos;
use flagstone_lab::closed::{
    Closed, ClosedError, ClosedRecord, Plan, Played, Recorded, Recording, Span,
};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::replay::{Script, Source};
use rayon::prelude::*;
use std::process::ExitCode;

/// The database above the device.
#[derive(clap::Args)]
pub struct HostArgs {
    /// Play on databases instead of bare devices, with a buffer pool, locks and recovery; separated
    /// by commas: `wal`, `cfc-ex`, `afc-ex`, `force:PROTOCOL`, or `all`. A recorded read is a look
    /// at a page, a write an update of a record in it.
    #[arg(long, conflicts_with_all = ["protocols", "isolation"])]
    pub stack: Option<String>,
    /// Frames of the buffer pool.
    #[arg(long, default_value_t = 512, requires = "stack",
          value_parser = clap::value_parser!(u32).range(2..))]
    frames: u32,
    /// Which page leaves the pool.
    #[arg(long, default_value = "lru", requires = "stack",
          value_parser = PolicyKind::ALL.iter().map(|kind| kind.info().name).collect::<Vec<_>>())]
    policy: String,
    /// Pages of the log.
    #[arg(long, default_value_t = 1024, requires = "stack")]
    log_pages: u32,
    /// `wal`: microseconds that a commit may wait for others, so that the log is forced once for
    /// several. It waits only where others run and no log page is full.
    #[arg(long, default_value_t = 0, requires = "stack", value_name = "US",
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    group_wait: u64,
    /// Transactions that run before anything is counted.
    #[arg(long, default_value_t = 0, requires = "stack")]
    warm_up: u64,
}

/// One run and how it ended.
type Outcome = (Stack, Result<ClosedRecord, ClosedError>);

/// What is played.
enum Kept {
    Trace(Recording),
    Script(Script),
}

pub fn run(args: &Args, list: &str) -> Result<ExitCode, Failure> {
    let stacks = stacks_of(list)?;
    let device = device_of(args)?;
    let page_bytes = device.geometry.page_bytes;
    let smallest = || {
        let setups = stacks.iter().map(|stack| closed(args, &device, *stack, ""));
        least_of(setups.map(|setup| setup.capacity()))
    };
    let (input, source) = input_of(args, smallest)?;
    let kept = match input {
        Input::Trace(trace) => Kept::Trace(Recording::from_trace(&trace, page_bytes)?),
        Input::Workload(script) => Kept::Script(script),
    };
    let bar = progress_bar(stacks.len() as u64, "comparing");
    let outcomes: Vec<Outcome> = stacks
        .par_iter()
        .map(|&stack| {
            let setup = closed(args, &device, stack, &source.name);
            let outcome = match &kept {
                Kept::Trace(recording) => {
                    let mut played: Recorded = recording.source();
                    setup.run(&mut played)
                }
                Kept::Script(script) => setup.run(&mut Played::new(script)),
            };
            bar.inc(1);
            (stack, outcome)
        })
        .collect();
    bar.finish_and_clear();
    print(args, &device, &source, &outcomes)
}

fn stacks_of(list: &str) -> Result<Vec<Stack>, Failure> {
    if list == "all" {
        return Ok(Stack::all());
    }
    list.split(',')
        .map(|name| name.trim().parse())
        .collect::<Result<_, HostError>>()
        .map_err(|error| Failure::Usage(error.to_string()))
}

fn closed(args: &Args, device: &DeviceSpec, stack: Stack, workload: &str) -> Closed {
    let policy = PolicyKind::ALL
        .iter()
        .find(|kind| kind.info().name == args.host.policy);
    Closed {
        stack,
        options: Options {
            as_published: args.as_published,
            ..Options::default()
        },
        device: device.clone(),
        host: HostConfig {
            frames: args.host.frames as usize,
            policy: *policy.expect("clap has checked it"),
            log_pages: args.host.log_pages,
            group_wait: Nanos::from_micros(args.host.group_wait),
            ..HostConfig::default()
        },
        plan: Plan {
            clients: args.clients,
            speedup: args.speedup,
            abort_ratio: args.abort_ratio,
            back_off: Nanos::from_micros(10_000),
            seed: args.seed,
            check: false,
        },
        fill: args.fill,
        overwrite: true,
        warm_up: match args.host.warm_up {
            0 => Span::NONE,
            count => Span::Transactions(count),
        },
        measured: Span::Transactions(u64::MAX),
        workload: workload.to_string(),
    }
}

fn print(
    args: &Args,
    device: &DeviceSpec,
    source: &Source,
    outcomes: &[Outcome],
) -> Result<ExitCode, Failure> {
    let records: Vec<&ClosedRecord> = outcomes
        .iter()
        .filter_map(|(_, run)| run.as_ref().ok())
        .collect();
    let warm_up = args.host.warm_up;
    let counted = |record: &&ClosedRecord| record.committed + record.rolled_back > 0;
    if warm_up > 0 && !records.is_empty() && !records.iter().any(counted) {
        return Err(Failure::Usage(format!(
            "--warm-up {warm_up}: {} has no more transactions than that, and nothing is left to be \
             counted; use fewer",
            source.name
        )));
    }
    let mut order = records.clone();
    order.sort_by(|a, b| b.throughput_tps.total_cmp(&a.throughput_tps));
    let best = order.first().copied();
    let rows: Vec<Vec<String>> = order
        .iter()
        .flat_map(|record| best.map(|best| row(record, best)))
        .collect();
    if args.json {
        for record in &records {
            say(&serde_json::to_string(record).expect("records have plain fields"));
        }
    } else if args.csv {
        table::csv(&records).iter().for_each(|line| say(line));
    } else if args.markdown {
        let lines = table::markdown_of(&HEADINGS, 1, &rows);
        lines.iter().for_each(|line| say(line));
    } else if let Some(best) = best {
        let arrivals = match (best.clients, best.speedup) {
            (Some(clients), _) => format!("{clients} clients"),
            (None, speedup) => format!("arriving {} times as fast", speedup.unwrap_or(1.0)),
        };
        say(&format!(
            "{}: {} committed and {} rolled back transactions, {arrivals}",
            source.name, best.committed, best.rolled_back
        ));
        say(&table::about(device, best.fill));
        say(&format!(
            "database: {} frames, {}, {} log pages\n",
            best.frames, best.policy, args.host.log_pages
        ));
        let lines = table::plain(&HEADINGS, 1, rows);
        lines.iter().for_each(|line| say(line));
        say("\nreads, writes, log: pages for each committed transaction; again: restarts for each");
        say("of them; gc: pages copied; wa: pages programmed for each page that the host wrote");
        say("times and rates are virtual, and exact for this seed");
    }
    let not_made = outcomes.iter().filter_map(|(stack, outcome)| {
        let error = outcome.as_ref().err()?;
        Some((stack.to_string(), error.to_string(), is_refusal(error)))
    });
    conclude(not_made, outcomes.len(), "stack")
}

/// Whether a stack and a device do not go together, as opposed to a run that failed.
fn is_refusal(error: &ClosedError) -> bool {
    match error {
        ClosedError::Fill(error) => error.is_refusal(),
        ClosedError::Open { error, .. } => matches!(
            error,
            HostError::Config(_) | HostError::Device(DeviceError::Unsuitable(_))
        ),
        ClosedError::TooLarge { .. } | ClosedError::Run { .. } => false,
    }
}

const HEADINGS: [&str; 14] = [
    "stack",
    "tx/s",
    "relative",
    "tx ms",
    "p99",
    "commit ms",
    "hits",
    "reads",
    "writes",
    "log",
    "again",
    "gc",
    "wa",
    "restart ms",
];

fn row(record: &ClosedRecord, best: &ClosedRecord) -> Vec<String> {
    let committed = record.committed.max(1) as f64;
    let each = |count: u64| format!("{:.1}", count as f64 / committed);
    vec![
        record.stack.clone(),
        format!("{:.0}", record.throughput_tps),
        format!("{:.2}", record.throughput_tps / best.throughput_tps),
        table::millis(record.response_ns.mean),
        table::millis(record.response_ns.p99 as f64),
        table::millis(record.commit_ns.mean),
        format!("{:.1} %", record.pool_hit_ratio * 100.0),
        each(record.pages_read),
        each(record.pages_written),
        each(record.log_pages),
        format!("{:.2}", record.restart_ratio),
        each(record.flash_operations(Operation::Program, Cause::Gc)),
        format!("{:.2}", record.write_amplification),
        table::millis(record.recovery_ns as f64),
    ]
}
