//! Store objects owned by Python: a value that can be ended once, only in the process that opened
//! it ([`Until`]), and the write lock ([`Turns`]).

use crate::command::TICK;
use crate::errors::{UsageError, store_error};
use flagstone_store::StoreError;
use pyo3::prelude::*;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A value that exists until [`Until::end`] takes it, and only in the process that created it.
pub(crate) struct Until<T> {
    inner: Mutex<Option<T>>,
    /// The error message for uses after the end.
    over: &'static str,
    /// The process that created the value. A forked child has neither the store's threads nor its
    /// own lock on the file; its writes would corrupt the store.
    process: u32,
}

impl<T: Send> Until<T> {
    pub(crate) fn new(inner: T, over: &'static str) -> Until<T> {
        Until {
            inner: Mutex::new(Some(inner)),
            over,
            process: process::id(),
        }
    }

    /// Calls `work` with the value, without the GIL.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> Result<R, StoreError> + Send,
    ) -> PyResult<R> {
        if !self.is_ours() {
            return Err(self.over());
        }
        match py.detach(|| self.lock().as_mut().map(work)) {
            Some(done) => done.map_err(store_error),
            None => Err(self.over()),
        }
    }

    /// Takes the value. `None` if it was taken before, or if another process created it.
    pub(crate) fn end(&self, py: Python<'_>) -> Option<T> {
        if self.is_ours() {
            py.detach(|| self.lock().take())
        } else {
            None
        }
    }

    /// The error for a use after the end, or in another process.
    pub(crate) fn over(&self) -> PyErr {
        UsageError::new_err(if self.is_ours() {
            self.over
        } else {
            "the store was opened before this process was forked: open it after the fork, in \
                 one process only"
        })
    }

    fn is_ours(&self) -> bool {
        self.process == process::id()
    }
}

impl<T> Until<T> {
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Until<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Only the process that created the value may end it.
            let inner = self.inner.get_mut();
            std::mem::forget(inner.unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// The write lock. Python threads wait for it here and not in the store, so that Ctrl-C can
/// interrupt the wait.
#[derive(Default)]
pub(crate) struct Turns {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

/// The write lock, held until this is dropped.
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    /// Waits for the write lock. Fails if a signal handler raises meanwhile.
    pub(crate) fn take(this: &Arc<Turns>, py: Python<'_>) -> PyResult<Turn> {
        loop {
            let took = py.detach(|| {
                let is_taken = this.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = this
                    .is_free
                    .wait_timeout_while(is_taken, TICK, |is_taken| *is_taken);
                let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
                !std::mem::replace(&mut *is_taken, true)
            });
            if took {
                return Ok(Turn(this.clone()));
            }
            py.check_signals()?;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_taken = &self.0.is_taken;
        *is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.is_free.notify_one();
    }
}
