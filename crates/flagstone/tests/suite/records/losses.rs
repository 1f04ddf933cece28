//! Scenarios that once lost acknowledged data. Each describes the state of the flash, and has a
//! switch that restores the mistake.

use super::*;

/// Page 0 has `records` committed records. One transaction changes all but the first and is rolled
/// back. Another changes the first and is about to commit. The power fails with `cut`.
fn about_to_commit(
    kind: RecordKind,
    mistake: Option<Mistake>,
    records: u16,
    cut: Option<Cut>,
) -> (Bench, TxId) {
    let mut bench = Bench::new(kind, 3, mistake);
    bench.write(0, 1, &vec![1; records.into()], &[]);
    bench.arm(cut);
    let (rolled_back, kept) = (bench.begin(), bench.begin());
    let others: Vec<SlotNo> = (1..records).collect();
    let pending = [(rolled_back, &others[..]), (kept, &[0])];
    bench.write(0, 2, &vec![2; records.into()], &pending);
    bench.abort(rolled_back);
    (bench, kept)
}

/// Tears the flag of the commit in many ways. The host has its log at the first restart but not at
/// the second. Returns how many of the outcomes lost the commit.
fn torn_losses(kind: RecordKind, mistake: Option<Mistake>, records: u16) -> usize {
    let (bench, _) = about_to_commit(kind, mistake, records, None);
    let at = bench.flash.look(PowerCut::issued);
    let mut right = vec![1; records.into()];
    right[0] = 2;
    let mut lost = 0;
    for dice in 0..64 {
        let torn = true;
        let cut = Some(Cut { at, dice, torn });
        let (mut bench, kept) = about_to_commit(kind, mistake, records, cut);
        let now = bench.now;
        assert!(bench.device().commit(now, kept).is_err(), "no cut");
        let mut found = |log: &[TxId]| {
            bench.restart(2, None).expect("there is no cut");
            let (now, log) = (bench.now, log.iter().copied().collect());
            bench.now = bench.device().resolve(now, &log).expect("it resolves");
            bench.values(0, records)
        };
        assert_eq!(found(&[kept]), right, "{kind}, {records} records, {dice}");
        lost += usize::from(found(&[]) != right);
    }
    lost
}

/// A page with many rolled back records grows when it is merged, because each restored record is
/// listed with its LSN. If it did not fit, a restart used to leave the torn flag of another
/// transaction in the page and to treat it as repaired. The host's log forgot the commit, and the
/// next restart believed the flag.
#[test]
fn d8_torn_flags_go_also_where_a_merged_page_would_be_too_large() {
    for kind in RecordKind::ALL {
        for records in [2, 8, 18, 20, 24] {
            let lost = torn_losses(kind, None, records);
            assert_eq!(lost, 0, "{kind}, {records} records");
            let lost = torn_losses(kind, Some(Mistake::TornFlagStays), records);
            assert!(lost > 0, "{kind}: the mistake does no harm");
        }
    }
}

/// A transaction writes two pages and commits at the same instant. The power fails while all of
/// that may be in flight. Returns the number of outcomes in which only one of the pages is present.
fn split_commits(kind: RecordKind, mistake: Option<Mistake>) -> usize {
    let committed = |cut: Option<Cut>| {
        let mut bench = Bench::new(kind, 3, mistake);
        bench.arm(cut);
        // Open a block on each plane, so that no page has to wait for an erase.
        for other in 30..34 {
            bench.write(other, 1, &[], &[]);
        }
        let (tx, now) = (bench.begin(), bench.now);
        for page in 0..2 {
            bench.write(page, 1, &[9], &[(tx, &[0])]);
            bench.now = now;
        }
        bench.commit(tx);
        bench.now = now;
        bench
    };
    let at = committed(None).flash.look(PowerCut::issued);
    let is_split = |&dice: &u64| {
        let torn = false;
        let mut bench = committed(Some(Cut { at, dice, torn }));
        let now = bench.now;
        let written = bench.device().write(now, Lpn(30), &[], &[]);
        assert!(written.is_err(), "no cut");
        bench.restart(2, None).expect("there is no cut");
        bench.resolve(&[]);
        bench.values(0, 1) != bench.values(1, 1)
    };
    (0..64).filter(is_split).count()
}

/// A host that logs its commits waits for the pages itself, so no campaign tests this rule.
#[test]
fn a_flag_waits_for_all_pages_of_its_transaction() {
    for kind in RecordKind::ALL {
        assert_eq!(split_commits(kind, None), 0, "{kind}");
        let split = split_commits(kind, Some(Mistake::NoBarrier));
        assert!(split > 0, "{kind}: the mistake does no harm");
    }
}

/// Prepares the first pages of a device. Returns the physical pages whose blocks are then
/// collected, all at one instant and in this order, and the value that the first record of each
/// logical page must have after a power cut during the collections.
type Scene = fn(&mut Bench) -> (Vec<Ppn>, Vec<u8>);

/// Runs a scene and its collections on a device of four planes. The power fails with `cut`.
fn played(
    (kind, mistake): (RecordKind, Option<Mistake>),
    scene: Scene,
    cut: Option<Cut>,
) -> (Bench, Vec<Ppn>, Vec<u8>) {
    let mut bench = Bench::on(Bench::chip_of(3, 4), kind, 3, mistake);
    bench.arm(cut);
    let (victims, right) = scene(&mut bench);
    (bench, victims, right)
}

fn collect_all(bench: &mut Bench, victims: &[Ppn]) {
    let now = bench.now;
    for &at in victims {
        let block = bench.device().geometry().block_of(at);
        let collected = bench.device().collect(now, block);
        collected.expect("the power is on");
    }
}

