//! Progress of long work: how much is done, and how much is planned. It is counted in host pages,
//! which take most of the time, not in runs, a few of which take almost all of it.
//!
//! The caller states the cost of each run ([`Effort::within`]); the lab's loops call [`did`] as
//! they proceed. A loop that learns how much is left reports that ([`left`]). Planned work of a
//! part that turns out unnecessary is removed from the plan, so that it does not distort the rate.
//! In the end everything planned is done.
//!
//! Progress never affects results. Without a watcher the cost is one thread-local counter.
//!
//! ```
//! use flagstone_lab::effort::{Effort, did, left};
//!
//! let effort = Effort::new(|_| {});
//! effort.plan(300);
//! effort.within("a run", 300, || {
//!     did(100);
//!     left(150);
//!     did(150);
//! });
//! assert_eq!((effort.done(), effort.planned()), (250, 250));
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cost of a page written in order to a device with room: the unit.
pub const FILLED: u64 = 1;
/// Cost of a page overwritten at random, including the collection that it causes.
pub const OVERWRITTEN: u64 = 2;
/// Cost of a replayed request: a page that a client reads or writes.
pub const REPLAYED: u64 = 2;
/// Cost of a database transaction.
pub const TRANSACTED: u64 = 80;
/// Cost of an index operation.
pub const INDEXED: u64 = 4;

/// Work between two calls of the watcher.
const EVERY: u64 = 4096;

/// The progress of work with many parts. Clones refer to the same work.
#[derive(Clone)]
pub struct Effort(Arc<Whole>);

struct Whole {
    planned: AtomicU64,
    done: AtomicU64,
    running: Mutex<Vec<Running>>,
    watcher: Box<dyn Fn(&Effort) + Send + Sync>,
}

/// A part in progress.
struct Running {
    number: u64,
    name: String,
    planned: u64,
    done: u64,
}

/// The part that this thread is executing.
struct Part {
    effort: Effort,
    number: u64,
}

thread_local! {
    /// Work of this thread's part that was not reported to it yet.
    static UNREPORTED: Cell<u64> = const { Cell::new(0) };
    static PART: RefCell<Option<Part>> = const { RefCell::new(None) };
    static WATCHED: RefCell<Option<Effort>> = const { RefCell::new(None) };
}

impl fmt::Debug for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Effort({} of {})", self.done(), self.planned())
    }
}

impl Effort {
    /// Progress of work without a plan yet. `watcher` is called periodically during the work, on
    /// any of its threads.
    pub fn new(watcher: impl Fn(&Effort) + Send + Sync + 'static) -> Effort {
        Effort(Arc::new(Whole {
            planned: AtomicU64::new(0),
            done: AtomicU64::new(0),
            running: Mutex::default(),
            watcher: Box::new(watcher),
        }))
    }

