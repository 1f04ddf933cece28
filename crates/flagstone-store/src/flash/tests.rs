//! Pages, marks and generations on a medium that is cut, flipped and overwritten.

use super::*;
use crate::identity::Identity;
use crate::medium::{Landing, Recorded};
use crate::superblock::Lifetime;
use flagstone::commit::Kind;
use std::sync::Mutex;

const BLOCKS: u32 = 4;
const PAGES: u32 = 4;

fn superblock() -> Superblock {
    Superblock {
        pages_per_block: PAGES,
        blocks: BLOCKS,
        boot: 0,
        sequence: 0,
        protocol: Kind::Seal,
        closed: Some(true),
        rested: 0,
        left: 0,
        sealed: None,
        identity: Identity::of(0x1de7_7e57),
        life: Lifetime::default(),
    }
}

/// Opens the medium like a new process, with its durable contents.
fn open(medium: &Recorded) -> MediumFlash {
    let found = Superblock::read(medium).expect("it can be read");
    MediumFlash::new(
        Box::new(medium.clone()),
        found.map_or_else(superblock, |head| head.superblock),
        false,
    )
}

fn after(medium: &Recorded, landing: Landing) -> MediumFlash {
    open(&medium.cut(landing))
}

/// The first bytes of data and spare area of a page; `None` for a blank page.
fn look(flash: &mut MediumFlash, at: Ppn) -> Result<Option<(u8, u8)>, FlashError> {
    let (mut data, mut spare) = (vec![0; DATA_BYTES], [0; 4]);
    let read = flash.read(Nanos::ZERO, at, &mut data, &mut spare)?;
    Ok((read.data_bytes > 0).then(|| (data[0], spare[0])))
}

fn fill(flash: &mut MediumFlash, block: Pbn, pages: u32, with: u8) -> Nanos {
    let mut done = flash.erase(Nanos::ZERO, block).expect("an erase");
    for page in 0..pages {
        let at = flash.geometry.page(block, page);
        let (data, spare) = ([with + page as u8; 9], [with; 4]);
        done = flash.program(done, at, &data, &spare).expect("a program");
    }
    done
}

/// A flash whose block 1 is full and durable, its medium, and when that was done.
fn filled() -> (Recorded, MediumFlash, Nanos) {
    let medium = Recorded::default();
    let mut flash = open(&medium);
    let done = fill(&mut flash, Pbn(1), PAGES, 10);
    flash.sync(done, done).expect("a sync");
    (medium, flash, done)
}

#[test]
fn pages_are_there_before_and_after_they_are_written_and_in_another_process() {
    let medium = Recorded::default();
    let mut flash = open(&medium);
    let done = fill(&mut flash, Pbn(2), 3, 10);
    let pages = |flash: &mut MediumFlash| {
        [0, 1, 2, 3].map(|page| look(flash, Ppn(2 * PAGES + page)).expect("no error"))
    };
    let right = [Some((10, 10)), Some((11, 10)), Some((12, 10)), None];
    assert_eq!((pages(&mut flash), medium.written()), (right, 0));
    assert_eq!(flash.sync(done, done), Ok(done));
    assert_eq!(pages(&mut flash), right);
    // The superblock, and one write of a mark and three pages, with a sync each.
    assert_eq!((medium.operations(), medium.written()), (4, 5 * 4096));
    assert_eq!(pages(&mut after(&medium, Landing::Nothing)), right);
    // Durable data is not synced again.
    flash.sync(done, done).expect("a sync");
    assert_eq!(medium.operations(), 4);
}

