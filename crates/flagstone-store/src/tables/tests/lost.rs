//! Tables with a damaged page: reading around the damage, and continuing without it.

use super::*;
use crate::medium::{Landing, Recorded};
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const TABLES: [(&str, TableKind); 3] = [
    ("hashed", TableKind::Hashed),
    ("long", TableKind::Ordered),
    ("wide", TableKind::Ordered),
];

/// How a page is damaged.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    /// Its checksum is wrong.
    Rot,
    /// The page is empty, as in a store whose lost page is unknown.
    Nothing,
}

/// The pairs of a table. Keys of table `wide` are long, so that it has three levels.
fn rows(table: &str) -> Map {
    let pair = |n: u16| match table {
        "wide" => (
            [&vec![(n / 20) as u8; 400][..], &number(n)].concat(),
            vec![n as u8; 300],
        ),
        "long" => (number(n).to_vec(), vec![n as u8; 700 * n as usize]),
        _ => (format!("word {n}").into_bytes(), vec![n as u8; 100]),
    };
    let many = if table == "long" { 12 } else { 500 };
    let mut rows: Map = (0..many).map(pair).collect();
    if table == "long" {
        // So long that a page lists its pages.
        rows.insert(b"z".to_vec(), vec![7; 600_000]);
    }
    rows
}

fn open(bytes: &[u8]) -> Store {
    let medium = Box::new(Memory::with(bytes.to_vec()));
    Store::on(medium, &OpenOptions::existing()).expect("a store")
}

/// The bytes of a medium with a store of these tables.
fn whole() -> Vec<u8> {
    let medium = Recorded::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    let mut tx = store.write().expect("a turn");
    for (name, kind) in TABLES {
        let mut table = tx.open_table(name, kind).expect("it is new");
        for (key, value) in rows(name) {
            table.insert(&key, &value).expect("room");
        }
    }
    tx.commit().expect("room");
    store.close().expect("it closes");
    medium.to_vec()
}

/// The bytes of a medium with one damaged page.
fn damaged(whole: &[u8], at: Lpn, damage: Damage) -> Vec<u8> {
    const MARK: &[u8] = b"the bytes of a page whose checksum will be wrong";
    let medium = Recorded::with(whole);
    let options = OpenOptions::existing();
    let mut pages = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    let tx = pages.begin().expect("none is live");
    let done = match damage {
        Damage::Rot => pages.write(tx, at, MARK),
        Damage::Nothing => pages.trim(tx, at),
    };
    done.and_then(|()| pages.commit(tx)).expect("room");
    pages.close().expect("it closes");
    let mut bytes = medium.to_vec();
    if damage == Damage::Rot {
        let is_mark = |bytes: &[u8]| bytes == MARK;
        let place = bytes.windows(MARK.len()).position(is_mark);
        bytes[place.expect("it was written")] ^= 1;
    }
    bytes
}

/// Collects what an iterator yields: pairs, and lost keys.
fn gathered(range: impl Iterator<Item = Result<Pair, StoreError>>) -> (Map, Vec<LostKeys>) {
    let (mut found, mut gaps) = (Map::new(), Vec::new());
    for pair in range {
        match pair {
            Ok((key, value)) => _ = found.insert(key, value.to_vec()),
            Err(StoreError::Lost { lost, .. }) => gaps.push(lost),
            Err(other) => panic!("{other}"),
        }
    }
    (found, gaps)
}

/// Whether a key may be in a gap. Hashed tables compare hashes.
fn is_within(key: &[u8], gap: &LostKeys) -> bool {
    let hash = hashed::hash(key);
    let place = match gap.kind {
        TableKind::Ordered => key,
        TableKind::Hashed => &hash[..],
    };
    place >= &gap.from[..] && gap.to.as_ref().is_none_or(|to| place < &to[..])
}

/// Reads a table around its damage, and compares it with its original contents.
fn read_around(store: &Store, name: &str, context: &str) -> (Map, Vec<LostKeys>) {
    let all = rows(name);
    let table = table_of(store, name);
    let (found, gaps) = gathered(table.iter());
    let (back, mut gaps_back) = gathered(table.iter().rev());
    gaps_back.reverse();
    assert_eq!((&found, &gaps), (&back, &gaps_back), "{context}");
    assert!(
        found.iter().all(|(key, value)| all.get(key) == Some(value)),
        "{context}"
    );
    for (key, value) in &all {
        let lies_in = gaps.iter().filter(|gap| is_within(key, gap)).count();
        let here = usize::from(found.contains_key(key));
        assert_eq!(here + lies_in, 1, "{context}: {key:?}, {gaps:?}");
        let got = table.get(key).ok().flatten();
        assert_eq!(
            got.as_deref(),
            (here == 1).then_some(&value[..]),
            "{context}"
        );
    }
    (found, gaps)
}

