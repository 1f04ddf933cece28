//! What snapshots cost, and when they end. Campaigns of the lab hold what their readers see against
//! a model, through collections and power cuts.

use crate::small_device::{Small, below};
use flagstone::commit::{DeviceError, Kind, Options};
use flagstone::ftl::{Config, Slot};
use flagstone::nand::{Geometry, small};
use flagstone::units::{Lpn, SnapshotId};

const PAGES: u32 = 200;

fn device() -> Small {
    let chip = small::chip(Geometry {
        channels: 1,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let mut config = Config::small(PAGES, None);
    config.works_ahead = true;
    Small::on(chip, config, Kind::Seal, Options::default())
}

/// What a snapshot has of a page: 0 for nothing.
fn value(small: &mut Small, id: SnapshotId, at: u32) -> Result<u8, DeviceError> {
    let (now, mut page) = (small.now, [0; 512]);
    let (_, bytes) = small.device().read_snapshot(now, id, Lpn(at), &mut page)?;
    Ok(bytes.map_or(0, |_| page[0]))
}

#[test]
fn a_snapshot_is_current_until_something_is_written_and_goes_without_a_trace() {
    let mut small = device();
    small.put(&[(0, 1), (1, 1)]);
    let id = small.device().snapshot().expect("seal gives snapshots");
    assert!(small.device().ftl().snapshots().is_current(id));
    small.put(&[(0, 2)]);
    assert!(!small.device().ftl().snapshots().is_current(id));
    assert_eq!([0, 1].map(|at| value(&mut small, id, at)), [Ok(1), Ok(1)]);
    small.device().end_snapshot(id);
    assert_eq!(small.device().ftl().snapshots().counts(), (0, 0));
    small.check();
}

#[test]
fn a_reader_without_a_snapshot_sees_what_others_do() {
    let (mut small, mut dice) = (device(), 5);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    let ftl = small.device().ftl();
    let then: Vec<Slot> = (0..PAGES).map(|at| ftl.slot(Lpn(at))).collect();
    for _ in 0..600 {
        small.put(&[(below(&mut dice, PAGES), 2)]);
    }
    let device = small.device();
    let gone = then.iter().filter(|slot| {
        let page = slot.ppn().expect("it was written");
        !device.ftl().blocks().is_live(page)
    });
    assert!(gone.count() > 100, "what no snapshot retains is collected");
}

#[test]
fn snapshots_end_before_a_device_is_full() {
    let (mut small, mut dice) = (device(), 3);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    let oldest = small.device().snapshot().expect("seal gives snapshots");
    let mut newest = oldest;
    for round in 0..3_000 {
        small.put(&[(below(&mut dice, PAGES), 2)]);
        if round % 50 == 0 {
            newest = small.device().snapshot().expect("seal gives snapshots");
        }
    }
    let before = small.device().request_stats().pages_read;
    assert_eq!(
        value(&mut small, oldest, 0),
        Err(DeviceError::SnapshotEnded)
    );
    assert_eq!(small.device().request_stats().pages_read, before);
    assert!(value(&mut small, newest, 0).is_ok());
    assert_eq!(small.device().request_stats().pages_read, before + 1);
    small.check();
    // A snapshot that has ended may still be given back.
    small.device().end_snapshot(oldest);
}

#[test]
fn a_protocol_that_cannot_says_so() {
    let mut small = Small::new(Kind::Scc, Options::default());
    let refused = small.device().snapshot().expect_err("it cannot");
    assert!(refused.to_string().contains("use seal"), "{refused}");
}
