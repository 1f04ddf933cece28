//! Bit errors that grow, around a [`Chip`]: with the wear of a block, with the time since a page
//! was programmed (retention), and with the reads of its block since then (read disturb).
//!
//! The rate of bit errors is a sum of power laws, the form of Kim, Choi and Min (Design tradeoffs
//! for SSD reliability, FAST 2019):
//!
//! ```text
//!   rate = fresh + wear * w^k + retention * w^m * t^n + disturb * w^p * r^q
//!
//!   w   erases of the block, as a share of those that its maker promises
//!   t   years since the page was programmed
//!   r   reads of the block since then, in hundreds of thousands
//! ```
//!
//! The number of errors in a page has a Poisson distribution. Its quantile is a hash of the seed,
//! the page, and the erases of its block. It stays the same until the next erase, so errors only
//! grow, and reads draw no random numbers. Blocks of a bad *batch* have a multiple of the rate.
//!
//! Deliberate simplifications: a code word is a whole page, temperature is not modelled, and all
//! pages of a block are alike. An aging device has no copy-back, which would pass errors on without
//! ECC.

use super::{Chip, Flash, FlashError, Geometry, PowerCut, Read};
use crate::dice::{STEP, mix};
use crate::forward_flash;
use crate::units::{Nanos, Pbn, Ppn};
use std::ops::Range;

/// A year of 365 days.
pub const YEAR: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);

/// Number of reads that [`PowerLaw::rate`] of read disturb refers to.
const READS: f64 = 100_000.0;

/// An error rate that grows with the wear of a block, and with time or reads.
///
/// Example: [`Aging`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    /// Error rate per bit on a block with its rated number of erases, after a year or after 100,000
    /// reads.
    pub rate: f64,
    /// Exponent of the wear.
    pub wear_exponent: f64,
    /// Exponent of the time or of the reads.
    pub exponent: f64,
}

impl PowerLaw {
    fn at(&self, wear: f64, much: f64) -> f64 {
        if self.rate > 0.0 && much > 0.0 {
            self.rate * wear.powf(self.wear_exponent) * much.powf(self.exponent)
        } else {
            0.0
        }
    }
}

/// Parameters of the bit error rate.
///
/// Example: [`Aging`].
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Error rate per bit of a page that was just programmed into a block without wear.
    pub fresh_rate: f64,
    /// Additional rate on a block with its rated number of erases.
    pub wear_rate: f64,
    /// Exponent of the wear for `wear_rate`.
    pub wear_exponent: f64,
    /// Additional rate by the time since the program.
    pub retention: PowerLaw,
    /// Additional rate by reads of the block.
    pub disturb: PowerLaw,
    /// Rated number of erases of a block.
    pub endurance: u32,
    /// Number of erases of each block before the simulation began.
    pub worn_erases: u32,
    /// Bit errors that the ECC corrects in a page.
    pub ecc_bits: u16,
    /// The blocks of the bad batch.
    pub batch: Range<u32>,
    /// Factor of the error rate in the bad batch.
    pub batch_factor: f64,
}

impl Growth {
    /// Error rate per bit of a page: its block has `erases` erases, the program was `age` ago, and
    /// the block was read `reads` times since.
    pub fn rate(&self, block: Pbn, erases: u32, age: Nanos, reads: u32) -> f64 {
        let erases = self.worn_erases.saturating_add(erases).max(1);
        let wear = f64::from(erases) / f64::from(self.endurance.max(1));
        let rate = self.fresh_rate
            + self.wear_rate * wear.powf(self.wear_exponent)
            + self.retention.at(wear, age.0 as f64 / YEAR.0 as f64)
            + self.disturb.at(wear, f64::from(reads) / READS);
        if self.batch.contains(&block.0) {
            rate * self.batch_factor
        } else {
            rate
        }
    }
}

/// The state of a device's cells. It survives power cuts.
///
/// Example: [`Aging`].
#[derive(Debug, Clone)]
pub struct Ages {
    /// Growth of bit errors; `None` if there is none.
    growth: Option<Growth>,
    seed: u64,
    /// Operating time before the last start.
    before: Nanos,
    /// The latest instant since the last start.
    now: Nanos,
    /// When each page was programmed last.
    programmed: Vec<Nanos>,
    /// By page: reads of its block from the block's last erase until the page's program.
    reads_before: Vec<u32>,
    /// Reads of each block since its last erase.
    reads: Vec<u32>,
}

