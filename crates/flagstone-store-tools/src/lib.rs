//! Commands that create, inspect, check, copy and repair stores. They are the commands of the
//! program `flagstone-store`; `flagstone store` has them as well, beside its tests of stores.
//!
//! This crate handles users' data. It depends neither on the lab nor on any other crate that is
//! built with deliberate mistakes.
#![forbid(unsafe_code)]

mod database;
mod examples;
mod key;
mod look;
mod rekey;
mod tables;
mod whole;

use clap::Parser;
pub use examples::EXAMPLES;
use flagstone::commit::Kind;
use flagstone_store::tools::Progress;
use flagstone_store::{OpenOptions, PageStore, StoreError, StoreInfo};
use flagstone_terminal::{Examples, Failure, progress_bar, unknown};
use key::KeyArgs;
pub use key::no_encryption;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Create, inspect, check, copy and repair stores.
#[derive(Parser)]
#[command(name = "flagstone-store", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: StoreCommand,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  it is done, and all is well
  1  it is done, and the verdict is bad: check or dump found damage,
     repair lost something, get found no key, or a drive is near its end
  2  it could not be done; standard error says why";

/// A command on one store.
#[derive(Debug, clap::Subcommand)]
pub enum StoreCommand {
    /// Create a store in a new file, or with --force on a block device.
    Create(whole::Create),
    /// Print a store's properties and contents, and whether it was closed cleanly. Opens it for
    /// reading.
    Info(Of),
    /// Read every page, compare the counters, and check tables; with --sqlite check a database as
    /// well. Changes nothing. Exit code 1 if something is wrong.
    Check(look::Check),
    /// Print the tables of a store, with their kinds and numbers of keys.
    Tables(tables::Tables),
    /// Print the raw value of a key in a table. Exit code 1 if the key is missing.
    Get(tables::Get),
    /// Set the value of a key in a table, durably.
    Put(tables::Put),
    /// Print rows of a table; escapes non-printable bytes.
    Scan(tables::Scan),
    /// Print the bytes written to a store so far, and how long a drive lasts at that rate. Exit
    /// code 1 if a tenth of the drive's endurance or less is left.
    Wear(look::Wear),
    /// Print the pages of a store, one per line, or the bytes of one page.
    Dump(look::Dump),
    /// Free unused space: copy the pages into a new file, which replaces the old one once it is
    /// complete and durable. The store must not be open elsewhere.
    Compact(whole::Compact),
    /// Return the space of free blocks to the file system or device (punch holes or discard),
    /// without moving data. The store must not be open elsewhere.
    Discard(Of),
    /// Copy a store into a new file and compare the two. No other process may be writing to it.
    Backup(whole::Backup),
    /// Salvage the readable data of a damaged store into a new store, and list what is lost. The
    /// damaged store is not changed. Exit code 1 if something is lost.
    Repair(whole::Repair),
    /// Change the key of an encrypted store. Rewrites no data. The store must not be open
    /// elsewhere.
    Rekey(rekey::Rekey),
}

/// Arguments of commands that need only a store.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The store: a file or a block device.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The program that runs the commands, for messages that tell the user what to type.
#[derive(Debug, Clone, Copy)]
pub struct ProgramName {
    /// The words typed before a command, such as `flagstone store`.
    pub typed: &'static str,
    /// The cargo package that contains the program.
    pub package: &'static str,
}

/// The program of this crate.
const FLAGSTONE_STORE: ProgramName = ProgramName {
    typed: "flagstone-store",
    package: "flagstone-store-tools",
};

/// The main function of `flagstone-store`: parses its arguments and returns the exit code.
pub fn main() -> ExitCode {
    let examples = Examples::new(FLAGSTONE_STORE.typed, EXAMPLES);
    let cli = flagstone_terminal::arguments_with::<Cli>(|command| examples.add_to(command));
    run(&cli.command, FLAGSTONE_STORE).unwrap_or_else(Failure::report)
}

/// Runs one command for `program`.
///
/// # Errors
/// The arguments are invalid, or the command ends with exit code 2.
pub fn run(command: &StoreCommand, program: ProgramName) -> Result<ExitCode, Failure> {
    match command {
        StoreCommand::Create(args) => whole::create(args, program),
        StoreCommand::Info(of) => look::info(of, program),
        StoreCommand::Check(args) => look::check(args, program),
        StoreCommand::Tables(args) => tables::tables(args, program),
        StoreCommand::Get(args) => tables::get(args, program),
        StoreCommand::Put(args) => tables::put(args, program),
        StoreCommand::Scan(args) => tables::scan(args, program),
        StoreCommand::Wear(args) => look::wear(args, program),
        StoreCommand::Dump(args) => look::dump(args, program),
        StoreCommand::Compact(args) => whole::compact(args, program),
        StoreCommand::Discard(of) => whole::discard(of, program),
        StoreCommand::Backup(args) => whole::backup(args, program),
        StoreCommand::Repair(args) => whole::repair(args, program),
        StoreCommand::Rekey(args) => rekey::rekey(args, program),
    }
}

/// The protocol called `name`.
///
/// # Errors
/// The name is unknown. The message lists all names.
pub fn protocol_of(name: &str) -> Result<Kind, Failure> {
    Kind::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().name).collect();
        unknown("protocol", name, &names)
    })
}

fn open(path: &Path, key: &KeyArgs, program: ProgramName) -> Result<PageStore, Failure> {
    let reading = key.give_to(OpenOptions::existing().reading(), program)?;
    PageStore::open(path, &reading).map_err(|error| key.advise(error, program))
}

/// Opens a store with its key and runs `work` on it, with a progress bar.
fn watched<T>(
    what: &str,
    key: &KeyArgs,
    program: ProgramName,
    work: impl FnOnce(OpenOptions, Progress<'_>) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let opening = key.give_to(OpenOptions::existing(), program)?;
    let bar = progress_bar(0, what);
    let done = work(opening, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done.map_err(|error| key.advise(error, program))
}

fn as_json(info: &StoreInfo) -> serde_json::Value {
    json!({
        "protocol": info.protocol.info().name,
        "pages": info.pages,
        "page_bytes": PageStore::PAGE_BYTES,
        "bytes": info.bytes,
        "blocks": info.blocks,
        "free_blocks": info.free_blocks,
        "pages_per_block": info.pages_per_block,
        "openings": info.openings,
        "unclosed_openings": info.life.unclosed,
        "closed": info.closed,
        "resumed": info.resumed,
        "needs_recovery": info.closed.map(|closed| !closed),
        "memory_bytes": info.memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        let examples = Examples::new(FLAGSTONE_STORE.typed, EXAMPLES);
        assert_eq!(examples.problems(&Cli::command(), &[]), [""; 0]);
    }
}
