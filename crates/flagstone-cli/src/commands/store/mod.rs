//! `flagstone store`: the commands of `flagstone-store`, and tests of stores, which need the lab.

mod bench;
mod cuts;
mod rot;
mod soak;

use super::Failure;
use flagstone_store_tools::{ProgramName, StoreCommand};
use std::process::ExitCode;

/// Create, inspect, check, copy and repair stores, and test them with power cuts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    #[command(flatten)]
    Tool(StoreCommand),
    /// Measure the speed of commits on a file system, compared with plain writes and syncs of as
    /// many bytes.
    Bench(bench::Bench),
    /// Cut the power under stores in memory, at writes and syncs of their medium, and check for
    /// lost data. Exit code 1 if data was lost.
    Break(cuts::Break),
    /// Repeatedly kill a process that commits to a new store, and check for lost data. Exit code 1
    /// if data was lost.
    Kill(cuts::Kill),
    /// Use a store for a while: commits, kills, backups, compactions, checks. Exit code 1 if data
    /// is lost, or if memory or files grow without bound.
    Soak(soak::Soak),
}

/// The program of this crate.
const FLAGSTONE: ProgramName = ProgramName {
    typed: "flagstone store",
    package: "flagstone-cli",
};

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::Tool(command) => flagstone_store_tools::run(command, FLAGSTONE),
        Action::Bench(args) => bench::bench(args),
        Action::Break(args) => cuts::break_stores(args),
        Action::Kill(args) => cuts::kill_workers(args),
        Action::Soak(args) => soak::soak(args),
    }
}

fn no_encryption() -> Failure {
    flagstone_store_tools::no_encryption(FLAGSTONE)
}
