//! CFC_ex ([FlagCommit] §3.1, §4.3): a commit sets one flag of its transaction.
//!
//! ```text
//! page of the victim   entry of         what happens to it    what the transaction needs elsewhere
//! live                 a committed one  copied, flag TRUE     -
//! live                 one that is not  copied, flag FALSE    -
//! dead                 a committed one  reclaimed             a TRUE flag, if the erase takes the
//!                                                             last and a live page has an entry
//! dead                 one that is not  reclaimed             -
//! ```
//!
//! A transaction is committed if any of its flags is TRUE, in any page (`D5`). Once no live version
//! has an entry of a transaction, its verdict is never read again: each record of its dead versions
//! has a newer committed copy, whose verdict is safe by the same rule (`D12`). Flags of a
//! transaction that is not committed are all FALSE. A flag is handed on once the commit of its
//! transaction is durable, regardless of other transactions.
//!
//! A committed transaction whose flags are all TRUE is forgotten. A flag may still be in flight
//! then, or a page that replaced one with a FALSE flag. So blocks with its entries are erased only
//! after all of that is durable (`D13`).

use super::book::{self, Deadlines, Owned, Owners};
use super::versions::Versions;
use super::{Member, Mistake, RecordInfo, Rules, Verdicts};
use crate::ftl::{Cause, Ftl, FtlError, Written};
use crate::units::{Nanos, Pbn, Ppn, TxId};

pub(super) const INFO: RecordInfo = RecordInfo {
    name: "cfc-ex",
    idea: "records of several transactions share a page; a transaction's TRUE flag commits it",
    paper: "FlagCommit",
    section: "§4",
    flag: |flag| if is_true(flag) { "TRUE" } else { "FALSE" },
};

const FALSE: u8 = 0xff;
const TRUE: u8 = 0x00;

fn is_true(flag: u8) -> bool {
    flag.count_ones() < 4
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    InProgress,
    Aborted,
    Committed,
}

/// The row of a transaction. Without a row it is committed with no FALSE flag, or not on flash.
type TxRow = book::TxRow<State>;

/// The flag of an entry in the copy of its page.
fn flag_of_copy(row: Option<&TxRow>) -> u8 {
    match row.map(|row| row.state) {
        None | Some(State::Committed) => TRUE,
        Some(_) => FALSE,
    }
}

#[derive(Debug)]
pub(super) struct CfcEx {
    rules: Rules,
    owners: Owners<State>,
    /// Per block: when the flags of forgotten transactions with entries in it are durable.
    kept: Deadlines,
}

impl CfcEx {
    pub(super) fn new(ftl: &Ftl, rules: Rules) -> CfcEx {
        CfcEx {
            rules,
            owners: Owners::new(ftl),
            kept: Deadlines::default(),
        }
    }

    /// Forgets a transaction that has no entry on flash, or is committed and has no FALSE flag.
    /// Blocks with its entries are not erased before its flags are durable.
    fn forget_if_over(&mut self, tx: TxId) {
        let Some(row) = self.owners.table.get(&tx) else {
            return;
        };
        let is_open = |member: &Member| self.owners.book.flag(*member) == FALSE;
        let decided = row.state == State::Committed && !row.members.iter().any(is_open);
        if decided || row.members.is_empty() {
            let row = self.owners.table.remove(&tx).expect("looked up above");
            for member in row.members {
                self.owners.book.remove(member);
                let block = self.owners.book.block_of(member.at);
                if row.written > Nanos::ZERO && !self.rules.broken_by(Mistake::IssuedIsSafe) {
                    self.kept.note(block, row.written);
                }
            }
        }
    }

