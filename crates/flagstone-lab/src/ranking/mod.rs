//! Ranks the rows of a comparison, with ties and rows that do not keep up with the arrivals.
//!
//! In a closed loop rows are ranked by committed transactions per second. At an arrival rate all
//! rows that keep up commit equally many, so they are ranked by the 99th percentile of the response
//! time.
//!
//! A row ties with the first if their ranges over the seeds overlap. A single seed has no range;
//! then a row less than [`Figure::margin`] behind is reported as so near that another seed could
//! change the order. Rows that do not keep up with the arrivals rank behind all others.

pub mod separation;

use crate::closed::ClosedRecord;
use crate::occupied::Occupied;
use crate::replay::{Latency, ReplayRecord};
use serde::Serialize;

/// The result of one run, of one protocol or stack with one seed.
pub trait Measured: Serialize {
    /// The name of the protocol or stack.
    fn name(&self) -> &str;
    /// Whether transactions are atomic; those of the control are not.
    fn is_atomic(&self) -> bool;
    /// The number of committed transactions.
    fn committed(&self) -> u64;
    /// Committed transactions per second of virtual time.
    fn rate(&self) -> f64;
    /// The response times of the committed transactions.
    fn response(&self) -> &Latency;
    /// The isolation level, or what locks protect.
    fn isolation(&self) -> &str;
    /// Mean nanoseconds of a response time spent waiting for isolation, and in the commit.
    fn waits(&self) -> [f64; 2];
    /// For how long planes and channels were occupied, and with what.
    fn occupied(&self) -> &Occupied;
    /// Whether this is an open loop: transactions arrive whether or not clients are ready.
    fn is_open(&self) -> bool;
    /// Arrivals per second in an open loop; `None` if all arrive at once or the loop is closed.
    fn arrivals(&self) -> Option<f64>;
    /// Whether transactions arrive faster than they end.
    fn is_saturated(&self) -> bool;
    /// Removes figures that depend on the machine.
    fn forget_timing(&mut self);
}

/// Implements [`Measured`] for a record. The arguments name its fields for the name, the number of
/// commits and the isolation, and the name of the control.
macro_rules! measured {
    ($record:ty, $name:ident, $committed:ident, $isolation:ident, $control:literal) => {
        impl Measured for $record {
            fn name(&self) -> &str {
                &self.$name
            }

            fn is_atomic(&self) -> bool {
                self.$name != $control
            }

            fn committed(&self) -> u64 {
                self.$committed
            }

            fn rate(&self) -> f64 {
                self.throughput_tps
            }

            fn response(&self) -> &Latency {
                &self.response_ns
            }

            fn isolation(&self) -> &str {
                &self.$isolation
            }

            fn waits(&self) -> [f64; 2] {
                [self.isolation_wait_ns.mean, self.commit_ns.mean]
            }

            fn occupied(&self) -> &Occupied {
                &self.occupied
            }

            fn is_open(&self) -> bool {
                self.speedup.is_some()
            }

            fn arrivals(&self) -> Option<f64> {
                self.arrivals_tps
            }

            fn is_saturated(&self) -> bool {
                self.saturated == Some(true)
            }

            fn forget_timing(&mut self) {
                self.timing = None;
            }
        }
    };
}

measured!(
    ReplayRecord,
    protocol,
    transactions_committed,
    isolation,
    "plain"
);
measured!(ClosedRecord, stack, committed, granularity, "force:plain");

/// The runs of one protocol or stack: at least one, one for each seed.
#[derive(Debug)]
pub struct Row<R> {
    /// The runs, in the order of the seeds.
    pub runs: Vec<R>,
}

impl<R: Measured> Row<R> {
    /// The name of the protocol or stack.
    pub fn name(&self) -> &str {
        self.runs[0].name()
    }

    /// The mean of a figure over the seeds.
    pub fn mean(&self, of: impl Fn(&R) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// Whether transactions were committed with every seed.
    pub fn commits(&self) -> bool {
        self.runs.iter().all(|run| run.committed() > 0)
    }

    /// Whether the row falls behind the arrivals with some seed.
    pub fn is_saturated(&self) -> bool {
        self.runs.iter().any(R::is_saturated)
    }

    fn contends(&self) -> bool {
        self.runs[0].is_atomic() && self.commits() && !self.is_saturated()
    }
}

/// The figure by which rows are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// In a closed loop: committed transactions per second.
    Rate,
    /// At an arrival rate: the 99th percentile of the response time.
    Tail,
}

impl Figure {
    /// The figure of one run.
    pub fn of<R: Measured>(self, run: &R) -> f64 {
        match self {
            Figure::Rate => run.rate(),
            Figure::Tail => run.response().p99 as f64,
        }
    }

