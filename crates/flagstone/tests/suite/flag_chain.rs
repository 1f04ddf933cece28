//! What CFC and AFC do alike, and what recovery costs them.
//!
//! Codes       D8 of [`cfc`] and [`afc`]

use crate::laid::bench;
use crate::small_device::EVERYTHING;
use flagstone::commit::Kind;
use flagstone::ftl::{Cause, Operation};

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
