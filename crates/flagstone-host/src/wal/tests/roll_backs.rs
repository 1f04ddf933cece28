//! Roll-backs of large transactions, and repeated roll-backs.

use crate::small_host::rid;
use crate::{Host, HostConfig, HostError, Stack, Step};
use flagstone::commit::Options;
use flagstone::forward_flash;
use flagstone::ftl::{Config, Header, PageKind, header};
use flagstone::nand::{Chip, Flash, FlashError, Geometry, Read, Shared, small};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn, TxId};
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

fn config(frames: usize) -> HostConfig {
    HostConfig {
        frames,
        log_pages: 25,
        ..HostConfig::default()
    }
}

impl Run {
    /// A host on a chip, accessed through `flash`.
    fn new(chip: Shared<Chip>, flash: Box<dyn Flash>, config: HostConfig) -> Result<Run, String> {
        let (device, options) = (Config::small(200, None), Options::default());
        let host = Host::open(flash, Stack::Wal, device, &options, &config, Nanos::ZERO);
        let host = host.map_err(|error| error.to_string())?;
        Ok(Run {
            now: host.recovered_at(),
            chip,
            config,
            host,
        })
    }

    fn restart(self) -> Result<Run, String> {
        drop(self.host);
        Run::new(self.chip.clone(), Box::new(self.chip), self.config)
    }

    fn begin(&mut self) -> TxId {
        self.host.begin(self.now).expect("it begins")
    }

    fn write(&mut self, tx: TxId, page: u32, slot: u16, bytes: Option<&[u8]>) -> bool {
        match self.host.write(self.now, tx, rid(page, slot), bytes) {
            Ok(Step::Done((), done)) => {
                self.now = done;
                true
            }
            // It is the oldest transaction, or too large.
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

    /// Whether a record exists with these bytes.
    fn has(&mut self, page: u32, slot: u16, bytes: &[u8]) -> bool {
        let mut found = Vec::new();
        let look = self.host.look(self.now, rid(page, slot), &mut found);
        look.expect("it reads").0 && found == bytes
    }
}

/// Deletes `deletes` records in one transaction, commits a few small ones beside it, and rolls it
/// back: at once, or by a restart.
fn roll_back(deletes: u32, bytes: usize, frames: usize, restarts: bool) -> Result<(), String> {
    let chip = Shared::new(small::chip(GEOMETRY));
    let config = config(frames).with("log_padded", true);
    let flash = Box::new(chip.clone());
    let mut run = Run::new(chip, flash, config.with("checkpoint_every", 1))?;
    let record = [7; 200];
    for page in 0..deletes.div_ceil(8) {
        let tx = run.begin();
        for slot in 0..8 {
            assert!(run.write(tx, page, slot, Some(&record)));
        }
        run.commit(tx);
    }
    let large = run.begin();
    for n in 0..deletes {
        if !run.write(large, n / 8, (n % 8) as u16, None) {
            break;
        }
    }
    for page in 100..104 {
        let tx = run.begin();
        if run.write(tx, page, 0, Some(&vec![1; bytes])) {
            run.commit(tx);
        }
    }
    if restarts {
        run = run.restart()?
    } else {
        let done = run.host.abort(run.now, large);
        run.now = done.map_err(|error| format!("it is not rolled back: {error}"))?;
    }
    for n in 0..deletes {
        assert!(run.has(n / 8, (n % 8) as u16, &record), "{n}");
    }
    Ok(())
}

/// Fails if padding a page takes log room that is kept free for a roll-back: then nothing can be
/// undone any more, and the database does not restart.
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

/// A chip on which a set number of reads succeed, and later ones fail until that is reset.
struct Blind {
    chip: Shared<Chip>,
    reads: Arc<AtomicU32>,
}

impl Flash for Blind {
    forward_flash!([chip] but read peek);

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

/// Fails if changes are undone twice.
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
        let mut run = Run::new(chip, flash, config(3)).expect("a blank device");
        let old = run.begin();
        for page in 0..8 {
            assert!(run.write(old, page, 0, Some(b"before and after")));
        }
        run.commit(old);
        let tx = run.begin();
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
            let half = run.host.commit(run.now, tx);
            assert_eq!(half, Err(HostError::NoTransaction(tx)), "half is undone");
            run.now = run.host.abort(run.now, tx).expect("it goes on");
        }
        for restarts in [false, true] {
            if restarts {
                run = run.restart().expect("it starts");
            }
            for page in 0..8 {
                assert!(run.has(page, 0, b"before and after"), "{left}, page {page}");
            }
        }
    }
    assert!(failed > 6, "{failed}");
}

