//! Which events of blkparse are one request.

use super::*;

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

fn blkparse_at(text: &str, action: blkparse::Action) -> Imported {
    blkparse::import(text.as_bytes(), &BlockOptions::new(4096), action)?.into_trace()
}

/// Operations and pages, without times and commits.
fn accesses(imported: &Imported) -> Vec<(Op, u32)> {
    let all = events(imported).into_iter();
    let all = all.filter(|(_, _, op, _)| !op.ends());
    all.map(|(_, _, op, page)| (op, page)).collect()
}

#[test]
fn a_request_that_is_issued_again_counts_once() {
    let text = "\
  8,0 0 1 0.000001000 697 D W 0 + 8 [x]
  8,0 0 2 0.000002000 697 R W 0 + 8 [0]
  8,0 0 3 0.000003000 697 D W 0 + 8 [x]
  8,0 0 4 0.000004000 697 C W 0 + 8 [0]
  8,0 0 5 0.000005000 697 D W 8 + 8 [x]
  8,0 0 6 0.000006000 697 R W 8 + 8 [0]
  8,0 0 7 0.000007000 697 D W 8 + 16 [x]
  8,0 0 8 0.000008000 697 D W 0 + 8 [x]
";
    let imported = blkparse(text);
    let write = |page| (Op::Write, page);
    assert_eq!(accesses(&imported), [0, 1, 2, 0].map(write));
    assert_eq!(
        skipped(&imported),
        [("requests issued again after a requeue", 1)]
    );
}

#[test]
fn completions_of_parts_are_one_request() {
    let text = "\
  8,0 0 1 0.000001000 697 D R 0 + 32 [x]
  8,0 0 2 0.000002000 697 D R 96 + 8 [x]
  8,0 0 3 0.000003000 697 C R 0 + 8 [0]
  8,0 0 4 0.000004000 697 C R 96 + 8 [0]
  8,0 0 5 0.000005000 697 C R 8 + 24 [0]
  8,0 0 6 0.000006000 697 C R 64 + 8 [0]
";
    let imported = blkparse_at(text, blkparse::Action::Complete);
    let pages: Vec<_> = accesses(&imported).iter().map(|(_, page)| *page).collect();
    assert_eq!(pages, [5, 0, 1, 2, 3, 4]);
    assert_eq!(imported.as_ref().unwrap().0.transactions, 3);
    assert_eq!(
        skipped(&imported),
        [("completions of a part of a request", 1)]
    );
}

#[test]
fn a_request_of_stacked_devices_counts_at_the_upper_one() {
    // A volume manager on the second partition of a disk.
    let text = "\
253,0 0 1 0.000001000 697 Q W 0 + 8 [x]
  8,0 0 2 0.000001100 697 A W 2056 + 8 <- (253,0) 0
  8,0 0 3 0.000001200 697 A W 4104 + 8 <- (8,2) 2056
  8,0 0 4 0.000001300 697 Q W 4104 + 8 [x]
  8,0 0 5 0.000001400 697 D W 4104 + 8 [x]
  8,0 0 6 0.000002000 697 C W 4104 + 8 [0]
253,0 0 7 0.000002100 697 C W 0 + 8 [0]
  8,0 0 8 0.000003000 697 A R 2048 + 8 <- (8,1) 0
  8,0 0 9 0.000003100 697 Q R 2048 + 8 [x]
  8,0 0 10 0.000003200 697 D R 2048 + 8 [x]
  8,0 0 11 0.000004000 697 C R 2048 + 8 [0]
";
    for (action, volumes) in [
        (blkparse::Action::Queue, &["253,0", "8,0"][..]),
        (blkparse::Action::Issue, &["8,0"]),
        (blkparse::Action::Complete, &["253,0", "8,0"]),
    ] {
        let imported = blkparse_at(text, action);
        let (trace, report) = imported.unwrap();
        assert_eq!(report.requests, 2, "{action:?}");
        let names: Vec<_> = trace.relations.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, volumes, "{action:?}");
    }
}

#[test]
fn zones_are_appended_to_and_reset() {
    let text = "\
  8,0 0 1 0.000001000 697 D ZA 0 + 8 [x]
  8,0 0 2 0.000002000 697 D ZA 0 + 8 [x]
  8,0 0 3 0.000003000 697 D ZR 0 + 0 [x]
  8,0 0 4 0.000004000 697 D ZA 0 + 8 [x]
  8,0 0 5 0.000005000 697 D ZR 0 + 64 [x]
  8,0 0 6 0.000006000 697 D ZO 0 + 64 [x]
";
    let imported = blkparse(text);
    let (write, trim) = (|page| (Op::Write, page), |page| (Op::Trim, page));
    assert_eq!(
        accesses(&imported),
        [write(0), write(1), write(0), trim(0), trim(1)]
    );
    assert_eq!(
        skipped(&imported),
        [
            ("opens, closes and finishes of zones", 1),
            ("resets of zones whose length is not given", 1),
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
