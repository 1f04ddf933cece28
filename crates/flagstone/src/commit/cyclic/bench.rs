//! A small device for the tests of the cyclic protocols.

use crate::commit::{Device, DeviceError, Kind, Options};
use crate::ftl::{Config, VictimPolicy};
use crate::nand::{Cell, Cut, Geometry, PowerCut, Shared, small};
use crate::units::{Lpn, Nanos, TxId};

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
pub(in crate::commit) struct Bench {
    kind: Kind,
    options: Options,
    flash: Shared<PowerCut>,
    pub(in crate::commit) device: Option<Device>,
    pub(in crate::commit) now: Nanos,
}

impl Bench {
    pub(in crate::commit) fn new(kind: Kind, as_published: bool) -> Bench {
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
    pub(in crate::commit) fn armed(kind: Kind, cut: Cut) -> Bench {
        let chip = small::chip(GEOMETRY);
        Bench::start(kind, Options::default(), PowerCut::new(chip).arm(cut))
    }

    /// Pulls the plug and starts again; everything in flight lands.
    pub(in crate::commit) fn restart(mut self) -> Bench {
        self.device = None;
        let power = self.flash.take();
        let chip = match power.is_off() {
            true => power.into_chip(),
            false => power.pull(2, false),
        };
        Bench::start(self.kind, self.options, PowerCut::new(chip))
    }

    pub(in crate::commit) fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("the power is on")
    }

    /// Begins a transaction that writes its number to pages.
    pub(in crate::commit) fn open(&mut self, value: u8, pages: &[u32]) -> TxId {
        let tx = self.try_open(value, pages);
        tx.expect("the device takes the pages")
    }

    pub(in crate::commit) fn try_open(
        &mut self,
        value: u8,
        pages: &[u32],
    ) -> Result<TxId, DeviceError> {
        let now = self.now;
        let tx = self.device().begin(now)?;
        for &page in pages {
            let now = self.now;
            self.now = self.device().write(now, tx, Lpn(page), &[value])?.next;
        }
        Ok(tx)
    }

    pub(in crate::commit) fn commit(&mut self, tx: TxId) -> Result<(), DeviceError> {
        let now = self.now;
        let done = self.device().commit(now, tx)?;
        self.now = done.expect("nothing waits for a group");
        Ok(())
    }

    pub(in crate::commit) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("aborts succeed");
    }

    /// Commits one transaction over some pages.
    pub(in crate::commit) fn put(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.commit(tx).expect("the power is on");
    }

    /// Rolls one transaction back.
    pub(in crate::commit) fn drop(&mut self, value: u8, pages: &[u32]) {
        let tx = self.open(value, pages);
        self.abort(tx);
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

    pub(in crate::commit) fn check(&mut self) {
        self.device().check().expect("the books agree");
    }
}

/// Pages that the transactions of [`every_cut`] write, and whether each commits.
const HISTORY: [(&[u32], bool); 14] = [
    (&[0, 1, 2], true),
    (&[1, 3], false),
    (&[3], true),
    (&[2, 1, 0, 3], true),
    (&[0], false),
    (&[0, 1], false),
    (&[1, 0], true),
    (&[2, 3, 1], false),
    (&[3, 2], true),
    (&[1], true),
    (&[0, 1, 2, 3], false),
    (&[0, 1, 2, 3], true),
    (&[3, 0], false),
    (&[3, 1, 0], true),
];

/// A power cut at every operation of a history: what was acknowledged is there, and the transaction
/// that the cut fell into is all there or not at all. Then the device goes on.
pub(in crate::commit) fn every_cut(kind: Kind) {
    for at in 0.. {
        let mut fell = false;
        for dice in 0..24 {
            let torn = dice % 3 == 2;
            let mut bench = Bench::armed(kind, Cut { at, dice, torn });
            let (mut now, mut next) = ([0; 4], [0; 4]);
            for (i, &(pages, commits)) in HISTORY.iter().cycle().take(42).enumerate() {
                let value = i as u8 + 1;
                let outcome = bench.try_open(value, pages).and_then(|tx| {
                    if commits {
                        pages.iter().for_each(|&page| next[page as usize] = value);
                        return bench.commit(tx);
                    }
                    bench.abort(tx);
                    Ok(())
                });
                fell = outcome.is_err();
                if fell {
                    break;
                }
                now = next;
            }
            let mut bench = bench.restart();
            let found = bench.values(4);
            assert!(
                found == now || found == next,
                "cut {at}, dice {dice}: {found:?} is neither {now:?} nor {next:?}"
            );
            bench.put(200, &[3, 1]);
            bench.drop(201, &[2, 0]);
            bench.put(202, &[2]);
            bench.check();
            let mut bench = bench.restart();
            assert_eq!(
                bench.values(4),
                [found[0], 200, 202, 200],
                "cut {at}, dice {dice}"
            );
        }
        if !fell {
            assert!(at > 60, "the history has more operations than {at}");
            return;
        }
    }
}