impl Ages {
    /// The state of a new device. The seed decides which pages are weaker than others.
    pub fn new(geometry: &Geometry, growth: Growth, seed: u64) -> Ages {
        let (pages, blocks) = (geometry.pages() as usize, geometry.blocks() as usize);
        Ages {
            growth: Some(growth),
            seed,
            before: Nanos::ZERO,
            now: Nanos::ZERO,
            programmed: vec![Nanos::ZERO; pages],
            reads_before: vec![0; pages],
            reads: vec![0; blocks],
        }
    }

    /// The state of cells without bit errors.
    pub fn still() -> Ages {
        Ages {
            growth: None,
            seed: 0,
            before: Nanos::ZERO,
            now: Nanos::ZERO,
            programmed: Vec::new(),
            reads_before: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// Lets time pass while the device is off.
    pub fn rest(&mut self, span: Nanos) {
        self.before = self.before + self.now + span;
        self.now = Nanos::ZERO;
    }

    /// Bit errors in a read of a programmed page now, and the number that the ECC corrects.
    fn bits(&self, chip: &Chip, at: Ppn) -> (u16, u16) {
        let Some(growth) = &self.growth else {
            return (0, u16::MAX);
        };
        let geometry = chip.geometry();
        let block = geometry.block_of(at);
        let erases = chip.erase_counts()[block.index()];
        let age = (self.before + self.now).since(self.programmed[at.index()]);
        let reads = self.reads[block.index()].saturating_sub(self.reads_before[at.index()]);
        let rate = growth.rate(block, erases, age, reads);
        let mean = rate * f64::from(8 * (geometry.page_bytes + geometry.spare_bytes));
        let place = u64::from(at.0) << 32 | u64::from(erases);
        let bits = poisson(mean, quantile(self.seed, place), growth.ecc_bits);
        (bits, growth.ecc_bits)
    }
}

/// A hash of a seed and a place, in [0, 1).
fn quantile(seed: u64, place: u64) -> f64 {
    let mixed = mix(seed.wrapping_add(place.wrapping_mul(STEP)));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// The quantile of a Poisson distribution, or `most + 1` if it is greater than `most`.
fn poisson(mean: f64, quantile: f64, most: u16) -> u16 {
    // Beyond that, `exp(-mean)` underflows, and the probability of at most `most` errors is nil.
    if mean > 700.0 {
        return most + 1;
    }
    let (mut bits, mut each) = (0, (-mean).exp());
    let mut below = each;
    while below <= quantile && bits <= most {
        bits += 1;
        each *= mean / f64::from(bits);
        below += each;
    }
    bits
}

/// A device whose bit errors grow with wear, time and reads.
///
/// ```
/// use flagstone::nand::{Ages, Aging, Chip, Flash, FlashError, Growth, PowerLaw, YEAR};
/// use flagstone::units::{Nanos, Ppn};
///
/// let (disturb, retention) = (1e-3, 1e-3);
/// let law = |rate| PowerLaw { rate, wear_exponent: 1.0, exponent: 1.0 };
/// let growth = Growth {
///     fresh_rate: 1e-7,
///     wear_rate: 1e-5,
///     wear_exponent: 1.0,
///     retention: law(retention),
///     disturb: law(disturb),
///     endurance: 3_000,
///     worn_erases: 3_000,
///     ecc_bits: 72,
///     batch: 0..0,
///     batch_factor: 1.0,
/// };
/// let chip = Chip::default();
/// let ages = Ages::new(chip.geometry(), growth, 1);
/// let mut flash = Aging::new(chip, ages);
/// let done = flash.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
/// let (mut data, spare) = (vec![0; 4096], &mut []);
/// let young = flash.read(done, Ppn(0), &mut data, spare)?;
/// let later = Nanos(done.0 + YEAR.0);
/// let old = flash.read(later, Ppn(0), &mut data, spare)?;
/// assert!(young.corrected < old.corrected);
/// let later = Nanos(later.0 + 9 * YEAR.0);
/// let lost = flash.read(later, Ppn(0), &mut data, spare);
/// assert!(matches!(lost, Err(FlashError::Uncorrectable { .. })));
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug)]
pub struct Aging<F> {
    inner: F,
    ages: Ages,
}

impl<F: Flash + AsMut<Chip> + AsRef<Chip>> Aging<F> {
    /// A device whose cells have the state `ages`.
    pub fn new(inner: F, ages: Ages) -> Self {
        Aging { inner, ages }
    }

