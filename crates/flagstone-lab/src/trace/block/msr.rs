//! The traces of Microsoft Research Cambridge: comma-separated, a volume a file, a week long.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, in bytes, times as Windows file
//! times: 100 ns since 1601. Copies of them that count from 0, or in another unit, are about; a
//! time that is no file time is refused unless the user states a unit.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::time::TimeUnit;
use super::{BlockOptions, BlockReport};
use crate::trace::input::{ImportError, Lines};
use crate::trace::{Op, Trace};

/// File times of the years 1990 to 2100, in nanoseconds.
const FILETIMES_NS: std::ops::Range<u64> = 12_275_625_600_000_000_000..15_746_918_400_000_000_000;

/// Reads an MSR Cambridge trace. Without a `unit` its times must be Windows file times.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(
    reader: impl BufRead,
    options: &BlockOptions,
    unit: Option<TimeUnit>,
) -> Result<(Trace, BlockReport), ImportError> {
    let mut collector = Collector::new(options)?;
    let mut lines = Lines::new(reader);
    let counts = unit.unwrap_or(TimeUnit::Filetime);
    while let Some(line) = lines.next()? {
        let text = line.text.trim();
        if text.is_empty() || (line.number == 1 && text.starts_with("Timestamp,")) {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [time, host, disk, kind, offset, bytes, _response] = fields[..] else {
            let problem = format!(
                "{} fields; an MSR Cambridge trace has seven: \
                 Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
                fields.len()
            );
            collector.wrong(&line, problem)?;
            continue;
        };
        let what = format!("time in {}", counts.name());
        let time_ns = line.read(time, &what, counts.nanoseconds(time))?;
        if unit.is_none() && !FILETIMES_NS.contains(&time_ns) {
            return Err(line.wrong(format!(
                "`{time}` is no Windows file time (100 ns since 1601): state its unit with \
                 --time-unit"
            )));
        }
        let op = match kind {
            _ if kind.eq_ignore_ascii_case("read") => Op::Read,
            _ if kind.eq_ignore_ascii_case("write") => Op::Write,
            _ => return Err(line.wrong(format!("type `{kind}` is neither Read nor Write"))),
        };
        let offset = line.read(offset, "offset in bytes", offset.parse().ok())?;
        let bytes = line.read(bytes, "size in bytes", bytes.parse().ok())?;
        collector.push(
            &line,
            Request {
                time_ns,
                volume: &format!("{host}.{disk}"),
                op,
                offset,
                bytes,
            },
        )?;
    }
    collector.finish("msr", unit.map_or(Times::Known(counts), Times::Stated))
}
