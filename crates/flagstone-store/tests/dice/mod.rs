//! Numbers that look like chance, for tests that draw what they do.

/// The same numbers in every run with the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number from 0 to `end`, exclusive.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let step = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = step.wrapping_add(1);
        (self.0 >> 33) % end
    }
}
