//! The block importers on small inputs: the resulting events, and the error for each bad line.

mod blkparse_events;
mod tables;

use super::columns::PRESETS;
use super::fio::Waits;
use super::table::Table;
use super::time::TimeUnit;
use super::*;
use crate::trace::{Op, Relation, Trace};

type Imported = Result<(Trace, BlockReport), ImportError>;

fn preset(name: &str) -> Table {
    let preset = PRESETS.iter().find(|preset| preset.name == name);
    Table::of(preset.unwrap())
}

fn table(text: &str, table: &Table) -> Imported {
    table_with(text, &BlockOptions::new(4096), table)
}

fn table_with(text: &str, options: &BlockOptions, table: &Table) -> Imported {
    table::import(text.as_bytes(), options, table)?.into_trace()
}

fn disksim_table(unit: TimeUnit) -> Table {
    Table {
        time_unit: Some(unit),
        ..preset("disksim")
    }
}

fn disksim_in(text: &str, unit: TimeUnit) -> Imported {
    table(text, &disksim_table(unit))
}

fn disksim(text: &str) -> Imported {
    disksim_in(text, TimeUnit::Milliseconds)
}

fn msr(text: &str) -> Imported {
    table(text, &preset("msr"))
}

fn blkparse(text: &str) -> Imported {
    blkparse_with(text, &BlockOptions::new(4096))
}

fn blkparse_with(text: &str, options: &BlockOptions) -> Imported {
    blkparse::import(text.as_bytes(), options, blkparse::Action::Issue)?.into_trace()
}

fn fio(text: &str) -> Imported {
    fio_with(text, &BlockOptions::new(4096), None)
}

fn fio_waiting(text: &str, waits: Waits) -> Imported {
    fio_with(text, &BlockOptions::new(4096), Some(waits))
}

fn fio_with(text: &str, options: &BlockOptions, waits: Option<Waits>) -> Imported {
    fio::import(text.as_bytes(), options, waits)?.into_trace()
}

/// The events as `(microseconds, transaction, op, page)`.
fn events(imported: &Imported) -> Vec<(u64, u32, Op, u32)> {
    let (trace, _) = imported.as_ref().unwrap();
    trace.validate().unwrap();
    trace
        .events
        .iter()
        .map(|e| (e.time_ns / 1000, e.transaction, e.op, e.page))
        .collect()
}

fn failure(imported: Imported) -> String {
    imported.unwrap_err().to_string()
}

fn skipped(imported: &Imported) -> Vec<(&'static str, u64)> {
    imported
        .as_ref()
        .unwrap()
        .1
        .skipped
        .iter()
        .map(|(what, count)| (*what, *count))
        .collect()
}

#[test]
fn requests_are_cut_at_page_borders_and_pages_numbered_by_address() {
    // Bytes 1,024,000..1,032,192 cross one border (pages 250 and 251); 0..512 is page 0.
    let imported = disksim("0.0 0 2000 16 0\n\n# note\n1.5 0 0 1 1\n1.5 1 0 8 0x1\n");
    assert_eq!(
        events(&imported),
        [
            (0, 0, Op::Write, 1),
            (0, 0, Op::Write, 2),
            (0, 0, Op::Commit, 0),
            (1500, 1, Op::Read, 0),
            (1500, 1, Op::Commit, 0),
            (1500, 2, Op::Read, 3),
            (1500, 2, Op::Commit, 0),
        ]
    );
    let (trace, report) = imported.unwrap();
    assert_eq!(
        (trace.pages, trace.transactions, report.requests),
        (4, 3, 3)
    );
    let relation = |name: &str, pages| Relation {
        name: name.to_string(),
        pages,
    };
    assert_eq!(
        trace.relations,
        [relation("device 0", 3), relation("device 1", 1)]
    );
    assert_eq!(trace.provenance["times"], "ms, as stated");
}

#[test]
fn neighbours_and_overlaps_make_one_run_of_pages() {
    let imported = disksim("0 0 16 8 0\n1 0 0 8 0\n2 0 8 8 0\n3 0 0 24 1\n4 0 80 8 0\n");
    let pages: Vec<_> = events(&imported)
        .iter()
        .filter(|e| !e.2.ends())
        .map(|e| e.3)
        .collect();
    assert_eq!(pages, [2, 0, 1, 0, 1, 2, 3]);
}

#[test]
fn requests_are_put_in_the_order_of_their_times() {
    let imported = disksim("5 0 8 8 0\n3 0 0 8 0\n4 0 0 8 1\n");
    let order: Vec<_> = events(&imported)
        .iter()
        .filter(|e| !e.2.ends())
        .map(|e| (e.0, e.3))
        .collect();
    assert_eq!(order, [(0, 0), (1000, 0), (2000, 1)]);
    let (trace, report) = imported.unwrap();
    assert_eq!(report.out_of_order, 2);
    assert_eq!(trace.provenance["requests out of order"], "2");
}

