//! Multi-head logging with data clustering (MHL-D).
//!
//! Paper       [LightTx] §4.1, where it is a baseline; its recovery and mapping persistence are
//!             those of LightTx there.
//! Idea        The flash is written as several logs side by side. A transaction is bound to the
//!             head of one when it begins, so that its pages follow each other in it, and its last
//!             page ends and counts it.
//! Commit      The program that makes the pages on flash as many as the last one says.
//! Cost        k programs for k pages, one after the other on one plane: a transaction alone does
//!             not use the planes side by side. Checkpoints and recovery as LightTx.
//!
//!   spare     | header: kind lpn seq | TxID 4 | count, 0 until the end 4 | TxVer 4 |
//!   head h    | T5 | T5 | T5 end 3 | T9 | T9 end 2 | T12 | ...
//!   root      | ckptVer | last TxID | Available blocks | Unavailable blocks |      super::zones
//!
//! Invariants  1 to 5 of [`super::lighttx`].
//!             6. A head serves one transaction at a time, so that pages of others never come
//!                between its pages as long as the zone has a block on the head's planes.
//!
//! Recovery    @A to @G of [`super::lighttx`]: the end flag is a count that is not 0.
//!
//! Departures  D1 to D5 of [`super::lighttx`] hold here from the start.
//!             D6. The paper gives a head a package; a head takes the planes of its package block
//!                 by block, which keeps their wear and their free space even.
//!             D7. A transaction that finds no head is refused. The caller of the device has it
//!                 wait.
//!             D8. Where the zone has no block left on the head's planes, its pages go elsewhere.
//!                 They are counted, not followed, so it does not matter where they are.

use super::Rule;
use crate::commit::{HEADS_MAX, Heads, Info, LOG_HEADS, Options, Recovered, heads};
use crate::ftl::{Ftl, FtlError, Mounted, Stream};

pub(in crate::commit) const INFO: Info = Info {
    name: "mhl-d",
    idea: "pages of a transaction follow each other in the log of its head; the last counts them",
    section: "§4.1",
    live_max: Some(HEADS_MAX),
    settings: &[super::ZONE_BLOCKS, super::MAP_CACHE, LOG_HEADS],
    ..super::INFO
};

#[derive(Clone)]
struct MhlD {
    heads: Heads,
    /// The plane to which each head writes.
    planes: Vec<u32>,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let planes = ftl.geometry().planes();
    let heads = heads(&INFO, ftl.geometry(), options)?.min(planes);
    let rule = MhlD {
        heads: Heads::new(heads),
        planes: (0..heads).map(|head| head * planes / heads).collect(),
    };
    super::recover(ftl, &mounted, &INFO, options, rule, false, false)
}

impl Rule for MhlD {
    fn live_max(&self) -> Option<u32> {
        Some(self.heads.count)
    }

    fn begin(&mut self) -> Option<u32> {
        Some(self.heads.take())
    }

    /// The plane of the head; the next of the head's planes once the block there is full.
    fn plane(&mut self, ftl: &Ftl, head: Option<u32>) -> Option<u32> {
        let (head, heads) = (head.expect("begin gave one"), self.heads.count);
        let planes = ftl.geometry().planes();
        let (first, end) = (head * planes / heads, (head + 1) * planes / heads);
        let plane = &mut self.planes[head as usize];
        if ftl.writer.open_on(Stream::Host, *plane).is_none() {
            *plane = if *plane + 1 < end { *plane + 1 } else { first };
        }
        Some(*plane)
    }

    fn end(&mut self, head: Option<u32>) {
        head.into_iter().for_each(|head| self.heads.give(head));
    }

    fn memory(&self) -> Option<(&'static str, u64)> {
        Some(("heads", u64::from(self.heads.count) * 8))
    }
}
