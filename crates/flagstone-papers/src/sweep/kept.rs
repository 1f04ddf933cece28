//! Result files of tasks: written atomically, found by later sweeps, and refused if they are torn,
//! changed or belong to another task.

use super::{Sweep, Task};
use crate::reproduce::engine::{AnyRun, Outcome};
use crate::reproduce::execute::{Keeping, RunEvent, all};
use flagstone_lab::output::{Output, make_folder};
use flagstone_lab::trace::input::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tasked {
    /// Metrics by name.
    Metrics(BTreeMap<String, f64>),
    /// The protocol refused, with its message.
    Refused(String),
}

/// A stored result: one JSON object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The task's hash.
    pub task: String,
    /// Version of the program.
    pub version: String,
    /// All settings, including defaults.
    pub settings: serde_json::Value,
    /// The result.
    pub result: Tasked,
    /// Checksum of this file with this field empty.
    pub sha256: String,
}

/// Why a result file is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeptError {
    /// The file is not a complete result.
    #[error("it is torn, or no result of a sweep: {0}")]
    Torn(String),
    /// The file is a result, but was modified.
    #[error("it was changed after it was written: its checksum is wrong")]
    Changed,
    /// The file belongs to another task.
    #[error("it is the result of another task, {0}")]
    Foreign(String),
}

impl Kept {
    pub(super) fn new(run: &AnyRun, outcome: Outcome) -> Kept {
        let mut kept = Kept {
            task: run.hash(),
            version: env!("CARGO_PKG_VERSION").into(),
            settings: run.settings(),
            result: match outcome {
                Outcome::Done { mut metrics, .. } => {
                    // JSON has no other numbers: a file with one could not be read again.
                    metrics.retain(|_, value| value.is_finite());
                    Tasked::Metrics(metrics)
                }
                Outcome::Refused(why) => Tasked::Refused(why),
            },
            sha256: String::new(),
        };
        kept.sha256 = kept.checksum();
        kept
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("a result is plain JSON") + "\n"
    }

    fn checksum(&self) -> String {
        let blank = Kept {
            sha256: String::new(),
            ..self.clone()
        };
        hex(&Sha256::digest(blank.text()))
    }

    /// The contents of the file.
    pub fn bytes(&self) -> Vec<u8> {
        self.text().into_bytes()
    }

    /// Parses the result file of a run.
    ///
    /// # Errors
    /// The file is not the one that was written for this run.
    pub fn read(bytes: &[u8], run: &AnyRun) -> Result<Kept, KeptError> {
        let kept: Result<Kept, _> = serde_json::from_slice(bytes);
        let kept = kept.map_err(|error| KeptError::Torn(error.to_string()))?;
        if kept.sha256 != kept.checksum() || kept.bytes() != bytes {
            return Err(KeptError::Changed);
        }
        if kept.task == run.hash() && kept.settings == run.settings() {
            Ok(kept)
        } else {
            Err(KeptError::Foreign(kept.task))
        }
    }

    /// A metric, or the sum of several (`a+b`).
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.outcome().metric(name)
    }

    fn outcome(&self) -> Outcome {
        match self.result.clone() {
            Tasked::Metrics(metrics) => Outcome::Done {
                metrics,
                seconds: 0.0,
            },
            Tasked::Refused(why) => Outcome::Refused(why),
        }
    }
}

/// A folder of results.
struct Folder(PathBuf);

impl Folder {
    fn file(&self, run: &AnyRun) -> PathBuf {
        self.0.join(format!("{}.json", run.hash()))
    }
}

impl Keeping for Folder {
    /// The result of a run, if its file exists. A file that is damaged or of another run is an
    /// error.
    fn find(&self, run: &AnyRun) -> Result<Option<Outcome>, String> {
        let path = self.file(run);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        let kept = Kept::read(&bytes, run).map_err(|error| {
            format!(
                "{}: {error}; remove it to have the task run again",
                path.display()
            )
        })?;
        Ok(Some(kept.outcome()))
    }

    fn keep(&self, run: &AnyRun, outcome: &Outcome) -> Result<(), String> {
        let output = Output::new(&self.file(run), &[]);
        let kept = Kept::new(run, outcome.clone());
        let written = output.and_then(|output| output.write(&kept.bytes()));
        written.map_err(|error| {
            format!("{error}; results are kept there: use a writable folder with free space")
        })
    }
}

/// Runs all tasks of a sweep without a result in `folder`. Returns the results in sweep order.
/// `watch` receives each event.
///
/// # Errors
/// An invalid result file, or the first run that failed. Earlier results are kept.
pub fn run(
    sweep: &Sweep,
    threads: usize,
    folder: &Path,
    watch: &(dyn Fn(&AnyRun, RunEvent) + Sync),
) -> Result<Vec<Kept>, String> {
    let runs: BTreeMap<String, AnyRun> = sweep
        .tasks
        .iter()
        .map(|task| (task.hash.clone(), task.run().clone()))
        .collect();
    runs.values().try_for_each(AnyRun::ready)?;
    make_folder(folder).map_err(|error| format!("{error}; name another folder"))?;
    let keeping = Folder(folder.into());
    // Report unusable files before spending hours.
    for run in runs.values() {
        keeping.find(run)?;
    }
    let outcomes = all(&runs, threads, &keeping, watch)?;
    let of = |task: &Task| Kept::new(task.run(), outcomes[&task.hash].clone());
    Ok(sweep.tasks.iter().map(of).collect())
}
