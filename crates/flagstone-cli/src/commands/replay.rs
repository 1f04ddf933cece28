//! `flagstone replay`: repeats a run of a campaign and prints it step by step.

use super::{Failure, device, explain, say};
use flagstone_campaign::campaign::{Detail, DeviceTraits, RunId, tell};
use flagstone_campaign::explain::text;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Repeat a run of `flagstone break` and print it operation by operation.
///
/// Omits transactions that are irrelevant to the violation. Exit code 0 if the run has no
/// violation, 1 if it has one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run id printed by `flagstone break`.
    run_id: String,
    /// The preset or file given to `flagstone break` as `--device`.
    #[arg(long, value_name = "NAME|FILE")]
    device: Option<String>,
    /// Omit page reads.
    #[arg(long)]
    no_reads: bool,
    /// Print everything, including transactions irrelevant to the violation.
    #[arg(long)]
    everything: bool,
    /// Write a self-contained HTML page with an animation of the steps.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  flagstone break --protocol scc --as-published          prints run ids
  flagstone replay RUN-ID                                the story as text
  flagstone replay RUN-ID --html run.html                a page: open it in a browser";

/// Repeats a run and prints its story, as text or as a page. Exit code 1 if it is violated again.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let read: Vec<&Path> = args.device.iter().map(Path::new).collect();
    let output = args.html.as_deref();
    let output = output.map(|path| explain::page(path, &read)).transpose()?;
    let device = args.device.as_deref().map(device::load).transpose()?;
    let device = device.map(|spec| Arc::new(DeviceTraits::of(&spec)));
    let id = RunId::parse_on(&args.run_id, device.as_ref());
    let id = id.map_err(|error| Failure::Usage(error.to_string()))?;
    let detail = Detail {
        reads: !args.no_reads,
        everything: args.everything,
    };
    let (story, violated) = tell(&id, detail);
    match &output {
        Some(output) => explain::write(&story, output)?,
        None => text(&story).lines().for_each(say),
    }
    Ok(ExitCode::from(u8::from(violated)))
}
