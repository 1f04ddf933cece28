//! Runs: a pure function from settings to named metrics, for any engine.
//!
//! To add an engine, add a file in this folder and a variant of [`AnyRun`].

mod closed;
mod formula;
mod index;
mod named;
mod replay;

pub use closed::ClosedRun;
pub use formula::FormulaRun;
pub use index::IndexRun;
pub use replay::ReplayRun;

use flagstone::nand::Chip;
use flagstone_lab::closed::History;
use flagstone_lab::replay::{Causes, Script};
use flagstone_lab::tpcc::pages::Pages;
use flagstone_lab::trace::input::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use toml::{Table, Value};

/// Settings as given in a file.
#[derive(Debug, Clone)]
pub struct Settings(pub Table);

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyRun {
    /// Transactions replayed on a device in virtual time, [`flagstone_lab::replay`].
    Replay(Box<ReplayRun>),
    /// Clients of a database in virtual time, [`flagstone_lab::closed`].
    Closed(Box<ClosedRun>),
    /// An index under a workload of keys, [`crate::indexing`].
    Index(Box<IndexRun>),
    /// Formulas without measurements.
    Formula(Box<FormulaRun>),
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Metrics by name.
    Done {
        /// Metrics by name.
        metrics: BTreeMap<String, f64>,
        /// Wall-clock time of the run.
        seconds: f64,
    },
    /// The protocol refused, with its message.
    Refused(String),
}

impl Outcome {
    /// A metric, or the sum of several (`a+b`).
    pub fn metric(&self, name: &str) -> Option<f64> {
        let Outcome::Done { metrics, .. } = self else {
            return None;
        };
        let one = |name: &str| match metrics.get(name) {
            // A protocol without this structure uses no memory for it.
            None if name.starts_with("memory_mb.") => Some(0.0),
            value => value.copied(),
        };
        name.split('+').map(one).sum()
    }

    /// The number of events that a metric counts or averages; `None` if it does neither, such as
    /// memory or the time of a recovery.
    pub fn events(&self, name: &str) -> Option<f64> {
        let events = match name {
            "restart_ratio" => self.metric("restart_ratio")? * self.metric("committed")?,
            "log_pages_per_tx" => self.metric("log_pages")?,
            "throughput_tps" | "ended_tps" | "response_ms" | "execution_ms" | "commit_ms" => {
                self.metric("committed")?
            }
            // Each collected block is erased.
            _ if name.starts_with("gc_") => self.metric("erases.gc")?,
            _ => return None,
        };
        Some(events.round())
    }

    /// Wall-clock time of the run.
    pub fn seconds(&self) -> f64 {
        match self {
            Outcome::Done { seconds, .. } => *seconds,
            Outcome::Refused(_) => 0.0,
        }
    }
}

/// Why settings do not define a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RunError {
    /// The key, if a single one is wrong.
    pub key: Option<String>,
    /// The reason.
    pub why: String,
}

impl RunError {
    /// In a parser's message the key is between backquotes.
    fn parsing(why: &str) -> RunError {
        RunError {
            key: why.split('`').nth(1).map(str::to_string),
            why: why.into(),
        }
    }

    fn of(key: &str, why: impl Into<String>) -> RunError {
        RunError {
            key: Some(key.into()),
            why: why.into(),
        }
    }
}

const ENGINES: &str = "`replay`, `closed`, `index` and `formula`";

impl Settings {
    /// The run with these settings.
    ///
    /// # Errors
    /// An unknown engine or key, or an invalid value.
    pub fn run(mut self) -> Result<AnyRun, RunError> {
        let engine = self.0.remove("engine");
        match engine.as_ref().and_then(Value::as_str) {
            Some("replay") => ReplayRun::parse(self.0).map(Box::new).map(AnyRun::Replay),
            Some("closed") => ClosedRun::parse(self.0).map(Box::new).map(AnyRun::Closed),
            Some("index") => IndexRun::parse(self.0).map(Box::new).map(AnyRun::Index),
            // The paper's common settings do not apply to a formula, except the abort ratio.
            Some("formula") => match self.0.remove("formula") {
                Some(Value::Table(mut table)) => {
                    if let Some(ratio) = self.0.remove("abort_ratio") {
                        table.entry("abort_ratio").or_insert(ratio);
                    }
                    FormulaRun::parse(table).map(Box::new).map(AnyRun::Formula)
                }
                _ => Err(RunError::of(
                    "formula",
                    "the engine needs a table `formula`",
                )),
            },
            Some(other) => Err(RunError::of(
                "engine",
                format!("there is no engine `{other}`; there are {ENGINES}"),
            )),
            None => Err(RunError::of(
                "engine",
                format!("setting.engine is missing: {ENGINES}"),
            )),
        }
    }
}