    /// The smallest and the largest figure over the seeds.
    pub fn range<R: Measured>(self, row: &Row<R>) -> (f64, f64) {
        let figures = row.runs.iter().map(|run| self.of(run));
        let least = figures.clone().fold(f64::INFINITY, f64::min);
        (least, figures.fold(0.0, f64::max))
    }

    /// The lead that is significant with a single seed, as a share. Over six seeds rates differed
    /// by up to 6 % on three workloads; over three seeds percentiles differed by up to 30 %, most
    /// near saturation (docs/compare.md).
    pub fn margin(self) -> f64 {
        match self {
            Figure::Rate => 0.10,
            Figure::Tail => 0.30,
        }
    }

    /// The figure's name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Rate => "tx/s",
            Figure::Tail => "p99 response time",
        }
    }

    /// How far a row is behind the first, relative to the first.
    fn behind<R: Measured>(self, row: &Row<R>, first: &Row<R>) -> f64 {
        let ratio = row.mean(|run| self.of(run)) / first.mean(|run| self.of(run));
        match self {
            Figure::Rate => 1.0 - ratio,
            Figure::Tail => ratio - 1.0,
        }
    }

    /// Whether the ranges of two rows over the seeds overlap.
    fn overlap<R: Measured>(self, one: &Row<R>, other: &Row<R>) -> bool {
        let ((low, high), (least, most)) = (self.range(one), self.range(other));
        low <= most && least <= high
    }
}

/// The rows in the order of their rank.
#[derive(Debug)]
pub struct Standing<'a, R> {
    /// The figure by which they are ranked.
    pub by: Figure,
    /// The rows, the best first.
    pub rows: Vec<&'a Row<R>>,
}

impl<'a, R: Measured> Standing<'a, R> {
    /// Ranks rows.
    pub fn of(rows: &'a [Row<R>]) -> Standing<'a, R> {
        let by = if rows.first().is_some_and(|row| row.runs[0].is_open()) {
            Figure::Tail
        } else {
            Figure::Rate
        };
        let mut rows: Vec<&Row<R>> = rows.iter().collect();
        // Rows without commits come last, before them saturated ones, each group by the figure.
        let place = |row: &Row<R>| {
            let figure = row.mean(|run| by.of(run));
            let ascending = if by == Figure::Rate { -figure } else { figure };
            ((!row.commits(), row.is_saturated()), ascending)
        };
        rows.sort_by(|a, b| {
            let ((a, x), (b, y)) = (place(a), place(b));
            a.cmp(&b).then(x.total_cmp(&y))
        });
        Standing { by, rows }
    }

    /// The first row that contends: it commits, is atomic and keeps up with the arrivals.
    pub fn first(&self) -> Option<&'a Row<R>> {
        self.contenders().next()
    }

