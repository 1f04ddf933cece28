//! Commands that only read a store: `info`, `check`, `wear` and `dump`.

use super::key::KeyArgs;
use super::{Of, ProgramName, as_json, open};
use flagstone::ftl::EndOfLife;
use flagstone::units::Lpn;
use flagstone_store::{CheckReport, Holds, OpenOptions, PageFacts, PageStore, Store, StoreError};
use flagstone_terminal::{Failure, mebibytes, note, plain_table, progress_bar, say, unless_closed};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

/// The verdict on intact tables.
pub(super) const TABLES_WELL: &str = "the tables are intact: all nodes and pages were checked";

/// The verdict on a database in which SQLite finds no problem.
const DATABASE_WELL: &str = "the database is intact: SQLite has checked it (integrity_check)";

/// Bytes per line of `dump --page`.
const LINE_BYTES: usize = 16;

/// Arguments of `wear`.
#[derive(Debug, clap::Args)]
pub struct Wear {
    /// The store: a file or a block device.
    store: PathBuf,
    /// The drive's rated endurance in terabytes written (TBW).
    #[arg(long, value_name = "TB", value_parser = positive)]
    endurance_tb: Option<f64>,
    /// Days in which the store's bytes were written [default: days since the file was created].
    #[arg(long, value_parser = positive, requires = "endurance_tb")]
    days: Option<f64>,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    #[command(flatten)]
    of: Of,
    /// Also run SQLite's integrity check on the database in the store; needs the program
    /// flagstone-sqlite.
    #[arg(long)]
    sqlite: bool,
}

/// The note for a store whose database was not checked.
const DATABASE_UNCHECKED: &str = "checked the pages and the metadata of the store, not the \
                                  database in it: use `--sqlite` to check the database as well";

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
pub struct Dump {
    /// The store: a file or a block device.
    store: PathBuf,
    /// Print the bytes of this page instead of one line per page.
    #[arg(long, value_name = "NUMBER")]
    page: Option<u32>,
    /// Print raw bytes instead of hexadecimal digits.
    #[arg(long, requires = "page", conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    key: KeyArgs,
    /// Print one JSON object per page, one per line.
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("it must be a number above 0".into()),
    }
}

/// The note on a database that stores the ends of its pages separately.
pub(super) const APART: &str = "The ends of its pages are stored apart, which costs one more page \
                                per commit; for pages of 4096 bytes, `VACUUM` changes that";

