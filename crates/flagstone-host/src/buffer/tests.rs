//! The pool's counters, and differences between the policies.

use super::*;
use flagstone::dice::Dice;

fn pool(frames: usize, kind: PolicyKind) -> Pool<u32> {
    Pool::new(frames, kind, &Settings::new())
}

/// An access of a write-back caller. Returns whether it was a hit.
fn access(pool: &mut Pool<u32>, at: Lpn, write: bool) -> bool {
    if pool.get(at, write).is_some() {
        return true;
    }
    while pool.is_full() {
        let victim = pool.victim(&mut |_, _| true).expect("a page");
        pool.set_dirty(victim, false);
        pool.remove(victim);
    }
    pool.insert(at, at.0, write);
    false
}

#[test]
fn names_are_found_and_differ() {
    for &kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::by_name(&kind.to_string()), Some(kind));
    }
    assert_eq!(PolicyKind::by_name("mru"), None);
    let names = PolicyKind::ALL.iter().map(|kind| kind.info().name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["lru", "cflru", "cfdc", "fd-buffer", "clock"]
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let why = |kind: PolicyKind, name, value: u32| {
        let started = kind.start(8, &Settings::new().with(name, value));
        started
            .err()
            .map_or(String::new(), |error| error.to_string())
    };
    assert_eq!(why(PolicyKind::Cflru, "window", 100), "");
    let use_these = "window of cflru is `101`: use a number from 0 to 100";
    assert_eq!(why(PolicyKind::Cflru, "window", 101), use_these);
    assert!(why(PolicyKind::Cfdc, "cluster_pages", 0).contains("from 1"));
    assert!(why(PolicyKind::Clock, "rounds", 0).contains("from 1"));
    assert!(why(PolicyKind::Clock, "window", 1).contains("use rounds"));
    assert!(why(PolicyKind::Lru, "window", 1).contains("it has none"));
}

#[test]
fn evictions_are_counted_by_what_they_made_room_for_and_as_they_were_when_chosen() {
    for &kind in PolicyKind::ALL {
        let mut pool = pool(2, kind);
        access(&mut pool, Lpn(0), true);
        access(&mut pool, Lpn(1), true);
        // `access` cleans the victim before it removes it; the eviction still counts as dirty.
        access(&mut pool, Lpn(2), false);
        access(&mut pool, Lpn(3), true);
        let stats = *pool.stats();
        assert_eq!((stats.read_misses, stats.write_misses), (1, 3));
        assert_eq!(stats.evicted_for_reads, Evictions { clean: 0, dirty: 1 });
        assert_eq!(stats.evicted_for_writes.all(), 1);
        // Evictions whose frames stay free, and a page that its owner drops.
        for _ in 0..2 {
            let victim = pool.victim(&mut |_, _| true).expect("a page");
            pool.remove(victim);
        }
        pool.insert(Lpn(9), 9, false);
        assert_eq!(pool.remove(Lpn(9)), Some(9));
        assert_eq!(pool.remove(Lpn(9)), None);
        let stats = *pool.stats();
        assert_eq!((stats.evicted_ahead.all(), stats.evicted().all()), (1, 4));
        assert_eq!((stats.dropped, pool.len()), (1, 0));
        assert_eq!(pool.victim(&mut |_, _| true), None);
        assert_eq!(pool.stats().exhausted, 1);
        pool.reset_stats();
        assert_eq!(*pool.stats(), PoolStats::default());
    }
}

#[test]
fn a_chosen_page_that_is_accessed_is_no_longer_chosen() {
    let mut pool = pool(1, PolicyKind::Lru);
    access(&mut pool, Lpn(0), true);
    assert_eq!(pool.victim(&mut |_, _| true), Some(Lpn(0)));
    assert!(access(&mut pool, Lpn(0), true));
    pool.remove(Lpn(0));
    assert_eq!((pool.stats().dropped, pool.stats().evicted().all()), (1, 0));
}

#[test]
fn a_look_is_no_access() {
    let mut pool = pool(2, PolicyKind::Lru);
    access(&mut pool, Lpn(0), false);
    access(&mut pool, Lpn(1), false);
    *pool.peek_mut(Lpn(0)).expect("it is there") = 7;
    assert_eq!(pool.peek(Lpn(0)), Some(&7));
    assert!(pool.contains(Lpn(0)) && !pool.is_dirty(Lpn(0)));
    assert_eq!(pool.victim(&mut |_, _| true), Some(Lpn(0)));
    assert_eq!(pool.stats().accesses(), 2);
}

