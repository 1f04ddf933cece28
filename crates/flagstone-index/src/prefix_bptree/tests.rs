//! Tests of the prefix B+-tree: histories of byte strings compared with a map, with deliberate
//! defects of store and tree; common histories of numbers, limits, full stores, damage.

use super::super::model::{History, blank, figure, small_device};
use super::super::{BackingError, IndexKind, MemStore, Recoverable};
use super::*;
use flagstone::commit::Kind as Protocol;
use flagstone::dice::Dice;
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const ZERO: Nanos = Nanos::ZERO;

/// A deliberate defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Every 50th insertion of an existing key is lost.
    LosesUpdates,
    /// Every 50th deletion is lost.
    LosesDeletions,
    /// The store loses every 50th page that is written.
    LosesPages,
    /// The store loses the last page of every 20th multi-page request between flushes: only large
    /// values are written that way.
    LosesEnds,
}

/// Pages in memory; some writes are lost.
struct Forgetful {
    pages: MemStore,
    mistake: Mistake,
    requests: u64,
}

impl BackingStore for Forgetful {
    fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }
    fn pages(&self) -> u32 {
        self.pages.pages()
    }
    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        self.pages.read(now, at, into)
    }
    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        self.requests += 1;
        let kept = match self.mistake {
            Mistake::LosesPages if self.requests.is_multiple_of(50) => &pages[1..],
            Mistake::LosesEnds if self.requests.is_multiple_of(20) && pages.len() > 1 => {
                &pages[..pages.len() - 1]
            }
            _ => pages,
        };
        self.pages.write(now, kept)
    }
    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.pages.trim(now, at)
    }
    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.pages.commit(now)
    }
}

/// One of a few keys of difficult shapes: empty, short, the longest, prefixes of others, equal up
/// to the last bytes.
fn any_key(dice: &mut Dice, most: usize) -> Vec<u8> {
    let letters = |dice: &mut Dice, len: u64| -> Vec<u8> {
        (0..len)
            .map(|_| b"a\0\xff"[dice.below(3) as usize])
            .collect()
    };
    match dice.below(6) {
        0 => {
            let len = dice.below(4);
            letters(dice, len)
        }
        1 => vec![b'x'; dice.below(most as u64 + 1) as usize],
        2 => {
            let mut key = vec![b'p'; most];
            let number = dice.below(200) as u16;
            key[most - 2..].copy_from_slice(&number.to_be_bytes());
            key
        }
        3 => {
            let number = dice.below(40);
            let mut key = vec![(number * 6) as u8; most];
            key[most - 1] = number as u8;
            key
        }
        4 => format!("u{:05}", dice.below(300)).into_bytes(),
        _ => {
            let mut key = vec![b'q'; most / 2];
            let len = dice.below(5);
            key.extend(letters(dice, len));
            key.truncate(most);
            key
        }
    }
}

/// A value: empty up to the longest, around the length from which values have their own pages.
fn any_value(dice: &mut Dice, page: usize, most: usize) -> Vec<u8> {
    let len = match dice.below(8) {
        0 => 0,
        1..4 => dice.below(12) as usize,
        4 | 5 => dice.below(page as u64 / 4) as usize,
        6 => page - 1 + dice.below(3) as usize,
        // A few are so long that page lists need pages.
        _ => {
            let most = if dice.below(20) == 0 {
                most
            } else {
                most / (page / 4)
            };
            dice.below(most as u64 + 1) as usize
        }
    };
    let seed = dice.next();
    (0..len.min(most))
        .map(|i| (seed >> (i % 50)) as u8)
        .collect()
}

struct Strings {
    page_bytes: usize,
    frames: u64,
    seed: u64,
    operations: u64,
}

impl Strings {
    fn settings(&self) -> Settings {
        Settings::new().with("memory", self.frames * self.page_bytes as u64)
    }

