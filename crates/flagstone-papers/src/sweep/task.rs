//! A task of a sweep: a configuration as plain data, with the name of its result.

use crate::reproduce::engine::{AnyRun, Library, RunError, Settings};
use crate::sweep::Kept;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use toml::{Table, Value};

/// A task: the settings of a run, and its place in the sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// The name of its result: a hash of the settings, the run's input, and the program.
    pub hash: String,
    /// Values of the varied settings, by axis name.
    pub at: BTreeMap<String, Value>,
    /// All settings, as in an experiment file.
    pub settings: Table,
    #[serde(skip)]
    run: AnyRun,
}

/// Why something is not a valid task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// The text is not JSON, or not in a task's format.
    #[error("not a task: {0}")]
    Form(#[from] serde_json::Error),
    /// The settings are invalid.
    #[error("invalid settings of the task: {0}")]
    Settings(#[from] RunError),
    /// The hash is from another program, or one that reads another trace.
    #[error(
        "the task is called {named}, but is {own} here: another version of the program or another \
         trace made it; create the list of tasks again"
    )]
    Foreign {
        /// The given name.
        named: String,
        /// The name computed here.
        own: String,
    },
}

/// The stored format of a task.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    hash: String,
    #[serde(default)]
    at: BTreeMap<String, Value>,
    settings: Table,
}

impl Task {
    /// The task with these settings.
    ///
    /// # Errors
    /// A setting is unknown to every engine.
    pub fn new(settings: Table, at: BTreeMap<String, Value>) -> Result<Task, RunError> {
        let run = Settings(settings.clone()).run()?;
        Ok(Task {
            hash: run.hash(),
            at,
            settings,
            run,
        })
    }

    /// Parses a task from JSON, `{"hash": …, "at": {…}, "settings": {…}}`, as written by
    /// [`Task::json`].
    ///
    /// # Errors
    /// The task is invalid, or its hash differs here.
    pub fn from_json(text: &str) -> Result<Task, TaskError> {
        let written: Written = serde_json::from_str(text)?;
        let task = Task::new(written.settings, written.at)?;
        if task.hash == written.hash {
            Ok(task)
        } else {
            Err(TaskError::Foreign {
                named: written.hash,
                own: task.hash,
            })
        }
    }

    /// The task as JSON, in one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a task is plain data")
    }

    /// The run of the task.
    pub fn run(&self) -> &AnyRun {
        &self.run
    }

    /// The name of its result file.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.hash)
    }

    /// Runs the task. `library` keeps what tasks share; use [`Library::new`] with 1 for a single
    /// task.
    ///
    /// # Errors
    /// The input is missing, or the device fails. A protocol's refusal is a result, not an error.
    pub fn result(&self, library: &Library) -> Result<Kept, String> {
        self.run.ready()?;
        Ok(Kept::new(&self.run, self.run.outcome(library)?))
    }

    /// The task's value on an axis, as written in a file; empty for an unknown axis.
    pub fn value(&self, axis: &str) -> String {
        self.at
            .get(axis)
            .map_or(String::new(), crate::reproduce::word)
    }

    /// Describes the task's place in the sweep.
    pub fn place(&self) -> String {
        let each = self.at.iter();
        let each = each.map(|(name, value)| format!("{name} {}", crate::reproduce::word(value)));
        each.collect::<Vec<_>>().join(", ")
    }
}
