//! `flagstone store`: what a store is and holds, whether it is whole, and power cuts under stores.

use super::{Failure, note, protocols_of, say};
use flagstone_lab::stores::kill::{Verifier, listening, work};
use flagstone_lab::stores::{Campaign, Findings, Lie, RunId, suits};
use flagstone_store::{CheckReport, OpenOptions, Store, StoreInfo};
use flagstone_terminal::progress_bar;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Look at a store, check it, and cut the power under stores.
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
    /// Cut the power under stores in memory, at writes and syncs of their medium, and look whether
    /// anything was lost. Exit code 1 if so.
    Break(Break),
    /// Kill a process that commits to a new store, again and again, and look whether anything was
    /// lost. Exit code 1 if so.
    Kill(Kill),
}

#[derive(Debug, clap::Args)]
struct Kill {
    /// The store to make.
    store: PathBuf,
    /// How often to kill.
    #[arg(long, default_value_t = 200)]
    times: u64,
    /// Seed of the moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the process acknowledge before it commits: a control that must fail.
    #[arg(long)]
    early: bool,
    /// Be the process that is killed.
    #[arg(long, hide = true)]
    worker: bool,
}

#[derive(Debug, clap::Args)]
struct Break {
    /// Protocols, separated by commas, or `all` that a store can have.
    #[arg(long, default_value = "seal")]
    protocol: String,
    /// Cuts for each protocol.
    #[arg(long, default_value_t = 20_000)]
    cuts: u64,
    /// Cuts in a row, at most.
    #[arg(long, default_value_t = 3)]
    depth: u32,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the medium lie: a control that must fail.
    #[arg(long, value_parser = Lie::ALL.map(|(_, name)| name).to_vec(), default_value = "none")]
    lie: String,
    /// Carry out one run again, by its id.
    #[arg(long, value_name = "RUN-ID", conflicts_with_all = ["protocol", "cuts", "depth", "seed", "lie"])]
    run: Option<RunId>,
    /// Print one JSON object a protocol, one a line.
    #[arg(long)]
    json: bool,
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
        Action::Break(args) => break_stores(args),
        Action::Kill(args) => kill_workers(args),
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

fn break_stores(args: &Break) -> Result<ExitCode, Failure> {
    if let Some(id) = &args.run {
        let tally = id.run();
        say(&match &tally.first {
            Some(what) => format!("{id}: {what}"),
            None => format!("{id} holds: {} cuts", tally.cuts),
        });
        return Ok(ExitCode::from(u8::from(tally.violations > 0)));
    }
    let mut protocols = protocols_of(&args.protocol)?;
    match args.protocol.as_str() {
        "all" => protocols.retain(|&protocol| suits(protocol)),
        _ => {
            if let Some(odd) = protocols.iter().find(|protocol| protocol.info().reprograms) {
                return Err(Failure::Usage(format!(
                    "{odd} sets flags by reprogramming pages, which a store cannot: name another"
                )));
            }
        }
    }
    let lie = Lie::by_name(&args.lie).expect("clap has checked it");
    let mut violated = false;
    for protocol in protocols {
        let campaign = Campaign {
            protocol,
            lie,
            cuts: args.cuts,
            depth: args.depth,
            seed: args.seed,
            stop_early: lie != Lie::None,
        };
        let bar = progress_bar(args.cuts, &protocol.to_string());
        let findings = campaign.run(&|cuts| bar.inc(cuts));
        bar.finish_and_clear();
        violated |= !findings.violations.is_empty();
        print_findings(&campaign, &findings, args.json);
    }
    Ok(ExitCode::from(u8::from(violated)))
}

fn print_findings(campaign: &Campaign, findings: &Findings, json: bool) {
    let tally = &findings.tally;
    if json {
        let first = findings.violations.first();
        return say(&json!({
            "protocol": campaign.protocol.info().name,
            "lie": campaign.lie.name(),
            "depth": campaign.depth,
            "seed": campaign.seed,
            "runs": findings.runs,
            "cuts": tally.cuts,
            "cuts_again": tally.cuts_again,
            "committed": tally.committed,
            "collections": tally.collections,
            "snapshots_compared": tally.snapshots,
            "violations": tally.violations,
            "first_run_id": first.map(|(id, _)| id.to_string()),
            "first_violation": first.map(|(_, what)| what),
        })
        .to_string());
    }
    say(&format!(
        "{:10} {:>9} cuts ({} of stores that had been cut before)  {:>6} violations  {} commits, \
         {} collections, {} looks at snapshots",
        campaign.protocol.to_string(),
        tally.cuts,
        tally.cuts_again,
        tally.violations,
        tally.committed,
        tally.collections,
        tally.snapshots,
    ));
    for (id, what) in &findings.violations {
        say(&format!("  {id}: {what}"));
    }
}

fn kill_workers(args: &Kill) -> Result<ExitCode, Failure> {
    if args.worker {
        work(&args.store, args.early)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.store.exists() {
        return Err(Failure::Usage(format!(
            "{} is there already: name a store to make",
            args.store.display()
        )));
    }
    let this = std::env::current_exe()?;
    let mut verifier = Verifier::new(args.seed);
    let bar = progress_bar(args.times, "killing");
    for time in 0..args.times {
        let mut command = Command::new(&this);
        command.args(["store", "kill", "--worker"]).arg(&args.store);
        command.args(args.early.then_some("--early"));
        let said = verifier.kill(listening(&mut command).spawn()?)?;
        if let Err(what) = verifier.verify(&args.store, said)? {
            bar.finish_and_clear();
            say(&format!("after {} kills: {what}", time + 1));
            return Ok(ExitCode::from(1));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    say(&format!(
        "{} kills, {} transactions, nothing lost",
        args.times,
        verifier.last()
    ));
    Ok(ExitCode::SUCCESS)
}
