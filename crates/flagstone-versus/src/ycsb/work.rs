//! The work of the YCSB mode's threads: the benchmark's workloads, and updates or reads alone. Each
//! value can be verified by itself, whichever thread wrote it last.

use super::stores::{Key, Record, Session};
use anyhow::{Result, bail, ensure};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A histogram of latencies. Its size is constant, since the memory limit counts it.
pub(crate) type Times = hdrhistogram::Histogram<u64>;

/// The Zipf exponent of YCSB.
const SKEW: f64 = 0.99;

/// Maximum length of a scan; lengths are uniform from 1 to this.
const SCAN_MAX: usize = 100;

/// One of this many reads is verified, outside the measured time.
const CHECKED: u64 = 16;

/// A mix of operations.
pub(crate) struct Workload {
    pub(crate) letter: char,
    pub(crate) what: &'static str,
    /// Percent of reads, updates, inserts, scans, and read-modify-writes.
    shares: [u32; 5],
}

const fn workload(letter: char, what: &'static str, shares: [u32; 5]) -> Workload {
    Workload {
        letter,
        what,
        shares,
    }
}

pub(crate) const WORKLOADS: [Workload; 8] = [
    workload('a', "half reads, half updates", [50, 50, 0, 0, 0]),
    workload('b', "95 % reads, 5 % updates", [95, 5, 0, 0, 0]),
    workload('c', "reads", [100, 0, 0, 0, 0]),
    workload(
        'd',
        "95 % reads of what is new, 5 % inserts",
        [95, 0, 5, 0, 0],
    ),
    workload(
        'e',
        "95 % scans of 1 to 100 records, 5 % inserts",
        [0, 0, 5, 95, 0],
    ),
    workload(
        'f',
        "half reads, half read-modify-writes",
        [50, 0, 0, 0, 50],
    ),
    workload(
        'u',
        "updates of records that are drawn evenly",
        [0, 100, 0, 0, 0],
    ),
    workload(
        'p',
        "reads of records that are drawn evenly",
        [100, 0, 0, 0, 0],
    ),
];

/// The work of one thread.
pub(crate) struct Work<'a> {
    pub(crate) workload: char,
    /// Writes per commit.
    pub(crate) batch: u64,
    pub(crate) records: u64,
    pub(crate) value_bytes: u64,
    /// The number of the first record inserted by this process, and the count of those inserted.
    pub(crate) first_new: u64,
    pub(crate) inserted: &'a AtomicU64,
    pub(crate) seed: u64,
    pub(crate) until: Instant,
}

/// The key of record `n`: scattered over all of u64 by a bijection.
pub(crate) fn key(n: u64) -> Key {
    crate::key(n).to_be_bytes()
}

/// A value for `key`: the stamp, then incompressible bytes derived from key and stamp.
pub(crate) fn value(key: Key, stamp: u64, bytes: u64) -> Vec<u8> {
    let seed = u64::from_le_bytes(key) ^ stamp.rotate_left(7);
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut value = stamp.to_le_bytes().to_vec();
    while (value.len() as u64) < bytes {
        value.extend_from_slice(&dice.random::<u64>().to_le_bytes());
    }
    value.truncate(bytes as usize);
    value
}

/// Fails unless the value is one that was written for this key.
pub(crate) fn must_be_right(key: Key, found: &[u8], bytes: u64) -> Result<()> {
    let stamp = found.first_chunk().copied().map(u64::from_le_bytes);
    let is_right = stamp.is_some_and(|stamp| value(key, stamp, bytes) == found);
    ensure!(
        is_right,
        "key {key:02x?} has a value that was never written to it"
    );
    Ok(())
}

/// The record with a key and a stamp.
pub(crate) fn record(n: u64, stamp: u64, bytes: u64) -> Record {
    (key(n), value(key(n), stamp, bytes))
}

impl Work<'_> {
    /// Runs operations until the time is over. Returns their latencies in nanoseconds.
    pub(crate) fn run(&self, session: &mut dyn Session) -> Result<Times> {
        let shares = WORKLOADS.iter().find(|it| it.letter == self.workload);
        let Some(&Workload { shares, .. }) = shares else {
            bail!("there is no workload `{}`", self.workload);
        };
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed);
        let zipf = Zipf::new(self.records as f64, SKEW)?;
        let is_even = matches!(self.workload, 'u' | 'p');
        let (mut took, mut batch, mut found) = (Times::new(3)?, Vec::new(), Vec::new());
        for turn in 0_u64.. {
            let began = Instant::now();
            if began >= self.until {
                break;
            }
            let rank = if is_even { dice.random_range(0..self.records) } else { zipf.sample(&mut dice) as u64 - 1 };
            let n = match self.workload {
                'd' => self.newest(rank),
                _ if is_even => rank,
                // Scatter the hot records over all record numbers.
                _ => crate::key(rank) % self.records,
            };
            let mut chosen = dice.random_range(0..100);
            let kind = shares.iter().position(|&share| {
                let is_it = chosen < share;
                chosen = chosen.wrapping_sub(share);
                is_it
            });
            let mut was_read = None;
            match kind {
                Some(0) => was_read = Some(session.get(&key(n), &mut found)?),
                Some(1) => self.write(session, &mut batch, n, dice.random())?,
                Some(2) => {
                    let new = self.first_new + self.inserted.fetch_add(1, Ordering::Relaxed);
                    self.write(session, &mut batch, new, dice.random())?;
                }
                Some(3) => {
                    let count = dice.random_range(1..=SCAN_MAX);
                    session.scan(&key(n), count, &mut |_, value| {
                        found.clear();
                        found.extend_from_slice(value);
                        std::hint::black_box(&found);
                    })?;
                }
                _ => {
                    was_read = Some(session.get(&key(n), &mut found)?);
                    self.write(session, &mut batch, n, dice.random())?;
                }
            }
            took.record(began.elapsed().as_nanos() as u64)?;
            match was_read {
                Some(true) if turn.is_multiple_of(CHECKED) => {
                    must_be_right(key(n), &found, self.value_bytes)?;
                }
                // A missing record this new may be in another thread's uncommitted insert.
                Some(false) if n < self.records => bail!("record {n} is gone"),
                _ => {}
            }
        }
        session.put(&batch)?;
        Ok(took)
    }

    /// The number of the record with `rank` newer ones.
    fn newest(&self, rank: u64) -> u64 {
        let inserted = self.inserted.load(Ordering::Relaxed);
        match inserted.checked_sub(1 + rank) {
            Some(new) => self.first_new + new,
            None => self.records.saturating_sub(1 + rank - inserted),
        }
    }

    fn write(
        &self,
        session: &mut dyn Session,
        batch: &mut Vec<Record>,
        n: u64,
        stamp: u64,
    ) -> Result<()> {
        batch.push(record(n, stamp, self.value_bytes));
        if batch.len() as u64 >= self.batch {
            session.put(batch)?;
            batch.clear();
        }
        Ok(())
    }
}
