//! `flagstone-versus lives`: the cost of several workloads in Flagstone's tables and in widely used
//! stores, compared with SQLite in WAL mode: bytes, disk space, memory, descriptors, latency.
//!
//! Each life runs in a process of its own, so that the kernel's counts cover that life alone.
//! [`life`] has the lives, [`stores`] the stores. `flagstone sqlite lives` measures SQLite in a
//! store.

mod life;
mod stores;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use life::{Costs, Life, Lived};
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use stores::Kind;

/// Compare the cost of several simulated lives in Flagstone's tables and in other stores.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Lives {
    /// Lives, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_enum, hide_default_value = true, default_values_t = Life::value_variants().to_vec())]
    only: Vec<Life>,
    /// Stores, separated by commas; ratios are relative to SQLite [default: all].
    #[arg(long, value_delimiter = ',', value_enum, hide_default_value = true, default_values_t = Kind::ALL)]
    stores: Vec<Kind>,
    /// Factor by which each life is lengthened.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the files, which are removed afterwards.
    #[arg(long)]
    dir: PathBuf,
    /// Print one JSON object per row, one per line.
    #[arg(long)]
    json: bool,
    /// First run `queue` in a store that ignores a delete: a control, which must be detected.
    #[arg(long)]
    check: bool,
    /// Run one life in this process, in the folder `--dir`.
    #[arg(long, hide = true)]
    alone: bool,
}

pub(crate) fn main(args: &Lives) -> Result<()> {
    if args.alone {
        let lived = Lived::new(args.stores[0], &args.dir, args.seed)?;
        let costs = lived.live(args.only[0], args.times)?;
        println!("{}", serde_json::to_string(&costs)?);
        return Ok(());
    }
    if args.check {
        let found = args.apart(Life::Queue, Kind::DropsADelete).is_err();
        ensure!(found, "the check did not notice a store that drops a delete");
        eprintln!("the control store was detected, as expected");
    }
    // SQLite comes first, since the others are compared with it.
    let mut kinds = args.stores.clone();
    kinds.sort_by_key(|&kind| kind != Kind::Sqlite);
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "life", "store", "given", "written", "of WAL", "device", "of WAL", "most", "end", "memory",
        "fds", "p99.9", "opening",
    ]);
    for &life in &args.only {
        let mut wal = None;
        for &kind in &kinds {
            let costs = args.apart(life, kind)?;
            if kind == Kind::Sqlite {
                wal = Some(costs.clone());
            }
            let of_wal = |cost: fn(&Costs) -> Option<u64>| {
                Some(cost(&costs)? as f64 / cost(wal.as_ref()?)? as f64)
            };
            let ratios = [
                of_wal(|it| Some(it.written)),
                of_wal(|it| it.device),
                of_wal(|it| Some(it.p999_ns)),
                of_wal(|it| Some(it.opening_ns)),
            ];
            if args.json {
                let [written, device, p999, opening] = ratios;
                let of_wal = json!({
                    "written": written, "device": device, "p999": p999, "opening": opening,
                });
                let (life, store) = (name(life), name(kind));
                let row = json!({ "life": life, "store": store, "costs": costs, "of_wal": of_wal });
                println!("{row}");
            }
            table.add_row(cells(life, kind, &costs, ratios));
        }
    }
    if !args.json {
        println!("{}\n{NOTES}", table.trim_fmt());
    }
    Ok(())
}

const NOTES: &str = "\
given, device, memory, room: MB
written: bytes written by the process, as counted by the kernel; a buffered write counts its whole folio
device: written to the device by all processes, with the journal of the file system: use a file \
system of its own
most: room of the files when largest for the records in them, and those records; end: both after the \
life
memory: the peak of the process, with the pages that it maps; fds: descriptors
of WAL, p99.9, opening: ratios to SQLite's; 99.9 % of commits take less; opening with a first read
sqlite: journal_mode WAL, synchronous FULL, a table without rowid; the others: the defaults
compaction: VACUUM; compact of Flagstone and redb; a compacted copy of LMDB, synced and renamed";

fn cells(life: Life, kind: Kind, costs: &Costs, ratios: [Option<f64>; 4]) -> [String; 13] {
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let of = |[room, live]: [u64; 2]| format!("{} of {}", megabytes(room), megabytes(live));
    let ratio = |ratio: Option<f64>| ratio.map_or(String::new(), |it| format!("{it:.2}"));
    let [written, device, p999, opening] = ratios.map(ratio);
    [
        name(life),
        name(kind),
        megabytes(costs.given),
        megabytes(costs.written),
        written,
        costs.device.map(megabytes).unwrap_or_default(),
        device,
        of(costs.most),
        of(costs.end),
        megabytes(costs.memory),
        costs.descriptors.to_string(),
        p999,
        opening,
    ]
}

fn name(it: impl ValueEnum) -> String {
    let value = it.to_possible_value().expect("none is skipped");
    value.get_name().into()
}

impl Lives {
    /// Runs a life in a child process.
    fn apart(&self, life: Life, kind: Kind) -> Result<Costs> {
        let what = format!("{} in {}", name(life), name(kind));
        eprintln!("{what}");
        let folder = self.dir.join(what.replace(' ', "-"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
        let ended = Command::new(std::env::current_exe()?)
            .args([
                "lives",
                "--alone",
                "--only",
                &name(life),
                "--stores",
                &name(kind),
            ])
            .args([
                "--times",
                &self.times.to_string(),
                "--seed",
                &self.seed.to_string(),
            ])
            .arg("--dir")
            .arg(&folder)
            .stderr(Stdio::inherit())
            .output();
        std::fs::remove_dir_all(&folder)?;
        let ended = ended?;
        if !ended.status.success() {
            bail!("{what}: {}", ended.status);
        }
        Ok(serde_json::from_slice(&ended.stdout)?)
    }
}
