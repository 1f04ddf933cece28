//! Dropping large tables: on full stores, and with the power cut at each step.

use super::*;
use crate::medium::{Landing, Recorded};
use std::sync::{Arc, Mutex};

fn open(medium: &Recorded, mistake: Option<Mistake>) -> Store {
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    Store::mistaken(Box::new(medium.clone()), &options, mistake.into()).expect("a store")
}

/// Inserts into a table until the store is full. Returns the number of pairs.
fn fill(store: &Store, table: &str) -> u64 {
    let value = |n: u64| vec![n as u8; [100, 900, 3_000, 60_000][n as usize % 4]];
    for round in 0.. {
        let mut tx = store.write().expect("a turn");
        for n in round * 8..(round + 1) * 8 {
            let mut table = tx.table(table).expect("a table");
            table
                .insert(&number(n as u16), &value(n))
                .expect("in memory");
        }
        match tx.commit() {
            Ok(()) => {}
            Err(StoreError::Full(_)) => return round * 8,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("it is full at some time")
}

fn full(mistake: Option<Mistake>) -> (Recorded, Store, u64) {
    let medium = Recorded::default();
    medium.give_at_most(Some(4 << 20));
    let store = open(&medium, mistake);
    store.insert("small", b"key", b"value").expect("room");
    let pairs = fill(&store, "large");
    (medium, store, pairs)
}

fn names(store: &Store) -> Vec<String> {
    let tables = store.read().expect("a snapshot").tables();
    let tables = tables.expect("a catalog").into_iter();
    tables.map(|(name, _)| name).collect()
}

fn drop_large(store: &Store) -> Result<(), StoreError> {
    let mut tx = store.write()?;
    tx.drop_table("large")?;
    assert_eq!(tx.tables()?.len(), 1);
    assert!(matches!(
        tx.drop_table("large"),
        Err(StoreError::NoTable(_))
    ));
    tx.commit()
}

#[test]
fn a_full_store_drops_a_large_table_and_has_its_room() {
    for waits in [true, false] {
        let (medium, store, pairs) = full(None);
        let held = store.held();
        let mut tx = store.write().expect("a turn");
        tx.drop_table("large").expect("it is there");
        let commit = tx.commit_later().expect("it is taken");
        if waits {
            commit.wait().expect("durable");
            assert!(store.held() < 10, "{} of {held}", store.held());
        } else {
            // While there is a writer, its pages are left to the next transaction.
            let writer = store.write().expect("a turn");
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| commit.wait());
                waiting.join().expect("no panic").expect("durable");
            });
            assert!(store.held() > held - 10);
            drop(writer);
        }
        assert_eq!(names(&store), ["small"]);
        let read = store.read().expect("a snapshot");
        assert!(matches!(read.table("large"), Err(StoreError::NoTable(_))));
        drop(read);
        // A second table of that name is new, and there is room for it.
        let again = fill(&store, "large");
        assert!(again + 32 > pairs, "{again} of {pairs}");
        store.check().expect("each page is used once or free");
        drop(store);
        let left = medium.cut(Landing::Nothing);
        let store = open(&left, None);
        store.check().expect("each page is used once or free");
        assert_eq!(names(&store), ["large", "small"]);
    }
}

/// Drops the table of a full store, and cuts the power at each operation of the medium. Returns the
/// number of cuts, how many left a half-dropped table, and the errors found after any.
fn cut_a_drop(mistake: Option<Mistake>) -> (u64, u64, Vec<String>) {
    let (medium, store, pairs) = full(mistake);
    let moments = Arc::new(Mutex::new(Vec::new()));
    medium.watch(Some({
        let moments = Arc::clone(&moments);
        Box::new(move |medium: &Recorded| {
            moments.lock().expect("one thread").push(medium.snapshot());
        })
    }));
    drop_large(&store).expect("it is dropped");
    medium.watch(None);
    let (mut cuts, mut halves, mut wrong) = (0, 0, Vec::new());
    let moments = std::mem::take(&mut *moments.lock().expect("one thread"));
    let many = moments.len();
    for moment in moments {
        for landing in [
            Landing::Nothing,
            Landing::Everything,
            Landing::First(cuts % 40),
            Landing::Sectors(cuts),
        ] {
            cuts += 1;
            let left = moment.cut(landing);
            left.give_at_most(Some(4 << 20));
            if mistake.is_none() {
                let reading = OpenOptions::existing().reading();
                let reader = Store::on(Box::new(left.clone()), &reading).expect("a store");
                if let Err(why) = reader.check() {
                    wrong.push(format!("{landing:?}, read: {why}"));
                }
            }
            let store = open(&left, mistake);
            let is_there = names(&store).contains(&"large".to_string());
            halves += u64::from(!is_there && store.held() > 10);
            // The next writer continues the drop.
            let wrote = store.insert("small", b"another", b"value");
            let found = match (wrote, is_there) {
                (Ok(_), false) if store.held() > 10 => Err("pages are left".into()),
                (Ok(_), true) => match store.read().and_then(|read| read.table("large")?.len()) {
                    Ok(found) if found == pairs => store.check(),
                    other => Err(format!("it has {other:?} of {pairs} pairs")),
                },
                (Ok(_), false) => store.check(),
                (Err(StoreError::Full(_)), true) => Ok(()),
                (Err(error), _) => Err(error.to_string()),
            };
            if let Err(why) = found {
                wrong.push(format!("{landing:?} of {many}: {why}"));
            }
        }
    }
    (cuts, halves, wrong)
}

