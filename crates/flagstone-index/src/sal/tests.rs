//! Long histories on small pages that exercise everything the index can do.

use crate::model::{History, Mirrored, blank, figure};
use crate::{Index, IndexKind, Settings};
use flagstone::dice::Dice;

fn tiny() -> Settings {
    IndexKind::Sal.info().tiny()
}

fn history(settings: Settings) -> History {
    History::of(IndexKind::Sal, settings)
}

#[test]
fn agrees_with_a_map_whatever_is_switched_off() {
    for (name, value) in [
        ("group", "1"),
        ("group", "4"),
        ("split", "lazy"),
        ("split", "eager"),
        ("append", "new-page"),
        ("virtual_split", "false"),
        ("resize", "false"),
        ("load_factor", "1.0"),
        ("memory", "16384"),
        ("value_bytes", "1"),
    ] {
        history(tiny().with(name, value)).assert_agrees(2);
    }
}

/// Plays turns of changes and searches, each with its percentage of searches.
fn play(settings: &Settings, seed: u64, turns: &[(u64, u64, u64)]) -> Box<dyn Index> {
    let mut both = Mirrored::open(IndexKind::Sal, settings, 256).expect("a blank store");
    let mut dice = Dice(seed);
    for &(operations, keys, searches) in turns {
        for i in 0..operations {
            let (key, value) = (dice.below(keys), dice.below(1 << 40));
            let done = if dice.below(100) < searches {
                both.get(key)
            } else {
                both.insert(key, value)
            };
            done.unwrap_or_else(|what| panic!("operation {i}: {what}"));
            if i % 997 == 0 {
                let checked = both.index.check();
                checked.unwrap_or_else(|what| panic!("operation {i}: {what}"));
            }
        }
    }
    let keys = turns.iter().map(|turn| turn.1).max().unwrap_or(0);
    both.compare(0..keys).expect("whole");
    // Searched regions may be merged.
    both.index.check().expect("whole");
    both.index
}

#[test]
fn everything_happens_in_a_history_that_changes_its_mind() {
    let settings = tiny().with("memory", 8192).with("log_buffer", 0.05);
    let settings = settings.with("ut", 3.0);
    let turns = [
        (6000, 4000, 10),
        (4000, 4000, 90),
        (6000, 8000, 30),
        (9000, 300, 5),
    ];
    let index = play(&settings, 3, &turns);
    for name in [
        "flushes",
        "merges_full",
        "merges_coin",
        "lazy_splits",
        "log_pages_read",
        "filters_wrong",
        "virtual_splits",
    ] {
        assert!(
            figure(index.as_ref(), name) > 0.0,
            "{name}: {:?}",
            index.figures()
        );
    }
}

#[test]
fn the_log_buffer_grows_where_searches_cause_merges_and_shrinks_again() {
    let settings = tiny().with("memory", 8192).with("log_buffer", 0.03);
    let settings = settings.with("ut", 2.5).with("alpha", 1.0);
    let searched = play(&settings, 3, &[(4000, 250, 70)]);
    assert!(figure(searched.as_ref(), "log_buffer_grown") > 0.0);
    let settled = figure(searched.as_ref(), "log_buffer_pages");
    let index = play(&settings, 3, &[(4000, 250, 70), (8000, 250, 0)]);
    let shrunk = figure(index.as_ref(), "log_buffer_shrunk");
    assert!(shrunk > 0.0, "{settled} {:?}", index.figures());
}

/// D4, D5, D8: logs fill the last page of a region, batches stop doubling, and buckets stay.
#[test]
fn regions_fill_pages_and_batches_are_bound_and_buckets_stay() {
    let settings = tiny().with("memory", 8192).with("split", "lazy");
    let (mut index, mut now) = blank(super::start, &settings, 256, 1 << 16);
    for key in 0..20 {
        now = index.insert(now, key, key).expect("insert");
    }
    now = index.flush(now).expect("flush");
    let used = figure(&index, "pages_used");
    now = index.update(now, 3, 4).expect("update");
    now = index.flush(now).expect("flush");
    let after = figure(&index, "pages_used");
    assert_eq!(after, used, "D4: no new log page for one more log");
    for key in 0..3000 {
        now = index.insert(now, key, key).expect("insert");
    }
    let runs: Vec<u32> = (0..index.groups.len()).map(|x| index.batch(x).2).collect();
    assert!(
        runs.len() > 64 && runs.iter().all(|&groups| groups <= 4),
        "D5"
    );
    let groups = index.groups.len();
    for key in 0..3000 {
        now = index.delete(now, key).expect("delete");
    }
    index.flush(now).expect("flush");
    assert_eq!(index.groups.len(), groups, "D8");
    index.check().expect("whole");
}

