//! Encrypted stores that are attacked, cut, and opened with the wrong key.

use super::key::rekey_on;
use super::{Key, lock};
use crate::error::StoreError;
use crate::flash::{generation_in, mark, mark_page, mark_sum, page_sum, trailer};
use crate::identity::Identity;
use crate::medium::{Landing, Medium, Recorded, Tight};
use crate::pages::tests::cut;
use crate::pages::{OpenOptions, PageStore};
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock, superblock};
use crate::tools::{Hints, backup, compact, repair};
use flagstone::commit::Kind;
use flagstone::layout::{get, put};
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

const PAGES_PER_BLOCK: u32 = 16;
const IDENTITY: u64 = 0x5eed_e4c0_1de7_0417;

fn raw(byte: u8) -> Option<Key> {
    Some(Key::raw([byte; 32]))
}

fn options(key: Option<Key>) -> OpenOptions {
    OpenOptions {
        pages_per_block: PAGES_PER_BLOCK,
        identity: Some(IDENTITY),
        key,
        ..OpenOptions::default()
    }
}

fn open(medium: &Recorded, key: Option<Key>) -> Result<PageStore, StoreError> {
    PageStore::on(Box::new(medium.clone()), &options(key))
}

fn refusal(opened: Result<PageStore, StoreError>) -> String {
    match opened.err().expect("it is refused") {
        StoreError::Key(why) => why,
        other => panic!("{other}"),
    }
}

/// Offset of a page on the medium, and its page number counted over all blocks.
fn place(store: &PageStore, at: u32) -> (u64, u32) {
    let facts = store.facts(Lpn(at)).expect("it holds something");
    let place = mark_page(PAGES_PER_BLOCK, facts.block) + 1 + u64::from(facts.page_in_block);
    (
        place * 4096,
        facts.block * PAGES_PER_BLOCK + facts.page_in_block,
    )
}

fn read(medium: &Recorded, offset: u64) -> Vec<u8> {
    let mut bytes = vec![0; MEDIUM_PAGE_BYTES];
    medium.read_at(offset, &mut bytes).expect("it reads");
    bytes
}

/// A copy of the medium with other bytes at `offset`.
fn with(medium: &Recorded, offset: u64, bytes: &[u8]) -> Recorded {
    let mut all = medium.to_vec();
    all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    Recorded::with(&all)
}

#[test]
fn only_the_key_opens_a_store() {
    let text = |text: &str| Some(Key::passphrase(text.into()));
    for (right, others) in [
        (raw(1), [raw(2), text("one")]),
        (text("one"), [text("two"), raw(1)]),
    ] {
        let medium = Recorded::default();
        let mut store = open(&medium, right.clone()).expect("it is made");
        store.put(3, b"this is a secret of nobody else");
        store.put(4, &[7; 4032]);
        store.close().expect("a close");
        for other in others {
            let before = medium.to_vec();
            let why = refusal(open(&medium, other));
            assert!(why.contains("key") || why.contains("passphrase"), "{why}");
            assert!(medium.to_vec() == before, "nothing was changed");
        }
        assert!(refusal(open(&medium, None)).contains("is encrypted"));
        let bytes = medium.to_vec();
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
        assert!(!bytes.windows(64).any(|window| window == [7; 64]));
        let mut store = open(&medium, right).expect("it opens");
        assert_eq!(
            store.page(3).as_deref(),
            Some(&b"this is a secret of nobody else"[..])
        );
        assert_eq!(store.page(4), Some(vec![7; 4032]));
        assert!(store.check().expect("it reads").is_well());
    }
    let medium = Recorded::default();
    open(&medium, None)
        .expect("it is made")
        .close()
        .expect("a close");
    assert!(refusal(open(&medium, raw(1))).contains("leave the key out"));
}

#[test]
fn keys_are_bytes_or_digits() {
    assert_eq!(Key::parse(&[5; 32]).ok(), raw(5));
    assert_eq!(Key::parse("0a".repeat(32).as_bytes()).ok(), raw(10));
    assert_eq!(
        Key::parse(format!(" {}\n", "0A".repeat(32)).as_bytes()).ok(),
        raw(10)
    );
    for wrong in [&b"short"[..], &[b'0'; 63], "0g".repeat(32).as_bytes()] {
        let why = Key::parse(wrong).expect_err("it is none").to_string();
        assert!(why.contains("64 hexadecimal digits"), "{why}");
    }
    let shown = format!("{:?}", Key::raw([65; 32]));
    assert_eq!(shown, "Key(32 bytes)");
}

