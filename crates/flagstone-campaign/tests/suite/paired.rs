//! Pages that share cells: what every protocol loses where nothing is done about them, and that
//! closed pairs and lower pages alone prevent it.

use super::campaign::{campaign_on, finds, holds};
use flagstone::commit::Kind;
use flagstone_campaign::campaign::{Campaign, Cuts, Faults, RunId, Sabotage, Subject, replay};
use flagstone_host::Stack;

fn campaign(subject: Subject, variant: Option<&'static str>) -> Campaign {
    Campaign {
        variant,
        cuts: Cuts::Sampled(500),
        faults: Faults {
            paired: true,
            ..Faults::ALL
        },
        ..campaign_on(subject)
    }
}

/// Nothing is found where pairs are taken care of, and something without.
fn holds_and_does_not(subject: Subject, variant: Option<&'static str>) {
    let closed = campaign(subject, variant);
    let cuts = holds(&closed).work.cuts;
    assert!(cuts >= 500, "{subject}: {cuts}");
    let ignored = Campaign {
        sabotage: Sabotage::PairsIgnored,
        ..closed
    };
    finds(&format!("{subject} {variant:?}"), &ignored);
}

/// Protocols that work on cells which hold several bits.
fn kinds() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(|kind| kind.info().atomic && !kind.info().reprograms)
}

#[test]
fn every_protocol_on_paired_pages_holds_and_does_not_where_pairs_are_ignored() {
    for kind in kinds() {
        let others = kind.info().modes.iter().skip(1).map(|mode| Some(mode.name));
        for variant in std::iter::once(None).chain(others) {
            holds_and_does_not(Subject::Protocol(kind), variant);
        }
    }
    holds_and_does_not(Subject::Stack(Stack::Wal), None);
}

/// What protocols lose where pairs are ignored; the test above finds some under each of them.
const COUNTEREXAMPLES: [&str; 11] = [
    "aw.pairs-ignored/g0/b0/w1x3/f64/s7451/n1/o15-fa-n",
    "scc.pairs-ignored/g0/b0/w1x3/f64/s7869/n1/o0-63-n",
    "bpcc.pairs-ignored/g0/b0/w1x4/f64/s3462/n1/c6-95-n",
    "mhl-m.pairs-ignored/g0/b0/w1x3/f64/s7451/n1/o15-fa-n",
    "mhl-d.pairs-ignored/g0/b0/w1x2/f64/s3850/n1/o0-5a-n",
    "lighttx.pairs-ignored/g0/b0/w1x2/f64/s4236/n1/c8-4-n",
    "mixsl.pairs-ignored/g0/b0/w1x7/f64/s8238/n2/o9-e3-n/c0-54-n",
    "g-mixsl.pairs-ignored/g0/b0/w1x2/f64/s255/n1/c8-95-n",
    "seal.pairs-ignored/g0/b0/w1x2/f64/s3040/n2/o2-a0-n/o0-ac-n",
    "seal-r.pairs-ignored/g0/b0/w1x15/f64/s6114/n1/o0-2f-n",
    "wal.pairs-ignored/g0/b0/w1x5/f64/s3557/n1/o4-9673-n",
];

#[test]
fn counterexamples_are_mended_by_closed_pairs() {
    let run = |word: &str| replay(&word.parse::<RunId>().expect(word)).1;
    for word in COUNTEREXAMPLES {
        run(word).expect_err(word);
        let mended = word.replace(".pairs-ignored", "");
        assert_eq!(run(&mended), Ok(()), "{mended}");
    }
}

#[test]
fn what_sets_flags_in_place_is_refused_on_paired_pages() {
    for subject in ["cfc", "afc", "cfc-ex", "force:afc"] {
        let word = format!("{subject}/g0/b0/w4x24/f64/s1/n1/c9-5f-n");
        let error = word.parse::<RunId>().expect_err(&word).to_string();
        assert!(error.contains("sets flags in place"), "{error}");
        assert!(word.replace("f64", "f0").parse::<RunId>().is_ok());
    }
}
