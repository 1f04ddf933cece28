//! The same run on the simulated chip and on a medium: cut at the same operation, with the same
//! landing, both are recovered to the same state.
//!
//! Clients work on a device over the chip until the power fails at an operation. What has landed is
//! known there, operation by operation. A medium gets the same operations, as far as they have
//! landed. Then a device is started on each.

use super::*;
use crate::medium::Recorded;
use crate::pages::config;
use crate::superblock::Lifetime;
use flagstone::commit::{Device, DeviceError, Kind, Options};
use flagstone::ftl::{BlockState, FtlError};
use flagstone::nand::{Aim, Chip, Cut, PowerCut, Shared, Timing};
use flagstone::units::{Lpn, TxId};
use std::sync::{Arc, Mutex};

const PAGES: u32 = 16;
/// Logical pages that the clients write to.
const USED: u32 = 40;

/// A run depends on nothing else.
#[derive(Debug, Clone, Copy)]
struct RunId {
    kind: Kind,
    seed: u64,
}

/// An operation that changes the flash.
#[derive(Debug, Clone)]
enum Op {
    Program(Ppn, Vec<u8>, Vec<u8>),
    Erase(Pbn),
}

impl Op {
    /// As [`flagstone::nand::Fate`] has it.
    fn words(&self) -> String {
        match self {
            Op::Program(at, ..) => format!("program p{at}"),
            Op::Erase(block) => format!("erase b{block}"),
        }
    }
}

/// A chip whose operations are noted.
struct Noting {
    chip: Shared<PowerCut>,
    ops: Arc<Mutex<Vec<Op>>>,
}

impl Noting {
    fn note(&self, op: impl FnOnce() -> Op) {
        if !self.chip.look(PowerCut::is_off) {
            self.ops.lock().expect("one thread").push(op());
        }
    }
}

impl Flash for Noting {
    fn geometry(&self) -> &Geometry {
        self.chip.geometry()
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.chip.read(now, at, data, spare)
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.note(|| Op::Program(at, data.to_vec(), spare.to_vec()));
        self.chip.program(now, at, data, spare)
    }

    fn reprogram(&mut self, _: Nanos, _: Ppn, _: usize, _: &[u8]) -> Result<Nanos, FlashError> {
        unreachable!("a store has no protocol that reprograms")
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.note(|| Op::Erase(block));
        self.chip.erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.chip.sync(now, until)
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.chip.is_factory_bad(block)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.chip.peek(at, data, spare)
    }
}

/// A stream of numbers from one (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Everything that a restart finds.
#[derive(Debug, PartialEq, Eq)]
struct State {
    contents: Vec<Result<Option<Vec<u8>>, String>>,
    places: Vec<Option<Ppn>>,
    blocks: Vec<(BlockState, u32)>,
    last_seq: u64,
    next_tx: TxId,
}

fn state(flash: Box<dyn Flash>, kind: Kind) -> State {
    let opened = Device::open(flash, kind, config(), &Options::default(), Nanos::ZERO);
    let mut device = opened.unwrap_or_else(|error| panic!("{kind}: {error}"));
    device
        .check()
        .unwrap_or_else(|what| panic!("{kind}: {what}"));
    let now = device.recovered_at();
    let contents = (0..USED).map(|at| {
        let read = device.read(now, None, Lpn(at));
        let bytes = read.map(|(_, bytes)| bytes.map(<[u8]>::to_vec));
        bytes.map_err(|error| error.to_string())
    });
    let contents = contents.collect();
    let ftl = device.ftl();
    let blocks = (0..ftl.geometry().blocks()).map(Pbn);
    State {
        contents,
        places: (0..USED).map(|at| ftl.slot(Lpn(at)).ppn()).collect(),
        blocks: blocks
            .map(|block| (ftl.block_state(block), ftl.live_in(block)))
            .collect(),
        last_seq: ftl.last_seq(),
        next_tx: device.begin(now).expect("a transaction"),
    }
}

