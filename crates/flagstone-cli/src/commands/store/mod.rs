//! `flagstone store`: the commands of `flagstone-store`, and tests of stores, which need the lab.

mod bench;
mod cuts;
mod rot;
mod soak;

use super::Failure;
use flagstone_store_tools::{ProgramName, StoreCommand};
use std::process::ExitCode;

/// Make stores, look at them, check, copy and repair them, and cut the power under them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    #[command(flatten)]
    Tool(StoreCommand),
    /// Measure commits on a file system, beside a bare write and sync of as many bytes.
    Bench(bench::Bench),
    /// Cut the power under stores in memory, at writes and syncs of their medium, and look whether
    /// anything was lost. Exit code 1 if so.
    Break(cuts::Break),
    /// Kill a process that commits to a new store, again and again, and look whether anything was
    /// lost. Exit code 1 if so.
    Kill(cuts::Kill),
    /// Use a store for a while: commits, kills, backups, compactions, checks. Exit code 1 if
    /// anything is lost, or if memory or files grow without end.
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
