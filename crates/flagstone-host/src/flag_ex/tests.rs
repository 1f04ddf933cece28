//! CFC_ex and AFC_ex: named scenarios, cut at every operation.

mod table;

use super::super::config::{Mistake, Stack};
use super::super::frame::Frame;
use super::super::log::{Log, LogPlace};
use super::super::machine::Machine;
use super::super::small_host::{SmallHost, Value, chip, config, device, is_power_loss, rid};
use super::super::tools::Tools;
use super::super::{HostConfig, HostError, Rid, Step, Why};
use super::{Before, FlagEx, Tx, record_options};
use flagstone::commit::{RecordDevice, RecordKind};
use flagstone::ftl::Operation;
use flagstone::nand::{Cut, small};
use flagstone::page::Page;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::{BTreeMap, BTreeSet};

fn stacks() -> [Stack; 2] {
    [Stack::CfcEx, Stack::AfcEx]
}

/// A step of a scenario. Transactions are numbered; a transaction begins with its first step.
#[derive(Debug, Clone, Copy)]
enum Act {
    Write(u8, u32, u16, u8),
    Delete(u8, u32, u16),
    /// Other pages take all frames.
    Evict,
    Commit(u8),
    Abort(u8),
}

use Act::{Abort, Commit, Delete, Evict, Write};

/// The history so far.
#[derive(Default)]
struct Story {
    txs: BTreeMap<u8, TxId>,
    writes: Vec<(u8, Rid, Value)>,
    committed: Vec<u8>,
    asked: Option<u8>,
}

impl Story {
    fn tx(&mut self, small: &mut SmallHost, tx: u8) -> Result<TxId, HostError> {
        if let Some(&known) = self.txs.get(&tx) {
            return Ok(known);
        }
        let now = small.now;
        let begun = small.host().begin(now)?;
        self.txs.insert(tx, begun);
        Ok(begun)
    }

    fn act(&mut self, small: &mut SmallHost, act: Act) -> Result<(), HostError> {
        let now = small.now;
        let step = match act {
            Write(tx, page, slot, value) => {
                let (id, rid) = (self.tx(small, tx)?, rid(page, slot));
                self.writes.push((tx, rid, Some(vec![value; 5])));
                small.host().write(now, id, rid, Some(&[value; 5]))?
            }
            Delete(tx, page, slot) => {
                let (id, rid) = (self.tx(small, tx)?, rid(page, slot));
                self.writes.push((tx, rid, None));
                small.host().write(now, id, rid, None)?
            }
            Evict => {
                let tx = small.host().begin(now)?;
                for page in 12..20 {
                    let now = small.now;
                    if let Step::Done((), done) = small.host().touch(now, tx, Lpn(page))? {
                        small.now = done;
                    }
                }
                let now = small.now;
                small.host().commit(now, tx)?
            }
            Commit(tx) => {
                let id = self.tx(small, tx)?;
                self.asked = Some(tx);
                let step = small.host().commit(now, id)?;
                self.committed.extend(self.asked.take());
                step
            }
            Abort(tx) => {
                let id = self.tx(small, tx)?;
                Step::Done((), small.host().abort(now, id)?)
            }
        };
        match step {
            Step::Done((), done) => small.now = done,
            other => panic!("{act:?}: {other:?}"),
        }
        Ok(())
    }

    /// The expected contents if `committed` are the committed transactions.
    fn right(&self, committed: &[u8]) -> BTreeMap<Rid, Vec<u8>> {
        let mut all = BTreeMap::new();
        for by in committed {
            for (_, rid, value) in self.writes.iter().filter(|(tx, ..)| tx == by) {
                match value {
                    Some(value) => all.insert(*rid, value.clone()),
                    None => all.remove(rid),
                };
            }
        }
        all
    }
}

