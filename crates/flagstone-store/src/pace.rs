//! How long the leader of a group commit waits for more members. Used for tables and for
//! connections of SQLite.
//!
//! A leader without company waits briefly if the previous group was larger: threads that were woken
//! together return one after another.

use std::sync::{Condvar, LockResult, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time that a leader waits.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

/// Statistics of the previous group, to predict the next one.
///
/// ```
/// use flagstone_store::Pace;
/// use std::time::Duration;
///
/// let mut pace = Pace::default();
/// assert!(pace.has_all(1));
/// // A group of two was written. A third member came meanwhile.
/// pace.flushed(2, 1, Duration::from_millis(1));
/// assert!(!pace.has_all(2));
/// pace.hurry();
/// assert!(pace.has_all(1));
/// ```
#[derive(Debug, Default)]
pub struct Pace {
    /// Expected members of the next group.
    expected: usize,
    /// Duration of the last flush.
    flush: Duration,
}

impl Pace {
    /// Whether a group of `members` is complete, as far as expected.
    pub fn has_all(&self, members: usize) -> bool {
        members >= self.expected
    }

    /// Lets the next leader proceed without waiting.
    pub fn hurry(&mut self) {
        self.expected = 0;
    }

    /// Records a flush of `members` members that took `flush`; `meanwhile` more have come since.
    pub fn flushed(&mut self, members: usize, meanwhile: usize, flush: Duration) {
        self.expected = members + meanwhile;
        self.flush = flush;
    }

    /// Makes a leader wait for the expected members, at most half as long as the last flush.
    /// `group` returns the expected and the present number of members in a state; `one_has_come` is
    /// signalled when the group is complete.
    ///
    /// # Errors
    /// A thread panicked while it held the lock.
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
