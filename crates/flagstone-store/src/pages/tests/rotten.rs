//! Durable pages, marks, summaries and roots that are damaged later, in killed and closed stores. A
//! store must then open with all acknowledged data, or be refused.
//!
//! After a kill only the last commit may be lost silently: nothing written later proves that it was
//! durable.

mod marks;

use super::*;
use crate::flash::{mark_page, medium_bytes};
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock};
use crate::tools::{Hints, Repaired, repair};
use flagstone::ftl::Mistake;

/// A store, plain or encrypted.
fn options(encrypted: bool) -> OpenOptions {
    let options = OpenOptions {
        identity: Some(1),
        ..small(Kind::Seal)
    };
    #[cfg(feature = "encryption")]
    return OpenOptions {
        key: encrypted.then(|| crate::Key::raw([7; 32])),
        ..options
    };
    #[cfg(not(feature = "encryption"))]
    {
        let _ = encrypted;
        options
    }
}

const KINDS: &[bool] = if cfg!(feature = "encryption") {
    &[false, true]
} else {
    &[false]
};

/// A medium, its contents, and the contents before the commit that wrote the latest pages.
struct Left {
    bytes: Vec<u8>,
    pages: Pages,
    before: Pages,
    written: Vec<usize>,
}

/// A history in which one commit overwrites `batch` pages, and `later` commits follow; then a kill,
/// or a close if `closes`.
fn left(options: &OpenOptions, batch: u32, later: u32, closes: bool) -> Left {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), options).expect("a store");
    store.put_all(0..20, b"old");
    store.put(20, b"later");
    let before = contents(&mut store);
    let old = medium.to_vec();
    store.put_all(0..batch, b"new");
    let new = medium.to_vec();
    for number in 0..later {
        store.put(20 + number % 7, &number.to_le_bytes());
    }
    let pages = contents(&mut store);
    if closes {
        store.close().expect("no fault")
    } else {
        std::mem::forget(store)
    }
    Left {
        bytes: medium.to_vec(),
        pages,
        before,
        written: differing(&old, &new),
    }
}

/// The pages that differ between two media, except superblocks.
fn differing(old: &[u8], new: &[u8]) -> Vec<usize> {
    let places = 2..new.len() / MEDIUM_PAGE_BYTES;
    let differs = |place: &usize| {
        let page = place * MEDIUM_PAGE_BYTES..(place + 1) * MEDIUM_PAGE_BYTES;
        old.get(page.clone()) != Some(&new[page])
    };
    places.filter(differs).collect()
}

/// The result of opening a damaged medium.
#[derive(Debug, PartialEq, Eq)]
enum Comes {
    /// All data is there, or unreadable data gives an error.
    Right,
    /// The opening fails with this message.
    Refused(String),
    /// The last commit is missing as a whole.
    WithoutLast,
    Silent,
}

fn comes(left: &Left, bytes: &[u8], options: &OpenOptions) -> Comes {
    let options = OpenOptions {
        mistake: options.mistake,
        ..OpenOptions::existing().reading().with_key_of(options)
    };
    let mut store = match PageStore::on(Box::new(Recorded::with(bytes)), &options) {
        Ok(store) => store,
        Err(StoreError::Damaged(what)) => return Comes::Refused(what),
        Err(other) => panic!("{other}"),
    };
    let held = contents(&mut store);
    let is_right =
        |(at, is): (&u32, &Option<Vec<u8>>)| is.is_none() || left.pages.get(at) == Some(is);
    if held.len() == left.pages.len() && held.iter().all(is_right) {
        let report = store.check().expect("it is read");
        let is_whole = held == left.pages;
        assert!(
            is_whole || !report.is_well(),
            "the check says nothing: {report:?}"
        );
        return Comes::Right;
    }
    if held == left.before {
        Comes::WithoutLast
    } else {
        Comes::Silent
    }
}

