//! The I/O logs of fio (`write_iolog`), versions 2 and 3.
//!
//! Version 3 starts each line with microseconds since the start of the run. Version 2 has no times
//! except `wait` lines, which fio never writes itself. The file does not state their unit, and fio
//! contradicts itself: by its manual they are microseconds since the previous wait, but its code
//! sleeps until that many milliseconds after the start. So the user chooses ([`Waits`]). Requests
//! between two waits have one time, and such a log has no rate; without waits all are at time 0.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::time::TimeUnit;
use super::{BlockOptions, Requests};
use crate::trace::Op;
use crate::trace::input::{ImportError, Lines, number, words};

/// The meaning of the number in a version 2 `wait` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Milliseconds after the start, as in fio's replay code.
    UntilMs,
    /// Microseconds since the previous wait, as in fio's manual. By the manual waits below 100 us
    /// are ignored; here they are not.
    ForUs,
}

impl Waits {
    /// All values, with their command-line names.
    pub const ALL: [(Waits, &'static str); 2] =
        [(Waits::UntilMs, "until-ms"), (Waits::ForUs, "for-us")];

    /// The clock after a wait, in nanoseconds.
    fn advance(self, now_ns: u64, number: u64) -> Option<u64> {
        match self {
            Waits::UntilMs => Some(now_ns.max(number.checked_mul(1_000_000)?)),
            Waits::ForUs => now_ns.checked_add(number.checked_mul(1_000)?),
        }
    }
}

/// Imports an I/O log of fio. `waits` is needed for a version 2 log with `wait` lines.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(
    reader: impl BufRead,
    options: &BlockOptions,
    waits: Option<Waits>,
) -> Result<Requests, ImportError> {
    let mut collector = Collector::new(options)?;
    let mut lines = Lines::new(reader);
    let timed = match lines.next()? {
        None => return Err(ImportError::Whole("the input is empty".to_string())),
        Some(line) => match line.text.trim() {
            "fio version 2 iolog" => false,
            "fio version 3 iolog" => true,
            _ => {
                return Err(line.wrong(
                    "not an I/O log of fio: the first line is `fio version 2 iolog` or `fio version \
                     3 iolog`",
                ));
            }
        },
    };
    let (mut now_ns, mut waited) = (0_u64, false);
    while let Some(line) = lines.next()? {
        let (fields, count) = words::<6>(line.text);
        let fields = &fields[..count.min(6)];
        if fields.is_empty() {
            continue;
        }
        let (time, fields) = if timed {
            (fields[0], &fields[1..])
        } else {
            ("", fields)
        };
        let [file, action, ref numbers @ ..] = *fields else {
            collector.wrong(&line, "too few fields: expected a file and an action")?;
            continue;
        };
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "trim" => Op::Trim,
            "add" | "open" | "close" => continue,
            "sync" | "datasync" | "syncfs" if !collector.takes_flushes() => {
                collector.skip("syncs");
                continue;
            }
            "sync" | "datasync" | "syncfs" => Op::Commit,
            "sync_file_range" => {
                collector.skip("syncs of a range, which make nothing durable");
                continue;
            }
            "wait" if timed => {
                collector.skip("waits, which version 3 does not have");
                continue;
            }
            "wait" => {
                let Some(Ok(number)) = numbers.first().map(|number| number.parse()) else {
                    collector.wrong(&line, "a wait without a number")?;
                    continue;
                };
                let Some(waits) = waits else {
                    return Err(line.wrong(
                        "a wait, and what its number counts is not in the file: state --waits \
                         until-ms (milliseconds after the start, as fio replays it) or --waits \
                         for-us (microseconds since the wait before, as fio's manual has it)",
                    ));
                };
                let Some(later) = waits.advance(now_ns, number) else {
                    return Err(line.wrong("a wait beyond the end of time"));
                };
                (now_ns, waited) = (later, true);
                continue;
            }
            _ => {
                let problem = format!(
                    "unknown action `{action}`; known are read, write, trim, sync, datasync, syncfs, \
                     sync_file_range, wait, add, open and close"
                );
                collector.wrong(&line, problem)?;
                continue;
            }
        };
        let time_ns = if timed {
            TimeUnit::Microseconds.nanoseconds(time)
        } else {
            Some(now_ns)
        };
        let time_ns = line.read(time, "time in microseconds", time_ns)?;
        if op == Op::Commit {
            match action {
                "syncfs" => collector.flush_all(time_ns)?,
                _ => collector.flush(time_ns, file)?,
            }
            continue;
        }
        let [offset, bytes] = *numbers else {
            let problem = format!("`{action}` needs an offset and a length in bytes, nothing more");
            collector.wrong(&line, problem)?;
            continue;
        };
        let offset = line.read(offset, "offset in bytes", number(offset))?;
        let bytes = line.read(bytes, "length in bytes", number(bytes))?;
        collector.push(
            &line,
            Request {
                time_ns,
                volume: file,
                op,
                offset,
                bytes,
            },
        )?;
    }
    if waits.is_some() && !waited {
        return Err(ImportError::Whole(
            "there is no wait in the log for --waits to be about: leave it out".to_string(),
        ));
    }
    let times = match waits {
        _ if timed => Times::Fixed(TimeUnit::Microseconds),
        Some(Waits::UntilMs) => Times::Waits("waits until ms after the start, as stated"),
        Some(Waits::ForUs) => Times::Waits("waits for us since the wait before, as stated"),
        None => Times::None,
    };
    collector.finish("fio", times)
}
