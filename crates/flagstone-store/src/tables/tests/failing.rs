//! Tables under several threads, without room, and on damaged pages.

use super::*;
use crate::medium::{Call, Failing, Fault, Landing, Medium, Recorded, Tight};
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: i64 = 4;
const ROUNDS: i64 = 60;

fn counter(read: &ReadTx, table: &str) -> i64 {
    let Ok(table) = read.table(table) else {
        return 0;
    };
    let found = table.get(b"sum").expect("a table");
    let bytes = found.map(|bytes| *bytes.first_chunk().expect("eight bytes"));
    bytes.map_or(0, i64::from_le_bytes)
}

#[test]
fn what_a_transaction_has_read_that_is_rolled_back_or_dropped_is_durable() {
    for drops in [false, true] {
        let medium = Recorded::default();
        let open = |medium: &Recorded| {
            Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store")
        };
        let store = open(&medium);
        store.insert("users", b"ada", b"London").expect("room");
        let survives = || {
            let after = open(&medium.cut(Landing::Nothing));
            let found = table_of(&after, "users").get(b"bea");
            found.expect("a table").is_some()
        };
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("users").expect("a table");
        table.insert(b"bea", b"Turin").expect("room");
        drop(table);
        let later = tx.commit_later().expect("it is taken");
        let mut tx = store.write().expect("a turn");
        let found = tx.table("users").expect("a table").get(b"bea");
        assert!(found.expect("a table").is_some());
        // Control: it was read, and a cut still loses it.
        assert!(!survives());
        if drops {
            drop(tx);
        } else {
            tx.rollback().expect("no fault");
        }
        assert!(survives(), "dropped: {drops}");
        drop(later);
    }
}

#[test]
fn threads_take_turns_and_no_reader_sees_half_of_a_transaction() {
    let store = store();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looks = 0;
            while looks == 0 || !is_over.load(Ordering::SeqCst) {
                let read = store.read().expect("a snapshot");
                assert_eq!(counter(&read, "ones") * 10, counter(&read, "tens"));
                looks += 1;
            }
        });
        let writers = (0..THREADS).map(|_| {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut tx = store.write().expect("a turn");
                    add(&mut tx, "ones", 1);
                    let wanted = tx.table("ones").expect("a table").get(b"sum");
                    let wanted = wanted.expect("a table").expect("it is there");
                    add(&mut tx, "tens", 10);
                    match round % 3 {
                        0 => tx.rollback().expect("what it read is durable"),
                        1 => tx.commit().expect("durable"),
                        _ => {
                            let commit = tx.commit_later().expect("it is taken");
                            commit.wait().expect("durable");
                            // Commits that were waited for are visible to readers.
                            let read = store.read().expect("a snapshot");
                            let wanted = *wanted.first_chunk().expect("eight bytes");
                            assert!(counter(&read, "ones") >= i64::from_le_bytes(wanted));
                        }
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("all went well"));
        is_over.store(true, Ordering::SeqCst);
        reader.join().expect("all went well");
    });
    let read = store.read().expect("a snapshot");
    assert_eq!(counter(&read, "ones"), THREADS * ROUNDS * 2 / 3);
    store.check().expect("each page is used once or free");
}

#[test]
fn what_finds_no_room_is_gone_and_the_store_goes_on() {
    let (store, medium) = bounded(2 << 20);
    let insert = |key: &[u8], bytes: usize| {
        let mut tx = store.write()?;
        tx.table("t")?.insert(key, &vec![7; bytes])?;
        tx.commit_later()
    };
    insert(b"first", 10).expect("room").wait().expect("durable");
    let large = insert(b"large", 4 << 20).expect("it is taken");
    // The next transaction builds on the large one, and fails with it.
    let behind = insert(b"behind", 10).expect("it is taken");
    assert!(matches!(large.wait(), Err(StoreError::Full(_))));
    assert!(matches!(behind.wait(), Err(StoreError::Full(_))));
    insert(b"later", 3_000)
        .expect("room")
        .wait()
        .expect("durable");
    store.check().expect("each page is used once or free");
    let found = |store: &Store| {
        let table = table_of(store, "t");
        pairs(table.iter())
            .into_iter()
            .map(|(key, _)| key)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&store), [b"first".to_vec(), b"later".to_vec()]);
    medium.give_at_most(None);
    insert(b"large", 4 << 20)
        .expect("room")
        .wait()
        .expect("durable");
    drop(store);
    let left = medium.cut(Landing::Nothing);
    let store = Store::on(Box::new(left), &OpenOptions::default()).expect("a store");
    store.check().expect("each page is used once or free");
    assert_eq!(found(&store).len(), 3);
}

