//! Transactions on a medium that is cut at every operation; stores that grow, fail, or are missing.

use super::*;
use crate::medium::{Landing, Memory, Recorded};
use flagstone::commit::Kind;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

fn small(protocol: Kind) -> OpenOptions {
    OpenOptions {
        pages_per_block: 16,
        ..OpenOptions::default().with_protocol(protocol)
    }
}

/// Deterministic pseudo-random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Contents of pages; `None` for an unreadable page.
pub(crate) type Pages = BTreeMap<u32, Option<Vec<u8>>>;

/// Asserts that `done` is an error whose message contains `what`.
#[track_caller]
pub(crate) fn assert_says<T>(done: Result<T, StoreError>, what: &str) {
    let said = done.err().expect("it is refused").to_string();
    assert!(said.contains(what), "{said}");
}

pub(crate) fn contents(store: &mut PageStore) -> Pages {
    let held: Vec<Lpn> = store.held().collect();
    held.into_iter()
        .map(|at| (at.0, store.page(at.0)))
        .collect()
}

impl PageStore {
    /// Writes `data` to a page in a transaction of its own.
    #[track_caller]
    pub(crate) fn put(&mut self, at: u32, data: &[u8]) {
        self.put_all(at..at + 1, data);
    }

    /// Writes `data` to all of `pages` in one transaction.
    #[track_caller]
    pub(crate) fn put_all(&mut self, pages: Range<u32>, data: &[u8]) {
        let tx = self.begin().expect("it begins");
        for at in pages {
            self.write(tx, Lpn(at), data).expect("room");
        }
        self.commit(tx).expect("it commits");
    }

    /// The contents of a page: empty if it holds nothing, `None` if it cannot be read.
    #[track_caller]
    pub(crate) fn page(&mut self, at: u32) -> Option<Vec<u8>> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        match self.read(None, Lpn(at), &mut page) {
            Ok(bytes) => Some(page[..bytes.unwrap_or(0)].to_vec()),
            Err(StoreError::Device(DeviceError::Unreadable(_))) => None,
            Err(other) => panic!("{other}"),
        }
    }
}

/// A random transaction of a few pages, and the contents of the store after it.
fn transaction(store: &mut PageStore, dice: &mut Dice, pages: &Pages) -> (TxId, Pages) {
    let mut after = pages.clone();
    let tx = store.begin().expect("it begins");
    for _ in 0..=dice.below(4) {
        let at = dice.below(120) as u32;
        if dice.below(9) == 0 {
            store.trim(tx, Lpn(at)).expect("room");
            after.remove(&at);
        } else {
            let data = vec![dice.below(250) as u8 + 1; dice.below(4032) as usize + 1];
            store.write(tx, Lpn(at), &data).expect("room");
            after.insert(at, Some(data));
        }
    }
    (tx, after)
}

/// Cuts the power at every operation of the medium during random transactions, in several ways.
/// Returns the number of cuts, and how many of them left neither the state before nor after the
/// transaction in flight.
pub(crate) fn cut(options: &OpenOptions, transactions: usize, lies: bool) -> (u64, u64) {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), options).expect("a store");
    if lies {
        medium.lie();
    }
    let (mut dice, mut pages) = (Dice(7), Pages::new());
    let (mut cuts, mut bad) = (0, 0);
    for _ in 0..transactions {
        let (tx, after) = transaction(&mut store, &mut dice, &pages);
        let is_kept = dice.below(8) > 0;
        // Checks what a cut leaves just before and just after each operation of the commit.
        let mut look = |medium: &Recorded, allowed: &[&Pages]| {
            let seed = cuts;
            for landing in [
                Landing::Nothing,
                Landing::Everything,
                Landing::First(seed % 40),
                Landing::Last(seed % 40),
                Landing::Sectors(seed),
                Landing::Pages(seed),
            ] {
                cuts += 1;
                let left = medium.cut(landing);
                let is_right = match PageStore::on(Box::new(left), options) {
                    Ok(mut store) => {
                        let found = contents(&mut store);
                        let report = store.check().expect("it can be read");
                        report.is_well() && allowed.contains(&&found)
                    }
                    Err(_) => false,
                };
                bad += u64::from(!is_right);
            }
        };
        look(&medium, &[&pages]);
        if is_kept {
            let seen = Arc::new(Mutex::new(Vec::new()));
            medium.watch(Some({
                let seen = Arc::clone(&seen);
                Box::new(move |medium: &Recorded| {
                    seen.lock().expect("one thread").push(medium.snapshot());
                })
            }));
            store.commit(tx).expect("it commits");
            medium.watch(None);
            for moment in seen.lock().expect("one thread").iter() {
                look(moment, &[&pages, &after]);
            }
            pages = after;
        } else {
            store.abort(tx).expect("it aborts");
        }
        look(&medium, &[&pages]);
    }
    assert!(contents(&mut store) == pages);
    (cuts, bad)
}