fn assert_holds(store: &Store, name: &str, rows: &Map, context: &str) {
    let table = table_of(store, name);
    let (found, gaps) = gathered(table.iter());
    assert!(found == *rows && gaps.is_empty(), "{context}: {gaps:?}");
    assert_eq!(
        table.len().expect("a table"),
        rows.len() as u64,
        "{context}"
    );
    if let Err(why) = store.check() {
        panic!("{context}: {why}");
    }
}

/// The pages of tables: without head and catalog, and without most pages of the longest value.
fn pages_of_tables(whole: &[u8]) -> Vec<Lpn> {
    let medium = Box::new(Memory::with(whole.to_vec()));
    let mut pages = PageStore::on(medium, &OpenOptions::existing()).expect("a store");
    let held = pages.held().collect::<Vec<_>>();
    assert_eq!(held[..2], [Lpn(0), Lpn(1)]);
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let is_needed = |at: &Lpn| {
        pages.read(None, *at, &mut page).expect("it is whole");
        at.0.is_multiple_of(16) || page.iter().any(|&byte| byte != 7)
    };
    held[2..].iter().copied().filter(is_needed).collect()
}

/// Fails if an iterator ends at a damaged page, or names wrong lost keys; and if a table that is
/// given up, cleared or dropped leads to wrong pages, or keeps pages.
#[test]
fn tables_are_read_around_a_damaged_page_and_go_on_without_it() {
    let whole = whole();
    let (mut values, mut leaves, mut inner, mut all) = (0, 0, 0, 0);
    for (number, at) in pages_of_tables(&whole).into_iter().enumerate() {
        let damage = [Damage::Rot, Damage::Nothing][number % 2];
        let bytes = damaged(&whole, at, damage);
        let context = format!("page {at}, {damage:?}");
        let store = open(&bytes);
        let mut harmed = None;
        for (name, _) in TABLES {
            let (found, gaps) = read_around(&store, name, &context);
            if !gaps.is_empty() {
                harmed = Some((name, found, gaps));
            }
        }
        let (name, found, gaps) = harmed.expect("each page is one of a table");
        let [gap] = &gaps[..] else {
            panic!("{context}: {gaps:?}");
        };
        let said = store.check().expect_err(&context);
        assert!(said.starts_with(&format!("table `{name}`: ")), "{said}");
        let lost = rows(name).len() - found.len();
        match (gap.one(), lost) {
            (Some(_), _) => values += 1,
            (None, ..25) => leaves += 1,
            (None, _) if found.is_empty() => all += 1,
            (None, _) => inner += 1,
        }

        let mut tx = store.write().expect("a turn");
        let given_up = tx.table(name).expect("a table").give_up_lost();
        assert_eq!(given_up.expect("damage alone"), gaps, "{context}");
        tx.commit().expect("room");
        assert_holds(&store, name, &found, &context);
        // All lost keys can be written again.
        let mut tx = store.write().expect("a turn");
        for (key, value) in &rows(name) {
            let mut table = tx.table(name).expect("a table");
            let was = table.insert(key, value).expect("room");
            assert_eq!(was, found.contains_key(key), "{context}");
        }
        tx.commit().expect("room");
        assert_holds(&store, name, &rows(name), &context);

        let store = open(&bytes);
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table(name).expect("a table");
        table.clear().expect("room");
        table.insert(b"new", b"value").expect("room");
        tx.commit().expect("room");
        let new = Map::from([(b"new".to_vec(), b"value".to_vec())]);
        assert_holds(&store, name, &new, &context);

        let store = open(&bytes);
        let mut tx = store.write().expect("a turn");
        tx.drop_table(name).expect("room");
        tx.commit().expect("room");
        assert!(store.read().expect("a snapshot").table(name).is_err());
        if let Err(why) = store.check() {
            panic!("{context}: {why}");
        }
    }
    let kinds = format!("{values} values, {leaves} leaves, {inner} inner nodes, {all} roots");
    println!("{kinds}");
    assert!(
        values > 20 && leaves > 50 && inner > 3 && all == 2,
        "{kinds}"
    );
}

