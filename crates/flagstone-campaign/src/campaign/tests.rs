//! Campaigns are deterministic: a run depends on its run id alone. Every run id that a campaign can
//! draw is valid.

use super::bases::Made;
use super::findings::over_cores;
use super::*;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

/// One of each kind: commits pages, logs, sets flags of records, fails, an index on a device and on
/// a database.
const KINDS: [&str; 6] = [
    "afc",
    "wal",
    "cfc-ex",
    "force:plain",
    "bptree@lighttx",
    "sal@cfc-ex",
];

fn campaign(name: &str, cuts: u64) -> Campaign {
    Campaign {
        cuts: Cuts::Sampled(cuts),
        faults: Faults::ALL,
        seed: 3,
        ..Campaign::new(Subject::by_name(name).expect("a name"))
    }
}

/// Provides the bases of runs.
type BaseOf<B> = Box<dyn Fn(&BaseId) -> B + Sync>;

/// Results of runs on `threads` threads, in the order of the ids.
fn outcomes<B: Deref<Target = Made>>(
    ids: &[RunId],
    threads: usize,
    base_of: &(dyn Fn(&BaseId) -> B + Sync),
    around: bool,
) -> Vec<Explored> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads")
        .install(|| over_cores(ids, |id| explore(id, &base_of(&id.base), around)))
}

/// Runs whose results differ if executed in another order on other threads.
fn that_differ<B: Deref<Target = Made>>(
    mut ids: Vec<RunId>,
    base_of: impl Fn() -> BaseOf<B>,
) -> Vec<RunId> {
    let around = ids[0].base.subject.hands_flags_on();
    let forward = outcomes(&ids, 1, &*base_of(), around);
    ids.reverse();
    let mut backward = outcomes(&ids, 3, &*base_of(), around);
    ids.reverse();
    backward.reverse();
    let pairs = forward.iter().zip(&backward);
    let differ = ids
        .iter()
        .zip(pairs)
        .filter(|(_, (one, other))| one != other);
    differ.map(|(id, _)| id.clone()).collect()
}

#[test]
fn runs_are_the_same_in_any_order_on_any_number_of_threads() {
    for name in KINDS {
        let ids: Vec<RunId> = campaign(name, 240).ids().collect();
        let kept = || -> BaseOf<bases::Kept> {
            let bases = Bases::default();
            Box::new(move |id| bases.get(id))
        };
        assert_eq!(that_differ(ids, kept), [], "{name}");
    }
}

/// Control: bases are cached by less than their ids, so that the first run that needs one creates
/// it for others.
#[test]
fn runs_that_share_the_base_of_whichever_came_first_differ() {
    for name in KINDS {
        let ids: Vec<RunId> = campaign(name, 240).ids().collect();
        let shared = || -> BaseOf<Arc<Made>> {
            let kept: Mutex<BTreeMap<bool, Arc<Made>>> = Mutex::default();
            Box::new(move |id| {
                let mut kept = kept.lock().expect("nothing panics here");
                let make = || Arc::new(Base::make(id, &None));
                Arc::clone(kept.entry(id.age == 0).or_insert_with(make))
            })
        };
        assert_ne!(that_differ(ids, shared), [], "{name}");
    }
}

#[test]
fn a_run_is_repeated_by_its_id_alone() {
    for name in KINDS {
        let unusual = Campaign {
            unusual: true,
            ..campaign(name, 60)
        };
        let ids: Vec<RunId> = campaign(name, 60).ids().chain(unusual.ids()).collect();
        let bases = Bases::default();
        let all = outcomes(&ids, 2, &|id: &BaseId| bases.get(id), false);
        for (id, (work, found)) in ids.iter().zip(all).step_by(7) {
            let word = id.to_string();
            let result = found.map_or(Ok(()), |(_, what)| Err(what));
            let outcome = (work, result);
            assert_eq!(replay(&word.parse().expect("a run id")), outcome, "{word}");
        }
    }
}

#[test]
fn ids_of_unusual_runs_are_valid() {
    for name in KINDS {
        let unusual = Campaign {
            unusual: true,
            ..campaign(name, 300)
        };
        for id in unusual.ids() {
            assert_eq!(id.to_string().parse().as_ref(), Ok(&id));
        }
    }
}

/// How often `words` occur in the whole story of a run with this shape.
fn told(name: &str, shape: u32, words: &str) -> usize {
    let id = format!("{name}/g{shape}/b0/w2x100/f1/s17/n2/d300-1234-n/d40-1234-n");
    let everything = Detail {
        everything: true,
        ..Detail::default()
    };
    let (story, violated) = tell(&id.parse().expect("a run id"), everything);
    assert!(!violated, "{id}");
    crate::explain::text(&story).matches(words).count()
}

