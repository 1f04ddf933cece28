//! One benchmark database, kept by one engine: its clients and the measurements taken on it.

use crate::disk::Counters;
use crate::engine::Engine;
use flagstone_terminal::{Failure, progress_bar};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Transactions that one engine runs before the next engine takes its turn.
const ROUND: u64 = 100;

/// A benchmark client, which has its own connection.
pub(super) trait Client: Send {
    /// Runs the client's next transaction until it has ended.
    fn transaction(&mut self) -> Result<(), Failure>;
}

/// A database under test, and the measurements taken on it.
pub(super) struct Lane {
    pub(super) engine: Engine,
    pub(super) path: PathBuf,
    /// A connection that stays open, so that the database stays open when clients are replaced.
    pub(super) db: Connection,
    pub(super) clients: Vec<Box<dyn Client>>,
    /// The duration of each transaction.
    pub(super) times: Vec<Duration>,
    /// Wall-clock time of all transactions.
    pub(super) wall: Duration,
    pub(super) disk: Counters,
}

impl Lane {
    pub(super) fn open(engine: Engine, path: PathBuf) -> Result<Lane, Failure> {
        Ok(Lane {
            engine,
            db: engine.connect(&path)?,
            path,
            clients: Vec::new(),
            times: Vec::new(),
            wall: Duration::ZERO,
            disk: Counters::default(),
        })
    }

    /// Opens another connection, which waits up to a minute while others write.
    pub(super) fn connect(&self) -> Result<Connection, Failure> {
        self.engine.connect(&self.path)
    }

    /// The database file and its side files (`-journal`, `-wal`, `-shm`).
    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let name = self.path.file_name().unwrap_or_default();
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let found = entry.file_name();
            let rest = found
                .as_encoded_bytes()
                .strip_prefix(name.as_encoded_bytes());
            if rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'-') {
                files.push(entry.path());
            }
        }
        Ok(files)
    }

    /// The size of all files of the database, in bytes.
    pub(super) fn bytes(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for file in self.files()? {
            bytes += std::fs::metadata(file)?.len();
        }
        Ok(bytes)
    }

    /// Closes the database and deletes its files.
    pub(super) fn remove(self) -> Result<(), Failure> {
        let files = self.files()?;
        drop(self);
        for file in files {
            // SQLite deletes the write-ahead log when the last connection closes.
            if file.exists() {
                std::fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    /// Divides `transactions` among the clients, which run concurrently.
    fn round(&mut self, transactions: u64) -> Result<(), Failure> {
        let start = Instant::now();
        let count = self.clients.len() as u64;
        let shares =
            (0..count).map(|at| transactions / count + u64::from(at < transactions % count));
        let work = |(client, share): (&mut Box<dyn Client>, u64)| {
            let mut times = Vec::with_capacity(share as usize);
            for _ in 0..share {
                let start = Instant::now();
                client.transaction()?;
                times.push(start.elapsed());
            }
            Ok::<_, Failure>(times)
        };
        let pairs = self.clients.iter_mut().zip(shares);
        if count == 1 {
            for pair in pairs {
                self.times.extend(work(pair)?);
            }
        } else {
            let done = std::thread::scope(|scope| {
                let threads: Vec<_> = pairs.map(|pair| scope.spawn(move || work(pair))).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()
            })?;
            self.times.extend(done.into_iter().flatten());
        }
        self.wall += start.elapsed();
        Ok(())
    }
}

/// Measures all lanes in turn, [`ROUND`] transactions at a time, until each has run `transactions`:
/// what slows the machine down for a while then slows all of them. Keeps the results in the lanes.
pub(super) fn measure(
    lanes: &mut [Lane],
    name: &str,
    transactions: u64,
    folder: &Path,
) -> Result<(), Failure> {
    let bar = progress_bar(transactions * lanes.len() as u64, name);
    for lane in &mut *lanes {
        (lane.times, lane.wall, lane.disk) = (Vec::new(), Duration::ZERO, Counters::default());
    }
    let mut done = 0;
    while done < transactions {
        let round = ROUND.min(transactions - done);
        for lane in &mut *lanes {
            let before = Counters::of(folder).unwrap_or_default();
            lane.round(round)?;
            let after = Counters::of(folder).unwrap_or_default();
            let used = after.since(before);
            lane.disk.bytes += used.bytes;
            lane.disk.flushes += used.flushes;
            bar.inc(round);
        }
        done += round;
    }
    bar.finish_and_clear();
    Ok(())
}
