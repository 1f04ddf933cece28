//! Tables that are being dropped. The transaction that drops a large table marks its record in the
//! catalog, which takes no page that was not taken before. Then its pages go, a few in a
//! transaction, so that a store that is full has room for each of these; and last the record.
//!
//! Damaged pages go like the others. Pages that only they led to are left then, and the head says
//! so, until they have gone as well: they are what no table leads to, once all other tables can be
//! read. A store that is closed before that goes on with it when it is opened again.
//!
//! Pages go before those that lead to them. A page that the tree leads to and that holds nothing
//! has gone. This is all that has to be known after a crash, since no page is taken meanwhile: a
//! transaction that begins to write first ends what is being dropped. If no page has gone yet, and
//! commits are under way whose tickets were not waited for, it leaves that to a later transaction.

use super::Mistake;
use super::catalog::{HEAD, Record, head};
use super::changed::Changed;
use super::lost::sweep;
use super::read::{self, records};
use super::store::{Inner, Writer};
use super::write::{give_all, put_record};
use crate::error::StoreError;
use flagstone::index::prefix_bptree::{ByteTree, Felled, Root};

/// Pages that go in one transaction, at most.
const STEP: usize = 512;

/// How far the dropping of tables has come.
struct Step {
    catalog: Root,
    /// Tables that are being dropped.
    dropped: u32,
    /// Whether pages may be left to which no table leads.
    has_left: bool,
    /// Whether they cannot be told, since a table is damaged.
    cannot_sweep: bool,
}

impl Inner {
    /// Ends what is being dropped. No turn is taken, no other thread writes, and all commits are
    /// durable: a commit must not share a transaction with a step, or it would fail with it.
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

    /// Lets the next pages go, and the record with the last ones; or, if no table is being dropped,
    /// pages that no table leads to. Returns how it stands once the step is committed.
    fn step(&self, changed: &mut Changed, mine: &Writer, most: usize) -> Result<Step, StoreError> {
        let mut step = Step {
            catalog: mine.catalog,
            dropped: mine.dropped,
            has_left: mine.has_left,
            cannot_sweep: mine.cannot_sweep,
        };
        let all = records(&read::walk(&*changed, step.catalog)?)?;
        if let Some((name, record)) = all.iter().find(|(_, record)| record.is_dropped) {
            let next = self.next_pages(changed, *record, most)?;
            step.has_left |= next.has_lost;
            give_all(changed, next.pages)?;
            if next.is_all {
                step.catalog = put_record(changed, step.catalog, name, None)?;
                step.dropped -= 1;
                step.cannot_sweep = false;
            }
        } else if step.dropped > 0 {
            // The head counts what the catalog does not have.
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

    /// Pages of a table that is being dropped, `most` of them at most, which can go next.
    pub(super) fn next_pages(
        &self,
        changed: &mut Changed,
        record: Record,
        most: usize,
    ) -> Result<Felled, StoreError> {
        let is_gone = |at| !self.pages.with(|store| store.holds(at));
        if self.mistaken.is(Mistake::DropsRootFirst) && !is_gone(record.root.at) {
            return Ok(Felled {
                pages: vec![record.root.at],
                is_all: false,
                has_lost: false,
            });
        }
        let mut tree = ByteTree::over(&mut *changed, record.root)?;
        let found = tree.fell(most, &is_gone);
        found.map_err(|error| changed.explain(error))
    }
}
