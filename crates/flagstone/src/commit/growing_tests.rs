//! Devices that become larger while they are used, under every protocol, with the power cut on the
//! way.

use super::show::tests::{named, newest_root};
use super::small_device::{EVERYTHING, NOTHING, unwaited};
use super::{Config, Device, Kind, Options};
use crate::dice::Dice;
use crate::forward_flash;
use crate::ftl::{BlockState, Mistake};
use crate::nand::{Chip, Cut, Flash, FlashError, Geometry, PowerCut, Shared, small};
use crate::units::{Lpn, Nanos, Pbn};
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
    blocks: Arc<AtomicU32>,
    geometry: Geometry,
}

impl Window {
    fn new(chip: Shared<PowerCut>, blocks: Arc<AtomicU32>) -> Window {
        let blocks_per_plane = blocks.load(Ordering::Relaxed);
        let geometry = Geometry {
            blocks_per_plane,
            ..*chip.geometry()
        };
        Window {
            chip,
            blocks,
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
        let most = self.chip.geometry().blocks_per_plane;
        self.geometry.blocks_per_plane = most.min(self.geometry.blocks_per_plane + blocks);
        let shown = self.geometry.blocks_per_plane;
        self.blocks.store(shown, Ordering::Relaxed);
        Ok(())
    }
}

/// What is started again after each cut.
#[derive(Clone)]
struct Medium {
    kind: Kind,
    chip: Chip,
    blocks: u32,
    mistake: Option<Mistake>,
}

/// A device on such a medium, and what is committed, page by page.
struct Rig {
    medium: Medium,
    flash: Shared<PowerCut>,
    shown: Arc<AtomicU32>,
    device: Device,
    now: Nanos,
    dice: Dice,
}

impl Rig {
    fn open(medium: Medium, cut: Option<Cut>) -> Result<Rig, String> {
        let power = PowerCut::new(medium.chip.clone());
        let flash = Shared::new(match cut {
            Some(cut) => power.arm(cut),
            None => power,
        });
        let shown = Arc::new(AtomicU32::new(medium.blocks));
        let window = Window::new(flash.clone(), Arc::clone(&shown));
        let config = Config {
            over_provision: 0.5,
            static_wear_gap: Some(3),
            gc_threshold: 0.0,
            mistake: medium.mistake.into(),
            ..Config::default()
        };
        let options = unwaited(medium.kind);
        let window = Box::new(window);
        let device = Device::open(window, medium.kind, config, &options, Nanos::ZERO);
        let device = device.map_err(|error| error.to_string())?;
        device.check()?;
        Ok(Rig {
            now: device.recovered_at(),
            dice: Dice(u64::from(medium.blocks)),
            medium,
            flash,
            shown,
            device,
        })
    }

    /// What is left when the power has failed, or fails now.
    fn medium(self, dice: u64) -> Medium {
        drop(self.device);
        Medium {
            chip: self.flash.take().pull(dice, false),
            blocks: self.shown.load(Ordering::Relaxed),
            ..self.medium
        }
    }

    /// A transaction that writes a value to pages and commits; whether the power was on.
    fn put(&mut self, pages: &[u32], value: u8) -> bool {
        let mut put = || {
            let tx = self.device.begin(self.now)?;
            for &at in pages {
                self.now = self.device.write(self.now, tx, Lpn(at), &[value])?.next;
            }
            let done = self.device.commit(self.now, tx)?;
            self.now = done.expect("no group is waited for");
            Ok(())
        };
        match put() {
            Ok(()) => true,
            Err(super::DeviceError::Ftl(crate::ftl::FtlError::PowerLost)) => false,
            Err(error) => panic!("{}: {error}", self.medium.kind),
        }
    }