/// Fails if a range reports damage outside of it.
#[test]
fn a_range_tells_of_the_damage_within_it_alone() {
    let whole = whole();
    for at in pages_of_tables(&whole) {
        let store = open(&damaged(&whole, at, Damage::Rot));
        let table = table_of(&store, "wide");
        let (found, gaps) = gathered(table.iter());
        let [gap] = &gaps[..] else { continue };
        let Some(to) = gap.to.clone() else { continue };
        let (before, from) = (table.range(..gap.from.clone()), table.range(to..));
        for range in [before, from] {
            let (forwards, gaps) = gathered(range.expect("it is ordered"));
            assert_eq!(gaps, [], "page {at}");
            assert!(forwards.keys().all(|key| found.contains_key(key)));
        }
        let (before, from) = (
            table.range(..gap.from.clone()),
            table.range(gap.to.clone().unwrap()..),
        );
        for range in [before, from] {
            let (_, gaps) = gathered(range.expect("it is ordered").rev());
            assert_eq!(gaps, [], "page {at}");
        }
        // From both ends alternately, it is reported once.
        let (mut range, mut told, mut pairs) = (table.iter(), 0, 0);
        while let Some(pair) = if pairs % 2 == 0 {
            range.next()
        } else {
            range.next_back()
        } {
            told += u32::from(pair.is_err());
            pairs += 1;
        }
        assert_eq!((told, pairs), (1, found.len() + 1), "page {at}");
    }
}

/// Fails if a key with a lost value cannot be overwritten, or if a key in a lost leaf can be set as
/// if nothing else were lost with it.
#[test]
fn a_lost_value_is_overwritten_and_a_lost_leaf_says_what_to_do() {
    let whole = whole();
    let (mut values, mut leaves) = (0, 0);
    for at in pages_of_tables(&whole) {
        let store = open(&damaged(&whole, at, Damage::Rot));
        let (_, gaps) = gathered(table_of(&store, "long").iter());
        let [gap] = &gaps[..] else { continue };
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("long").expect("a table");
        if let Some(key) = gap.one() {
            assert!(table.insert(key, b"another").expect("room"));
            tx.commit().expect("room");
            assert_value(table_of(&store, "long").get(key), b"another");
            values += 1;
            continue;
        }
        let said = table.insert(&gap.from, b"another").expect_err("damage");
        assert!(said.is_damage());
        let said = said.to_string();
        assert!(
            said.starts_with("table `long`, key ") && said.contains("give_up_lost"),
            "{said}"
        );
        leaves += 1;
    }
    assert!(values > 20 && leaves > 0, "{values}, {leaves}");
}

/// Fails if a page of a lost value that holds nothing, and is thus free, is reused for a new value
/// or freed once more, or if a change of a lost value leaves pages that nothing references.
#[test]
fn a_lost_value_that_is_replaced_or_removed_leaves_each_page_used_once_or_free() {
    let whole = whole();
    let mut values = 0;
    for at in pages_of_tables(&whole) {
        for damage in [Damage::Nothing, Damage::Rot] {
            let bytes = damaged(&whole, at, damage);
            let (_, gaps) = gathered(table_of(&open(&bytes), "long").iter());
            let Some(key) = gaps.first().and_then(LostKeys::one) else {
                continue;
            };
            values += 1;
            for with in [None, Some(&[3; 9_000][..]), Some(&[3; 700_000])] {
                let context = format!("page {at}, {damage:?}, {:?}", with.map(<[u8]>::len));
                let store = open(&bytes);
                let mut tx = store.write().expect("a turn");
                let mut table = tx.table("long").expect("a table");
                let was = match with {
                    Some(with) => table.insert(key, with),
                    None => table.remove(key),
                };
                assert!(was.expect("room"), "{context}");
                tx.commit().expect("room");
                let mut rows = rows("long");
                match with {
                    Some(with) => _ = rows.insert(key.to_vec(), with.to_vec()),
                    None => _ = rows.remove(key),
                }
                let more = vec![4; 20_000];
                store.insert("long", b"more", &more).expect("room");
                rows.insert(b"more".to_vec(), more);
                assert_holds(&store, "long", &rows, &context);
            }
        }
    }
    assert!(values > 40, "{values}");
}

