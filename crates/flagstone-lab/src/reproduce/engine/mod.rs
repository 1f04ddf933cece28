//! Runs: a pure function from settings to named metrics, whatever engine makes them.
//!
//! A new engine is a file beside this one and a variant of [`Run`].

mod closed;
mod formula;
mod index;
mod named;
mod replay;

pub use closed::ClosedRun;
pub use formula::FormulaRun;
pub use index::IndexRun;
pub use replay::ReplayRun;

use crate::closed::{Closed, History, Past};
use crate::replay::{Causes, Script};
use crate::tpcc::pages::{self, Pages};
use crate::trace::input::hex;
use flagstone::nand::Chip;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use toml::{Table, Value};

/// Settings as a file gives them.
#[derive(Debug, Clone)]
pub struct Settings(pub Table);

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub enum Run {
    /// Transactions played on a device in virtual time, [`crate::replay`].
    Replay(Box<ReplayRun>),
    /// Clients over a database in virtual time, [`crate::closed`].
    Closed(Box<ClosedRun>),
    /// An index under a workload of keys, [`crate::indexing`].
    Index(Box<IndexRun>),
    /// Formulas.
    Formula(Box<FormulaRun>),
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Metrics by name.
    Done {
        /// Metrics by name.
        metrics: BTreeMap<String, f64>,
        /// Wall-clock time that it took.
        seconds: f64,
    },
    /// The protocol does not do what was asked, and says so.
    Refused(String),
}

impl Outcome {
    /// One of its metrics, or the sum of several (`a+b`).
    pub fn metric(&self, name: &str) -> Option<f64> {
        let Outcome::Done { metrics, .. } = self else {
            return None;
        };
        let one = |name: &str| match metrics.get(name) {
            // A protocol without such a structure spends nothing on it.
            None if name.starts_with("memory_mb.") => Some(0.0),
            value => value.copied(),
        };
        name.split('+').map(one).sum()
    }

    /// Wall-clock time that it took.
    pub fn seconds(&self) -> f64 {
        match self {
            Outcome::Done { seconds, .. } => *seconds,
            Outcome::Refused(_) => 0.0,
        }
    }
}

/// A run that cannot be made as it is set, and the key that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RunError {
    /// The key, if it is one.
    pub key: Option<String>,
    /// Why.
    pub why: String,
}

