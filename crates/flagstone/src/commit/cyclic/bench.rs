//! For the tests of the cyclic protocols: a small device, and rings that landed in part.

use super::recovery::judge;
use super::{Version, Versions};
use crate::commit::{Device, DeviceError, Kind, Options};
use crate::ftl::{Config, VictimPolicy};
use crate::nand::{Cell, Cut, Geometry, PowerCut, Shared, small};
use crate::units::{Lpn, Nanos, TxId};

pub(super) fn version(page: u32, number: u32) -> Version {
    Version {
        page: Lpn(page),
        number,
    }
}

/// P's newest version names one of Q: what the link of that says, where it is Q's newest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Walk {
    /// It leads back to P, where the walk has been.
    HasBeen,
    /// It names itself: that version is committed.
    Committed,
    /// It names what is not there: that version is uncommitted.
    Open,
}

impl Walk {
    pub(super) const ALL: [Walk; 3] = [Walk::HasBeen, Walk::Committed, Walk::Open];

    /// What number `own` of Q names, if P is page 0 with number 7, Q is page 1, and page 2 is
    /// blank.
    pub(super) fn link(self, own: u32) -> Version {
        match self {
            Walk::HasBeen => version(0, 7),
            Walk::Committed => version(1, own),
            Walk::Open => version(2, 1),
        }
    }
}

/// Whether the newest version of each of so many pages is committed.
pub(super) fn judged(found: &impl Versions, pages: u32) -> Vec<bool> {
    judge(pages, |page| found.verdict(page))
}

/// Rings over pages 0..4 in every order, and every subset of their programs: shows each page that
/// has landed with the one that it names, and whether all have.
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
    packages_per_channel: 1,
    planes_per_package: 2,
    blocks_per_plane: 12,
    pages_per_block: 5,
    page_bytes: 256,
    spare_bytes: 64,
    cell: Cell::Mlc,
    strict_order: true,
};

/// A device and the clock of its only user.
pub(super) struct Bench {
    kind: Kind,
    options: Options,
    flash: Shared<PowerCut>,
    pub(super) device: Option<Device>,
    pub(super) now: Nanos,
}

impl Bench {
    pub(super) fn new(kind: Kind, as_published: bool) -> Bench {
        let chip = small::chip(GEOMETRY);
        let options = Options {
            as_published,
            ..Options::default()
        };
        Bench::start(kind, options, PowerCut::new(chip))
    }

    fn start(kind: Kind, options: Options, flash: PowerCut) -> Bench {
        let flash = Shared::new(flash);
        let config = Config {
            over_provision: 0.0,
            logical_pages: Some(8),
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

    /// The power fails with `cut`, counted from now.
    pub(super) fn armed(kind: Kind, cut: Cut) -> Bench {
        let chip = small::chip(GEOMETRY);
        Bench::start(kind, Options::default(), PowerCut::new(chip).arm(cut))
    }

    /// Pulls the plug and starts again; everything in flight lands.
    pub(super) fn restart(mut self) -> Bench {
        self.device = None;
        let power = self.flash.take();
        let chip = match power.is_off() {
            true => power.into_chip(),
            false => power.pull(2, false),
        };
        Bench::start(self.kind, self.options, PowerCut::new(chip))
    }

    pub(super) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the power is on")
    }

    /// Begins a transaction that writes its number to pages.
    pub(super) fn open(&mut self, value: u8, pages: &[u32]) -> TxId {
        let tx = self.try_open(value, pages);
        tx.expect("the device takes the pages")
    }

    pub(super) fn try_open(&mut self, value: u8, pages: &[u32]) -> Result<TxId, DeviceError> {
        let now = self.now;
        let tx = self.device().begin(now)?;
        for &page in pages {
            let now = self.now;
            self.now = self.device().write(now, tx, Lpn(page), &[value])?.next;
        }
        Ok(tx)
    }

    pub(super) fn commit(&mut self, tx: TxId) -> Result<(), DeviceError> {
        let now = self.now;
        let done = self.device().commit(now, tx)?;
        self.now = done.expect("nothing waits for a group");
        Ok(())
    }

    pub(super) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("aborts succeed");
    }

    /// Commits one transaction over some pages.
    pub(super) fn put(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.commit(tx).expect("the power is on");
    }

    /// Rolls one transaction back.
    pub(super) fn drop(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.abort(tx);
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

    pub(super) fn check(&mut self) {
        self.device().check().expect("the books agree");
    }
}
