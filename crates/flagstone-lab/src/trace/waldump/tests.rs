//! The importer on small dumps: the result for each kind of record, and of damage.

use super::*;
use crate::trace::{Event, Op, Relation};

/// A record as `pg_waldump` of PostgreSQL 15 prints it.
fn record(manager: &str, xid: u32, description: &str) -> String {
    format!(
        "rmgr: {manager:<11} len (rec/tot): {:>6}/{:>6}, tx: {xid:>10}, lsn: 0/05400180, \
         prev 0/053FE460, desc: {description}\n",
        59, 59
    )
}

fn heap(xid: u32, blocks: &[u32]) -> String {
    let references = blocks.iter().enumerate();
    let references = references.map(|(n, b)| format!(", blkref #{n}: rel 1663/5/16396 blk {b}"));
    record(
        "Heap",
        xid,
        &format!("INSERT off 1 flags 0x08{}", references.collect::<String>()),
    )
}

fn end(xid: u32, verb: &str, millisecond: u32, rest: &str) -> String {
    let stamp = format!("2026-11-21 21:28:08.{millisecond:03}000 UTC");
    record("Transaction", xid, &format!("{verb}{stamp}{rest}"))
}

fn commit(xid: u32, millisecond: u32) -> String {
    end(xid, "COMMIT ", millisecond, "")
}

fn imported(text: &str) -> (Trace, WalReport) {
    with(text, &WalOptions::default())
}

fn with(text: &str, options: &WalOptions) -> (Trace, WalReport) {
    let (trace, report) = import(text.as_bytes(), options).unwrap();
    trace.validate().unwrap();
    (trace, report)
}

fn failure(text: &str) -> String {
    import(text.as_bytes(), &WalOptions::default())
        .unwrap_err()
        .to_string()
}

fn event((time_ms, transaction, op, page): (u64, u32, Op, u32)) -> Event {
    Event::of((time_ms * 1_000_000, transaction, op, page))
}

#[test]
fn every_reference_is_a_write_and_pages_are_numbered_by_address() {
    let text = [
        heap(700, &[9, 2, 9]),
        heap(701, &[4]),
        commit(701, 10),
        commit(700, 20),
    ]
    .concat();
    let (trace, report) = imported(&text);
    let want = [
        (0, 0, Op::Write, 2),
        (0, 0, Op::Write, 0),
        (0, 0, Op::Write, 2),
        (0, 1, Op::Write, 1),
        (0, 1, Op::Commit, 0),
        (10, 0, Op::Commit, 0),
    ];
    assert_eq!(trace.events, want.map(event));
    assert_eq!(
        (trace.pages, trace.transactions, trace.page_bytes),
        (3, 2, 8192)
    );
    assert_eq!(
        trace.relations,
        [Relation {
            name: "1663/5/16396".into(),
            pages: 3
        }]
    );
    assert_eq!((report.records, report.skipped()), (4, vec![]));
}

#[test]
fn records_between_two_ends_are_spread_evenly_between_their_times() {
    let text = [
        commit(700, 100),
        heap(701, &[1]),
        record("Standby", 0, "RUNNING_XACTS nextXid 5"),
        heap(701, &[1]),
        commit(701, 140),
        heap(702, &[1]),
        commit(702, 130), // its clock was read before the other's
    ];
    let (trace, report) = imported(&text.concat());
    let times: Vec<u64> = trace.events.iter().map(|e| e.time_ns / 1_000_000).collect();
    assert_eq!(times, [0, 10, 30, 40, 40, 40]);
    assert_eq!(report.times_backwards, 1);
    assert_eq!(report.times_backwards_max_us, 10_000);
}

#[test]
fn released_subtransactions_are_part_of_their_transaction_and_others_are_not() {
    let text = [
        heap(737, &[1]),
        heap(738, &[2]),
        end(738, "ABORT ", 1, ""),
        heap(739, &[3]),
        heap(740, &[4]),
        end(
            737,
            "COMMIT ",
            2,
            "; subxacts: 739 740; inval msgs: catcache 55",
        ),
    ];
    let (trace, report) = imported(&text.concat());
    let owners: Vec<_> = trace.events.iter().map(|e| (e.transaction, e.op)).collect();
    assert_eq!(
        owners,
        [
            (0, Op::Write),
            (1, Op::Write),
            (1, Op::Abort),
            (0, Op::Write),
            (0, Op::Write),
            (0, Op::Commit)
        ]
    );
    assert_eq!(
        (
            report.folded_subtransactions,
            report.unfinished_transactions
        ),
        (2, 0)
    );
}

