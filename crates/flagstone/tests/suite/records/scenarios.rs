//! Scenarios on record-level devices: outcomes of records that share pages.

use super::*;
use flagstone::ftl::{Cause, Operation};
use flagstone::nand::{Fault, FaultPlan, Faulty, Flash};

fn bench(kind: RecordKind) -> Bench {
    Bench::new(kind, 3, None)
}

/// Runs a scenario on both protocols.
fn both(scenario: impl Fn(Bench)) {
    for kind in RecordKind::ALL {
        scenario(bench(kind));
    }
}

impl Bench {
    /// Restarts after a cut at which all operations in flight are completed.
    fn again(&mut self, committed: &[TxId]) {
        self.restart(2, None).expect("there is no cut");
        self.resolve(committed);
    }

    /// Whether a transaction has pending records in a version on flash.
    fn has_pending(&mut self, tx: TxId) -> bool {
        let mut tables = self.device().tables().into_iter();
        let live = tables.find(|table| table.name == "live_transactions");
        let rows = live.expect("it is there").rows;
        let own = rows.iter().find(|row| row[0] == tx.to_string());
        own.is_some_and(|row| !row[2].is_empty())
    }

    fn flags(&mut self) -> u64 {
        self.device().stats().total(Operation::Reprogram)
    }
}

#[test]
fn the_log_decides_and_then_the_flags_do() {
    both(|mut bench| {
        let (one, two) = (bench.begin(), bench.begin());
        bench.write(0, 5, &[1, 2], &[(one, &[0]), (two, &[1])]);
        bench.write(1, 6, &[1, 2], &[(one, &[0]), (two, &[1])]);
        bench.restart(2, None).expect("there is no cut");
        let in_doubt: Vec<TxId> = bench.device().in_doubt().collect();
        assert_eq!(in_doubt, [one, two]);
        bench.resolve(&[one]);
        assert_eq!(
            (bench.values(0, 2), bench.values(1, 2)),
            (vec![1, 0], vec![1, 0])
        );
        for _ in 0..4 {
            bench.again(&[]);
            bench.churn(30);
            assert_eq!(
                (bench.values(0, 2), bench.values(1, 2)),
                (vec![1, 0], vec![1, 0])
            );
        }
    });
}

#[test]
fn before_transactions_in_doubt_are_resolved_a_device_is_only_read() {
    both(|mut bench| {
        bench.write(0, 5, &[7], &[]);
        let tx = bench.begin();
        bench.write(1, 6, &[8], &[(tx, &[0])]);
        bench.restart(2, None).expect("there is no cut");
        assert_eq!(bench.values(0, 1), [7]);
        let (page, merged) = bench.read(1);
        assert_eq!(page.get(0), Some(&[8][..]));
        assert_eq!(merged.pending[0].tx, tx);
        let now = bench.now;
        let write = bench.device().write(now, Lpn(0), &[], &[]);
        assert_eq!(write, Err(DeviceError::Unresolved));
        assert_eq!(bench.device().begin(now), Err(DeviceError::Unresolved));
        assert_eq!(bench.device().commit(now, tx), Err(DeviceError::Unresolved));
        bench.resolve(&[]);
        assert_eq!(bench.values(1, 1), [0]);
    });
}

#[test]
fn restored_records_keep_the_lsn_of_the_version_that_they_are_from() {
    both(|mut bench| {
        bench.write(0, 8, &[1, 1, 1], &[]);
        let tx = bench.begin();
        bench.write(0, 11, &[1, 2, 2], &[(tx, &[1])]);
        bench.abort(tx);
        for round in 0..3 {
            let (page, merged) = bench.read(0);
            assert_eq!((page.lsn(), merged.restored), (11, vec![(1, 8)]));
            assert_eq!(bench.values(0, 3), [1, 1, 2]);
            match round {
                0 => bench.churn(40),
                _ => bench.again(&[]),
            }
        }
        assert!(bench.read(0).1.pending.is_empty());
        // The same if that version in turn has copied the values from an older one.
        let tx = bench.begin();
        bench.write(0, 12, &[1, 4, 2], &[(tx, &[1])]);
        bench.abort(tx);
        assert_eq!(bench.read(0).1.restored, [(1, 8)]);
        bench.write(0, 20, &[1, 3, 2], &[]);
        assert_eq!(bench.read(0).1.restored, []);
    });
}