    /// D12 as printed: sets the flag of each entry outside the victim whose successor is in a dead
    /// page of it. Returns when that is durable.
    fn flag_predecessors(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        victim: Pbn,
    ) -> Result<Nanos, FtlError> {
        let book = &mut self.owners.book;
        let row = self.owners.table.get_mut(&tx).expect("it is in the book");
        let is_open = |&[before, reclaimed]: &[Member; 2]| {
            book.block_of(reclaimed.at) == victim
                && !ftl.blocks.is_live(reclaimed.at)
                && book.block_of(before.at) != victim
                && book.flag(before) == FALSE
        };
        let pairs = row.members.windows(2).map(|pair| [pair[0], pair[1]]);
        let heirs: Vec<Member> = pairs.filter(is_open).map(|[before, _]| before).collect();
        if heirs.is_empty() {
            return Ok(now);
        }
        let start = ftl.sync(now, row.written)?;
        for heir in heirs {
            let done = book.set(ftl, start, heir, TRUE, Cause::Gc)?;
            row.written = row.written.max(done);
        }
        Ok(row.written)
    }

    /// Called before `victim` is erased, for a committed transaction `tx` with entries in it. If
    /// the erase takes the last TRUE flag that a reader may need, sets another one (D12). Returns
    /// when the transaction no longer needs the entries.
    fn hand_on(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        victim: Pbn,
        versions: &Versions,
    ) -> Result<Nanos, FtlError> {
        let book = &self.owners.book;
        let row = self.owners.table.get_mut(&tx).expect("it is in the book");
        let (inside, outside): (Vec<Member>, Vec<Member>) =
            (row.members.iter()).partition(|member| book.block_of(member.at) == victim);
        let is_live = |member: &&Member| ftl.blocks.is_live(member.at);
        let is_true = |member: &Member| book.flag(*member) == TRUE;
        // A live page in the victim has a copy with a TRUE flag.
        if outside.iter().any(is_true) || inside.iter().any(|member| is_live(&member)) {
            return Ok(now.max(row.written));
        }
        // A torn flag is left alone: the pages of its transaction were rewritten (D8).
        let is_open = |member: &&Member| book.flag(**member) == FALSE;
        let heir = outside.iter().filter(is_live).find(is_open).copied();
        let one_is_dead = || outside.iter().any(|member| !is_live(&member));
        let lost = self.rules.broken_by(Mistake::FlagsLost)
            || (self.rules.broken_by(Mistake::OneDeath) && one_is_dead());
        match heir {
            Some(heir) if !lost => {
                let start = ftl.sync(now, row.written)?;
                let done = self.owners.book.set(ftl, start, heir, TRUE, Cause::Gc)?;
                row.written = row.written.max(done);
                Ok(done)
            }
            _ if self.rules.broken_by(Mistake::DeathsTrusted) => Ok(now),
            // D12: the verdict is not read again once the programs that superseded its versions are
            // durable. That includes versions whose erase is in flight (D13).
            _ => {
                let erased = if self.rules.broken_by(Mistake::IssuedIsSafe) {
                    now
                } else {
                    now.max(row.written)
                };
                Ok(outside
                    .iter()
                    .map(|member| versions.safe_at(book.block_of(member.at)))
                    .fold(erased, Nanos::max))
            }
        }
    }
}

impl Verdicts for CfcEx {
    fn is_committed(&self, flags: &[u8]) -> bool {
        flags.iter().any(|&flag| is_true(flag))
    }

    fn is_torn(&self, flag: u8) -> bool {
        flag != FALSE && flag != TRUE
    }

    fn next(&self, _: TxId) -> u8 {
        FALSE
    }

    fn earliest(&self, _: TxId) -> Nanos {
        Nanos::ZERO
    }

    fn wrote(&mut self, _: &mut Ftl, tx: TxId, member: Member, done: Nanos) {
        let flag = FALSE;
        let row = self.owners.note(Owned { tx, member, flag });
        row.written = row.written.max(done);
    }

