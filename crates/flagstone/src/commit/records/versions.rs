//! The live versions of each logical page, newest first ([FlagCommit] §4.3).
//!
//! A version is needed while it is the newest committed copy of some record. The newest version has
//! all records. Those pending in it, by uncommitted transactions, are looked up in the previous
//! version, and so on. A record that is not pending in a version is committed there, even if it is
//! absent.

use super::book::Deadlines;
use super::{Mistake, Rules};
use crate::commit::table_bytes;
use crate::ftl::{Ftl, Slot};
use crate::page::SlotNo;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;

/// An entry of an uncommitted transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) tx: TxId,
    /// The index of the entry in the page.
    pub(super) index: u8,
    pub(super) slots: Box<[SlotNo]>,
}

/// A live version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) at: Ppn,
    pub(super) held: Vec<Held>,
}

impl Version {
    /// The transaction with this record pending here.
    fn holder(&self, slot: SlotNo) -> Option<TxId> {
        let mut held = self.held.iter();
        held.find(|held| held.slots.contains(&slot))
            .map(|held| held.tx)
    }

    /// Whether the record is not pending here.
    pub(super) fn has_committed(&self, slot: SlotNo) -> bool {
        self.holder(slot).is_none()
    }
}

/// Lists for pages with several live versions or uncommitted records. All other pages are only in
/// the mapping table.
#[derive(Debug, Default)]
pub(super) struct Versions {
    lists: FxHashMap<Lpn, Vec<Version>>,
    pub(super) rules: Rules,
    /// Blocks with versions that became dead or committed, and when that is durable.
    safe_at: Deadlines,
}

impl Versions {
    /// The live versions of a page, newest first, if there is a list.
    pub(super) fn get(&self, at: Lpn) -> Option<&[Version]> {
        self.lists.get(&at).map(Vec::as_slice)
    }

    /// All lists, in unspecified order.
    pub(super) fn all(&self) -> impl Iterator<Item = (Lpn, &[Version])> {
        self.lists.iter().map(|(&lpn, list)| (lpn, list.as_slice()))
    }

    /// When everything that became dead or committed in a block so far is durable. Before that the
    /// block is not erased, and its versions are not copied as committed.
    pub(super) fn safe_at(&self, block: Pbn) -> Nanos {
        self.safe_at.get(block)
    }

    /// Removes an erased block.
    pub(super) fn forget(&mut self, block: Pbn) {
        self.safe_at.forget(block);
    }

    /// Adds a new version of a page, which is live, in no table yet, and durable at `done`.
    pub(super) fn push(
        &mut self,
        ftl: &mut Ftl,
        at: Lpn,
        version: Version,
        done: Nanos,
        undecided: impl Fn(TxId) -> bool,
    ) {
        let older = ftl.set_slot(at, Slot::Page(version.at)).ppn();
        match self.lists.get_mut(&at) {
            Some(list) => list.insert(0, version),
            None if version.held.is_empty() => {
                if let Some(older) = older {
                    kill(ftl, &mut self.safe_at, older, done);
                }
                return;
            }
            None => {
                let plain = |at| Version {
                    at,
                    held: Vec::new(),
                };
                let list = [version].into_iter().chain(older.map(plain)).collect();
                self.lists.insert(at, list);
            }
        }
        self.prune(ftl, at, done, undecided);
    }

    /// Restart: adds the versions of a page, newest first, none of which is live yet.
    pub(super) fn restore(
        &mut self,
        ftl: &mut Ftl,
        at: Lpn,
        list: Vec<Version>,
        undecided: impl Fn(TxId) -> bool,
    ) {
        ftl.set_slot(at, Slot::Page(list[0].at));
        for version in &list {
            ftl.revive(version.at);
        }
        self.lists.insert(at, list);
        self.prune(ftl, at, Nanos::ZERO, undecided);
    }

    /// Records a commit that is durable at `done`: the transaction's records in a page become
    /// committed.
    pub(super) fn commit(
        &mut self,
        ftl: &mut Ftl,
        at: Lpn,
        tx: TxId,
        done: Nanos,
        undecided: impl Fn(TxId) -> bool,
    ) {
        if let Some(list) = self.lists.get_mut(&at) {
            for version in list {
                if version.held.iter().any(|held| held.tx == tx) {
                    version.held.retain(|held| held.tx != tx);
                    self.safe_at.note(ftl.geometry().block_of(version.at), done);
                }
            }
            self.prune(ftl, at, done, undecided);
        }
    }