/// A chip on which a set number of programs succeed; then the power is gone.
struct Dying {
    chip: Shared<Chip>,
    programs: Arc<AtomicU32>,
}

impl Flash for Dying {
    forward_flash!([chip] but program);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let left = self.programs.load(Ordering::Relaxed);
        self.programs
            .store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            return Err(FlashError::PowerLost);
        }
        self.chip.program(now, at, data, spare)
    }
}

/// Fails if a transaction can be rolled back although a restart may find its commit: the log could
/// not be written, or the checkpoint after the commit.
#[test]
fn a_commit_that_failed_and_may_be_durable_cannot_be_taken_back() {
    let (mut kept, mut again) = (0, 0);
    for left in 0.. {
        let chip = Shared::new(small::chip(GEOMETRY));
        let programs = Arc::new(AtomicU32::new(u32::MAX));
        let flash = Box::new(Dying {
            chip: chip.clone(),
            programs: Arc::clone(&programs),
        });
        let config = config(3).with("checkpoint_every", 1);
        let mut run = Run::new(chip, flash, config).expect("a blank device");
        let tx = run.begin();
        for page in 0..3 {
            for slot in 0..8 {
                assert!(run.write(tx, page, slot, Some(&[7; 200])));
            }
        }
        programs.store(left, Ordering::Relaxed);
        if run.host.commit(run.now, tx).is_ok() {
            break;
        }
        let back = run.host.abort(run.now, tx);
        assert_eq!(back, Err(HostError::NoTransaction(tx)), "{left}");
        let is_durable = run.host.commit(run.now, tx).is_ok();
        again += u32::from(is_durable);
        run = run.restart().expect("it starts");
        let is_there = run.has(2, 7, &[7; 200]);
        kept += u32::from(is_there);
        assert!(is_there || !is_durable, "{left}");
    }
    assert!(kept > 0 && again > 0, "{kept}, {again}");
}

/// Fails if a page of the log counts as new work: a database whose numbers are nearly used up could
/// neither commit what is live nor be opened to be read.
#[test]
fn log_pages_are_written_with_the_reserve_of_numbers() {
    let mut chip = small::chip(GEOMETRY);
    let (kind, lpn, seq) = (PageKind::Data, Lpn(100), (1 << 47) / 16 * 15 - 40);
    let mut spare = [0xff; header::SIZE];
    Header { kind, lpn, seq }.emit(&mut spare);
    let at = GEOMETRY.page(Pbn(GEOMETRY.blocks() - 1), 0);
    let done = chip.program(Nanos::ZERO, at, &[], &spare);
    done.expect("the page is blank");
    let chip = Shared::new(chip);
    let run = Run::new(chip.clone(), Box::new(chip), config(3));
    let mut run = run.expect("its numbers are not used up");
    let live = run.begin();
    assert!(run.write(live, 0, 0, Some(b"live")));
    let refused = (0..100u8).find_map(|n| {
        let tx = run.begin();
        let step = run.host.write(run.now, tx, rid(1, 0), Some(&[n]));
        step.map(|_| run.commit(tx)).err()
    });
    let why = refused.expect("they are used up").to_string();
    assert!(why.contains("write sequence"), "{why}");
    run.commit(live);
    let mut run = run.restart().expect("it can be read");
    assert!(run.has(0, 0, b"live"));
}
