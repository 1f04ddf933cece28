//! Compares a database file with a vector of bytes, and counts its pages.

mod joined;

use super::*;
use flagstone::commit::Kind;
use flagstone::units::Lpn;
use flagstone_store::OpenOptions;
use flagstone_store::medium::{Medium, Recorded};

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn open(medium: &Recorded, protocol: Kind) -> StoreFile {
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    options.protocol = protocol;
    let store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    StoreFile::new(store).expect("a file")
}

fn contents(file: &mut StoreFile, view: View) -> Vec<u8> {
    let size = file.size(view) as usize;
    let mut bytes = vec![7; size + 9];
    assert_eq!(
        file.read(view, 0, &mut bytes).expect("it can be read"),
        size
    );
    assert_eq!(bytes[size..], [0; 9]);
    bytes.truncate(size);
    bytes
}

/// Pages are written, truncated, committed, rolled back and read, as in a file.
fn model(protocol: Kind, page: u64, reserved: usize) {
    let medium = Recorded::default();
    let mut file = open(&medium, protocol);
    let mut dice = Dice(page + reserved as u64);
    let (mut committed, mut own) = (Vec::new(), Vec::new());
    // Readers, and the state that was committed when they began.
    let (mut readers, mut chance) = (Vec::<(u64, Vec<u8>)>::new(), Dice(page * 3));
    let mut snapshots = 0;
    // Reaches into a second group of chunks, if the pages are small enough for that to be fast.
    let pages = (300 * 4096 / page / if page > 8192 { 2 } else { 1 }).min(400);
    for step in 0..300 {
        match dice.below(12) {
            0 => {
                file.abort();
                own.clone_from(&committed);
            }
            1 | 2 => {
                file.commit().expect("room");
                committed.clone_from(&own);
            }
            3 => {
                let size = dice.below(own.len() as u64 / page + 3) * page;
                file.truncate(size).expect("room");
                own.resize(size as usize, 0);
            }
            4 if step % 3 == 0 => {
                readers.clear();
                file.abort();
                own.clone_from(&committed);
                drop(file);
                file = open(&medium, protocol);
            }
            _ => {
                let at = dice.below(pages) * page;
                let mut data = vec![dice.below(255) as u8 + 1; page as usize];
                // Trailing zeros, as SQLite leaves in reserved bytes.
                data[page as usize - reserved..].fill(0);
                if dice.below(5) == 0 {
                    data.fill(0);
                }
                file.write(at, &data).expect("room");
                let end = (at + page) as usize;
                own.resize(own.len().max(end), 0);
                own[at as usize..end].copy_from_slice(&data);
            }
        }
        if readers.len() < 3 && chance.below(10) == 0 {
            let taken = file.snapshot().expect("it can be taken");
            readers.extend(taken.map(|id| (id, committed.clone())));
        }
        if !readers.is_empty() && chance.below(12) == 0 {
            file.end_snapshot(readers.remove(0).0);
        }
        for (id, then) in &readers {
            let at = chance.below(pages * page);
            let mut some = vec![1; chance.below(9000) as usize];
            let has = file.read(View::Snapshot(*id), at, &mut some);
            let rest = then.get(at as usize..).unwrap_or(&[]);
            let rest = &rest[..rest.len().min(some.len())];
            assert!(
                has == Ok(rest.len()) && some[..rest.len()] == *rest,
                "step {step}, {page} {reserved} {protocol:?}: {has:?}"
            );
            snapshots += 1;
        }
        if step % 8 == 0 {
            assert!(
                contents(&mut file, View::Committed) == committed,
                "step {step}, {page} {reserved} {protocol:?}"
            );
            assert!(
                contents(&mut file, View::Own) == own,
                "step {step}, {page} {reserved} {protocol:?}"
            );
        }
        let mut head = [1; 100];
        for (view, model) in [(View::Own, &own), (View::Committed, &committed)] {
            let has = file.read(view, 0, &mut head).expect("it can be read");
            assert_eq!(head[..has], model[..model.len().min(100)], "step {step}");
        }
        let at = dice.below((pages + 9) * page);
        let mut some = vec![1; dice.below(5000) as usize];
        let has = file.read(View::Own, at, &mut some).expect("it can be read");
        let rest = own.get(at as usize..).unwrap_or(&[]);
        let rest = &rest[..rest.len().min(some.len())];
        assert!(
            has == rest.len() && some[..has] == *rest,
            "step {step}, {page} {reserved} {protocol:?}"
        );
    }
    assert!(snapshots > 100 || protocol != Kind::Seal, "{snapshots}");
}

