//! The lives: workloads of a database file, and the cost of each to the process that runs it.

use super::stores::{Kept, Kind};
use crate::limit;
use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VALUE_BYTES: u64 = 100;
const RECORD_BYTES: u64 = 8 + VALUE_BYTES;

/// The key whose deletion the control ignores.
const DROPPED: u64 = 100;

/// The lives of `flagstone sqlite lives`, of the same sizes, on keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Life {
    /// 8,000 records; 3,000 commits that change one record each.
    Small,
    /// 150,000 records are loaded, 95 % are deleted in one transaction; compaction.
    Bulk,
    /// 100,000 records, all changed in one transaction in random order, three times; compaction.
    Giant,
    /// A queue of 5,000 records; 3,000 commits insert a record at one end and delete one at the
    /// other.
    Queue,
    /// 20,000 records; 800 commits insert 100 records each; after every 50th, one commit deletes
    /// the old records.
    Series,
    /// 8,000 records; a hundred times: open, ten commits that change one record each, close.
    Daily,
}

/// The cost of a life, in bytes unless the name has another unit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Costs {
    /// Keys and values that the life wrote.
    pub(super) given: u64,
    /// Bytes written by the process, as the kernel counts them. A buffered write counts the whole
    /// folio that it makes dirty, which may be many times the bytes that reach the device.
    pub(super) written: u64,
    /// Bytes written to the device by all processes, including the file system's journal.
    pub(super) device: Option<u64>,
    /// Size of the files and of the records in them, at the moment when their ratio was largest.
    pub(super) most: [u64; 2],
    /// Size of the files and of the records in them after the life.
    pub(super) end: [u64; 2],
    pub(super) memory: u64,
    pub(super) descriptors: u64,
    pub(super) commits: u64,
    pub(super) p999_ns: u64,
    pub(super) opening_ns: u64,
}

/// The state of a running life.
pub(super) struct Lived {
    kind: Kind,
    folder: PathBuf,
    /// `None` while the store is closed.
    store: Option<Box<dyn Kept>>,
    dice: Pcg64Mcg,
    /// The model: the stamp of the value of each key, 0 if the key is absent.
    stamps: Vec<u64>,
    records: u64,
    descriptors_before: u64,
    commits: Vec<Duration>,
    costs: Costs,
}

impl Lived {
    pub(super) fn new(kind: Kind, folder: &Path, seed: u64) -> Result<Lived> {
        Ok(Lived {
            kind,
            folder: folder.to_path_buf(),
            store: None,
            dice: Pcg64Mcg::seed_from_u64(seed),
            stamps: Vec::new(),
            records: 0,
            descriptors_before: descriptors()?,
            commits: Vec::new(),
            costs: Costs::default(),
        })
    }

    /// Runs `life`, and checks at the end that the store holds the records of the model.
    pub(super) fn live(mut self, life: Life, times: u64) -> Result<Costs> {
        let device_before = written_to_device(&self.folder)?;
        let before = limit::io()?.1;
        self.open()?;
        self.work(life, times)?;
        if matches!(life, Life::Bulk | Life::Giant) {
            let store = self.store.take().context("it is open")?;
            self.store = Some(store.compact()?);
        }
        self.sample()?;
        self.close()?;
        self.commits.sort_unstable();
        let rank = (self.commits.len() as f64 * 0.999).ceil() as usize;
        let p999 = self.commits[rank.saturating_sub(1)];
        let mut costs = Costs {
            written: limit::io()?.1 - before,
            device: written_to_device(&self.folder)?
                .zip(device_before)
                .map(|(after, before)| after - before),
            end: [room(&self.folder)?, self.records * RECORD_BYTES],
            memory: memory()?,
            commits: self.commits.len() as u64,
            p999_ns: p999.as_nanos() as u64,
            ..self.costs.clone()
        };
        let openings: Result<Vec<_>> = (0..5).map(|_| self.opening()).collect();
        let opening = openings?.into_iter().min().unwrap_or_default();
        costs.opening_ns = opening.as_nanos() as u64;
        self.open()?;
        self.check()?;
        self.close()?;
        Ok(costs)
    }