#[test]
fn a_record_that_is_written_again_while_it_is_pending_stays_pending() {
    both(|mut bench| {
        bench.write(0, 1, &[1, 1], &[]);
        let (tx, other) = (bench.begin(), bench.begin());
        bench.write(0, 2, &[2, 1], &[(tx, &[0])]);
        bench.write(0, 3, &[2, 3], &[(tx, &[0]), (other, &[1])]);
        bench.commit(other);
        bench.churn(30);
        bench.abort(tx);
        assert_eq!(bench.values(0, 2), [1, 3]);
        bench.again(&[]);
        assert_eq!(bench.values(0, 2), [1, 3]);
    });
}

#[test]
fn records_that_were_never_pending_keep_their_version_wherever_it_is_moved() {
    both(|mut bench| {
        bench.write(0, 1, &[1, 1, 1, 1, 5], &[]);
        let first = bench
            .device()
            .ftl()
            .slot(Lpn(0))
            .ppn()
            .expect("it was written");
        let tx = bench.begin();
        bench.write(0, 2, &[1, 1, 1, 1, 6], &[(tx, &[4])]);
        bench.churn_until(|device| !device.ftl().blocks().is_live(first));
        bench.abort(tx);
        assert_eq!(bench.values(0, 5), [1, 1, 1, 1, 5]);
        bench.again(&[]);
        assert_eq!(bench.values(0, 5), [1, 1, 1, 1, 5]);
    });
}

#[test]
fn two_records_of_a_transaction_in_a_page_take_one_flag() {
    both(|mut bench| {
        let tx = bench.begin();
        bench.write(0, 1, &[1, 1, 1], &[(tx, &[0, 2])]);
        assert!(bench.has_pending(tx));
        bench.commit(tx);
        assert_eq!(bench.flags(), 1);
        bench.again(&[]);
        assert_eq!(bench.values(0, 3), [1, 1, 1]);
        let reader = bench.begin();
        assert!(!bench.has_pending(reader));
        bench.commit(reader);
        assert_eq!(
            bench.flags(),
            0,
            "a transaction of which nothing is on flash takes none"
        );
    });
}

#[test]
fn a_version_lists_as_many_updaters_as_the_device_allows() {
    both(|mut bench| {
        let txs = [0; 4].map(|_| bench.begin());
        let all: Vec<Pending> = (0..4)
            .map(|slot| Pending {
                tx: txs[usize::from(slot)],
                slots: vec![slot],
            })
            .collect();
        let now = bench.now;
        let many = bench.device().write(now, Lpn(0), &[], &all);
        let right = DeviceError::TooManyUpdaters {
            at: Lpn(0),
            limit: 3,
        };
        assert_eq!(many, Err(right));
        let three = [(txs[0], &[0][..]), (txs[1], &[1]), (txs[2], &[2])];
        bench.write(0, 1, &[1, 1, 1], &three);
        for tx in txs {
            bench.commit(tx);
        }
        assert_eq!(bench.values(0, 3), [1, 1, 1]);
    });
}

#[test]
fn in_afc_ex_only_the_first_page_of_a_transaction_has_to_stay() {
    let mut bench = bench(RecordKind::AfcEx);
    let tx = bench.begin();
    bench.write(0, 1, &[1, 7], &[(tx, &[0])]);
    bench.write(1, 2, &[1, 7], &[(tx, &[0])]);
    let slots = |bench: &mut Bench| [0, 1].map(|at| bench.device().ftl().slot(Lpn(at)));
    let before = slots(&mut bench);
    bench.churn_until(|device| device.ftl().slot(Lpn(1)) != before[1]);
    let after = slots(&mut bench);
    assert_eq!(before[0], after[0]);
    bench.commit(tx);
    assert_eq!(bench.flags(), 1);
    bench.again(&[]);
    assert_eq!(
        (bench.values(0, 2), bench.values(1, 2)),
        (vec![1, 7], vec![1, 7])
    );
}

/// A device on which a transaction has written three pages, some of which were then moved.
fn about_to_commit(kind: RecordKind, cut: Option<Cut>) -> (Bench, TxId) {
    let mut bench = bench(kind);
    bench.write(2, 1, &[4], &[]);
    bench.arm(cut);
    let tx = bench.begin();
    for page in 0..3 {
        bench.write(page, 2, &[9], &[(tx, &[0])]);
        bench.churn(40);
    }
    (bench, tx)
}

