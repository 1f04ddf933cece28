//! Mapping tables on flash name nothing that may yet be lost: a test of all protocols that write
//! them, on a device of many planes on which copies take longer than a checkpoint.

use super::{Device, DeviceError, Kind, Options};
use crate::forward_flash;
use crate::ftl::{Config, Header, PageKind};
use crate::nand::{Cell, Chip, Flash, FlashError, Geometry, Timing, small};
use crate::settings::Settings;
use crate::units::{Lpn, Nanos, Ppn};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the table's pages named when they were programmed.
#[derive(Debug, Default)]
struct Seen {
    named: u64,
    /// Of these, pages whose programs were not over.
    early: u64,
}

/// A device that knows when each of its pages is durable, and looks at the mapping tables.
struct Watched {
    chip: Chip,
    done: BTreeMap<Ppn, Nanos>,
    seen: Arc<Mutex<Seen>>,
}

impl Flash for Watched {
    forward_flash!([chip]: geometry read reprogram erase sync is_factory_bad);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        if Header::parse(spare).is_some_and(|head| head.kind == PageKind::Map) {
            let mut seen = self.seen.lock().expect("no thread panics here");
            for entry in data.chunks_exact(4) {
                let named = Ppn(u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
                if let Some(&done) = self.done.get(&named) {
                    seen.named += 1;
                    seen.early += u64::from(done > now);
                }
            }
        }
        let done = self.chip.program(now, at, data, spare)?;
        self.done.insert(at, done);
        Ok(done)
    }
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
        ..small::TIMING
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let flash = Watched {
        chip: Chip::new(geometry, timing, geometry.spare_bytes as usize),
        done: BTreeMap::new(),
        seen: Arc::clone(&seen),
    };
    let config = Config::small(PAGES, Some(3));
    let settings = Settings::new().with("zone_blocks", zone_blocks);
    let options = Options {
        settings: settings.keep_those_of(kind.info()),
        ..Options::default()
    };
    let mut device = Device::open(Box::new(flash), kind, config, &options, Nanos::ZERO)?;
    let mut now = device.recovered_at();
    let mut dice = 1u32;
    for i in 0..6_000 {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = if i < PAGES { i } else { (dice >> 16) % PAGES };
        let tx = device.begin(now)?;
        device.write(now, tx, Lpn(at), &[1])?;
        device.commit(now, tx)?;
        now += Nanos::from_micros(u64::from(dice >> 24));
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
