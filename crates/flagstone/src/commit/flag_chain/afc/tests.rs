//! What a flag says, and a collection that stops half-way.

use super::*;
use crate::commit::{Device, Kind, Options};
use crate::ftl::Config;
use crate::nand::small::{self, EVERYTHING};
use crate::nand::{Flash, Geometry, PowerCut, Shared};
use crate::units::Pbn;

#[test]
fn a_flag_is_two_bits_of_four_cells() {
    for flag in 0..=u8::MAX {
        let bit = |cells: u8| cells.count_ones() >= 2;
        let right = matches!((bit(flag >> 4), bit(flag & 0x0f)), (true, false));
        assert_eq!(is_true(flag), right, "{flag:08b}");
    }
    let whole = [FALSE_AT_FIRST, TRUE, FALSE, 0x0f].map(is_true);
    assert_eq!(whole, [false, true, false, false]);
}

/// A device, and the clock of its only user.
struct Bench {
    device: Device,
    now: Nanos,
}

impl Bench {
    fn open(flash: impl Flash + 'static) -> Bench {
        let options = Options::default().with("block_flags", false);
        let config = Config::small(12, Some(2));
        let device = Device::open(Box::new(flash), Kind::Afc, config, &options, Nanos::ZERO);
        let device = device.expect("recovery only reads");
        let now = device.recovered_at();
        Bench { device, now }
    }

    fn begin(&mut self) -> TxId {
        self.device
            .begin(self.now)
            .expect("a transaction can begin")
    }

    fn write(&mut self, tx: TxId, at: u32, value: u8) {
        let taken = self.device.write(self.now, tx, Lpn(at), &[value]);
        self.now = taken.expect("it can be written").next;
    }

    /// The block that holds a page.
    fn block_of(&self, at: u32) -> Pbn {
        let ftl = self.device.ftl();
        let page = ftl.slot(Lpn(at)).ppn().expect("it was written");
        ftl.geometry().block_of(page)
    }

    /// Commits a transaction that writes 1 to pages.
    fn set(&mut self, pages: &[u32]) {
        let tx = self.begin();
        for &at in pages {
            self.write(tx, at, 1);
        }
        let done = self.device.commit(self.now, tx).expect("it can commit");
        self.now = done.expect("no group is waited for");
        self.device.check().expect("the books agree");
    }
}

/// The collector may have to stop half-way. Pages that it has not flagged by then are not FALSE.
#[test]
fn d8_a_collection_without_room_for_its_carriers_has_flagged_only_those_that_it_wrote() {
    let geometry = Geometry {
        channels: 1,
        blocks_per_plane: 32,
        pages_per_block: 5,
        ..small::GEOMETRY
    };
    let mut flash = Shared::new(PowerCut::new(small::chip(geometry)));
    let mut bench = Bench::open(flash.clone());
    bench.set(&[0, 1, 2, 3]);
    // All pages but the first link to the second; these two have separate blocks.
    let tx = bench.begin();
    bench.write(tx, 0, 200);
    let first = bench.block_of(0);
    bench.set(&[8, 9, 10]);
    bench.write(tx, 1, 200);
    let second = bench.block_of(1);
    bench.set(&[8, 9, 10]);
    let mut others = Vec::new();
    for write in 0..60 {
        let page = 2 + write % 2;
        bench.write(tx, page, 200);
        others.push(bench.block_of(page));
    }
    others.dedup();
    let done = bench.device.abort(bench.now, tx);
    bench.now = done.expect("it can be aborted");

    let refused = bench.device.collect_at_once(bench.now, second);
    assert!(matches!(refused, Err(FtlError::Full { .. })), "{refused:?}");
    // The flagged pages are among the oldest. Without them another page must be FALSE.
    others.truncate(others.len() - 3);
    for block in std::iter::once(first).chain(others) {
        // At most one flag.
        let done = bench.device.collect_at_once(bench.now, block);
        bench.now = done.expect("it can be collected");
        bench.device.check().expect("the books agree");
    }
    drop(bench);
    small::restart(&mut flash, EVERYTHING, false, None);
    let mut bench = Bench::open(flash);
    for at in 0..4 {
        let (_, bytes) = bench
            .device
            .read(bench.now, None, Lpn(at))
            .expect("it reads");
        assert_eq!(bytes, Some(&[1][..]), "page {at}");
    }
}
