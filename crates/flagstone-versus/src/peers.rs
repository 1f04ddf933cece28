//! The stores, each with the settings that its documentation recommends for a small cache.

use anyhow::Result;
use flagstone_index::{FileOptions, FileStore, Index, IndexKind, Settings};
use flagstone::units::Nanos;
use std::path::Path;

/// The names of the stores.
pub(crate) const NAMES: [&str; 6] = ["sal", "bptree", "lmdb", "rocksdb", "redb", "sqlite"];

/// A store that maps `u64` keys to `u64` values.
pub(crate) trait Peer {
    /// The value of a key.
    fn get(&mut self, key: u64) -> Result<Option<u64>>;
    /// Writes records. They are durable when this returns.
    fn put(&mut self, records: &[(u64, u64)]) -> Result<()>;
    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens or creates a store. `loading` means that it is only loaded now; SAL-hashing then merges
/// its log regions at each flush, which makes later lookups cheaper.
pub(crate) fn open(
    name: &str,
    path: &Path,
    memory: u64,
    records: u64,
    loading: bool,
) -> Result<Box<dyn Peer>> {
    Ok(match name {
        "lmdb" => Box::new(Lmdb::open(path, records)?),
        "rocksdb" => Box::new(Rocks::open(path, memory)?),
        "redb" => Box::new(Redb {
            db: redb::Builder::new()
                .set_cache_size(memory as usize)
                .create(path)?,
        }),
        "sqlite" => Box::new(Sqlite::open(path, memory)?),
        own => Box::new(Own::open(own, path, memory, loading)?),
    })
}

/// A Flagstone index in a file, with direct I/O.
struct Own {
    index: Box<dyn Index>,
}

impl Own {
    fn open(name: &str, path: &Path, memory: u64, loading: bool) -> Result<Own> {
        let kind = IndexKind::by_name(name).expect("a name of the list");
        let store = Box::new(FileStore::open(path, &FileOptions::default())?);
        let mut settings = Settings::new().with("memory", memory);
        if name == "sal" && loading {
            // Merge log regions at each flush.
            settings.set("split", "eager");
        }
        let (index, _) = kind.open(store, &settings, Nanos::ZERO)?;
        Ok(Own { index })
    }
}

impl Peer for Own {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.index.get(Nanos::ZERO, key)?.0)
    }

    fn put(&mut self, records: &[(u64, u64)]) -> Result<()> {
        for &(key, value) in records {
            self.index.insert(Nanos::ZERO, key, value)?;
        }
        self.index.flush(Nanos::ZERO)?;
        self.index.store().commit(Nanos::ZERO)?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// LMDB. It maps its file and has no cache of its own.
struct Lmdb {
    env: heed::Env,
    db: heed::Database<
        heed::types::U64<heed::byteorder::BigEndian>,
        heed::types::U64<heed::byteorder::BigEndian>,
    >,
}

impl Lmdb {
    // Safe only if no other process changes the mapped file. None does here.
    #[allow(unsafe_code)]
    fn open(path: &Path, records: u64) -> Result<Lmdb> {
        std::fs::create_dir_all(path)?;
        let mut options = heed::EnvOpenOptions::new();
        options.map_size((records as usize * 200).next_multiple_of(1 << 30));
        let env = unsafe { options.flags(heed::EnvFlags::NO_READ_AHEAD).open(path)? };
        let mut tx = env.write_txn()?;
        let db = env.create_database(&mut tx, None)?;
        tx.commit()?;
        Ok(Lmdb { env, db })
    }
}

impl Peer for Lmdb {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let tx = self.env.read_txn()?;
        Ok(self.db.get(&tx, &key)?)
    }

    fn put(&mut self, records: &[(u64, u64)]) -> Result<()> {
        let mut tx = self.env.write_txn()?;
        for (key, value) in records {
            self.db.put(&mut tx, key, value)?;
        }
        Ok(tx.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// RocksDB with direct reads, a Bloom filter, and index and filter blocks in the cache.
struct Rocks {
    db: rocksdb::DB,
}

impl Rocks {
    fn open(path: &Path, memory: u64) -> Result<Rocks> {
        let mut table = rocksdb::BlockBasedOptions::default();
        // Half of the memory is for the block cache; the write buffers share the rest.
        table.set_block_cache(&rocksdb::Cache::new_lru_cache(memory as usize / 2)?);
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_write_buffer_size((memory as usize / 4).max(1 << 16));
        Ok(Rocks {
            db: rocksdb::DB::open(&options, path)?,
        })
    }
}

impl Peer for Rocks {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.db.get_pinned(key.to_be_bytes())?;
        Ok(found.map(|bytes| u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))))
    }

    fn put(&mut self, records: &[(u64, u64)]) -> Result<()> {
        let mut batch = rocksdb::WriteBatch::default();
        for (key, value) in records {
            batch.put(key.to_be_bytes(), value.to_be_bytes());
        }
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(true);
        Ok(self.db.write_opt(batch, &options)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.flush()?)
    }
}

struct Redb {
    db: redb::Database,
}

const TABLE: redb::TableDefinition<u64, u64> = redb::TableDefinition::new("records");

impl Peer for Redb {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        use redb::ReadableDatabase;
        let tx = self.db.begin_read()?;
        let table = tx.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value()))
    }

    fn put(&mut self, records: &[(u64, u64)]) -> Result<()> {
        let tx = self.db.begin_write()?;
        {
            let mut table = tx.open_table(TABLE)?;
            for (key, value) in records {
                table.insert(key, value)?;
            }
        }
        Ok(tx.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// SQLite with a write-ahead log.
struct Sqlite {
    db: rusqlite::Connection,
}

impl Sqlite {
    fn open(path: &Path, memory: u64) -> Result<Sqlite> {
        let db = rusqlite::Connection::open(path)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "cache_size", -((memory / 1024) as i64))?;
        db.execute_batch("create table if not exists r (k integer primary key, v integer)")?;
        Ok(Sqlite { db })
    }
}

impl Peer for Sqlite {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let mut get = self.db.prepare_cached("select v from r where k = ?")?;
        let mut rows = get.query([key.cast_signed()])?;
        Ok(match rows.next()? {
            Some(row) => Some(row.get::<_, i64>(0)?.cast_unsigned()),
            None => None,
        })
    }

    fn put(&mut self, records: &[(u64, u64)]) -> Result<()> {
        let tx = self.db.transaction()?;
        {
            let mut put = tx.prepare_cached("insert or replace into r values (?, ?)")?;
            for (key, value) in records {
                put.execute([key.cast_signed(), value.cast_signed()])?;
            }
        }
        Ok(tx.commit()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
