//! ARIES' corner cases, one by one.

mod roll_backs;

use super::super::config::Mistake;
use super::super::log::payload_of;
use super::super::small_host::{SmallHost, Value, config, rid};
use super::super::{Host, HostConfig, HostError, Stack, Step, Why};
use super::BARE;
use flagstone::commit::Options;
use flagstone::nand::Cut;
use flagstone::nand::small::{EVERYTHING, NOTHING};
use flagstone::units::{Lpn, Nanos, TxId};

fn cut(at: u64, dice: u64) -> Option<Cut> {
    let torn = dice == NOTHING;
    Some(Cut { at, dice, torn })
}

fn small() -> SmallHost {
    SmallHost::new(Stack::Wal, config())
}

fn with_frames(frames: usize) -> SmallHost {
    let config = HostConfig { frames, ..config() };
    SmallHost::new(Stack::Wal, config)
}

/// Commits `value` in the first `pages` pages.
fn put(small: &mut SmallHost, pages: u32, value: &[u8]) {
    let tx = small.begin();
    for page in 0..pages {
        small.write(tx, rid(page, 0), Some(value));
    }
    small.commit(tx);
}

fn values(small: &mut SmallHost, pages: u32) -> Vec<Value> {
    let tx = small.begin();
    let all = (0..pages)
        .map(|page| small.value(tx, rid(page, 0)))
        .collect();
    small.commit(tx);
    all
}

fn all(value: &[u8], pages: u32) -> Vec<Value> {
    vec![Some(value.to_vec()); pages as usize]
}

/// A host of three frames with an uncommitted transaction that has changed ten pages, most of which
/// are on flash with the changes.
fn loser() -> SmallHost {
    let mut small = with_frames(3);
    put(&mut small, 10, b"old");
    let tx = small.begin();
    for page in 0..10 {
        small.write(tx, rid(page, 0), Some(b"a loser's"));
    }
    assert!(small.host().stats().pages_stolen >= 7);
    small
}

/// Number of log records that a restart wrote.
fn records(small: &mut SmallHost) -> u64 {
    small.host().stats().log.records
}

#[test]
fn a_crash_in_undo_does_not_undo_anything_twice() {
    let mut clean = loser();
    clean.restart(None);
    let operations = clean.issued();
    assert!(operations > 10, "undo writes: {operations}");
    let mut once = 0;
    for at in 0..operations {
        for dice in [NOTHING, EVERYTHING, at * 977 + 3] {
            let mut small = loser();
            small.restart(cut(at, dice));
            assert_eq!(small.cut_restarts, 1, "at {at}");
            once += u64::from(records(&mut small) < records(&mut clean));
            assert!(records(&mut small) <= records(&mut clean), "at {at}");
            assert_eq!(values(&mut small, 10), all(b"old", 10), "at {at}");
        }
    }
    assert!(once > 0, "compensation that had reached the flash counts");
}

#[test]
fn a_compensation_record_is_never_undone() {
    // A complete undo, then a cut: the next restart finds everything compensated.
    let mut small = loser();
    small.restart(None);
    let first = records(&mut small);
    small.restart(None);
    let second = records(&mut small);
    assert!(first >= 10 && second < 10, "{first}, {second}");
    assert_eq!(values(&mut small, 10), all(b"old", 10));
    // The control undoes compensations, and the loser's values reappear.
    let config = HostConfig {
        frames: 3,
        mistake: Some(Mistake::UndoCompensation).into(),
        ..config()
    };
    let mut wrong = false;
    for at in 0.. {
        let mut small = loser();
        small.config = config.clone();
        small.restart(cut(at, EVERYTHING));
        if small.cut_restarts == 0 {
            break;
        }
        wrong |= values(&mut small, 10) != all(b"old", 10);
    }
    assert!(wrong, "the control passes");
}

