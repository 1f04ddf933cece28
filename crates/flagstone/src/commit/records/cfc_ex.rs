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
//! to is TRUE. No flag of a transaction that is not committed is TRUE. A flag is handed on once the
//! commit of its transaction is durable, whatever others do.

use super::book::{Book, Owned};
use super::{Chain, Chains, Flaws, Member, RecordInfo};
use crate::commit::flag_chain::{Link, Waits};
use crate::commit::table_bytes;
use crate::ftl::{Cause, Ftl, FtlError, Written};
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

#[derive(Debug)]
pub(super) struct CfcEx {
    flaws: Flaws,
    table: FxHashMap<TxId, Entry>,
    /// The entries of these, and of committed ones until they are settled.
    book: Book,
    /// When commits are durable: no flag of them is handed on before.
    waits: Waits,
    /// Entries that are heads once the victim is erased.
    exposed: Vec<(TxId, Member)>,
}

impl CfcEx {
    pub(super) fn new(ftl: &Ftl, flaws: Flaws) -> CfcEx {
        CfcEx {
            flaws,
            table: FxHashMap::default(),
            book: Book::new(ftl),
            waits: Waits::default(),
            exposed: Vec::new(),
        }
    }

    /// The entry that a link of a transaction leads to, if it still does and may matter.
    fn follow(&self, tx: TxId, link: Link) -> Option<&Owned> {
        let mut there = self.book.in_page(link.at);
        // D6
        there.find(|to| to.tx == tx && (to.member.seq == link.seq || self.flaws.trust_links))
    }

    /// Whether an entry needs no place in the book: of a committed transaction, and neither it nor
    /// what it links to needs a flag.
    fn is_settled(&self, owned: &Owned) -> bool {
        let target = owned.link.and_then(|link| self.follow(owned.tx, link));
        !self.table.contains_key(&owned.tx)
            && owned.flag != FALSE
            && target.is_none_or(|target| target.flag != FALSE)
    }

    fn settle(&mut self, member: Member) {
        if self
            .book
            .get(member)
            .is_some_and(|owned| self.is_settled(owned))
        {
            self.book.remove(member);
        }
    }
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
        let (link, flag) = self.next(tx);
        self.book.note(Owned {
            tx,
            member,
            link,
            flag,
        });
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
        for &head in &entry.heads {
            done = done.max(self.book.set(ftl, barrier, head, TRUE, Cause::Commit)?);
        }
        for head in entry.heads {
            self.settle(head);
        }
        self.waits.commit(tx, done, std::iter::empty());
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
        let heads = chain.heads.iter().map(|&head| chain.members[head]);
        let heads = heads.filter(|head| head.flag == FALSE);
        let heads: Vec<Member> = heads.map(|head| head.member).collect();
        let committed = chain.members.iter().any(|owned| is_true(owned.flag));
        for &owned in &chain.members {
            self.book.note(owned);
        }
        if committed && heads.is_empty() {
            for owned in &chain.members {
                self.settle(owned.member);
            }
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

    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.exposed.clear();
        let here = self.book.in_block(victim);
        let dead = here.filter(|owned| !ftl.is_live(owned.member.at));
        let outside = |link: &Link| self.book.block_of(link.at) != victim;
        let links = dead.filter_map(|owned| Some((owned.tx, owned.link.filter(outside)?)));
        let links: Vec<(TxId, Link)> = links.collect();
        let mut done = now;
        for (tx, link) in links {
            let Some(&target) = self.follow(tx, link) else {
                continue;
            };
            match self.table.get(&tx) {
                Some(entry) if entry.aborted => {}
                Some(_) => self.exposed.push((tx, target.member)),
                // A torn flag is left alone: the pages of its transaction were written anew.
                None if target.flag == FALSE && !self.flaws.lose_flags => {
                    let start = match self.flaws.move_early {
                        true => now,
                        false => ftl.sync(now, self.waits.ack_of(tx))?,
                    };
                    done = done.max(self.book.set(ftl, start, target.member, TRUE, Cause::Gc)?);
                }
                None => {}
            }
        }
        Ok(done)
    }

    fn relocated(&mut self, from: Ppn, to: &Written) {
        let entries: Vec<Owned> = self.book.in_page(from).copied().collect();
        for mut owned in entries {
            owned.member = owned.member.copied_to(to);
            owned.flag = self.flag_of_copy(owned.tx);
            if let Some(entry) = self.table.get_mut(&owned.tx) {
                entry.pages += 1;
                if !entry.aborted {
                    // The newest stays last, or the chain would fork for nothing.
                    entry.heads.insert(0, owned.member);
                    entry.written = entry.written.max(to.done);
                }
            }
            if !self.is_settled(&owned) {
                self.book.note(owned);
            }
        }
    }

    fn erased(&mut self, _: &mut Ftl, victim: Pbn) {
        for (tx, head) in self.exposed.drain(..) {
            if let Some(entry) = self.table.get_mut(&tx)
                && !entry.heads.contains(&head)
            {
                entry.heads.insert(0, head);
            }
        }
        for owned in self.book.erased(victim) {
            let Some(entry) = self.table.get_mut(&owned.tx) else {
                continue;
            };
            entry.pages -= 1;
            entry.heads.retain(|head| *head != owned.member);
            if entry.pages == 0 {
                self.table.remove(&owned.tx);
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
        vec![
            ("transaction_table", table + heads as u64),
            ("entries_on_flash", self.book.bytes()),
        ]
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (tx, entry) in &self.table {
            if !entry.aborted && entry.heads.is_empty() != (entry.pages == 0) {
                return Err(format!("{tx} has {} pages, no head", entry.pages));
            }
        }
        self.book.check(ftl, |owned| self.is_settled(owned))
    }
}
