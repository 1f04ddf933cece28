//! Failure cases of counted transactions in zones, each with the right outcome, and with that of
//! the printed form if it is wrong.
//!
//! Codes       D5 of [`lighttx`]

use crate::small_device::{EVERYTHING, FILLER, NOTHING, PAGES, Small, chip, form, unwaited};
use flagstone::commit::{DeviceError, Kind, Options};
use flagstone::forward_flash;
use flagstone::ftl::{Config, Header, Operation, header};
use flagstone::nand::{Cut, Flash, FlashError, PowerCut, Shared};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn};
use std::sync::{Arc, Mutex};

fn light(as_published: bool) -> Small {
    Small::new(Kind::LightTx, form(as_published).with("zone_blocks", 6))
}

/// Writes until the zones have slid.
fn slide(small: &mut Small) {
    let before = small.checkpoints();
    while small.checkpoints() == before {
        small.fill(1);
    }
}

#[test]
fn leftovers_of_an_aborted_transaction_are_not_counted_with_those_of_another() {
    let mut small = light(false);
    let aborted = small.open(5, &[0, 1, 2]);
    small.abort(aborted);
    let mut small = small.restart(EVERYTHING);
    let next = small.open(7, &[0, 1, 2]);
    assert!(next > aborted, "{next} would be counted with {aborted}");
    small.commit(next);
    assert_eq!(small.restart(NOTHING).values(3), [7; 3]);
}

/// A dead transaction that wrote A still has a page in a block that is not full; another one has
/// rewritten A.
fn l2(filler: u32) -> u8 {
    let mut small = light(false);
    small.fill(filler);
    let dead = small.open(7, &[0, 1]); // Programs page 0.
    small.put(&[(FILLER, 1)]);
    small.commit(dead);
    small.put(&[(0, 9)]);
    small.fill(5);
    small.restart(EVERYTHING).value(0)
}

/// Like [`l2`], with a copy of A, which counts as a separate transaction: the copy is in the
/// collector's open block, while the block of the transaction that rewrote A has left the zones.
fn copy(as_published: bool) -> u8 {
    let mut small = light(as_published);
    small.put(&[(0, 7)]);
    // Blocks without valid pages are collected until wear levelling moves the page.
    let first = small.slot(0);
    while small.slot(0) == first {
        small.fill(1);
    }
    small.put(&[(0, 9)]);
    slide(&mut small);
    slide(&mut small);
    small.restart(EVERYTHING).value(0)
}

#[test]
fn a_dead_transaction_that_is_still_in_the_zones_does_not_come_back() {
    for filler in 0..40 {
        assert_eq!(l2(filler), 9, "after {filler} other transactions");
    }
    assert_eq!(copy(false), 9);
    assert_eq!(copy(true), 7, "as printed, D1 is missing");
}

fn l3(as_published: bool, filler: u32) -> u8 {
    let mut small = light(as_published);
    small.fill(filler);
    small.put(&[(0, 1), (0, 2)]);
    small.restart(NOTHING).value(0)
}

#[test]
fn of_two_writes_of_a_page_in_one_transaction_the_later_counts() {
    for filler in 0..4 {
        assert_eq!(l3(false, filler), 2);
    }
    let lost = (0..4).filter(|&filler| l3(true, filler) != 2).count();
    assert!(lost > 0, "as printed, D2 is missing");
}

#[test]
fn blocks_in_the_zones_are_not_collected() {
    let mut small = light(false);
    let long = small.open(3, &[0, 1, 2, 3, 4, 5]);
    small.fill(700);
    small.check();
    assert!(small.device().stats().collections > 50);
    assert_eq!(small.value_in(Some(long), 2), 3);
    small.commit(long);
    assert_eq!(small.restart(NOTHING).values(6), [3; 6]);
}

