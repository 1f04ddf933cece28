//! Protocols with incremental collection: no request waits for a whole collection. Campaigns of the
//! lab cut the power between two steps.

use crate::small_device::{Small, below};
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{BlockState, Config, FtlError, Leisure};
use flagstone::nand::Geometry;
use flagstone::nand::small::{self, Programmed, Watched};
use flagstone::units::{Lpn, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGES: u32 = 320;
const PAGES_PER_BLOCK: u32 = 16;

/// The protocols that support it.
const IN_STEPS: [Kind; 2] = [Kind::Seal, Kind::SealR];

/// A device that is two thirds full.
fn device(kind: Kind, works_ahead: bool) -> Small {
    let chip = small::chip(Geometry {
        channels: 1,
        blocks_per_plane: 48,
        pages_per_block: PAGES_PER_BLOCK,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let mut config = Config::small(PAGES, None);
    config.works_ahead = works_ahead;
    let mut small = Small::on(chip, config, kind, Options::default());
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    small
}

/// The most pages that the collector moved for a transaction of one page, and the total.
fn moved(small: &mut Small) -> (u64, u64) {
    let (mut most, mut dice) = (0, 7);
    let start = small.device().stats().relocated;
    for _ in 0..3_000 {
        let before = small.device().stats().relocated;
        small.put(&[(below(&mut dice, PAGES), 2)]);
        most = most.max(small.device().stats().relocated - before);
    }
    small.check();
    (most, small.device().stats().relocated - start)
}

#[test]
fn a_request_moves_few_pages_and_no_more_are_moved_in_all() {
    for kind in IN_STEPS {
        let (at_once, whole) = moved(&mut device(kind, false));
        let (in_steps, ahead) = moved(&mut device(kind, true));
        assert!(at_once >= 5, "{kind}: a whole collection moved {at_once}");
        assert!(in_steps <= 3, "{kind}: a step moved {in_steps}");
        assert!(whole > 500, "{kind}: {whole} pages were moved");
        // Two more of the 48 blocks are kept free.
        assert!(ahead < whole * 3 / 2, "{kind}: {ahead} beside {whole}");
    }
}

#[test]
fn others_collect_whole_blocks() {
    let (most, _) = moved(&mut device(Kind::Plain, true));
    assert!(most >= 5, "{most} pages at most");
}

#[test]
fn idle_collection_takes_limits_of_any_size() {
    for kind in IN_STEPS {
        let mut small = device(kind, true);
        (0..PAGES).step_by(2).for_each(|at| small.put(&[(at, 2)]));
        let (now, all) = (small.now, Leisure::new(u32::MAX, PAGES_PER_BLOCK, u32::MAX));
        let moved = small.device().collect_ahead(now, all).expect("it has room");
        assert!(moved > 0, "{kind}");
        small.check();
    }
}

/// Fails if a victim whose pages find no block stays a victim: it would never be collected, and a
/// snapshot that needs one of its pages would panic.
#[test]
fn a_collection_without_room_leaves_a_block_that_can_be_collected() {
    for kind in IN_STEPS {
        let chip = small::chip(Geometry {
            channels: 1,
            page_bytes: 512,
            ..small::GEOMETRY
        });
        let all_fail = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&all_fail);
        let fails = move |_: &Programmed<'_>| asked.load(Ordering::Relaxed);
        let flash = Watched { chip, fails };
        let (config, options) = (Config::small(PAGES / 2, None), Options::default());
        let now = Nanos::ZERO;
        let device = Device::open(Box::new(flash), kind, config, &options, now);
        let mut device = device.expect("it is blank");
        let put = |device: &mut Device, at| -> Result<(), DeviceError> {
            let tx = device.begin(now)?;
            device.write(now, tx, Lpn(at), b"page")?;
            device.commit(now, tx).map(|_| ())
        };
        (0..PAGES / 2).for_each(|at| put(&mut device, at).expect("it has room"));
        let first = device.ftl().slot(Lpn(0)).ppn().expect("it is there");
        let victim = device.geometry().block_of(first);
        device.snapshot().expect("it has snapshots");
        // One program fails in each block that the collector opens.
        all_fail.store(true, Ordering::Relaxed);
        let full = device.collect(now, victim);
        assert!(
            matches!(full, Err(DeviceError::Ftl(FtlError::Full { .. }))),
            "{kind}: {full:?}"
        );
        all_fail.store(false, Ordering::Relaxed);
        assert_eq!(
            device.ftl().blocks().state(victim),
            BlockState::Full,
            "{kind}"
        );
        device.check().expect("the books agree");
        let put = put(&mut device, 0);
        let is_full = matches!(put, Err(DeviceError::Ftl(FtlError::Full { .. })));
        assert!(put.is_ok() || is_full, "{kind}: {put:?}");
        device.check().expect("the books agree");
    }
}
