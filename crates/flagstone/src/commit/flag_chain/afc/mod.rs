//! Abort-based flag commit (AFC).
//!
//! Paper       [FlagCommit] §3.2, §3.4: On, Xu, Choi, Hu, He. IEEE TKDE 24(9), 2012.
//! Idea        Each page of a transaction links to one before it. Only the first one is FALSE;
//!             a reprogram of its flag commits them all. Aborted transactions keep a FALSE flag in
//!             every piece of their chain, and the collector has no work with committed ones.
//! Commit      The reprogram of the first page's flag.
//! Cost        k programs, all but the first side by side, and a reprogram. Reclaiming a page of an
//!             aborted transaction costs a reprogram for each piece of the chain without a FALSE
//!             flag. Recovery reads a summary a block and the flag of every page.
//! Symbols     paper: LBA, Version #, XID, Link, Commit Flag    here: lpn, version, xid, link, flag
//!                    LastPage, LastPBA                               the last unit, last
//!
//!   spare     0      11        17    23     27         31     32     33
//!             | head | version | xid | link | link seq | born | flag |
//!             flag: two bits of four cells each, ff FALSE (at first), f0 TRUE, 00 FALSE for good;
//!             born: what it was at first
//!
//! A *unit* is what one flag stands for: a page, or with block flags (§3.4) all pages of a
//! transaction in a block, its *cluster*. A *part* is what hangs together by links, of the units
//! that are left of a transaction.
//!
//! States      in progress ──commit──> committed   [Afc::commit]   (no row: committed)  
//!                  └────────abort───> aborted     [Afc::abort]    until its last page is reclaimed
//!
//! Invariants  1. No page of a committed transaction is FALSE.
//!             2. Every part of a transaction that is not committed has a FALSE page.
//!             3. A page is programmed after the one that it links to is durable.
//!             4. Pages of transactions in progress are not moved: their blocks are pinned.
//!             5. An erase is issued after earlier erases of the same transactions are durable.
//!
//! Recovery    facts about a part                           verdict
//!   @A        no page of it is FALSE                       committed
//!   @B        some page of it is FALSE                     uncommitted  in progress, or aborted
//!
//! Departures  D1. A link also names the write sequence of its target; one whose target has been
//!                 erased leads nowhere. As printed, it leads to whatever was written there since.
//!             D2. The transaction table is rebuilt at recovery from the pages that count for
//!                 nothing. As printed, they pass for committed when they are collected.
//!             D3. Pages of transactions in progress are not moved. As printed, a copy leaves a
//!                 part behind that has no FALSE flag; giving it one could not be taken back at
//!                 commit.
//!             D4. Each page links to the newest one that is durable, and waits if none is: else a
//!                 crash could leave a part without the first page, and it would look committed.
//!                 The pages of a transaction are a tree, not a list.
//!             D5. When pages of an aborted transaction are reclaimed, every part that is left gets
//!                 a FALSE flag of its own, not only the one of the last page. An erase waits for
//!                 the commits that made pages of the block obsolete, for erases of the same
//!                 transactions, and for pages of aborted ones that are in flight: a part that they
//!                 hold together falls apart without them.
//!             D6. A commit waits for all its pages before the flag: the paper writes one at a
//!                 time.
//!             D7. Versions are write sequences: the paper's count per page would need a read.
//!             D8. Where a flag cannot be changed in place, a copy of the page carries it: a page
//!                 that links to one with the same version replaces its flag (Appendix C, which we
//!                 could not read). On devices of strict program order block flags are not used.
//!             D9. The units of aborted transactions are kept in memory, not found by reading
//!                 chains.
//!             As published: D1 to D4 are left out, and of D5 all but the last page's flag.

mod collect;
mod recover;
#[cfg(test)]
mod tests;

use super::{Link, Tables, Tail, read_shadow, spare};
use crate::commit::show::{LIVE, live_row, rows};
use crate::commit::{Found, Info, Protocol, Published, Table, Taken, Write, table_bytes};
use crate::ftl::{Cause, Ftl, FtlError, Slot, Stream};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;

pub(in crate::commit) use recover::recover;