#[test]
fn a_cut_last_line_is_skipped_and_reported() {
    let (trace, report) = disksim("0 0 0 8 0\n1 0 8").unwrap();
    assert_eq!((trace.transactions, report.cut_line), (1, Some(2)));
    assert_eq!(trace.provenance["skipped: last line, cut short"], "1");
    // A complete last line without a line end is accepted.
    assert_eq!(disksim("0 0 0 8 0\n1 0 8 8 0").unwrap().0.transactions, 2);
}

#[test]
fn an_implausible_rate_names_the_units_that_would_do() {
    let burst: String = (0..200)
        .map(|n| format!("0.{n:06} 0 {} 8 0\n", n * 8))
        .collect();
    let in_unit = |unit| disksim_in(&burst, unit);
    let said = failure(in_unit(TimeUnit::Milliseconds));
    assert!(
        said.starts_with("200 requests within 0.000000199 s cannot be right"),
        "{said}"
    );
    assert!(said.contains("in s 1000000.000"), "{said}");
    assert!(
        said.contains("--time-unit") && !said.contains("in us"),
        "{said}"
    );
    let (_, report) = in_unit(TimeUnit::Seconds).unwrap();
    assert!((report.requests_per_s.unwrap() - 1e6).abs() < 1.0);

    let slow: String = (0..200)
        .map(|n| format!("{} 0 {} 8 0\n", n * 1000, n * 8))
        .collect();
    assert!(failure(disksim_in(&slow, TimeUnit::Seconds)).contains("in ms 1.000, in us 1000.000"));

    let ages = disksim("0 0 0 8 0\n18446744073709 0 0 8 0\n");
    assert!(failure(ages).contains("more than 292 years"));

    let at_once = "7 0 0 8 0\n".repeat(200);
    assert!(failure(disksim(&at_once)).contains("all have the same time"));
    let any = BlockOptions {
        any_rate: true,
        ..BlockOptions::new(4096)
    };
    let at_once = table_with(&at_once, &any, &disksim_table(TimeUnit::Seconds));
    let taken = at_once.unwrap();
    assert_eq!((taken.0.transactions, taken.1.requests_per_s), (200, None));
}

#[test]
fn fio_logs_of_both_versions_are_read() {
    let waiting = |first: u64, second: u64| {
        format!(
            "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 0 8192\n\
             /dev/sdb wait {first}\n/dev/sdb sync 0 0\n/dev/sdb wait {second} 0\n\
             /dev/sdb trim 0 2147483648\n/dev/sdb close\n"
        )
    };
    let second = fio_waiting(&waiting(150, 50), Waits::ForUs);
    // 2 ms after the start have passed at 3 ms.
    let until = fio_waiting(&waiting(3, 2), Waits::UntilMs);
    assert_eq!(events(&until).last(), Some(&(3000, 1, Op::Commit, 0)));
    let third = fio(
        "fio version 3 iolog\n30 /dev/sdb add\n100 /dev/sdb write 0 8192\n\
                     120 /dev/sdb datasync 0 0\n300 /dev/sdb trim 0 2147483648\n",
    );
    for imported in [second, third] {
        assert_eq!(
            events(&imported),
            [
                (0, 0, Op::Write, 0),
                (0, 0, Op::Write, 1),
                (0, 0, Op::Commit, 0),
                (200, 1, Op::Trim, 0),
                (200, 1, Op::Trim, 1),
                (200, 1, Op::Commit, 0),
            ]
        );
        assert_eq!(skipped(&imported), [("syncs", 1)]);
    }
    let timeless = format!("fio version 2 iolog\n{}", "f read 0 4096\n".repeat(200));
    assert_eq!(
        fio(&timeless).unwrap().0.provenance["times"],
        "none in the source: all 0"
    );
}

/// 5,000 requests and a wait of `1000` before the last are not 4,999,000 requests per second.
#[test]
fn a_log_of_fio_without_times_has_no_rate() {
    let requests = |count: usize| "f read 0 4096\n".repeat(count);
    let text = format!(
        "fio version 2 iolog\n{}f wait 1000\n{}",
        requests(4999),
        requests(1)
    );
    for (waits, duration_ns) in [(Waits::UntilMs, 1_000_000_000), (Waits::ForUs, 1_000_000)] {
        let (trace, report) = fio_waiting(&text, waits).unwrap();
        assert_eq!(report.requests_per_s, None);
        assert_eq!((report.times, report.duration_ns), (2, duration_ns));
        assert!(trace.provenance["times"].starts_with("waits "));
    }
    let unstated = failure(fio(&text));
    assert!(unstated.starts_with("line 5001: a wait"), "{unstated}");
    assert!(unstated.contains("--waits until-ms"), "{unstated}");
    for text in [
        "fio version 2 iolog\nf read 0 1\n",
        "fio version 3 iolog\n0 f read 0 1\n",
    ] {
        let useless = failure(fio_waiting(text, Waits::ForUs));
        assert!(useless.contains("leave it out"), "{useless}");
    }
    let end = failure(fio_waiting(
        &text.replace("1000", &u64::MAX.to_string()),
        Waits::UntilMs,
    ));
    assert!(end.contains("beyond the end of time"), "{end}");
}

