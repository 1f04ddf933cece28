//! The phases of the YCSB mode, each run in a child process: check a store, load it, run a cell,
//! commit until killed, and open the store afterwards.

use super::stores::{self, Shared};
use super::work::{Times, Work, key, must_be_right, record};
use super::{Cell, Checked, Opened, Ycsb, YcsbRun, files};
use crate::limit;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Records per commit while a store is loaded.
const LOAD_BATCH: usize = 100_000;

/// Number of records that the check writes, and of commits that it times.
const CHECK_RECORDS: u64 = 2_000;
const CHECK_COMMITS: u64 = 200;

/// Maximum number of acknowledged commits to look for after a kill, the newest ones.
const LOOKED_FOR: u64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Phase {
    Check,
    Load,
    Run,
    Crash,
    Open,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Check => "check",
            Phase::Load => "load",
            Phase::Run => "run",
            Phase::Crash => "crash",
            Phase::Open => "open",
        }
    }
}

/// The path at which a store is checked.
pub(super) fn check_path(dir: &Path, store: &str) -> PathBuf {
    dir.join(format!("check-{store}"))
}

impl Ycsb {
    pub(super) fn do_phase(&self, phase: Phase) -> Result<Cell> {
        let name = &self.stores[0];
        let path = self.path(name);
        let mut cell = Cell {
            store: name.clone(),
            workload: self.workloads.clone(),
            records: self.records,
            value: self.value,
            threads: self.threads[0],
            batch: self.batches[0],
            memory: self.memory(),
            ..Cell::default()
        };
        match phase {
            Phase::Check => cell.checked = Some(self.check_store(name)?),
            Phase::Load => self.load(name, &path)?,
            Phase::Run => self.run(name, &path, &mut cell)?,
            Phase::Crash => self.commit_until_killed(name, &path)?,
            Phase::Open => cell.opened = Some(self.open_again(name, &path)?),
        }
        for file in files(&path) {
            cell.file_bytes += crate::size(&file)?;
        }
        Ok(cell)
    }

    /// Writes records, some of them twice, and reads all of them, before and after reopening. Then
    /// times commits of one record, alternating with synced writes of a page.
    fn check_store(&self, name: &str) -> Result<Checked> {
        let path = check_path(&self.dir, name);
        let bytes = CHECK_RECORDS * (8 + self.value);
        let open = || stores::open(name, &path, 16 << 20, bytes, 1);
        let store = open()?;
        let mut session = store.session()?;
        for stamp in 0..2 {
            let some = (0..CHECK_RECORDS).step_by(1 + stamp as usize);
            let records: Vec<_> = some.map(|n| record(n, stamp, self.value)).collect();
            session.put(&records)?;
        }
        drop(session);
        self.read_all(&*store)?;
        store.close()?;
        let store = open()?;
        self.read_all(&*store)?;

        let mut session = store.session()?;
        let beside = check_path(&self.dir, &format!("{name}-beside"));
        let file = std::fs::File::create(&beside)?;
        let page = [1; 4096];
        for at in 0..CHECK_COMMITS {
            file.write_all_at(&page, at * 4096)?;
        }
        file.sync_all()?;
        let (mut commits, mut syncs) = (Times::new(3)?, Times::new(3)?);
        for n in 0..CHECK_COMMITS {
            let began = Instant::now();
            session.put(&[record(n, 2, self.value)])?;
            commits.record(began.elapsed().as_nanos() as u64)?;
            let began = Instant::now();
            file.write_all_at(&page, n * 4096)?;
            file.sync_data()?;
            syncs.record(began.elapsed().as_nanos() as u64)?;
        }
        drop(session);
        store.close()?;
        std::fs::remove_file(beside)?;
        let median = |times: &Times| times.value_at_quantile(0.5) as f64 / 1e3;
        Ok(Checked {
            commit_us: median(&commits),
            sync_us: median(&syncs),
        })
    }

    /// Checks the records by reading each key, and by a scan.
    fn read_all(&self, store: &dyn Shared) -> Result<()> {
        let mut session = store.session()?;
        let mut found = Vec::new();
        for n in 0..CHECK_RECORDS {
            ensure!(session.get(&key(n), &mut found)?, "record {n} is missing");
            let (_, right) = record(n, u64::from(n % 2 == 0), self.value);
            ensure!(
                found == right,
                "record {n} has a value that is not the last one written"
            );
        }
        ensure!(
            !session.get(&key(CHECK_RECORDS), &mut found)?,
            "there is one record too many"
        );
        let mut keys = Vec::new();
        let mut wrong = None;
        let count = CHECK_RECORDS as usize + 1;
        session.scan(&[0; 8], count, &mut |key, value| {
            let key = key.try_into().unwrap_or_default();
            keys.push(key);
            let right = must_be_right(key, value, self.value);
            wrong = wrong.take().or(right.err());
        })?;
        wrong.map_or(Ok(()), Err)?;
        let mut right: Vec<_> = (0..CHECK_RECORDS).map(key).collect();
        right.sort_unstable();
        ensure!(
            keys == right,
            "a scan does not return all keys in order"
        );
        Ok(())
    }

