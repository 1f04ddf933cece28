//! Test helper: long random histories, played on an index and on a map, which must agree.
//!
//! A history grows the index, changes it, shrinks it to almost nothing and grows it again, so that
//! everything that happens in full or empty indexes occurs. From time to time it is checked,
//! compared with the map, flushed and reopened from its pages. The lab's campaigns have
//! transactions, roll-backs and power cuts.

use super::{BackingError, Result, Settings, Value};
use super::{BackingStore, DeviceStore, Index, IndexError, IndexKind, Key, MemStore};
use flagstone::commit::{Device, Kind, Options};
use flagstone::dice::Dice;
use flagstone::ftl::Config;
use flagstone::nand::{Geometry, small};
use flagstone::units::{Lpn, Nanos};
use std::collections::BTreeMap;

/// One of the index's own figures.
pub(super) fn figure(index: &dyn Index, name: &str) -> f64 {
    let figures = index.figures();
    let found = figures.iter().find(|(figure, _)| *figure == name);
    found.unwrap_or_else(|| panic!("no figure {name}")).1
}

/// An empty index in `pages` pages in memory; `open` opens it.
pub(super) fn blank<I>(
    open: impl FnOnce(Box<dyn BackingStore>, &Settings, Nanos) -> Result<(I, Nanos)>,
    settings: &Settings,
    page_bytes: usize,
    pages: u32,
) -> (I, Nanos) {
    let store = Box::new(MemStore::new(page_bytes, pages));
    open(store, settings, Nanos::ZERO).expect("a blank store")
}

/// A history to play.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) kind: IndexKind,
    pub(super) settings: Settings,
    pub(super) page_bytes: usize,
    pub(super) seed: u64,
    pub(super) operations: u64,
    /// Upper limit of keys, small enough that keys repeat.
    pub(super) keys: u64,
}

/// A deliberate defect of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// Every 50th update is lost.
    LosesUpdates,
    /// Every 50th deletion is lost.
    LosesDeletions,
}

impl History {
    /// A history on pages of 256 bytes.
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

    /// Plays the history.
    ///
    /// # Errors
    /// Names the difference, and the operation after which it was found.
    pub(super) fn play(&self, mistake: Mistake) -> Result<(), String> {
        let both = Mirrored::open(self.kind, &self.settings, self.page_bytes);
        let mut both = both.map_err(said)?;
        let mut dice = Dice(self.seed);
        for i in 0..self.operations {
            let fail = |what: String| format!("operation {i}, seed {}: {what}", self.seed);
            // Grows and shrinks alternately, three times in all.
            let phase = i * 6 / self.operations;
            let (insert, delete) = if phase.is_multiple_of(2) {
                (60, 5)
            } else {
                (5, 60)
            };
            let (key, value) = (dice.below(self.keys), dice.below(250) + 1);
            let is_lost = |by: Mistake| mistake == by && i % 50 == 0;
            let roll = dice.below(100);
            let done = if roll < insert {
                both.insert(key, value)
            } else if roll < insert + delete {
                if is_lost(Mistake::LosesDeletions) {
                    both.map.remove(&key);
                    Ok(())
                } else {
                    both.delete(key)
                }
            } else if roll < insert + delete + 10 {
                // Update an existing key.
                match both.map.range_mut(key..).next() {
                    Some((_, old)) if is_lost(Mistake::LosesUpdates) => {
                        *old = value;
                        Ok(())
                    }
                    Some((&key, _)) => both.update(key, value),
                    None => Ok(()),
                }
            } else if roll < insert + delete + 12 && self.kind.info().ordered {
                both.range(key, key + dice.below(self.keys / 4 + 1))
            } else {
                both.get(key)
            };
            done.map_err(fail)?;
            if i % (self.operations / 40 + 1) == 0 {
                both.index.check().map_err(fail)?;
            }
            if i % (self.operations / 8 + 1) == self.operations / 16 {
                both = both.reopen().map_err(fail)?;
                both.compare(0..self.keys).map_err(fail)?;
            }
        }
        both.compare(0..self.keys)
    }

    /// Plays several seeds, and both controls, which must be detected.
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

/// An index, and a map with the same pairs. Errors describe differences between the two.
pub(super) struct Mirrored {
    kind: IndexKind,
    settings: Settings,
    pub(super) index: Box<dyn Index>,
    pub(super) map: BTreeMap<Key, Value>,
    now: Nanos,
}

fn said(error: IndexError) -> String {
    error.to_string()
}

impl Mirrored {
    /// An empty index over pages in memory.
    pub(super) fn open(
        kind: IndexKind,
        settings: &Settings,
        page_bytes: usize,
    ) -> Result<Mirrored> {
        let store = Box::new(MemStore::new(page_bytes, 1 << 20));
        let (index, now) = kind.open(store, settings, Nanos::ZERO)?;
        Ok(Mirrored {
            kind,
            settings: settings.clone(),
            index,
            map: BTreeMap::new(),
            now,
        })
    }

    pub(super) fn insert(&mut self, key: Key, value: Value) -> Result<(), String> {
        self.now = self.index.insert(self.now, key, value).map_err(said)?;
        self.map.insert(key, value);
        Ok(())
    }

