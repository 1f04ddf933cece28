//! CFC_ex and AFC_ex: random histories with power cuts, and titled scenarios.

use super::super::HostConfig;
use super::super::config::{Sabotage, Stack};
use super::super::rig::Rig;
use super::super::small_host::{SmallHost, config};
use super::super::tests::cuts;
use crate::commit::RecordKind;

/// Settings that make the stacks go another way.
fn variants() -> Vec<(Stack, HostConfig)> {
    let mut all = Vec::new();
    for stack in RecordKind::ALL.map(Stack::FlagEx) {
        all.push((stack, config()));
        let max_c = 2;
        all.push((stack, HostConfig { max_c, ..config() }));
        let frames = 3;
        all.push((stack, HostConfig { frames, ..config() }));
        let frames = 20;
        all.push((stack, HostConfig { frames, ..config() }));
    }
    all
}

#[test]
fn histories_agree_with_a_map() {
    for (stack, config) in variants() {
        for seed in 0..6 {
            let small = SmallHost::new(stack, config.clone());
            let mut rig = Rig::new(small, seed, 4);
            assert!(rig.run(300));
            rig.small.host().verify().unwrap();
            let complaint = rig.recover(None);
            assert_eq!(complaint, Ok(()), "{stack}, seed {seed}, {config:?}");
        }
    }
}

#[test]
fn histories_under_cuts_keep_what_was_acknowledged() {
    for (stack, config) in variants() {
        let complaints = cuts(stack, &config, 0..6, 13);
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

#[test]
fn mistakes_are_found() {
    for stack in RecordKind::ALL.map(Stack::FlagEx) {
        for sabotage in [
            Sabotage::EarlyAcknowledgement,
            Sabotage::FlagsBeforeLog,
            Sabotage::NoBeforeImage,
            Sabotage::RedoAll,
        ] {
            let config = HostConfig {
                sabotage: Some(sabotage),
                ..config()
            };
            let found = (0..20).any(|seed| !cuts(stack, &config, seed..seed + 1, 3).is_empty());
            assert!(found, "{stack} with {sabotage:?} passes");
        }
    }
}
