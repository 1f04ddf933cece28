//! Statistics of a trace: number and size of transactions, and the relations that they access.

mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Op, Trace};

/// Statistics of a trace. `flagstone trace info --json` prints the JSON form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    /// Number of transactions.
    pub transactions: u64,
    /// Committed transactions.
    pub commits: u64,
    /// Rolled back transactions.
    pub aborts: u64,
    /// Transactions without writes and trims.
    pub read_only: u64,
    /// Maximum number of concurrently open transactions.
    pub open_at_once_max: u64,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Number of distinct pages.
    pub pages: u64,
    /// Number of events, including commits and aborts.
    pub events: u64,
    /// Page reads.
    pub reads: u64,
    /// Page writes.
    pub writes: u64,
    /// Page trims.
    pub trims: u64,
    /// Nanoseconds from the first event to the last.
    pub duration_ns: u64,
    /// Distinct pages per transaction, over all transactions.
    pub distinct_pages: Spread,
    /// Distinct pages written or trimmed per transaction, over all transactions.
    pub distinct_pages_written: Spread,
    /// Block references (reads, writes and trims) per transaction, over all transactions.
    pub block_references: Spread,
    /// Relations in page order.
    pub relations: Vec<RelationInfo>,
    /// What the import skipped, with counts.
    pub skipped: BTreeMap<String, u64>,
    /// Where the trace came from.
    pub provenance: BTreeMap<String, String>,
}

/// Distribution of a number over transactions. Percentiles use the nearest rank, so they are always
/// occurring values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

/// Statistics of a relation in a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelationInfo {
    /// Its name.
    pub name: String,
    /// Its pages in the trace.
    pub pages: u64,
    /// Fraction of all pages.
    pub page_share: f64,
    /// Block references to it.
    pub references: u64,
    /// Fraction of all block references.
    pub reference_share: f64,
}

impl Spread {
    /// Computes the distribution of `values`; all 0 if there are none.
    pub fn of(mut values: Vec<u64>) -> Spread {
        values.sort_unstable();
        let Some(max) = values.last().copied() else {
            return Spread::default();
        };
        let rank = |percent: usize| values[(values.len() * percent).div_ceil(100) - 1];
        let sum: u64 = values.iter().sum();
        let mean = sum as f64 / values.len() as f64;
        Spread {
            mean,
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            max,
        }
    }
}

impl Info {
    /// Computes the statistics of a valid trace.
    pub fn of(trace: &Trace) -> Info {
        let count = |op: Op| trace.events.iter().filter(|event| event.op == op).count() as u64;
        let [reads, writes, trims, commits, aborts] = Op::ALL.map(count);
        let all = pages_by_transaction(trace, |op| !op.ends());
        let written = pages_by_transaction(trace, |op| matches!(op, Op::Write | Op::Trim));
        let skipped = trace.provenance.iter().filter_map(|(name, value)| {
            Some((
                name.strip_prefix("skipped: ")?.to_string(),
                value.parse().ok()?,
            ))
        });
        Info {
            transactions: u64::from(trace.transactions),
            commits,
            aborts,
            read_only: written
                .references
                .iter()
                .filter(|references| **references == 0)
                .count() as u64,
            open_at_once_max: open_at_once(trace),
            page_bytes: trace.page_bytes,
            pages: u64::from(trace.pages),
            events: trace.events.len() as u64,
            reads,
            writes,
            trims,
            duration_ns: match (trace.events.first(), trace.events.last()) {
                (Some(first), Some(last)) => last.time_ns - first.time_ns,
                _ => 0,
            },
            distinct_pages: Spread::of(all.distinct),
            distinct_pages_written: Spread::of(written.distinct),
            block_references: Spread::of(all.references),
            relations: relations(trace),
            skipped: skipped.collect(),
            provenance: trace.provenance.clone(),
        }
    }
}

struct ByTransaction {
    references: Vec<u64>,
    distinct: Vec<u64>,
}

/// Number of wanted events and distinct pages, for each transaction.
fn pages_by_transaction(trace: &Trace, wanted: impl Fn(Op) -> bool) -> ByTransaction {
    let events = || trace.events.iter().filter(|event| wanted(event.op));
    let mut references = vec![0_u64; trace.transactions as usize];
    for event in events() {
        references[event.transaction as usize] += 1;
    }
    // All pages in one array, grouped by transaction; `next` has each transaction's next index.
    let mut next = Vec::with_capacity(references.len());
    let mut total = 0;
    for count in &references {
        next.push(total);
        total += *count as usize;
    }
    let mut pages = vec![0; total];
    for event in events() {
        let next = &mut next[event.transaction as usize];
        pages[*next] = event.page;
        *next += 1;
    }
    let distinct = references.iter().zip(next).map(|(count, end)| {
        let pages = &mut pages[end - *count as usize..end];
        pages.sort_unstable();
        pages.chunk_by(|a, b| a == b).count() as u64
    });
    let distinct = distinct.collect();
    ByTransaction {
        references,
        distinct,
    }
}