    pub(super) fn update(&mut self, key: Key, value: Value) -> Result<(), String> {
        self.now = self.index.update(self.now, key, value).map_err(said)?;
        self.map.insert(key, value);
        Ok(())
    }

    pub(super) fn delete(&mut self, key: Key) -> Result<(), String> {
        self.now = self.index.delete(self.now, key).map_err(said)?;
        self.map.remove(&key);
        Ok(())
    }

    /// Looks up a key in both and compares the results.
    pub(super) fn get(&mut self, key: Key) -> Result<(), String> {
        let (found, now) = self.index.get(self.now, key).map_err(said)?;
        self.now = now;
        let wanted = self.map.get(&key).copied();
        if found != wanted {
            return Err(format!("{key} has {found:?}, not {wanted:?}"));
        }
        Ok(())
    }

    /// Compares a range of both. Found pairs are appended to those found before.
    pub(super) fn range(&mut self, from: Key, to: Key) -> Result<(), String> {
        let (mut found, mut wanted) = (vec![(7, 7)], vec![(7, 7)]);
        self.now = self
            .index
            .range(self.now, from, to, &mut found)
            .map_err(said)?;
        if from <= to {
            wanted.extend(self.map.range(from..=to).map(|(&key, &value)| (key, value)));
        }
        if found != wanted {
            return Err(format!("{from}..={to} has {found:?}, not {wanted:?}"));
        }
        Ok(())
    }

    /// Checks the index, looks up keys, and compares the whole range if the index is ordered.
    pub(super) fn compare(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<(), String> {
        self.index.check()?;
        keys.into_iter().try_for_each(|key| self.get(key))?;
        if self.kind.info().ordered {
            self.range(0, Key::MAX)
        } else {
            Ok(())
        }
    }

    /// The same index, reopened from its pages after a flush, with other settings.
    pub(super) fn reopen_with(mut self, settings: &Settings) -> Result<Mirrored, String> {
        self.settings = settings.clone();
        self.reopen()
    }

    /// The same index, reopened from its pages after a flush.
    pub(super) fn reopen(mut self) -> Result<Mirrored, String> {
        let now = self.index.flush(self.now).map_err(said)?;
        self.index.check()?;
        let store = self.index.into_store();
        let opened = self.kind.open(store, &self.settings, now);
        (self.index, self.now) = opened.map_err(said)?;
        Ok(self)
    }
}

/// A call of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    Trim,
    Begin,
    Commit,
    Abort,
}

/// A store that asks a callback before each call. A call for which the callback returns an error is
/// not executed.
pub(super) struct Asking<S, F> {
    pub(super) store: S,
    pub(super) ask: F,
}

impl<S, F> BackingStore for Asking<S, F>
where
    S: BackingStore,
    F: FnMut(&mut S, Nanos, Call) -> Result<(), BackingError>,
{
    fn page_bytes(&self) -> usize {
        self.store.page_bytes()
    }

    fn pages(&self) -> u32 {
        self.store.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Read)?;
        self.store.read(now, at, into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Write)?;
        self.store.write(now, pages)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Trim)?;
        self.store.trim(now, at)
    }

    fn transactional(&self) -> bool {
        self.store.transactional()
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Begin)?;
        self.store.begin(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Commit)?;
        self.store.commit(now)
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        (self.ask)(&mut self.store, now, Call::Abort)?;
        self.store.abort(now)
    }
}

/// A blank transactional device with `pages` logical pages. Asks a callback before each call.
pub(super) fn asking<F>(pages: u32, ask: F) -> Box<dyn BackingStore>
where
    F: FnMut(&mut DeviceStore, Nanos, Call) -> Result<(), BackingError> + 'static,
{
    let flash = Box::new(small::chip(Geometry {
        blocks_per_plane: 128,
        ..small::GEOMETRY
    }));
    let (config, options) = (Config::small(pages, None), Options::default());
    let device = Device::open(flash, Kind::Scc, config, &options, Nanos::ZERO);
    let store = DeviceStore::new(device.expect("a blank device"));
    Box::new(Asking { store, ask })
}

/// A device with a commit protocol, small enough for frequent collections.
pub(super) fn small_device(kind: Kind) -> Box<dyn BackingStore> {
    let chip = small::chip(Geometry {
        packages_per_channel: 2,
        pages_per_block: 16,
        page_bytes: 512,
        ..small::GEOMETRY
    });
    let mut config = Config::small(0, None);
    config.over_provision = 0.2;
    config.logical_pages = None;
    let device = Device::open(
        Box::new(chip),
        kind,
        config,
        &Options::default(),
        Nanos::ZERO,
    );
    Box::new(DeviceStore::new(device.expect("a blank device")))
}

/// Ranges with read-ahead must find the same as ranges that read leaf by leaf, read no additional
/// leaf, and take less time.
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
                // Start with an empty cache.
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
            // A tree that only follows links sometimes reads the leaf after the last one.
            assert!(reads[1] + 1 >= reads[0], "{what}");
            // Nodes above the leaves, which leaf links bypass.
            let above = if levels < 3 { 0 } else { reads[0].div_ceil(8) };
            assert!(reads[1] <= reads[0] + above, "{what}");
        }
        let least = if levels == 1 { times[0] } else { times[0] / 2 };
        assert!(times[1] <= least, "{keys} keys: {times:?}");
    }
}
