//! The stores of the YCSB mode, with settings that make each commit durable when it returns. A
//! store with its own cache gets half of the memory for it; the rest is for its other structures
//! and the system's page cache.

use anyhow::{Context, Result, bail};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// The names of the stores, and the setting that makes their commits durable.
pub(crate) const STORES: [(&str, &str); 6] = [
    (
        "flagstone",
        "the default: one write and an fdatasync for each group of commits",
    ),
    (
        "lmdb",
        "the default: fdatasync and a synchronous write of the meta page for each commit",
    ),
    (
        "redb",
        "Durability::Immediate, the default; it syncs each commit once or twice",
    ),
    (
        "rocksdb",
        "WriteOptions::sync for each batch, Bloom filters of 10 bits, no compression",
    ),
    (
        "fjall",
        "PersistMode::SyncData for each batch, no compression",
    ),
    (
        "sqlite",
        "journal_mode WAL and synchronous FULL, a connection for each thread; those that write \
         take turns by a mutex, since SQLite itself sleeps while it waits",
    ),
];

/// The control of the check: LMDB without syncs.
pub(crate) const NEVER_SYNCS: &str = "lmdb-that-never-syncs";

pub(crate) type Key = [u8; 8];

/// A key with its value.
pub(crate) type Record = (Key, Vec<u8>);

/// A callback for each key and value of a scan.
pub(crate) type See<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

