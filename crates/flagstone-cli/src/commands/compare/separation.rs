//! What separates the first row of a comparison from the last, and whether a device is saturated.
//!
//! In a closed loop a transaction takes a share of the time of all planes, and this time is what
//! the planes did for the host, the collection and the protocol, what they held, and idle time
//! ([`Occupied`]). So the difference of two rows is the sum of five differences. Where idle time
//! has the most of it, something made clients wait, and the waits of a transaction tell what. At an
//! arrival rate both rows take the same time of the planes a transaction, and its waits alone tell.
//!
//! A cause is what has more than half of the difference. There may be none. Where both rows have
//! the same level of isolation, a wait for it is one for what other transactions read, write and
//! commit, and what these take longer is the cause, if they do.

use super::standing::{Measured, Row, Standing};
use super::table::{millis, whole};
use flagstone_lab::occupied::Occupied;

/// Share of the time from which on planes or channels are said to be saturated.
const SATURATED: f64 = 0.95;

/// What can be set in the comparison that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Advice {
    /// Whether databases are compared, for which there is no `--over` and no `--isolation`.
    pub is_stack: bool,
    /// Whether transactions are drawn, so that their size is a setting.
    pub is_drawn: bool,
    /// Whether one level of isolation was asked for.
    pub isolated: bool,
    /// Whether transactions are rolled back that were not in the trace.
    pub aborts: bool,
}

/// What separates two rows most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Isolation,
    Commit,
    Before,
    Host,
    Collection,
    Protocol,
    Channels,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Isolation => "the wait for isolation, while planes are idle",
            Cause::Commit => "the wait for commits, while planes are idle",
            Cause::Before => "reads and writes that are waited for, while planes are idle",
            Cause::Host => "what is read and programmed for the host",
            Cause::Collection => "the collection",
            Cause::Protocol => {
                "what is read and programmed to commit, for the mapping and for logs"
            }
            Cause::Channels => "pages that wait for their channel",
        }
    }

    /// What makes the difference smaller, if the same command takes it.
    fn change(self, advice: Advice) -> Option<&'static str> {
        let Advice {
            is_stack,
            is_drawn,
            isolated,
            aborts,
        } = advice;
        match self {
            Cause::Isolation if !is_stack && !isolated => {
                Some("one level for all (--isolation strict)")
            }
            Cause::Collection if aborts => Some("no rollbacks (--abort-ratio 0)"),
            Cause::Protocol if is_drawn && !is_stack => {
                Some("longer transactions (--over transaction-pages=8..64)")
            }
            _ => None,
        }
    }
}

/// By how much more a transaction takes, a part that has a name.
type Part = (f64, &'static str, Cause);

/// Whether a device is saturated, and what separates the first row from the last.
pub(super) fn lines<R: Measured>(standing: &Standing<'_, R>, advice: Advice) -> Vec<String> {
    let mut lines: Vec<String> = saturated(standing).into_iter().collect();
    let (first, last) = (standing.first(), standing.contenders().last());
    if let (Some(first), Some(last)) = (first, last)
        && standing.near().len() < standing.contenders().count()
    {
        lines.push(sentence(first, last, advice));
    }
    lines
}

fn saturated<R: Measured>(standing: &Standing<'_, R>) -> Option<String> {
    let busy = |row: &Row<R>| {
        let of = |share: fn(&Occupied) -> f64| row.mean(|run| share(run.occupied()));
        of(|occupied| occupied.planes).max(of(|occupied| occupied.channels))
    };
    let rows = standing.rows.iter().filter(|row| busy(row) >= SATURATED);
    let names: Vec<&str> = rows.map(|row| row.name()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "The device is saturated (planes or channels are busy for {} % of the time or more) \
             under {}: more clients would wait longer, and no more would end.",
            whole(100.0 * SATURATED),
            names.join(", ")
        )
    })
}

/// How much more a transaction takes of the time of planes.
fn of_planes<R: Measured>(first: &Row<R>, last: &Row<R>) -> [Part; 5] {
    let more = |of: fn(&Occupied) -> u64| {
        let each = |run: &R| of(run.occupied()) as f64 / run.committed() as f64;
        last.mean(each) - first.mean(each)
    };
    [
        (more(|o| o.host_ns), "for the host", Cause::Host),
        (more(|o| o.collection_ns), "collection", Cause::Collection),
        (more(|o| o.protocol_ns), "for the protocol", Cause::Protocol),
        (more(|o| o.held_ns), "held for a channel", Cause::Channels),
        (more(|o| o.idle_ns), "idle", Cause::Before),
    ]
}

/// How much longer a transaction waits.
fn of_waits<R: Measured>(first: &Row<R>, last: &Row<R>) -> [Part; 3] {
    let more = |of: &dyn Fn(&R) -> f64| last.mean(of) - first.mean(of);
    let [isolation, commit] = [0, 1].map(|nth| more(&|run| run.waits()[nth]));
    let before = more(&|run| run.response().mean) - isolation - commit;
    [
        (isolation, "waiting for isolation", Cause::Isolation),
        (commit, "in the commit", Cause::Commit),
        (before, "in reads and writes before it", Cause::Before),
    ]
}

