//! Tests of the Bw-delta tree.

use super::super::model::{History, blank, figure};
use super::super::{IndexKind, MemStore};
use super::*;
use flagstone::dice::Dice;

fn tiny() -> Settings {
    INFO.tiny()
}

fn history(memory: u64) -> History {
    History::of(IndexKind::BwDelta, tiny().with("memory", memory))
}

#[test]
fn agrees_with_a_map_with_hardly_any_memory() {
    history(6000).assert_agrees(4);
}

#[test]
fn agrees_with_a_map_with_some_memory() {
    history(40_000).assert_agrees(4);
}

/// D2.
#[test]
fn all_memory_is_within_the_setting_if_the_map_is_charged() {
    for is_charged in [false, true] {
        let settings = tiny().with("memory", 200_000);
        let settings = settings.with("map_charged", is_charged);
        let (mut index, mut now) = blank(open, &settings, 256, 1 << 16);
        for key in 0..20_000 {
            now = index.insert(now, key * 7919 % 20_000, key).expect("room");
        }
        index.check().expect("whole");
        let all: u64 = index.memory().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(all <= 200_000, is_charged, "{:?}", index.memory());
    }
}

#[test]
fn with_a_charged_map_and_little_memory_it_agrees_with_a_map() {
    for memory in [6000, 40_000] {
        let mut history = history(memory);
        history.settings.set("map_charged", true);
        history.assert_agrees(2);
    }
}

#[test]
fn agrees_with_a_map_with_other_chains_and_values() {
    for (chain, value_bytes) in [(1, 8), (2, 1), (8, 4)] {
        let mut history = history(12_000);
        history.settings.set("chain_max", chain);
        history.settings.set("value_bytes", value_bytes);
        history.assert_agrees(2);
    }
}

#[test]
fn agrees_with_a_map_with_nodes_as_they_are_by_default() {
    let history = History {
        settings: Settings::new().with("memory", 100_000),
        page_bytes: 1024,
        operations: 20_000,
        keys: 8000,
        ..history(0)
    };
    history.assert_agrees(1);
}

#[test]
fn everything_that_can_happen_happens() {
    let (mut index, mut now) = blank(open, &tiny().with("memory", 12_000), 256, 1 << 16);
    let mut dice = Dice(5);
    for round in 0..3 {
        for _ in 0..3000 {
            let key = dice.below(2000);
            now = index.insert(now, key, round + 1).expect("room");
            now = index.get(now, dice.below(2000)).expect("a good store").1;
        }
        let bytes: u64 = index.memory().iter().take(4).map(|(_, bytes)| bytes).sum();
        assert!(bytes <= 12_000, "{bytes} bytes in use");
        for _ in 0..4000 {
            now = index.delete(now, dice.below(2000)).expect("a good store");
        }
        assert_eq!(index.check(), Ok(()));
    }
    for name in [
        "blind_deltas",
        "delta_hits",
        "loads",
        "consolidations",
        "splits",
        "merges",
        "redistributions",
        "bases_flushed",
        "deltas_flushed",
        "evictions",
        "segments_sealed",
        "segments_cleaned",
        "nodes_relocated",
        "height",
    ] {
        assert!(figure(index.as_ref(), name) > 0.0, "no {name}");
    }
    assert!(figure(index.as_ref(), "fragments_read") > 1.2 * figure(index.as_ref(), "loads"));
    let stats = index.stats();
    assert!(stats.coarse_writes > 0 && stats.coarse_pages > stats.writes / 2);
    // All leaves are evicted except those waiting for a delta before consolidation.
    let nodes = figure(index.as_ref(), "nodes");
    for key in 0..2000 {
        now = index.insert(now, key, 1).expect("room");
    }
    assert!(figure(index.as_ref(), "nodes") > 3.0 * nodes);
    for key in 0..2000 {
        now = index.delete(now, key).expect("a good store");
    }
    assert_eq!(index.check(), Ok(()));
    assert!(figure(index.as_ref(), "nodes") < 1.5 * nodes, "{nodes}");
}

/// A tree whose leaves are on flash only, and one of their keys.
fn cold() -> (Box<dyn Index>, Nanos) {
    let settings = Settings::new().with("memory", 1 << 20);
    let (mut index, mut now) = blank(open, &settings, 4096, 4096);
    for key in 0..20_000 {
        now = index.insert(now, key * 10, 1).expect("room");
    }
    now = index.flush(now).expect("a good store");
    let (mut index, mut now) = open(index.into_store(), &settings, now).expect("what was settled");
    // Loads the inner nodes into memory.
    now = index.insert(now, 30_000, 1).expect("room");
    index.reset_stats();
    (index, now)
}

