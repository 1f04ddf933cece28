//! The block importers on small inputs: what a request becomes, and what each bad line says.

use super::fio::Waits;
use super::time::TimeUnit;
use super::*;
use crate::trace::{Op, Relation, Trace};

type Imported = Result<(Trace, BlockReport), ImportError>;

fn disksim(text: &str) -> Imported {
    disksim::import(
        text.as_bytes(),
        &BlockOptions::new(4096),
        TimeUnit::Milliseconds,
        512,
    )
}

fn msr(text: &str) -> Imported {
    msr::import(text.as_bytes(), &BlockOptions::new(4096), None)
}

fn blkparse(text: &str) -> Imported {
    blkparse::import(
        text.as_bytes(),
        &BlockOptions::new(4096),
        blkparse::Action::Issue,
    )
}

fn fio(text: &str) -> Imported {
    fio::import(text.as_bytes(), &BlockOptions::new(4096), None)
}

fn fio_waiting(text: &str, waits: Waits) -> Imported {
    fio::import(text.as_bytes(), &BlockOptions::new(4096), Some(waits))
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
fn disksim_lines_that_are_none_say_why() {
    for (line, why) in [
        ("0.0 0 2000 16", "4 fields; a DiskSim trace has five"),
        ("0.0 0 2000 16 0 9", "6 fields"),
        ("-1 0 0 8 0", "`-1` is no time in ms"),
        ("0 sda 0 8 0", "`sda` is no device number"),
        ("0 0 -5 8 0", "`-5` is no sector"),
        (
            "0 0 36028797018963968 8 0",
            "`36028797018963968` is no sector, or too far out",
        ),
        ("0 0 0 x 0", "`x` is no number of sectors"),
        ("0 0 0 8 W", "`W` are no hexadecimal flags"),
        (
            "0 0 0 131073 0",
            "a request of 67109376 bytes is longer than the 67108864 allowed",
        ),
        ("0 0 36028797018963967 2 0", "overflow 64 bits"),
    ] {
        let said = failure(disksim(&format!("0 0 0 8 0\n{line}\n")));
        assert!(said.starts_with("line 2: "), "{said}");
        assert!(said.contains(why) && said.contains(line), "{said}");
    }
    assert_eq!(
        failure(disksim("\n")),
        "no request of format disksim in the input"
    );
    let odd = disksim::import(
        &b"0 0 0 8 0\n"[..],
        &BlockOptions::new(3000),
        TimeUnit::Seconds,
        512,
    );
    assert!(failure(odd).contains("a power of two from 512 bytes to 1 MiB"));
}

#[test]
fn a_cut_last_line_is_skipped_and_reported() {
    let (trace, report) = disksim("0 0 0 8 0\n1 0 8").unwrap();
    assert_eq!((trace.transactions, report.cut_line), (1, Some(2)));
    assert_eq!(trace.provenance["skipped: last line, cut short"], "1");
    // A whole last line without its end is taken.
    assert_eq!(disksim("0 0 0 8 0\n1 0 8 8 0").unwrap().0.transactions, 2);
}

#[test]
fn an_implausible_rate_names_the_units_that_would_do() {
    let burst: String = (0..200)
        .map(|n| format!("0.{n:06} 0 {} 8 0\n", n * 8))
        .collect();
    let in_unit = |unit| disksim::import(burst.as_bytes(), &BlockOptions::new(4096), unit, 512);
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
    let slow = disksim::import(
        slow.as_bytes(),
        &BlockOptions::new(4096),
        TimeUnit::Seconds,
        512,
    );
    assert!(failure(slow).contains("in ms 1.000, in us 1000.000"));

    let ages = disksim("0 0 0 8 0\n18446744073709 0 0 8 0\n");
    assert!(failure(ages).contains("more than 292 years"));

    let at_once = "7 0 0 8 0\n".repeat(200);
    assert!(failure(disksim(&at_once)).contains("all have the same time"));
    let any = BlockOptions {
        any_rate: true,
        ..BlockOptions::new(4096)
    };
    let taken = disksim::import(at_once.as_bytes(), &any, TimeUnit::Seconds, 512).unwrap();
    assert_eq!((taken.0.transactions, taken.1.requests_per_s), (200, None));
}

#[test]
fn msr_lines_are_read_with_their_file_times() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                128166385295514663,hm,0,Write,9056014336,2048,2833\n\
                128166385295514878,hm,0,Write,11855351808,512,2617\r\n\
                128166385301451520,hm,1,read,3163095040,8192,3438\n\
                128166385301451521,hm,1,Read,0,0,1\n";
    let imported = msr(text);
    assert_eq!(
        events(&imported),
        [
            (0, 0, Op::Write, 0),
            (0, 0, Op::Commit, 0),
            (21, 1, Op::Write, 1),
            (21, 1, Op::Commit, 0),
            (593_685, 2, Op::Read, 2),
            (593_685, 2, Op::Read, 3),
            (593_685, 2, Op::Commit, 0),
        ]
    );
    assert_eq!(skipped(&imported), [("requests of no bytes", 1)]);
    let names: Vec<_> = imported
        .unwrap()
        .0
        .relations
        .into_iter()
        .map(|r| r.name)
        .collect();
    assert_eq!(names, ["hm.0", "hm.1"]);
}

