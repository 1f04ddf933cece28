//! The lives: small models of how applications use a database file or a disk.

use super::file_in;
use crate::disk::Counters;
use crate::engine::Engine;
use crate::process::{descriptors, files_of, memory, room, written};
use crate::sizes::{ROW_BYTES, value};
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, Volume};
use flagstone_terminal::Failure;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;
const MIB: u64 = 1 << 20;

/// A kind of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Life {
    /// A database of one megabyte, updated row by row.
    Small,
    /// A bulk load, most of which is then deleted.
    Bulk,
    /// Updates an indexed column of all rows in one statement.
    Giant,
    /// Creates, alters and drops tables and indexes.
    Schema,
    /// Copies rows from one database to another.
    Transfer,
    /// A queue: inserts rows at one end and deletes them at the other.
    Queue,
    /// A time series: inserts new rows and deletes old ones.
    Series,
    /// Four threads that read and write.
    Service,
    /// A file that is opened, changed and closed repeatedly.
    Daily,
    /// A disk: a file system is created, filled, emptied and trimmed.
    Disk,
}

/// Where a life keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Keeping {
    /// In SQLite with its write-ahead log.
    Wal,
    /// In a Flagstone store.
    Store,
    /// In SQLite with a rollback journal: a control.
    Journal,
}

impl Keeping {
    pub(super) fn name(self) -> &'static str {
        match self {
            Keeping::Wal => "wal",
            Keeping::Store => "store",
            Keeping::Journal => "journal",
        }
    }

    fn engine(self) -> Engine {
        match self {
            Keeping::Wal => Engine::WalFull,
            Keeping::Store => Engine::Flagstone,
            Keeping::Journal => Engine::Delete,
        }
    }
}

impl Life {
    pub(super) const ALL: [Life; 10] = [
        Life::Small,
        Life::Bulk,
        Life::Giant,
        Life::Schema,
        Life::Transfer,
        Life::Queue,
        Life::Series,
        Life::Service,
        Life::Daily,
        Life::Disk,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Life::Small => "small",
            Life::Bulk => "bulk",
            Life::Giant => "giant",
            Life::Schema => "schema",
            Life::Transfer => "transfer",
            Life::Queue => "queue",
            Life::Series => "series",
            Life::Service => "service",
            Life::Daily => "daily",
            Life::Disk => "disk",
        }
    }

    /// Whether SQLite with its log can run this life, for comparison.
    pub(super) fn has_log(self) -> bool {
        self != Life::Disk
    }

    /// Whether the life consists of commits of a few rows each.
    pub(super) fn commits_rows(self) -> bool {
        matches!(
            self,
            Life::Small | Life::Queue | Life::Series | Life::Service | Life::Daily
        )
    }

    /// Whether the database stays small during the life.
    pub(super) fn is_small(self) -> bool {
        matches!(self, Life::Small | Life::Queue | Life::Daily)
    }

    /// Whether the life ends with VACUUM or a compaction.
    pub(super) fn is_compacted(self) -> bool {
        matches!(
            self,
            Life::Bulk | Life::Giant | Life::Schema | Life::Transfer | Life::Disk
        )
    }
}

/// A life to run, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) life: Life,
    pub(super) keeping: Keeping,
    pub(super) times: u64,
    pub(super) seed: u64,
    /// Whether to count all bytes written to the device that holds the folder, by any process.
    pub(super) of_device: bool,
}

/// The state of a running life, and its cost so far.
struct Lived {
    task: Task,
    path: PathBuf,
    dice: Pcg64Mcg,
    connections: u64,
    /// Open descriptors of the process when the life began, and the most that were open since, in
    /// addition to these.
    descriptors_before: u64,
    descriptors: u64,
    /// Bytes of rows or blocks that the life has written.
    given: u64,
    /// Bytes of the pages that the largest transaction changes.
    changed: u64,
    /// The duration of each transaction.
    commits: Vec<Duration>,
    /// File size and live bytes, at the moment when their ratio was largest.
    most: [u64; 2],
}

impl Task {
    /// Bytes written so far: by this process, or to the device with its file system's journal.
    fn written(self, folder: &Path) -> Result<u64, Failure> {
        if !self.of_device {
            return written();
        }
        std::fs::File::open(folder)?.sync_all()?;
        let counters = Counters::of(folder);
        counters.map(|counters| counters.bytes).ok_or_else(|| {
            Failure::Usage("the kernel does not count the writes to this device".into())
        })
    }

