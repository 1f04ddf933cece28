//! Copies a database into or out of a store with `VACUUM INTO`, then compares it with its copy.

mod compare;

use crate::engine::{escaped, open_store, uri_of};
use compare::compare;
use flagstone_store::{KeySource, OpenOptions};
use flagstone_terminal::{Failure, say, share_bar};
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Copy a SQLite database into a new store, and check the copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The database.
    database: PathBuf,
    /// The store to create. With a key it is encrypted.
    store: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
}

/// Copy the database in a store into a new SQLite file, and check the copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The store.
    store: PathBuf,
    /// The database to create. It is not encrypted.
    database: PathBuf,
    #[command(flatten)]
    key: KeyArgs,
}

/// The source of an encrypted store's key. Never the key itself on the command line.
#[derive(Debug, clap::Args)]
#[group(id = "key_of_store", multiple = false)]
pub(crate) struct KeyArgs {
    /// Read the key of an encrypted store from this file: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Read the key of an encrypted store from this environment variable: 64 hexadecimal digits.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
}

impl KeyArgs {
    /// The source of the key, if given. Reads the key to report its errors early.
    pub(crate) fn source(&self) -> Result<Option<KeySource>, Failure> {
        let file = self.key_file.clone().map(KeySource::File);
        let source = file.or_else(|| self.key_env.clone().map(KeySource::Variable));
        let tried = OpenOptions::default().with_key_from(source.as_ref());
        tried.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(source)
    }
}

/// Bytes that a store uses in each page. SQLite leaves them free if told to reserve them.
const RESERVED_BYTES: i32 = 64;

/// Copies a database into a new store: into a draft, which gets its name once its rows are
/// compared.
pub(crate) fn import(args: &Import) -> Result<ExitCode, Failure> {
    refuse_existing(&args.store)?;
    let key = args.key.source()?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let source = Connection::open_with_flags(&args.database, flags)?;
    // The VFS must be registered before `VACUUM INTO` opens the copy by its URI.
    flagstone_sqlite::register!(rusqlite::ffi)?;
    // The copy gets the page size of stores, whatever the page size of the source.
    source.execute_batch("PRAGMA page_size = 4096")?;
    reserve_bytes(&source)?;
    let draft = draft_of(&args.store)?;
    copy(&source, &uri_of(draft.path(), key.as_ref())?, draft.path())?;
    let rows = compare(&source, &open_store(draft.path(), false, key.as_ref())?)?;
    finish(draft, &args.database, &args.store)?;
    Ok(verdict(rows))
}

pub(crate) fn export(args: &Export) -> Result<ExitCode, Failure> {
    refuse_existing(&args.database)?;
    let key = args.key.source()?;
    let source = open_store(&args.store, false, key.as_ref())?;
    let draft = draft_of(&args.database)?;
    let target = format!("file:{}?vfs=unix", escaped(draft.path())?);
    copy(&source, &target, draft.path())?;
    let rows = compare(&source, &Connection::open(draft.path())?)?;
    drop(source);
    finish(draft, &args.store, &args.database)?;
    Ok(verdict(rows))
}

/// Creates an empty file beside `target`, readable only by its owner. The copy is made in it, so
/// that a process that is killed leaves no incomplete file under the name of the copy.
fn draft_of(target: &Path) -> Result<NamedTempFile, Failure> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let made = tempfile::Builder::new()
        .prefix(&format!(".{name}-"))
        .suffix(".draft")
        .tempfile_in(folder_of(target));
    made.map_err(|error| {
        Failure::Failed(format!(
            "making a file beside {}: {error}",
            target.display()
        ))
    })
}

fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Renames a complete copy to `target`, and gives it the owner and mode of `source`.
fn finish(draft: NamedTempFile, source: &Path, target: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", target.display()));
    let of = source.metadata().map_err(failed)?;
    let file = draft.as_file();
    let now = file.metadata().map_err(failed)?;
    // The owner and mode of a block device do not suit a regular file.
    if of.is_file() {
        let owner = (of.uid(), of.gid());
        let is_owned =
            owner == (now.uid(), now.gid()) || fchown(file, Some(owner.0), Some(owner.1)).is_ok();
        // Only the superuser may change an owner. If that fails, only the owner gets access.
        let mask = if is_owned { 0o777 } else { 0o700 };
        let mode = Permissions::from_mode(of.mode() & mask);
        file.set_permissions(mode).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    draft
        .persist_noclobber(target)
        .map_err(|error| failed(error.error))?;
    let folder = File::open(folder_of(target));
    folder.and_then(|folder| folder.sync_all()).map_err(failed)
}

fn refuse_existing(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        Err(Failure::Usage(format!(
            "{} exists already: give the path of a new file",
            path.display()
        )))
    } else {
        Ok(())
    }
}

/// Tells SQLite to reserve bytes at the end of each page when it copies a database.
#[allow(unsafe_code, reason = "SQLite has no statement for it")]
fn reserve_bytes(db: &Connection) -> Result<(), Failure> {
    let mut bytes = RESERVED_BYTES;
    // SAFETY: the connection is open; a null name means its main database; this file control reads
    // and writes an `int` during the call only.
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
            "SQLite cannot reserve bytes in its pages: error {code}"
        ))),
    }
}

/// Copies a database by `VACUUM INTO`. Reports progress by the size of the copy.
fn copy(source: &Connection, target: &str, path: &Path) -> Result<(), Failure> {
    /// Steps of SQLite's virtual machine between two checks of the copy's size.
    const STEPS: i32 = 100_000;
    let sizes = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let bytes: u64 = source.query_row(sizes, [], |row| row.get(0))?;
    let bar = share_bar("copying");
    bar.set_length(bytes);
    let (shown, path) = (bar.clone(), path.to_path_buf());
    let look = move || {
        let has = path.metadata().map_or(0, |file| file.len());
        shown.set_position(has.min(bytes));
        false
    };
    source.progress_handler(STEPS, Some(look));
    source.execute("VACUUM INTO ?1", [target])?;
    source.progress_handler(0, None::<fn() -> bool>);
    bar.finish_and_clear();
    Ok(())
}

/// Reports that a database and its copy have the same rows.
fn verdict(rows: u64) -> ExitCode {
    say(&format!(
        "copied {rows} rows and compared them value by value"
    ));
    ExitCode::SUCCESS
}
