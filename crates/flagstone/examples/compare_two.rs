//! Two commit protocols on a workload of one's own, in virtual time.
//!
//! Each client has a share of the pages and changes the first of them most often. A transaction
//! writes a few of them. One in twenty is rolled back. The clients run side by side: the one with
//! the earliest instant goes next.
//!
//! `cargo run --example compare_two`. Change `PROTOCOLS` to compare others: `Kind::ALL` has them.

use flagstone::prelude::*;
use std::collections::BTreeSet;

const PROTOCOLS: [Kind; 2] = [Kind::Cfc, Kind::LightTx];
const CLIENTS: u32 = 8;
const TRANSACTIONS: u32 = 4_000;

/// What a run gave.
struct Outcome {
    committed: u64,
    elapsed: Nanos,
    in_commit: Nanos,
    programs: u64,
    copied: u64,
    write_amplification: f64,
}

/// A linear congruential generator: the same workload for both protocols.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        let word = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = word.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

fn run(kind: Kind) -> Result<Outcome, DeviceError> {
    // 64 MiB of flash, a third of it in reserve, so that the collector soon has work.
    let geometry = Geometry {
        blocks_per_plane: 64,
        ..Geometry::default()
    };
    let mut config = Config::default();
    config.over_provision = 0.35;
    let chip = Chip::new(geometry, Timing::default(), 64);
    let options = Options::default();
    let mut device = Device::open(Box::new(chip), kind, config, &options, Nanos::ZERO)?;

    let start = device.recovered_at();
    let share = device.pages() / CLIENTS;
    // The earliest instant of each client's next request.
    let mut clients = [start; CLIENTS as usize];
    let (mut dice, mut in_commit) = (Dice(1), Nanos::ZERO);
    for _ in 0..TRANSACTIONS {
        let client = (0..clients.len()).min_by_key(|&client| clients[client]);
        let client = client.expect("there are clients");
        let mut now = clients[client];

        let tx = device.begin(now)?;
        let mut pages = BTreeSet::new();
        for _ in 0..2 + dice.below(8) {
            let page = dice.below(share).min(dice.below(share));
            pages.insert(Lpn(client as u32 * share + page));
        }
        for page in pages {
            now = device
                .write(now, tx, page, b"what the page is to hold")?
                .next;
        }
        if dice.below(20) == 0 {
            clients[client] = device.abort(now, tx)?;
            continue;
        }
        let done = device.commit(now, tx)?;
        let done = done.expect("these protocols answer a commit at once");
        in_commit += done.since(now);
        clients[client] = done;
    }

    let (host, stats) = (*device.request_stats(), device.stats());
    let end = clients.into_iter().max();
    let programs = stats.total(Operation::Program) + stats.total(Operation::Reprogram);
    Ok(Outcome {
        committed: host.committed,
        elapsed: end.expect("there are clients").since(start),
        in_commit,
        programs,
        copied: stats.relocated,
        write_amplification: programs as f64 / host.pages_written as f64,
    })
}

fn main() -> Result<(), DeviceError> {
    println!("protocol       tx/s  commit us  programs/tx  copied/tx  write amplification");
    for kind in PROTOCOLS {
        let outcome = run(kind)?;
        let committed = outcome.committed as f64;
        println!(
            "{:<10} {:>8.0} {:>10.0} {:>12.2} {:>10.2} {:>20.2}",
            kind.to_string(),
            committed / (outcome.elapsed.0 as f64 / 1e9),
            outcome.in_commit.0 as f64 / 1e3 / committed,
            outcome.programs as f64 / committed,
            outcome.copied as f64 / committed,
            outcome.write_amplification,
        );
        assert!(outcome.copied > 0, "the collector had work");
    }
    Ok(())
}
