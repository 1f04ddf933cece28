//! `flagstone replay`: repeats a run of a campaign and prints it step by step.

use super::{Failure, device, explain, say};
use flagstone_campaign::campaign::{Detail, DeviceTraits, RunId, tell};
use flagstone_campaign::explain::text;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Repeat a run of `flagstone break` and tell it operation by operation.
///
/// Transactions that the violation is not about are left out. Exit code 0 if the run holds, 1 if it
/// ends in a violation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run id that `flagstone break` printed.
    run_id: String,
    /// The preset or file that `flagstone break` was given as `--device`.
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    /// Leave page reads out.
    #[arg(long)]
    no_reads: bool,
    /// Tell everything, also what has nothing to do with the violation.
    #[arg(long)]
    everything: bool,
    /// Write a page to play, step and scrub through, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  flagstone break --protocol scc --as-published          prints run ids
  flagstone replay RUN-ID                                the story as text
  flagstone replay RUN-ID --html run.html                a page: open it in a browser";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let device = args.device.as_deref().map(device::load).transpose()?;
    let device = device.map(|spec| Arc::new(DeviceTraits::of(&spec)));
    let id = RunId::parse_on(&args.run_id, device.as_ref());
    let id = id.map_err(|error| Failure::Usage(error.to_string()))?;
    let detail = Detail {
        reads: !args.no_reads,
        everything: args.everything,
    };
    let output = args.html.as_deref().map(explain::page).transpose()?;
    let (story, violated) = tell(&id, detail);
    match &output {
        Some(output) => explain::write(&story, output)?,
        None => text(&story).lines().for_each(say),
    }
    Ok(ExitCode::from(u8::from(violated)))
}
