//! Commit throughput of a store on a file system, compared with a *floor*: the same bytes as one
//! write to an existing file, plus a sync. Both are measured alternately, a few hundred commits at
//! a time, so that other load on the machine affects both equally.

use flagstone::units::Lpn;
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Commits per turn.
const TURN: u32 = 200;
/// Size of the file that the floor writes to.
const FLOOR_BYTES: usize = 16 << 20;

/// The task of a bench.
#[derive(Debug, Clone)]
pub struct StoreBench {
    /// The folder of the file system to measure.
    pub folder: PathBuf,
    /// Options of the store.
    pub options: OpenOptions,
    /// Number of pages in the store.
    pub pages: u32,
    /// Pages per commit.
    pub pages_a_commit: u32,
    /// Commits to measure, after half as many for warm-up.
    pub commits: u32,
    /// Seed for choosing pages.
    pub seed: u64,
}

/// Latencies of commits.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Commits per second.
    pub fn rate(&self) -> f64 {
        self.0.len() as f64 / self.0.iter().sum::<Duration>().as_secs_f64()
    }

    /// The latency at quantile `share`.
    pub fn at(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len().saturating_sub(1) as f64 * share) as usize;
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// The measurements, in wall-clock time.
#[derive(Debug, Clone)]
pub struct BenchTimes {
    /// Commits of the store.
    pub store: Times,
    /// The same number of commits of the floor.
    pub floor: Times,
    /// Random reads of one page each.
    pub reads: Times,
    /// Bytes that the store wrote to its medium per commit.
    pub bytes_a_commit: f64,
    /// Syncs per commit.
    pub syncs_a_commit: f64,
    /// Final size of the store in bytes.
    pub bytes: u64,
    /// Time to reopen the store after its close.
    pub opened: Duration,
}

/// Removes the benchmark's files when dropped.
struct Files(PathBuf);

impl Files {
    fn store(&self) -> PathBuf {
        self.0.join("bench.flag")
    }

    fn floor(&self) -> PathBuf {
        self.0.join("bench.floor")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Leftover files only affect the next benchmark, which reports them.
        let _ = fs::remove_file(self.store());
        let _ = fs::remove_file(self.floor());
    }
}

impl StoreBench {
    /// Runs the benchmark. `progress` receives the number of commits made.
    ///
    /// # Errors
    /// Files of another benchmark are in the folder, or a system call fails.
    pub fn run(&self, progress: &mut dyn FnMut(u64)) -> Result<BenchTimes, StoreError> {
        fs::create_dir_all(&self.folder).map_err(|error| io("making the folder", error))?;
        let files = Files(self.folder.clone());
        if let Some(there) = [files.store(), files.floor()]
            .iter()
            .find(|path| path.exists())
        {
            let there = there.display().to_string();
            std::mem::forget(files);
            return Err(StoreError::Options(format!(
                "{there} exists already: use another folder, or remove it"
            )));
        }
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed);
        let mut store = PageStore::open(&files.store(), &self.options)?;
        fill(&mut store, self.pages)?;
        let floor = self.floor(&files.floor())?;
        let (mut of_store, mut of_floor) = (Times::default(), Times::default());
        let mut before = store.medium_stats();
        let warm_up = self.commits / 2;
        let mut made = 0;
        while made < warm_up + self.commits {
            if made >= warm_up && of_store.0.is_empty() {
                before = store.medium_stats();
            }
            // No turn has commits of both the warm-up and the measurement.
            let end = if made < warm_up {
                warm_up
            } else {
                warm_up + self.commits
            };
            let turn = TURN.min(end - made);
            for _ in 0..turn {
                let took = self.commit(&mut store, &mut dice)?;
                if made >= warm_up {
                    of_store.0.push(took);
                }
            }
            for _ in 0..turn {
                let took = self.floor_commit(&floor, &mut dice)?;
                if made >= warm_up {
                    of_floor.0.push(took);
                }
            }
            made += turn;
            progress(turn.into());
        }
        let after = store.medium_stats();
        let reads = self.reads(&mut store, &mut dice)?;
        let bytes = store.info().bytes;
        store.close()?;
        let start = Instant::now();
        let store = PageStore::open(&files.store(), &OpenOptions::existing())?;
        let opened = start.elapsed();
        drop(store);
        let each = |count: u64| count as f64 / f64::from(self.commits);
        Ok(BenchTimes {
            store: of_store,
            floor: of_floor,
            reads,
            bytes_a_commit: each(after.bytes - before.bytes),
            syncs_a_commit: each(after.syncs - before.syncs),
            bytes,
            opened,
        })
    }

    /// Commits a transaction. Returns how long that took.
    fn commit(&self, store: &mut PageStore, dice: &mut Pcg64Mcg) -> Result<Duration, StoreError> {
        let mut page = [7; PageStore::PAGE_BYTES];
        let start = Instant::now();
        let tx = store.begin()?;
        for _ in 0..self.pages_a_commit {
            page[..8].copy_from_slice(&dice.random::<u64>().to_le_bytes());
            store.write(tx, Lpn(dice.random_range(0..self.pages)), &page)?;
        }
        store.commit(tx)?;
        Ok(start.elapsed())
    }

    fn reads(&self, store: &mut PageStore, dice: &mut Pcg64Mcg) -> Result<Times, StoreError> {
        let mut page = [0; PageStore::PAGE_BYTES];
        let mut times = Times::default();
        for _ in 0..self.commits {
            let at = Lpn(dice.random_range(0..self.pages));
            let start = Instant::now();
            store.read(None, at, &mut page)?;
            times.0.push(start.elapsed());
        }
        Ok(times)
    }

    /// A file that is written and synced once, so that a later sync only waits for new bytes.
    fn floor(&self, path: &Path) -> Result<File, StoreError> {
        let make = || {
            let file = File::create_new(path)?;
            file.write_all_at(&vec![0; FLOOR_BYTES], 0)?;
            file.sync_all()?;
            Ok(file)
        };
        make().map_err(|error| io("making the file of the floor", error))
    }

    /// Writes the pages of one commit to the floor's file, at random, and syncs it. Returns how
    /// long that took.
    fn floor_commit(&self, file: &File, dice: &mut Pcg64Mcg) -> Result<Duration, StoreError> {
        let bytes = vec![dice.random::<u8>(); self.pages_a_commit as usize * MEDIUM_PAGE_BYTES];
        let last = (FLOOR_BYTES - bytes.len()) / MEDIUM_PAGE_BYTES;
        let at = dice.random_range(0..=last) * MEDIUM_PAGE_BYTES;
        let start = Instant::now();
        let written = file
            .write_all_at(&bytes, at as u64)
            .and_then(|()| file.sync_data());
        written.map_err(|error| io("writing the floor", error))?;
        Ok(start.elapsed())
    }
}

fn io(what: &str, error: std::io::Error) -> StoreError {
    let what = what.to_string();
    StoreError::Io { what, error }
}

/// Fills a store with pages.
pub(super) fn fill(store: &mut PageStore, pages: u32) -> Result<(), StoreError> {
    let page = [7; PageStore::PAGE_BYTES];
    for first in (0..pages).step_by(1_000) {
        let tx = store.begin()?;
        for at in first..pages.min(first + 1_000) {
            store.write(tx, Lpn(at), &page)?;
        }
        store.commit(tx)?;
    }
    Ok(())
}
