//! A small device for the tests of CFC and AFC, blank or with pages laid out by hand.

use super::{Link, Tail, spare};
use crate::commit::small_device::Small;
use crate::commit::{Kind, Options};
use crate::ftl::{Config, Header, PageKind, header};
use crate::nand::{Chip, Flash, Geometry, small};
use crate::settings::Settings;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    blocks_per_plane: 32,
    pages_per_block: 5,
    strict_order: false,
    ..small::GEOMETRY
};

/// A page constructed by a test, in the given block and place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Laid {
    pub(super) at: (u32, u32),
    pub(super) lpn: u32,
    pub(super) xid: u64,
    /// The page's write sequence, and its version.
    pub(super) seq: u64,
    pub(super) link: Option<Link>,
    pub(super) flag: u8,
}

/// A link to the page that `laid` describes.
pub(super) fn link_to(laid: Laid) -> Option<Link> {
    Some(Link::to(place(laid.at), laid.seq))
}

/// All ways to link three pages of a transaction, each to an older one or to none.
pub(super) fn shapes() -> Vec<[Option<usize>; 3]> {
    let second = [None, Some(0)];
    let third = [None, Some(0), Some(1)];
    let pairs = second.iter().flat_map(|&b| third.map(|c| (b, c)));
    pairs.map(|(b, c)| [None, b, c]).collect()
}

/// A transaction of three pages, with links and flags, in one block or in one block each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Three {
    pub(super) links: [Option<usize>; 3],
    pub(super) flags: [u8; 3],
    pub(super) apart: bool,
    pub(super) block_flags: bool,
}

impl Three {
    /// All transactions with these links and flags.
    pub(super) fn all(links: &[[Option<usize>; 3]], flags: &[u8]) -> Vec<Three> {
        let mut all = Vec::new();
        for places in 0..flags.len().pow(3) {
            let flag = |page| flags[places / flags.len().pow(page) % flags.len()];
            for &links in links {
                for (apart, block_flags) in
                    [(true, true), (true, false), (false, true), (false, false)]
                {
                    all.push(Three {
                        links,
                        flags: [0, 1, 2].map(flag),
                        apart,
                        block_flags,
                    });
                }
            }
        }
        all
    }

    /// Whether all pages share one flag.
    pub(super) fn is_cluster(&self) -> bool {
        self.block_flags && !self.apart
    }

    /// The pages, of transaction 5: page `i` of the device contains `20 + i`.
    fn lay(&self) -> Vec<Laid> {
        let mut pages: Vec<Laid> = Vec::new();
        for (page, (link, flag)) in (0..).zip(self.links.into_iter().zip(self.flags)) {
            pages.push(Laid {
                at: if self.apart {
                    (10 + page, 0)
                } else {
                    (10, page)
                },
                lpn: page,
                xid: 5,
                seq: 20 + u64::from(page),
                link: link.and_then(|to| link_to(pages[to])),
                flag,
            });
        }
        pages
    }

    /// Which of the pages count. Also checks their contents.
    pub(super) fn counting(&self, kind: Kind) -> [bool; 3] {
        let options = Options::default().with("block_flags", self.block_flags);
        let values = laid(kind, options, &self.lay()).values(3);
        [0, 1, 2].map(|page| {
            let value = values[page];
            assert!(value == 0 || usize::from(value) == 20 + page, "{self:?}");
            value > 0
        })
    }
}

/// Options for page flags, in the repaired or the printed form.
pub(super) fn page_flags(as_published: bool) -> Options {
    Options {
        as_published,
        ..Options::default().with("block_flags", false)
    }
}

fn place((block, page): (u32, u32)) -> Ppn {
    GEOMETRY.page(Pbn(block), page)
}

/// A blank device.
pub(super) fn bench(kind: Kind, block_flags: bool, strict_order: bool) -> Small {
    let geometry = Geometry {
        strict_order,
        ..GEOMETRY
    };
    let settings = Settings::new().with("block_flags", block_flags);
    let options = Options {
        settings: settings.keep_those_of(kind.info()),
        ..Options::default()
    };
    start(kind, options, small::chip(geometry))
}

/// A device that holds these pages. The contents of each is one byte, its write sequence.
pub(super) fn laid(kind: Kind, options: Options, pages: &[Laid]) -> Small {
    let mut chip = small::chip(GEOMETRY);
    for page in pages {
        let mut bytes = [0xff; header::SIZE + spare::SIZE];
        let (kind, lpn, seq) = (PageKind::Data, Lpn(page.lpn), page.seq);
        Header { kind, lpn, seq }.emit(&mut bytes);
        let tail = Tail {
            version: page.seq,
            xid: TxId(page.xid),
            link: page.link,
            born: page.flag,
            flag: page.flag,
        };
        tail.emit(&mut bytes[header::SIZE..]);
        chip.program(Nanos::ZERO, place(page.at), &[page.seq as u8], &bytes)
            .expect("the page is blank");
    }
    start(kind, options, chip)
}

fn start(kind: Kind, options: Options, mut chip: Chip) -> Small {
    chip.reset_time();
    Small::on(chip, Config::small(12, Some(2)), kind, options)
}

/// Commits small transactions over `pages` until `collections` blocks have been collected.
pub(super) fn churn(bench: &mut Small, pages: &[u32], collections: u64) {
    let until = bench.device().stats().collections + collections;
    while bench.device().stats().collections < until {
        bench.set(99, pages);
    }
}
