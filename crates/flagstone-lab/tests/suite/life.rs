//! A year on cells whose bit errors grow, with a bad batch of blocks: with scrubbing nothing is
//! lost; without, the control, pages are.

use flagstone::commit::Kind;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::life::{Life, LifeRecord};

const YEAR: u64 = 365 * 24;

fn live(kind: Kind, hours: u64, how: (bool, bool)) -> LifeRecord {
    live_on("", kind, hours, how)
}

/// A life on the preset `worn` with other parameters.
fn live_on(tables: &str, kind: Kind, hours: u64, (scrubs, cuts): (bool, bool)) -> LifeRecord {
    let text = format!("preset = \"worn\"\n{tables}");
    let device = DeviceSpec::parse(&text, "worn").expect("a device");
    let seed = 1;
    let life = Life {
        kind,
        device,
        hours,
        seed,
        scrubs,
        cuts,
    };
    life.run().expect("it runs on this device")
}

#[test]
fn a_device_with_a_bad_batch_of_blocks_survives_a_year_and_does_not_without_scrubbing() {
    for name in ["plain", "aw", "scc", "cfc", "lighttx", "seal"] {
        let kind = Kind::by_name(name).expect("a protocol");
        let year = live(kind, YEAR, (true, false));
        assert!(year.is_whole(), "{year:?}");
        assert!(year.refreshed > 20, "{year:?}");
        assert!(year.flash["program"]["scrub"] > 500, "{year:?}");
        assert!(year.corrected_most < year.ecc_bits, "{year:?}");
        let control = live(kind, YEAR, (false, false));
        assert!(control.pages_lost > 50, "{control:?}");
        assert_eq!(control.refreshed, 0, "{control:?}");
        assert!(!control.flash["program"].contains_key("scrub"));
    }
}

#[test]
fn what_is_read_all_the_time_survives_a_year_of_read_disturb_and_does_not_without_scrubbing() {
    let aging = "[aging]\nretention_rate = 0.0\ndisturb_rate = 0.05\n";
    for kind in [Kind::Plain, Kind::Aw, Kind::LightTx] {
        let year = live_on(aging, kind, YEAR, (true, false));
        assert!(year.is_whole() && year.refreshed > 20, "{year:?}");
        let control = live_on(aging, kind, YEAR, (false, false));
        assert!(control.pages_lost > 10, "{control:?}");
    }
}

/// A restart of `plain` reads every block and so shows which are to be refreshed; that of `lighttx`
/// reads the zones only.
#[test]
fn without_a_patrol_what_nobody_reads_is_lost() {
    let year = live_on(
        "[ftl]\npatrol_days = 0\n",
        Kind::LightTx,
        YEAR,
        (true, false),
    );
    assert!(year.pages_lost > 50 && year.patrolled == 0, "{year:?}");
}

#[test]
fn power_cuts_take_nothing_while_blocks_are_refreshed() {
    for &kind in Kind::ALL {
        let year = live(kind, YEAR, (true, true));
        assert!(year.is_whole(), "{year:?}");
        assert!(year.cuts > 8 && year.refreshed > 20, "{year:?}");
    }
}

#[test]
fn equal_lives_are_equal() {
    let year = || live(Kind::Seal, YEAR / 4, (true, true));
    assert_eq!(year(), year());
}

#[test]
fn a_device_with_hardly_any_pages_is_refused_or_lives() {
    let tables = |over_provision: f64| {
        format!(
            "preset = \"worn\"\n[geometry]\nblocks_per_plane = 8\npages_per_block = 8\n[ftl]\n\
             over_provision = {over_provision}\n"
        )
    };
    let (mut refused, mut lived) = (0, 0);
    for nth in 0..100 {
        let text = tables(0.9 + f64::from(nth) / 1000.0);
        let Ok(device) = DeviceSpec::parse(&text, "tiny") else {
            continue;
        };
        let life = Life {
            kind: Kind::Plain,
            device,
            hours: 48,
            seed: 1,
            scrubs: true,
            cuts: false,
        };
        match life.run() {
            Ok(_) => lived += 1,
            Err(why) => {
                assert!(why.contains("logical pages"), "{why}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && lived > 0, "{refused} {lived}");
}
