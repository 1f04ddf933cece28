//! Commit-based flag commit (CFC).
//!
//! Paper       [FlagCommit] §3.1, §3.4: On, Xu, Choi, Hu, He. IEEE TKDE 24(9), 2012.
//! Idea        Each page of a transaction links to the one before it. A flag on the last one, set
//!             by reprogramming its spare area, commits them all.
//! Commit      The reprogram of the last head's flag, or the last page if it can be programmed
//!             TRUE.
//! Cost        k programs for k pages if the last one is still in memory, else one reprogram more.
//!             Reclaiming an obsolete committed page costs a read, and a reprogram to flag the page
//!             that it links to. Recovery reads a summary a block and the flags of the heads.
//! Symbols     paper: LBA, Version #, XID, Link, Commit Flag    here: lpn, version, xid, link, flag
//!                    NPage, LastPage, LastPBA                        pages, the last head, last
//!
//!   spare     0      11        17    23     27         31     32     33
//!             | head | version | xid | link | link seq | born | flag |
//!             flag: ff FALSE, 00 TRUE, by the majority of its bits; born: what it was at first
//!
//! A *unit* is what one flag stands for: a page, or with block flags (§3.4) all pages of a
//! transaction in a block, its *cluster*. A *head* is a unit that no link leads to.
//!
//! States      in progress ──commit──> committed   [Cfc::commit]   (no row: committed)  
//!                  └────────abort───> aborted     [Cfc::abort]    until its last page is reclaimed
//!
//! Invariants  1. Every head of a committed transaction is TRUE.
//!             2. Every page of a transaction is durable, and every copy's original erased, before
//!                the first flag of it is TRUE.
//!             3. A transaction that is not committed has a FALSE head, or no TRUE page.
//!             4. A unit links only to older units, each to a different one.
//!             5. An erase is issued after earlier erases of the same transactions are durable.
//!
//! Recovery    facts about the heads of a transaction   verdict
//!   @A        none is TRUE                             aborted      never flagged
//!   @B        all are TRUE                             committed    with every page they lead to
//!   @C        some are TRUE, some FALSE                aborted      the cut fell between two flags
//!
//! Departures  D1. A link also names the write sequence of its target; one whose target has been
//!                 erased leads nowhere. As printed, it leads to whatever was written there since.
//!             D2. The transaction table is rebuilt at recovery from the pages that count for
//!                 nothing. As printed, they pass for committed when they are collected.
//!             D3. Where some heads are TRUE and some FALSE (@C), one FALSE head is kept until the
//!                 last TRUE page is reclaimed, or the next recovery could find the TRUE ones
//!                 alone. A cut leaves such heads, and an abort after a commit that found no room
//!                 for one of the copies of D8.
//!             D4. A commit waits for the erase of blocks that its pages were moved out of, else
//!                 the originals come back as FALSE heads. An erase waits for the commits that
//!                 made pages of the block obsolete, and for erases of the same transactions.
//!             D5. A commit waits for all its pages before the flag: the paper writes one at a
//!                 time.
//!             D6. The last page stays in memory until the next write, as §3.3 allows; if it would
//!                 be the only head, it is programmed with its flag TRUE.
//!             D7. Versions are write sequences: the paper's count per page would need a read.
//!             D8. Where a flag cannot be changed in place, a copy carries it (Appendix C, which we
//!                 could not read). On devices of strict program order block flags are not used.
//!             D9. A page that is programmed TRUE says so in the summary of its block too, and
//!                 recovery does not read its flag. Recovery prefers originals to their copies, and
//!                 gives back blocks of which no page is needed.
//!             As published: D1 to D4 are left out.

mod collect;
mod recover;

