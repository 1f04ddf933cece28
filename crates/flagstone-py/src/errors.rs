//! Exceptions: those of `flagstone.errors`, with the messages that the program prints.

use flagstone_store::{StoreError as Refusal, TreeError};
use flagstone_terminal::Failure;
use pyo3::prelude::*;
use std::any::Any;
use std::io::ErrorKind;

pyo3::import_exception!(flagstone.errors, UsageError);
pyo3::import_exception!(flagstone.errors, FailedError);
pyo3::import_exception!(flagstone.errors, InternalError);
pyo3::import_exception!(flagstone.errors, StoreError);
pyo3::import_exception!(flagstone.errors, InUseError);
pyo3::import_exception!(flagstone.errors, DamagedError);
pyo3::import_exception!(flagstone.errors, FullError);
pyo3::import_exception!(flagstone.errors, WrongKeyError);
pyo3::import_exception!(flagstone.errors, MissingError);
pyo3::import_exception!(flagstone.errors, SnapshotEndedError);

/// The exception for a command that could not do its work.
pub(crate) fn failed(failure: &Failure) -> PyErr {
    let why = failure.why();
    match failure {
        Failure::Usage(_) => UsageError::new_err(why),
        Failure::Failed(_) => FailedError::new_err(why),
    }
}

/// The exception for a store's error.
pub(crate) fn store_error(error: Refusal) -> PyErr {
    let why = error.to_string();
    // The error in the table determines the class; the message names table and key.
    let mut kind = &error;
    while let Refusal::Table { error, .. } = kind {
        kind = error;
    }
    let number = match kind {
        Refusal::Io { error, .. } => error.raw_os_error(),
        _ => None,
    };
    let raised = match kind {
        Refusal::Io { error, .. } if error.kind() == ErrorKind::NotFound => {
            MissingError::new_err(why)
        }
        Refusal::SnapshotEnded => SnapshotEndedError::new_err(why),
        Refusal::Options(_) | Refusal::NoTable(_) | Refusal::ReadOnly | Refusal::Nested => {
            UsageError::new_err(why)
        }
        Refusal::Tree(TreeError::TooLong { .. }) => UsageError::new_err(why),
        Refusal::Key(_) => WrongKeyError::new_err(why),
        Refusal::InUse { .. } => InUseError::new_err(why),
        Refusal::NotAStore(_) => DamagedError::new_err(why),
        damage if damage.is_damage() => DamagedError::new_err(why),
        Refusal::Full(_) | Refusal::Tree(TreeError::Full { .. }) => FullError::new_err(why),
        _ => StoreError::new_err(why),
    };
    if let Some(number) = number {
        // An `OSError` created from a message alone has no `errno`.
        Python::attach(|py| {
            let _ = raised.value(py).setattr("errno", number);
        });
    }
    raised
}

/// The exception for a panic: a bug in flagstone, which must not end the interpreter.
pub(crate) fn defect(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    InternalError::new_err(format!(
        "internal error of flagstone, please report it: {}",
        text.unwrap_or("no message")
    ))
}
