//! The log on a device that loses what a power cut may lose.

use super::*;
use std::collections::BTreeMap;

/// Pages in memory; writes to pages in `lost` vanish.
#[derive(Default)]
struct Pages {
    pages: BTreeMap<Lpn, Vec<u8>>,
    lost: Vec<Lpn>,
    /// A page whose writes fail.
    failing: Option<Lpn>,
}

impl LogPages for Pages {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        into.clear();
        into.extend_from_slice(self.pages.get(&at).map_or(&[], Vec::as_slice));
        Ok(now)
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        if self.failing == Some(at) {
            return Err(HostError::LogDamaged(at));
        }
        if !self.lost.contains(&at) {
            self.pages.insert(at, bytes.to_vec());
        }
        Ok(now + Nanos(10))
    }
}

const PLACE: LogPlace = LogPlace {
    first: Lpn(100),
    pages: 9,
    page_bytes: 128,
    buffer_bytes: 300,
    checkpoint_bytes: 256,
    padded: false,
};

fn open(pages: &mut Pages) -> (Log, Tape) {
    open_at(pages, PLACE)
}

fn open_at(pages: &mut Pages, place: LogPlace) -> (Log, Tape) {
    let (mut log, tape) = Log::open(pages, Nanos::ZERO, place).expect("a log");
    log.begin_epoch(pages, tape.done, &tape)
        .expect("it writes the master");
    (log, tape)
}

/// Appends records of `bytes` bytes, numbered from `first`, and forces them.
fn append(log: &mut Log, pages: &mut Pages, ids: std::ops::Range<u64>, bytes: usize) -> Nanos {
    for id in ids {
        let body = vec![id as u8; bytes - LogRecord::bytes(0)];
        log.append(&LogRecord::mark(What::Commit, TxId(id), 0, &body))
            .expect("there is room");
    }
    let end = log.end();
    log.force(pages, Nanos::ZERO, end).expect("it writes")
}

fn ids(tape: &Tape) -> Vec<u64> {
    let ids = tape.entries(0).map(|(_, entry)| {
        assert!(entry.new.iter().all(|byte| u64::from(*byte) == entry.tx.0));
        entry.tx.0
    });
    ids.collect()
}

#[test]
fn records_come_back_over_the_ends_of_pages_and_by_their_lsns() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    let mut lsns = Vec::new();
    for id in 0..12 {
        lsns.push(log.end());
        append(&mut log, &mut pages, id..id + 1, 50);
    }
    let (mut log, tape) = open(&mut pages);
    assert_eq!(ids(&tape), (0..12).collect::<Vec<_>>());
    let mut record = Vec::new();
    for (id, &lsn) in lsns.iter().enumerate() {
        assert_eq!(tape.entry(lsn).expect("a record").tx, TxId(id as u64));
        log.read(&mut pages, Nanos::ZERO, lsn, &mut record).unwrap();
        let (entry, len) = LogRecord::parse(&record).expect("the whole record");
        assert_eq!((entry.tx, len), (TxId(id as u64), 50));
    }
    assert!(log.stats().pages_read > 0, "old ones come from the device");
}

/// Regression: a stale page passed for a continuation. The last page of the log is full and ends
/// with half a record; a restart ends the log before that record. Of what it writes there and
/// after, only the following page lands.
#[test]
fn a_gap_ends_the_log_though_the_page_behind_it_is_new() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    append(&mut log, &mut pages, 0..2, 100);
    let third = log.page_of(3);
    pages.lost = vec![third];
    append(&mut log, &mut pages, 2..3, 100);
    pages.lost.clear();
    let (mut log, tape) = open(&mut pages);
    assert_eq!(ids(&tape), [0, 1], "the third record is cut in half");
    pages.lost = vec![log.page_of(2)];
    append(&mut log, &mut pages, 7..9, 100);
    pages.lost.clear();
    assert!(
        pages.pages.contains_key(&third),
        "the page behind it landed"
    );
    let (mut log, tape) = open(&mut pages);
    assert_eq!(ids(&tape), [0, 1]);
    append(&mut log, &mut pages, 3..4, 60);
    assert_eq!(ids(&open(&mut pages).1), [0, 1, 3]);
}

