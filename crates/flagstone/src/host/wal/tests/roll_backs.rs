//! Roll-backs of large transactions, and those that are asked for again.

use crate::commit::Options;
use crate::forward_flash;
use crate::ftl::Config;
use crate::host::{Host, HostConfig, HostError, Rid, Stack, Step};
use crate::nand::{Chip, Flash, FlashError, Geometry, Read, Shared, small};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const GEOMETRY: Geometry = Geometry {
    blocks_per_plane: 60,
    page_bytes: 2048,
    ..small::GEOMETRY
};

struct Run {
    chip: Shared<Chip>,
    config: HostConfig,
    host: Host,
    now: Nanos,
}

fn open(chip: &Shared<Chip>, config: &HostConfig) -> Result<Host, String> {
    let (flash, options) = (Box::new(chip.clone()), Options::default());
    let device = Config::small(200, None);
    let host = Host::open(flash, Stack::Wal, device, &options, config, Nanos::ZERO);
    host.map_err(|error| error.to_string())
}

impl Run {
    fn write(&mut self, tx: TxId, page: u32, slot: u16, bytes: Option<&[u8]>) -> bool {
        let rid = Rid {
            page: Lpn(page),
            slot,
        };
        match self.host.write(self.now, tx, rid, bytes) {
            Ok(Step::Done((), done)) => {
                self.now = done;
                true
            }
            // It is the oldest, or too large.
            Ok(Step::Abort { .. }) | Err(HostError::LogFull { .. }) => false,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, tx: TxId) {
        match self.host.commit(self.now, tx).expect("it commits") {
            Step::Done((), done) => self.now = done,
            other => panic!("{other:?}"),
        }
    }
}

/// Deletes so many records in one transaction, commits a few small ones beside it, and rolls it
/// back: at once, or at a restart.
fn roll_back(deletes: u32, bytes: usize, frames: usize, restarts: bool) -> Result<(), String> {
    let chip = Shared::new(small::chip(GEOMETRY));
    let config = HostConfig {
        frames,
        log_pages: 25,
        ..HostConfig::default()
    };
    let config = config.with("log_padded", true).with("checkpoint_every", 1);
    let config = config.keep_those_of(Stack::Wal);
    let host = open(&chip, &config)?;
    let mut run = Run {
        now: host.recovered_at(),
        chip,
        config,
        host,
    };
    let record = [7; 200];
    for page in 0..deletes.div_ceil(8) {
        let tx = run.host.begin(run.now).expect("it begins");
        for slot in 0..8 {
            assert!(run.write(tx, page, slot, Some(&record)));
        }
        run.commit(tx);
    }
    let large = run.host.begin(run.now).expect("it begins");
    for n in 0..deletes {
        if !run.write(large, n / 8, (n % 8) as u16, None) {
            break;
        }
    }
    for page in 100..104 {
        let tx = run.host.begin(run.now).expect("it begins");
        if run.write(tx, page, 0, Some(&vec![1; bytes])) {
            run.commit(tx);
        }
    }
    match restarts {
        false => {
            let done = run.host.abort(run.now, large);
            run.now = done.map_err(|error| format!("it is not rolled back: {error}"))?;
        }
        true => {
            drop(run.host);
            run.host = open(&run.chip, &run.config)?;
            run.now = run.host.recovered_at();
        }
    }
    let mut found = Vec::new();
    for n in 0..deletes {
        let rid = Rid {
            page: Lpn(n / 8),
            slot: (n % 8) as u16,
        };
        let look = run.host.look(run.now, rid, &mut found);
        assert!(look.expect("it reads").0 && found == record, "{n}");
    }
    Ok(())
}

/// Wrong where filling a page takes room that the log keeps free for a roll-back: then nothing can
/// be taken back any more, and the database does not start again.
#[test]
fn pages_are_not_filled_with_the_room_that_a_roll_back_needs() {
    let mut wrong = Vec::new();
    for deletes in 92..104 {
        for bytes in [10, 100, 200, 400] {
            for (frames, restarts) in [(3, false), (3, true), (24, false), (24, true)] {
                if let Err(why) = roll_back(deletes, bytes, frames, restarts) {
                    wrong.push(format!("{deletes} {bytes} {frames} {restarts}: {why}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(6)]
    );
}

/// A chip of which some reads succeed, and the others fail until that is changed.
struct Blind {
    chip: Shared<Chip>,
    reads: Arc<AtomicU32>,
}

impl Flash for Blind {
    forward_flash!([chip]: geometry program reprogram erase sync is_factory_bad);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let left = self.reads.load(Ordering::Relaxed);
        if left == 0 {
            return Err(FlashError::Uncorrectable { at, done: now });
        }
        self.reads.store(left - 1, Ordering::Relaxed);
        self.chip.read(now, at, data, spare)
    }
}

/// Wrong where changes that were taken back are taken back again.
#[test]
fn a_roll_back_that_failed_on_the_way_goes_on_when_it_is_asked_for_again() {
    let mut failed = 0;
    for left in 0..12 {
        let chip = Shared::new(small::chip(GEOMETRY));
        let reads = Arc::new(AtomicU32::new(u32::MAX));
        let flash = Box::new(Blind {
            chip: chip.clone(),
            reads: Arc::clone(&reads),
        });
        let config = HostConfig {
            frames: 3,
            log_pages: 25,
            ..HostConfig::default()
        };
        let config = config.keep_those_of(Stack::Wal);
        let (device, options) = (Config::small(200, None), Options::default());
        let opened = Host::open(flash, Stack::Wal, device, &options, &config, Nanos::ZERO);
        let host = opened.expect("a blank device");
        let now = host.recovered_at();
        let mut run = Run {
            chip,
            config,
            host,
            now,
        };
        let old = run.host.begin(run.now).expect("it begins");
        for page in 0..8 {
            assert!(run.write(old, page, 0, Some(b"before and after")));
        }
        run.commit(old);
        let tx = run.host.begin(run.now).expect("it begins");
        for new in [&b"before, between and after"[..], b"before", b"b and after"] {
            for page in 0..8 {
                assert!(run.write(tx, page, 0, Some(new)));
            }
        }
        reads.store(left, Ordering::Relaxed);
        let first = run.host.abort(run.now, tx);
        failed += u32::from(first.is_err());
        reads.store(u32::MAX, Ordering::Relaxed);
        if first.is_err() {
            run.now = run.host.abort(run.now, tx).expect("it goes on");
        }
        let mut found = Vec::new();
        for restarts in [false, true] {
            if restarts {
                drop(run.host);
                run.host = open(&run.chip, &run.config).expect("it starts");
                run.now = run.host.recovered_at();
            }
            for page in 0..8 {
                let rid = Rid {
                    page: Lpn(page),
                    slot: 0,
                };
                let look = run.host.look(run.now, rid, &mut found);
                assert!(look.expect("it reads").0);
                assert_eq!(found, b"before and after", "{left}, page {page}");
            }
        }
    }
    assert!(failed > 6, "{failed}");
}
