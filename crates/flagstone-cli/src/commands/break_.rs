//! `flagstone break`: power-cut campaigns.

use super::{Failure, device, named, note, progress_bar, protocols_of, say};
use flagstone::commit::Kind;
use flagstone_campaign::campaign::{
    Below, CHUNK_CUTS, Campaign, Cuts, Detail, DeviceTraits, Faults, Findings, LongCampaign,
    Sabotage, Subject, Tally, suits, tell,
};
use flagstone_campaign::explain::text;
use flagstone_host::{HostError, Stack};
use flagstone_index::IndexKind;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Cut the power at any flash operation, and check the data that each protocol recovers.
///
/// Exit code 0 if no violation was found, 1 otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Commit protocols, separated by commas; `all` selects every one except `plain`, which is not
    /// atomic.
    #[arg(long, default_value = "all")]
    protocol: String,
    /// Test databases instead, separated by commas: `wal`, `cfc-ex`, `afc-ex`, `force:PROTOCOL`;
    /// `all` selects every one except `force:plain`.
    #[arg(long, group = "above", conflicts_with = "protocol")]
    stack: Option<String>,
    /// Test indexes instead, separated by commas, or `all`. Each runs on everything that --on
    /// names.
    #[arg(long, group = "above", conflicts_with_all = ["protocol", "stack"])]
    index: Option<String>,
    /// Protocols and databases below the indexes, separated by commas; names as for --protocol and
    /// --stack.
    #[arg(
        long,
        requires = "index",
        default_value = "lighttx,wal,cfc-ex,afc-ex,force:cfc"
    )]
    on: String,
    /// Cut points per protocol; or `exhaustive`: every operation of a few small runs; or
    /// `landings`: every outcome of the unfinished operations at every cut of 32 small runs; or
    /// `landings:RUNS`: the same for RUNS runs (protocols only). With --long: total number of cut
    /// points [default: 20000, with --long 10000000].
    #[arg(long)]
    cuts: Option<String>,
    /// Run a campaign of hours: seed after seed on everything named, or on all protocols, databases
    /// and indexes. Saves its state in this folder, so it can be stopped at any time and continued
    /// by the same command, also with more --cuts.
    #[arg(long, value_name = "FOLDER", conflicts_with = "as_published")]
    long: Option<PathBuf>,
    /// Consecutive power cuts in one run, including cuts during recovery.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3))]
    depth: u32,
    /// Faults besides power cuts, separated by commas: none, torn, program-failure, erase-failure,
    /// bit-errors, all (of the preceding), bit-errors-beyond-ecc, silent, paired (pages that share
    /// cells; on devices that protect them, for protocols without in-place flags), aging (growing
    /// bit errors; on devices that scrub, for protocols).
    #[arg(long, default_value = "torn")]
    faults: String,
    /// Seed of the campaign.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Test the protocols as published instead of the repaired variants, where the two differ.
    #[arg(long)]
    as_published: bool,
    /// Simulate a lying flash, or a deliberate mistake of an index, a database or SEAL: a control
    /// that must fail.
    #[arg(long, value_parser = named(Sabotage::all()), default_value = "none")]
    sabotage: Sabotage,
    /// Collect garbage ahead of need, in steps between transactions (`seal` and `seal-r`).
    #[arg(long, conflicts_with = "long")]
    ahead: bool,
    /// Use rare settings. Databases: writing out pages of live transactions, write-through,
    /// whole-page locks, filled log pages; different ones on each device. Indexes: stores that
    /// their keys nearly fill. Protocols: devices that transactions fill, and transactions that
    /// continue after a refused request. A quarter of the devices and databases also have other
    /// settings at each opening.
    #[arg(long, conflicts_with = "long")]
    unusual: bool,
    /// Simulate devices like this one: a preset (see `flagstone device list`) or a file. They have
    /// its planes, cells, page pairing, latencies and settings, but few and small blocks.
    /// `flagstone replay` needs the same device.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "long")]
    device: Option<String>,
    /// Print one JSON object per protocol, one per line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut subjects = match &args.long {
        Some(_) if args.names_nothing() => everything(args)?,
        _ => subjects_of(args)?,
    };
    let cuts = match (args.cuts.as_deref(), &args.long) {
        (None, None) => "20000",
        (None, Some(_)) => "10000000",
        (Some(cuts), _) => cuts,
    };
    let cuts = match cuts {
        "exhaustive" => Cuts::Exhaustive,
        "landings" => Cuts::Landings(RUNS_OF_LANDINGS),
        text if text.starts_with("landings:") => landings_of(text)?,
        text => match text.replace('_', "").parse() {
            Ok(number @ 1..) => Cuts::Sampled(number),
            _ => {
                return Err(Failure::Usage(format!(
                    "--cuts takes a number from 1 to {}, `exhaustive` or `landings`, not `{text}`",
                    u64::MAX
                )));
            }
        },
    };
    let faults = faults_of(&args.faults)?;
    if faults.paired {
        only_mlc(args, &mut subjects)?;
    }
    if matches!(cuts, Cuts::Landings(_)) {
        only_landings(&subjects, faults)?;
    }
    if let Some(subject) = subjects.iter().find(|subject| !subject.collects_in_steps())
        && args.ahead
    {
        return Err(Failure::Usage(format!(
            "--ahead does not work with {subject}, which cannot collect garbage in steps: use \
             --protocol seal or seal-r"
        )));
    }
    if let Some(subject) = subjects.iter().find(|s| !matches!(s, Subject::Protocol(_)))
        && faults.aging
    {
        return Err(Failure::Usage(format!(
            "--faults aging works only with protocols, not with {subject}: use --protocol"
        )));
    }
    let device = args.device.as_deref().map(|name| like(name, faults, cuts));
    let device = device.transpose()?;
    if let Some(device) = &device {
        only_suited(device, &mut subjects)?;
    }
    let sabotage = args.sabotage;
    if let Some(subject) = subjects.iter().find(|&&subject| !sabotage.suits(subject)) {
        return Err(Failure::Usage(format!(
            "--sabotage {} does not work with {subject}, but with {}",
            sabotage.name(),
            sabotage.wants()
        )));
    }
    if let Some(folder) = &args.long {
        let Cuts::Sampled(cuts) = cuts else {
            let why = "--long needs a number for --cuts: exhaustive campaigns end by themselves";
            return Err(Failure::Usage(why.into()));
        };
        let each = |subject| {
            variants(subject)
                .into_iter()
                .map(move |mode| (subject, mode))
        };
        let campaign = LongCampaign {
            subjects: subjects.into_iter().flat_map(each).collect(),
            cuts,
            chunk_cuts: CHUNK_CUTS,
            depth: args.depth,
            faults,
            seed: args.seed,
            sabotage,
        };
        return long(&campaign, folder, args.json);
    }
    let mut violated = false;
    for subject in subjects {
        for variant in variants(subject) {
            let campaign = Campaign {
                subject,
                variant,
                published: args.as_published,
                cuts,
                depth: args.depth,
                ahead: args.ahead,
                unusual: args.unusual,
                device: device.clone(),
                faults,
                seed: args.seed,
                sabotage,
                stop_early: args.as_published || sabotage != Sabotage::None,
            };
            violated |= one(&campaign, args.json);
        }
    }
    Ok(ExitCode::from(u8::from(violated)))
}

