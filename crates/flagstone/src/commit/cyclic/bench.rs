//! Test fixtures of the cyclic protocols: a small device, and rings that have landed in part.

use super::recovery::judge;
use super::{Version, Versions};
use crate::commit::small_device::Small;
use crate::commit::{Kind, Options};
use crate::ftl::Config;
use crate::nand::{Cell, Geometry, small};
use crate::units::Lpn;

pub(super) fn version(page: u32, number: u32) -> Version {
    Version {
        page: Lpn(page),
        number,
    }
}

/// P's newest version links to Q. The meaning of the link in Q's newest version:
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Walk {
    /// The link leads back to P, which the walk has visited.
    HasBeen,
    /// The link refers to its own version: that version is committed.
    Committed,
    /// The link refers to a missing version: this version is uncommitted.
    Open,
}

impl Walk {
    pub(super) const ALL: [Walk; 3] = [Walk::HasBeen, Walk::Committed, Walk::Open];

    /// The link of number `own` of Q. P is page 0 with number 7, Q is page 1, and page 2 is blank.
    pub(super) fn link(self, own: u32) -> Version {
        match self {
            Walk::HasBeen => version(0, 7),
            Walk::Committed => version(1, own),
            Walk::Open => version(2, 1),
        }
    }
}

/// Whether the newest version of each of the first `pages` pages is committed.
pub(super) fn judged(found: &impl Versions, pages: u32) -> Vec<bool> {
    judge(pages, |page| found.verdict(page))
}

/// Rings over pages 0..4 in every order, and every subset of their programs. Passes each landed
/// page with its link to `see`, and whether all have landed.
pub(super) fn every_ring(mut see: impl FnMut(&[(u32, u32)], bool)) {
    for order in 0..4u32.pow(4) {
        let pages: Vec<u32> = (0..4).map(|i| order / 4u32.pow(i) % 4).collect();
        for len in 1..=4 {
            let ring = &pages[..len];
            if (1..len).any(|i| ring[..i].contains(&ring[i])) {
                continue;
            }
            for bits in 0..1 << len {
                let landed = (0..len).filter(|i| bits >> i & 1 == 1);
                let landed: Vec<_> = landed.map(|i| (ring[i], ring[(i + 1) % len])).collect();
                see(&landed, landed.len() == len);
            }
        }
    }
}

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    planes_per_package: 2,
    blocks_per_plane: 12,
    pages_per_block: 5,
    cell: Cell::Mlc,
    ..small::GEOMETRY
};

/// A blank device.
pub(super) fn bench(kind: Kind, as_published: bool) -> Small {
    let options = Options {
        as_published,
        ..Options::default()
    };
    bench_with(kind, options)
}

/// Like [`bench`], with options.
pub(super) fn bench_with(kind: Kind, options: Options) -> Small {
    let config = Config::small(8, Some(2));
    Small::on(small::chip(GEOMETRY), config, kind, options)
}
