//! Power cuts of stores in memory, and kills of processes that commit to a file.

use super::{no_encryption, rot};
use crate::commands::{Failure, named, protocols_of, say};
use flagstone::commit::Kind;
use flagstone_campaign::stores::heads::HeadCampaign;
use flagstone_campaign::stores::kill::{Mistakes, Verifier, listening, work};
use flagstone_campaign::stores::rot::{RotCampaign, RotRunId};
use flagstone_campaign::stores::{
    ENCRYPTS, Landed, Lie, StoreCampaign, StoreFindings, StoreRunId, StoreSubject, suits,
};
use flagstone_terminal::progress_bar;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::str::FromStr;

#[derive(Debug, clap::Args)]
pub(super) struct Kill {
    /// The store to create.
    store: PathBuf,
    /// Number of kills.
    #[arg(long, default_value_t = 200)]
    times: u64,
    /// Seed of the times at which to kill.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use tables: several threads of the process commit transactions on them.
    #[arg(long)]
    tables: bool,
    /// Acknowledge each transaction too early, while the previous one is being committed: a control
    /// that must fail.
    #[arg(long)]
    early: bool,
    /// Leak memory at each transaction: a control of `soak`.
    #[arg(long, hide = true)]
    leak: bool,
    /// Run as the process to be killed.
    #[arg(long, hide = true)]
    worker: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Break {
    /// Commit protocols, separated by commas, or `all` that stores support.
    #[arg(long, default_value = "seal")]
    protocol: String,
    /// Instead of cutting the power, damage durable pages: flip bits, lose pages. The store must
    /// return the right data or an error.
    #[arg(long, conflicts_with_all = ["on_chip", "depth"])]
    rot: bool,
    /// Cuts per protocol; with --rot, damaged stores per protocol.
    #[arg(long, default_value_t = 20_000)]
    cuts: u64,
    /// Maximum number of consecutive cuts.
    #[arg(long, default_value_t = 3)]
    depth: u32,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulate a lying medium: a control that must fail.
    #[arg(long, value_parser = named(Lie::all()), default_value = "none")]
    lie: Lie,
    /// Test stores of tables, under `seal`: transactions with savepoints, snapshots, and commits
    /// that share a flush.
    #[arg(long, conflicts_with = "protocol")]
    tables: bool,
    /// Encrypt the stores.
    #[arg(long)]
    encrypt: bool,
    /// Run the same operations on a store on a simulated chip as well. Cut it at the same
    /// operations with the same writes completed, and compare the recovered states.
    #[arg(long, conflicts_with = "tables")]
    on_chip: bool,
    /// Instead, damage superblocks of this many stores (`--cuts`), and repair some of the stores.
    #[arg(long, conflicts_with_all = ["tables", "on_chip", "lie", "depth"])]
    heads: bool,
    /// With `--heads`: replace the medium by an older, intact version of itself. A control that
    /// must fail.
    #[arg(long, requires = "heads")]
    aged: bool,
    /// Repeat one run by its id.
    #[arg(long, value_name = "RUN-ID", conflicts_with_all = ["protocol", "tables", "cuts", "depth", "seed", "lie", "encrypt"])]
    run: Option<AnyRun>,
    /// With `--run` and the id of one damaged store: write its medium to this new file, and the
    /// undamaged medium to the same name plus `.whole`, for `store check`, `repair` and `dump`.
    #[arg(long, value_name = "FILE", requires = "run")]
    keep: Option<PathBuf>,
    /// Print one JSON object per protocol, one per line.
    #[arg(long)]
    json: bool,
}

pub(super) fn break_stores(args: &Break) -> Result<ExitCode, Failure> {
    if let Some(AnyRun::Rot(id)) = &args.run {
        if let Some(to) = &args.keep {
            rot::keep(id, to)?;
        }
        return Ok(rot::run_again(id));
    }
    if args.keep.is_some() {
        return Err(Failure::Usage(
            "--keep writes the medium of a damaged store: give the id of a run of `break --rot`"
                .into(),
        ));
    }
    if let Some(AnyRun::Cuts(id)) = &args.run {
        no_chip_for(id.subject, id.lie, args.on_chip)?;
        let tally = if args.on_chip {
            id.run_on_chip()
        } else {
            id.run()
        };
        let compared = if args.on_chip {
            format!(", {} compared with the chip", tally.on_chip.cuts)
        } else {
            String::new()
        };
        say(&match &tally.first {
            Some(what) => format!("{id}: {what}"),
            None => format!("{id} holds: {} cuts{compared}", tally.cuts),
        });
        return Ok(ExitCode::from(u8::from(tally.violations > 0)));
    }
    if args.encrypt && !ENCRYPTS {
        return Err(no_encryption());
    }
    let mut protocols = protocols_of(&args.protocol)?;
    match args.protocol.as_str() {
        "all" => protocols.retain(|&protocol| suits(protocol)),
        _ => {
            if let Some(odd) = protocols.iter().find(|protocol| protocol.info().reprograms) {
                return Err(Failure::Usage(format!(
                    "{odd} reprograms pages to set flags, which a store does not support: use \
                     another protocol"
                )));
            }
        }
    }
    if args.rot {
        return break_by_rot(args, protocols);
    }
    if args.heads {
        return break_heads(args, &protocols);
    }
    let lie = args.lie;
    let subject = subject(args.tables);
    if !subject.has(lie) {
        let (name, then) = match (lie, args.tables) {
            (Lie::Horizon | Lie::Sums, _) => ("runs with rot", "add --rot"),
            (_, true) => ("runs over pages", "leave out --tables"),
            _ => ("tables", "add --tables"),
        };
        return Err(Failure::Usage(format!(
            "`--lie {}` works only with {name}: {then}",
            lie.name()
        )));
    }
    no_chip_for(subject, lie, args.on_chip)?;
    let mut violated = false;
    for protocol in protocols {
        let campaign = StoreCampaign {
            subject,
            protocol,
            lie,
            encrypted: args.encrypt,
            on_chip: args.on_chip,
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

/// The id of any run of `store break`.
#[derive(Debug, Clone, Copy)]
enum AnyRun {
    Cuts(StoreRunId),
    Rot(RotRunId),
}

impl FromStr for AnyRun {
    type Err = String;

    fn from_str(text: &str) -> Result<AnyRun, String> {
        if text.starts_with("rot") {
            text.parse().map(AnyRun::Rot)
        } else {
            text.parse().map(AnyRun::Cuts)
        }
    }
}

/// Runs campaigns that damage stores of these protocols.
fn break_by_rot(args: &Break, protocols: Vec<Kind>) -> Result<ExitCode, Failure> {
    if !RotRunId::has(args.lie) {
        return Err(Failure::Usage(format!(
            "`--lie {}` does not work with --rot: use `horizon`, `sums` or `checksums`",
            args.lie.name()
        )));
    }
    let mut is_silent = false;
    for protocol in protocols {
        let campaign = RotCampaign {
            subject: subject(args.tables),
            protocol,
            lie: args.lie,
            encrypted: args.encrypt,
            damages: args.cuts,
            seed: args.seed,
            stop_early: args.lie != Lie::None,
        };
        is_silent |= rot::carry_out(&campaign, args.json);
    }
    Ok(ExitCode::from(u8::from(is_silent)))
}

/// Runs campaigns that damage superblocks.
fn break_heads(args: &Break, protocols: &[Kind]) -> Result<ExitCode, Failure> {
    let mut violated = false;
    for &protocol in protocols {
        let campaign = HeadCampaign {
            protocol,
            encrypted: args.encrypt,
            aged: args.aged,
            damages: args.cuts,
            seed: args.seed,
        };
        let bar = progress_bar(args.cuts, &protocol.to_string());
        let tally = campaign.run(&|damaged| bar.inc(damaged))?;
        bar.finish_and_clear();
        violated |= tally.violations > 0;
        say(&if args.json {
            json!({
                "protocol": protocol.info().name,
                "seed": args.seed,
                "damaged": tally.damaged,
                "opened": tally.opened,
                "refused": tally.refused,
                "repaired": tally.repaired,
                "not_repaired": tally.unrepaired,
                "grown": tally.grown,
                "violations": tally.violations,
                "first_violation": tally.first,
            })
            .to_string()
        } else {
            format!(
                "{:10} {:>9} damaged superblocks  {:>6} violations  {} opened, {} refused, {} \
                 repaired, {} with losses that the repair reports",
                protocol.to_string(),
                tally.damaged,
                tally.violations,
                tally.opened,
                tally.refused,
                tally.repaired,
                tally.unrepaired
            )
        });
        if let (false, Some(what)) = (args.json, &tally.first) {
            say(&format!("  {what}"));
        }
    }
    Ok(ExitCode::from(u8::from(violated)))
}

/// Refuses --on-chip for runs without a chip, and the control that needs a chip without it.
fn no_chip_for(subject: StoreSubject, lie: Lie, on_chip: bool) -> Result<(), Failure> {
    if on_chip && subject == StoreSubject::Tables {
        return Err(Failure::Usage(
            "--on-chip does not work with --tables: leave one of them out".into(),
        ));
    }
    if lie == Lie::Landings && !on_chip {
        return Err(Failure::Usage(
            "`--lie landings` works only with --on-chip: add --on-chip".into(),
        ));
    }
    Ok(())
}

fn subject(of_tables: bool) -> StoreSubject {
    if of_tables {
        StoreSubject::Tables
    } else {
        StoreSubject::Pages
    }
}

fn print_findings(campaign: &StoreCampaign, findings: &StoreFindings, json: bool) {
    let tally = &findings.work;
    if json {
        let first = findings.violations.first();
        let mut found = json!({
            "protocol": campaign.protocol.info().name,
            "lie": campaign.lie.name(),
            "depth": campaign.depth,
            "seed": campaign.seed,
            "runs": findings.runs,
            "cuts": tally.cuts,
            "cuts_again": tally.cuts_again,
            "committed": tally.committed,
            "collections": tally.collections,
            "moved_while_idle": tally.moved,
            "blocks_added": tally.grown,
            "times_smaller": tally.shrunk,
            "times_without_room": tally.refused,
            "snapshots_compared": tally.snapshots,
            "violations": tally.violations,
            "first_run_id": first.map(|(id, _)| id.to_string()),
            "first_violation": first.map(|(_, what)| what),
        });
        let wide = &tally.wide;
        if campaign.subject == StoreSubject::Pages {
            found["never_written_compared"] = json!(tally.empties);
            found["with_many_clients"] = json!(wide.many_clients);
        }
        if !campaign.on_chip {
            found["most_commits_under_way"] = json!(wide.group);
            found["copies_of_whole_stores"] = json!(wide.copies);
            found["wide_runs"] = json!(wide.runs);
            found["with_large_blocks"] = json!(wide.large_blocks);
            found["with_room_at_first"] = json!(wide.roomy);
            found["with_sparse_media"] = json!(wide.sparse);
            found["with_whole_collections"] = json!(wide.whole);
            found["large_transactions"] = json!(wide.large);
            found["closes"] = json!(wide.closes);
            found["failed_media"] = json!(wide.failures);
        }
        if campaign.on_chip {
            found["compared_on_chip"] = json!(tally.on_chip.cuts);
            found["compared_by_tables"] = json!(tally.on_chip.by_tables);
            found["in_flight_landed"] = json!(tally.on_chip.all);
            found["in_flight_lost"] = json!(tally.on_chip.nothing);
            found["in_flight_torn"] = json!(tally.on_chip.torn);
        }
        if campaign.subject == StoreSubject::Tables {
            found["subject"] = json!("tables");
            found["commits_together"] = json!(tally.grouped);
            found["compactions"] = json!(wide.compactions);
        }
        return say(&found.to_string());
    }
    let (name, done) = match campaign.subject {
        StoreSubject::Pages => {
            let done = format!(
                "{} collections, {} pages moved while idle, {} blocks added, {} times smaller, {} \
                 times without room, {} pages that were never written, {} closes, {} failed media, {} large \
                 transactions",
                tally.collections,
                tally.moved,
                tally.grown,
                tally.shrunk,
                tally.refused,
                tally.empties,
                tally.wide.closes,
                tally.wide.failures,
                tally.wide.large
            );
            (campaign.protocol.to_string(), done)
        }
        StoreSubject::Tables => {
            let done = format!(
                "{} of them while another was under way, {} times without room, {} erases",
                tally.grouped, tally.refused, tally.collections
            );
            ("tables".to_string(), done)
        }
    };
    say(&format!(
        "{name:10} {:>9} cuts ({} of stores that had been cut before)  {:>6} violations  {} commits, \
         {done}, {} looks at snapshots",
        tally.cuts, tally.cuts_again, tally.violations, tally.committed, tally.snapshots,
    ));
    if campaign.on_chip {
        let Landed {
            cuts,
            by_tables,
            all,
            nothing,
            torn,
            ..
        } = tally.on_chip;
        say(&format!(
            "{:10} {cuts:>9} cuts compared with a simulated chip, {by_tables} of them by the tables of a \
             close too; of the operations in flight {all} had landed, {nothing} had not, {torn} \
             were torn",
            ""
        ));
    }
    for (id, what) in &findings.violations {
        say(&format!("  {id}: {what}"));
    }
}

/// Kills workers and verifies the store after each; with `--worker`, is such a worker.
pub(super) fn kill_workers(args: &Kill) -> Result<ExitCode, Failure> {
    if args.worker {
        let mistakes = Mistakes {
            early: args.early,
            leaks: args.leak,
        };
        work(&args.store, subject(args.tables), mistakes)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.store.exists() {
        return Err(Failure::Usage(format!(
            "{} exists already: give the path of a new store",
            args.store.display()
        )));
    }
    let this = std::env::current_exe()?;
    let mut verifier = Verifier::new(subject(args.tables), args.seed);
    let bar = progress_bar(args.times, "killing");
    for time in 0..args.times {
        let mut command = Command::new(&this);
        command.args(["store", "kill", "--worker"]).arg(&args.store);
        command.args(args.early.then_some("--early"));
        command.args(args.tables.then_some("--tables"));
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
