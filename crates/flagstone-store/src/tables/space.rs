//! Tracks the free pages of a store. An empty page is free: the store's mapping table shows that,
//! and changes in the same transaction, so the medium needs no other record. Free pages with low
//! numbers are taken first, since a store has room for its highest page.

use super::Mistake;
use crate::error::StoreError;
use flagstone::mistakes::Mistaken;
use flagstone::units::Lpn;
use std::collections::BTreeSet;

/// Upper limit of page numbers.
const PAGES_MAX: u32 = 1 << 30;

/// Free pages, and the live transaction's changes to them.
#[derive(Debug, Clone)]
pub(super) struct Space {
    /// No page from this number on is taken.
    next: u32,
    /// Free pages below `next`.
    free: BTreeSet<Lpn>,
    steps: Vec<Step>,
    mistaken: Mistaken<Mistake>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Took(Lpn),
    Gave(Lpn),
}

impl Space {
    /// The free pages of a store, given its nonempty pages `held` in ascending order.
    ///
    /// # Errors
    /// The store is damaged: one of `held` has a number that is never allocated.
    pub(super) fn new(held: &[Lpn], mistaken: Mistaken<Mistake>) -> Result<Space, StoreError> {
        if let Some(last) = held.last().filter(|last| last.0 >= PAGES_MAX) {
            return Err(StoreError::Damaged(format!(
                "page {last} holds something, and tables use pages below {PAGES_MAX} only"
            )));
        }
        let next = held.last().map_or(0, |at| at.0 + 1);
        let (mut free, mut expected) = (BTreeSet::new(), 0);
        for &at in held {
            free.extend((expected..at.0).map(Lpn));
            expected = at.0 + 1;
        }
        Ok(Space {
            next,
            free,
            steps: Vec::new(),
            mistaken,
        })
    }

    /// Number of pages that can still be taken.
    pub(super) fn left(&self) -> u32 {
        PAGES_MAX - self.next + self.free.len() as u32
    }

    /// Maximum number of pages in a store.
    pub(super) fn most(&self) -> u32 {
        PAGES_MAX
    }

    /// No page from here on is used.
    pub(super) fn end(&self) -> Lpn {
        Lpn(self.next)
    }

    /// The end of the used pages if they had the lowest numbers.
    pub(super) fn used(&self) -> Lpn {
        Lpn(self.next - self.free.len() as u32)
    }

    /// Takes the lowest free page.
    pub(super) fn take(&mut self) -> Option<Lpn> {
        let page = match self.free.pop_first() {
            Some(page) => page,
            None if self.next < PAGES_MAX => {
                self.next += 1;
                Lpn(self.next - 1)
            }
            None => return None,
        };
        self.steps.push(Step::Took(page));
        Some(page)
    }

    /// Whether a page is free.
    pub(super) fn is_free(&self, page: Lpn) -> bool {
        page.0 >= self.next || self.free.contains(&page)
    }

    /// Takes `page` if it is free. Returns whether it was.
    pub(super) fn claim(&mut self, page: Lpn) -> bool {
        if page.0 >= PAGES_MAX || !self.is_free(page) {
            return false;
        }
        self.free.extend((self.next..=page.0).map(Lpn));
        self.next = self.next.max(page.0 + 1);
        self.free.remove(&page);
        self.steps.push(Step::Took(page));
        true
    }

    /// Taken pages that are not among `used`.
    pub(super) fn lost(&self, used: &BTreeSet<Lpn>) -> Vec<Lpn> {
        let is_lost = |page: &Lpn| !used.contains(page) && !self.free.contains(page);
        (0..self.next).map(Lpn).filter(is_lost).collect()
    }

    /// Frees a page.
    pub(super) fn give(&mut self, page: Lpn) {
        let is_new = page.0 < self.next && self.free.insert(page);
        let may_be = self.mistaken.is(Mistake::FreedStaysFree);
        debug_assert!(is_new || may_be, "page {page} is given back and was free");
        self.steps.push(Step::Gave(page));
    }