#[test]
fn it_is_as_a_file_is_for_any_size_of_page() {
    for page in [512, 1024, 2048, 4096, 8192, 65536] {
        for reserved in [0, 64] {
            model(Kind::Seal, page, reserved);
        }
    }
}

#[test]
fn it_is_so_for_a_protocol_whose_pages_name_each_other() {
    for page in [512, 1024] {
        for reserved in [0, 64] {
            model(Kind::Scc, page, reserved);
        }
    }
}

#[test]
fn sizes_are_exact_after_opening_again() {
    for size in (512..=3 * 4096).step_by(512) {
        let medium = Recorded::default();
        let mut file = open(&medium, Kind::Seal);
        file.write(0, &vec![3; size]).expect("room");
        file.commit().expect("room");
        drop(file);
        let mut file = open(&medium, Kind::Seal);
        assert_eq!(file.size(View::Committed), size as u64);
        // The last bytes are zeros, and a size that grew by nothing but zeros.
        file.truncate(size as u64 + 512).expect("room");
        file.commit().expect("room");
        drop(file);
        assert_eq!(
            open(&medium, Kind::Seal).size(View::Committed),
            size as u64 + 512
        );
    }
}

#[test]
fn a_page_with_reserved_bytes_is_one_page_of_the_store() {
    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    let mut page = vec![5; 4096];
    file.write(0, &page).expect("room");
    file.commit().expect("room");
    assert_eq!(
        file.store().info().pages,
        2,
        "apart: a page, and one of tails"
    );
    page[4032..].fill(0);
    for at in 1..20 {
        file.write(at * 4096, &page).expect("room");
    }
    file.commit().expect("room");
    assert_eq!(file.store().info().pages, 21, "in the page: one each");
}

#[test]
fn a_first_page_that_only_counts_transactions_is_not_written() {
    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    let mut first = vec![1; 4096];
    first[..16].copy_from_slice(MAGIC);
    first[ZEROS].fill(0);
    first[4032..].fill(0);
    file.write(0, &first).expect("room");
    file.commit().expect("room");
    let written = |file: &StoreFile| file.store().device().request_stats().pages_written;
    let before = written(&file);
    let count = |first: &mut Vec<u8>, number: u8| {
        first[24..28].fill(number);
        first[92..100].fill(number);
    };
    let stored = first.clone();
    count(&mut first, 2);
    file.write(0, &first).expect("room");
    assert_eq!(contents(&mut file, View::Own), first);
    assert_eq!(contents(&mut file, View::Committed), stored);
    file.abort();
    assert_eq!(contents(&mut file, View::Own), stored);
    for number in 3..9 {
        count(&mut first, number);
        file.write(0, &first).expect("room");
        file.write(4096, &first).expect("room");
        file.commit().expect("room");
        assert_eq!(contents(&mut file, View::Committed)[..4096], first);
    }
    assert_eq!(written(&file), before + 6, "one page a transaction");
    drop(file);
    let mut file = open(&medium, Kind::Seal);
    assert_eq!(contents(&mut file, View::Committed)[..4096], stored);
    // Every other byte matters.
    for at in [0, 23, 28, 91, 100, 4031] {
        let before = written(&file);
        first[at] += 1;
        file.write(0, &first).expect("room");
        file.commit().expect("room");
        assert_eq!(written(&file), before + 1, "byte {at}");
        drop(file);
        file = open(&medium, Kind::Seal);
        assert_eq!(contents(&mut file, View::Committed)[..4096], first);
    }
}

