//! Runs single tasks of a sweep, for programs that distribute them to workers.

use crate::command::waiting;
use crate::errors::{FailedError, UsageError};
use flagstone_papers::reproduce::engine::Library;
use flagstone_papers::sweep::{Kept, Task, Tasked};
use flagstone_terminal::Inside;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn parse(task: &str) -> PyResult<Task> {
    Task::from_json(task).map_err(|error| UsageError::new_err(error.to_string()))
}

/// Runs a task, given as JSON, and returns the bytes of its result file. Calls `look` periodically;
/// the task ends if it raises.
#[pyfunction]
#[pyo3(signature = (task, look=None))]
pub(crate) fn run_task<'py>(
    py: Python<'py>,
    task: &str,
    look: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let task = parse(task)?;
    let work = move || task.result(&Library::new(1));
    let look = || match &look {
        Some(look) => look.call0(py).map(|_| ()),
        None => Ok(()),
    };
    let kept = waiting(py, &Inside::default(), look, work)?.map_err(FailedError::new_err)?;
    Ok(PyBytes::new(py, &kept.bytes()))
}

/// Checks the bytes of a task's result file and returns the result as JSON: metrics by name, or why
/// the protocol refuses the task.
#[pyfunction]
pub(crate) fn read_result(task: &str, bytes: &[u8]) -> PyResult<String> {
    let task = parse(task)?;
    let kept = Kept::read(bytes, task.run());
    let kept = kept.map_err(|error| FailedError::new_err(error.to_string()))?;
    let result = match kept.result {
        Tasked::Metrics(metrics) => serde_json::json!({ "metrics": metrics }),
        Tasked::Refused(why) => serde_json::json!({ "refused": why }),
    };
    Ok(result.to_string())
}