#[test]
fn a_copy_of_a_page_that_is_written_again_does_not_win() {
    let mut small = light(false);
    (0..PAGES).for_each(|at| small.put(&[(at, 1)]));
    // The rest of its block becomes dead, and the page is copied.
    let first = small.slot(0);
    small.churn(1..PAGES, |device| device.ftl().slot(Lpn(0)) != first);
    small.put(&[(0, 2)]);
    let mut small = small.restart(NOTHING);
    assert_eq!(small.value(0), 2);
    // The copy alone counts as well.
    let second = small.slot(0);
    small.churn(1..PAGES, |device| device.ftl().slot(Lpn(0)) != second);
    assert_eq!(small.restart(NOTHING).value(0), 2);
}

#[test]
fn commits_after_a_restart_come_after_those_before_it() {
    for filler in [0, 1, 5] {
        let mut small = light(false);
        small.put(&[(0, 1), (1, 1)]);
        small.fill(filler);
        let mut small = small.restart(NOTHING);
        small.put(&[(0, 2)]);
        let mut small = small.restart(NOTHING);
        small.put(&[(1, 3)]);
        assert_eq!(small.restart(NOTHING).values(2), [2, 3]);
    }
}

#[test]
fn a_transaction_of_one_page_that_aborts_leaves_nothing_on_flash() {
    let mut small = light(false);
    small.fill(1);
    let programs = small.device().stats().total(Operation::Program);
    small.roll_back(1, &[0]);
    assert_eq!(small.device().stats().total(Operation::Program), programs);
    assert_eq!(small.value(0), 0);
}

#[test]
fn d5_a_trim_holds_across_slides_and_restarts() {
    for slides in 0..3 {
        let mut small = light(false);
        small.put(&[(0, 1), (1, 1)]);
        slide(&mut small);
        let tx = small.begin();
        small.trim(tx, 0);
        assert_eq!([0, 1].map(|at| small.value_in(Some(tx), at)), [0, 1]);
        small.commit(tx);
        (0..slides).for_each(|_| slide(&mut small));
        let mut small = small.restart(NOTHING);
        assert_eq!(small.values(2), [0, 1]);
        slide(&mut small);
        small.check();
        assert_eq!(small.restart(NOTHING).values(2), [0, 1]);
    }
}

#[test]
fn overlapping_transactions_count_in_the_order_of_their_commits() {
    let mut small = light(false);
    let (first, second) = (small.begin(), small.begin());
    small.write(first, 0, 1);
    small.write(second, 0, 2);
    small.write(first, 1, 1);
    small.write(second, 1, 2);
    small.commit(second);
    assert_eq!(small.value(0), 2);
    assert_eq!(small.value_in(Some(first), 0), 1);
    small.commit(first);
    assert_eq!(small.restart(NOTHING).values(2), [1, 1]);
}

#[test]
fn recovery_reads_the_zones_only() {
    let mut small = light(false);
    small.fill(300);
    let mut small = small.restart(NOTHING);
    let reads = small.device().stats().total(Operation::Read);
    // Roots and mapping pages, then at most a summary or five pages of the blocks in the zones.
    let blocks = 2 * 6 + 4;
    assert!(reads < 3 * 5 + 40 + blocks * 6, "{reads} reads");
}

#[test]
fn a_transaction_that_finds_the_device_full_leaves_nothing_behind() {
    let options = Options::default().with("zone_blocks", 6);
    assert!(Small::gives_up_cleanly(Kind::LightTx, &options));
}

/// The instant and the logical page of each program.
type Programs = Arc<Mutex<Vec<(Nanos, Lpn)>>>;

/// Flash on which the last page of a transaction takes 50 ms longer than other pages.
struct SlowCommits {
    flash: Shared<PowerCut>,
    programs: Programs,
}

impl Flash for SlowCommits {
    forward_flash!([flash] but program);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.flash.program(now, at, data, spare)?;
        let Some(head) = Header::parse(spare).filter(|head| head.is_version()) else {
            return Ok(done);
        };
        let mut programs = self.programs.lock().expect("no thread panics here");
        programs.push((now, head.lpn));
        let (_, tail) = spare.split_at(header::SIZE);
        // Its TxID and its TxCnt: both are there in the last page of a transaction only.
        let is_last = tail[..4] != [0; 4] && tail[4..8] != [0; 4];
        Ok(done + Nanos::from_micros(if is_last { 50_000 } else { 0 }))
    }
}

