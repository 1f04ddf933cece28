//! Connections that wait for the write lock, in first-come-first-served order.
//!
//! SQLite sleeps between two attempts to lock, for a millisecond at first and then longer. A commit
//! is shorter. So a connection that was refused because another one is writing sleeps until that
//! one is done ([`sleep`]). The lock is then promised to it for a moment. The order matters, since
//! SQLite counts attempts, not time: a connection that is refused repeatedly would give up long
//! before its timeout.

use super::shared::Shared;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long the write lock is promised to a woken connection. Also how long a connection that has
/// slept its full time keeps its place in the queue until it retries.
const PROMISE: Duration = Duration::from_millis(10);

/// Maximum time between the refusal of a connection and the sleep of its thread.
const FRESH: Duration = Duration::from_millis(1);

/// State of a waiting connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Sleeping.
    Asleep,
    /// Has slept its full time and may retry until this instant; after that, it counts as having
    /// given up.
    Awake(Instant),
    /// Woken. Gets the lock if it retries before this instant.
    Promised(Instant),
}

/// Connections that wait for the write lock, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<(u64, State)>);

impl Turns {
    /// Whether no connection waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the free write lock is promised to another connection.
    pub(super) fn is_promised(&mut self, who: u64, now: Instant) -> bool {
        self.forget_late(now);
        self.promised().is_some_and(|(promised, _)| promised != who)
    }

    /// Removes a connection that has the write lock or was closed.
    pub(super) fn leave(&mut self, who: u64) {
        self.0.retain(|&(waiting, _)| waiting != who);
    }

    /// Called when the write lock is free. Promises it to the first sleeping connection, unless it
    /// is promised already.
    pub(super) fn pass(&mut self, now: Instant) {
        self.forget_late(now);
        if self.promised().is_none() {
            let asleep = |waiting: &&mut (u64, State)| waiting.1 == State::Asleep;
            if let Some(first) = self.0.iter_mut().find(asleep) {
                first.1 = State::Promised(now + PROMISE);
            }
        }
    }

    /// Sets the state of a connection. A new connection goes to the end of the queue.
    fn put(&mut self, who: u64, state: State) {
        match self.0.iter_mut().find(|(waiting, _)| *waiting == who) {
            Some(waiting) => waiting.1 = state,
            None => self.0.push_back((who, state)),
        }
    }

    /// The connection with the promise, and its end.
    fn promised(&self) -> Option<(u64, Instant)> {
        self.0.iter().find_map(|&(who, state)| match state {
            State::Promised(until) => Some((who, until)),
            State::Asleep | State::Awake(_) => None,
        })
    }

    /// Removes connections that did not retry in time.
    fn forget_late(&mut self, now: Instant) {
        self.0.retain(|&(_, state)| match state {
            State::Promised(until) | State::Awake(until) => now <= until,
            State::Asleep => true,
        });
    }
}

thread_local! {
    /// The connection that was refused last on this thread because another one is writing.
    static REFUSED: RefCell<Option<(Weak<Shared>, u64, Instant)>> = const { RefCell::new(None) };
}

/// Records that a connection was refused the write lock.
pub(super) fn refused(shared: &Arc<Shared>, who: u64) {
    let refused = (Arc::downgrade(shared), who, Instant::now());
    REFUSED.with(|last| *last.borrow_mut() = Some(refused));
}

/// Sleeps like SQLite between two attempts to lock, at most `most`; less if the connection that was
/// refused on this thread is promised the write lock. Returns `None`, without sleeping, if there is
/// no such connection.
pub(crate) fn sleep(most: Duration) -> Option<Duration> {
    let (shared, who, at) = REFUSED.with(|last| last.borrow_mut().take())?;
    let shared = shared.upgrade().filter(|_| at.elapsed() < FRESH)?;
    let (began, mut inner) = (Instant::now(), shared.lock().ok()?);
    inner.turns.put(who, State::Asleep);
    loop {
        let now = Instant::now();
        if inner.locks.writer().is_none() {
            inner.turns.pass(now);
        }
        let promised = inner.turns.promised();
        if promised.is_some_and(|(promised, _)| promised == who) {
            return Some(began.elapsed());
        }
        let left = most.saturating_sub(began.elapsed());
        if left.is_zero() {
            inner.turns.put(who, State::Awake(now + PROMISE));
            return Some(began.elapsed());
        }
        // Or until the promise to another connection has expired.
        let due = promised.map_or(left, |(_, until)| {
            until.saturating_duration_since(now) + Duration::from_micros(50)
        });
        let waited = shared.turn_is_free.wait_timeout(inner, left.min(due));
        inner = waited.ok()?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_promised_to_who_waits_longest_and_not_for_long() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        assert!(!turns.is_promised(1, now));
        for who in [1, 2, 1] {
            turns.put(who, State::Asleep);
        }
        assert!(!turns.is_promised(3, now), "the turn was not free yet");
        turns.pass(now);
        assert!(turns.is_promised(2, now) && turns.is_promised(3, now));
        assert!(!turns.is_promised(1, now));
        // It has it, and gives it up.
        turns.leave(1);
        assert!(!turns.is_promised(3, now), "nobody was woken");
        turns.pass(now);
        assert!(turns.is_promised(3, now) && !turns.is_promised(2, now));
        // It does not come.
        let later = now + PROMISE + Duration::from_millis(1);
        assert!(!turns.is_promised(3, later));
        assert!(turns.is_empty());
    }

    #[test]
    fn who_has_slept_long_enough_keeps_its_place_and_is_promised_nothing() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        turns.put(1, State::Awake(now + PROMISE));
        turns.pass(now);
        assert!(!turns.is_promised(2, now), "it may have given up");
        turns.put(2, State::Asleep);
        turns.put(1, State::Asleep);
        turns.pass(now);
        assert!(turns.is_promised(2, now), "it came back to its place");
        turns.put(1, State::Awake(now + PROMISE));
        turns.pass(now + PROMISE * 9);
        assert!(turns.is_promised(1, now + PROMISE * 9), "it did not");
    }

    #[test]
    fn who_was_not_refused_sleeps_as_ever() {
        assert_eq!(sleep(Duration::from_secs(9)), None);
    }
}