impl Args {
    fn names_nothing(&self) -> bool {
        self.protocol == "all" && self.stack.is_none() && self.index.is_none()
    }
}

/// Default number of runs for `--cuts landings`.
const RUNS_OF_LANDINGS: u64 = 32;

fn landings_of(text: &str) -> Result<Cuts, Failure> {
    let runs = text
        .strip_prefix("landings:")
        .map(|runs| runs.replace('_', "").parse());
    match runs {
        Some(Ok(runs @ 1..)) => Ok(Cuts::Landings(runs)),
        _ => Err(Failure::Usage(format!(
            "--cuts landings:RUNS takes a number of runs from 1 to {}, not `{text}`",
            u64::MAX
        ))),
    }
}

/// Refuses subjects whose landings (outcomes of a cut) cannot all be enumerated.
fn only_landings(subjects: &[Subject], faults: Faults) -> Result<(), Failure> {
    if let Some(subject) = subjects.iter().find(|s| !matches!(s, Subject::Protocol(_))) {
        return Err(Failure::Usage(format!(
            "--cuts landings works only with protocols, not with {subject}: use a number, or \
             `exhaustive`"
        )));
    }
    if faults.bits_beyond || faults.silent {
        Err(Failure::Usage(
            "--cuts landings needs restarts, which runs with lost pages do not have: remove \
             bit-errors-beyond-ecc and silent from --faults"
                .into(),
        ))
    } else {
        Ok(())
    }
}