/// As in the previous test, but commits check for room: only the one that does not fit fails.
#[test]
fn a_commit_that_does_not_fit_fails_alone() {
    let (store, _) = bounded_that_asks(2 << 20);
    let mut tx = store.write().expect("a turn");
    add(&mut tx, "t", 1);
    let before = tx.commit_later().expect("it is taken");
    let mut tx = store.write().expect("a turn");
    insert_too_much(&mut tx);
    assert!(matches!(tx.commit_later(), Err(StoreError::Full(_))));
    let mut tx = store.write().expect("a turn");
    add(&mut tx, "t", 1);
    let after = tx.commit_later().expect("it is taken");
    before.wait().expect("it fits");
    after.wait().expect("it fits");
    assert_eq!(counter(&store.read().expect("a snapshot"), "t"), 2);
    store.check().expect("each page is used once or free");
    store.close().expect("nothing was lost");
}

/// Fails if only those who wait for a ticket of a group get the error of the group.
#[test]
fn a_close_says_that_a_commit_is_lost_that_nobody_waited_for() {
    for is_dropped in [true, false] {
        for goes_on in [true, false] {
            let (store, _) = bounded(2 << 20);
            let mut tx = store.write().expect("a turn");
            add(&mut tx, "t", 1);
            let first = tx.commit_later().expect("it is taken");
            let kept = (!is_dropped).then_some(first);
            let mut tx = store.write().expect("a turn");
            insert_too_much(&mut tx);
            assert!(matches!(tx.commit(), Err(StoreError::Full(_))));
            if let Some(first) = kept {
                assert!(matches!(first.wait(), Err(StoreError::Full(_))));
            }
            if goes_on {
                store.insert("t", b"later", b"1").expect("room");
                assert_eq!(counter(&store.read().expect("a snapshot"), "t"), 0);
            }
            let closed = store.close();
            let is_said = matches!(closed, Err(StoreError::Full(_)));
            assert_eq!(is_said, is_dropped, "{closed:?}");
            assert!(is_said || closed.is_ok(), "{closed:?}");
        }
    }
}

/// Fails if a close says that a commit is lost when it only has no room for the numbers of keys.
#[test]
fn a_close_without_room_for_numbers_of_keys_has_lost_nothing() {
    let medium = Tight::default();
    let options = OpenOptions::default();
    let store = Store::on(Box::new(medium.clone()), &options).expect("a store");
    store.insert("t", b"key", b"1").expect("room");
    medium.give(Some(0), 0);
    store.close().expect("all commits are durable");
    medium.give(None, 0);
    let store = Store::on(Box::new(medium), &options).expect("a store");
    assert_eq!(table_of(&store, "t").len().expect("a table"), 1);
}

/// Fails if a table with an invalid height is changed: with height 0 its pages would be lost.
#[test]
fn a_table_of_a_height_that_cannot_be_is_named_and_not_changed() {
    for height in [0, 65, 255] {
        let store = store();
        store.insert("t", b"key", b"1").expect("room");
        let mut tx = store.write().expect("a turn");
        let mut record = tx.table("t").expect("a table").record;
        record.root.height = height;
        tx.open.insert("t".into(), Some(record));
        tx.commit().expect("room");
        let refused = |act: &dyn Fn(&mut WriteTx) -> Result<(), StoreError>| {
            let mut tx = store.write().expect("a turn");
            let said = act(&mut tx).expect_err("damage").to_string();
            assert!(said.starts_with("table `t`"), "{height}: {said}");
            assert!(said.ends_with("no height that can be"), "{height}: {said}");
        };
        refused(&|tx| tx.drop_table("t"));
        refused(&|tx| tx.table("t")?.clear());
        refused(&|tx| tx.table("t")?.insert(b"key", b"2").map(|_| ()));
        refused(&|tx| tx.table("t")?.get(b"key").map(|_| ()));
        store.check().expect_err("damage");
    }
}

