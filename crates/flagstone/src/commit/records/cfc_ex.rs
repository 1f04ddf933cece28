//! CFC_ex ([FlagCommit] §3.1, §4.3): a commit sets the flag of each head of its transaction's
//! chain.
//!
//! ```text
//! page of the victim      entry of               what happens to it       its link
//! live                    a committed one        copied, flag TRUE        stays in the copy
//! live                    one that is not        copied, flag FALSE       stays in the copy
//! dead                    a committed one        reclaimed (cases 1, 2)   its target gets TRUE
//! dead                    one in progress        reclaimed                its target is a head
//! dead                    an aborted one         reclaimed                -
//! ```
//!
//! Every head of a committed transaction is TRUE, so that a page can be erased when what it links
//! to is TRUE. No flag of a transaction that is not committed is TRUE.

use super::format::read_version;
use super::{Chain, Chains, Flaws, Member, RecordInfo, spare};
use crate::commit::flag_chain::Link;
use crate::commit::table_bytes;
use crate::ftl::{BlockState, Cause, Ftl, FtlError};
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;

pub(super) const INFO: RecordInfo = RecordInfo {
    name: "cfc-ex",
    idea: "records of several transactions share a page; a flag a transaction and chain commits",
    paper: "FlagCommit",
    section: "4",
};

const FALSE: u8 = 0xff;
const TRUE: u8 = 0x00;

fn is_true(flag: u8) -> bool {
    flag.count_ones() < 4
}

/// The transaction table's entry; a transaction without one is committed, or has nothing on flash.
#[derive(Debug, Default)]
struct Entry {
    /// Pages with an entry, dead or not, until they are erased (NPage).
    pages: u32,
    aborted: bool,
    /// Of one in progress, the newest last.
    heads: Vec<Member>,
    /// When its pages are durable.
    written: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct CfcEx {
    flaws: Flaws,
    table: FxHashMap<TxId, Entry>,
    /// For each page with an entry in the victim, once for each: the transaction, if its page goes.
    leave: Vec<TxId>,
    /// When all commits are durable: no flag is handed on before.
    acked: Nanos,
    /// Entries that are heads once the victim is erased.
    exposed: Vec<(TxId, Member)>,
}

impl CfcEx {
    pub(super) fn new(flaws: Flaws) -> CfcEx {
        CfcEx {
            flaws,
            ..CfcEx::default()
        }
    }

