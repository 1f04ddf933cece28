//! The commands `tables`, `get`, `put` and `scan`, which read the tables of a store or write one
//! row.

use super::key::KeyArgs;
use super::look::TABLES_WELL;
use crate::ProgramName;
use flagstone_store::medium::Memory;
use flagstone_store::tables::{KeyRange, Pair, TableKind};
use flagstone_store::{OpenOptions, Store, StoreError, Table};
use flagstone_terminal::{Failure, note, plain_table, say, unless_closed};
use serde_json::json;
use std::io::{Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `tables`.
#[derive(Debug, clap::Args)]
pub struct Tables {
    /// The store.
    store: PathBuf,
    /// Read and check all tables instead: the order and fill of their nodes, and that each page is
    /// used once or free. Exit code 1 if something is wrong.
    #[arg(long, conflicts_with = "json")]
    check: bool,
    #[command(flatten)]
    key_of_store: KeyArgs,
    /// Print one JSON object per table, one per line.
    #[arg(long)]
    json: bool,
}

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub struct Get {
    /// The store.
    store: PathBuf,
    /// The table.
    table: String,
    /// The key. `\n`, `\\` and `\x00` to `\xff` stand for bytes.
    #[arg(id = "row", value_name = "KEY")]
    key: String,
    #[command(flatten)]
    key_of_store: KeyArgs,
}

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
pub struct Put {
    /// The store; created if it does not exist.
    store: PathBuf,
    /// The table; created if it does not exist.
    table: String,
    /// The key. `\n`, `\\` and `\x00` to `\xff` stand for bytes.
    #[arg(id = "row", value_name = "KEY")]
    key: String,
    /// The value, with the same escapes. Without it, read from standard input.
    value: Option<String>,
    /// Create the table as a hashed one.
    #[arg(long)]
    hashed: bool,
    #[command(flatten)]
    key_of_store: KeyArgs,
}

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
pub struct Scan {
    /// The store.
    store: PathBuf,
    /// The table.
    table: String,
    /// First key to print.
    #[arg(long)]
    from: Option<String>,
    /// Stop before this key.
    #[arg(long)]
    to: Option<String>,
    /// Print only keys that begin with these bytes.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Print in descending order of keys.
    #[arg(long)]
    reverse: bool,
    /// Maximum number of rows.
    #[arg(long)]
    limit: Option<usize>,
    #[command(flatten)]
    key_of_store: KeyArgs,
    /// Print one JSON object per row.
    #[arg(long)]
    json: bool,
}

/// Decodes the escapes of an argument into bytes.
fn bytes(text: &str) -> Result<Vec<u8>, Failure> {
    let wrong = |what: &str| {
        Failure::Usage(format!(
            "`{text}` has {what}: write `\\\\` for a backslash, `\\n`, `\\r`, `\\t`, or `\\x` and two \
             hexadecimal digits"
        ))
    };
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&sign, behind)) = rest.split_first() else {
            return Err(wrong("a single backslash at its end"));
        };
        rest = behind;
        bytes.push(match sign {
            b'\\' | b'\'' | b'"' => sign,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
                let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
                rest = rest.get(2..).unwrap_or_default();
                byte.ok_or_else(|| wrong("`\\x` without two hexadecimal digits"))?
            }
            _ => return Err(wrong("an unknown escape")),
        });
    }
    Ok(bytes)
}

fn open(store: &Path, key: &KeyArgs, program: ProgramName) -> Result<Store, Failure> {
    let reading = key.give_to(OpenOptions::existing().reading(), program)?;
    Store::with(store, &reading).map_err(|error| key.advise(error, program))
}

