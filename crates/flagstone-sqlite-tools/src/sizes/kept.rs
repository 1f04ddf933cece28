//! Ways to keep rows and pages, for measuring the bytes that a commit writes. Each is filled,
//! overwritten twice, and then changed row by row or page by page.

use crate::engine::Engine;
use crate::process::{files_of, written};
use flagstone::ftl::Mistake;
use flagstone::mistakes::Mistaken;
use flagstone::units::Lpn;
use flagstone_store::{OpenOptions, PageStore, Store, Volume};
use flagstone_terminal::Failure;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;
use std::path::Path;

/// Bytes of a row's value.
const VALUE_BYTES: usize = 100;
/// Bytes that a row takes in a database, including overhead.
pub(crate) const ROW_BYTES: u64 = 118;
/// Rows in a page of 4096 bytes.
const ROWS_A_PAGE: u64 = 4096 / ROW_BYTES;
/// Bytes of one write to a disk.
const BLOCK_BYTES: u64 = 4096;
/// Rows or pages that each commit changes while the data is aged.
const AGEING: u64 = 100;
/// The name of the table, also in SQLite.
const TABLE: &str = "t";

/// A way to keep rows or pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Rows in SQLite with its write-ahead log.
    Wal,
    /// Rows in SQLite on a store.
    Sqlite,
    /// Rows in a table of a store, without SQLite.
    Table,
    /// Blocks of a disk, each flushed.
    Disk,
    /// Pages of a store.
    Pages,
    /// Pages of a store that grows by the rule of [`Mistake::VictimsCrowded`].
    Crowded,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Wal => "wal",
            Way::Sqlite => "sqlite",
            Way::Table => "table",
            Way::Disk => "disk",
            Way::Pages => "pages",
            Way::Crowded => "crowded",
        }
    }

    /// Whether several clients may use the data at the same time.
    pub(super) fn is_shared(self) -> bool {
        self.has_rows()
    }

    /// Whether this way keeps rows rather than pages.
    pub(super) fn has_rows(self) -> bool {
        matches!(self, Way::Wal | Way::Sqlite | Way::Table)
    }
}

/// A measurement to make: a way to keep data, with its size.
pub(super) struct Kept {
    pub(super) way: Way,
    pub(super) megabytes: u64,
    pub(super) connections: u32,
    pub(super) commits: u64,
    pub(super) seed: u64,
}

/// The result of a measurement.
pub(super) struct Counted {
    /// Bytes that the process wrote.
    pub(super) written: u64,
    /// Bytes of the pages that the commits changed, if no log is measured for comparison; else 0.
    pub(super) given: u64,
    /// Bytes of all files at the end.
    pub(super) file: u64,
    /// Bytes of the rows or pages themselves.
    pub(super) live: u64,
}

/// A client that changes rows or pages.
trait Client: Send {
    /// Changes `count` random rows or pages in one commit. Returns the bytes of the pages that were
    /// written to a store.
    fn change(&mut self, dice: &mut Pcg64Mcg, count: u64) -> Result<u64, Failure>;
}