#[test]
fn before_the_mark_of_an_erase_is_durable_the_old_pages_are_whole() {
    let (medium, mut flash, _) = filled();
    let before = medium.operations();
    let done = fill(&mut flash, Pbn(1), PAGES, 20);
    flash.write_out().expect("it is written");
    // The mark and a sync, then the pages.
    assert_eq!(medium.operations() - before, 3);
    for seed in 0..64 {
        let mut flash = after(&medium, Landing::Sectors(seed));
        for page in 0..PAGES {
            let new = (20 + page as u8, 20);
            match look(&mut flash, Ppn(PAGES + page)) {
                Ok(found) => assert!(found.is_none_or(|found| found == new), "{found:?}"),
                Err(FlashError::Uncorrectable { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    flash.sync(done, done).expect("a sync");
    assert_eq!(
        look(&mut after(&medium, Landing::Nothing), Ppn(PAGES)),
        Ok(Some((20, 20)))
    );
}

/// The sync of a growing flash was once taken for that of the mark, which was still in memory.
#[test]
fn a_mark_that_waits_while_the_flash_grows_is_durable_before_its_pages() {
    let (medium, mut flash, done) = filled();
    flash.erase(done, Pbn(1)).expect("an erase");
    flash.grow(8).expect("room");
    flash
        .program(done, Ppn(PAGES), &[20; 9], &[20; 4])
        .expect("a program");
    let before = medium.operations();
    flash.write_out().expect("it is written");
    // The mark and a sync, then the page.
    assert_eq!(medium.operations() - before, 3);
}

/// A flash that works apart makes the same calls to its medium, in the same order, once they are
/// carried out; and it reads pages that the medium does not have yet.
#[test]
fn working_apart_changes_when_the_medium_is_called_and_nothing_else() {
    let run = |is_apart: bool| {
        let (medium, mut flash, _) = filled();
        let before = medium.operations();
        if is_apart {
            flash.places.work_apart(true);
        }
        for with in [20, 30] {
            let done = fill(&mut flash, Pbn(1), PAGES, with);
            flash.sync(done, done).expect("a sync");
            let done = fill(&mut flash, Pbn(2), 1, with);
            flash.sync(done, done).expect("a sync");
        }
        assert_eq!(look(&mut flash, Ppn(PAGES)), Ok(Some((30, 30))));
        assert_eq!(look(&mut flash, Ppn(2 * PAGES)), Ok(Some((30, 30))));
        assert_eq!(medium.operations() == before, is_apart);
        flash.places.carry_out().expect("it is done");
        assert!(
            flash
                .places
                .state()
                .kept(flash.place_of(Ppn(PAGES)))
                .is_none()
        );
        assert_eq!(look(&mut flash, Ppn(PAGES)), Ok(Some((30, 30))));
        (medium.operations(), medium.syncs(), medium.to_vec())
    };
    assert_eq!(run(true), run(false));
}

/// Readers share the lock of a growing store. Fails if growth waits for the medium although a
/// thread exists to carry out its writes and syncs, or if the medium then gets other calls.
#[test]
fn growth_waits_for_nothing_that_another_thread_carries_out() {
    let run = |is_apart: bool| {
        let (medium, mut flash, _) = filled();
        flash.sync(Nanos(0), Nanos(u64::MAX)).expect("a sync");
        flash.places.work_apart(is_apart);
        let before = medium.syncs();
        let blocks = flash.geometry().blocks();
        flash.grow(4).expect("there is room");
        assert_eq!(flash.geometry().blocks(), blocks + 4);
        let done = fill(&mut flash, Pbn(blocks), 2, 40);
        flash.sync(done, done).expect("a sync");
        assert_eq!(medium.syncs() == before, is_apart);
        assert_eq!(look(&mut flash, Ppn(blocks * PAGES)), Ok(Some((40, 40))));
        flash.places.carry_out().expect("it is done");
        (medium.syncs(), medium.to_vec())
    };
    assert_eq!(run(true), run(false));
}

/// A page is written twice before the first write is carried out. Fails if the end of the first
/// write drops the newer page: readers would then get the older one.
#[test]
fn of_a_page_that_is_asked_for_twice_the_newer_one_is_read_while_the_older_is_written() {
    let (medium, mut flash, _) = filled();
    flash.places.work_apart(true);
    for with in [20, 30] {
        let done = fill(&mut flash, Pbn(1), PAGES, with);
        flash.sync(done, done).expect("a sync");
    }
    let places = flash.places();
    let looks: Arc<Mutex<Vec<(bool, u8)>>> = Arc::default();
    let looked = Arc::clone(&looks);
    let (at, number) = (Ppn(PAGES), flash.place_of(Ppn(PAGES)));
    medium.watch(Some(Box::new(move |_: &Recorded| {
        let place = places.place(at, Pbn(1), number);
        let is_kept = place.kept.is_some();
        let places::Found::Whole(page) = places.read(&place).expect("no fault") else {
            panic!("it is not there");
        };
        looked.lock().expect("no panic").push((is_kept, page[0]));
    })));
    flash.places.carry_out().expect("it is done");
    medium.watch(None);
    // The mark and its sync, the pages and theirs, for each of the two blocks.
    let looks = looks.lock().expect("no panic");
    assert_eq!(looks.len(), 8, "{looks:?}");
    assert!(looks.iter().all(|&(_, found)| found == 30), "{looks:?}");
    assert_eq!(looks.last(), Some(&(false, 30)), "it is read there then");
    drop(looks);
    assert_eq!(look(&mut flash, at), Ok(Some((30, 30))));
}

#[test]
fn a_generation_is_not_used_twice_though_no_mark_of_it_is_there() {
    let medium = Recorded::default();
    let mut flash = open(&medium);
    fill(&mut flash, Pbn(0), 3, 10);
    flash.write_out().expect("it is written");
    // The pages have landed, but not their mark.
    let medium = medium.cut(Landing::Last(8));
    let mut flash = open(&medium);
    assert_eq!(
        look(&mut flash, Ppn(1)),
        Ok(Some((11, 10))),
        "it speaks for its mark"
    );
    let done = fill(&mut flash, Pbn(0), 1, 20);
    flash.sync(done, done).expect("a sync");
    let mut flash = after(&medium, Landing::Nothing);
    assert_eq!(look(&mut flash, Ppn(0)), Ok(Some((20, 20))));
    assert_eq!(look(&mut flash, Ppn(1)), Ok(None));
}

#[test]
fn what_marks_say_is_known_though_a_newer_mark_has_not_landed() {
    let medium = Recorded::default();
    let mut flash = open(&medium);
    let says = vec![7; mark_says::STATEMENT.len()];
    let done = flash.erase_saying(Nanos::ZERO, Pbn(1), 33, &says);
    let done = done.expect("an erase");
    flash.sync(done, done).expect("a sync");
    fill(&mut flash, Pbn(0), 3, 10);
    flash.write_out().expect("it is written");
    // Of block 0 the pages have landed but not the mark, or the other way round.
    for (landing, pages) in [(Landing::Last(8), 3), (Landing::First(8), 0)] {
        let mut flash = after(&medium, landing);
        let looks = (0..PAGES).filter(|&page| look(&mut flash, Ppn(page)) != Ok(None));
        assert_eq!(looks.count(), pages);
        look(&mut flash, Ppn(PAGES)).expect("a blank page");
        let said = SaidAtErase {
            block: Pbn(1),
            number: 33,
            says: says.clone(),
            is_last: false,
        };
        assert_eq!(flash.said_at_erase(), Some(said), "{landing:?}");
    }
}

#[test]
fn a_flipped_bit_a_page_of_another_place_and_one_that_was_lost_are_errors() {
    let (medium, flash, _) = filled();
    let place = |flash: &MediumFlash, at| flash.place_of(at) as usize * MEDIUM_PAGE_BYTES;
    let (second, third) = (place(&flash, Ppn(PAGES + 1)), place(&flash, Ppn(PAGES + 2)));
    let whole = medium.cut(Landing::Nothing).to_vec();
    let looked = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let mut flash = open(&Recorded::with(&bytes));
        // Like a restart, which reads the last page of each block first.
        look(&mut flash, Ppn(PAGES + 3)).expect("no error");
        look(&mut flash, Ppn(PAGES + 1))
    };
    assert_eq!(looked(&|_| {}), Ok(Some((11, 10))));
    let lost =
        |found| matches!(found, Err(FlashError::Uncorrectable { at, .. }) if at.0 == PAGES + 1);
    for byte in [0, 8, 100, DATA_BYTES - 1, DATA_BYTES, DATA_BYTES + 51, 4095] {
        assert!(
            lost(looked(&|bytes| bytes[second + byte] ^= 4)),
            "byte {byte}"
        );
    }
    assert!(lost(looked(
        &|bytes| bytes.copy_within(third..third + 4096, second)
    )));
    assert!(lost(looked(&|bytes| bytes[second..second + 4096].fill(0))));
    // One sector of an older page.
    assert!(lost(looked(
        &|bytes| bytes[second + 512..second + 1024].fill(7)
    )));
}

#[test]
fn a_close_is_durable_and_a_forked_process_does_not_close() {
    let medium = Recorded::default();
    let is_closed = |medium: &Recorded| {
        let head = Superblock::read(&medium.cut(Landing::Nothing)).expect("it can be read");
        head.expect("a store").superblock.closed
    };
    for is_forked in [true, false] {
        let mut flash = open(&medium);
        let done = fill(&mut flash, Pbn(1), 2, 10);
        flash.write_out().expect("it is written");
        assert_eq!(is_closed(&medium), Some(false));
        let before = medium.operations();
        let places = Arc::get_mut(&mut flash.places).expect("nobody else has them");
        places.notes.process += u32::from(is_forked);
        drop(flash);
        // A sync of pending data, the superblock, and a sync.
        let closing = if is_forked { 0 } else { 3 };
        assert_eq!(medium.operations() - before, closing);
        assert_eq!(is_closed(&medium), Some(!is_forked));
        assert!(done > Nanos::ZERO);
    }
    // A flash that has failed is not closed either.
    let mut flash = open(&medium);
    let done = fill(&mut flash, Pbn(1), 2, 20);
    medium.fail_at(Some(medium.operations() + 3));
    assert!(flash.sync(done, done).is_err());
    medium.fail_at(None);
    drop(flash);
    assert_eq!(is_closed(&medium), Some(false));
}

#[test]
fn a_mark_is_not_lost_before_an_opening_that_the_medium_counts_could_restore_it() {
    let (medium, flash, _) = filled();
    let mark = flash.mark_of(Pbn(1)) * MEDIUM_PAGE_BYTES as u64;
    medium
        .write_at(mark, &[0; MEDIUM_PAGE_BYTES])
        .expect("it is written");
    let places = flash.places();
    let head = Superblock::read(&medium).expect("it can be read");
    let superblock = head.expect("a store").superblock;
    // This one finds no room for its first write.
    drop(MediumFlash::again(Arc::clone(&places), superblock));
    let mut third = MediumFlash::again(places, superblock);
    assert_eq!(look(&mut third, Ppn(PAGES)), Ok(Some((10, 10))));
}

/// Two cuts tear the same page of a block that has no mark yet, with the same data in its first
/// sector. Returns after how many cuts the store then takes the mark for one that was durable.
fn marks_lost_after_two_cuts(settles: bool) -> usize {
    let unused = |flash: &mut MediumFlash| {
        assert_eq!(look(flash, Ppn(PAGES)), Ok(None));
        if !settles {
            flash.places.notes.damage().torn.clear();
        }
    };
    let first = Recorded::default();
    let mut flash = open(&first);
    fill(&mut flash, Pbn(1), 1, 10);
    flash.write_out().expect("it is written");
    // Only the last sector has landed.
    let second = first.cut(Landing::Last(15));
    let mut flash = open(&second);
    unused(&mut flash);
    let done = fill(&mut flash, Pbn(2), 1, 20);
    flash.sync(done, done).expect("a sync");
    let third = second.cut(Landing::Nothing);
    let mut flash = open(&third);
    unused(&mut flash);
    fill(&mut flash, Pbn(1), 1, 10);
    flash.write_out().expect("it is written");
    let lost = |seed: &u64| {
        let mut flash = after(&third, Landing::Sectors(*seed));
        let looked = look(&mut flash, Ppn(PAGES));
        !flash.notes().damage().marks.is_empty() && looked.is_err()
    };
    (0..64).filter(lost).count()
}

#[test]
fn a_page_torn_by_a_cut_does_not_become_whole_by_a_second_one() {
    assert_eq!(marks_lost_after_two_cuts(true), 0);
    // The control.
    assert!(marks_lost_after_two_cuts(false) > 0);
}