/// Cuts the power at each operation of the commit. Returns how often it was lost, and how often
/// kept.
fn cut_commits(kind: RecordKind, torn: bool, logged: bool) -> [usize; 2] {
    let mut outcomes = [0; 2];
    let (bench, _) = about_to_commit(kind, None);
    let issued = bench.flash.look(PowerCut::issued);
    for at in issued..issued + 3 {
        for dice in 0..24 {
            let (mut bench, tx) = about_to_commit(kind, Some(Cut { at, dice, torn }));
            let now = bench.now;
            let acknowledged = bench.device().commit(now, tx).is_ok();
            let log = if logged { &[tx][..] } else { &[] };
            bench.again(log);
            let values = [0, 1, 2].map(|page| bench.values(page, 1)[0]);
            let committed = values == [9; 3];
            assert!(
                committed || values == [0, 0, 4],
                "{kind}, {at}, {dice}: {values:?}"
            );
            assert!(
                committed || !(acknowledged || logged),
                "{kind}, {at}, {dice}"
            );
            outcomes[usize::from(committed)] += 1;
            // Later collections and restarts do not change the outcome.
            bench.churn(60);
            bench.again(&[]);
            assert_eq!([0, 1, 2].map(|page| bench.values(page, 1)[0]), values);
        }
    }
    outcomes
}

#[test]
fn d5_a_commit_without_the_log_is_cut_into_all_or_nothing() {
    for kind in RecordKind::ALL {
        for torn in [false, true] {
            let [lost, kept] = cut_commits(kind, torn, false);
            assert!(lost > 1 && kept > 1, "{kind}: {lost} lost, {kept} kept");
        }
    }
}

#[test]
fn d8_what_the_log_committed_is_committed_also_where_a_flag_is_torn() {
    for kind in RecordKind::ALL {
        let [lost, _] = cut_commits(kind, true, true);
        assert_eq!(lost, 0);
    }
}

#[test]
fn d7_versions_without_pending_records_are_merged_when_they_are_collected() {
    both(|mut bench| {
        for round in 1..6 {
            bench.write(0, round, &[1, 1, 1], &[]);
            let tx = bench.begin();
            bench.write(0, 10 + round, &[1, 2, 1], &[(tx, &[1])]);
            bench.abort(tx);
            bench.churn_until(|device| device.merged() == round);
            assert_eq!(bench.values(0, 3), [1, 1, 1]);
            let reads = bench.device().stats().count(Operation::Read, Cause::Host);
            assert_eq!(bench.values(0, 3), [1, 1, 1]);
            let again = bench.device().stats().count(Operation::Read, Cause::Host);
            assert_eq!(again - reads, 1, "one version is left");
        }
    });
}

#[test]
fn d9_devices_that_cannot_set_the_flags_are_refused() {
    let geometry = *Bench::chip(2).geometry();
    let says = |geometry: &Geometry, max_c| {
        let options = options_of(max_c);
        RecordDevice::suits(RecordKind::CfcEx, geometry, &Bench::config(), &options)
    };
    assert_eq!(says(&geometry, 2), Ok(()));
    assert!(says(&geometry, 3).is_err_and(|why| why.contains("partial_programs of at least 4")));
    assert!(says(&geometry, 0).is_err_and(|why| why.contains("from 1 to 8")));
    let strict = Geometry {
        strict_order: true,
        ..geometry
    };
    assert!(says(&strict, 2).is_err_and(|why| why.contains("strict program order")));
}