fn play(small: &mut SmallHost, acts: &[Act]) -> Story {
    let mut story = Story::default();
    for &act in acts {
        match story.act(small, act) {
            Ok(()) => {}
            Err(error) if is_power_loss(&error) => break,
            Err(error) => panic!("{act:?}: {error}"),
        }
    }
    story
}

/// Plays a scenario on both stacks: once without a cut, then with a cut at each operation and
/// possibly another during the restart.
fn everywhere(acts: &[Act]) {
    for stack in stacks() {
        let far = Cut {
            at: u64::MAX,
            dice: 0,
            torn: false,
        };
        let mut small = SmallHost::new(stack, config());
        small.arm(far);
        let story = play(&mut small, acts);
        let issued = small.issued();
        small.restart(None);
        assert_eq!(small.contents(), story.right(&story.committed), "{stack}");
        for at in 0..issued {
            for dice in [6, 1, 0x1234, 0xabcd_ef01, 0x77_7777] {
                let torn = dice % 2 == 0;
                let mut small = SmallHost::new(stack, config());
                small.arm(Cut { at, dice, torn });
                let story = play(&mut small, acts);
                let again = Cut {
                    at: dice % 11,
                    dice: dice ^ at,
                    torn: !torn,
                };
                small.restart(Some(again));
                let found = small.contents();
                let sure = story.right(&story.committed);
                let mut all = story.committed.clone();
                all.extend(story.asked);
                let may = story.right(&all);
                assert!(
                    found == sure || found == may,
                    "{stack}, cut {at} with {dice:x}: {found:?}, not {sure:?} or {may:?}"
                );
                small.restart(None);
                assert_eq!(small.contents(), found, "{stack}, cut {at} with {dice:x}");
            }
        }
    }
}

/// Small transactions that make the log wrap around.
fn round(acts: &mut Vec<Act>) {
    for tx in 100..160 {
        acts.extend([Write(tx, 8, 0, tx), Write(tx, 9, 1, tx), Commit(tx)]);
    }
}

#[test]
fn r2_r3_a_transaction_partly_on_flash_and_partly_in_the_log() {
    let mut acts = vec![
        Write(0, 0, 0, 1),
        Write(0, 1, 0, 1),
        Evict,
        Write(0, 2, 0, 1),
        Write(0, 1, 1, 1),
        Commit(0),
    ];
    everywhere(&acts);
    round(&mut acts);
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let story = play(&mut small, &acts);
        assert!(small.host().stats().checkpoints > 4);
        for _ in 0..3 {
            small.restart(None);
            assert_eq!(small.contents(), story.right(&story.committed));
        }
    }
}

#[test]
fn r4_a_commit_that_is_only_in_the_log_survives_an_abort_over_it() {
    let mut acts = vec![
        Write(0, 0, 0, 1),
        Commit(0),
        Evict,
        Write(1, 0, 0, 2),
        Commit(1),
        Write(2, 0, 0, 3),
        Evict,
        Abort(2),
    ];
    everywhere(&acts);
    // Restored records have no page in the pool; checkpoints handle them.
    round(&mut acts);
    everywhere(&acts[..40]);
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let story = play(&mut small, &acts);
        small.restart(None);
        assert_eq!(small.contents(), story.right(&story.committed));
    }
}

#[test]
fn r5_an_old_log_record_does_not_overwrite_a_newer_commit_by_flags() {
    everywhere(&[
        Write(0, 0, 0, 1),
        Write(0, 0, 1, 1),
        Commit(0),
        Write(1, 0, 0, 2),
        Evict,
        Commit(1),
        Write(2, 0, 1, 3),
        Commit(2),
        Delete(3, 0, 0),
        Evict,
        Commit(3),
    ]);
}

#[test]
fn a_record_stays_pending_when_its_page_goes_out_again() {
    everywhere(&[
        Write(0, 0, 0, 1),
        Commit(0),
        Write(1, 0, 0, 5),
        Evict,
        Write(2, 0, 1, 6),
        Evict,
        Commit(2),
        Write(1, 0, 2, 7),
        Evict,
        Abort(1),
        Write(3, 0, 3, 8),
        Commit(3),
    ]);
}