/// A copy counts by itself. So no page may be copied while the commit of its transaction is in
/// flight, not even if the zones slide and a block is collected at the instant of the commit.
#[test]
fn no_page_is_copied_before_its_commit_is_durable() {
    for kind in [Kind::LightTx, Kind::MhlD] {
        let programs = Programs::default();
        let own = Arc::clone(&programs);
        let (config, options) = (Config::small(PAGES, None), unwaited(kind));
        let mut small = Small::over(chip(), config, kind, options, move |flash| {
            let programs = Arc::clone(&own);
            Box::new(SlowCommits { flash, programs })
        });
        let pages: Vec<u32> = (0..14).collect();
        let tx = small.open(7, &pages);
        let now = small.now;
        small.commit(tx);
        let (durable, slides) = (small.now, small.checkpoints() + 2);
        while small.checkpoints() < slides {
            small.now = now;
            small.fill(1);
        }
        let programmed = programs.lock().expect("no thread panics here").len();
        for block in (0..small.device().geometry().blocks()).map(Pbn) {
            small.device().collect(now, block).expect("there is room");
        }
        let copies = programs
            .lock()
            .expect("no thread panics here")
            .split_off(programmed);
        let mut copies = copies.iter().filter(|(_, lpn)| pages.contains(&lpn.0));
        assert!(copies.clone().count() > 3, "{kind}");
        assert!(
            copies.all(|&(at, _)| at >= durable),
            "{kind}: {durable}, {copies:?}"
        );
    }
}

/// Writes outside of transactions (TxCnt 1, no TxID), between transactions that write the same
/// page: the last acknowledged value of page 0, and one whose write was asked for, before the power
/// fails. With `early`, for a control, a write is acknowledged when it is asked for.
fn outside(kind: Kind, small: &mut Small, early: bool) -> (u8, Option<u8>) {
    let mut last = 0;
    for value in 1..30 {
        if early {
            last = value;
        }
        let now = small.now;
        let done = if value % 3 == 0 {
            small.try_put(&[(0, value), (value.into(), value)])
        } else {
            let done = small.device().write_outside(now, Lpn(0), &[value]);
            done.map(|done| small.now = done)
        };
        if done.is_err() {
            return (last, (!early).then_some(value));
        }
        last = value;
        assert_eq!(small.value(0), value, "{kind}");
    }
    (last, None)
}

#[test]
fn a_write_outside_of_transactions_counts_by_itself() {
    for kind in [Kind::LightTx, Kind::MhlD] {
        let lost = |early: bool| {
            let (mut lost, mut cuts) = (0, 0);
            for at in 1..120 {
                for dice in [NOTHING, EVERYTHING, at] {
                    let small = Small::new(kind, unwaited(kind));
                    let torn = dice == at;
                    let mut small = small.arm(Cut { at, dice, torn });
                    let (last, asked) = outside(kind, &mut small, early);
                    if small.now == Nanos::ZERO {
                        continue;
                    }
                    let found = small.restart(dice).value(0);
                    cuts += 1;
                    lost += u32::from(found != last && Some(found) != asked);
                }
            }
            assert!(cuts > 300, "{kind}");
            lost
        };
        assert_eq!(lost(false), 0, "{kind}");
        assert!(lost(true) > 0, "{kind}: the control");
    }
    let mut small = light(false);
    let now = small.now;
    small
        .device()
        .write_outside(now, Lpn(0), &[1])
        .expect("it is taken");
    let at = small.slot(0).ppn().expect("it is mapped");
    let mut spare = [0; header::SIZE + 8];
    small.device().ftl().peek(at, &mut [], &mut spare);
    let (id, count) = ([0; 4], [1, 0, 0, 0]);
    assert_eq!(spare[header::SIZE..], [id, count].concat(), "TxID, TxCnt");
    let mut small = Small::new(Kind::Seal, Options::default());
    let refused = small.device().write_outside(Nanos::ZERO, Lpn(0), &[1]);
    assert_eq!(
        refused,
        Err(DeviceError::TransactionsOnly { protocol: "seal" })
    );
}
