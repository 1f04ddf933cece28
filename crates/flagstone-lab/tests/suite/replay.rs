//! Replay: refusals are clear, figures are exact, and no run ends early.

use flagstone::commit::{Isolation, Kind, Options};
use flagstone::ftl::{Cause, Operation};
use flagstone::nand::Cell;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::image;
use flagstone_lab::output::Output;
use flagstone_lab::replay::{InputName, ReplayRecord, Setup, Terms, by_cause, script_of};
use flagstone_lab::workload::{Pattern, Workload};
use std::collections::BTreeSet;

fn setup(kind: Kind) -> Setup {
    let mut device = DeviceSpec::load("small").expect("a preset");
    device.geometry.blocks_per_plane = 24;
    device.config.over_provision = 0.5;
    Setup {
        kind,
        options: Options::default(),
        device,
        isolation: None,
        terms: Terms {
            clients: 6,
            abort_ratio: 0.1,
            ..Terms::on_filled(0.9, 3)
        },
    }
}

fn source() -> InputName {
    InputName {
        name: "zipf".into(),
        sha256: None,
    }
}

fn workload() -> Workload {
    Workload {
        pattern: Pattern::Zipf { theta: 0.8 },
        pages: 9_000,
        requests: 12_000,
        read_share: 0.2,
        pages_per_transaction: 5,
        seed: 9,
    }
}