    /// Watches work that this thread starts; other threads may execute parts of it.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = WATCHED.replace(Some(self.clone()));
        let _after = Restore(before);
        work()
    }

    /// The effort of this thread's work; an unwatched one if there is none.
    pub fn current() -> Effort {
        let current = WATCHED.with_borrow(Clone::clone);
        current.unwrap_or_else(|| Effort::new(|_| {}))
    }

    /// Adds to the plan.
    pub fn plan(&self, pages: u64) {
        self.0.planned.fetch_add(pages, Ordering::Relaxed);
    }

    /// Removes from the plan.
    pub fn drop(&self, pages: u64) {
        let less = |planned: u64| Some(planned.saturating_sub(pages));
        let order = Ordering::Relaxed;
        let _ = self.0.planned.fetch_update(order, order, less);
    }

    /// The total plan, including what is done.
    pub fn planned(&self) -> u64 {
        self.0.planned.load(Ordering::Relaxed).max(self.done())
    }

    /// The work done.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// The parts in progress, with percentages: `seal 40 %, scc 12 %`.
    pub fn running(&self) -> String {
        let running = self.parts();
        let each = running.iter().map(|part| {
            let share = part.done * 100 / part.planned.max(part.done).max(1);
            format!("{} {share} %", part.name)
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Executes a part on this thread, whose cost `pages` was planned before ([`Effort::plan`]).
    pub fn within<T>(&self, name: &str, pages: u64, part: impl FnOnce() -> T) -> T {
        let number = {
            let mut running = self.parts();
            // A number that no running part has.
            let number = running.iter().map(|part| part.number + 1).max();
            let number = number.unwrap_or(0);
            running.push(Running {
                number,
                name: name.into(),
                planned: pages,
                done: 0,
            });
            number
        };
        // Work done so far is that of the outer part, if there is one: it does not count for this.
        report(UNREPORTED.get());
        let before = PART.replace(Some(Part {
            effort: self.clone(),
            number,
        }));
        let _after = EndsPart(before);
        (self.0.watcher)(self);
        part()
    }

    /// Adds work done to part number `number`.
    fn add(&self, number: u64, pages: u64) {
        let mut more = 0;
        if let Some(part) = self.parts().iter_mut().find(|part| part.number == number) {
            part.done += pages;
            // The part takes more than planned.
            more = part.done.saturating_sub(part.planned);
            part.planned += more;
        }
        self.plan(more);
        self.0.done.fetch_add(pages, Ordering::Relaxed);
    }

    /// Sets the remaining work of part number `number`.
    fn correct(&self, number: u64, left: u64) {
        let mut by = (0, 0);
        if let Some(part) = self.parts().iter_mut().find(|part| part.number == number) {
            let planned = part.done + left;
            by = (
                planned.saturating_sub(part.planned),
                part.planned.saturating_sub(planned),
            );
            part.planned = planned;
        }
        self.plan(by.0);
        self.drop(by.1);
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Running>> {
        let running = self.0.running.lock();
        running.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Restores the previously watched work, also during unwinding.
struct Restore(Option<Effort>);

impl Drop for Restore {
    fn drop(&mut self) {
        WATCHED.set(self.0.take());
    }
}

/// When dropped, also during unwinding, reports the rest of this thread's part, removes the part,
/// and resumes the outer part, if there is one.
struct EndsPart(Option<Part>);

impl Drop for EndsPart {
    fn drop(&mut self) {
        report(UNREPORTED.take());
        left(0);
        if let Some(Part { effort, number }) = PART.replace(self.0.take()) {
            effort.parts().retain(|part| part.number != number);
            (effort.0.watcher)(&effort);
        }
    }
}

/// Adds work done to this thread's part, in pages written in order.
#[inline]
pub fn did(pages: u64) {
    let unreported = UNREPORTED.get() + pages;
    if unreported < EVERY {
        UNREPORTED.set(unreported);
    } else {
        report(unreported);
    }
}

/// Sets the remaining work of this thread's part.
pub fn left(pages: u64) {
    report(UNREPORTED.get());
    PART.with_borrow(|part| {
        if let Some(Part { effort, number }) = part {
            effort.correct(*number, pages);
        }
    });
}

/// Adds `pages` to this thread's part, and calls the watcher. Work outside any part does not count.
#[cold]
fn report(pages: u64) {
    UNREPORTED.set(0);
    PART.with_borrow(|part| {
        if let Some(Part { effort, number }) = part {
            effort.add(*number, pages);
            (effort.0.watcher)(effort);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn what_a_part_did_not_take_is_taken_out_of_the_plan_and_what_it_took_more_is_added() {
        let effort = Effort::new(|_| {});
        effort.plan(1_000 + 100);
        effort.within("short", 1_000, || did(10));
        assert_eq!((effort.done(), effort.planned()), (10, 110));
        effort.within("long", 100, || did(500));
        assert_eq!((effort.done(), effort.planned()), (510, 510));
    }

    #[test]
    fn somebody_is_told_on_the_way_how_far_each_part_is() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let effort = Effort::new(move |effort: &Effort| {
            let now = (effort.done(), effort.planned(), effort.running());
            told.lock().unwrap().push(now);
        });
        effort.plan(4 * EVERY);
        effort.within("seal", 4 * EVERY, || (0..EVERY * 3).for_each(|_| did(1)));
        let seen = seen.lock().unwrap();
        let half = (2 * EVERY, 4 * EVERY, "seal 50 %".to_string());
        assert!(seen.contains(&half), "{seen:?}");
        let last = seen.last().expect("it was told").clone();
        assert_eq!(last, (3 * EVERY, 3 * EVERY, String::new()));
    }

    #[test]
    fn work_of_an_outer_part_counts_before_and_after_an_inner_one() {
        let effort = Effort::new(|_| {});
        effort.plan(10 + 5);
        effort.within("outer", 10, || {
            did(4);
            effort.within("inner", 5, || did(5));
            did(6);
        });
        assert_eq!((effort.done(), effort.planned()), (15, 15));
    }

    #[test]
    fn a_part_that_unwinds_is_over_and_work_outside_counts_for_nobody() {
        let effort = Effort::new(|_| {});
        effort.plan(70);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            effort.within("a part", 70, || {
                did(7);
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(ended.is_err());
        did(3 * EVERY);
        left(9);
        assert_eq!((effort.done(), effort.planned()), (7, 7));
        assert_eq!(effort.running(), "");
    }
}
