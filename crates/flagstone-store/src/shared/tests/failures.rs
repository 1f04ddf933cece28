//! Media that fail under several threads, and one without room.

use super::*;

/// Threads write until something fails. Returns the reported counts, and the errors.
fn write_until_it_fails(pages: &SharedPages) -> (Counts, Vec<StoreError>) {
    let told = Told::default();
    let errors = std::thread::scope(|scope| {
        let write = |thread: u32| {
            for _ in 0..12 {
                let (ticket, count) = raise(pages, thread)?;
                ticket.wait()?;
                told.tell(thread as usize, count);
            }
            Ok::<(), StoreError>(())
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || write(thread)))
            .collect();
        let ends = threads.into_iter().map(|it| it.join().expect("it ends"));
        ends.filter_map(Result::err).collect()
    });
    (told.get(), errors)
}

/// Lets each call of the medium fail in turn. Returns how many runs failed, and in how many of them
/// reported data was lost.
fn fail_each(fault: Fault, every: usize) -> (u32, u32) {
    let calls = {
        let medium = Failing::on(Recorded::default());
        let pages = on(medium.clone());
        write_until_it_fails(&pages);
        medium.calls().len()
    };
    let (mut failed, mut lost) = (0, 0);
    for number in (0..calls as u64).step_by(every) {
        let medium = Failing::on(Recorded::default());
        let Ok(pages) = SharedPages::on(Box::new(medium.clone()), &small()) else {
            panic!("nothing fails yet");
        };
        let before = medium.calls().len() as u64;
        medium.fail(Some((before + number, fault)));
        let (told, errors) = write_until_it_fails(&pages);
        medium.fail(None);
        if medium.has_failed() && fault != Fault::Hidden {
            // Lack of room is a regular answer to a request for room; the store continues.
            failed += u32::from(!errors.is_empty());
            for error in &errors {
                let is_known = matches!(error, StoreError::Io { .. } | StoreError::Broken(_));
                assert!(is_known, "{error}");
            }
            if !errors.is_empty() {
                assert!(matches!(pages.turn(), Err(StoreError::Broken(_))));
            }
        }
        drop(pages);
        medium.below().lose(Landing::Sectors(number));
        let left = medium.below().cut(Landing::Nothing);
        lost += u32::from(is_lost(&told, &left));
    }
    (failed, lost)
}

#[test]
fn a_medium_that_fails_breaks_the_store_for_all_threads_and_loses_nothing() {
    for fault in [Fault::Error, Fault::Gone] {
        let (failed, lost) = fail_each(fault, 3);
        assert!(failed > 10, "{fault:?}: {failed}");
        assert_eq!(lost, 0, "{fault:?}");
    }
    // Control: failures that the medium hides.
    assert!(fail_each(Fault::Hidden, 1).1 > 0);
}

#[test]
fn what_finds_no_room_fails_alone() {
    let medium = Recorded::default();
    medium.give_at_most(Some(2 << 20));
    let pages = on(medium.clone());
    let large = || (10..900).map(|at| (Lpn(at), page(&[7; 4000]))).collect();
    for round in 0..3_u8 {
        // A transaction that is not durable yet, in the group that the large one would join.
        let before = set(&pages, Lpn(1), &[round]);
        let turn = pages.turn().expect("it may write");
        let refused = turn.commit(large());
        assert!(matches!(refused, Err(StoreError::Full(_))), "{round}");
        // A later turn continues from the present state.
        let turn = pages.turn().expect("it may write");
        assert_eq!(turn.read(Lpn(1)).expect("it is there"), page(&[round]));
        assert_eq!(turn.read(Lpn(10)).expect("it may be read"), None);
        let after = turn.commit(Changes::from([(Lpn(2), page(&[round]))]));
        before.wait().expect("it is not the one that did not fit");
        after.expect("it fits").wait().expect("durable");
    }
    medium.give_at_most(None);
    let turn = pages.turn().expect("it may write");
    turn.commit(large())
        .expect("it fits")
        .wait()
        .expect("durable");
}

