//! Compares a disk with a vector of bytes, and with the states allowed after a power cut.

use super::*;
use crate::chunks::tests::Refusing;
use crate::medium::{Landing, Memory, Recorded};
use crate::pages::tests::{Dice, assert_says};
use crate::pages::{OpenOptions, PageStore};
use flagstone::commit::Kind;
use std::sync::{Arc, Mutex};

const SIZE: u64 = 140 * 4096 + 512;

fn store(medium: &Recorded, protocol: Kind) -> PageStore {
    let mut options = OpenOptions::default().with_protocol(protocol);
    options.pages_per_block = 16;
    PageStore::on(Box::new(medium.clone()), &options).expect("a store")
}

fn image<P: Pages>(disk: &mut Volume<P>) -> Vec<u8> {
    let mut bytes = vec![7; disk.size() as usize];
    disk.read(0, &mut bytes).expect("it can be read");
    bytes
}

/// Executes a request on a disk and on its model. It may have any offset and length: a server does
/// not round to sectors.
fn request<P: Pages>(disk: &mut Volume<P>, model: &mut [u8], dice: &mut Dice) {
    let is_whole = dice.below(2) == 0;
    let grain = if is_whole {
        4096
    } else {
        [1, 512][dice.below(2) as usize]
    };
    let at = dice.below(SIZE / grain) * grain;
    let most = [600, 9000, 70_000][dice.below(3) as usize].min(SIZE - at);
    let len = (dice.below(most / grain + 1) * grain).min(SIZE - at);
    let part = at as usize..(at + len) as usize;
    if dice.below(5) == 0 {
        disk.trim(at, len).expect("room");
        model[part].fill(0);
    } else {
        let data: Vec<u8> = (0..len).map(|_| dice.below(255) as u8 + 1).collect();
        disk.write(at, &data).expect("room");
        model[part].copy_from_slice(&data);
    }
}

#[test]
fn it_is_as_a_vector_of_bytes_is() {
    for protocol in [Kind::Seal, Kind::Scc, Kind::MhlM] {
        let medium = Recorded::default();
        let mut disk = Volume::create(store(&medium, protocol), SIZE).expect("a disk");
        let mut dice = Dice(3 + protocol as u64);
        let mut model = vec![0; SIZE as usize];
        let mut flushed = model.clone();
        for step in 0..400 {
            match dice.below(12) {
                0 | 1 => {
                    disk.flush().expect("room");
                    assert!(!disk.is_dirty());
                    flushed.clone_from(&model);
                }
                2 if step % 3 == 0 => {
                    // Unflushed data is gone, flushed data is there.
                    drop(disk);
                    disk = Volume::open(store(&medium, protocol)).expect("a disk");
                    assert_eq!(disk.size(), SIZE);
                    model.clone_from(&flushed);
                }
                _ => request(&mut disk, &mut model, &mut dice),
            }
            let at = dice.below(SIZE);
            let mut some = vec![1; dice.below((SIZE - at).min(9000) + 1) as usize];
            disk.read(at, &mut some).expect("it can be read");
            assert!(
                some == model[at as usize..][..some.len()],
                "step {step}, {protocol:?}"
            );
            if step % 20 == 0 {
                assert!(image(&mut disk) == model, "step {step}, {protocol:?}");
                for (at, bytes, holds) in disk.parts(0, SIZE).expect("within") {
                    let part = &model[at as usize..][..bytes as usize];
                    assert!(
                        holds || part.iter().all(|byte| *byte == 0),
                        "step {step}: a hole"
                    );
                }
            }
        }
        assert_eq!(disk.early_commits(), 0);
        disk.flush().expect("room");
        assert_eq!(disk.pages_mut().check().expect("it reads").wrong, [""; 0]);
        disk.close().expect("a close");
        let mut disk = Volume::open(store(&medium, protocol)).expect("a disk");
        assert!(image(&mut disk) == model);
    }
}

/// The states allowed after a cut: the first is the last flushed one. While only flushes commit,
/// the disk is as in the first, or during a flush as in the last one.
#[derive(Default)]
struct Right {
    images: Vec<Vec<u8>>,
    in_flush: bool,
}