/// The flag of an earlier commit may be durable later than the log of a later commit.
#[test]
fn a_page_waits_for_all_commits_that_are_in_it_not_for_the_last_one() {
    for mistake in [None, Some(Mistake::NewestCommit)] {
        let config = HostConfig {
            mistake: mistake.into(),
            ..config()
        };
        let mut flag_ex = blank(&config);
        let mut tools = Tools::new(&config, PAGE_BYTES, TxId(0)).expect("a blank device");
        for (tx, done) in [(TxId(1), Nanos(900)), (TxId(2), Nanos(400))] {
            let pages = BTreeSet::from([Lpn(0)]);
            let known = Tx {
                pages,
                ..Tx::default()
            };
            flag_ex.txs.insert(tx, known);
            flag_ex.committed(&mut tools, tx, done);
        }
        let at = flag_ex.committed_at(Nanos(100), Lpn(0));
        assert_eq!(at == Nanos(900), mistake.is_none());
    }
}

const PAGE_BYTES: usize = small::GEOMETRY.page_bytes as usize;

/// The machine of a blank device.
fn blank(config: &HostConfig) -> FlagEx {
    let flash = Box::new(chip(Stack::CfcEx));
    let kind = RecordKind::CfcEx;
    let options = record_options(kind, &config.settings).expect("settings of this manager");
    let device = RecordDevice::open(flash, kind, device(), &options, Nanos::ZERO);
    let place = LogPlace {
        first: Lpn(1),
        pages: 9,
        page_bytes: PAGE_BYTES,
        buffer_bytes: 600,
        checkpoint_bytes: 1024,
        padded: false,
    };
    let mut device = device.expect("a blank device");
    let log = Log::open(&mut device, Nanos::ZERO, place);
    let log = log.expect("a blank log").0;
    FlagEx::new(device, log, 600)
}

#[test]
fn d2_lsns_that_a_cut_took_back_are_not_used_again() {
    for stack in stacks() {
        for mistake in [None, Some(Mistake::NoGap)] {
            let config = HostConfig {
                mistake: mistake.into(),
                ..config()
            };
            let mut small = SmallHost::new(stack, config);
            // The page on flash has an LSN that the log never reached.
            let lost = [1, 2, 3, 4, 5].map(|slot| Write(0, 0, slot, 1));
            play(&mut small, &[&lost[..], &[Evict]].concat());
            small.restart(None);
            let story = play(&mut small, &[Write(1, 0, 0, 2), Commit(1)]);
            small.restart(None);
            let is_right = small.contents() == story.right(&[1]);
            assert_eq!(is_right, mistake.is_none(), "{stack}");
        }
    }
}

/// Fails if a restart with a smaller log buffer gives LSNs out that a page on flash is ahead of:
/// what has them would not be redone.
#[test]
fn d2_the_log_buffer_may_be_smaller_after_a_restart() {
    for stack in stacks() {
        let log_pages = 40;
        let config = HostConfig {
            log_pages,
            ..config()
        };
        let mut small = SmallHost::new(stack, config.with("log_buffer_bytes", 3000));
        let lost: Vec<Act> = (0..80).map(|n| Write(0, 0, 1 + n % 5, n as u8)).collect();
        play(&mut small, &[&lost[..], &[Evict]].concat());
        small.config.settings.set("log_buffer_bytes", 0);
        small.restart(None);
        let acts = [
            Write(1, 0, 0, 2),
            Commit(1),
            Evict,
            Write(2, 0, 1, 3),
            Commit(2),
        ];
        for acts in [&acts[..2], &acts[2..]] {
            play(&mut small, acts);
            small.restart(None);
        }
        let right = [(rid(0, 0), vec![2; 5]), (rid(0, 1), vec![3; 5])];
        assert_eq!(small.contents(), BTreeMap::from(right), "{stack}");
    }
}