pub(in crate::commit) const INFO: Info = Info {
    name: "afc",
    idea: "pages are linked backwards; the first is FALSE until a reprogram commits them all",
    section: "§3.2, §3.4",
    recovery: rows! {
        "@A": "no page of the part is FALSE" => "committed";
        "@B": "some page of the part is FALSE" => "uncommitted: in progress, or aborted";
    },
    flag: Some(|flag| if is_true(flag) { "TRUE" } else { "FALSE" }),
    published: Some(Published {
        without: "D1 to D4, part of D5",
        loses: "As CFC. A part without a FALSE flag counts although its transaction does not: the \
                tail of a transaction that was cut, the pages left around a moved page, or the \
                middle of an aborted chain after parts of it were reclaimed.",
    }),
    ..super::INFO
};

/// The flag of the first page of a transaction until it commits.
const FALSE_AT_FIRST: u8 = 0xff;
const TRUE: u8 = 0xf0;
/// The flag of a page of an aborted transaction.
const FALSE: u8 = 0x00;

/// Whether a flag is TRUE: first bit set and second clear, each by the majority of its four cells.
/// A set second bit with a clear first bit occurs only in a torn flag, which is FALSE.
fn is_true(flag: u8) -> bool {
    (flag >> 4).count_ones() >= 2 && (flag & 0x0f).count_ones() < 2
}

/// A row of the transaction table. Transactions without a row are committed.
#[derive(Clone)]
enum TxRow {
    InProgress(Open),
    Aborted(Chain),
}

/// A transaction in progress.
#[derive(Clone, Default)]
struct Open {
    chain: Chain,
    lpns: Vec<Lpn>,
    /// The page to which the next one links, and when it is durable.
    durable: Option<(Nanos, Link)>,
    /// Later pages that are not durable yet, oldest first.
    in_flight: Vec<(Nanos, Link)>,
}

impl Open {
    /// Sets `durable` to the newest page that is durable at `now`, or else to the first that will
    /// be. Returns when that page is durable; `now` if there is none.
    fn advance(&mut self, now: Nanos) -> Nanos {
        let first = match self.durable {
            Some(_) => now,
            None => now.max(
                self.in_flight
                    .iter()
                    .map(|page| page.0)
                    .min()
                    .unwrap_or(now),
            ),
        };
        let newest = self.in_flight.iter().rfind(|page| page.0 <= first);
        self.durable = newest.copied().or(self.durable);
        self.in_flight.retain(|page| page.0 > first);
        self.durable.map_or(now, |page| page.0)
    }
}

/// The units of a transaction and their links.
#[derive(Clone, Default)]
struct Chain {
    /// Oldest first.
    units: Vec<Unit>,
    /// Links from unit to unit, each identified by the first place a page of it can have.
    links: Vec<(Ppn, Ppn)>,
    /// When its last page is durable.
    written: Nanos,
}

/// A page, or a cluster, of a transaction that is not committed.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// The unit's newest page, which gets the flag.
    page: Link,
    is_false: bool,
}

