//! The engine of MixSL and G-MixSL. Shadow pages carry the identifier of their transaction, and a
//! log on flash says which transactions count ([MixSL] §3).
//!
//! A transaction is *live* until it ends: it commits, or it becomes *aborted*. The engine remembers
//! an aborted transaction until the last of its pages is erased. Every other transaction with pages
//! on flash has committed. So the log can be made short: a compaction writes the highest identifier
//! that was given out, and the identifiers below it that do not count.
//!
//! The protocols differ in the instant at which a log page is written: [`protocol::Rule`].
//!
//! Symbols     paper: XID, LBA, PBA       here: `TxId`, `Lpn`, `Ppn`
//!             paper: transaction table, X-mapping table, direct mapping table
//!             here:  `live`, `x_map`, the FTL's map
//!             paper: XID-bitmap, PBA-bitmap      here: [`printed`]
//!
//! Codes       D1, D2, D3, D4, D5, @A, @B, @C of [`mixsl`]
//! Codes       D6, D7 of [`g_mixsl`]

mod aborted;
pub(super) mod g_mixsl;
pub(super) mod mixsl;
mod printed;
mod protocol;
pub(super) mod record;
#[cfg(test)]
mod table;

use super::show::{LIVE, Rulings, arrow, live_row, rows};
use super::{Found, Info, Isolation, Published, Table, Taken, Write, table_bytes};
use crate::ftl::{
    BlockState, Format, Ftl, FtlError, Header, Mounted, Moving, Owner, PageKind, Slot, Stream,
    Victim, Written, collect,
};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
pub(super) use aborted::compacted;
use aborted::{Aborted, Watermark};
use printed::Printed;
use record::LogRecord;
use record::{emit_log_page, parse_log_page};
use rustc_hash::{FxHashMap, FxHashSet};

layout! {
    /// The tail of a data page's spare area.
    pub tail: 10 => {
        XID:  6, "transaction that wrote the page";
        LINK: 4, "page of the preceding version; 0xffffffff if there is none";
    }
}

/// The description common to both protocols.
pub(super) const INFO: Info = Info {
    paper: "MixSL",
    isolation: Isolation::NoPageConflict,
    published: Some(Published {
        without: "D2, D3, D5",
        loses: "Pages of live transactions are collected; a link to a page that was reused clears \
                another page; the oldest of three versions comes back after the middle one was \
                erased.",
    }),
    tail: &[tail::RECORD],
    log: &[record::log_page::RECORD, record::log_record::RECORD],
    root: Some(aborted::fields),
    recovery: rows! {
        "@A": "no record says that its transaction has committed, and the root does not either"
            => "not committed";
        "@B": "committed, and the highest committed sequence of its page" => "current";
        "@C": "committed, and any other" => "obsolete, or a copy";
    },
    format: Format {
        tail_bytes: tail::SIZE,
        logs: 1,
        ..Format::NONE
    },
    ..Info::new("", "")
};

/// A page programmed by a live transaction, and the number of erases of its block at that time.
#[derive(Debug, Clone, Copy)]
struct Shadow {
    lpn: Lpn,
    at: Ppn,
    generation: u32,
}

/// A row of the transaction table.
#[derive(Debug, Clone, Default)]
struct Live {
    /// Every page that it programmed, including overwritten versions and copies by the collector,
    /// since all of them may exist after a power cut.
    shadows: Vec<Shadow>,
    /// When the last of them is done.
    written: Nanos,
}

/// A row of the X-mapping table.
#[derive(Debug, Clone, Copy)]
struct Row {
    tx: TxId,
    at: Ppn,
    kind: PageKind,
}

impl Row {
    fn slot(&self) -> Slot {
        Slot::of(self.kind, self.at)
    }
}

/// The verdict on a version on flash, by the table in the header of MixSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// @A
    Aborted,
    /// @B, among the versions found so far.
    Current,
    /// @C
    Obsolete,
}

