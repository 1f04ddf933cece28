//! A process that is repeatedly killed while it commits to a real file.
//!
//! The *worker* commits transactions and reports each one. The *verifier* kills it at a random
//! moment, opens the store, and compares it with the result of all transactions up to the last one
//! found. Writes that reached the kernel survive the process, so this tests what power cuts do not:
//! locks, created files, and repeated openings.

use super::StoreSubject;
use super::kill_tables::{self, Rows};
use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Pages that transactions write, after the page with the counter.
const PAGES: u32 = 2_000;

/// The pages that transaction `number` writes, all with its number.
fn writes(number: u64) -> impl Iterator<Item = Lpn> {
    let mut dice = Pcg64Mcg::seed_from_u64(number);
    let count = [1, 2, 3, 8, 60][dice.random_range(0..5)];
    (0..count).map(move |_| Lpn(1 + dice.random_range(0..PAGES)))
}

/// The transaction number that a page holds; 0 if it is empty. `page` is a buffer.
fn number_in(store: &mut PageStore, page: &mut [u8], at: Lpn) -> Result<u64, StoreError> {
    let bytes = store.read(None, at, page)?.unwrap_or(0);
    let word = page[..bytes]
        .first_chunk()
        .map(|word| u64::from_le_bytes(*word));
    Ok(word.unwrap_or(0))
}

/// Deliberate mistakes of a worker that a verifier must detect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The worker reports a transaction while it still commits the previous one.
    pub early: bool,
    /// The worker leaks memory in each transaction.
    pub leaks: bool,
}

/// Bytes leaked per transaction.
const LEAK_BYTES: usize = 1 << 18;

/// Commits transactions until it is killed, or until its output is closed.
///
/// # Errors
/// The store fails.
pub fn work(path: &Path, subject: StoreSubject, mistakes: Mistakes) -> Result<(), StoreError> {
    if subject == StoreSubject::Tables {
        return kill_tables::work(path, mistakes);
    }
    let Mistakes { early, leaks } = mistakes;
    let mut kept = Vec::new();
    let mut store = PageStore::open(path, &OpenOptions::default())?;
    let mut page = vec![0; PageStore::PAGE_BYTES];
    let mut number = number_in(&mut store, &mut page, Lpn(0))?;
    let mut out = io::stdout();
    loop {
        number += 1;
        if leaks {
            kept.push(vec![number as u8; LEAK_BYTES]);
        }
        page.fill(number as u8);
        page[..8].copy_from_slice(&number.to_le_bytes());
        let mut say = |number: u64| {
            let said = out.write_all(&number.to_le_bytes());
            said.and_then(|()| out.flush()).is_ok()
        };
        let tx = store.begin()?;
        for at in writes(number) {
            store.write(tx, at, &page)?;
        }
        store.write(tx, Lpn(0), &page)?;
        if early && !say(number + 1) {
            return store.close();
        }
        store.commit(tx)?;
        if !early && !say(number) {
            return store.close();
        }
    }
}

/// The verifier's model of the store.
#[derive(Debug)]
pub struct Verifier {
    subject: StoreSubject,
    rows: Rows,
    /// The expected number of each page.
    numbers: Vec<u64>,
    /// The last transaction found.
    last: u64,
    dice: Pcg64Mcg,
}

impl Verifier {
    /// A verifier for a new store.
    pub fn new(subject: StoreSubject, seed: u64) -> Verifier {
        Verifier {
            subject,
            rows: Rows::default(),
            numbers: vec![0; PAGES as usize + 1],
            last: 0,
            dice: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// The last transaction found.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Kills a worker after a random time. Returns the last transaction that it reported. The time
    /// starts with the process, so that it may die while it opens the store, or with the first
    /// reported transaction.
    ///
    /// # Errors
    /// A system call fails, or the worker has ended by itself.
    pub fn kill(&mut self, mut worker: Child) -> io::Result<u64> {
        let (from_first, micros) = match self.dice.random_range(0..4) {
            0 => (false, self.dice.random_range(0..3_000)),
            1 => (false, self.dice.random_range(0..60_000)),
            2 => (true, self.dice.random_range(0..3_000)),
            _ => (true, self.dice.random_range(0..20_000)),
        };
        let mut out = worker.stdout.take().expect("a worker is listened to");
        let mut said = Vec::new();
        if from_first {
            out.by_ref().take(8).read_to_end(&mut said)?;
        }
        std::thread::sleep(Duration::from_micros(micros));
        worker.kill()?;
        let status = worker.wait()?;
        if status.code().is_some() {
            let why = format!("a worker ended before it was killed: {status}; see its error");
            return Err(io::Error::other(why));
        }
        out.read_to_end(&mut said)?;
        // Threads may report commits in another order than they committed.
        let words = said.as_chunks::<8>().0.iter();
        Ok(words
            .map(|word| u64::from_le_bytes(*word))
            .max()
            .unwrap_or(0))
    }

    /// Opens the store and compares it with all transactions up to the last one found, which must
    /// be at least `said`.
    ///
    /// # Errors
    /// The store does not open. The inner error describes wrong contents.
    pub fn verify(&mut self, path: &Path, said: u64) -> Result<Result<(), String>, StoreError> {
        if !path.exists() && said == 0 {
            return Ok(Ok(()));
        }
        if self.subject == StoreSubject::Tables {
            let found = self.rows.verify(path, self.last, said.max(self.last))?;
            return Ok(found.map(|found| self.last = found));
        }
        let mut store = PageStore::open(path, &OpenOptions::default())?;
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let found = number_in(&mut store, &mut page, Lpn(0))?;
        if found < said || found < self.last {
            let least = said.max(self.last);
            return Ok(Err(format!(
                "the last transaction there is {found}, and {least} was acknowledged"
            )));
        }
        for number in self.last + 1..=found {
            self.numbers[0] = number;
            for at in writes(number) {
                self.numbers[at.index()] = number;
            }
        }
        self.last = found;
        for (at, &wanted) in self.numbers.iter().enumerate() {
            let number = number_in(&mut store, &mut page, Lpn(at as u32))?;
            if number != wanted {
                return Ok(Err(format!(
                    "after transaction {found} page {at} is of {number}, not of {wanted}"
                )));
            }
        }
        let report = store.check()?;
        Ok(if report.is_well() {
            Ok(())
        } else {
            Err(format!("the check says: {report:?}"))
        })
    }
}

/// Pipes the output of a worker process to the verifier.
pub fn listening(command: &mut std::process::Command) -> &mut std::process::Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped())
}