    /// Kills the versions of a page that are not needed once an operation is durable, at `done`.
    /// `undecided` returns whether a transaction is live or in doubt.
    pub(super) fn prune(
        &mut self,
        ftl: &mut Ftl,
        at: Lpn,
        done: Nanos,
        undecided: impl Fn(TxId) -> bool,
    ) {
        let safe_at = &mut self.safe_at;
        let Some(list) = self.lists.get_mut(&at) else {
            return;
        };
        // Records without a committed copy so far, and the transaction that changed each last.
        let newest = list[0].held.iter();
        let mut open: Vec<(SlotNo, TxId)> = newest
            .flat_map(|held| held.slots.iter().map(|&slot| (slot, held.tx)))
            .collect();
        let pending_only = self.rules.broken_by(Mistake::PendingOnly);
        let mut first = true;
        list.retain(|version| {
            if std::mem::take(&mut first) {
                return true;
            }
            let mut needed = false;
            open.retain_mut(|(slot, last)| match version.holder(*slot) {
                None => {
                    needed = true;
                    false
                }
                Some(holder) => {
                    // If the host's log commits `holder`, this is the committed copy of the record.
                    needed |= holder != *last && undecided(holder);
                    *last = holder;
                    true
                }
            });
            if pending_only {
                needed &= version.held.is_empty() || version.held.iter().any(|h| undecided(h.tx));
            }
            if !needed {
                kill(ftl, safe_at, version.at, done);
            }
            needed
        });
        if list.len() == 1 && list[0].held.is_empty() {
            self.lists.remove(&at);
        }
    }

    /// Replaces all versions of a page by one, which is live and durable at `done`.
    pub(super) fn replace(&mut self, ftl: &mut Ftl, at: Lpn, by: Ppn, done: Nanos) {
        let old: Vec<Ppn> = match self.lists.remove(&at) {
            Some(list) => list.iter().map(|version| version.at).collect(),
            None => ftl.slot(at).ppn().into_iter().collect(),
        };
        for old in old {
            kill(ftl, &mut self.safe_at, old, done);
        }
        ftl.set_slot(at, Slot::Page(by));
    }

    /// Updates a version that the collector has copied.
    pub(super) fn moved(&mut self, ftl: &mut Ftl, at: Lpn, from: Ppn, to: Ppn) {
        if ftl.slot(at).ppn() == Some(from) {
            ftl.move_slot(at, Slot::Page(to));
        }
        let mut list = self.lists.get_mut(&at).into_iter().flatten();
        if let Some(version) = list.find(|version| version.at == from) {
            version.at = to;
        }
    }

    /// The entries of uncommitted transactions in a live version.
    pub(super) fn held(&self, at: Lpn, version: Ppn) -> &[Held] {
        let list = self.lists.get(&at).into_iter().flatten();
        list.into_iter()
            .find(|other| other.at == version)
            .map_or(&[], |version| &version.held)
    }

    /// Memory of the lists in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let mut bytes = table_bytes::<Lpn, Vec<Version>>(self.lists.len());
        bytes += self.safe_at.bytes();
        for version in self.lists.values().flatten() {
            bytes += size_of::<Version>() as u64;
            for held in &version.held {
                bytes += (size_of::<Held>() + size_of_val(&*held.slots)) as u64;
            }
        }
        bytes
    }

    /// Checks that listed versions are live, and that the newest is in the mapping table.
    pub(super) fn check(
        &self,
        ftl: &Ftl,
        is_committed: impl Fn(TxId) -> bool,
    ) -> Result<(), String> {
        let mut listed = 0;
        for (at, list) in &self.lists {
            if ftl.slot(*at) != Slot::Page(list[0].at) {
                return Err(format!("the newest version of page {at} is not mapped"));
            }
            if list.len() == 1 && list[0].held.is_empty() {
                return Err(format!("page {at} needs no list"));
            }
            listed += list.len() as u64 - 1;
            for version in list {
                if !ftl.blocks.is_live(version.at) {
                    return Err(format!("a version of page {at} is needed and not kept"));
                }
                if let Some(held) = version.held.iter().find(|held| is_committed(held.tx)) {
                    let tx = held.tx;
                    return Err(format!("records of {tx} in page {at} are not committed"));
                }
            }
        }
        let mapped = (0..ftl.logical_pages()).filter(|&at| ftl.slot(Lpn(at)) != Slot::Empty);
        let wanted = mapped.count() as u64 + listed;
        if ftl.blocks.live_pages() != wanted {
            let live = ftl.blocks.live_pages();
            return Err(format!("{live} pages are live, {wanted} are versions"));
        }
        Ok(())
    }
}

/// Kills a version. Its block is not erased before `done`.
fn kill(ftl: &mut Ftl, safe_at: &mut Deadlines, at: Ppn, done: Nanos) {
    ftl.kill(at);
    safe_at.note(ftl.geometry().block_of(at), done);
}
