//! Processes that are forked from one whose threads use a store. They have its memory and none of
//! its threads: to let go of what they have must neither wait for one nor write to the store.

use flagstone_store::{OpenOptions, Store, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Forks a process that does something and ends. Returns whether it ended well, and in time.
fn forked(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the process does what a user of the store does after a fork, and what this test is
    // about: it lets go. It ends without the destructors of others.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "there is no process to be had");
    if child == 0 {
        let code = if act() { 0 } else { 3 };
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) };
    }
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let mut status = 0;
        // SAFETY: the status is written to a number that is there.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            return status == 0;
        }
        if Instant::now() > until {
            // SAFETY: it ends a process that this one made.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &mut status, 0) };
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_forked_process_lets_go_of_waits_for_nobody_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let options = OpenOptions::default();
    let store = Store::with(&path, &options).expect("a store");
    store.add("t", b"sum", 1).expect("room");
    let (is_over, mut all_end_well) = (AtomicBool::new(false), true);
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let (store, is_over) = (store.clone(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut tx = store.write().expect("a turn");
                    let mut table = tx.table("t").expect("a table");
                    table.add(&[thread], 1).expect("room");
                    tx.commit().expect("durable");
                }
            });
        }
        for round in 0..40 {
            let mut tx = store.write().expect("a turn");
            tx.table("t")
                .expect("a table")
                .add(b"sum", 1)
                .expect("room");
            // A ticket, a reader, a turn, and a handle of the store.
            let commit = tx.commit_later().expect("it is taken");
            let reader = store.read().expect("a snapshot");
            let turn = (round % 4 == 0).then(|| store.write().expect("a turn"));
            let other = store.clone();
            let (mut commit, mut reader, mut turn) = (Some(commit), Some(reader), Some(turn));
            let ended = forked(|| {
                // To wait for a commit may be to carry it out.
                let waited = commit.take().map(|commit| match round % 2 {
                    0 => commit.wait().err(),
                    _ => other.write().err(),
                });
                drop(reader.take());
                drop(turn.take());
                let refused = [waited.flatten(), other.write().err(), other.idle(8).err()];
                let are_refused = refused
                    .iter()
                    .all(|refused| matches!(refused, Some(StoreError::Broken(_))));
                are_refused && other.close().is_ok()
            });
            all_end_well &= ended;
            drop(turn);
            commit.take().expect("it is there").wait().expect("durable");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(all_end_well);
    store.check().expect("each page is used once or free");
    store.close().expect("a close");
    let store = Store::with(&path, &options).expect("a store");
    store.check().expect("each page is used once or free");
}
