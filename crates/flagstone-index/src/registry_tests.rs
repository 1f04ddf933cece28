//! Common properties of all registered indexes that histories of single indexes do not cover.

use super::model::{History, Mirrored};
use super::*;
use flagstone::dice::Dice;
use std::collections::BTreeSet;

const ZERO: Nanos = Nanos::ZERO;
const PAGES: u32 = 4096;

fn blank() -> Box<dyn BackingStore> {
    Box::new(MemStore::new(256, PAGES))
}

/// Records in ascending key order.
fn pairs(count: u64) -> Vec<(Key, Value)> {
    (0..count).map(|n| (n * 3 + 1, n + 7)).collect()
}

fn filled(kind: IndexKind, count: u64) -> Box<dyn Index> {
    let (mut index, mut now) = kind.open(blank(), &kind.info().tiny(), ZERO).unwrap();
    for (key, value) in pairs(count) {
        now = index.insert(now, key, value).unwrap();
    }
    index.flush(now).unwrap();
    index
}

/// Fails if an index accepts pages of another kind.
#[test]
fn a_store_is_opened_as_the_index_that_it_holds() {
    for &kind in IndexKind::ALL {
        assert_eq!(IndexKind::by_name(kind.info().name), Some(kind));
        let mut store = filled(kind, 50).into_store();
        let mut image = vec![0; 256];
        for &other in IndexKind::ALL.iter().filter(|&&other| other != kind) {
            store.read(ZERO, Lpn(0), &mut image).unwrap();
            let mut copy = blank();
            copy.write(ZERO, &[(Lpn(0), &image)]).unwrap();
            let refused = other.open(copy, &other.info().tiny(), ZERO).err();
            let refused = refused.map_or(String::new(), |error| error.to_string());
            assert!(
                refused.contains("open it as that"),
                "{other} takes {kind}: {refused}"
            );
        }
        let (mut index, _) = kind.open(store, &kind.info().tiny(), ZERO).unwrap();
        assert_eq!(index.get(ZERO, 4).unwrap().0, Some(8), "{kind}");
    }
    assert_eq!(IndexKind::by_name("no such index"), None);
}

#[test]
fn all_indexes_agree_with_a_map() {
    for &kind in IndexKind::ALL {
        History::of(kind, kind.info().tiny()).assert_agrees(4);
    }
}

/// Settings of an index that may differ between openings, each with two values.
fn changeable(kind: IndexKind) -> &'static [(&'static str, [&'static str; 2])] {
    match kind.info().name {
        "bptree" | "prefix-bptree" => &[("memory", ["3000", "20000"])],
        "lazy-bptree" => &[
            ("memory", ["3000", "20000"]),
            ("pool_share", ["0.1", "0.6"]),
        ],
        "bw-delta" => &[
            ("memory", ["6000", "20000"]),
            ("chain_max", ["1", "4"]),
            ("chain_max", ["2", "9"]),
            ("node_max", ["6", "20"]),
            ("node_min", ["2", "4"]),
            ("segment_pages", ["2", "6"]),
            ("log_factor", ["1.5", "4"]),
            ("update", ["blind", "pair"]),
        ],
        "linear" => &[
            ("load_factor", ["0.5", "2"]),
            ("contract_below", ["0", "0.5"]),
        ],
        "extendible" => &[("depth_max", ["2", "6"])],
        "lazy-split" => &[("load_factor", ["0.5", "3"]), ("first_buckets", ["1", "8"])],
        "sal" => &[
            ("memory", ["3000", "20000"]),
            ("load_factor", ["0.5", "1.0"]),
            ("split", ["lazy", "eager"]),
            ("append", ["fill", "new-page"]),
            ("virtual_split", ["false", "true"]),
            ("resize", ["false", "true"]),
            ("period", ["4", "64"]),
            ("false_positive", ["0.0111", "0.0110"]),
        ],
        other => panic!("which settings of {other} may differ?"),
    }
}