#[test]
fn a_store_of_something_else_is_not_a_database() {
    let medium = Recorded::default();
    let mut store =
        PageStore::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    let tx = store.begin().expect("it begins");
    store.write(tx, Lpn(3), b"something else").expect("room");
    store.commit(tx).expect("room");
    let trouble = StoreFile::new(store).err().expect("it is none");
    assert_eq!(trouble.kind, TroubleKind::NotAStore);
}

#[test]
fn a_store_of_tables_is_no_database_and_the_other_way_round() {
    let medium = Recorded::default();
    let options = OpenOptions::default();
    drop(flagstone_store::Store::on(Box::new(medium.clone()), &options).expect("a new store"));
    let store = PageStore::on(Box::new(medium), &options).expect("a store");
    let refused = StoreFile::new(store).err().expect("refused");
    assert_eq!(refused.kind, TroubleKind::NotAStore);
    assert!(refused.why.contains("holds tables"), "{refused}");

    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    let mut first = vec![0; 4096];
    first[..16].copy_from_slice(b"SQLite format 3\0");
    file.write(0, &first).expect("room");
    file.commit().expect("room");
    drop(file);
    let refused = flagstone_store::Store::on(Box::new(medium), &options);
    let refused = refused.err().expect("refused").to_string();
    assert!(refused.contains("SQLite database"), "{refused}");
}

#[test]
fn bytes_of_a_first_page_of_ciphertext_count_nothing_and_name_no_schema() {
    // Pure ciphertext, and ciphertext behind a plaintext header of 32 bytes.
    let whole: Vec<u8> = (0..4096).map(|at| (at * 37 % 251) as u8 + 1).collect();
    let mut behind = whole.clone();
    behind[..16].copy_from_slice(MAGIC);
    let mut plain = behind.clone();
    plain[ZEROS].fill(0);
    // The plaintext page is the control: its counters are not written, and it can join.
    for (mut first, is_plain) in [(whole, false), (behind, false), (plain, true)] {
        first[4032..].fill(0);
        let medium = Recorded::default();
        let mut file = open(&medium, Kind::Seal);
        file.write(0, &first).expect("room");
        file.commit().expect("room");
        let stored = first.clone();
        for counter in [24..28, 92..100] {
            first[counter].fill(7);
        }
        file.write(0, &first).expect("room");
        file.commit().expect("room");
        assert_eq!(contents(&mut file, View::Committed), first);
        drop(file);
        let mut file = open(&medium, Kind::Seal);
        let found = contents(&mut file, View::Committed);
        assert_eq!(found, if is_plain { stored } else { first.clone() });
        file.keep(true);
        first[200] ^= 1;
        file.write(0, &first).expect("room");
        assert_eq!(file.may_join(), is_plain);
    }
}

#[test]
fn a_snapshot_that_fails_leaves_none_in_the_store() {
    let medium = Recorded::default();
    let mut file = open(&medium, Kind::Seal);
    let (first, other) = ([0x5a; 4096], [0xa5; 4096]);
    file.write(0, &first).expect("room");
    file.write(4096, &other).expect("room");
    file.commit().expect("room");
    // The first chunk is damaged, and not in memory yet.
    let mut bytes = vec![0; medium.bytes().expect("memory") as usize];
    medium.read_at(0, &mut bytes).expect("memory");
    let at = bytes.windows(1024).position(|part| part == &first[..1024]);
    medium
        .write_at(at.expect("it is there") as u64, &[0; 512])
        .expect("memory");
    let trouble = file.snapshot().expect_err("it cannot be read");
    assert_eq!(trouble.kind, TroubleKind::Damaged);
    assert_eq!(file.store().device().ftl().snapshots().counts().0, 0);
}
