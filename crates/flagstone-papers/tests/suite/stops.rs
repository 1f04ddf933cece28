//! Work that takes minutes stops soon after it was asked to, and leaves nothing half done.

use flagstone::commit::{Kind, Options};
use flagstone_campaign::campaign::{Campaign, Cuts, Subject};
use flagstone_host::Stack;
use flagstone_index::{IndexKind, Settings};
use flagstone_lab::closed::{self, Closed};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::replay::{InputName, Setup, Terms, script_of};
use flagstone_lab::stop::{Stop, Stopped};
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::pages::{Pages, PagesOptions};
use flagstone_lab::workload::{Pattern, Workload};
use flagstone_papers::indexing::{self, Bench, BenchOptions, Place};
use std::time::{Duration, Instant};

/// Work that would take minutes is asked to stop after it has begun.
fn stops(work: impl FnOnce() + Send) {
    let stop = Stop::default();
    let begun = Instant::now();
    let stopped = std::thread::scope(|scope| {
        let asks = stop.clone();
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            asks.ask();
        });
        stop.run(work)
    });
    assert_eq!(stopped, Err(Stopped));
    assert!(begun.elapsed() < Duration::from_secs(20), "it went on");
}

fn setup(fill: f64) -> Setup {
    Setup {
        kind: Kind::Seal,
        options: Options::default(),
        device: DeviceSpec::load("small").expect("a preset"),
        isolation: None,
        terms: Terms::on_filled(fill, 1),
    }
}

#[test]
fn a_replay_stops_while_its_device_is_filled_and_while_it_plays() {
    let source = InputName {
        name: "uniform".into(),
        sha256: None,
    };
    let script = |requests| {
        let workload = Workload {
            pattern: Pattern::Uniform,
            pages: 1000,
            requests,
            read_share: 0.0,
            pages_per_transaction: 8,
            seed: 1,
        };
        script_of(&workload).expect("a workload")
    };
    let (few, many) = (script(80), script(20_000_000));
    let mut large = setup(0.9);
    large.device.geometry.blocks_per_plane *= 32;
    stops(|| drop(large.run(&few, &source)));
    stops(|| drop(setup(0.0).run(&many, &source)));
}

#[test]
fn a_campaign_stops_and_its_violations_are_no_stops() {
    for cuts in [
        Cuts::Sampled(u64::MAX),
        Cuts::Landings(10_000),
        Cuts::Exhaustive,
    ] {
        let campaign = Campaign {
            cuts,
            ..Campaign::new(Subject::Protocol(Kind::Scc))
        };
        // A run that is stopped is neither a violation nor counted as a run.
        stops(|| assert_eq!(campaign.run(&|_| {}).violations, []));
    }
}

#[test]
fn an_index_stops_and_leaves_no_file() {
    let name = format!("flagstone-stopped-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let options = BenchOptions {
        records: 50_000_000,
        ..BenchOptions::default()
    };
    let bench = Bench {
        index: IndexKind::Extendible,
        settings: Settings::new().with("memory", 16 * 4096),
        load: None,
        place: Place::File {
            path: path.clone(),
            options: flagstone_index::FileOptions {
                direct: false,
                ..Default::default()
            },
        },
        workload: indexing::KeyWorkload::new("A", &options).expect("a workload"),
        seed: 1,
    };
    stops(|| drop(bench.run(&|_, _| {})));
    assert!(!path.exists());
}

#[test]
fn clients_of_a_database_stop() {
    let scale = Scale {
        warehouses: 2,
        customers: 60,
        items: 200,
    };
    let options = PagesOptions {
        page_bytes: 4096,
        ..PagesOptions::new(scale, 1)
    };
    let mut source = Pages::new(&options).expect("a small database");
    let closed = Closed {
        stack: Stack::Wal,
        options: Options::default(),
        device: DeviceSpec::load("small").expect("a preset"),
        settings: Settings::new(),
        policy_settings: Settings::new(),
        terms: closed::Terms {
            clients: 8,
            ..closed::Terms::default()
        },
        workload: "tpcc".into(),
    };
    stops(move || drop(closed.run(&mut source)));
}
