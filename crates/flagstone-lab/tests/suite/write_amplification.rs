//! The FTL copies as many pages as the bare loop does: same shape, same policy, same requests.

use super::bare::{Bare, BareLimits};
use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::{Cause, Config, Operation, VictimPolicy};
use flagstone::nand::{Cell, Chip, Geometry, Pairing, Timing};
use flagstone::units::{Lpn, Nanos, Pbn};
use flagstone_lab::steady;
use flagstone_lab::workload::{Pattern, Workload};
use std::collections::BTreeSet;

pub(crate) const GEOMETRY: Geometry = Geometry {
    channels: 4,
    packages_per_channel: 1,
    planes_per_package: 2,
    blocks_per_plane: 128,
    pages_per_block: 32,
    page_bytes: 4096,
    spare_bytes: 128,
    cell: Cell::Slc {
        partial_programs: 2,
    },
    strict_order: false,
    pairing: Pairing::None,
};

/// Zones are set aside from the free blocks: so many of these must there be when one is used up.
pub(crate) fn config(kind: Kind, summary_pages: bool) -> Config {
    let zoned = kind.info().format.zoned;
    let mut config = Config::default();
    config.over_provision = if zoned { 0.2 } else { 0.14 };
    config.logical_pages = None;
    config.gc_threshold = if zoned { 0.05 } else { 0.01 };
    config.victims = VictimPolicy::Greedy;
    config.static_wear_gap = None;
    config.copies_stay = false;
    config.summary_pages = summary_pages;
    config
}

pub(crate) fn device(kind: Kind, config: Config) -> Device {
    let chip = Chip::new(GEOMETRY, Timing::default(), 64);
    Device::open(
        Box::new(chip),
        kind,
        config,
        &Options::default(),
        Nanos::ZERO,
    )
    .unwrap()
}

fn bare_for(device: &Device) -> Bare {
    Bare::new(&GEOMETRY, &BareLimits::of(device.ftl()))
}

/// Runs the same requests on the loop; returns its write amplification while `workload` ran.
fn run_bare(bare: &mut Bare, overwrites: f64, workload: &Workload) -> f64 {
    bare.age(workload.pages, overwrites, 1);
    bare.reset_stats();
    bare.play(workload);
    bare.stats().write_amplification()
}

fn run_device(device: &mut Device, overwrites: f64, workload: &Workload) -> steady::Done {
    let aged = steady::age(device, workload.pages, overwrites, 1, Nanos::ZERO).unwrap();
    device.reset_stats();
    // A run that loses a request, or a commit, is an error.
    let done = steady::run(device, workload, aged).unwrap();
    assert_eq!(done.reads + done.writes, workload.requests);
    assert!(done.now > aged);
    device.check().unwrap();
    done
}

fn workloads(pages: u32) -> [(&'static str, Workload); 3] {
    let uniform = Workload::uniform_writes(pages, u64::from(pages) * 4, 42);
    let zipf = Workload {
        pattern: Pattern::Zipf { theta: 0.9 },
        ..uniform
    };
    let mixed = Workload {
        read_share: 0.7,
        requests: uniform.requests * 2,
        ..uniform
    };
    [("uniform", uniform), ("zipf:0.9", zipf), ("70/30", mixed)]
}

/// Programs of data pages: the host's, those of commits, the collector's, and for `plain`, which
/// keeps no mapping table on flash, the summaries of full blocks.
fn data_programs(device: &Device) -> u64 {
    let count = |cause| device.stats().count(Operation::Program, cause);
    let summaries = if device.info().format.persist_map {
        0
    } else {
        count(Cause::Mapping)
    };
    count(Cause::Host) + count(Cause::Commit) + count(Cause::Gc) + summaries
}

#[test]
fn plain_amplifies_writes_as_the_bare_loop_does() {
    for summary_pages in [false, true] {
        let config = config(Kind::Plain, summary_pages);
        let pages = device(Kind::Plain, config).pages();
        for (name, workload) in workloads(pages) {
            let mut device = device(Kind::Plain, config);
            let mut bare = bare_for(&device);
            let expected = run_bare(&mut bare, 3.0, &workload);
            let done = run_device(&mut device, 3.0, &workload);
            let found = data_programs(&device) as f64 / done.writes as f64;
            println!("{name}, summary pages {summary_pages}: {found:.4}, bare {expected:.4}");
            assert!((found / expected - 1.0).abs() < 0.001, "{found} {expected}");
            assert!((1.9..6.0).contains(&expected), "{expected} tells little");
        }
    }
}

/// Single-page transactions make the same copies as plain writes, where a protocol adds nothing to
/// what the collector sees. Mapping pages and logs lie in an area of their own and are left out.
#[test]
fn atomic_protocols_amplify_single_pages_as_the_bare_loop_does() {
    for &kind in Kind::ALL {
        let config = config(kind, false);
        if kind.suits(&GEOMETRY, &config).is_err() {
            continue;
        }
        let info = device(kind, config).info();
        let (seeds, within) = match kind {
            // Zones, and log heads that choose the planes, place pages otherwise.
            _ if info.format.zoned => (42..43, 0.05),
            Kind::Plain | Kind::Scc | Kind::Bpcc | Kind::Cfc | Kind::Seal => (42..43, 0.001),
            // A page is programmed when it is written, and blocks may be collected before it
            // commits, while the version before it lives: the two run apart from there on, and
            // either may be ahead, by 0.4 % after as many writes. What is left is the mean.
            Kind::Afc | Kind::Aw | Kind::MhlM | Kind::MixSl | Kind::GMixSl => (42..50, 0.005),
            _ => (42..50, 0.01),
        };
        let apart = |seed| {
            let mut device = device(kind, config);
            let writes = u64::from(device.pages()) * 3;
            let workload = Workload::uniform_writes(device.pages(), writes, seed);
            let mut bare = bare_for(&device);
            let expected = run_bare(&mut bare, 2.0, &workload);
            let done = run_device(&mut device, 2.0, &workload);
            let found = data_programs(&device) as f64 / done.writes as f64;
            println!("{kind}: {found:.4} for data, bare {expected:.4}");
            found / expected - 1.0
        };
        let count = seeds.clone().count() as f64;
        let mean = seeds.map(apart).sum::<f64>() / count;
        println!("{kind}: {:+.3} % on average", 100.0 * mean);
        assert!(mean.abs() < within, "{kind}: {mean}");
    }
}

#[test]
fn the_bare_loop_alternates_between_planes_and_counts_copies() {
    let geometry = Geometry {
        channels: 1,
        blocks_per_plane: 8,
        pages_per_block: 4,
        ..GEOMETRY
    };
    let limits = BareLimits {
        logical_pages: 30,
        data_pages: 4,
        free_wanted: 4,
        free_for_copies: 3,
        unusable: vec![Pbn(0)],
    };
    let mut bare = Bare::new(&geometry, &limits);
    for lpn in 0..30 {
        bare.write(Lpn(lpn));
    }
    // Block 0 is not used; plane 1 begins with block 8.
    assert_eq!(
        [0, 1, 2].map(|lpn| bare.read(Lpn(lpn))),
        [Some(4), Some(32), Some(5)]
    );
    for round in 0..100 {
        for lpn in 0..30 {
            bare.write(Lpn((lpn * 7 + round) % 30));
        }
    }
    let stats = bare.stats();
    assert_eq!(stats.host_pages, 3030);
    assert!(stats.erases > 700 && stats.copied > 0, "{stats:?}");
    let places: BTreeSet<u32> = (0..30).filter_map(|lpn| bare.read(Lpn(lpn))).collect();
    assert_eq!(places.len(), 30);
}
