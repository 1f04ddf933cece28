//! AFC_ex ([FlagCommit] §3.2, §4.3): the first page of a transaction says FALSE until a reprogram
//! commits it.
//!
//! ```text
//! flag   two bits of four cells each: ff FALSE (at first), f0 TRUE, 00 FALSE for good
//! ```
//!
//! A transaction is committed if no flag of it is FALSE. Unlike the page-level AFC this asks for
//! all its flags, by XID, not for those of a chain: recovery has read them all. So there are no
//! links, any page may be moved but the first, and of the pages that an aborted transaction leaves
//! only one has to be FALSE (`D10`). Pages of a transaction in progress are issued once its first
//! one is durable, or a cut could leave the others without it.

use super::{Chain, Chains, Flaws, Member, RecordInfo, spare};
use crate::commit::flag_chain::Link;
use crate::commit::table_bytes;
use crate::ftl::{Cause, Ftl, FtlError};
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

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
    /// Where it has entries, in pages that are dead or not, and the flag of each as far as it
    /// matters. Of one in progress, the first is at `first`.
    members: Vec<(Member, u8)>,
    aborted: bool,
    /// The entry that is FALSE until commit; its block stays.
    first: Option<Member>,
    /// When its pages are durable, and when the first one is.
    written: Nanos,
    begun: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct AfcEx {
    flaws: Flaws,
    table: FxHashMap<TxId, Entry>,
    /// Transactions of the table by the pages that they have entries in.
    at: BTreeMap<Ppn, Vec<TxId>>,
}

impl AfcEx {
    pub(super) fn new(flaws: Flaws) -> AfcEx {
        AfcEx {
            flaws,
            ..AfcEx::default()
        }
    }

    fn note(&mut self, tx: TxId, member: Member, flag: u8) {
        self.at.entry(member.at).or_default().push(tx);
        let entry = self.table.entry(tx).or_default();
        entry.members.push((member, flag));
    }

    fn forget(&mut self, tx: TxId) -> Option<Entry> {
        let entry = self.table.remove(&tx)?;
        for (member, _) in &entry.members {
            let here = self.at.get_mut(&member.at).expect("both books have it");
            here.retain(|other| *other != tx);
            if here.is_empty() {
                self.at.remove(&member.at);
            }
        }
        Some(entry)
    }

