//! Damaged text for every importer: an error with a message or a valid trace, never a panic.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::fuzzing::IMPORTS;

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

const SAMPLES: [(&str, &str); 6] = [
    ("waldump", WALDUMP),
    ("bpftrace", BPFTRACE),
    ("disksim", "0.5 0 2000 16 0\n1 0 0 1 1\n7e2 1 99 8 0\n"),
    (
        "msr",
        "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385295514878,a,0,Read,0,512,1\n",
    ),
    (
        "blkparse",
        "8,0 3 1 0.000000000 697 D W 8 + 16 [x]\n8,0 3 1 0.00100 697 D DS 0 + 64 [x]\nCPU0 (8,0):\n",
    ),
    (
        "fio",
        "fio version 2 iolog\nf add\nf write 0 8192\nf wait 150\nf trim 0 99999999\n",
    ),
];

#[test]
fn damaged_text_is_an_error_or_a_valid_trace() {
    let mut random = Pcg64Mcg::seed_from_u64(11);
    for (name, sample) in SAMPLES {
        let import = IMPORTS.iter().find(|(known, _)| *known == name);
        let (_, import) = import.expect("the importer has this name");
        import(sample.as_bytes()).unwrap().validate().unwrap();
        let (mut whole, mut messages) = (0, BTreeSet::new());
        for _ in 0..3000 {
            let mut text = sample.as_bytes().to_vec();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..text.len());
                let other = random.random_range(0..text.len());
                match random.random_range(0..5) {
                    0 => text[at] = b"0123456789 ,.-+:/#eEDRW\n\t\xff"[random.random_range(0..26)],
                    1 => text.truncate(at.max(1)),
                    2 => text.insert(at, b'9'),
                    3 => drop(text.drain(at.min(other)..at.max(other).min(at.min(other) + 9))),
                    _ => text.extend_from_within(at.min(other)..at.max(other)),
                }
                if text.is_empty() {
                    text.push(b'\n');
                }
            }
            match import(&text) {
                Ok(trace) => {
                    trace.validate().unwrap();
                    whole += 1;
                }
                Err(error) => {
                    messages.insert(error.to_string());
                }
            }
        }
        assert!(
            whole > 100 && messages.len() > 100,
            "{whole} whole, {} messages",
            messages.len()
        );
    }
}