#[test]
fn a_cut_leaves_all_of_a_transaction_or_nothing() {
    for protocol in [Kind::Seal, Kind::LightTx, Kind::Scc] {
        let (cuts, bad) = cut(&small(protocol), 60, false);
        assert!(cuts > 1_000, "{cuts}");
        assert_eq!(bad, 0, "of {cuts} under {protocol}");
    }
}

#[test]
fn a_medium_that_does_not_mean_its_syncs_loses_transactions() {
    let (cuts, bad) = cut(&small(Kind::Seal), 20, true);
    assert!(bad > cuts / 20, "{bad} of {cuts}");
}

#[test]
fn a_store_grows_and_what_it_holds_bounds_it() {
    let medium = Memory::default();
    let mut store = PageStore::on(Box::new(medium), &small(Kind::Seal)).expect("a store");
    let first = store.info().blocks;
    let mut dice = Dice(3);
    let mut page = vec![1; PageStore::PAGE_BYTES];
    for round in 0..6_000u32 {
        let at = if round < 2_000 {
            round
        } else {
            dice.below(2_000) as u32
        };
        page[..4].copy_from_slice(&round.to_le_bytes());
        store.put(at, &page);
    }
    let info = store.info();
    assert_eq!(info.pages, 2_000);
    assert!(info.blocks > first);
    let pages = f64::from(info.blocks * info.pages_per_block);
    assert!(pages < 2_000.0 * 1.5 * 1.3, "{pages} pages");
    assert!(store.check().expect("it can be read").is_well());
    drop(store);
    for protocol in [Kind::Scc, Kind::Bpcc] {
        let medium = Box::new(Memory::default());
        let mut store = PageStore::on(medium, &small(protocol)).expect("a store");
        for at in 0..3_000 {
            store.put(at, &page);
        }
        assert!(store.check().expect("it can be read").is_well());
    }
    // A transaction that is larger than the initial store.
    let medium = Memory::default();
    let mut store = PageStore::on(Box::new(medium), &small(Kind::Seal)).expect("a store");
    store.put_all(0..20_000, &page);
    assert_eq!(store.highest(), Some(Lpn(19_999)));
    assert!(store.check().expect("it can be read").is_well());
}

#[test]
fn a_medium_that_fails_is_named_and_what_was_acknowledged_is_there() {
    let medium = Recorded::default();
    let mut store = PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
    let (mut dice, pages) = (Dice(11), Pages::new());
    let (tx, after) = transaction(&mut store, &mut dice, &pages);
    store.commit(tx).expect("it commits");
    for later in 0..6 {
        let medium = medium.snapshot();
        let mut store =
            PageStore::on(Box::new(medium.clone()), &small(Kind::Seal)).expect("a store");
        // The first transaction also writes summaries for blocks of the earlier opening.
        let (tx, after) = transaction(&mut store, &mut dice, &after);
        store.commit(tx).expect("it commits");
        medium.fail_at(Some(medium.operations() + later));
        let mut failure = None;
        for _ in 0..20 {
            let (tx, _) = transaction(&mut store, &mut dice, &after);
            if let Err(error) = store.commit(tx) {
                failure = Some(error);
                break;
            }
        }
        let failure = failure.expect("it fails at some time");
        assert!(matches!(failure, StoreError::Io { .. }), "{failure}");
        assert!(
            failure.to_string().contains("as it was told to"),
            "{failure}"
        );
        assert!(matches!(store.begin(), Err(StoreError::Broken(_))));
        medium.fail_at(None);
        // A close must fail as well.
        assert!(matches!(store.close(), Err(StoreError::Broken(_))));
        let mut store = PageStore::on(Box::new(medium), &small(Kind::Seal)).expect("a store");
        assert!(store.check().expect("it can be read").is_well());
    }
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    let mut bytes = vec![9; 20_000];
    let refused = PageStore::on(
        Box::new(Memory::with(bytes.clone())),
        &OpenOptions::default(),
    );
    assert!(matches!(refused, Err(StoreError::NotAStore(_))));
    bytes.fill(0);
    let refused = PageStore::on(Box::new(Memory::with(bytes)), &OpenOptions::existing());
    assert!(matches!(refused, Err(StoreError::NotAStore(_))));
    let odd = OpenOptions::default().with_protocol(Kind::Cfc);
    let refused = PageStore::on(Box::new(Memory::default()), &odd);
    assert!(matches!(refused, Err(StoreError::Options(_))));
}

