//! The columns return what was stored.

use super::*;
use crate::dice::Dice;
use crate::nand::small;

const PAGES: u32 = 16;

/// A geometry with `pages_per_block` pages per block.
fn with_pages(pages_per_block: u32) -> Geometry {
    Geometry {
        pages_per_block,
        ..small::GEOMETRY
    }
}

/// A version with numbers in a narrow range, or anywhere.
fn version(dice: &mut Dice, at: Ppn, near: u64) -> Version {
    let is_near = near > 0;
    let mut number = |bits: u32| {
        if is_near {
            near + dice.below(5)
        } else {
            dice.below(1 << bits)
        }
    };
    let (seq, tx, lpn) = (number(48), TxId(number(48)), Lpn(number(31) as u32));
    let (count, verdict) = (number(31) as u32, number(32) as u32);
    let count = if number(1) == 0 { 0 } else { count };
    let sum = number(63);
    let slot = match dice.below(4) {
        0 => Slot::Trimmed(at),
        _ => Slot::Page(at),
    };
    Version {
        tx: if dice.below(8) == 0 { TxId(0) } else { tx },
        seq,
        count,
        sum: (count > 0 && dice.below(3) == 0).then_some(sum),
        verdict: if dice.below(2) == 0 { 0 } else { verdict },
        lpn,
        slot,
        is_list: matches!(slot, Slot::Trimmed(_)) && dice.below(2) == 0,
    }
}

/// An undecided version in the columns: transaction, block, and the version.
type Said = (TxId, Pbn, u64, (u32, Option<u64>), Lpn, (Slot, bool));

#[test]
fn numbers_come_back_as_they_were_whatever_their_range() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut columns = Columns::new(&with_pages(PAGES));
        let (mut all, mut undecided, mut stated) = (Vec::new(), Vec::<Said>::new(), Vec::new());
        for block in [3, 0, 7, 2].map(Pbn) {
            let near = dice.below(2) * (1 + dice.below(1 << 40));
            let mut versions = Vec::new();
            for page in 0..PAGES {
                let at = Ppn(block.0 * PAGES + page);
                if dice.below(6) > 0 {
                    versions.push((page, version(&mut dice, at, near)));
                }
            }
            columns.push(block, &versions);
            for (page, version) in versions {
                let at = Ppn(block.0 * PAGES + page);
                let place = version.decided().map(|(_, place)| place);
                all.push((at, version, place));
                let Version {
                    tx,
                    seq,
                    count,
                    sum,
                    lpn,
                    slot,
                    is_list,
                    ..
                } = version;
                match place {
                    None => {
                        undecided.push((tx, block, seq, (count, sum), lpn, (slot, is_list)));
                    }
                    Some(place) if !version.is_alone() => stated.push((tx, place, block)),
                    Some(_) => {}
                }
            }
        }
        for (at, version, place) in all {
            let of_tx = |tx: TxId| (tx == version.tx).then_some(7);
            let rank = (place.unwrap_or(7), version.seq);
            assert_eq!(columns.rank(at, of_tx), rank, "seed {seed}, page {at}");
        }
        let mut found = Vec::new();
        for run in columns.undecided() {
            let of_run = columns.of_run(&run);
            found.extend(of_run.map(|of| {
                (
                    run.tx,
                    run.block,
                    of.seq,
                    (of.count, of.sum),
                    of.lpn,
                    (of.slot, of.is_list),
                )
            }));
        }
        assert_eq!(found, undecided, "seed {seed}");
        stated.dedup();
        let mut of: Vec<TxId> = stated.iter().map(|&(tx, ..)| tx).collect();
        of.sort_unstable();
        of.dedup();
        assert_eq!(
            columns.stated(&of).collect::<Vec<_>>(),
            stated,
            "seed {seed}"
        );
        let some: Vec<TxId> = of.into_iter().step_by(3).collect();
        stated.retain(|(tx, ..)| some.contains(tx));
        assert_eq!(
            columns.stated(&some).collect::<Vec<_>>(),
            stated,
            "seed {seed}"
        );
    }
}

#[test]
fn pages_of_a_load_take_a_byte_each_at_most() {
    let bytes = |count_at: u32, verdict: u32| {
        let mut columns = Columns::new(&with_pages(128));
        let versions = (0..127).map(|page| {
            let version = Version {
                tx: TxId(9_000),
                seq: 1_000_000 + u64::from(page),
                count: if page == count_at { 70_000 } else { 0 },
                sum: None,
                verdict: verdict.saturating_sub(page),
                lpn: Lpn(50_000 + page),
                slot: Slot::Page(Ppn(page)),
                is_list: false,
            };
            (page, version)
        });
        columns.push(Pbn(0), &versions.collect::<Vec<_>>());
        columns.bytes.len() - WORD
    };
    assert_eq!(bytes(127, 0), 127, "a distance between logical pages");
    assert_eq!(
        bytes(127, 9_000),
        127 * 7 / 8 + 1,
        "a distance to the commit"
    );
}