fn run(setup: &Setup) -> ReplayRecord {
    let script = script_of(&workload()).expect("a workload");
    setup
        .run(&script, &source())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_protocol_plays_every_transaction_and_counts_the_same_twice() {
    for &kind in Kind::ALL {
        let first = run(&setup(kind));
        assert_eq!(
            first.transactions_committed + first.transactions_aborted,
            2_400,
            "{kind}"
        );
        assert!(first.transactions_aborted > 150, "{kind}");
        assert_eq!(
            first.host_pages_written + first.host_pages_read,
            12_000,
            "{kind}"
        );
        assert!(first.erases.total > 0, "{kind}: nothing was collected");
        assert!(
            first.recovery_ns > 0 && first.recovery_pages_read > 0,
            "{kind}"
        );
        let host = by_cause(&first, Operation::Program, Cause::Host);
        assert!(
            host <= first.host_pages_written,
            "{kind}: {host} programs for the host"
        );
        let json =
            |record: ReplayRecord| serde_json::to_string(&record.without_wall_clock()).unwrap();
        assert_eq!(json(first), json(run(&setup(kind))), "{kind}");
    }
}

#[test]
fn every_structure_in_memory_has_a_name_that_is_known() {
    let mut found = BTreeSet::new();
    for &kind in Kind::ALL {
        for as_published in [false, kind.info().published.is_some()] {
            let mut setup = setup(kind);
            setup.options.as_published = as_published;
            let (device, _) = setup.fill().filled().unwrap();
            found.extend(device.memory().into_iter().map(|(name, _)| name));
        }
    }
    assert_eq!(found, ReplayRecord::STRUCTURES.iter().copied().collect());
}

#[test]
fn an_open_loop_measures_from_the_arrival() {
    let open = |speedup| {
        let mut setup = setup(Kind::LightTx);
        setup.terms.speedup = Some(speedup);
        run(&setup)
    };
    // 2,400 transactions in 2.4 ms are more than the device can take; in 24 s they are not.
    let (rushed, calm) = (open(1.0), open(0.0001));
    assert!(rushed.response_ns.mean > 10.0 * calm.response_ns.mean);
    assert!(calm.virtual_ns > 20_000_000_000);
    let load = |record: &ReplayRecord| (record.saturated, record.arrivals_tps.unwrap().round());
    assert_eq!(load(&rushed), (Some(true), 1_000_000.0));
    assert_eq!(load(&calm), (Some(false), 100.0));
    assert!(rushed.backlog_after.unwrap() > 1_500.0);
}

#[test]
fn a_client_waits_for_isolation_too() {
    for &kind in Kind::ALL {
        let mut setup = setup(kind);
        setup.terms.abort_ratio = 0.0;
        let record = run(&setup);
        // Six clients have something to wait for all the time, whatever keeps them from beginning.
        let waiting = record.throughput_tps * record.response_ns.mean / 1e9;
        assert!((5.9..=6.0).contains(&waiting), "{kind}: {waiting}");
        let parts = record.isolation_wait_ns.mean + record.commit_ns.mean;
        assert!(parts <= record.response_ns.mean, "{kind}");
        let waits = record.isolation_wait_ns.mean > 0.0;
        let admits_all = kind.info().live_max.is_none_or(|most| most >= 6);
        let overlaps = kind.info().isolation == Isolation::Serializable;
        assert_eq!(waits, !(overlaps && admits_all), "{kind}");
        assert_eq!((record.arrivals_tps, record.saturated), (None, None));
    }
}

#[test]
fn an_isolation_that_a_protocol_lacks_is_refused() {
    let asked = |kind, isolation| {
        let isolation = Some(isolation);
        Setup {
            isolation,
            ..setup(kind)
        }
        .isolation()
    };
    let refusal = asked(Kind::Aw, Isolation::Serializable).unwrap_err();
    assert!(refusal.is_refusal());
    assert!(refusal.to_string().contains("strict isolation at the most"));
    assert_eq!(
        asked(Kind::LightTx, Isolation::Strict).unwrap(),
        Isolation::Strict
    );
}

#[test]
fn flags_in_place_need_cells_that_allow_them() {
    for kind in [Kind::Cfc, Kind::Afc] {
        let mut setup = setup(kind);
        setup.device.geometry.cell = Cell::Mlc;
        let refusal = setup.capacity().unwrap_err();
        assert!(refusal.is_refusal());
        assert!(
            refusal.to_string().contains("which mlc cells do not allow"),
            "{refusal}"
        );
    }
}

#[test]
fn a_script_beyond_the_device_says_what_is_missing() {
    let mut workload = workload();
    workload.pages = 1_000_000;
    let script = script_of(&workload).expect("a workload");
    let error = setup(Kind::Plain).run(&script, &source()).unwrap_err();
    assert!(
        error.to_string().contains("use a larger device (--device)"),
        "{error}"
    );
}

#[test]
fn a_mapping_log_costs_a_page_for_each_transaction() {
    // [LightTx] §4.5: Atomic-Write programs one mapping page for each transaction that commits.
    let record = run(&setup(Kind::Aw));
    let logged = by_cause(&record, Operation::Program, Cause::Log);
    let collections = record.erases.total;
    let least = record.transactions_committed;
    assert!(
        (least..=least + collections).contains(&logged),
        "{logged} log pages for {least}"
    );
}

#[test]
fn copies_within_a_plane_leave_the_channel_to_others() {
    let copying = |copy_back| {
        let mut setup = setup(Kind::Plain);
        setup.device.timing.transfer_ps_per_byte = 100_000;
        setup.device.copy_back = copy_back;
        run(&setup)
    };
    let (across, within) = (copying(false), copying(true));
    let copies = |record: &ReplayRecord| by_cause(record, Operation::Program, Cause::Gc);
    assert!(copies(&within) > 1_000);
    assert!(within.virtual_ns < across.virtual_ns * 9 / 10);
}

#[test]
fn a_saved_device_copies_within_a_plane_as_a_filled_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let copying = |copy_back| {
        let mut setup = setup(Kind::Plain);
        setup.device.timing.transfer_ps_per_byte = 100_000;
        setup.device.copy_back = copy_back;
        let (device, _) = setup.fill().filled().unwrap();
        let output = Output::new(&path, &[]).unwrap();
        image::save(&output, &device, &setup.saved()).unwrap();
        let script = script_of(&workload()).expect("a workload");
        setup.run_saved(&path, &script, &source()).unwrap()
    };
    let (across, within) = (copying(false), copying(true));
    assert!(within.virtual_ns < across.virtual_ns * 9 / 10);
}

#[test]
fn a_rollback_waits_for_what_it_programmed_under_barriers() {
    // [LightTx] §4.2: one transaction after the other, each rolled back after its four pages.
    let rolled_back = |isolation| {
        let mut setup = Setup {
            isolation: Some(isolation),
            ..setup(Kind::LightTx)
        };
        setup.terms = Terms {
            clients: setup.terms.clients,
            abort_ratio: 1.0,
            seed: setup.terms.seed,
            ..Terms::default()
        };
        setup.device.timing.transfer_ps_per_byte = 0;
        run(&setup)
    };
    let (strict, free) = (
        rolled_back(Isolation::Strict),
        rolled_back(Isolation::Serializable),
    );
    let program_ns = 200_000;
    let written = strict.host_pages_written.min(2_000);
    assert!(strict.virtual_ns > written * program_ns / 5);
    assert!(free.virtual_ns < strict.virtual_ns);
}
