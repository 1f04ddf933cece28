//! `flagstone mtd`: transactions on raw NAND, through an MTD device of Linux.

use super::{Failure, mebibytes, note, progress_bar, protocol_of, say};
use flagstone::commit::{Device, DeviceError, Options};
use flagstone::ftl::{Config, EndOfLife, PairedPages, Scrub};
use flagstone::nand::{Flash, Pairing};
use flagstone::units::{Lpn, Nanos};
use flagstone_campaign::witness::Witness;
use flagstone_mtd::{Mtd, MtdNotes, MtdStats};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Run transactions on raw NAND: an MTD device such as /dev/mtd0, which usually only root may open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the geometry of an MTD device, its ECC and its bad blocks. Reads no page.
    Info(Of),
    /// Erase every good block, so that the first use finds a blank device. Marks blocks whose erase
    /// fails as bad on the chip.
    Create(Create),
    /// Recover the device's contents, read every page and compare the counters. Writes nothing
    /// without --scrub. Exit code 1 if something is wrong.
    Check(On),
    /// Print how worn the blocks are, how many more may fail, and the estimated remaining life.
    /// Writes nothing. Exit code 1 if the end of the device is near.
    Wear(Wear),
    /// Commit transactions whose contents follow from a seed and their numbers, continuing after
    /// existing ones.
    Load(Load),
    /// Check that a device holds a whole number of the transactions of `load`, and nothing else.
    /// Writes nothing without --scrub. Exit code 1 if something is wrong.
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// The MTD device.
    device: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    of: Of,
    /// Erase the device even if it is not blank. All data on it is lost.
    #[arg(long)]
    force: bool,
}

/// Options for opening a device. They must be those of its first write.
#[derive(Debug, clap::Args)]
struct On {
    #[command(flatten)]
    of: Of,
    /// The commit protocol.
    #[arg(long, default_value = "seal")]
    protocol: String,
    /// Over-provisioning: share of the pages that are not addressable.
    #[arg(long, default_value_t = 0.15, value_parser = super::share)]
    over_provision: f64,
    /// Which pages of a block share cells, according to the chip's data sheet: none, distance-3,
    /// distance-6 or tlc.
    #[arg(long, default_value = "none")]
    pairing: Pairing,
    /// Protection of pages that share cells: ignored, closed or slc.
    #[arg(long, default_value = "ignored")]
    paired_pages: PairedPages,
    /// Rewrite a block after a read in which the ECC corrected at least this many bits of a page.
    #[arg(long)]
    scrub: Option<u16>,
}

#[derive(Debug, clap::Args)]
struct Wear {
    #[command(flatten)]
    on: On,
    /// Rated program/erase cycles per block, according to the manufacturer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rated: Option<u32>,
    /// Days of use so far; the remaining life is then estimated at that rate.
    #[arg(long, requires = "rated")]
    days: Option<f64>,
}

/// The transactions that `load` writes.
#[derive(Debug, clap::Args)]
struct History {
    /// Seed of the written data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pages per commit, besides the page that counts commits.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pages: u32,
    /// Number of pages that are written, not counting the first one.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    span: u32,
}

#[derive(Debug, clap::Args)]
struct Load {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    history: History,
    /// Number of commits to make.
    #[arg(long, default_value_t = 1000)]
    commits: u64,
    /// Roll back a transaction before each commit whose number is a multiple of this; 0 for none.
    #[arg(long, default_value_t = 5)]
    roll_back_every: u64,
    /// Print a line `acknowledged N` when commit number N is durable.
    #[arg(long, conflicts_with = "json")]
    acknowledge: bool,
}

#[derive(Debug, clap::Args)]
struct Verify {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    history: History,
    /// Commits that must exist: the last number that `load --acknowledge` printed.
    #[arg(long, default_value_t = 0)]
    acknowledged: u64,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::Info(of) => info(of),
        Action::Create(args) => create(args),
        Action::Check(on) => check(on),
        Action::Wear(args) => wear(args),
        Action::Load(args) => load(args),
        Action::Verify(args) => verify(args),
    }
}

/// An open device, and the counters and errors of the flash below it.
struct Opened {
    device: Device,
    notes: MtdNotes,
    recovery_ms: u128,
    recovery: MtdStats,
}