/// A page on flash may have an LSN at the allowed maximum ahead of the durable log. A record with
/// the same LSN after the gap was not redone there. An invalid checkpoint is durable too, though
/// the log continues before it.
#[test]
fn a_gap_is_wider_than_what_pages_can_be_ahead_of_what_was_durable() {
    for (records, ahead) in (1..6).flat_map(|n| (0..300).map(move |ahead| (n, ahead))) {
        for checkpoint in [false, true] {
            let mut pages = Pages::default();
            let (mut log, _) = open(&mut pages);
            append(&mut log, &mut pages, 0..records, 40);
            if checkpoint {
                for what in [What::CheckpointBegin, What::CheckpointEnd] {
                    log.append(&LogRecord::mark(what, TxId(0), 0, &[])).unwrap();
                }
                let end = log.end();
                log.force(&mut pages, Nanos::ZERO, end).unwrap();
            }
            let durable = log.end();
            let (mut log, _) = open(&mut pages);
            log.skip(ahead);
            assert!(log.end() > durable + ahead, "{records} records, {ahead}");
        }
    }
}

#[test]
fn forces_end_in_the_order_of_the_stream() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    append(&mut log, &mut pages, 0..1, 50);
    let early = log.end();
    log.append(&LogRecord::mark(What::Begin, TxId(1), 0, &[]))
        .unwrap();
    let middle = log.end();
    let late = log.force(&mut pages, Nanos(500), middle).unwrap();
    log.append(&LogRecord::mark(What::Begin, TxId(2), 0, &[]))
        .unwrap();
    let end = log.end();
    let after = log.force(&mut pages, Nanos(100), end).unwrap();
    assert!(late >= Nanos(510) && after >= late, "{late} {after}");
    let asked = log.force(&mut pages, Nanos(100), early).unwrap();
    assert_eq!(asked, Nanos(100), "that was durable before");
    assert_eq!(log.force(&mut pages, Nanos(100), middle).unwrap(), late);
}

#[test]
fn a_full_log_takes_nothing_and_a_checkpoint_makes_room() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    let mut id = 0;
    while log.room() >= 100 {
        append(&mut log, &mut pages, id..id + 1, 100);
        id += 1;
    }
    let record = LogRecord::mark(What::Commit, TxId(1), 0, &[0; 75]);
    assert_eq!(log.append(&record), Err(HostError::LogFull { pages: 9 }));
    let begin = log.append(&LogRecord::mark(What::CheckpointBegin, TxId(0), 0, &[]));
    let (begin, tx) = (begin.expect("room"), TxId(0));
    log.append(&LogRecord::mark(What::CheckpointEnd, tx, 0, &[]))
        .unwrap();
    let end = log.end();
    let now = log.force(&mut pages, Nanos::ZERO, end).unwrap();
    let durable = log.point_to(&mut pages, now, begin, begin, tx).unwrap();
    assert!(
        append(&mut log, &mut pages, 90..91, 100) > durable,
        "not before the master"
    );
    let (log, tape) = open(&mut pages);
    assert_eq!(tape.checkpoint, begin);
    let found: Vec<What> = tape.entries(0).map(|(_, entry)| entry.what).collect();
    assert_eq!(
        found,
        [What::CheckpointBegin, What::CheckpointEnd, What::Commit]
    );
    assert!(log.room() > 600);
}