/// Runs a history on a disk with a transaction limit, and cuts the power at operations of the
/// medium. Returns the number of cuts, and the number after which the disk had a wrong state.
/// `any`: it may be as after any request since the last flush; otherwise only as after a flush.
fn cuts(bound: u64, any: bool, medium: &Recorded, seed: u64) -> (u32, u32) {
    let mut disk = Volume::create(store(medium, Kind::Seal), SIZE).expect("a disk");
    disk.set_transaction_bytes(bound);
    let right = Arc::new(Mutex::new(Right {
        images: vec![vec![0; SIZE as usize]],
        in_flush: false,
    }));
    let found = Arc::new(Mutex::new((0, 0)));
    medium.watch(Some({
        let (right, found) = (Arc::clone(&right), Arc::clone(&found));
        let mut dice = Dice(seed);
        Box::new(move |medium: &Recorded| {
            let landing = match dice.below(4) {
                0 => Landing::Nothing,
                1 => Landing::Everything,
                2 => Landing::First(dice.below(medium.pending() + 1)),
                _ => Landing::Sectors(dice.below(1 << 30)),
            };
            let left = PageStore::on(Box::new(medium.cut(landing)), &OpenOptions::existing());
            let image = left.and_then(Volume::open).and_then(|mut disk| {
                let mut bytes = vec![7; disk.size() as usize];
                disk.read(0, &mut bytes).map(|()| bytes)
            });
            let (right, mut found) = (right.lock().expect("one"), found.lock().expect("one"));
            let may = |image: &Vec<u8>| match (any, right.in_flush) {
                (true, _) => right.images.contains(image),
                (false, false) => right.images.first() == Some(image),
                (false, true) => [right.images.first(), right.images.last()].contains(&Some(image)),
            };
            found.0 += 1;
            found.1 += u32::from(!image.is_ok_and(|image| may(&image)));
        })
    }));
    let mut dice = Dice(seed + 1);
    let mut model = vec![0; SIZE as usize];
    for _ in 0..150 {
        if dice.below(5) == 0 {
            right.lock().expect("one").in_flush = true;
            disk.flush().expect("room");
            *right.lock().expect("one") = Right {
                images: vec![model.clone()],
                in_flush: false,
            };
        } else {
            let mut next = model.clone();
            let at = dice.below(SIZE / 512 - 8) * 512;
            let len = [512, 4096][dice.below(2) as usize];
            let data = vec![dice.below(255) as u8 + 1; len];
            // A transaction may end within the request, after its first chunk.
            let first = len.min(4096 - at as usize % 4096);
            for bytes in [first, len] {
                next[at as usize..][..bytes].copy_from_slice(&data[..bytes]);
                right.lock().expect("one").images.push(next.clone());
            }
            disk.write(at, &data).expect("room");
            model = next;
        }
    }
    medium.watch(None);
    assert_eq!(disk.early_commits() > 3, bound < u64::MAX);
    *found.lock().expect("one")
}

#[test]
fn a_cut_leaves_all_of_a_transaction_or_nothing() {
    let (done, wrong) = cuts(u64::MAX, false, &Recorded::default(), 5);
    assert!(done > 50 && wrong == 0, "{wrong} of {done}");
}

#[test]
fn transactions_that_end_at_their_bound_leave_the_earlier_requests() {
    let (done, wrong) = cuts(3 * 4096, true, &Recorded::default(), 6);
    assert!(done > 80 && wrong == 0, "{wrong} of {done}");
}

#[test]
fn torn_transactions_and_a_medium_whose_syncs_lie_are_found_out() {
    let (done, wrong) = cuts(1, false, &Recorded::default(), 5);
    assert!(wrong > 0, "{wrong} of {done}");
    let medium = Recorded::default();
    store(&medium, Kind::Seal).close().expect("a close");
    medium.lie();
    let (done, wrong) = cuts(u64::MAX, false, &medium, 5);
    assert!(wrong > 0, "{wrong} of {done}");
}