impl Opened {
    /// Translates a device error. Uses the operating system's message if a system call failed.
    fn failure(&self, error: DeviceError) -> Failure {
        match self.notes.trouble() {
            Some(why) => Failure::Failed(why),
            None => error.into(),
        }
    }
}

impl On {
    /// Opens the device under the protocol and measures its recovery. If that fails, a problem of
    /// the medium explains it better than the error of the device.
    fn open(&self) -> Result<Opened, Failure> {
        let kind = protocol_of(&self.protocol)?;
        let mtd = Mtd::open(&self.of.device, self.pairing)?;
        let notes = mtd.notes();
        let mut config = Config::default();
        config.over_provision = self.over_provision;
        config.checksums = true;
        config.paired_pages = self.paired_pages;
        config.scrub = self.scrub.map(|bits| Scrub {
            bits,
            // On MTD the clock counts operations, so it cannot tell when a patrol is due.
            patrol: Nanos::ZERO,
        });
        let begun = Instant::now();
        let opened = Device::open(
            Box::new(mtd),
            kind,
            config,
            &Options::default(),
            Nanos::ZERO,
        );
        let device = match (opened, notes.trouble()) {
            (Ok(device), _) => device,
            (Err(_), Some(why)) => return Err(Failure::Failed(why)),
            (Err(error), None) => {
                let failure = Failure::Failed(format!("{}: {error}", self.of.device.display()));
                return Err(failure.tip(
                    "open the device with the protocol and settings that it was written with; \
                     `flagstone mtd create` erases it",
                ));
            }
        };
        Ok(Opened {
            recovery_ms: begun.elapsed().as_millis(),
            recovery: notes.stats(),
            device,
            notes,
        })
    }
}

impl History {
    /// The history, which must fit the device.
    fn witness(&self, device: &Device, roll_back_every: u64) -> Result<Witness, Failure> {
        if self.span >= device.pages() {
            return Err(Failure::Usage(format!(
                "--span {}: the device has {} pages; use at most {}",
                self.span,
                device.pages(),
                device.pages() - 1
            )));
        }
        Ok(Witness {
            seed: self.seed,
            pages_per_commit: self.pages,
            span: self.span,
            roll_back_every,
        })
    }
}

