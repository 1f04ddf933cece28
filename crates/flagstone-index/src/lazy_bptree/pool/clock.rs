//! The time of the pool, which counts requests. It has 30 bits: when they are used up, all times
//! are numbered anew, in their order.

use super::Pool;

/// The last time.
pub(super) const LATEST: u32 = (1 << 30) - 1;
/// Later than all times: that of a block without requests, where the earliest counts.
pub(super) const NEVER: u32 = u32::MAX;

impl Pool {
    pub(super) fn tick(&mut self) -> u32 {
        if self.clock == LATEST {
            self.renumber();
        }
        self.clock += 1;
        self.clock
    }

    /// Numbers all times from 1 on, in their order, except 0 and [`NEVER`]. Forgets the cached
    /// victims, whose ranks have the old times.
    fn renumber(&mut self) {
        let of_blocks = self.blocks.iter().map(|block| block.time);
        let mut times: Vec<u32> = self.requests.stamps().chain(of_blocks).collect();
        times.sort_unstable();
        times.dedup();
        times.retain(|&time| time != 0 && time != NEVER);
        let anew = |time: u32| (times.binary_search(&time)).map_or(time, |at| at as u32 + 1);
        self.requests.restamp(anew);
        for block in &mut self.blocks {
            block.time = anew(block.time);
        }
        for below in &mut self.belows {
            below.least = None;
        }
        self.clock = times.len() as u32;
    }

    /// For tests: the time is nearly used up.
    #[cfg(test)]
    pub(in super::super) fn age(&mut self) {
        self.clock = LATEST - 100;
    }

    /// For tests: forgets the order of what waits.
    #[cfg(test)]
    pub(in super::super) fn rejuvenate(&mut self) {
        self.clock = 0;
    }
}