#[test]
fn a_prepared_transaction_ends_where_its_second_phase_does() {
    let text = [
        heap(742, &[1]),
        record(
            "Transaction",
            742,
            "PREPARE gid x, blkref #0: rel 1/2/3 blk 4: 2026-11-21 …",
        ),
        heap(743, &[2]),
        end(0, "COMMIT_PREPARED 742: ", 5, ""),
        end(0, "ABORT_PREPARED 743: ", 6, ""),
    ];
    let (trace, report) = imported(&text.concat());
    let ends: Vec<_> = trace
        .events
        .iter()
        .filter(|e| e.op.ends())
        .map(|e| (e.transaction, e.op))
        .collect();
    assert_eq!(ends, [(0, Op::Commit), (1, Op::Abort)]);
    assert_eq!((trace.pages, report.skipped()), (2, vec![]));
}

#[test]
fn what_no_transaction_did_is_counted_and_skipped() {
    let text = [
        record(
            "Heap2",
            0,
            "VISIBLE x, blkref #0: rel 1/2/3 fork vm blk 0, blkref #1: rel 1/2/3 blk 0",
        ),
        record("CLOG", 0, "ZEROPAGE page 1"),
        heap(7, &[1]),
        commit(7, 1),
    ];
    let (trace, report) = imported(&text.concat());
    assert_eq!(trace.pages, 1);
    assert_eq!(
        (
            report.records_without_transaction,
            report.references_without_transaction
        ),
        (1, 2)
    );
    assert_eq!(trace.provenance["skipped: records of no transaction"], "1");
}

#[test]
fn other_forks_are_counted_or_become_relations_of_their_own() {
    let text = [
        record("XLOG", 7, "FPI , blkref #0: rel 1/2/3 fork fsm blk 0 FPW"),
        record(
            "Heap2",
            7,
            "VISIBLE x, blkref #0: rel 1/2/3 fork vm blk 0, blkref #1: rel 1/2/3 blk 5",
        ),
        commit(7, 1),
    ]
    .concat();
    let (trace, report) = imported(&text);
    assert_eq!(trace.pages, 1);
    assert_eq!(
        report.references_to_forks,
        BTreeMap::from([("fsm", 1), ("vm", 1)])
    );

    let names = BTreeMap::from([("1/2/3".to_string(), "stock".to_string())]);
    let options = WalOptions {
        forks: Forks::All,
        relation_names: names,
        ..WalOptions::default()
    };
    let (trace, report) = with(&text, &options);
    let names: Vec<_> = trace.relations.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["stock", "stock_fsm", "stock_vm"]);
    assert_eq!(report.skipped(), []);
}

#[test]
fn a_transaction_that_never_ends_is_dropped_with_its_pages_or_kept_as_aborted() {
    let assigned = record("Transaction", 11, "ASSIGNMENT xtop 10: subxacts: 11");
    let text = [
        heap(10, &[1, 2]),
        heap(11, &[3]),
        heap(9, &[8]),
        assigned,
        commit(9, 5),
    ]
    .concat();
    let (trace, report) = imported(&text);
    assert_eq!(
        (trace.pages, trace.transactions, trace.events.len()),
        (1, 1, 2)
    );
    assert_eq!(report.unfinished_transactions, 1);
    assert_eq!(report.unfinished_references, 3);
    assert_eq!(
        trace.provenance["skipped: transactions that never end"],
        "1"
    );

    let (trace, report) = with(
        &text,
        &WalOptions {
            keep_unfinished: true,
            ..WalOptions::default()
        },
    );
    assert_eq!(
        (trace.pages, trace.transactions, trace.events.len()),
        (4, 2, 6)
    );
    assert_eq!(trace.events[5], event((0, 0, Op::Abort, 0)));
    assert_eq!(report.unfinished_transactions, 1);
    assert_eq!(report.skipped(), []);
}