    /// Grows the tree, changes it and shrinks it to almost nothing, three times.
    fn play(&self, mistake: Mistake) -> Result<(), String> {
        let store = Box::new(Forgetful {
            pages: MemStore::new(self.page_bytes, 1 << 16),
            mistake,
            requests: 0,
        });
        let say = |error: IndexError| error.to_string();
        let (mut index, mut now) = open(store, &self.settings(), ZERO).map_err(say)?;
        let mut map = Map::new();
        let mut dice = Dice(self.seed);
        for i in 0..self.operations {
            let fail = |what: String| format!("operation {i}, seed {}: {what}", self.seed);
            let say = |error: IndexError| fail(error.to_string());
            let tree = index.bytes().expect("byte strings");
            let limits = tree.limits();
            let grows = (i * 6 / self.operations).is_multiple_of(2);
            let key = any_key(&mut dice, limits.key);
            let roll = dice.below(100) + if grows { 0 } else { 30 };
            if roll < 60 {
                let value = any_value(&mut dice, self.page_bytes, limits.value);
                let there = map.contains_key(&key);
                if !(mistake == Mistake::LosesUpdates && there && i % 50 == 0) {
                    now = tree.insert(now, &key, &value).map_err(say)?;
                }
                map.insert(key, value);
            } else if !(70..100).contains(&roll) {
                // Mostly existing keys.
                let key = map
                    .range(key.clone()..)
                    .next()
                    .map_or(key, |(key, _)| key.clone());
                let there = map.remove(&key).is_some();
                if !(mistake == Mistake::LosesDeletions && i % 50 == 0) {
                    let (was, done) = tree.delete(now, &key).map_err(say)?;
                    now = done;
                    if was != there {
                        return Err(fail(format!("{key:?} was there: {was}")));
                    }
                }
            } else if roll < 80 {
                let to = any_key(&mut dice, limits.key);
                let to = (dice.below(5) > 0).then_some(to);
                let most = dice.below(30) as usize;
                now = assert_range(tree, now, &map, &key, to.as_deref(), most).map_err(fail)?;
            } else {
                let mut value = Vec::new();
                let (found, done) = tree.get(now, &key, &mut value).map_err(say)?;
                now = done;
                if found.then_some(&value) != map.get(&key) {
                    return Err(fail(format!("{key:?} has {found} {value:?}")));
                }
            }
            if i % (self.operations / 60 + 1) == 0 {
                index.check().map_err(fail)?;
            }
            if i % (self.operations / 8 + 1) == self.operations / 16 {
                now = index.flush(now).map_err(say)?;
                let store = index.into_store();
                (index, now) = open(store, &self.settings(), now).map_err(say)?;
                index.check().map_err(fail)?;
                let tree = index.bytes().expect("byte strings");
                if tree.len() != map.len() as u64 {
                    return Err(fail(format!("it says that it has {} keys", tree.len())));
                }
                now = assert_range(tree, now, &map, b"", None, usize::MAX).map_err(fail)?;
            }
        }
        index.check()?;
        let tree = index.bytes().expect("byte strings");
        for key in map.keys().cloned().collect::<Vec<_>>() {
            now = tree.delete(now, &key).map_err(say)?.1;
        }
        index.check()
    }
}

/// Compares a range with the map, up to a number of pairs.
fn assert_range(
    tree: &mut ByteIndex,
    now: Nanos,
    map: &Map,
    from: &[u8],
    to: Option<&[u8]>,
    most: usize,
) -> Result<Nanos, String> {
    let mut found = Vec::new();
    let done = tree.range(now, from, to, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        found.len() < most
    });
    let done = done.map_err(|error| error.to_string())?;
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    let is_empty = to.is_some_and(|to| from >= to);
    let wanted = (!is_empty).then(|| map.range::<[u8], _>((Bound::Included(from), end)));
    let wanted = wanted.into_iter().flatten().take(most.max(1));
    if !wanted.eq(found.iter().map(|(k, v)| (k, v))) {
        return Err(format!("{from:?} to {to:?} has {found:?}"));
    }
    Ok(done)
}

#[test]
fn agrees_with_a_map_of_byte_strings() {
    for (page_bytes, frames) in [(128, 4), (251, 6), (256, 40), (1024, 5)] {
        let strings = |seed| Strings {
            page_bytes,
            frames,
            seed,
            operations: 5000,
        };
        for seed in 0..3 {
            assert_eq!(strings(seed).play(Mistake::None), Ok(()), "{page_bytes}");
        }
    }
}