/// Control of the previous test: a store whose turns do not check for room.
#[test]
fn what_finds_no_room_fails_with_all_that_has_read_it_and_the_store_goes_on() {
    let medium = Recorded::default();
    medium.give_at_most(Some(2 << 20));
    let pages = on(medium.clone());
    pages.0.0.make(groups::Mistake::AsksForNoRoom);
    set(&pages, Lpn(1), b"one").wait().expect("durable");
    let turn = pages.turn().expect("it may write");
    let large = (10..900).map(|at| (Lpn(at), page(&[7; 4000])));
    let large = turn.commit(large.collect()).expect("it is taken");
    // It has read the large transaction's pages, and is not durable without it.
    let turn = pages.turn().expect("it may write");
    assert!(turn.read(Lpn(10)).expect("it is there").is_some());
    let behind = turn.commit(Changes::from([(Lpn(1), page(b"two"))]));
    let behind = behind.expect("it is taken");
    let turn = pages.turn().expect("it may write");
    assert!(matches!(large.wait(), Err(StoreError::Full(_))));
    assert!(matches!(turn.read(Lpn(1)), Err(StoreError::Full(_))));
    let late = turn.commit(Changes::from([(Lpn(1), page(b"three"))]));
    assert!(matches!(late, Err(StoreError::Full(_))));
    assert!(matches!(behind.wait(), Err(StoreError::Full(_))));
    let seen = |at| {
        let snapshot = pages.snapshot().expect("seal has them");
        snapshot.read(Lpn(at)).expect("it is there")
    };
    assert_eq!((seen(1).as_deref(), seen(10)), (Some(&b"one"[..]), None));
    // The store continues, with less and with more room.
    set(&pages, Lpn(1), b"four").wait().expect("durable");
    medium.give_at_most(None);
    let turn = pages.turn().expect("it may write");
    let large = (10..900).map(|at| (Lpn(at), page(&[7; 4000])));
    turn.commit(large.collect())
        .expect("it is taken")
        .wait()
        .expect("durable");
    assert!(seen(899).is_some());
    drop(pages);
    let again = on(medium.cut(Landing::Nothing));
    let snapshot = again.snapshot().expect("seal has them");
    let found = snapshot.read(Lpn(1)).expect("it is there");
    assert_eq!(found.as_deref(), Some(&b"four"[..]));
}

/// Fails if readers get a new snapshot only after a group was written or found no room.
#[test]
fn readers_have_a_snapshot_after_a_group_that_the_device_refused() {
    let pages = on(Recorded::default());
    set(&pages, Lpn(1), b"one").wait().expect("durable");
    let old = pages.snapshot().expect("seal has them");
    pages.with(|store| store.end_snapshot(old.id()));
    // A turn would have refused this already.
    let too_long = Changes::from([(Lpn(1), page(&[2; 5000]))]);
    let refused = pages.0.0.add(0, too_long).expect("it is taken");
    let refused = pages.0.0.wait(&refused);
    let is_known = matches!(
        refused,
        Err(StoreError::Device(DeviceError::TooLong { .. }))
    );
    assert!(is_known, "{refused:?}");
    // Pages that are not cached are looked up.
    assert!(old.read(Lpn(2)).is_err());
    let new = pages.snapshot().expect("seal has them");
    assert_eq!(new.read(Lpn(2)).expect("it has not ended"), None);
    assert_eq!(
        new.read(Lpn(1)).expect("it is there").as_deref(),
        Some(&b"one"[..])
    );
    set(&pages, Lpn(1), b"three").wait().expect("durable");
}

/// A medium without room, which blocks callers that ask for room.
#[derive(Clone)]
struct Narrow {
    slow: Slow,
    /// Set once a store was created on it.
    is_made: Arc<AtomicBool>,
}

