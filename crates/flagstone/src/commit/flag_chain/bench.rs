//! A small device for the tests of CFC and AFC, blank or with pages laid out by hand.

use super::{Link, Tail, spare};
use crate::commit::{Device, Kind, Options};
use crate::ftl::{Cause, Config, Header, Kind as PageKind, Operation, VictimPolicy, header};
use crate::nand::{Cell, Chip, Flash, Geometry, PowerCut, Shared, small};
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
pub(in crate::commit) struct Laid {
    pub(in crate::commit) at: (u32, u32),
    pub(in crate::commit) lpn: u32,
    pub(in crate::commit) xid: u64,
    /// Its write sequence and its version.
    pub(in crate::commit) seq: u64,
    pub(in crate::commit) link: Option<Link>,
    pub(in crate::commit) flag: u8,
}

/// A link to the page that `laid` becomes.
pub(in crate::commit) fn link_to(laid: Laid) -> Option<Link> {
    Some(Link::to(place(laid.at), laid.seq))
}

/// Every way in which three pages of a transaction can be linked, each to an older one or to none.
pub(in crate::commit) fn shapes() -> Vec<[Option<usize>; 3]> {
    let second = [None, Some(0)];
    let third = [None, Some(0), Some(1)];
    let pairs = second.iter().flat_map(|&b| third.map(|c| (b, c)));
    pairs.map(|(b, c)| [None, b, c]).collect()
}

/// Three pages of transaction 5 with these links and flags, in one block or in one each. Page `i`
/// of the device has `20 + i`.
pub(in crate::commit) fn lay(links: [Option<usize>; 3], flags: [u8; 3], apart: bool) -> Vec<Laid> {
    let mut pages: Vec<Laid> = Vec::new();
    for (page, (link, flag)) in (0..).zip(links.into_iter().zip(flags)) {
        pages.push(Laid {
            at: if apart { (10 + page, 0) } else { (10, page) },
            lpn: page,
            xid: 5,
            seq: 20 + u64::from(page),
            link: link.and_then(|to| link_to(pages[to])),
            flag,
        });
    }
    pages
}

/// Which of the pages that were laid out count, and that they say what was laid out.
pub(in crate::commit) fn counting(kind: Kind, options: Options, pages: &[Laid]) -> Vec<bool> {
    let values = Bench::laid(kind, options, pages).values(pages.len() as u32);
    let counts = |(page, value): (&Laid, u8)| {
        assert!(value == 0 || u64::from(value) == page.seq, "page {page:?}");
        value > 0
    };
    pages.iter().zip(values).map(counts).collect()
}

fn place((block, page): (u32, u32)) -> Ppn {
    GEOMETRY.page(Pbn(block), page)
}

/// A device and the clock of its only user.
pub(in crate::commit) struct Bench {
    kind: Kind,
    options: Options,
    flash: Shared<PowerCut>,
    device: Option<Device>,
    pub(in crate::commit) now: Nanos,
}

impl Bench {
    /// A blank device.
    pub(in crate::commit) fn new(kind: Kind, block_flags: bool, strict_order: bool) -> Bench {
        let geometry = Geometry {
            strict_order,
            ..GEOMETRY
        };
        let options = Options {
            block_flags,
            ..Options::default()
        };
        Bench::start(kind, options, small::chip(geometry))
    }

    /// A device that holds these pages; each has its write sequence as its only byte.
    pub(in crate::commit) fn laid(kind: Kind, options: Options, pages: &[Laid]) -> Bench {
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
    pub(in crate::commit) fn restart(mut self) -> Bench {
        self.device = None;
        let chip = self.flash.take().pull(2, false);
        Bench::start(self.kind, self.options, chip)
    }

    pub(in crate::commit) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the power is on")
    }

    /// Begins a transaction that writes its number to pages.
    pub(in crate::commit) fn open(&mut self, value: u8, pages: &[u32]) -> TxId {
        let now = self.now;
        let tx = self.device().begin(now).expect("it begins");
        self.write(tx, value, pages);
        tx
    }

    /// Writes to pages in a transaction.
    pub(in crate::commit) fn write(&mut self, tx: TxId, value: u8, pages: &[u32]) {
        for &page in pages {
            let now = self.now;
            let write = self.device().write(now, tx, Lpn(page), &[value]);
            self.now = write.expect("the device takes the page").next;
        }
    }

    pub(in crate::commit) fn commit(&mut self, tx: TxId) {
        let now = self.now;
        let done = self.device().commit(now, tx).expect("the power is on");
        self.now = done.expect("nothing waits for a group");
        self.device().check().expect("the books agree");
    }

    pub(in crate::commit) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("aborts succeed");
    }

    pub(in crate::commit) fn put(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.commit(tx);
    }

    /// Commits small transactions over some pages until so many blocks have been collected.
    pub(in crate::commit) fn churn(&mut self, pages: &[u32], collections: u64) {
        let until = self.device().stats().collections + collections;
        while self.device().stats().collections < until {
            self.put(99, pages);
        }
    }

    /// What the first pages hold; 0 is nothing.
    pub(in crate::commit) fn values(&mut self, pages: u32) -> Vec<u8> {
        let now = self.now;
        (0..pages)
            .map(|page| {
                let (_, bytes) = self.device().read(now, None, Lpn(page)).expect("it reads");
                bytes.map_or(0, |bytes| bytes[0])
            })
            .collect()
    }

    pub(in crate::commit) fn count(&mut self, operation: Operation, cause: Cause) -> u64 {
        self.device().stats().count(operation, cause)
    }
}