    fn work(&mut self, life: Life, times: u64) -> Result<()> {
        match life {
            Life::Small => {
                self.load(8_000)?;
                self.commits.clear();
                self.change_some(3_000 * times)?;
            }
            Life::Bulk => {
                let records = 150_000 * times;
                self.load(records)?;
                self.commit([], (0..records).filter(|key| key % 20 > 0))?;
                self.sample()?;
            }
            Life::Giant => {
                let records = 100_000 * times;
                self.load(records)?;
                for round in 1..4 {
                    // A prime that does not divide the number of records, so each key occurs once.
                    let keys = (0..records).map(|at| (at * 7_919 + round) % records);
                    self.commit(keys, [])?;
                    self.sample()?;
                }
            }
            Life::Queue => {
                self.load(5_000)?;
                self.commits.clear();
                for at in 0..3_000 * times {
                    self.commit([5_000 + at], [at])?;
                }
            }
            Life::Series => {
                self.load(20_000)?;
                self.commits.clear();
                for at in 1..=800 * times {
                    let next = 20_000 + at * 100;
                    self.commit(next - 100..next, [])?;
                    if at % 50 == 0 {
                        self.commit([], next - 25_000..next - 20_000)?;
                    }
                }
            }
            Life::Daily => {
                self.load(8_000)?;
                self.commits.clear();
                for _ in 0..100 * times {
                    self.close()?;
                    self.open()?;
                    self.change_some(10)?;
                    self.sample()?;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.store = Some(self.kind.open(&self.folder)?);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.store.take().context("it is open")?.close()
    }

    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.store.as_ref().context("it is open")?.first(count)
    }

    /// Measures the time to open the store and read the first record.
    fn opening(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.open()?;
        self.first(1)?;
        let took = began.elapsed();
        self.close()?;
        Ok(took)
    }

    fn load(&mut self, records: u64) -> Result<()> {
        for first in (0..records).step_by(5_000) {
            self.commit(first..records.min(first + 5_000), [])?;
        }
        self.sample()
    }

    fn change_some(&mut self, commits: u64) -> Result<()> {
        for _ in 0..commits {
            let key = self.dice.random_range(0..self.stamps.len() as u64);
            self.commit([key], [])?;
        }
        Ok(())
    }

    /// Gives the keys `put` new values and deletes the keys `gone`, in one transaction.
    fn commit(
        &mut self,
        put: impl IntoIterator<Item = u64>,
        gone: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let put = put.into_iter().map(|key| (key, true));
        let gone = gone.into_iter().map(|key| (key, false));
        let changes = put.chain(gone).map(|(key, is_put)| {
            let at = key as usize;
            self.stamps.resize(self.stamps.len().max(at + 1), 0);
            self.records -= u64::from(self.stamps[at] > 0);
            let value = is_put.then(|| {
                self.stamps[at] = self.dice.random::<u64>() | 1;
                value(key, self.stamps[at])
            });
            if is_put {
                self.records += 1;
                self.costs.given += RECORD_BYTES;
            } else {
                self.stamps[at] = 0;
            }
            (key.to_be_bytes(), value)
        });
        let is_dropped = |(key, value): &([u8; 8], Option<Vec<u8>>)| {
            self.kind == Kind::DropsADelete && *key == DROPPED.to_be_bytes() && value.is_none()
        };
        let store = self.store.as_mut().context("it is open")?;
        let began = Instant::now();
        store.commit(&mut changes.filter(|change| !is_dropped(change)))?;
        self.commits.push(began.elapsed());
        if self.commits.len().is_multiple_of(50) {
            self.sample()?;
        }
        Ok(())
    }

    /// Samples the size of the files against that of the records, and the number of open
    /// descriptors.
    fn sample(&mut self) -> Result<()> {
        let now = [room(&self.folder)?, (self.records * RECORD_BYTES).max(1)];
        let share = |[room, live]: [u64; 2]| room as f64 / live.max(1) as f64;
        if share(now) > share(self.costs.most) {
            self.costs.most = now;
        }
        let held = || anyhow::Ok(descriptors()?.saturating_sub(self.descriptors_before));
        let mut most = held()?;
        if most > self.costs.descriptors {
            // Ignores descriptors that another thread opens only briefly.
            std::thread::sleep(Duration::from_millis(20));
            most = most.min(held()?);
        }
        self.costs.descriptors = self.costs.descriptors.max(most);
        Ok(())
    }

    /// Fails unless the store holds exactly the keys and values of the model.
    fn check(&self) -> Result<()> {
        let found = self.first(usize::MAX)?;
        let keys = (0..self.stamps.len() as u64).filter(|&key| self.stamps[key as usize] > 0);
        for (key, (found_key, found)) in keys.zip(&found) {
            ensure!(
                *found_key == key.to_be_bytes(),
                "expected key {key} next, but the store has {found_key:02x?}"
            );
            let is_right = *found == value(key, self.stamps[key as usize]);
            ensure!(is_right, "key {key} has a value that is not the last one written");
        }
        let (found, right) = (found.len() as u64, self.records);
        ensure!(
            found == right,
            "the store has {found} records, expected {right}"
        );
        Ok(())
    }
}

/// The value of `key` with `stamp`: incompressible bytes.
fn value(key: u64, stamp: u64) -> Vec<u8> {
    crate::ycsb::value(key.to_be_bytes(), stamp, VALUE_BYTES)
}

/// Bytes written to the device below `folder`. Syncs its file system first.
fn written_to_device(folder: &Path) -> Result<Option<u64>> {
    rustix::fs::syncfs(std::fs::File::open(folder)?)?;
    Ok(limit::written_to_device(folder))
}

/// The peak memory of this process, including mapped file pages.
fn memory() -> Result<u64> {
    let all = std::fs::read_to_string("/proc/self/status")?;
    let kib = all.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmHWM")?.parse::<u64>()? * 1024)
}

/// The number of open descriptors of this process.
fn descriptors() -> Result<u64> {
    // Reading the folder opens one descriptor itself.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

/// Disk space of the files in `folder`, in bytes.
fn room(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let meta = crate::if_there(entry?.metadata())?;
        bytes += meta.map_or(0, |meta| meta.blocks() * 512);
    }
    Ok(bytes)
}
