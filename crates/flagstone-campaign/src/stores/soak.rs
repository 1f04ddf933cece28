//! Soak test of a store: workers that commit until killed or stopped, compactions that are killed
//! too, backups, and verification after each.
//!
//! ```text
//!   cycle    worker commits ── killed, or stops ──> verify ──> check ──┐
//!              ^                                                       │
//!              └── backup, verified ── compaction, or killed in one <──┘
//! ```
//!
//! In addition to losses, a soak detects unbounded growth: of a worker's memory between its
//! beginning and its end, and of the store between the first and the second half of the soak.

use super::StoreSubject;
use super::kill::Verifier;
use flagstone_lab::replay::memory_of;
use flagstone_store::{OpenOptions, PageStore, StoreError, tools};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Interval of samples of a worker's memory.
const EVERY: Duration = Duration::from_millis(50);
/// Run time of every fourth worker.
const LONG: Duration = Duration::from_secs(60);
/// Workers with a shorter run time are ignored for memory growth.
const SHORT: Duration = Duration::from_secs(1);
/// Allowed growth of memory or file: this factor plus these bytes.
const SLACK_FACTOR: f64 = 1.25;
const SLACK_BYTES: u64 = 8 << 20;

/// Deliberate mistakes that a soak can make, and must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoakControl {
    /// No mistake.
    None,
    /// Workers leak memory in each transaction.
    Leak,
    /// The store is once replaced by an older copy of itself.
    Lost,
}

impl SoakControl {
    /// All controls, with their command names.
    pub const ALL: [(SoakControl, &'static str); 3] = [
        (SoakControl::None, "none"),
        (SoakControl::Leak, "leak"),
        (SoakControl::Lost, "lost"),
    ];

    /// The control with this command name.
    pub fn by_name(name: &str) -> Option<SoakControl> {
        let mut all = SoakControl::ALL.iter();
        all.find(|(_, other)| *other == name).map(|(it, _)| *it)
    }
}

/// Settings of a soak.
#[derive(Debug, Clone)]
pub struct Soak {
    /// A folder for `soak.flag` and `backup.flag`.
    pub folder: PathBuf,
    /// A program that acts as a worker if called as `store kill --worker FILE`, and compacts a
    /// store if called as `store compact FILE`.
    pub program: PathBuf,
    /// Duration of the soak.
    pub time: Duration,
    /// Seed of everything except the clock.
    pub seed: u64,
    /// The mistake to make.
    pub control: SoakControl,
}

/// Why a soak could not be completed.
#[derive(Debug, Error)]
pub enum SoakError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Counts and findings of a soak.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SoakReport {
    /// Workers that were killed.
    pub kills: u64,
    /// Workers that stopped and closed the store.
    pub stops: u64,
    /// Transactions that were committed.
    pub transactions: u64,
    /// Completed compactions.
    pub compactions: u64,
    /// Compactions that were killed.
    pub compactions_killed: u64,
    /// Backups, all verified.
    pub backups: u64,
    /// Maximum size of the store, in the first and in the second half of the time.
    pub file_bytes: [u64; 2],
    /// Memory of the worker that grew most, among those that ran longer than a second: soon after
    /// its start, and at its end.
    pub memory_bytes: [u64; 2],
    /// Workers whose memory was sampled long enough.
    pub workers_sampled: u64,
    /// The first problem found.
    pub wrong: Option<String>,
}

/// Whether a value has grown by more than the allowed slack.
fn has_grown([before, after]: [u64; 2]) -> bool {
    after as f64 > before as f64 * SLACK_FACTOR + SLACK_BYTES as f64
}

impl Soak {
    fn store(&self) -> PathBuf {
        self.folder.join("soak.flag")
    }

    /// Executes the soak. `progress` receives the elapsed time.
    ///
    /// # Errors
    /// A system call or the store fails. Wrong contents of the store are in the report.
    pub fn run(&self, progress: &dyn Fn(Duration)) -> Result<SoakReport, SoakError> {
        let begin = Instant::now();
        let (store, copy) = (self.store(), self.folder.join("backup.flag"));
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed);
        let mut verifier = Verifier::new(StoreSubject::Pages, self.seed);
        let mut report = SoakReport::default();
        let mut older: Option<Vec<u8>> = None;
        while begin.elapsed() < self.time && report.wrong.is_none() {
            progress(begin.elapsed());
            let said = self.use_store(begin, &mut dice, &mut report)?;
            if let Some(older) = older.take() {
                std::fs::write(&store, older)?;
            }
            let found = verifier.verify(&store, said)?.err();
            report.wrong = report.wrong.or(found);
            report.transactions = verifier.last();
            if report.wrong.is_some() {
                break;
            }
            let bytes = std::fs::metadata(&store)?.len();
            let half = usize::from(begin.elapsed() > self.time / 2);
            report.file_bytes[half] = report.file_bytes[half].max(bytes);
            if self.control == SoakControl::Lost && older.is_none() {
                older = Some(std::fs::read(&store)?);
            }
            if dice.random_range(0..2) == 0 {
                tools::backup(
                    &store,
                    &copy,
                    &OpenOptions::existing(),
                    true,
                    &mut |_, _| (),
                )?;
                report.backups += 1;
                let found = verifier.verify(&copy, verifier.last())?;
                report.wrong = found.err().map(|what| format!("the backup: {what}"));
            }
            match dice.random_range(0..4) {
                0 => {
                    tools::compact(&store, &OpenOptions::existing(), &mut |_, _| ())?;
                    report.compactions += 1;
                }
                1 => self.kill_compaction(&mut dice, &mut report)?,
                _ => continue,
            }
            let found = verifier.verify(&store, verifier.last())?;
            let found = found
                .err()
                .map(|what| format!("after a compaction: {what}"));
            report.wrong = report.wrong.or(found);
        }
        if report.wrong.is_none() && has_grown(report.file_bytes) {
            report.wrong = Some(format!(
                "the store grew: up to {} bytes in the first half, and {} in the second",
                report.file_bytes[0], report.file_bytes[1]
            ));
        }
        if report.wrong.is_none() && has_grown(report.memory_bytes) {
            report.wrong = Some(format!(
                "the memory of a worker grew from {} bytes to {}",
                report.memory_bytes[0], report.memory_bytes[1]
            ));
        }
        Ok(report)
    }

