//! The end of a device under every protocol: its blocks wear out until it refuses writes. It must
//! report that, and all acknowledged data must stay readable, also after restarts.

use crate::small_device::{EVERYTHING, NOTHING, Small, unwaited};
use flagstone::commit::{DeviceError, Kind};
use flagstone::dice::Dice;
use flagstone::ftl::{Config, EndOfLife, FtlError, Scrub, Wear};
use flagstone::nand::{Geometry, small};
use flagstone::units::{Nanos, Pbn};

const PAGES: u32 = 96;

const GEOMETRY: Geometry = Geometry {
    blocks_per_plane: 30,
    pages_per_block: 6,
    strict_order: false,
    ..small::GEOMETRY
};

/// Number of erases that a block survives; differs between blocks.
fn endurance(block: Pbn) -> u32 {
    12 + block.0 * 7 % 9
}

/// A device, and its acknowledged contents.
struct Life {
    kind: Kind,
    small: Small,
    holds: Vec<u8>,
    /// Pages that a device without transactions accepted but never declared durable.
    doubted: Vec<u32>,
    dice: Dice,
}

impl Life {
    fn new(kind: Kind) -> Life {
        Life::with(kind, None)
    }

    fn with(kind: Kind, scrub: Option<Scrub>) -> Life {
        let mut config = Config::small(PAGES, Some(3));
        config.scrub = scrub;
        Life {
            kind,
            small: Small::on(small::chip(GEOMETRY), config, kind, unwaited(kind)),
            holds: vec![0; PAGES as usize],
            doubted: Vec::new(),
            dice: Dice(kind as u64),
        }
    }

    /// Runs a transaction of a few pages. Rolls it back if the device refuses it.
    fn transaction(&mut self) -> Result<(), DeviceError> {
        let value = self.dice.pick(250) as u8 + 1;
        let first = self.dice.pick(PAGES - 4);
        let pages: Vec<u32> = (first..=first + self.dice.pick(3)).collect();
        let now = self.small.now;
        let tx = self.small.device().begin(now)?;
        let mut write = || -> Result<(), DeviceError> {
            for &at in &pages {
                self.small.try_write(tx, at, value)?;
            }
            self.small.try_commit(tx)
        };
        let outcome = write();
        if outcome.is_ok() {
            pages.iter().for_each(|&at| self.holds[at as usize] = value);
            return Ok(());
        }
        // A device without transactions keeps accepted writes.
        if self.kind == Kind::Plain {
            for &at in &pages {
                self.holds[at as usize] = self.small.value(at);
            }
            self.doubted.extend(pages);
        }
        let now = self.small.now;
        // The rollback may need a write as well and fail: then the restart rolls back.
        let _ = self.small.device().abort(now, tx);
        outcome
    }

    fn is_whole(&mut self) -> bool {
        self.small.values(PAGES) == self.holds
    }

    /// Runs until the device refuses writes. Calls `look` after each transaction.
    fn live_out(mut self, mut look: impl FnMut(&mut Small)) -> (Life, DeviceError) {
        for round in 0..4_000 {
            for _ in 0..40 {
                if let Err(error) = self.transaction() {
                    return (self, error);
                }
                look(&mut self.small);
            }
            let cut = [NOTHING, EVERYTHING][round % 2];
            self.small = self.small.wear_out(cut, endurance);
            assert!(self.is_whole(), "{}: round {round}", self.kind);
        }
        panic!("{} takes writes for ever", self.kind);
    }
}