impl Chain {
    /// The parts that remain without the units whose page is `gone`, as indices of units, oldest
    /// first. `place` returns the place that identifies the unit of a page.
    fn parts(&self, gone: impl Fn(Ppn) -> bool, place: impl Fn(Ppn) -> Ppn) -> Vec<Vec<usize>> {
        let index: FxHashMap<Ppn, u32> = (0..)
            .zip(&self.units)
            .filter(|(_, unit)| !gone(unit.page.at))
            .map(|(i, unit)| (place(unit.page.at), i))
            .collect();
        let links = self.links.iter();
        let links = links.filter_map(|(from, to)| Some((*index.get(from)?, *index.get(to)?)));
        let part = parts_of(self.units.len(), links);
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); self.units.len()];
        for (i, unit) in self.units.iter().enumerate() {
            if !gone(unit.page.at) {
                parts[part[i] as usize].push(i);
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Removes the units at `gone`.
    fn forget(&mut self, gone: impl Fn(Ppn) -> bool) {
        self.units.retain(|unit| !gone(unit.page.at));
        self.links.retain(|&(from, to)| !gone(from) && !gone(to));
    }

    fn bytes(&self) -> usize {
        size_of_val(self.units.as_slice()) + size_of_val(self.links.as_slice())
    }
}

/// Connected components of the units, whatever the direction of the links. Returns for each unit
/// the smallest unit of its part.
fn parts_of(units: usize, links: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut up: Vec<u32> = (0..units as u32).collect();
    let root = |up: &mut [u32], mut unit: u32| {
        while up[unit as usize] != unit {
            up[unit as usize] = up[up[unit as usize] as usize];
            unit = up[unit as usize];
        }
        unit
    };
    for (a, b) in links {
        let (a, b) = (root(&mut up, a), root(&mut up, b));
        up[a.max(b) as usize] = a.min(b);
    }
    (0..units as u32).map(|unit| root(&mut up, unit)).collect()
}

#[derive(Clone)]
struct Afc {
    table: FxHashMap<TxId, TxRow>,
    tables: Tables,
    collector: collect::Collector,
}

impl Protocol for Afc {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.table.insert(tx, TxRow::InProgress(Open::default()));
        Ok(())
    }

    /// Programs a page that links to the newest durable page of its transaction (D4). The first
    /// page links to none, and is FALSE. The page joins the unit at its place or becomes one, whose
    /// block is pinned (D3).
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let (as_published, place) = (self.tables.as_published, self.places());
        let Some(TxRow::InProgress(open)) = self.table.get_mut(&tx) else {
            panic!("{tx} is not in progress");
        };
        let mut start = now;
        if !as_published {
            start = ftl.sync(now, open.advance(now))?; // D4
        }
        let version = ftl.last_seq() + 1;
        let (kind, host) = (content.kind(), (Stream::Host, None));
        let units = &open.chain.units;
        // The unit that the page joins, and the page that it links to.
        let (mut joins, mut before) = (None, open.durable.map(|page| page.1));
        let to = ftl.append_with(
            start,
            host,
            (kind, at, None),
            content.bytes(),
            cause,
            |to, tail| {
                let together = |unit: &Unit| place(unit.page.at) == place(to);
                joins = units.iter().position(together);
                if as_published {
                    let unit = joins.map_or(units.last(), |index| units.get(index));
                    before = unit.map(|unit| unit.page);
                }
                let flag = if before.is_none() {
                    FALSE_AT_FIRST
                } else {
                    TRUE
                };
                let says = Tail {
                    version,
                    xid: tx,
                    link: before,
                    born: flag,
                    flag,
                };
                says.emit(tail);
            },
        )?;
        debug_assert_eq!(to.seq, version);
        let page: Link = to.into();
        match joins {
            // The first page keeps representing its cluster: the commit flags it.
            Some(0) => {}
            Some(index) => open.chain.units[index].page = page,
            None => {
                let is_false = open.chain.units.is_empty();
                open.chain.units.push(Unit { page, is_false });
                if !as_published {
                    ftl.blocks.pin(self.tables.geometry.block_of(to.at)); // D3
                }
            }
        }
        if let Some(before) = before {
            let link = (place(to.at), place(before.at));
            if link.0 != link.1 && !open.chain.links.contains(&link) {
                open.chain.links.push(link);
            }
        }
        open.in_flight.push((to.done, page));
        open.chain.written = open.chain.written.max(to.done);
        if self.tables.dirty.write(ftl, tx, at, Slot::of(kind, to.at)) {
            open.lpns.push(at);
        }
        let (next, done) = (start, to.done);
        Ok(Taken { next, done })
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.tables.dirty.find(ftl, tx, at)
    }

    /// Waits for all pages of the transaction, then flags the first one (D6).
    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let Some(TxRow::InProgress(open)) = self.table.get(&tx) else {
            panic!("{tx} is not in progress");
        };
        let Some(first) = open.chain.units.first().map(|unit| unit.page.at) else {
            self.close(ftl, tx);
            return Ok(Some(now));
        };
        let barrier = ftl.sync(now, open.chain.written)?;
        // The transaction stays in progress if there is no space for a copy with the flag.
        let flag = self.flag_first(ftl, barrier, first)?;
        let done = ftl.sync(barrier, flag)?;
        let open = self.close(ftl, tx);
        self.tables.commit(ftl, tx, &open.lpns, done);
        Ok(Some(done))
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let open = self.close(ftl, tx);
        self.tables.abort(ftl, &open.lpns);
        if !open.chain.units.is_empty() {
            self.table.insert(tx, TxRow::Aborted(open.chain));
        }
        Ok(now)
    }

    fn tables(&self, ftl: &Ftl) -> Vec<Table> {
        let rows = self.table.iter().map(|(&tx, row)| {
            let (state, chain) = match row {
                TxRow::InProgress(open) => ("in progress", &open.chain),
                TxRow::Aborted(chain) => ("aborted", chain),
            };
            let unit = |unit: &Unit| {
                let flag = if unit.is_false { "FALSE" } else { "TRUE" };
                format!("p{} {flag}", unit.page.at)
            };
            let units: Vec<String> = chain.units.iter().map(unit).collect();
            live_row(tx, state, units.join(", "), None)
        });
        vec![
            Table::sorted("transaction_table", LIVE, rows.collect()),
            self.tables.dirty.table(ftl),
        ]
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut lists = 0;
        for row in self.table.values() {
            lists += match row {
                TxRow::InProgress(open) => {
                    open.chain.bytes()
                        + size_of_val(open.lpns.as_slice())
                        + size_of_val(open.in_flight.as_slice())
                }
                TxRow::Aborted(chain) => chain.bytes(),
            };
        }
        let table = table_bytes::<TxId, TxRow>(self.table.len());
        vec![
            ("transaction_table", table + lists as u64),
            ("dirty_page_table", self.tables.dirty.bytes()),
            ("flag_carriers", self.tables.carriers.bytes()),
        ]
    }

    /// Checks the tables, and that every part of an aborted transaction has a FALSE page (invariant
    /// 2).
    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        let in_progress = |tx| matches!(self.table.get(&tx), Some(TxRow::InProgress(_)));
        self.tables.check(ftl, in_progress)?;
        for (tx, row) in &self.table {
            let TxRow::Aborted(chain) = row else {
                continue;
            };
            let parts = chain.parts(|_| false, self.places());
            let flagged = |part: &Vec<usize>| part.iter().any(|&unit| chain.units[unit].is_false);
            if parts.is_empty() || !(parts.iter().all(flagged) || self.tables.as_published) {
                return Err(format!("{tx} is aborted and a part has no FALSE page"));
            }
        }
        Ok(())
    }
}