#[test]
fn requests_that_make_no_sense_are_errors() {
    both(|mut bench| {
        let tx = bench.begin();
        let now = bench.now;
        let pending = |tx| [Pending { tx, slots: vec![0] }];
        let device = bench.device();
        let unknown = device.write(now, Lpn(0), &[], &pending(TxId(99)));
        assert_eq!(unknown, Err(DeviceError::NoTransaction(TxId(99))));
        let twice = device.write(now, Lpn(0), &[], &[pending(tx), pending(tx)].concat());
        let why = twice.expect_err("one entry would be ignored").to_string();
        assert!(why.contains("twice") && why.contains("page 0"), "{why}");
        let why = device.enter(tx).expect_err("it is live").to_string();
        assert!(why.contains("already a live transaction"), "{why}");
        let beyond = device.write(now, Lpn(PAGES), &[], &[]);
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })));
        let long = device.write(now, Lpn(0), &[0; 247], &pending(tx));
        let (bytes, page_bytes) = (247, 256 - 8 - 2);
        assert_eq!(long, Err(DeviceError::TooLong { bytes, page_bytes }));
        let other = device.write(now, Lpn(0), &[1, 2, 3], &pending(tx));
        assert_eq!(other, Err(DeviceError::NoRecords(Lpn(0))));
        device.commit(now, tx).expect("it commits");
        assert_eq!(device.commit(now, tx), Err(DeviceError::NoTransaction(tx)));
        assert_eq!(device.abort(now, tx), Err(DeviceError::NoTransaction(tx)));
        let asked = *device.request_stats();
        assert_eq!((asked.begun, asked.pages_written), (1, 0));
    });
}

#[test]
fn a_device_is_refused_with_a_lower_max_c_than_a_page_has_entries() {
    for kind in RecordKind::ALL {
        for (max_c, opens) in [(1, false), (2, true), (3, true)] {
            let mut bench = Bench::new(kind, 3, None);
            bench.write(0, 1, &[1, 1], &[]);
            let txs = [bench.begin(), bench.begin()];
            bench.write(0, 2, &[2, 2], &[(txs[0], &[0]), (txs[1], &[1])]);
            bench.options.max_c = max_c;
            match bench.restart(2, None) {
                Ok(()) => {
                    assert!(opens, "{kind}, {max_c}");
                    bench.resolve(&[]);
                    assert_eq!(bench.values(0, 2), [1, 1], "{kind}, {max_c}");
                }
                Err(error) => {
                    assert!(!opens && error.to_string().contains("`max_c`"), "{error}");
                }
            }
        }
    }
}

/// A change of how a device is opened.
type Change = fn(&mut Bench);

/// Pages with a committed, an aborted and an unfinished change each, on a device that collects. It
/// is opened another way, written, and opened as before.
#[test]
fn a_device_that_is_opened_with_other_settings_is_refused_or_whole() {
    let changes: [(&str, Change); 13] = [
        ("max_c 1", |bench| bench.options.max_c = 1),
        ("max_c 2", |bench| bench.options.max_c = 2),
        ("flags_all", |bench| bench.options.flags_all = true),
        ("tells", |bench| bench.options.tells = true),
        ("fewer pages", |bench| {
            bench.config.logical_pages = Some(PAGES - 1)
        }),
        ("more pages", |bench| {
            bench.config.logical_pages = Some(PAGES + 10)
        }),
        ("gc_threshold", |bench| bench.config.gc_threshold = 0.2),
        ("static_wear_gap", |bench| {
            bench.config.static_wear_gap = Some(1)
        }),
        ("copies_stay", |bench| {
            bench.config.copies_stay = !bench.config.copies_stay
        }),
        ("summary_pages", |bench| {
            bench.config.summary_pages = !bench.config.summary_pages
        }),
        ("checksums", |bench| bench.config.checksums = true),
        ("works_ahead", |bench| bench.config.works_ahead = true),
        ("thin", |bench| bench.config.thin = true),
    ];
    let (mut whole, mut refused) = (0, 0);
    for (kind, (name, change)) in RecordKind::ALL
        .iter()
        .flat_map(|&kind| changes.map(|c| (kind, c)))
    {
        let mut bench = bench(kind);
        (0..PAGES).for_each(|at| bench.write(at, 1, &[1, 1, 1], &[]));
        for (lsn, slots, value) in [(2, [0], 2), (3, [1], 3), (4, [2], 4)] {
            let tx = bench.begin();
            for at in [0, 7, 15] {
                let mut records = [2, 1, 1];
                records[usize::from(slots[0])] = value;
                bench.write(at, lsn, &records, &[(tx, &slots)]);
            }
            match value {
                2 => bench.commit(tx),
                3 => bench.abort(tx),
                _ => {}
            }
        }
        let (config, options) = (bench.config, bench.options);
        change(&mut bench);
        if bench.restart(2, None).is_err() {
            refused += 1;
            continue;
        }
        whole += 1;
        bench.resolve(&[]);
        let holds = |bench: &mut Bench, what: &str| {
            let wanted = |at| {
                if [0, 7, 15].contains(&at) {
                    [2, 1, 1]
                } else {
                    [1, 1, 1]
                }
            };
            let lost = (0..20).find(|&at| bench.values(at, 3) != wanted(at));
            assert_eq!(lost, None, "{kind}, {name}, {what}");
        };
        holds(&mut bench, "opened");
        bench.churn(4);
        holds(&mut bench, "written");
        (bench.config, bench.options) = (config, options);
        if bench.restart(2, None).is_ok() {
            bench.resolve(&[]);
            holds(&mut bench, "opened as before");
        }
    }
    // Fewer pages, summary pages and checksums are refused.
    assert_eq!((whole, refused), (20, 6));
}