#[test]
fn a_disk_that_lost_what_it_had_accepted_refuses_everything() {
    let medium = Recorded::default();
    let mut disk = Volume::create(store(&medium, Kind::Seal), SIZE).expect("a disk");
    disk.write(0, &[1; 4096]).expect("room");
    medium.fail_at(Some(medium.operations()));
    assert!(matches!(disk.flush(), Err(StoreError::Io { .. })));
    medium.fail_at(None);
    // The medium works again, and the writes are lost: a flush must report that.
    assert!(matches!(disk.flush(), Err(StoreError::Broken(_))));
    assert!(matches!(
        disk.read(0, &mut [0; 9]),
        Err(StoreError::Broken(_))
    ));
    assert!(matches!(disk.write(0, &[1]), Err(StoreError::Broken(_))));
    drop(disk);
    let mut disk = Volume::open(store(&medium, Kind::Seal)).expect("a disk");
    assert!(image(&mut disk) == vec![0; SIZE as usize]);
}

#[test]
fn what_is_no_disk_is_said() {
    let pages = || store(&Recorded::default(), Kind::Seal);
    for size in [0, 100, 4097] {
        assert_says(Volume::create(pages(), size), "multiple of 512");
    }
    assert_says(Volume::create(pages(), 1 << 50), "use at most");
    let plain = store(&Recorded::default(), Kind::Plain);
    assert_says(Volume::create(plain, 4096), "another protocol");
    assert_says(Volume::open(pages()), "it is empty");
    let mut other = pages();
    other.put(9, b"something");
    assert_says(Volume::open(other), "pages of another kind");
    let mut disk = Volume::create(pages(), 4096).expect("a disk");
    for (at, bytes) in [(4096, 1), (0, 4097), (u64::MAX, 2)] {
        assert_says(disk.trim(at, bytes), "beyond the disk");
    }
}

#[test]
fn a_disk_grows_with_what_it_holds_under_a_protocol_with_a_table_on_the_medium() {
    let mut options = OpenOptions::default().with_protocol(Kind::MhlM);
    options.pages_per_block = 16;
    let pages = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
    let bytes = u64::from(pages.device().pages()) * 3 * 4096;
    let mut disk = Volume::create(pages, bytes).expect("a disk");
    for round in 1..=3 {
        let data = vec![round; bytes as usize];
        for at in (0..bytes).step_by(1 << 16) {
            let end = (at + (1 << 16)).min(bytes) as usize;
            disk.write(at, &data[at as usize..end]).expect("room");
        }
        disk.flush().expect("room");
        assert!(image(&mut disk) == data);
    }
}

/// A client asks for one part after another, each time up to the end of the disk. Every answer once
/// scanned the whole disk, 100 million chunks here, which takes too long for a test.
#[test]
fn the_first_part_of_a_range_costs_what_it_is_long() {
    let size = 400 << 30;
    let mut disk = Volume::create(store(&Recorded::default(), Kind::Seal), size).expect("a disk");
    disk.write(8192, &[1; 512]).expect("room");
    let begun = std::time::Instant::now();
    let first = |at: u64| disk.parts(at, size - at).expect("within").next();
    for _ in 0..100 {
        assert_eq!(first(0), Some((0, 8192, false)));
        assert_eq!(first(8200), Some((8200, 4088, true)));
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let mut ends = disk.parts(4000, 8192).expect("within");
    assert_eq!(ends.next(), Some((4000, 4192, false)));
    assert_eq!(ends.next(), Some((8192, 4000, true)));
    assert_eq!(ends.next(), None);
    assert_eq!(disk.parts(size, 0).expect("within").next(), None);
}

/// Control: fails if tests/full_disk.rs would not notice a disk that accepts writes without room.
/// Pages that are not asked for room accept everything, as disks once did.
#[test]
fn a_disk_that_asks_for_no_room_cannot_keep_what_it_accepts() {
    let medium = Recorded::default();
    medium.give_at_most(Some(4 << 20));
    let pages = store(&medium, Kind::Seal);
    let pages = Refusing { pages, after: None };
    let mut disk = Volume::create(pages, 5 << 20).expect("a disk");
    let accepts = |at: &u64| disk.write(*at, &[1; 512]).is_ok();
    let accepted: Vec<_> = (0..5 << 20).step_by(4096).filter(accepts).collect();
    assert!(matches!(disk.flush(), Err(StoreError::Full(_))));
    // Accepted data waits in memory, and is not lost while the disk is open.
    for at in accepted {
        let mut found = [0; 512];
        disk.read(at, &mut found).expect("it reads");
        assert_eq!(found, [1; 512]);
    }
}
