//! Protocols whose blocks are collected in steps: no request pays for a whole collection, and a
//! power cut between two steps loses nothing.

use super::seal::Mistake;
use super::small_device::{EVERYTHING, NOTHING, Small, below};
use super::{Config, Device, DeviceError, Kind, Options};
use crate::forward_flash;
use crate::ftl::{BlockState, FtlError};
use crate::nand::{Aim, Chip, Cut, Flash, FlashError, Geometry, small};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGES: u32 = 320;
const PAGES_PER_BLOCK: u32 = 16;
/// Transactions of one page in a history.
const STEPS: u32 = 400;

/// The protocols that allow it.
const IN_STEPS: [Kind; 2] = [Kind::Seal, Kind::SealR];

/// A device that is full to two thirds.
fn device(kind: Kind, planes: u32, works_ahead: bool, mistake: Option<Mistake>) -> Small {
    let chip = small::chip(Geometry {
        channels: planes,
        blocks_per_plane: 48 / planes,
        pages_per_block: PAGES_PER_BLOCK,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let config = Config {
        works_ahead,
        ..Config::small(PAGES, None)
    };
    let options = Options {
        mistake: mistake.into(),
        ..Options::default()
    };
    let mut small = Small::on(chip, config, kind, options);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    small
}

/// The most pages that the collector moved for one transaction of one page, and all.
fn moved(small: &mut Small) -> (u64, u64) {
    let (mut most, mut dice) = (0, 7);
    let start = small.device().stats().relocated;
    for _ in 0..3_000 {
        let before = small.device().stats().relocated;
        small.put(&[(below(&mut dice, PAGES), 2)]);
        most = most.max(small.device().stats().relocated - before);
    }
    small.check();
    (most, small.device().stats().relocated - start)
}

#[test]
fn a_request_moves_few_pages_and_no_more_are_moved_in_all() {
    for kind in IN_STEPS {
        let (at_once, whole) = moved(&mut device(kind, 1, false, None));
        let (in_steps, ahead) = moved(&mut device(kind, 1, true, None));
        assert!(at_once >= 5, "{kind}: a whole collection moved {at_once}");
        assert!(in_steps <= 3, "{kind}: a step moved {in_steps}");
        assert!(whole > 500, "{kind}: {whole} pages were moved");
        // Of 48 blocks, two more are kept free.
        assert!(ahead < whole * 3 / 2, "{kind}: {ahead} beside {whole}");
    }
}

#[test]
fn others_collect_whole_blocks() {
    let (most, _) = moved(&mut device(Kind::Plain, 1, true, None));
    assert!(most >= 5, "{most} pages at most");
}

/// Transactions that stay open over many steps, and others that commit and roll back meanwhile.
/// Returns what is committed, page by page, and the pages of the commit in doubt if the power
/// failed in it.
fn history(small: &mut Small, values: &mut [u8], tag: u8) -> Option<Vec<u32>> {
    let mut dice = u32::from(tag);
    let mut open: Option<(TxId, Vec<u32>)> = None;
    for step in 0..STEPS {
        if step % 8 == 0 {
            if open.is_none() {
                let Ok(tx) = small.try_open(tag, &[]) else {
                    return Some(Vec::new());
                };
                open = Some((tx, Vec::new()));
            }
            let (tx, pages) = open.as_mut().expect("it was opened");
            // The pages of one transaction lie apart from those of the others.
            let at = below(&mut dice, PAGES / 2) * 2 + 1;
            if small.try_write(*tx, at, tag).is_err() {
                return Some(Vec::new());
            }
            pages.push(at);
        }
        match step {
            199 => {
                let (tx, _) = open.take().expect("it is open");
                let now = small.now;
                if small.device().abort(now, tx).is_err() {
                    return Some(Vec::new());
                }
            }
            399 => {
                let (tx, pages) = open.take().expect("it is open");
                if small.try_commit(tx).is_err() {
                    return Some(pages);
                }
                pages.iter().for_each(|&at| values[at as usize] = tag);
            }
            _ => {}
        }
        let at = below(&mut dice, PAGES / 2) * 2;
        if small.try_put(&[(at, tag)]).is_err() {
            return Some(vec![at]);
        }
        values[at as usize] = tag;
    }
    None
}

/// Cuts a device again and again, and counts after how many cuts something was wrong.
fn wrong_after_cuts(kind: Kind, mistake: Option<Mistake>) -> u32 {
    let (mut cuts, mut wrong) = (0, 0);
    let mut small = device(kind, 2, true, mistake);
    let mut values = vec![1; PAGES as usize];
    assert_eq!(history(&mut small, &mut values, 2), None);
    for at in 0..260 {
        let cut = Cut {
            at: 3 * at,
            dice: 0x9d * at + [NOTHING, EVERYTHING][at as usize % 2],
            torn: at % 3 == 0,
        };
        // Each third one falls on an erase, before which copies may not be durable.
        small = small.arm_at(cut, [Aim::Any, Aim::Any, Aim::Overtaking][at as usize % 3]);
        let tag = 3 + (at % 200) as u8;
        let in_doubt = history(&mut small, &mut values, tag);
        cuts += u32::from(in_doubt.is_some());
        small = small.restart(at % 7);
        let in_doubt = in_doubt.unwrap_or_default();
        let with_tag = |value: u8| value == tag;
        let was = in_doubt
            .iter()
            .filter(|&&page| with_tag(values[page as usize]))
            .count();
        let landed = in_doubt
            .iter()
            .filter(|&&page| with_tag(small.value(page)))
            .count();
        if landed > was {
            in_doubt
                .iter()
                .for_each(|&page| values[page as usize] = tag);
        }
        let found = small.values(PAGES);
        wrong += u32::from(found != values);
        values = found;
        if mistake.is_none() {
            small.check();
        }
    }
    assert!(cuts > 200, "{kind}: {cuts} cuts");
    wrong
}

#[test]
fn a_cut_between_two_steps_loses_nothing() {
    for kind in IN_STEPS {
        assert_eq!(wrong_after_cuts(kind, None), 0, "{kind}");
    }
}

/// A chip on which the next programs fail, as many as were asked for.
struct Failing {
    chip: Chip,
    programs: Arc<AtomicU32>,
}

impl Flash for Failing {
    forward_flash!([chip]: geometry read reprogram erase sync is_factory_bad peek);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.program(now, at, data, spare)?;
        let left = self.programs.load(Ordering::Relaxed);
        self.programs
            .store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            0 => Ok(done),
            _ => Err(FlashError::ProgramFailed { at, done }),
        }
    }
}