#[test]
fn a_file_has_one_writer_or_many_readers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.flag");
    let missing = PageStore::open(&path, &OpenOptions::existing());
    assert!(matches!(missing, Err(StoreError::Io { .. })));
    let mut store = PageStore::open(&path, &OpenOptions::default()).expect("a store");
    store.put(3, b"three");
    for options in [OpenOptions::existing(), OpenOptions::existing().reading()] {
        let Err(StoreError::InUse { pid, .. }) = PageStore::open(&path, &options) else {
            panic!("it is opened twice");
        };
        assert_eq!(pid, Some(std::process::id()));
    }
    drop(store);
    let reading = OpenOptions::existing().reading();
    let mut one = PageStore::open(&path, &reading).expect("a reader");
    let mut two = PageStore::open(&path, &reading).expect("another");
    for reader in [&mut one, &mut two] {
        assert_eq!(reader.page(3).as_deref(), Some(&b"three"[..]));
    }
    assert!(matches!(one.begin(), Err(StoreError::ReadOnly)));
}

mod compacting;
mod creating;
mod failures;
mod heads;
mod looked;
mod overwriting;
mod resting;
mod room;
mod rotten;
mod thin;
mod used;

#[test]
fn stores_grow_to_the_sizes_that_the_documents_name() {
    /// Maximum size of a store, in gigabytes.
    fn most(protocol: Kind, pages_per_block: u32) -> f64 {
        let options = OpenOptions {
            pages_per_block,
            ..OpenOptions::default().with_protocol(protocol)
        };
        let store = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
        let ftl = store.device().ftl();
        let has = ftl.geometry().blocks();
        // Evaluates the check that a store makes before it grows, by bisection over the size.
        let (mut fits, mut none) = (0, u32::MAX / pages_per_block - has);
        assert!(ftl.why_not_grow(none).is_some() || none == fits);
        while none - fits > 1 {
            let more = fits + (none - fits) / 2;
            match ftl.why_not_grow(more) {
                None => fits = more,
                Some(_) => none = more,
            }
        }
        crate::flash::medium_bytes(pages_per_block, has + fits) as f64 / 1e9
    }
    for protocol in Kind::ALL.iter().filter(|kind| !kind.info().reprograms) {
        // As in docs/store.md: a root that lists pages of the mapping table must fit a block, and
        // so must one that lists blocks. Other protocols: 2^31 pages, or 2^24 blocks.
        let format = protocol.info().format;
        let wanted = match (format.persist_map, format.zoned) {
            (true, false) => [518.3, 57.3],
            (true, true) => [205.0, 5.0],
            (false, _) => [8864.8, 1168.2],
        };
        let found = [128, 16].map(|pages_per_block| most(*protocol, pages_per_block));
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 0.06, "{protocol}: {found} GB");
        }
    }
}

#[test]
fn a_narrow_bound_leaves_the_collector_room() {
    for (space, protocol) in [(1.1, Kind::Seal), (1.2, Kind::Seal), (1.1, Kind::Aw)] {
        let options = OpenOptions {
            space,
            ..small(protocol)
        };
        let mut store = PageStore::on(Box::new(Memory::default()), &options).expect("a store");
        let mut dice = Dice(3);
        for round in 0..3_000u32 {
            let tx = store.begin().expect("it begins");
            // All pages once, then a few of them repeatedly.
            for step in 0..4 {
                let at = if round < 200 {
                    round * 4 + step
                } else {
                    dice.below(800) as u32
                };
                let written = store.write(tx, Lpn(at), &[round as u8]);
                written.unwrap_or_else(|error| panic!("{space}, {protocol}, {round}: {error}"));
            }
            let done = store.commit(tx);
            done.unwrap_or_else(|error| panic!("{space}, {protocol}, {round}: {error}"));
        }
        assert!(store.device().stats().collections > 0);
        store.device().check().expect("it is whole");
    }
}
