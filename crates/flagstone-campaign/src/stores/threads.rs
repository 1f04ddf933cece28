//! Several threads commit to one store while copies of its medium are cut, as by a power cut or a
//! kill. Commits acknowledged before a copy must be there, and a prefix of the later ones in commit
//! order. Not a repeatable campaign: the order of threads varies.

use super::kill::Mistakes;
use super::kill_tables::{Rows, commit};
use super::lie::{Lie, Lying};
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::tables::Store;
use flagstone_store::{OpenOptions, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: usize = 8;
const PAGES_PER_BLOCK: u32 = 32;

/// Results of the test.
#[derive(Debug, Default)]
struct Seen {
    copies: u64,
    /// Copies with more commits than were acknowledged when they were made.
    ahead: u64,
    acknowledged: u64,
    /// The first violation.
    wrong: Option<String>,
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pages_per_block = PAGES_PER_BLOCK;
    options
}

/// Lets threads commit until `copies` copies were cut and opened, or one was wrong.
fn run(lie: Lie, mistakes: Mistakes, copies: u64, seed: u64) -> Result<Seen, StoreError> {
    let medium = Recorded::default();
    let lying = Lying::new(medium.clone(), lie, PAGES_PER_BLOCK);
    let store = Store::on(Box::new(lying), &options())?;
    let (acknowledged, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    // Commits are acknowledged out of order, but a durable commit implies all earlier ones.
    let say = |number| {
        acknowledged.fetch_max(number, Ordering::SeqCst);
        !ends.load(Ordering::SeqCst)
    };
    let (seen, ended) = std::thread::scope(|scope| {
        let clients = scope.spawn(|| commit(&store, THREADS, mistakes, &say));
        let idler = scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                store.idle(4)?;
                std::thread::yield_now();
            }
            Ok::<(), StoreError>(())
        });
        let seen = cut_copies(&medium, &acknowledged, copies, seed);
        ends.store(true, Ordering::SeqCst);
        let clients = clients.join().expect("no thread panics here");
        let idler = idler.join().expect("no thread panics here");
        (seen, clients.and(idler))
    });
    ended?;
    let mut seen = seen;
    seen.acknowledged = acknowledged.into_inner();
    Ok(seen)
}

/// Cuts copies of a medium, one by one, and opens what is left.
fn cut_copies(medium: &Recorded, acknowledged: &AtomicU64, copies: u64, seed: u64) -> Seen {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let (mut rows, mut last, mut seen) = (Rows::default(), 0, Seen::default());
    while seen.copies < copies {
        let least = acknowledged.load(Ordering::SeqCst);
        if least == 0 {
            std::thread::yield_now();
            continue;
        }
        let copy = medium.snapshot();
        let landing = match dice.random_range(0..3) {
            // All writes of a killed process are there.
            0 => Landing::Everything,
            _ => Landing::draw(copy.pending(), dice.random_range(0..8), dice.random()),
        };
        (last + 1..=least).for_each(|number| rows.follow(number));
        last = least;
        let left = copy.cut(landing);
        seen.copies += 1;
        let opened = Store::on(Box::new(left), &options());
        let found = opened.and_then(|store| rows.clone().verify_in(&store, last, least));
        match found {
            Ok(Ok(found)) => seen.ahead += u64::from(found > least),
            Ok(Err(what)) => seen.wrong = Some(what),
            Err(error) => seen.wrong = Some(error.to_string()),
        }
        if let Some(what) = &mut seen.wrong {
            *what = format!("copy {}, {landing:?}: {what}", seen.copies);
            break;
        }
    }
    seen
}

#[test]
fn what_was_acknowledged_to_several_threads_is_in_every_copy_of_the_medium() {
    let seen = run(Lie::None, Mistakes::default(), 60, 5).expect("the store works");
    assert_eq!(seen.wrong, None, "{seen:?}");
    assert!(seen.acknowledged > 100 && seen.ahead > 0, "{seen:?}");
}

#[test]
fn a_medium_that_does_not_wait_and_commits_that_are_told_early_are_found_out() {
    let seen = run(Lie::Syncs, Mistakes::default(), 2_000, 6).expect("the store works");
    assert!(seen.wrong.is_some(), "{seen:?}");
    let early = Mistakes {
        early: true,
        ..Mistakes::default()
    };
    let seen = run(Lie::None, early, 2_000, 7).expect("the store works");
    assert!(seen.wrong.is_some(), "{seen:?}");
}
