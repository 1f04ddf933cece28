//! Links and flags of CFC_ex when blocks are collected, and the table of entries, each with the
//! control that has to fail.

use super::super::book::{Book, Owned};
use super::*;
use crate::ftl::{BlockState, Cause, Operation};

/// A transaction with a dead page whose link leads to another block, and with a page in flight;
/// before and after the dead page there are so many other writes.
fn with_a_page_in_flight(flaws: Flaws, others: [u32; 2], cut: Option<Cut>) -> (Bench, TxId) {
    let mut bench = Bench::new(RecordKind::CfcEx, 3, flaws);
    bench.resolve(&[]);
    bench.restart(2, cut).expect("it opens");
    bench.resolve(&[]);
    let tx = bench.begin();
    bench.write(0, 1, &[9], &[(tx, &[0])]);
    bench.churn(3);
    let write_others = |bench: &mut Bench, count| {
        for other in 0..count {
            bench.write(20 + other % 40, 4, &[99], &[]);
        }
    };
    write_others(&mut bench, others[0]);
    bench.write(1, 2, &[8], &[(tx, &[0])]);
    bench.write(1, 3, &[9], &[(tx, &[0])]);
    write_others(&mut bench, others[1]);
    let now = bench.now;
    bench.write(2, 4, &[9], &[(tx, &[0])]);
    bench.now = now;
    (bench, tx)
}

/// Commits, and writes other pages meanwhile, until the power fails.
fn commit_among_others(bench: &mut Bench, tx: TxId) {
    let mut now = bench.now;
    let mut going = bench.device().commit(now, tx).is_ok();
    for other in 20..24 {
        going = going && bench.device().write(now, Lpn(other), &[], &[]).is_ok();
        now += Nanos::from_micros(50);
    }
}

/// How many cuts during a commit leave a part of the transaction.
fn parts(flaws: Flaws) -> (usize, usize) {
    let (mut cuts, mut parts) = (0, 0);
    // Where the dead page is collected during the commit, among others.
    for others in (0..8).flat_map(|before| (100..130).map(move |after| [before, after])) {
        let (mut bench, tx) = with_a_page_in_flight(flaws, others, None);
        let issued = bench.flash.look(PowerCut::issued);
        let count = |bench: &mut Bench| {
            let stats = bench.device().stats();
            stats.count(Operation::Reprogram, Cause::Gc)
        };
        let flags = count(&mut bench);
        commit_among_others(&mut bench, tx);
        if count(&mut bench) == flags {
            continue;
        }
        for at in issued..bench.flash.look(PowerCut::issued) {
            for dice in 0..24 {
                let torn = false;
                let cut = Some(Cut { at, dice, torn });
                let (mut bench, tx) = with_a_page_in_flight(flaws, others, cut);
                commit_among_others(&mut bench, tx);
                bench.restart(2, None).expect("there is no cut");
                bench.resolve(&[]);
                let values = [0, 1, 2].map(|page| bench.values(page, 1)[0]);
                cuts += 1;
                parts += usize::from(values != [9; 3] && values != [0; 3]);
            }
        }
    }
    (cuts, parts)
}

#[test]
fn a_flag_is_not_handed_on_before_its_commit_is_durable() {
    let right = Flaws::default();
    let (cuts, some) = parts(right);
    assert!(cuts > 500 && some == 0, "{some} of {cuts} cuts");
    let move_early = true;
    let (_, some) = parts(Flaws {
        move_early,
        ..right
    });
    assert!(some > 0, "a flag that is handed on early does no harm");
}

/// A transaction's chain of two pages, where the one that the other links to is erased, and what it
/// writes after so many other writes. Says whether that is at the place of the one that was erased.
fn link_to_an_erased_page(flaws: Flaws, others: u32) -> (Bench, TxId, bool) {
    let mut bench = Bench::new(RecordKind::CfcEx, 3, flaws);
    bench.resolve(&[]);
    let place = |bench: &mut Bench, at| {
        let slot = bench.device().ftl().slot(Lpn(at));
        slot.ppn().expect("it was written")
    };
    let tx = bench.begin();
    bench.write(0, 1, &[3], &[(tx, &[0])]);
    bench.write(1, 2, &[4], &[(tx, &[0])]);
    let target = place(&mut bench, 0);
    bench.write(0, 3, &[5], &[]);
    let block = bench.device().geometry().block_of(target);
    bench.churn_until(|device| device.ftl().block_state(block) == BlockState::Free);
    for other in 0..others {
        bench.write(20 + other % 40, 4, &[99], &[]);
    }
    bench.write(2, 5, &[6], &[(tx, &[0])]);
    let again = place(&mut bench, 2) == target;
    (bench, tx, again)
}

/// C2 of the page-level protocol: the links of a transaction closed a ring, none of its entries was
/// a head, and what the log committed was lost with the log.
#[test]
fn d6_a_link_does_not_lead_to_what_was_written_later_at_the_same_place() {
    let right = Flaws::default();
    let trusting = Flaws {
        trust_links: true,
        ..right
    };
    let hits = (0..150).filter(|&others| link_to_an_erased_page(right, others).2);
    let hits: Vec<u32> = hits.collect();
    assert!(
        !hits.is_empty(),
        "no write was at the place that a link names"
    );
    for others in hits {
        let outcome = |flaws| {
            let (mut bench, tx, _) = link_to_an_erased_page(flaws, others);
            bench.restart(2, None).expect("there is no cut");
            let (now, logged) = (bench.now, BTreeSet::from([tx]));
            let done = bench.device().resolve(now, &logged);
            bench.now = done.expect("the power is on");
            bench.restart(2, None).expect("there is no cut");
            bench
                .device()
                .resolve(Nanos::ZERO, &BTreeSet::new())
                .expect("it resolves");
            [1, 2].map(|page| bench.values(page, 1)[0])
        };
        assert_eq!(outcome(right), [4, 6], "after {others} other writes");
        assert_eq!(outcome(trusting), [0, 0], "after {others} other writes");
    }
}

#[test]
fn d11_a_table_that_differs_from_flash_is_noticed() {
    for kind in RecordKind::ALL {
        let mut bench = Bench::new(kind, 3, Flaws::default());
        bench.resolve(&[]);
        let tx = bench.begin();
        bench.write(0, 1, &[1], &[(tx, &[0])]);
        let ftl = bench.device().ftl();
        let mut book = Book::new(ftl);
        assert_eq!(book.check(ftl, |_| true), Ok(()));
        assert!(book.check(ftl, |_| false).is_err(), "an entry is missing");
        let at = ftl.slot(Lpn(0)).ppn().expect("it was written");
        let seq = ftl.last_seq() as u32;
        let right = Owned {
            tx,
            member: Member { at, seq, index: 0 },
            link: None,
            flag: 0xff,
        };
        book.note(right);
        assert_eq!(book.check(ftl, |_| false), Ok(()));
        book.note(Owned { flag: 0, ..right });
        assert!(book.check(ftl, |_| true).is_err(), "a flag differs");
        let index = 1;
        let member = Member {
            index,
            ..right.member
        };
        book.note(right);
        book.note(Owned { member, ..right });
        assert!(
            book.check(ftl, |_| true).is_err(),
            "an entry is not on flash"
        );
    }
}
