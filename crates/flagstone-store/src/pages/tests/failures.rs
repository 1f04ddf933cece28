//! A medium that fails at each of its calls in turn, with every outcome of a failed write or sync.
//!
//! A history opens a store, commits transactions until blocks are collected and the store has
//! grown, and closes it. Each medium call fails once: with EIO, for lack of room, or because the
//! device is gone. All acknowledged data must be there when the store is reopened. After a lack of
//! room the store continues by itself. Control: single calls do nothing and report success.

use super::*;
use crate::medium::{Call, Failing, Fault, Tight};

/// Counts over runs of a history with one fault each.
#[derive(Debug, Default)]
struct Outcome {
    runs: u64,
    /// Runs in which an error was returned.
    errors: u64,
    /// Failed reads that the history did not notice.
    reads: u64,
    /// Stores opened after a fault.
    opened: u64,
    /// The first failed openings, or stores that lacked acknowledged data.
    bad: Vec<String>,
}

/// What a run knows about its store.
#[derive(Clone)]
struct Known {
    acknowledged: Pages,
    /// The state including the transaction whose commit failed.
    doubtful: Option<Pages>,
}

impl Known {
    fn allows(&self, found: &Pages) -> bool {
        *found == self.acknowledged || self.doubtful.as_ref() == Some(found)
    }
}

/// One transaction of a few pages in `range`; rolled back if the store gets no room. Returns the
/// error of the failed call, with the state after the transaction if that call was the commit.
fn step(
    store: &mut PageStore,
    dice: &mut Dice,
    range: u64,
    pages: &Pages,
) -> Result<Pages, (StoreError, Option<Pages>)> {
    let mut after = pages.clone();
    let tx = match store.begin() {
        Ok(tx) => tx,
        // It carries out a step of a collection.
        Err(StoreError::Full(why)) => {
            assert!(why.contains("os error"), "{why}");
            return Ok(pages.clone());
        }
        Err(error) => return Err((error, None)),
    };
    for _ in 0..=dice.below(6) {
        let (at, byte) = (dice.below(range) as u32, dice.below(250) as u8 + 1);
        let data = vec![byte; dice.below(4032) as usize + 1];
        match store.write(tx, Lpn(at), &data) {
            Ok(()) => after.insert(at, Some(data)),
            Err(StoreError::Full(why)) => {
                assert!(why.contains("os error"), "{why}");
                store.abort(tx).map_err(|error| (error, None))?;
                return Ok(pages.clone());
            }
            Err(error) => return Err((error, None)),
        };
    }
    match store.commit(tx) {
        Ok(()) => Ok(after),
        Err(StoreError::Full(why)) => {
            assert!(why.contains("os error"), "{why}");
            store.abort(tx).map_err(|error| (error, None))?;
            assert!(contents(store) == *pages, "the transaction was refused");
            Ok(pages.clone())
        }
        Err(error) => Err((error, Some(after))),
    }
}

/// Opens the store and uses it. Returns the final known state, and the error if there was one.
fn history(medium: &Failing, before: &Pages, steps: u32) -> (Known, Option<StoreError>) {
    let mut known = Known {
        acknowledged: before.clone(),
        doubtful: None,
    };
    let mut store = match PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)) {
        Ok(store) => store,
        Err(error) => return (known, Some(error)),
    };
    let mut dice = Dice(5);
    for number in 0..steps {
        // Later transactions use higher pages, so that the store must grow.
        let range = if number < steps / 2 { 60 } else { 400 };
        match step(&mut store, &mut dice, range, &known.acknowledged) {
            Ok(after) => known.acknowledged = after,
            Err((error, doubtful)) => {
                known.doubtful = doubtful;
                says_so_again_at_once(&mut store, medium, &error);
                return (known, Some(error));
            }
        }
    }
    (known, store.close().err())
}

/// Asserts that a failed store repeats its error without using the medium.
fn says_so_again_at_once(store: &mut PageStore, medium: &Failing, error: &StoreError) {
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    let calls = medium.calls().len();
    for _ in 0..3 {
        let Err(StoreError::Broken(why)) = store.begin() else {
            panic!("it goes on after: {error}");
        };
        assert!(error.to_string().contains(&why), "{why}: {error}");
        let read = store.read(None, Lpn(0), &mut [0; PageStore::PAGE_BYTES]);
        assert!(matches!(read, Err(StoreError::Broken(_))));
    }
    assert_eq!(medium.calls().len(), calls, "it asks the medium again");
}

/// Opens a store. With `is_stale` the cache of the medium is kept even if it was not made durable:
/// a control.
fn open(medium: &Recorded, is_stale: bool) -> Result<PageStore, StoreError> {
    medium.keep_cache(is_stale);
    PageStore::on(Box::new(medium.clone()), &small(Kind::Seal))
}