/// Runs of every fifth shape of those that fill devices, beside runs of the shapes that follow.
#[test]
fn blocks_are_collected_by_request_in_every_fifth_unusual_shape() {
    for shape in [shape::UNUSUAL + 5, shape::UNUSUAL + 10] {
        let requested = |shape| told("lighttx", shape, "is collected by request");
        assert!(requested(shape) > 5, "{shape}");
        assert_eq!(requested(shape + 1), 0, "{shape}");
    }
}

/// Controls: the shapes that follow, and a protocol without such writes.
#[test]
fn pages_are_written_outside_of_transactions_in_every_second_unusual_shape() {
    for shape in [shape::UNUSUAL + 1, shape::UNUSUAL + 7] {
        for name in ["lighttx", "mhl-d"] {
            let written = |shape| told(name, shape, "outside of transactions");
            assert!(written(shape) > 2, "{name} {shape}");
            assert_eq!(written(shape + 1), 0, "{name} {shape}");
        }
        assert_eq!(told("scc", shape, "outside of transactions"), 0, "{shape}");
    }
}

#[test]
fn a_story_tells_the_settings_that_an_opening_changes() {
    for name in ["seal", "wal"] {
        let opened = |shape| told(name, shape, "It is opened with other settings: ");
        assert!(opened(shape::UNUSUAL + 3) > 1, "{name}");
        assert_eq!(opened(shape::UNUSUAL + 4), 0, "{name}");
    }
}

/// Names of the settings that openings of runs of a subject change, in unusual shapes with these
/// numbers modulo 4.
fn reopened(name: &str, remainder: u32) -> std::collections::BTreeSet<String> {
    let mut names = std::collections::BTreeSet::new();
    for n in 0..40 {
        let shape = shape::UNUSUAL + 4 * n + remainder;
        let id = format!("{name}/g{shape}/b0/w2x30/f1/s{n}/n1/o1-0-n");
        let id: RunId = id.parse().expect("a run id");
        let scene = Scene::new(&id.base).expect("a device");
        for opening in 0..4 {
            let other = scene.reopened(&id, opening);
            assert_eq!(other.changed(&scene.reopened(&id, opening)), None);
            let changed = other.changed(&scene).unwrap_or_default();
            let words = changed
                .split(", ")
                .filter_map(|word| word.split(' ').next());
            names.extend(words.map(str::to_string).filter(|word| !word.is_empty()));
        }
    }
    names
}

/// Control: the other shapes have the same settings at each opening.
#[test]
fn every_setting_that_may_change_changes_at_openings() {
    let device = "copies_stay gc_threshold static_wear_gap victims";
    let database = "frames policy write_through";
    let log = "checkpoint_every granularity log_buffer_bytes log_padded";
    for (name, parts) in [
        ("lighttx", [device, "map_cache zone_blocks", ""]),
        ("mhl-d", [device, "map_cache zone_blocks", ""]),
        ("bpcc", [device, "keeps_obsolete", ""]),
        ("g-mixsl", [device, "group group_timeout_us", ""]),
        ("seal", [device, "linger trims undecided works_ahead", ""]),
        (
            "seal-r",
            [device, "checkpoint linger trims undecided", "works_ahead"],
        ),
        ("seal.early", [device, "trims undecided works_ahead", ""]),
        ("force:cfc", [device, database, "flush_aborted steal"]),
        (
            "wal",
            [
                device,
                database,
                &format!("{log} group_wait_us log_page_each"),
            ],
        ),
        ("cfc-ex", [device, database, &format!("{log} flags_all")]),
    ] {
        let expected = parts.iter().flat_map(|part| part.split_whitespace());
        let expected = expected.map(str::to_string).collect();
        assert_eq!(reopened(name, 3), expected, "{name}");
        for remainder in 0..3 {
            assert_eq!(reopened(name, remainder), Default::default(), "{name}");
        }
    }
}

