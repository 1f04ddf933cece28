//! Databases with settings that few use, and the rules of recovery managers, each left out once.

use super::campaign::{campaign_on, finds, holds};
use flagstone::commit::Kind;
use flagstone_campaign::campaign::{Campaign, Cuts, Faults, Sabotage, Subject};
use flagstone_host::{Mistake, Stack};

/// Clients of a database; nothing goes wrong but cuts.
fn database(stack: Stack) -> Campaign {
    Campaign {
        cuts: Cuts::Sampled(800),
        faults: Faults::default(),
        ..campaign_on(Subject::Stack(stack))
    }
}

#[test]
fn databases_with_unusual_settings_survive_three_cuts_in_a_row() {
    for stack in Stack::all() {
        if stack != Stack::Force(Kind::Plain) {
            let campaign = Campaign {
                unusual: true,
                ..database(stack)
            };
            let work = holds(&campaign).work;
            assert!(
                work.collections > 200 && work.waits > 1_000,
                "{stack}: {work:?}"
            );
        }
    }
}

/// Others show seldom, or only with other faults. They have tests of their own.
#[test]
fn rules_of_recovery_managers_that_are_left_out_are_found() {
    let stacks = [
        Stack::Wal,
        Stack::Force(Kind::Cfc),
        Stack::CfcEx,
        Stack::AfcEx,
    ];
    let others = [
        Mistake::NoGap,
        Mistake::FlagInFlight,
        Mistake::TornFlagStays,
        Mistake::NewestCommit,
    ];
    for (mistake, name) in Mistake::ALL {
        for stack in stacks {
            if mistake.is_of(stack) && !others.contains(&mistake) {
                let campaign = Campaign {
                    cuts: Cuts::Sampled(20_000),
                    sabotage: Sabotage::Host(mistake),
                    ..database(stack)
                };
                finds(&format!("{name} under {stack}"), &campaign);
            }
        }
    }
}
