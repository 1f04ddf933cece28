//! A database moves into a store, or out of one: `VACUUM INTO`, then both are compared.

use crate::engine::{escaped, open_store, uri_of};
use flagstone_store::{KeySource, OpenOptions};
use flagstone_terminal::{Failure, note, say};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copy a SQLite database into a new store, and check the copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The database.
    database: PathBuf,
    /// The store to make. With a key it is encrypted.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
}

/// Copy the database in a store into a new SQLite file, and check the copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The store.
    store: PathBuf,
    /// The database to make, which is not encrypted.
    database: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
}

/// Where the key of an encrypted store is: never on the command line itself.
#[derive(Debug, clap::Args)]
#[group(id = "key_of_store", multiple = false)]
struct KeyArgs {
    /// The file with the key of an encrypted store: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The environment variable with the key of an encrypted store, as 64 hexadecimal digits.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
}

impl KeyArgs {
    /// Where the key is. It is read, so that what is wrong with it is said before anything is done.
    fn source(&self) -> Result<Option<KeySource>, Failure> {
        let file = self.key_file.clone().map(KeySource::File);
        let source = file.or_else(|| self.key_env.clone().map(KeySource::Variable));
        let tried = OpenOptions::default().with_key_from(source.as_ref());
        tried.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(source)
    }
}

/// Bytes that a store keeps for itself in each page, which SQLite leaves free when it is told to.
const RESERVED_BYTES: i32 = 64;

pub(crate) fn import(args: &Import) -> Result<ExitCode, Failure> {
    refuse_existing(&args.store)?;
    let key = args.key.source()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let source = Connection::open_with_flags(&args.database, flags)?;
    // Registered before the copy opens it by its name.
    flagstone_sqlite::register!(rusqlite::ffi)?;
    // Pages as the store has them, whatever those of the source are.
    source.execute_batch("PRAGMA page_size = 4096")?;
    reserve_bytes(&source)?;
    let target = uri_of(&args.store, key.as_ref())?;
    note("copying");
    source.execute("VACUUM INTO ?1", [target])?;
    let copy = open_store(&args.store, false, key.as_ref())?;
    verdict(&source, &copy)
}

pub(crate) fn export(args: &Export) -> Result<ExitCode, Failure> {
    refuse_existing(&args.database)?;
    let key = args.key.source()?;
    let source = open_store(&args.store, false, key.as_ref())?;
    let target = format!("file:{}?vfs=unix", escaped(&args.database)?);
    note("copying");
    source.execute("VACUUM INTO ?1", [target])?;
    let copy = Connection::open(&args.database)?;
    verdict(&source, &copy)
}

fn refuse_existing(path: &Path) -> Result<(), Failure> {
    match path.exists() {
        true => Err(Failure::Usage(format!(
            "{} is there already: name a file that is not",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// Asks for free bytes at the end of each page of copies of a database.
#[allow(unsafe_code, reason = "SQLite has no statement for it")]
fn reserve_bytes(db: &Connection) -> Result<(), Failure> {
    let mut bytes = RESERVED_BYTES;
    // SAFETY: the connection is open, no name means its main database, and this control takes an
    // `int` that it reads and writes while it runs.
    let code = unsafe {
        rusqlite::ffi::sqlite3_file_control(
            db.handle(),
            std::ptr::null(),
            rusqlite::ffi::SQLITE_FCNTL_RESERVE_BYTES,
            (&raw mut bytes).cast(),
        )
    };
    match code {
        rusqlite::ffi::SQLITE_OK => Ok(()),
        code => Err(Failure::Failed(format!(
            "SQLite leaves no bytes free in pages: error {code}"
        ))),
    }
}

/// Compares what a database and its copy hold.
fn verdict(source: &Connection, copy: &Connection) -> Result<ExitCode, Failure> {
    note("checking");
    let integrity: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if integrity != "ok" {
        return Err(Failure::Failed(format!("the copy is damaged: {integrity}")));
    }
    let mut rows = 0;
    for table in tables(source)? {
        let count = |db: &Connection| -> rusqlite::Result<u64> {
            let quoted = table.replace('"', "\"\"");
            db.query_row(&format!("SELECT count(*) FROM \"{quoted}\""), [], |row| {
                row.get(0)
            })
        };
        let (here, there) = (count(source)?, count(copy)?);
        if here != there {
            return Err(Failure::Failed(format!(
                "the table {table} has {here} rows, and {there} in the copy"
            )));
        }
        rows += here;
    }
    say(&format!("copied and checked: {rows} rows"));
    Ok(ExitCode::SUCCESS)
}

fn tables(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}
