//! Consistency of the model, and comparison with the recording.

use super::shape::{Reads, Shape, side_by_side};
use super::*;
use crate::workload::{Rid, Verb};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Small pages and few rows, so that all of them fill up, split and move.
fn small() -> PagesOptions {
    let scale = Scale {
        warehouses: 2,
        customers: 60,
        items: 200,
    };
    PagesOptions {
        page_bytes: 2048,
        ..PagesOptions::new(scale, 7)
    }
}

/// The small database with changed options.
fn with(change: impl FnOnce(&mut PagesOptions)) -> Result<Pages, PagesError> {
    let mut options = small();
    change(&mut options);
    Pages::new(&options)
}

const CLIENTS: u32 = 5;

/// Plays transactions one by one and reports inconsistencies: records that are read or changed must
/// exist, inserted ones must not, and rows must fit. `forget` plays rolled back transactions as if
/// they had committed.
fn play(options: &PagesOptions, transactions: u64, forget: bool) -> Result<(), String> {
    let mut pages = Pages::new(options).unwrap();
    let loaded = Loaded::of(&pages);
    let mut there: FxHashMap<Rid, bool> = FxHashMap::default();
    let mut transaction = Transaction::default();
    let (mut rolled_back, mut moved) = (0, 0);
    for number in 0..transactions {
        let client = (number % u64::from(CLIENTS)) as u32;
        pages
            .deal(client, number % 11 == 3, &mut transaction)
            .unwrap();
        assert_eq!(transaction.number, number);
        let mut undo = Vec::new();
        for (n, access) in transaction.accesses.iter().enumerate() {
            let at = access.at;
            let exists = there.get(&at).copied().unwrap_or_else(|| loaded.has(at));
            let relation = pages.relation_of(at.page);
            let link =
                !relation.is_heap() && u32::from(at.slot) == relation.per_page(options.page_bytes);
            let inner = loaded.inner(&pages, at.page);
            let right = match access.verb {
                Verb::Touch => inner,
                Verb::Read | Verb::Update | Verb::Expire => (exists || link) && !inner,
                Verb::Delete => false,
                Verb::Insert => !exists || inner,
            };
            if !right {
                return Err(format!("{number}: {} {access:?} at {n}", relation.name()));
            }
            if access.writes() && !link && !inner {
                undo.push((at, exists));
                there.insert(at, access.verb != Verb::Expire);
            }
            moved += u64::from(access.verb == Verb::Expire && relation != Relation::NewOrder);
        }
        if !transaction.commits {
            rolled_back += 1;
            if !forget {
                there.extend(undo.into_iter().rev());
            }
        }
    }
    assert!(
        rolled_back > transactions / 20 && moved > transactions / 20,
        "little happened"
    );
    loaded.fits(&pages, &there)
}

/// Which records the load wrote, from the page counters at the start.
struct Loaded {
    slots: Vec<u16>,
    options: PagesOptions,
}

impl Loaded {
    fn of(pages: &Pages) -> Loaded {
        Loaded {
            slots: pages.database.slots_used(),
            options: pages.options,
        }
    }

    fn has(&self, at: Rid) -> bool {
        self.slots
            .get(at.page.index())
            .is_some_and(|slots| at.slot < *slots)
    }

    fn inner(&self, pages: &Pages, page: Lpn) -> bool {
        pages.database.is_inner(page)
    }