/// The medium with bit `bit` of a page flipped.
fn flipped(bytes: &[u8], place: usize, bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[place * MEDIUM_PAGE_BYTES + bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// Bits in the data of a page, which may be short, and in the record at its end.
const BITS: [usize; 4] = [3, 50 * 8, 2000 * 8 + 1, 4090 * 8];

#[test]
fn a_flipped_bit_of_an_acknowledged_commit_is_never_silent() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        for batch in [1, 12] {
            for later in [0, 1, 20] {
                let left = left(&options, batch, later, false);
                assert!(left.written.len() >= batch as usize);
                let mut refused = 0;
                for (&place, bit) in left.written.iter().flat_map(|it| BITS.map(|bit| (it, bit))) {
                    let bytes = flipped(&left.bytes, place, bit);
                    let what = format!("{encrypted}, {batch} pages, {later} later, {place}.{bit}");
                    match comes(&left, &bytes, &options) {
                        Comes::Right => {}
                        Comes::Refused(says) => {
                            assert!(says.contains("block"), "{what}: {says}");
                            refused += 1;
                        }
                        Comes::WithoutLast if later == 0 => {}
                        other => panic!("{what}: {other:?}"),
                    }
                }
                assert!(refused > 0 || later == 0, "{batch}, {later}");
            }
        }
    }
}

/// A transaction overwrites one of its own pages, another one commits, then the first one commits.
/// Its last page lacks room for the horizon, so another of its pages must carry it.
#[test]
fn a_commit_with_a_sum_says_that_the_one_before_it_was_durable() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let medium = Recorded::default();
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        store.put_all(0..20, b"old");
        let with_sum = store.begin().expect("room");
        for (at, bytes) in [(10, b"one"), (11, b"two"), (11, b"new")] {
            store.write(with_sum, Lpn(at), bytes).expect("room");
        }
        let (old, before) = (medium.to_vec(), contents(&mut store));
        store.put_all(0..3, b"new");
        let new = medium.to_vec();
        store.commit(with_sum).expect("no fault");
        let pages = contents(&mut store);
        std::mem::forget(store);
        let written = differing(&old, &new);
        let left = Left {
            bytes: medium.to_vec(),
            pages,
            before,
            written,
        };
        assert!(left.written.len() >= 3);
        for &place in &left.written {
            let comes = comes(&left, &flipped(&left.bytes, place, 400), &options);
            let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
            assert!(is_said, "{encrypted}, {place}: {comes:?}");
        }
    }
}

/// Commits across a block boundary, where both blocks wait for a transaction that is live at the
/// kill. Then a cut while the store is settled, with either of the two summaries.
fn caught_while_settled(options: &OpenOptions) -> (Left, Vec<(usize, Vec<u8>)>) {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), options).expect("a store");
    store.put_all(0..20, b"old");
    let lives = store.begin().expect("room");
    for at in [20, 21] {
        store.write(lives, Lpn(at), b"never").expect("room");
    }
    let (old, before) = (medium.to_vec(), contents(&mut store));
    store.put_all(0..18, b"new");
    let pages = contents(&mut store);
    std::mem::forget(store);
    let bytes = medium.to_vec();
    let written = differing(&old, &bytes);
    let left = Left {
        bytes,
        pages,
        before,
        written,
    };
    let again = Recorded::with(&left.bytes);
    let mut store = PageStore::on(
        Box::new(again.clone()),
        &OpenOptions::existing().with_key_of(options),
    )
    .expect("a store");
    let tx = store.begin().expect("room");
    store.write(tx, Lpn(0), b"begins").expect("room");
    std::mem::forget(store);
    let settled = again.to_vec();
    let summaries = differing(&left.bytes, &settled);
    let page = |&place: &usize| {
        let page = place * MEDIUM_PAGE_BYTES..(place + 1) * MEDIUM_PAGE_BYTES;
        (place, settled[page].to_vec())
    };
    let is_summary = |&&place: &&usize| (place - 2) % 17 == 16;
    let summaries = summaries.iter().filter(is_summary).map(page).collect();
    (left, summaries)
}