impl RunError {
    /// The message of a parser puts the key that it is about between backquotes.
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
    /// The run that they describe.
    ///
    /// # Errors
    /// An engine or a key that does not exist, a value that is not possible.
    pub fn run(mut self) -> Result<Run, RunError> {
        let engine = self.0.remove("engine");
        match engine.as_ref().and_then(Value::as_str) {
            Some("replay") => ReplayRun::parse(self.0).map(Box::new).map(Run::Replay),
            Some("closed") => ClosedRun::parse(self.0).map(Box::new).map(Run::Closed),
            Some("index") => IndexRun::parse(self.0).map(Box::new).map(Run::Index),
            // What the paper's runs are set to means nothing to a formula.
            Some("formula") => match self.0.remove("formula") {
                Some(Value::Table(table)) => {
                    FormulaRun::parse(table).map(Box::new).map(Run::Formula)
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

impl Run {
    /// The settings, as results and cached files have them.
    pub fn settings(&self) -> serde_json::Value {
        let (engine, settings) = match self {
            Run::Replay(run) => ("replay", serde_json::to_value(run)),
            Run::Closed(run) => ("closed", serde_json::to_value(run)),
            Run::Index(run) => ("index", serde_json::to_value(run)),
            Run::Formula(run) => ("formula", serde_json::to_value(run)),
        };
        let mut settings = settings.expect("settings are plain values");
        settings["engine"] = engine.into();
        settings
    }

    /// The name of the run: a hash of its settings, its input and the program's sources.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.settings().to_string());
        if let Run::Replay(run) = self {
            hash.update(run.checksum());
        }
        hash.update(env!("FLAGSTONE_MODEL"));
        hex(&hash.finalize()[..10])
    }

    /// In one line, for progress.
    pub fn name(&self) -> String {
        match self {
            Run::Replay(run) => run.name(),
            Run::Closed(run) => run.name(),
            Run::Index(run) => run.name(),
            Run::Formula(run) => run.name(),
        }
    }

    /// What of a [`Library`] it starts from: runs with the same word are made one after the other,
    /// so that few things have to be kept.
    pub fn starts_from(&self) -> String {
        match self {
            Run::Closed(run) => run.filled_by(),
            Run::Replay(run) => run.filled_by(),
            Run::Index(_) | Run::Formula(_) => String::new(),
        }
    }

    /// What it takes, about, in the unit of [`effort`](crate::effort): to fill what it starts from,
    /// which other runs may start from as well, and the rest.
    pub(crate) fn effort(&self) -> (u64, u64) {
        match self {
            Run::Replay(run) => run.effort(),
            Run::Closed(run) => run.effort(),
            Run::Index(run) => (0, run.effort()),
            Run::Formula(_) => (0, 1),
        }
    }

    /// The file that the run reads.
    pub fn input(&self) -> Option<&Path> {
        match self {
            Run::Replay(run) => run.trace(),
            Run::Closed(_) | Run::Index(_) | Run::Formula(_) => None,
        }
    }

    /// Whether it keeps transactions together at all; a control does not.
    pub fn is_atomic(&self) -> bool {
        match self {
            Run::Replay(run) => run.is_atomic(),
            Run::Closed(run) => run.is_atomic(),
            Run::Index(_) | Run::Formula(_) => true,
        }
    }

    /// Whether the file that the run reads is there.
    ///
    /// # Errors
    /// It is not: where to look.
    pub fn ready(&self) -> Result<(), String> {
        match self.input() {
            Some(path) if !path.exists() => Err(format!(
                "the trace {} is not here: run this from the root of a clone, or name another in \
                 the experiment file (setting.trace)",
                path.display()
            )),
            _ => Ok(()),
        }
    }

    /// Makes the run.
    ///
    /// # Errors
    /// An input that is missing, a device that stops.
    pub fn outcome(&self, library: &Library) -> Result<Outcome, String> {
        match self {
            Run::Replay(run) => run.outcome(library),
            Run::Closed(run) => run.outcome(library),
            Run::Index(run) => run.outcome(),
            Run::Formula(run) => Ok(run.outcome()),
        }
    }
}

/// Adds a metric for each structure in memory, in megabytes of so many bytes, and for each kind and
/// cause of flash operations.
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

/// What runs share: each trace is read once, and a device is filled once for those that follow each
/// other and start from it. Filling takes a third of a short run of the closed loop, and more than
/// a quarter of a replay.
#[derive(Debug)]
pub struct Library {
    scripts: Mutex<BTreeMap<(PathBuf, u32), Arc<Script>>>,
    /// By what decides how they are filled, the last used first.
    devices: Mutex<Vec<(String, Filled)>>,
    /// By what decides them, the last used first.
    histories: Mutex<Vec<(String, Lived)>>,
    /// Devices and histories that are kept.
    devices_max: usize,
    /// What several runs start from.
    shared: BTreeSet<String>,
}

/// A device that is being filled, or was.
type Filled = Arc<OnceLock<Result<Chip, String>>>;

/// What happened to devices before runs, and the source of transactions as it was left.
type Lived = Arc<OnceLock<Result<(History, Pages), String>>>;

impl Library {
    /// For runs of which so many are made at a time.
    pub fn new(jobs: usize) -> Library {
        Library {
            scripts: Mutex::default(),
            devices: Mutex::default(),
            histories: Mutex::default(),
            // One for each, and one that is left for another.
            devices_max: jobs + 1,
            shared: BTreeSet::new(),
        }
    }

    /// Names what several runs start from ([`Run::starts_from`]): only that is worth a copy.
    #[must_use]
    pub fn sharing(self, shared: BTreeSet<String>) -> Library {
        Library { shared, ..self }
    }

    fn is_shared(&self, by: &str) -> bool {
        self.shared.contains(by)
    }

    /// A device that is filled as a closed loop wants it, and to which a history has happened.
    ///
    /// # Errors
    /// As [`Closed::filled`].
    fn filled(&self, by: String, closed: &Closed, history: &History) -> Result<Chip, String> {
        let filled: Filled = self.last_used(&self.devices, by);
        let filled = filled.get_or_init(|| closed.filled(history).map_err(|e| e.to_string()));
        filled.clone()
    }

    /// A history, and the source of transactions as it is after it.
    fn lived(&self, options: &pages::PagesOptions, past: &Past) -> Lived {
        let lived: Lived = self.last_used(&self.histories, format!("{options:?} {past:?}"));
        lived.get_or_init(|| {
            let mut source = Pages::new(options).map_err(|error| error.to_string())?;
            let history = History::of(&mut source, past).map_err(|error| error.to_string())?;
            Ok((history, source))
        });
        lived
    }

    /// What is known by a word, or what is to become so; few are kept.
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

    /// A trace as a script for a device with such pages.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn script(&self, path: &str, page_bytes: u32) -> Result<Arc<Script>, String> {
        let mut scripts = self.scripts.lock().expect("no thread has panicked with it");
        let key = (PathBuf::from(path), page_bytes);
        if let Some(script) = scripts.get(&key) {
            return Ok(script.clone());
        }
        let trace = crate::trace::file::read(&key.0).map_err(|error| error.to_string())?;
        let script = Script::from_trace(&trace, page_bytes).map_err(|error| error.to_string())?;
        let script = Arc::new(script);
        scripts.insert(key, script.clone());
        Ok(script)
    }
}
