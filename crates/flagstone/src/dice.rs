//! Pseudo-random numbers from a seed (splitmix64): the same in every run and on every machine.
//!
//! ```
//! use flagstone::dice::Dice;
//!
//! let (mut one, mut again) = (Dice(7), Dice(7));
//! assert_eq!(one.next(), again.next());
//! assert!(one.below(6) < 6);
//! ```

/// The increment of the seed.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number that belongs to a seed.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of numbers.
///
/// ```
/// use flagstone::dice::Dice;
///
/// let mut dice = Dice(42);
/// let thrown: Vec<u32> = (0..100).map(|_| dice.pick(6)).collect();
/// assert!(thrown.iter().all(|&side| side < 6));
/// let mut again = Dice(42);
/// assert!(thrown.iter().all(|&side| side == again.pick(6)));
/// ```
#[derive(Debug, Clone)]
pub struct Dice(
    /// The seed, then the state.
    pub u64,
);

impl Dice {
    /// The next number.
    #[allow(clippy::should_implement_trait)] // The stream has no end.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number below `n`.
    pub fn pick(&mut self, n: u32) -> u32 {
        self.below(u64::from(n)) as u32
    }

    /// `true` once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.pick(n) == 0
    }

    /// A number below `n`, small numbers more often.
    pub fn skewed(&mut self, n: u32) -> u32 {
        let bound = self.pick(n) + 1;
        self.pick(bound)
    }
}