#[test]
fn every_shape_suits_every_subject() {
    let all = Subject::names();
    let mut geometries = std::collections::BTreeSet::new();
    for (subject, faults) in all.iter().flat_map(|name| [(name, false), (name, true)]) {
        let Campaign {
            subject,
            faults: every,
            ..
        } = campaign(subject, 1);
        let colliding = (0..20).map(|n| shape::COLLIDING + n * 257);
        let colliding = colliding.take_while(|_| subject.hands_flags_on());
        let tiny = (0..20).map(|n| shape::TINY + n * 257);
        for shape in (0..40).map(|n| n * 257).chain(colliding).chain(tiny) {
            let id = BaseId {
                shape,
                clients: 4,
                pages: 24,
                faults: if faults { every } else { Faults::default() },
                ..BaseId::plain(subject, None)
            };
            let scene = scene::Scene::new(&id).unwrap_or_else(|why| panic!("{id}: {why}"));
            geometries.insert(format!("{:?}", scene.geometry));
        }
    }
    assert!(geometries.len() > 100, "{}", geometries.len());
}

/// Runs that used to end in a violation, each with the defect that was fixed.
const MENDED: [(&str, &str); 17] = [
    (
        "cfc-ex/g29135/b35994/w5x7/f1/s4845/n3/f109-1ae0-n/r0-ad67-n/c2-40fd-n",
        "a restart on a full device found no room, and the database did not open again",
    ),
    (
        "cfc/g395714/b0/w1x30/f1/s2488/n2/d118-3f-n/c0-63-n",
        "a transaction could not end once there was no room for one of the flags of its commit",
    ),
    (
        "cfc/g362881/b96694/w2x60/f15/s4261924074/n3/o588-a8d5-n/d7-9ac5-n/c5-762f-n",
        "a commit used up the collector's blocks for carriers, and a full device took no transaction",
    ),
    (
        "afc.page-flags/g318186/b79262/w2x178/f15/s1225380499/n3/o123-b8d9-n/r1-bc12-t/r11-696-n",
        "a block without room for its flags was collected before others that had no live page",
    ),
    (
        "cfc/g396181/b50103/w2x130/f15/s1705068588/n3/r492-a171-t/c6-dae6-n/r2-7306-t",
        "a carrier was not written again for a head that had one, and a commit was lost",
    ),
    (
        "afc/g33493/b0/w1x17/f15/s1277171008/n3/o108-a174-n/e50-8e9f-t/c1-8954-t",
        "a collection found no room for its carriers, and pages that it had not flagged passed for FALSE",
    ),
    (
        "afc/g65219/b72193/w2x23/f15/s1311837979/n3/o207-c757-n/o11-b458-n/c12-a6ac-n",
        "a part of an aborted transaction fell apart without a page that was in flight",
    ),
    (
        "cfc-ex/g56418/b31243/w2x7/f15/s2863100842/n3/c11-37bf-n/r9-6303-t/e43-2da1-t",
        "a torn page was merged away by what made room for its copy",
    ),
    (
        "afc-ex/g67165/b56614/w6x24/f15/s2883186958/n3/r93-b9d8-t/c2-16a2-t/c5-930d-n",
        "the same",
    ),
    (
        "cfc-ex/g10403/b77346/w5x3/f15/s3711314574/n3/o40-19f8-t/r64-e685-t/c8-1e0a-n",
        "records that were redone on a page took more than a page in between",
    ),
    (
        "aw/g71336/b59950/w2x30/f15/s2747240087/n3/e252-6255-n/c0-499f-n/c7-7470-n",
        "a block was let go when a log page called its group durable that was not there yet",
    ),
    (
        "mhl-m/g14176/b64882/w3x37/f15/s3399379527/n3/c229-91a4-n/o91-2695-n/c0-702f-n",
        "a log page called groups durable whose copies were in flight",
    ),
    (
        "prefix-bptree@force:cfc/g78368/b25109/w2x44/f15/s2210055461/n3/f339-a98a-t/o99-51ac-n/o118-eba6-n",
        "an index that says that its store is full was taken for one that is wrong",
    ),
    (
        "sal@force:cfc/g692/b78009/w3x27/f15/s4199594529/n3/f390-68d-t/o11-1fd2-t/c11-1716-t",
        "the same",
    ),
    (
        "lighttx/g314760/b0/w2x86/f1/s8947/n1/c204-aedf-n",
        "pages of a transaction were copied before its commit was durable, and a part of it counted",
    ),
    (
        "cfc-ex/g387611/b60422/w2x4/f15/s2897666151/n2/r118-6c4e-t/a35-0-n",
        "after an opening with a smaller log buffer commits had LSNs that pages were ahead of",
    ),
    (
        "afc-ex/g339951/b0/w1x3/f15/s6853/n1/a143-3d-n",
        "with a larger log buffer than before a full log was not opened",
    ),
];

#[test]
fn runs_that_were_violated_hold() {
    for (word, what) in MENDED {
        let (_, result) = replay(&word.parse().expect("a run id"));
        assert_eq!(result, Ok(()), "{word}: {what}");
    }
}
