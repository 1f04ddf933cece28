//! Measured costs of reads and writes. [SAL] counts in page reads or writes; how much cheaper a
//! page is in a coarse write depends on the device.

use flagstone::units::Nanos;

/// An exponentially fading mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, sample: f64) {
        self.0 = Some(self.0.map_or(sample, |mean| mean + (sample - mean) / 64.0));
    }
}

/// Costs of pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    read: Mean,
    write: Mean,
    /// Per page of a coarse write.
    coarse: Mean,
    /// The given speedup; `None` if it is measured.
    given_speedup: Option<f64>,
    given_ratio: Option<f64>,
}

/// The speedup until something was measured.
const SPEEDUP: f64 = 4.0;
const RATIO: f64 = 8.0;

impl Costs {
    /// Costs with the given parameters; `None` means measured.
    pub(super) fn new(speedup: Option<f64>, ratio: Option<f64>) -> Costs {
        Costs {
            read: Mean::default(),
            write: Mean::default(),
            coarse: Mean::default(),
            given_speedup: speedup,
            given_ratio: ratio,
        }
    }

    /// Records single pages read and written one after the other.
    pub(super) fn singles(&mut self, reads: u64, writes: u64, took: Nanos) {
        let took = took.0 as f64;
        match (reads, writes) {
            (1, 0) => self.read.add(took),
            (1, 1) => {
                if let Some(read) = self.read.0 {
                    self.write.add((took - read).max(0.0));
                }
            }
            _ => {}
        }
    }

    /// Records pages written in parallel.
    pub(super) fn coarse(&mut self, pages: usize, took: Nanos) {
        if took > Nanos::ZERO {
            self.coarse.add(took.0 as f64 / pages as f64);
        }
    }

    /// Pages that a coarse write writes in the time of a single write: the paper's n.
    pub(super) fn speedup(&self) -> f64 {
        let measured = || Some(self.write.0? / self.coarse.0?);
        let speedup = self.given_speedup.or_else(measured);
        speedup.unwrap_or(SPEEDUP).clamp(0.1, 1000.0)
    }

    /// Page reads in the time of one write.
    pub(super) fn ratio(&self) -> f64 {
        let measured = || Some(self.write.0? / self.read.0?);
        let ratio = self.given_ratio.or_else(measured);
        ratio.unwrap_or(RATIO).clamp(0.1, 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_measured_or_given() {
        let mut costs = Costs::new(None, None);
        assert_eq!((costs.speedup(), costs.ratio()), (SPEEDUP, RATIO));
        costs.singles(1, 0, Nanos(50));
        costs.singles(1, 1, Nanos(250));
        costs.singles(2, 1, Nanos(9999));
        costs.coarse(16, Nanos(800));
        costs.coarse(16, Nanos::ZERO);
        assert_eq!((costs.speedup(), costs.ratio()), (4.0, 4.0));
        let given = Costs::new(Some(2.0), Some(3.0));
        assert_eq!((given.speedup(), given.ratio()), (2.0, 3.0));
    }
}
