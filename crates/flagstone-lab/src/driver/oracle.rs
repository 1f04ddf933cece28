//! What reads must find: locks put transactions in an order, and each reads what the last one
//! before it that committed has written, or what it wrote itself.

use flagstone::host::Rid;
use flagstone::units::TxId;
use rustc_hash::FxHashMap;
use thiserror::Error;

type Record = Option<Box<[u8]>>;

/// A read that found something else.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{tx} read page {} slot {}: it found {found:02x?}, but {wanted:02x?} was committed last",
    rid.page, rid.slot
)]
pub struct WrongRead {
    /// The reader.
    pub tx: TxId,
    /// What it read.
    pub rid: Rid,
    /// What was there.
    pub found: Option<Vec<u8>>,
    /// What should have been.
    pub wanted: Option<Vec<u8>>,
}

/// Every record as the last commit left it, and what live transactions wrote.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    committed: FxHashMap<Rid, Record>,
    live: FxHashMap<TxId, FxHashMap<Rid, Record>>,
}

impl Oracle {
    /// A transaction wrote a record, or deleted it.
    pub fn wrote(&mut self, tx: TxId, rid: Rid, bytes: Option<&[u8]>) {
        let own = self.live.entry(tx).or_default();
        own.insert(rid, bytes.map(Box::from));
    }

    /// A transaction read a record.
    ///
    /// # Errors
    /// It is not what should be there.
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

    /// A transaction is over.
    pub fn ended(&mut self, tx: TxId, committed: bool) {
        let own = self.live.remove(&tx).unwrap_or_default();
        if committed {
            self.committed.extend(own);
        }
    }

    /// What is committed, in the order of places.
    pub fn committed(&self) -> Vec<(Rid, Option<&[u8]>)> {
        let records = self.committed.iter();
        let mut all: Vec<_> = records
            .map(|(rid, record)| (*rid, record.as_deref()))
            .collect();
        all.sort_unstable();
        all
    }
}