fn sum(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.0).sum()
}

/// The part that has more than half of the whole.
fn most(parts: &[Part]) -> Option<&Part> {
    let half = sum(parts) / 2.0;
    parts.iter().find(|part| half > 0.0 && part.0 > half)
}

/// The cause of a difference, if one has more than half of it.
fn cause<R: Measured>(first: &Row<R>, last: &Row<R>) -> Option<Cause> {
    let waits = of_waits(first, last);
    let of_waits = || {
        let others = &waits[1..];
        let is_same = first.runs[0].isolation() == last.runs[0].isolation();
        let all = if is_same && sum(others) > 0.0 {
            others
        } else {
            &waits
        };
        most(all).map(|part| part.2)
    };
    if first.runs[0].is_open() {
        return of_waits();
    }
    let planes = of_planes(first, last);
    let &(_, name, cause) = most(&planes)?;
    if name == "idle" {
        of_waits()
    } else {
        Some(cause)
    }
}

/// The largest part first, with its sign; what rounds to nothing is left out.
fn told(parts: &mut [Part]) -> String {
    parts.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let told = parts.iter().filter(|part| part.0.abs() >= 1e4);
    let each = told.map(|&(ns, name, _)| {
        let sign = if ns < 0.0 { '-' } else { '+' };
        format!("{sign}{} {name}", millis(ns.abs()))
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        "nothing".into()
    } else {
        each.join(", ")
    }
}

fn sentence<R: Measured>(first: &Row<R>, last: &Row<R>, advice: Advice) -> String {
    let mut waits = of_waits(first, last);
    let longer = sum(&waits);
    let mut text = format!(
        "A transaction of {} takes {} ms {} than one of {}: {}.",
        last.name(),
        millis(longer.abs()),
        if longer < 0.0 { "less" } else { "more" },
        first.name(),
        told(&mut waits)
    );
    let is_open = first.runs[0].is_open();
    if !is_open {
        let mut planes = of_planes(first, last);
        text += &format!(
            " It costs {} ms more of the time of the planes: {}.",
            millis(sum(&planes)),
            told(&mut planes)
        );
    }
    text += &match cause(first, last) {
        None => " Nothing has more than half of this.".to_string(),
        Some(cause) => {
            let change = cause.change(advice);
            let change = change.map_or(String::new(), |change| format!("; try {change}"));
            format!(" What separates them most is {}{change}.", cause.name())
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Args, Comparison};
    use super::*;
    use clap::Parser;
    use flagstone_lab::replay::ReplayRecord;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn rows(options: &str) -> Vec<Row<ReplayRecord>> {
        let line = Line::parse_from(std::iter::once("compare").chain(options.split(' ')));
        let comparison = Comparison::new(&line.args).unwrap_or_else(|_| panic!("{options}"));
        let outcomes = comparison.run().into_iter();
        let row = |ended: Vec<Result<ReplayRecord, _>>| Row {
            runs: ended.into_iter().map(|run| run.expect("it runs")).collect(),
        };
        outcomes.map(|outcome| row(outcome.ended)).collect()
    }

    /// By how much more of the time of the device a transaction of the second row takes.
    fn gap([first, last]: &[Row<ReplayRecord>; 2]) -> f64 {
        let rate = |row: &Row<ReplayRecord>| row.mean(Measured::rate);
        rate(first) / rate(last) - 1.0
    }

    fn pair(options: &str) -> [Row<ReplayRecord>; 2] {
        rows(options).try_into().expect("two protocols")
    }

    /// Without what is blamed less than half of the difference is left.
    #[test]
    fn without_what_is_blamed_the_difference_goes() {
        let small = "--workload uniform --requests 24000 --fill 0.3 --protocols seal,aw";
        let one_plane = format!("{small} --device lazybtree --pages-per-transaction");
        let rolls_back = "--device lazybtree --workload zipf:0.9 --requests 24000 --fill 0.9 \
                          --protocols seal,scc --abort-ratio";
        let cases = [
            (
                format!("{small} --pages-per-transaction 1"),
                Cause::Isolation,
                format!("{small} --pages-per-transaction 1 --isolation strict"),
            ),
            (
                format!("{one_plane} 1"),
                Cause::Protocol,
                format!("{one_plane} 64"),
            ),
            (
                format!("{rolls_back} 0.3"),
                Cause::Collection,
                format!("{rolls_back} 0"),
            ),
        ];
        for (with, blamed, without) in cases {
            let rows = pair(&with);
            assert_eq!(cause(&rows[0], &rows[1]), Some(blamed), "{with}");
            let (before, after) = (gap(&rows), gap(&pair(&without)));
            assert!(
                after < before / 2.0,
                "{before} with {with}, {after} with {without}"
            );
        }
    }
}
