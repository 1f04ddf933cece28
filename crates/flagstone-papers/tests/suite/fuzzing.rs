//! The fuzz targets on seeded damage: valid inputs with a few bytes changed, and bytes without any
//! sense. What they must not do is panic; that some inputs are taken and some are not shows that
//! the damage is neither too small nor too large.

use flagstone::commit::{Device, Kind, Options};
use flagstone::nand::{Chip, Timing};
use flagstone::units::Nanos;
use flagstone_host::Stack;
use flagstone_host::fuzzing::sample;
use flagstone_lab::device;
use flagstone_lab::fuzzing;
use flagstone_lab::image::{self, Setup};
use flagstone_lab::output::Output;
use flagstone_lab::trace::{Event, Op};
use flagstone_papers::sweep::Sweep;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Runs a target on damage to valid inputs, which it takes. `hints` are bytes that inputs like
/// these have in them.
fn run(target: fn(&[u8]) -> bool, valid: &[Vec<u8>], hints: &[u8], rounds: u32) {
    let (taken, refused) = outcomes(target, valid, hints, rounds);
    assert!(
        taken > 20 && refused > 20,
        "{taken} taken, {refused} refused"
    );
}

/// As [`run`]: how many inputs were taken, and how many were not.
fn outcomes(target: fn(&[u8]) -> bool, valid: &[Vec<u8>], hints: &[u8], rounds: u32) -> (u32, u32) {
    let mut random = Pcg64Mcg::seed_from_u64(29);
    let (mut taken, mut refused) = (0, 0);
    for valid in valid {
        let shown = String::from_utf8_lossy(valid);
        assert!(target(valid), "{shown} is valid");
        for round in 0..rounds {
            let mut bytes = valid.clone();
            if round % 16 == 0 {
                bytes = vec![0; random.random_range(0..200)];
                random.fill_bytes(&mut bytes);
            }
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len().max(1));
                let end = (at + random.random_range(1..20)).min(bytes.len());
                match random.random_range(0..6) {
                    _ if bytes.is_empty() => bytes.push(b'0'),
                    0 => bytes[at] ^= 1 << random.random_range(0..8),
                    1 => bytes[at] = hints[random.random_range(0..hints.len())],
                    2 => bytes.insert(at, hints[random.random_range(0..hints.len())]),
                    3 => bytes.truncate(at),
                    4 => drop(bytes.drain(at..end)),
                    _ => bytes.extend_from_within(at..end),
                }
            }
            if target(&bytes) {
                taken += 1
            } else {
                refused += 1
            }
        }
    }
    (taken, refused)
}

#[test]
fn device_files() {
    let mut valid: Vec<Vec<u8>> = Vec::new();
    for preset in device::presets() {
        valid.push(preset.to_toml().into_bytes());
    }
    let preset = &device::presets()[0].name;
    let variant = format!(
        "preset = \"{preset}\"\ncapacity = \"4 GiB\"\n[timing]\nread_us = 60.5\nprogram_us = 7e2\n\
         [ftl]\nvictims = \"wear-aware:3\"\n[reliability]\nfactory_bad = [1, 2]\n"
    );
    valid.push(variant.into_bytes());
    run(fuzzing::device_file, &valid, b"0123456789-.e\"[]=\n", 300);
}

#[test]
fn run_ids() {
    let words = [
        "scc.published/g17/b2/w4x24/f3/s91/n2/c113-5f-t/r7-0-n",
        "force:scc/g0/b0/w4x24/f0/s7/n1/o3-5f-n",
        "wal/g1/b0/w1x2/f0/s18446744073709551615/n1/c0-0-t",
        "store.mixsl.syncs.filled/n3/s17",
        "tables.seal.freed-pages/n1/s18446744073709551615",
    ];
    let valid: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    run(
        flagstone_campaign::fuzzing::run_id,
        &valid,
        b"0123456789abcdef/.-:xtnswbfc",
        1_000,
    );
}

#[test]
fn pages_of_raw_nand() {
    let valid = [0, 7, 448_u16].map(|bytes| {
        let spare = (0..62).chain(bytes.to_le_bytes());
        [b"data".to_vec(), spare.collect()].concat()
    });
    let hints = [0, 0xff, 0x7f, 0x80];
    run(flagstone_mtd::fuzzing::mtd_page, &valid, &hints, 2_000);
}

const WALDUMP: &str = "\
rmgr: Heap        len (rec/tot):     54/    54, tx:        7, lsn: 0/01, prev 0/00, desc: INSERT off 1, blkref #0: rel 1663/5/16396 blk 8, blkref #1: rel 1663/5/9 fork vm blk 0
rmgr: Heap        len (rec/tot):     54/    54, tx:        8, lsn: 0/01, prev 0/00, desc: INSERT off 1, blkref #0: rel 1663/5/16396 blk 9
rmgr: Transaction len (rec/tot):     54/    54, tx:        9, lsn: 0/01, prev 0/00, desc: ASSIGNMENT xtop 7: subxacts: 8 9
rmgr: Transaction len (rec/tot):     34/    34, tx:        7, lsn: 0/02, prev 0/01, desc: COMMIT 2026-11-21 21:28:08.660433 UTC; subxacts: 8 9
rmgr: Transaction len (rec/tot):     34/    34, tx:        0, lsn: 0/02, prev 0/01, desc: ABORT_PREPARED 9: 2027-11-21 21:28:08.660433 UTC
";

const BPFTRACE: &str = "\
Attaching 7 probes...
S 100 7
R 110 7 0 8 1663 5 16396 40
D 120 7 40
S 105 9
R 115 9 2 3 1663 5 16396 42
R 118 9 0 0 1664 0 2676 43
C 200 7
A 210 9
Lost 3 events
";

