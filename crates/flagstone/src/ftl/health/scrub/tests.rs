//! Each test has a control: the same without scrubbing.

use super::*;
use crate::forward_flash;
use crate::ftl::{Config, Format, Mounted, Operation, PageKind, Slot, Stream};
use crate::nand::{Ages, Aging, Chip, Flash, Growth, PowerLaw, Read, Shared, YEAR, small};
use crate::units::Lpn;

const FORMAT: Format = Format {
    persist_map: true,
    logs: 1,
    ..Format::NONE
};

/// Nobody: pages are where the mapping table says.
struct Nobody;
impl Owner for Nobody {}

type Cells = Shared<Aging<Chip>>;

const NONE_AT_ALL: PowerLaw = PowerLaw {
    rate: 0.0,
    wear_exponent: 1.0,
    exponent: 1.0,
};

/// Cells that lose a page in some two thirds of a year.
fn aging() -> Cells {
    let growth = Growth {
        fresh_rate: 0.0,
        wear_rate: 0.0,
        wear_exponent: 1.0,
        retention: PowerLaw {
            rate: 0.05,
            ..NONE_AT_ALL
        },
        disturb: NONE_AT_ALL,
        endurance: 1_000,
        worn_erases: 1_000,
        ecc_bits: 80,
        batch: 0..0,
        batch_factor: 1.0,
    };
    let chip = small::chip(small::GEOMETRY);
    Shared::new(Aging::new(chip, Ages::new(&small::GEOMETRY, growth, 3)))
}

const SCRUB: Scrub = Scrub {
    bits: 30,
    patrol: Nanos(YEAR.0 / 50),
};

fn mount(cells: &Cells, scrub: Option<Scrub>, now: Nanos) -> Result<(Ftl, Mounted), FtlError> {
    let config = Config {
        scrub,
        ..Config::small(200, None)
    };
    Ftl::mount(Box::new(cells.clone()), config, FORMAT, now)
}

fn blank(cells: &Cells, scrub: Option<Scrub>) -> Ftl {
    let (mut ftl, _) = mount(cells, scrub, Nanos::ZERO).expect("it is blank");
    ftl.finish_mount();
    ftl
}

fn append(ftl: &mut Ftl, lpn: u32) -> Ppn {
    let page = (PageKind::Data, Lpn(lpn), None);
    let to = (Stream::Host, None);
    let written = ftl.append(Nanos::ZERO, to, page, &[], &[lpn as u8; 40], Cause::Host);
    let at = written.expect("there is room").at;
    ftl.set_slot(Lpn(lpn), Slot::Page(at));
    at
}

/// Time passes, in steps of a week.
fn pass(ftl: &mut Ftl, owner: &mut dyn Owner, weeks: u64) {
    for week in 1..=weeks {
        tend(ftl, owner, Nanos(week * YEAR.0 / 52)).expect("it goes on");
    }
}

fn at_end(weeks: u64) -> Nanos {
    Nanos(weeks * YEAR.0 / 52)
}