#[test]
fn unknown_resource_managers_are_counted_and_their_references_taken() {
    let text = [
        record("custom128", 7, "ADD x, blkref #0: rel 1/2/3 blk 5"),
        commit(7, 1),
    ]
    .concat();
    let (trace, report) = imported(&text);
    assert_eq!((trace.pages, report.unknown_managers["custom128"]), (1, 1));
}

#[test]
fn text_that_a_user_chose_is_no_block_reference() {
    let text = [
        record(
            "LogicalMessage",
            7,
            "MESSAGE transactional, prefix \", blkref #0: rel 1/2/3 blk 4\"",
        ),
        record("XLOG", 7, "RESTORE_POINT , blkref #0: rel x"),
        heap(7, &[1]),
        commit(7, 1),
    ];
    assert_eq!(imported(&text.concat()).0.pages, 1);
}

#[test]
fn details_messages_and_blank_lines_are_understood() {
    let text = [
        "first record is after 0/5400000, at 0/5400180, skipping over 384 bytes\n".to_string(),
        record("Heap", 7, "INSERT off 1 "),
        "\tblkref #0: rel 1663/5/7 fork main blk 1010 (FPW); hole: offset: 1492, length: 812\n"
            .into(),
        record("Heap2", 0, "VISIBLE "),
        "\tblkref #0: rel 1663/5/7 fork vm blk 0\n".into(),
        "\n".into(),
        commit(7, 1),
        "pg_waldump: error: error in WAL record at 0/5: invalid record length\n".into(),
    ];
    let (trace, report) = imported(&text.concat());
    assert_eq!(
        (
            trace.pages,
            report.messages,
            report.references_without_transaction
        ),
        (1, 1, 1)
    );
    assert_eq!(
        trace.provenance["last message of pg_waldump"],
        "error: error in WAL record at 0/5: invalid record length"
    );
}

#[test]
fn a_cut_last_line_is_reported_even_if_it_looks_whole() {
    // Without a line end, `blk 12` may be a truncated `blk 1234`.
    let text = [
        heap(7, &[1]),
        commit(7, 1),
        heap(8, &[12]).trim_end().to_string(),
    ]
    .concat();
    let (trace, report) = imported(&text);
    assert_eq!((trace.pages, report.cut_line), (1, Some(3)));
    assert_eq!(report.skipped(), [("last line, cut short".to_string(), 1)]);
}

#[test]
fn bad_lines_are_errors_with_their_number() {
    let good = [heap(7, &[1]), commit(7, 1)].concat();
    let foreign = failure(&format!("{good}hello\n"));
    assert!(
        foreign.starts_with("line 3: not a line of pg_waldump\n  hello"),
        "{foreign}"
    );
    let first = failure("PAR1\0\0\nx\n");
    assert!(
        first.starts_with("line 1: not the output of pg_waldump: run"),
        "{first}"
    );
    assert!(!first.contains('\0'), "{first}");
    let torn = failure(&format!("{good}rmgr: Heap   len (rec/tot):\n{good}"));
    assert!(torn.starts_with("line 3: not a whole record"), "{torn}");
    let stamp = failure(&record("Transaction", 7, "COMMIT"));
    assert!(
        stamp.starts_with("line 1: cannot read the end of a transaction"),
        "{stamp}"
    );
    let nobody = failure(&end(0, "COMMIT ", 1, ""));
    assert!(
        nobody.starts_with("line 1: the end of transaction 0"),
        "{nobody}"
    );
    let odd = failure(&record("Heap", 7, "X, blkref #0: rel 1/2 blk 3"));
    assert!(
        odd.starts_with("line 1: cannot read a block reference"),
        "{odd}"
    );
    let alone = failure("\tblkref #0: rel 1/2/3 fork main blk 3\n");
    assert!(
        alone.starts_with("line 1: a block reference without a record"),
        "{alone}"
    );
}

#[test]
fn an_input_without_records_or_ends_is_refused() {
    assert_eq!(failure(""), "no record of pg_waldump in 0 lines of input");
    let unfinished = failure(&heap(7, &[1]));
    assert!(
        unfinished.starts_with("no transaction ends in these 1 records"),
        "{unfinished}"
    );
}
