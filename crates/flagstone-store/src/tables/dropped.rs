//! Tables that are being dropped. The transaction that drops a large table marks its record in the
//! catalog, which allocates no page. Later transactions free its pages, a few in each, so that even
//! a full store has room for them. The last one removes the record.
//!
//! Damaged pages are freed like others. Pages that only they referenced are left over, and the head
//! records that. Once all other tables can be read, every page that no table references is freed.
//! If the store is closed before that, the next opening continues.
//!
//! Pages are freed before those that reference them. A referenced page that is empty has been freed
//! already. No page is allocated meanwhile, so nothing else must be known after a crash: a writing
//! transaction finishes pending drops first. If no page was freed yet, and commits with unwaited
//! tickets are in flight, it leaves the drop to a later transaction.

use super::Mistake;
use super::catalog::{HEAD, Record, head};
use super::changed::Changed;
use super::lost::sweep;
use super::read::{self, records, records_if_whole};
use super::store::{Inner, Writer};
use super::write::{give_all, put_record};
use crate::error::StoreError;
use flagstone::units::Lpn;
use flagstone_btree::{ByteTree, Felled, Root};

/// Maximum number of pages freed in one transaction.
const STEP: usize = 512;

/// Progress of pending drops.
struct Step {
    catalog: Root,
    /// Number of tables that are being dropped.
    dropped: u32,
    /// Whether pages may be left that no table references.
    has_left: bool,
    /// Whether these cannot be determined, since a table is damaged.
    cannot_sweep: bool,
}

impl Inner {
    /// Finishes pending drops, in one transaction for each step. A step that finds no room is tried
    /// again with half of the pages. `mine` is the state of this thread, which writes. All commits
    /// are durable: one that shared a transaction with a step would fail with it.
    pub(super) fn finish_drops(&self, mine: &mut Writer) -> Result<(), StoreError> {
        let mut most = STEP;
        debug_assert!(self.pages.has_no_open_group());
        while mine.dropped > 0 || mine.has_left && !mine.cannot_sweep {
            let turn = self.pages.turn()?;
            if turn.failures() != mine.failures {
                self.look_again(&turn, mine)?;
                continue;
            }
            let space = mine.space.take().expect("no transaction has it");
            let mut changed = Changed::new(turn, space);
            let room = self.pages.with(|store| store.room_for_again());
            let step = self.step(&mut changed, mine, most.min(room as usize).max(1));
            let (turn, changes, mut space) = changed.finish();
            let done = step.and_then(|step| {
                turn.commit(changes)?.wait()?;
                Ok(step)
            });
            match done {
                Ok(step) => {
                    space.keep();
                    (mine.catalog, mine.dropped) = (step.catalog, step.dropped);
                    (mine.has_left, mine.cannot_sweep) = (step.has_left, step.cannot_sweep);
                    mine.space = Some(space);
                }
                Err(error) => {
                    space.undo_to(0);
                    mine.space = Some(space);
                    match error {
                        StoreError::Full(_) if most > 1 => most /= 2,
                        error => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Frees the next pages, and the record with the last ones. If no table is being dropped, frees
    /// pages that no table references. Returns the state after the step is committed.
    fn step(&self, changed: &mut Changed, mine: &Writer, most: usize) -> Result<Step, StoreError> {
        let mut step = Step {
            catalog: mine.catalog,
            dropped: mine.dropped,
            has_left: mine.has_left,
            cannot_sweep: mine.cannot_sweep,
        };
        let catalog = read::walk(&*changed, step.catalog)?;
        let all = match step.dropped {
            0 => records_if_whole(&catalog)?,
            _ => Some(records(&catalog)?),
        };
        let Some(all) = all else {
            step.cannot_sweep = true;
            return Ok(step);
        };
        if let Some((name, record)) = all.iter().find(|(_, record)| record.is_dropped) {
            let is_gone = |at| !self.pages.with(|store| store.holds(at));
            let next = self.next_pages(changed, *record, most, &is_gone)?;
            step.has_left |= next.has_lost;
            give_all(changed, next.pages)?;
            if next.is_all {
                step.catalog = put_record(changed, step.catalog, name, None)?;
                step.dropped -= 1;
                step.cannot_sweep = false;
            }
        } else if step.dropped > 0 {
            // Correct the head, which counts tables that the catalog lacks.
            step.dropped = 0;
        } else {
            let roots = all.iter().map(|(_, record)| record.root);
            match sweep(changed, roots.chain([step.catalog]), most)? {
                Some(gone) => step.has_left = gone == most,
                None => step.cannot_sweep = true,
            }
        }
        let is_other = (step.catalog, step.dropped, step.has_left)
            != (mine.catalog, mine.dropped, mine.has_left);
        if is_other {
            let head = head(step.catalog, step.dropped, step.has_left);
            changed.set(HEAD, Some(head));
        }
        Ok(step)
    }

    /// At most `most` pages of a dropped table that can be freed next. A page that holds nothing,
    /// as `is_gone` says, was freed before.
    pub(super) fn next_pages(
        &self,
        changed: &mut Changed,
        record: Record,
        most: usize,
        is_gone: &dyn Fn(Lpn) -> bool,
    ) -> Result<Felled, StoreError> {
        if self.mistaken.is(Mistake::DropsRootFirst) && !is_gone(record.root.at) {
            return Ok(Felled {
                pages: vec![record.root.at],
                is_all: false,
                has_lost: false,
            });
        }
        ByteTree::over(changed, record.root)?.fell(most, is_gone)
    }
}