#[test]
fn seven_deltas_read_nothing_and_the_eighth_consolidates() {
    let (mut index, mut now) = cold();
    for i in 1..=7 {
        now = index.insert(now, 10_000 + i, 2).expect("room");
    }
    assert_eq!(index.stats().reads, 0);
    assert_eq!(figure(index.as_ref(), "blind_deltas"), 7.0);
    // A delta answers this from memory.
    assert_eq!(index.get(now, 10_003).expect("a good store").0, Some(2));
    assert_eq!(index.stats().reads, 0);
    assert_eq!(figure(index.as_ref(), "consolidations"), 0.0);
    index.insert(now, 10_008, 2).expect("room");
    assert_eq!(figure(index.as_ref(), "consolidations"), 1.0);
    assert_eq!(figure(index.as_ref(), "loads"), 1.0);
    assert!((1..=2).contains(&index.stats().reads));
    assert_eq!(index.check(), Ok(()));
}

/// D1: a leaf in memory has its deltas applied, but they still count.
#[test]
fn deltas_of_a_leaf_in_memory_count_as_a_chain() {
    let (mut index, mut now) = cold();
    now = index.get(now, 10_000).expect("a good store").1;
    for i in 1..=7 {
        now = index.insert(now, 10_000 + i, 2).expect("room");
    }
    assert_eq!(figure(index.as_ref(), "blind_deltas"), 0.0);
    assert_eq!(figure(index.as_ref(), "consolidations"), 0.0);
    index.insert(now, 10_008, 2).expect("room");
    assert_eq!(figure(index.as_ref(), "consolidations"), 1.0);
    assert_eq!(index.check(), Ok(()));
}

/// D3: a cleaned node is one base, whatever it was before.
#[test]
fn a_node_that_is_cleaned_is_consolidated() {
    let settings = Settings::new().with("memory", 1 << 20);
    let (index, mut now) = cold();
    let store = index.into_store();
    let (mut index, done) = start(store, &settings, now).expect("what was settled");
    now = done;
    for i in 1..=3 {
        now = index.insert(now, 10_000 + i, i).expect("room");
        now = index.flush(now).expect("a good store");
    }
    let (leaf, done) = index.descend(10_000, now).expect("a good store");
    assert_eq!(index.entry(leaf).chain, 3);
    now = index.relocate(leaf, 0, done).expect("room");
    assert_eq!(index.entry(leaf).chain, 0);
    let link = index.entry(leaf).link;
    let bytes = index
        .log
        .inspect(&mut index.cache, link)
        .expect("a fragment");
    assert!(Head::parse(&bytes).expect("a head").is_base);
    assert_eq!(index.get(now, 10_002).expect("a good store").0, Some(2));
    assert_eq!(index.check(), Ok(()));
}

/// D4: too small leaves merge at consolidation, inner nodes at once: after each operation all of
/// them have a valid size.
#[test]
fn leaves_are_mended_late_and_inner_nodes_at_once() {
    let settings = tiny().with("memory", 60_000);
    let (mut index, mut now) = blank(start, &settings, 256, 1 << 14);
    let (keys, least, most) = (400, index.node_min, index.node_max);
    let mut small_leaves = 0;
    for key in (0..keys).chain(keys..2 * keys) {
        now = if key < keys {
            index.insert(now, key, 1).expect("room")
        } else {
            index.delete(now, key - keys).expect("a good store")
        };
        for node in &index.nodes {
            let live = index.map[node.number as usize].at != NONE && !node.records.is_empty();
            let right = (least..=most).contains(&node.records.len());
            if live && node.number != index.root && !right {
                assert_eq!(node.level, 0, "after {key}: inner node {}", node.number);
                small_leaves += 1;
            }
        }
    }
    assert!(small_leaves > 0 && index.counts.merges > 0);
    assert_eq!(index.check(), Ok(()));
}

/// D7: an update is one delta, or two as in the code that the paper refers to.
#[test]
fn an_update_is_a_delta_or_a_pair() {
    for (how, consolidations) in [("blind", 0.0), ("pair", 1.0)] {
        let settings = Settings::new().with("memory", 1 << 20);
        let (index, now) = cold();
        let settings = settings.with("update", how);
        let (mut index, mut now) = open(index.into_store(), &settings, now).expect("settled");
        for i in 1..=4 {
            now = index.update(now, 10_000, i).expect("room");
        }
        assert_eq!(figure(index.as_ref(), "consolidations"), consolidations);
        assert_eq!(index.get(now, 10_000).expect("a good store").0, Some(4));
        assert_eq!(index.check(), Ok(()));
    }
}