/// State of a recovery that processes one version after another.
struct Versions {
    /// Transactions with a commit record.
    logged: FxHashSet<TxId>,
    mark: Watermark,
    /// The highest committed write sequence of each logical page; 0 if there is none.
    newest: Vec<u64>,
}

impl Versions {
    fn new(mark: Watermark, logical_pages: u32) -> Versions {
        Versions {
            logged: FxHashSet::default(),
            mark,
            newest: vec![0; logical_pages as usize],
        }
    }

    /// Processes a record of the log.
    fn ended(&mut self, record: LogRecord) {
        if record.committed {
            self.logged.insert(record.tx);
        }
    }

    /// The verdict on a version among those found so far. A version found later can make it
    /// obsolete.
    fn judge(&mut self, tx: TxId, head: &Header) -> Verdict {
        if !self.logged.contains(&tx) && !self.mark.counts(tx) {
            return Verdict::Aborted;
        }
        let newest = &mut self.newest[head.lpn.index()];
        if head.seq <= *newest {
            return Verdict::Obsolete;
        }
        *newest = head.seq;
        Verdict::Current
    }
}

/// Shadow pages and their log.
#[derive(Clone)]
pub(super) struct ShadowLog {
    live: FxHashMap<TxId, Live>,
    /// The newest version of each page written by a live transaction; no two share a page.
    x_map: FxHashMap<Lpn, Row>,
    aborted: Aborted,
    last_tx: TxId,
    /// Number of erases of each block since the start.
    generations: Vec<u32>,
    /// When all commits so far are durable: obsolete pages must not be erased before.
    safe_at: Nanos,
    /// When the last erase so far is done.
    erased: Nanos,
    /// State of the printed form; `None` in the repaired form.
    printed: Option<Printed>,
}

impl ShadowLog {
    /// Rebuilds the tables from flash. Also returns when that was done.
    pub(super) fn recover(
        ftl: &mut Ftl,
        mounted: Mounted,
        as_published: bool,
        rulings: &mut Rulings,
    ) -> Result<(ShadowLog, Nanos), FtlError> {
        let mark = Watermark::parse(&mounted.blob)?;
        let mut last_tx = TxId(mark.last);
        let mut versions = Versions::new(mark, ftl.logical_pages());
        for page in &mounted.logs {
            for record in parse_log_page(&page.data)? {
                last_tx = last_tx.max(record.tx);
                versions.ended(record);
            }
        }
        let mut this = ShadowLog {
            live: FxHashMap::default(),
            x_map: FxHashMap::default(),
            aborted: Aborted::default(),
            last_tx,
            generations: vec![0; ftl.geometry().blocks() as usize],
            safe_at: Nanos::ZERO,
            erased: Nanos::ZERO,
            printed: as_published.then(|| Printed::new(&mounted.logs)),
        };
        let geometry = *ftl.geometry();
        let mut found: Vec<(Lpn, Slot)> = Vec::new();
        // For rulings: transaction, logical page, place, and whether the version is aborted.
        let mut told: Vec<(TxId, Lpn, Ppn, bool)> = Vec::new();
        let mut links = as_published.then(|| printed::Links::new(&geometry));
        let blocks = ftl.blocks.for_data();
        let mut done = ftl.scan(mounted.done, &blocks, |at, head: Header, bytes: &[u8]| {
            let (tx, link) = parse_tail(bytes);
            this.last_tx = this.last_tx.max(tx);
            let verdict = versions.judge(tx, &head);
            if rulings.listens() {
                told.push((tx, head.lpn, at, verdict == Verdict::Aborted));
            }
            if verdict == Verdict::Aborted {
                this.aborted.add(tx, geometry.block_of(at));
            }
            match &mut links {
                None if verdict == Verdict::Current => {
                    found.push((head.lpn, Slot::of(head.kind, at)));
                }
                None => {}
                // D2, as printed: only links decide.
                Some(links) => links.see(at, link, verdict != Verdict::Aborted),
            }
        })?;
        if let Some(links) = links {
            (found, done) = links.valid_versions(ftl, done)?;
        }
        for (lpn, slot) in found {
            ftl.set_slot(lpn, slot);
        }
        for (tx, lpn, at, is_aborted) in told {
            let counts = ftl.slot(lpn).ppn() == Some(at);
            let (row, why) = match (is_aborted, counts) {
                (true, _) => ("@A", "nothing says that its transaction has committed"),
                (false, true) => ("@B", "committed, the newest of its logical page"),
                (false, false) => ("@C", "committed, and a newer one or a first copy is there"),
            };
            let because = format!("logical page {lpn}: {why}");
            rulings.say(row, Some(tx), vec![at], counts, because);
        }
        ftl.revive_mapped()?;
        ftl.finish_mount();
        Ok((this, done))
    }

