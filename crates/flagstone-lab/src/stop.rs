//! Long work that can be cancelled by a program that continues afterwards.
//!
//! The lab's loops call [`point`] from time to time. If their work was asked to stop, the call does
//! not return: it unwinds to [`Stop::run`], without a panic message. So no signature between a loop
//! and the caller mentions stopping, and no record of an incomplete run is created. Threads that
//! share the work use [`Stop::within`]. For work that cannot be stopped the cost is reading a
//! thread-local variable.
//!
//! ```
//! use flagstone_lab::stop::{Stop, Stopped, point};
//!
//! let stop = Stop::default();
//! assert_eq!(stop.run(|| { point(); 7 }), Ok(7));
//! stop.ask();
//! assert_eq!(stop.run(|| { point(); 7 }), Err(Stopped));
//! ```

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests work to stop. Clones refer to the same work.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

/// The work was stopped before completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped before it was done")]
pub struct Stopped;

thread_local! {
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

impl Stop {
    /// Asks the work to stop at its next [`point`].
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs work that can be stopped.
    ///
    /// # Errors
    /// [`Stopped`], if it was stopped.
    ///
    /// # Panics
    /// If the work panics.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Stopped> {
        let done = catch_unwind(AssertUnwindSafe(|| self.within(work)));
        done.map_err(|panic| match panic.downcast::<Stopped>() {
            Ok(stopped) => *stopped,
            Err(panic) => resume_unwind(panic),
        })
    }

    /// Runs a part of the work on this thread, unless a stop was requested. The thread with the
    /// whole work calls [`Stop::run`].
    pub fn within<T>(&self, part: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self.clone()));
        let _after = Restore(before);
        // Do not start further parts after a stop request.
        point();
        part()
    }

    /// The stop of this thread's work. If there is none, one that is never requested.
    pub fn current() -> Stop {
        CURRENT.with_borrow(|current| current.clone().unwrap_or_default())
    }
}

/// Restores the previous stop, also during unwinding.
struct Restore(Option<Stop>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// A point at which this thread's work can stop. Inside [`Stop::run`] it may not return.
pub fn point() {
    let asked = CURRENT.with_borrow(|current| current.as_ref().is_some_and(Stop::is_asked));
    if asked {
        // Unwinds without a panic message: stopping is not an error.
        resume_unwind(Box::new(Stopped));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn parts_on_other_threads_stop_as_well_and_work_outside_does_not() {
        let stop = Stop::default();
        stop.ask();
        point();
        let begun = AtomicU64::new(0);
        let parts = || {
            let stop = Stop::current();
            let part = || begun.fetch_add(1, Ordering::Relaxed);
            (0..8).into_par_iter().for_each(|_| _ = stop.within(part));
        };
        parts();
        assert_eq!(begun.swap(0, Ordering::Relaxed), 8);
        assert_eq!(stop.run(parts), Err(Stopped));
        assert_eq!(begun.load(Ordering::Relaxed), 0);
        point();
    }

    #[test]
    #[should_panic(expected = "a defect")]
    fn a_panic_goes_on() {
        let _ = Stop::default().run(|| panic!("a defect"));
    }
}
