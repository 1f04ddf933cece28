//! Devices that grow in use, under every protocol. Campaigns of the lab cut the power under stores
//! that grow.

use crate::shown::{named, newest_root};
use crate::small_device::{NOTHING, Small, unwaited};
use flagstone::commit::{Device, Kind, Options};
use flagstone::dice::Dice;
use flagstone::forward_flash;
use flagstone::ftl::{BlockState, Config};
use flagstone::nand::{Flash, FlashError, Geometry, PowerCut, Shared, small};
use flagstone::units::{Nanos, Pbn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of blocks before and after growth. The mapping table then needs two more blocks.
const BEFORE: u32 = 120;
const AFTER: u32 = 144;

/// The geometry of the grown medium.
const GEOMETRY: Geometry = Geometry {
    channels: 1,
    blocks_per_plane: AFTER,
    ..small::GEOMETRY
};

/// A medium that exposes the first blocks of a chip, and more when it grows. Its size survives a
/// restart.
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
    forward_flash!([chip] but geometry grow);

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

/// A full device, and the contents of its pages.
fn full(kind: Kind) -> (Small, Vec<u8>) {
    let mut config = Config::default();
    (config.over_provision, config.gc_threshold) = (0.5, 0.0);
    config.static_wear_gap = Some(3);
    let shown = Arc::new(AtomicU32::new(BEFORE));
    let over = move |chip| -> Box<dyn Flash> { Box::new(Window::new(chip, Arc::clone(&shown))) };
    let mut small = Small::over(small::chip(GEOMETRY), config, kind, unwaited(kind), over);
    let pages = small.device().pages();
    (0..pages).for_each(|at| small.put(&[(at, 1)]));
    (small, vec![1; pages as usize])
}

/// Requests `blocks` blocks. Returns the number of added ones.
fn grow(small: &mut Small, blocks: u32) -> u32 {
    let now = small.now;
    small.device().grow(now, blocks).expect("it can grow")
}

/// Runs transactions on old and new pages.
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

/// Fails if a protocol has a table with an entry per page and does not extend it, if the FTL
/// forgets a table, or if a restart confuses the two sizes.
#[test]
fn a_medium_without_room_adds_nothing_and_the_device_goes_on() {
    for &kind in Kind::ALL {
        let (small, mut values) = full(kind);
        let mut small = small.restart(NOTHING);
        let (pages, mut missing) = (small.device().pages(), AFTER - BEFORE);
        // The medium adds what it has, and then nothing.
        for asked in [20, 40, 8] {
            let added = grow(&mut small, asked);
            assert_eq!(added, asked.min(missing), "{kind}");
            missing -= added;
            churn(&mut small, &mut values, 30);
        }
        assert_eq!(small.device().geometry().blocks(), AFTER);
        assert!(small.device().pages() > pages, "{kind} addresses no more");
        // After growth, roots list the blocks of the mapping table.
        if kind.info().format.persist_map {
            let root = small.chip(|chip| newest_root(chip, |data| kind.info().root_fields(data)));
            let pool = named(&root.expect("it has written some").1, "POOL");
            assert!(
                pool.iter().any(|&block| block >= u64::from(BEFORE)),
                "{kind}"
            );
            for block in pool {
                let state = small.device().ftl().blocks().state(Pbn(block as u32));
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
