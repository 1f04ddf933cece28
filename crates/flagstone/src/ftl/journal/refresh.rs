//! Copies of the valid contents of a block of the journal, before its bit errors exceed the ECC.

use super::{MetaState, NONE};
use crate::ftl::{Cause, Ftl, FtlError, Header, PageKind, header};
use crate::nand::FlashError;
use crate::units::{Lpn, Nanos, Pbn, Ppn};

/// A page of the area for mapping pages and logs.
enum MetaPage {
    /// When it was read, its header, and its data.
    Holds(Nanos, Header, Vec<u8>),
    Blank,
    /// Unreadable.
    Lost,
}

impl Ftl {
    /// Rewrites the valid contents of a block for roots, mapping pages and logs. Returns `false` if
    /// there is no room for the copies, or if a log page in it is lost.
    pub(in crate::ftl) fn refresh_meta(
        &mut self,
        now: Nanos,
        block: Pbn,
    ) -> Result<bool, FtlError> {
        if !self.journal.holds_something(block) {
            return Ok(true);
        }
        let Some(index) = self.journal.place(block) else {
            self.stats.refreshed += 1;
            self.write_root(now)?;
            return Ok(true);
        };
        // The copies may need a block on each lane, and one may fail.
        if self.journal.free_blocks() <= self.journal.open_map.len() + 1 {
            return Ok(false);
        }
        self.stats.refreshed += 1;
        let lanes = self.journal.open_map.iter_mut();
        for open in lanes.chain(&mut self.journal.open_log) {
            if *open == Some(index) {
                *open = None;
                self.journal.pool[index].state = MetaState::Full;
            }
        }
        if self.journal.pool[index].is_log {
            self.copy_log_pages(now, index)
        } else {
            self.copy_map_pages(now, index).map(|()| true)
        }
    }

    /// Copies the translation pages in a block that the current root refers to, unchanged. The next
    /// root refers to the copies.
    fn copy_map_pages(&mut self, now: Nanos, index: usize) -> Result<(), FtlError> {
        let block = self.journal.pool[index].block;
        let mut durable = now;
        let mut moved = Vec::new();
        for page in 0..self.journal.directory.len() {
            let from = self.journal.directory[page];
            if from == NONE || self.geometry.block_of(Ppn(from)) != block {
                continue;
            }
            // A lost page stays at its place.
            let MetaPage::Holds(read, _, data) = self.read_meta_page(now, Ppn(from))? else {
                continue;
            };
            let (kind, lpn, seq) = (PageKind::Map, Lpn(page as u32), self.next_seq());
            let head = Header { kind, lpn, seq };
            let copied = self.append_to_journal(read, head, &data, Cause::Scrub);
            let (to, at, done) = copied.inspect_err(|_| {
                self.let_map_pages_go(&moved);
            })?;
            self.journal.pool[to].live += 1;
            moved.push((page as u32, at));
            durable = durable.max(done);
        }
        let now = self.sync(now, durable)?;
        let before = self.journal.directory.clone();
        for &(page, at) in &moved {
            self.journal.directory[page as usize] = at.0;
        }
        self.write_root(now).inspect_err(|_| {
            self.journal.directory = before;
            self.journal
                .rootless
                .extend(moved.iter().map(|&(_, at)| at));
        })?;
        let entry = &mut self.journal.pool[index];
        entry.live -= moved.len() as u32;
        if entry.live == 0 {
            entry.state = MetaState::Free;
        }
        Ok(())
    }

    /// Copies the valid log pages in a block. The copies keep their sequences: a restart that finds
    /// both uses one. Returns `false` if a page is lost; then all stay where they are until the
    /// next checkpoint.
    fn copy_log_pages(&mut self, now: Nanos, index: usize) -> Result<bool, FtlError> {
        let block = self.journal.pool[index].block;
        let mut pages = Vec::new();
        for page in 0..self.geometry.pages_per_block {
            let at = self.geometry.page(block, page);
            match self.read_meta_page(now, at)? {
                MetaPage::Holds(read, head, data)
                    if head.kind == PageKind::Log && head.seq >= self.journal.log_from =>
                {
                    pages.push((read, head, data));
                }
                // As in a mount: pages that a cut left after a blank page are not valid.
                MetaPage::Blank if self.pairs.blank_ends(page) => break,
                _ => {}
            }
        }
        if pages.len() != self.journal.pool[index].live as usize {
            return Ok(false);
        }
        let mut durable = now;
        for (read, head, data) in pages {
            let (to, _, done) = self.append_to_journal(read, head, &data, Cause::Scrub)?;
            self.journal.pool[to].live += 1;
            durable = durable.max(done);
        }
        let now = self.sync(now, durable)?;
        let entry = &mut self.journal.pool[index];
        (entry.live, entry.state) = (0, MetaState::Free);
        // The block must not be erased before the copies are durable.
        self.journal.durable = self.journal.durable.max(now);
        Ok(true)
    }

    /// Reads a page of the area for mapping pages and logs.
    fn read_meta_page(&mut self, now: Nanos, at: Ppn) -> Result<MetaPage, FtlError> {
        let mut spare = [0xff; header::SIZE];
        let mut data = vec![0; self.geometry.page_bytes as usize];
        match self.read(now, at, &mut data, &mut spare, Cause::Scrub) {
            Ok(read) => {
                data.truncate(read.data_bytes);
                Ok(match Header::parse(&spare) {
                    Some(head) => MetaPage::Holds(read.done, head, data),
                    None => MetaPage::Blank,
                })
            }
            Err(FlashError::Uncorrectable { .. }) => Ok(MetaPage::Lost),
            Err(other) => Err(other.into()),
        }
    }
}
