//! AFC_ex ([FlagCommit] §3.2, §4.3): the first page of a transaction has a FALSE flag until a
//! reprogram commits the transaction.
//!
//! ```text
//! flag   two bits of four cells each: ff FALSE (at first), f0 TRUE, 00 FALSE for good
//! ```
//!
//! A transaction is committed if none of its flags is FALSE. Unlike page-level AFC this covers all
//! its flags, found by XID, not those of a chain: recovery has read them all. So any page but the
//! first may be moved, and of the pages that an aborted transaction leaves only one must be FALSE
//! (`D10`). Pages of a transaction in progress are issued once its first one is durable, or a cut
//! could leave the others without it.
//!
//! A transaction counts as committed as soon as its last FALSE flag is gone. So an erase that takes
//! a flag of an aborted transaction waits (`D13`): for the FALSE flag that replaces it, or for the
//! erases of all other entries.

use super::book::{self, Owned, Owners};
use super::versions::Versions;
use super::{Member, Mistake, RecordInfo, Rules, Verdicts};
use crate::ftl::{Cause, Ftl, FtlError, Written};
use crate::units::{Nanos, Pbn, Ppn, TxId};

pub(super) const INFO: RecordInfo = RecordInfo {
    name: "afc-ex",
    idea: "records of several transactions share a page; a transaction's first flag commits it",
    paper: "FlagCommit",
    section: "§4",
    flag: |flag| if is_true(flag) { "TRUE" } else { "FALSE" },
};

/// The flag of a transaction's first entry until commit, and of copied entries of aborted ones.
const FALSE_AT_FIRST: u8 = 0xff;
const TRUE: u8 = 0xf0;
/// An entry of an aborted transaction.
const FALSE: u8 = 0x00;

/// As in AFC: each bit is decided by the majority of its four cells.
fn is_true(flag: u8) -> bool {
    (flag >> 4).count_ones() >= 2 && (flag & 0x0f).count_ones() < 2
}

/// The row of a transaction. One without a row is committed, or has nothing on flash.
type TxRow = book::TxRow<State>;

#[derive(Debug, Default)]
struct State {
    aborted: bool,
    /// The entry that is FALSE until commit. Its block is not collected.
    first: Option<Member>,
    /// When the first page is durable.
    begun: Nanos,
    /// When the erases that removed its entries are durable.
    erased: Nanos,
}

/// The flag of an entry in the copy of its page.
fn flag_of_copy(row: Option<&TxRow>) -> u8 {
    match row {
        Some(row) if row.state.aborted => FALSE_AT_FIRST,
        _ => TRUE,
    }
}

#[derive(Debug)]
pub(super) struct AfcEx {
    rules: Rules,
    owners: Owners<State>,
}

impl AfcEx {
    pub(super) fn new(ftl: &Ftl, rules: Rules) -> AfcEx {
        AfcEx {
            rules,
            owners: Owners::new(ftl),
        }
    }
}

impl Verdicts for AfcEx {
    fn is_committed(&self, flags: &[u8]) -> bool {
        flags.iter().all(|&flag| is_true(flag))
    }

    fn is_torn(&self, flag: u8) -> bool {
        !matches!(flag, FALSE_AT_FIRST | TRUE | FALSE)
    }

    fn next(&self, tx: TxId) -> u8 {
        if self.owners.table.contains_key(&tx) {
            TRUE
        } else {
            FALSE_AT_FIRST
        }
    }

    fn earliest(&self, tx: TxId) -> Nanos {
        match self.owners.table.get(&tx) {
            Some(row) if !self.rules.broken_by(Mistake::NoBarrier) => row.state.begun,
            _ => Nanos::ZERO,
        }
    }

    fn wrote(&mut self, ftl: &mut Ftl, tx: TxId, member: Member, done: Nanos) {
        let flag = self.next(tx);
        let row = self.owners.note(Owned { tx, member, flag });
        row.written = row.written.max(done);
        if flag == FALSE_AT_FIRST {
            row.state.first = Some(member);
            row.state.begun = done;
            ftl.blocks.pin(ftl.geometry().block_of(member.at));
        }
    }

