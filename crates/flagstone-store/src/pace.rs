//! How long the leader of a group commit waits for others: tables have groups, and so have the
//! connections of SQLite.
//!
//! A leader that has come alone waits a moment if there were more in the group before: threads that
//! were woken together come back one after the other.

use std::sync::{Condvar, LockResult, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time that a leader waits for others.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

/// What the last group says of the next one.
#[derive(Debug, Default)]
pub struct Pace {
    /// Members that the next group is expected to have.
    expected: usize,
    /// How long the last flush took.
    flush: Duration,
}

impl Pace {
    /// Whether a group of so many members has all that are expected.
    pub fn has_all(&self, members: usize) -> bool {
        members >= self.expected
    }

    /// The next leader waits for nobody.
    pub fn hurry(&mut self) {
        self.expected = 0;
    }

    /// A group of so many members was flushed, in this time; so many have come meanwhile.
    pub fn flushed(&mut self, members: usize, meanwhile: usize, flush: Duration) {
        self.expected = members + meanwhile;
        self.flush = flush;
    }

    /// Has a leader wait until all are there that are expected, but not for long: half of the last
    /// flush. `group` says of a state what is expected, and how many are there; `one_has_come`
    /// hears when all of them are.
    ///
    /// # Errors
    /// A thread that had the lock has panicked.
    pub fn gather<'a, T>(
        mut state: MutexGuard<'a, T>,
        one_has_come: &Condvar,
        group: impl Fn(&T) -> (&Pace, usize),
    ) -> LockResult<MutexGuard<'a, T>> {
        let until = Instant::now() + (group(&state).0.flush / 2).min(PATIENCE_MAX);
        loop {
            let (pace, members) = group(&state);
            let left = until.saturating_duration_since(Instant::now());
            if pace.has_all(members) || left.is_zero() {
                return Ok(state);
            }
            let waited = one_has_come.wait_timeout(state, left);
            state = waited
                .map_err(|held| PoisonError::new(held.into_inner().0))?
                .0;
        }
    }
}
