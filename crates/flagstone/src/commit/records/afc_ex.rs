//! AFC_ex ([FlagCommit] §3.2, §4.3): the first page of a transaction says FALSE until a reprogram
//! commits it.
//!
//! ```text
//! flag   two bits of four cells each: ff FALSE (at first), f0 TRUE, 00 FALSE for good
//! ```
//!
//! A transaction is committed if no flag of it is FALSE. Unlike the page-level AFC this asks for
//! all its flags, by XID, not for those of a chain: recovery has read them all. So any page may be
//! moved but the first, and of the pages that an aborted transaction leaves
//! only one has to be FALSE (`D10`). Pages of a transaction in progress are issued once its first
//! one is durable, or a cut could leave the others without it.
//!
//! A transaction is committed as soon as its last FALSE flag is gone. So the erase that takes a
//! flag of an aborted one waits (`D13`): for the FALSE flag that takes its place, or for the erases
//! of all other entries.

use super::book::{Book, Owned};
use super::versions::Versions;
use super::{Flaws, Member, RecordInfo, Verdicts};
use crate::commit::table_bytes;
use crate::ftl::{Cause, Ftl, FtlError, Written};
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;

pub(super) const INFO: RecordInfo = RecordInfo {
    name: "afc-ex",
    idea: "records of several transactions share a page; a transaction's first flag commits it",
    paper: "FlagCommit",
    section: "4",
};

/// The first entry of a transaction, until it commits; and copies of entries of aborted ones.
const FALSE_AT_FIRST: u8 = 0xff;
const TRUE: u8 = 0xf0;
/// An entry of an aborted transaction.
const FALSE: u8 = 0x00;

/// As in AFC: each bit by the majority of its four cells.
fn is_true(flag: u8) -> bool {
    (flag >> 4).count_ones() >= 2 && (flag & 0x0f).count_ones() < 2
}

/// The transaction table's entry; a transaction without one is committed, or has nothing on flash.
#[derive(Debug, Default)]
struct Entry {
    /// Where it has entries, in pages that are dead or not. Of one in progress, the first is at
    /// `first`.
    members: Vec<Member>,
    aborted: bool,
    /// The entry that is FALSE until commit; its block stays.
    first: Option<Member>,
    /// When its pages and flags are durable, and when the first page is.
    written: Nanos,
    begun: Nanos,
    /// When the erases are durable that took entries of it.
    erased: Nanos,
}

#[derive(Debug)]
pub(super) struct AfcEx {
    flaws: Flaws,
    table: FxHashMap<TxId, Entry>,
    /// The entries of these.
    book: Book,
}

impl AfcEx {
    pub(super) fn new(ftl: &Ftl, flaws: Flaws) -> AfcEx {
        AfcEx {
            flaws,
            table: FxHashMap::default(),
            book: Book::new(ftl),
        }
    }

    fn note(&mut self, owned: Owned) -> &mut Entry {
        self.book.note(owned);
        let entry = self.table.entry(owned.tx).or_default();
        entry.members.push(owned.member);
        entry
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
        match self.table.contains_key(&tx) {
            true => TRUE,
            false => FALSE_AT_FIRST,
        }
    }

    fn earliest(&self, tx: TxId) -> Nanos {
        match self.table.get(&tx) {
            Some(entry) if !self.flaws.no_barrier => entry.begun,
            _ => Nanos::ZERO,
        }
    }

    fn wrote(&mut self, ftl: &mut Ftl, tx: TxId, member: Member, done: Nanos) {
        let flag = self.next(tx);
        let entry = self.note(Owned { tx, member, flag });
        entry.written = entry.written.max(done);
        if flag == FALSE_AT_FIRST {
            entry.first = Some(member);
            entry.begun = done;
            ftl.pin(ftl.geometry().block_of(member.at));
        }
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let Some(entry) = self.table.remove(&tx) else {
            return Ok(now);
        };
        let barrier = match self.flaws.no_barrier {
            true => now,
            false => ftl.sync(now, entry.written)?,
        };
        let mut done = barrier;
        if let Some(first) = entry.first {
            ftl.unpin(ftl.geometry().block_of(first.at));
        }
        for member in entry.members {
            if self.book.flag(member) == FALSE_AT_FIRST {
                done = done.max(self.book.set(ftl, barrier, member, TRUE, Cause::Commit)?);
            }
            self.book.remove(member);
        }
        ftl.sync(barrier, done)
    }