/// Whether a logical page reads right.
fn reads(ftl: &mut Ftl, now: Nanos, lpn: u32) -> bool {
    let at = ftl.slot(Lpn(lpn)).ppn().expect("it is mapped");
    let mut page = [0; 256];
    match ftl.read(now, at, &mut page, &mut [], Cause::Host) {
        Ok(read) => {
            assert_eq!(page[..read.data_bytes], [lpn as u8; 40]);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn pages_that_nobody_reads_outlive_their_cells() {
    let without_patrol = Scrub {
        patrol: Nanos::ZERO,
        ..SCRUB
    };
    for scrub in [Some(SCRUB), Some(without_patrol), None] {
        let cells = aging();
        let mut ftl = blank(&cells, scrub);
        for lpn in 0..60 {
            append(&mut ftl, lpn);
        }
        pass(&mut ftl, &mut Nobody, 100);
        let right = (0..60).filter(|&lpn| reads(&mut ftl, at_end(100), lpn));
        let right = right.count();
        assert_eq!(ftl.check(), Ok(()));
        let stats = ftl.stats();
        let scrubbed = Operation::ALL.map(|op| stats.count(op, Cause::Scrub));
        match scrub {
            Some(scrub) if scrub.patrol > Nanos::ZERO => {
                assert_eq!(right, 60);
                assert!(stats.refreshed > 8 && stats.corrected_most >= SCRUB.bits);
                assert!(scrubbed[0] > stats.patrolled && stats.patrolled > 1_000);
                assert!(scrubbed[1] >= 120 && scrubbed[3] > 8, "{scrubbed:?}");
                assert_eq!(stats.collections, 0, "collections are counted apart");
            }
            _ => assert_eq!((right, scrubbed), (0, [0; 4])),
        }
    }
}

#[test]
fn the_patrol_reads_every_page_of_a_block_that_holds_something_once_in_its_time() {
    let cells = aging();
    let mut ftl = blank(&cells, Some(SCRUB));
    for lpn in 0..21 {
        append(&mut ftl, lpn);
    }
    let written = (0..small::GEOMETRY.blocks()).map(Pbn);
    let blocks = written.filter(|&block| ftl.holds_something(block)).count() as u64;
    assert!((3..8).contains(&blocks), "{blocks}");
    let pages = u64::from(small::GEOMETRY.pages_per_block);
    for round in 1..4 {
        let now = Nanos(SCRUB.patrol.0 * round);
        tend(&mut ftl, &mut Nobody, now).expect("it goes on");
        assert_eq!(ftl.stats().patrolled, round * blocks * pages);
    }
    // After a long time without a call it reads everything once.
    tend(&mut ftl, &mut Nobody, Nanos(SCRUB.patrol.0 * 10)).expect("it goes on");
    assert_eq!(ftl.stats().patrolled, 4 * blocks * pages);
}

#[test]
fn pages_from_before_a_restart_do_not_stay_in_free_blocks() {
    for scrub in [Some(SCRUB), None] {
        let cells = aging();
        let mut ftl = blank(&cells, scrub);
        for lpn in 0..21 {
            append(&mut ftl, lpn);
        }
        drop(ftl);
        let (mut ftl, _) = mount(&cells, scrub, Nanos::ZERO).expect("it starts");
        let blocks = ftl.blocks.for_data();
        ftl.scan(Nanos::ZERO, &blocks, |_, _, _| {}).unwrap();
        blocks.iter().for_each(|&block| ftl.release(block));
        ftl.finish_mount();
        let leftovers = |ftl: &Ftl| {
            let blocks = (0..small::GEOMETRY.blocks()).map(Pbn);
            blocks.filter(|&block| ftl.holds_leftovers(block)).count()
        };
        let before = leftovers(&ftl);
        // Blank blocks are none, and are not erased again.
        assert!((3..8).contains(&before), "{before}");
        tend(&mut ftl, &mut Nobody, SCRUB.patrol).expect("it goes on");
        let after = scrub.map_or(before, |_| 0);
        assert_eq!(leftovers(&ftl), after, "{scrub:?}");
    }
}

#[test]
fn roots_translation_pages_and_logs_outlive_their_cells() {
    for scrub in [Some(SCRUB), None] {
        let cells = aging();
        let mut ftl = blank(&cells, scrub);
        for lpn in 0..20 {
            append(&mut ftl, lpn);
        }
        let now = ftl.checkpoint(Nanos::ZERO, vec![7; 300]).unwrap();
        let now = ftl.log(now, 0, b"one").unwrap().done;
        let logged = ftl.log(now, 0, b"two").unwrap();
        let before = ftl.journal.directory().to_vec();
        pass(&mut ftl, &mut Nobody, 100);
        assert_eq!(ftl.journal.directory() != before, scrub.is_some());
        drop(ftl);
        let mounted = mount(&cells, scrub, at_end(100));
        let Some(_) = scrub else {
            // The root is lost, and with it everything: the device looks blank.
            assert!(mounted.is_err() || !mounted.unwrap().1.has_root);
            continue;
        };
        let (ftl, mounted) = mounted.expect("it starts");
        assert_eq!(mounted.blob, [7; 300]);
        let logs: Vec<&[u8]> = mounted.logs.iter().map(|page| &page.data[..]).collect();
        assert_eq!(logs, [&b"one"[..], b"two"]);
        assert_eq!(
            mounted.logs[1].seq, logged.seq,
            "copies keep their sequence"
        );
        for lpn in 0..20 {
            assert!(ftl.slot(Lpn(lpn)).ppn().is_some());
        }
    }
}

/// Holds a block back until it is asked for it.
struct Holder(Option<Pbn>);

impl Owner for Holder {
    fn let_go(&mut self, ftl: &mut Ftl, _: Nanos, block: Pbn) -> Result<(), FtlError> {
        if self.0.take() == Some(block) {
            ftl.blocks.unpin(block);
        }
        Ok(())
    }
}

#[test]
fn a_block_that_is_held_back_is_asked_for_and_one_that_is_written_is_closed() {
    let cells = aging();
    let mut ftl = blank(&cells, Some(SCRUB));
    let pages: Vec<Ppn> = (0..15).map(|lpn| append(&mut ftl, lpn)).collect();
    let full = pages.iter().map(|&at| ftl.geometry.block_of(at));
    let full: Vec<Pbn> = full
        .filter(|&block| ftl.blocks.state(block) == BlockState::Full)
        .collect();
    ftl.blocks.pin(full[0]);
    let mut holder = Holder(Some(full[0]));
    pass(&mut ftl, &mut holder, 100);
    assert_eq!(holder.0, None);
    assert!((0..15).all(|lpn| reads(&mut ftl, at_end(100), lpn)));

    // A block that stays pinned loses its pages, and no other block does.
    let mut ftl = blank(&aging(), Some(SCRUB));
    let pages: Vec<Ppn> = (0..15).map(|lpn| append(&mut ftl, lpn)).collect();
    let held = ftl.geometry.block_of(pages[0]);
    ftl.blocks.pin(held);
    pass(&mut ftl, &mut Nobody, 100);
    for (lpn, at) in pages.iter().enumerate() {
        let is_held = ftl.geometry.block_of(*at) == held;
        assert_eq!(reads(&mut ftl, at_end(100), lpn as u32), !is_held);
    }
}

/// Has no room to prepare a block.
struct Cramped {
    waits: bool,
}

impl Owner for Cramped {
    fn prepare(&mut self, ftl: &mut Ftl, _: Nanos, _: Pbn) -> Result<Nanos, FtlError> {
        Err(ftl.full())
    }

    fn lets_wait(&self) -> bool {
        self.waits
    }
}

/// Fails if a read fails because a refresh has no room, or a write although the block can wait, or
/// if the block is forgotten.
#[test]
fn a_refresh_without_room_waits_and_lets_reads_go_on() {
    for waits in [true, false] {
        let mut ftl = blank(&aging(), Some(SCRUB));
        let pages: Vec<Ppn> = (0..15).map(|lpn| append(&mut ftl, lpn)).collect();
        ftl.wants_refresh(pages[0], SCRUB.bits);
        let now = Nanos(5);
        let mut cramped = Cramped { waits };
        assert_eq!(tend_before_read(&mut ftl, &mut cramped, now), Ok(()));
        let block = ftl.geometry.block_of(pages[0]);
        assert_eq!(ftl.blocks.is_candidate(block), waits);
        assert!(!ftl.scrub.is_due(now), "it waits");
        ftl.wants_refresh(pages[14], SCRUB.bits);
        let refused = make_room(&mut ftl, &mut cramped, now).is_err();
        assert_eq!(refused, !waits, "a write needs the collection that failed");
        make_room(&mut ftl, &mut Nobody, now + PAUSE).expect("there is room");
        let states = [pages[0], pages[14]].map(|at| {
            let block = ftl.geometry.block_of(at);
            ftl.blocks.state(block)
        });
        assert_ne!(states[0], BlockState::Victim, "{states:?}");
        assert!((0..15).all(|lpn| reads(&mut ftl, now + PAUSE, lpn)));
        assert_ne!(ftl.slot(Lpn(0)).ppn(), Some(pages[0]), "it was refreshed");
    }
}

/// A chip that reports the largest number of corrected bits with each read.
struct Noisy {
    chip: Chip,
}

impl Flash for Noisy {
    forward_flash!([chip] but read);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let corrected = u16::MAX;
        let read = self.chip.read(now, at, data, spare)?;
        Ok(Read { corrected, ..read })
    }
}

#[test]
fn no_number_of_corrected_bits_asks_for_a_refresh_without_scrubbing() {
    let flash = Noisy {
        chip: small::chip(small::GEOMETRY),
    };
    let mounted = Ftl::mount(
        Box::new(flash),
        Config::small(200, None),
        FORMAT,
        Nanos::ZERO,
    );
    let (mut ftl, _) = mounted.expect("it is blank");
    ftl.finish_mount();
    append(&mut ftl, 0);
    assert!(reads(&mut ftl, Nanos::ZERO, 0));
    assert_eq!(ftl.stats().corrected_most, 0);
}