/// Cuts the power shortly after the collections of a scene have begun, with many outcomes of the
/// operations in flight. Returns how many of these leave a wrong value.
fn scene_losses(kind: RecordKind, mistake: Option<Mistake>, scene: Scene) -> usize {
    let (mut bench, victims, right) = played((kind, mistake), scene, None);
    collect_all(&mut bench, &victims);
    let at = bench.flash.look(PowerCut::issued);
    let lost = |&dice: &u64| {
        let torn = dice % 2 == 0;
        let cut = Some(Cut { at, dice, torn });
        let (mut bench, victims, _) = played((kind, mistake), scene, cut);
        collect_all(&mut bench, &victims);
        let soon = bench.now + Nanos::from_micros(400);
        let written = bench.device().write(soon, Lpn(30), &[], &[]);
        assert!(written.is_err(), "no cut");
        bench.restart(2, None).expect("there is no cut");
        bench.resolve(&[]);
        let mut pages = right.iter().enumerate();
        pages.any(|(page, &right)| bench.values(page as u32, 1)[0] != right)
    };
    (0..256).filter(lost).count()
}

fn holds_and_is_noticed(kind: RecordKind, scene: Scene) {
    assert_eq!(scene_losses(kind, None, scene), 0, "{kind}");
    let lost = scene_losses(kind, Some(Mistake::IssuedIsSafe), scene);
    assert!(lost > 0, "{kind}: the mistake does no harm");
}

impl Bench {
    /// The physical page with the newest version of a page.
    fn place(&mut self, page: u32) -> Ppn {
        let slot = self.device().ftl().slot(Lpn(page));
        slot.ppn().expect("it was written")
    }
}

/// A committed transaction has a TRUE flag in a dead page and a FALSE one in a live page. A
/// collection copies the live page with TRUE. The mistake was to forget the transaction then, so
/// that another collection erased the dead page while the copy was still in flight.
#[test]
fn d13_cfc_ex_remembers_flags_in_flight_of_what_it_forgets() {
    holds_and_is_noticed(RecordKind::CfcEx, |bench| {
        let (tx, other) = (bench.begin(), bench.begin());
        bench.write(0, 1, &[1, 1], &[(tx, &[0]), (other, &[1])]);
        bench.write(1, 2, &[1, 1], &[(tx, &[0])]);
        let victims = vec![bench.place(0), bench.place(1)];
        bench.commit(tx);
        bench.write(1, 3, &[1, 1], &[]);
        (victims, vec![1, 1])
    });
}

/// A committed transaction has a TRUE flag in a dead page and a FALSE one in a live page, which
/// also has a rolled back record. A collection merges the live page with the version before it into
/// one without entries. The mistake was to forget the transaction then: another collection erased
/// the dead page while the merged page was in flight. The same happened if a FALSE flag in a third,
/// dead page kept the transaction known.
#[test]
fn d13_cfc_ex_remembers_what_it_forgets_until_a_merged_page_is_there() {
    fn scene(bench: &mut Bench, third: bool) -> (Vec<Ppn>, Vec<u8>) {
        bench.write(0, 1, &[1, 1], &[]);
        let (tx, other) = (bench.begin(), bench.begin());
        bench.write(0, 2, &[2, 2], &[(tx, &[0]), (other, &[1])]);
        if third {
            bench.write(2, 3, &[2, 1], &[(tx, &[0])]);
        }
        bench.write(1, 4, &[2, 1], &[(tx, &[0])]);
        let victims = vec![bench.place(0), bench.place(1)];
        bench.commit(tx);
        bench.abort(other);
        for page in 1..=2 {
            bench.write(page, 5, &[2, 1], &[]);
        }
        (victims, vec![2, 2, 2])
    }
    holds_and_is_noticed(RecordKind::CfcEx, |bench| scene(bench, false));
    holds_and_is_noticed(RecordKind::CfcEx, |bench| scene(bench, true));
}

/// A transaction was rolled back. Its page with FALSE is dead. Its page with TRUE is live, because
/// it also belongs to another transaction; a collection copies it with FALSE. The mistake was that
/// another collection erased the dead page while the copy was still in flight.
#[test]
fn d13_afc_ex_waits_for_the_false_flag_of_a_copy() {
    holds_and_is_noticed(RecordKind::AfcEx, |bench| {
        for page in 0..2 {
            bench.write(page, 1, &[1, 1], &[]);
        }
        let (tx, other) = (bench.begin(), bench.begin());
        bench.write(2, 1, &[2], &[(other, &[0])]);
        for page in 0..2 {
            bench.write(page, 2, &[2, 2], &[(tx, &[0]), (other, &[1])]);
        }
        let victims = vec![bench.place(1), bench.place(0)];
        bench.abort(tx);
        bench.write(0, 3, &[1, 2], &[(other, &[1])]);
        (victims, vec![1, 1])
    });
}

/// A transaction was rolled back, and both its pages are dead: one has FALSE, the other TRUE. One
/// collection erases the page with TRUE, another the page with FALSE. Both erases were in flight,
/// and the cut undid only the erase of the page with TRUE.
#[test]
fn d13_afc_ex_erases_the_last_false_flag_after_all_others() {
    holds_and_is_noticed(RecordKind::AfcEx, |bench| {
        for page in 0..2 {
            bench.write(page, 1, &[1], &[]);
        }
        let (tx, other) = (bench.begin(), bench.begin());
        for page in 0..2 {
            bench.write(page, 2, &[2], &[(tx, &[0])]);
        }
        let victims = vec![bench.place(1), bench.place(0)];
        bench.abort(tx);
        bench.write(0, 3, &[1], &[]);
        bench.write(1, 4, &[3], &[(other, &[0])]);
        (victims, vec![1, 1])
    });
}
