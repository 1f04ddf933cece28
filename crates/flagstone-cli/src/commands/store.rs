//! `flagstone store`: what a store is and holds, and whether it is whole.

use super::{Failure, note, say};
use flagstone_store::{CheckReport, OpenOptions, Store, StoreInfo};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look at a store: what it holds, whether all of it can be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print what a store is and holds. It is opened for reading.
    Info(Of),
    /// Read every page and compare the books; changes nothing. Exit code 1 if something is wrong.
    Check(Of),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// The store: a file or a block device.
    store: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::Info(of) => info(of),
        Action::Check(of) => check(of),
    }
}

fn open(path: &Path) -> Result<Store, Failure> {
    Ok(Store::open(path, &OpenOptions::existing().reading())?)
}

fn as_json(info: &StoreInfo) -> serde_json::Value {
    json!({
        "protocol": info.protocol.info().name,
        "pages": info.pages,
        "page_bytes": Store::PAGE_BYTES,
        "bytes": info.bytes,
        "blocks": info.blocks,
        "free_blocks": info.free_blocks,
        "pages_per_block": info.pages_per_block,
        "openings": info.openings,
        "memory_bytes": info.memory,
    })
}

fn info(of: &Of) -> Result<ExitCode, Failure> {
    let info = open(&of.store)?.info();
    if of.json {
        say(&as_json(&info).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let held = info.pages * Store::PAGE_BYTES as u64;
    table.add_row(["protocol".into(), info.protocol.info().name.to_string()]);
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
    table.add_row(["openings to write".into(), info.openings.to_string()]);
    table.add_row(["tables in memory".into(), mebibytes(info.memory)]);
    say(&table.trim_fmt());
    Ok(ExitCode::SUCCESS)
}

fn check(of: &Of) -> Result<ExitCode, Failure> {
    let mut store = open(&of.store)?;
    let report = store.check()?;
    let verdict = if report.is_well() { 0 } else { 1 };
    if of.json {
        let unreadable: Vec<u32> = report.unreadable.iter().map(|at| at.0).collect();
        say(&json!({
            "ok": report.is_well(),
            "pages": report.pages,
            "unreadable": unreadable,
            "wrong": report.wrong,
            "store": as_json(&store.info()),
        })
        .to_string());
    } else {
        tell(&report);
    }
    Ok(ExitCode::from(verdict))
}

/// The verdict, and what is wrong one a line.
fn tell(report: &CheckReport) {
    for at in &report.unreadable {
        note(&format!("page {at} cannot be read"));
    }
    for wrong in &report.wrong {
        note(wrong);
    }
    say(&match report.is_well() {
        true => format!(
            "all is well: {} pages can be read, and the books agree",
            report.pages
        ),
        false => format!(
            "damaged: of {} pages {} cannot be read, and {} books do not agree",
            report.pages,
            report.unreadable.len(),
            report.wrong.len()
        ),
    });
}