#[test]
fn a_cut_leaves_a_table_or_none_and_what_is_half_dropped_goes() {
    let (cuts, halves, wrong) = cut_a_drop(None);
    println!("{cuts} cuts, {halves} of them left a table half dropped");
    assert!(cuts > 60 && halves > 50, "{cuts}, {halves}");
    assert_eq!(wrong, [""; 0]);
}

/// Control: unreferenced pages are lost.
#[test]
fn a_table_that_loses_its_root_first_loses_pages_after_a_cut() {
    let (cuts, _, wrong) = cut_a_drop(Some(Mistake::DropsRootFirst));
    assert!(wrong.len() > 2, "{} of {cuts}", wrong.len());
}

#[test]
fn what_is_dropped_comes_back_with_a_savepoint_and_makes_way_for_its_name() {
    let store = store();
    let mut tx = store.write().expect("a turn");
    for n in 0..3_000 {
        let mut table = tx.table("large").expect("a table");
        table.insert(&number(n), &[1; 500]).expect("room");
    }
    tx.commit().expect("room");
    let mut tx = store.write().expect("a turn");
    let savepoint = tx.savepoint();
    tx.drop_table("large").expect("it is there");
    tx.rollback_to(savepoint).expect("one of its own");
    assert_eq!(
        tx.table("large").expect("a table").len().expect("3,000"),
        3_000
    );
    tx.drop_table("large").expect("it is there");
    let mut table = tx
        .open_table("large", TableKind::Hashed)
        .expect("another one");
    assert_eq!(table.len().expect("none"), 0);
    table.insert(b"one", b"1").expect("room");
    tx.commit().expect("room");
    store.check().expect("each page is used once or free");
    assert!(store.held() < 10, "{}", store.held());
}

/// Fails if a check looks for the pages of a dropped table only among those that are durable.
#[test]
fn a_check_finds_the_pages_of_a_table_that_was_made_and_dropped_before_any_of_it_is_durable() {
    let store = store();
    let mut tx = store.write().expect("a turn");
    for n in 0..500 {
        let mut table = tx.table("large").expect("a table");
        table.insert(&number(n), &[1; 500]).expect("room");
    }
    let made = tx.commit_later().expect("room");
    let mut tx = store.write().expect("a turn");
    tx.drop_table("large").expect("it is there");
    let dropped = tx.commit_later().expect("room");
    store.check().expect("each page is used once or free");
    made.wait().expect("durable");
    dropped.wait().expect("durable");
    store.check().expect("each page is used once or free");
    assert!(store.held() < 10, "{}", store.held());
}

/// Fails if a commit counts a table as one that is no longer being dropped, where the first page is
/// from before the drop and counts none.
#[test]
fn a_first_page_from_before_a_drop_is_no_obstacle() {
    let (medium, store, _) = full(None);
    let before = store
        .pages()
        .with(|pages| pages.page(0))
        .expect("it is there");
    let mut tx = store.write().expect("a turn");
    tx.drop_table("large").expect("it is there");
    let commit = tx.commit_later().expect("it is taken");
    // A writer keeps the drop from being carried out.
    let writer = store.write().expect("a turn");
    std::thread::scope(|scope| scope.spawn(|| commit.wait()).join())
        .expect("no panic")
        .expect("durable");
    let left = medium.cut(Landing::Nothing);
    drop(writer);
    let mut pages =
        PageStore::on(Box::new(left.clone()), &OpenOptions::existing()).expect("a store");
    pages.put(0, &before);
    pages.close().expect("room");
    let store = open(&left, None);
    store.insert("large", b"key", b"value").expect("room");
    assert_eq!(names(&store), ["large", "small"]);
    store.check().expect("each page is used once or free");
}
