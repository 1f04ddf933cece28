//! What the tails of CFC and AFC hold, what the two do alike, and what recovery costs them.

use super::bench::bench;
use super::{FLAG_BYTES, Link, Tail, spare};
use crate::commit::Kind;
use crate::commit::small_device::EVERYTHING;
use crate::ftl::{Cause, Operation, header};
use crate::units::{Ppn, TxId};

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

#[test]
fn a_tail_has_these_bytes_and_comes_back() {
    let mut bytes = [0; spare::SIZE];
    let tail = Tail {
        version: 0x0605_0403_0201,
        xid: TxId(0x0c0b_0a09_0807),
        link: Some(Link::to(Ppn(0x100f_0e0d), 0xaaaa_1413_1211)),
        born: 0x15,
        flag: 0x15,
    };
    tail.emit(&mut bytes);
    let mut right: Vec<u8> = (1..=0x15).collect();
    right.push(0x15);
    assert_eq!(bytes.as_slice(), right);
    assert_eq!(Tail::parse(&bytes), tail);
    let first = Tail { link: None, ..tail };
    first.emit(&mut bytes);
    assert_eq!(Tail::parse(&bytes), first);
}

#[test]
fn the_summary_of_a_64_page_block_fits_a_2_kib_page() {
    let record = header::SIZE + spare::SIZE - FLAG_BYTES;
    assert_eq!(record * 63, 2_016);
}
