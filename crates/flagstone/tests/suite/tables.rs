//! Mapping tables on flash must not refer to pages that may yet be lost: a test of all protocols
//! that write them, on a device with many planes on which copies take longer than a checkpoint.

use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::dice::Dice;
use flagstone::ftl::{Config, Header, PageKind};
use flagstone::nand::small::{self, Programmed, Watched};
use flagstone::nand::{Cell, Chip, Flash, Geometry, Timing};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos, Ppn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What translation pages referred to when they were programmed.
#[derive(Debug, Default)]
struct Seen {
    named: u64,
    /// Number of references to pages whose programs were not done.
    early: u64,
}

/// A device that tracks when each page is durable, and inspects translation pages.
fn watched(chip: Chip, seen: &Arc<Mutex<Seen>>) -> Box<dyn Flash> {
    let (seen, mut done) = (Arc::clone(seen), BTreeMap::new());
    let fails = move |program: &Programmed<'_>| {
        if Header::parse(program.spare).is_some_and(|head| head.kind == PageKind::Map) {
            let mut seen = seen.lock().expect("no thread panics here");
            for entry in program.data.chunks_exact(4) {
                let named = Ppn(u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
                if let Some(&done) = done.get(&named) {
                    seen.named += 1;
                    seen.early += u64::from(done > program.now);
                }
            }
        }
        done.insert(program.at, program.done);
        false
    };
    Box::new(Watched { chip, fails })
}

fn churn(kind: Kind, zone_blocks: u32) -> Result<Seen, DeviceError> {
    const PAGES: u32 = 150;
    let geometry = Geometry {
        channels: 4,
        planes_per_package: 2,
        blocks_per_plane: if kind.info().format.zoned { 16 } else { 12 },
        pages_per_block: 6,
        cell: Cell::Mlc,
        ..small::GEOMETRY
    };
    let timing = Timing {
        program: Nanos::from_micros(1000),
        ..Timing::default()
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let chip = Chip::new(geometry, timing, geometry.spare_bytes as usize);
    let config = Config::small(PAGES, Some(3));
    let settings = Settings::new().with("zone_blocks", zone_blocks);
    let mut options = Options::default();
    options.settings = settings.keep_those_of(kind.info());
    let mut device = Device::open(watched(chip, &seen), kind, config, &options, Nanos::ZERO)?;
    let mut now = device.recovered_at();
    let mut dice = Dice(1);
    for i in 0..6_000 {
        let at = if i < PAGES { i } else { dice.pick(PAGES) };
        let tx = device.begin(now)?;
        device.write(now, tx, Lpn(at), &[1])?;
        device.commit(now, tx)?;
        now += Nanos::from_micros(dice.below(256));
    }
    drop(device);
    Ok(Arc::into_inner(seen)
        .expect("the device is gone")
        .into_inner()
        .expect("no thread panics here"))
}

#[test]
fn a_table_names_no_page_that_is_still_in_flight() {
    let mut early = Vec::new();
    for &kind in Kind::ALL
        .iter()
        .filter(|kind| kind.info().format.persist_map)
    {
        for zone_blocks in [0, 6, 12] {
            let seen = churn(kind, zone_blocks).unwrap();
            assert!(seen.named > 10_000, "{kind}: {seen:?}");
            if seen.early > 0 {
                early.push(format!("{kind}, zones of {zone_blocks}: {seen:?}"));
            }
        }
    }
    assert!(early.is_empty(), "{early:#?}");
}
