//! A small device for the tests of CFC and AFC, blank or with pages laid out by hand.

use super::{Link, Tail, spare};
use crate::commit::{Device, Kind, Options};
use crate::ftl::{Cause, Config, Header, Kind as PageKind, Operation, VictimPolicy, header};
use crate::nand::{Cell, Chip, Flash, Geometry, PowerCut, Shared, small};
use crate::settings::Settings;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    packages_per_channel: 1,
    planes_per_package: 1,
    blocks_per_plane: 32,
    pages_per_block: 5,
    page_bytes: 256,
    spare_bytes: 64,
    cell: Cell::Slc {
        partial_programs: 2,
    },
    strict_order: false,
};

/// A page laid out by hand, in the block and at the place given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Laid {
    pub(super) at: (u32, u32),
    pub(super) lpn: u32,
    pub(super) xid: u64,
    /// Its write sequence and its version.
    pub(super) seq: u64,
    pub(super) link: Option<Link>,
    pub(super) flag: u8,
}

/// A link to the page that `laid` becomes.
pub(super) fn link_to(laid: Laid) -> Option<Link> {
    Some(Link::to(place(laid.at), laid.seq))
}

/// Every way in which three pages of a transaction can be linked, each to an older one or to none.
pub(super) fn shapes() -> Vec<[Option<usize>; 3]> {
    let second = [None, Some(0)];
    let third = [None, Some(0), Some(1)];
    let pairs = second.iter().flat_map(|&b| third.map(|c| (b, c)));
    pairs.map(|(b, c)| [None, b, c]).collect()
}

/// A transaction of three pages: how they are linked and flagged, in one block or in one each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Three {
    pub(super) links: [Option<usize>; 3],
    pub(super) flags: [u8; 3],
    pub(super) apart: bool,
    pub(super) block_flags: bool,
}

impl Three {
    /// All that there are with these links and flags.
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

    /// Whether one flag stands for all pages.
    pub(super) fn is_cluster(&self) -> bool {
        self.block_flags && !self.apart
    }

    /// The pages, of transaction 5: page `i` of the device has `20 + i`.
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

    /// Which of the pages count, and that they say what was laid out.
    pub(super) fn counting(&self, kind: Kind) -> [bool; 3] {
        let options = Options::default().with("block_flags", self.block_flags);
        let values = Bench::laid(kind, options, &self.lay()).values(3);
        [0, 1, 2].map(|page| {
            let value = values[page];
            assert!(value == 0 || usize::from(value) == 20 + page, "{self:?}");
            value > 0
        })
    }
}

/// The options of the repaired form or of the printed one, with flags for pages.
pub(super) fn page_flags(as_published: bool) -> Options {
    Options {
        as_published,
        ..Options::default().with("block_flags", false)
    }
}

fn place((block, page): (u32, u32)) -> Ppn {
    GEOMETRY.page(Pbn(block), page)
}

/// A device and the clock of its only user.
pub(super) struct Bench {
    kind: Kind,
    options: Options,
    flash: Shared<PowerCut>,
    device: Option<Device>,
    pub(super) now: Nanos,
}

impl Bench {
    /// A blank device.
    pub(super) fn new(kind: Kind, block_flags: bool, strict_order: bool) -> Bench {
        let geometry = Geometry {
            strict_order,
            ..GEOMETRY
        };
        let settings = Settings::new().with("block_flags", block_flags);
        let options = Options {
            settings: settings.keep_those_of(kind.info()),
            ..Options::default()
        };
        Bench::start(kind, options, small::chip(geometry))
    }

    /// A device that holds these pages; each has its write sequence as its only byte.
    pub(super) fn laid(kind: Kind, options: Options, pages: &[Laid]) -> Bench {
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
        Bench::start(kind, options, chip)
    }

    fn start(kind: Kind, options: Options, mut chip: Chip) -> Bench {
        chip.reset_time();
        let flash = Shared::new(PowerCut::new(chip));
        let config = Config {
            over_provision: 0.0,
            logical_pages: Some(12),
            gc_threshold: 0.0,
            victims: VictimPolicy::Greedy,
            static_wear_gap: Some(2),
            copies_stay: false,
            summary_pages: true,
        };
        let opened = Device::open(Box::new(flash.clone()), kind, config, &options, Nanos::ZERO);
        let device = opened.expect("no power cut falls into recovery");
        device.check().expect("the books agree after recovery");
        Bench {
            kind,
            options,
            now: device.recovered_at(),
            flash,
            device: Some(device),
        }
    }

    /// Pulls the plug and starts again; everything in flight lands.
    pub(super) fn restart(mut self) -> Bench {
        self.device = None;
        let chip = self.flash.take().pull(2, false);
        Bench::start(self.kind, self.options, chip)
    }

    pub(super) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the power is on")
    }

    /// Begins a transaction that writes its number to pages.
    pub(super) fn open(&mut self, value: u8, pages: &[u32]) -> TxId {
        let now = self.now;
        let tx = self.device().begin(now).expect("it begins");
        self.write(tx, value, pages);
        tx
    }

    /// Writes to pages in a transaction.
    pub(super) fn write(&mut self, tx: TxId, value: u8, pages: &[u32]) {
        for &page in pages {
            let now = self.now;
            let write = self.device().write(now, tx, Lpn(page), &[value]);
            self.now = write.expect("the device takes the page").next;
        }
    }

    pub(super) fn commit(&mut self, tx: TxId) {
        let now = self.now;
        let done = self.device().commit(now, tx).expect("the power is on");
        self.now = done.expect("nothing waits for a group");
        self.device().check().expect("the books agree");
    }

    pub(super) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("aborts succeed");
    }

    pub(super) fn put(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.commit(tx);
    }

    /// Commits small transactions over some pages until so many blocks have been collected.
    pub(super) fn churn(&mut self, pages: &[u32], collections: u64) {
        let until = self.device().stats().collections + collections;
        while self.device().stats().collections < until {
            self.put(99, pages);
        }
    }

    /// What the first pages hold; 0 is nothing.
    pub(super) fn values(&mut self, pages: u32) -> Vec<u8> {
        let now = self.now;
        (0..pages)
            .map(|page| {
                let (_, bytes) = self.device().read(now, None, Lpn(page)).expect("it reads");
                bytes.map_or(0, |bytes| bytes[0])
            })
            .collect()
    }

    pub(super) fn count(&mut self, operation: Operation, cause: Cause) -> u64 {
        self.device().stats().count(operation, cause)
    }
}
