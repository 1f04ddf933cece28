//! How worn a device is, and how far from its end: the moment from which it takes no more writes.

use super::meta::{MetaBlock, MetaState};
use super::{BlockState, Ftl};
use crate::units::Pbn;

/// How worn the blocks of a device are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wear {
    /// Blocks in service.
    pub blocks: u32,
    /// Blocks that are bad from the factory or have failed since.
    pub out_of_service: u32,
    /// How many more blocks may fail before the device may be full: with what it holds now, and if
    /// they fail where they are needed most.
    pub may_fail: u32,
    /// Whether few of these are left in one of the areas: for data one of fifty blocks, or three;
    /// for roots, and for mapping pages and logs, a third of those that a new device has.
    pub is_short: bool,
    /// Erases of a block in service: the least, the median, the most. After a restart a block
    /// without a summary page counts as the mean of the others.
    pub erases: [u32; 3],
    /// Erases of all blocks in service together.
    pub erases_total: u64,
}

/// How near the end of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndOfLife {
    /// Not in sight.
    Far,
    /// It is time to copy what the device holds to another one.
    Near,
    /// The device may be full at the next write: it may end read-only.
    Here,
}

impl EndOfLife {
    /// The word that results have for it.
    pub const fn name(self) -> &'static str {
        match self {
            EndOfLife::Far => "far",
            EndOfLife::Near => "near",
            EndOfLife::Here => "here",
        }
    }

    /// By the share of what a maker promises that is used up.
    pub fn by_share(used: f64) -> EndOfLife {
        match used {
            used if used >= 1.0 => EndOfLife::Here,
            used if used >= Wear::NEAR => EndOfLife::Near,
            _ => EndOfLife::Far,
        }
    }
}

impl Wear {
    /// The share of the rated erases from which the end is near.
    pub const NEAR: f64 = 0.9;

    /// The share of their rated erases that the blocks have had.
    pub fn used(&self, rated: u32) -> f64 {
        self.erases_total as f64 / (f64::from(rated) * f64::from(self.blocks.max(1)))
    }

    /// How near the end is: by the blocks that may still fail, and, where it is known how many
    /// erases a block is rated for, by those. A device that is at its rated erases may live on, and
    /// its end is near.
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

    /// How long the blocks last until their rated erases, at the rate at which they were erased so
    /// far in a time; in its unit. Without end if nothing was erased.
    pub fn lasts(&self, rated: u32, time: f64) -> f64 {
        let used = self.used(rated);
        match used > 0.0 {
            true => ((1.0 - used) * time / used).max(0.0),
            false => f64::INFINITY,
        }
    }
}

impl Ftl {
    /// How worn the device is, and how many blocks may still fail.
    pub fn wear(&self) -> Wear {
        let is_bad = |block: &Pbn| self.block_state(*block) == BlockState::Bad;
        let all = (0..self.geometry.blocks()).map(Pbn);
        let (bad, good): (Vec<Pbn>, Vec<Pbn>) = all.partition(is_bad);
        let mut erases: Vec<u32> = good.iter().map(|&block| self.erases_of(block)).collect();
        erases.sort_unstable();
        let for_data = self.data_may_fail();
        let [for_roots, for_maps] = self.meta_spares();
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

    /// Blocks beyond those that hold what is live, and that the collector works with.
    fn data_may_fail(&self) -> u32 {
        let holds = self.live_pages().div_ceil(u64::from(self.dense_pages)) as u32;
        let works_with = self.gc_threshold_blocks() + 2 * self.geometry.planes() + 1;
        (self.data_blocks().len() as u32).saturating_sub(holds + works_with)
    }

    /// Blocks for roots, and for mapping pages and logs, beyond those that these areas cannot do
    /// without.
    fn meta_spares(&self) -> [Spares; 2] {
        let spares = |area: &[MetaBlock], needs: usize| {
            let bad = area.iter().filter(|it| it.state == MetaState::Bad);
            Spares {
                left: (area.len() - bad.count()).saturating_sub(needs) as u32,
                new: area.len().saturating_sub(needs) as u32,
            }
        };
        let roots = spares(&self.meta.anchors, 2 * self.meta.root_in.len().max(1));
        if self.meta.pool.is_empty() {
            return [roots; 2];
        }
        let table = self
            .meta
            .full_checkpoint_blocks(self.pairs.meta_pages.len() as u32);
        let needs = 2 * table + 2 * self.meta.open_log.len();
        [roots, spares(&self.meta.pool, needs)]
    }
}

/// Blocks of an area beyond those that it cannot do without: now, and in a new device.
#[derive(Debug, Clone, Copy)]
struct Spares {
    left: u32,
    new: u32,
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
