//! How long a piece of our own code takes: processor time of the thread where the system tells it,
//! so that other threads and processes do not count.

use std::time::Instant;

/// Nanoseconds that this thread has been on a processor, where the system tells (Linux).
pub fn thread_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Processor time since it was started, of the thread that asks and has started it; elsewhere than
/// on Linux, time on the clock.
#[derive(Debug)]
pub struct Stopwatch {
    begun: Instant,
    used: Option<u64>,
}

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Stopwatch {
        let (begun, used) = (Instant::now(), thread_ns());
        Stopwatch { begun, used }
    }

    /// Seconds since then.
    pub fn seconds(&self) -> f64 {
        match (self.used, thread_ns()) {
            (Some(before), Some(now)) => now.saturating_sub(before) as f64 / 1e9,
            _ => self.begun.elapsed().as_secs_f64(),
        }
    }
}