#[test]
fn msr_lines_that_are_none_say_why() {
    for (line, why) in [
        (
            "128166385295514663,hm,0,Write,1,2",
            "6 fields; an MSR Cambridge trace has seven",
        ),
        ("0.5,hm,0,Write,1,2,3", "`0.5` is no Windows file time"),
        (
            "1700000000,hm,0,Write,1,2,3",
            "`1700000000` is no Windows file time",
        ),
        (
            "128166385295514663,hm,0,Erase,1,2,3",
            "type `Erase` is neither Read nor Write",
        ),
        ("128166385295514663,hm,0,Read,-1,2,3", "`-1` is no offset"),
        ("128166385295514663,hm,0,Read,1,2k,3", "`2k` is no size"),
        (
            "128166385295514663,hm,0,Read,18446744073709551615,2,3",
            "overflow 64 bits",
        ),
    ] {
        let said = failure(msr(&format!("{line}\n")));
        assert!(said.starts_with("line 1: ") && said.contains(why), "{said}");
    }
    let rebased = msr::import(
        &b"0,hm,0,Write,0,512,1\n25,hm,0,Write,0,512,1\n"[..],
        &BlockOptions::new(4096),
        Some(TimeUnit::Microseconds),
    );
    assert_eq!(events(&rebased)[2].0, 25);
}

#[test]
fn blkparse_events_of_one_action_are_taken() {
    let text = "\
  8,0    3        1     0.000000000   697  Q   W 223488 + 8 [kjournald]
  8,0    3        2     0.000001829   697  D   W 223488 + 8 [kjournald]
  8,0    0        3     0.000002000     0  C   W 223488 + 8 [0]
  8,0    3        4     0.000500000   697  D FWFS 0 + 8 [x]
  8,0    3        5     0.000500001   697  D  FN [x]
  8,0    3        6     0.000600000   697  D  RA 223489 + 1 [y y]
  8,0    3        7     0.000700000   697  D  DS 0 + 4000000000 [fstrim]
  8,0    3        8     0.000700001   697  D  DS 1 + 14 [fstrim]
  8,0    3        9     0.000700002   697  D  DS 800 + 80 [fstrim]
  8,0    3       10     0.000800000   697  D   R 36 (12 00 00 00 24 00 ..) [cmd]
  8,0    3       11     0.000900000   697  A   W 1 + 8 <- (8,1) 7
  8,0    3        0     0.000900000     0  m   N cfq697 slice expired
  8,0    3       12     0.000900000   697  P   N [x]

CPU0 (8,0):
 Reads Queued:           0,        0KiB
Total (8,0):
";
    let imported = blkparse(text);
    assert_eq!(
        events(&imported),
        [
            (0, 0, Op::Write, 1),
            (0, 0, Op::Commit, 0),
            (498, 1, Op::Write, 0),
            (498, 1, Op::Commit, 0),
            (598, 2, Op::Read, 1),
            (598, 2, Op::Commit, 0),
            (698, 3, Op::Trim, 0),
            (698, 3, Op::Trim, 1),
            (698, 3, Op::Commit, 0),
        ]
    );
    assert_eq!(
        skipped(&imported),
        [
            ("flushes and other requests without data", 1),
            ("requests without an address", 1),
            ("trims of less than a page", 1),
            ("trims of pages that are never read or written", 1),
        ]
    );
}

#[test]
fn blkparse_lines_that_are_none_say_why() {
    let good = "8,0 3 1 0.000000000 697 D W 8 + 8 [x]\n";
    let said = failure(blkparse(&format!("{good}hello world\n")));
    assert!(
        said.starts_with("line 2: not an event of blkparse"),
        "{said}"
    );
    let said = failure(blkparse(&format!("{good}8,0 3 1 0.0 697 D W x + 8 [x]\n")));
    assert!(
        said.starts_with("line 2: `x + 8` is no range of sectors"),
        "{said}"
    );
    let said = failure(blkparse("8,0 3 1 0.000000000 697 Q W 8 + 8 [x]\n"));
    assert_eq!(
        said,
        "none of 1 events has action D: choose another with --action"
    );
    let said = failure(blkparse("8,0 3 1 0.000000000 697 D DS 8 + 8 [x]\n"));
    assert_eq!(said, "nothing but trims in the input");
    let (_, report) = blkparse(&format!("{good}8,0 3 1 0.000000000 697 D W 8 +")).unwrap();
    assert_eq!(report.cut_line, Some(2));
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
    // 2 ms after the start are over once 3 are.
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

/// 5,000 requests and a wait of `1000` before the last are no 4,999,000 requests a second.
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
    let action = blkparse::Action::Issue;
    let imported = blkparse::import(text.as_bytes(), &at_flushes(), action);
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
    // Without the option each request is one.
    let (trace, report) = blkparse(text).unwrap();
    assert_eq!((trace.transactions, report.flushes), (7, 0));
}

#[test]
fn syncs_of_a_file_end_what_was_written_to_it() {
    let text = "fio version 3 iolog\n0 a add\n1 a open\n2 a write 0 8192\n3 b write 0 4096\n\
                4 a write 0 4096\n5 a datasync\n6 b sync\n7 b sync\n";
    let imported = fio::import(text.as_bytes(), &at_flushes(), None);
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
    let none = "fio version 3 iolog\n2 a write 0 8192\n";
    let said = failure(fio::import(none.as_bytes(), &at_flushes(), None));
    assert!(said.contains("leave out --commit-at flush"), "{said}");
}