/// A text for an importer, by its place. A table begins with the place of its preset.
const TRACES: [(u8, &str); 8] = [
    (0, WALDUMP),
    (1, BPFTRACE),
    (
        2,
        "time_ns,transaction,op,page,relation\n0,0,write,0,\"8,0\"\n5,0,commit,,\n",
    ),
    (3, "0 0.5 0 2000 16 0\n1 0 0 1 1\n7e2 1 99 8 0\n"),
    (
        3,
        "1 128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514878,a,0,Read,0,512,1\n",
    ),
    (
        4,
        "8,0 3 1 0.000000000 697 D W 8 + 16 [x]\n8,0 3 1 0.0005 697 R W 8 + 16 [0]\n\
         8,0 3 1 0.00100 697 D DS 0 + 64 [x]\n8,0 3 1 0.002 697 D ZA 0 + 8 [x]\nCPU0 (8,0):\n",
    ),
    (
        5,
        "fio version 2 iolog\nf add\nf write 0 8192\nf wait 150\nf trim 0 99999999\n",
    ),
    (
        6,
        "fio version 3 iolog\n0 f add\n5 f write 0 1048576\n9 f read 18446744073709551614 1\n",
    ),
];

#[test]
fn plans() {
    let shipped = |path: &str| {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).expect("it is shipped")
    };
    let sweep = shipped("sweeps/clients-and-aborts.toml");
    let tasks = Sweep::parse(&sweep).expect("it is shipped").tasks;
    let found = shipped("experiments/found.toml");
    let second = found.match_indices("[[analysis]]").nth(1).expect("several");
    let first_analysis = &found[..second.0];
    let texts = [
        (0, shipped("experiments/mixsl.toml")),
        (1, shipped("claims/mixsl.toml")),
        (2, shipped("experiments/mixsl.open.toml")),
        (3, sweep),
        (4, first_analysis.to_string()),
        (5, "mean of g-mixsl / mixsl".to_string()),
        (6, "zipf:0.99".to_string()),
        (7, tasks[0].json()),
    ];
    for (which, text) in texts {
        let valid = [&[which][..], text.as_bytes()].concat();
        let rounds = if text.len() > 2_000 { 150 } else { 1_000 };
        let hints = b"0123456789-.e\"[]{}=,\n";
        outcomes(flagstone_papers::fuzzing::sweep, &[valid], hints, rounds);
    }
}

#[test]
fn traces() {
    for (which, text) in TRACES {
        let valid = [&[which], text.as_bytes()].concat();
        let hints = b"0123456789 ,.-+:/#eEDRW\n\t\xff";
        run(fuzzing::trace, &[valid], hints, 3_000);
    }
}

#[test]
fn trace_files() {
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/tpcc-postgres.parquet"
    );
    let mut trace = flagstone_lab::trace::file::read(shipped.as_ref()).expect("it is shipped");
    trace.events.truncate(200);
    let end = *trace.events.last().expect("it has events");
    for transaction in 0..=trace
        .events
        .iter()
        .map(|e| e.transaction)
        .max()
        .unwrap_or(0)
    {
        let mut own = trace.events.iter().filter(|e| e.transaction == transaction);
        if own.all(|event| !event.op.ends()) {
            trace.events.push(Event {
                transaction,
                op: Op::Commit,
                page: 0,
                ..end
            });
        }
    }
    let last = |of: fn(&Event) -> u32| trace.events.iter().map(of).max().unwrap_or(0) + 1;
    (trace.pages, trace.transactions) = (last(|e| e.page), last(|e| e.transaction));
    trace.relations.clear();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.parquet");
    let output = Output::new(&path, &[]).expect("it can be written");
    flagstone_lab::trace::file::write(&trace, &output).expect("it is valid");
    let bytes = std::fs::read(&path).expect("it was written");
    // A page whose values are said to come from a dictionary, which there is not: the reader of
    // Parquet files panics.
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] = 0x10;
        fuzzing::trace_file(&damaged);
    }
    run(
        fuzzing::trace_file,
        &[bytes],
        &[0, 1, 0x15, 0x7f, 0x80, 0xff],
        2_500,
    );
}

#[test]
fn device_images() {
    let kind = Kind::Plain;
    let geometry = sample::geometry(Stack::Force(kind));
    let setup = Setup {
        kind,
        config: sample::DEVICE,
        options: Options::default(),
    };
    let chip = Chip::new(geometry, Timing::default(), 16);
    let opened = Device::open(
        Box::new(chip),
        kind,
        setup.config,
        &setup.options,
        Nanos::ZERO,
    );
    let mut device = opened.expect("the device is blank");
    let tx = device.begin(Nanos::ZERO).expect("it begins");
    device
        .write(Nanos::ZERO, tx, flagstone::units::Lpn(3), b"three")
        .expect("it writes");
    device.commit(Nanos::ZERO, tx).expect("it commits");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.image");
    let output = Output::new(&path, &[]).expect("it can be written");
    image::save(&output, &device, &setup).expect("it is saved");
    let bytes = std::fs::read(&path).expect("it was written");
    // A checksum keeps nearly all damage out.
    let hints = [0, 1, 0x7f, 0x80, 0xff];
    let (_, refused) = outcomes(fuzzing::device_image, &[bytes], &hints, 1_500);
    assert!(refused > 1_000);
    // What it guards, without it.
    let chip = device.ftl().flash().model().expect("it runs on a chip");
    let payload = image::to_bytes(&chip.contents());
    run(fuzzing::device_payload, &[payload], &hints, 1_000);
}