/// The traits that a campaign's devices copy from the device called `name`.
fn like(name: &str, faults: Faults, cuts: Cuts) -> Result<Arc<DeviceTraits>, Failure> {
    if faults.paired {
        let why = "--faults paired does not work with --device, which defines the paired pages \
                   itself: leave one of them out";
        return Err(Failure::Usage(why.into()));
    }
    if matches!(cuts, Cuts::Landings(_)) {
        let why = "--cuts landings uses its own tiny devices: leave --device out";
        return Err(Failure::Usage(why.into()));
    }
    Ok(Arc::new(DeviceTraits::of(&device::load(name)?)))
}

/// Removes subjects that do not work on the device.
fn only_suited(device: &Arc<DeviceTraits>, subjects: &mut Vec<Subject>) -> Result<(), Failure> {
    let mut unsuited = Vec::new();
    subjects.retain(|&subject| match suits(subject, device) {
        Ok(()) => true,
        Err(why) => {
            unsuited.push(why);
            false
        }
    });
    if subjects.is_empty() {
        return Err(Failure::Usage(unsuited.swap_remove(0)));
    }
    unsuited
        .iter()
        .for_each(|why| note(&format!("left out: {why}")));
    Ok(())
}

/// Removes subjects that do not work on cells shared by several pages.
fn only_mlc(args: &Args, subjects: &mut Vec<Subject>) -> Result<(), Failure> {
    let all = subjects.len();
    let unsuited = subjects.iter().find(|subject| !subject.suits_mlc());
    let named = args.stack.as_ref().unwrap_or(&args.protocol);
    let takes_all = args.index.is_some() || named == "all";
    if let (Some(subject), false) = (unsuited, takes_all) {
        return Err(Failure::Usage(format!(
            "--faults paired does not work with {subject}, which sets flags in place: multi-level \
             cells can be programmed only once"
        )));
    }
    subjects.retain(|subject| subject.suits_mlc());
    if subjects.is_empty() {
        let why = "--faults paired: everything selected sets flags in place, but multi-level cells \
                   can be programmed only once; select others";
        return Err(Failure::Usage(why.into()));
    }
    if subjects.len() < all {
        let left_out = all - subjects.len();
        note(&format!(
            "left out {left_out} of {all}, which set flags in place"
        ));
    }
    Ok(())
}

/// All protocols, databases and indexes.
fn everything(args: &Args) -> Result<Vec<Subject>, Failure> {
    let protocols = Kind::ALL.iter().map(|&kind| Subject::Protocol(kind));
    let stacks = Stack::all().into_iter().map(Subject::Stack);
    let mut all: Vec<Subject> = protocols.chain(stacks).collect();
    all.extend(indexes_of("all", &args.on)?);
    all.retain(|subject| subject.is_atomic());
    Ok(all)
}

/// Starts or continues a long campaign, and prints the findings of all of it.
fn long(campaign: &LongCampaign, folder: &Path, json: bool) -> Result<ExitCode, Failure> {
    let bar = progress_bar(campaign.cuts, "long campaign");
    let records = campaign.run(folder, &|cuts| bar.inc(cuts))?;
    bar.finish_and_clear();
    let mut total = Tally {
        subject: "all".into(),
        ..Tally::default()
    };
    for record in records {
        print_record(&record, json);
        total.add(record);
    }
    print_record(&total, json);
    Ok(ExitCode::from(u8::from(total.violations > 0)))
}