impl Kept {
    /// Fills the store or database, overwrites it twice, and then measures the commits.
    pub(super) fn count(&self, folder: &Path) -> Result<Counted, Failure> {
        let path = folder.join(self.way.name());
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed);
        let mut clients = self.fill(&path, &mut dice)?;
        let pages = self.megabytes * 1_000_000 / BLOCK_BYTES;
        // A commit of randomly chosen rows changes nearly as many pages as rows.
        for _ in 0..(2 * pages).div_ceil(AGEING) {
            clients[0].change(&mut dice, AGEING)?;
        }
        // A client's first commit is not counted: it reads pages into its cache.
        for client in &mut clients {
            client.change(&mut dice, 1)?;
        }
        let before = written()?;
        let given = self.work(&mut clients)?;
        let written = written()? - before;
        let mut file = 0;
        for found in files_of(&path)? {
            file += std::fs::metadata(&found)?.len();
        }
        // SQLite deletes its log when the last connection closes.
        drop(clients);
        for found in files_of(&path)? {
            std::fs::remove_file(found)?;
        }
        let live = if self.way.has_rows() {
            self.rows().div_ceil(ROWS_A_PAGE) * BLOCK_BYTES
        } else {
            pages * BLOCK_BYTES
        };
        Ok(Counted {
            written,
            given,
            file,
            live,
        })
    }

    fn rows(&self) -> u64 {
        self.megabytes * 1_000_000 / ROW_BYTES
    }

    /// Runs all counted commits, divided among concurrent clients. Returns the bytes of the pages
    /// that they changed, as [`Client::change`].
    fn work(&self, clients: &mut [Box<dyn Client>]) -> Result<u64, Failure> {
        let connections = u64::from(self.connections);
        let share =
            |at: u64| self.commits / connections + u64::from(at < self.commits % connections);
        let work = |client: &mut Box<dyn Client>, at: u64| {
            let mut dice = Pcg64Mcg::seed_from_u64(self.seed + 1 + at);
            let mut given = 0;
            for _ in 0..share(at) {
                given += client.change(&mut dice, 1)?;
            }
            Ok::<_, Failure>(given)
        };
        let work = &work;
        std::thread::scope(|scope| {
            let started = clients.iter_mut().zip(0..);
            let threads: Vec<_> = started
                .map(|(client, at)| scope.spawn(move || work(client, at)))
                .collect();
            let mut given = 0;
            for thread in threads {
                let done = thread.join();
                given += done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok(given)
        })
    }

    /// Creates and fills the store or database, and opens its clients.
    fn fill(&self, path: &Path, dice: &mut Pcg64Mcg) -> Result<Vec<Box<dyn Client>>, Failure> {
        match self.way {
            Way::Wal => self.databases(path, Engine::WalFull, dice),
            Way::Sqlite => self.databases(path, Engine::Flagstone, dice),
            Way::Table => self.tables(path, dice),
            Way::Disk => Ok(vec![self.disk(path)?]),
            Way::Pages => Ok(vec![self.pages(path, OpenOptions::default())?]),
            Way::Crowded => {
                let mut options = OpenOptions::default();
                let made = Mistaken::making(Mistake::VictimsCrowded);
                options.mistake = made.ok_or_else(|| {
                    Failure::Usage(
                        "--control is not available in this build: build it together with \
                         flagstone-cli (`cargo build -p flagstone-sqlite-tools -p flagstone-cli`)"
                            .into(),
                    )
                })?;
                Ok(vec![self.pages(path, options)?])
            }
        }
    }

    /// Creates a database with its rows, and opens all connections to it.
    fn databases(
        &self,
        path: &Path,
        engine: Engine,
        dice: &mut Pcg64Mcg,
    ) -> Result<Vec<Box<dyn Client>>, Failure> {
        let db = engine.connect(path)?;
        db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL); BEGIN")?;
        let mut insert = db.prepare("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
        for id in 0..self.rows() {
            insert.execute((id, value(dice).as_slice()))?;
        }
        drop(insert);
        db.execute_batch("COMMIT")?;
        let rows = self.rows();
        let mut all = vec![Box::new(Rows { db, rows }) as Box<dyn Client>];
        for _ in 1..self.connections {
            let db = engine.connect(path)?;
            all.push(Box::new(Rows { db, rows }));
        }
        Ok(all)
    }

    /// Creates a store with a table of rows. Its clients are handles to the same store.
    fn tables(&self, path: &Path, dice: &mut Pcg64Mcg) -> Result<Vec<Box<dyn Client>>, Failure> {
        let store = Store::open(path)?;
        let mut tx = store.write()?;
        let mut table = tx.table(TABLE)?;
        for id in 0..self.rows() {
            table.insert(&id.to_be_bytes(), &value(dice))?;
        }
        drop(table);
        tx.commit()?;
        let rows = self.rows();
        let client = |_| {
            let store = store.clone();
            Box::new(InTable { store, rows }) as Box<dyn Client>
        };
        Ok((0..self.connections).map(client).collect())
    }

    fn disk(&self, path: &Path) -> Result<Box<dyn Client>, Failure> {
        let blocks = self.megabytes * 1_000_000 / BLOCK_BYTES;
        let pages = PageStore::open(path, &OpenOptions::default())?;
        let mut disk = Volume::create(pages, blocks * BLOCK_BYTES)?;
        for block in 0..blocks {
            disk.write(block * BLOCK_BYTES, &[7; BLOCK_BYTES as usize])?;
        }
        disk.flush()?;
        Ok(Box::new(Disk { disk, blocks }))
    }

    /// Creates a store and writes each of its pages once, 1,000 per transaction. A page takes
    /// [`BLOCK_BYTES`] of the megabytes, since its trailer counts as well.
    fn pages(&self, path: &Path, options: OpenOptions) -> Result<Box<dyn Client>, Failure> {
        let pages = (self.megabytes * 1_000_000 / BLOCK_BYTES) as u32;
        let mut store = PageStore::open(path, &options)?;
        for first in (0..pages).step_by(1_000) {
            let tx = store.begin()?;
            for at in first..pages.min(first + 1_000) {
                store.write(tx, Lpn(at), &[7; PageStore::PAGE_BYTES])?;
            }
            store.commit(tx)?;
        }
        Ok(Box::new(Pages { store, pages }))
    }
}

