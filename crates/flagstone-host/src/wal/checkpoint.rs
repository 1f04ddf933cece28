//! Fuzzy checkpoints: the start of a restart, and how the log is shortened.
//!
//! A checkpoint consists of a begin record, the live transactions, the dirty pages, and an end
//! record. Transactions continue meanwhile. It becomes valid when the master points to it, which is
//! written after all of it is durable; until then a restart begins at the previous checkpoint.
//!
//! Changes that a checkpoint does not list as dirty must be durable, so it waits for pages written
//! before it.

use super::super::config::HostConfig;
use super::super::log::{LogRecord, Lsn, PAGE_HEAD_BYTES, PAGES_MIN, What};
use super::super::manager::Memory;
use super::{BARE, HostError, Wal};
use flagstone::layout;
use flagstone::layout::{Layout, put};
use flagstone::units::{Lpn, TxId};

layout! {
    /// A live transaction in a checkpoint.
    pub live_tx: 18 => {
        XID:   6, "the transaction";
        FIRST: 6, "LSN of its first record";
        LAST:  6, "LSN of its last record";
    }
}

layout! {
    /// A dirty page in a checkpoint.
    pub dirty_page: 10 => {
        PAGE:    4, "the page";
        CHANGED: 6, "LSN of the first change that is not on flash";
    }
}

pub(super) const LAYOUTS: &[Layout] = &[live_tx::RECORD, dirty_page::RECORD];

/// Maximum body bytes of a checkpoint record: longer tables take several records.
const BODY_MAX: usize = 1000;

/// Size of a checkpoint with `pages` dirty pages and `txs` live transactions.
pub(super) fn bytes(pages: usize, txs: usize) -> u64 {
    let tables = pages * dirty_page::SIZE + txs * live_tx::SIZE;
    let records = tables / (BODY_MAX / 2) + 4;
    tables as u64 + records as u64 * BARE
}

/// Minimum number of log pages for the pool of `config`.
pub(crate) fn log_pages_min(config: &HostConfig, page_bytes: usize) -> u32 {
    let payload = (page_bytes - PAGE_HEAD_BYTES) as u64;
    let checkpoints = 4 * bytes(config.frames, 1);
    (checkpoints.div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl Wal {
    /// Logs a checkpoint. Returns its start, and the oldest record that a restart needs.
    pub(super) fn log_checkpoint(&mut self, memory: &Memory) -> Result<(Lsn, Lsn), HostError> {
        let begin = self.mark(What::CheckpointBegin, &[])?;
        let mut oldest = begin;
        let mut body = Vec::new();
        let txs = self.txs.iter();
        let txs: Vec<_> = txs
            .map(|(&tx, known)| (tx, known.first, known.last))
            .collect();
        for (tx, first, last) in txs {
            let mut item = [0; live_tx::SIZE];
            put(&mut item, live_tx::XID, tx.0);
            put(&mut item, live_tx::FIRST, first);
            put(&mut item, live_tx::LAST, last);
            self.add(What::CheckpointTxs, &mut body, &item)?;
            oldest = oldest.min(first);
        }
        self.flush(What::CheckpointTxs, &mut body)?;
        let mut dirty: Vec<(Lpn, Lsn)> = memory.changed().collect();
        dirty.sort_unstable();
        for (at, since) in dirty {
            let mut item = [0; dirty_page::SIZE];
            put(&mut item, dirty_page::PAGE, at.0.into());
            put(&mut item, dirty_page::CHANGED, since);
            self.add(What::CheckpointPages, &mut body, &item)?;
            oldest = oldest.min(since);
        }
        self.flush(What::CheckpointPages, &mut body)?;
        self.mark(What::CheckpointEnd, &[])?;
        Ok((begin, oldest))
    }

    fn mark(&mut self, what: What, body: &[u8]) -> Result<Lsn, HostError> {
        self.log.append(&LogRecord::mark(what, TxId(0), 0, body))
    }

    fn add(&mut self, what: What, body: &mut Vec<u8>, item: &[u8]) -> Result<(), HostError> {
        if body.len() + item.len() > BODY_MAX {
            self.flush(what, body)?;
        }
        body.extend_from_slice(item);
        Ok(())
    }

    fn flush(&mut self, what: What, body: &mut Vec<u8>) -> Result<(), HostError> {
        if !body.is_empty() {
            self.mark(what, body)?;
            body.clear();
        }
        Ok(())
    }
}
