//! Threads that commit, read and look, on media that are cut, fail, or block.
//!
//! Each thread has a page with its own count, and all share a page with the counts of all. Each
//! transaction increments both. So the shared page tells for every state whether transactions are
//! complete, and acknowledged or observed counts are lower bounds.

use super::*;
use crate::flash::MediumStats;
use crate::medium::{Failing, Fault, Landing, Memory, Recorded, Tight};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

pub(crate) mod failures;
mod reads;

const THREADS: u32 = 4;
const SHARED: Lpn = Lpn(40);

fn small() -> OpenOptions {
    OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default()
    }
}

fn on(medium: impl Medium + 'static) -> SharedPages {
    SharedPages::on(Box::new(medium), &small()).expect("a store")
}

fn page(bytes: &[u8]) -> Option<PageBytes> {
    Some(bytes.into())
}

fn set(pages: &SharedPages, at: Lpn, bytes: &[u8]) -> Ticket {
    let turn = pages.turn().expect("it may write");
    turn.commit(Changes::from([(at, page(bytes))]))
        .expect("room")
}

#[test]
fn what_is_read_often_is_that_of_the_snapshot() {
    let pages = on(Memory::default());
    // These two share a slot among the pages that a snapshot caches.
    let (one, other) = (Lpn(3), Lpn(3 + 128));
    let write = |bytes: &[u8]| {
        set(&pages, one, bytes).wait().expect("it is durable");
        set(&pages, other, &[bytes, b"!"].concat())
            .wait()
            .expect("it is durable");
    };
    let see = |snapshot: &PageSnapshot, at| snapshot.read_often(at).expect("it can be read");
    write(b"old");
    let old = pages.snapshot().expect("it is well");
    assert_eq!(see(&old, one), page(b"old"));
    write(b"new");
    let new = pages.snapshot().expect("it is well");
    for _ in 0..2 {
        assert_eq!(see(&old, one), page(b"old"));
        assert_eq!(see(&old, other), page(b"old!"));
        assert_eq!(see(&new, one), page(b"new"));
        assert_eq!(see(&new, other), page(b"new!"));
        assert_eq!(see(&new, Lpn(77)), None);
    }
}

type Counts = [u64; THREADS as usize];

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// The counts in a state, given a function that reads its pages.
///
/// # Errors
/// A transaction is incomplete.
fn counts(read: impl Fn(Lpn) -> Option<PageBytes>) -> Result<Counts, String> {
    let all = read(SHARED);
    let mut counts = Counts::default();
    for thread in 0..THREADS {
        let of = |bytes: &PageBytes| number(&bytes[8 * thread as usize..]);
        let (own, shared) = (read(Lpn(thread)), all.as_ref().map_or(0, of));
        let own = own.as_deref().map_or(0, number);
        if own != shared {
            return Err(format!("thread {thread} has {own} and {shared}"));
        }
        counts[thread as usize] = own;
    }
    Ok(counts)
}

/// A transaction that increments a thread's count. Others run between its begin and its end only in
/// the order of turns.
fn raise(pages: &SharedPages, thread: u32) -> Result<(Ticket, u64), StoreError> {
    let turn = pages.turn()?;
    let mut all = turn
        .read(SHARED)?
        .map_or(vec![0; 600], |page| page.to_vec());
    let place = 8 * thread as usize;
    let count = number(&all[place..]) + 1;
    all[place..place + 8].copy_from_slice(&count.to_le_bytes());
    let own = count.to_le_bytes().repeat(200);
    let changes = Changes::from([(Lpn(thread), page(&own)), (SHARED, page(&all))]);
    Ok((turn.commit(changes)?, count))
}

/// The highest counts that were reported to anybody.
#[derive(Default)]
struct Told([AtomicU64; THREADS as usize]);

impl Told {
    fn tell(&self, thread: usize, count: u64) {
        self.0[thread].fetch_max(count, Ordering::SeqCst);
    }

    fn get(&self) -> Counts {
        std::array::from_fn(|thread| self.0[thread].load(Ordering::SeqCst))
    }
}

/// A moment: the counts reported before it, and the medium.
type Moment = (Counts, Recorded);

/// Threads that write, and one that looks at snapshots, while every operation of the medium is
/// recorded as a moment at which the power may fail.
fn run(rounds: u64, lies: bool, mistake: Option<groups::Mistake>) -> (Vec<Moment>, MediumStats) {
    let medium = Recorded::default();
    let pages = on(medium.clone());
    if lies {
        medium.lie();
    }
    if let Some(mistake) = mistake {
        pages.0.0.make(mistake);
    }
    let (told, moments) = (Arc::new(Told::default()), Arc::new(Mutex::new(Vec::new())));
    medium.watch(Some({
        let (told, moments) = (Arc::clone(&told), Arc::clone(&moments));
        Box::new(move |medium: &Recorded| {
            // In this order: counts reported by now must be there then.
            let before = told.get();
            let moment = (before, medium.snapshot());
            moments.lock().expect("no panic").push(moment);
        })
    }));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                look(&pages, &told);
            }
        });
        let write = |thread: u32| {
            for _ in 0..rounds {
                // Two transactions at once, even if threads take turns on one processor.
                let two = [(); 2].map(|()| raise(&pages, thread).expect("room"));
                for (ticket, count) in two {
                    ticket.wait().expect("durable");
                    told.tell(thread as usize, count);
                }
            }
        };
        let writers = (0..THREADS).map(|thread| scope.spawn(move || write(thread)));
        for writer in writers.collect::<Vec<_>>() {
            writer.join().expect("it ends");
        }
        is_over.store(true, Ordering::SeqCst);
        reader.join().expect("it ends");
    });
    medium.watch(None);
    let stats = pages.0.0.core().store().medium_stats();
    let moments = std::mem::take(&mut *moments.lock().expect("no panic"));
    (moments, stats)
}

