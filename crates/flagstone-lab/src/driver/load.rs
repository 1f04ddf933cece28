//! Whether a device keeps up with arrivals, and what is under way at once. In an open loop
//! transactions arrive regardless of others. A device that is too slow has a growing backlog:
//! transactions that have arrived and not ended.

/// Arrivals of an open loop, and their backlog.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Arrivals per second of virtual time; `None` if all arrive at once.
    pub arrivals_tps: Option<f64>,
    /// Mean number of transactions that had arrived and not ended, as seen by the arrivals of the
    /// second quarter.
    pub backlog_before: f64,
    /// The mean number as seen by the arrivals of the last quarter.
    pub backlog_after: f64,
    /// Whether the backlog grows: between the two quarters, by more than one percent of the
    /// arrivals in between, and by more than random variation.
    pub saturated: bool,
}

impl Load {
    /// Computes the load from the sorted instants of all arrivals and the unsorted instants of all
    /// ends. Counts arrivals from `since` on; earlier ones are part of their backlog.
    pub fn of(arrivals: &[u64], mut ends: Vec<u64>, since: u64) -> Load {
        ends.sort_unstable();
        let first = arrivals.partition_point(|&at| at < since);
        let counted = &arrivals[first..];
        let backlog = |from: usize, to: usize| {
            let (mut ended, mut sum) = (0, 0);
            for (nth, &at) in arrivals
                .iter()
                .enumerate()
                .take(first + to)
                .skip(first + from)
            {
                while ends.get(ended).is_some_and(|&end| end <= at) {
                    ended += 1;
                }
                // A transaction that takes no time has ended on arrival.
                sum += nth.saturating_sub(ended) as u64;
            }
            sum as f64 / to.saturating_sub(from).max(1) as f64
        };
        // The mean backlog in the second and in the last quarter, whose middles are half of all
        // apart.
        let all = counted.len();
        let (before, after) = (backlog(all / 4, all / 2), backlog(all - all / 4, all));
        let between = all as f64 / 2.0;
        let span_ns = counted
            .last()
            .zip(counted.first())
            .map_or(0, |(l, f)| l - f);
        Load {
            arrivals_tps: (span_ns > 0).then(|| (all - 1) as f64 / (span_ns as f64 / 1e9)),
            backlog_before: before,
            backlog_after: after,
            // It grew by more than 1 % of the arrivals between. Random arrivals vary by the square
            // root of their number.
            saturated: after - before > f64::max(between / 100.0, between.sqrt()),
        }
    }
}

/// A transaction that has ended: when it began and ended, in nanoseconds, and the distinct pages
/// that it wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) pages: u64,
}

/// The largest number of pages that transactions under way had at one instant: each has all of its
/// pages from its beginning until its end is durable.
pub(super) fn pages_at_most(all: &[Written]) -> u64 {
    let mut begun: Vec<(u64, u64)> = all.iter().map(|one| (one.from, one.pages)).collect();
    let mut ended: Vec<(u64, u64)> = all.iter().map(|one| (one.to, one.pages)).collect();
    begun.sort_unstable();
    ended.sort_unstable();
    let mut ends = ended.iter().peekable();
    let (mut now, mut most) = (0, 0);
    for (from, pages) in begun {
        now += pages;
        while let Some((_, pages)) = ends.next_if(|(to, _)| *to <= from) {
            now -= pages;
        }
        most = now.max(most);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_from_the_beginning_to_the_end_of_their_transaction() {
        let one = |from, to, pages| Written { from, to, pages };
        assert_eq!(pages_at_most(&[]), 0);
        assert_eq!(pages_at_most(&[one(5, 5, 7)]), 0, "it takes no time");
        let apart = [one(3, 9, 20), one(0, 3, 10)];
        assert_eq!(pages_at_most(&apart), 20, "one ends when the other begins");
        let three = [one(0, 4, 10), one(3, 9, 20), one(5, 6, 1)];
        assert_eq!(pages_at_most(&three), 30);
    }

    /// Arrivals every `every` nanoseconds, each served in `service` after all before it.
    fn queue(all: u64, every: u64, service: u64) -> Load {
        let arrivals: Vec<u64> = (0..all).map(|n| n * every).collect();
        let mut free = 0;
        let end = |&at: &u64| {
            free = free.max(at) + service;
            free
        };
        let ends: Vec<u64> = arrivals.iter().map(end).collect();
        Load::of(&arrivals, ends, 0)
    }

    #[test]
    fn a_server_that_is_too_slow_is_saturated_and_one_that_is_fast_enough_is_not() {
        let keeps_up = queue(10_000, 1_000, 999);
        assert!(!keeps_up.saturated, "{keeps_up:?}");
        assert!((keeps_up.arrivals_tps.unwrap() - 1e6).abs() < 1.0);
        // The previous arrival is still being served.
        assert!(keeps_up.backlog_after <= 1.0, "{keeps_up:?}");
        let too_slow = queue(10_000, 1_000, 1_050);
        assert!(too_slow.saturated, "{too_slow:?}");
        // Of 10,000 arrivals one in 21 is left; the last quarter sees seven eighths of that.
        assert!((too_slow.backlog_after - 417.0).abs() < 2.0, "{too_slow:?}");
        assert!(queue(100, 1_000, 2_000).saturated);
    }

    #[test]
    fn a_backlog_that_stays_is_no_sign_of_a_server_that_is_too_slow() {
        // Every transaction waits long, but no longer than the one before.
        let arrivals: Vec<u64> = (0..10_000).map(|n| n * 1_000).collect();
        let ends: Vec<u64> = arrivals.iter().map(|at| at + 2_000_000).collect();
        let load = Load::of(&arrivals, ends.clone(), 0);
        assert!(!load.saturated && load.backlog_after > 1_900.0, "{load:?}");
        // Same in a window that begins with that backlog; saturated in a window that sees it grow.
        let windowed = Load::of(&arrivals, ends.clone(), 3_000_000);
        assert!(!windowed.saturated, "{windowed:?}");
        let growing = Load::of(&arrivals[..2_000], ends[..2_000].to_vec(), 0);
        assert!(growing.saturated, "{growing:?}");
    }

    #[test]
    fn few_arrivals_show_nothing() {
        for all in 0..4 {
            assert!(!queue(all, 1_000, 5_000).saturated, "{all}");
        }
        assert_eq!(queue(1, 1_000, 5_000).arrivals_tps, None);
        let burst = Load::of(&[7; 500], vec![9; 500], 0);
        assert_eq!(burst.arrivals_tps, None);
    }
}