    /// Runs the life in a folder. Returns its cost: the bytes written until the close, and the
    /// shortest of five openings after it.
    pub(super) fn live(self, folder: &Path) -> Result<Value, Failure> {
        let mut lived = Lived {
            task: self,
            path: file_in(folder),
            dice: Pcg64Mcg::seed_from_u64(self.seed),
            connections: 1,
            descriptors_before: descriptors()?,
            descriptors: 0,
            given: 0,
            changed: 0,
            commits: Vec::new(),
            most: [0, 1],
        };
        if self.life == Life::Disk {
            return lived.disk(folder);
        }
        let before = self.written(folder)?;
        let mut db = lived.open()?;
        match self.life {
            Life::Small => lived.small(&db)?,
            Life::Bulk => lived.bulk(&db)?,
            Life::Giant => lived.giant(&db)?,
            Life::Schema => lived.schema(&db)?,
            Life::Transfer => lived.transfer(&db)?,
            Life::Queue => lived.queue(&db)?,
            Life::Series => lived.series(&db)?,
            Life::Service => lived.service(&db)?,
            Life::Daily => db = lived.daily(db)?,
            Life::Disk => unreachable!("the store has no database"),
        }
        if self.life.is_compacted() {
            db.execute_batch("VACUUM")?;
        }
        lived.sample(&db)?;
        let live = live(&db)?;
        drop(db);
        let written = self.written(folder)? - before;
        let opening = (0..5).map(|_| lived.opening());
        let opening = opening.collect::<Result<Vec<_>, _>>()?.into_iter().min();
        let mut costs = lived.costs(written, live)?;
        costs["opening_ns"] = json!(nanos(opening.unwrap_or_default()));
        Ok(costs)
    }
}

impl Lived {
    fn open(&self) -> Result<Connection, Failure> {
        self.task.keeping.engine().connect(&self.path)
    }

    /// The time to open the database and run a first query.
    fn opening(&self) -> Result<Duration, Failure> {
        let began = Instant::now();
        let db = self.open()?;
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(began.elapsed())
    }

    /// Samples the file size against the live bytes, and the number of open descriptors.
    fn sample(&mut self, db: &Connection) -> Result<(), Failure> {
        self.note(live(db)?)
    }

    /// Records the file size and `live`, the live bytes, if their ratio is the largest so far, and
    /// the number of open descriptors if that is.
    fn note(&mut self, live: u64) -> Result<(), Failure> {
        let now = [room(&self.path)?, live.max(1)];
        let share = |[room, live]: [u64; 2]| room as f64 / live as f64;
        // In a file of a few pages, the ratio says nothing about growth.
        if now[0] > MIB && share(now) > share(self.most) {
            self.most = now;
        }
        let held = || Ok::<_, Failure>(descriptors()?.saturating_sub(self.descriptors_before));
        let mut most = held()?;
        if most > self.descriptors {
            // Count again after a moment: another thread may have opened a descriptor briefly.
            std::thread::sleep(Duration::from_millis(20));
            most = most.min(held()?);
        }
        self.descriptors = self.descriptors.max(most);
        Ok(())
    }

    /// The cost of the life, as a report has it, without its opening.
    fn costs(&mut self, written: u64, live: u64) -> Result<Value, Failure> {
        self.commits.sort_unstable();
        let last = self.commits.len().saturating_sub(1);
        let p999 = self.commits.get((last as f64 * 0.999) as usize);
        let mut bytes = 0;
        for file in files_of(&self.path)? {
            bytes += std::fs::metadata(file)?.len();
        }
        Ok(json!({
            "given": self.given,
            "written": written,
            "changed": self.changed,
            "room_most": self.most[0],
            "live_most": self.most[1],
            "room": room(&self.path)?,
            "length": bytes,
            "live": live,
            "memory": memory()?,
            "descriptors": self.descriptors,
            "connections": self.connections,
            "commits": self.commits.len(),
            "p999_ns": nanos(p999.copied().unwrap_or_default()),
        }))
    }

    /// Runs `does` as one transaction, and records its duration.
    fn commit(
        &mut self,
        db: &Connection,
        does: impl FnOnce(&mut Lived, &Connection) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        db.execute_batch("BEGIN IMMEDIATE")?;
        does(self, db)?;
        db.execute_batch("COMMIT")?;
        self.commits.push(began.elapsed());
        Ok(())
    }

    fn value(&mut self) -> impl rusqlite::ToSql + use<> {
        self.given += ROW_BYTES;
        value(&mut self.dice)
    }

    fn insert(
        &mut self,
        db: &Connection,
        table: &str,
        ids: std::ops::Range<u64>,
    ) -> Result<(), Failure> {
        let sql = format!("INSERT INTO {table} (id, v) VALUES (?1, ?2)");
        let mut insert = db.prepare_cached(&sql)?;
        for id in ids {
            insert.execute((id, self.value()))?;
        }
        Ok(())
    }

    /// Creates a table and inserts `rows` rows, 5,000 in a transaction.
    fn load(&mut self, db: &Connection, rows: u64) -> Result<(), Failure> {
        db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
        for first in (0..rows).step_by(5_000) {
            let ids = first..rows.min(first + 5_000);
            self.commit(db, |lived, db| lived.insert(db, "t", ids))?;
        }
        self.sample(db)
    }