#[test]
fn accesses_are_counted_by_leaf() {
    let (mut index, mut now) = cold();
    now = index.insert(now, 10_001, 2).expect("room");
    for _ in 0..2 {
        now = index.get(now, 10_001).expect("a good store").1;
        now = index.get(now, 10_000).expect("a good store").1;
    }
    index.insert(now, 10_002, 2).expect("room");
    let pool = index.stats().pool;
    assert_eq!((pool.read_hits, pool.read_misses), (3, 1));
    assert_eq!((pool.write_hits, pool.write_misses), (1, 1));
}

#[test]
fn a_search_reads_every_fragment_of_a_leaf() {
    let settings = Settings::new().with("memory", 1 << 20);
    let (mut index, mut now) = cold();
    for round in 1..=4 {
        now = index.insert(now, 10_000 + round, round).expect("room");
        now = index.flush(now).expect("a good store");
        (index, now) = open(index.into_store(), &settings, now).expect("what was settled");
    }
    now = index.insert(now, 30_001, 1).expect("room");
    index.reset_stats();
    assert_eq!(index.get(now, 10_000).expect("a good store").0, Some(1));
    // A base and four fragments of one delta each. The last ones may be in the log's buffer.
    assert_eq!(figure(index.as_ref(), "fragments_read"), 5.0);
    assert_eq!(index.check(), Ok(()));
}

/// D5: with memory for 4 % of the data, that is about two deltas per leaf.
#[test]
fn leaves_with_the_most_deltas_are_written_first() {
    let settings = Settings::new().with("memory", 64_000);
    let (mut index, mut now) = blank(open, &settings, 1024, 1 << 16);
    let mut dice = Dice(3);
    for i in 0..150_000 {
        if i == 100_000 {
            index.reset_stats();
        }
        now = index.insert(now, dice.next(), 1).expect("room");
    }
    let written = figure(index.as_ref(), "deltas_flushed");
    assert!(written > 1000.0, "{written}");
    // Written in order of arrival, nearly every fragment would have one delta.
    assert!(written < 50_000.0 / 2.0, "{written}");
    // D6: a leaf that was read is not read again before eight more deltas.
    let loads = figure(index.as_ref(), "loads");
    assert!(loads < 1.5 * 50_000.0 / 8.0, "{loads}");
    assert_eq!(index.check(), Ok(()));
}

#[test]
fn only_deltas_that_are_not_on_flash_go_there() {
    let (mut index, mut now) = cold();
    let bytes = |index: &dyn Index| figure(index, "live_bytes");
    let mut before = bytes(index.as_ref());
    for deltas in 1..=3 {
        for i in 0..deltas {
            now = index
                .insert(now, 20_001 + deltas * 10 + i, 1)
                .expect("room");
        }
        now = index.flush(now).expect("a good store");
        if deltas == 1 {
            // The delta that loaded the inner nodes was written as well.
            before += (bw_fragment::SIZE + 17) as f64;
        }
        let grown = bytes(index.as_ref()) - before;
        assert_eq!(grown, (bw_fragment::SIZE + 17 * deltas as usize) as f64);
        before += grown;
    }
    assert_eq!(figure(index.as_ref(), "deltas_flushed"), 4.0);
    assert_eq!(figure(index.as_ref(), "bases_flushed"), 0.0);
    assert_eq!(index.check(), Ok(()));
}

/// D2: the map is in memory, and a settle writes only its changed pages.
#[test]
fn a_settle_writes_what_changed_in_structure_and_the_map_in_part() {
    let settings = Settings::new().with("memory", 1 << 20);
    let (mut index, mut now) = blank(open, &settings, 512, 1 << 16);
    let mut dice = Dice(9);
    for _ in 0..20_000 {
        now = index.insert(now, dice.next(), 1).expect("room");
    }
    now = index.settle(now).expect("a good store");
    let map = figure(index.as_ref(), "nodes") * bw_entry::SIZE as f64;
    index.reset_stats();
    now = index.insert(now, 77, 1).expect("room");
    index.settle(now).expect("a good store");
    assert!(
        map > 4.0 * 512.0,
        "a map of {map} bytes is too small for the test"
    );
    assert!(index.stats().writes <= 3, "{} pages", index.stats().writes);
}

