//! `flagstone store bench`: measures the speed of commits and prints a table.

use crate::commands::{Failure, mebibytes, note, plain_table, progress_bar, protocol_of, say};
use flagstone_campaign::stores::bench::{BenchTimes, StoreBench, Times};
use flagstone_campaign::stores::counted::Count;
use flagstone_store::OpenOptions;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    /// A folder on the file system to measure. Creates two files in it and removes them.
    #[arg(required_unless_present = "space")]
    folder: Option<PathBuf>,
    /// Instead, count in memory the cost of each of these space bounds of a store (see
    /// `OpenOptions::space`). Prints three rows each: collecting blocks in steps, while the store
    /// is idle, and all at once.
    #[arg(long, value_name = "TIMES", value_delimiter = ',',
          conflicts_with_all = ["folder", "encrypt", "whole", "commits"])]
    space: Vec<f64>,
    /// Also measure a store that collects whole blocks at once, and print its times in three
    /// columns.
    #[arg(long, conflicts_with = "encrypt")]
    whole: bool,
    /// Pages per commit, separated by commas; one row of the table for each.
    #[arg(long, value_name = "PAGES", value_delimiter = ',', default_values_t = [1, 2, 8, 32],
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pages: Vec<u32>,
    /// Commits to measure, after a warm-up of half as many.
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    commits: u32,
    /// Mebibytes of data in the store.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    megabytes: u32,
    /// The commit protocol.
    #[arg(long, default_value = "seal")]
    protocol: String,
    /// Seed that selects the pages to write and read.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also measure an encrypted store, and print its commits per second and read time in two
    /// columns, relative to the unencrypted store.
    #[arg(long)]
    encrypt: bool,
    /// Print one JSON object per row, one per line.
    #[arg(long)]
    json: bool,
}

