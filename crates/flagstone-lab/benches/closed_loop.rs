//! Transactions a minute of wall clock: TPC-C clients over each stack.
//!
//! ```text
//!   cargo bench -p flagstone-lab --bench closed_loop -- [--stacks a,b] [--transactions N]
//!                                                        [--check] [--json]
//! ```
//!
//! 50 clients, 20 warehouses (2 GiB), a pool of 512 pages, and the cells and latencies of
//! `flagcommit-slc` with pages of 8 KB in blocks of 128 KB, as many blocks as make the database
//! fill the device. One thread; the fill is not counted. With `--check` every read is held against
//! what was committed.

use flagstone::commit::Options;
use flagstone::settings::Settings;
use flagstone_host::Stack;
use flagstone_lab::closed::{Closed, Terms};
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::pages::{self, Pages};
use std::process::ExitCode;

const CLIENTS: u32 = 50;
const WAREHOUSES: i64 = 20;

fn device() -> DeviceSpec {
    let mut device = DeviceSpec::load("flagcommit-slc").expect("a preset");
    device.geometry.page_bytes = 8192;
    device.geometry.spare_bytes = 256;
    device.geometry.pages_per_block = 16;
    // 64 planes; 12 % are reserved, since blocks this small need more than a tenth for the
    // collector, and 306,000 pages are left.
    device.geometry.blocks_per_plane = 340;
    device.config.over_provision = 0.12;
    device
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let transactions = match value("--transactions").map(|n| n.parse()) {
        None => 20_000,
        Some(Ok(transactions)) => transactions,
        Some(Err(error)) => {
            eprintln!("--transactions: {error}");
            return ExitCode::FAILURE;
        }
    };
    let stacks = value("--stacks").unwrap_or("wal,force:cfc,force:scc".into());
    for name in stacks.split(',') {
        let stack: Stack = match name.parse() {
            Ok(stack) => stack,
            Err(error) => {
                eprintln!("--stacks: {error}");
                return ExitCode::FAILURE;
            }
        };
        let closed = Closed {
            stack,
            options: Options::default(),
            device: device(),
            settings: Settings::new(),
            policy_settings: Settings::new(),
            terms: Terms {
                clients: CLIENTS,
                abort_ratio: 0.05,
                fill: 0.95,
                overwrite: true,
                warm_up: transactions / 4,
                transactions,
                check: arguments.iter().any(|argument| argument == "--check"),
                ..Terms::default()
            },
            workload: "tpcc".into(),
        };
        let options = pages::PagesOptions::new(Scale::standard(WAREHOUSES), 1);
        let run = Pages::new(&options)
            .map_err(|error| error.to_string())
            .and_then(|mut pages| closed.run(&mut pages).map_err(|error| error.to_string()));
        match run {
            Ok(record) if arguments.iter().any(|argument| argument == "--json") => {
                println!("{}", serde_json::to_string(&record).expect("plain data"));
            }
            Ok(record) => println!(
                "{stack}: {:.0} transactions a minute of wall clock; {:.0} a second of virtual \
                 time, {:.3} restarts each, pool hits {:.1} %, collector {:.1} %, {:.1} s in all",
                record
                    .timing
                    .map_or(0.0, |t| t.transactions_per_wall_minute),
                record.throughput_tps,
                record.restart_ratio,
                100.0 * record.pool_hit_ratio,
                100.0 * record.gc_share,
                record.timing.map_or(0.0, |t| t.wall_s),
            ),
            Err(error) => println!("{stack}: {error}"),
        }
    }
    ExitCode::SUCCESS
}
