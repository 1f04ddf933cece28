//! MixSL and G-MixSL on a small device: what goes onto flash, and what comes back from it.

use super::super::{Device, Kind, Options};
use super::record::{Record, emit_log_page, parse_log_page};
use super::tail;
use crate::ftl::{Cause, Config, Operation, header};
use crate::layout::get;
use crate::nand::{Cell, Chip, Geometry, PowerCut, Shared, Timing};
use crate::units::{Lpn, Nanos, Ppn, TxId};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    packages_per_channel: 1,
    planes_per_package: 2,
    blocks_per_plane: 40,
    pages_per_block: 4,
    page_bytes: 64,
    spare_bytes: 64,
    cell: Cell::Mlc,
    strict_order: true,
};

const TIMING: Timing = Timing {
    read: Nanos::from_micros(60),
    program: Nanos::from_micros(800),
    reprogram: Nanos::from_micros(800),
    erase: Nanos::from_micros(1500),
    transfer_ps_per_byte: 0,
};

const CONFIG: Config = Config::small(12, None);

fn blank() -> Chip {
    Chip::new(GEOMETRY, TIMING, 64)
}

/// Dice for what becomes of the operations in flight.
#[derive(Clone, Copy)]
enum InFlight {
    Lands = 1,
    IsLost = 6,
}

struct Bench {
    device: Device,
    power: Shared<PowerCut>,
    now: Nanos,
}

impl Bench {
    fn new(kind: Kind, chip: Chip, options: Options) -> Bench {
        let power = Shared::new(PowerCut::new(chip));
        let flash = Box::new(power.clone());
        let device = Device::open(flash, kind, CONFIG, &options, Nanos::ZERO).unwrap();
        let now = device.recovered_at();
        Bench { device, power, now }
    }

    fn mixsl(chip: Chip) -> Bench {
        Bench::new(Kind::MixSl, chip, Options::default())
    }

    fn published(chip: Chip) -> Bench {
        let as_published = true;
        let options = Options {
            as_published,
            ..Options::default()
        };
        Bench::new(Kind::MixSl, chip, options)
    }

    /// The flash as a power cut now leaves it.
    fn cut(self, in_flight: InFlight) -> Chip {
        drop(self.device);
        self.power.take().pull(in_flight as u64, false)
    }

    fn begin(&mut self) -> TxId {
        self.device.begin(self.now).unwrap()
    }

    fn write(&mut self, tx: TxId, page: u32, byte: u8) {
        let taken = self.device.write(self.now, tx, Lpn(page), &[byte]);
        self.now = taken.unwrap().next;
    }

    fn commit(&mut self, writes: &[(u32, u8)]) {
        let tx = self.begin();
        for &(page, byte) in writes {
            self.write(tx, page, byte);
        }
        self.now = self.device.commit(self.now, tx).unwrap().unwrap();
    }

    fn abort(&mut self, writes: &[(u32, u8)]) {
        let tx = self.begin();
        for &(page, byte) in writes {
            self.write(tx, page, byte);
        }
        self.now = self.device.abort(self.now, tx).unwrap();
    }

    fn read(&mut self, tx: Option<TxId>, page: u32) -> Option<u8> {
        let (_, bytes) = self.device.read(self.now, tx, Lpn(page)).unwrap();
        bytes.map(|bytes| bytes[0])
    }

    fn logged(&self) -> u64 {
        self.device.stats().count(Operation::Program, Cause::Log)
    }

    fn compactions(&self) -> u64 {
        self.device.stats().checkpoints
    }

    fn table(&self, name: &str) -> u64 {
        let tables = self.device.memory();
        tables.iter().find(|(table, _)| *table == name).unwrap().1
    }

    fn link_of(&self, page: u32) -> (Ppn, Ppn) {
        let at = self.device.ftl().slot(Lpn(page)).ppn().unwrap();
        let spare = self
            .power
            .look(|power| power.chip().peek_spare(at)[header::SIZE..].to_vec());
        (at, Ppn(get(&spare, tail::LINK) as u32))
    }
}