    /// The underlying device, and the state of its cells.
    pub fn into_parts(self) -> (F, Ages) {
        (self.inner, self.ages)
    }

    /// The device underneath, to look at.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    #[inline]
    fn pass(&mut self, now: Nanos) {
        self.ages.now = self.ages.now.max(now);
    }
}

impl AsRef<Chip> for Chip {
    fn as_ref(&self) -> &Chip {
        self
    }
}

impl AsRef<Chip> for PowerCut {
    fn as_ref(&self) -> &Chip {
        self.chip()
    }
}

impl<F: AsMut<Chip>> AsMut<Chip> for Aging<F> {
    fn as_mut(&mut self) -> &mut Chip {
        self.inner.as_mut()
    }
}

impl<F: Flash + AsMut<Chip> + AsRef<Chip>> Flash for Aging<F> {
    forward_flash!([inner] but read program reprogram erase sync peek);

    /// Counts the read, which disturbs the block, and adds the bit errors that the page has by now.
    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.pass(now);
        if self.ages.growth.is_none() {
            return self.inner.read(now, at, data, spare);
        }
        let block = self.inner.geometry().block_of(at);
        let reads = &mut self.ages.reads[block.index()];
        *reads = reads.saturating_add(1);
        let mut read = self.inner.read(now, at, data, spare)?;
        let chip: &Chip = self.inner.as_ref();
        if chip.is_programmed(at) {
            let (bits, most) = self.ages.bits(chip, at);
            read.corrected = read.corrected.max(bits);
            if bits > most {
                let done = read.done;
                return Err(FlashError::Uncorrectable { at, done });
            }
        }
        Ok(read)
    }

    /// Notes when the page was programmed, and how often its block was read before.
    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.pass(now);
        if self.ages.growth.is_some() {
            let block = self.inner.geometry().block_of(at);
            self.ages.programmed[at.index()] = self.ages.before + now;
            self.ages.reads_before[at.index()] = self.ages.reads[block.index()];
        }
        self.inner.program(now, at, data, spare)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.pass(now);
        self.inner.reprogram(now, at, offset, bytes)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.pass(now);
        let done = self.inner.erase(now, block)?;
        if let Some(reads) = self.ages.reads.get_mut(block.index()) {
            *reads = 0;
        }
        Ok(done)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.pass(now.max(until));
        self.inner.sync(now, until)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        let chip: &Chip = self.inner.as_ref();
        let (bits, most) = if chip.is_programmed(at) {
            self.ages.bits(chip, at)
        } else {
            (0, 0)
        };
        if bits > most {
            return None;
        }
        self.inner.peek(at, data, spare)
    }
}

#[cfg(test)]
mod tests {
    use super::super::small;
    use super::*;

    const LAW: PowerLaw = PowerLaw {
        rate: 0.0,
        wear_exponent: 1.0,
        exponent: 1.0,
    };

    fn growth() -> Growth {
        Growth {
            fresh_rate: 1e-4,
            wear_rate: 0.0,
            wear_exponent: 2.0,
            retention: LAW,
            disturb: LAW,
            endurance: 1_000,
            worn_erases: 500,
            ecc_bits: 20,
            batch: 3..5,
            batch_factor: 10.0,
        }
    }

    #[test]
    fn rates_are_sums_of_power_laws_and_a_batch_has_a_multiple() {
        let rate = |growth: &Growth, block, erases, years: f64, reads| {
            let age = Nanos((years * YEAR.0 as f64) as u64);
            growth.rate(Pbn(block), erases, age, reads)
        };
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
        let mut all = growth();
        close(rate(&all, 0, 0, 9.0, 9), 1e-4);
        close(rate(&all, 4, 0, 9.0, 9), 1e-3);
        all.wear_rate = 4e-4;
        close(rate(&all, 0, 0, 0.0, 0), 2e-4);
        close(rate(&all, 0, 500, 0.0, 0), 5e-4);
        all.retention.rate = 1e-3;
        close(rate(&all, 0, 500, 0.5, 0), 1e-3);
        all.retention.exponent = 0.5;
        close(rate(&all, 0, 500, 0.25, 0), 1e-3);
        all.disturb.rate = 1e-3;
        close(rate(&all, 0, 500, 0.0, 50_000), 1e-3);
        all.disturb.wear_exponent = 3.0;
        close(rate(&all, 0, 0, 0.0, 100_000), 2e-4 + 0.125e-3);
        all.worn_erases = u32::MAX;
        close(rate(&all, 0, 1, 0.0, 0), rate(&all, 0, 0, 0.0, 0));
    }

