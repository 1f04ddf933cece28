//! Fuzzy checkpoints: where a restart begins, and how the log is shortened.
//!
//! A checkpoint is its begin record, the live transactions, the dirty pages, and its end record.
//! Others go on meanwhile. It counts once the master points to it, which is written when all of it
//! is durable; a restart that finds it half written begins at the one before.
//!
//! What a checkpoint leaves out of the dirty pages must be durable: it waits for the pages that
//! were written before it.

use super::super::config::HostConfig;
use super::super::engine::Engine;
use super::super::log::{Entry, Lsn, PAGE_HEAD_BYTES, PAGES_MIN, What};
use super::{BARE, HostError, Wal};
use crate::layout;
use crate::layout::{Record, put};
use crate::units::{Lpn, Nanos, TxId};

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

pub(super) const LAYOUTS: &[Record] = &[live_tx::RECORD, dirty_page::RECORD];

/// Bytes of the bodies of a checkpoint's records: tables longer than that take several.
const BODY_MAX: usize = 1000;

/// Bytes of a checkpoint with so many dirty pages and live transactions.
pub(super) fn bytes(pages: usize, txs: usize) -> u64 {
    let tables = pages * dirty_page::SIZE + txs * live_tx::SIZE;
    let records = tables / (BODY_MAX / 2) + 4;
    tables as u64 + records as u64 * BARE
}

/// The least pages of a log for a pool.
pub(in crate::host) fn log_pages_min(config: &HostConfig, page_bytes: usize) -> u32 {
    let payload = (page_bytes - PAGE_HEAD_BYTES) as u64;
    let checkpoints = 4 * bytes(config.frames, 1);
    (checkpoints.div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl Wal {
    /// Takes a checkpoint if the log has grown enough since the last.
    pub(super) fn checkpoint_if_due(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
    ) -> Result<(), HostError> {
        let [last, before] = self.log.checkpoints();
        let bytes = bytes(engine.config.frames, self.txs.len() + 1);
        let has_room = self.log.room() >= self.reserved_log + 2 * bytes;
        let is_due = self.log.end() - last >= engine.checkpoint_bytes();
        if is_due && has_room {
            self.checkpoint(engine, now, before)?;
        }
        Ok(())
    }

    /// Takes a checkpoint, after writing out the pages that changed before `older_than`. Nobody
    /// waits for it. Returns when it counts.
    pub(super) fn checkpoint(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        self.write_group(now)?;
        let ready = engine.clean_older(self, now, older_than)?;
        let written = self.device.commit(ready, self.pages_tx)?;
        let written = written.expect("plain waits for no group");
        self.pages_tx = self.device.begin(written)?;

        let begin = self.mark(What::CheckpointBegin, &[])?;
        let mut oldest = begin;
        let mut body = Vec::new();
        let txs: Vec<(TxId, Lsn, Lsn)> = self
            .txs
            .iter()
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
        let frames = engine.pool.iter().map(|(at, frame)| (at, frame.changed));
        let mut dirty: Vec<(Lpn, Lsn)> = frames.filter(|&(_, since)| since != 0).collect();
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
        let end = self.log.end();
        let durable = self.log.force(&mut self.device, written, end)?;
        let last_tx = engine.last_tx;
        let done = self
            .log
            .point_to(&mut self.device, durable, begin, oldest, last_tx)?;
        engine.stats.checkpoints += 1;
        Ok(done)
    }

    fn mark(&mut self, what: What, body: &[u8]) -> Result<Lsn, HostError> {
        self.log.append(&Entry::mark(what, TxId(0), 0, body))
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
