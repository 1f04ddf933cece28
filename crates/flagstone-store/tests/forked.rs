//! Processes that are forked from one whose threads use a store. They have its memory and none of
//! its threads: to let go of what they have must neither wait for one nor write to the store.

use flagstone_store::{OpenOptions, Store, StoreError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One test at a time: what a process does that was forked while threads of another test open
/// stores is not asked for here.
static ALONE: Mutex<()> = Mutex::new(());

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
    let _alone = ALONE.lock().unwrap_or_else(|it| it.into_inner());
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
                let refused = [
                    waited.flatten(),
                    other.write().err(),
                    other.idle(8).err(),
                    other.read().err(),
                ];
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

#[test]
fn a_forked_process_opens_the_store_anew_once_its_parent_has_let_go() {
    let _alone = ALONE.lock().unwrap_or_else(|it| it.into_inner());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let options = OpenOptions::default();
    let store = Store::with(&path, &options).expect("a store");
    store.add("t", b"sum", 1).expect("room");
    let reader = store.read().expect("a snapshot");
    // The control: while the parent has it, the child is refused, and hears of the right process.
    let parent = std::process::id();
    assert!(forked(|| {
        let refused = Store::with(&path, &options).err();
        matches!(refused, Some(StoreError::InUse { pid, .. }) if pid == Some(parent))
    }));
    store.add("t", b"sum", 1).expect("the parent goes on");
    // A child that lives on, as a daemon, while its parent closes the store and another opens it.
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().expect("a socket");
    let mut store = Some(store);
    let mut reader = Some(reader);
    std::thread::scope(|scope| {
        let is_good = scope.spawn(|| {
            use std::io::{Read, Write};
            forked(|| {
                there.write_all(b"1").expect("the parent reads");
                there.read_exact(&mut [0]).expect("the parent writes");
                let opened = Store::with(&path, &options);
                let sum = opened.and_then(|store| store.add("t", b"sum", 1));
                matches!(sum, Ok(4))
            })
        });
        use std::io::{Read, Write};
        here.read_exact(&mut [0]).expect("the child lives");
        drop(reader.take());
        let closed = store.take().expect("it is open").close();
        closed.expect("a close");
        // A process that neither of them is may open it, though the child lives.
        let again = Store::with(&path, &options).expect("the child holds nothing");
        assert_eq!(again.add("t", b"sum", 1).expect("room"), 3);
        again.close().expect("a close");
        here.write_all(b"1").expect("the child reads");
        assert!(is_good.join().expect("no panic"));
    });
    let store = Store::with(&path, &options).expect("a store");
    assert_eq!(store.add("t", b"sum", 0).expect("room"), 4);
}

#[test]
fn a_parent_that_dies_leaves_the_store_to_the_process_that_it_forked() {
    let _alone = ALONE.lock().unwrap_or_else(|it| it.into_inner());
    use std::io::Read;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let (mut here, there) = std::os::unix::net::UnixStream::pair().expect("a socket");
    assert!(forked(|| {
        let options = OpenOptions::default();
        let store = Store::with(&path, &options).expect("a store");
        store.add("t", b"sum", 1).expect("room");
        let parent = std::process::id();
        // SAFETY: the daemon opens the store and ends; its parent ends at once, as a crash does.
        if unsafe { libc::fork() } == 0 {
            while std::os::unix::process::parent_id() == parent {
                std::thread::sleep(Duration::from_millis(1));
            }
            let opened = Store::with(&path, &options);
            let sum = opened.and_then(|store| store.add("t", b"sum", 1));
            let _ = std::io::Write::write_all(
                &mut &there,
                if matches!(sum, Ok(2)) { b"y" } else { b"n" },
            );
            // SAFETY: it ends the process.
            unsafe { libc::_exit(0) };
        }
        std::mem::forget(store);
        true
    }));
    drop(there);
    let mut answer = String::new();
    here.read_to_string(&mut answer).expect("text");
    assert_eq!(answer, "y");
}