#[test]
fn what_is_lost_on_purpose_is_noticed() {
    use Mistake::{LosesDeletions, LosesEnds, LosesPages, LosesUpdates};
    for mistake in [LosesUpdates, LosesDeletions, LosesPages, LosesEnds] {
        let strings = Strings {
            page_bytes: 256,
            frames: 6,
            seed: 1,
            operations: 3000,
        };
        assert!(strings.play(mistake).is_err(), "{mistake:?} passes");
    }
}

#[test]
fn agrees_with_a_map_of_numbers_of_every_length() {
    for (page_bytes, keys, records) in [(128, "8", "0"), (256, "8..25", "0..900"), (256, "8", "40")]
    {
        let history = History {
            kind: IndexKind::PrefixBPlusTree,
            settings: Settings::new()
                .with("memory", 6 * page_bytes)
                .with("key_bytes", keys)
                .with("record_bytes", records),
            page_bytes,
            seed: 1,
            operations: 6000,
            keys: 700,
        };
        history.assert_agrees(3);
    }
}

#[test]
fn byte_strings_have_transactions_too() {
    let (kind, settings) = (IndexKind::PrefixBPlusTree, Settings::new());
    let store = small_device(Protocol::LightTx);
    let opened = Recoverable::open(kind, store, &settings, ZERO);
    let (mut index, mut now) = opened.expect("a blank store");
    let long = vec![7; 1200];
    for (value, commits) in [(&b"one"[..], true), (b"two", false), (&long, true)] {
        now = index.begin(now).expect("begin");
        let tree = index.index().bytes().expect("byte strings");
        now = tree.insert(now, b"key", value).expect("room");
        now = if commits {
            index.commit(now)
        } else {
            index.abort(now)
        }
        .expect("a device");
        let (again, done) =
            Recoverable::open(kind, index.into_store(), &settings, now).expect("the same store");
        (index, now) = (again, done);
        let mut found = Vec::new();
        let tree = index.index().bytes().expect("byte strings");
        let (there, done) = tree.get(now, b"key", &mut found).expect("a device");
        now = done;
        let wanted = if commits { value } else { b"one" };
        assert_eq!((there, &found[..]), (true, wanted));
    }
    assert!(index.index().check().is_ok());
}

/// D2 of `flagstone_btree`: sparse nodes merge or borrow, down to one page.
#[test]
fn everything_happens_in_a_long_history_down_to_the_last_key() {
    let settings = INFO.tiny().with("memory", 8 * 256);
    let (mut index, _) = blank(open, &settings, 256, 4096);
    let mut dice = Dice(3);
    let spread = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for phase in 0..4 {
        for _ in 0..1500 {
            let key = spread(dice.below(400));
            if (dice.below(10) < 7) == (phase % 2 == 0) {
                index.insert(ZERO, key, dice.next()).expect("room");
            } else {
                index.delete(ZERO, key).expect("room");
            }
        }
        index.check().expect("a tree");
    }
    for i in 0..400 {
        index.delete(ZERO, spread(i)).expect("room");
        index.check().expect("a tree");
    }
    for (name, count) in index.figures() {
        assert!(count > 0.0, "{name}");
    }
    assert_eq!(figure(index.as_ref(), "pages"), 2.0, "metadata and a root");
}

#[test]
fn what_is_too_long_is_refused_and_nothing_is_lost() {
    let (mut index, _) = blank(open, &Settings::new(), 256, 512);
    let tree = index.bytes().expect("byte strings");
    let Limits { key, value } = tree.limits();
    assert_eq!((key, value), (25, 5 * 64 * 256));
    let (longest_key, longest_value) = (vec![1; key], vec![2; value]);
    tree.insert(ZERO, &longest_key, &longest_value)
        .expect("the longest");
    let refused = tree.insert(ZERO, &vec![1; key + 1], b"").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a key of 26 bytes is too long: pages of 256 bytes take a key of 25; shorten it, or use a \
         store with larger pages"
    );
    let refused = tree.insert(ZERO, &longest_key, &vec![0; value + 1]);
    let (what, bytes, most, page) = ("value", 81_921, 81_920, 256);
    let too_long = IndexError::TooLong {
        what,
        bytes,
        most,
        page,
    };
    assert_eq!(refused.unwrap_err(), too_long);
    let mut found = Vec::new();
    assert!(tree.get(ZERO, &longest_key, &mut found).expect("a page").0);
    assert_eq!((found, tree.len()), (longest_value, 1));
    index.check().expect("a tree");
}