/// The contents of a store, if it is intact.
fn found_in(medium: &Recorded, is_stale: bool) -> Result<Pages, String> {
    let opened = open(medium, is_stale);
    let mut store = opened.map_err(|error| format!("it does not open: {error}"))?;
    let report = store.check().map_err(|error| error.to_string())?;
    if report.is_well() {
        Ok(contents(&mut store))
    } else {
        Err(format!("the check says {report:?}"))
    }
}

fn landings(seed: u64) -> [Landing; 6] {
    [
        Landing::Nothing,
        Landing::Everything,
        Landing::First(seed % 30),
        Landing::Last(seed % 30),
        Landing::Sectors(seed),
        Landing::Pages(seed),
    ]
}

/// Opens the store in each state in which a fault may have left it.
fn look(medium: &Recorded, known: &Known, seed: u64, is_stale: bool, outcome: &mut Outcome) {
    let mut judge = |how: String, left: &Recorded, known: &Known| -> Option<Pages> {
        outcome.opened += 1;
        let wrong = match found_in(left, is_stale) {
            Ok(found) if known.allows(&found) => return Some(found),
            Ok(_) => "it does not hold what was acknowledged".to_string(),
            Err(why) => why,
        };
        outcome.bad.push(format!("{how}: {wrong}"));
        None
    };
    for landing in landings(seed) {
        judge(format!("{landing:?}"), &medium.cut(landing), known);
        // No power cut follows, and the cache still shows writes that the failed sync did not make
        // durable.
        let cached = medium.snapshot();
        cached.lose(landing);
        let how = format!("cached, {landing:?}");
        let Some(mut pages) = judge(how.clone(), &cached, known) else {
            continue;
        };
        let mut dice = Dice(seed);
        let mut store = open(&cached, is_stale).expect("it has been opened");
        for _ in 0..40 {
            pages = step(&mut store, &mut dice, 60, &pages).expect("no fault");
        }
        let known = Known {
            acknowledged: pages,
            doubtful: None,
        };
        judge(
            format!("{how}, used, cut"),
            &cached.cut(Landing::Nothing),
            &known,
        );
    }
}

/// The medium of a closed store, and its contents.
fn used() -> (Vec<u8>, Pages) {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
    let (mut dice, mut pages) = (Dice(2), Pages::new());
    for _ in 0..30 {
        pages = step(&mut store, &mut dice, 60, &pages).expect("no fault");
    }
    store.close().expect("no fault");
    (medium.to_vec(), pages)
}

const STEPS: u32 = 60;

/// Makes each call that `picks` selects fail in turn.
fn fail_each(fault: Fault, every: usize, is_stale: bool, picks: impl Fn(Call) -> bool) -> Outcome {
    let (bytes, pages) = used();
    let whole = Failing::on(Recorded::with(&bytes));
    let (_, error) = history(&whole, &pages, STEPS);
    assert!(error.is_none(), "{error:?}");
    let calls = whole.calls();
    for call in [
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::Reserve,
        Call::Prepare,
    ] {
        assert!(calls.contains(&call), "the history has no {call:?}");
    }
    let mut outcome = Outcome::default();
    let picked = calls.iter().enumerate().filter(|(_, call)| picks(**call));
    for (number, _) in picked.step_by(every) {
        let medium = Failing::on(Recorded::with(&bytes));
        medium.fail(Some((number as u64, fault)));
        let (known, error) = history(&medium, &pages, STEPS);
        assert!(medium.has_failed());
        outcome.runs += 1;
        match error {
            // A lack of room fails a transaction only. The store also continues without one sector:
            // one of the two superblocks is enough.
            None => {
                assert!(
                    matches!(calls[number], Call::Reserve | Call::Read)
                        || matches!(fault, Fault::Hidden | Fault::NoRoom),
                    "the failure of call {number} is hidden"
                );
                outcome.reads += u64::from(calls[number] == Call::Read);
            }
            Some(error) => {
                outcome.errors += 1;
                let text = error.to_string();
                assert!(
                    fault == Fault::Hidden
                        || text.contains("os error")
                        || calls[number] == Call::Read && text.contains("cannot be read"),
                    "{text}"
                );
            }
        }
        medium.fail(None);
        look(
            medium.below(),
            &known,
            number as u64,
            is_stale,
            &mut outcome,
        );
    }
    outcome
}