#[test]
fn a_log_of_something_else_is_refused() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    append(&mut log, &mut pages, 0..3, 100);
    let begin = log.end();
    log.point_to(&mut pages, Nanos::ZERO, begin, begin, TxId(3))
        .unwrap();
    // The master points to a checkpoint that was never forced.
    let refused = Log::open(&mut pages, Nanos::ZERO, PLACE).err();
    assert!(
        matches!(refused, Some(HostError::LogDamaged(_))),
        "{refused:?}"
    );
    pages.pages.insert(PLACE.first, vec![1, 2, 3]);
    let refused = Log::open(&mut pages, Nanos::ZERO, PLACE).err();
    assert_eq!(refused, Some(HostError::LogDamaged(PLACE.first)));
}

#[test]
fn a_log_near_its_end_takes_no_new_transaction_and_lets_others_end() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    let begin = |log: &mut Log| log.append(&LogRecord::mark(What::Begin, TxId(1), 0, &[]));
    begin(&mut log).expect("the first");
    let end = (1u64 << 47) / 16 * 15;
    log.skip(end - log.end());
    log.oldest = log.end();
    let refused = begin(&mut log).expect_err("it is spent").to_string();
    assert!(refused.contains("log position"), "{refused}");
    let commit = LogRecord::mark(What::Commit, TxId(1), 0, &[]);
    log.append(&commit).expect("it may end");
}

#[test]
fn a_log_beyond_its_numbers_is_refused() {
    let mut pages = Pages::default();
    open(&mut pages);
    for (field, value) in [
        (log_master::EPOCH, 1 << 31),
        (log_master::CHECKPOINT, 1 << 47),
        (log_master::OLDEST, 1 << 47),
    ] {
        let mut pages = Pages {
            pages: pages.pages.clone(),
            ..Pages::default()
        };
        let master = pages.pages.get_mut(&PLACE.first).expect("a master");
        put(master, field, value);
        let refused = Log::open(&mut pages, Nanos::ZERO, PLACE).err();
        let why = refused.expect("it is refused").to_string();
        assert!(why.contains("which no device comes to"), "{why}");
    }
}

#[test]
fn a_filled_page_is_not_written_again_and_its_filling_is_nothing() {
    let written = |padded: bool| {
        let mut pages = Pages::default();
        let place = LogPlace { padded, ..PLACE };
        let (mut log, _) = open_at(&mut pages, place);
        let mut lsns = Vec::new();
        for id in 0..3 {
            lsns.push(log.end());
            append(&mut log, &mut pages, id..id + 1, 40);
        }
        let (_, tape) = open_at(&mut pages, place);
        let commits = tape.committed().into_iter().map(|tx| tx.0);
        assert_eq!(commits.collect::<Vec<_>>(), [0, 1, 2], "padded {padded}");
        lsns.iter()
            .map(|lsn| lsn / log.payload())
            .collect::<Vec<_>>()
    };
    assert_eq!(written(true), [1, 2, 3], "a page for each force");
    assert_eq!(written(false), [1, 1, 1], "the control: they share one");
}

/// Fails if a page says a number of bytes that its head has no room for, or if padding is longer
/// than a record can be: the log would end there.
#[test]
fn pages_of_a_log_may_be_larger_than_their_heads_can_say() {
    for (page_bytes, padded, bytes) in [(1 << 17, false, 30_000), (1 << 16, true, 32_750)] {
        let mut pages = Pages::default();
        let place = LogPlace {
            page_bytes,
            padded,
            ..PLACE
        };
        let (mut log, _) = open_at(&mut pages, place);
        append(&mut log, &mut pages, 0..2, bytes);
        append(&mut log, &mut pages, 2..9, bytes);
        let (_, tape) = open_at(&mut pages, place);
        let commits = tape.committed().into_iter().map(|tx| tx.0);
        assert!(commits.eq(0..9), "pages of {page_bytes} bytes");
    }
}

#[test]
fn a_log_that_is_half_full_is_not_filled_up() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    while log.room() > log.capacity() / 2 {
        append(&mut log, &mut pages, 0..1, 50);
    }
    let end = log.end();
    log.fill().expect("there is nothing to do");
    assert_eq!(log.end(), end);
}