pub(super) fn bench(args: &Bench) -> Result<ExitCode, Failure> {
    let Some(folder) = &args.folder else {
        return count(args);
    };
    let pages = args.megabytes * 256;
    let mut options = OpenOptions::default().with_protocol(protocol_of(&args.protocol)?);
    // A store that cannot grow starts with space for its contents and half as much again.
    if options.protocol != OpenOptions::default().protocol {
        options.bytes = u64::from(args.megabytes) << 20;
        options.bytes += options.bytes / 2;
    }
    let mut keyed = args.encrypt.then(|| keyed(&options)).transpose()?;
    if args.whole {
        let mut whole = options.clone();
        whole.whole_collections = true;
        keyed = Some(whole);
    }
    let all = u64::from(args.commits + args.commits / 2) * args.pages.len() as u64;
    let all = all * if keyed.is_some() { 2 } else { 1 };
    let bar = progress_bar(all, "committing");
    let mut measured = Vec::new();
    for &pages_a_commit in &args.pages {
        let mut run = StoreBench {
            folder: folder.clone(),
            options: options.clone(),
            pages,
            pages_a_commit,
            commits: args.commits,
            seed: args.seed,
        };
        let plain = run.run(&mut |made| bar.inc(made))?;
        let mut encrypted = None;
        if let Some(keyed) = &keyed {
            run.options = keyed.clone();
            encrypted = Some(run.run(&mut |made| bar.inc(made))?);
        }
        measured.push((pages_a_commit, plain, encrypted));
    }
    bar.finish_and_clear();
    if args.json {
        for (pages, measured, encrypted) in &measured {
            let mut row = as_json(*pages, measured);
            if let Some(encrypted) = encrypted {
                let name = if args.whole { "whole" } else { "encrypted" };
                row[name] = as_json(*pages, encrypted);
            }
            say(&row.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut shown = plain_table();
    let mut header = vec![
        "pages",
        "commits/s",
        "floor = 1",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "KiB",
        "syncs",
        "read us",
        "size",
        "open ms",
    ];
    if args.encrypt {
        header.extend(["encrypted", "read"]);
    }
    if args.whole {
        header.extend(["whole: p99", "p99.9", "slowest"]);
    }
    shown.set_header(header);
    for (pages, of, encrypted) in &measured {
        let mut row = vec![
            pages.to_string(),
            format!("{:.0}", of.store.rate()),
            format!("{:.2}", of.store.rate() / of.floor.rate()),
            micros(&of.store, 0.5),
            micros(&of.store, 0.99),
            micros(&of.store, 0.999),
            format!("{:.1}", of.bytes_a_commit / 1024.0),
            format!("{:.2}", of.syncs_a_commit),
            micros(&of.reads, 0.5),
            mebibytes(of.bytes),
            format!("{:.1}", of.opened.as_secs_f64() * 1e3),
        ];
        if let (Some(whole), true) = (encrypted, args.whole) {
            row.extend([0.99, 0.999, 1.0].map(|share| micros(&whole.store, share)));
        } else if let Some(encrypted) = encrypted {
            let read = |times: &Times| us(times.at(0.5));
            row.push(format!("{:.2}", encrypted.store.rate() / of.store.rate()));
            row.push(format!("{:.2}", read(&encrypted.reads) / read(&of.reads)));
        }
        shown.add_row(row);
    }
    say(&shown.trim_fmt());
    note(
        "floor: the same bytes as one write and one sync, measured alternately with the store. \
         Times depend on this machine; ratios hardly do",
    );
    Ok(ExitCode::SUCCESS)
}

/// The number of pages written between two idle times of the store.
const IDLE_AFTER: u32 = 1_000;

/// Counts the cost of each bound of space, for three ways to collect blocks: in steps, while the
/// store is idle, and all at once.
fn count(args: &Bench) -> Result<ExitCode, Failure> {
    let rounds = 4;
    let pages = args.megabytes * 256;
    let mut runs = Vec::new();
    for &pages_a_commit in &args.pages {
        for &space in &args.space {
            for (whole, idle_after) in [(false, None), (false, Some(IDLE_AFTER)), (true, None)] {
                let mut options =
                    OpenOptions::default().with_protocol(protocol_of(&args.protocol)?);
                options.space = space;
                options.whole_collections = whole;
                runs.push(Count {
                    options,
                    pages,
                    pages_a_commit,
                    rounds,
                    idle_after,
                    seed: args.seed,
                });
            }
        }
    }
    let all = runs.iter().map(|run| 2 * run.commits()).sum();
    let bar = progress_bar(all, "counting");
    let mut shown = plain_table();
    shown.set_header(vec![
        "pages", "space", "collects", "size", "written", "blocks", "p50", "p99", "p99.9", "most",
        "syncs",
    ]);
    for run in runs {
        let of = run.run(&mut |made| bar.inc(made))?;
        let how = match (run.options.whole_collections, run.idle_after) {
            (true, _) => "whole blocks",
            (false, None) => "in steps",
            (false, Some(_)) => "while idle",
        };
        if args.json {
            let row = json!({
                "pages_a_commit": run.pages_a_commit,
                "space": run.options.space,
                "in_steps": !run.options.whole_collections,
                "idle_after_pages": run.idle_after,
                "size": of.size,
                "written": of.written,
                "collections": of.collections,
                "p50_pages": of.at(0.5),
                "p99_pages": of.at(0.99),
                "p999_pages": of.at(0.999),
                "most_pages": of.at(1.0),
                "syncs_a_commit": of.syncs,
            });
            say(&row.to_string());
            continue;
        }
        shown.add_row(vec![
            run.pages_a_commit.to_string(),
            format!("{}", run.options.space),
            how.into(),
            format!("{:.2}", of.size),
            format!("{:.2}", of.written),
            of.collections.to_string(),
            of.at(0.5).to_string(),
            of.at(0.99).to_string(),
            of.at(0.999).to_string(),
            of.at(1.0).to_string(),
            format!("{:.3}", of.syncs),
        ]);
    }
    bar.finish_and_clear();
    if !args.json {
        say(&shown.trim_fmt());
        note(
            "size: bytes of the store per byte of data. written: pages written to the medium per \
             page of the user. blocks: blocks collected. Other columns: pages written per commit. \
             All figures are counts, none is a time",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Options for an encrypted store. The key is arbitrary: the cost is the same for every key.
fn keyed(options: &OpenOptions) -> Result<OpenOptions, Failure> {
    #[cfg(feature = "encryption")]
    {
        let mut options = options.clone();
        options.key = Some(flagstone_store::Key::raw([1; 32]));
        Ok(options)
    }
    #[cfg(not(feature = "encryption"))]
    {
        let _ = options;
        Err(super::no_encryption())
    }
}

fn micros(times: &Times, share: f64) -> String {
    format!("{:.0}", us(times.at(share)))
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The measurements with `pages` pages per commit as a JSON object.
fn as_json(pages: u32, of: &BenchTimes) -> Value {
    let times = |times: &Times| {
        json!({
            "per_s": times.rate(),
            "p50_us": us(times.at(0.5)),
            "p99_us": us(times.at(0.99)),
            "p999_us": us(times.at(0.999)),
            "max_us": us(times.at(1.0)),
        })
    };
    json!({
        "pages_a_commit": pages,
        "store": times(&of.store),
        "floor": times(&of.floor),
        "reads": times(&of.reads),
        "bytes_a_commit": of.bytes_a_commit,
        "syncs_a_commit": of.syncs_a_commit,
        "bytes": of.bytes,
        "open_us": us(of.opened),
    })
}
