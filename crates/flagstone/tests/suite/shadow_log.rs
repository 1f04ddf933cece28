//! MixSL and G-MixSL on a small device: what goes onto flash, and what comes back from it.
//!
//! Codes       D1, D3, D4, D5 of [`mixsl`]
//! Codes       D6, D7 of [`g_mixsl`]

use crate::layouts::field;
use crate::small_device::{EVERYTHING, NOTHING, Small, form};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::{Cause, Config, Operation, header};
use flagstone::layout::get;
use flagstone::nand::{Cell, Geometry, small};
use flagstone::units::{Nanos, Ppn, TxId};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    planes_per_package: 2,
    blocks_per_plane: 40,
    pages_per_block: 4,
    page_bytes: 64,
    cell: Cell::Mlc,
    ..small::GEOMETRY
};

fn bench(kind: Kind, options: Options) -> Small {
    let config = Config::small(12, None);
    Small::on(small::chip(GEOMETRY), config, kind, options)
}

fn mixsl() -> Small {
    bench(Kind::MixSl, Options::default())
}

fn published() -> Small {
    bench(Kind::MixSl, form(true))
}

/// A device with a way to form groups.
fn group(group: &str) -> Small {
    let options = Options::default().with("group", group);
    bench(Kind::GMixSl, options.with("group_timeout_us", 5_000))
}

fn logged(bench: &mut Small) -> u64 {
    bench.count(Operation::Program, Cause::Log)
}

fn commit(bench: &mut Small, tx: TxId) -> Option<Nanos> {
    let now = bench.now;
    bench.device().commit(now, tx).expect("the power is on")
}

fn acknowledged(now: Nanos, bench: &mut Small, flush: bool) -> Vec<(TxId, Nanos)> {
    let told = bench.device().acknowledged(now, flush);
    told.expect("the power is on")
}

/// The place of a page, and its link.
fn link_of(bench: &mut Small, page: u32) -> (Ppn, Ppn) {
    let at = bench.slot(page).ppn().unwrap();
    let spare = bench.chip(|chip| chip.peek_spare(at)[header::SIZE..].to_vec());
    (
        at,
        Ppn(get(&spare, field("shadow_log::tail", "LINK")) as u32),
    )
}

// [MixSL] §3.2 (test): D1
#[test]
fn a_link_names_the_preceding_version() {
    let mut bench = mixsl();
    bench.put(&[(3, 1)]);
    let (first, link) = link_of(&mut bench, 3);
    assert_eq!(link, Ppn::NONE);
    bench.put(&[(3, 2)]);
    let (second, link) = link_of(&mut bench, 3);
    assert!(link == first && second != first);
    // Of a transaction's own versions the later one links to the earlier one.
    bench.put(&[(3, 3), (3, 4)]);
    let (_, link) = link_of(&mut bench, 3);
    assert!(link != second && link != Ppn::NONE);
}

// [MixSL] §3.2 (test): the log page is the commit point
#[test]
fn a_transaction_counts_from_its_log_page_on() {
    let mut bench = mixsl();
    bench.put(&[(0, 1), (1, 1)]);
    assert_eq!(logged(&mut bench), 1);
    let tx = bench.begin();
    bench.write(tx, 0, 2);
    assert_eq!(bench.value_in(Some(tx), 0), 2);
    assert_eq!(bench.value(0), 1);
    bench.now += Nanos::from_micros(50_000);
    let mut bench = bench.restart(EVERYTHING);
    assert_eq!((bench.value(0), bench.value(1)), (1, 1));
    let later = bench.begin();
    assert!(later > tx, "{later} was given out before");
}

// [MixSL] §3.2 (test): D5
#[test]
fn aborts_and_transactions_without_writes_need_no_record() {
    let mut bench = mixsl();
    bench.roll_back(1, &[0]);
    bench.put(&[]);
    assert_eq!(logged(&mut bench), 0);
    let mut bench = published();
    bench.roll_back(1, &[0]);
    assert_eq!(logged(&mut bench), 1);
    assert_eq!(bench.value(0), 0);
}

// D4
#[test]
fn a_compacted_log_still_tells_the_aborted_from_the_committed() {
    let mut bench = mixsl();
    bench.put(&[(0, 1), (1, 1)]);
    bench.roll_back(2, &[0, 1]);
    let live = bench.begin();
    bench.write(live, 2, 3);
    while bench.checkpoints() == 0 {
        bench.put(&[(5, 5)]);
    }
    // Transactions logged after a compaction must count in addition to earlier ones.
    bench.put(&[(6, 6)]);
    let mut bench = bench.restart(EVERYTHING);
    assert_eq!(
        [0, 1, 2, 5, 6].map(|page| bench.value(page)),
        [1, 1, 0, 5, 6]
    );
    // The transaction that was live then must never count either.
    while bench.checkpoints() == 0 {
        bench.put(&[(7, 7)]);
    }
    let mut bench = bench.restart(EVERYTHING);
    assert_eq!(bench.value(2), 0);
    bench.check();
}