    fn abort(&mut self, ftl: &mut Ftl, tx: TxId) {
        if let Some(entry) = self.table.get_mut(&tx) {
            entry.aborted = true;
            if let Some(first) = entry.first.take() {
                ftl.unpin(ftl.geometry().block_of(first.at));
            }
        }
    }

    fn found(&mut self, _: TxId, members: &[Owned]) {
        if !members.iter().all(|owned| is_true(owned.flag)) {
            for &owned in members {
                self.note(owned);
            }
        }
    }

    fn flag_of_copy(&self, tx: TxId) -> u8 {
        match self.table.get(&tx) {
            Some(entry) if entry.aborted => FALSE_AT_FIRST,
            _ => TRUE,
        }
    }

    fn prepare(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
        _: &Versions,
    ) -> Result<Nanos, FtlError> {
        let mut done = now;
        for tx in self.book.txs_in(victim) {
            let entry = self.table.get_mut(&tx).expect("it is in the book");
            if !entry.aborted || self.flaws.lose_flags {
                continue;
            }
            let left = entry.members.iter().copied();
            let left = left.filter(|member| self.book.block_of(member.at) != victim);
            let left: Vec<(Member, u8)> = left.map(|m| (m, self.book.flag(m))).collect();
            let says_so = left.iter().any(|&(_, flag)| !is_true(flag));
            let candidate = left.iter().find(|&&(_, flag)| flag == TRUE);
            let safe = match candidate {
                _ if says_so => entry.written,
                Some(&(member, _)) => {
                    let set = self.book.set(ftl, now, member, FALSE, Cause::Gc)?;
                    entry.written = entry.written.max(set);
                    set
                }
                None => entry.erased,
            };
            if !self.flaws.issued_is_safe || candidate.is_some() && !says_so {
                done = done.max(safe);
            }
        }
        Ok(done)
    }

    fn relocated(&mut self, from: Ppn, to: &Written) {
        let entries: Vec<Owned> = self.book.in_page(from).copied().collect();
        for mut owned in entries {
            owned.member = owned.member.copied_to(to);
            owned.flag = self.flag_of_copy(owned.tx);
            let entry = self.note(owned);
            entry.written = entry.written.max(to.done);
        }
    }

    fn erased(&mut self, victim: Pbn, done: Nanos) {
        for owned in self.book.erased(victim) {
            let entry = self.table.get_mut(&owned.tx).expect("it is in the book");
            entry.members.retain(|member| *member != owned.member);
            entry.erased = entry.erased.max(done);
            if entry.members.is_empty() {
                self.table.remove(&owned.tx);
            }
        }
    }

    fn is_aborted(&self, tx: TxId) -> bool {
        self.table.get(&tx).is_some_and(|entry| entry.aborted)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let members = self.table.values().map(|entry| entry.members.len());
        let members = members.sum::<usize>() * size_of::<Member>();
        let table = table_bytes::<TxId, Entry>(self.table.len());
        vec![
            ("transaction_table", table + members as u64),
            ("entries_on_flash", self.book.bytes()),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (tx, entry) in &self.table {
            if entry.members.is_empty() {
                return Err(format!("{tx} has no page"));
            }
            let mut flags = entry.members.iter().map(|&member| self.book.flag(member));
            if self.flaws == Flaws::default() && flags.all(|flag| flag == TRUE) {
                return Err(format!("{tx} is not committed and no flag of it says so"));
            }
        }
        self.book
            .check(ftl, |owned| !self.table.contains_key(&owned.tx))
    }
}
