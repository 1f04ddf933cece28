//! Devices that become larger while they are used, under every protocol. Campaigns of the lab cut
//! the power under stores that grow.

use super::show::tests::{named, newest_root};
use super::small_device::{NOTHING, Small, unwaited};
use super::{Config, Device, Kind, Options};
use crate::dice::Dice;
use crate::forward_flash;
use crate::ftl::BlockState;
use crate::nand::{Flash, FlashError, Geometry, PowerCut, Shared, small};
use crate::units::{Nanos, Pbn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks of a device before it has grown and after. Its mapping table needs two more blocks then.
const BEFORE: u32 = 120;
const AFTER: u32 = 144;

/// The shape of the medium when it has grown.
const GEOMETRY: Geometry = Geometry {
    channels: 1,
    blocks_per_plane: AFTER,
    ..small::GEOMETRY
};

/// A medium that shows the first blocks of a chip, and more of them when it grows. How many it
/// shows outlives a restart.
struct Window {
    chip: Shared<PowerCut>,
    shown: Arc<AtomicU32>,
    geometry: Geometry,
}

impl Window {
    fn new(chip: Shared<PowerCut>, shown: Arc<AtomicU32>) -> Window {
        let geometry = Geometry {
            blocks_per_plane: shown.load(Ordering::Relaxed),
            ..GEOMETRY
        };
        Window {
            chip,
            shown,
            geometry,
        }
    }
}

impl Flash for Window {
    forward_flash!([chip]: read program reprogram erase sync is_factory_bad peek);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        let shown = AFTER.min(self.geometry.blocks_per_plane + blocks);
        self.geometry.blocks_per_plane = shown;
        self.shown.store(shown, Ordering::Relaxed);
        Ok(())
    }
}

/// A device that is full, and what its pages hold.
fn full(kind: Kind) -> (Small, Vec<u8>) {
    let config = Config {
        over_provision: 0.5,
        static_wear_gap: Some(3),
        gc_threshold: 0.0,
        ..Config::default()
    };
    let shown = Arc::new(AtomicU32::new(BEFORE));
    let over = move |chip| -> Box<dyn Flash> { Box::new(Window::new(chip, Arc::clone(&shown))) };
    let mut small = Small::over(small::chip(GEOMETRY), config, kind, unwaited(kind), over);
    let pages = small.device().pages();
    (0..pages).for_each(|at| small.put(&[(at, 1)]));
    (small, vec![1; pages as usize])
}

/// Asks for so many blocks. Returns how many were added.
fn grow(small: &mut Small, blocks: u32) -> u32 {
    let now = small.now;
    small.device().grow(now, blocks).expect("it can grow")
}

/// Transactions on old and new pages.
fn churn(small: &mut Small, values: &mut Vec<u8>, transactions: u32) {
    let pages = small.device().pages();
    values.resize(pages as usize, 0);
    let mut dice = Dice(pages.into());
    for i in 0..transactions {
        let first = dice.pick(pages - 2);
        // The new pages come last.
        let last = pages - 1 - i % 40;
        let value = 2 + (i % 250) as u8;
        let both = [first, last.max(first + 1)].map(|at| (at, value));
        small.put(&both);
        for (at, value) in both {
            values[at as usize] = value;
        }
    }
    small.check();
}

/// Wrong where a protocol has a table with an entry for each page and does not lengthen it, where
/// the FTL forgets one of its own, or where a restart takes a size for the other.
#[test]
fn a_medium_without_room_adds_nothing_and_the_device_goes_on() {
    for &kind in Kind::ALL {
        let (small, mut values) = full(kind);
        let mut small = small.restart(NOTHING);
        let (pages, mut missing) = (small.device().pages(), AFTER - BEFORE);
        // It gives what it has, and then nothing.
        for asked in [20, 40, 8] {
            let added = grow(&mut small, asked);
            assert_eq!(added, asked.min(missing), "{kind}");
            missing -= added;
            churn(&mut small, &mut values, 30);
        }
        assert_eq!(small.device().geometry().blocks(), AFTER);
        assert!(small.device().pages() > pages, "{kind} addresses no more");
        // Once it has grown, its roots name the blocks of its mapping table.
        if kind.info().format.persist_map {
            let root = small.chip(|chip| newest_root(chip, |data| kind.info().root_fields(data)));
            let pool = named(&root.expect("it has written some").1, "POOL");
            assert!(
                pool.iter().any(|&block| block >= u64::from(BEFORE)),
                "{kind}"
            );
            for block in pool {
                let state = small.device().ftl().block_state(Pbn(block as u32));
                assert_eq!(state, BlockState::Meta, "{kind}");
            }
        }
        let mut small = small.restart(NOTHING);
        assert_eq!(small.values(values.len() as u32), values, "{kind}");
        churn(&mut small, &mut values, 60);
        let mut small = small.restart(NOTHING);
        assert_eq!(small.values(values.len() as u32), values, "{kind}");
    }
}

#[test]
fn what_cannot_grow_says_why_and_stays_as_it_is() {
    let (mut small, values) = full(Kind::LightTx);
    for (blocks, why) in [
        (u32::MAX, "it has all blocks that can be numbered"),
        (4_000, "would no longer fit a block"),
    ] {
        let said = small.device().ftl().why_not_grow(blocks);
        assert!(said.is_some_and(|said| said.contains(why)), "{why}");
        let now = small.now;
        let refused = small.device().grow(now, blocks).expect_err(why);
        let refused = refused.to_string();
        assert!(refused.contains("this device cannot grow: "), "{refused}");
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(small.device().geometry().blocks(), BEFORE);
    assert_eq!(small.values(values.len() as u32), values);

    let planes = Box::new(small::chip(small::GEOMETRY));
    let (config, options) = (Config::small(64, None), Options::default());
    let device = Device::open(planes, Kind::Seal, config, &options, Nanos::ZERO);
    let why = device.expect("it is blank").ftl().why_not_grow(1);
    assert_eq!(why.as_deref(), Some("it has several planes"));
}