fn print_record(record: &Tally, json: bool) {
    if json {
        return say(&json!(record).to_string());
    }
    say(&format!(
        "{:26} {:>9} cuts ({} of them during a restart)  {:>6} runs violated",
        record.subject, record.cuts, record.cuts_in_recovery, record.violations
    ));
    for violation in record.first.iter().filter(|_| record.subject != "all") {
        say(&format!("  {}: {}", violation.run_id, violation.what));
    }
}

/// The subjects that the arguments name.
fn subjects_of(args: &Args) -> Result<Vec<Subject>, Failure> {
    if args.as_published && (args.stack.is_some() || args.index.is_some()) {
        return Err(Failure::Usage(
            "--as-published works only with protocols: leave it out, or use --protocol".into(),
        ));
    }
    if let Some(list) = &args.index {
        return indexes_of(list, &args.on);
    }
    if let Some(list) = &args.stack {
        let mut stacks = Stack::all();
        if list == "all" {
            stacks.retain(|&stack| Subject::Stack(stack).is_atomic());
        } else {
            let named = list.split(',').map(|name| name.trim().parse());
            stacks = named
                .collect::<Result<_, HostError>>()
                .map_err(|error| Failure::Usage(error.to_string()))?;
        }
        return Ok(stacks.into_iter().map(Subject::Stack).collect());
    }
    let mut kinds = protocols_of(&args.protocol)?;
    if args.protocol == "all" {
        kinds.retain(|kind| kind.info().atomic);
    }
    if args.as_published {
        kinds.retain(|kind| kind.info().published.is_some());
        if kinds.is_empty() {
            let all = Kind::ALL
                .iter()
                .filter(|kind| kind.info().published.is_some());
            let names: Vec<&str> = all.map(|kind| kind.info().name).collect();
            return Err(Failure::Usage(format!(
                "--as-published: the published variant of {} does not differ; these have one that \
                 does: {}",
                args.protocol,
                names.join(", ")
            )));
        }
    }
    Ok(kinds.into_iter().map(Subject::Protocol).collect())
}

/// Each index of `list` on each protocol and database of `on`.
fn indexes_of(list: &str, on: &str) -> Result<Vec<Subject>, Failure> {
    let kinds = match list {
        "all" => IndexKind::ALL.to_vec(),
        list => list
            .split(',')
            .map(|name| {
                IndexKind::by_name(name.trim()).ok_or_else(|| {
                    let names: Vec<&str> = IndexKind::ALL.iter().map(|k| k.info().name).collect();
                    let names = names.join(", ");
                    Failure::Usage(format!("there is no index `{name}`; there are {names}"))
                })
            })
            .collect::<Result<_, _>>()?,
    };
    let below = on.split(',').map(|name| {
        Below::by_name(name.trim()).ok_or_else(|| {
            Failure::Usage(format!(
                "--on takes commit protocols (see `flagstone protocols`) and wal, cfc-ex, afc-ex, \
                 force:PROTOCOL, not `{name}`"
            ))
        })
    });
    let below: Vec<Below> = below.collect::<Result<_, _>>()?;
    let each = |kind| below.iter().map(move |&on| Subject::Index(kind, on));
    let subjects: Vec<Subject> = kinds.into_iter().flat_map(each).collect();
    match subjects.iter().find(|subject| !subject.is_possible()) {
        Some(subject) => Err(Failure::Usage(format!(
            "{subject}: an index needs a protocol or database with transactions below it: use \
             another --on, or force:plain for a control that must fail"
        ))),
        None => Ok(subjects),
    }
}

/// The default form of a subject, then its other modes.
fn variants(subject: Subject) -> Vec<Option<&'static str>> {
    let others = subject.modes().skip(1).map(Some);
    std::iter::once(None).chain(others).collect()
}