#[test]
fn a_protocol_whose_spare_area_has_no_room_is_refused() {
    let mut refused = 0;
    for &protocol in Kind::ALL {
        let medium = Recorded::default();
        let options = options(raw(1)).with_protocol(protocol);
        match PageStore::on(Box::new(medium.clone()), &options) {
            Ok(mut store) => {
                store.put(1, b"one");
                store.close().expect("a close");
                assert_eq!(
                    open(&medium, raw(1)).expect("it").page(1),
                    Some(b"one".into())
                );
            }
            Err(StoreError::Options(_)) => refused += 1,
            Err(other) => panic!("{protocol}: {other}"),
        }
    }
    assert!(refused < Kind::ALL.len() / 2, "{refused}");
}

#[test]
fn a_page_with_any_bit_flipped_is_lost_and_no_other() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    for at in 0..8 {
        store.put(at, &[at as u8 + 1; 4000]);
    }
    let (offset, _) = place(&store, 5);
    store.close().expect("a close");
    for byte in (0..MEDIUM_PAGE_BYTES).step_by(61).chain(4072..4096) {
        let mut page_bytes = read(&medium, offset);
        page_bytes[byte] ^= 1 << (byte % 8);
        let mut store = open(&with(&medium, offset, &page_bytes), raw(1)).expect("it opens");
        for at in 0..8 {
            let right = (at != 5).then(|| vec![at as u8 + 1; 4000]);
            // A page that reads as blank has no version: an older one must not appear.
            let held = store.page(at).filter(|bytes| !bytes.is_empty());
            assert_eq!(held, right, "byte {byte}, page {at}");
        }
    }
}

/// Zeros that a cut could have left are found only if tables of a close contradict them.
#[test]
fn a_check_finds_zeros_that_are_in_the_place_of_a_page_since_the_close() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    for at in 0..30 {
        store.put(at, &[at as u8 + 1; 4000]);
    }
    let (offset, _) = place(&store, 29);
    store.close().expect("a close");
    let zeros = with(&medium, offset, &[0; MEDIUM_PAGE_BYTES]);
    let check = |medium: Recorded| {
        let reading = options(raw(1)).reading().uncached();
        let store = PageStore::on(Box::new(medium), &reading);
        let report = store.expect("it opens").check();
        report.expect("it reads").is_well()
    };
    assert!(check(medium) && !check(zeros));
}