/// A store that several threads share.
pub(crate) trait Shared: Sync {
    /// Creates the state that one thread needs to use the store.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Finishes deferred work of the load, such as merges, so that it is not measured later.
    fn finish_load(&self) -> Result<()> {
        Ok(())
    }
    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The operations of one thread.
pub(crate) trait Session {
    /// Copies the value of a key to `into`, as an application would. Returns whether the key
    /// exists.
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool>;
    /// Calls `see` for at most `count` records in key order, beginning with the first key at or
    /// after `from`.
    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()>;
    /// Writes records in one transaction. It is durable when this returns.
    fn put(&mut self, records: &[Record]) -> Result<()>;
}

fn copy(value: Option<&[u8]>, into: &mut Vec<u8>) -> bool {
    into.clear();
    into.extend_from_slice(value.unwrap_or_default());
    value.is_some()
}

/// Opens or creates a store for `bytes` bytes of data and `threads` threads.
pub(crate) fn open(
    name: &str,
    path: &Path,
    memory: u64,
    bytes: u64,
    threads: u64,
) -> Result<Box<dyn Shared>> {
    Ok(match name {
        "flagstone" => {
            let mut options = flagstone_store::OpenOptions::default();
            options.cache = memory / 2;
            Box::new(Own(flagstone_store::Store::with(path, &options)?))
        }
        "lmdb" => Box::new(Lmdb::open(path, bytes, heed::EnvFlags::empty())?),
        NEVER_SYNCS => Box::new(Lmdb::open(path, bytes, heed::EnvFlags::NO_SYNC)?),
        "redb" => Box::new(Redb(
            redb::Builder::new()
                .set_cache_size(memory as usize / 2)
                .create(path)?,
        )),
        "rocksdb" => Box::new(Rocks::open(path, memory)?),
        "fjall" => Box::new(Fjall::open(path, memory)?),
        "sqlite" => Box::new(Sqlite::open(path, memory / 2 / threads)?),
        other => bail!("there is no store `{other}`"),
    })
}

struct Own(flagstone_store::Store);

const TABLE: &str = "records";

impl Shared for Own {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(&self.0))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

impl Session for &flagstone_store::Store {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        let found = self.read()?.table(TABLE)?.get(key)?;
        Ok(copy(found.as_deref(), into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        let table = self.read()?.table(TABLE)?;
        for pair in table.range(&from[..]..)?.take(count) {
            let (key, value) = pair?;
            see(&key, &value);
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        Ok(self.insert_all(TABLE, records)?)
    }
}

type Bytes = heed::types::Bytes;

struct Lmdb {
    env: heed::Env,
    db: heed::Database<Bytes, Bytes>,
}

impl Lmdb {
    // Safe only if no other process changes the mapped file. None does here.
    #[allow(unsafe_code)]
    fn open(path: &Path, bytes: u64, flags: heed::EnvFlags) -> Result<Lmdb> {
        std::fs::create_dir_all(path)?;
        let mut options = heed::EnvOpenOptions::new();
        options.map_size((bytes as usize * 6).next_multiple_of(1 << 30));
        let flags = flags | heed::EnvFlags::NO_READ_AHEAD;
        let env = unsafe { options.flags(flags).open(path)? };
        let mut tx = env.write_txn()?;
        let db = env.create_database(&mut tx, None)?;
        tx.commit()?;
        Ok(Lmdb { env, db })
    }
}

impl Shared for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for &Lmdb {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        let tx = self.env.read_txn()?;
        Ok(copy(self.db.get(&tx, key)?, into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        let tx = self.env.read_txn()?;
        let bounds = (Bound::Included(&from[..]), Bound::Unbounded);
        for pair in self.db.range(&tx, &bounds)?.take(count) {
            let (key, value) = pair?;
            see(key, value);
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        let mut tx = self.env.write_txn()?;
        for (key, value) in records {
            self.db.put(&mut tx, key, value)?;
        }
        Ok(tx.commit()?)
    }
}

struct Redb(redb::Database);

const REDB: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new(TABLE);

impl Shared for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for &Redb {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(REDB)?;
        let found = table.get(&key[..])?;
        Ok(copy(found.as_ref().map(|value| value.value()), into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(REDB)?;
        for pair in table.range(&from[..]..)?.take(count) {
            let (key, value) = pair?;
            see(key.value(), value.value());
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        let tx = self.0.begin_write()?;
        {
            let mut table = tx.open_table(REDB)?;
            for (key, value) in records {
                table.insert(&key[..], &value[..])?;
            }
        }
        Ok(tx.commit()?)
    }
}

/// RocksDB with a Bloom filter, and index and filter blocks in the cache.
struct Rocks(rocksdb::DB);

impl Rocks {
    fn open(path: &Path, memory: u64) -> Result<Rocks> {
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&rocksdb::Cache::new_lru_cache(memory as usize / 2)?);
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_write_buffer_size((memory as usize / 4).max(1 << 20));
        Ok(Rocks(rocksdb::DB::open(&options, path)?))
    }
}

impl Shared for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(&self.0))
    }

    fn finish_load(&self) -> Result<()> {
        self.0.flush()?;
        self.0.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

impl Session for &rocksdb::DB {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        let found = self.get_pinned(key)?;
        Ok(copy(found.as_deref(), into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        let mode = rocksdb::IteratorMode::From(from, rocksdb::Direction::Forward);
        for pair in self.iterator(mode).take(count) {
            let (key, value) = pair?;
            see(&key, &value);
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        let mut batch = rocksdb::WriteBatch::default();
        for (key, value) in records {
            batch.put(key, value);
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(true);
        Ok(self.write_opt(batch, &options)?)
    }
}

struct Fjall {
    db: fjall::Database,
    keys: fjall::Keyspace,
}

impl Fjall {
    fn open(path: &Path, memory: u64) -> Result<Fjall> {
        let db = fjall::Database::builder(path)
            .cache_size(memory / 2)
            .open()?;
        let options = || {
            fjall::KeyspaceCreateOptions::default()
                .max_memtable_size((memory / 4).max(1 << 20))
                .data_block_compression_policy(fjall::config::CompressionPolicy::disabled())
        };
        let keys = db.keyspace(TABLE, options)?;
        Ok(Fjall { db, keys })
    }
}

impl Shared for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }

    fn finish_load(&self) -> Result<()> {
        Ok(self.keys.major_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(fjall::PersistMode::SyncAll)?)
    }
}

impl Session for &Fjall {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        let found = self.keys.get(key)?;
        Ok(copy(found.as_deref(), into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        for pair in self.keys.range(&from[..]..).take(count) {
            let (key, value) = pair.into_inner()?;
            see(&key, &value);
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        let batch = self.db.batch();
        let mut batch = batch.durability(Some(fjall::PersistMode::SyncData));
        for (key, value) in records {
            batch.insert(&self.keys, &key[..], &value[..]);
        }
        Ok(batch.commit()?)
    }
}

/// SQLite with a connection for each thread.
struct Sqlite {
    path: PathBuf,
    /// Bytes of each connection's cache.
    cache: u64,
    writer: Mutex<()>,
}

/// One thread's connection.
struct Connection<'a> {
    db: rusqlite::Connection,
    writer: &'a Mutex<()>,
}

impl Sqlite {
    fn open(path: &Path, cache: u64) -> Result<Sqlite> {
        let own = Sqlite {
            path: path.to_path_buf(),
            cache,
            writer: Mutex::default(),
        };
        let table = "create table if not exists r (k blob primary key, v blob) without rowid";
        own.connect()?.execute_batch(table)?;
        Ok(own)
    }

    fn connect(&self) -> Result<rusqlite::Connection> {
        let _alone = alone(&self.writer);
        let db = rusqlite::Connection::open(&self.path)?;
        db.busy_timeout(std::time::Duration::from_secs(60))?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "cache_size", -((self.cache / 1024) as i64))?;
        Ok(db)
    }
}

fn alone(writer: &Mutex<()>) -> MutexGuard<'_, ()> {
    writer.lock().expect("no thread panics here")
}

impl Shared for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connection {
            db: self.connect()?,
            writer: &self.writer,
        }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for Connection<'_> {
    fn get(&mut self, key: &Key, into: &mut Vec<u8>) -> Result<bool> {
        let mut get = self.db.prepare_cached("select v from r where k = ?")?;
        let mut rows = get.query([key])?;
        let row = rows.next().context("reading a row")?;
        let value = row.map(|row| row.get_ref(0)).transpose()?;
        let value = value.map(|value| value.as_blob()).transpose()?;
        Ok(copy(value, into))
    }

    fn scan(&mut self, from: &Key, count: usize, see: &mut See<'_>) -> Result<()> {
        let text = "select k, v from r where k >= ? order by k limit ?";
        let mut scan = self.db.prepare_cached(text)?;
        let mut rows = scan.query(rusqlite::params![from, count as i64])?;
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn put(&mut self, records: &[Record]) -> Result<()> {
        let _alone = alone(self.writer);
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let tx = self.db.transaction_with_behavior(behavior)?;
        {
            let mut put = tx.prepare_cached("insert or replace into r values (?, ?)")?;
            for (key, value) in records {
                put.execute(rusqlite::params![key, value])?;
            }
        }
        Ok(tx.commit()?)
    }
}
