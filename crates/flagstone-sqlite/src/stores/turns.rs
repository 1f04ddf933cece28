//! Connections that wait for the turn to write, first come first served.
//!
//! SQLite sleeps between two attempts to lock, a millisecond at first and longer each time. A
//! commit is shorter. So a connection that was refused because another one writes sleeps until that
//! one is done ([`sleep`]). It is then promised the turn for a moment, in which no other connection
//! gets it. The order has to be kept, since SQLite counts attempts and not the time that it slept:
//! a connection that was refused again and again would give up long before its time.

use super::shared::Shared;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a turn is promised to the connection that was woken for it. Also how long a connection
/// that has slept long enough keeps its place until it comes back.
const PROMISE: Duration = Duration::from_millis(10);

/// How long ago a connection was refused at most when its thread sleeps for it.
const FRESH: Duration = Duration::from_millis(1);

/// What a connection that waits does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its thread sleeps.
    Asleep,
    /// Its thread has slept long enough, and may try again until then. Or it has given up.
    Awake(Instant),
    /// It is woken, and has the turn if it comes until then.
    Promised(Instant),
}

/// Connections that wait for the turn to write, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<(u64, State)>);

impl Turns {
    /// Whether no connection waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a turn that is free is promised to another connection.
    pub(super) fn is_promised(&mut self, who: u64, now: Instant) -> bool {
        self.forget_late(now);
        self.promised().is_some_and(|(promised, _)| promised != who)
    }

    /// A connection has the turn, or is gone.
    pub(super) fn leave(&mut self, who: u64) {
        self.0.retain(|&(waiting, _)| waiting != who);
    }

    /// The turn is free: it is promised to the first connection that sleeps, if it is not promised
    /// already.
    pub(super) fn pass(&mut self, now: Instant) {
        self.forget_late(now);
        if self.promised().is_none() {
            let asleep = |waiting: &&mut (u64, State)| waiting.1 == State::Asleep;
            if let Some(first) = self.0.iter_mut().find(asleep) {
                first.1 = State::Promised(now + PROMISE);
            }
        }
    }

    /// A connection is in a state, in its place, or in the last one if it did not wait before.
    fn put(&mut self, who: u64, state: State) {
        match self.0.iter_mut().find(|(waiting, _)| *waiting == who) {
            Some(waiting) => waiting.1 = state,
            None => self.0.push_back((who, state)),
        }
    }

    /// The connection that has the promise, and until when.
    fn promised(&self) -> Option<(u64, Instant)> {
        self.0.iter().find_map(|&(who, state)| match state {
            State::Promised(until) => Some((who, until)),
            State::Asleep | State::Awake(_) => None,
        })
    }

    /// Passes over connections that have not come in time.
    fn forget_late(&mut self, now: Instant) {
        self.0.retain(|&(_, state)| match state {
            State::Promised(until) | State::Awake(until) => now <= until,
            State::Asleep => true,
        });
    }
}

thread_local! {
    /// The connection that was refused last in this thread, because another one writes.
    static REFUSED: RefCell<Option<(Weak<Shared>, u64, Instant)>> = const { RefCell::new(None) };
}

/// A connection was refused the turn to write.
pub(super) fn refused(shared: &Arc<Shared>, who: u64) {
    let refused = (Arc::downgrade(shared), who, Instant::now());
    REFUSED.with(|last| *last.borrow_mut() = Some(refused));
}

/// Sleeps as SQLite does between two attempts to lock, at most so long; shorter if the connection
/// that this thread was refused for gets the turn to write. Returns nothing where there is no such
/// connection; it has not slept then.
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
        // Or until the connection that was promised the turn has not come in time.
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