/// Cuts the power at the `at`-th operation of a commit. Returns whether there was one.
fn cut_commit(small: &mut SmallHost, at: u64, dice: u64) -> bool {
    small.arm(cut(at, dice).expect("a cut"));
    let tx = small.begin();
    small.write(tx, rid(0, 0), Some(b"new"));
    let now = small.now;
    let fell = small.host().commit(now, tx).is_err();
    small.restart(None);
    fell
}

/// Number of operations of a restart without work.
fn idle_restart() -> u64 {
    let mut small = small();
    put(&mut small, 1, b"old");
    small.restart(None);
    small.restart(None);
    small.issued()
}

#[test]
fn a_torn_log_page_ends_the_log_before_it() {
    let at = idle_restart();
    let mut small = small();
    put(&mut small, 1, b"old");
    small.restart(None);
    assert!(cut_commit(&mut small, at, NOTHING));
    assert_eq!(values(&mut small, 1), all(b"old", 1));
}

#[test]
fn a_commit_record_that_is_durable_counts_though_nobody_was_told() {
    let at = idle_restart();
    let mut small = small();
    put(&mut small, 1, b"old");
    small.restart(None);
    assert!(cut_commit(&mut small, at, EVERYTHING));
    assert_eq!(values(&mut small, 1), all(b"new", 1));
}

#[test]
fn a_page_that_was_flushed_after_its_log_is_not_redone() {
    let mut small = with_frames(2);
    put(&mut small, 1, b"ab");
    let tx = small.begin();
    // Insert into the middle of a record: a repeated undo or redo would show.
    small.write(tx, rid(0, 0), Some(b"a-b"));
    small.commit(tx);
    for page in 1..4 {
        let tx = small.begin();
        small.value(tx, rid(page, 0));
        small.commit(tx);
    }
    assert!(small.host().stats().pages_written > 0);
    for _ in 0..3 {
        small.restart(None);
        assert_eq!(values(&mut small, 1), all(b"a-b", 1));
    }
}

#[test]
fn a_checkpoint_that_is_half_written_does_not_count() {
    for dice in [NOTHING, EVERYTHING, 8, 43, 90] {
        for at in 0.. {
            let mut small = small();
            small.config.settings.set("checkpoint_every", 1);
            put(&mut small, 5, b"old");
            small.restart(None);
            // A loser that the checkpoint lists, with its pages.
            small.arm(cut(at, dice).expect("a cut"));
            if small.cut_restarts > 0 {
                assert_eq!(values(&mut small, 5), all(b"old", 5));
                continue;
            }
            let loser = small.begin();
            small.write(loser, rid(9, 0), Some(b"a loser's"));
            let mut acknowledged = b'0';
            let mut asked = b'0';
            let mut fell = false;
            while !fell && asked < b'9' {
                let tx = small.begin();
                let now = small.now;
                asked += 1;
                let written = small.host().write(now, tx, rid(0, 0), Some(&[asked; 30]));
                fell = written.is_err();
                if !fell {
                    match small.host().commit(now, tx) {
                        Ok(Step::Done((), done)) => small.now = done,
                        _ => fell = true,
                    }
                }
                if !fell {
                    acknowledged = asked;
                }
            }
            if !fell {
                assert!(at > 10 && small.host().stats().checkpoints > 1);
                break;
            }
            small.restart(None);
            let found = values(&mut small, 10);
            let value = found[0].clone().expect("a record");
            let old = acknowledged == b'0' && value == b"old";
            assert!(old || value == [acknowledged; 30] || value == [asked; 30]);
            assert_eq!(found[1..5], all(b"old", 4));
            assert_eq!(found[9], None, "at {at}");
        }
    }
}

#[test]
fn the_ring_wraps_and_restarts_find_its_ends() {
    let mut small = small();
    for round in 0..400u32 {
        let tx = small.begin();
        for page in 0..3 {
            small.write(tx, rid((round + page) % 12, 0), Some(&round.to_le_bytes()));
        }
        small.commit(tx);
        if round % 7 == 0 {
            small.restart(None);
        }
    }
    let tx = small.begin();
    for page in 0..12u32 {
        let last = (0..400)
            .rev()
            .find(|r| (0..3).any(|p| (r + p) % 12 == page));
        let last: u32 = last.expect("each page was written");
        assert_eq!(
            small.value(tx, rid(page, 0)),
            Some(last.to_le_bytes().to_vec())
        );
    }
}

