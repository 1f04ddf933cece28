//! Pseudo-random numbers from a seed (splitmix64).

/// The increment of the seed.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number that belongs to a seed.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
}

#[cfg(test)]
impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn pick(&mut self, n: u32) -> u32 {
        self.below(u64::from(n)) as u32
    }

    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.pick(n) == 0
    }

    /// Below `n`, small numbers more often.
    pub(crate) fn skewed(&mut self, n: u32) -> u32 {
        let bound = self.pick(n) + 1;
        self.pick(bound)
    }
}