#[test]
fn what_a_summary_relies_on_that_lands_alone_is_never_silent() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let (mut left, summaries) = caught_while_settled(&options);
        assert_eq!(summaries.len(), 2);
        let whole = left.bytes.clone();
        for landed in 1..4 {
            left.bytes.clone_from(&whole);
            for (number, (place, page)) in summaries.iter().enumerate() {
                if landed >> number & 1 == 1 {
                    left.bytes[place * MEDIUM_PAGE_BYTES..][..MEDIUM_PAGE_BYTES]
                        .copy_from_slice(page);
                }
            }
            for &place in &left.written {
                let comes = comes(&left, &flipped(&left.bytes, place, 400), &options);
                let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
                assert!(is_said, "{encrypted}, {landed}, {place}: {comes:?}");
            }
        }
    }
}

/// A transaction with a sum spans two blocks. The first block's summary records that it committed
/// when the next transaction supersedes its last page. Then the store is killed and opened, and the
/// second block gets a summary, which replaces the sum: from then on only the first summary proves
/// the transaction. That summary can be lost. The collector's block, if there is one, gets its
/// summary then as well. Control: without the horizon.
#[test]
fn a_lost_summary_that_alone_knows_of_a_sum_is_never_silent() {
    let ignored = OpenOptions {
        mistake: Some(Mistake::HorizonIgnored).into(),
        ..options(false)
    };
    for options in KINDS.iter().map(|&it| options(it)).chain([ignored]) {
        let is_control = options.mistake.is(Mistake::HorizonIgnored);
        let mut silent = 0;
        for (before_it, copies) in (0..16).flat_map(|it| [(it, false), (it, true)]) {
            let medium = Recorded::default();
            let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
            if copies {
                (0..90).for_each(|at| store.put(10 + at % 7 * (at % 2), b"for copies"));
                assert!(store.idle(2).expect("no fault") > 0);
            }
            store.put_all(0..3, b"old");
            (0..before_it).for_each(|_| store.put(9, b"between"));
            let before = contents(&mut store);
            let with_sum = store.begin().expect("room");
            for at in [0, 0, 1, 2] {
                store.write(with_sum, Lpn(at), b"new").expect("room");
            }
            store.commit(with_sum).expect("no fault");
            store.put_all(2..5, b"newest");
            let pages = contents(&mut store);
            std::mem::forget(store);
            let old = medium.to_vec();
            let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
            let tx = store.begin().expect("room");
            store.write(tx, Lpn(0), b"begins").expect("room");
            std::mem::forget(store);
            let bytes = medium.to_vec();
            let written = differing(&old, &bytes);
            let left = Left {
                bytes,
                pages,
                before,
                written: Vec::new(),
            };
            let is_summary = |&place: &usize| (place - 2) % 17 == 16 && !written.contains(&place);
            let all = 2..left.bytes.len() / MEDIUM_PAGE_BYTES;
            for place in all.filter(is_summary) {
                let comes = comes(&left, &flipped(&left.bytes, place, 400), &options);
                let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
                assert!(
                    is_said || is_control,
                    "{before_it}, {copies}, {place}: {comes:?}"
                );
                silent += u32::from(!is_said);
            }
        }
        assert_eq!(silent > 0, is_control);
    }
}

#[test]
fn without_the_horizon_a_flipped_bit_is_silent() {
    let options = OpenOptions {
        mistake: Some(Mistake::HorizonIgnored).into(),
        ..options(false)
    };
    for batch in [1, 12] {
        let left = left(&options, batch, 5, false);
        let mut all = left
            .written
            .iter()
            .map(|&place| flipped(&left.bytes, place, 400));
        assert!(
            all.any(|bytes| comes(&left, &bytes, &options) == Comes::Silent),
            "{batch}"
        );
    }
}

#[test]
fn a_refusal_names_page_and_block() {
    let options = options(false);
    // Few enough commits for their block to be open.
    let left = left(&options, 4, 2, false);
    let names = |&place: &usize| {
        let says = comes(&left, &flipped(&left.bytes, place, 400), &options);
        matches!(says, Comes::Refused(says) if says.contains("page ") && says.contains(" of block "))
    };
    assert!(left.written.iter().filter(|place| names(place)).count() >= 4);
}