pub(super) fn tables(args: &Tables, program: ProgramName) -> Result<ExitCode, Failure> {
    let store = open(&args.store, &args.key_of_store, program)?;
    if args.check {
        let checked = store.check();
        say(&match &checked {
            Ok(()) => TABLES_WELL.to_string(),
            Err(what) => what.clone(),
        });
        return Ok(ExitCode::from(u8::from(checked.is_err())));
    }
    let read = store.read()?;
    let mut rows = plain_table();
    for (name, kind) in read.tables()? {
        let keys = read.table(&name)?.len()?;
        if args.json {
            say(&json!({"table": name, "kind": kind.to_string(), "keys": keys}).to_string());
        } else {
            _ = rows.add_row([name, kind.to_string(), format!("{keys} keys")]);
        }
    }
    if !args.json {
        if rows.is_empty() {
            say("no tables yet");
        } else {
            say(&rows.to_string());
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn get(args: &Get, program: ProgramName) -> Result<ExitCode, Failure> {
    let found = open(&args.store, &args.key_of_store, program)?
        .read()?
        .table(&args.table)?
        .get(&bytes(&args.key)?)?;
    match found {
        Some(value) => {
            unless_closed(std::io::stdout().lock().write_all(&value))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            note(&format!("table `{}` has no key `{}`", args.table, args.key));
            Ok(ExitCode::from(1))
        }
    }
}

pub(super) fn put(args: &Put, program: ProgramName) -> Result<ExitCode, Failure> {
    let key = bytes(&args.key)?;
    let value = match &args.value {
        Some(value) => bytes(value)?,
        None => {
            let mut value = Vec::new();
            std::io::stdin().lock().read_to_end(&mut value)?;
            value
        }
    };
    if args.key_of_store.is_some() && !args.store.exists() {
        return Err(Failure::Usage(format!(
            "{}: there is no store, and a key was given; create an encrypted store with `{} create \
             --encrypt`",
            args.store.display(),
            program.typed
        )));
    }
    let options = args.key_of_store.give_to(OpenOptions::default(), program)?;
    if !args.store.exists() {
        // Try the change in memory first, so that a refused one creates no file.
        let rehearsed = Store::on(Box::new(Memory::default()), &OpenOptions::default())?;
        put_in(&rehearsed, args, &key, &value)?;
    }
    let opened = Store::with(&args.store, &options);
    let store = opened.map_err(|error| args.key_of_store.advise(error, program))?;
    put_in(&store, args, &key, &value)?;
    Ok(ExitCode::SUCCESS)
}

fn put_in(store: &Store, args: &Put, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let mut tx = store.write()?;
    let mut table = if args.hashed {
        tx.open_table(&args.table, TableKind::Hashed)?
    } else {
        tx.table(&args.table)?
    };
    table.insert(key, value)?;
    tx.commit()
}

/// The requested rows, by ascending key.
fn rows(
    table: &Table,
    args: &Scan,
) -> Result<impl DoubleEndedIterator<Item = Result<Pair, flagstone_store::StoreError>>, Failure> {
    if let Some(prefix) = &args.prefix {
        return Ok(table.prefix(&bytes(prefix)?)?);
    }
    if args.from.is_none() && args.to.is_none() {
        return Ok(table.iter());
    }
    let from = args.from.as_deref().map(bytes).transpose()?;
    let to = args.to.as_deref().map(bytes).transpose()?;
    let bounds = (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    );
    Ok(table.range(bounds.ends())?)
}

pub(super) fn scan(args: &Scan, program: ProgramName) -> Result<ExitCode, Failure> {
    let table = open(&args.store, &args.key_of_store, program)?
        .read()?
        .table(&args.table)?;
    let mut rows = rows(&table, args)?;
    for _ in 0..args.limit.unwrap_or(usize::MAX) {
        let row = if args.reverse {
            rows.next_back()
        } else {
            rows.next()
        };
        let Some(row) = row else { break };
        let (key, value) = row?;
        let (key, value) = (
            key.escape_ascii().to_string(),
            value.escape_ascii().to_string(),
        );
        if args.json {
            say(&json!({"key": key, "value": value}).to_string());
        } else {
            say(&format!("{key}\t{value}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scan_prints_is_what_put_takes() {
        let all: Vec<u8> = (0..=255).collect();
        let text = all.escape_ascii().to_string();
        assert_eq!(bytes(&text).ok(), Some(all));
        for wrong in ["\\", "\\x1", "\\xzz", "\\q"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
