//! The command `flagstone`: compares and tests protocols, reproduces papers, records traces.
//!
//! Results go to stdout, progress and advice to stderr. [`Failure`] defines the exit codes.
//! [`main`] is the program; other programs run its commands with [`run`].

mod commands;

use clap::{CommandFactory, Parser, Subcommand};
pub use flagstone_terminal::Failure;
use std::ffi::OsString;
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
    Compare(Box<commands::compare::Args>),
    Explain(commands::explain::Args),
    Break(commands::break_::Args),
    Replay(commands::replay::Args),
    Reproduce(commands::reproduce::Args),
    Sweep(commands::sweep::Args),
    Sensitivity(commands::sensitivity::Args),
    Protocols(commands::protocols::Args),
    Device(commands::device::Args),
    Index(commands::index::Args),
    Trace(commands::trace::TraceArgs),
    Store(commands::store::Args),
    Mtd(commands::mtd::Args),
    Man(commands::man::Args),
    Completions(commands::completions::Args),
    /// SQLite databases in stores: import, export, bench; needs the program flagstone-sqlite.
    #[command(disable_help_flag = true)]
    Sqlite(commands::apart::Args),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  it is done, and all is well
  1  it is done, and the verdict is bad: break and replay found a violation,
     store check found damage, store repair lost something,
     mtd check or mtd verify found something wrong
  2  it could not be done; standard error says why";

/// The main function of the program: parses its arguments and returns the exit code.
pub fn main() -> ExitCode {
    let examples = commands::examples::examples();
    let cli = flagstone_terminal::arguments_with::<Cli>(|command| examples.add_to(command));
    command(cli.command).unwrap_or_else(Failure::report)
}

/// Runs one command. `arguments` do not include the name of the program. Used inside other programs
/// ([`flagstone_terminal::inside`]).
///
/// # Errors
/// The arguments are invalid, or the command ends with exit code 2.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let line = std::iter::once("flagstone".into()).chain(arguments);
    command(flagstone_terminal::parsed::<Cli>(line)?.command)
}

fn command(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Compare(args) => commands::compare::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Break(args) => commands::break_::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Sensitivity(args) => commands::sensitivity::run(&args),
        Command::Protocols(args) => commands::protocols::run(&args),
        Command::Device(args) => commands::device::run(&args),
        Command::Index(args) => commands::index::run(&args),
        Command::Trace(args) => commands::trace::run(args),
        Command::Store(args) => commands::store::run(&args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        Command::Mtd(args) => commands::mtd::run(&args),
        Command::Man(args) => commands::man::run(&args, Cli::command(), EXIT_CODES),
        Command::Sqlite(args) => commands::apart::run(&commands::apart::SQLITE, &args),
    }
}