/// Fails if a lost value is given up before the lost leaf beside it: without the value its leaf is
/// merged with that one.
#[test]
fn a_lost_value_and_the_lost_leaf_beside_it_are_given_up_together() {
    let medium = Recorded::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    // Keys so long that a leaf with three entries is nearly too empty.
    let all: Map = (0..24).map(|n| (vec![n; 450], vec![n; 5_000])).collect();
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("long").expect("it is new");
    for (key, value) in &all {
        table.insert(key, value).expect("room");
    }
    for key in all.keys().filter(|key| key[0] % 2 == 1) {
        table.remove(key).expect("room");
    }
    tx.commit().expect("room");
    store.close().expect("it closes");
    let whole = medium.to_vec();
    let gaps_of = |store: &Store| gathered(table_of(store, "long").iter()).1;
    let lost = pages_of_tables(&whole).into_iter().filter_map(|at| {
        let gaps = gaps_of(&open(&damaged(&whole, at, Damage::Rot)));
        gaps.into_iter().next().map(|gap| (at, gap))
    });
    let is_root = |gap: &LostKeys| gap.from.is_empty() && gap.to.is_none();
    let (values, nodes): (Vec<_>, Vec<_>) = lost.partition(|(_, gap)| gap.one().is_some());
    let mut both = 0;
    for (leaf, _) in nodes.iter().filter(|(_, gap)| !is_root(gap)) {
        let bytes = damaged(&whole, *leaf, Damage::Rot);
        for (value, _) in &values {
            let context = format!("pages {leaf} and {value}");
            let store = open(&damaged(&bytes, *value, Damage::Rot));
            let (found, gaps) = gathered(table_of(&store, "long").iter());
            let mut tx = store.write().expect("a turn");
            let given_up = tx.table("long").expect("a table").give_up_lost();
            assert_eq!(given_up.expect("damage alone"), gaps, "{context}");
            tx.commit().expect("room");
            assert_holds(&store, "long", &found, &context);
            both += u32::from(gaps.len() == 2);
        }
    }
    assert!(both > 10, "{both}");
}

/// Inner pages of the table `wide`, each the only reference to several other pages.
fn inner_pages(whole: &[u8]) -> Vec<Lpn> {
    let is_inner = |at: &Lpn| {
        let store = open(&damaged(whole, *at, Damage::Rot));
        let (found, gaps) = gathered(table_of(&store, "wide").iter());
        !gaps.is_empty() && rows("wide").len() - found.len() > 25
    };
    let pages = pages_of_tables(whole).into_iter();
    pages.filter(is_inner).collect()
}

/// Fails if a store that is closed or cut while a damaged table is dropped forgets the pages that
/// only damaged pages referenced.
#[test]
fn pages_that_only_damaged_ones_led_to_go_after_a_cut() {
    let whole = whole();
    let (mut cuts, mut halves) = (0, 0);
    for at in inner_pages(&whole) {
        let medium = Recorded::with(&damaged(&whole, at, Damage::Rot));
        let options = OpenOptions::existing();
        let store = Store::on(Box::new(medium.clone()), &options).expect("a store");
        let moments = Arc::new(Mutex::new(Vec::new()));
        medium.watch(Some({
            let moments = Arc::clone(&moments);
            Box::new(move |medium: &Recorded| {
                moments.lock().expect("one thread").push(medium.snapshot());
            })
        }));
        let mut tx = store.write().expect("a turn");
        tx.drop_table("wide").expect("room");
        tx.commit().expect("room");
        medium.watch(None);
        store.check().expect("each page is used once or free");
        let held = store.held();
        let moments = std::mem::take(&mut *moments.lock().expect("one thread"));
        for moment in moments {
            for landing in [Landing::Nothing, Landing::Everything] {
                cuts += 1;
                let left = moment.cut(landing);
                let store = Store::on(Box::new(left), &options).expect("a store");
                if table_names(&store).contains(&"wide".to_string()) {
                    continue;
                }
                halves += u32::from(store.held() > held);
                store.insert("long", b"a", b"another").expect("room");
                store.check().expect("each page is used once or free");
                assert!(store.held() <= held + 1, "{at}: {}, {held}", store.held());
            }
        }
    }
    assert!(cuts > 20 && halves > 4, "{cuts}, {halves}");
}

fn table_names(store: &Store) -> Vec<String> {
    let tables = store.read().expect("a snapshot").tables();
    let tables = tables.expect("a catalog").into_iter();
    tables.map(|(name, _)| name).collect()
}