    #[test]
    fn quantiles_give_a_poisson_distribution() {
        for mean in [0.5, 6.0, 60.0] {
            let bits = (0..20_000).map(|i| u32::from(poisson(mean, quantile(7, i), 1_000)));
            let bits: Vec<f64> = bits.map(f64::from).collect();
            let found = bits.iter().sum::<f64>() / bits.len() as f64;
            let variance = bits.iter().map(|n| (n - found).powi(2)).sum::<f64>();
            let variance = variance / bits.len() as f64;
            assert!((found / mean - 1.0).abs() < 0.05, "{found} of {mean}");
            assert!((variance / mean - 1.0).abs() < 0.05, "{variance} of {mean}");
        }
        assert_eq!(poisson(1e9, 0.5, 20), 21);
        assert_eq!(poisson(0.0, 0.999, 20), 0);
    }

    fn read(flash: &mut Aging<Chip>, now: Nanos, at: Ppn) -> Option<u16> {
        let read = flash.read(now, at, &mut [0; 256], &mut [0; 8]);
        read.ok().map(|read| read.corrected)
    }

    /// A device with one kind of growth, and the corrected bits of its successive reads.
    fn course(growth: Growth, years: f64, reads: u32) -> Vec<Option<u16>> {
        let chip = small::chip(small::GEOMETRY);
        let ages = Ages::new(&small::GEOMETRY, growth, 5);
        let mut flash = Aging::new(chip, ages);
        flash
            .program(Nanos::ZERO, Ppn(0), &[1; 256], &[2; 8])
            .unwrap();
        let mut found = Vec::new();
        for step in 0..20u32 {
            let now = Nanos((years * f64::from(step) * YEAR.0 as f64) as u64);
            for _ in 0..reads {
                let _ = flash.read(now, Ppn(1), &mut [], &mut []);
            }
            found.push(read(&mut flash, now, Ppn(0)));
        }
        // An erase resets the block, except for its wear.
        let now = Nanos(100 * YEAR.0);
        flash.erase(now, Pbn(0)).unwrap();
        assert_eq!(read(&mut flash, now, Ppn(0)), Some(0), "blank");
        flash.program(now, Ppn(0), &[1; 256], &[2; 8]).unwrap();
        assert!(read(&mut flash, now, Ppn(0)).unwrap() < 5);
        found
    }

    #[test]
    fn errors_grow_with_time_and_with_reads_until_the_page_is_lost() {
        let mut old = growth();
        old.retention.rate = 1e-2;
        let mut worn = growth();
        worn.disturb.rate = 1.0;
        for (growth, years, reads) in [(old, 0.5, 0), (worn, 0.0, 100)] {
            let found = course(growth, years, reads);
            let lost = found.iter().position(Option::is_none).expect("it is lost");
            assert!(lost > 2, "{found:?}");
            assert!(found[..lost].is_sorted(), "{found:?}");
            assert!(found[lost..].iter().all(Option::is_none), "{found:?}");
        }
        let none = course(growth(), 0.5, 100);
        assert!(none.iter().all(|bits| *bits == none[0]), "{none:?}");
    }

    #[test]
    fn the_time_without_power_counts() {
        let mut growth = growth();
        growth.retention.rate = 1e-2;
        let chip = small::chip(small::GEOMETRY);
        let mut flash = Aging::new(chip, Ages::new(&small::GEOMETRY, growth, 5));
        flash
            .program(Nanos::ZERO, Ppn(0), &[1; 256], &[2; 8])
            .unwrap();
        let young = read(&mut flash, Nanos::ZERO, Ppn(0)).unwrap();
        let (mut chip, mut ages) = flash.into_parts();
        chip.reset_time();
        ages.rest(Nanos(YEAR.0 / 2));
        let mut flash = Aging::new(chip, ages);
        let old = read(&mut flash, Nanos::ZERO, Ppn(0)).unwrap();
        assert!(old > young, "{old} {young}");
        assert!(flash.peek(Ppn(0), &mut [0; 256], &mut []).is_some());
        assert_eq!(read(&mut flash, Nanos(9 * YEAR.0), Ppn(0)), None);
        assert!(flash.peek(Ppn(0), &mut [0; 256], &mut []).is_none());
    }
}
