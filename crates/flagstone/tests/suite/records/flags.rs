//! CFC_ex's flags while blocks are collected. Each test has a control that must fail.

use super::*;
use flagstone::ftl::{BlockState, Cause, Operation};
use flagstone::units::Pbn;

/// A form of CFC_ex.
#[derive(Clone, Copy, Default)]
struct Form {
    flags_all: bool,
    mistake: Option<Mistake>,
}

const PRINTED: Form = Form {
    flags_all: true,
    mistake: None,
};

const DEATHS_TRUSTED: Form = Form {
    flags_all: false,
    mistake: Some(Mistake::DeathsTrusted),
};

/// Commits a transaction of two pages. The one with the flag is dead; the other is about to be
/// overwritten. `others` are the numbers of other writes between the pages and after both. Also
/// returns the block of the flag.
fn one_dead_page(form: Form, others: [u64; 2], cut: Option<Cut>) -> (Bench, Pbn) {
    let mut options = options_of(3);
    options.flags_all = form.flags_all;
    let mut bench = Bench::with(Bench::chip(3), RecordKind::CfcEx, options, form.mistake);
    bench.arm(cut);
    let mut dice = Dice(1);
    let mut write_others = |bench: &mut Bench, count| {
        for _ in 0..count {
            bench.write(20 + dice.below(40) as u32, 4, &[99], &[]);
        }
    };
    bench.churn(3);
    let tx = bench.begin();
    bench.write(0, 1, &[9], &[(tx, &[0])]);
    write_others(&mut bench, others[0]);
    bench.write(1, 2, &[9], &[(tx, &[0])]);
    bench.commit(tx);
    let ftl = bench.device().ftl();
    let flagged = ftl.slot(Lpn(1)).ppn().expect("it was written");
    let flagged = ftl.geometry().block_of(flagged);
    bench.write(1, 3, &[9], &[]);
    write_others(&mut bench, others[1]);
    (bench, flagged)
}

/// Overwrites the second page, as a page that waits for a commit, while others are written, until
/// the power fails.
fn supersede(bench: &mut Bench) {
    let image = image(5, &[9]);
    let mut now = bench.now;
    let later = now + Nanos::from_micros(600);
    let mut going = bench.device().write(later, Lpn(0), &image, &[]).is_ok();
    for other in 20..24 {
        going = going && bench.device().write(now, Lpn(other), &[], &[]).is_ok();
        now += Nanos::from_micros(50);
    }
}

/// The number of cuts during the collection of the flag's block while the other page is in flight,
/// and how many of them lose a committed record.
fn losses(form: Form) -> (usize, usize) {
    let (mut cuts, mut lost) = (0, 0);
    for others in (0..12).flat_map(|between| (0..80).map(move |after| [between, after])) {
        let (mut bench, flagged) = one_dead_page(form, others, None);
        let issued = bench.flash.look(PowerCut::issued);
        let is_there = |bench: &mut Bench| {
            let state = bench.device().ftl().blocks().state(flagged);
            state == BlockState::Full
        };
        let before = is_there(&mut bench);
        supersede(&mut bench);
        if !before || is_there(&mut bench) {
            continue;
        }
        for at in issued..bench.flash.look(PowerCut::issued) {
            for dice in 0..12 {
                let torn = false;
                let cut = Cut { at, dice, torn };
                let (mut bench, _) = one_dead_page(form, others, Some(cut));
                supersede(&mut bench);
                bench.restart(2, None).expect("there is no cut");
                bench.resolve(&[]);
                cuts += 1;
                lost += usize::from([0, 1].map(|page| bench.values(page, 1)[0]) != [9; 2]);
            }
        }
    }
    (cuts, lost)
}

#[test]
fn d12_the_last_flag_goes_after_what_superseded_the_other_pages_is_durable() {
    for form in [Form::default(), PRINTED] {
        let (cuts, lost) = losses(form);
        assert!(cuts > 500 && lost == 0, "{lost} of {cuts} cuts");
    }
    let (_, lost) = losses(DEATHS_TRUSTED);
    assert!(
        lost > 0,
        "a version that is believed dead too early does no harm"
    );
}

#[test]
fn d12_a_flag_is_handed_on_to_a_live_page_and_as_printed_to_a_dead_one_too() {
    let handed_on = |form, superseded: bool| {
        let flags = |others| {
            let (mut bench, _) = one_dead_page(form, [others, 0], None);
            if superseded {
                bench.write(0, 5, &[9], &[]);
            }
            bench.churn(30);
            let stats = bench.device().stats();
            stats.count(Operation::Reprogram, Cause::Gc)
        };
        (0..12).map(flags).sum::<u64>()
    };
    assert!(
        handed_on(Form::default(), false) > 0,
        "no flag is handed on"
    );
    assert_eq!(handed_on(Form::default(), true), 0);
    assert!(handed_on(PRINTED, true) > 0, "no dead page is flagged");
}