impl AnyRun {
    /// The settings, as in results and cached files.
    pub fn settings(&self) -> serde_json::Value {
        let (engine, settings) = match self {
            AnyRun::Replay(run) => ("replay", serde_json::to_value(run)),
            AnyRun::Closed(run) => ("closed", serde_json::to_value(run)),
            AnyRun::Index(run) => ("index", serde_json::to_value(run)),
            AnyRun::Formula(run) => ("formula", serde_json::to_value(run)),
        };
        let mut settings = settings.expect("settings are plain values");
        settings["engine"] = engine.into();
        settings
    }

    /// The hash of the settings, the input and the program's sources, which names the run.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.settings().to_string());
        if let AnyRun::Replay(run) = self {
            hash.update(run.checksum());
        }
        hash.update(env!("FLAGSTONE_MODEL"));
        hex(&hash.finalize()[..10])
    }

    /// Description in one line, for progress.
    pub fn name(&self) -> String {
        match self {
            AnyRun::Replay(run) => run.name(),
            AnyRun::Closed(run) => run.name(),
            AnyRun::Index(run) => run.name(),
            AnyRun::Formula(run) => run.name(),
        }
    }

    /// A [`Library`] key for the run's starting point. Runs with equal keys are executed in
    /// sequence, so that few starting points must be cached.
    pub fn starts_from(&self) -> String {
        let key = match self {
            AnyRun::Closed(run) => run.start().map(|start| start.key()),
            AnyRun::Replay(run) => run.fill_key(),
            AnyRun::Index(_) | AnyRun::Formula(_) => Ok(String::new()),
        };
        key.unwrap_or_else(|error| error.why)
    }

    /// Approximate costs in the unit of [`effort`](flagstone_lab::effort): of filling the starting
    /// point, which other runs may share, and of the rest.
    pub(crate) fn effort(&self) -> (u64, u64) {
        match self {
            AnyRun::Replay(run) => run.effort(),
            AnyRun::Closed(run) => run.effort(),
            AnyRun::Index(run) => (0, run.effort()),
            AnyRun::Formula(_) => (0, 1),
        }
    }

    /// The input file of the run.
    pub fn input(&self) -> Option<&Path> {
        match self {
            AnyRun::Replay(run) => run.trace(),
            AnyRun::Closed(_) | AnyRun::Index(_) | AnyRun::Formula(_) => None,
        }
    }

    /// Whether transactions are atomic; `false` for controls.
    pub fn is_atomic(&self) -> bool {
        match self {
            AnyRun::Replay(run) => run.is_atomic(),
            AnyRun::Closed(run) => run.is_atomic(),
            AnyRun::Index(_) | AnyRun::Formula(_) => true,
        }
    }

    /// Checks that the input file exists.
    ///
    /// # Errors
    /// It does not. Says where to look.
    pub fn ready(&self) -> Result<(), String> {
        match self.input() {
            Some(path) if !path.exists() => Err(format!(
                "the trace {} does not exist: run this from the root of a clone, or set another \
                 trace in the experiment file (setting.trace)",
                path.display()
            )),
            _ => Ok(()),
        }
    }

    /// Executes the run.
    ///
    /// # Errors
    /// An input is missing, or a device fails.
    pub fn outcome(&self, library: &Library) -> Result<Outcome, String> {
        match self {
            AnyRun::Replay(run) => run.outcome(library),
            AnyRun::Closed(run) => run.outcome(library),
            AnyRun::Index(run) => run.outcome(),
            AnyRun::Formula(run) => Ok(run.outcome()),
        }
    }
}

/// Adds a metric for each structure in memory, in megabytes of `megabyte` bytes, and for each kind
/// and cause of flash operations.
fn each(
    metrics: &mut BTreeMap<String, f64>,
    memory: &BTreeMap<&str, u64>,
    megabyte: f64,
    flash: &BTreeMap<&str, Causes>,
) {
    for (name, bytes) in memory {
        metrics.insert(format!("memory_mb.{name}"), *bytes as f64 / megabyte);
    }
    for (operation, causes) in flash {
        for (cause, count) in causes {
            metrics.insert(format!("{operation}s.{cause}"), *count as f64);
        }
    }
}