/// Fails if a restart with a larger log buffer leaves a gap for which the log has no room.
#[test]
fn d2_the_log_buffer_may_be_larger_after_a_restart() {
    for stack in stacks() {
        let log_pages = 40;
        let config = HostConfig {
            log_pages,
            ..config()
        };
        let mut small = SmallHost::new(stack, config.with("log_buffer_bytes", 0));
        play(&mut small, &[Write(0, 0, 0, 1), Commit(0)]);
        let over = small.begin();
        small.write(over, rid(0, 0), Some(&[9; 5]));
        let mut right = BTreeMap::from([(rid(0, 0), vec![1; 5])]);
        for round in 0..400 {
            let (tx, now) = (small.begin(), small.now);
            let value = vec![round as u8; 60];
            let written = small.host().write(now, tx, rid(5, 0), Some(&value));
            let Ok(Step::Done((), done)) = written else {
                break;
            };
            small.now = done;
            small.commit(tx);
            right.insert(rid(5, 0), value);
        }
        small.config.settings.set("log_buffer_bytes", 3000);
        small.restart(None);
        assert_eq!(small.contents(), right, "{stack}");
    }
}

#[test]
fn two_records_of_a_transaction_in_a_page() {
    everywhere(&[
        Write(0, 0, 0, 1),
        Write(0, 0, 1, 1),
        Evict,
        Write(0, 0, 0, 2),
        Write(0, 1, 3, 2),
        Evict,
        Commit(0),
        Write(1, 0, 0, 3),
        Write(1, 0, 1, 3),
        Evict,
        Abort(1),
    ]);
}

#[test]
fn r10_records_that_the_commit_of_another_has_forced_are_not_redone() {
    everywhere(&[
        Write(0, 0, 0, 1),
        Write(1, 1, 0, 1),
        Commit(1),
        Write(0, 1, 1, 2),
        Write(2, 1, 2, 2),
        Commit(2),
        Evict,
    ]);
}

#[test]
fn r11_what_an_uncommitted_delete_frees_is_not_given_to_others() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let first = small.begin();
        small.write(first, rid(0, 0), Some(&[1; 100]));
        small.write(first, rid(0, 1), Some(&[1; 20]));
        small.commit(first);
        let (one, two) = (small.begin(), small.begin());
        small.write(one, rid(0, 0), None);
        let now = small.now;
        let full = small.host().write(now, two, rid(0, 1), Some(&[2; 126]));
        assert!(matches!(full, Err(HostError::PageFull { .. })), "{full:?}");
        let taken = small.host().write(now, two, rid(0, 0), Some(&[2; 1]));
        assert_eq!(taken, Ok(Step::Waits));
        small.abort(one);
        assert_eq!(small.value(two, rid(0, 1)), Some(vec![1; 20]));
        assert_eq!(small.value(two, rid(0, 0)), Some(vec![1; 100]));
    }
}

/// Fails if a page cannot be read whose committed copies on flash are larger than what is in the
/// log, or if an attempt to read it loses a commit.
#[test]
fn r4_records_that_were_larger_on_flash_come_back_from_an_abort() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let write = |small: &mut SmallHost, tx, value: &[u8]| {
            (0..3).for_each(|slot| small.write(tx, rid(0, slot), Some(value)));
        };
        let first = small.begin();
        write(&mut small, first, &[1; 60]);
        small.commit(first);
        play(&mut small, &[Evict]);
        // Only the log has these.
        let second = small.begin();
        write(&mut small, second, &[2; 5]);
        small.commit(second);
        let (third, over) = (small.begin(), small.begin());
        small.write(third, rid(0, 3), Some(&[3; 150]));
        write(&mut small, over, &[4; 5]);
        play(&mut small, &[Evict]);
        small.abort(over);
        small.commit(third);
        for restarts in [false, true] {
            if restarts {
                small.restart(None);
            }
            let reader = small.begin();
            let found = [0, 1, 2, 3].map(|slot| small.value(reader, rid(0, slot)));
            let right = [vec![2; 5], vec![2; 5], vec![2; 5], vec![3; 150]];
            assert_eq!(found, right.map(Some), "{stack}");
        }
    }
}

