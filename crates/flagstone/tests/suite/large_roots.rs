//! A device whose mapping table is so large that a root takes more than an erase block: roots still
//! survive a power cut at any operation, and the anchors take turns.

use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{Config, VictimPolicy};
use flagstone::nand::{Cell, Chip, Cut, Geometry, Pairing, PowerCut, Shared, Timing};
use flagstone::units::{Lpn, Nanos};

/// A translation page has 16 entries, so a root names 100 of them: 9 parts of 46 bytes, and a block
/// has 8 pages.
const PAGES: u32 = 1_600;

fn chip() -> Chip {
    let geometry = Geometry {
        channels: 1,
        packages_per_channel: 2,
        planes_per_package: 1,
        blocks_per_plane: 200,
        pages_per_block: 8,
        page_bytes: 64,
        spare_bytes: 64,
        cell: Cell::Mlc,
        strict_order: true,
        pairing: Pairing::None,
    };
    Chip::new(geometry, Timing::default(), 64)
}

fn open(flash: &Shared<PowerCut>) -> Result<Device, DeviceError> {
    let mut config = Config::default();
    config.over_provision = 0.0;
    config.logical_pages = Some(PAGES);
    config.gc_threshold = 0.0;
    config.victims = VictimPolicy::Greedy;
    config.static_wear_gap = None;
    config.copies_stay = false;
    config.summary_pages = false;
    let options = Options::default();
    Device::open(
        Box::new(flash.clone()),
        Kind::Aw,
        config,
        &options,
        Nanos::ZERO,
    )
}

/// Writes pairs of pages until the power fails or `rounds` are over: how many commits were
/// acknowledged.
fn run(device: &mut Device, from: u32, rounds: u32) -> (u32, Result<(), DeviceError>) {
    let mut now = device.recovered_at();
    for round in from..from + rounds {
        let mut pair = || {
            let tx = device.begin(now)?;
            now = device
                .write(now, tx, Lpn(round * 7 % PAGES), &round.to_le_bytes())?
                .next;
            now = device
                .write(now, tx, Lpn(PAGES - 1), &round.to_le_bytes())?
                .next;
            now = device.commit(now, tx)?.expect("no group is waited for");
            Ok(())
        };
        if let Err(error) = pair() {
            return (round - from, Err(error));
        }
    }
    (rounds, Ok(()))
}

fn value(device: &mut Device, at: u32) -> Option<u32> {
    let now = device.recovered_at();
    let (_, bytes) = device.read(now, None, Lpn(at)).expect("it reads");
    bytes.map(|bytes| u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")))
}

#[test]
fn a_root_over_two_blocks_survives_a_cut_anywhere() {
    let (mut cuts, mut checkpoints) = (0, 0);
    for at in (0..16_000).step_by(29) {
        let cut = Cut {
            at,
            dice: at * 5,
            torn: at % 3 == 0,
        };
        let flash = Shared::new(PowerCut::new(chip()).arm(cut));
        let Ok(mut device) = open(&flash) else {
            continue;
        };
        let (acknowledged, outcome) = run(&mut device, 0, 6_000);
        checkpoints = checkpoints.max(device.stats().checkpoints);
        drop(device);
        assert!(outcome.is_err(), "the power fails at operation {at}");
        cuts += 1;
        let again = Shared::new(PowerCut::new(flash.take().into_chip()));
        let mut device = open(&again).expect("it starts again");
        let newest = value(&mut device, PAGES - 1);
        // The one in flight may have landed.
        let expected = [acknowledged.checked_sub(1), Some(acknowledged)];
        assert!(
            expected.contains(&newest),
            "cut {at}: {newest:?}, {acknowledged} acknowledged"
        );
        if let Some(round) = newest {
            assert_eq!(value(&mut device, round * 7 % PAGES), newest, "cut {at}");
        }
        let (rounds, outcome) = run(&mut device, 1_000, 30);
        assert_eq!((rounds, outcome), (30, Ok(())), "it goes on after cut {at}");
        device.check().expect("the books agree");
    }
    assert!(
        cuts > 500 && checkpoints > 10,
        "{cuts} cuts, {checkpoints} checkpoints"
    );
}