impl Medium for Narrow {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.slow.below.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.slow.below.write_at(offset, bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.slow.below.sync()
    }

    fn bytes(&self) -> std::io::Result<u64> {
        self.slow.below.bytes()
    }

    fn reserve(&self, bytes: u64) -> std::io::Result<()> {
        if !self.is_made.load(Ordering::SeqCst) {
            return self.slow.below.reserve(bytes);
        }
        self.slow.pass();
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

/// A group being written finds no room, while another one has formed from its results. Fails if the
/// second one is written nevertheless: the store would hold results of pages that never existed.
/// The turn in progress, which has read the second group, must fail as well.
#[test]
fn what_has_formed_while_a_group_finds_no_room_fails_with_it() {
    let medium = Narrow {
        slow: Slow::default(),
        is_made: Arc::default(),
    };
    let pages = on(medium.clone());
    pages.0.0.make(groups::Mistake::AsksForNoRoom);
    set(&pages, Lpn(1), b"before").wait().expect("durable");
    medium.is_made.store(true, Ordering::SeqCst);
    medium.slow.shut(true);
    let see = |at| {
        let snapshot = pages.snapshot().expect("seal has them");
        snapshot.read(Lpn(at)).expect("it is there")
    };
    std::thread::scope(|scope| {
        let large = (10..900).map(|at| (Lpn(at), page(&[7; 4000]))).collect();
        let turn = pages.turn().expect("it may write");
        let large = turn.commit(large).expect("it is taken");
        let large = scope.spawn(|| large.wait());
        // The large transaction is being written and has asked for space.
        medium.slow.wait_for_one();
        let turn = pages.turn().expect("it may write");
        let read = turn.read(Lpn(10)).expect("it is there");
        let copied = Changes::from([(Lpn(1), read.clone()), (Lpn(2), read)]);
        let formed = turn.commit(copied).expect("it is taken");
        let turn = pages.turn().expect("it may write");
        assert_eq!(turn.read(Lpn(2)).expect("it is there"), page(&[7; 4000]));
        medium.slow.shut(false);
        let large = large.join().expect("it ends");
        assert!(matches!(large, Err(StoreError::Full(_))), "{large:?}");
        let late = turn.commit(Changes::from([(Lpn(3), page(b"late"))]));
        assert!(matches!(late, Err(StoreError::Full(_))));
        let formed = formed.wait();
        assert!(matches!(formed, Err(StoreError::Full(_))), "{formed:?}");
    });
    set(&pages, Lpn(4), b"after").wait().expect("durable");
    let seen = [1, 2, 3, 10].map(see);
    assert_eq!(seen, [page(b"before"), None, None, None]);
    drop(pages);
    let again = on(medium.slow.below.cut(Landing::Nothing));
    let snapshot = again.snapshot().expect("seal has them");
    let found = [1, 2, 3, 4, 10].map(|at| snapshot.read(Lpn(at)).expect("it is there"));
    assert_eq!(found, [page(b"before"), None, None, page(b"after"), None]);
}

/// Fails if the transactions of a group that found no room are counted as committed.
#[test]
fn what_finds_no_room_is_not_counted() {
    let medium = Tight::default();
    let pages = on(medium.clone());
    let commits = || pages.with(|store| store.medium_stats().commits);
    set(&pages, Lpn(1), b"one").wait().expect("durable");
    assert_eq!(commits(), 1);
    let both = [2, 3].map(|at| set(&pages, Lpn(at), b"two"));
    medium.give(Some(0), 0);
    for ticket in both {
        assert!(matches!(ticket.wait(), Err(StoreError::Full(_))));
    }
    assert_eq!(commits(), 1);
    medium.give(None, 0);
    let both = [2, 3].map(|at| set(&pages, Lpn(at), b"two"));
    for ticket in both {
        ticket.wait().expect("there is room");
    }
    assert_eq!(commits(), 3);
}