#[test]
fn a_log_in_a_small_store_is_cleaned_and_a_full_one_says_so() {
    let (mut index, mut now) = blank(open, &tiny().with("memory", 40_000), 256, 400);
    let mut dice = Dice(11);
    for _ in 0..30_000 {
        now = index
            .insert(now, dice.below(600), 1)
            .expect("it is cleaned");
    }
    assert_eq!(index.check(), Ok(()));
    let mut key = 1000;
    let error = loop {
        match index.insert(now, key, 1) {
            Ok(done) => (key, now) = (key + 1, done),
            Err(error) => break error,
        }
        assert!(key < 100_000, "400 pages never fill");
    };
    assert_eq!(error, IndexError::Full { pages: 400 });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (settings, word) in [
        (Settings::new().with("buffer", "clock"), "buffer"),
        (Settings::new().with("node_min", 100), "node_min"),
        (
            Settings::new().with("node_max", 4000).with("memory", 0),
            "segment",
        ),
    ] {
        let store = Box::new(MemStore::new(512, 100));
        let error = open(store, &settings, Nanos::ZERO).err().expect("refused");
        assert!(error.to_string().contains(word), "{error}");
    }
}

/// A tree resumed from flash, with no leaf in memory.
fn resumed() -> (BwDelta, Nanos) {
    let (index, now) = cold();
    let settings = Settings::new().with("memory", 1 << 20);
    start(index.into_store(), &settings, now).expect("what was settled")
}

/// Metadata counts are checked before they determine the size of a buffer.
#[test]
fn damaged_metadata_is_an_error_before_it_takes_memory() {
    let resume = |change: &dyn Fn(&mut [u8])| {
        let (mut index, now) = resumed();
        let mut own = index.metadata();
        change(&mut own);
        index.map.truncate(1);
        index.unused.clear();
        index.resume(&own, now).map(drop)
    };
    assert_eq!(resume(&|_| {}), Ok(()));
    let fields = [
        bw_head::ROOT,
        bw_head::NODES,
        bw_head::SEGMENTS,
        bw_head::SEGMENT_PAGES,
        bw_head::CURRENT,
        bw_head::FILL,
    ];
    for field in fields {
        for value in [u32::MAX, 1 << 30, 1 << 20] {
            let damaged = resume(&|own| put(own, field.clone(), value.into()));
            let is_error = matches!(damaged, Err(IndexError::Damaged { .. }));
            assert!(is_error, "{field:?} {value}: {damaged:?}");
        }
    }
    let damaged = resume(&|own| {
        let first = own.len() - bw_segment::SIZE;
        put(&mut own[first..], bw_segment::FIRST, u32::MAX.into());
    });
    assert!(
        matches!(damaged, Err(IndexError::Damaged { .. })),
        "{damaged:?}"
    );
}

/// Fails if log positions are confused with store positions: the log begins after other pages.
#[test]
fn a_damaged_fragment_is_an_error_of_its_page() {
    let (mut index, now) = resumed();
    let (leaf, now) = index.descend(10, now).expect("a good store");
    let mut page = vec![0; index.cache.page_bytes()];
    let first = index.entry(leaf).link.at() % page.len();
    let store = index.cache.store();
    let is_its = |at: &Lpn| {
        store.read(now, *at, &mut page).expect("a good store");
        let head = Head::parse(&page[first..]);
        head.is_some_and(|head| (head.node, head.level, head.is_base) == (leaf, 0, true))
    };
    let ruined = (0..4096).map(Lpn).find(is_its).expect("its base");
    store.write(now, &[(ruined, &[])]).expect("a page");
    let found = index.get(now, 10);
    let is_of_page = matches!(found, Err(IndexError::Damaged { at, .. }) if at == ruined);
    assert!(is_of_page, "{found:?}, not of page {ruined}");
}

/// A link outside of the log, as in a damaged fragment or entry.
#[test]
fn a_damaged_link_is_an_error() {
    for at in [1 << 40, 3_000_000_000, 255] {
        let (mut index, now) = resumed();
        let (leaf, now) = index.descend(10, now).expect("a good store");
        index.map[leaf as usize].link = Link(at << 20 | 0xf_ffff);
        let found = index.get(now, 10);
        assert!(
            matches!(found, Err(IndexError::Damaged { .. })),
            "{found:?}"
        );
    }
}
