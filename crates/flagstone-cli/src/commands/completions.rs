//! `flagstone completions`: shell completions of all commands and options.

use super::{Failure, unless_closed};
use clap::Command;
use clap_complete::{Shell, generate};
use std::io::{Write, stdout};
use std::process::ExitCode;

/// Print a shell completion script for all commands and options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: Command) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    generate(args.shell, &mut command, "flagstone", &mut text);
    unless_closed(stdout().write_all(&text))?;
    Ok(ExitCode::SUCCESS)
}