/// While another table is damaged, these pages cannot be determined.
#[test]
fn pages_that_cannot_be_told_yet_go_once_no_table_is_damaged() {
    let whole = whole();
    let other = pages_of_tables(&whole).into_iter().find(|&at| {
        let store = open(&damaged(&whole, at, Damage::Rot));
        gathered(table_of(&store, "hashed").iter()).1.len() == 1
    });
    let bytes = damaged(&whole, other.expect("it has pages"), Damage::Rot);
    for at in inner_pages(&whole) {
        let bytes = damaged(&bytes, at, Damage::Nothing);
        let medium = Recorded::with(&bytes);
        let options = OpenOptions::existing();
        let open = || Store::on(Box::new(medium.clone()), &options).expect("a store");
        let store = open();
        let mut tx = store.write().expect("a turn");
        tx.drop_table("wide").expect("room");
        tx.commit().expect("room");
        let before = store.held();
        store.close().expect("no fault");
        let store = open();
        store.insert("long", b"a", b"another").expect("room");
        assert!(store.held() >= before);
        let mut tx = store.write().expect("a turn");
        tx.drop_table("hashed").expect("room");
        tx.commit().expect("room");
        store.check().expect("each page is used once or free");
        store.close().expect("no fault");
        let store = open();
        store.insert("long", b"b", b"another").expect("room");
        store.check().expect("each page is used once or free");
        assert_eq!(table_names(&store), ["long"]);
        let mut tx = store.write().expect("a turn");
        tx.drop_table("long").expect("room");
        tx.commit().expect("room");
        assert!(store.held() < 4, "{}", store.held());
    }
}

/// A store whose catalog has several leaves: two tables of few and of many pages, and others with
/// long names behind them.
fn many_names() -> Vec<u8> {
    let medium = Recorded::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    let mut tx = store.write().expect("a turn");
    for (name, rows) in [("a few", 10), ("a lot", 200)] {
        let mut table = tx.table(name).expect("it is new");
        for n in 0..rows {
            table.insert(&number(n), &[n as u8; 900]).expect("room");
        }
    }
    for n in 0..40 {
        tx.table(&format!("b{n:0200}")).expect("it is new");
    }
    tx.commit().expect("room");
    store.close().expect("it closes");
    medium.to_vec()
}

/// Page 1 is the first leaf of the catalog, which is a page like any other once it has several.
#[test]
fn a_store_opens_without_any_leaf_of_its_catalog() {
    let whole = many_names();
    let store = open(&damaged(&whole, Lpn(1), Damage::Rot));
    let read = store.read().expect("a snapshot");
    assert!(read.tables().is_err(), "page 1 has names");
    let names = ["a few".to_string(), format!("b{:0200}", 39)];
    let found = names.map(|name| read.table(&name).is_ok());
    assert_eq!(found, [false, true]);
}

/// Fails if a damaged table is not dropped beside a damaged leaf of the catalog, or if the store
/// cannot be written afterwards: which pages are left over is unknown until the leaf is whole.
#[test]
fn a_damaged_table_is_dropped_although_a_leaf_of_the_catalog_is_lost() {
    let whole = many_names();
    let medium = Box::new(Memory::with(whole.clone()));
    let pages = PageStore::on(medium, &OpenOptions::existing()).expect("a store");
    let held: Vec<Lpn> = pages.held().collect();
    for name in ["a few", "a lot"] {
        let other = if name == "a few" { "a lot" } else { "a few" };
        let harms = |at: &Lpn, what: fn(&ReadTx, &str) -> bool| {
            let store = open(&damaged(&whole, *at, Damage::Rot));
            store.read().is_ok_and(|read| what(&read, name))
        };
        let is_leaf = |read: &ReadTx, name: &str| {
            let table = read.table(name);
            table.is_ok_and(|table| matches!(gathered(table.iter()).1.len(), 1))
        };
        let hides = |read: &ReadTx, name: &str| read.table(name).is_ok() && read.tables().is_err();
        let leaf = held[2..]
            .iter()
            .find(|at| harms(at, is_leaf))
            .expect("it has pages");
        let of_catalog = held[2..]
            .iter()
            .rev()
            .find(|at| harms(at, hides))
            .expect("several leaves");
        let bytes = damaged(&whole, *leaf, Damage::Rot);
        let medium = Recorded::with(&damaged(&bytes, *of_catalog, Damage::Rot));
        let open = || {
            let options = OpenOptions::existing();
            Store::on(Box::new(medium.clone()), &options).expect("a store")
        };
        let store = open();
        let mut tx = store.write().expect("a turn");
        tx.drop_table(name).expect("damage is passed over");
        tx.commit().expect("room");
        store.close().expect("no fault");
        let store = open();
        let said = store.read().and_then(|read| read.table(name).map(drop));
        assert!(said.is_err());
        store.insert(other, b"key", b"value").expect("room");
        store.insert(other, b"key", b"value").expect("room");
        assert_value(table_of(&store, other).get(b"key"), b"value");
    }
}
