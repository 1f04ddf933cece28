//! `flagstone compare --stack`: runs the same transactions on several database stacks.

use super::report::{Outcome, Printed, Refusal, report, run_all};
use super::table::{Cell, Column, hundredths, tenths};
use super::{Args, Failure, Input, Seeds, checks, device_of, elsewhere, input_of, least_of};
use crate::commands::settings::{Given, Owner, once_each};
use crate::commands::{named, runs, stacks_of};
use flagstone::commit::{DeviceError, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{HostError, Stack};
use flagstone_lab::closed::{Closed, ClosedError, ClosedRecord, Recorded, Recording, Terms};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::ranking::{millis, separation};
use flagstone_lab::replay::{Played, ReplayRecord};
use std::process::ExitCode;

/// The database above the device.
#[derive(clap::Args, Clone)]
pub(super) struct HostArgs {
    /// Replay on databases instead of bare devices, with a buffer pool, locks and recovery;
    /// separated by commas: `wal`, `cfc-ex`, `afc-ex`, `force:PROTOCOL`, or `all`. A recorded read
    /// accesses a page, a recorded write updates a record in it.
    #[arg(long, conflicts_with_all = ["protocols", "isolation"])]
    pub stack: Option<String>,
    /// Frames of the buffer pool [default: 512].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    pub frames: Option<u32>,
    /// Eviction policy of the buffer pool [default: lru].
    #[arg(long,
          value_parser = named(PolicyKind::ALL.iter().map(|kind| (*kind, kind.info().name))))]
    pub policy: Option<PolicyKind>,
    /// Pages of the log, for stacks that have one [default: 1024].
    #[arg(long)]
    pub log_pages: Option<u32>,
    /// Transactions to run before measuring [default: 0].
    #[arg(long)]
    pub warm_up: Option<u64>,
}

impl HostArgs {
    fn policy(&self) -> PolicyKind {
        self.policy.unwrap_or(Terms::default().policy)
    }

    fn log_pages(&self) -> u32 {
        self.log_pages.unwrap_or(Terms::default().log_pages)
    }
}

/// The transactions to run.
enum Kept {
    Trace(Recording),
    Scripts(Input),
}

pub(super) fn run(args: &Args, list: &str) -> Result<ExitCode, Failure> {
    let stacks = stacks_of(list)?;
    checks::stacks(args, &stacks)?;
    let set = Given::parse(&args.set)?;
    let parts = stacks.iter().flat_map(|stack| {
        let below = matches!(stack, Stack::Force(_)).then(|| Owner::of(stack.below().info()));
        [Owner::of(stack.manager())].into_iter().chain(below)
    });
    let run = once_each(parts.chain([Owner::of(args.host.policy().info())]));
    set.check(&run, &Owner::of_stacks())?;
    let device = device_of(args)?;
    let page_bytes = device.geometry.page_bytes;
    let seeds = Seeds::of(args);
    let capacity = |stack: &Stack, device: &DeviceSpec| {
        let setup = closed(args, &set, device, *stack, seeds.first, "");
        setup.capacity()
    };
    for &stack in &stacks {
        let setup = closed(args, &set, &device, stack, seeds.first, "");
        checks::host_values(&setup)?;
        checks::values(&setup.device_fill())?;
    }
    let smallest = || {
        least_of(stacks.iter().map(|stack| {
            let elsewhere = || elsewhere(args, &device, |other| capacity(stack, other).is_ok());
            capacity(stack, &device).map_err(|error| format!("{error}{}", elsewhere()))
        }))
    };
    let (input, source) = input_of(args, smallest)?;
    let kept = match input {
        Input::Trace(trace) => {
            let last = trace.events.last().map_or(0, |event| event.time_ns);
            checks::arrivals(args, last, &device)?;
            Kept::Trace(Recording::from_trace(&trace, page_bytes)?)
        }
        input @ Input::Workloads(_) => Kept::Scripts(input),
    };
    let setup = |stack, nth| closed(args, &set, &device, stack, seeds.nth(nth), &source.name);
    let effort_of = |&stack: &Stack, nth| {
        setup(stack, nth).effort(match &kept {
            Kept::Trace(recording) => recording.transactions(),
            Kept::Scripts(input) => input.script(nth).transactions().len() as u64,
        })
    };
    let one = |&stack: &Stack, nth| match &kept {
        Kept::Trace(recording) => {
            let mut played: Recorded = recording.source();
            setup(stack, nth).run(&mut played)
        }
        Kept::Scripts(input) => setup(stack, nth).run(&mut Played::new(input.script(nth))),
    };
    let outcomes = runs::watched("comparing", || {
        run_all(&stacks, seeds, args.threads, effort_of, one)
    });
    if let Some(warm_up) = args.host.warm_up {
        let mut ended = outcomes.iter().flat_map(Outcome::runs).peekable();
        if ended.peek().is_some() && ended.all(|run| run.committed + run.rolled_back == 0) {
            return Err(Failure::Usage(format!(
                "--warm-up {warm_up}: {} has no more transactions than that, so none would be \
                 measured: use a smaller --warm-up",
                source.name
            )));
        }
    }
    let suits = |stack: &Stack, device: &DeviceSpec| capacity(stack, device).is_ok();
    let about = |record: &ClosedRecord| {
        let logs = stacks.iter().any(|stack| !matches!(stack, Stack::Force(_)));
        let log = if logs {
            format!(", {} log pages", args.host.log_pages())
        } else {
            String::new()
        };
        let mut lines = vec![
            format!(
                "{}: {} committed and {} rolled back transactions, {}",
                source.name,
                record.committed,
                record.rolled_back,
                super::arrivals(record.clients, record)
            ),
            super::about(&device, Some(record.fill)),
            format!("database: {} frames, {}{log}", record.frames, record.policy),
        ];
        lines.extend(set.about(&run));
        lines
    };
    let printed = Printed {
        columns: COLUMNS,
        structures: &[ReplayRecord::STRUCTURES, ClosedRecord::STRUCTURES].concat(),
        about: &about,
        reasons: separation::lines,
    };
    report(args, &device, outcomes, &printed, "stack", suits)
}