#[test]
fn a_checkpoint_that_is_cut_leaves_the_one_before() {
    let mut acts = Vec::new();
    round(&mut acts);
    let (begin, end) = (54, 90);
    everywhere(&acts[..end]);
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        play(&mut small, &acts[..begin]);
        let before = small.host().stats().checkpoints;
        play(&mut small, &acts[begin..end]);
        assert!(small.host().stats().checkpoints > before);
    }
}

/// Fails if a commit that is durable fails with the checkpoint after it, here of a page that cannot
/// be read.
#[test]
fn a_checkpoint_that_fails_is_no_failure_of_the_commit_before_it() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let lost = |small: &mut SmallHost| match &mut small.host().machine {
            Machine::FlagEx(flag_ex) => std::mem::take(&mut flag_ex.orphans),
            _ => panic!("it is that"),
        };
        let orphan = Before {
            value: None,
            fresh: Some(1),
        };
        let Machine::FlagEx(flag_ex) = &mut small.host().machine else {
            panic!("it is that");
        };
        flag_ex.orphans.insert(rid(1000, 0), orphan);
        let (mut acts, before) = (Vec::new(), small.host().stats().checkpoints);
        round(&mut acts);
        let story = play(&mut small, &acts[..90]);
        assert_eq!(small.host().stats().checkpoints, before);
        assert_eq!(lost(&mut small).len(), 1);
        let tx = small.begin();
        small.write(tx, rid(8, 0), Some(&[7; 5]));
        small.commit(tx);
        assert_eq!(small.host().stats().checkpoints, before + 1);
        let mut right = story.right(&story.committed);
        right.insert(rid(8, 0), vec![7; 5]);
        small.restart(None);
        assert_eq!(small.contents(), right, "{stack}");
    }
}

#[test]
fn r13_who_would_be_one_updater_too_many_waits() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let max_c = 3;
        let txs: Vec<TxId> = (0..=max_c).map(|_| small.begin()).collect();
        let (last, others) = txs.split_last().expect("there are some");
        for (slot, &tx) in others.iter().enumerate() {
            small.write(tx, rid(0, slot as u16), Some(b"x"));
        }
        let now = small.now;
        let (at, value) = (rid(0, 5), Some(&b"y"[..]));
        let waits = small.host().write(now, *last, at, value);
        assert_eq!(waits, Ok(Step::Waits));
        small.commit(others[0]);
        let now = small.now;
        small
            .host()
            .acknowledged(now, false)
            .expect("the power is on");
        assert_eq!(small.host().woken(), [*last]);
        small.write(*last, at, value);
        small.commit(*last);
    }
}

#[test]
fn a_commit_of_what_is_on_flash_takes_a_flag_and_no_log() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let mut story = Story::default();
        for act in [Write(0, 0, 0, 1), Write(0, 1, 0, 1), Evict] {
            story.act(&mut small, act).expect("the power is on");
        }
        let before = small.host().stats().log;
        story.act(&mut small, Commit(0)).expect("the power is on");
        assert_eq!(small.host().stats().log, before);
        let flags = small.host().ftl().stats().total(Operation::Reprogram);
        assert_eq!(flags, 1);
        small.restart(None);
        assert_eq!(small.contents(), story.right(&[0]));
    }
    everywhere(&[Write(0, 0, 0, 1), Write(0, 1, 0, 1), Evict, Commit(0)]);
}

