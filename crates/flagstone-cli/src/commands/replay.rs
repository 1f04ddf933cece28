//! `flagstone replay`: repeat one run of a campaign, step by step.

use super::{Failure, say};
use flagstone_lab::campaign::{RunId, tell};
use std::process::ExitCode;

/// Repeat a run of `flagstone break` and tell it operation by operation.
///
/// Exit code 0 if the run holds, 1 if it ends in a violation.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run id that `flagstone break` printed.
    run_id: String,
    /// Leave page reads out.
    #[arg(long)]
    no_reads: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let id: RunId = args
        .run_id
        .parse()
        .map_err(|error: flagstone_lab::campaign::RunIdError| Failure::Usage(error.to_string()))?;
    let (story, violated) = tell(&id, !args.no_reads);
    for line in story.lines() {
        say(line);
    }
    Ok(ExitCode::from(u8::from(violated)))
}