    fn load(&self, name: &str, path: &Path) -> Result<()> {
        // Loading may use more memory, but not so much that the store is cached entirely.
        let memory = self.memory().max(64 << 20);
        let store = stores::open(name, path, memory, self.data_bytes(), 1)?;
        let mut session = store.session()?;
        let mut batch = Vec::with_capacity(LOAD_BATCH);
        let mut order = Vec::new();
        if self.ordered {
            order.extend(0..self.records);
            order.sort_unstable_by_key(|&n| crate::key(n));
        }
        for i in 0..self.records {
            let n = order.get(i as usize).copied().unwrap_or(i);
            batch.push(record(n, n, self.value));
            if batch.len() == LOAD_BATCH || i + 1 == self.records {
                session.put(&batch)?;
                batch.clear();
            }
        }
        drop(session);
        store.finish_load()?;
        store.close()
    }

    fn run(&self, name: &str, path: &Path, cell: &mut Cell) -> Result<()> {
        let store = self.open_limited(name, path, &mut cell.limited)?;
        let inserted = AtomicU64::new(0);
        self.work(&*store, &inserted, self.seconds / 2.0, 1)?;
        let written = || limit::written_to_device(&self.dir);
        let (began, before, read_before) = (Instant::now(), written(), limit::io()?.0);
        let took = self.work(&*store, &inserted, self.seconds, 2)?;
        let elapsed = began.elapsed().as_secs_f64();
        let read = limit::io()?.0 - read_before;
        let written = written().zip(before).map(|(after, before)| after - before);
        let an_operation = |bytes: u64| bytes as f64 / took.len().max(1) as f64;
        let at = |share| took.value_at_quantile(share) as f64 / 1e3;
        cell.run = Some(YcsbRun {
            per_s: took.len() as f64 / elapsed,
            p50_us: at(0.5),
            p999_us: at(0.999),
            written: written.map(an_operation),
            read: an_operation(read),
        });
        store.close()
    }

    /// Opens a store, then limits the memory that this process may allocate.
    fn open_limited(&self, name: &str, path: &Path, limited: &mut bool) -> Result<Box<dyn Shared>> {
        let threads = self.threads[0];
        let store = stores::open(name, path, self.memory(), self.data_bytes(), threads)?;
        for file in files(path) {
            limit::drop_cached(&file)?;
        }
        *limited = limit::to(self.memory() + self.slack).is_ok();
        Ok(store)
    }

    fn work(
        &self,
        store: &dyn Shared,
        inserted: &AtomicU64,
        seconds: f64,
        round: u64,
    ) -> Result<Times> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        std::thread::scope(|scope| {
            let start = |thread| {
                let work = Work {
                    workload: self.workloads.chars().next().unwrap_or('c'),
                    batch: self.batches[0],
                    records: self.records,
                    value_bytes: self.value,
                    first_new: self.first_new,
                    inserted,
                    // Each process has its own seed: SQLite does not write a record whose value is
                    // unchanged.
                    seed: self.first_new ^ self.seed << 32 ^ round << 16 ^ thread,
                    until,
                };
                scope.spawn(move || work.run(&mut *store.session()?))
            };
            let threads: Vec<_> = (0..self.threads[0]).map(start).collect();
            let mut all = Times::new(3)?;
            for thread in threads {
                all.add(thread.join().expect("it does not panic")?)?;
            }
            Ok(all)
        })
    }

    /// Threads update records. Another thread inserts a record per commit, and prints the number of
    /// inserted records after each commit.
    fn commit_until_killed(&self, name: &str, path: &Path) -> Result<()> {
        let mut limited = false;
        let store = self.open_limited(name, path, &mut limited)?;
        let store = &*store;
        let long = 86_400.0;
        std::thread::scope(|scope| {
            let others = scope.spawn(move || self.work(store, &AtomicU64::new(0), long, 3));
            let mut session = store.session()?;
            for said in 0_u64.. {
                if others.is_finished() {
                    break;
                }
                session.put(&[record(self.first_new + said, said, self.value)])?;
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}", said + 1)?;
                out.flush()?;
            }
            others.join().expect("it does not panic").map(|_| ())
        })
    }

    /// Opens a store after a kill and reads a record. Then looks for the acknowledged records.
    fn open_again(&self, name: &str, path: &Path) -> Result<Opened> {
        for file in files(path) {
            limit::drop_cached(&file)?;
        }
        let mut found = Vec::new();
        let began = Instant::now();
        let store = stores::open(name, path, self.memory(), self.data_bytes(), 1)?;
        let mut session = store.session()?;
        let is_there = session.get(&key(1), &mut found)?;
        let open_ms = began.elapsed().as_secs_f64() * 1e3;
        ensure!(is_there, "record 1 is missing after the kill");
        must_be_right(key(1), &found, self.value)?;
        let first = self.acknowledged.saturating_sub(LOOKED_FOR);
        for said in first..self.acknowledged {
            let (key, right) = record(self.first_new + said, said, self.value);
            let is_right = session.get(&key, &mut found)? && found == right;
            ensure!(
                is_right,
                "acknowledged commit {said} is missing after the kill"
            );
        }
        drop(session);
        store.close().context("closing after the kill")?;
        Ok(Opened {
            open_ms,
            found: self.acknowledged - first,
        })
    }
}
