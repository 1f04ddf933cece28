//! `flagstone store`: commands that inspect stores, make, copy and repair whole stores, and test
//! them.

mod bench;
mod cuts;
mod database;
mod key;
mod look;
mod rekey;
mod rot;
mod soak;
mod tables;
mod whole;

use super::Failure;
use flagstone_store::tools::Progress;
use flagstone_store::{OpenOptions, PageStore, StoreError, StoreInfo};
use flagstone_terminal::progress_bar;
use key::KeyArgs;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make stores, look at them, check, copy and repair them, and cut the power under them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a store in a new file, or with --force on a block device.
    Create(whole::Create),
    /// Print what a store is and holds, and whether it was closed. It is opened for reading.
    Info(Of),
    /// Read every page, compare the books, and check tables, with --sqlite a database as well;
    /// changes nothing. Exit code 1 if something is wrong.
    Check(look::Check),
    /// Print the tables of a store, with their kinds and numbers of keys.
    Tables(tables::Tables),
    /// Print the value of a key in a table, as it is. Exit code 1 if there is none.
    Get(tables::Get),
    /// Give a key in a table a value, durably.
    Put(tables::Put),
    /// Print rows of a table, with what is no printable letter escaped.
    Scan(tables::Scan),
    /// Print what was written to a store in its life, and how long a drive lasts at that rate. Exit
    /// code 1 if a tenth of its endurance is left, or less.
    Wear(look::Wear),
    /// Print the pages of a store, one a line, or the bytes of one page.
    Dump(look::Dump),
    /// Give back the room that a store does not need. Nobody else may have it open. The file is
    /// replaced when the new one is whole and durable.
    Compact(whole::Compact),
    /// Give the room of free blocks back to the file system or the device, and move nothing. Nobody
    /// else may have the store open.
    Discard(Of),
    /// Copy a store to which nobody writes into a new file, and compare the two.
    Backup(whole::Backup),
    /// Salvage what can be read of a damaged store into a new one, and list what is lost. The
    /// damaged store is not changed. Exit code 1 if something is lost.
    Repair(whole::Repair),
    /// Change the key of an encrypted store. No data is written. Nobody may have it open.
    Rekey(rekey::Rekey),
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

#[derive(Debug, clap::Args)]
struct Of {
    /// The store: a file or a block device.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::Create(args) => whole::create(args),
        Action::Info(of) => look::info(of),
        Action::Check(args) => look::check(args),
        Action::Tables(args) => tables::tables(args),
        Action::Get(args) => tables::get(args),
        Action::Put(args) => tables::put(args),
        Action::Scan(args) => tables::scan(args),
        Action::Wear(args) => look::wear(args),
        Action::Dump(args) => look::dump(args),
        Action::Compact(args) => whole::compact(args),
        Action::Discard(of) => whole::discard(of),
        Action::Backup(args) => whole::backup(args),
        Action::Repair(args) => whole::repair(args),
        Action::Rekey(args) => rekey::rekey(args),
        Action::Bench(args) => bench::bench(args),
        Action::Break(args) => cuts::break_stores(args),
        Action::Kill(args) => cuts::kill_workers(args),
        Action::Soak(args) => soak::soak(args),
    }
}

fn open(path: &Path, key: &KeyArgs) -> Result<PageStore, Failure> {
    let reading = key.give_to(OpenOptions::existing().reading())?;
    PageStore::open(path, &reading).map_err(|error| key.advise(error))
}

/// Opens a store with its key and runs `work` on it, with a progress bar.
fn watched<T>(
    what: &str,
    key: &KeyArgs,
    work: impl FnOnce(OpenOptions, Progress<'_>) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let opening = key.give_to(OpenOptions::existing())?;
    let bar = progress_bar(0, what);
    let done = work(opening, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    done.map_err(|error| key.advise(error))
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
