//! `flagstone replay`: repeat one run of a campaign, step by step.

use super::{Failure, explain, say};
use flagstone_lab::campaign::{Detail, RunId, tell};
use flagstone_lab::explain::text;
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeat a run of `flagstone break` and tell it operation by operation.
///
/// Transactions that the violation is not about are left out. Exit code 0 if the run holds, 1 if it
/// ends in a violation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run id that `flagstone break` printed.
    run_id: String,
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
    let id: RunId = args
        .run_id
        .parse()
        .map_err(|error: flagstone_lab::campaign::RunIdError| Failure::Usage(error.to_string()))?;
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