    /// Checks that the rows existing at the end fit their pages.
    fn fits(&self, pages: &Pages, there: &FxHashMap<Rid, bool>) -> Result<(), String> {
        let mut records: Vec<i64> = self.slots.iter().map(|slots| i64::from(*slots)).collect();
        records.resize(pages.pages() as usize, 0);
        for (at, exists) in there {
            records[at.page.index()] += i64::from(*exists) - i64::from(self.has(*at));
        }
        for (page, records) in (0..).map(Lpn).zip(records) {
            let relation = pages.relation_of(page);
            let most = relation.per_page(self.options.page_bytes);
            if records > most.into() {
                return Err(format!(
                    "{records} records in a page of {}",
                    relation.name()
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn every_access_finds_what_the_transactions_before_it_left() {
    play(&small(), 6_000, false).unwrap();
    let larger = PagesOptions {
        page_bytes: 8192,
        hot_fill: 1,
        ..small()
    };
    play(&larger, 6_000, false).unwrap();
}

#[test]
fn hot_rows_and_early_rollbacks_leave_a_database_that_adds_up() {
    for hot_rows in [HotRows::First, HotRows::Last] {
        for rolled_back_after in [0.0, 0.5, 1.0] {
            let options = PagesOptions {
                hot_rows,
                rolled_back_after,
                ..small()
            };
            play(&options, 3_000, false).unwrap();
        }
    }
}

#[test]
fn hot_rows_are_asked_for_first_or_last_and_nothing_else_changes() {
    let deal = |hot_rows: HotRows| {
        let mut pages = with(|options| options.hot_rows = hot_rows).unwrap();
        let mut all = Vec::new();
        for client in (0..300).map(|n| n % 7) {
            let mut transaction = Transaction::default();
            pages.deal(client, false, &mut transaction).unwrap();
            let hot: Vec<bool> = transaction
                .accesses
                .iter()
                .map(|access| {
                    let relation = pages.relation_of(access.at.page);
                    matches!(relation, Relation::Warehouse | Relation::District)
                })
                .collect();
            transaction.accesses.sort();
            all.push((transaction, hot));
        }
        all
    };
    let (first, order, last) = (
        deal(HotRows::First),
        deal(HotRows::InOrder),
        deal(HotRows::Last),
    );
    let mut moved = 0;
    for ((first, order), last) in first.iter().zip(&order).zip(&last) {
        assert_eq!((&first.0, &last.0), (&order.0, &order.0));
        assert!(first.1.is_sorted_by(|a, b| a >= b), "hot rows come first");
        assert!(last.1.is_sorted(), "hot rows come last");
        moved += u64::from(!order.1.is_sorted() && !order.1.is_sorted_by(|a, b| a >= b));
    }
    assert!(moved > 100, "in order they are in between: {moved}");
}

#[test]
fn a_rollback_ends_a_transaction_where_it_is_told_to() {
    let dealt = |share: f64| {
        let mut pages = with(|options| options.rolled_back_after = share).unwrap();
        let mut transaction = Transaction::default();
        let mut deal = |roll_back| {
            pages.deal(0, roll_back, &mut transaction).unwrap();
            transaction.accesses.len()
        };
        (0..40)
            .map(|_| (deal(true), deal(false)))
            .collect::<Vec<_>>()
    };
    let (whole, half, none) = (dealt(1.0), dealt(0.5), dealt(0.0));
    for ((whole, half), none) in whole.iter().zip(&half).zip(&none) {
        assert_eq!(half.0, (whole.0 as f64 / 2.0).round() as usize);
        assert_eq!(none.0, 0);
    }
    let committed = |all: &[(usize, usize)]| -> usize { all.iter().map(|pair| pair.1).sum() };
    assert!(
        committed(&none) * 10 > committed(&whole) * 9,
        "TPC-C's own rollbacks are few"
    );
}

#[test]
fn a_rollback_that_is_forgotten_is_found_out() {
    play(&small(), 6_000, true).unwrap_err();
}

#[test]
fn a_seed_fixes_all_accesses() {
    let deal = |seed| {
        let mut pages = with(|options| options.seed = seed).unwrap();
        let deal = |client| {
            let mut transaction = Transaction::default();
            pages.deal(client, false, &mut transaction).unwrap();
            transaction
        };
        (0..500).map(|n| n % 7).map(deal).collect::<Vec<_>>()
    };
    assert_eq!(deal(1), deal(1));
    assert_ne!(deal(1), deal(2));
}

#[test]
fn updates_of_a_row_go_round_its_versions_and_readers_meet_none_of_them() {
    let named = |versions: u16| {
        let mut pages = with(|options| options.versions = versions).unwrap();
        let mut transaction = Transaction::default();
        let mut all: Vec<(Verb, Rid)> = Vec::new();
        for _ in 0..400 {
            pages.deal(0, false, &mut transaction).unwrap();
            let warehouse = |at: &Rid| pages.relation_of(at.page) == Relation::Warehouse;
            let of_warehouses = transaction.accesses.iter().filter(|a| warehouse(&a.at));
            all.extend(of_warehouses.map(|access| (access.verb, access.at)));
        }
        all
    };
    let (rows, versions) = (named(1), named(4));
    assert_eq!(rows.len(), versions.len());
    let mut newest: FxHashMap<Rid, u16> = FxHashMap::default();
    let mut updates = 0;
    for ((verb, row), (same, version)) in rows.into_iter().zip(versions) {
        assert_eq!(
            (verb, row.page, row.slot),
            (same, version.page, version.slot / 4)
        );
        let place = version.slot % 4;
        match verb {
            Verb::Update => {
                let before = newest.insert(row, place).unwrap_or(0);
                assert_eq!(place, (before + 1) % 4);
                updates += 1;
            }
            Verb::Read => assert_ne!(place, newest.get(&row).copied().unwrap_or(0)),
            other => panic!("{other:?} of a warehouse that has room"),
        }
    }
    assert!(updates > 100, "{updates}");
}

#[test]
fn whoever_changes_a_heap_reads_it_first_if_asked_to() {
    let deal = |reads_first: bool| {
        let mut pages = with(|options| options.reads_first = reads_first).unwrap();
        let mut transaction = Transaction::default();
        pages.deal(0, false, &mut transaction).unwrap();
        let heap = |access: &Access| pages.relation_of(access.at.page).is_heap();
        let heaps = transaction.accesses.iter().copied();
        heaps.filter(heap).collect::<Vec<_>>()
    };
    let (plain, reading) = (deal(false), deal(true));
    let changes = |access: &Access| access.verb != Verb::Read;
    let changed = plain.iter().filter(|access| changes(access)).count();
    assert!(changed > 0);
    assert_eq!(reading.len(), plain.len() + changed);
    for (before, after) in reading.iter().zip(&reading[1..]) {
        if changes(after) {
            assert_eq!((before.verb, before.at), (Verb::Read, after.at));
        }
    }
}

#[test]
fn clients_that_share_insertion_targets_meet_in_the_pages_that_are_added() {
    let meet = |insert_targets: u32| {
        let mut pages = with(|options| options.insert_targets = insert_targets).unwrap();
        let loaded = pages.pages();
        let mut transaction = Transaction::default();
        let mut clients: BTreeMap<Lpn, BTreeSet<u32>> = BTreeMap::new();
        for client in (0..3_000).map(|number| number % 6) {
            pages.deal(client, false, &mut transaction).unwrap();
            for Access { verb, at } in &transaction.accesses {
                let heap = pages.relation_of(at.page).is_heap();
                if *verb == Verb::Insert && heap && at.page.0 >= loaded {
                    clients.entry(at.page).or_default().insert(client);
                }
            }
        }
        clients
    };
    assert!(meet(0).values().all(|clients| clients.len() == 1));
    let shared = meet(2);
    let alike = |clients: &BTreeSet<u32>| {
        clients
            .iter()
            .all(|c| c % 2 == clients.first().unwrap() % 2)
    };
    assert!(shared.values().all(alike));
    assert!(shared.values().any(|clients| clients.len() == 3));
    assert!(meet(1).values().any(|clients| clients.len() == 6));
}

#[test]
fn what_is_written_names_its_transaction_and_access() {
    let mut seen = rustc_hash::FxHashSet::default();
    let mut pages = Pages::new(&small()).unwrap();
    let mut transaction = Transaction::default();
    for _ in 0..200 {
        pages.deal(0, false, &mut transaction).unwrap();
        let all = 0..transaction.accesses.len();
        assert!(all.clone().all(|n| seen.insert(transaction.payload(n))));
    }
}

/// A transaction that is rolled back at once counts as long by what it would have done. Otherwise
/// none would ever be long, and searching for one would never end.
#[test]
fn a_transaction_that_is_cut_to_nothing_has_the_size_of_the_whole() {
    let long = |options: &mut PagesOptions| {
        (options.sizes, options.rolled_back_after) = (Sizes::MoreThan(10), 0.0);
    };
    let mut pages = with(long).unwrap();
    let mut transaction = Transaction::default();
    pages.deal(0, true, &mut transaction).unwrap();
    assert!(!transaction.commits && transaction.accesses.is_empty());
}

#[test]
fn sizes_split_the_stream_in_two() {
    let count = |sizes| {
        let mut pages = with(|options| options.sizes = sizes).unwrap();
        let (mut transaction, mut written) = (Transaction::default(), Vec::new());
        let mut numbers = Vec::new();
        while transaction.number < 1_000 {
            pages.deal(0, false, &mut transaction).unwrap();
            transaction.distinct_pages(Access::writes, &mut written);
            assert!(sizes.take(written.len() as u32));
            numbers.push(transaction.number);
        }
        numbers.retain(|number| *number < 1_000);
        numbers
    };
    let mut both = count(Sizes::AtMost(10));
    let long = count(Sizes::MoreThan(10));
    assert!(
        long.len() > 200 && both.len() > 200,
        "{} and {}",
        both.len(),
        long.len()
    );
    both.extend(long);
    both.sort_unstable();
    assert_eq!(both, count(Sizes::All));
}

#[test]
fn impossible_options_and_full_databases_are_refused_in_words() {
    type Change = fn(&mut PagesOptions);
    let changes: [(Change, &str); 4] = [
        (|options| options.pages_max = 10, "2 warehouses takes"),
        (|options| options.page_bytes = 512, "512"),
        (|options| options.hot_fill = 0, "percent"),
        (|options| options.scale.warehouses = 0, "warehouse"),
    ];
    for (change, why) in changes {
        let said = with(change).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    let pages_max = Pages::new(&small()).unwrap().pages() + 20;
    let mut pages = with(|options| options.pages_max = pages_max).unwrap();
    let mut transaction = Transaction::default();
    let full = (0..)
        .find_map(|_| pages.deal(0, false, &mut transaction).err())
        .unwrap();
    assert!(full.to_string().contains("room for no more"), "{full}");
    assert_eq!(pages.pages(), pages_max);
}

/// The shipped recording, and the model with equal numbers of transactions, clients and warehouses.
fn both() -> (Shape, Shape, Reads) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/tpcc-postgres.parquet");
    let recorded = Shape::of_trace(&crate::trace::file::read(&data).unwrap());
    let mut pages = Pages::new(&PagesOptions::new(Scale::standard(10), 1)).unwrap();
    let (modelled, reads) = Shape::of_pages(&mut pages, 20, 30_000).unwrap();
    (recorded, modelled, reads)
}

/// Tolerances: the model's mean is known to be low by about a page (docs/workloads.md), due to
/// pruning of pages that are only read and spreading of hot rows under concurrency: 8 %.
/// Percentiles in whole pages may deviate by the same. Shares are of 450,000 page writes, so random
/// variation is far below 0.01; that known difference moves them by up to 0.02.
#[test]
fn the_model_has_the_shape_of_the_recording() {
    let (recorded, modelled, reads) = both();
    let near = |what: &str, wanted: f64, got: f64, tolerance: f64| {
        assert!(
            (wanted - got).abs() <= tolerance,
            "{what}: {got} for {wanted}"
        );
    };
    let relative = |what: &str, wanted: f64, got: f64, share: f64| {
        near(what, wanted, got, wanted * share);
    };
    let of = |s: &Shape| [s.written.p50, s.written.p90, s.written.p99, s.written.max];
    relative("mean", recorded.written.mean, modelled.written.mean, 0.08);
    for (wanted, got) in of(&recorded).into_iter().zip(of(&modelled)) {
        relative("percentile", wanted as f64, got as f64, 0.08);
    }
    relative("pages", recorded.pages as f64, modelled.pages as f64, 0.05);
    relative(
        "writers",
        recorded.writers as f64,
        modelled.writers as f64,
        0.005,
    );
    // 148 of 13,500: three standard deviations are a quarter.
    relative(
        "rolled back",
        recorded.rolled_back as f64,
        modelled.rolled_back as f64,
        0.25,
    );
    for (wanted, got) in recorded.hottest.into_iter().zip(modelled.hottest) {
        near("skew", wanted, got, 0.02);
    }
    for relation in Relation::ALL.map(Relation::name) {
        let share = |s: &Shape| s.relations.get(&relation).map_or(0.0, |(share, _)| *share);
        near(&relation, share(&recorded), share(&modelled), 0.02);
    }
    // Each deck of a hundred has four of each reader.
    near(
        "readers",
        0.08,
        reads.read_only as f64 / reads.transactions as f64,
        0.001,
    );
    // [FlagCommit] §5.1: less than 50 pages on average. The median satisfies that; Stock-Level's
    // two hundred items raise the mean above it.
    assert!(
        reads.accessed.p50 < 50 && reads.accessed.mean < 55.0,
        "{:?}",
        reads.accessed
    );
}

#[test]
fn the_table_in_the_documents_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workloads.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (recorded, modelled, reads) = both();
    let line = |what: &str, of: crate::trace::info::Spread| {
        let (mean, p50, p99, max) = (of.mean, of.p50, of.p99, of.max);
        format!("| {what} | {mean:.1} | {p50} | {p99} | {max} |\n")
    };
    let table = side_by_side(&recorded, &modelled)
        + "\n| a transaction of the model, readers included | mean | p50 | p99 | largest |\n"
        + "|---|---:|---:|---:|---:|\n"
        + &line("pages accessed", reads.accessed)
        + &line("records read", reads.records_read)
        + &line("records written", reads.records_written);
    let (begin, end) = ("<!-- shape: begin -->\n", "<!-- shape: end -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (old, tail) = rest.split_once(end).unwrap();
    if std::env::var_os("FLAGSTONE_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
    } else {
        assert_eq!(
            old, table,
            "FLAGSTONE_BLESS=1 cargo test -p flagstone-lab --lib tpcc::pages rewrites it"
        );
    }
}
