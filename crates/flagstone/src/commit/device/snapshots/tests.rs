//! What readers of snapshots see is compared with copies that a model keeps, through collections,
//! whole and in steps, and through power cuts.

use crate::commit::small_device::{EVERYTHING, Small, below};
use crate::commit::{Config, DeviceError, Kind, Options};
use crate::ftl::Slot;
use crate::nand::{Cut, Geometry, small};
use crate::units::{Lpn, SnapshotId};

const PAGES: u32 = 200;

fn device(blocks: u32, works_ahead: bool) -> Small {
    let chip = small::chip(Geometry {
        channels: 1,
        blocks_per_plane: blocks,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let config = Config {
        works_ahead,
        ..Config::small(PAGES, None)
    };
    Small::on(chip, config, Kind::Seal, Options::default())
}

/// What a snapshot has of a page: 0 for nothing.
fn value(small: &mut Small, id: SnapshotId, at: u32) -> Result<u8, DeviceError> {
    let (now, mut page) = (small.now, [0; 512]);
    let (_, bytes) = small.device().read_snapshot(now, id, Lpn(at), &mut page)?;
    Ok(bytes.map_or(0, |_| page[0]))
}

/// Writes, trims and aborts, with up to four snapshots open. Returns what is committed, how many
/// pages of snapshots were compared, and whether the power failed.
fn history(small: &mut Small, dice: &mut u32, model: &mut [u8], steps: u32) -> (u32, bool) {
    let mut open: Vec<(SnapshotId, Vec<u8>)> = Vec::new();
    let mut compared = 0;
    for _ in 0..steps {
        match below(dice, 12) {
            0 if open.len() < 4 => {
                let id = small.device().snapshot().expect("seal gives snapshots");
                open.push((id, model.to_vec()));
            }
            1 if !open.is_empty() => {
                let place = below(dice, open.len() as u32) as usize;
                let (id, _) = open.swap_remove(place);
                small.device().end_snapshot(id);
            }
            2 => {
                let pages: Vec<u32> = (0..3).map(|_| below(dice, PAGES)).collect();
                match small.try_open(200, &pages) {
                    Ok(tx) => {
                        let now = small.now;
                        if small.device().abort(now, tx).is_err() {
                            return (compared, true);
                        }
                    }
                    Err(_) => return (compared, true),
                }
            }
            3 => {
                let at = below(dice, PAGES);
                let now = small.now;
                let Ok(tx) = small.try_open(0, &[]) else {
                    return (compared, true);
                };
                let trimmed = small.device().trim(now, tx, Lpn(at));
                if trimmed.is_err() || small.try_commit(tx).is_err() {
                    return (compared, true);
                }
                model[at as usize] = 0;
            }
            _ => {
                let (at, tag) = (below(dice, PAGES), 1 + below(dice, 150) as u8);
                if small.try_put(&[(at, tag)]).is_err() {
                    return (compared, true);
                }
                model[at as usize] = tag;
            }
        }
        for (id, then) in &open {
            let at = below(dice, PAGES);
            assert_eq!(
                value(small, *id, at),
                Ok(then[at as usize]),
                "page {at} of {id:?}"
            );
            compared += 1;
        }
    }
    for (id, then) in &open {
        for at in 0..PAGES {
            assert_eq!(
                value(small, *id, at),
                Ok(then[at as usize]),
                "page {at} of {id:?}"
            );
        }
        // Equal values may be other versions.
        let is_current = small.device().ftl().is_current(*id);
        assert!(!is_current || then == model, "{id:?}");
    }
    small.check();
    for (id, _) in open {
        small.device().end_snapshot(id);
    }
    small.check();
    assert_eq!(small.device().ftl().snapshots(), (0, 0));
    (compared, false)
}

#[test]
fn a_snapshot_is_what_was_committed_when_it_was_taken() {
    for works_ahead in [false, true] {
        let (mut small, mut dice, mut model) =
            (device(160, works_ahead), 5, vec![0; PAGES as usize]);
        for _ in 0..12 {
            let (compared, failed) = history(&mut small, &mut dice, &mut model, 400);
            assert!(compared > 100 && !failed);
            assert_eq!(small.values(PAGES), model);
        }
        let collections = small.device().stats().collections;
        assert!(collections > 100, "{collections} collections");
    }
}

#[test]
fn a_reader_without_a_snapshot_sees_what_others_do() {
    let (mut small, mut dice) = (device(64, true), 5);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    let ftl = small.device().ftl();
    let then: Vec<Slot> = (0..PAGES).map(|at| ftl.slot(Lpn(at))).collect();
    for _ in 0..600 {
        small.put(&[(below(&mut dice, PAGES), 2)]);
    }
    let device = small.device();
    let gone = then.iter().filter(|slot| {
        let page = slot.ppn().expect("it was written");
        !device.ftl().is_live(page)
    });
    assert!(gone.count() > 100, "what no snapshot retains is collected");
}

#[test]
fn a_power_cut_with_snapshots_open_loses_nothing() {
    for works_ahead in [false, true] {
        let (mut small, mut dice, mut model) =
            (device(160, works_ahead), 9, vec![0; PAGES as usize]);
        let mut cuts = 0;
        for at in 0..120 {
            small = small.arm(Cut {
                at: at * 3,
                dice: 0x7b * at,
                torn: at % 2 == 0,
            });
            let before = model.clone();
            let (_, failed) = history(&mut small, &mut dice, &mut model, 300);
            cuts += u32::from(failed);
            small = small.restart([EVERYTHING, 0, 5][at as usize % 3]);
            assert_eq!(small.device().ftl().snapshots(), (0, 0));
            let found = small.values(PAGES);
            let differ = (0..PAGES as usize).filter(|&at| found[at] != model[at]);
            // The one that was in doubt.
            assert!(differ.count() <= usize::from(failed), "cut {at}");
            assert!(before.len() == found.len());
            model = found;
            small.check();
        }
        assert!(cuts > 60, "{cuts} cuts");
    }
}

#[test]
fn snapshots_end_before_a_device_is_full() {
    let (mut small, mut dice) = (device(64, true), 3);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    let oldest = small.device().snapshot().expect("seal gives snapshots");
    let mut newest = oldest;
    for round in 0..3_000 {
        small.put(&[(below(&mut dice, PAGES), 2)]);
        if round % 50 == 0 {
            newest = small.device().snapshot().expect("seal gives snapshots");
        }
    }
    assert_eq!(
        value(&mut small, oldest, 0),
        Err(DeviceError::SnapshotEnded)
    );
    assert!(value(&mut small, newest, 0).is_ok());
    small.check();
    // It may be given back all the same.
    small.device().end_snapshot(oldest);
}

#[test]
fn a_protocol_that_cannot_says_so() {
    let mut small = Small::new(Kind::Scc, Options::default());
    let refused = small.device().snapshot().expect_err("it cannot");
    assert!(refused.to_string().contains("use seal"), "{refused}");
}
