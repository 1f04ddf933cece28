//! Measures our own code: processor time of the thread if the system provides it, so that other
//! threads and processes do not count.

use std::time::Instant;

/// Processor time of this thread in nanoseconds, if the system provides it (Linux).
pub fn thread_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Processor time since the start; must be read by the thread that started it. On other systems
/// than Linux, wall-clock time.
#[derive(Debug)]
pub struct Stopwatch {
    begun: Instant,
    used: Option<u64>,
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Stopwatch {
        let (begun, used) = (Instant::now(), thread_ns());
        Stopwatch { begun, used }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        match (self.used, thread_ns()) {
            (Some(before), Some(now)) => now.saturating_sub(before) as f64 / 1e9,
            _ => self.begun.elapsed().as_secs_f64(),
        }
    }
}
