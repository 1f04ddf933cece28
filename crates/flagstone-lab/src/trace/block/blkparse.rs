//! The default text output of `blkparse`, from `blktrace` on Linux.
//!
//! ```text
//!   8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]
//!   device cpu seq        seconds       pid  |   |  sector + sectors of 512 bytes
//!                                       action   R, W, D(iscard) with S, M, A, F… around it
//! ```
//!
//! One request appears as several events (queued, inserted, issued, completed). One action is
//! imported, by default `D`, issued to the device after merging. Other events show which of them
//! are one request: a requeue (`R`), a remap to the device below (`A`), a partial completion (`C`
//! after `D`). Appends to a zone (`ZA`) are sequential writes from its beginning, and a reset
//! (`ZR`) is a trim. The summary at the end is ignored.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::join::{self, Join, Joined};
use super::time::TimeUnit;
use super::{BlockOptions, Requests};
use crate::trace::Op;
use crate::trace::input::{ImportError, Lines, words};

/// The unit of addresses and lengths in `blktrace`, regardless of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// The event to import for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    /// `Q`: queued, before merging.
    Queue,
    /// `D`: issued to the device.
    #[default]
    Issue,
    /// `C`: completed.
    Complete,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 3] = [Action::Queue, Action::Issue, Action::Complete];

    /// The letter in the output of `blkparse`.
    pub fn letter(self) -> &'static str {
        match self {
            Action::Queue => "Q",
            Action::Issue => "D",
            Action::Complete => "C",
        }
    }
}

/// Reads the output of `blkparse`.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(
    reader: impl BufRead,
    options: &BlockOptions,
    action: Action,
) -> Result<Requests, ImportError> {
    let mut collector = Collector::new(options)?;
    let mut lines = Lines::new(reader);
    let mut join = Join::new(action);
    let mut taken = 0_u64;
    let mut events = 0_u64;
    while let Some(line) = lines.next()? {
        let (fields, count) = words::<16>(line.text);
        let fields = &fields[..count.min(16)];
        if fields.is_empty() {
            continue;
        }
        // Summary lines: `CPU0 (8,0):`, `Total (8,0):` and the lines after them.
        if fields[0].starts_with("CPU") || fields[0] == "Total" {
            break;
        }
        let event = match *fields {
            [device, cpu, sequence, time, pid, what, ref rest @ ..]
                if is_device(device)
                    && [cpu, sequence, pid]
                        .iter()
                        .all(|field| field.parse::<u64>().is_ok()) =>
            {
                TimeUnit::Seconds
                    .nanoseconds(time)
                    .map(|time_ns| (device, time_ns, what, rest))
            }
            _ => None,
        };
        let Some((device, time_ns, what, rest)) = event else {
            let problem = "not an event of blkparse: expected `MAJOR,MINOR CPU SEQUENCE SECONDS PID \
                           ACTION RWBS SECTOR + SECTORS [PROCESS]`, its default format";
            collector.wrong(&line, problem)?;
            continue;
        };
        events += 1;
        let is_taken = what == action.letter();
        taken += u64::from(is_taken);
        if !is_taken && !matches!(what, "Q" | "D" | "R" | "A") {
            continue;
        }
        let place = match *rest {
            [_, sector, "+", sectors, ..] => Some((sector, sectors)),
            _ => None,
        };
        let range = place.map(|(sector, sectors)| (sector.parse(), sectors.parse()));
        let of_request = match range {
            Some((Ok(sector), Ok(sectors))) => Some(join::Event {
                device,
                sector,
                sectors,
            }),
            _ => None,
        };
        if !is_taken {
            match (of_request, rest) {
                (Some(event), [_, _, _, _, "<-", from, at, ..]) if what == "A" => {
                    if let Ok(at) = at.parse() {
                        join.remap(event, from.trim_matches(['(', ')']), at);
                    }
                }
                (Some(event), _) if what != "A" => drop(join.see(what, event)),
                _ => {}
            }
            continue;
        }
        let [kind, ..] = *rest else {
            collector.wrong(&line, "the event has no kind (R, W, D, …)")?;
            continue;
        };
        // A flush or preflush `F` may come first; `D` anywhere is a discard, and a kind that begins
        // with `Z` concerns a zone.
        let op = match kind {
            _ if kind.starts_with("ZA") => Op::Write,
            _ if kind.starts_with("ZR") => Op::Trim,
            _ if kind.starts_with('Z') => {
                collector.skip("opens, closes and finishes of zones");
                continue;
            }
            _ if kind.contains('D') => Op::Trim,
            _ if kind.contains('W') => Op::Write,
            _ if kind.contains('R') => Op::Read,
            _ if kind.contains('F') => {
                collector.flush(time_ns, device)?;
                continue;
            }
            _ => {
                collector.skip("flushes and other requests without data");
                continue;
            }
        };
        let Some((sector, sectors)) = place else {
            // For a command to the device itself, `blkparse` prints only a length or nothing.
            if line.ended || rest.len() > 3 {
                collector.skip("requests without an address");
            } else {
                collector.wrong(&line, "")?;
            }
            continue;
        };
        let Some(event) = of_request else {
            return Err(line.wrong(format!("`{sector} + {sectors}` is no range of sectors")));
        };
        let (sector, sectors) = match join.see(what, event) {
            _ if kind.starts_with("ZA") => (join.append(event), event.sectors),
            _ if kind.starts_with("ZR") && event.sectors == 0 => {
                join.reset(event);
                collector.skip("resets of zones whose length is not given");
                continue;
            }
            Some(Joined::Counted(why)) => {
                collector.skip(why);
                continue;
            }
            Some(Joined::Request(sector, sectors)) => (sector, sectors),
            None => (event.sector, event.sectors),
        };
        if kind.starts_with("ZR") {
            join.reset(event);
        }
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
        let (Some(offset), Some(bytes)) = (bytes(sector), bytes(sectors)) else {
            return Err(line.wrong(format!("`{sector} + {sectors}` is no range of sectors")));
        };
        // The flags before and after `W`: a flush precedes the write, or the write is flushed
        // itself (FUA).
        let (flushed_before, flushed_after) = match kind.split_once('W') {
            Some((before, after)) => (before.contains('F'), after.contains('F')),
            None => (false, false),
        };
        if flushed_before && collector.takes_flushes() {
            collector.flush(time_ns, device)?;
        }
        let request = Request {
            time_ns,
            volume: device,
            op,
            offset,
            bytes,
        };
        collector.push(&line, request)?;
        if flushed_after && collector.takes_flushes() {
            collector.flush(time_ns, device)?;
        }
    }
    if taken == 0 && events > 0 {
        return Err(ImportError::Whole(format!(
            "none of {events} events has action {}: choose another with --action",
            action.letter()
        )));
    }
    collector.finish("blkparse", Times::Fixed(TimeUnit::Seconds))
}

fn is_device(field: &str) -> bool {
    let numbers = field.split_once(',');
    numbers.is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok())
}