/// A device whose operations fail by a plan, and the current time.
struct Failing {
    device: RecordDevice,
    now: Nanos,
}

impl Failing {
    fn open(kind: RecordKind, flash: Box<dyn Flash>) -> Failing {
        let options = options_of(3);
        let device = RecordDevice::open(flash, kind, Bench::config(), &options, Nanos::ZERO);
        let mut device = device.expect("it opens");
        let now = device.recovered_at();
        let now = device.resolve(now, &BTreeSet::new()).expect("it resolves");
        Failing { device, now }
    }

    /// Writes one byte into the first record of a page.
    fn write(&mut self, at: u32, value: u8, tx: Option<TxId>) {
        let image = image(0, &[value]);
        let pending = tx.map(|tx| Pending { tx, slots: vec![0] });
        let now = self.now;
        let done = self.device.write(now, Lpn(at), &image, pending.as_slice());
        self.now = done.expect("it writes");
    }

    /// The byte in a page; `None` if the page was lost.
    fn value(&mut self, at: u32) -> Option<u8> {
        let (now, mut merged) = (self.now, MergedPage::default());
        let before = self.device.request_stats().pages_read;
        let read = self.device.read(now, Lpn(at), &mut merged);
        let counted = self.device.request_stats().pages_read - before;
        assert_eq!(counted, u64::from(read.is_ok()), "reads that fail count");
        match read {
            Ok(done) => {
                self.now = done;
                let page = Page::parse(&merged.image).expect("it is a page of records");
                Some(page.get(0).map_or(0, |bytes| bytes[0]))
            }
            Err(DeviceError::Unreadable(_)) => None,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Runs transactions over three pages, half of them rolled back, and other writes. Returns the
/// number of lost reads.
fn play_with_faults(kind: RecordKind, plan: FaultPlan) -> usize {
    let flash = Faulty::new(PowerCut::new(Bench::chip(3)), plan);
    let mut failing = Failing::open(kind, Box::new(flash));
    let (mut right, mut lost, mut dice) = (0, 0, Dice(7));
    for round in 1..60u8 {
        let now = failing.now;
        let tx = failing.device.begin(now).expect("it begins");
        for page in 0..3 {
            failing.write(page, round, Some(tx));
            for _ in 0..8 {
                failing.write(10 + dice.below(50) as u32, 99, None);
            }
        }
        let now = failing.now;
        if round % 2 == 0 {
            failing.now = failing.device.commit(now, tx).expect("it commits");
            right = round;
        } else {
            failing.now = failing.device.abort(now, tx).expect("it aborts");
        }
        failing.device.check().expect("the books agree");
        for page in 0..3 {
            match failing.value(page) {
                Some(value) => assert_eq!(value, right, "{kind}, page {page}, round {round}"),
                None => lost += 1,
            }
        }
    }
    lost
}

/// A lost page stays lost, even if it is dead. Other pages are not affected.
#[test]
fn pages_beyond_their_ecc_are_errors_and_harm_no_others() {
    for kind in RecordKind::ALL {
        let mut lost = 0;
        for seed in 0..60 {
            let strike = Dice(seed).below(1_200);
            let mut plan = FaultPlan::default();
            plan.faults = vec![(strike, Fault::BitErrors { bits: 9 })];
            plan.correctable_bits = 4;
            lost += usize::from(play_with_faults(kind, plan) > 0);
        }
        assert!(
            (1..30).contains(&lost),
            "{kind}: {lost} of 60 runs lost a page"
        );
    }
}
