//! The command `flagstone`: compare commit protocols, break them, reproduce papers, record traces.
//!
//! Results go to stdout, progress and advice to stderr. [`Failure`] has the exit codes.

mod commands;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::Failure;
use std::process::ExitCode;

/// Transactional storage on flash: compare commit protocols, and cut the power under them.
#[derive(Parser)]
#[command(name = "flagstone", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compare(commands::compare::Args),
    Break(commands::break_::Args),
    Replay(commands::replay::Args),
    Reproduce(commands::reproduce::Args),
    Protocols(commands::protocols::Args),
    Device(commands::device::Args),
    Index(commands::index::Args),
    Trace(commands::trace::TraceArgs),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  it is done, and all is well
  1  it is done, and the verdict is bad: break and replay found a violation
  2  it could not be done; standard error says why";

/// Takes `--fill -1` for a share that is wrong, and not for an option `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let negative = |arg: clap::Arg| match arg.is_positional() || !arg.get_action().takes_values() {
        true => arg,
        false => arg.allow_negative_numbers(true),
    };
    command
        .mut_args(negative)
        .mut_subcommands(with_negative_numbers)
}

fn main() -> ExitCode {
    let matches = with_negative_numbers(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Compare(args) => commands::compare::run(&args),
        Command::Break(args) => commands::break_::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Protocols(args) => commands::protocols::run(&args),
        Command::Device(args) => commands::device::run(&args),
        Command::Index(args) => commands::index::run(&args),
        Command::Trace(args) => commands::trace::run(args),
    };
    outcome.unwrap_or_else(Failure::report)
}