/// Takes a snapshot and inspects it for a while.
fn look(pages: &SharedPages, told: &Told) {
    let before = told.get();
    let snapshot = pages.snapshot().expect("seal has them");
    let read = |at| snapshot.read(at).expect("it is there");
    let seen = counts(read).expect("a snapshot is a whole state");
    for thread in 0..THREADS as usize {
        assert!(seen[thread] >= before[thread], "{seen:?} after {before:?}");
        told.tell(thread, seen[thread]);
    }
    std::thread::yield_now();
    assert_eq!(counts(read), Ok(seen), "a snapshot stays what it is");
    let all: Vec<Lpn> = (0..=SHARED.0).map(Lpn).collect();
    let many = snapshot.read_many(&all).expect("they are there");
    assert_eq!(counts(|at| many[at.index()].clone()), Ok(seen));
}

/// Cuts the power at moments. Returns how many cuts left less than was reported, or an incomplete
/// transaction.
fn losses(moments: &[Moment], every: usize) -> usize {
    let chosen = moments.iter().enumerate().step_by(every);
    let cuts = chosen.flat_map(|(number, (told, medium))| {
        let landings = [
            Landing::Nothing,
            Landing::Everything,
            Landing::Sectors(number as u64),
        ];
        landings.map(|landing| is_lost(told, &medium.cut(landing)))
    });
    cuts.filter(|&lost| lost).count()
}

fn is_lost(told: &Counts, medium: &Recorded) -> bool {
    let Ok(store) = PageStore::on(Box::new(medium.clone()), &small()) else {
        return true;
    };
    let store = Mutex::new(store);
    let is_damaged = AtomicBool::new(false);
    let found = counts(|at| {
        let mut bytes = vec![0; PageStore::PAGE_BYTES];
        let mut store = store.lock().expect("no panic");
        let read = store.read(None, at, &mut bytes);
        is_damaged.fetch_or(read.is_err(), Ordering::SeqCst);
        read.ok().flatten().map(|has| bytes[..has].into())
    });
    let is_less = |found: Counts| found.iter().zip(told).any(|(found, told)| found < told);
    is_damaged.into_inner() || found.map_or(true, is_less)
}

#[test]
fn what_a_thread_was_told_of_survives_every_cut_and_transactions_are_whole() {
    let (moments, stats) = run(40, false, None);
    assert!(moments.len() > 40, "{} moments", moments.len());
    assert_eq!(losses(&moments, 1 + moments.len() / 150), 0);
    assert_eq!(stats.commits, u64::from(THREADS) * 80);
    // Some transactions shared a sync, otherwise this test proves little.
    assert!(stats.syncs < stats.commits, "{stats:?}");
}

/// Controls of the previous test: each of these loses reported data.
#[test]
fn a_medium_that_lies_and_answers_that_come_too_early_are_found() {
    let (moments, _) = run(30, true, None);
    assert!(losses(&moments, 2) > 0, "syncs do nothing");
    for mistake in [
        groups::Mistake::AcknowledgesEarly,
        groups::Mistake::ShowsEarly,
    ] {
        let (moments, _) = run(40, false, Some(mistake));
        assert!(losses(&moments, 1) > 0, "{mistake:?}");
    }
}

/// A medium whose syncs block until they may proceed.
#[derive(Clone, Default)]
struct Slow {
    below: Recorded,
    /// Whether calls must wait, and how many are waiting.
    gate: Arc<(Mutex<(bool, u32)>, Condvar)>,
}

impl Slow {
    fn shut(&self, is_shut: bool) {
        self.gate.0.lock().expect("no panic").0 = is_shut;
        self.gate.1.notify_all();
    }

    /// Waits until a call is waiting.
    fn wait_for_one(&self) {
        let mut state = self.gate.0.lock().expect("no panic");
        while state.1 == 0 {
            state = self.gate.1.wait(state).expect("no panic");
        }
    }

    /// Lets a call wait until it may proceed.
    fn pass(&self) {
        let mut state = self.gate.0.lock().expect("no panic");
        state.1 += 1;
        self.gate.1.notify_all();
        while state.0 {
            state = self.gate.1.wait(state).expect("no panic");
        }
        state.1 -= 1;
    }
}

