//! The I/O logs of fio (`write_iolog`), versions 2 and 3.
//!
//! Version 3 starts each line with microseconds since the start of the run. Version 2 has no times
//! but `wait` lines, in microseconds since the wait before; without any, all are at time 0.
//! fio itself passes over waits below 100 us on replay; they are taken as they are written here.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::time::TimeUnit;
use super::{Options, Report};
use crate::trace::input::{ImportError, Lines};
use crate::trace::{Op, Trace};

/// Reads an I/O log of fio.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(reader: impl BufRead, options: &Options) -> Result<(Trace, Report), ImportError> {
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
    let mut waited_us = 0_u64;
    let mut waits = false;
    while let Some(line) = lines.next()? {
        let fields: Vec<&str> = line.text.split_ascii_whitespace().collect();
        if fields.is_empty() {
            continue;
        }
        let (time, fields) = if timed {
            (fields[0], &fields[1..])
        } else {
            ("", &fields[..])
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
            "sync" | "datasync" => {
                collector.skip("syncs");
                continue;
            }
            "wait" if timed => {
                collector.skip("waits, which version 3 does not have");
                continue;
            }
            "wait" => {
                let moved = numbers.first().and_then(|wait| wait.parse().ok());
                let Some(us) = moved.and_then(|wait| waited_us.checked_add(wait)) else {
                    collector.wrong(&line, "a wait without its microseconds")?;
                    continue;
                };
                waited_us = us;
                waits = true;
                continue;
            }
            _ => {
                let problem = format!(
                    "unknown action `{action}`; known are read, write, trim, sync, datasync, wait, \
                     add, open and close"
                );
                collector.wrong(&line, problem)?;
                continue;
            }
        };
        let time_ns = if timed {
            TimeUnit::Microseconds.nanoseconds(time)
        } else {
            waited_us.checked_mul(TimeUnit::Microseconds.ns())
        };
        let Some(time_ns) = time_ns else {
            return Err(line.wrong(format!("`{time}` is no time in microseconds")));
        };
        let [offset, bytes] = *numbers else {
            let problem = format!("`{action}` needs an offset and a length in bytes, nothing more");
            collector.wrong(&line, problem)?;
            continue;
        };
        let Ok(offset) = offset.parse() else {
            return Err(line.wrong(format!("`{offset}` is no offset in bytes")));
        };
        let Ok(bytes) = bytes.parse() else {
            return Err(line.wrong(format!("`{bytes}` is no length in bytes")));
        };
        let volume = collector.volume(file);
        collector.push(
            &line,
            Request {
                time_ns,
                volume,
                op,
                offset,
                bytes,
            },
        )?;
    }
    let times = if timed || waits {
        Times::Known(TimeUnit::Microseconds)
    } else {
        Times::None
    };
    collector.finish("fio", times)
}