    fn update(&mut self, db: &Connection, id: u64) -> Result<(), Failure> {
        let mut update = db.prepare_cached("UPDATE t SET v = ?2 WHERE id = ?1")?;
        update.execute((id, self.value()))?;
        Ok(())
    }

    fn small(&mut self, db: &Connection) -> Result<(), Failure> {
        let rows = 8_000;
        self.load(db, rows)?;
        for at in 0..3_000 * self.task.times {
            let id = self.dice.random_range(0..rows);
            self.commit(db, |lived, db| lived.update(db, id))?;
            if at % 100 == 0 {
                self.sample(db)?;
            }
        }
        Ok(())
    }

    fn bulk(&mut self, db: &Connection) -> Result<(), Failure> {
        let rows = 150_000 * self.task.times;
        self.load(db, rows)?;
        self.commit(db, |lived, db| {
            lived.changed = pages(db)? * PAGE;
            db.execute("DELETE FROM t WHERE id % 20 > 0", [])?;
            Ok(())
        })?;
        self.sample(db)
    }

    /// Transactions that change all rows, in a table with an index.
    fn giant(&mut self, db: &Connection) -> Result<(), Failure> {
        self.load(db, 100_000 * self.task.times)?;
        db.execute_batch(
            "ALTER TABLE t ADD COLUMN n; UPDATE t SET n = id; CREATE INDEX i ON t (n)",
        )?;
        for step in 1..4 {
            self.commit(db, |lived, db| {
                lived.changed = pages(db)? * PAGE;
                db.execute("UPDATE t SET n = (n * 7919 + ?1) % 1000003", [step])?;
                lived.sample(db)
            })?;
            self.sample(db)?;
        }
        Ok(())
    }

    /// Creates, changes and drops tables, of which the newest three stay.
    fn schema(&mut self, db: &Connection) -> Result<(), Failure> {
        for round in 0..24 * self.task.times {
            let table = format!("t{round}");
            db.execute_batch(&format!(
                "CREATE TABLE {table} (id INTEGER PRIMARY KEY, v BLOB NOT NULL);
                 CREATE INDEX i{round} ON {table} (v)"
            ))?;
            self.commit(db, |lived, db| lived.insert(db, &table, 0..3_000))?;
            db.execute_batch(&format!(
                "ALTER TABLE {table} ADD COLUMN more DEFAULT 'none'"
            ))?;
            if let Some(old) = round.checked_sub(3) {
                db.execute_batch(&format!("DROP TABLE t{old}"))?;
            }
            self.sample(db)?;
            if round % 8 == 7 {
                db.execute_batch("VACUUM")?;
                self.sample(db)?;
            }
        }
        Ok(())
    }