#[test]
fn fio_lines_that_are_none_say_why() {
    assert_eq!(failure(fio("")), "the input is empty");
    assert!(failure(fio("0,4096,1\n")).starts_with("line 1: not an I/O log of fio"));
    for (line, why) in [
        ("1 f erase 0 4096", "unknown action `erase`"),
        ("1 f", "too few fields"),
        ("1 f read 0", "`read` needs an offset and a length"),
        ("1 f read x 4096", "`x` is no offset"),
        ("1 f read 0 4k", "`4k` is no length"),
        ("a f read 0 4096", "`a` is no time in microseconds"),
    ] {
        let said = failure(fio(&format!("fio version 3 iolog\n{line}\n")));
        assert!(said.starts_with("line 2: ") && said.contains(why), "{said}");
    }
    let said = failure(fio("fio version 2 iolog\nf wait\n"));
    assert!(
        said.starts_with("line 2: a wait without a number"),
        "{said}"
    );
}

fn at_flushes() -> BlockOptions {
    BlockOptions {
        commit_at: CommitAt::Flush,
        ..BlockOptions::new(4096)
    }
}

#[test]
fn writes_between_two_flushes_are_one_transaction() {
    let text = "\
  8,0 3 1 0.000001000 697 D W 0 + 8 [x]
  8,0 3 2 0.000002000 697 D W 16 + 8 [x]
  8,0 3 3 0.000003000 697 D R 0 + 8 [y]
  8,1 3 4 0.000004000 697 D W 0 + 8 [x]
  8,0 3 5 0.000005000 697 D FN [x]
  8,0 3 6 0.000006000 697 D FN [x]
  8,0 3 7 0.000007000 697 D W 8 + 8 [x]
  8,0 3 8 0.000008000 697 D FWFS 24 + 8 [x]
  8,1 3 9 0.000009000 697 D FN [x]
  8,0 3 10 0.000010000 697 D W 0 + 8 [x]
";
    let imported = blkparse_with(text, &at_flushes());
    let (read, write, commit) = (Op::Read, Op::Write, Op::Commit);
    assert_eq!(
        events(&imported),
        [
            (0, 0, write, 0),
            (1, 0, write, 2),
            (2, 1, read, 0),
            (2, 1, commit, 0),
            (3, 2, write, 4),
            (4, 0, commit, 0),
            (6, 3, write, 1),
            (7, 3, commit, 0),
            (7, 4, write, 3),
            (7, 4, commit, 0),
            (8, 2, commit, 0),
        ]
    );
    assert_eq!(
        skipped(&imported),
        [("writes and trims after the last flush", 1)]
    );
    let (_, report) = imported.unwrap();
    assert_eq!((report.requests, report.flushes), (6, 4));
    // Without the option each request is a transaction.
    let (trace, report) = blkparse(text).unwrap();
    assert_eq!((trace.transactions, report.flushes), (7, 0));
}

#[test]
fn syncs_of_a_file_end_what_was_written_to_it() {
    let text = "fio version 3 iolog\n0 a add\n1 a open\n2 a write 0 8192\n3 b write 0 4096\n\
                4 a write 0 4096\n5 a datasync\n6 b sync\n7 b sync\n";
    let imported = fio_with(text, &at_flushes(), None);
    let (write, commit) = (Op::Write, Op::Commit);
    assert_eq!(
        events(&imported),
        [
            (0, 0, write, 0),
            (0, 0, write, 1),
            (1, 1, write, 2),
            (2, 0, write, 0),
            (3, 0, commit, 0),
            (4, 1, commit, 0),
        ]
    );
    // A sync of all files, and one that makes nothing durable.
    let all = "fio version 3 iolog\n1 a write 0 4096\n2 b write 0 4096\n3 a sync_file_range 0 4096\n\
               4 a syncfs\n";
    let imported = fio_with(all, &at_flushes(), None);
    assert_eq!(
        skipped(&imported),
        [("syncs of a range, which make nothing durable", 1)]
    );
    assert_eq!(imported.unwrap().1.flushes, 2);
    assert_eq!(skipped(&fio(all))[0], ("syncs", 1));
    let none = "fio version 3 iolog\n2 a write 0 8192\n";
    let said = failure(fio_with(none, &at_flushes(), None));
    assert!(said.contains("leave out --commit-at flush"), "{said}");
}
