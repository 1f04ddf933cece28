//! A small device for the tests of CFC and AFC, blank or with pages laid out by hand.

use crate::layouts::{field, size};
use crate::small_device::{Small, form};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Config, Header, PageKind, header};
use flagstone::layout::put;
use flagstone::nand::{Chip, Flash, Geometry, small};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos, Pbn, Ppn};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    blocks_per_plane: 32,
    pages_per_block: 5,
    strict_order: false,
    ..small::GEOMETRY
};

/// A page constructed by a test, in the given block and place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Laid {
    pub(crate) at: (u32, u32),
    pub(crate) lpn: u32,
    pub(crate) xid: u64,
    /// The page's write sequence, and its version.
    pub(crate) seq: u64,
    /// The page that it links to, and the write sequence of that page.
    pub(crate) link: Option<(Ppn, u64)>,
    pub(crate) flag: u8,
}

/// A link to the page that `laid` describes.
pub(crate) fn link_to(laid: Laid) -> Option<(Ppn, u64)> {
    Some((place(laid.at), laid.seq))
}

/// All ways to link three pages of a transaction, each to an older one or to none.
pub(crate) fn shapes() -> Vec<[Option<usize>; 3]> {
    let second = [None, Some(0)];
    let third = [None, Some(0), Some(1)];
    let pairs = second.iter().flat_map(|&b| third.map(|c| (b, c)));
    pairs.map(|(b, c)| [None, b, c]).collect()
}

/// A transaction of three pages, with links and flags, in one block or in one block each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Three {
    pub(crate) links: [Option<usize>; 3],
    pub(crate) flags: [u8; 3],
    pub(crate) apart: bool,
    pub(crate) block_flags: bool,
}

impl Three {
    /// All transactions with these links and flags.
    pub(crate) fn all(links: &[[Option<usize>; 3]], flags: &[u8]) -> Vec<Three> {
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
    pub(crate) fn is_cluster(&self) -> bool {
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
    pub(crate) fn counting(&self, kind: Kind) -> [bool; 3] {
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
pub(crate) fn page_flags(as_published: bool) -> Options {
    form(as_published).with("block_flags", false)
}

fn place((block, page): (u32, u32)) -> Ppn {
    GEOMETRY.page(Pbn(block), page)
}

/// A blank device.
pub(crate) fn bench(kind: Kind, block_flags: bool, strict_order: bool) -> Small {
    let geometry = Geometry {
        strict_order,
        ..GEOMETRY
    };
    let settings = Settings::new().with("block_flags", block_flags);
    let mut options = Options::default();
    options.settings = settings.keep_those_of(kind.info());
    start(kind, options, small::chip(geometry))
}

/// A device that holds these pages. The contents of each is one byte, its write sequence.
pub(crate) fn laid(kind: Kind, options: Options, pages: &[Laid]) -> Small {
    let mut chip = small::chip(GEOMETRY);
    for page in pages {
        let mut bytes = vec![0xff; header::SIZE + size("flag_chain::spare")];
        let (kind, lpn, seq) = (PageKind::Data, Lpn(page.lpn), page.seq);
        Header { kind, lpn, seq }.emit(&mut bytes);
        let mut tail = |name, value| {
            let field = field("flag_chain::spare", name);
            put(&mut bytes[header::SIZE..], field, value);
        };
        tail("VERSION", page.seq);
        tail("XID", page.xid);
        if let Some((at, seq)) = page.link {
            tail("LINK", at.0.into());
            tail("LINK_SEQ", seq);
        }
        tail("BORN", page.flag.into());
        tail("FLAG", page.flag.into());
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
pub(crate) fn churn(bench: &mut Small, pages: &[u32], collections: u64) {
    let until = bench.device().stats().collections + collections;
    while bench.device().stats().collections < until {
        bench.set(99, pages);
    }
}