/// D3: with virtual splits a search of a whole index reads one page, wherever its bucket is in the
/// cycle; without them it may read more.
#[test]
fn a_search_reads_one_page_whether_its_bucket_overflows_or_not() {
    for (switch, most) in [("true", 1.01), ("false", 2.0)] {
        let settings = Settings::new().with("group", 4).with("memory", 8192);
        let settings = settings.with("virtual_split", switch);
        let (mut index, mut now) = blank(super::start, &settings, 1024, 1 << 16);
        let keys = 5000;
        for key in 0..keys {
            now = index.insert(now, key, key).expect("insert");
        }
        for set in 0..index.groups.len() {
            if index.groups.leads(set) {
                now = index.merge(now, set).expect("merge");
            }
        }
        index.check().expect("whole");
        index.reset_stats();
        for key in (0..keys).map(|i| i * 1237 % keys) {
            (_, now) = index.get(now, key + keys).expect("get");
        }
        let accesses = index.stats().pool.accesses() as f64 / keys as f64;
        assert!(
            (accesses <= most) && (switch == "true") == (accesses < 1.01),
            "{accesses}"
        );
    }
}

/// D2: the cost of a merge, in additional reads of searches while there is a region.
#[test]
fn a_merge_is_rented_for_what_it_reads_and_writes() {
    let settings = Settings::new().with("memory", 1 << 20).with("speedup", 8);
    let settings = settings.with("write_read", 4).with("load_factor", 0.75);
    let (mut index, mut now) = blank(super::start, &settings, 4096, 1 << 16);
    // A region of two pages and a group of 16: 3 + 16 (1 + p_u) reads, 16 writes of half a read.
    let reads = 3.0 + 16.0 * (1.0 + index.budget.overflow_bound);
    assert!((index.budget.overflow_bound - 0.345).abs() < 0.001);
    assert_eq!(
        f64::from(index.rental(0, 2)),
        ((reads + 8.0) / 1.02_f64).round()
    );
    // Groups that wait for their share are written as well.
    let mut key = 0;
    while index.groups.size(0) < 2 {
        now = index.insert(now, key, 1).expect("insert");
        key += 1;
    }
    assert_eq!(
        f64::from(index.rental(0, 2)),
        ((reads + 16.0) / 1.02_f64).round()
    );
}

/// D7: overflow pages are written with their group, in one request. D9: records are sorted by hash.
#[test]
fn a_merge_writes_each_group_with_its_overflow_pages_in_one_request() {
    let settings = Settings::new().with("group", 4).with("memory", 1 << 16);
    let settings = settings.with("split", "lazy").with("log_buffer", 0.5);
    let (mut index, mut now) = blank(super::start, &settings, 512, 1 << 16);
    // Two groups of 4 buckets of 31 records each, and a load factor that adds no group.
    let keys = 180;
    for key in 0..keys {
        now = index.insert(now, key, key).expect("insert");
    }
    // As many more keys of one set, so that its buckets overflow.
    let more = (keys..).filter(|&key| index.set_of(super::hash(key)) == 0);
    for key in more.take(120).collect::<Vec<_>>() {
        index.limit = i64::MAX;
        now = index.insert(now, key, key).expect("insert");
    }
    let before = index.stats();
    index.merge(now, 0).expect("merge");
    let (after, overflows) = (index.stats(), index.overflows.len() as u64);
    assert!(overflows > 0, "{:?}", index.figures());
    assert_eq!(after.coarse_writes - before.coarse_writes, 1, "D7");
    assert!(
        after.coarse_pages - before.coarse_pages >= 4 + overflows,
        "D7"
    );
    for bucket in 0..4 {
        let at = index.bucket_page(bucket);
        let page = index.cache.inspect(at).expect("a page").to_vec();
        let hashes = index.shape.records(&page).map(|(key, _)| super::hash(key));
        assert!(hashes.is_sorted(), "D9");
    }
}

/// D4: regions are full sooner where every flush takes pages of its own.
#[test]
fn regions_are_full_sooner_where_flushes_share_no_page() {
    let full = ["fill", "new-page"].map(|append| {
        let settings = tiny().with("memory", 8192).with("append", append);
        let settings = settings.with("split", "lazy");
        let (mut index, mut now) = blank(super::start, &settings, 512, 1 << 16);
        for key in 0..3000 {
            now = index.insert(now, key, key).expect("insert");
        }
        index.check().expect("whole");
        figure(&index, "merges_full")
    });
    assert!(full[1] > full[0], "{full:?}");
}

/// With eager merges, a flush merges all log regions.
#[test]
fn an_eager_flush_leaves_no_log_region() {
    for (split, none) in [("eager", true), ("lazy", false)] {
        let settings = tiny().with("memory", 8192).with("split", split);
        let (mut index, mut now) = blank(super::start, &settings, 512, 1 << 16);
        for key in 0..3000 {
            now = index.insert(now, key, key).expect("insert");
        }
        now = index.flush(now).expect("flush");
        assert_eq!(figure(&index, "log_regions") == 0.0, none, "{split}");
        index.check().expect("whole");
        assert_eq!(index.get(now, 77).expect("get").0, Some(77));
    }
}