pub(super) fn info(of: &Of, program: ProgramName) -> Result<ExitCode, Failure> {
    let mut store = open(&of.store, &of.key, program)?;
    let info = store.info();
    let (holds, apart) = Holds::of_store(&mut store)?;
    if of.json {
        let mut info = as_json(&info);
        info["holds"] = json!(holds.name());
        info["apart"] = json!(apart);
        say(&info.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = plain_table();
    let held = info.pages * PageStore::PAGE_BYTES as u64;
    table.add_row(["protocol".into(), info.protocol.info().name.to_string()]);
    let holds = match (holds, apart) {
        (Holds::Database, Some(true)) => format!("an SQLite database. {APART}"),
        (Holds::Database, _) => {
            "an SQLite database; each of its pages is one page of the store".into()
        }
        (Holds::Tables, _) => "tables".into(),
        (Holds::Disk, _) => "a disk".into(),
        (Holds::Pages, _) => "pages".into(),
    };
    table.add_row(["holds".into(), holds]);
    table.add_row([
        "pages".into(),
        format!("{}, {}", info.pages, mebibytes(held)),
    ]);
    table.add_row(["on the medium".into(), mebibytes(info.bytes)]);
    table.add_row([
        "blocks".into(),
        format!(
            "{} of {} pages, {} free",
            info.blocks, info.pages_per_block, info.free_blocks
        ),
    ]);
    let closed = match info.closed {
        Some(true) if info.resumed => "yes, and saved the mapping for a fast opening",
        Some(true) => "yes",
        Some(false) => "no: the next opening recovers it",
        None => "not known: version 1 of the format does not say",
    };
    table.add_row(["closed", closed]);
    table.add_row([
        "openings to write".into(),
        match info.life.unclosed {
            0 => info.openings.to_string(),
            unclosed => format!("{}, {unclosed} of them without a close", info.openings),
        },
    ]);
    table.add_row(["tables in memory".into(), mebibytes(info.memory)]);
    say(&table.trim_fmt());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn check(args: &Check, program: ProgramName) -> Result<ExitCode, Failure> {
    let of = &args.of;
    let reading = of
        .key
        .give_to(OpenOptions::existing().salvaging().uncached(), program)?;
    let opened = PageStore::open(&of.store, &reading);
    let mut store = match opened {
        // A store too damaged to open is a finding, not an error.
        Err(StoreError::Damaged(why)) => {
            if of.json {
                say(&json!({"ok": false, "wrong": [why]}).to_string());
            } else {
                say(&format!("damaged: {why}"));
            }
            return Ok(ExitCode::from(1));
        }
        other => other.map_err(|error| of.key.advise(error, program))?,
    };
    let bar = progress_bar(store.info().pages, "checking");
    let report = store.check_with(&mut |pages| bar.inc(pages));
    bar.finish_and_clear();
    let report = report?;
    let info = store.info();
    // Look for a database in an intact store, or in any store with `--sqlite`.
    let is_whole = report.is_well();
    let holds = if is_whole {
        Some(Holds::of_store(&mut store)?.0)
    } else {
        None
    };
    drop(store);
    let tables = match holds {
        Some(Holds::Tables) => Some(check_tables(of, program)?),
        _ => None,
    };
    let database = if args.sqlite {
        Some(super::database::wrong(of)?)
    } else {
        None
    };
    let is_unchecked = holds == Some(Holds::Database) && database.is_none();
    let is_database_well = database.as_ref().is_none_or(Vec::is_empty);
    let is_well = is_whole && !matches!(tables, Some(Err(_))) && is_database_well;
    if of.json {
        let unreadable: Vec<u32> = report.unreadable.iter().map(|at| at.0).collect();
        say(&json!({
            "ok": is_well,
            "pages": report.pages,
            "unreadable": unreadable,
            "wrong": report.wrong,
            "torn": report.torn,
            "tables": tables.as_ref().map(|tables| match tables {
                Ok(()) => json!({"ok": true}),
                Err(what) => json!({"ok": false, "wrong": what}),
            }),
            "holds": holds.map(Holds::name),
            "database": database.map(|wrong| json!({"ok": wrong.is_empty(), "wrong": wrong})),
            "store": as_json(&info),
        })
        .to_string());
    } else {
        tell(&report, program);
        match tables {
            Some(Ok(())) => say(TABLES_WELL),
            Some(Err(what)) => say(&format!("the tables are damaged: {what}")),
            None => {}
        }
        match database {
            Some(wrong) if wrong.is_empty() => say(DATABASE_WELL),
            Some(wrong) => say(&format!("the database is damaged: {}", wrong.join("; "))),
            None if is_unchecked => say(DATABASE_UNCHECKED),
            None => {}
        }
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// Checks the tables of a store that contains tables.
fn check_tables(of: &Of, program: ProgramName) -> Result<Result<(), String>, Failure> {
    let reading = of.key.give_to(OpenOptions::existing().reading(), program)?;
    Ok(Store::with(&of.store, &reading)?.check())
}

/// Prints the verdict, then the problems, one per line.
fn tell(report: &CheckReport, program: ProgramName) {
    for at in &report.unreadable {
        note(&format!("page {at} cannot be read"));
    }
    for wrong in &report.wrong {
        note(wrong);
    }
    if report.torn > 0 && report.is_well() {
        note(&format!(
            "note: {} unused pages have a wrong checksum: writes torn by a power cut",
            report.torn
        ));
    }
    let line = if report.is_well() {
        format!(
            "the store is intact: {} pages can be read, and its metadata is consistent",
            report.pages
        )
    } else {
        format!(
            "the store is damaged: of {} pages, {} cannot be read, and its metadata has {} errors; \
             `{} repair` salvages what can be read",
            report.pages,
            report.unreadable.len(),
            report.wrong.len(),
            program.typed
        )
    };
    say(&line);
}

/// Days since a file was created, if the file system records that.
fn days_of(path: &std::path::Path) -> Option<f64> {
    let meta = std::fs::metadata(path).ok()?;
    let made = meta.is_file().then(|| meta.created().ok())??;
    let age = SystemTime::now().duration_since(made).ok()?;
    Some(age.as_secs_f64() / 86_400.0)
}

pub(super) fn wear(args: &Wear, program: ProgramName) -> Result<ExitCode, Failure> {
    let info = open(&args.store, &args.key, program)?.info();
    let life = info.life;
    let share = args
        .endurance_tb
        .map(|terabytes| life.medium_bytes as f64 / (terabytes * 1e12));
    let days = match (args.endurance_tb, args.days) {
        (Some(_), Some(days)) => Some(days),
        (Some(_), None) => {
            let days = days_of(&args.store).filter(|_| !life.carried);
            let why = if life.carried {
                "was created by a compaction, which kept the counters of the old file"
            } else {
                "has no creation time"
            };
            Some(days.ok_or_else(|| {
                Failure::Usage(format!(
                    "{} {why}: give the days in which the bytes were written with --days",
                    args.store.display()
                ))
            })?)
        }
        _ => None,
    };
    // Remaining endurance at the average rate so far.
    let left = share.zip(days).map(|(share, days)| {
        if share > 0.0 {
            ((1.0 - share) * days / share).max(0.0)
        } else {
            f64::INFINITY
        }
    });
    let end = share.map_or(EndOfLife::Far, EndOfLife::by_share);
    let code = ExitCode::from(u8::from(end != EndOfLife::Far));
    let [least, median, most] = info.erases;
    // The last opening is counted by the next one, if it was not closed.
    let unclosed = life.unclosed + u32::from(info.closed == Some(false));
    let counts_all = life.since == 0 && unclosed == 0 && info.closed == Some(true);
    if args.json {
        say(&json!({
            "user_bytes": life.user_bytes,
            "medium_bytes": life.medium_bytes,
            "write_amplification": life.write_amplification(),
            "erases": life.erases,
            "erases_of_a_block": {"least": least, "median": median, "most": most},
            "commits": life.commits,
            "blocks": info.blocks,
            "openings": info.openings,
            "unclosed_openings": unclosed,
            "openings_not_counted": life.since,
            "counts_all": counts_all,
            "counts_of_older_file": life.carried,
            "end": share.map(|_| end.name()),
            "endurance_used": share,
            "days": days,
            "days_left": left.filter(|left| left.is_finite()),
        })
        .to_string());
        return Ok(code);
    }
    let mut table = plain_table();
    table.add_row(["written by the user".into(), mebibytes(life.user_bytes)]);
    table.add_row(["written to the medium".into(), mebibytes(life.medium_bytes)]);
    let factor = life.write_amplification();
    table.add_row([
        "write amplification".into(),
        factor.map_or("nothing was written".into(), |factor| {
            format!("{factor:.2}")
        }),
    ]);
    table.add_row(["transactions".into(), life.commits.to_string()]);
    table.add_row([
        "erases".into(),
        format!(
            "{}; per block {least} to {most}, median {median}",
            life.erases
        ),
    ]);
    if let Some((share, terabytes)) = share.zip(args.endurance_tb) {
        let used = format!("{:.4} % of {terabytes} TB", share * 100.0);
        table.add_row(["endurance used".into(), used]);
    }
    if let Some((left, days)) = left.zip(days) {
        let left = if left.is_finite() {
            format!(
                "{:.1} years more, at the rate of the last {days:.1} days",
                left / 365.25
            )
        } else {
            "nothing was written".into()
        };
        table.add_row(["the drive lasts".into(), left]);
    }
    say(&table.trim_fmt());
    if life.since > 0 {
        note(&format!(
            "note: {} openings by an older version of the program are not counted",
            life.since
        ));
    }
    if unclosed > 0 {
        note(&format!(
            "note: {unclosed} openings ended without a close; their last writes are not counted"
        ));
    }
    if end != EndOfLife::Far {
        note("the drive is near its rated endurance: copy the store to another drive");
    }
    Ok(code)
}

pub(super) fn dump(args: &Dump, program: ProgramName) -> Result<ExitCode, Failure> {
    let mut store = open(&args.store, &args.key, program)?;
    if let Some(at) = args.page {
        return dump_page(&mut store, Lpn(at), args);
    }
    let mut lost = 0;
    let top = store.highest().map_or(0, |at| at.0 + 1);
    for facts in (0..top).filter_map(|at| store.facts(Lpn(at))) {
        lost += u64::from(facts.bytes.is_none());
        let line = if args.json {
            json_of(&facts).to_string()
        } else {
            line_of(&facts)
        };
        say(&line);
    }
    Ok(ExitCode::from(u8::from(lost > 0)))
}

fn json_of(facts: &PageFacts) -> serde_json::Value {
    json!({
        "page": facts.at.0,
        "bytes": facts.bytes,
        "block": facts.block,
        "page_in_block": facts.page_in_block,
        "sequence": facts.sequence,
        "transaction": facts.transaction,
        "pages_of_transaction": facts.pages_of_transaction,
        "spare": hex(&facts.spare),
    })
}

fn line_of(facts: &PageFacts) -> String {
    let mut line = format!("page {}", facts.at);
    line += &match facts.bytes {
        Some(bytes) => format!(", {bytes} bytes"),
        None => ", unreadable".into(),
    };
    line += &format!(", block {} page {}", facts.block, facts.page_in_block);
    if let Some(sequence) = facts.sequence {
        line += &format!(", write {sequence}");
    }
    match (facts.transaction, facts.pages_of_transaction) {
        (Some(tx), Some(pages)) => line += &format!(", transaction {tx}, the last of {pages}"),
        (Some(tx), None) => line += &format!(", transaction {tx}"),
        _ => {}
    }
    line
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn dump_page(store: &mut PageStore, at: Lpn, args: &Dump) -> Result<ExitCode, Failure> {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let facts = store.facts(at);
    let Some((facts, bytes)) = facts.zip(store.read(None, at, &mut page)?) else {
        return Err(Failure::Failed(format!(
            "page {at} of {} is not in use: `dump` without --page lists the pages in use",
            args.store.display()
        )));
    };
    let page = &page[..bytes];
    if args.raw {
        unless_closed(std::io::stdout().lock().write_all(page))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        let mut facts = json_of(&facts);
        facts["hex"] = hex(page).into();
        say(&facts.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    say(&line_of(&facts));
    for (number, bytes) in page.chunks(LINE_BYTES).enumerate() {
        let text: String = bytes
            .iter()
            .map(|&byte| {
                if byte.is_ascii_graphic() {
                    char::from(byte)
                } else {
                    '.'
                }
            })
            .collect();
        let digits: Vec<String> = bytes.iter().map(|byte| hex(&[*byte])).collect();
        let (at, wide) = (number * LINE_BYTES, 3 * LINE_BYTES);
        say(&format!("{at:04x}  {:wide$} {text}", digits.join(" ")));
    }
    Ok(ExitCode::SUCCESS)
}