/// Regression: durable records were lost when the page before a failed one was rewritten as its own
/// successor. Also, a checkpoint whose master write fails frees no log pages.
#[test]
fn a_log_that_could_not_be_written_is_written_no_more_and_loses_nothing() {
    for fails in [Some(3), None] {
        let mut pages = Pages::default();
        let (mut log, _) = open(&mut pages);
        append(&mut log, &mut pages, 0..3, 50);
        let (mut log, _) = open(&mut pages);
        pages.failing = Some(fails.map_or(PLACE.first, |number| log.page_of(number)));
        for id in 3..6 {
            let body = vec![id as u8; 50 - LogRecord::bytes(0)];
            let commit = LogRecord::mark(What::Commit, TxId(id), 0, &body);
            log.append(&commit).expect("there is room");
        }
        let end = log.end();
        match fails {
            Some(_) => assert!(log.force(&mut pages, Nanos::ZERO, end).is_err()),
            None => {
                log.force(&mut pages, Nanos::ZERO, end).expect("it writes");
                let pointed = log.point_to(&mut pages, Nanos::ZERO, end, end, TxId(0));
                assert!(pointed.is_err());
            }
        }
        pages.failing = None;
        let mut refused = true;
        for id in 6..30 {
            let body = vec![id as u8; 50 - LogRecord::bytes(0)];
            let commit = LogRecord::mark(What::Commit, TxId(id), 0, &body);
            if log.append(&commit).is_ok() {
                let end = log.end();
                refused &= log.force(&mut pages, Nanos::ZERO, end).is_err();
            }
        }
        let found = ids(&open(&mut pages).1);
        let durable = if fails.is_some() { 0..3 } else { 0..6 };
        assert!(found.starts_with(&durable.collect::<Vec<_>>()), "{found:?}");
        assert!(refused);
    }
}

#[test]
fn a_page_of_a_larger_log_is_not_taken_for_its_first() {
    let mut pages = Pages::default();
    let (mut log, _) = open(&mut pages);
    append(&mut log, &mut pages, 1..9, 60);
    let place = LogPlace {
        first: Lpn(102),
        pages: 7,
        ..PLACE
    };
    let refused = Log::open(&mut pages, Nanos::ZERO, place).err();
    assert!(matches!(refused, Some(HostError::Config(why)) if why.contains("log_pages")));
}

/// Each force has four changes of two pages and a commit, more than a page of the log has room for.
#[test]
fn pages_without_removed_records_are_counted_and_with_all_records_are_those_written() {
    for padded in [false, true] {
        let place = LogPlace { padded, ..PLACE };
        let counted = |leave: &[(u64, u32)]| {
            let mut pages = Pages::default();
            let (mut log, _) = open_at(&mut pages, place);
            log.reset_stats();
            for tx in 1..=2 {
                for page in [1, 1, 2, 2] {
                    let rid = crate::Rid {
                        page: Lpn(page),
                        slot: 0,
                    };
                    let change = LogRecord::change(TxId(tx), 0, rid, None, Some(&[0; 3]));
                    log.append(&change).expect("there is room");
                    log.leave(|of, at| leave.contains(&(of.0, at.0)));
                }
                append(&mut log, &mut pages, tx..tx + 1, LogRecord::bytes(0));
            }
            (log.stats().pages_written, log.stats().pages_if_removed)
        };
        // Each force has 137 bytes, 81 or 25, and a page 112. Only three pages instead of two tell
        // the forms apart: what is not padded is written again.
        let some = if padded { 2 } else { 3 };
        assert_eq!(counted(&[]), (4, 4), "padded {padded}");
        assert_eq!(counted(&[(1, 2), (2, 2)]), (4, some), "padded {padded}");
        let all = [(1, 1), (1, 2), (2, 1), (2, 2)];
        assert_eq!(counted(&all), (4, 2), "padded {padded}");
    }
}