#[test]
fn settings_that_do_not_fit_the_pages_are_refused() {
    let refused = |page_bytes, settings: &Settings| {
        let store = Box::new(MemStore::new(page_bytes, 64));
        let error = open(store, settings, ZERO).err().expect("refused");
        assert!(matches!(error, IndexError::Settings(_)), "{error}");
        error.to_string()
    };
    let with = |name, value| Settings::new().with(name, value);
    assert!(refused(256, &with("key_bytes", "8..26")).contains("from 8 to 25"));
    assert!(refused(256, &with("key_bytes", "7")).contains("`7`"));
    assert!(refused(256, &with("record_bytes", "90000")).contains("to 81920"));
    for page_bytes in [16, 100, 70_000] {
        assert!(refused(page_bytes, &Settings::new()).contains("use 128 to 65536"));
    }
}

#[test]
fn a_full_store_refuses_before_anything_is_lost_and_can_be_emptied() {
    for seed in 0..20 {
        let page = if seed % 2 == 0 { 256 } else { 128 };
        let (mut index, _) = blank(open, &Settings::new(), page, 80);
        let (mut dice, mut map) = (Dice(seed), Map::new());
        let tree = index.bytes().expect("byte strings");
        let Limits { key, value } = tree.limits();
        let mut refused = 0;
        while refused < 20 {
            let (key, value) = (
                any_key(&mut dice, key),
                any_value(&mut dice, page, value / 3),
            );
            match tree.insert(ZERO, &key, &value) {
                Ok(_) => {
                    map.insert(key, value);
                }
                Err(error) => {
                    assert_eq!(error, IndexError::Full { pages: 80 });
                    refused += 1;
                }
            }
        }
        assert_range(tree, ZERO, &map, b"", None, usize::MAX).expect("all of them");
        index.check().expect("a tree");
        index.flush(ZERO).expect("room for its metadata");
        while !map.is_empty() {
            let key = any_key(&mut dice, key);
            let next = map.range(key..).next().or(map.first_key_value());
            let key = next.expect("it is not empty").0.clone();
            map.remove(&key);
            let tree = index.bytes().expect("byte strings");
            assert!(tree.delete(ZERO, &key).expect("a deletion").0);
            index.check().expect("a tree");
        }
        index.flush(ZERO).expect("room for its metadata");
        index.check().expect("a tree");
    }
}

#[test]
fn a_store_that_was_full_has_room_for_the_list_of_its_free_pages() {
    let (mut index, _) = blank(open, &Settings::new(), 128, 2000);
    let mut keys = 0;
    while index.insert(ZERO, keys, 1).is_ok() {
        keys += 1;
    }
    for key in 0..keys {
        index.delete(ZERO, key).expect("a deletion");
    }
    index.flush(ZERO).expect("room for the list");
    let (mut index, _) = open(index.into_store(), &Settings::new(), ZERO).expect("the same store");
    index.check().expect("a tree");
}

#[test]
fn the_check_notices_each_byte_of_head_and_slots_that_is_another_one() {
    let settings = INFO.tiny();
    let (mut index, now) = blank(open, &settings, 256, 256);
    for key in 0..40 {
        index.insert(now, key * 3, key).expect("room");
    }
    index.flush(now).expect("room");
    let mut store = index.into_store();
    let mut damaged = [0; 2];
    let mut images = vec![vec![0; 256]; 60];
    for (page, image) in images.iter_mut().enumerate() {
        store.read(now, Lpn(page as u32), image).expect("a page");
    }
    for (page, image) in images.iter().enumerate() {
        let page = Lpn(page as u32);
        let field = |name| {
            let mut records = flagstone_btree::LAYOUTS.iter();
            let head = records.find(|record| record.path.ends_with("::prefix_node_head"));
            let mut fields = head.expect("a node has a head").fields.iter();
            let field = fields.find(|field| field.0 == name).expect("a field");
            flagstone::layout::get(image, field.1..field.1 + field.2) as usize
        };
        let slots = 16 + field("PREFIX");
        let end = slots + 8 * field("COUNT");
        // Of a leaf, or of an inner node. Other pages, such as the metadata, have no such head.
        let kind = match field("KIND") {
            1 => 1,
            2 => 0,
            _ => continue,
        };
        if end > field("CELLS") || field("CELLS") > image.len() {
            continue;
        }
        for at in (0..16).chain(slots..end) {
            let mut other = image.clone();
            other[at] ^= 0x10;
            store.write(now, &[(page, &other)]).expect("a page");
            let (mut index, _) = open(store, &settings, now).expect("metadata");
            assert!(index.check().is_err(), "byte {at} of page {page}");
            // All other calls return without panicking.
            for key in 0..120 {
                let _ = index.get(now, key);
            }
            let _ = index.range(now, 0, Key::MAX, &mut Vec::new());
            for key in 0..120 {
                let _ = index.insert(now, key, at as u64);
                let _ = index.delete(now, key * 7 % 120);
            }
            let mut blank = Box::new(MemStore::new(256, 256));
            for (page, image) in images.iter().enumerate() {
                let at = Lpn(page as u32);
                blank.write(now, &[(at, image)]).expect("a page");
            }
            store = blank;
            damaged[kind] += 1;
        }
    }
    assert!(damaged[0] > 50 && damaged[1] > 400, "{damaged:?}");
    let (mut index, _) = open(store, &settings, now).expect("metadata");
    index.check().expect("whole again");
}

