//! How much of long work is done, and how much is planned. It is counted in pages of the host,
//! which take most of the time, and not in runs, of which a few take all of it.
//!
//! The maker of runs says what each will take ([`Effort::within`]); the loops of the lab call
//! [`did`] as they go on. A loop that finds out what is left says so ([`left`]). Work of a part
//! that was planned and not needed is taken out of the plan, since it says nothing of the time that
//! others take. So all that is planned is done in the end, and the rate so far is that of real
//! work.
//!
//! Nothing here decides anything. Work that is not watched pays for a counter of its thread.
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

/// What a page takes that is written in order to a device with room: the unit.
pub const FILLED: u64 = 1;
/// What a page takes that is overwritten at random, with the collection that it brings about.
pub const OVERWRITTEN: u64 = 2;
/// What a request of a replay takes: a page that a client reads or writes.
pub const REPLAYED: u64 = 2;
/// What a transaction of a database takes.
pub const TRANSACTED: u64 = 80;
/// What an operation on an index takes.
pub const INDEXED: u64 = 4;

/// Work between two calls of the watcher.
const EVERY: u64 = 4096;

/// Work of many parts that is watched. Copies are of the same work.
#[derive(Clone)]
pub struct Effort(Arc<Whole>);

struct Whole {
    planned: AtomicU64,
    done: AtomicU64,
    running: Mutex<Vec<Running>>,
    told: Box<dyn Fn(&Effort) + Send + Sync>,
}

/// A part of the work that is being done.
struct Running {
    number: u64,
    name: String,
    planned: u64,
    done: u64,
}

/// The part that this thread does.
struct Part {
    effort: Effort,
    number: u64,
}

thread_local! {
    /// What was done since the watcher was called.
    static UNTOLD: Cell<u64> = const { Cell::new(0) };
    static PART: RefCell<Option<Part>> = const { RefCell::new(None) };
    static WATCHED: RefCell<Option<Effort>> = const { RefCell::new(None) };
}

impl fmt::Debug for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Effort({} of {})", self.done(), self.planned())
    }
}

impl Effort {
    /// Work of which nothing is planned yet. `told` is called now and then while it is done, on any
    /// of its threads.
    pub fn new(told: impl Fn(&Effort) + Send + Sync + 'static) -> Effort {
        Effort(Arc::new(Whole {
            planned: AtomicU64::new(0),
            done: AtomicU64::new(0),
            running: Mutex::default(),
            told: Box::new(told),
        }))
    }

    /// Watches work that this thread begins, and whose parts other threads may do.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = WATCHED.replace(Some(self.clone()));
        let _after = Restore(before);
        work()
    }

    /// The effort of the work that this thread begins; without one, an effort that is not watched.
    pub fn current() -> Effort {
        let current = WATCHED.with_borrow(Clone::clone);
        current.unwrap_or_else(|| Effort::new(|_| {}))
    }

    /// So much more is to be done.
    pub fn plan(&self, pages: u64) {
        self.0.planned.fetch_add(pages, Ordering::Relaxed);
    }

    /// So much that was planned is not to be done.
    pub fn drop(&self, pages: u64) {
        let less = |planned: u64| Some(planned.saturating_sub(pages));
        let order = Ordering::Relaxed;
        let _ = self.0.planned.fetch_update(order, order, less);
    }

    /// What is planned, what is done of it included.
    pub fn planned(&self) -> u64 {
        self.0.planned.load(Ordering::Relaxed).max(self.done())
    }

    /// What is done.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// The parts that are being done, with how much of each is: `seal 40 %, scc 12 %`.
    pub fn running(&self) -> String {
        let running = self.parts();
        let each = running.iter().map(|part| {
            let share = part.done * 100 / part.planned.max(part.done).max(1);
            format!("{} {share} %", part.name)
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Does a part on this thread, of which so much was planned before ([`Effort::plan`]).
    pub fn within<T>(&self, name: &str, pages: u64, part: impl FnOnce() -> T) -> T {
        let number = {
            let mut running = self.parts();
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
        UNTOLD.set(0);
        let before = PART.replace(Some(Part {
            effort: self.clone(),
            number,
        }));
        let _after = Ends(before);
        (self.0.told)(self);
        part()
    }

    /// Of the part with a number, so much more is done.
    fn add(&self, number: u64, pages: u64) {
        let mut more = 0;
        if let Some(part) = self.parts().iter_mut().find(|part| part.number == number) {
            part.done += pages;
            // It takes more than was planned.
            more = part.done.saturating_sub(part.planned);
            part.planned += more;
        }
        self.plan(more);
        self.0.done.fetch_add(pages, Ordering::Relaxed);
    }

    /// Of the part with a number, so much is left.
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

/// Puts back what was watched, also when the work unwinds.
struct Restore(Option<Effort>);

impl Drop for Restore {
    fn drop(&mut self) {
        WATCHED.set(self.0.take());
    }
}

/// Ends the part of this thread, also when the work unwinds.
struct Ends(Option<Part>);

impl Drop for Ends {
    fn drop(&mut self) {
        tell(UNTOLD.take());
        left(0);
        if let Some(Part { effort, number }) = PART.replace(self.0.take()) {
            effort.parts().retain(|part| part.number != number);
            (effort.0.told)(&effort);
        }
    }
}

/// So much more of this thread's part is done, in pages that are written in order.
#[inline]
pub fn did(pages: u64) {
    let untold = UNTOLD.get() + pages;
    if untold < EVERY {
        UNTOLD.set(untold);
    } else {
        tell(untold);
    }
}

/// So much of this thread's part is left to do.
pub fn left(pages: u64) {
    tell(UNTOLD.get());
    PART.with_borrow(|part| {
        if let Some(Part { effort, number }) = part {
            effort.correct(*number, pages);
        }
    });
}

#[cold]
fn tell(pages: u64) {
    UNTOLD.set(0);
    PART.with_borrow(|part| {
        if let Some(Part { effort, number }) = part {
            effort.add(*number, pages);
            (effort.0.told)(effort);
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