fn faults_of(list: &str) -> Result<Faults, Failure> {
    let named = [("all", Faults::ALL)].into_iter().chain(Faults::NAMES);
    list.split(',').try_fold(Faults::default(), |all, name| {
        let found = named.clone().find(|(known, _)| *known == name.trim());
        found.map(|(_, faults)| all.and(faults)).ok_or_else(|| {
            let names: Vec<&str> = Faults::NAMES.iter().map(|(name, _)| *name).collect();
            Failure::Usage(format!(
                "there is no fault `{name}`; there are {} and `all`",
                names.join(", ")
            ))
        })
    })
}

/// Runs a campaign and prints its findings. Returns whether there were violations.
fn one(campaign: &Campaign, json: bool) -> bool {
    let mut name = match campaign.variant {
        Some(variant) => format!("{}.{variant}", campaign.subject),
        None => campaign.subject.to_string(),
    };
    if campaign.ahead {
        name += ".ahead";
    }
    let length = match campaign.cuts {
        Cuts::Sampled(cuts) => cuts,
        Cuts::Exhaustive | Cuts::Landings(_) => 0,
    };
    let bar = progress_bar(length, &name);
    let start = Instant::now();
    let findings = campaign.run(&|cuts| bar.inc(cuts));
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let violated = findings.violations_total > 0;
    let smallest = findings
        .violations
        .first()
        .map(|(id, _)| campaign.shrink(id));
    if json {
        print_json(
            campaign,
            &name,
            &findings,
            seconds,
            smallest.as_ref().map(|id| id.to_string()),
        );
        return violated;
    }
    let work = &findings.work;
    // A run can fail a check before its cut comes, so there may be more violated runs than cuts.
    say(&format!(
        "{name:20} {:>9} cuts ({} of them during a restart)  {:>6} of {} runs violated  \
         {:>8.0} cuts/s  {} recoveries checked, {} collections, {} checkpoints, {} blocks retired",
        work.cuts,
        work.cuts_in_recovery,
        findings.violations_total,
        findings.runs,
        work.cuts as f64 / seconds,
        work.recoveries,
        work.collections,
        work.checkpoints,
        work.retired,
    ));
    if matches!(campaign.cuts, Cuts::Landings(_)) {
        say(&format!(
            "  {} runs, {} operations with a power cut, all outcomes tested at {} of them",
            findings.runs, work.points, work.points_whole
        ));
    }
    if let (Some((first, what)), Some(smallest)) = (findings.violations.first(), smallest) {
        say(&format!("  first: {first}: {what}"));
        if findings.without_mistake > 0 {
            let count = findings.without_mistake;
            let of = findings.violations.len();
            say(&format!(
                "{count} of the first {of} fail without the sabotage as well, so it is not their \
                 cause"
            ));
        }
        say(&format!("  smallest found: {smallest}"));
        say("  its events, without reads (`flagstone replay` shows reads too):\n");
        let (story, _) = tell(&smallest, Detail::default());
        for line in text(&story).lines() {
            say(&format!("    {line}"));
        }
        say("");
    }
    violated
}

/// Prints the findings of a campaign as a JSON object. `smallest` is the id of the smallest failing
/// run that was found.
fn print_json(
    campaign: &Campaign,
    name: &str,
    findings: &Findings,
    seconds: f64,
    smallest: Option<String>,
) {
    let work = &findings.work;
    let first = findings.violations.first();
    let object = json!({
        "protocol": campaign.subject.to_string(),
        "variant": name,
        "as_published": campaign.published,
        "depth": campaign.depth,
        "seed": campaign.seed,
        "ahead": campaign.ahead,
        "cuts": work.cuts,
        "cut_points": work.points,
        "cut_points_whole": work.points_whole,
        "cuts_in_recovery": work.cuts_in_recovery,
        "violations": findings.violations_total,
        "violations_without_sabotage": findings.without_mistake,
        "first_run_id": first.map(|(id, _)| id.to_string()),
        "first_violation": first.map(|(_, what)| what),
        "smallest_run_id": smallest,
        "cuts_per_s": work.cuts as f64 / seconds,
        "runs": findings.runs,
        "recoveries": work.recoveries,
        "flash_operations": work.operations,
        "collections": work.collections,
        "checkpoints": work.checkpoints,
        "blocks_retired": work.retired,
        "wall_s": seconds,
    });
    say(&object.to_string());
}
