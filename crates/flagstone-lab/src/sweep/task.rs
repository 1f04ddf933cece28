//! One task of a sweep: a configuration as plain data, with the name of its result.

use crate::reproduce::engine::{Library, Run, RunError, Settings};
use crate::sweep::Kept;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use toml::{Table, Value};

/// One task: the settings of a run, and where it is in its sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    /// The name of its result: a hash of the settings, of what the run reads, and of the program.
    pub hash: String,
    /// What the sweep varies, by the names of its axes.
    pub at: BTreeMap<String, Value>,
    /// All settings, as an experiment file would have them.
    pub settings: Table,
    #[serde(skip)]
    run: Run,
}

/// Why something is no task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// It is no JSON, or not that of a task.
    #[error("this is no task: {0}")]
    Form(#[from] serde_json::Error),
    /// Its settings cannot be run.
    #[error("the settings of the task cannot be run: {0}")]
    Settings(#[from] RunError),
    /// Another program, or one that reads another trace, has named it.
    #[error(
        "the task is called {named} and would be {own} here: another version of the program made \
         it, or another trace; make the list of tasks anew"
    )]
    Foreign {
        /// How it is called.
        named: String,
        /// How it would be called.
        own: String,
    },
}

/// A task as it is written down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    hash: String,
    #[serde(default)]
    at: BTreeMap<String, Value>,
    settings: Table,
}

impl Task {
    /// The task of these settings.
    ///
    /// # Errors
    /// A setting that no engine knows.
    pub fn new(settings: Table, at: BTreeMap<String, Value>) -> Result<Task, RunError> {
        let run = Settings(settings.clone()).run()?;
        Ok(Task {
            hash: run.hash(),
            at,
            settings,
            run,
        })
    }

    /// A task from its JSON, `{"hash": …, "at": {…}, "settings": {…}}`, as [`Task::json`] gives it.
    ///
    /// # Errors
    /// What is wrong with it, and that its hash is not the one that it has here.
    pub fn from_json(text: &str) -> Result<Task, TaskError> {
        let written: Written = serde_json::from_str(text)?;
        let task = Task::new(written.settings, written.at)?;
        match task.hash == written.hash {
            true => Ok(task),
            false => Err(TaskError::Foreign {
                named: written.hash,
                own: task.hash,
            }),
        }
    }

    /// The task as JSON, in one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a task is plain data")
    }

    /// The run that it is.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The name of its result file.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.hash)
    }

    /// Runs it. `library` keeps what tasks share; [`Library::new`] with 1 is one for a task alone.
    ///
    /// # Errors
    /// An input that is missing, a device that stops. That a protocol refuses what is asked is a
    /// result.
    pub fn result(&self, library: &Library) -> Result<Kept, String> {
        self.run.ready()?;
        Ok(Kept::new(&self.run, self.run.outcome(library)?))
    }

    /// The value that an axis has there, as a file writes it; nothing for an axis that there is
    /// not.
    pub fn value(&self, axis: &str) -> String {
        self.at
            .get(axis)
            .map_or(String::new(), crate::reproduce::word)
    }

    /// Where it is in its sweep, in words.
    pub fn place(&self) -> String {
        let each = self.at.iter();
        let each = each.map(|(name, value)| format!("{name} {}", crate::reproduce::word(value)));
        each.collect::<Vec<_>>().join(", ")
    }
}
