//! Room for chunks that wait in memory: a disk must not accept a write that cannot be committed.

use super::{Chunks, Pages, Waiting};
use crate::error::StoreError;
use std::collections::BTreeSet;

impl<P: Pages> Chunks<P> {
    /// Stores a tails page for each group with a stored chunk, even if it is all zeros. A stored
    /// chunk can then be overwritten with any bytes without needing a page that holds nothing yet.
    pub fn keep_tails(&mut self) {
        self.keeps_tails = self.cut.tail > 0;
    }

    /// Whether any chunk of a group holds data.
    pub(super) fn holds_any(&self, group: u64) -> bool {
        let first = group * self.cut.sharing();
        (first..first + self.cut.sharing()).any(|chunk| self.may_hold(chunk))
    }

    /// Reserves room for everything that waits, and for `chunk`, which is about to be written, or
    /// removed if `removes` is set. If this is called before each change, the commit finds room.
    ///
    /// # Errors
    /// There is no room, or the pages fail.
    pub fn find_room(&mut self, chunk: u64, removes: bool) -> Result<(), StoreError> {
        let most = 2 * self.waiting.len() + self.dirty_tails + 2;
        let highest = self.main_page(chunk)?;
        if self.pages.has_room(most as u64, highest) {
            return Ok(());
        }
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(chunk, waiting)| (*chunk, matches!(waiting, Waiting::Gone)));
        let (new, again) = self.wanted(waiting.chain([(chunk, removes)]))?;
        self.pages.find_room(new, again, highest)
    }

    /// Reserves room for the live transaction together with the joined ones, before it joins them
    /// ([`Chunks::join`]).
    ///
    /// # Errors
    /// There is no room, or the pages fail.
    pub fn find_room_to_join(&mut self) -> Result<(), StoreError> {
        let both = self.joined.keys().chain(self.waiting.keys());
        let Some(highest) = both.clone().max() else {
            return Ok(());
        };
        let highest = self.main_page(*highest)?;
        let most = 2 * (self.joined.len() + self.waiting.len());
        if self.pages.has_room(most as u64, highest) {
            return Ok(());
        }
        let (new, again) = self.wanted(both.map(|chunk| (*chunk, false)))?;
        self.pages.find_room(new, again, highest)
    }

    /// Counts the pages that will be written, main pages and tails pages: those that hold nothing
    /// yet, and the others. `chunks` yields each chunk, and whether it is removed.
    fn wanted(&self, chunks: impl Iterator<Item = (u64, bool)>) -> Result<(u64, u64), StoreError> {
        let (mut main, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for (chunk, is_gone) in chunks {
            let (page, group) = (self.main_page(chunk)?, chunk / self.cut.sharing());
            if !is_gone || self.holds(page) {
                main.insert(page);
            }
            if self.cut.tail > 0 && (!is_gone || self.holds(self.cut.tails_page(group))) {
                groups.insert(group);
            }
        }
        let dirty = self.tails.iter().filter(|(_, tails)| tails.is_dirty);
        groups.extend(dirty.map(|(group, _)| *group));
        let pages = groups.iter().map(|group| self.cut.tails_page(*group));
        let all: Vec<bool> = pages
            .chain(main)
            .map(|page| self.pages.is_new(page))
            .collect();
        let new = all.iter().filter(|is_new| **is_new).count();
        Ok((new as u64, (all.len() - new) as u64))
    }
}