#[test]
fn a_log_page_has_these_bytes() {
    let record = |tx, committed| Record {
        tx: TxId(tx),
        committed,
    };
    let bytes = emit_log_page(&[record(0x0102, true), record(3, false)]);
    assert_eq!(bytes, [2, 0, 2, 1, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0]);
    let records = parse_log_page(&bytes).unwrap();
    assert_eq!(records, [record(0x0102, true), record(3, false)]);
    assert!(parse_log_page(&bytes[..15]).is_err());
    assert!(parse_log_page(&[]).is_err());
}

// [MixSL] §3.2 (test): D1
#[test]
fn a_link_names_the_preceding_version() {
    let mut bench = Bench::mixsl(blank());
    bench.commit(&[(3, 1)]);
    let (first, link) = bench.link_of(3);
    assert_eq!(link, Ppn::NONE);
    bench.commit(&[(3, 2)]);
    let (second, link) = bench.link_of(3);
    assert!(link == first && second != first);
    // Of a transaction's own versions the later names the earlier, which only links name.
    bench.commit(&[(3, 3), (3, 4)]);
    let (_, link) = bench.link_of(3);
    assert!(link != second && link != Ppn::NONE);
}

// [MixSL] §3.2 (test): the log page is the commit point
#[test]
fn a_transaction_counts_from_its_log_page_on() {
    let mut bench = Bench::mixsl(blank());
    bench.commit(&[(0, 1), (1, 1)]);
    assert_eq!(bench.logged(), 1);
    let tx = bench.begin();
    bench.write(tx, 0, 2);
    assert_eq!(bench.read(Some(tx), 0), Some(2));
    assert_eq!(bench.read(None, 0), Some(1));
    bench.now += Nanos::from_micros(50_000);
    let mut bench = Bench::mixsl(bench.cut(InFlight::Lands));
    assert_eq!(
        (bench.read(None, 0), bench.read(None, 1)),
        (Some(1), Some(1))
    );
    let later = bench.begin();
    assert!(later > tx, "{later} was given out before");
}

// [MixSL] §3.2 (test): D5
#[test]
fn aborts_and_transactions_without_writes_need_no_record() {
    let mut bench = Bench::mixsl(blank());
    bench.abort(&[(0, 1)]);
    bench.commit(&[]);
    assert_eq!(bench.logged(), 0);
    let mut bench = Bench::published(blank());
    bench.abort(&[(0, 1)]);
    assert_eq!(bench.logged(), 1);
    assert_eq!(bench.read(None, 0), None);
}

// D4
#[test]
fn a_compacted_log_still_tells_the_aborted_from_the_committed() {
    let mut bench = Bench::mixsl(blank());
    bench.commit(&[(0, 1), (1, 1)]);
    bench.abort(&[(0, 2), (1, 2)]);
    let live = bench.begin();
    bench.write(live, 2, 3);
    while bench.compactions() == 0 {
        bench.commit(&[(5, 5)]);
    }
    // What is logged after a compaction must count beside what was before.
    bench.commit(&[(6, 6)]);
    let mut bench = Bench::mixsl(bench.cut(InFlight::Lands));
    let found: Vec<_> = [0, 1, 2, 5, 6].map(|page| bench.read(None, page)).into();
    assert_eq!(found, [Some(1), Some(1), None, Some(5), Some(6)]);
    // Nor does the transaction that was live then ever count.
    while bench.compactions() == 0 {
        bench.commit(&[(7, 7)]);
    }
    let mut bench = Bench::mixsl(bench.cut(InFlight::Lands));
    assert_eq!(bench.read(None, 2), None);
    bench.device.check().unwrap();
}

// D4
#[test]
fn the_list_of_the_aborted_stays_within_half_a_block() {
    let mut bench = Bench::mixsl(blank());
    let mut bytes_max = 0;
    for round in 0..1500 {
        bench.commit(&[(11, round as u8)]);
        // Two identifiers in between make each gap an entry of its own.
        bench.abort(&[(round % 11, 9)]);
        bytes_max = bytes_max.max(bench.device.ftl().blob().len());
        bench.device.check().unwrap();
    }
    let block = (GEOMETRY.pages_per_block * GEOMETRY.page_bytes) as usize;
    assert!(
        bytes_max > block / 4 && bytes_max <= block / 2,
        "{bytes_max}"
    );
    let mut bench = Bench::mixsl(bench.cut(InFlight::IsLost));
    assert_eq!(bench.read(None, 0), None);
    assert_eq!(bench.read(None, 11), Some((1499 % 256) as u8));
}