/// Closes a store while medium call number `call` of the close fails. Returns the calls of the
/// close, and its result.
fn close_while_one_fails(call: Option<u64>) -> (Vec<Call>, Result<(), StoreError>) {
    let medium = Failing::on(Recorded::default());
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default());
    let store = store.expect("a new store");
    // Enough data for the close to leave tables for the next opening.
    for n in 0..400 {
        store.insert("t", &number(n), &[1; 1000]).expect("room");
    }
    let before = medium.calls().len();
    medium.fail(call.map(|call| (before as u64 + call, Fault::Error)));
    let closed = store.close();
    assert_eq!(medium.has_failed(), call.is_some());
    (medium.calls().split_off(before), closed)
}

/// Fails if errors of layers below the tables are lost in a close.
#[test]
fn a_close_says_which_of_its_writes_and_syncs_failed() {
    let (calls, closed) = close_while_one_fails(None);
    closed.expect("nothing fails");
    let mut failed = 0;
    for (number, call) in calls.iter().enumerate() {
        if matches!(call, Call::Write | Call::Sync) {
            let (_, closed) = close_while_one_fails(Some(number as u64));
            let is_said = matches!(closed, Err(StoreError::Io { .. }));
            assert!(is_said, "call {number}, {call:?}: {closed:?}");
            failed += 1;
        }
    }
    assert!(failed >= 4, "{calls:?}");
}

/// A store on a bounded medium whose commits do not check for room: a commit that finds none fails
/// with its group.
fn bounded(bytes: u64) -> (Store, Recorded) {
    let (store, medium) = bounded_that_asks(bytes);
    store.ask_for_no_room();
    (store, medium)
}

fn bounded_that_asks(bytes: u64) -> (Store, Recorded) {
    let medium = Recorded::default();
    medium.give_at_most(Some(bytes));
    let options = OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    };
    let store = Store::on(Box::new(medium.clone()), &options).expect("a new store");
    (store, medium)
}

fn long_name(n: usize) -> String {
    format!("{n:03}/{}", "a name that is long ".repeat(10))
}

/// Inserts a value that does not fit into two mebibytes.
fn insert_too_much(tx: &mut WriteTx) {
    let mut table = tx.table("t").expect("a table");
    table.insert(b"large", &vec![7; 4 << 20]).expect("memory");
}

/// Fails if the catalog root is not reread after a group that found no room.
#[test]
fn the_catalog_goes_back_to_the_root_that_it_had_before_a_group_without_room() {
    let (store, medium) = bounded(2 << 20);
    let names = |store: &Store| -> Vec<String> {
        let tables = store.read().expect("a snapshot").tables();
        let tables = tables.expect("a catalog").into_iter();
        tables.map(|(name, _)| name).collect()
    };
    store.insert("t", b"first", b"1").expect("room");
    // These names need several leaves, so the root of the catalog moves.
    let mut tx = store.write().expect("a turn");
    for n in 0..60 {
        tx.table(&long_name(n)).expect("a new table");
    }
    insert_too_much(&mut tx);
    assert!(matches!(tx.commit(), Err(StoreError::Full(_))));
    let mut tx = store.write().expect("a turn");
    assert_eq!(
        tx.tables().expect("a catalog"),
        [("t".to_string(), TableKind::Ordered)]
    );
    tx.table("later").expect("a new table");
    tx.commit().expect("room");
    store.check().expect("each page is used once or free");
    assert_eq!(names(&store), ["later", "t"]);
    // The reverse: the catalog has several levels, and a failing group removes them.
    medium.give_at_most(None);
    let mut tx = store.write().expect("a turn");
    for n in 0..60 {
        tx.table(&long_name(n)).expect("a new table");
    }
    tx.commit().expect("room");
    let has = medium.bytes().expect("a medium");
    medium.give_at_most(Some(has));
    let mut tx = store.write().expect("a turn");
    for n in 0..60 {
        tx.drop_table(&long_name(n)).expect("it is there");
    }
    insert_too_much(&mut tx);
    assert!(matches!(tx.commit(), Err(StoreError::Full(_))));
    medium.give_at_most(None);
    store.insert(&long_name(7), b"key", b"1").expect("room");
    assert_eq!(names(&store).len(), 62);
    store.check().expect("each page is used once or free");
}