/// Describes the flash, without a protocol.
fn info(of: &Of) -> Result<ExitCode, Failure> {
    let mtd = Mtd::open(&of.device, Pairing::None)?;
    let (info, geometry) = (mtd.info(), mtd.geometry());
    let bad: Vec<u32> = info.bad.iter().map(|block| block.0).collect();
    if of.json {
        say(&json!({
            "blocks": info.blocks,
            "pages_per_block": info.pages_per_block,
            "page_bytes": info.page_bytes,
            "data_bytes": geometry.page_bytes,
            "oob_bytes": info.oob_bytes,
            "oob_free": info.oob_free,
            "ecc_strength": info.ecc_strength,
            "ecc_step_bytes": info.ecc_step_bytes,
            "mlc": info.is_mlc,
            "bad": bad,
        })
        .to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let known = |number: Option<u32>| number.map_or("unknown".into(), |number| number.to_string());
    say(&format!(
        "{}: {} blocks of {} pages of {} bytes, {}\n\
         page: {} bytes of data; {} out-of-band, {} of them free\n\
         ECC: corrects {} bits per {} bytes\n\
         bad blocks: {}",
        of.device.display(),
        info.blocks,
        info.pages_per_block,
        info.page_bytes,
        mebibytes(u64::from(info.page_bytes) * u64::from(geometry.pages())),
        geometry.page_bytes,
        info.oob_bytes,
        known(info.oob_free),
        known(info.ecc_strength),
        known(info.ecc_step_bytes),
        if bad.is_empty() {
            "none".into()
        } else {
            format!("{bad:?}")
        }
    ));
    Ok(ExitCode::SUCCESS)
}

/// Erases the device for a new use. Blocks that cannot be erased are marked as bad.
fn create(args: &Create) -> Result<ExitCode, Failure> {
    let of = &args.of;
    let mut mtd = Mtd::open(&of.device, Pairing::None)?;
    if !args.force {
        let bar = progress_bar(mtd.geometry().pages().into(), "looking");
        let blank = mtd.is_blank(&mut |pages| bar.inc(pages));
        bar.finish_and_clear();
        if !blank? {
            let failure =
                Failure::Usage(format!("{}: the device is not blank", of.device.display()));
            return Err(failure.tip("use --force to erase it; all its data is lost"));
        }
    }
    let bar = progress_bar(mtd.geometry().blocks().into(), "erasing");
    let failed = mtd.wipe(&mut |blocks| bar.inc(blocks));
    bar.finish_and_clear();
    let failed = failed?;
    let (blocks, bad) = (mtd.info().blocks, mtd.info().bad.len());
    let marked: Vec<u32> = failed.iter().map(|block| block.0).collect();
    say(&if of.json {
        json!({"blocks": blocks, "bad": bad, "marked": marked}).to_string()
    } else {
        format!(
            "{}: erased {} of {blocks} blocks; {bad} are bad, {} of them marked now",
            of.device.display(),
            blocks - bad as u32,
            marked.len()
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Checks the tables of the device and reads every page. Exit code 1 if it is damaged.
fn check(on: &On) -> Result<ExitCode, Failure> {
    let mut opened = on.open()?;
    let tables = opened.device.check();
    let bar = progress_bar(opened.device.pages().into(), "checking");
    let mut page = vec![0; opened.device.geometry().page_bytes as usize];
    let (mut held, mut lost) = (0u64, Vec::new());
    for at in 0..opened.device.pages() {
        bar.inc(1);
        let now = opened.device.recovered_at();
        match opened.device.read_into(now, None, Lpn(at), &mut page) {
            Ok((_, bytes)) => held += u64::from(bytes.is_some()),
            Err(DeviceError::Unreadable(at)) => {
                held += 1;
                lost.push(at.0);
            }
            Err(error) => return Err(opened.failure(error)),
        }
    }
    bar.finish_and_clear();
    let stats = opened.notes.stats();
    let is_well = tables.is_ok() && lost.is_empty();
    if on.of.json {
        say(&json!({
            "ok": is_well,
            "pages": held,
            "unreadable": lost,
            "wrong": tables.as_ref().err(),
            "recovery_ms": opened.recovery_ms,
            "recovery_reads": opened.recovery.reads,
            "corrected_bits": stats.corrected,
            "uncorrectable_reads": stats.uncorrectable,
            "programs": stats.programs,
        })
        .to_string());
    } else {
        for at in &lost {
            note(&format!("page {at} cannot be read"));
        }
        if let Err(why) = &tables {
            note(&format!("inconsistent metadata: {why}"));
        }
        say(&format!(
            "{}: {held} pages, {} of them unreadable; recovered with {} reads; the ECC corrected \
             {} bits and could not correct {} pages",
            if is_well {
                "the device is intact"
            } else {
                "the device is damaged"
            },
            lost.len(),
            opened.recovery.reads,
            stats.corrected,
            stats.uncorrectable
        ));
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// Reports the wear of the device. Exit code 1 if its end of life is near or reached.
fn wear(args: &Wear) -> Result<ExitCode, Failure> {
    if let Some(days) = args.days.filter(|days| !(*days > 0.0 && days.is_finite())) {
        return Err(Failure::Usage(format!("--days {days}: use more than 0")));
    }
    let opened = args.on.open()?;
    let wear = opened.device.ftl().wear();
    let end = wear.end(args.rated);
    let left = args.rated.zip(args.days);
    let left = left.map(|(rated, days)| wear.lasts(rated, days));
    let [least, median, most] = wear.erases;
    if args.on.of.json {
        say(&json!({
            "end": end.name(),
            "blocks": wear.blocks,
            "out_of_service": wear.out_of_service,
            "may_fail": wear.may_fail,
            "erases": wear.erases_total,
            "erases_of_a_block": {"least": least, "median": median, "most": most},
            "rated": args.rated,
            "used": args.rated.map(|rated| wear.used(rated)),
            "days": args.days,
            "days_left": left.filter(|left| left.is_finite()),
        })
        .to_string());
        return Ok(ExitCode::from(u8::from(end != EndOfLife::Far)));
    }
    let used = args.rated.map(|rated| {
        let share = wear.used(rated) * 100.0;
        format!(": {share:.1} % of {rated} per block")
    });
    let lasts = left.zip(args.days).map(|(left, days)| {
        if left.is_finite() {
            format!("\n{left:.0} more days, at the rate of the last {days} days")
        } else {
            "\nnothing was erased yet".into()
        }
    });
    say(&format!(
        "{} blocks in service, {} out of service; {} more may fail with the current data\n\
         {} erases{}; per block {least} to {most}, median {median}{}\n\
         the end of life of the device is {}",
        wear.blocks,
        wear.out_of_service,
        wear.may_fail,
        wear.erases_total,
        used.unwrap_or_default(),
        lasts.unwrap_or_default(),
        match end {
            EndOfLife::Far => "far",
            EndOfLife::Near => "near: copy its data to another device",
            EndOfLife::Here => "reached: writes may fail; its data can still be read",
        }
    ));
    Ok(ExitCode::from(u8::from(end != EndOfLife::Far)))
}

/// Makes commits of a history, which `verify` can verify after a power cut. With `--acknowledge`
/// prints the number of each when it is durable.
fn load(args: &Load) -> Result<ExitCode, Failure> {
    let mut opened = args.on.open()?;
    let witness = args.history.witness(&opened.device, args.roll_back_every)?;
    let bar = if args.acknowledge {
        indicatif::ProgressBar::hidden()
    } else {
        progress_bar(args.commits, "committing")
    };
    let begun = Instant::now();
    let loaded = witness.load(&mut opened.device, args.commits, &mut |n| {
        bar.inc(1);
        if args.acknowledge {
            say(&format!("acknowledged {n}"));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let last = match loaded {
        Ok(Ok(last)) => last,
        Ok(Err(violation)) => return Err(Failure::Failed(violation.to_string())),
        Err(error) => return Err(opened.failure(error)),
    };
    let stats = opened.notes.stats();
    let rate = args.commits as f64 / seconds;
    say(&if args.on.of.json {
        json!({
            "commits": args.commits,
            "last": last,
            "seconds": seconds,
            "commits_per_second": rate,
            "programs": stats.programs,
            "erases": stats.erases,
            "reads": stats.reads,
            "failed_programs": stats.failed_programs,
            "failed_erases": stats.failed_erases,
            "corrected_bits": stats.corrected,
            "uncorrectable_reads": stats.uncorrectable,
        })
        .to_string()
    } else {
        format!(
            "{} commits, the last is {last}: {rate:.0} a second; {} programs, {} erases",
            args.commits, stats.programs, stats.erases
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Verifies the commits of a history, and the tables of the device. Exit code 1 if one is wrong.
fn verify(args: &Verify) -> Result<ExitCode, Failure> {
    let mut opened = args.on.open()?;
    let witness = args.history.witness(&opened.device, 0)?;
    let tables = opened.device.check();
    let bar = progress_bar(u64::from(witness.span) + 1, "verifying");
    let progress = &mut |pages| bar.inc(pages);
    let verified = witness.verify(&mut opened.device, args.acknowledged, progress);
    bar.finish_and_clear();
    let verdict = match verified {
        Err(error) => return Err(opened.failure(error)),
        Ok(Err(violation)) => Err(violation.to_string()),
        Ok(Ok(commits)) => tables.map(|()| commits),
    };
    let stats = opened.notes.stats();
    say(&match (&verdict, args.on.of.json) {
        (verdict, true) => json!({
            "ok": verdict.is_ok(),
            "commits": verdict.as_ref().ok(),
            "wrong": verdict.as_ref().err(),
            "acknowledged": args.acknowledged,
            "recovery_ms": opened.recovery_ms,
            "recovery_reads": opened.recovery.reads,
            "recovery_uncorrectable": opened.recovery.uncorrectable,
            "corrected_bits": stats.corrected,
        })
        .to_string(),
        (Ok(commits), false) => format!(
            "the device is intact: {commits} commits, {} were acknowledged; recovered with {} \
             reads, of which {} were uncorrectable",
            args.acknowledged, opened.recovery.reads, opened.recovery.uncorrectable
        ),
        (Err(why), false) => format!("verification failed: {why}"),
    });
    Ok(ExitCode::from(u8::from(verdict.is_err())))
}
