//! Commands that write whole stores: `create`, `compact`, `backup` and `repair`.

use super::key::KeyArgs;
use super::look::APART;
use super::{Of, ProgramName, as_json, open, protocol_of, watched};
use flagstone_store::{Holds, OpenOptions, PageStore, StoreError, tools};
use flagstone_terminal::{Failure, mebibytes, note, say, with_unit};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `create`.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// The store to create: a new file, or a block device.
    store: PathBuf,
    /// The commit protocol.
    #[arg(long, default_value = "seal")]
    protocol: String,
    /// Initial size: bytes, or a number with K, M, G or T. A store grows when it needs more space.
    #[arg(long, value_parser = size, default_value = "8M")]
    size: u64,
    /// Pages per block, from 16 to 128.
    #[arg(long, default_value_t = 128)]
    pages_per_block: u32,
    /// Overwrite an existing file that is not a store, or a block device; its contents are lost.
    #[arg(long)]
    force: bool,
    /// Encrypt the store. Without --key-file and --key-env, asks for a passphrase.
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `compact`.
#[derive(Debug, clap::Args)]
pub struct Compact {
    /// The store. It must not be open elsewhere.
    store: PathBuf,
    /// Print the space that compaction would need and free, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct Backup {
    /// The store. No other process may be writing to it.
    store: PathBuf,
    /// The file to create.
    to: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `repair`.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// The damaged store.
    store: PathBuf,
    /// The store to create.
    to: PathBuf,
    /// The commit protocol, if both superblocks are damaged.
    #[arg(long)]
    protocol: Option<String>,
    /// Pages per block, if both superblocks and all block marks are damaged.
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=128))]
    pages_per_block: Option<u32>,
    /// Salvage the newest intact version of each page, even if its transaction did not commit. Use
    /// this if the protocol's recovery fails.
    #[arg(long)]
    newest: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses a size such as 4096, 64K, 8M, 2G or 1T into bytes.
fn size(text: &str) -> Result<u64, String> {
    let why =
        || "must be a number of bytes, or a number with K, M, G or T, such as 64M".to_string();
    let units = [
        ("", 1),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("T", 1 << 40),
    ];
    with_unit(text, &units)
        .filter(|&bytes| bytes < 1 << 50)
        .ok_or_else(why)
}

/// Whether a store is at `path`, encrypted or not. Needs no key: an encrypted store asks for it.
fn is_store(path: &Path) -> bool {
    let opened = PageStore::open(path, &OpenOptions::existing().reading());
    matches!(opened, Ok(_) | Err(StoreError::Key(_)))
}

