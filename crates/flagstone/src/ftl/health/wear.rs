//! The wear of a device, and the distance to its end of life, when it accepts no more writes.

use crate::ftl::{BlockState, Ftl};
use crate::units::Pbn;

/// The wear of a device's blocks.
///
/// ```
/// use flagstone::ftl::EndOfLife;
/// use flagstone::prelude::*;
///
/// let device = Device::with_defaults(Chip::default(), Kind::Cfc)?;
/// let wear = device.ftl().wear();
/// assert_eq!((wear.blocks, wear.out_of_service), (device.geometry().blocks(), 0));
/// assert_eq!(wear.used(3_000), 0.0);
/// assert_eq!(wear.end(Some(3_000)), EndOfLife::Far);
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wear {
    /// Blocks in service.
    pub blocks: u32,
    /// Blocks that are bad from the factory or have failed since.
    pub out_of_service: u32,
    /// Number of blocks that may still fail before the device can be full, with its present
    /// contents and with failures where they hurt most.
    pub may_fail: u32,
    /// Whether few spare blocks are left in one of the areas. For data: one of fifty blocks, or
    /// three. For roots, and for mapping pages and logs: a third of those of a new device.
    pub is_short: bool,
    /// Minimum, median and maximum number of erases of blocks in service. After a restart a block
    /// without a summary page counts with the mean of the others.
    pub erases: [u32; 3],
    /// Total number of erases of blocks in service.
    pub erases_total: u64,
}

/// How close a device is to its end of life.
///
/// ```
/// use flagstone::ftl::EndOfLife;
///
/// assert_eq!(EndOfLife::by_share(0.95), EndOfLife::Near);
/// assert_eq!(EndOfLife::Near.max(EndOfLife::Here).name(), "here");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndOfLife {
    /// The device is not close to its end of life.
    Far,
    /// The data should be copied to another device.
    Near,
    /// The device may refuse the next write and become read-only.
    Here,
}

impl EndOfLife {
    /// The name used in results.
    pub const fn name(self) -> &'static str {
        match self {
            EndOfLife::Far => "far",
            EndOfLife::Near => "near",
            EndOfLife::Here => "here",
        }
    }

    /// The state for a used share of the rated erases.
    pub fn by_share(used: f64) -> EndOfLife {
        match used {
            used if used >= 1.0 => EndOfLife::Here,
            used if used >= Wear::NEAR => EndOfLife::Near,
            _ => EndOfLife::Far,
        }
    }
}

impl Wear {
    /// The used share from which on the end is near.
    pub const NEAR: f64 = 0.9;

    /// The used share of the blocks' rated erases.
    pub fn used(&self, rated: u32) -> f64 {
        self.erases_total as f64 / (f64::from(rated) * f64::from(self.blocks.max(1)))
    }

    /// How close the end is, by the blocks that may still fail and, if known, by the rated erases.
    /// A device that has reached its rated erases may continue to work: its end counts as near.
    pub fn end(&self, rated: Option<u32>) -> EndOfLife {
        let spare = match (self.may_fail, self.is_short) {
            (0, _) => EndOfLife::Here,
            (_, true) => EndOfLife::Near,
            (_, false) => EndOfLife::Far,
        };
        let used = rated.map_or(EndOfLife::Far, |rated| {
            EndOfLife::by_share(self.used(rated)).min(EndOfLife::Near)
        });
        spare.max(used)
    }

    /// Remaining life until the rated erases, at the past rate of erases during `time`, in the unit
    /// of `time`. Infinite if nothing was erased.
    pub fn lasts(&self, rated: u32, time: f64) -> f64 {
        let used = self.used(rated);
        if used > 0.0 {
            ((1.0 - used) * time / used).max(0.0)
        } else {
            f64::INFINITY
        }
    }
}

impl Ftl {
    /// The wear of the device.
    pub fn wear(&self) -> Wear {
        let is_bad = |block: &Pbn| self.blocks.state(*block) == BlockState::Bad;
        let all = (0..self.geometry.blocks()).map(Pbn);
        let (bad, good): (Vec<Pbn>, Vec<Pbn>) = all.partition(is_bad);
        let mut erases: Vec<u32> = good
            .iter()
            .map(|&block| self.blocks.erases_of(block))
            .collect();
        erases.sort_unstable();
        let for_data = self.data_may_fail();
        let [for_roots, for_maps] = self.journal.spares(self.pairs.meta_pages.len() as u32);
        let short_of_data = for_data <= (good.len() as u32 / 50).max(3);
        let at = |index: usize| erases.get(index).copied().unwrap_or(0);
        Wear {
            blocks: good.len() as u32,
            out_of_service: bad.len() as u32,
            may_fail: for_data.min(for_roots.left).min(for_maps.left),
            is_short: short_of_data || for_roots.is_short() || for_maps.is_short(),
            erases: [0, erases.len() / 2, erases.len().saturating_sub(1)].map(at),
            erases_total: erases.iter().map(|&erases| u64::from(erases)).sum(),
        }
    }

    /// Data blocks beyond those required for live pages and for the collector.
    fn data_may_fail(&self) -> u32 {
        let holds = self
            .blocks
            .live_pages()
            .div_ceil(u64::from(self.collector.dense_pages)) as u32;
        let works_with = self.gc_threshold_blocks() + 2 * self.geometry.planes() + 1;
        (self.blocks.for_data().len() as u32).saturating_sub(holds + works_with)
    }
}

/// Spare blocks of an area: now, and in a new device.
#[derive(Debug, Clone, Copy)]
pub(in crate::ftl) struct Spares {
    pub(in crate::ftl) left: u32,
    pub(in crate::ftl) new: u32,
}

impl Spares {
    fn is_short(self) -> bool {
        3 * self.left <= self.new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEAR: Wear = Wear {
        blocks: 100,
        out_of_service: 2,
        may_fail: 10,
        is_short: false,
        erases: [400, 500, 600],
        erases_total: 50_000,
    };

    #[test]
    fn the_end_comes_in_sight_by_erases_and_by_blocks() {
        assert_eq!(WEAR.end(None), EndOfLife::Far);
        assert_eq!(WEAR.end(Some(1_000)), EndOfLife::Far);
        assert_eq!(WEAR.end(Some(550)), EndOfLife::Near);
        assert_eq!(WEAR.end(Some(400)), EndOfLife::Near);
        let fewer = |may_fail, is_short| Wear {
            may_fail,
            is_short,
            ..WEAR
        };
        assert_eq!(fewer(3, false).end(Some(1_000)), EndOfLife::Far);
        assert_eq!(fewer(3, true).end(Some(1_000)), EndOfLife::Near);
        assert_eq!(fewer(0, true).end(Some(1_000)), EndOfLife::Here);
    }

    #[test]
    fn half_of_the_erases_in_ten_days_leave_ten_days() {
        assert!((WEAR.lasts(1_000, 10.0) - 10.0).abs() < 1e-9);
        assert_eq!(WEAR.lasts(400, 10.0), 0.0);
        let new = Wear {
            erases_total: 0,
            ..WEAR
        };
        assert_eq!(new.lasts(1_000, 10.0), f64::INFINITY);
    }
}
