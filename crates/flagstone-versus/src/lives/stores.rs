//! The stores of the lives, with their defaults. A commit is durable when it returns.

use anyhow::Result;
use std::path::{Path, PathBuf};

/// A store under test, or a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Sqlite,
    Flagstone,
    Lmdb,
    Redb,
    /// Control: LMDB that ignores one delete. The check must detect it.
    #[value(hide = true, name = "lmdb-that-drops-a-delete")]
    DropsADelete,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Sqlite, Kind::Flagstone, Kind::Lmdb, Kind::Redb];

    /// Opens the store in `folder`, or creates it.
    pub(super) fn open(self, folder: &Path) -> Result<Box<dyn Kept>> {
        let file = folder.join("store");
        Ok(match self {
            Kind::Sqlite => Box::new(Sqlite::open(&file)?),
            Kind::Flagstone => Box::new(flagstone_store::Store::open(file)?),
            Kind::Lmdb | Kind::DropsADelete => Box::new(Lmdb::open(folder)?),
            Kind::Redb => Box::new(redb::Database::create(file)?),
        })
    }
}

/// A key and its new value; `None` deletes the key.
pub(super) type Change = ([u8; 8], Option<Vec<u8>>);

/// An open store.
pub(super) trait Kept {
    /// Applies `changes` in one transaction.
    fn commit(&mut self, changes: &mut dyn Iterator<Item = Change>) -> Result<()>;
    /// Reads the first `count` records.
    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Returns free space to the file system by the store's own means.
    fn compact(self: Box<Self>) -> Result<Box<dyn Kept>>;
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

const TABLE: &str = "records";

impl Kept for flagstone_store::Store {
    fn commit(&mut self, changes: &mut dyn Iterator<Item = Change>) -> Result<()> {
        let mut tx = self.write()?;
        let mut table = tx.table(TABLE)?;
        for (key, value) in changes {
            match value {
                Some(value) => table.insert(&key, &value)?,
                None => table.remove(&key)?,
            };
        }
        Ok(tx.commit()?)
    }

    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let pairs = self.read()?.table(TABLE)?.iter().take(count);
        pairs
            .map(|pair| pair.map(|(key, value)| Ok((key, value.to_vec())))?)
            .collect()
    }

    fn compact(self: Box<Self>) -> Result<Box<dyn Kept>> {
        flagstone_store::Store::compact(&self)?;
        Ok(self)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok((*self).close()?)
    }
}

type Bytes = heed::types::Bytes;

struct Lmdb {
    folder: PathBuf,
    env: heed::Env,
    db: heed::Database<Bytes, Bytes>,
}

impl Lmdb {
    // Safe only if no other process changes the mapped file. None does here.
    #[allow(unsafe_code)]
    fn open(folder: &Path) -> Result<Lmdb> {
        let mut options = heed::EnvOpenOptions::new();
        let env = unsafe { options.map_size(64 << 30).open(folder)? };
        let mut tx = env.write_txn()?;
        let db = env.create_database(&mut tx, None)?;
        tx.commit()?;
        let folder = folder.to_path_buf();
        Ok(Lmdb { folder, env, db })
    }
}

impl Kept for Lmdb {
    fn commit(&mut self, changes: &mut dyn Iterator<Item = Change>) -> Result<()> {
        let mut tx = self.env.write_txn()?;
        for (key, value) in changes {
            match value {
                Some(value) => self.db.put(&mut tx, &key, &value)?,
                None => drop(self.db.delete(&mut tx, &key)?),
            }
        }
        Ok(tx.commit()?)
    }

    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let tx = self.env.read_txn()?;
        let pairs = self.db.iter(&tx)?.take(count);
        pairs
            .map(|pair| pair.map(|(key, value)| Ok((key.to_vec(), value.to_vec())))?)
            .collect()
    }

    /// LMDB does not shrink its file: a compacted copy replaces it.
    fn compact(self: Box<Self>) -> Result<Box<dyn Kept>> {
        let Lmdb { folder, env, .. } = *self;
        let copy = folder.join("copy");
        env.copy_to_path(&copy, heed::CompactionOption::Enabled)?
            .sync_all()?;
        env.prepare_for_closing().wait();
        std::fs::rename(copy, folder.join("data.mdb"))?;
        std::fs::File::open(&folder)?.sync_all()?;
        Ok(Box::new(Lmdb::open(&folder)?))
    }
}

const REDB: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new(TABLE);

impl Kept for redb::Database {
    fn commit(&mut self, changes: &mut dyn Iterator<Item = Change>) -> Result<()> {
        let tx = self.begin_write()?;
        let mut table = tx.open_table(REDB)?;
        for (key, value) in changes {
            match value {
                Some(value) => table.insert(&key[..], &value[..])?,
                None => table.remove(&key[..])?,
            };
        }
        drop(table);
        Ok(tx.commit()?)
    }

    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        use redb::{ReadableDatabase, ReadableTable};
        let table = self.begin_read()?.open_table(REDB)?;
        let pairs = table.iter()?.take(count);
        pairs
            .map(|pair| {
                let (key, value) = pair?;
                Ok((key.value().to_vec(), value.value().to_vec()))
            })
            .collect()
    }

    fn compact(mut self: Box<Self>) -> Result<Box<dyn Kept>> {
        redb::Database::compact(&mut self)?;
        Ok(self)
    }
}

struct Sqlite(rusqlite::Connection);

impl Sqlite {
    fn open(file: &Path) -> Result<Sqlite> {
        let db = rusqlite::Connection::open(file)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        let table = "create table if not exists r (k blob primary key, v blob) without rowid";
        db.execute_batch(table)?;
        Ok(Sqlite(db))
    }
}

impl Kept for Sqlite {
    fn commit(&mut self, changes: &mut dyn Iterator<Item = Change>) -> Result<()> {
        let tx = self.0.transaction()?;
        let mut put = tx.prepare_cached("insert or replace into r values (?, ?)")?;
        let mut delete = tx.prepare_cached("delete from r where k = ?")?;
        for (key, value) in changes {
            match value {
                Some(value) => put.execute((key, value))?,
                None => delete.execute([key])?,
            };
        }
        drop((put, delete));
        Ok(tx.commit()?)
    }

    fn first(&self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let text = "select k, v from r order by k limit ?";
        let mut select = self.0.prepare_cached(text)?;
        let rows = select.query_map([count as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn compact(self: Box<Self>) -> Result<Box<dyn Kept>> {
        self.0.execute_batch("vacuum")?;
        Ok(self)
    }
}
