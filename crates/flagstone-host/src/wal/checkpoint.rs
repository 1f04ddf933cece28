//! Fuzzy checkpoints: the start of a restart, and how the log is shortened.
//!
//! A checkpoint consists of a begin record, the live transactions, the dirty pages, and an end
//! record. Transactions continue meanwhile. It becomes valid when the master points to it, which is
//! written after all of it is durable; until then a restart begins at the previous checkpoint.
//!
//! Changes that a checkpoint does not list as dirty must be durable, so it waits for pages written
//! before it.

use super::super::config::HostConfig;
use super::super::log::{LogRecord, Lsn, PAGES_MIN, What, payload_of};
use super::super::tools::Tools;
use super::{BARE, HostError, Wal};
use flagstone::layout;
use flagstone::layout::{Layout, put};
use flagstone::units::{Lpn, Nanos, TxId};

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
    let payload = payload_of(page_bytes);
    let checkpoints = 4 * bytes(config.frames, 1);
    (checkpoints.div_ceil(payload) as u32 + 2).max(PAGES_MIN)
}

impl Wal {
    /// Takes a checkpoint if one is due. Pages that changed since the checkpoint before the last
    /// may stay dirty (D2).
    pub(super) fn checkpoint_if_due(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
    ) -> Result<(), HostError> {
        let [_, before] = self.log.checkpoints();
        let bytes = bytes(tools.config.frames, self.txs.len() + 1);
        if self.log.is_due() && self.log.room() >= self.reserved_log + 2 * bytes {
            self.checkpoint(tools, now, before)?;
        }
        Ok(())
    }

    /// Takes a checkpoint, after writing out the pages that changed before `older_than`. Returns
    /// when the checkpoint is valid. No transaction waits for it.
    pub(super) fn checkpoint(
        &mut self,
        tools: &mut Tools,
        now: Nanos,
        older_than: Lsn,
    ) -> Result<Nanos, HostError> {
        self.write_group(tools, now)?;
        let cleaned = tools.clean_before(self, now, older_than)?;
        // Changes that the checkpoint does not list must be durable.
        let start = self.pages.sync(cleaned)?;
        let (begin, oldest) = self.log_tables(tools)?;
        let (log, pages) = (&mut self.log, &mut self.pages);
        let durable = log.force(pages, start, log.end())?;
        let done = log.point_to(pages, durable, begin, oldest, tools.last_tx)?;
        tools.stats.checkpoints += 1;
        Ok(done)
    }

    /// Logs the records of a checkpoint. Returns its start, and the oldest record that a restart
    /// needs.
    fn log_tables(&mut self, tools: &Tools) -> Result<(Lsn, Lsn), HostError> {
        let begin = self.mark(What::CheckpointBegin, &[])?;
        let mut oldest = begin;
        let mut txs = Vec::new();
        for (&tx, known) in &self.txs {
            let mut item = [0; live_tx::SIZE];
            put(&mut item, live_tx::XID, tx.0);
            put(&mut item, live_tx::FIRST, known.first);
            put(&mut item, live_tx::LAST, known.last);
            txs.push(item);
            oldest = oldest.min(known.first);
        }
        self.log_table(What::CheckpointTxs, &txs)?;
        let mut dirty: Vec<(Lpn, Lsn)> = tools.changed().collect();
        dirty.sort_unstable();
        let mut pages = Vec::new();
        for (at, since) in dirty {
            let mut item = [0; dirty_page::SIZE];
            put(&mut item, dirty_page::PAGE, at.0.into());
            put(&mut item, dirty_page::CHANGED, since);
            pages.push(item);
            oldest = oldest.min(since);
        }
        self.log_table(What::CheckpointPages, &pages)?;
        self.mark(What::CheckpointEnd, &[])?;
        Ok((begin, oldest))
    }

    /// Logs a table in as many records as it takes.
    fn log_table<const N: usize>(
        &mut self,
        what: What,
        items: &[[u8; N]],
    ) -> Result<(), HostError> {
        for some in items.chunks(BODY_MAX / N) {
            self.mark(what, some.as_flattened())?;
        }
        Ok(())
    }

    fn mark(&mut self, what: What, body: &[u8]) -> Result<Lsn, HostError> {
        self.log.append(&LogRecord::mark(what, TxId(0), 0, body))
    }
}
