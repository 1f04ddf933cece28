//! The program `flagstone-sqlite`: moves SQLite databases into stores and back, and times SQLite on
//! a store beside its own journal modes.
//!
//! It brings SQLite, a minute to compile, and is therefore not part of `flagstone`.

mod bench;
mod disk;
mod engine;
mod nand;
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
    Import(transfer::Import),
    Export(transfer::Export),
}

fn main() -> ExitCode {
    let outcome = match flagstone_terminal::arguments::<Cli>().command {
        Command::Bench(args) => bench::run(&args),
        Command::Sizes(args) => sizes::run(&args),
        Command::Import(args) => transfer::import(&args),
        Command::Export(args) => transfer::export(&args),
    };
    outcome.unwrap_or_else(Failure::report)
}