impl Medium for Slow {
    crate::forward_medium!(below: read_at write_at bytes reserve);

    fn sync(&self) -> std::io::Result<()> {
        self.pass();
        self.below.sync()
    }
}

#[test]
fn who_comes_while_a_sync_runs_waits_for_nothing_and_shares_the_next_one() {
    let medium = Slow::default();
    let pages = on(medium.clone());
    set(&pages, Lpn(1), b"before").wait().expect("durable");
    medium.shut(true);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| set(&pages, Lpn(1), b"first").wait());
        medium.wait_for_one();
        // The sync does not end before all of this is done.
        let tickets: Vec<Ticket> = (2..10)
            .map(|with| {
                let turn = pages.turn().expect("it may write");
                let newest = turn.read(Lpn(1)).expect("it is there");
                let expected: &[u8] = if with == 2 { b"first" } else { &[with - 1; 9] };
                assert_eq!(newest.as_deref(), Some(expected));
                let changes = Changes::from([
                    (Lpn(1), page(&[with; 9])),
                    (Lpn(with.into()), page(&[with; 9])),
                ]);
                turn.commit(changes).expect("room")
            })
            .collect();
        let snapshot = pages.snapshot().expect("seal has them");
        let seen = |at| snapshot.read(Lpn(at)).expect("it is there");
        assert_eq!(seen(1).as_deref(), Some(&b"before"[..]));
        assert_eq!(seen(5), None);
        let (syncs, written) = (medium.below.syncs(), medium.below.written());
        medium.shut(false);
        first.join().expect("it ends").expect("durable");
        tickets
            .into_iter()
            .for_each(|it| it.wait().expect("durable"));
        // The running sync, and one for all others. Nine pages: the first one once.
        assert_eq!(medium.below.syncs() - syncs, 2);
        assert_eq!(medium.below.written() - written, 9 * 4096);
        assert_eq!(seen(1).as_deref(), Some(&b"before"[..]));
        let newest = pages.snapshot().expect("seal has them");
        let newest = newest.read(Lpn(1)).expect("it is there");
        assert_eq!(newest.as_deref(), Some(&[9; 9][..]));
    });
}

#[test]
fn a_ticket_that_nobody_waits_for_is_durable_when_the_store_is_closed() {
    let medium = Recorded::default();
    let pages = on(medium.clone());
    drop(set(&pages, Lpn(3), b"three"));
    assert_eq!(medium.cut(Landing::Everything).syncs(), 0);
    // An empty change waits for what it may have read.
    let turn = pages.turn().expect("it may write");
    turn.commit(Changes::new())
        .expect("room")
        .wait()
        .expect("durable");
    drop(set(&pages, Lpn(4), b"four"));
    drop(pages);
    let again = on(medium.cut(Landing::Nothing));
    let snapshot = again.snapshot().expect("seal has them");
    for (at, right) in [(3, &b"three"[..]), (4, b"four")] {
        let found = snapshot.read(Lpn(at)).expect("it is there");
        assert_eq!(found.as_deref(), Some(right));
    }
}

/// Readers with a minimal cache, while pages move and blocks are erased and rewritten.
#[test]
fn readers_go_on_while_pages_move_and_blocks_are_erased() {
    const PAGES: u32 = 300;
    let mut options = small();
    options.cache = 4096;
    let pages = SharedPages::on(Box::new(Memory::default()), &options).expect("a store");
    let fill = |at: u32, with: u64| {
        let bytes = [u64::from(at), with].map(u64::to_le_bytes).concat();
        page(&bytes.repeat(100))
    };
    let all = (0..PAGES).map(|at| (Lpn(at), fill(at, 0))).collect();
    let turn = pages.turn().expect("it may write");
    turn.commit(all).expect("room").wait().expect("durable");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (pages, is_over) = (&pages, &is_over);
            scope.spawn(move || {
                let mut dice = crate::pages::tests::Dice(reader);
                while !is_over.load(Ordering::SeqCst) {
                    let snapshot = pages.snapshot().expect("seal has them");
                    for _ in 0..50 {
                        let at = dice.below(PAGES.into()) as u32;
                        let found = snapshot.read(Lpn(at)).expect("it is there");
                        let found = found.expect("it was written");
                        assert_eq!(number(&found), at.into());
                        let again = snapshot.read(Lpn(at)).expect("it is there");
                        assert_eq!(again, Some(found));
                    }
                }
            });
        }
        let mut dice = crate::pages::tests::Dice(7);
        for round in 1..4_000 {
            let places = (0..4).map(|_| dice.below(PAGES.into()) as u32);
            let changes = places.map(|at| (Lpn(at), fill(at, round))).collect();
            let turn = pages.turn().expect("it may write");
            turn.commit(changes).expect("room").wait().expect("durable");
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let core = pages.0.0.core();
    let stats = core.store().device().stats().clone();
    assert!(
        stats.collections > 100 && stats.relocated > 100,
        "{stats:?}"
    );
}