    /// The entry that a link of a transaction leads to and its flag, if it still does.
    fn follow(
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        link: Link,
    ) -> Result<(Option<(Member, u8)>, Nanos), FtlError> {
        let block = ftl.geometry().block_of(link.at);
        let written = matches!(
            ftl.block_state(block),
            BlockState::Open | BlockState::Full | BlockState::Victim | BlockState::Stuck
        );
        if !written {
            return Ok((None, now));
        }
        let (version, read) = read_version(ftl, now, link.at, Cause::Gc)?;
        let found = version
            .filter(|version| version.head.seq as u32 == link.seq)
            .and_then(|version| {
                let mut entries = version.list.entries.iter();
                let index = entries.position(|entry| entry.tx == tx)?;
                let member = Member {
                    at: link.at,
                    seq: link.seq,
                    index: index as u8,
                };
                Some((member, version.tail.flags[index]))
            });
        Ok((found, read))
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

impl Chains for CfcEx {
    fn is_committed(&self, flags: &[u8]) -> bool {
        flags.iter().any(|&flag| is_true(flag))
    }

    fn is_torn(&self, flag: u8) -> bool {
        flag != FALSE && flag != TRUE
    }

    fn next(&self, tx: TxId) -> (Option<Link>, u8) {
        let last = self.table.get(&tx).and_then(|entry| entry.heads.last());
        (last.map(Member::link), FALSE)
    }

    fn earliest(&self, _: TxId) -> Nanos {
        Nanos::ZERO
    }

    fn wrote(&mut self, _: &mut Ftl, tx: TxId, member: Member, done: Nanos) {
        let entry = self.table.entry(tx).or_default();
        entry.heads.pop();
        entry.heads.push(member);
        entry.pages += 1;
        entry.written = entry.written.max(done);
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
        for head in entry.heads {
            done = done.max(set(ftl, barrier, head, TRUE, Cause::Commit)?);
        }
        self.acked = self.acked.max(done);
        ftl.sync(barrier, done)
    }

    fn abort(&mut self, _: &mut Ftl, tx: TxId) {
        if let Some(entry) = self.table.get_mut(&tx) {
            entry.aborted = true;
            entry.heads = Vec::new();
            if entry.pages == 0 {
                self.table.remove(&tx);
            }
        }
    }

    fn found(&mut self, _: &mut Ftl, chain: &Chain) -> bool {
        // Heads that a cut kept from being flagged (D5), but not those that it has torn (D8).
        let heads: Vec<Member> = chain
            .heads
            .iter()
            .map(|&head| chain.members[head])
            .filter(|&(_, flag)| flag == FALSE)
            .map(|(member, _)| member)
            .collect();
        let committed = chain.members.iter().any(|&(_, flag)| is_true(flag));
        if committed && heads.is_empty() {
            return false;
        }
        let entry = Entry {
            pages: chain.members.len() as u32,
            aborted: false,
            heads,
            written: Nanos::ZERO,
        };
        self.table.insert(chain.tx, entry);
        committed
    }

    fn flag_of_copy(&self, tx: TxId) -> u8 {
        match self.table.contains_key(&tx) {
            true => FALSE,
            false => TRUE,
        }
    }

    fn prepare(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
        dead: &[Ppn],
    ) -> Result<(Nanos, Option<Ppn>), FtlError> {
        self.leave.clear();
        self.exposed.clear();
        let geometry = *ftl.geometry();
        let (mut done, mut lost) = (now, None);
        for &at in dead {
            let (version, read) = read_version(ftl, now, at, Cause::Gc)?;
            let Some(version) = version else {
                lost = Some(at);
                continue;
            };
            for entry in version.list.entries {
                let state = self.table.get(&entry.tx);
                let aborted = state.is_some_and(|state| state.aborted);
                if state.is_some() {
                    self.leave.push(entry.tx);
                }
                let outside = |link: &Link| geometry.block_of(link.at) != victim;
                let Some(link) = entry.link.filter(|link| !aborted && outside(link)) else {
                    continue;
                };
                let in_progress = state.is_some();
                let (target, followed) = CfcEx::follow(ftl, read, entry.tx, link)?;
                done = done.max(followed);
                match target {
                    Some((member, _)) if in_progress => self.exposed.push((entry.tx, member)),
                    // A torn flag is left alone: the pages of its transaction were written anew.
                    Some((member, FALSE)) if !self.flaws.lose_flags => {
                        let start = ftl.sync(followed, self.acked)?;
                        done = done.max(set(ftl, start, member, TRUE, Cause::Gc)?);
                    }
                    _ => {}
                }
            }
        }
        Ok((done, lost))
    }

    fn relocated(&mut self, tx: TxId, _: Ppn, to: Member, done: Nanos) {
        let Some(entry) = self.table.get_mut(&tx) else {
            return;
        };
        entry.pages += 1;
        self.leave.push(tx);
        if !entry.aborted {
            // The newest stays last, or the chain would fork for nothing.
            entry.heads.insert(0, to);
            entry.written = entry.written.max(done);
        }
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn) {
        let geometry = *ftl.geometry();
        let elsewhere = |head: &Member| geometry.block_of(head.at) != victim;
        for (tx, head) in self.exposed.drain(..) {
            if let Some(entry) = self.table.get_mut(&tx)
                && !entry.heads.contains(&head)
            {
                entry.heads.insert(0, head);
            }
        }
        for tx in self.leave.drain(..) {
            let Some(entry) = self.table.get_mut(&tx) else {
                continue;
            };
            entry.pages -= 1;
            entry.heads.retain(elsewhere);
            if entry.pages == 0 {
                self.table.remove(&tx);
            }
        }
    }

    fn is_aborted(&self, tx: TxId) -> bool {
        self.table.get(&tx).is_some_and(|entry| entry.aborted)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let heads = self.table.values().map(|entry| entry.heads.len());
        let heads = heads.sum::<usize>() * size_of::<Member>();
        let table = table_bytes::<TxId, Entry>(self.table.len());
        vec![("transaction_table", table + heads as u64)]
    }

    fn check(&self) -> Result<(), String> {
        for (tx, entry) in &self.table {
            if !entry.aborted && entry.heads.is_empty() != (entry.pages == 0) {
                return Err(format!("{tx} has {} pages, no head", entry.pages));
            }
        }
        Ok(())
    }
}