    /// Waits for all pages of the transaction (invariant 3), then sets to TRUE each flag that is
    /// FALSE at first: that of its first entry, as a rule. Forgets the transaction.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let Some(row) = self.owners.table.remove(&tx) else {
            return Ok(now);
        };
        let barrier = if self.rules.broken_by(Mistake::NoBarrier) {
            now
        } else {
            ftl.sync(now, row.written)?
        };
        let mut done = barrier;
        if let Some(first) = row.state.first {
            ftl.blocks.unpin(ftl.geometry().block_of(first.at));
        }
        for member in row.members {
            if self.owners.book.flag(member) == FALSE_AT_FIRST {
                done = done.max(
                    self.owners
                        .book
                        .set(ftl, barrier, member, TRUE, Cause::Commit)?,
                );
            }
            self.owners.book.remove(member);
        }
        ftl.sync(barrier, done)
    }

    fn abort(&mut self, ftl: &mut Ftl, tx: TxId) {
        if let Some(row) = self.owners.table.get_mut(&tx) {
            row.state.aborted = true;
            if let Some(first) = row.state.first.take() {
                ftl.blocks.unpin(ftl.geometry().block_of(first.at));
            }
        }
    }

    fn found(&mut self, _: TxId, members: &[Owned]) {
        if !members.iter().all(|owned| is_true(owned.flag)) {
            for &owned in members {
                self.owners.note(owned);
            }
        }
    }

    fn flag_of_copy(&self, tx: TxId) -> u8 {
        flag_of_copy(self.owners.table.get(&tx))
    }

    /// D10: ensures that each aborted transaction with entries in the victim keeps a FALSE flag
    /// elsewhere. Returns when the flags may be erased.
    fn prepare(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
        _: &Versions,
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        for tx in self.owners.book.txs_in(victim) {
            let row = self.owners.table.get_mut(&tx).expect("it is in the book");
            if !row.state.aborted || self.rules.broken_by(Mistake::FlagsLost) {
                continue;
            }
            let left = row.members.iter().copied();
            let left = left.filter(|member| self.owners.book.block_of(member.at) != victim);
            let left: Vec<(Member, u8)> = left.map(|m| (m, self.owners.book.flag(m))).collect();
            let says_so = left.iter().any(|&(_, flag)| !is_true(flag));
            let candidate = left.iter().find(|&&(_, flag)| flag == TRUE);
            let safe = match candidate {
                // Another flag is FALSE already. It may be in flight.
                _ if says_so => row.written,
                // No other flag is FALSE: this one becomes it.
                Some(&(member, _)) => {
                    let set = self.owners.book.set(ftl, now, member, FALSE, Cause::Gc)?;
                    row.written = row.written.max(set);
                    set
                }
                // No other entry is left, once earlier erases are durable (D13).
                None => row.state.erased,
            };
            if !self.rules.broken_by(Mistake::IssuedIsSafe) || candidate.is_some() && !says_so {
                done = done.max(safe);
            }
        }
        Ok(done)
    }

    fn relocated(&mut self, from: Ppn, to: &Written) {
        self.owners.copied(from, to, flag_of_copy);
    }

    fn erased(&mut self, victim: Pbn, _: Nanos, done: Nanos) {
        for tx in self.owners.erased(victim) {
            if let Some(row) = self.owners.table.get_mut(&tx) {
                row.state.erased = row.state.erased.max(done);
                if row.members.is_empty() {
                    self.owners.table.remove(&tx);
                }
            }
        }
    }

    fn is_aborted(&self, tx: TxId) -> bool {
        self.owners
            .table
            .get(&tx)
            .is_some_and(|row| row.state.aborted)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.owners.memory()
    }

    /// Checks that each transaction in the table has a FALSE flag, and compares the book with
    /// flash.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (tx, row) in &self.owners.table {
            if row.members.is_empty() {
                return Err(format!("{tx} has no page"));
            }
            let mut flags = row
                .members
                .iter()
                .map(|&member| self.owners.book.flag(member));
            if self.rules.hold() && flags.all(|flag| flag == TRUE) {
                return Err(format!("{tx} is not committed and no flag of it says so"));
            }
        }
        self.owners
            .book
            .check(ftl, |owned| !self.owners.table.contains_key(&owned.tx))
    }
}
