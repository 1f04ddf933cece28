//! Small campaigns with rot, their controls, and run ids.

use super::super::ENCRYPTS;
use super::*;

fn task(subject: StoreSubject, lie: Lie, damages: u64) -> RotCampaign {
    RotCampaign {
        subject,
        protocol: Kind::Seal,
        lie,
        encrypted: false,
        damages,
        seed: 11,
        stop_early: lie != Lie::None,
    }
}

/// A campaign covers each kind of end, and each allowed result.
#[test]
fn rot_is_drawn_in_all_its_kinds() {
    for subject in [StoreSubject::Pages, StoreSubject::Tables] {
        let findings = task(subject, Lie::None, 1_200).run(&|_| ());
        let tally = &findings.work;
        assert_eq!(tally.before, 0, "{:?}", findings.violations);
        assert!(tally.collections > 0, "{tally:?}");
        for (aim, name) in Aim::ALL {
            let damaged: u64 = tally.by_aim(aim).iter().sum();
            assert!(damaged > 0, "{name}");
        }
        let [right, opening, reading, undecidable, ..] = tally.outcomes();
        for count in [right, opening, reading, undecidable] {
            assert!(count > 0, "{subject:?} {tally:?}");
        }
    }
}

#[test]
fn missing_checksums_are_found_by_a_run_that_its_id_repeats() {
    for subject in [StoreSubject::Pages, StoreSubject::Tables] {
        let findings = task(subject, Lie::Checksums, 5_000).run(&|_| ());
        let (id, what) = findings.violations.first().expect("a finding");
        let again: RotRunId = id.to_string().parse().expect("a run id");
        let tally = again.run();
        assert_eq!(tally.first, Some((*id, what.clone())));
    }
}

#[test]
fn a_run_id_is_whole_or_refused() {
    let id = RotRunId {
        subject: StoreSubject::Pages,
        protocol: Kind::Seal,
        lie: Lie::None,
        encrypted: false,
        seed: 17,
        damage: Some(3),
    };
    assert_eq!(id.to_string(), "rot.seal/s17/d3");
    assert_eq!("rot.seal/s17/d3".parse(), Ok(id));
    let all = RotRunId { damage: None, ..id };
    assert_eq!("rot.seal/s17".parse(), Ok(all));
    let tables = RotRunId {
        subject: StoreSubject::Tables,
        lie: Lie::Checksums,
        ..id
    };
    assert_eq!("rot-tables.seal.checksums/s17/d3".parse(), Ok(tables));
    let encrypted = "rot.seal.encrypted/s17/d3".parse::<RotRunId>();
    assert_eq!(encrypted.is_ok(), ENCRYPTS);
    for text in [
        "",
        "rot.seal",
        "rot.x/s1",
        "rot.cfc/s1",
        "rot-tables.scc/s1",
        "rot.seal.syncs/s1",
        "rot.seal.none/s1",
        "rot.seal/s01",
        "rot.seal/s1/",
        "rot.seal/s1/d1/d2",
        "store.seal/n3/s17",
    ] {
        assert!(text.parse::<RotRunId>().is_err(), "{text}");
    }
}

/// The media written for a run are those that the run judged: they differ only by the damage.
#[test]
fn the_media_of_a_run_differ_by_its_damage() {
    for subject in [StoreSubject::Pages, StoreSubject::Tables] {
        let history = RotRunId {
            subject,
            protocol: Kind::Seal,
            lie: Lie::None,
            encrypted: false,
            seed: 5,
            damage: None,
        };
        assert!(history.media().is_err());
        let one = RotRunId {
            damage: Some(0),
            ..history
        };
        let [whole, damaged] = one.media().expect("a history");
        assert_eq!(whole.len(), damaged.len());
        let pages = whole.chunks(4096).zip(damaged.chunks(4096));
        let differ = pages.filter(|(whole, damaged)| whole != damaged).count();
        assert!((1..10).contains(&differ), "{differ}");
        let [again, _] = one.media().expect("a history");
        let differs = again
            .iter()
            .zip(&whole)
            .position(|(one, other)| one != other);
        assert_eq!(differs, None, "{subject:?}");
    }
}
