//! Expected results of reads: locks order transactions, and each reads the last version committed
//! before it, or its own.

use flagstone::units::TxId;
use flagstone_host::Rid;
use rustc_hash::FxHashMap;
use thiserror::Error;

type Record = Option<Box<[u8]>>;

/// A read that returned wrong data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{tx} read page {} slot {}: it found {found:02x?}, but {wanted:02x?} was committed last",
    rid.page, rid.slot
)]
pub struct WrongRead {
    /// The reader.
    pub tx: TxId,
    /// The record.
    pub rid: Rid,
    /// The data that the read returned.
    pub found: Option<Vec<u8>>,
    /// The expected data.
    pub wanted: Option<Vec<u8>>,
}

/// The committed version of every record, and writes of live transactions.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    committed: FxHashMap<Rid, Record>,
    live: FxHashMap<TxId, FxHashMap<Rid, Record>>,
}

impl Oracle {
    /// Records that a transaction wrote or deleted a record.
    pub fn wrote(&mut self, tx: TxId, rid: Rid, bytes: Option<&[u8]>) {
        let own = self.live.entry(tx).or_default();
        own.insert(rid, bytes.map(Box::from));
    }

    /// Checks a record that a transaction has read.
    ///
    /// # Errors
    /// The data is not the expected version.
    pub fn read(&self, tx: TxId, rid: Rid, found: Option<&[u8]>) -> Result<(), WrongRead> {
        let own = self.live.get(&tx).and_then(|own| own.get(&rid));
        let record = own.or_else(|| self.committed.get(&rid));
        let wanted = record.and_then(|record| record.as_deref());
        if wanted == found {
            return Ok(());
        }
        Err(WrongRead {
            tx,
            rid,
            found: found.map(<[u8]>::to_vec),
            wanted: wanted.map(<[u8]>::to_vec),
        })
    }

    /// Records the end of a transaction.
    pub fn ended(&mut self, tx: TxId, committed: bool) {
        let own = self.live.remove(&tx).unwrap_or_default();
        if committed {
            self.committed.extend(own);
        }
    }

    /// The committed records, sorted by address.
    pub fn committed(&self) -> Vec<(Rid, Option<&[u8]>)> {
        let records = self.committed.iter();
        let mut all: Vec<_> = records
            .map(|(rid, record)| (*rid, record.as_deref()))
            .collect();
        all.sort_unstable();
        all
    }
}
