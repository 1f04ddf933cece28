//! `flagstone device age`: simulates years of use on cells whose bit errors grow.

use super::device::load;
use super::{Failure, note, plain_table, protocols_of, say, with_unit};
use flagstone::ftl::Operation;
use flagstone_lab::life::{Life, LifeRecord};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Age {
    /// A preset or a device file with a table `aging`.
    #[arg(default_value = "worn")]
    device: String,
    /// Protocols: `all`, or a list like `cfc,scc`.
    #[arg(long, default_value = "all")]
    protocol: String,
    /// Simulated time: a number of hours, days or years, such as 12h, 90d or 1y.
    #[arg(long = "for", value_name = "TIME", default_value = "1y", value_parser = hours)]
    time: u64,
    /// Seed of the traffic, and of which pages are weaker than others.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Never refresh a page: a control, which must lose pages.
    #[arg(long)]
    no_scrub: bool,
    /// Cut the power at operations drawn from the seed, instead of one restart per month.
    #[arg(long)]
    cuts: bool,
    /// Print one JSON object per protocol, one per line.
    #[arg(long)]
    json: bool,
}

/// Parses a time such as 12h, 90d or 1y into hours.
fn hours(text: &str) -> Result<u64, String> {
    let why = || "must be a number with h, d or y, such as 90d, and at most 100 years".into();
    with_unit(text, &[("h", 1), ("d", 24), ("y", 365 * 24)])
        .filter(|hours| (1..=100 * 365 * 24).contains(hours))
        .ok_or_else(why)
}

/// Simulates the life of a device under each protocol. Exit code 1 if one lost data.
pub(crate) fn run(args: &Age) -> Result<ExitCode, Failure> {
    let device = load(&args.device)?;
    if device.config.scrub.is_none() && !args.no_scrub {
        return Err(Failure::Usage(format!(
            "device {} does not scrub: set scrub_bits in its file, or use --no-scrub",
            device.name
        )));
    }
    let (mut records, mut left_out) = (Vec::new(), Vec::new());
    for kind in protocols_of(&args.protocol)? {
        if let Err(why) = kind.suits(&device.geometry, &device.config) {
            left_out.push(why);
            continue;
        }
        let life = Life {
            kind,
            device: device.clone(),
            hours: args.time,
            seed: args.seed,
            scrubs: !args.no_scrub,
            cuts: args.cuts,
        };
        let record = life.run().map_err(Failure::Usage)?;
        if args.json {
            say(&serde_json::to_string(&record).expect("a record is JSON"));
        }
        records.push(record);
    }
    if records.is_empty() {
        return Err(Failure::Usage(left_out.join("; ")));
    }
    if !args.json {
        table(&records);
    }
    left_out
        .iter()
        .for_each(|why| note(&format!("left out: {why}")));
    let lost = records.iter().any(|record| !record.is_whole());
    Ok(ExitCode::from(u8::from(lost)))
}

/// Prints a row for each protocol: losses, and the share of scrubbing in programs and erases.
fn table(records: &[LifeRecord]) {
    let mut table = plain_table();
    table.set_header([
        "protocol",
        "pages",
        "lost",
        "wrong",
        "refreshed",
        "patrol reads",
        "scrub programs",
        "of all",
        "scrub erases",
        "of all",
        "most bits",
        "cuts",
        "",
    ]);
    for record in records {
        let count = |operation: Operation, cause: &str| {
            let causes = &record.flash[operation.name()];
            causes.get(cause).copied().unwrap_or(0)
        };
        let erases = count(Operation::Erase, "scrub");
        let stopped = record.stopped.as_ref();
        table.add_row([
            record.protocol.to_string(),
            record.pages.to_string(),
            record.pages_lost.to_string(),
            record.wrong.to_string(),
            record.refreshed.to_string(),
            record.patrolled.to_string(),
            count(Operation::Program, "scrub").to_string(),
            format!("{:.1} %", 100.0 * record.scrub_programs),
            erases.to_string(),
            format!(
                "{:.1} %",
                100.0 * erases as f64 / record.erases.max(1) as f64
            ),
            if record.scrubs {
                format!("{} of {}", record.corrected_most, record.ecc_bits)
            } else {
                String::new()
            },
            record.cuts.to_string(),
            stopped.map_or(String::new(), |(hour, why)| {
                format!("stopped on day {}: {why}", hour / 24)
            }),
        ]);
    }
    say(&table.to_string());
}
