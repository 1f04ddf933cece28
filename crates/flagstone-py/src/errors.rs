//! Exceptions: those of `flagstone.errors`, with the messages that the program prints.

use flagstone_terminal::Failure;
use pyo3::prelude::*;
use std::any::Any;

pyo3::import_exception!(flagstone.errors, UsageError);
pyo3::import_exception!(flagstone.errors, FailedError);
pyo3::import_exception!(flagstone.errors, InternalError);

/// The exception for a command that could not do what was asked.
pub(crate) fn failed(failure: &Failure) -> PyErr {
    let why = failure.why();
    match failure {
        Failure::Usage(_) => UsageError::new_err(why),
        Failure::Failed(_) => FailedError::new_err(why),
    }
}

/// The exception for a panic: a defect of ours, which must not end the interpreter.
pub(crate) fn defect(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    InternalError::new_err(format!(
        "a defect of flagstone, please report it: {}",
        text.unwrap_or("no message")
    ))
}