/// Maximum number of transactions that were open at one time.
fn open_at_once(trace: &Trace) -> u64 {
    let (mut begun, mut open, mut most) = (0, 0, 0);
    for event in &trace.events {
        // Transactions are numbered by their first event.
        if event.transaction == begun {
            begun += 1;
            open += 1;
            most = most.max(open);
        }
        if event.op.ends() {
            open -= 1;
        }
    }
    most
}

/// Pages and references of each relation.
fn relations(trace: &Trace) -> Vec<RelationInfo> {
    let mut ends = Vec::with_capacity(trace.relations.len());
    let mut end = 0;
    for relation in &trace.relations {
        end += relation.pages;
        ends.push(end);
    }
    // References beyond the last relation belong to none.
    let mut references = vec![0_u64; ends.len() + 1];
    let mut total = 0;
    for event in trace.events.iter().filter(|event| !event.op.ends()) {
        references[ends.partition_point(|end| *end <= event.page)] += 1;
        total += 1;
    }
    let share = |part: u64, whole: u64| {
        if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        }
    };
    let named = trace
        .relations
        .iter()
        .zip(&references)
        .map(|(relation, references)| RelationInfo {
            name: relation.name.clone(),
            pages: u64::from(relation.pages),
            page_share: share(u64::from(relation.pages), u64::from(trace.pages)),
            references: *references,
            reference_share: share(*references, total),
        });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, Relation};

    fn trace() -> Trace {
        let events = [
            (0, 0, Op::Write, 0),
            (1, 1, Op::Read, 4),
            (2, 0, Op::Write, 0),
            (3, 0, Op::Read, 2),
            (4, 1, Op::Commit, 0),
            (5, 2, Op::Trim, 3),
            (6, 2, Op::Abort, 0),
            (9, 0, Op::Commit, 0),
        ];
        let relation = |name: &str, pages| Relation {
            name: name.to_string(),
            pages,
        };
        Trace {
            page_bytes: 8192,
            pages: 5,
            transactions: 3,
            relations: vec![relation("empty", 0), relation("a", 3), relation("b", 2)],
            events: events.map(Event::of).to_vec(),
            provenance: BTreeMap::from([
                (
                    "skipped: records of no transaction".to_string(),
                    "7".to_string(),
                ),
                ("command".to_string(), "by hand".to_string()),
            ]),
        }
    }

    #[test]
    fn a_trace_is_counted() {
        let info = Info::of(&trace());
        let counts = (info.transactions, info.commits, info.aborts, info.read_only);
        assert_eq!(counts, (3, 2, 1, 1));
        assert_eq!(
            (info.events, info.reads, info.writes, info.trims),
            (8, 2, 2, 1)
        );
        assert_eq!((info.duration_ns, info.open_at_once_max), (9, 2));
        let spread = |mean, p50, max| Spread {
            mean,
            p50,
            p90: max,
            p99: max,
            max,
        };
        assert_eq!(info.distinct_pages, spread(4.0 / 3.0, 1, 2));
        assert_eq!(info.distinct_pages_written, spread(2.0 / 3.0, 1, 1));
        assert_eq!(info.block_references, spread(5.0 / 3.0, 1, 3));
        let shares: Vec<_> = info
            .relations
            .iter()
            .map(|r| (r.pages, r.page_share, r.references))
            .collect();
        assert_eq!(shares, [(0, 0.0, 0), (3, 0.6, 3), (2, 0.4, 2)]);
        assert_eq!(
            info.skipped,
            BTreeMap::from([("records of no transaction".to_string(), 7)])
        );
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let spread = Spread::of((1..=200).rev().collect());
        assert_eq!(
            (spread.p50, spread.p90, spread.p99, spread.max),
            (100, 180, 198, 200)
        );
        assert_eq!(spread.mean, 100.5);
        assert_eq!(
            Spread::of(vec![7]),
            Spread {
                mean: 7.0,
                p50: 7,
                p90: 7,
                p99: 7,
                max: 7
            }
        );
        assert_eq!(Spread::of(vec![]), Spread::default());
    }

    #[test]
    fn an_empty_trace_has_a_description_too() {
        let info = Info::of(&Trace {
            page_bytes: 4096,
            ..Trace::default()
        });
        assert_eq!((info.transactions, info.duration_ns), (0, 0));
        assert!(info.tables(10).contains("transactions"));
    }

    #[test]
    fn tables_name_what_matters_and_count_what_they_leave_out() {
        let text = Info::of(&trace()).tables(1);
        for word in [
            "committed",
            "p99",
            "60.0 %",
            "2 more relations",
            "by hand",
            "skipped",
        ] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
    }
}
