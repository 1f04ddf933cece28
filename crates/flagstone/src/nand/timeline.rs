//! The timeline of one plane or channel: reserved and free time.

use crate::units::Nanos;
use std::collections::VecDeque;

/// Maximum number of gaps in a timeline that is never told the present instant.
const GAPS: usize = 1024;

/// Free time between two reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    from: Nanos,
    to: Nanos,
}

/// Where a reservation would begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: Nanos,
    /// The end of the free time: the next reservation, or never.
    pub(super) until: Nanos,
    /// The index of the gap; the number of gaps if it is behind all reservations.
    gap: usize,
}

/// The time of one plane or channel. All time after the last reservation is free.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    /// Sorted and not adjacent.
    gaps: VecDeque<Gap>,
    /// The ends of the first and last gap, 0 if there is none. Most operations need only these.
    first_to: Nanos,
    last_to: Nanos,
    /// The end of the last reservation.
    end: Nanos,
    busy: Nanos,
}

impl Timeline {
    /// The first free place for `span` at `ready` or later.
    #[inline]
    pub(super) fn first_fit(&self, ready: Nanos, span: Nanos) -> Place {
        if ready < self.last_to {
            // Search slices, because the iterators of `VecDeque` are slower.
            let (front, back) = self.gaps.as_slices();
            let in_front = back.first().is_none_or(|gap| gap.from > ready);
            if in_front && let Some(place) = fit(front, 0, ready, span) {
                return place;
            }
            if let Some(place) = fit(back, front.len(), ready, span) {
                return place;
            }
        }
        Place {
            start: ready.max(self.end),
            until: Nanos(u64::MAX),
            gap: self.gaps.len(),
        }
    }

    /// Reserves the time from a place up to `end`. Free time before and after it is kept as gaps if
    /// an operation of `shortest` fits.
    #[inline]
    pub(super) fn reserve(&mut self, place: Place, end: Nanos, shortest: Nanos) {
        debug_assert!(end <= place.until);
        self.busy += end.since(place.start);
        let is_gap = |from: Nanos, to: Nanos| from < to && to.since(from) >= shortest;
        let Some(&Gap { from, to }) = self.gaps.get(place.gap) else {
            let from = self.end;
            if is_gap(from, place.start) {
                if self.gaps.len() == GAPS {
                    self.gaps.pop_front();
                }
                let to = place.start;
                self.gaps.push_back(Gap { from, to });
                self.note_ends();
            }
            self.end = end;
            return;
        };
        let before = Gap {
            from,
            to: place.start,
        };
        let behind = Gap { from: end, to };
        match (is_gap(from, place.start), is_gap(end, to)) {
            (true, true) => {
                self.gaps[place.gap] = before;
                self.gaps.insert(place.gap + 1, behind);
            }
            (true, false) => self.gaps[place.gap] = before,
            (false, true) => self.gaps[place.gap] = behind,
            (false, false) => {
                self.gaps.remove(place.gap);
            }
        }
        self.note_ends();
    }

    #[inline]
    fn note_ends(&mut self) {
        self.first_to = self.gaps.front().map_or(Nanos::ZERO, |gap| gap.to);
        self.last_to = self.gaps.back().map_or(Nanos::ZERO, |gap| gap.to);
    }

    /// Reserves the first `span` that begins at `ready` or later. Returns its end.
    #[inline]
    pub(super) fn take(&mut self, ready: Nanos, span: Nanos, shortest: Nanos) -> Nanos {
        let place = self.first_fit(ready, span);
        let end = place.start + span;
        self.reserve(place, end, shortest);
        end
    }

    /// Announces that no operation will be ready before this instant.
    #[inline]
    pub(super) fn reached(&mut self, now: Nanos) {
        if self.first_to > now || self.last_to == Nanos::ZERO {
            return;
        }
        while self.gaps.front().is_some_and(|gap| gap.to <= now) {
            self.gaps.pop_front();
        }
        self.note_ends();
    }

    /// Total reserved time so far.
    pub(super) fn busy(&self) -> Nanos {
        self.busy
    }
}

/// The first place in `gaps`, which are sorted; the first of them has the index `index`. The search
/// begins at the end, because most gaps end before `ready`.
#[inline]
fn fit(gaps: &[Gap], index: usize, ready: Nanos, span: Nanos) -> Option<Place> {
    let mut first = gaps.len();
    while first > 0 && gaps[first - 1].to > ready {
        first -= 1;
    }
    for (place, free) in gaps[first..].iter().enumerate() {
        let start = ready.max(free.from);
        if start + span <= free.to {
            return Some(Place {
                start,
                until: free.to,
                gap: index + first + place,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_goes_into_the_first_gap_that_is_long_enough() {
        let mut line = Timeline::default();
        let mut take = |ready, span| line.take(Nanos(ready), Nanos(span), Nanos(5)).0;
        assert_eq!(take(100, 50), 150);
        assert_eq!(take(200, 15), 215);
        assert_eq!(take(40, 50), 90);
        assert_eq!(take(0, 30), 30);
        assert_eq!(take(0, 20), 170);
        assert_eq!(take(0, 10), 40);
        assert_eq!(take(0, 10), 100);
        assert_eq!(take(206, 10), 225);
        assert_eq!(take(0, 25), 195);
        // The gap from 195 to 200.
        assert_eq!(take(0, 6), 231);
        assert_eq!(take(0, 5), 200);
        assert_eq!(
            line.busy(),
            Nanos(50 + 15 + 50 + 30 + 20 + 10 + 10 + 10 + 25 + 6 + 5)
        );
        assert!(line.gaps.is_empty());
    }

    #[test]
    fn what_is_shorter_than_any_operation_is_no_gap() {
        let mut line = Timeline::default();
        line.take(Nanos(4), Nanos(6), Nanos(5));
        line.take(Nanos(20), Nanos(1), Nanos(5));
        assert_eq!(line.gaps.len(), 1);
        // Leaves 4 before and 3 after it.
        line.take(Nanos(14), Nanos(3), Nanos(5));
        assert!(line.gaps.is_empty());
    }

    #[test]
    fn gaps_before_the_present_are_forgotten_and_later_ones_are_kept() {
        let mut line = Timeline::default();
        for nth in 1..=1_000 {
            line.take(Nanos(nth * 100), Nanos(1), Nanos(1));
        }
        assert_eq!(line.gaps.len(), 1_000);
        line.reached(Nanos(500));
        assert_eq!(line.gaps.len(), 995);
        assert_eq!(line.take(Nanos(0), Nanos(50), Nanos(1)), Nanos(551));
        // Without a present instant the number of gaps is bounded.
        for nth in 1_001..=9_000 {
            line.take(Nanos(nth * 100), Nanos(1), Nanos(1));
        }
        assert_eq!(line.gaps.len(), GAPS);
    }
}