    /// Transactions on old and new pages. Returns the pages that may or may not have a value if
    /// the power failed.
    fn churn(&mut self, values: &mut Vec<u8>, transactions: u32) -> Option<(Vec<u32>, u8)> {
        values.resize(self.device.pages() as usize, 0);
        for i in 0..transactions {
            let value = 2 + (i % 250) as u8;
            let first = self.dice.pick(values.len() as u32 - 2);
            // The new pages come last.
            let last = values.len() as u32 - 1 - i % 40;
            let pages = [first, last.max(first + 1)];
            if !self.put(&pages, value) {
                return Some((pages.to_vec(), value));
            }
            for at in pages {
                values[at as usize] = value;
            }
        }
        None
    }

    /// Compares what is there with what is committed.
    fn compare(&mut self, values: &mut Vec<u8>, doubt: &[u32], new: u8) -> Result<(), String> {
        values.resize(self.device.pages().max(values.len() as u32) as usize, 0);
        let mut doubted = Vec::new();
        for (at, value) in values.iter_mut().enumerate() {
            if at as u32 >= self.device.pages() {
                assert_eq!(*value, 0, "page {at} was committed before there was room");
                continue;
            }
            let read = self.device.read(self.now, None, Lpn(at as u32));
            let (_, bytes) = read.map_err(|error| error.to_string())?;
            let found = bytes.map_or(0, |bytes| bytes[0]);
            if doubt.contains(&(at as u32)) {
                doubted.push(found == new);
                *value = found;
            } else if found != *value {
                return Err(format!("page {at} has {found}, not {value}"));
            }
        }
        // The control has no transactions.
        match self.medium.kind != Kind::Plain && doubted.windows(2).any(|two| two[0] != two[1]) {
            true => Err(format!("of pages {doubt:?} some are committed")),
            false => Ok(()),
        }
    }
}

/// A device that is full, and what it holds.
fn full(kind: Kind, mistake: Option<Mistake>) -> (Medium, Vec<u8>) {
    let medium = Medium {
        kind,
        chip: small::chip(GEOMETRY),
        blocks: BEFORE,
        mistake,
    };
    let mut rig = Rig::open(medium, None).expect("a blank device");
    let values = vec![1; rig.device.pages() as usize];
    for at in (0..values.len() as u32).step_by(4) {
        let end = values.len() as u32;
        assert!(rig.put(&(at..end.min(at + 4)).collect::<Vec<_>>(), 1));
    }
    (rig.medium(NOTHING), values)
}

/// Grows a device, works on it, and cuts the power at an operation. Says whether there was a cut.
fn grow_and_cut(medium: Medium, values: &mut Vec<u8>, at: u64) -> Result<bool, String> {
    let cut = Cut {
        at,
        dice: at / 2 * 0x9d + [NOTHING, EVERYTHING][at as usize % 2],
        torn: at.is_multiple_of(3),
    };
    let mut rig = Rig::open(medium, Some(cut))?;
    let pages = rig.device.pages();
    let grown = rig.device.grow(rig.now, AFTER - BEFORE);
    let doubt = match grown {
        Ok(blocks) => {
            assert_eq!(blocks, AFTER - BEFORE);
            assert!(rig.device.pages() > pages, "it addresses no more");
            rig.device.check()?;
            rig.churn(values, 60)
        }
        Err(_) => Some((Vec::new(), 0)),
    };
    let cut = doubt.is_some();
    let (pages, value) = doubt.unwrap_or_default();
    // Where the cut was has its own dice; this is for those that there was none for.
    let mut rig = Rig::open(rig.medium(NOTHING), None)?;
    rig.compare(values, &pages, value)?;
    // It grows to the end, wherever it stands, and lives there.
    let missing = AFTER - rig.device.geometry().blocks();
    let added = rig.device.grow(rig.now, missing);
    assert_eq!(added.map_err(|error| error.to_string())?, missing);
    rig.churn(values, 60);
    rig.device.check()?;
    let mut rig = Rig::open(rig.medium(EVERYTHING), None)?;
    rig.compare(values, &[], 0)?;
    Ok(cut)
}

/// How often something was wrong after a cut at one of the first operations, and how many cuts
/// there were.
fn wrong(kind: Kind, mistake: Option<Mistake>, step: usize) -> (Vec<String>, u32) {
    let (medium, values) = full(kind, mistake);
    let (mut wrong, mut cuts) = (Vec::new(), 0);
    for at in (0..90).step_by(step) {
        match grow_and_cut(medium.clone(), &mut values.clone(), at) {
            Ok(cut) => cuts += u32::from(cut),
            Err(what) => wrong.push(format!("{kind}, cut at {at}: {what}")),
        }
    }
    (wrong, cuts)
}

/// Wrong where a protocol has a table with an entry for each page and does not lengthen it, where
/// the FTL forgets one of its own, or where a restart takes a size for the other.
#[test]
fn a_device_that_grows_loses_nothing_whenever_the_power_fails() {
    for &kind in Kind::ALL {
        // Roots are what is hard.
        let step = if kind.info().format.persist_map { 2 } else { 9 };
        let (wrong, cuts) = wrong(kind, None, step);
        assert_eq!(wrong, [""; 0]);
        assert!(cuts >= 9, "{kind}: {cuts} cuts");
    }
}

#[test]
fn a_device_that_grows_before_a_root_says_so_is_lost() {
    // The control: the histories above meet the cut that the root is for.
    let (wrong, _) = wrong(Kind::Aw, Some(Mistake::GrowthUnnamed), 1);
    assert!(!wrong.is_empty());
}

#[test]
fn a_medium_without_room_adds_nothing_and_the_device_goes_on() {
    for kind in [Kind::Seal, Kind::Aw, Kind::LightTx, Kind::MixSl] {
        let (medium, mut values) = full(kind, None);
        let mut rig = Rig::open(medium, None).expect("it is whole");
        let mut missing = AFTER - BEFORE;
        // It gives what it has, and then nothing.
        for asked in [20, 40, 8] {
            let added = rig.device.grow(rig.now, asked).expect("the power is on");
            assert_eq!(added, asked.min(missing), "{kind}");
            missing -= added;
            assert_eq!(rig.churn(&mut values, 30), None);
            rig.device.check().expect("its books agree");
        }
        assert_eq!(rig.device.geometry().blocks(), AFTER);
        // Once it has grown, its roots name the blocks of its mapping table.
        let chip = rig.flash.look(|power| power.chip().clone());
        if kind.info().format.persist_map {
            let root = newest_root(&chip, |data| kind.info().root_fields(data));
            let pool = named(&root.expect("it has written some").1, "POOL");
            assert!(
                pool.iter().any(|&block| block >= u64::from(BEFORE)),
                "{kind}"
            );
            for block in pool {
                let state = rig.device.ftl().block_state(Pbn(block as u32));
                assert_eq!(state, BlockState::Meta, "{kind}");
            }
        }
        let mut rig = Rig::open(rig.medium(NOTHING), None).expect("it is whole");
        rig.compare(&mut values, &[], 0).expect("nothing is lost");
    }
}

#[test]
fn what_cannot_grow_says_why_and_stays_as_it_is() {
    let (medium, mut values) = full(Kind::LightTx, None);
    let mut rig = Rig::open(medium, None).expect("it is whole");
    for (blocks, why) in [
        (u32::MAX, "it has all blocks that can be numbered"),
        (4_000, "would no longer fit a block"),
    ] {
        let said = rig.device.ftl().why_not_grow(blocks);
        assert!(said.is_some_and(|said| said.contains(why)), "{why}");
        let refused = rig.device.grow(rig.now, blocks).expect_err(why);
        let refused = refused.to_string();
        assert!(refused.contains("this device cannot grow: "), "{refused}");
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(rig.device.geometry().blocks(), BEFORE);
    rig.compare(&mut values, &[], 0).expect("nothing is lost");

    let planes = Box::new(small::chip(small::GEOMETRY));
    let (config, options) = (Config::small(64, None), Options::default());
    let device = Device::open(planes, Kind::Seal, config, &options, Nanos::ZERO);
    let why = device.expect("it is blank").ftl().why_not_grow(1);
    assert_eq!(why.as_deref(), Some("it has several planes"));
}