impl Afc {
    /// The place that identifies the unit of a page.
    fn places(&self) -> impl Fn(Ppn) -> Ppn + Copy + use<> {
        let (geometry, block_flags) = (self.tables.geometry, self.tables.block_flags);
        move |at| {
            if block_flags {
                geometry.page(geometry.block_of(at), 0)
            } else {
                at
            }
        }
    }

    /// Removes a transaction in progress from the table. Its pages may be moved from now on.
    fn close(&mut self, ftl: &mut Ftl, tx: TxId) -> Open {
        let Some(TxRow::InProgress(open)) = self.table.remove(&tx) else {
            panic!("{tx} is not in progress");
        };
        if !self.tables.as_published {
            for unit in &open.chain.units {
                ftl.blocks
                    .unpin(self.tables.geometry.block_of(unit.page.at)); // D3
            }
        }
        open
    }

    /// Commits a transaction by the flag of its first page, which is unchanged so far.
    fn flag_first(&mut self, ftl: &mut Ftl, now: Nanos, at: Ppn) -> Result<Nanos, FtlError> {
        if self.tables.geometry.can_reprogram() {
            return ftl.reprogram(now, at, spare::FLAG.start, &[TRUE], Cause::Commit);
        }
        self.carry(ftl, now, at, TRUE, Cause::Commit)
    }

    /// Flags a part of an aborted transaction as FALSE, on one of its pages.
    fn flag_part(&mut self, ftl: &mut Ftl, now: Nanos, at: Ppn) -> Result<Nanos, FtlError> {
        let (page, read) = read_shadow(ftl, now, at, Cause::Gc)?;
        let untouched = page.is_some_and(|page| page.tail.flag == TRUE);
        if self.tables.geometry.can_reprogram() && untouched {
            return ftl.reprogram(read, at, spare::FLAG.start, &[FALSE], Cause::Gc);
        }
        self.carry(ftl, read, at, FALSE, Cause::Gc)
    }

    /// D8: programs a copy of the page with the new flag.
    fn carry(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        at: Ppn,
        flag: u8,
        cause: Cause,
    ) -> Result<Nanos, FtlError> {
        let (page, read) = read_shadow(ftl, now, at, cause)?;
        let page = page.ok_or(FtlError::Unreadable { at })?;
        Ok(self.tables.carry(ftl, read, &page, flag, cause)?.done)
    }
}
