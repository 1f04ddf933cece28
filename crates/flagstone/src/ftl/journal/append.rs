//! Appends of translation and log pages to open blocks of the pool.

use super::MetaState;
use crate::ftl::horizon::Programmed;
use crate::ftl::{Cause, Ftl, FtlError, Header, Operation, PageKind, header};
use crate::nand::FlashError;
use crate::units::{Nanos, Ppn};

impl Ftl {
    /// Programs a translation or log page into an open block of its kind. If the program fails,
    /// tries another block. Returns the block as an index of the pool, the page, and when it is
    /// done.
    pub(in crate::ftl) fn append_to_journal(
        &mut self,
        now: Nanos,
        head: Header,
        data: &[u8],
        cause: Cause,
    ) -> Result<(usize, Ppn, Nanos), FtlError> {
        let is_log = head.kind == PageKind::Log;
        let lane = if is_log {
            head.lpn.index()
        } else {
            self.journal.turn = (self.journal.turn + 1) % self.journal.open_map.len();
            self.journal.turn
        };
        let mut now = now;
        let mut spare = [0xff; header::SIZE];
        head.emit(&mut spare);
        loop {
            let index = match self.journal.open(is_log)[lane] {
                Some(index) => index,
                None => {
                    let (index, erased) = self.open_for_journal(now, is_log, lane)?;
                    now = erased;
                    index
                }
            };
            let (block, next) = (
                self.journal.pool[index].block,
                self.journal.pool[index].next,
            );
            let at = self
                .geometry
                .page(block, self.pairs.meta_pages[next as usize]);
            self.journal.pool[index].next += 1;
            self.stats.add(Operation::Program, cause);
            let outcome = self.program_checked(now, at, data, &spare, Programmed::Other);
            let ends = next + 1 == self.pairs.meta_pages.len() as u32 || outcome.is_err();
            if ends {
                self.journal.pool[index].state = MetaState::Full;
                self.journal.open(is_log)[lane] = None;
            }
            match outcome {
                Ok(done) => return Ok((index, at, done)),
                Err(FlashError::ProgramFailed { done, .. }) => now = done,
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Opens a free block of the pool, preferably on the plane of the lane. Returns its index in
    /// the pool, and when it is erased.
    fn open_for_journal(
        &mut self,
        now: Nanos,
        is_log: bool,
        lane: usize,
    ) -> Result<(usize, Nanos), FtlError> {
        let mut now = now.max(self.journal.durable);
        loop {
            let planes = self.geometry.planes();
            let wanted = if is_log {
                self.log_plane(lane as u32)
            } else {
                lane as u32 * (planes / self.journal.open_map.len() as u32).max(1)
            };
            let index = (0..self.journal.pool.len())
                .filter(|&i| self.journal.pool[i].state == MetaState::Free)
                .min_by_key(|&i| {
                    let block = self.journal.pool[i].block;
                    let plane = self.geometry.plane_of(block);
                    (
                        (plane + planes - wanted % planes) % planes,
                        self.blocks.erases[block.index()],
                        i,
                    )
                })
                .ok_or(FtlError::MetaFull)?;
            let block = self.journal.pool[index].block;
            let erased = match self.journal.pool[index].erased.take() {
                Some(done) => Some(now.max(done)),
                None => self.erase(now, block, Cause::Mapping)?,
            };
            match erased {
                Some(done) => {
                    let entry = &mut self.journal.pool[index];
                    (entry.state, entry.next, entry.live) = (MetaState::Open, 0, 0);
                    entry.is_log = is_log;
                    self.journal.open(is_log)[lane] = Some(index);
                    return Ok((index, done));
                }
                None => {
                    self.journal.pool[index].state = MetaState::Bad;
                    now = self.retire_now(now, block)?;
                }
            }
        }
    }
}
