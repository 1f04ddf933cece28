//! Tables that are being dropped. The transaction that drops a large table marks its record in the
//! catalog, which takes no page that was not taken before. Then its pages go, a few in a
//! transaction, so that a store that is full has room for each of these; and last the record.
//!
//! Damaged pages go like the others. Pages that only they led to go with the last ones, if all
//! other tables can be read, and if the store was not closed meanwhile.
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

impl Inner {
    /// Ends what is being dropped. No turn is taken, no other thread writes, and all commits are
    /// durable: a commit must not share a transaction with a step, or it would fail with it.
    pub(super) fn finish_drops(&self, mine: &mut Writer) -> Result<(), StoreError> {
        let mut most = STEP;
        debug_assert!(self.pages.has_no_open_group());
        while mine.dropped > 0 {
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
                Ok((catalog, dropped)) => {
                    space.keep();
                    (mine.catalog, mine.dropped) = (catalog, dropped);
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

    /// Lets the next pages go, and the record with the last ones. Returns what the head says then.
    fn step(
        &self,
        changed: &mut Changed,
        mine: &mut Writer,
        most: usize,
    ) -> Result<(Root, u32), StoreError> {
        let catalog = mine.catalog;
        let all = records(&read::walk(&*changed, catalog)?)?;
        let next = all.into_iter().find(|(_, record)| record.is_dropped);
        let Some((name, record)) = next else {
            // The head counts what the catalog does not have.
            changed.set(HEAD, Some(head(catalog, 0)));
            return Ok((catalog, 0));
        };
        let next = self.next_pages(changed, record, most)?;
        mine.has_lost |= next.has_lost;
        let left = most.saturating_sub(next.pages.len());
        give_all(changed, next.pages)?;
        if !next.is_all {
            return Ok((catalog, mine.dropped));
        }
        let catalog = put_record(changed, catalog, &name, None)?;
        if mine.has_lost {
            let all = records(&read::walk(&*changed, catalog)?)?;
            let roots = all.iter().map(|(_, record)| record.root);
            mine.has_lost = sweep(changed, roots.chain([catalog]), left)? == left;
        }
        let dropped = mine.dropped - 1;
        changed.set(HEAD, Some(head(catalog, dropped)));
        Ok((catalog, dropped))
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