#[test]
fn what_a_live_delete_has_freed_stays_free_for_its_roll_back() {
    let mut small = small();
    let record = [7; 100];
    let tx = small.begin();
    small.write(tx, rid(0, 0), Some(&record));
    small.write(tx, rid(0, 1), Some(&record));
    small.commit(tx);
    let deletes = small.begin();
    small.write(deletes, rid(0, 0), None);
    let other = small.begin();
    let now = small.now;
    let refused = small.host().write(now, other, rid(0, 2), Some(&record));
    assert!(
        matches!(refused, Err(HostError::PageFull { .. })),
        "{refused:?}"
    );
    small.abort(deletes);
    // Meanwhile the room was taken.
    let refused = small.host().write(now, other, rid(0, 2), Some(&record));
    assert!(matches!(refused, Err(HostError::PageFull { .. })));
    small.abort(other);
    let tx = small.begin();
    assert_eq!(small.value(tx, rid(0, 0)), Some(record.to_vec()));
}

#[test]
fn a_full_log_costs_the_transaction_that_keeps_it_from_being_shortened() {
    let mut small = small();
    let idle = small.begin();
    small.write(idle, rid(19, 0), Some(b"idle"));
    let mut victim = None;
    let mut asked = idle;
    for round in 0..200u8 {
        let tx = small.begin();
        let now = small.now;
        match small.host().write(now, tx, rid(0, 0), Some(&[round; 60])) {
            Ok(Step::Done((), _)) => small.commit(tx),
            Ok(Step::Abort { victim: who, why }) => {
                victim = Some((who, why));
                asked = tx;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(victim, Some((idle, Why::LogFull)));
    small.abort(idle);
    small.write(asked, rid(0, 0), Some(b"goes on"));
    small.commit(asked);
    // A transaction too large even for an empty log gets an error.
    let tx = small.begin();
    let mut error = None;
    for round in 0..400u32 {
        let now = small.now;
        let value = [round as u8; 60];
        if let Err(found) = small
            .host()
            .write(now, tx, rid(round % 20, 1), Some(&value))
        {
            error = Some(found);
            break;
        }
    }
    assert_eq!(error, Some(HostError::LogFull { pages: 20 }));
    small.abort(tx);
    put(&mut small, 1, b"goes on");
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let mut small = small();
    let (now, tx) = (small.now, small.begin());
    let before = records(&mut small);
    let mut bytes = Vec::new();
    let pages = small.host().pages();
    let host = small.host();
    let beyond = host.read(now, tx, rid(pages, 0), &mut bytes);
    let page = Lpn(pages);
    assert_eq!(beyond, Err(HostError::OutOfRange { page, pages }));
    let limit = host.record_bytes_max();
    let long = host.write(now, tx, rid(0, 0), Some(&vec![0; limit + 1]));
    let bytes = limit + 1;
    assert_eq!(long, Err(HostError::RecordTooLong { bytes, limit }));
    let unknown = host.commit(now, TxId(99));
    assert_eq!(unknown, Err(HostError::NoTransaction(TxId(99))));
    let done = host.write(now, tx, rid(0, 0), Some(&vec![0; limit]));
    assert!(
        matches!(done, Ok(Step::Done(..))),
        "the longest fits: {done:?}"
    );
    small.commit(tx);
    let now = small.now;
    let over = small.host().abort(now, tx);
    assert_eq!(over, Err(HostError::NoTransaction(tx)));
    assert_eq!(
        records(&mut small),
        before + 4,
        "begin, insert, commit, end"
    );
}

#[test]
fn settings_that_do_not_work_are_named() {
    let wrong = |stack: &str, config: HostConfig| {
        let stack: Stack = stack.parse().expect("a stack");
        match config.check(stack) {
            Err(HostError::Config(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let few = HostConfig {
        frames: 1,
        ..config()
    };
    assert!(wrong("wal", few).contains("frames is 1"));
    let steal = false;
    let stays = HostConfig { steal, ..config() };
    assert!(wrong("wal", stays).contains("leave `steal` out"));
    let short = HostConfig {
        log_pages: 3,
        ..config()
    };
    assert!(wrong("wal", short).contains("log_pages is 3"));
    for (stack, name, value, says) in [
        (
            "cfc-ex",
            "max_c",
            9,
            "max_c of cfc-ex is `9`: use a number from 2 to 8",
        ),
        (
            "wal",
            "max_c",
            2,
            "wal has no setting `max_c`: use log_buffer_bytes",
        ),
        (
            "wal",
            "group_wait_us",
            1_000_001,
            "use a number from 0 to 1000000",
        ),
        (
            "afc-ex",
            "group_wait_us",
            1,
            "afc-ex has no setting `group_wait_us`",
        ),
        (
            "force:scc",
            "checkpoint_every",
            1,
            "force has no setting `checkpoint_every`: use flush_aborted",
        ),
    ] {
        let config = HostConfig::default().with(name, value);
        let why = wrong(stack, config);
        assert!(why.contains(says), "{why}");
    }
    let unknown = "force:nothing".parse::<Stack>().unwrap_err().to_string();
    assert!(unknown.contains("force:cfc"), "{unknown}");
    for stack in Stack::all() {
        assert_eq!(stack.to_string().parse(), Ok(stack));
    }
    // Too few log pages for a checkpoint of so many frames.
    let large = HostConfig {
        frames: 4000,
        ..config()
    };
    let opened = Host::open(
        Box::new(super::super::small_host::chip(Stack::Wal)),
        Stack::Wal,
        super::super::small_host::device(),
        &Options::default(),
        &large,
        Nanos::ZERO,
    );
    let why = opened.err().expect("it is refused").to_string();
    assert!(
        why.contains("a log for 4000 frames needs at least"),
        "{why}"
    );
}

/// A host with group commit, and `count` transactions that have each changed a page.
fn waiting(count: u32) -> (SmallHost, Vec<TxId>) {
    let config = config()
        .with("group_wait_us", 700)
        .with("log_buffer_bytes", 4096);
    let mut small = SmallHost::new(Stack::Wal, config);
    // Make the last end record the first in its log page, so that later records do not fill it.
    let payload = payload_of(256);
    for turn in 0.. {
        let bytes = small.host().stats().log.bytes;
        if bytes % payload == BARE {
            break;
        }
        let missing = payload - (bytes + 3 * BARE) % payload;
        let tx = small.begin();
        let value = vec![7; missing.min(90) as usize];
        small.write(tx, rid(10 + turn % 10, (turn / 10) as u16), Some(&value));
        small.commit(tx);
    }
    let txs: Vec<TxId> = (0..count).map(|_| small.begin()).collect();
    for (page, &tx) in (0..).zip(&txs) {
        small.write(tx, rid(page, 0), Some(b"x"));
    }
    small.host().reset_stats();
    (small, txs)
}

fn forces(small: &mut SmallHost) -> u64 {
    small.host().stats().log.forces
}

#[test]
fn commits_wait_for_each_other_but_not_where_nobody_else_runs() {
    let (mut small, txs) = waiting(2);
    let now = small.now;
    let mut commit = |tx| small.host().commit(now, tx).unwrap();
    assert_eq!(commit(txs[0]), Step::Waits);
    // The last running transaction has nobody to wait for, and completes the group.
    let Step::Done((), done) = commit(txs[1]) else {
        panic!("it is the last");
    };
    assert_eq!(forces(&mut small), 1);
    assert!(small.host().deadline() <= Some(now));
    let told = small.host().acknowledged(now, false).unwrap();
    assert_eq!(told, [(txs[0], done)]);
    assert_eq!(small.host().acknowledged(now, false), Ok(Vec::new()));
    assert_eq!(small.host().stats().committed, 2);
}

#[test]
fn who_has_waited_long_enough_or_is_forced_by_others_waits_no_longer() {
    let (mut small, txs) = waiting(2);
    let now = small.now;
    assert_eq!(small.host().commit(now, txs[0]), Ok(Step::Waits));
    let refused = small.host().abort(now, txs[0]);
    assert_eq!(refused, Err(HostError::NoTransaction(txs[0])));
    let due = small.host().deadline().unwrap();
    assert_eq!(due, now + Nanos::from_micros(700));
    let told = small.host().acknowledged(now, false);
    assert_eq!((told, forces(&mut small)), (Ok(Vec::new()), 0));
    let told = small.host().acknowledged(due, false).unwrap();
    assert!(told.len() == 1 && told[0].1 > due && forces(&mut small) == 1);

    // Evicted pages force the log, and the waiting commit is in it.
    let (mut small, txs) = waiting(2);
    let now = small.now;
    assert_eq!(small.host().commit(now, txs[0]), Ok(Step::Waits));
    for page in 2..9 {
        small.write(txs[1], rid(page, 0), Some(b"y"));
    }
    let (forced, now) = (forces(&mut small), small.now);
    assert!(forced > 0);
    let told = small.host().acknowledged(now, false).unwrap();
    assert_eq!((told.len(), forces(&mut small)), (1, forced));
}

#[test]
fn a_commit_that_waits_can_be_lost_and_a_checkpoint_does_not_undo_it() {
    for checkpoint in [false, true] {
        let (mut small, txs) = waiting(2);
        let now = small.now;
        assert_eq!(small.host().commit(now, txs[0]), Ok(Step::Waits));
        if checkpoint {
            // The other transaction is the loser. Its roll-back finds a checkpoint due.
            for round in 0..25u32 {
                small.write(txs[1], rid(5, 0), Some(&round.to_le_bytes()));
            }
            let third = small.begin();
            small.write(third, rid(9, 0), Some(b"z"));
            small.abort(third);
            assert!(small.host().stats().checkpoints > 0);
        }
        small.restart(None);
        let found = values(&mut small, 2);
        assert_eq!(found, [checkpoint.then(|| b"x".to_vec()), None]);
    }
}

/// Regression: each restart takes a checkpoint but wrote no pages out. So the log could not be
/// shortened, and it finally was full.
#[test]
fn restarts_one_after_the_other_do_not_fill_the_least_log() {
    let mut least = config();
    least.log_pages = least.log_pages_min(Stack::Wal, 256).unwrap();
    let mut small = SmallHost::new(Stack::Wal, least);
    for round in 0..40u8 {
        put(&mut small, 1, &[round]);
        for _ in 0..5 {
            small.restart(None);
            assert_eq!(values(&mut small, 1), all(&[round], 1));
        }
    }
}

#[test]
fn with_a_log_page_for_each_changed_page_a_commit_writes_so_many() {
    let written = |each: bool| {
        let config = HostConfig {
            log_pages: 40,
            ..config()
                .with("log_page_each", each)
                .with("log_buffer_bytes", 65_536)
                .with("checkpoint_every", 1_000)
        };
        let mut small = SmallHost::new(Stack::Wal, config);
        put(&mut small, 10, b"old");
        let before = small.host().stats().log.pages_written;
        put(&mut small, 10, b"new");
        let written = small.host().stats().log.pages_written - before;
        small.restart(None);
        assert_eq!(values(&mut small, 10), all(b"new", 10));
        written
    };
    let (own, shared) = (written(true), written(false));
    assert!((10..=12).contains(&own), "{own}");
    assert!(shared < 10, "the control: {shared}");
}