/// Fails if key counts of a group without room are kept.
#[test]
fn keys_that_found_no_room_are_not_counted() {
    let (store, medium) = bounded(2 << 20);
    let len = |store: &Store| {
        let mut tx = store.write().expect("a turn");
        let mut table = tx.table("t").expect("a table");
        table.len().expect("a table")
    };
    store.insert("t", b"first", b"1").expect("room");
    assert_eq!(len(&store), 1);
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("t").expect("a table");
    for n in 0..10 {
        table.insert(&number(n), b"").expect("memory");
    }
    insert_too_much(&mut tx);
    assert!(matches!(tx.commit(), Err(StoreError::Full(_))));
    assert_eq!(len(&store), 1);
    store.insert("t", b"second", b"2").expect("room");
    assert_eq!(len(&store), 2);
    store.check().expect("numbers of keys are right");
    medium.give_at_most(None);
    store.close().expect("room");
    let store = Store::on(Box::new(medium), &OpenOptions::default()).expect("a store");
    assert_eq!(len(&store), 2);
    store.check().expect("numbers of keys are right");
}

#[test]
fn what_fails_half_way_stops_the_transaction_until_it_is_rolled_back() {
    let medium = Recorded::default();
    let open = || Store::on(Box::new(medium.clone()), &OpenOptions::default());
    let store = open().expect("a new store");
    let mut tx = store.write().expect("a turn");
    for table in ["a", "b"] {
        let mut table = tx.table(table).expect("a table");
        for n in 0..400 {
            table
                .insert(&number(n), &[table.name().as_bytes()[0]; 100])
                .expect("room");
        }
    }
    tx.commit().expect("durable");
    drop(store);
    // Damages rows of table b wherever they lie; the pages of table a stay intact.
    let bytes = medium.to_vec();
    let mut damaged = 0;
    for (at, sector) in bytes.chunks(512).enumerate() {
        if let Some(place) = sector.windows(100).position(|bytes| *bytes == [b'b'; 100]) {
            let mut sector = sector.to_vec();
            sector[place] ^= 1;
            medium.write_at(at as u64 * 512, &sector).expect("a write");
            damaged += 1;
        }
    }
    assert!(damaged > 20);
    let store = open().expect("it opens");
    let mut tx = store.write().expect("a turn");
    tx.table("a")
        .expect("a table")
        .insert(b"before", b"")
        .expect("room");
    let savepoint = tx.savepoint();
    tx.table("a")
        .expect("a table")
        .insert(b"after", b"")
        .expect("room");
    let mut table = tx.table("b").expect("its record is whole");
    let failed = table.insert(&number(7), b"new").unwrap_err().to_string();
    assert!(
        failed.starts_with("table `b`, key `\\x00\\x07`: "),
        "{failed}"
    );
    let refused = tx.table("a").err().expect("refused");
    assert!(matches!(refused, StoreError::Spoilt(_)), "{refused}");
    tx.rollback_to(savepoint).expect("a savepoint");
    let table = tx.table("a").expect("a table");
    assert!(table.get(b"before").expect("a table").is_some());
    assert!(table.get(b"after").expect("a table").is_none());
    tx.commit().expect("durable");
    let mut tx = store.write().expect("a turn");
    let mut table = tx.table("b").expect("its record is whole");
    assert!(table.remove(&number(7)).is_err());
    assert!(matches!(tx.commit(), Err(StoreError::Spoilt(_))));
    assert!(store.check().is_err(), "table b is damaged");
}