    /// Whether this is the printed form.
    pub(super) fn as_published(&self) -> bool {
        self.printed.is_some()
    }

    /// Adapts to a device that has grown.
    pub(super) fn grown(&mut self, ftl: &Ftl) {
        let blocks = ftl.geometry().blocks() as usize;
        self.generations.resize(blocks, 0);
    }

    /// Begins a transaction.
    pub(super) fn begin(&mut self, tx: TxId) {
        self.last_tx = tx;
        self.live.insert(tx, Live::default());
    }

    /// D5: whether a committing transaction needs a record.
    pub(super) fn needs_record(&self, tx: TxId) -> bool {
        self.as_published() || !self.live[&tx].shadows.is_empty()
    }

    /// When all programs of a live transaction are done.
    pub(super) fn written(&self, tx: TxId) -> Nanos {
        self.live[&tx].written
    }

    /// Programs a shadow page ([MixSL] §3.2, update).
    pub(super) fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let own = self.x_map.get(&at).map(|row| row.at);
        // D1: the preceding version, not the page itself.
        let link = own.or(ftl.slot(at).ppn()).unwrap_or(Ppn::NONE);
        let mut bytes = [0; tail::SIZE];
        put(&mut bytes, tail::XID, tx.0);
        put(&mut bytes, tail::LINK, link.0.into());
        let (kind, data) = (content.kind(), content.bytes());
        let page = (kind, at, None);
        let to = ftl.append(now, (Stream::Host, None), page, &bytes, data, cause)?;
        if let Some(own) = own {
            ftl.kill(own);
        }
        self.point(ftl, tx, at, kind, to);
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    /// Finds a page for a transaction.
    pub(super) fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        if let Some(tx) = tx
            && let Some(row) = self.x_map.get(&at)
            && row.tx == tx
        {
            return row.slot().into();
        }
        ftl.slot(at).into()
    }

    /// Programs one log page with these records, and waits for it: the commit point of the
    /// committing transactions. Returns when it is durable.
    pub(super) fn log(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        records: &[LogRecord],
    ) -> Result<Nanos, FtlError> {
        let mut now = now;
        if ftl.log_is_full() {
            now = self.compact(ftl, now)?;
        }
        let bytes = emit_log_page(records);
        let page = match ftl.log(now, 0, &bytes) {
            // Blocks have just failed: use the blocks that the log can give back.
            Err(FtlError::MetaFull) => {
                now = self.compact(ftl, now)?;
                ftl.log(now, 0, &bytes)?
            }
            outcome => outcome?,
        };
        if let Some(printed) = &mut self.printed {
            printed.logged(page.at);
        }
        ftl.sync(now, page.done)
    }

    /// Makes a transaction's versions count; its record is durable then ([MixSL] §3.2, commit).
    pub(super) fn merge(&mut self, ftl: &mut Ftl, tx: TxId, durable: Nanos) {
        self.safe_at = self.safe_at.max(durable);
        let live = self.live.remove(&tx).expect("only live transactions end");
        for shadow in &live.shadows {
            // A page that was written twice or moved is listed twice and has one row.
            if let Some(row) = self.take_row(shadow.lpn, tx)
                && let Some(old) = ftl.set_slot(shadow.lpn, row.slot()).ppn()
            {
                ftl.kill(old);
            }
        }
    }

    /// Rolls a transaction back ([MixSL] §3.2, abort).
    pub(super) fn roll_back(&mut self, ftl: &mut Ftl, tx: TxId) {
        let live = self.live.remove(&tx).expect("only live transactions end");
        for shadow in &live.shadows {
            if let Some(row) = self.take_row(shadow.lpn, tx) {
                ftl.kill(row.at);
            }
            let block = ftl.geometry().block_of(shadow.at);
            if self.generations[block.index()] == shadow.generation {
                self.aborted.add(tx, block);
            }
        }
    }

    /// Memory of each table in bytes, including unused capacity.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        let shadows: usize = self.live.values().map(|live| live.shadows.capacity()).sum();
        let live = table_bytes::<TxId, Live>(self.live.capacity());
        let generations = self.generations.len() * size_of::<u32>();
        let mut all = vec![
            (
                "transaction_table",
                live + (shadows * size_of::<Shadow>()) as u64,
            ),
            ("x_map", table_bytes::<Lpn, Row>(self.x_map.capacity())),
            ("aborted_table", self.aborted.memory() + generations as u64),
        ];
        if let Some(printed) = &self.printed {
            all.push(("bitmaps", printed.bitmap_bytes()));
        }
        all
    }

    /// The tables, for display.
    pub(super) fn tables(&self) -> Vec<Table> {
        let live = self.live.keys().map(|&tx| {
            let mut rows: Vec<(Lpn, Ppn)> = self
                .x_map
                .iter()
                .filter(|(_, row)| row.tx == tx)
                .map(|(&lpn, row)| (lpn, row.at))
                .collect();
            rows.sort_unstable();
            let rows: Vec<String> = rows.iter().map(|&(lpn, at)| arrow(lpn, at)).collect();
            live_row(tx, "live", rows.join(", "), None)
        });
        let aborted = self.aborted.ids().map(|tx| vec![tx.to_string()]);
        vec![
            Table::sorted("transaction_table", LIVE, live.collect()),
            Table::sorted(
                "aborted_table",
                &["aborted, pages on flash"],
                aborted.collect(),
            ),
        ]
    }

    /// Checks that rows belong to live transactions and live pages, that nothing else is live, and
    /// that the aborted transactions are counted correctly.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.aborted.check()?;
        for (lpn, row) in &self.x_map {
            if !self.live.contains_key(&row.tx) {
                return Err(format!("page {lpn} has a row of {}, which ended", row.tx));
            }
            if !ftl.blocks.is_live(row.at) {
                return Err(format!(
                    "{}'s version of page {lpn} can be reclaimed",
                    row.tx
                ));
            }
        }
        if let Some(tx) = self.aborted.ids().find(|tx| self.live.contains_key(tx)) {
            return Err(format!("{tx} is live and aborted"));
        }
        let mapped = (0..ftl.logical_pages())
            .filter(|&lpn| ftl.slot(Lpn(lpn)) != Slot::Empty)
            .count();
        let kept = mapped + self.x_map.len();
        if kept as u64 != ftl.blocks.live_pages() {
            return Err(format!(
                "{} pages are live, {kept} are mapped",
                ftl.blocks.live_pages()
            ));
        }
        Ok(())
    }

    /// Removes the row of a logical page if it belongs to `tx`.
    fn take_row(&mut self, at: Lpn, tx: TxId) -> Option<Row> {
        match self.x_map.entry(at) {
            std::collections::hash_map::Entry::Occupied(row) if row.get().tx == tx => {
                Some(row.remove())
            }
            _ => None,
        }
    }

    /// Points a live transaction's row to a page that was just programmed.
    fn point(&mut self, ftl: &Ftl, tx: TxId, lpn: Lpn, kind: PageKind, to: Written) {
        let row = Row {
            tx,
            at: to.at,
            kind,
        };
        self.x_map.insert(lpn, row);
        let generation = self.generations[ftl.geometry().block_of(to.at).index()];
        let live = self.live.get_mut(&tx).expect("rows are of live ones");
        live.written = live.written.max(to.done);
        live.shadows.push(Shadow {
            lpn,
            at: to.at,
            generation,
        });
    }

    /// D4: writes the relevant contents of the log into a root, and starts the log anew. Returns
    /// when that is durable.
    fn compact(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        // Half an erase block, in bytes.
        let limit = {
            let geometry = ftl.geometry();
            geometry.pages_per_block as usize * geometry.page_bytes as usize / 2
        };
        let mut blob = self.watermark().emit();
        let mut candidates = self.aborted.blocks().into_iter();
        while blob.len() > limit {
            let block = candidates.next().ok_or(FtlError::MetaFull)?;
            if ftl.blocks.state(block) == BlockState::Full {
                collect(ftl, self, now, block)?;
                blob = self.watermark().emit();
            }
        }
        // Durable before the root: versions that count by it, and erases of transactions that it
        // omits.
        let now = ftl.sync(now, self.safe_at.max(self.erased))?;
        let done = ftl.checkpoint(now, blob)?;
        if let Some(printed) = &mut self.printed {
            printed.log_restarts();
        }
        Ok(done)
    }

    fn watermark(&self) -> Watermark {
        let live = self.live.keys().copied();
        let mut losers: Vec<u64> = self.aborted.ids().chain(live).map(|tx| tx.0).collect();
        losers.sort_unstable();
        Watermark {
            last: self.last_tx.0,
            losers,
        }
    }
}

