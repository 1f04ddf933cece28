//! The ASCII traces of DiskSim, which MQSim and others read as well.
//!
//! Five fields a line: time, device, first sector, sectors, flags. The flags are hexadecimal, and
//! their lowest bit says read. The time is in milliseconds for DiskSim, in nanoseconds for MQSim,
//! and in seconds for some other tools. The file does not say, so the user must.

use std::io::BufRead;

use super::collect::{Collector, Request, Times};
use super::time::TimeUnit;
use super::{BlockOptions, BlockReport};
use crate::trace::input::{ImportError, Lines};
use crate::trace::{Op, Trace};

/// Reads a DiskSim ASCII trace whose times count `unit`, and whose sectors have `sector_bytes`.
///
/// # Errors
/// [`ImportError`], with the line where there is one.
pub fn import(
    reader: impl BufRead,
    options: &BlockOptions,
    unit: TimeUnit,
    sector_bytes: u32,
) -> Result<(Trace, BlockReport), ImportError> {
    let mut collector = Collector::new(options)?;
    let mut lines = Lines::new(reader);
    while let Some(line) = lines.next()? {
        let text = line.text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [time, device, sector, sectors, flags] = fields[..] else {
            let problem = format!(
                "{} fields; a DiskSim trace has five: time, device, sector, sectors, flags",
                fields.len()
            );
            collector.wrong(&line, problem)?;
            continue;
        };
        let what = format!("time in {}", unit.name());
        let time_ns = line.read(time, &what, unit.nanoseconds(time))?;
        line.read(device, "device number", device.parse::<u32>().ok())?;
        let bytes = |field: &str| {
            field
                .parse::<u64>()
                .ok()?
                .checked_mul(u64::from(sector_bytes))
        };
        let offset = line.read(sector, "sector, or too far out", bytes(sector))?;
        let bytes = line.read(sectors, "number of sectors, or too large", bytes(sectors))?;
        let hexadecimal = flags.trim_start_matches("0x");
        let op = match u32::from_str_radix(hexadecimal, 16) {
            Ok(flags) if flags & 1 == 1 => Op::Read,
            Ok(_) => Op::Write,
            Err(_) => return Err(line.wrong(format!("`{flags}` are no hexadecimal flags"))),
        };
        collector.push(
            &line,
            Request {
                time_ns,
                volume: &format!("device {device}"),
                op,
                offset,
                bytes,
            },
        )?;
    }
    collector.finish("disksim", Times::Stated(unit))
}