/// Opens an index with one setting after the other, with changes between. Returns the difference
/// from a map.
fn play_with(kind: IndexKind, all: &[Settings], seed: u64) -> Result<(), String> {
    let mut both = Mirrored::open(kind, &all[0], 256).map_err(|error| error.to_string())?;
    let mut dice = Dice(seed);
    for turn in 0..6 {
        let settings = &all[turn % all.len()];
        both = both.reopen_with(settings)?;
        let says = |what: String| format!("turn {turn}: {what}");
        both.index.check().map_err(says)?;
        for i in 0..700 {
            let (key, value) = (dice.below(900), dice.below(250) + 1);
            match dice.below(10) {
                0..=1 => both.update(key, value),
                2..=4 if turn % 3 == 2 => both.insert(key, value),
                2..=4 => both.delete(key),
                5 => both.get(key),
                _ if turn % 3 == 2 => both.delete(key),
                _ => both.insert(key, value),
            }
            .map_err(says)?;
            if i % 50 == 0 {
                both.index.check().map_err(says)?;
            }
        }
        both.compare(0..900).map_err(says)?;
    }
    Ok(())
}

/// Fails if an index that was written with other settings is called damaged, or becomes so.
#[test]
fn an_index_that_is_opened_with_other_settings_is_whole_and_goes_on() {
    let mut wrong = Vec::new();
    for &kind in IndexKind::ALL {
        for &(name, values) in changeable(kind) {
            let tiny = kind.info().tiny();
            let all = values.map(|value| tiny.clone().with(name, value));
            for seed in 0..4 {
                let all = if seed % 2 == 0 {
                    all.clone()
                } else {
                    [all[1].clone(), all[0].clone()]
                };
                let played = std::panic::catch_unwind(|| play_with(kind, &all, seed));
                match played {
                    Ok(Ok(())) => {}
                    Ok(Err(what)) => wrong.push(format!("{kind} {name}, seed {seed}: {what}")),
                    Err(_) => wrong.push(format!("{kind} {name}, seed {seed}: panic")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Fails if a bulk-loaded index lacks a record, or has them out of order.
#[test]
fn an_index_that_is_built_is_as_one_that_was_filled() {
    for &kind in IndexKind::ALL {
        for count in [0, 1, 500] {
            let pairs = pairs(count);
            let (mut index, now) = kind.open(blank(), &kind.info().tiny(), ZERO).unwrap();
            let now = index.build(now, &pairs).unwrap();
            index.flush(now).unwrap();
            index
                .check()
                .unwrap_or_else(|what| panic!("{kind}: {what}"));
            let (mut index, _) = kind
                .open(index.into_store(), &kind.info().tiny(), ZERO)
                .unwrap();
            for &(key, value) in &pairs {
                assert_eq!(index.get(ZERO, key).unwrap().0, Some(value), "{kind} {key}");
            }
            assert_eq!(index.get(ZERO, 0).unwrap().0, None, "{kind}");
            let mut found = Vec::new();
            match index.range(ZERO, 0, Key::MAX, &mut found) {
                Ok(_) => assert_eq!(found, pairs, "{kind}"),
                Err(error) => {
                    assert_eq!(error, IndexError::Unordered(kind.info().name));
                    assert!(error.to_string().contains("use a tree"), "{error}");
                }
            }
            assert_eq!(
                found.is_empty(),
                count == 0 || !kind.info().ordered,
                "{kind}"
            );
        }
    }
}

/// Fails if a counter survives a reset, or a structure is listed twice or empty.
#[test]
fn counters_begin_anew_and_memory_is_listed_by_structure() {
    for &kind in IndexKind::ALL {
        let mut index = filled(kind, 300);
        assert!(index.stats().writes > 0, "{kind}");
        let names: Vec<&str> = index.memory().iter().map(|part| part.0).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let bytes: u64 = index.memory().iter().map(|part| part.1).sum();
        // The tiny settings give it two kibibytes of memory.
        assert!(
            (1_000..100_000).contains(&bytes),
            "{kind}: {:?}",
            index.memory()
        );
        let splits = |index: &dyn Index| {
            let figures = index.figures();
            let splits = figures.iter().find(|(name, _)| *name == "splits");
            splits.map(|(_, value)| *value)
        };
        assert_ne!(splits(index.as_ref()), Some(0.0), "{kind}");
        index.reset_stats();
        assert_eq!(index.stats(), IndexStats::default(), "{kind}");
        assert_eq!(splits(index.as_ref()).unwrap_or(0.0), 0.0, "{kind}");
    }
}

/// The error of an index with these pages; `None` if it can be checked and read completely.
fn said_of(kind: IndexKind, images: &[Vec<u8>]) -> Option<IndexError> {
    let mut store = blank();
    for (page, image) in images.iter().enumerate() {
        store.write(ZERO, &[(Lpn(page as u32), image)]).unwrap();
    }
    let (mut index, _) = match kind.open(store, &kind.info().tiny(), ZERO) {
        Ok(opened) => opened,
        Err(error) => return Some(error),
    };
    // The check reports more damage than searches encounter, and never panics.
    let _ = index.check();
    let mut read = || {
        // Existing keys and a missing one.
        for key in (1..190).step_by(3).chain([0]) {
            index.get(ZERO, key)?;
        }
        if kind.info().ordered {
            index.range(ZERO, 0, Key::MAX, &mut Vec::new())
        } else {
            Ok(ZERO)
        }
    };
    let said = read().err();
    // Continuing after an error gives further errors, but no panic.
    for key in 0..190 {
        let _ = index.get(ZERO, key);
        let changed = match key % 3 {
            0 => index.delete(ZERO, key + 1),
            _ => index.insert(ZERO, key + 10_000, key),
        };
        // A tree may have stopped half-way through a split.
        if changed.is_err() && kind.info().ordered {
            break;
        }
    }
    said
}

/// Fails if an index trusts what it reads: an out-of-range number panics.
#[test]
fn damaged_pages_of_any_index_are_errors_and_no_panics() {
    for &kind in IndexKind::ALL {
        let mut store = filled(kind, 60).into_store();
        let mut images = vec![vec![0; 256]; 60];
        for (page, image) in images.iter_mut().enumerate() {
            store.read(ZERO, Lpn(page as u32), image).unwrap();
        }
        let is_used = |image: &Vec<u8>| image.iter().any(|&byte| byte != 0);
        let used = images.iter().rposition(is_used).map_or(0, |last| last + 1);
        images.truncate(used);
        assert!(
            (7..60).contains(&images.len()),
            "{kind}: no page is left out"
        );
        assert_eq!(said_of(kind, &images), None, "{kind}");
        let (mut refused, mut damages) = (0, BTreeSet::new());
        for page in 0..images.len() {
            // Every byte of the metadata, and a sample of other pages.
            let step = if page == 0 { 1 } else { 1 + images.len() / 8 };
            for at in (page % step..256).step_by(step) {
                let bit = [0x10, 0x01, 0x80][at % 3];
                images[page][at] ^= bit;
                match said_of(kind, &images) {
                    None => {}
                    Some(IndexError::Damaged { at, .. }) => {
                        refused += 1;
                        damages.insert(at);
                    }
                    // Metadata of other settings, or of a smaller or full store.
                    Some(_) => refused += 1,
                }
                images[page][at] ^= bit;
            }
            // More records than fit, and a next page that does not exist.
            let whole = std::mem::replace(&mut images[page], vec![0xFF; 256]);
            refused += u32::from(said_of(kind, &images).is_some());
            images[page] = whole;
        }
        assert!(
            refused > 50 && damages.len() > 2,
            "{kind}: {refused}, {damages:?}"
        );
    }
}
