//! For tests: long random histories, played on an index and on a map, which must agree.
//!
//! A history grows the index, changes it, shrinks it to almost nothing and grows it again, so that
//! whatever it does when it is full or empty happens. Now and then it is checked, compared with
//! the map in whole, flushed and opened anew from its pages. Campaigns of the lab have
//! transactions, roll-backs and power cuts.

use super::{DeviceStore, Index, IndexError, IndexKind, Key, MemStore};
use super::{Settings, Store, Value};
use crate::commit::{Device, Kind, Options};
use crate::dice::Dice;
use crate::ftl::Config;
use crate::nand::{Geometry, small};
use crate::units::Nanos;
use std::collections::BTreeMap;

/// One of the figures that an index has of its own.
pub(super) fn figure(index: &dyn Index, name: &str) -> f64 {
    let figures = index.figures();
    let found = figures.iter().find(|(figure, _)| *figure == name);
    found.unwrap_or_else(|| panic!("no figure {name}")).1
}

/// A history to play.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) kind: IndexKind,
    pub(super) settings: Settings,
    pub(super) page_bytes: usize,
    pub(super) seed: u64,
    pub(super) operations: u64,
    /// Keys are below it, so that they come again.
    pub(super) keys: u64,
}

/// What an index does wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// Every 50th update is lost.
    LosesUpdates,
    /// Every 50th deletion is lost.
    LosesDeletions,
}

impl History {
    /// One on pages of 256 bytes.
    pub(super) fn of(kind: IndexKind, settings: Settings) -> History {
        History {
            kind,
            settings,
            page_bytes: 256,
            seed: 1,
            operations: 6000,
            keys: 1500,
        }
    }

    /// Plays it.
    ///
    /// # Errors
    /// Names the difference, and the operation after which it was found.
    pub(super) fn play(&self, mistake: Mistake) -> Result<(), String> {
        let store = Box::new(MemStore::new(self.page_bytes, 1 << 20));
        let opened = self.kind.open(store, &self.settings, Nanos::ZERO);
        let (mut index, mut now) = opened.map_err(|error| error.to_string())?;
        let mut map: BTreeMap<Key, Value> = BTreeMap::new();
        let mut dice = Dice(self.seed);
        for i in 0..self.operations {
            let fail = |what: String| format!("operation {i}, seed {}: {what}", self.seed);
            let say = |error: IndexError| fail(error.to_string());
            // Growing and shrinking by turns, three times in all.
            let phase = i * 6 / self.operations;
            let (insert, delete) = if phase.is_multiple_of(2) {
                (60, 5)
            } else {
                (5, 60)
            };
            let (key, value) = (dice.below(self.keys), dice.below(250) + 1);
            let roll = dice.below(100);
            if roll < insert {
                now = index.insert(now, key, value).map_err(say)?;
                map.insert(key, value);
            } else if roll < insert + delete {
                if mistake != Mistake::LosesDeletions || i % 50 != 0 {
                    now = index.delete(now, key).map_err(say)?;
                }
                map.remove(&key);
            } else if roll < insert + delete + 10 {
                // A key that is there, to be updated.
                let there = map.range(key..).next().map(|(&key, _)| key);
                if let Some(key) = there {
                    if mistake != Mistake::LosesUpdates || i % 50 != 0 {
                        now = index.update(now, key, value).map_err(say)?;
                    }
                    map.insert(key, value);
                }
            } else if roll < insert + delete + 12 && index.info().ordered {
                let to = key + dice.below(self.keys / 4 + 1);
                let mut found = Vec::new();
                now = index.range(now, key, to, &mut found).map_err(say)?;
                let wanted: Vec<(Key, Value)> =
                    map.range(key..=to).map(|(&k, &v)| (k, v)).collect();
                if found != wanted {
                    return Err(fail(format!("{key}..={to} has {found:?}, not {wanted:?}")));
                }
            } else {
                let (found, done) = index.get(now, key).map_err(say)?;
                now = done;
                if found != map.get(&key).copied() {
                    let wanted = map.get(&key);
                    return Err(fail(format!("{key} has {found:?}, not {wanted:?}")));
                }
            }
            if i % (self.operations / 40 + 1) == 0 {
                index.check().map_err(fail)?;
            }
            if i % (self.operations / 8 + 1) == self.operations / 16 {
                now = index.flush(now).map_err(say)?;
                index.check().map_err(fail)?;
                let store = index.into_store();
                let opened = self.kind.open(store, &self.settings, now);
                (index, now) = opened.map_err(say)?;
                index.check().map_err(fail)?;
                now = self.compare(index.as_mut(), &map, now).map_err(fail)?;
            }
        }
        index.check()?;
        self.compare(index.as_mut(), &map, now).map(|_| ())
    }

