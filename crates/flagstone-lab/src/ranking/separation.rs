//! Finds the cause of the difference between first and last row, and detects saturated devices.
//!
//! In a closed loop each transaction uses a share of the time of all planes. That time consists of
//! work for the host, for collection and for the protocol, of time held, and of idle time
//! ([`Occupied`]), so the difference of two rows is the sum of five differences. If idle time has
//! most of it, clients were waiting, and the waits of transactions give the cause. At a fixed
//! arrival rate both rows have equal plane time per transaction, and only the waits tell.
//!
//! The cause is the part with more than half of the difference; there may be none. If both rows
//! have the same isolation level, waits for isolation result from what other transactions do, so
//! the cause is looked for in the other parts, if these have grown.

use super::{Measured, Row, Standing, millis};
use crate::occupied::Occupied;

/// Planes or channels are called saturated from this share of the time on.
const SATURATED: f64 = 0.95;

/// The options that this comparison allows to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Whether databases are compared, which have neither `--over` nor `--isolation`.
    pub is_stack: bool,
    /// Whether transactions are generated, so that their size can be set.
    pub is_drawn: bool,
    /// Whether one isolation level was asked for.
    pub isolated: bool,
    /// Whether transactions are rolled back beyond those in the trace.
    pub aborts: bool,
}

/// The main cause of the difference between two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Waits for isolation, while planes are idle.
    Isolation,
    /// Waits for commits, while planes are idle.
    Commit,
    /// Waits for reads and writes, while planes are idle.
    Before,
    /// Reads and programs for the host.
    Host,
    /// Garbage collection.
    Collection,
    /// Reads and programs to commit, for the mapping and for logs.
    Protocol,
    /// The wait of pages for their channel.
    Channels,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Isolation => "the wait for isolation, while planes are idle",
            Cause::Commit => "the wait for commits, while planes are idle",
            Cause::Before => "the wait for reads and writes, while planes are idle",
            Cause::Host => "reads and programs for the host",
            Cause::Collection => "garbage collection",
            Cause::Protocol => "reads and programs to commit, for the mapping and for logs",
            Cause::Channels => "the wait of pages for their channel",
        }
    }

    /// Says which option would reduce the difference, if the same command accepts it.
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

/// One part of a difference: nanoseconds for each transaction, its name, and its cause.
type Part = (f64, &'static str, Cause);

/// Says whether a device is saturated, and what separates the first row from the last.
pub fn lines<R: Measured>(standing: &Standing<'_, R>, advice: Advice) -> Vec<String> {
    let mut lines: Vec<String> = saturated(standing).into_iter().collect();
    let (first, last) = (standing.first(), standing.contenders().last());
    if let (Some(first), Some(last)) = (first, last)
        && standing.near().len() < standing.contenders().count()
    {
        lines.push(sentence(first, last, advice));
    }
    lines
}

/// Names the rows under which planes or channels were busy almost all the time.
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
             under {}: more clients would wait longer without more throughput.",
            100.0 * SATURATED,
            names.join(", ")
        )
    })
}

/// The difference in plane time for each transaction, by what the time was used for.
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

/// The difference in response time for each transaction, by what it waited for.
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

/// The part with more than half of the sum.
fn most(parts: &[Part]) -> Option<&Part> {
    let half = sum(parts) / 2.0;
    parts.iter().find(|part| half > 0.0 && part.0 > half)
}

/// The cause of the difference, if one part has more than half of it. In a closed loop that is a
/// use of plane time, or a wait if most of the difference is idle planes.
pub fn cause<R: Measured>(first: &Row<R>, last: &Row<R>) -> Option<Cause> {
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

/// Describes the parts, the largest first, with signs. Negligible parts are left out.
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

/// Describes the difference between the first and the last row: longer waits of a transaction, more
/// plane time (in a closed loop), the main cause, and an option that would reduce it.
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
            " It uses {} ms more plane time: {}.",
            millis(sum(&planes)),
            told(&mut planes)
        );
    }
    text += &match cause(first, last) {
        None => " No single cause explains more than half of this.".to_string(),
        Some(cause) => {
            let change = cause.change(advice);
            let change = change.map_or(String::new(), |change| format!("; try {change}"));
            format!(" The main cause is {}{change}.", cause.name())
        }
    };
    text
}