    /// The first row and those not clearly behind it. These tie with it over the seeds; or, with
    /// one seed, they are so near that another seed could change the order.
    pub fn near(&self) -> Vec<&'a Row<R>> {
        let Some(first) = self.first() else {
            return Vec::new();
        };
        let is_near = |row: &&Row<R>| match self.seeds() {
            1 => self.by.behind(row, first) <= self.by.margin(),
            _ => self.by.overlap(first, row),
        };
        let others = self.contenders().skip(1).filter(is_near);
        std::iter::once(first).chain(others).collect()
    }

    /// The rows that contend for the first place, in order.
    pub fn contenders(&self) -> impl Iterator<Item = &'a Row<R>> {
        self.rows.iter().copied().filter(|row| row.contends())
    }

    /// The row with which others are compared, whose relative figure is 1.00: the first contender,
    /// or else the best row with commits. `None` if no row has any.
    pub fn reference(&self) -> Option<&'a Row<R>> {
        let any = || self.rows.iter().copied().find(|row| row.commits());
        self.first().or_else(any)
    }

    /// The number of runs of each row.
    pub fn seeds(&self) -> usize {
        self.rows.first().map_or(0, |row| row.runs.len())
    }

    /// Describes the order of the rows in sentences, as far as the seeds support it.
    pub fn verdict(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.rows.iter().any(|row| row.commits()) {
            return if self.rows.is_empty() {
                lines
            } else {
                vec!["No transaction was committed, so there is no ranking.".into()]
            };
        }
        let saturated: Vec<&str> = self.named(|row| row.is_saturated());
        let rate = self.rows[0].runs[0].arrivals();
        let rate = rate.map_or("all at once".to_string(), |rate| format!("{rate:.0} tx/s"));
        let mut others = self.contenders();
        match (others.next(), others.next()) {
            (Some(first), Some(next)) => lines.push(self.lead(first, next)),
            (Some(first), None) if !saturated.is_empty() => {
                let besides = self.besides(".");
                lines.push(format!(
                    "Only {} keeps up with {rate}{besides}",
                    first.name()
                ));
            }
            (None, _) if !saturated.is_empty() => {
                let (by, besides) = (self.by.name(), self.besides(","));
                lines.push(format!(
                    "None keeps up with {rate}{besides} so none is first by {by}: use a lower \
                     --speedup."
                ));
            }
            _ => {}
        }
        if !saturated.is_empty() {
            lines.push(format!(
                "Saturated at {rate}: {}. More transactions arrive than complete, so response \
                 times grow with the length of the trace and show how far behind a row is, not how \
                 fast it is.",
                list(&saturated)
            ));
        }
        lines
    }

    /// The end of a sentence about what keeps up: it names the rows that keep up and cannot be
    /// first, since they are not atomic.
    fn besides(&self, end: &str) -> String {
        let keeps_up = |row: &Row<R>| row.commits() && !row.is_saturated();
        let others = self.named(|row| keeps_up(row) && !row.contends());
        match &others[..] {
            [] => end.into(),
            [name] => format!(", besides {name}, which is not atomic{end}"),
            names => format!(", besides {}, which are not atomic{end}", list(names)),
        }
    }

    fn named(&self, which: impl Fn(&Row<R>) -> bool) -> Vec<&'a str> {
        let rows = self.rows.iter().filter(|row| which(row));
        rows.map(|row| row.name()).collect()
    }

    /// Describes the first row, and those not clearly behind it.
    fn lead(&self, first: &Row<R>, next: &Row<R>) -> String {
        let (by, name) = (self.by.name(), first.name());
        let behind = |row: &Row<R>| self.by.behind(row, first);
        let others: Vec<&str> = self.near().iter().skip(1).map(|row| row.name()).collect();
        let ahead = format!("{:.1} % before {}", behind(next) * 100.0, next.name());
        if self.seeds() > 1 {
            let seeds = self.seeds();
            return if others.is_empty() {
                format!(
                    "First by {by}: {name}, {ahead} in the mean of {seeds} seeds; their ranges do \
                     not overlap."
                )
            } else {
                format!(
                    "Tied for the first place by {by}, as their ranges over {seeds} seeds overlap: \
                     {}.",
                    list(&[&[name], &others[..]].concat())
                )
            };
        }
        let percent = self.by.margin() * 100.0;
        if others.is_empty() {
            format!(
                "First by {by}: {name}, {ahead}; differences of {percent:.0} % or less may come \
                 from the seed."
            )
        } else {
            format!(
                "First by {by} with this seed: {name}; within {percent:.0} % of it, so another \
                 seed may change the order: {}. --seeds 5 shows which of them tie.",
                list(&others)
            )
        }
    }
}

/// Nanoseconds as a number of milliseconds, with two digits after the point below 10 and one above.
pub fn millis(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms < 10.0 {
        format!("{ms:.2}")
    } else {
        format!("{ms:.1}")
    }
}

