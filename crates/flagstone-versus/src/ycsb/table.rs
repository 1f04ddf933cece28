//! The table of the YCSB mode, with the settings of the stores below it.

use super::stores::STORES;
use super::work::WORKLOADS;
use super::{Cell, Ycsb};
use std::fmt::Write;

pub(super) fn shown(args: &Ycsb, cells: &[Cell], lost: &[String]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "workload",
        "threads",
        "commit",
        "store",
        "operations/s",
        "p50 us",
        "p99.9 us",
        "bytes written",
        "bytes read",
        "file MiB",
        "open ms",
    ]);
    let place = |cell: &Cell| {
        WORKLOADS
            .iter()
            .position(|it| cell.workload.contains(it.letter))
    };
    let mut sorted: Vec<&Cell> = cells.iter().collect();
    sorted.sort_by_key(|cell| {
        let is_open = cell.opened.is_some();
        (is_open, place(cell), cell.threads, cell.batch)
    });
    for cell in sorted {
        let of_run = |figure: fn(&super::YcsbRun) -> Option<f64>| {
            let figure = cell.run.as_ref().and_then(figure);
            figure.map_or(String::new(), |figure| format!("{figure:.0}"))
        };
        let is_run = cell.run.is_some();
        let only = |text: u64| {
            if is_run {
                text.to_string()
            } else {
                String::new()
            }
        };
        let opened = cell.opened.map(|opened| format!("{:.0}", opened.open_ms));
        table.add_row([
            if is_run {
                cell.workload.clone()
            } else {
                "open".into()
            },
            only(cell.threads),
            only(cell.batch),
            cell.store.clone(),
            of_run(|run| Some(run.per_s)),
            of_run(|run| Some(run.p50_us)),
            of_run(|run| Some(run.p999_us)),
            of_run(|run| run.written),
            of_run(|run| Some(run.read)),
            format!("{:.0}", cell.file_bytes as f64 / f64::from(1 << 20)),
            opened.unwrap_or_default(),
        ]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let limited = cells.iter().all(|cell| cell.limited || cell.run.is_none());
    let _ = writeln!(
        text,
        "{} records of 8 + {} bytes; {} MiB of memory, and {} MiB to go{}",
        args.records,
        args.value,
        args.memory() >> 20,
        args.slack >> 20,
        if limited { "" } else { " (NOT enforced: cannot create a memory control group here)" },
    );
    for lost in lost {
        let _ = writeln!(text, "no row: {lost}");
    }
    for it in WORKLOADS
        .iter()
        .filter(|it| args.workloads.contains(it.letter))
    {
        let _ = writeln!(text, "{}: {}", it.letter, it.what);
    }
    for (store, how) in STORES
        .iter()
        .filter(|it| args.stores.iter().any(|store| store == it.0))
    {
        let _ = writeln!(text, "{store}: {how}");
    }
    text
}