    /// Lets a worker use the store for a random time, then kills or stops it. Returns the last
    /// transaction that it reported.
    fn use_store(
        &self,
        begin: Instant,
        dice: &mut Pcg64Mcg,
        report: &mut SoakReport,
    ) -> Result<u64, SoakError> {
        let mut command = Command::new(&self.program);
        command
            .args(["store", "kill", "--worker"])
            .arg(self.store());
        command.args((self.control == SoakControl::Leak).then_some("--leak"));
        let mut worker = super::kill::listening(&mut command).spawn()?;
        // Some workers run long, so that memory growth can show.
        let life = match dice.random_range(0..4) {
            0 => (self.time / 8).min(LONG),
            1 => Duration::from_millis(dice.random_range(0..50)),
            _ => Duration::from_millis(dice.random_range(100..2_000)),
        };
        let life = life.min(self.time.saturating_sub(begin.elapsed()).max(SHORT));
        let stops = dice.random_range(0..3) == 0;
        let out = worker.stdout.take().expect("it is piped");
        let (said, is_enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let listener = std::thread::spawn({
            let (said, is_enough) = (Arc::clone(&said), Arc::clone(&is_enough));
            move || listen(out, &said, &is_enough)
        });
        self.sample(&worker, life, report);
        if let Some(status) = worker.try_wait()? {
            report.wrong = Some(format!("a worker ended by itself with {status}"));
        }
        if stops {
            is_enough.store(1, Ordering::Relaxed);
            report.stops += 1;
        } else {
            worker.kill()?;
            report.kills += 1;
        }
        let status = worker.wait()?;
        listener.join().expect("it does not panic");
        if stops && !status.success() {
            let what = format!("a worker ended with {status}");
            report.wrong.get_or_insert(what);
        }
        Ok(said.load(Ordering::Relaxed))
    }

    /// Samples the memory of a worker while it runs.
    fn sample(&self, worker: &Child, life: Duration, report: &mut SoakReport) {
        let (start, mut early, mut late) = (Instant::now(), 0, 0);
        while start.elapsed() < life {
            std::thread::sleep(EVERY.min(life.saturating_sub(start.elapsed())));
            let Some(bytes) = memory_of(&worker.id().to_string(), "VmRSS:") else {
                return;
            };
            if start.elapsed() < life / 4 {
                early = early.max(bytes)
            } else {
                late = late.max(bytes)
            }
        }
        if life >= SHORT && early > 0 && late > 0 {
            report.workers_sampled += 1;
            let [was_early, was_late] = report.memory_bytes;
            if late.saturating_sub(early) >= was_late.saturating_sub(was_early) {
                report.memory_bytes = [early, late];
            }
        }
    }

    /// Compacts the store in a process that is killed after a random time, unless it has ended.
    fn kill_compaction(&self, dice: &mut Pcg64Mcg, report: &mut SoakReport) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["store", "compact"]).arg(self.store());
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut compaction = quiet.stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_micros(dice.random_range(0..300_000)));
        match compaction.try_wait()? {
            Some(_) => report.compactions += 1,
            None => {
                compaction.kill()?;
                compaction.wait()?;
                report.compactions_killed += 1;
            }
        }
        Ok(())
    }
}

/// Stores the last number that a worker reported, until `is_enough` is set.
fn listen(mut from: impl Read, said: &AtomicU64, is_enough: &AtomicU64) {
    let mut word = [0; 8];
    while is_enough.load(Ordering::Relaxed) == 0 && from.read_exact(&mut word).is_ok() {
        said.store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
}

/// Whether a folder has no store of an earlier soak.
pub fn is_fresh(folder: &Path) -> bool {
    !folder.join("soak.flag").exists() && !folder.join("backup.flag").exists()
}

/// Opens the store of a soak and describes it.
///
/// # Errors
/// As [`PageStore::open`].
pub fn look(folder: &Path) -> Result<flagstone_store::StoreInfo, StoreError> {
    let path = folder.join("soak.flag");
    Ok(PageStore::open(&path, &OpenOptions::existing().reading())?.info())
}
