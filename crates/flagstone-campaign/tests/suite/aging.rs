//! Power cuts on cells whose bit errors grow: nothing is lost where the device scrubs, and
//! something is where it does not.

use super::campaign::{campaign_on, finds, holds};
use flagstone::commit::Kind;
use flagstone_campaign::campaign::{Campaign, Cuts, Faults, RunId, Sabotage, Subject, replay};

fn campaign(kind: Kind) -> Campaign {
    Campaign {
        cuts: Cuts::Sampled(400),
        faults: Faults {
            aging: true,
            ..Faults::ALL
        },
        seed: 5,
        ..campaign_on(Subject::Protocol(kind))
    }
}

#[test]
fn every_protocol_that_scrubs_survives_cuts_while_its_data_fade_and_none_does_otherwise() {
    for &kind in Kind::ALL.iter().filter(|kind| kind.info().atomic) {
        let scrubs = campaign(kind);
        assert!(holds(&scrubs).work.cuts >= 400, "{kind}");
        let idle = Campaign {
            sabotage: Sabotage::Unscrubbed,
            ..scrubs
        };
        finds(&format!("{kind}"), &idle);
    }
}

/// Runs that lost pages before these were mended: a block of a log with pages behind a blank one
/// was read for its refresh again and again, and never copied; and a log that filled its area had
/// no room for copies.
#[test]
fn logs_are_refreshed_whatever_a_cut_has_left_and_however_full_their_area_is() {
    for run in [
        "mixsl/g0/b0/w1x2/f128/s222/n3/c105-ec-n/o0-9b-n/c0-f4-n",
        "mixsl/g95714/b57564/w3x16/f128/s8873/n1/c270-1767-n",
    ] {
        let id: RunId = run.parse().expect("a run id");
        assert_eq!(replay(&id).1, Ok(()), "{run}");
    }
}