    /// Transactions with entries in a block, each once.
    fn in_block(&self, ftl: &Ftl, block: Pbn) -> Vec<TxId> {
        let geometry = ftl.geometry();
        let pages = geometry.page(block, 0)..geometry.page(Pbn(block.0 + 1), 0);
        let mut all: Vec<TxId> = self
            .at
            .range(pages)
            .flat_map(|(_, txs)| txs)
            .copied()
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn set(
    ftl: &mut Ftl,
    now: Nanos,
    member: Member,
    flag: u8,
    cause: Cause,
) -> Result<Nanos, FtlError> {
    let offset = spare::FLAGS.start + usize::from(member.index);
    ftl.reprogram(now, member.at, offset, &[flag], cause)
}

impl Chains for AfcEx {
    fn is_committed(&self, flags: &[u8]) -> bool {
        flags.iter().all(|&flag| is_true(flag))
    }

    fn is_torn(&self, flag: u8) -> bool {
        !matches!(flag, FALSE_AT_FIRST | TRUE | FALSE)
    }

    fn next(&self, tx: TxId) -> (Option<Link>, u8) {
        match self.table.contains_key(&tx) {
            true => (None, TRUE),
            false => (None, FALSE_AT_FIRST),
        }
    }

    fn earliest(&self, tx: TxId) -> Nanos {
        match self.table.get(&tx) {
            Some(entry) if !self.flaws.no_barrier => entry.begun,
            _ => Nanos::ZERO,
        }
    }

    fn wrote(&mut self, ftl: &mut Ftl, tx: TxId, member: Member, done: Nanos) {
        let is_first = !self.table.contains_key(&tx);
        self.note(tx, member, if is_first { FALSE_AT_FIRST } else { TRUE });
        let entry = self.table.get_mut(&tx).expect("just noted");
        entry.written = entry.written.max(done);
        if is_first {
            entry.first = Some(member);
            entry.begun = done;
            ftl.pin(ftl.geometry().block_of(member.at));
        }
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let Some(entry) = self.forget(tx) else {
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
        for (member, flag) in entry.members {
            if flag == FALSE_AT_FIRST {
                done = done.max(set(ftl, barrier, member, TRUE, Cause::Commit)?);
            }
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

    fn found(&mut self, _: &mut Ftl, chain: &Chain) -> bool {
        if !chain.members.iter().all(|&(_, flag)| is_true(flag)) {
            for &(member, flag) in &chain.members {
                self.note(chain.tx, member, flag);
            }
        }
        false
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
        _: &[Ppn],
    ) -> Result<(Nanos, Option<Ppn>), FtlError> {
        let geometry = *ftl.geometry();
        let mut done = now;
        for tx in self.in_block(ftl, victim) {
            let entry = self.table.get_mut(&tx).expect("both books have it");
            if !entry.aborted || self.flaws.lose_flags {
                continue;
            }
            let mut left = entry
                .members
                .iter_mut()
                .filter(|(member, _)| geometry.block_of(member.at) != victim);
            // Where the cut has torn a flag, the pages of the transaction were written anew.
            let mut candidate = None;
            let has_false = left.any(|(member, flag)| {
                if candidate.is_none() && *flag == TRUE {
                    candidate = Some((*member, flag));
                    return false;
                }
                !is_true(*flag)
            });
            if !has_false && let Some((member, flag)) = candidate {
                *flag = FALSE;
                done = done.max(set(ftl, now, member, FALSE, Cause::Gc)?);
            }
        }
        Ok((done, None))
    }

    fn relocated(&mut self, tx: TxId, from: Ppn, to: Member, done: Nanos) {
        if !self.table.contains_key(&tx) {
            return;
        }
        debug_assert!(self.at.get(&from).is_some_and(|here| here.contains(&tx)));
        let flag = self.flag_of_copy(tx);
        self.note(tx, to, flag);
        let entry = self.table.get_mut(&tx).expect("looked up above");
        entry.written = entry.written.max(done);
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn) {
        let geometry = *ftl.geometry();
        for tx in self.in_block(ftl, victim) {
            let entry = self.table.get_mut(&tx).expect("both books have it");
            let stays = |(member, _): &(Member, u8)| geometry.block_of(member.at) != victim;
            entry.members.retain(stays);
            if entry.members.is_empty() {
                self.table.remove(&tx);
            }
        }
        let pages = geometry.page(victim, 0)..geometry.page(Pbn(victim.0 + 1), 0);
        let gone: Vec<Ppn> = self.at.range(pages).map(|(&at, _)| at).collect();
        for at in gone {
            self.at.remove(&at);
        }
    }

    fn is_aborted(&self, tx: TxId) -> bool {
        self.table.get(&tx).is_some_and(|entry| entry.aborted)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let members = self.table.values().map(|entry| entry.members.len());
        let members = members.sum::<usize>() * size_of::<(Member, u8)>();
        let table = table_bytes::<TxId, Entry>(self.table.len());
        let at = self.at.values().map(Vec::len).sum::<usize>() * size_of::<TxId>();
        let at = at + self.at.len() * size_of::<(Ppn, Vec<TxId>)>();
        vec![
            ("transaction_table", table + members as u64),
            ("pages_of_transactions", at as u64),
        ]
    }

    fn check(&self) -> Result<(), String> {
        for (tx, entry) in &self.table {
            if entry.members.is_empty() {
                return Err(format!("{tx} has no page"));
            }
            let flaws = self.flaws != Flaws::default();
            if !flaws && entry.members.iter().all(|&(_, flag)| flag == TRUE) {
                return Err(format!("{tx} is not committed and no flag of it says so"));
            }
        }
        let listed: usize = self.at.values().map(Vec::len).sum();
        let members = self.table.values().map(|entry| entry.members.len());
        if members.sum::<usize>() != listed {
            return Err("the books of pages with entries differ".into());
        }
        Ok(())
    }
}