/// The closed loop over one stack with one seed.
fn closed(
    args: &Args,
    set: &Given,
    device: &DeviceSpec,
    stack: Stack,
    seed: u64,
    workload: &str,
) -> Closed {
    let defaults = Terms::default();
    let mut options = Options::default();
    options.as_published = args.as_published;
    if let Stack::Force(kind) = stack {
        options.settings = set.of(kind.info());
    }
    Closed {
        stack,
        options,
        device: device.clone(),
        settings: set.of(stack.manager()),
        policy_settings: set.of(args.host.policy().info()),
        terms: Terms {
            clients: args.clients.unwrap_or(super::CLIENTS),
            speedup: args.speedup,
            // Stacks have their default settings; the device is collecting garbage.
            locks: None,
            steal: true,
            overwrite: true,
            frames: args.host.frames.unwrap_or(defaults.frames),
            policy: args.host.policy(),
            log_pages: args.host.log_pages(),
            history_log: None,
            back_off_ms: defaults.back_off_ms,
            abort_ratio: args.abort_ratio,
            fill: args.fill.unwrap_or(super::FILL),
            warm_up: args.host.warm_up.unwrap_or(0),
            // Replay the whole trace.
            transactions: u64::MAX,
            seed,
            check: false,
        },
        workload: workload.to_string(),
    }
}

impl Refusal for ClosedError {
    fn is_refusal(&self) -> bool {
        match self {
            ClosedError::Fill(error) => error.is_refusal(),
            ClosedError::Open { error, .. } => matches!(
                error,
                HostError::Config(_) | HostError::Device(DeviceError::Unsuitable(_))
            ),
            ClosedError::TooLarge { .. } | ClosedError::Run { .. } => false,
        }
    }
}

fn each(record: &ClosedRecord, count: u64) -> f64 {
    count as f64 / record.committed.max(1) as f64
}

pub(super) const COLUMNS: &[Column<ClosedRecord>] = &[
    Column {
        heading: "stack",
        says: "the recovery manager, and the protocol below it",
        rank: 0,
        cell: Cell::Word(|r| r.stack.clone()),
    },
    Column::RATE,
    Column::RATE_RANGE,
    Column::KEEPS_UP,
    Column::RELATIVE,
    Column {
        heading: "tx ms",
        says: "mean response time of committed transactions, all waits and restarts included",
        rank: 3,
        cell: Cell::Committed(|r| r.response_ns.mean, millis),
    },
    Column::MEDIAN,
    Column::TAIL,
    Column::TAIL_RANGE,
    Column::FAR_TAIL,
    Column {
        heading: "wait ms",
        says: "of tx ms, waits for locks and for a free slot of the device",
        rank: 4,
        cell: Cell::Committed(|r| r.isolation_wait_ns.mean, millis),
    },
    Column {
        heading: "commit ms",
        says: "of tx ms, from the commit request on, without the wait for a slot of the device",
        rank: 5,
        cell: Cell::Committed(|r| r.commit_ns.mean, millis),
    },
    Column {
        heading: "hits",
        says: "hit ratio of the buffer pool",
        rank: 11,
        cell: Cell::Number(
            |r| r.pool_hit_ratio,
            |share| format!("{:.1} %", share * 100.0),
        ),
    },
    Column {
        heading: "reads",
        says: "data pages read by the host, per transaction",
        rank: 10,
        cell: Cell::Committed(|r| each(r, r.pages_read), tenths),
    },
    Column {
        heading: "writes",
        says: "data pages written by the host, per transaction",
        rank: 8,
        cell: Cell::Committed(|r| each(r, r.pages_written), tenths),
    },
    Column {
        heading: "log",
        says: "log pages written by the host, per transaction",
        rank: 9,
        cell: Cell::Committed(|r| each(r, r.log_pages), tenths),
    },
    Column {
        heading: "again",
        says: "restarts of transactions, per commit",
        rank: 9,
        cell: Cell::Committed(|r| r.restart_ratio, hundredths),
    },
    Column {
        heading: "gc",
        says: "pages copied by garbage collection, per transaction",
        rank: 7,
        cell: Cell::Committed(
            |r| each(r, r.flash_operations(Operation::Program, Cause::Gc)),
            tenths,
        ),
    },
    Column {
        heading: "wa",
        says: "write amplification, pages programmed for each page that the host wrote",
        rank: 6,
        cell: Cell::Number(|r| r.write_amplification, hundredths),
    },
    Column::PLANES,
    Column::CHANNELS,
    Column::FOR_HOST,
    Column::FOR_COLLECTION,
    Column::FOR_PROTOCOL,
    Column {
        heading: "restart ms",
        says: "a restart after the run",
        rank: 6,
        cell: Cell::Number(|r| r.recovery_ns as f64, millis),
    },
];
