//! Bounds the deviation between the clock and the event model by the values that were measured.
//!
//! The deviation has two causes. The clock returns the end of an operation when it is called, so a
//! schedule is never changed later: a collection or a commit that calls a chain of operations takes
//! its planes until its end, while the model inserts requests that are ready earlier. (The SSD
//! extension of DiskSim does as the clock: an element that is cleaned takes no request.) And if an
//! operation waits for several others, the record has only the one that ended last; the model waits
//! for that one alone and is faster than a device.

use super::model::{in_order, simulate};
use super::{Measured, SHAPES, measured, record, replay, setup};
use flagstone::commit::Kind;

/// Transactions per run.
const TRANSACTIONS: u32 = 400;

/// Deviations between two models: total time, mean response time and its 99th percentile in percent
/// of the second model, and busy time of planes in percent of all time.
type Apart = [f64; 4];

fn apart(one: Measured, other: Measured) -> Apart {
    let beside = |one: f64, other: f64| (one / other - 1.0) * 100.0;
    [
        beside(one.total, other.total),
        beside(one.mean, other.mean),
        beside(one.p99, other.p99),
        (one.busy - other.busy) * 100.0,
    ]
}

fn within(found: Apart, bounds: Apart) -> bool {
    found
        .iter()
        .zip(bounds)
        .all(|(found, bound)| found.abs() <= bound)
}

/// For each of [`SHAPES`], with one client and with sixteen: the largest deviation of any protocol,
/// rounded up.
const BOUNDS: [[Apart; 2]; SHAPES.len()] = [
    [[2.0, 2.0, 175.0, 2.0], [4.0, 12.0, 174.0, 4.0]],
    [[8.0, 8.0, 198.0, 7.0], [8.0, 8.0, 128.0, 7.0]],
    [[9.0, 9.0, 181.0, 8.0], [9.0, 10.0, 118.0, 8.0]],
    [[20.0, 20.0, 181.0, 11.0], [18.0, 18.0, 74.0, 11.0]],
    [[15.0, 15.0, 134.0, 6.0], [10.0, 10.0, 40.0, 7.0]],
    [[13.0, 13.0, 116.0, 8.0], [13.0, 13.0, 116.0, 8.0]],
    [[25.0, 25.0, 112.0, 9.0], [25.0, 25.0, 35.0, 9.0]],
    [[16.0, 16.0, 209.0, 5.0], [14.0, 14.0, 46.0, 5.0]],
    [[16.0, 16.0, 172.0, 5.0], [11.0, 11.0, 43.0, 5.0]],
];

/// The largest deviations of any protocol on one shape of device, for the clock and for a wrong
/// clock that runs operations in the order of calls.
fn worst(planes: u32, shared: u32, clients: u32) -> [Apart; 2] {
    let mut worst = [[0.0; 4]; 2];
    for &kind in Kind::ALL {
        let setup = setup(kind, planes, shared, clients);
        let recorded = record(&setup, TRANSACTIONS);
        let (geometry, timing) = (&setup.device.geometry, &setup.device.timing);
        let busy = recorded.busy.planes.0;
        let clock = measured(recorded.start, &recorded.ended, busy, planes);
        let events = replay(&recorded, geometry, timing, simulate);
        let ordered = replay(&recorded, geometry, timing, in_order);
        let found = [apart(clock, events), apart(ordered, events)];
        println!(
            "{planes:2} {shared} {clients:2} {kind:8} {:+6.1?}",
            found[0]
        );
        for (worst, found) in worst.iter_mut().flatten().zip(found.iter().flatten()) {
            *worst = found.abs().max(*worst);
        }
    }
    worst
}

/// Prints the deviations of each run (`--nocapture`).
#[test]
fn the_clock_is_no_farther_from_a_model_of_events_than_it_was_measured() {
    for ((planes, shared), bounds) in SHAPES.into_iter().zip(BOUNDS) {
        for (clients, bounds) in [1, 16].into_iter().zip(bounds) {
            let shape = format!("{planes} planes, {shared} a channel, {clients} clients");
            let [clock, ordered] = worst(planes, shared, clients);
            assert!(within(clock, bounds), "{shape}: {clock:.1?}");
            // Control: the wrong clock must be detected. On a single plane, order causes no idle
            // time.
            let is_caught = !within(ordered, bounds);
            assert!(is_caught || planes == 1, "{shape}: {ordered:.1?}");
        }
    }
}