#[test]
fn whoever_writes_through_has_clean_victims_only() {
    for &kind in PolicyKind::ALL {
        let (mut pool, mut dice) = (pool(50, kind), Dice(3));
        for _ in 0..5_000 {
            let (at, write) = (Lpn(dice.skewed(200)), dice.one_in(2));
            access(&mut pool, at, write);
            pool.set_dirty(at, false);
        }
        let evicted = pool.stats().evicted();
        assert!(
            evicted.dirty == 0 && evicted.clean > 1_000,
            "{kind}: {evicted:?}"
        );
        assert_eq!(pool.check(), Ok(()));
    }
}

#[test]
fn without_steal_nothing_is_left_when_all_pages_are_dirty_or_pinned() {
    for &kind in PolicyKind::ALL {
        let mut pool = pool(8, kind);
        for page in 0..8 {
            access(&mut pool, Lpn(page), page != 5);
        }
        let is_live = |at: Lpn| at != Lpn(5);
        assert_eq!(
            pool.victim(&mut |at, _| !is_live(at)),
            Some(Lpn(5)),
            "{kind}"
        );
        pool.pin(Lpn(5));
        pool.pin(Lpn(5));
        pool.unpin(Lpn(5));
        assert_eq!(pool.pins(Lpn(5)), 1);
        assert_eq!(pool.victim(&mut |at, _| !is_live(at)), None, "{kind}");
        assert!(pool.stats().passed_pinned > 0 && pool.stats().passed_refused > 0);
    }
}

#[test]
#[should_panic(expected = "page 3 is pinned")]
fn a_pinned_page_cannot_be_removed() {
    let mut pool = pool(2, PolicyKind::Lru);
    access(&mut pool, Lpn(3), false);
    pool.pin(Lpn(3));
    pool.remove(Lpn(3));
}

#[test]
#[should_panic(expected = "the pool is full: evict before page 4")]
fn a_full_pool_takes_no_page() {
    let mut pool = pool(1, PolicyKind::Clock);
    access(&mut pool, Lpn(3), false);
    pool.insert(Lpn(4), 4, false);
}

/// Number of hot pages left after a scan: 100 frames, 40 pages accessed five times each, then as
/// many other pages as there are frames, once each.
fn left_after_scan(kind: PolicyKind, hot_write: bool) -> usize {
    let mut pool = pool(100, kind);
    for round in 0..5 {
        for page in 0..40 {
            access(&mut pool, Lpn(page), hot_write && round == 0);
        }
    }
    for page in 1_000..1_100 {
        access(&mut pool, Lpn(page), false);
    }
    (0..40).filter(|&page| pool.contains(Lpn(page))).count()
}

#[test]
fn a_scan_sweeps_out_what_a_policy_does_not_protect() {
    let left = |hot_write| {
        PolicyKind::ALL
            .iter()
            .map(move |&kind| left_after_scan(kind, hot_write))
    };
    // Order of the registry: lru, cflru, cfdc, fd-buffer, clock.
    // A read-only hot set: only the clock's counts distinguish it from the scan.
    assert_eq!(left(false).collect::<Vec<_>>(), [0, 0, 0, 0, 40]);
    // A written hot set: policies that evict clean pages first keep it. CFLRU's window has ten
    // pages: nine of them stay, and the scan passes through the tenth place.
    assert_eq!(left(true).collect::<Vec<_>>(), [0, 9, 40, 40, 40]);
}

#[test]
fn policies_for_flash_write_less_than_lru() {
    let run = |kind| {
        let (mut pool, mut dice) = (pool(200, kind), Dice(11));
        for _ in 0..60_000 {
            let at = dice.skewed(1_000);
            access(&mut pool, Lpn(at), at.is_multiple_of(3) && dice.one_in(2));
        }
        pool.stats().evicted().dirty
    };
    let lru = run(PolicyKind::Lru);
    for kind in [PolicyKind::Cflru, PolicyKind::Cfdc, PolicyKind::FdBuffer] {
        let writes = run(kind);
        assert!(writes < lru, "{kind}: {writes}, lru: {lru}");
    }
}