// [MixSL] §3.3 (test): D3
#[test]
fn the_collector_keeps_pages_of_live_transactions_unless_as_published() {
    let mut kept = Vec::new();
    for mut bench in [Bench::mixsl(blank()), Bench::published(blank())] {
        let live = bench.begin();
        bench.write(live, 0, 7);
        let from = bench.device.stats().collections;
        for round in 0..400 {
            bench.commit(&[(1 + round % 4, 1)]);
        }
        assert!(bench.device.stats().collections > from);
        bench.now = bench.device.commit(bench.now, live).unwrap().unwrap();
        kept.push(bench.read(None, 0));
    }
    assert_eq!(kept, [Some(7), None]);
}

// [MixSL] §3.3 (test): D3 and what it costs
#[test]
fn as_published_a_collection_reads_every_spare_area() {
    let reads = |mut bench: Bench| {
        for round in 0..400 {
            bench.commit(&[(round % 12, 1)]);
        }
        let stats = bench.device.stats();
        stats.count(Operation::Read, Cause::Gc) - stats.relocated
    };
    assert_eq!(reads(Bench::mixsl(blank())), 0);
    // One pass at least, and a summary page for each block that is in use by then.
    assert!(reads(Bench::published(blank())) > 60);
    let mut bench = Bench::published(blank());
    assert_eq!(bench.table("bitmaps"), 0);
    for round in 0..400 {
        bench.commit(&[(round % 12, 1)]);
    }
    assert_eq!(bench.table("bitmaps"), 2 * u64::from(GEOMETRY.pages()) / 8);
}

fn group(group: &str) -> Bench {
    let options = Options::default().with("group", group);
    let options = options.with("group_timeout_us", 5_000);
    Bench::new(Kind::GMixSl, blank(), options)
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
        assert_eq!(bench.device.commit(bench.now, tx), Ok(None));
        assert_eq!(bench.read(None, 0), None);
    }
    assert_eq!(bench.logged(), 0);
    let done = bench.device.commit(bench.now, members[2]).unwrap();
    let done = done.expect("the last of a group is told at once");
    assert_eq!(bench.logged(), 1);
    let told = bench.device.acknowledged(bench.now, false).unwrap();
    assert_eq!(told, [(members[0], done), (members[1], done)]);
    assert_eq!(bench.read(None, 0), Some(9));
    assert_eq!(bench.device.deadline(), None);
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
        told += u32::from(bench.device.commit(bench.now, tx).unwrap().is_some());
        assert_eq!(told, u32::from(page + 1 == fits));
    }
    assert_eq!(
        bench.device.acknowledged(bench.now, false).unwrap().len(),
        7
    );
}

// D6, D7
#[test]
fn a_group_ends_at_its_deadline_or_when_the_host_asks() {
    let mut bench = group("50");
    let (first, second) = (bench.begin(), bench.begin());
    bench.write(first, 0, 1);
    assert_eq!(bench.device.commit(bench.now, second), Ok(Some(bench.now)));
    assert_eq!(bench.device.commit(bench.now, first), Ok(None));
    let deadline = bench.device.deadline().unwrap();
    assert_eq!(deadline, bench.now + Nanos::from_micros(5_000));
    assert_eq!(bench.device.acknowledged(bench.now, false), Ok(vec![]));
    let told = bench.device.acknowledged(deadline, false).unwrap();
    assert!(told[0].0 == first && told[0].1 > deadline);
    let third = bench.begin();
    bench.write(third, 1, 1);
    assert_eq!(bench.device.commit(bench.now, third), Ok(None));
    assert_eq!(bench.device.acknowledged(bench.now, true).unwrap().len(), 1);
    // Who waits is gone with the power.
    let fourth = bench.begin();
    bench.write(fourth, 2, 1);
    assert_eq!(bench.device.commit(bench.now, fourth), Ok(None));
    let mut bench = Bench::new(Kind::GMixSl, bench.cut(InFlight::Lands), Options::default());
    let found: Vec<_> = [0, 1, 2].map(|page| bench.read(None, page)).into();
    assert_eq!(found, [Some(1), Some(1), None]);
}
