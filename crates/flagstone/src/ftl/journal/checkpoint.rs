//! Checkpoints: the changed translation pages, and a root that refers to them.

use super::{MetaState, NONE};
use crate::ftl::{Cause, Ftl, FtlError, Header, PageKind};
use crate::units::{Lpn, Nanos, Ppn};

impl Ftl {
    /// Writes the changed translation pages and a root; all logs start anew with it. A restart
    /// returns `blob` to the owner. Returns when the root is durable.
    pub fn checkpoint(&mut self, now: Nanos, blob: Vec<u8>) -> Result<Nanos, FtlError> {
        let mut dirty = self.map.take_changed();
        self.clean_map_blocks(&mut dirty);
        let written = self
            .write_map_pages(now, &dirty)
            .and_then(|(moved, durable)| {
                let now = self.sync(now, durable)?;
                self.root_with(now, &moved, blob)
            });
        if written.is_err() {
            // None of them is written yet.
            dirty.into_iter().for_each(|page| self.map.mark(page));
            self.journal.free_full_blocks();
        } else if let Some(cache) = &mut self.map.cache {
            cache.written();
        }
        written
    }

    /// Writes the root of a checkpoint that has moved these translation pages. If that fails,
    /// restores the state of the previous root.
    fn root_with(
        &mut self,
        now: Nanos,
        moved: &[(u32, Ppn)],
        blob: Vec<u8>,
    ) -> Result<Nanos, FtlError> {
        let before = (self.journal.directory.clone(), self.journal.log_from);
        let mut old = Vec::new();
        for &(page, at) in moved {
            let entry = &mut self.journal.directory[page as usize];
            old.push(Ppn(std::mem::replace(entry, at.0)));
        }
        self.journal.log_from = self.seq + 1;
        // An open log block takes no more pages: its pages are obsolete.
        for open in self.journal.open_log.iter_mut() {
            if let Some(index) = open.take() {
                self.journal.pool[index].state = MetaState::Full;
            }
        }
        let done = match self.keep_in_root(now, blob) {
            Ok(done) => done,
            Err(error) => {
                (self.journal.directory, self.journal.log_from) = before;
                self.journal
                    .rootless
                    .extend(moved.iter().map(|&(_, at)| at));
                return Err(error);
            }
        };
        self.stats.checkpoints += 1;
        old.retain(|&at| at.0 != NONE);
        old.append(&mut self.journal.rootless);
        let blocks = old.into_iter().map(|at| self.geometry.block_of(at));
        blocks.for_each(|block| self.journal.let_map_page_go(block));
        for block in self.journal.pool.iter_mut().filter(|block| block.is_log) {
            block.live = 0;
        }
        self.journal.free_full_blocks();
        Ok(done)
    }

    /// Writes a root with a new `blob` for the owner. The mapping table on flash is unchanged.
    /// Returns when the root is durable.
    pub(crate) fn keep_in_root(&mut self, now: Nanos, blob: Vec<u8>) -> Result<Nanos, FtlError> {
        let before = std::mem::replace(&mut self.journal.blob, blob);
        let written = self.write_root(now);
        if written.is_err() {
            self.journal.blob = before;
        }
        written
    }

    /// Programs translation pages. Returns the place of each, and when the last is done.
    fn write_map_pages(
        &mut self,
        now: Nanos,
        pages: &[u32],
    ) -> Result<(Vec<(u32, Ppn)>, Nanos), FtlError> {
        let mut durable = now;
        let mut moved = Vec::with_capacity(pages.len());
        for &page in pages {
            let slots = self.map.translation_page(page).to_vec();
            let header = Header {
                kind: PageKind::Map,
                lpn: Lpn(page),
                seq: self.next_seq(),
            };
            let written = self
                .recall_to_write(now, page)
                .and_then(|now| self.append_to_journal(now, header, &slots, Cause::Mapping));
            let (index, at, done) = written.inspect_err(|_| {
                self.let_map_pages_go(&moved);
            })?;
            self.journal.pool[index].live += 1;
            moved.push((page, at));
            durable = durable.max(done);
        }
        Ok((moved, durable))
    }

    /// Frees the places of translation pages to which no root will refer.
    pub(in crate::ftl) fn let_map_pages_go(&mut self, moved: &[(u32, Ppn)]) {
        for &(_, at) in moved {
            self.journal.let_map_page_go(self.geometry.block_of(at));
        }
    }

    /// Adds translation pages to those of a checkpoint, to free the blocks that hold them: as many
    /// as needed for the largest possible next checkpoint to fit.
    fn clean_map_blocks(&self, pages: &mut Vec<u32>) {
        let per_block = self.pairs.meta_pages.len() as u32;
        let reserve = self.journal.full_checkpoint_blocks(per_block);
        if reserve == 0 {
            return;
        }
        // By block: its live pages that are not rewritten.
        let mut left: Vec<u32> = self.journal.pool.iter().map(|block| block.live).collect();
        for &page in pages.iter() {
            let at = self.journal.directory[page as usize];
            if at != NONE {
                let place = self.journal.place(self.geometry.block_of(Ppn(at)));
                left[place.expect("translation pages lie in the pool")] -= 1;
            }
        }
        let full = |&i: &usize| self.journal.pool[i].state == MetaState::Full;
        let is_log = |&i: &usize| self.journal.pool[i].is_log;
        let (logs, mut order): (Vec<usize>, _) = (0..left.len()).filter(full).partition(is_log);
        order.sort_by_key(|&i| (left[i], i));
        let mut written = pages.len() as u32;
        // The logs start anew with the checkpoint.
        let free = self.journal.free_blocks() + logs.len();
        let mut chosen = Vec::new();
        for i in order {
            let used = written.div_ceil(per_block) as usize + self.journal.open_map.len();
            if left[i] > 0 && free + chosen.len() >= reserve + used {
                break;
            }
            written += left[i];
            chosen.push(self.journal.pool[i].block);
        }
        chosen.sort_unstable();
        let cleaned = (0..self.journal.directory.len() as u32).filter(|&page| {
            let at = self.journal.directory[page as usize];
            at != NONE
                && chosen
                    .binary_search(&self.geometry.block_of(Ppn(at)))
                    .is_ok()
        });
        pages.extend(cleaned);
        pages.sort_unstable();
        pages.dedup();
    }

    /// The owner's bytes in the last checkpoint.
    pub fn blob(&self) -> &[u8] {
        &self.journal.blob
    }
}
