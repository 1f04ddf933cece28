//! Statistics of a stream of transactions, comparable between a recording and the model.
//!
//! Counts pages, not changes of pages: a recording depends on the log records of a PostgreSQL
//! version, where an update across pages makes three and pruning another one.

use super::{Pages, PagesError};
use crate::trace::info::Spread;
use crate::trace::{Op, Trace};
use crate::workload::{Access, Transaction, Verb};
use std::collections::BTreeMap;

/// Statistics. A *page write* is a page written by a transaction, counted once.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Shape {
    /// Number of transactions that write.
    pub(super) writers: u64,
    /// Those that are rolled back.
    pub(super) rolled_back: u64,
    /// Pages per writing transaction.
    pub(super) written: Spread,
    /// Number of distinct pages written.
    pub(super) pages: u64,
    /// Fraction of page writes to the most written one and ten percent of these pages.
    pub(super) hottest: [f64; 2],
    /// Per relation: fraction of the page writes, and distinct pages.
    pub(super) relations: BTreeMap<String, (f64, u64)>,
}

/// Statistics that only the model has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Reads {
    /// Number of transactions.
    pub(super) transactions: u64,
    /// Read-only transactions.
    pub(super) read_only: u64,
    /// Pages accessed per transaction, including readers.
    pub(super) accessed: Spread,
    /// Records read and written per transaction.
    pub(super) records_read: Spread,
    /// Records that it writes.
    pub(super) records_written: Spread,
}

impl Shape {
    /// Statistics of page writes, given as pairs of transaction and page.
    fn of(mut writes: Vec<(u32, u32)>, rolled_back: u64, name: impl Fn(u32) -> String) -> Shape {
        writes.sort_unstable();
        writes.dedup();
        let each = writes
            .chunk_by(|a, b| a.0 == b.0)
            .map(|own| own.len() as u64);
        let written: Vec<u64> = each.collect();
        let mut by_page: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, page) in &writes {
            *by_page.entry(*page).or_default() += 1;
        }
        let mut relations: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        for (page, count) in &by_page {
            let relation = relations.entry(name(*page)).or_default();
            relation.0 += *count as f64 / writes.len() as f64;
            relation.1 += 1;
        }
        let mut counts: Vec<u64> = by_page.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hottest = |percent: usize| {
            let top: u64 = counts[..counts.len() * percent / 100].iter().sum();
            top as f64 / writes.len() as f64
        };
        Shape {
            writers: written.len() as u64,
            rolled_back,
            pages: counts.len() as u64,
            hottest: [hottest(1), hottest(10)],
            written: Spread::of(written),
            relations,
        }
    }

    /// Statistics of a recording.
    pub(super) fn of_trace(trace: &Trace) -> Shape {
        let events = trace.events.iter();
        let written = events.filter(|event| matches!(event.op, Op::Write | Op::Trim));
        let writes = written
            .map(|event| (event.transaction, event.page))
            .collect();
        let aborts = trace.events.iter().filter(|event| event.op == Op::Abort);
        let mut ends = Vec::new();
        let mut end = 0;
        for relation in &trace.relations {
            end += relation.pages;
            ends.push(end);
        }
        Shape::of(writes, aborts.count() as u64, |page| {
            let at = ends.partition_point(|end| *end <= page);
            trace
                .relations
                .get(at)
                .map_or("", |relation| &relation.name)
                .to_owned()
        })
    }

    /// Statistics of `transactions` transactions of the model, dealt to clients in turn.
    ///
    /// # Errors
    /// The database cannot grow.
    pub(super) fn of_pages(
        pages: &mut Pages,
        clients: u32,
        transactions: u64,
    ) -> Result<(Shape, Reads), PagesError> {
        let mut transaction = Transaction::default();
        let (mut writes, mut rolled_back) = (Vec::new(), 0);
        let mut reads = Reads {
            transactions,
            ..Reads::default()
        };
        let (mut distinct, mut spreads) = (Vec::new(), [const { Vec::new() }; 3]);
        for number in 0..transactions {
            let client = (number % u64::from(clients)) as u32;
            pages.deal(client, false, &mut transaction)?;
            let count = |wanted: fn(&Access) -> bool| {
                transaction
                    .accesses
                    .iter()
                    .filter(|access| wanted(access))
                    .count() as u64
            };
            spreads[1].push(count(|access| access.verb == Verb::Read));
            spreads[2].push(count(Access::writes));
            transaction.distinct_pages(|_| true, &mut distinct);
            spreads[0].push(distinct.len() as u64);
            transaction.distinct_pages(Access::writes, &mut distinct);
            reads.read_only += u64::from(distinct.is_empty());
            rolled_back += u64::from(!transaction.commits);
            writes.extend(distinct.iter().map(|page| (number as u32, *page)));
        }
        [reads.accessed, reads.records_read, reads.records_written] = spreads.map(Spread::of);
        let name = |page: u32| pages.relation_of(flagstone::units::Lpn(page)).name();
        Ok((Shape::of(writes, rolled_back, name), reads))
    }
}

/// Two sets of statistics as a Markdown table.
pub(super) fn side_by_side(recorded: &Shape, modelled: &Shape) -> String {
    let mut table = String::from("| | recorded | modelled |\n|---|---:|---:|\n");
    let mut row = |what: &str, of: &dyn Fn(&Shape) -> String| {
        let line = format!("| {what} | {} | {} |\n", of(recorded), of(modelled));
        table.push_str(&line);
    };
    row("transactions that write", &|s| s.writers.to_string());
    row("rolled back", &|s| s.rolled_back.to_string());
    row("pages written a transaction, mean", &|s| {
        format!("{:.1}", s.written.mean)
    });
    row("… p50", &|s| s.written.p50.to_string());
    row("… p90", &|s| s.written.p90.to_string());
    row("… p99", &|s| s.written.p99.to_string());
    row("… largest", &|s| s.written.max.to_string());
    row("pages written at all", &|s| s.pages.to_string());
    row("page writes to the hottest 1 %", &|s| percent(s.hottest[0]));
    row("page writes to the hottest 10 %", &|s| {
        percent(s.hottest[1])
    });
    for relation in super::Relation::ALL.map(super::Relation::name) {
        let of = |s: &Shape| s.relations.get(&relation).copied().unwrap_or_default();
        row(&format!("`{relation}`: page writes (pages)"), &|s| {
            format!("{} ({})", percent(of(s).0), of(s).1)
        });
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