/// Attacks a store with two pages: replaces the bytes of one page by those of the other, and
/// corrects everything that needs no key. Returns what is then read.
fn forged(key: Option<Key>) -> Option<Vec<u8>> {
    let medium = Recorded::default();
    let mut store = open(&medium, key.clone()).expect("it is made");
    store.put(1, b"a hundred");
    store.put(2, b"a thousand");
    let ((from, _), (to, number)) = (place(&store, 2), place(&store, 1));
    store.close().expect("a close");
    let (from, mut forged) = (read(&medium, from), read(&medium, to));
    let trailer_at = PageStore::PAGE_BYTES;
    match key {
        // The whole page as stored.
        Some(_) => forged.copy_from_slice(&from),
        None => {
            forged[..trailer_at].copy_from_slice(&from[..trailer_at]);
            let end = trailer_at + trailer::BYTES.start;
            forged[end..end + 2].copy_from_slice(&from[end..end + 2]);
            let sum = page_sum(&forged[..MEDIUM_PAGE_BYTES - 4], number, IDENTITY);
            forged[MEDIUM_PAGE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let mut store = open(&with(&medium, to, &forged), key).expect("it opens");
    store.page(1)
}

#[test]
fn a_page_in_the_place_of_another_is_found_out() {
    assert_eq!(forged(raw(1)), None);
    // Control: without encryption a corrected checksum is accepted.
    assert_eq!(forged(None), Some(b"a thousand".to_vec()));
}

/// Like [`forged`], with an older page from the same place, from before its block was erased.
/// `as_it_was` keeps its old generation.
fn replayed(key: Option<Key>, as_it_was: bool) -> Option<Vec<u8>> {
    let medium = Recorded::default();
    let mut store = open(&medium, key.clone()).expect("it is made");
    // By offset: the first contents of each page of the medium, and the number of that write.
    let mut first: BTreeMap<u64, (u32, Vec<u8>)> = BTreeMap::new();
    for round in 0_u32..4000 {
        store.put(round % 40, &[&round.to_le_bytes()[..], &[9; 3000]].concat());
        let (offset, number) = place(&store, round % 40);
        let Some((then, old)) = first.get(&offset) else {
            first.insert(offset, (round, read(&medium, offset)));
            continue;
        };
        // Erased meanwhile, and followed by another page, so that a blank page would be noticed.
        store.put(100, b"behind it");
        if place(&store, 100).0 != offset + 4096 {
            continue;
        }
        let (then, mut old) = (*then, old.clone());
        let new = read(&medium, offset);
        let at = match key {
            Some(_) => 4072..4080,
            None => {
                let start = PageStore::PAGE_BYTES + trailer::GENERATION.start;
                start..start + 8
            }
        };
        assert_ne!(old[at.clone()], new[at.clone()], "the block was erased");
        if !as_it_was {
            old[at.clone()].copy_from_slice(&new[at]);
        }
        if key.is_none() {
            let sum = page_sum(&old[..MEDIUM_PAGE_BYTES - 4], number, IDENTITY);
            old[MEDIUM_PAGE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        let (logical, before) = (round % 40, then.to_le_bytes());
        store.close().expect("a close");
        let mut store = open(&with(&medium, offset, &old), key).expect("it opens");
        let read = store.page(logical);
        return read.map(|bytes| {
            if bytes.get(..4) == Some(&before[..]) {
                b"old".to_vec()
            } else {
                bytes
            }
        });
    }
    panic!("no block was erased and written again");
}

#[test]
fn a_page_of_an_older_generation_is_found_out() {
    assert_eq!(replayed(raw(1), false), None, "with the generation of now");
    assert_eq!(replayed(raw(1), true), None, "with its own");
    // Control.
    assert_eq!(replayed(None, false), Some(b"old".to_vec()));
}

#[test]
fn marks_and_superblocks_that_were_changed_are_not_believed() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    for at in 0..20 {
        store.put(at, &[at as u8 + 1; 4000]);
    }
    let block = store.facts(Lpn(3)).expect("it is there").block;
    store.close().expect("a close");
    let offset = mark_page(PAGES_PER_BLOCK, block) * 4096;
    let checked = |medium: &Recorded| {
        let mut options = options(raw(1)).reading().uncached();
        options.key = raw(1);
        match PageStore::on(Box::new(medium.clone()), &options) {
            Ok(mut store) => store.check().expect("it reads").is_well(),
            Err(StoreError::Damaged(_)) => false,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(checked(&medium));
    let mut changed = read(&medium, offset);
    let generation = get(&changed, mark::GENERATION) - 1;
    put(&mut changed, mark::GENERATION, generation);
    let identity = Identity::of(IDENTITY);
    let sum = mark_sum(&changed, identity);
    put(&mut changed, mark::CRC, sum);
    let head = changed.first_chunk().expect("it is longer");
    assert_eq!(
        generation_in(head, block, identity),
        generation,
        "right but for its tag"
    );
    assert!(!checked(&with(&medium, offset, &changed)));
    assert!(
        !checked(&with(&medium, offset, &[0; 4096])),
        "a block without pages"
    );
    let mut other = read(&medium, offset - u64::from(PAGES_PER_BLOCK + 1) * 4096);
    put(&mut other, mark::BLOCK, block.into());
    assert!(
        !checked(&with(&medium, offset, &other)),
        "the mark of another block"
    );
    // Each relevant field of the superblock, with corrected checksums.
    let newest = [0, 4096]
        .into_iter()
        .max_by_key(|&at| get(&read(&medium, at), superblock::SEQUENCE));
    let newest = newest.expect("two");
    for field in [
        superblock::BLOCKS,
        superblock::BOOT,
        superblock::CLOSED,
        superblock::COMMITS,
    ] {
        let mut changed = read(&medium, newest);
        changed[field.start] ^= 1;
        let sum = crate::sum::crc32c(&changed[..superblock::CRC.start]);
        put(&mut changed, superblock::CRC, sum.into());
        let before = superblock::SIZE + lock::CRC.start;
        let sum = crate::sum::crc32c(&changed[..before]);
        put(&mut changed[superblock::SIZE..], lock::CRC, sum.into());
        assert!(!checked(&with(&medium, newest, &changed)), "{field:?}");
    }
}

#[test]
fn another_key_needs_no_data_to_be_written() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    for at in 0..200 {
        store.put(at, &[at as u8; 3000]);
    }
    store.close().expect("a close");
    let before = medium.to_vec();
    let (one, two) = (Key::raw([1; 32]), Key::passphrase("two".into()));
    let wrong = rekey_on(Box::new(medium.clone()), &two, &one);
    assert!(matches!(wrong, Err(StoreError::Key(_))));
    assert!(medium.to_vec() == before);
    // Wherever the power fails, one of the two keys opens the store.
    let found: Arc<Mutex<Vec<(bool, bool)>>> = Arc::default();
    medium.watch(Some({
        let (found, one, two) = (Arc::clone(&found), one.clone(), two.clone());
        Box::new(move |medium: &Recorded| {
            for landing in [Landing::Nothing, Landing::Everything] {
                let left = medium.cut(landing);
                let opens = |key: &Key| {
                    let store = open(&left, Some(key.clone()));
                    store.is_ok_and(|mut store| store.page(9) == Some(vec![9; 3000]))
                };
                found.lock().expect("one").push((opens(&one), opens(&two)));
            }
        })
    }));
    rekey_on(Box::new(medium.clone()), &one, &two).expect("it changes");
    medium.watch(None);
    let found = found.lock().expect("one");
    assert!(found.iter().all(|(one, two)| *one || *two), "{found:?}");
    assert_eq!(found.first(), Some(&(true, false)));
    assert!(medium.to_vec()[2 * MEDIUM_PAGE_BYTES..] == before[2 * MEDIUM_PAGE_BYTES..]);
    refusal(open(&medium, Some(one)));
    let mut store = open(&medium, Some(two)).expect("it opens");
    for at in 0..200 {
        assert_eq!(store.page(at), Some(vec![at as u8; 3000]));
    }
    assert!(store.check().expect("it reads").is_well());
}

/// Copies of an encrypted store are encrypted with the same key.
#[test]
fn copies_are_encrypted_too_and_damaged_stores_are_salvaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (path, copy, salvaged) = (at("a.flag"), at("copy.flag"), at("salvaged.flag"));
    let keyed = options(raw(1));
    let mut store = PageStore::open(&path, &keyed).expect("it is made");
    for at in 0..300 {
        store.put(at, &[at as u8; 3000]);
    }
    let block = store.facts(Lpn(7)).expect("it is there").block;
    store.close().expect("a close");
    let quiet = &mut |_, _| ();
    let is_right = |path: &std::path::Path| {
        let plain = PageStore::open(path, &OpenOptions::existing());
        assert!(matches!(plain, Err(StoreError::Key(_))), "it is encrypted");
        let mut store = PageStore::open(
            path,
            &OpenOptions {
                create: false,
                ..keyed.clone()
            },
        );
        let store = store.as_mut().expect("it opens");
        (0..300).all(|at| store.page(at) == Some(vec![at as u8; 3000]))
    };
    let refused = backup(&path, &copy, &OpenOptions::existing(), false, quiet);
    assert!(matches!(refused, Err(StoreError::Key(_))));
    backup(&path, &copy, &keyed, false, quiet).expect("a copy");
    assert!(is_right(&copy));
    compact(&copy, &keyed, quiet).expect("it is compacted");
    assert!(is_right(&copy));
    // One superblock and a mark are damaged: the pages of the block tell what the mark said.
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("the store");
    for offset in [0, mark_page(PAGES_PER_BLOCK, block) * 4096] {
        file.write_all_at(&[0x55; 4096], offset)
            .expect("it is written");
    }
    let report = repair(&path, &salvaged, &keyed, &Hints::default(), false, quiet);
    let report = report.expect("it can be salvaged");
    // An erase may be lost with the mark; nothing else is lost.
    assert!(report.lost.is_empty() && report.missing.len() == 1);
    assert!(is_right(&salvaged));
}

/// An encrypted store that was emptied gives back its room, and grows again.
#[test]
fn an_encrypted_store_shrinks_and_grows_again() {
    let medium = Recorded::default();
    let mut store = open(&medium, raw(1)).expect("it is made");
    let fill = |store: &mut PageStore, byte: u8| {
        for at in 0..1_000 {
            store.put(at, &[byte; 4000]);
        }
    };
    fill(&mut store, 1);
    let full = store.info().bytes;
    let tx = store.begin().expect("it begins");
    for at in 10..1_000 {
        store.trim(tx, Lpn(at)).expect("it is trimmed");
    }
    store.commit(tx).expect("it commits");
    let given = store.compact().expect("it is compacted");
    assert!(given > full / 2, "{given} of {full} bytes were given back");
    let is_right = |store: &mut PageStore, byte: u8, end: u32| {
        (0..end).all(|at| store.page(at) == Some(vec![byte; 4000]))
    };
    store.close().expect("a close");
    // The tables of a close lie behind the last block.
    let left = medium.to_vec().len() as u64;
    assert!(left <= full - given + (64 << 10), "{left}");
    let mut store = open(&medium, raw(1)).expect("it opens");
    assert!(is_right(&mut store, 1, 10));
    assert_eq!(store.page(10), Some(Vec::new()), "it was trimmed");
    fill(&mut store, 2);
    assert!(store.info().bytes >= full);
    drop(store);
    let mut store = open(&medium, raw(1)).expect("it opens");
    assert!(is_right(&mut store, 2, 1_000));
}

/// Without a key the error says that the store is encrypted, not that it is damaged.
#[test]
fn without_a_key_it_is_no_damaged_store() {
    let medium = Recorded::default();
    open(&medium, raw(1))
        .expect("it is made")
        .close()
        .expect("a close");
    assert!(matches!(Superblock::read(&medium), Err(StoreError::Key(_))));
}

#[test]
fn a_cut_leaves_all_of_a_transaction_or_nothing() {
    let (done, wrong) = cut(&options(raw(1)), 30, false);
    assert!(done > 300 && wrong == 0, "{wrong} of {done}");
    // Control: a medium whose syncs do nothing.
    let (done, wrong) = cut(&options(raw(1)), 10, true);
    assert!(wrong > 0, "{wrong} of {done}");
}

/// Several threads read, decrypt and verify pages without the store's lock, while blocks are
/// collected and rewritten.
#[test]
fn readers_beside_a_writer_see_whole_transactions() {
    let folder = tempfile::tempdir().expect("a folder");
    let keyed = OpenOptions {
        cache: 0,
        ..options(raw(1))
    };
    let store = crate::Store::with(folder.path().join("a.flag"), &keyed).expect("it is made");
    let value = |round: u32| [&round.to_le_bytes()[..], &[7; 3000]].concat();
    let put = |round: u32| {
        let mut tx = store.write().expect("it begins");
        let mut table = tx.table("t").expect("a table");
        for key in [b"one", b"two"] {
            table.insert(key, &value(round)).expect("room");
        }
        tx.commit().expect("it commits");
    };
    put(0);
    let rounds = 1500;
    std::thread::scope(|scope| {
        let readers = [(); 3].map(|()| {
            scope.spawn(|| {
                let mut seen = Vec::new();
                while seen.last().is_none_or(|&round| round < rounds) {
                    let read = store.read().expect("a snapshot");
                    let table = read.table("t").expect("it is there");
                    let [one, two] = [b"one", b"two"]
                        .map(|key| table.get(key).expect("it reads").expect("it is there"));
                    let round = u32::from_le_bytes(one[..4].try_into().expect("four"));
                    assert!(one == two && one == value(round), "round {round}");
                    seen.push(round);
                }
                assert!(seen.is_sorted());
                seen.dedup();
                seen.len()
            })
        });
        (1..=rounds).for_each(put);
        for reader in readers {
            assert!(reader.join().expect("no reader panics") > 1);
        }
    });
}

/// A store that has run out of room writes its older superblock again to see whether there is room.
/// Fails if that signs what damage has made of it.
#[test]
fn a_superblock_that_is_damaged_stays_so_when_it_is_written_again() {
    let medium = Tight::default();
    let store = PageStore::on(Box::new(medium.clone()), &options(raw(1)));
    let mut store = store.expect("it is made");
    store.put(1, b"one");
    medium.give(Some(0), 0);
    let tx = store.begin().expect("it begins");
    let refused = store
        .write(tx, Lpn(1), b"two")
        .and_then(|()| store.commit(tx));
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    // As damaged, the older one would be the newest, and have too few blocks.
    let below = medium.below();
    let older = [0, 4096].map(|at| (get(&read(below, at), superblock::SEQUENCE), at));
    let (sequence, at) = older.into_iter().min().expect("two of them");
    let mut page = read(below, at);
    put(&mut page, superblock::SEQUENCE, sequence + 2);
    put(&mut page, superblock::BLOCKS, 1);
    below.write_at(at, &page).expect("memory");
    medium.give(Some(1), 0);
    let done = store.abort(tx).and_then(|()| store.begin());
    assert!(done.is_ok(), "it has written that page: {done:?}");
    let left = below.cut(Landing::Everything);
    let mut store = open(&left, raw(1)).expect("the other superblock is whole");
    assert_eq!(store.page(1).as_deref(), Some(&b"one"[..]));
}

mod bad_sectors;
mod forged;
