//! Connections that wait for the turn to write, first come first served.
//!
//! SQLite sleeps between two attempts to lock, a millisecond at first and longer each time. A
//! commit is shorter. So who was refused because another one writes sleeps until that one is done
//! ([`sleep`]), and is promised the turn for a moment, in which nobody else gets it. SQLite counts
//! attempts and not the time that it slept, which is why the order has to be kept: who was refused
//! could be refused again and again otherwise, and would give up long before its time.

use super::shared::Shared;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a turn is promised to who was woken for it, or has slept long enough.
const PROMISE: Duration = Duration::from_millis(10);

/// How long ago a connection was refused at most when its thread sleeps for it.
const FRESH: Duration = Duration::from_millis(1);

/// A connection that waits.
#[derive(Debug)]
struct Waiting {
    who: u64,
    /// Until when it has to come. Nothing while its thread sleeps.
    until: Option<Instant>,
}

/// Those who wait for the turn to write.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<Waiting>);

impl Turns {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a turn that is free is promised to another connection.
    pub(super) fn is_promised(&mut self, who: u64, now: Instant) -> bool {
        self.forget_late(now);
        let first = self.0.front();
        first.is_some_and(|first| first.until.is_some() && first.who != who)
    }

    /// A connection has the turn, or is gone.
    pub(super) fn leave(&mut self, who: u64) {
        self.0.retain(|waiting| waiting.who != who);
    }

    /// The turn is free: it is promised to the first who waits.
    pub(super) fn pass(&mut self, now: Instant) {
        self.forget_late(now);
        if let Some(first) = self.0.front_mut() {
            first.until.get_or_insert(now + PROMISE);
        }
    }

    /// A connection waits, at the end if it did not wait before.
    fn wait(&mut self, who: u64) {
        match self.0.iter_mut().find(|waiting| waiting.who == who) {
            Some(waiting) => waiting.until = None,
            None => self.0.push_back(Waiting { who, until: None }),
        }
    }

    /// The thread of a connection does not sleep any more: it comes soon, or never.
    fn woken(&mut self, who: u64, now: Instant) {
        let waiting = self.0.iter_mut().find(|waiting| waiting.who == who);
        if let Some(waiting) = waiting {
            waiting.until = Some(now + PROMISE);
        }
    }

    fn is_first(&self, who: u64) -> bool {
        self.0.front().is_some_and(|first| first.who == who)
    }

    /// When the first who waits has to have come.
    fn due(&self) -> Option<Instant> {
        self.0.front().and_then(|first| first.until)
    }

    /// Passes over those who have not come.
    fn forget_late(&mut self, now: Instant) {
        let is_late = |waiting: &Waiting| waiting.until.is_some_and(|until| until < now);
        self.0.retain(|waiting| !is_late(waiting));
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
/// connection: nobody has slept then.
pub(crate) fn sleep(most: Duration) -> Option<Duration> {
    let (shared, who, at) = REFUSED.with(|last| last.borrow_mut().take())?;
    let shared = shared.upgrade().filter(|_| at.elapsed() < FRESH)?;
    let (began, mut inner) = (Instant::now(), shared.lock().ok()?);
    inner.turns.wait(who);
    loop {
        let now = Instant::now();
        inner.turns.forget_late(now);
        let is_free = inner.locks.writer().is_none();
        let left = most.saturating_sub(began.elapsed());
        if left.is_zero() || is_free && inner.turns.is_first(who) {
            inner.turns.woken(who, now);
            return Some(began.elapsed());
        }
        // Or until the one before has not come.
        let due = inner
            .turns
            .due()
            .map(|due| due.saturating_duration_since(now));
        let wait = due.map_or(left, |due| left.min(due + Duration::from_micros(50)));
        inner = shared.turn_is_free.wait_timeout(inner, wait).ok()?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_promised_to_who_waits_longest_and_not_for_long() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        assert!(!turns.is_promised(1, now));
        turns.wait(1);
        turns.wait(2);
        turns.wait(1);
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
    fn who_has_slept_long_enough_keeps_its_place_if_it_comes_back() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        turns.wait(1);
        turns.wait(2);
        turns.woken(1, now);
        turns.wait(1);
        turns.pass(now + PROMISE * 9);
        assert!(turns.is_first(1));
        turns.woken(1, now);
        turns.pass(now + PROMISE * 9);
        assert!(turns.is_first(2), "the other one has given up");
    }

    #[test]
    fn who_was_not_refused_sleeps_as_ever() {
        assert_eq!(sleep(Duration::from_secs(9)), None);
    }
}
