//! Measures the page accesses of operations on tables of both kinds, compared with hash indexes.
//!
//! `cargo run --release -p flagstone-campaign --example hashed -- [RECORDS]` loads records of an
//! 8-byte key and an 8-byte value. Memory for pages is a tenth of the data. Then it counts the
//! pages that searches read, and those that insertions of new keys read and write, with 1 and with
//! 100 insertions in a durable commit. Keys are uniform. Block marks and superblocks of a store
//! count as pages written. A million records take a minute.

use flagstone::units::{Lpn, Nanos};
use flagstone_index::{BackingError, BackingStore, Index, IndexKind, MemStore, Settings};
use flagstone_store::medium::{Medium, Memory};
use flagstone_store::{OpenOptions, Store, TableKind};
use std::cell::Cell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Answer<T> = Result<T, Box<dyn Error>>;

const PAGE: u64 = 4096;
const SEARCHES: u64 = 20_000;
/// Commits, and insertions in each.
const COMMITS: [(u64, u64); 2] = [(2_000, 1), (200, 100)];
const ZERO: Nanos = Nanos::ZERO;

/// The key of a record: a pseudo-random number, unique for each `number`.
fn key(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Bytes that were read and written.
#[derive(Clone, Default)]
struct Counts(Arc<(AtomicU64, AtomicU64)>);

impl Counts {
    fn now(&self) -> (u64, u64) {
        let both = &*self.0;
        (
            both.0.load(Ordering::Relaxed),
            both.1.load(Ordering::Relaxed),
        )
    }
}

/// A medium in memory that counts bytes.
struct Counted(Arc<Memory>, Counts);

impl Medium for Counted {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.1.0.0.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.0.1.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.reserve(bytes)
    }
}

/// Index pages in memory that count accesses.
struct Pages(MemStore, Rc<Cell<(u64, u64)>>);

impl BackingStore for Pages {
    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn pages(&self) -> u32 {
        self.0.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let (read, written) = self.1.get();
        self.1.set((read + PAGE, written));
        self.0.read(now, at, into)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        let (read, written) = self.1.get();
        self.1.set((read, written + PAGE * pages.len() as u64));
        self.0.write(now, pages)
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.0.trim(now, at)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        self.0.commit(now)
    }
}

/// A table or index under measurement.
trait Subject {
    fn get(&mut self, key: u64) -> Answer<bool>;
    /// Inserts keys and makes them durable together.
    fn insert(&mut self, keys: &[u64]) -> Answer<()>;
}

struct Table(Store, TableKind);

impl Subject for Table {
    fn get(&mut self, key: u64) -> Answer<bool> {
        let read = self.0.read()?;
        Ok(read.table("t")?.get(&key.to_be_bytes())?.is_some())
    }

    fn insert(&mut self, keys: &[u64]) -> Answer<()> {
        let mut tx = self.0.write()?;
        let pair = |key: &u64| (key.to_be_bytes(), key.to_le_bytes());
        let pairs: Vec<_> = keys.iter().map(pair).collect();
        tx.open_table("t", self.1)?.insert_all(&pairs)?;
        Ok(tx.commit()?)
    }
}

/// An index whose changed pages reach their places at each commit.
struct Flushed(Box<dyn Index>);

impl Subject for Flushed {
    fn get(&mut self, key: u64) -> Answer<bool> {
        Ok(self.0.get(ZERO, key)?.0.is_some())
    }

    fn insert(&mut self, keys: &[u64]) -> Answer<()> {
        for &key in keys {
            self.0.insert(ZERO, key, key)?;
        }
        self.0.flush(ZERO)?;
        Ok(())
    }
}

fn measure(
    name: &str,
    records: u64,
    subject: &mut dyn Subject,
    counts: &dyn Fn() -> (u64, u64),
) -> Answer<()> {
    let mut before = counts();
    let mut cost = |operations: u64| {
        let now = counts();
        let pages = |bytes: u64| bytes as f64 / PAGE as f64 / operations as f64;
        let cost = (pages(now.0 - before.0), pages(now.1 - before.1));
        before = now;
        cost
    };
    for round in 0..2 * SEARCHES {
        if round == SEARCHES {
            cost(1);
        }
        assert!(subject.get(key(key(round) % records))?, "each key is there");
    }
    let mut line = format!("{name:30} {:8.2}", cost(SEARCHES).0);
    let mut next = records;
    for (commits, each) in COMMITS {
        for _ in 0..commits {
            let keys: Vec<u64> = (next..next + each).map(key).collect();
            subject.insert(&keys)?;
            next += each;
        }
        let (read, written) = cost(commits * each);
        line += &format!(" {read:8.2} {written:8.2}");
    }
    println!("{line}");
    Ok(())
}

fn table(kind: TableKind, records: u64) -> Answer<()> {
    let (medium, counts) = (Arc::new(Memory::default()), Counts::default());
    let mut options = OpenOptions::default();
    let open = |options: &OpenOptions| {
        let counted = Counted(Arc::clone(&medium), counts.clone());
        Store::on(Box::new(counted), options)
    };
    let mut loaded = Table(open(&options)?, kind);
    let all: Vec<u64> = (0..records).map(key).collect();
    for keys in all.chunks(100_000) {
        loaded.insert(keys)?;
    }
    loaded.0.close()?;
    options.cache = records * 16 / 10;
    let mut subject = Table(open(&options)?, kind);
    let name = format!("table, {kind}");
    measure(&name, records, &mut subject, &|| counts.now())
}

fn index(kind: IndexKind, records: u64) -> Answer<()> {
    let counts = Rc::new(Cell::default());
    let pages = (records / 50).max(20_000) as u32;
    let store = Box::new(Pages(
        MemStore::new(PAGE as usize, pages),
        Rc::clone(&counts),
    ));
    let settings = Settings::new().with("memory", records * 16 / 10);
    let name = kind.info().name;
    let all: Vec<u64> = (0..records).map(key).collect();
    let now = || counts.get();
    let mut subject = Flushed(kind.open(store, &settings, ZERO)?.0);
    for keys in all.chunks(100_000) {
        subject.insert(keys)?;
    }
    measure(&format!("{name}, flushed"), records, &mut subject, &now)
}

fn main() -> Answer<()> {
    let records = match std::env::args().nth(1) {
        Some(records) => records.parse()?,
        None => 1_000_000,
    };
    println!(
        "{:30} {:>8} {:>17} {:>17}",
        "pages an operation", "search", "insert, 1", "100 a commit"
    );
    println!(
        "{:30} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "read", "read", "written", "read", "written"
    );
    table(TableKind::Ordered, records)?;
    table(TableKind::Hashed, records)?;
    index(IndexKind::Linear, records)?;
    index(IndexKind::Sal, records)
}