impl Owner for ShadowLog {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        match self.printed {
            Some(_) => printed::collect_all(self, ftl, now, victim),
            None => Ok(now),
        }
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let (head, from) = (page.header, page.from);
        match self.x_map.get(&head.lpn) {
            Some(&row) if row.at == from => self.point(ftl, row.tx, head.lpn, row.kind, to),
            _ => {
                let old = ftl.move_slot(head.lpn, Slot::of(head.kind, to.at));
                debug_assert_eq!(old.ppn(), Some(from), "a live page is in one of the maps");
            }
        }
    }

    /// A log block that cannot be copied becomes obsolete if the log starts anew.
    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, block: Pbn) -> Result<(), FtlError> {
        if ftl.blocks.state(block) != BlockState::Meta {
            return Ok(());
        }
        match self.compact(ftl, now) {
            Ok(_) | Err(FtlError::MetaFull) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn before_erase(&mut self, _: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
        // Invariant 3: the commits that made pages of this block obsolete are durable by then.
        Ok(now.max(self.safe_at))
    }

    fn erased(&mut self, _: &mut Ftl, victim: Pbn, done: Nanos) {
        self.generations[victim.index()] += 1;
        self.aborted.erased(victim);
        self.erased = self.erased.max(done);
    }
}

fn parse_tail(bytes: &[u8]) -> (TxId, Ppn) {
    (
        TxId(get(bytes, tail::XID)),
        Ppn(get(bytes, tail::LINK) as u32),
    )
}

/// For fuzzing: parses the contents of a compaction, which must encode to the same bytes.
pub(super) fn is_blob(bytes: &[u8]) -> bool {
    let Ok(mark) = Watermark::parse(bytes) else {
        return false;
    };
    let again = Watermark::parse(&mark.emit());
    assert_eq!(again.as_ref(), Ok(&mark));
    true
}

/// For fuzzing: parses a log page, which must encode to the same bytes.
pub(super) fn is_log_page(bytes: &[u8]) -> bool {
    let Ok(records) = parse_log_page(bytes) else {
        return false;
    };
    let again = parse_log_page(&emit_log_page(&records));
    assert_eq!(again.as_ref(), Ok(&records));
    true
}