/// State shared by runs: each trace is read once, and a device is filled once for consecutive runs
/// that start from it. Filling takes a third of a short closed-loop run, and more than a quarter of
/// a replay.
#[derive(Debug)]
pub struct Library {
    scripts: Mutex<BTreeMap<(PathBuf, u32), Arc<Script>>>,
    /// By the key of their fill, most recently used first.
    devices: Mutex<Vec<(String, Filled)>>,
    /// By their key, most recently used first.
    histories: Mutex<Vec<(String, Lived)>>,
    /// Maximum number of cached devices and histories.
    devices_max: usize,
    /// Keys of starting points that several runs share.
    shared: BTreeSet<String>,
}

/// A filled device, or one being filled.
type Filled = Arc<OnceLock<Result<Chip, String>>>;

/// A history, and the source of transactions after it.
type Lived = Arc<OnceLock<Result<(History, Pages), String>>>;

impl Library {
    /// A library for `jobs` concurrent runs.
    pub fn new(jobs: usize) -> Library {
        Library {
            scripts: Mutex::default(),
            devices: Mutex::default(),
            histories: Mutex::default(),
            // One per job, and one that another run may still need.
            devices_max: jobs + 1,
            shared: BTreeSet::new(),
        }
    }

    /// Sets the starting points that several runs share ([`AnyRun::starts_from`]). Only these are
    /// cached.
    #[must_use]
    pub fn sharing(self, shared: BTreeSet<String>) -> Library {
        Library { shared, ..self }
    }

    fn is_shared(&self, by: &str) -> bool {
        self.shared.contains(by)
    }

    /// A device filled for a closed loop, with its history applied.
    ///
    /// # Errors
    /// As [`Fill::filled`](flagstone_lab::closed::Fill::filled), or the history is not possible.
    fn filled(&self, start: &closed::Start) -> Result<Chip, String> {
        let filled: Filled = self.last_used(&self.devices, start.key());
        let filled = filled.get_or_init(|| {
            let lived = start.life.as_ref().map(|life| self.lived(life));
            let lived = lived
                .as_ref()
                .and_then(|lived| lived.get())
                .map(Result::as_ref);
            let lived = lived.transpose().map_err(String::clone)?;
            let none = History::default();
            let history = lived.map_or(&none, |(history, _)| history);
            start.fill.filled(history).map_err(|e| e.to_string())
        });
        filled.clone()
    }

    /// A history, and the source of transactions after it.
    fn lived(&self, life: &closed::Life) -> Lived {
        let lived: Lived = self.last_used(&self.histories, format!("{life:?}"));
        lived.get_or_init(|| {
            let mut source = Pages::new(&life.options).map_err(|error| error.to_string())?;
            let history =
                History::of(&mut source, &life.past).map_err(|error| error.to_string())?;
            Ok((history, source))
        });
        lived
    }

    /// The cached or new entry for a key; few entries are kept.
    fn last_used<T: Clone + Default>(&self, all: &Mutex<Vec<(String, T)>>, by: String) -> T {
        let mut all = all.lock().expect("no thread has panicked with it");
        let known = all.iter().position(|(known, _)| *known == by);
        let entry = match known {
            Some(i) => all.remove(i),
            None => (by, T::default()),
        };
        let last = entry.1.clone();
        all.insert(0, entry);
        all.truncate(self.devices_max);
        last
    }

    /// A trace as a script for a device with this page size.
    ///
    /// # Errors
    /// The file cannot be read.
    fn script(&self, path: &str, page_bytes: u32) -> Result<Arc<Script>, String> {
        let mut scripts = self.scripts.lock().expect("no thread has panicked with it");
        let key = (PathBuf::from(path), page_bytes);
        if let Some(script) = scripts.get(&key) {
            return Ok(script.clone());
        }
        let trace = flagstone_lab::trace::file::read(&key.0).map_err(|error| error.to_string())?;
        let script = Script::from_trace(&trace, page_bytes).map_err(|error| error.to_string())?;
        let script = Arc::new(script);
        scripts.insert(key, script.clone());
        Ok(script)
    }
}