/// Three clients write, trim, commit and roll back until the power fails, or for a while.
fn work(device: &mut Device, dice: &mut Dice) -> Result<(), DeviceError> {
    let mut now = device.recovered_at();
    let mut live: Vec<(TxId, u64)> = Vec::new();
    let most = device.live_max().map_or(3, |most| most.min(3)) as usize;
    for step in 0..4_000u64 {
        now += Nanos::from_micros([0, 0, 100, 5_000][dice.below(4) as usize]);
        device.acknowledged(now, live.is_empty())?;
        if live.len() < most && dice.below(3) == 0 {
            live.push((device.begin(now)?, 1 + dice.below(6)));
        }
        if live.is_empty() {
            continue;
        }
        let which = dice.below(live.len() as u64) as usize;
        let (tx, left) = live[which];
        if left > 0 {
            live[which].1 -= 1;
            let at = Lpn(dice.below(u64::from(USED)) as u32);
            let bytes = step.to_le_bytes();
            let written = match dice.below(8) {
                0 => device.trim(now, tx, at),
                _ => device.write(now, tx, at, &bytes),
            };
            match written {
                Ok(_) | Err(DeviceError::Conflict { .. } | DeviceError::WrittenTwice { .. }) => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        live.swap_remove(which);
        match dice.below(5) {
            0 => now = device.abort(now, tx)?,
            _ => now = device.commit(now, tx)?.unwrap_or(now),
        }
    }
    Ok(())
}

/// A run on the chip: what a restart finds there, and on media with what has landed, and with all
/// that was issued. Nothing if the power did not fail.
fn both(id: RunId) -> Option<[State; 3]> {
    let mut blocks = 16;
    while id
        .kind
        .info()
        .suits(&geometry(PAGES, blocks), &config())
        .is_err()
    {
        blocks *= 2;
    }
    let geometry = geometry(PAGES, blocks);
    let mut dice = Dice(id.seed);
    let cut = Cut {
        at: dice.below(900),
        dice: dice.next() >> 16,
        torn: false,
    };
    let chip = Chip::new(geometry, Timing::default(), SPARE_BYTES);
    let power = PowerCut::new(chip).telling().arm(cut).aim(Aim::Exact);
    let (chip, ops) = (Shared::new(power), Arc::default());
    let noting = Noting {
        chip: chip.clone(),
        ops: Arc::clone(&ops),
    };
    let options = Options::default();
    let opened = Device::open(Box::new(noting), id.kind, config(), &options, Nanos::ZERO);
    let mut device = opened.expect("a blank chip");
    match work(&mut device, &mut dice) {
        Err(DeviceError::Ftl(FtlError::PowerLost)) => {}
        Ok(()) => return None,
        Err(error) => panic!("{id:?}: {error}"),
    }
    drop(device);
    let power = chip.take();
    let ops = std::mem::take(&mut *ops.lock().expect("one thread"));
    // What is not among the fates was safe. The last operations are in flight.
    let mut fates = power.fates().iter().rev().peekable();
    let mut landed = vec![true; ops.len()];
    for (op, landed) in ops.iter().zip(&mut landed).rev() {
        if let Some(fate) = fates.next_if(|fate| fate.what == op.words()) {
            *landed = fate.landed;
        }
    }
    assert!(
        fates.next().is_none(),
        "{id:?}: a fate without an operation"
    );
    let all = vec![true; ops.len()];
    let media = [landed, all].map(|landed| {
        let medium = Recorded::default();
        let superblock = Superblock {
            pages_per_block: PAGES,
            blocks,
            boot: 0,
            sequence: 0,
            protocol: id.kind,
            closed: Some(true),
            rested: 0,
            life: Lifetime::default(),
        };
        let open = |medium: &Recorded| {
            let found = Superblock::read(medium).expect("it can be read");
            let head = found.map_or_else(|| superblock, |head| head.superblock);
            MediumFlash::new(Box::new(medium.clone()), head, false)
        };
        let mut flash = open(&medium);
        let mut done = Nanos::ZERO;
        for (op, _) in ops.iter().zip(landed).filter(|(_, landed)| *landed) {
            done = match op {
                Op::Program(at, data, spare) => flash.program(done, *at, data, spare),
                Op::Erase(block) => flash.erase(done, *block),
            }
            .expect("the medium is whole");
        }
        flash.sync(done, done).expect("the medium is whole");
        drop(flash);
        state(Box::new(open(&medium)), id.kind)
    });
    let [there, everything] = media;
    let chip = Shared::new(PowerCut::new(power.into_chip()));
    Some([state(Box::new(chip), id.kind), there, everything])
}

#[test]
fn a_cut_leaves_the_same_on_the_chip_and_on_a_medium() {
    let kinds = Kind::ALL.iter().filter(|kind| !kind.info().reprograms);
    for &kind in kinds {
        let (mut runs, mut others) = (0, 0);
        for seed in 0..60 {
            let id = RunId { kind, seed };
            if let Some([chip, medium, everything]) = both(id) {
                assert_eq!(chip, medium, "{id:?}");
                runs += 1;
                others += u32::from(chip != everything);
            }
        }
        assert!(runs >= 50, "{kind}: {runs} cuts");
        // The control: a medium on which everything has landed is another one.
        assert!(others >= 10, "{kind}: {others} of {runs}");
    }
}