/// Joins names for a sentence.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_string(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Serialize)]
    pub(crate) struct Run {
        name: &'static str,
        rate: f64,
        response: Latency,
        arrivals: Option<f64>,
        saturated: bool,
        occupied: Occupied,
    }

    impl Measured for Run {
        fn name(&self) -> &str {
            self.name
        }

        fn is_atomic(&self) -> bool {
            self.name != "plain"
        }

        fn committed(&self) -> u64 {
            self.rate as u64
        }

        fn rate(&self) -> f64 {
            self.rate
        }

        fn response(&self) -> &Latency {
            &self.response
        }

        fn isolation(&self) -> &str {
            "serializable"
        }

        fn waits(&self) -> [f64; 2] {
            [0.0; 2]
        }

        fn occupied(&self) -> &Occupied {
            &self.occupied
        }

        fn is_open(&self) -> bool {
            self.arrivals.is_some()
        }

        fn arrivals(&self) -> Option<f64> {
            self.arrivals
        }

        fn is_saturated(&self) -> bool {
            self.saturated
        }

        fn forget_timing(&mut self) {}
    }

    pub(crate) fn closed(name: &'static str, rates: &[f64]) -> Row<Run> {
        let run = |&rate| Run {
            name,
            rate,
            response: Latency::default(),
            arrivals: None,
            saturated: false,
            occupied: Occupied::default(),
        };
        Row {
            runs: rates.iter().map(run).collect(),
        }
    }

    fn open(name: &'static str, rate: f64, p99: u64, saturated: bool) -> Row<Run> {
        let response = Latency {
            p99,
            ..Latency::default()
        };
        let run = Run {
            name,
            rate,
            response,
            arrivals: Some(100.0),
            saturated,
            occupied: Occupied::default(),
        };
        Row { runs: vec![run] }
    }

    fn names<'a>(standing: &Standing<'a, Run>) -> Vec<&'a str> {
        standing.rows.iter().map(|row| row.name()).collect()
    }

    fn verdict(rows: &[Row<Run>]) -> String {
        Standing::of(rows).verdict().join("\n")
    }

    #[test]
    fn one_seed_does_not_tell_what_another_may_change() {
        let rows = [
            closed("plain", &[500.0]),
            closed("b", &[380.0]),
            closed("a", &[396.0]),
            closed("c", &[350.0]),
        ];
        let standing = Standing::of(&rows);
        assert_eq!(names(&standing), ["plain", "a", "b", "c"]);
        assert_eq!(standing.first().map(Row::name), Some("a"));
        let said = verdict(&rows);
        assert!(said.contains("with this seed: a; within 10 %"), "{said}");
        assert!(said.contains("change the order: b. --seeds 5"), "{said}");
        let said = verdict(&rows[2..]);
        assert!(
            said.contains("First by tx/s: a, 11.6 % before c;"),
            "{said}"
        );
    }

    #[test]
    fn rows_whose_ranges_overlap_tie() {
        let rows = [
            closed("a", &[396.0, 383.0, 388.0]),
            closed("b", &[387.0, 386.0, 387.0]),
            closed("c", &[382.0, 382.0, 382.0]),
        ];
        let said = verdict(&rows);
        assert!(said.contains("over 3 seeds overlap: a and b"), "{said}");
        let said = verdict(&[
            closed("a", &[396.0, 383.0, 388.0]),
            closed("c", &[382.0; 3]),
        ]);
        assert!(said.contains("First by tx/s: a, 1.8 % before c"), "{said}");
        assert!(said.contains("do not overlap"), "{said}");
    }

    #[test]
    fn at_an_arrival_rate_the_slower_is_not_first_by_its_rate() {
        let rows = [
            open("slow", 101.0, 90, false),
            open("fast", 99.0, 40, false),
        ];
        let standing = Standing::of(&rows);
        assert_eq!(names(&standing), ["fast", "slow"]);
        let said = verdict(&rows);
        assert!(said.contains("First by p99 response time: fast"), "{said}");
        assert!(said.contains("125.0 % before slow"), "{said}");
    }

    #[test]
    fn what_does_not_keep_up_is_said_and_never_first() {
        let rows = [open("a", 99.0, 10, true), open("b", 99.0, 40, false)];
        let standing = Standing::of(&rows);
        assert_eq!(names(&standing), ["b", "a"]);
        let said = verdict(&rows);
        assert!(said.contains("Saturated at 100 tx/s: a."), "{said}");
        assert!(said.contains("Only b keeps up with 100 tx/s"), "{said}");
        assert!(!said.contains("First"), "{said}");
        let said = verdict(&rows[..1]);
        assert!(said.contains("None keeps up with 100 tx/s"), "{said}");
    }

    #[test]
    fn what_keeps_up_without_atomic_commits_is_named_and_not_first() {
        let rows = [
            open("a", 99.0, 10, true),
            open("b", 99.0, 40, false),
            open("plain", 99.0, 5, false),
        ];
        let said = verdict(&rows);
        let wanted = "Only b keeps up with 100 tx/s, besides plain, which is not atomic.";
        assert!(said.contains(wanted), "{said}");
        let said = verdict(&[
            open("a", 99.0, 10, true),
            open("plain", 99.0, 5, false),
            open("none", 0.0, 0, false),
        ]);
        let wanted = "None keeps up with 100 tx/s, besides plain, which is not atomic, so none is";
        assert!(said.contains(wanted), "{said}");
        let said = verdict(&[open("a", 99.0, 10, true), open("plain", 99.0, 5, true)]);
        assert!(
            said.contains("None keeps up with 100 tx/s, so none is first"),
            "{said}"
        );
    }

    #[test]
    fn what_commits_nothing_is_not_ranked() {
        let rows = [closed("a", &[0.0]), closed("b", &[0.0])];
        assert_eq!(Standing::of(&rows).first().map(Row::name), None);
        assert!(verdict(&rows).contains("No transaction was committed"));
        assert_eq!(verdict(&[]), "");
    }
}