use super::{Link, Shadow, Tables, Tail, read_shadow, spare};
use crate::commit::active::Spare;
use crate::commit::show::{LIVE, live_row, rows};
use crate::commit::{Found, Held, Info, Protocol, Published, Table, Taken, Write, table_bytes};
use crate::ftl::{Cause, Ftl, FtlError, Slot, Stream, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use rustc_hash::{FxHashMap, FxHashSet};

pub(in crate::commit) use recover::recover;

pub(in crate::commit) const INFO: Info = Info {
    name: "cfc",
    idea: "pages are linked backwards; a flag reprogrammed on the last one commits them",
    section: "§3.1, §3.4",
    recovery: rows! {
        "@A": "none of the heads of the transaction is TRUE" => "aborted: never flagged";
        "@B": "all heads are TRUE" => "committed, with every page they lead to";
        "@C": "some are TRUE, some FALSE" => "aborted: the cut fell between two flags";
    },
    flag: Some(|flag| if is_true(flag) { "TRUE" } else { "FALSE" }),
    published: Some(Published {
        without: "D1 to D4",
        loses: "A link leads to a page that was written there later, and commits or hides it. \
                After a restart leftovers pass for committed when they are collected. A \
                transaction cut between two flags comes back half. A moved page's original comes \
                back as a FALSE head and undoes an acknowledged commit.",
    }),
    ..super::INFO
};

const FALSE: u8 = 0xff;
const TRUE: u8 = 0x00;

fn is_true(flag: u8) -> bool {
    flag.count_ones() < 4
}

/// A row of the transaction table. Transactions without a row are committed.
#[derive(Clone)]
struct TxRow {
    /// Pages on flash (NPage).
    pages: u32,
    state: State,
}

#[derive(Clone)]
enum State {
    InProgress(Box<Open>),
    /// Aborted. With data from recovery if it was cut between two of its flags (D3).
    Aborted(Option<Box<Mixed>>),
}

/// A transaction in progress.
#[derive(Clone, Default)]
struct Open {
    held: Option<Held>,
    /// A page of each head, newest last.
    heads: Vec<Link>,
    /// With block flags: the newest page of each cluster.
    clusters: Vec<(Pbn, Link)>,
    lpns: Vec<Lpn>,
    /// The flags of a commit that found no room for all of them. Only an abort can follow.
    half: Option<Box<Half>>,
    /// When its pages are durable and the originals of moved ones are erased.
    safe_at: Nanos,
}

/// A transaction in progress of which some heads are TRUE, and for one there was no room.
#[derive(Clone)]
struct Half {
    mixed: Mixed,
    /// The heads whose flags are carried by other pages (D8).
    carried: Vec<Ppn>,
}

/// A transaction that is not committed and has TRUE pages.
#[derive(Clone)]
struct Mixed {
    /// The page of a FALSE head, which is kept.
    keeper: Ppn,
    trues: Vec<Ppn>,
}

impl Mixed {
    /// Updates a page that the collector has copied. The copy of a TRUE page is FALSE.
    fn moved(&mut self, from: Ppn, to: Ppn) {
        if self.keeper == from {
            self.keeper = to;
        }
    }
}

#[derive(Clone)]
struct Cfc {
    table: FxHashMap<TxId, TxRow>,
    tables: Tables,
    /// Pages found by recovery with a link that another page has as well.
    covered: FxHashSet<Ppn>,
    collector: collect::Collector,
    emptied: Spare<Open>,
}

impl Protocol for Cfc {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        let state = State::InProgress(self.emptied.take());
        self.table.insert(tx, TxRow { pages: 0, state });
        Ok(())
    }

    /// Holds the page back, and programs the page held back before. After a commit that has set
    /// some flags and found no room for the others, only an abort can follow.
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let open = self.open(tx);
        if open.half.is_some() {
            return Err(ftl.full());
        }
        let before = open.held.replace(Held::new(write));
        let mut taken = Taken::at(now);
        if let Some(before) = before.filter(|before| before.lpn != write.at) {
            match self.program(ftl, now, tx, &before, false) {
                Ok((to, _)) => taken.done = to.done,
                Err(error) => {
                    self.open(tx).held = Some(before);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let own = tx.and_then(|tx| self.table.get(&tx));
        if let Some(State::InProgress(open)) = own.map(|e| &e.state)
            && let Some(held) = open.held.as_ref().filter(|held| held.lpn == at)
        {
            return held.found();
        }
        self.tables.dirty.find(ftl, tx, at)
    }

    /// Programs the held-back page: with the flag TRUE if that makes it a part of the only head.
    /// Otherwise sets the flags of all heads once all pages are durable (D4, D5).
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let open = self.open(tx);
        if open.half.is_some() {
            return Err(ftl.full());
        }
        let Some(last) = open.held.take() else {
            self.table.remove(&tx);
            return Ok(Some(now));
        };
        // With one chain the last page may be programmed TRUE, once all others are durable. With
        // several, each head must be flagged in place, once the last page is durable too.
        let one_chain = open.heads.len() <= 1;
        let safe_at = open.safe_at;
        let start = if one_chain {
            ftl.sync(now, safe_at)?
        } else {
            now
        };
        let (to, flagged) = match self.program(ftl, start, tx, &last, one_chain) {
            Ok(programmed) => programmed,
            Err(error) => {
                self.open(tx).held = Some(last);
                return Err(error);
            }
        };
        let mut done = ftl.sync(start, to.done.max(safe_at))?;
        if !flagged {
            let barrier = done;
            done = match self.flag_heads(ftl, barrier, tx) {
                Ok(done) => ftl.sync(barrier, done)?,
                Err(error) => {
                    // No flag is TRUE yet: the commit can be asked for again, which needs a page.
                    if self.open(tx).half.is_none() {
                        self.open(tx).held = Some(last);
                    }
                    return Err(error);
                }
            };
        }
        let Some(TxRow {
            state: State::InProgress(mut open),
            ..
        }) = self.table.remove(&tx)
        else {
            unreachable!("looked up above");
        };
        self.tables.commit(ftl, tx, &open.lpns, done);
        open.clear();
        self.emptied.give(open);
        Ok(Some(done))
    }

    /// Rolls the transaction back. If a commit has set some of its flags, one FALSE head is kept
    /// (D3).
    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let row = self.table.get_mut(&tx).expect("it is in progress");
        let State::InProgress(mut open) = std::mem::replace(&mut row.state, State::Aborted(None))
        else {
            panic!("{tx} is not in progress");
        };
        let half = open.half.take();
        for &target in half.iter().flat_map(|half| &half.carried) {
            self.tables.carriers.leave(ftl, target);
        }
        self.tables.abort(ftl, &open.lpns);
        if let Some(Half { mixed, .. }) = half.map(|half| *half) {
            let is_kept = ftl.blocks.is_live(mixed.keeper);
            if mixed.trues.is_empty() {
                // The TRUE pages have been reclaimed since.
                if is_kept {
                    ftl.kill(mixed.keeper);
                }
            } else {
                if !is_kept {
                    ftl.revive(mixed.keeper);
                }
                row.state = State::Aborted(Some(Box::new(mixed))); // D3
            }
        }
        if row.pages == 0 {
            self.table.remove(&tx);
        }
        open.clear();
        self.emptied.give(open);
        Ok(now)
    }

    fn tables(&self, ftl: &Ftl) -> Vec<Table> {
        let rows = self.table.iter().map(|(&tx, row)| match &row.state {
            State::InProgress(open) => {
                let heads = open.heads.iter().map(|head| format!("p{}", head.at));
                let heads = heads.collect::<Vec<_>>().join(" ");
                let state = format!("in progress, heads: {heads}");
                let held = open.held.as_ref().map(|held| held.lpn);
                live_row(tx, &state, format!("{} on flash", row.pages), held)
            }
            State::Aborted(_) => live_row(tx, "aborted", format!("{} on flash", row.pages), None),
        });
        vec![
            Table::sorted("transaction_table", LIVE, rows.collect()),
            self.tables.dirty.table(ftl),
        ]
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut lists = 0;
        let mut held = 0;
        for row in self.table.values() {
            if let State::InProgress(open) = &row.state {
                lists += size_of::<Open>() + size_of_val(open.heads.as_slice());
                lists += size_of_val(open.lpns.as_slice());
                lists += size_of_val(open.clusters.as_slice());
                held += open.held.as_ref().map_or(0, |held| held.data.len());
            }
        }
        let table = table_bytes::<TxId, TxRow>(self.table.len());
        vec![
            ("transaction_table", table + lists as u64),
            ("dirty_page_table", self.tables.dirty.bytes()),
            ("held_pages", held as u64),
            ("flag_carriers", self.tables.carriers.bytes()),
            ("covered_links", table_bytes::<Ppn, ()>(self.covered.len())),
        ]
    }

    /// Checks that each transaction has a head if it has pages, and keeps a FALSE page if it has
    /// TRUE ones.
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let in_progress = |tx| self.in_progress(tx).is_some();
        self.tables.check(ftl, in_progress)?;
        for (tx, row) in &self.table {
            match &row.state {
                State::InProgress(open) => {
                    if open.heads.is_empty() != (row.pages == 0) {
                        return Err(format!("{tx} has {} pages, no head", row.pages));
                    }
                    let keeper = open.half.as_ref().map(|half| half.mixed.keeper);
                    if keeper.is_some_and(|keeper| !ftl.blocks.is_live(keeper)) {
                        return Err(format!("{tx} has TRUE pages and no FALSE one is kept"));
                    }
                }
                State::Aborted(_) if row.pages == 0 => {
                    return Err(format!("{tx} is aborted and has no page"));
                }
                State::Aborted(Some(mixed)) if !ftl.blocks.is_live(mixed.keeper) => {
                    return Err(format!("{tx} has TRUE pages and no FALSE one is kept"));
                }
                State::Aborted(_) => {}
            }
        }
        Ok(())
    }
}

