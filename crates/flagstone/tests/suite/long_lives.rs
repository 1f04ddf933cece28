//! Situations in a long life of a device, under every protocol: transactions that span many zone
//! slides, factory-bad blocks anywhere, blocks for roots that fail one after another, and sizes
//! beyond those of campaigns.

use crate::small_device::{EVERYTHING, NOTHING, PAGES, Small, unwaited};
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::dice::Dice;
use flagstone::ftl::{Config, FtlError};
use flagstone::nand::{Chip, Flash, Geometry, PowerCut, Shared, Timing, small};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos, Pbn};

const GEOMETRY: Geometry = Geometry {
    planes_per_package: 2,
    blocks_per_plane: 20,
    pages_per_block: 6,
    strict_order: false,
    ..small::GEOMETRY
};

#[test]
fn a_transaction_outlives_many_zone_slides() {
    for kind in [Kind::LightTx, Kind::MhlD] {
        for (commits, dice) in [
            (true, NOTHING),
            (true, EVERYTHING),
            (false, NOTHING),
            (false, EVERYTHING),
        ] {
            let mut small = Small::new(kind, unwaited(kind));
            (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
            // The pages of the transaction are far apart: one in the first zone, one a few slides
            // later, and so on.
            let tx = small.begin();
            let mut slides = small.checkpoints();
            for at in 0..6 {
                small.write(tx, at, 2);
                slides += 20;
                small.churn(20..PAGES, |device| device.stats().checkpoints > slides);
            }
            assert_eq!(small.values(6), [1; 6]);
            small.check();
            if commits {
                small.commit(tx);
            } else {
                small.abort(tx);
            }
            let mut small = small.restart(dice);
            small.check();
            let value = if commits { 2 } else { 1 };
            assert_eq!(
                small.values(7),
                [value, value, value, value, value, value, 1]
            );
            small.churn(20..PAGES, |device| device.stats().checkpoints > 40);
            assert_eq!(small.restart(dice).values(6), [value; 6], "{kind}");
        }
    }
}

/// Writes, collects and restarts on a device with these bad blocks.
fn live_with(kind: Kind, geometry: Geometry, bad: &[u32]) {
    let bad: Vec<Pbn> = bad.iter().copied().map(Pbn).collect();
    let chip = small::chip(geometry).with_factory_bad(bad.clone());
    let mut small = Small::on(chip, Config::small(96, Some(3)), kind, unwaited(kind));
    (0..96).for_each(|at| small.put(&[(at, 1)]));
    let collected = |device: &Device| device.stats().collections > 30;
    small.churn(10..96, collected);
    small.put(&[(3, 7), (4, 7)]);
    let mut small = small.restart(NOTHING);
    assert_eq!(small.values(5), [1, 1, 1, 7, 7], "{kind} {bad:?}");
    small.churn(10..96, collected);
    small.check();
    small.chip(|chip| {
        for &block in &bad {
            assert_eq!(chip.erase_counts()[block.index()], 0);
        }
    });
}

#[test]
fn blocks_may_be_bad_from_the_factory_anywhere() {
    let (planes, blocks) = (4, GEOMETRY.blocks());
    let of_plane = blocks / planes;
    for &kind in Kind::ALL {
        let live_with = |bad: &[u32]| live_with(kind, GEOMETRY, bad);
        live_with(&[0]);
        // Where roots, mapping pages and logs would begin: in one plane, and in all.
        live_with(&[0, 1, 2, 3]);
        let firsts: Vec<u32> = (0..planes).map(|plane| plane * of_plane).collect();
        live_with(&firsts);
        let seconds: Vec<u32> = firsts.iter().flat_map(|&at| [at, at + 1]).collect();
        live_with(&seconds);
        // Most of a plane, all but one of its blocks, and all of it.
        for good in [7, 1, 0] {
            let most: Vec<u32> = (of_plane..2 * of_plane - good).collect();
            live_with(&most);
            let two_planes = Geometry {
                channels: 1,
                blocks_per_plane: 60,
                ..GEOMETRY
            };
            let most: Vec<u32> = (60..120 - good).collect();
            self::live_with(kind, two_planes, &most);
        }
        // Random blocks.
        for seed in 0..6 {
            let mut dice = Dice(seed);
            let bad: Vec<u32> = (0..10).map(|_| dice.pick(blocks)).collect();
            live_with(&bad);
        }
    }
}

/// The blocks that hold roots, in the order of their use.
fn anchors(chip: &Chip) -> Vec<Pbn> {
    let geometry = chip.geometry();
    let is_root = |at| chip.is_programmed(at) && chip.peek_spare(at)[0] & 0x17 == 0x11;
    (0..geometry.blocks())
        .map(Pbn)
        .filter(|&block| is_root(geometry.page(block, 0)))
        .collect()
}

#[test]
fn blocks_for_roots_fail_one_after_the_other_until_the_device_says_so() {
    for kind in [
        Kind::Aw,
        Kind::MhlM,
        Kind::LightTx,
        Kind::MhlD,
        Kind::MixSl,
        Kind::SealR,
    ] {
        let mut chip = small::chip(GEOMETRY);
        let mut failed = 0;
        let mut value = 0;
        let open = |chip: Chip| {
            let flash = Shared::new(PowerCut::new(chip));
            let config = Config::small(96, Some(3));
            let device = Device::open(
                Box::new(flash.clone()),
                kind,
                config,
                &unwaited(kind),
                Nanos::ZERO,
            );
            (device, flash)
        };
        let refused = loop {
            let (device, flash) = open(chip);
            let mut device = device.expect("it starts");
            let mut now = device.recovered_at();
            let roots = device.stats().checkpoints;
            let error = loop {
                if device.stats().checkpoints - roots > 24 {
                    break None;
                }
                let mut put = || {
                    let tx = device.begin(now)?;
                    let next = [value as u8 + 1];
                    for at in 0..3 {
                        now = device.write(now, tx, Lpn(at), &next)?.next;
                    }
                    device.commit(now, tx)
                };
                match put() {
                    Ok(done) => {
                        now = done.expect("no group is waited for");
                        value = (value + 1) % 200;
                    }
                    Err(error) => break Some(error),
                }
            };
            drop(device);
            chip = flash.take().pull(NOTHING, false);
            if let Some(error) = error {
                break error;
            }
            // The next block fails at its next erase.
            let next = anchors(&chip).into_iter().nth(failed);
            chip.wear_out(next.expect("there are more"));
            failed += 1;
        };
        assert_eq!(refused, DeviceError::Ftl(FtlError::MetaFull), "{kind}");
        assert!(failed >= 3, "{kind}: after {failed}");
        // Checks that all acknowledged data is present.
        let (device, _flash) = open(chip);
        let mut device = device.expect("it starts");
        let now = device.recovered_at();
        let found: Vec<u8> = (0..3)
            .map(|at| {
                device
                    .read(now, None, Lpn(at))
                    .expect("it reads")
                    .1
                    .expect("it is there")[0]
            })
            .collect();
        let next = value as u8 + 1;
        assert!(
            found == [value as u8; 3] || found == [next; 3],
            "{kind}: {found:?}, not {value}"
        );
    }
}

/// Fills a device with `blocks_per_plane` blocks per plane, overwrites a part, cuts the power, and
/// checks every page.
fn large(kind: Kind, blocks_per_plane: u32, pages_per_block: u32, writes: u64) {
    let geometry = Geometry {
        channels: 4,
        packages_per_channel: 1,
        planes_per_package: 2,
        blocks_per_plane,
        pages_per_block,
        page_bytes: 4096,
        ..GEOMETRY
    };
    let mut config = Config::default();
    config.over_provision = 0.3;
    let mut chip = Chip::new(geometry, Timing::default(), 64);
    let mut dice = Dice(u64::from(blocks_per_plane));
    let mut options = Options::default();
    options.settings = Settings::new().with("group", 1).keep_those_of(kind.info());
    let mut right: Vec<u64> = Vec::new();
    for cut in 0..3 {
        let flash = Shared::new(PowerCut::new(chip));
        let opened = Device::open(Box::new(flash.clone()), kind, config, &options, Nanos::ZERO);
        let mut device = opened.expect("it starts");
        let mut now = device.recovered_at();
        let pages = device.pages() * 9 / 10;
        right.resize(pages as usize, 0);
        for (at, &value) in right.iter().enumerate() {
            let (_, found) = device.read(now, None, Lpn(at as u32)).expect("it reads");
            let found = found.map_or(0, |bytes| flagstone::layout::get(bytes, 0..8));
            assert_eq!(found, value, "{kind}: page {at} after {cut} cuts");
        }
        let mut put = |device: &mut Device, some: &[u32], value: u64| {
            let tx = device.begin(now).expect("one at a time");
            for &at in some {
                let written = device.write(now, tx, Lpn(at), &value.to_le_bytes());
                now = written.expect("there is room").next;
                right[at as usize] = value;
            }
            let done = device.commit(now, tx).expect("it commits");
            now = done.expect("no group is waited for");
        };
        if cut == 0 {
            let all: Vec<u32> = (0..pages).collect();
            for some in all.chunks(64) {
                put(&mut device, some, 1);
            }
        }
        for i in 0..writes {
            let mut some: Vec<u32> = (0..8).map(|_| dice.pick(pages)).collect();
            some.sort_unstable();
            some.dedup();
            put(&mut device, &some, (cut + 1) << 32 | i);
        }
        device.check().expect("the books agree");
        drop(device);
        chip = flash.take().pull(dice.next(), true);
    }
}

#[test]
fn devices_of_sixteen_mebibytes_hold_what_they_took() {
    for &kind in Kind::ALL {
        large(kind, 32, 16, 400);
    }
}

/// Run explicitly: `cargo test --release -p flagstone --test suite one_gibibyte -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn devices_of_one_gibibyte_hold_what_they_took() {
    for &kind in Kind::ALL {
        large(kind, 512, 64, 40_000);
    }
}
