//! What CFC and AFC do alike, and what recovery costs them.
//!
//! Codes       D8 of [`cfc`] and [`afc`]

use crate::laid::bench;
use crate::small_device::{EVERYTHING, NOTHING, Small, below};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Cause, Config, Operation};
use flagstone::nand::{Geometry, small};

#[test]
fn d8_on_a_device_of_strict_order_copies_carry_the_flags() {
    for kind in [Kind::Cfc, Kind::Afc] {
        let mut bench = bench(kind, true, true);
        for round in 1..40 {
            bench.set(round, &[0, 1, 2, 3]);
            let tx = bench.open(200, &[3, 2, 0, 1]);
            bench.abort(tx);
            bench.set(round, &[4, 2]);
            if round % 5 == 0 {
                bench = bench.restart(EVERYTHING);
            }
            assert_eq!(bench.values(5), [round; 5]);
        }
        assert_eq!(bench.device().stats().total(Operation::Reprogram), 0);
    }
}

#[test]
fn recovery_reads_every_flag_and_that_of_cfc_only_the_heads() {
    let reads = |kind| {
        let mut bench = bench(kind, true, false);
        for round in 1..40 {
            bench.set(round, &[0, 1, 2, 3, 4, 5]);
        }
        let mut bench = bench.restart(EVERYTHING);
        assert_eq!(bench.values(6), [39; 6]);
        bench.count(Operation::Read, Cause::Recovery)
    };
    let [afc, cfc, none] = [Kind::Afc, Kind::Cfc, Kind::Plain].map(reads);
    assert!(afc > none + 50, "{afc} reads");
    assert!(cfc < none + 10, "{cfc} reads, {none} without flags");
}

/// On a device of strict order a commit needs a carrier for each of its heads. If they took the
/// blocks that are reserved for the collector, nothing could be reclaimed any more.
#[test]
fn d8_a_full_device_of_strict_order_takes_a_transaction_after_a_restart() {
    let (pages, blocks) = (30, 21);
    for kind in [Kind::Cfc, Kind::Afc] {
        let chip = small::chip(Geometry {
            channels: 1,
            blocks_per_plane: blocks,
            pages_per_block: 5,
            ..small::GEOMETRY
        });
        let config = Config::small(pages, None);
        let mut bench = Small::on(chip, config, kind, Options::default());
        let mut dice = 1;
        for round in 0..200 {
            let live = [bench.begin(), bench.begin()];
            for _ in 0..below(&mut dice, 200) {
                let (tx, at) = (below(&mut dice, 2), below(&mut dice, pages));
                // It may be refused.
                let _ = bench.try_write(live[tx as usize], at, 7);
            }
            for tx in live {
                if below(&mut dice, 2) == 0 || bench.try_commit(tx).is_err() {
                    bench.abort(tx);
                }
            }
            let landed = [NOTHING, EVERYTHING][below(&mut dice, 2) as usize];
            bench = bench.restart(landed);
            let small = bench.try_put(&[(below(&mut dice, pages), 8)]);
            small.unwrap_or_else(|error| panic!("{kind:?}, round {round}: {error}"));
            bench.check();
        }
    }
}