    /// In each round, copies new rows from another database in one transaction, and deletes those
    /// of earlier rounds.
    fn transfer(&mut self, db: &Connection) -> Result<(), Failure> {
        db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
        for round in 0..3 * self.task.times {
            let rows = 30_000;
            let other = self.path.with_extension("other");
            let plain = Connection::open(&other)?;
            plain.execute_batch(
                "PRAGMA synchronous=OFF; CREATE TABLE t (id INTEGER PRIMARY KEY, v); BEGIN",
            )?;
            self.insert(&plain, "t", round * rows..(round + 1) * rows)?;
            plain.execute_batch("COMMIT")?;
            self.commit(db, |lived, db| {
                let mut rows = plain.prepare("SELECT id, v FROM t")?;
                let mut rows = rows.query([])?;
                let mut insert = db.prepare_cached("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
                while let Some(row) = rows.next()? {
                    insert.execute((row.get::<_, u64>(0)?, row.get::<_, Vec<u8>>(1)?))?;
                }
                lived.changed = lived.changed.max(pages(db)? * PAGE);
                Ok(())
            })?;
            self.sample(db)?;
            drop(plain);
            std::fs::remove_file(&other)?;
            // Deletes the rows that earlier rounds have copied.
            self.commit(db, |_, db| {
                db.execute("DELETE FROM t WHERE id < ?1", [round * rows])?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Each transaction inserts the newest row and deletes the oldest one.
    fn queue(&mut self, db: &Connection) -> Result<(), Failure> {
        let waiting = 5_000;
        self.load(db, waiting)?;
        for at in 0..3_000 * self.task.times {
            self.commit(db, |lived, db| {
                lived.insert(db, "t", at + waiting..at + waiting + 1)?;
                db.prepare_cached("DELETE FROM t WHERE id = (SELECT min(id) FROM t)")?
                    .execute([])?;
                Ok(())
            })?;
            if at % 100 == 0 {
                self.sample(db)?;
            }
        }
        Ok(())
    }

    /// Each transaction inserts a hundred rows; after fifty, one deletes all but the newest rows.
    fn series(&mut self, db: &Connection) -> Result<(), Failure> {
        let kept = 20_000;
        self.load(db, kept)?;
        for at in 0..800 * self.task.times {
            let next = kept + at * 100;
            self.commit(db, |lived, db| lived.insert(db, "t", next..next + 100))?;
            if at % 50 == 49 {
                self.commit(db, |_, db| {
                    db.execute("DELETE FROM t WHERE id < ?1", [next - kept])?;
                    Ok(())
                })?;
                self.sample(db)?;
            }
        }
        Ok(())
    }

    /// Four threads, each with its own connection, update a random row and read another one.
    fn service(&mut self, db: &Connection) -> Result<(), Failure> {
        const THREADS: u64 = 4;
        let rows = 40_000;
        self.load(db, rows)?;
        self.connections = 1 + THREADS;
        let served: Result<Vec<Lived>, Failure> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=THREADS)
                .map(|number| {
                    let mut one = Lived {
                        path: self.path.clone(),
                        dice: Pcg64Mcg::seed_from_u64(self.task.seed + number),
                        commits: Vec::new(),
                        given: 0,
                        ..*self
                    };
                    scope.spawn(move || {
                        let db = one.open()?;
                        for at in 0..700 * one.task.times {
                            let [id, other] = [(); 2].map(|()| one.dice.random_range(0..rows));
                            one.commit(&db, |one, db| one.update(db, id))?;
                            db.prepare_cached("SELECT v FROM t WHERE id = ?1")?
                                .query_row([other], |row| row.get::<_, Vec<u8>>(0))?;
                            if at % 100 == 0 {
                                one.sample(&db)?;
                            }
                        }
                        Ok(one)
                    })
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        for one in served? {
            self.commits.extend(one.commits);
            self.given += one.given;
            self.descriptors = self.descriptors.max(one.descriptors);
        }
        self.sample(db)
    }

    fn daily(&mut self, db: Connection) -> Result<Connection, Failure> {
        let rows = 8_000;
        self.load(&db, rows)?;
        drop(db);
        for _ in 0..100 * self.task.times {
            let db = self.open()?;
            for _ in 0..10 {
                let id = self.dice.random_range(0..rows);
                self.commit(&db, |lived, db| lived.update(db, id))?;
            }
            self.sample(&db)?;
        }
        self.open()
    }

    /// Runs the life of a disk. The file system that the life creates is imitated: a few blocks,
    /// then whole mebibytes, of which all but the first are trimmed. Returns its cost like
    /// [`Task::live`].
    fn disk(&mut self, folder: &Path) -> Result<Value, Failure> {
        let bytes = 64 * MIB * self.task.times;
        let before = self.task.written(folder)?;
        let store = PageStore::open(&self.path, &OpenOptions::default())?;
        let mut disk = Volume::create(store, bytes)?;
        let flush = |disk: &mut Volume<PageStore>, lived: &mut Lived| {
            let began = Instant::now();
            disk.flush()?;
            lived.commits.push(began.elapsed());
            lived.note(disk.pages().info().pages * PAGE)
        };
        // Make a file system: write a few blocks all over the disk.
        for at in (0..bytes).step_by(4 << 20) {
            disk.write(at, &[1; 4096])?;
            self.given += 4096;
        }
        flush(&mut disk, self)?;
        for at in (0..bytes).step_by(MIB as usize) {
            disk.write(at, &vec![(at >> 20) as u8 + 1; MIB as usize])?;
            self.given += MIB;
            flush(&mut disk, self)?;
        }
        let (trimming, mut trims) = (disk.pages().medium_stats().bytes, 0);
        for at in (MIB..bytes).step_by(8 << 20) {
            disk.trim(at, (8 * MIB).min(bytes - at))?;
            flush(&mut disk, self)?;
            trims += 1;
        }
        let trimming = disk.pages().medium_stats().bytes - trimming;
        disk.compact()?;
        let live = disk.pages().info().pages * PAGE;
        drop(disk);
        let written = self.task.written(folder)? - before;
        let mut costs = self.costs(written, live)?;
        costs["trimmed"] = json!(bytes - MIB);
        costs["trims"] = json!(trims);
        costs["trimming"] = json!(trimming);
        let began = Instant::now();
        PageStore::open(&self.path, &OpenOptions::default())?;
        costs["opening_ns"] = json!(nanos(began.elapsed()));
        Ok(costs)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn pages(db: &Connection) -> Result<u64, Failure> {
    Ok(db.query_row("PRAGMA page_count", [], |row| row.get(0))?)
}

/// Live bytes of a database.
fn live(db: &Connection) -> Result<u64, Failure> {
    let free: u64 = db.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    Ok((pages(db)? - free) * PAGE)
}