/// Fails if a transaction can be rolled back once the log says that it has committed, or if it is
/// logged again when its commit is asked for again.
#[test]
fn a_commit_that_is_logged_cannot_be_taken_back_where_its_flags_could_not_be_set() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let tx = small.begin();
        small.write(tx, rid(0, 0), Some(&[1; 5]));
        let now = small.now;
        let flag_ex = |small: &mut SmallHost, enters: bool| {
            let Machine::FlagEx(flag_ex) = &mut small.host().machine else {
                panic!("it is that");
            };
            flag_ex.txs.get_mut(&tx).expect("it is live").entered = true;
            if enters {
                flag_ex.device.enter(tx).expect("it is new");
            }
        };
        // The device does not know the transaction yet.
        flag_ex(&mut small, false);
        assert!(small.host().commit(now, tx).is_err());
        let records = small.host().stats().log.records;
        assert_eq!(
            small.host().abort(now, tx),
            Err(HostError::NoTransaction(tx))
        );
        let more = small.host().write(now, tx, rid(0, 1), Some(&[2; 5]));
        assert_eq!(more, Err(HostError::NoTransaction(tx)));
        flag_ex(&mut small, true);
        small.commit(tx);
        assert_eq!(small.host().stats().log.records, records, "{stack}");
        small.restart(None);
        let right = BTreeMap::from([(rid(0, 0), vec![1; 5])]);
        assert_eq!(small.contents(), right, "{stack}");
    }
}

#[test]
fn a_log_that_an_old_commit_keeps_full_costs_the_transaction_over_it() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        play(&mut small, &[Write(0, 0, 0, 1), Commit(0)]);
        let over = small.begin();
        small.write(over, rid(0, 0), Some(&[9; 5]));
        let victim = (0..400).find_map(|round| {
            let (tx, now) = (small.begin(), small.now);
            let value = vec![round as u8; 60];
            match small.host().write(now, tx, rid(5, 0), Some(&value)) {
                Ok(Step::Done((), done)) => {
                    small.now = done;
                    small.commit(tx);
                    None
                }
                Ok(Step::Abort { victim, why }) => Some((victim, why)),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(victim, Some((over, Why::LogFull)));
        small.abort(over);
        let reader = small.begin();
        assert_eq!(small.value(reader, rid(0, 0)), Some(vec![1; 5]));
    }
}

/// Regression: a live transaction kept the log from being shortened, and others were told to abort
/// it. Each repeated request took a checkpoint, until the log had no room left for a restart.
#[test]
fn asking_again_for_a_full_log_takes_nothing_of_it() {
    for stack in stacks() {
        let mut small = SmallHost::new(stack, config());
        let first = [Write(1, 0, 0, 1), Commit(1), Write(2, 0, 0, 2)];
        let mut story = play(&mut small, &first);
        let full = |small: &mut SmallHost, tx, value: u8| {
            let now = small.now;
            let asked = small.host().write(now, tx, rid(1, 0), Some(&[value; 5]));
            match asked.clone().expect("it is an answer") {
                Step::Done((), done) => small.now = done,
                Step::Abort { why, .. } => assert_eq!(why, Why::LogFull),
                Step::Waits => panic!("nobody has the lock"),
            }
            matches!(asked, Ok(Step::Abort { .. }))
        };
        let now = small.now;
        let tx = small.host().begin(now).expect("it begins");
        let writes = (0..1000u32).take_while(|n| !full(&mut small, tx, *n as u8));
        assert!(writes.count() < 999, "{stack}: the log never fills");
        let written = small.host().stats().log.bytes;
        for _ in 0..1000 {
            assert!(full(&mut small, tx, 7), "{stack}: it is full");
        }
        assert_eq!(small.host().stats().log.bytes, written, "{stack}");
        small.restart(None);
        story.committed.retain(|by| *by == 1);
        assert_eq!(small.contents(), story.right(&story.committed), "{stack}");
    }
}