    fn compare(
        &self,
        index: &mut dyn Index,
        map: &BTreeMap<Key, Value>,
        mut now: Nanos,
    ) -> Result<Nanos, String> {
        for key in 0..self.keys {
            let (found, done) = index.get(now, key).map_err(|error| error.to_string())?;
            now = done;
            if found != map.get(&key).copied() {
                let wanted = map.get(&key);
                return Err(format!("{key} has {found:?}, not {wanted:?}"));
            }
        }
        if index.info().ordered {
            let mut found = Vec::new();
            let range = index.range(now, 0, Key::MAX, &mut found);
            now = range.map_err(|error| error.to_string())?;
            if found
                .iter()
                .ne(map.iter().map(|(&k, &v)| (k, v)).collect::<Vec<_>>().iter())
            {
                return Err("the whole range differs".to_string());
            }
        }
        Ok(now)
    }

    /// Plays several seeds, and both controls, which must be found.
    pub(super) fn assert_agrees(&self, seeds: u64) {
        for seed in 0..seeds {
            let history = History {
                seed: self.seed + seed,
                ..self.clone()
            };
            assert_eq!(history.play(Mistake::None), Ok(()), "{history:?}");
        }
        for mistake in [Mistake::LosesUpdates, Mistake::LosesDeletions] {
            assert!(self.play(mistake).is_err(), "{mistake:?} passes: {self:?}");
        }
    }
}

/// A device with a commit protocol, small enough to be collected often.
pub(super) fn small_device(kind: Kind) -> Box<dyn Store> {
    let chip = small::chip(Geometry {
        packages_per_channel: 2,
        pages_per_block: 16,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let config = Config {
        over_provision: 0.2,
        logical_pages: None,
        ..Config::small(0, None)
    };
    let device = Device::open(
        Box::new(chip),
        kind,
        config,
        &Options::default(),
        Nanos::ZERO,
    );
    Box::new(DeviceStore::new(device.expect("a blank device")))
}

/// Ranges of a tree that asks for several leaves at once: they find what those do that ask for one
/// by one, read no leaf more, and take less time.
pub(super) fn assert_reads_ahead(kind: IndexKind) {
    for (keys, levels) in [(20, 1), (400, 2), (3000, 3)] {
        let mut store = small_device(Kind::Plain);
        let mut now = Nanos::ZERO;
        let mut dice = Dice(keys);
        let all: Vec<(Key, Value)> = (0..keys).map(|n| (n * 7, n)).collect();
        let (mut index, mut done) = kind.open(store, &Settings::new(), now).expect("blank");
        for &(key, value) in &all {
            done = index.insert(done, key, value).expect("room");
        }
        now = index.flush(done).expect("room");
        store = index.into_store();
        let mut times = [0; 2];
        for round in 0..40 {
            let from = dice.below(keys * 7);
            let to = match round {
                0 => Key::MAX,
                _ => from + dice.below(keys * 7 / 2),
            };
            let within = |&(key, _): &(Key, Value)| (from..=to).contains(&key);
            let wanted: Vec<(Key, Value)> = all.iter().copied().filter(within).collect();
            let mut reads = [0; 2];
            for (i, read_ahead) in [1, 8].into_iter().enumerate() {
                // A memory with nothing in it.
                let settings = Settings::new().with("read_ahead", read_ahead);
                let (mut index, opened) = kind.open(store, &settings, now).expect("a tree");
                index.reset_stats();
                let mut found = Vec::new();
                now = index.range(opened, from, to, &mut found).expect("a range");
                assert_eq!(found, wanted, "{from}..={to} with {read_ahead}");
                times[i] += now.0 - opened.0;
                reads[i] = index.stats().reads;
                store = index.into_store();
            }
            let what = format!("{from}..={to} of {keys} reads {reads:?} pages");
            // A tree that only follows links looks into the leaf behind the last one at times.
            assert!(reads[1] + 1 >= reads[0], "{what}");
            // The nodes above the leaves, where links lead past them.
            let above = if levels < 3 { 0 } else { reads[0].div_ceil(8) };
            assert!(reads[1] <= reads[0] + above, "{what}");
        }
        let least = if levels == 1 { times[0] } else { times[0] / 2 };
        assert!(times[1] <= least, "{keys} keys: {times:?}");
    }
}