impl Cfc {
    fn open(&mut self, tx: TxId) -> &mut Open {
        match self.table.get_mut(&tx).map(|row| &mut row.state) {
            Some(State::InProgress(open)) => open,
            _ => panic!("{tx} is not in progress"),
        }
    }

    fn in_progress(&self, tx: TxId) -> Option<&Open> {
        match self.table.get(&tx).map(|row| &row.state) {
            Some(State::InProgress(open)) => Some(open),
            _ => None,
        }
    }

    /// Programs `page` of a transaction and adds it to its chain. With `commit` its flag is TRUE if
    /// it becomes part of the only head. Returns whether the flag is TRUE.
    fn program(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        page: &Held,
        commit: bool,
    ) -> Result<(Written, bool), FtlError> {
        let (geometry, block_flags) = (self.tables.geometry, self.tables.block_flags);
        let row = self.table.get_mut(&tx).expect("it is in progress");
        let State::InProgress(open) = &mut row.state else {
            panic!("{tx} is not in progress");
        };
        let version = ftl.last_seq() + 1;
        let (mut joins, mut flagged) = (false, false);
        let what = (page.kind, page.lpn, None);
        let host = (Stream::Host, open.plane(ftl, commit && block_flags));
        let to = ftl.append_with(now, host, what, &page.data, page.cause, |at, tail| {
            let block = geometry.block_of(at);
            let near = block_flags.then(|| open.cluster(block)).flatten();
            joins = near.is_some();
            // In a cluster that is not the head, the flag would not be that of the head.
            flagged = commit
                && match open.heads.as_slice() {
                    [] => true,
                    [head] => !joins || geometry.block_of(head.at) == block,
                    _ => false,
                };
            let flag = if flagged { TRUE } else { FALSE };
            let tail_says = Tail {
                version,
                xid: tx,
                link: near.or(open.heads.last().copied()),
                born: flag,
                flag,
            };
            tail_says.emit(tail);
        })?;
        debug_assert_eq!(to.seq, version);
        // A new unit links to the newest head, and takes its place.
        if !joins {
            open.heads.pop();
            open.heads.push(to.into());
        }
        if block_flags {
            open.note_cluster(geometry.block_of(to.at), to.into());
        }
        open.safe_at = open.safe_at.max(to.done);
        row.pages += 1;
        let slot = Slot::of(page.kind, to.at);
        if self.tables.dirty.write(ftl, tx, page.lpn, slot) {
            open.lpns.push(page.lpn);
        }
        Ok((to, flagged))
    }