#[test]
fn after_a_close_every_page_is_covered() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        for later in [0, 20] {
            let left = left(&options, 12, later, true);
            for place in 2..left.bytes.len() / MEDIUM_PAGE_BYTES {
                for harm in [None, Some(0), Some(0xff)] {
                    let mut bytes = flipped(&left.bytes, place, 400);
                    let page = place * MEDIUM_PAGE_BYTES..(place + 1) * MEDIUM_PAGE_BYTES;
                    if let Some(byte) = harm {
                        bytes[page].fill(byte);
                    }
                    let comes = comes(&left, &bytes, &options);
                    let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
                    assert!(
                        is_said,
                        "{encrypted}, {later}, {place}, {harm:?}: {comes:?}"
                    );
                }
            }
        }
    }
}

/// The last written block loses all its pages, with or without its mark. A close records the last
/// program, so the loss is detected. Control: without the horizon.
#[test]
fn after_a_close_the_block_that_was_written_last_is_missed() {
    let ignored = OpenOptions {
        mistake: Some(Mistake::HorizonIgnored).into(),
        ..options(false)
    };
    for options in KINDS.iter().map(|&it| options(it)).chain([ignored]) {
        let mut left = left(&options, 1, 1, true);
        // The tables of the close have the addresses of all pages.
        let medium = Box::new(Recorded::with(&left.bytes));
        let store = PageStore::on(medium, &options.clone().reading()).expect("a store");
        let blocks = store.info().blocks;
        drop(store);
        left.bytes.truncate(medium_bytes(16, blocks) as usize);
        let last = *left.written.last().expect("a page is written");
        let block = (last - 2) / 17;
        let mark = mark_page(16, block as u32) as usize;
        assert!(mark < last, "page {last} is a mark");
        for first in [mark, mark + 1] {
            for harm in [0, 0xff] {
                let mut bytes = left.bytes.clone();
                bytes[first * MEDIUM_PAGE_BYTES..(mark + 17) * MEDIUM_PAGE_BYTES].fill(harm);
                let comes = comes(&left, &bytes, &options);
                let is_silent =
                    options.mistake.is(Mistake::HorizonIgnored) && (first, harm) != (mark, 0xff);
                if is_silent {
                    assert_eq!(comes, Comes::Silent)
                } else {
                    assert!(
                        matches!(comes, Comes::Refused(_)),
                        "{first}, {harm}: {comes:?}"
                    )
                }
            }
        }
    }
}

/// The block open at a kill got its summary from the next opening. Neither its pages nor the
/// summary can be read any more. When the summary was programmed the pages were durable. Control:
/// without the horizon.
#[test]
fn an_unreadable_summary_says_that_its_pages_were_durable() {
    let ignored = OpenOptions {
        mistake: Some(Mistake::HorizonIgnored).into(),
        ..options(false)
    };
    for options in KINDS.iter().map(|&it| options(it)).chain([ignored]) {
        let medium = Recorded::default();
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        let old = medium.to_vec();
        store.put(3, b"short");
        let new = medium.to_vec();
        std::mem::forget(store);
        let block = (differing(&old, &new)[0] - 2) / 17;
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        store.put(4, b"later");
        let before = contents(&mut store);
        store.put(5, b"last");
        let pages = contents(&mut store);
        std::mem::forget(store);
        let mut bytes = medium.to_vec();
        let mark = mark_page(16, block as u32) as usize;
        for place in mark + 1..mark + 17 {
            let page = place * MEDIUM_PAGE_BYTES..(place + 1) * MEDIUM_PAGE_BYTES;
            if bytes[page].iter().any(|&byte| byte != 0) {
                bytes = flipped(&bytes, place, 400);
            }
        }
        let left = Left {
            bytes,
            pages,
            before,
            written: Vec::new(),
        };
        let comes = comes(&left, &left.bytes, &options);
        if options.mistake.is(Mistake::HorizonIgnored) {
            assert_eq!(comes, Comes::Silent)
        } else {
            assert!(matches!(comes, Comes::Refused(_)), "{comes:?}")
        }
    }
}

