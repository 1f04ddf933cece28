//! Campaigns that try every landing of every cut of small runs, and collections in steps.

use super::campaign::{campaign, comes_again, finds, holds, stacks};
use flagstone::commit::{Kind, Mistake};
use flagstone_campaign::campaign::{Campaign, Cuts, Faults, Sabotage};

/// Every landing of every cut of a few small runs.
fn landings(kind: Kind, ahead: bool) -> Campaign {
    Campaign {
        cuts: Cuts::Landings(1),
        depth: 1,
        ahead,
        faults: Faults::default(),
        ..campaign(kind)
    }
}

#[test]
fn every_landing_of_every_cut_of_small_runs_is_survived() {
    for (kind, variant) in stacks() {
        for ahead in [false, true] {
            let is_seal = matches!(kind, Kind::Seal | Kind::SealR);
            // The others have no collections in steps, and longer runs of the same kind in CI.
            if !is_seal && (ahead || variant.is_some() || kind == Kind::Aw) {
                continue;
            }
            // SCC has less in flight: it waits before the second version of a page, and for erases.
            let runs = if kind == Kind::Scc { 2 } else { 1 };
            let findings = holds(&Campaign {
                variant,
                cuts: Cuts::Landings(runs),
                ..landings(kind, ahead)
            });
            let work = findings.work;
            assert_eq!(work.points, 40 * runs, "{kind}");
            // Groups and logs have more in flight than can be tried in every combination.
            let most = if is_seal { work.points / 2 } else { 0 };
            assert!(work.points_whole > most, "{kind}: {work:?}");
            assert!(work.cuts > 4 * work.points, "{kind}: {work:?}");
            assert!(work.collections > 0 || !is_seal, "{kind}: {work:?}");
        }
    }
}

#[test]
fn every_landing_of_two_cuts_in_a_row_is_survived() {
    let findings = holds(&Campaign {
        depth: 2,
        ..landings(Kind::Seal, true)
    });
    assert!(findings.work.points > 400, "{:?}", findings.work);
}

#[test]
fn among_all_landings_are_those_that_rules_of_seal_are_for() {
    for (mistake, name) in [
        (Mistake::EvidenceDropped, "evidence-dropped"),
        (Mistake::RootNotWaited, "root-not-waited"),
        (Mistake::ListIgnored, "list-ignored"),
    ] {
        let campaign = Campaign {
            cuts: Cuts::Landings(64),
            sabotage: Sabotage::Seal(mistake),
            ..landings(Kind::Seal, mistake == Mistake::EvidenceDropped)
        };
        comes_again(&finds(name, &campaign));
    }
}

#[test]
fn collections_in_steps_survive_cuts_and_rules_left_out_are_found() {
    for kind in [Kind::Seal, Kind::SealR] {
        let ahead = Campaign {
            ahead: true,
            ..campaign(kind)
        };
        let findings = holds(&ahead);
        assert!(findings.work.collections > 200, "{kind}");
        let all = Campaign {
            cuts: Cuts::Sampled(60_000),
            ..ahead
        };
        for mistake in [
            Mistake::EvidenceDropped,
            Mistake::LiveResolved,
            Mistake::LiveSealed,
            Mistake::WitnessIgnored,
        ] {
            let sabotage = Sabotage::Seal(mistake);
            finds(
                &format!("{mistake:?} under {kind}"),
                &Campaign {
                    sabotage,
                    ..all.clone()
                },
            );
        }
    }
}