pub(super) fn create(args: &Create, program: ProgramName) -> Result<ExitCode, Failure> {
    // A symbolic link counts, even if it leads nowhere yet.
    let was_there = args.store.symlink_metadata().is_ok();
    let is_file = args.store.is_file() && !args.force;
    if is_file || was_there && is_store(&args.store) {
        let what = if is_file { "a file" } else { "a store" };
        return Err(Failure::Usage(format!(
            "{}: {what} exists already and was not changed; give another path",
            args.store.display()
        )));
    }
    let mut options = OpenOptions::default().with_protocol(protocol_of(&args.protocol)?);
    options.pages_per_block = args.pages_per_block;
    options.bytes = args.size;
    options.force = args.force;
    if args.key.is_some() && !args.encrypt {
        return Err(Failure::Usage(
            "a key needs --encrypt: add --encrypt, or leave the key out".into(),
        ));
    }
    if args.encrypt {
        options = args.key.lock(options, program)?;
    }
    let made = PageStore::open(&args.store, &options).and_then(|store| {
        let info = store.info();
        store.close().map(|()| info)
    });
    let info = match made {
        Ok(info) => info,
        Err(error) => {
            if !was_there && !matches!(error, StoreError::InUse { .. }) {
                // A failed attempt leaves no valid store, so remove its file.
                let _ = std::fs::remove_file(&args.store);
            }
            return Err(error.into());
        }
    };
    let line = if args.json {
        as_json(&info).to_string()
    } else {
        format!(
            "{}: {} in {} blocks of {} pages, with {}",
            args.store.display(),
            mebibytes(info.bytes),
            info.blocks,
            info.pages_per_block,
            info.protocol
        )
    };
    say(&line);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn compact(args: &Compact, program: ProgramName) -> Result<ExitCode, Failure> {
    if args.dry_run {
        let store = open(&args.store, &args.key, program)?;
        let (now, then) = (store.info().bytes, tools::bytes_of_copy(&store));
        let line = if args.json {
            json!({"bytes_before": now, "bytes": then}).to_string()
        } else {
            format!(
                "the store has {}, and would have {} after a compaction, which needs that much \
                 free space",
                mebibytes(now),
                mebibytes(then)
            )
        };
        say(&line);
        return Ok(ExitCode::SUCCESS);
    }
    let copied = watched("compacting", &args.key, program, |opening, progress| {
        tools::compact(&args.store, &opening, progress)
    })?;
    tell_copied(&copied, args.json, "compacted");
    if let (_, Some(true)) = Holds::of_store(&mut open(&args.store, &args.key, program)?)? {
        note(&format!("the store holds an SQLite database. {APART}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn discard(args: &Of, program: ProgramName) -> Result<ExitCode, Failure> {
    let opening = args.key.give_to(OpenOptions::existing(), program)?;
    let opened = PageStore::open(&args.store, &opening);
    let mut store = opened.map_err(|error| args.key.advise(error, program))?;
    let (given, has) = (store.discard()?, store.info().bytes);
    store.close()?;
    let line = if args.json {
        json!({"bytes": has, "bytes_given_back": given}).to_string()
    } else if given == 0 {
        "nothing was given back: no written block is free, or the file system does not support \
         holes"
            .into()
    } else {
        format!("gave back {} of {}", mebibytes(given), mebibytes(has))
    };
    say(&line);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn backup(args: &Backup, program: ProgramName) -> Result<ExitCode, Failure> {
    let copied = watched("copying", &args.key, program, |opening, progress| {
        tools::backup(&args.store, &args.to, &opening, args.force, progress)
    })?;
    tell_copied(&copied, args.json, "copied and compared");
    Ok(ExitCode::SUCCESS)
}

fn tell_copied(copied: &tools::Copied, json: bool, what: &str) {
    let line = if json {
        json!({
            "pages": copied.pages,
            "bytes_before": copied.bytes_before,
            "bytes": copied.bytes,
        })
        .to_string()
    } else {
        format!(
            "{what}: {} pages, {} before, {} now",
            copied.pages,
            mebibytes(copied.bytes_before),
            mebibytes(copied.bytes)
        )
    };
    say(&line);
}

pub(super) fn repair(args: &Repair, program: ProgramName) -> Result<ExitCode, Failure> {
    let hints = tools::Hints {
        protocol: args.protocol.as_deref().map(protocol_of).transpose()?,
        pages_per_block: args.pages_per_block,
        newest: args.newest,
    };
    let (from, to) = (&args.store, &args.to);
    let report = watched("salvaging", &args.key, program, |opening, progress| {
        tools::repair(from, to, &opening, &hints, args.force, progress)
    })?;
    if args.json {
        let keys: Vec<String> = report.keys.iter().map(ToString::to_string).collect();
        let lost: Vec<u32> = report.lost.iter().map(|at| at.0).collect();
        say(&json!({
            "whole": report.is_whole(),
            "pages": report.pages,
            "lost": lost,
            "lost_keys": keys,
            "missing": report.missing,
            "mended": report.mended,
            "torn": report.torn,
        })
        .to_string());
    } else {
        for mended in &report.mended {
            note(&format!("mended: {mended}"));
        }
        for missing in &report.missing {
            note(&format!("lost: {missing}"));
        }
        for at in &report.lost {
            note(&format!("lost: page {at}"));
        }
        for keys in &report.keys {
            note(&format!("lost: {keys}"));
        }
        let line = if report.is_whole() {
            format!("salvaged: {} pages; nothing is lost", report.pages)
        } else {
            format!(
                "salvaged: {} pages; {} pages are lost, and the other losses listed above",
                report.pages,
                report.lost.len()
            )
        };
        say(&line);
    }
    Ok(ExitCode::from(u8::from(!report.is_whole())))
}
