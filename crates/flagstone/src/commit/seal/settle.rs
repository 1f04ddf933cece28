//! Blocks without a summary. Those that a restart finds get one, or are collected, before
//! statements begin. Open blocks get one when the device is closed.

use super::{Mistake, Seal};
use crate::commit::Way;
use crate::ftl::{BlockState, Ftl, FtlError};
use crate::units::Nanos;

impl Seal {
    /// The next step, called before a request in each round of `in_the_way`.
    #[inline]
    pub(super) fn settle_for(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        if round == 0 && !ftl.states_horizon() {
            return self.settle_next(ftl, now);
        }
        Ok(None)
    }

    /// All steps except collections, on a flash that never fails. Called before anything moves.
    #[inline]
    pub(super) fn settle_at_once(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        if !ftl.states_horizon() && ftl.flash().never_fails() {
            self.settle_next(ftl, now)?;
        }
        Ok(())
    }

    /// The next step until statements can begin (see `ftl::horizon`): a block to collect, one per
    /// request, or `None` if nothing more can be done now. If a required collection is impossible,
    /// it is retried with the next request.
    #[cold]
    fn settle_next(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<Way>, FtlError> {
        if !ftl.config().summary_pages || !self.knows_blocks {
            return Ok(None);
        }
        while let Some(block) = ftl.unsealed() {
            if self.mistake.is(Mistake::LeftUnsealed) {
                break;
            }
            match ftl.blocks.state(block) {
                // The block looks blank, but its first page is followed by others.
                BlockState::Free | BlockState::Zone => {
                    ftl.erase_some(now, &mut |other| other == block)?;
                    if ftl.unsealed() == Some(block) {
                        return Ok(None);
                    }
                }
                // Only a flash that never fails can program a page that looks blank after a cut.
                // There the block gets its summary in place, and nothing is collected before
                // statements begin: later a summary may be the only evidence.
                BlockState::Full if ftl.flash().never_fails() => {
                    let read = ftl.wait_for_seal(now, block)?;
                    self.seal(ftl, now.max(read), block, read)?;
                }
                _ => {
                    let can_be = ftl.blocks.is_candidate(block) && ftl.can_copy_block();
                    return Ok(can_be.then_some(Way::Collect(block)));
                }
            }
        }
        ftl.begin_statements(now)?;
        Ok(None)
    }

    /// Gives every block without a summary its summary. Returns the number of the last program if
    /// every block has one now.
    pub(super) fn seal_all(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Option<u64>, FtlError> {
        if !ftl.config().summary_pages || !ftl.flash().never_fails() {
            return Ok(None);
        }
        if !ftl.states_horizon() && self.settle_next(ftl, now)?.is_some() {
            return Ok(None);
        }
        ftl.end_blocks(now)?;
        self.seal_down_to(ftl, now, 0)?;
        ftl.sync(now, self.relied_until)?;
        let are_sealed = ftl.states_horizon() && ftl.are_sealed();
        Ok(are_sealed.then(|| ftl.last_seq()))
    }
}
