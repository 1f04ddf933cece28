//! Campaigns on devices like one that a user has described.

use super::campaign::{campaign, campaign_on, holds};
use flagstone::commit::Kind;
use flagstone_campaign::campaign::{
    Campaign, Cuts, DeviceTraits, Faults, RunId, Subject, replay, suits,
};
use flagstone_host::Stack;
use flagstone_lab::device::DeviceSpec;
use std::sync::Arc;

fn described(text: &str) -> Arc<DeviceTraits> {
    let spec = DeviceSpec::parse(&format!("name = \"mine\"\n{text}"), "mine");
    Arc::new(DeviceTraits::of(&spec.expect("a device")))
}

/// Pages that share cells, and what is done about them.
fn traits(paired_pages: &str) -> Arc<DeviceTraits> {
    described(&format!(
        "preset = \"mixsl-mlc\"\n[geometry]\npairing = \"distance-6\"\n\
         [ftl]\nover_provision = 0.5\ncopies_stay = true\npaired_pages = \"{paired_pages}\"\n"
    ))
}

fn on(kind: Kind, paired_pages: &str) -> Campaign {
    Campaign {
        cuts: Cuts::Sampled(600),
        faults: Faults::ALL,
        device: Some(traits(paired_pages)),
        ..campaign(kind)
    }
}

#[test]
fn cells_that_pages_share_are_those_of_the_device_and_so_is_what_is_done_about_them() {
    for kind in [Kind::Scc, Kind::LightTx, Kind::Seal] {
        let found = on(kind, "closed").run(&|_| {});
        assert_eq!(found.violations, [], "{kind}");
        let found = on(kind, "ignored").run(&|_| {});
        let (id, _) = found.violations.first().expect("it loses");
        // The same word is the same run, on this device only.
        let (word, device) = (id.to_string(), traits("ignored"));
        let again = RunId::parse_on(&word, Some(&device)).expect(&word);
        assert!(replay(&again).1.is_err(), "{word}");
        let error = |device| RunId::parse_on(&word, device).expect_err(&word).to_string();
        assert!(
            error(None).contains("give that file with --device"),
            "{word}"
        );
        assert!(error(Some(&traits("closed"))).contains("use the original file"));
    }
}

/// Also sums of pages whose flags were set since, and of copies.
#[test]
fn no_checksum_is_wrong_after_cuts() {
    let all = Kind::ALL.iter().map(|&kind| Subject::Protocol(kind));
    let records = [Stack::CfcEx, Stack::AfcEx].map(Subject::Stack);
    for subject in all.chain(records).filter(|subject| subject.is_atomic()) {
        for summary_pages in [true, false] {
            let device = described(&format!(
                "preset = \"small\"\n[geometry]\npartial_programs = 9\n\
                 [ftl]\nchecksums = true\nsummary_pages = {summary_pages}\n"
            ));
            let campaign = Campaign {
                cuts: Cuts::Sampled(200),
                device: Some(device),
                ..campaign_on(subject)
            };
            assert!(holds(&campaign).work.collections > 0, "{subject}");
        }
    }
}

#[test]
fn a_run_without_a_device_takes_none() {
    let device = traits("closed");
    let error = RunId::parse_on("scc/g0/b0/w1x4/f0/s1/n1/c9-5f-n", Some(&device));
    let error = error.expect_err("it has none").to_string();
    assert!(error.contains("leave --device out"), "{error}");
}

#[test]
fn what_does_not_work_on_its_cells_is_refused() {
    let device = traits("closed");
    let why = suits(Subject::Protocol(Kind::Cfc), &device).expect_err("it sets flags in place");
    assert!(why.starts_with("no device like mine suits cfc: "), "{why}");
    assert_eq!(suits(Subject::Protocol(Kind::Seal), &device), Ok(()));
}