pub(crate) fn value(dice: &mut Pcg64Mcg) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    dice.fill(&mut bytes[..]);
    bytes
}

struct Rows {
    db: Connection,
    rows: u64,
}

impl Client for Rows {
    fn change(&mut self, dice: &mut Pcg64Mcg, count: u64) -> Result<u64, Failure> {
        if count > 1 {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
        }
        let mut update = self
            .db
            .prepare_cached("UPDATE t SET v = ?2 WHERE id = ?1")?;
        for _ in 0..count {
            update.execute((dice.random_range(0..self.rows), value(dice).as_slice()))?;
        }
        if count > 1 {
            self.db.execute_batch("COMMIT")?;
        }
        Ok(0)
    }
}

struct InTable {
    store: Store,
    rows: u64,
}

impl Client for InTable {
    fn change(&mut self, dice: &mut Pcg64Mcg, count: u64) -> Result<u64, Failure> {
        let mut tx = self.store.write()?;
        let mut table = tx.table(TABLE)?;
        for _ in 0..count {
            let id = dice.random_range(0..self.rows);
            table.insert(&id.to_be_bytes(), &value(dice))?;
        }
        drop(table);
        tx.commit()?;
        Ok(0)
    }
}

struct Disk {
    disk: Volume<PageStore>,
    blocks: u64,
}

impl Client for Disk {
    fn change(&mut self, dice: &mut Pcg64Mcg, count: u64) -> Result<u64, Failure> {
        let before = self.disk.pages().medium_stats().user_bytes;
        for _ in 0..count {
            let at = dice.random_range(0..self.blocks) * BLOCK_BYTES;
            let bytes = [dice.random(); BLOCK_BYTES as usize];
            self.disk.write(at, &bytes)?;
        }
        self.disk.flush()?;
        Ok(self.disk.pages().medium_stats().user_bytes - before)
    }
}

struct Pages {
    store: PageStore,
    pages: u32,
}

impl Client for Pages {
    fn change(&mut self, dice: &mut Pcg64Mcg, count: u64) -> Result<u64, Failure> {
        let tx = self.store.begin()?;
        for _ in 0..count {
            let bytes = [dice.random(); PageStore::PAGE_BYTES];
            self.store
                .write(tx, Lpn(dice.random_range(0..self.pages)), &bytes)?;
        }
        self.store.commit(tx)?;
        Ok(count * PageStore::PAGE_BYTES as u64)
    }
}
