//! Writes that could wait forever: after a thread panics while it writes, and in a transaction of
//! the same thread.

use super::*;
use crate::medium::{Medium, Recorded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// A medium whose next write panics on demand.
#[derive(Clone, Default)]
struct Panicking {
    below: Recorded,
    panics: Arc<AtomicBool>,
}

impl Medium for Panicking {
    crate::forward_medium!(below: read_at sync bytes reserve);

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "a mistake");
        self.below.write_at(offset, bytes)
    }
}

/// The result of a call in another thread; `None` if it panics.
///
/// # Panics
/// The call does not return in time.
#[track_caller]
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(call()));
    match told.recv_timeout(Duration::from_secs(20)) {
        Ok(answer) => Some(answer),
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it waits for ever"),
    }
}

/// Asserts that writing calls, each in a thread of its own, end with this error.
#[track_caller]
fn assert_all_hear(store: &Store) {
    for _ in 0..3 {
        let other = store.clone();
        let error = in_time(move || other.insert("t", b"k", b"v"));
        let error = error.expect("it does not panic").expect_err("refused");
        assert!(matches!(error, StoreError::Broken(_)), "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}

#[test]
fn a_commit_that_panics_is_an_error_for_all_later_writes() {
    let medium = Panicking::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    store.insert("t", b"before", b"1").expect("room");
    medium.panics.store(true, Ordering::SeqCst);
    let other = store.clone();
    assert!(in_time(move || other.insert("t", b"lost", b"2")).is_none());
    assert_all_hear(&store);
    store.close().expect_err("it says so as well");
    let store = Store::on(Box::new(medium.below), &OpenOptions::default()).expect("a store");
    assert_eq!(pairs(table_of(&store, "t").iter()).len(), 1);
    store.insert("t", b"after", b"3").expect("room");
}

#[test]
fn a_panic_at_the_begin_of_a_transaction_leaves_nobody_waiting() {
    let medium = Panicking::default();
    let store = Store::on(Box::new(medium.clone()), &OpenOptions::default()).expect("a store");
    let mut tx = store.write().expect("a turn");
    let mut large = tx.table("large").expect("a table");
    for n in 0..2000 {
        large.insert(&number(n), &[7; 400]).expect("room");
    }
    tx.commit().expect("room");
    let mut tx = store.write().expect("a turn");
    tx.drop_table("large").expect("it is there");
    // Its pages are freed when the next transaction begins, which then has the writer.
    tx.commit_later().expect("room").wait().expect("durable");
    medium.panics.store(true, Ordering::SeqCst);
    let other = store.clone();
    let first = in_time(move || other.insert("t", b"k", b"v").map(drop));
    assert!(!medium.panics.load(Ordering::SeqCst), "it has panicked");
    assert!(first.is_none());
    assert_all_hear(&store);
    drop(store);
    let store = Store::on(Box::new(medium.below), &OpenOptions::default()).expect("a store");
    store.insert("t", b"after", b"3").expect("room");
    store.check().expect("all is well");
}

#[test]
fn a_panic_between_the_calls_of_a_transaction_rolls_it_back() {
    // Control: such a panic loses nothing, and others continue.
    let store = store();
    let other = store.clone();
    let panicked = in_time(move || {
        let mut tx = other.write().expect("a turn");
        add(&mut tx, "t", 1);
        panic!("a mistake");
    });
    assert!(panicked.is_none());
    let other = store.clone();
    let done = in_time(move || other.add("t", b"sum", 5));
    assert_eq!(done.expect("it goes on").expect("room"), 5);
}

#[test]
fn a_write_within_a_write_of_the_same_thread_is_an_error() {
    let store = store();
    let other = store.clone();
    let refused = in_time(move || {
        let mut refused = None;
        let updated = other.update("t", b"k", |_| {
            refused = other.insert("t", b"other", b"1").err();
            Some(b"v".to_vec())
        });
        (updated.map(drop), refused)
    });
    let (updated, refused) = refused.expect("it does not panic");
    updated.expect("the update goes on");
    assert!(matches!(refused, Some(StoreError::Nested)), "{refused:?}");
    let other = store.clone();
    let refused = in_time(move || {
        let tx = other.write().expect("a turn");
        let refused = other.write().map(drop);
        let checked = other.check();
        drop(tx);
        other.insert("t", b"later", b"1").expect("room");
        (refused, checked)
    });
    let (refused, checked) = refused.expect("it does not panic");
    assert!(matches!(refused, Err(StoreError::Nested)), "{refused:?}");
    assert!(checked.expect_err("refused").contains("already"));
}

#[test]
fn a_transaction_that_went_to_another_thread_is_waited_for() {
    // Control: a thread that waits for another one continues once that one ends.
    let store = store();
    let mut tx = store.write().expect("a turn");
    let (used, is_used) = mpsc::channel();
    let other = std::thread::spawn(move || {
        add(&mut tx, "t", 1);
        used.send(()).expect("somebody waits");
        std::thread::sleep(Duration::from_millis(50));
        tx.commit().expect("room");
    });
    is_used.recv().expect("it is used");
    assert_eq!(store.add("t", b"sum", 1).expect("it is waited for"), 2);
    other.join().expect("it ends");
}