#[test]
fn a_worn_out_device_says_so_and_all_that_was_acknowledged_can_be_read() {
    for &kind in Kind::ALL {
        let (mut life, error) = Life::new(kind).live_out(|_| {});
        let is_end = |error: &DeviceError| {
            matches!(
                error,
                DeviceError::Ftl(FtlError::Full { .. } | FtlError::MetaFull)
            )
        };
        assert!(is_end(&error), "{kind}: {error}");
        assert!(life.is_whole(), "{kind}, at its end");
        let worn = life.small.device().ftl().blocks().out_of_service();
        assert!(worn > 2, "{kind}: {worn} blocks");
        for cut in [NOTHING, EVERYTHING] {
            let mut refused = 0;
            for _ in 0..20 {
                let outcome = life.transaction();
                assert!(
                    outcome.as_ref().err().is_none_or(is_end),
                    "{kind}: {outcome:?}"
                );
                refused += u32::from(outcome.is_err());
                assert!(life.is_whole(), "{kind}, after its end");
            }
            assert!(refused > 0, "{kind} takes writes again");
            life.small = life.small.restart(cut);
            for at in std::mem::take(&mut life.doubted) {
                life.holds[at as usize] = life.small.value(at);
            }
            assert!(life.is_whole(), "{kind}, after a restart");
        }
    }
}

/// Fails if reads need the room that due scrubbing needs.
#[test]
fn a_worn_out_device_is_read_while_scrubbing_is_due() {
    let patrol = Nanos::from_micros(10_000_000);
    for &kind in Kind::ALL {
        let scrub = Some(Scrub { bits: 1, patrol });
        let (mut life, _) = Life::with(kind, scrub).live_out(|_| {});
        for _ in 0..4 {
            life.small.now += patrol;
            assert!(life.is_whole(), "{kind}, at its end");
        }
    }
}

/// Reports of a device's end of life until it came, by one way of reading its wear.
#[derive(Debug, Default)]
struct Said {
    /// Number of accepted transactions.
    all: u64,
    /// Number of transactions before the end was reported as near.
    far: u64,
}

/// Runs a device until its end. Queries every way of reading its wear after each transaction.
fn said_until_the_end<const N: usize>(
    kind: Kind,
    readings: [fn(Wear) -> EndOfLife; N],
) -> [Said; N] {
    let mut said = [(); N].map(|()| Said::default());
    Life::new(kind).live_out(|small| {
        let wear = small.device().ftl().wear();
        for (reading, said) in readings.iter().zip(&mut said) {
            let was_far = said.all == said.far;
            said.all += 1;
            said.far += u64::from(was_far && reading(wear) == EndOfLife::Far);
        }
    });
    said
}

#[test]
fn the_end_is_said_to_be_near_before_it_comes_and_not_long_before() {
    for &kind in Kind::ALL {
        // Without and with the erases that a block is rated for; and the control, which does not
        // see that blocks fail.
        let [blocks, rated, blind] = said_until_the_end(
            kind,
            [
                |wear| wear.end(None),
                |wear| wear.end(Some(12)),
                |wear| {
                    let mut blind = wear;
                    blind.may_fail = wear.may_fail + wear.out_of_service;
                    blind.is_short = false;
                    blind.end(None)
                },
            ],
        );
        assert!(blocks.far < blocks.all, "{kind}: {blocks:?} was no warning");
        assert!(
            blocks.far > blocks.all / 2,
            "{kind}: {blocks:?} was no news"
        );
        // The first block fails at its rated erases, the last one long after: this is said earlier.
        assert!((1..=blocks.far).contains(&rated.far), "{kind}: {rated:?}");
        assert_eq!(blind.far, blind.all, "{kind}: {blind:?} is the control");
    }
}

#[test]
fn a_page_that_is_taken_from_a_worn_out_device_is_missed() {
    // The control: the test above looks at every page.
    let (mut life, _) = Life::new(Kind::Seal).live_out(|_| {});
    life.holds[7] ^= 1;
    assert!(!life.is_whole());
}

#[test]
fn a_worn_out_device_says_how_many_blocks_are_out_of_service() {
    let (_, error) = Life::new(Kind::Seal).live_out(|_| {});
    let error = error.to_string();
    assert!(error.contains("blocks are out of service"), "{error}");
    assert!(error.contains("can still be read"), "{error}");
}