/// Wrong where a victim whose pages find no block stays one: nobody collects it any more, and a
/// snapshot that needs one of its pages panics.
#[test]
fn a_collection_without_room_leaves_a_block_that_can_be_collected() {
    for kind in IN_STEPS {
        let programs = Arc::new(AtomicU32::new(0));
        let flash = Failing {
            chip: small::chip(Geometry {
                channels: 1,
                page_bytes: 512,
                ..small::GEOMETRY
            }),
            programs: Arc::clone(&programs),
        };
        let (config, options) = (Config::small(PAGES / 2, None), Options::default());
        let now = Nanos::ZERO;
        let device = Device::open(Box::new(flash), kind, config, &options, now);
        let mut device = device.expect("it is blank");
        let put = |device: &mut Device, at| -> Result<(), DeviceError> {
            let tx = device.begin(now)?;
            device.write(now, tx, Lpn(at), b"page")?;
            device.commit(now, tx).map(|_| ())
        };
        (0..PAGES / 2).for_each(|at| put(&mut device, at).expect("it has room"));
        let first = device.ftl().slot(Lpn(0)).ppn().expect("it is there");
        let victim = device.geometry().block_of(first);
        device.snapshot().expect("it has snapshots");
        // One program fails in each block that the collector opens.
        programs.store(1_000, Ordering::Relaxed);
        let full = device.collect(now, victim);
        assert!(
            matches!(full, Err(FtlError::Full { .. })),
            "{kind}: {full:?}"
        );
        programs.store(0, Ordering::Relaxed);
        assert_eq!(device.ftl().block_state(victim), BlockState::Full, "{kind}");
        device.check().expect("the books agree");
        let put = put(&mut device, 0);
        let is_full = matches!(put, Err(DeviceError::Ftl(FtlError::Full { .. })));
        assert!(put.is_ok() || is_full, "{kind}: {put:?}");
        device.check().expect("the books agree");
    }
}

/// Rules that an erase long after the copies leans on.
const MISTAKES: [Mistake; 3] = [
    Mistake::EvidenceDropped,
    Mistake::WitnessIgnored,
    Mistake::LiveSealed,
];

#[test]
fn rules_that_are_left_out_are_found_missing() {
    for mistake in MISTAKES {
        let wrong = wrong_after_cuts(Kind::Seal, Some(mistake));
        assert!(wrong > 0, "{mistake:?}");
    }
}
