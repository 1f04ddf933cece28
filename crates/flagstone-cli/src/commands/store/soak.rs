//! `flagstone store soak`: uses a store for a while, with this program as worker processes.

use crate::commands::{Failure, mebibytes, say, with_unit};
use flagstone_campaign::stores::soak::{Soak as Run, SoakControl, is_fresh, look};
use flagstone_terminal::progress_bar;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Soak {
    /// Folder for the store; created if it does not exist. Must not contain the store of an earlier
    /// soak.
    folder: PathBuf,
    /// Duration: a number of seconds, minutes or hours, such as 30s, 10m or 1h.
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = duration)]
    time: Duration,
    /// Seed of all random choices; times are not reproducible.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate a fault that must be detected: workers that leak memory, or a store replaced by an
    /// older copy of itself.
    #[arg(long, value_parser = SoakControl::ALL.map(|(_, name)| name).to_vec(), default_value = "none")]
    control: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses a time such as 30s, 10m or 1h.
fn duration(text: &str) -> Result<Duration, String> {
    let why = || "must be a number with s, m or h, such as 30s, from 10s to 1000h".to_string();
    let seconds = with_unit(text, &[("s", 1), ("m", 60), ("h", 3_600)]);
    let seconds = seconds.filter(|seconds| (10..=3_600_000).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(why)
}

/// Soaks a new store and prints the report. Exit code 1 if something was wrong.
pub(super) fn soak(args: &Soak) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(&args.folder)?;
    if !is_fresh(&args.folder) {
        return Err(Failure::Usage(format!(
            "{} contains the store of an earlier soak: use another folder",
            args.folder.display()
        )));
    }
    let run = Run {
        folder: args.folder.clone(),
        program: std::env::current_exe()?,
        time: args.time,
        seed: args.seed,
        control: SoakControl::by_name(&args.control).expect("clap has checked it"),
    };
    let bar = progress_bar(args.time.as_secs(), "soaking (s)");
    let outcome = run.run(&|passed| bar.set_position(passed.as_secs()));
    bar.finish_and_clear();
    let outcome = outcome?;
    let life = look(&args.folder)?.life;
    let verdict = ExitCode::from(u8::from(outcome.wrong.is_some()));
    if args.json {
        say(&json!({
            "ok": outcome.wrong.is_none(),
            "wrong": outcome.wrong,
            "seconds": args.time.as_secs(),
            "seed": args.seed,
            "control": args.control,
            "transactions": outcome.transactions,
            "kills": outcome.kills,
            "stops": outcome.stops,
            "compactions": outcome.compactions,
            "compactions_killed": outcome.compactions_killed,
            "backups": outcome.backups,
            "file_bytes": outcome.file_bytes,
            "memory_bytes": outcome.memory_bytes,
            "workers_sampled": outcome.workers_sampled,
            "write_amplification": life.write_amplification(),
        })
        .to_string());
        return Ok(verdict);
    }
    let [first, second] = outcome.file_bytes.map(mebibytes);
    let [early, late] = outcome.memory_bytes.map(mebibytes);
    say(&format!(
        "{} transactions, {} kills and {} stops of workers, {} compactions, {} killed compactions, \
         {} backups",
        outcome.transactions,
        outcome.kills,
        outcome.stops,
        outcome.compactions,
        outcome.compactions_killed,
        outcome.backups
    ));
    say(&format!(
        "file: at most {first} in the first half, {second} in the second"
    ));
    say(&format!(
        "memory of a worker: {early} soon after its start, {late} at the end ({} workers sampled)",
        outcome.workers_sampled
    ));
    say(&match &outcome.wrong {
        None => "no data was lost, and neither the file nor the memory kept growing".into(),
        Some(wrong) => format!("wrong: {wrong}"),
    });
    Ok(verdict)
}
