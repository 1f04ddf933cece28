//! Checks the database in a store; `flagstone store check` by itself checks only the store.

use crate::engine::open_to_read;
use crate::transfer::KeyArgs;
use flagstone_terminal::{Failure, note, say};
use rusqlite::ErrorCode;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run SQLite's integrity check (`PRAGMA integrity_check`) on the database in a store. Changes
/// nothing. Exit code 1 if something is wrong. `flagstone store check --sqlite` checks the store as
/// well.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Checks the database in a store, and prints what is wrong. Ends with code 1 if anything is.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let wrong = wrong(args)?;
    let is_well = wrong.is_empty();
    if args.json {
        say(&json!({"ok": is_well, "wrong": wrong}).to_string())
    } else {
        for what in &wrong {
            note(what);
        }
        say(if is_well {
            "the database is intact: SQLite has checked it (integrity_check)"
        } else {
            "the database is damaged: export it, and salvage its rows with `.recover` of \
                     `sqlite3`"
        });
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// The problems that SQLite's integrity check reports.
fn wrong(args: &Args) -> Result<Vec<String>, Failure> {
    let db = open_to_read(&args.store, args.key.source()?.as_ref())?;
    // The VFS can describe an error in full; SQLite itself has only a short message.
    let told = |error: rusqlite::Error| {
        let why = db.query_row("PRAGMA flagstone_error", [], |row| row.get(0));
        match why {
            Ok(why) if !String::is_empty(&why) => Failure::Failed(why),
            _ => error.into(),
        }
    };
    let lines = db
        .prepare("PRAGMA integrity_check")
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect());
    let lines: Vec<String> = match lines {
        Ok(lines) => lines,
        // A database too damaged to check is a finding, not an error.
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => vec![error.to_string()],
            _ => return Err(told(error)),
        },
    };
    Ok(match lines.as_slice() {
        [only] if only == "ok" => Vec::new(),
        _ => lines,
    })
}