    /// A position in the undo log of the live transaction, for [`Space::undo_to`].
    pub(super) fn mark(&self) -> usize {
        self.steps.len()
    }

    /// Undoes all changes since a mark.
    pub(super) fn undo_to(&mut self, mark: usize) {
        for step in self.steps.drain(mark..).rev() {
            match step {
                Step::Took(page) => _ = self.free.insert(page),
                Step::Gave(_) if self.mistaken.is(Mistake::FreedStaysFree) => {}
                Step::Gave(page) => _ = self.free.remove(&page),
            }
        }
        if self.steps.is_empty() {
            self.draw_in();
        }
    }

    /// Lowers `next` past free pages at the end. While a change can be undone, `next` stays where
    /// that change found it.
    fn draw_in(&mut self) {
        while self.next > 0 && self.free.remove(&Lpn(self.next - 1)) {
            self.next -= 1;
        }
    }

    /// Pages that the live transaction took and that were empty when it began.
    pub(super) fn born(&self) -> BTreeSet<Lpn> {
        let (mut born, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for &step in &self.steps {
            let (Step::Took(page) | Step::Gave(page)) = step;
            if seen.insert(page) && step == Step::Took(page) {
                born.insert(page);
            }
        }
        born
    }

    /// Ends the live transaction: its changes stay.
    pub(super) fn keep(&mut self) {
        self.steps.clear();
        self.draw_in();
    }

    /// Checks that each page is either free, or used once: `used` lists the pages that were
    /// reached. With `has_left` other pages may be taken too.
    ///
    /// # Errors
    /// Names a page that is used twice, used and free, or lost.
    pub(super) fn check(&self, used: Vec<Lpn>, has_left: bool) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for page in used {
            if !seen.insert(page) {
                return Err(format!("page {page} is used twice"));
            }
            if self.is_free(page) {
                return Err(format!("page {page} is used and free"));
            }
        }
        match self.lost(&seen).first() {
            Some(page) if !has_left => Err(format!("page {page} is neither used nor free")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a damaged store can determine the number of free pages below `next`.
    #[test]
    fn a_page_that_is_never_taken_is_damage() {
        let new = |last: u32| {
            let held: Vec<Lpn> = [0, 1, last].map(Lpn).into();
            Space::new(&held, Mistaken::default())
        };
        assert_eq!(new(5).map(|space| space.free.len()).ok(), Some(3));
        for last in [PAGES_MAX, u32::MAX] {
            let damaged = new(last);
            assert!(matches!(damaged, Err(StoreError::Damaged(_))), "{last}");
        }
    }

    #[test]
    fn what_is_undone_was_never_done() {
        let held = [0, 1, 4].map(Lpn);
        let mut space = Space::new(&held, Mistaken::default()).expect("pages that can be taken");
        let before = format!("{:?}", space.free);
        assert_eq!(space.take(), Some(Lpn(2)));
        let mark = space.mark();
        let taken = [(); 4].map(|()| space.take().expect("room"));
        assert_eq!(taken, [3, 5, 6, 7].map(Lpn));
        space.give(Lpn(4));
        space.give(Lpn(6));
        assert_eq!(space.take(), Some(Lpn(4)));
        let born: Vec<u32> = space.born().iter().map(|page| page.0).collect();
        assert_eq!(born, [2, 3, 5, 6, 7]);
        space.give(Lpn(7));
        assert_eq!(space.take(), Some(Lpn(6)));
        assert_eq!(space.take(), Some(Lpn(7)));
        space.undo_to(mark);
        assert_eq!(space.mark(), mark);
        assert_eq!(space.take(), Some(Lpn(3)));
        space.undo_to(0);
        assert_eq!((format!("{:?}", space.free), space.next), (before, 5));
        space
            .check([0, 1, 4].map(Lpn).to_vec(), false)
            .expect("all are used or free");
        for wrong in [&[0, 1, 4, 4][..], &[0, 1, 2, 4], &[0, 1]] {
            let used = wrong.iter().copied().map(Lpn).collect();
            space
                .check(used, false)
                .expect_err("a page is used twice, used and free, or lost");
        }
    }
}