    /// Waits for all pages of the transaction (invariant 3), then sets one of its flags to TRUE.
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let Some(row) = self.owners.table.get_mut(&tx) else {
            return Ok(now);
        };
        let barrier = if self.rules.broken_by(Mistake::NoBarrier) {
            now
        } else {
            ftl.sync(now, row.written)?
        };
        // The newest page whose flag may still be read. A flag torn by a cut is left alone (D8).
        let is_open = |member: &&Member| self.owners.book.flag(**member) == FALSE;
        let is_live = |member: &&Member| ftl.blocks.is_live(member.at);
        let mut open = row.members.iter().filter(is_open);
        let flagged = open.clone().rfind(is_live).or(open.next_back()).copied();
        let mut done = barrier;
        if let Some(member) = flagged {
            done = self
                .owners
                .book
                .set(ftl, barrier, member, TRUE, Cause::Commit)?;
        }
        row.state = State::Committed;
        row.written = row.written.max(done);
        self.forget_if_over(tx);
        ftl.sync(barrier, done)
    }

    fn abort(&mut self, _: &mut Ftl, tx: TxId) {
        if let Some(row) = self.owners.table.get_mut(&tx) {
            row.state = State::Aborted;
        }
    }

    fn found(&mut self, tx: TxId, members: &[Owned]) {
        for &owned in members {
            self.owners.note(owned);
        }
        if members.iter().any(|owned| is_true(owned.flag)) {
            self.owners.table.get_mut(&tx).expect("just noted").state = State::Committed;
            self.forget_if_over(tx);
        }
    }

    fn flag_of_copy(&self, tx: TxId) -> u8 {
        flag_of_copy(self.owners.table.get(&tx))
    }

    /// Settles the flags of committed transactions with entries in the victim ([`CfcEx::hand_on`]).
    fn prepare(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
        versions: &Versions,
    ) -> Result<Nanos, FtlError> {
        let mut done = now.max(self.kept.get(victim));
        for tx in self.owners.book.txs_in(victim) {
            if self.owners.table[&tx].state == State::Committed {
                if self.rules.flags_all {
                    done = done.max(self.flag_predecessors(ftl, now, tx, victim)?);
                }
                done = done.max(self.hand_on(ftl, now, tx, victim, versions)?);
            }
        }
        Ok(done)
    }

    fn relocated(&mut self, from: Ppn, to: &Written) {
        self.owners.copied(from, to, flag_of_copy);
    }

    fn erased(&mut self, victim: Pbn, safe_at: Nanos, _: Nanos) {
        self.kept.forget(victim);
        for tx in self.owners.erased(victim) {
            // Until then a cut restores the entries, live and with their former flags.
            let row = self.owners.table.get_mut(&tx);
            let committed = row.filter(|row| row.state == State::Committed);
            if let Some(row) = committed.filter(|_| !self.rules.broken_by(Mistake::IssuedIsSafe)) {
                row.written = row.written.max(safe_at);
            }
            self.forget_if_over(tx);
        }
    }

    fn is_aborted(&self, tx: TxId) -> bool {
        self.owners
            .table
            .get(&tx)
            .is_some_and(|row| row.state == State::Aborted)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.owners.memory();
        all.push(("flags_in_flight", self.kept.bytes()));
        all
    }

    /// Checks that a committed transaction has a TRUE flag as long as a reader may ask for one, and
    /// that no other has one; compares the book with flash.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (tx, row) in &self.owners.table {
            let flags = || {
                row.members
                    .iter()
                    .map(|&member| self.owners.book.flag(member))
            };
            // A reader may ask for the verdict of this entry, and its own flag does not give it.
            let asked = |member: &Member| {
                ftl.blocks.is_live(member.at) && self.owners.book.flag(*member) == FALSE
            };
            let wrong = match row.state {
                State::Committed => {
                    row.members.iter().any(asked) && !flags().any(|flag| flag == TRUE)
                }
                _ => flags().any(|flag| flag == TRUE),
            };
            if row.members.is_empty() || (wrong && self.rules.hold()) {
                let state = row.state;
                return Err(format!("{tx} is {state:?} and its flags do not say so"));
            }
        }
        self.owners.book.check(ftl, |owned| {
            !self.owners.table.contains_key(&owned.tx) && owned.flag != FALSE
        })
    }
}
