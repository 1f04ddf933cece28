//! Tables that are compacted, whatever they hold, in a store that is full, and beside others.

use super::*;
use crate::medium::Recorded;

/// Values in leaves, in pages of their own, and in so many that other pages list them.
fn value(n: u16) -> Vec<u8> {
    let len = match n % 100 {
        0 => 700_000,
        1..20 => 9_000,
        _ => 900,
    };
    vec![n as u8; len]
}

const KINDS: [(&str, TableKind); 3] = [
    ("first", TableKind::Ordered),
    ("hashed", TableKind::Hashed),
    ("last", TableKind::Ordered),
];

fn fill(store: &Store, rows: u16) {
    for (name, kind) in KINDS {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.open_table(name, kind).expect("a table");
        for n in 1..=rows {
            table.insert(&number(n), &value(n)).expect("room");
        }
        tx.commit().expect("room");
    }
}

/// Deletes all rows but one in so many.
fn thin_out(store: &Store, rows: u16, kept: u16) {
    for (name, _) in KINDS {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table(name).expect("a table");
        for n in (1..=rows).filter(|n| n % kept > 0) {
            table.remove(&number(n)).expect("it is there");
        }
        tx.commit().expect("room");
    }
}

#[track_caller]
fn assert_rows(store: &Store, rows: u16, kept: u16) {
    store.check().expect("each page is used once or free");
    for (name, _) in KINDS {
        let table = table_of(store, name);
        let left = (1..=rows).filter(|n| n % kept == 0);
        assert_eq!(table.len().expect("a number"), left.clone().count() as u64);
        for n in left {
            assert_value(table.get(&number(n)), value(n));
        }
    }
}

/// Fails if the store needs the room that it needed before, if a page is lost or used twice, or if
/// a value that other pages list is another one.
#[test]
fn what_is_left_of_tables_has_the_lowest_pages() {
    for kept in [1, 2, 50, 500] {
        let store = store();
        fill(&store, 1_000);
        thin_out(&store, 1_000, kept);
        let end = store.compact().expect("room");
        assert_eq!(end, store.held() as u64, "one of {kept} is left");
        assert_rows(&store, 1_000, kept);
        assert_eq!(store.compact().expect("room"), end);
    }
}

#[test]
fn a_full_store_is_compacted_a_few_pages_at_a_time() {
    let medium = Recorded::default();
    medium.give_at_most(Some(6 << 20));
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let store = Store::on(Box::new(medium), &options).expect("a store");
    fill(&store, 99);
    thin_out(&store, 99, 3);
    let mut more = 0;
    while store.insert("more", &number(more), &[7; 3_000]).is_ok() {
        more += 1;
    }
    for n in (0..more).filter(|n| n % 4 > 0) {
        store.remove("more", &number(n)).expect("it gives room");
    }
    let end = store.compact().expect("it needs little room");
    assert!(end >= store.held() as u64);
    assert_rows(&store, 99, 3);
    let left = table_of(&store, "more").len().expect("a number");
    assert_eq!(left, u64::from(more.div_ceil(4)));
}

/// Snapshots keep what they see, and a thread writes between the parts.
#[test]
fn others_read_and_write_while_tables_are_compacted() {
    let store = store();
    fill(&store, 600);
    let before = store.read().expect("a snapshot");
    thin_out(&store, 600, 5);
    let writes = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..200u16 {
                let mut tx = store.write().expect("a turn");
                add(&mut tx, "counter", 1);
                let mut table = tx.table("own").expect("a table");
                table.insert(&number(n), &value(n + 1)).expect("room");
                tx.commit().expect("room");
            }
        });
        let mut times = 0;
        while !writer.is_finished() || times == 0 {
            store.compact().expect("room");
            times += 1;
        }
        times
    });
    assert!(writes > 0);
    let end = store.compact().expect("room");
    assert_eq!(end, store.held() as u64);
    assert_rows(&store, 600, 5);
    assert_eq!(table_of(&store, "own").len().expect("a number"), 200);
    let seen = before.table("first").expect("it was there");
    assert_eq!(seen.len().expect("a number"), 600);
    assert_value(seen.get(&number(201)), value(201));
}