// D4
#[test]
fn the_list_of_the_aborted_stays_within_half_a_block() {
    let mut bench = mixsl();
    let mut bytes_max = 0;
    for round in 0..1500 {
        bench.put(&[(11, round as u8)]);
        // Two identifiers in between make each gap a separate entry.
        bench.roll_back(9, &[round % 11]);
        bytes_max = bytes_max.max(bench.device().ftl().blob().len());
        bench.check();
    }
    let block = (GEOMETRY.pages_per_block * GEOMETRY.page_bytes) as usize;
    assert!(
        bytes_max > block / 4 && bytes_max <= block / 2,
        "{bytes_max}"
    );
    let mut bench = bench.restart(NOTHING);
    assert_eq!(bench.value(0), 0);
    assert_eq!(bench.value(11), (1499 % 256) as u8);
}

// [MixSL] §3.3 (test): D3
#[test]
fn the_collector_keeps_pages_of_live_transactions_unless_as_published() {
    let mut kept = Vec::new();
    for mut bench in [mixsl(), published()] {
        let live = bench.begin();
        bench.write(live, 0, 7);
        let from = bench.device().stats().collections;
        for round in 0..400 {
            bench.put(&[(1 + round % 4, 1)]);
        }
        assert!(bench.device().stats().collections > from);
        bench.commit(live);
        kept.push(bench.value(0));
    }
    assert_eq!(kept, [7, 0]);
}

// [MixSL] §3.3 (test): D3 and what it costs
#[test]
fn as_published_a_collection_reads_every_spare_area() {
    let reads = |mut bench: Small| {
        for round in 0..400 {
            bench.put(&[(round % 12, 1)]);
        }
        let stats = bench.device().stats();
        stats.count(Operation::Read, Cause::Gc) - stats.relocated
    };
    assert_eq!(reads(mixsl()), 0);
    // At least one pass, and a summary page for each block in use by then.
    assert!(reads(published()) > 60);
    let mut bench = published();
    assert_eq!(bench.memory("bitmaps"), 0);
    for round in 0..400 {
        bench.put(&[(round % 12, 1)]);
    }
    assert_eq!(bench.memory("bitmaps"), 2 * u64::from(GEOMETRY.pages()) / 8);
}

// [MixSL] §4 (test): a fixed number of transactions
#[test]
fn a_group_shares_one_log_page_and_is_told_after_it() {
    let mut bench = group("3");
    let members: Vec<TxId> = (0..3).map(|_| bench.begin()).collect();
    for (page, &tx) in members.iter().enumerate() {
        bench.write(tx, page as u32, 9);
    }
    for &tx in &members[..2] {
        assert_eq!(commit(&mut bench, tx), None);
        assert_eq!(bench.value(0), 0);
    }
    assert_eq!(logged(&mut bench), 0);
    let done = commit(&mut bench, members[2]);
    let done = done.expect("the last of a group is told at once");
    assert_eq!(logged(&mut bench), 1);
    let told = acknowledged(bench.now, &mut bench, false);
    assert_eq!(told, [(members[0], done), (members[1], done)]);
    assert_eq!(bench.value(0), 9);
    assert_eq!(bench.device().deadline(), None);
}

// [MixSL] §4 (test): as many as fill a page
#[test]
fn a_full_page_ends_a_group() {
    let mut bench = group("page-full");
    let fits = (64 - 2) / 7;
    let mut told = 0;
    for page in 0..fits {
        let tx = bench.begin();
        bench.write(tx, page, 1);
        told += u32::from(commit(&mut bench, tx).is_some());
        assert_eq!(told, u32::from(page + 1 == fits));
    }
    assert_eq!(acknowledged(bench.now, &mut bench, false).len(), 7);
}

// D6, D7
#[test]
fn a_group_ends_at_its_deadline_or_when_the_host_asks() {
    let mut bench = group("50");
    let (first, second) = (bench.begin(), bench.begin());
    bench.write(first, 0, 1);
    assert_eq!(commit(&mut bench, second), Some(bench.now));
    assert_eq!(commit(&mut bench, first), None);
    let deadline = bench.device().deadline().unwrap();
    assert_eq!(deadline, bench.now + Nanos::from_micros(5_000));
    assert_eq!(acknowledged(bench.now, &mut bench, false), []);
    let told = acknowledged(deadline, &mut bench, false);
    assert!(told[0].0 == first && told[0].1 > deadline);
    let third = bench.begin();
    bench.write(third, 1, 1);
    assert_eq!(commit(&mut bench, third), None);
    assert_eq!(acknowledged(bench.now, &mut bench, true).len(), 1);
    // Waiting transactions are lost with the power.
    let fourth = bench.begin();
    bench.write(fourth, 2, 1);
    assert_eq!(commit(&mut bench, fourth), None);
    assert_eq!(bench.restart(EVERYTHING).values(3), [1, 1, 0]);
}