#[test]
fn a_lost_summary_or_root_is_never_silent() {
    for &encrypted in KINDS {
        let options = options(encrypted);
        let left = left(&options, 12, 400, false);
        // The last page of each block: a summary, or a page of the table.
        for place in (2..left.bytes.len() / MEDIUM_PAGE_BYTES).filter(|at| (at - 2) % 17 == 16) {
            for harm in [0, 0x55] {
                let mut bytes = left.bytes.clone();
                bytes[place * MEDIUM_PAGE_BYTES..(place + 1) * MEDIUM_PAGE_BYTES].fill(harm);
                let comes = comes(&left, &bytes, &options);
                let is_said = matches!(comes, Comes::Right | Comes::Refused(_));
                assert!(is_said, "{encrypted}, {place}, {harm}: {comes:?}");
            }
        }
    }
}

/// Repairs a damaged medium. Returns the report, and the contents of the new store.
fn repaired(options: &OpenOptions, bytes: &[u8]) -> (Repaired, Pages) {
    let folder = tempfile::tempdir().expect("a folder");
    let [from, to] = ["damaged", "repaired"].map(|name| folder.path().join(name));
    std::fs::write(&from, bytes).expect("room");
    let hints = Hints::default();
    let report = repair(&from, &to, options, &hints, false, &mut |_, _| ());
    let report = report.expect("it is repaired");
    let mut store = PageStore::open(&to, &OpenOptions::existing().reading()).expect("a store");
    (report, contents(&mut store))
}

#[test]
fn a_repair_names_what_is_lost() {
    let options = options(false);
    let left = left(&options, 12, 5, false);
    for &place in &left.written {
        let (report, held) = repaired(&options, &flipped(&left.bytes, place, 400));
        assert!(
            held == left.pages || !report.is_whole(),
            "{place}: {report:?}"
        );
    }
}

/// Unreadable: the last page written before a close, the summary of its block, the older
/// superblock, and the tables of the close.
#[test]
fn a_repair_beside_a_damaged_superblock_names_what_is_lost() {
    let options = options(false);
    for batch in 1..4 {
        let left = left(&options, batch, 0, true);
        let mut bytes = left.bytes.clone();
        let head = Superblock::read(&Recorded::with(&bytes)).expect("it is read");
        let newest = head.expect("a store").superblock.sequence;
        let older = Superblock::place(newest - 1) as usize / MEDIUM_PAGE_BYTES;
        let last = *left.written.last().expect("a page is written");
        let summary = (last - 2) / 17 * 17 + 2 + 16;
        for place in [older, last, summary, bytes.len() / MEDIUM_PAGE_BYTES - 1] {
            bytes[place * MEDIUM_PAGE_BYTES..][..MEDIUM_PAGE_BYTES].fill(0xff);
        }
        let (report, held) = repaired(&options, &bytes);
        assert_ne!(held, left.pages);
        assert!(!report.is_whole(), "{batch}: {report:?}");
    }
}

/// The first byte of the spare area of a translation page, see `docs/format.md`.
const TRANSLATION_PAGE: u8 = 0x30;

#[test]
fn a_lost_page_of_the_mapping_table_refuses_the_store() {
    for protocol in [Kind::SealR, Kind::LightTx, Kind::MhlD] {
        let medium = Recorded::default();
        let options = small(protocol);
        let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
        for number in 0..600 {
            store.put(number % 50, &[number as u8; 100]);
        }
        let expected = contents(&mut store);
        store.close().expect("it closes");
        let whole = medium.to_vec();
        let mut refused = 0;
        for (number, page) in whole.chunks_exact(MEDIUM_PAGE_BYTES).enumerate() {
            if page[PageStore::PAGE_BYTES] != TRANSLATION_PAGE {
                continue;
            }
            for lost in [0x00, 0xff] {
                let mut bytes = whole.clone();
                bytes[number * MEDIUM_PAGE_BYTES..][..MEDIUM_PAGE_BYTES].fill(lost);
                let reading = OpenOptions::existing().reading();
                match PageStore::on(Box::new(Memory::with(bytes)), &reading) {
                    Err(_) => refused += 1,
                    // An older page, to which no root refers any more.
                    Ok(mut store) => assert!(contents(&mut store) == expected, "{protocol}"),
                }
            }
        }
        assert!(refused > 0, "{protocol}");
    }
}