#[test]
fn what_keys_begin_with_alike_is_kept_once() {
    let pages = |begin: &[u8], spread: u32| {
        let (mut index, _) = blank(open, &Settings::new(), 2048, 4096);
        let tree = index.bytes().expect("byte strings");
        for i in 0..5000u32 {
            let number = i.wrapping_mul(spread);
            let key = [begin, &number.to_be_bytes()].concat();
            tree.insert(ZERO, &key, b"value").expect("room");
        }
        index.check().expect("a tree");
        figure(index.as_ref(), "pages")
    };
    for spread in [1, 2_654_435_769] {
        let (short, long) = (pages(b"", spread), pages(&[b'/'; 100], spread));
        assert!(long <= 1.1 * short, "{long} pages, not {short}");
    }
}

/// D1 of `flagstone_btree`: a split writes two leaves and their parent, but no neighbour.
#[test]
fn a_split_writes_three_pages() {
    let settings = Settings::new().with("memory", 1024 * 2048);
    let (mut index, _) = blank(open, &settings, 2048, 4096);
    let mut seen = [0, 0];
    for i in 0..3000u64 {
        let (splits, writes) = (figure(index.as_ref(), "splits"), index.stats().writes);
        let key = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        index.insert(ZERO, key, i).expect("room");
        index.flush(ZERO).expect("room");
        // Without the metadata page.
        let written = index.stats().writes - writes - 1;
        match figure(index.as_ref(), "splits") - splits {
            0.0 => assert_eq!(written, 1),
            1.0 if i > 200 => assert_eq!(written, 3),
            _ => continue,
        }
        seen[usize::from(written == 3)] += 1;
    }
    assert!(seen[1] > 20, "{seen:?}");
}

/// D3 of `flagstone_btree`: a key without the node's prefix shortens it; after that key is removed
/// the prefix stays short until the node is rewritten.
#[test]
fn a_prefix_comes_and_goes_with_keys_and_loses_none() {
    let (mut index, _) = blank(open, &Settings::new(), 512, 4096);
    let tree = index.bytes().expect("byte strings");
    let key = |begin: &str, i: u32| [begin.as_bytes(), &i.to_be_bytes()].concat();
    for round in 0..20 {
        for i in 0..40 {
            tree.insert(ZERO, &key("alike/alike/", i), b"1")
                .expect("room");
        }
        for i in 0..4 {
            tree.insert(ZERO, &key("al", round * 4 + i), b"2")
                .expect("room");
            tree.insert(ZERO, &key("z", round * 4 + i), b"3")
                .expect("room");
        }
        for i in 0..4 {
            tree.delete(ZERO, &key("al", round * 4 + i)).expect("room");
            tree.delete(ZERO, &key("z", round * 4 + i)).expect("room");
        }
        for i in 0..40 {
            let mut value = Vec::new();
            let there = tree.get(ZERO, &key("alike/alike/", i), &mut value);
            assert!(there.expect("whole").0 && value == b"1");
        }
    }
    index.check().expect("a tree");
}