    /// Sets the flags of all heads of a committing transaction, none of which is TRUE. Returns when
    /// all are done. After an error the transaction is half flagged, unless no flag was set.
    fn flag_heads(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let (mut trues, mut carried, mut done) = (Vec::new(), Vec::new(), now);
        for head in self.open(tx).heads.clone() {
            match self.flag_head(ftl, now, head) {
                Ok((flagged_at, set)) => {
                    trues.push(flagged_at);
                    if flagged_at != head.at {
                        carried.push(head.at);
                    }
                    done = done.max(set);
                }
                Err(error) if trues.is_empty() => return Err(error),
                Err(error) => {
                    let row = self.table.get_mut(&tx).expect("it is in progress");
                    // Carriers are pages of the transaction. A commit would have removed the row.
                    row.pages += carried.len() as u32;
                    if !ftl.blocks.is_live(head.at) {
                        ftl.revive(head.at);
                    }
                    let mixed = Mixed {
                        keeper: head.at,
                        trues,
                    };
                    self.open(tx).half = Some(Box::new(Half { mixed, carried }));
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Sets the flag of a head of a committing transaction. The flag is unchanged so far. Returns
    /// the page that is TRUE, and when it is.
    fn flag_head(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        head: Link,
    ) -> Result<(Ppn, Nanos), FtlError> {
        if self.tables.geometry.can_reprogram() {
            let done = ftl.reprogram(now, head.at, spare::FLAG.start, &[TRUE], Cause::Commit)?;
            return Ok((head.at, done));
        }
        let (page, read) = read_shadow(ftl, now, head.at, Cause::Commit)?;
        let page = page.ok_or(FtlError::Unreadable { at: head.at })?;
        let to = self.carry(ftl, read, &page, Cause::Commit)?;
        Ok((to.at, to.done))
    }

    /// Sets the flag of a page of a committed transaction, in place or by a copy.
    fn set_flag(&mut self, ftl: &mut Ftl, now: Nanos, page: &Shadow) -> Result<Nanos, FtlError> {
        if is_true(page.tail.flag) {
            return Ok(now);
        }
        if self.tables.geometry.can_reprogram() && page.tail.flag == FALSE {
            return ftl.reprogram(now, page.at, spare::FLAG.start, &[TRUE], Cause::Gc);
        }
        Ok(self.carry(ftl, now, page, Cause::Gc)?.done)
    }

    /// D8: programs a copy of the page with the flag TRUE and a link to it. The copy must start a
    /// cluster: in an existing cluster its link could close a ring.
    fn carry(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        page: &Shadow,
        cause: Cause,
    ) -> Result<Written, FtlError> {
        if self.tables.block_flags {
            self.seal_copies_of(ftl, page.tail.xid);
        }
        let to = self.tables.carry(ftl, now, page, TRUE, cause)?;
        self.note_copy(self.tables.geometry.block_of(to.at), page.tail.xid);
        Ok(to)
    }
}

impl Open {
    /// Resets the entry, but keeps its memory.
    fn clear(&mut self) {
        self.held = None;
        self.heads.clear();
        self.clusters.clear();
        self.lpns.clear();
        self.half = None;
        self.safe_at = Nanos::ZERO;
    }

    /// The newest page of the transaction in a block.
    fn cluster(&self, block: Pbn) -> Option<Link> {
        let cluster = self.clusters.iter().find(|(here, _)| *here == block);
        cluster.map(|&(_, newest)| newest)
    }

    /// The plane for the last page, if `wanted`: the next in turn on which it becomes part of the
    /// head, so that it can be programmed TRUE. `None`: the plane in turn.
    fn plane(&self, ftl: &Ftl, wanted: bool) -> Option<u32> {
        let geometry = ftl.geometry();
        let head = self.heads.last().map(|head| geometry.block_of(head.at));
        let (first, planes) = (ftl.writer.plane_in_turn(Stream::Host), geometry.planes());
        (0..planes)
            .map(|step| (first + step) % planes)
            .find(|&plane| {
                let block = ftl.writer.open_on(Stream::Host, plane);
                block.is_none_or(|block| self.cluster(block).is_none() || head == Some(block))
            })
            .filter(|&plane| wanted && plane != first)
    }

    fn note_cluster(&mut self, block: Pbn, newest: Link) {
        match self.clusters.iter_mut().find(|(here, _)| *here == block) {
            Some((_, page)) => *page = newest,
            None => self.clusters.push((block, newest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_what_most_of_its_bits_say() {
        for flag in 0..=u8::MAX {
            assert_eq!(is_true(flag), flag.count_zeros() > 4, "{flag:08b}");
        }
    }
}