#[test]
fn nothing_acknowledged_is_lost_whichever_call_of_the_medium_fails() {
    // FLAGSTONE_STORE_FAULTS=all fails every call and takes 20 seconds.
    let all = std::env::var("FLAGSTONE_STORE_FAULTS").is_ok_and(|which| which == "all");
    let every = if all { [1, 1, 3] } else { [5, 8, 8] };
    for (fault, every) in [Fault::Error, Fault::NoRoom, Fault::Gone]
        .into_iter()
        .zip(every)
    {
        let outcome = fail_each(fault, every, false, |_| true);
        println!(
            "{fault:?}: {} runs, {} errors, {} opened",
            outcome.runs, outcome.errors, outcome.opened
        );
        assert!(
            outcome.runs > 30
                && (outcome.errors * 10 > (outcome.runs - outcome.reads) * 9
                    || fault == Fault::NoRoom),
            "{outcome:?}"
        );
        assert_eq!(outcome.bad, [""; 0], "{fault:?}");
    }
}

#[test]
fn a_medium_that_hides_its_failures_loses_what_was_acknowledged() {
    let is_kept = |call| matches!(call, Call::Write | Call::Sync);
    let outcome = fail_each(Fault::Hidden, 3, false, is_kept);
    assert!(outcome.bad.len() as u64 > outcome.runs, "{outcome:?}");
}

#[test]
fn a_cache_that_is_believed_after_a_failed_sync_loses_what_was_acknowledged() {
    let outcome = fail_each(Fault::Error, 2, true, |call| call == Call::Sync);
    assert!(!outcome.bad.is_empty(), "{outcome:?}");
    assert!(
        outcome.bad.iter().all(|how| how.starts_with("cached")),
        "{outcome:?}"
    );
}

#[test]
fn a_store_whose_making_fails_is_made_again() {
    let whole = Failing::default();
    let (right, error) = history(&whole, &Pages::new(), 2);
    assert!(error.is_none(), "{error:?}");
    let calls = whole.calls().len() as u64;
    let mut outcome = Outcome::default();
    for number in 0..calls {
        for fault in [Fault::Error, Fault::NoRoom, Fault::Gone] {
            let medium = Failing::default();
            medium.fail(Some((number, fault)));
            let (known, error) = history(&medium, &Pages::new(), 2);
            let is_all = known.acknowledged == right.acknowledged;
            assert!(error.is_some() || is_all || fault == Fault::NoRoom);
            medium.fail(None);
            look(medium.below(), &known, number, false, &mut outcome);
        }
    }
    assert!(outcome.opened > 100);
    assert_eq!(outcome.bad, [""; 0]);
}

#[test]
fn an_uncached_opening_reads_what_is_on_the_medium() {
    let (bytes, pages) = used();
    let medium = Recorded::with(&bytes);
    // The cache shows zeros where there are pages. They never become durable.
    let from = bytes.len() as u64 / 2 / 4096 * 4096;
    let zeros = vec![0; bytes.len() - from as usize];
    medium.clone().write_at(from, &zeros).expect("no fault");
    medium.lose(Landing::Nothing);
    let reading = OpenOptions::existing().reading();
    let open = |options: &OpenOptions| PageStore::on(Box::new(medium.snapshot()), options);
    let shown = open(&reading).map(|mut store| contents(&mut store));
    assert!(!shown.is_ok_and(|shown| shown == pages));
    let mut store = open(&reading.uncached()).expect("a store");
    assert!(contents(&mut store) == pages);
}

/// Fails if a page beyond the device, for which the store finds no room to grow, breaks the store.
#[test]
fn a_page_beyond_a_store_that_cannot_grow_is_refused_and_the_store_goes_on() {
    let (medium, options) = (Tight::default(), small(Kind::Seal));
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    store.put_all(0..100, &[1; 4000]);
    store.close().expect("room");
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    assert!(store.info().resumed, "growth has to revoke tables");
    let tx = store.begin().expect("none is live");
    medium.give(Some(0), 0);
    let refused = store.write(tx, Lpn(100_000), b"far");
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    medium.give(None, 0);
    store.write(tx, Lpn(100_000), b"far").expect("room");
    store.commit(tx).expect("room");
    assert_eq!(store.page(100_000).as_deref(), Some(&b"far"[..]));
}

/// Fails if a store that found no room, and cannot be opened again, hides why it cannot.
#[test]
fn a_store_that_cannot_be_opened_again_says_why() {
    let (medium, options) = (Tight::default(), small(Kind::Seal));
    let mut store = PageStore::on(Box::new(medium.clone()), &options).expect("a store");
    store.put(1, b"one");
    medium.give(Some(0), 0);
    // After the refused write the opening begins with a sync.
    let below = medium.below();
    below.fail_at(Some(below.operations() + 1));
    let tx = store.begin().expect("none is live");
    store.write(tx, Lpn(2), b"two").expect("memory");
    assert_says(store.commit(tx), "no storage space");
    assert_says(store.begin(), "and opening it again");
}
