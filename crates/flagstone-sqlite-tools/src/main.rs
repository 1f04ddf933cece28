//! The program `flagstone-sqlite`: copies SQLite databases into stores and back, checks them, and
//! compares the speed of SQLite on a store with that of its own journal modes.
//!
//! It is separate from `flagstone` because it compiles SQLite, which takes a minute.

mod bench;
mod check;
mod disk;
mod engine;
mod lives;
mod process;
mod sizes;
mod transfer;

use clap::{Parser, Subcommand};
use flagstone_terminal::Failure;
use std::process::ExitCode;

/// SQLite databases in Flagstone stores.
#[derive(Parser)]
#[command(name = "flagstone-sqlite", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
    Sizes(sizes::Args),
    Lives(lives::Args),
    Import(transfer::Import),
    Export(transfer::Export),
    Check(check::Args),
}

fn main() -> ExitCode {
    let outcome = match flagstone_terminal::arguments::<Cli>().command {
        Command::Bench(args) => bench::run(&args),
        Command::Sizes(args) => sizes::run(&args),
        Command::Lives(args) => lives::run(&args),
        Command::Import(args) => transfer::import(&args),
        Command::Export(args) => transfer::export(&args),
        Command::Check(args) => check::run(&args),
    };
    outcome.unwrap_or_else(Failure::report)
}
