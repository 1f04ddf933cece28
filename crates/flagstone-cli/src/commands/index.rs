//! `flagstone index`: which indexes there are, and what one costs under a workload.

use super::{Failure, device, progress_bar, protocol_of, say, unknown};
use clap::builder::PossibleValuesParser;
use flagstone::index::{IndexKind, Info, Settings};
use flagstone_lab::indexing::{
    Bench, BenchError, IndexRecord, KeyKind, Options, Place, Plan, WORKLOADS,
};
use flagstone_store::FileOptions;
use serde_json::json;
use std::process::ExitCode;

/// List the indexes, run one under a workload in virtual time.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the indexes: what they cost, and their settings.
    List {
        /// Print one JSON object an index, one a line.
        #[arg(long)]
        json: bool,
    },
    /// Load an index and measure operations: pages read and written, virtual time, memory.
    Bench(Box<BenchArgs>),
}

#[derive(Debug, clap::Args)]
struct BenchArgs {
    /// The index, see `flagstone index list`.
    #[arg(long)]
    index: String,
    /// A to H (SAL-hashing's traces), ycsb-a to ycsb-f, or one of the lazy-update tree's.
    #[arg(long, default_value = "ycsb-a")]
    workload: String,
    /// Where it lies: sim (a simulated device), mem (memory that takes no time), or file:PATH (a
    /// file that is not there yet, or a block device; time is then what requests take).
    #[arg(long, default_value = "sim")]
    store: String,
    /// sim: a preset (see `flagstone device list`) or a TOML file. As many of its blocks are
    /// simulated as the workload needs.
    #[arg(long, default_value = "sal-high-end")]
    device: String,
    /// sim: the commit protocol of the device.
    #[arg(long, default_value = "plain")]
    protocol: String,
    /// Keys: those loaded, or those at the end of a workload that inserts them.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Operations of each window [default: the workload's].
    #[arg(long)]
    operations: Option<u64>,
    /// Which keys: uniform, names or ascending [default: the workload's].
    #[arg(long, value_parser = PossibleValuesParser::new(KeyKind::ALL.map(|(_, name)| name)))]
    keys: Option<String>,
    /// D, E: shares of searches, a window each.
    #[arg(long, value_delimiter = ',')]
    searches: Vec<f64>,
    /// C: a window for each of these localities; D, E, H: the one. 0.8 is 80-20.
    #[arg(long, value_delimiter = ',')]
    locality: Vec<f64>,
    /// C, E: the hot buckets of a hash index lie anywhere, not side by side.
    #[arg(long)]
    scattered: bool,
    /// Bytes of memory for page frames and the index's own buffers.
    #[arg(long, default_value_t = 1 << 20)]
    memory: u64,
    /// A setting of the index; several times for several.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// mem, file: bytes of a page.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(256..=65536))]
    page_bytes: u32,
    /// file: requests in flight at once.
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
    /// file: go through the system's page cache.
    #[arg(long)]
    buffered: bool,
    /// Seed of keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.action {
        Action::List { json } => list(*json),
        Action::Bench(args) => {
            let bench = bench_of(args)?;
            let bar = progress_bar(0, bench.index.info().name);
            let watch = |done, all| {
                bar.set_length(all);
                bar.set_position(done);
            };
            let outcome = bench.run(&watch);
            bar.finish_and_clear();
            let record = outcome.map_err(|error| match error {
                BenchError::Setup(why) => Failure::Usage(why),
                error => error.into(),
            })?;
            if args.json {
                say(&serde_json::to_string(&record)?);
            } else {
                table(&record);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn bench_of(args: &BenchArgs) -> Result<Bench, Failure> {
    let kind = index_of(&args.index)?;
    let mut settings = Settings::new().with("memory", args.memory);
    for pair in &args.set {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!(
                "--set {pair}: it must be NAME=VALUE"
            )));
        };
        settings.set(name.trim(), value.trim());
    }
    settings
        .check(kind.info())
        .map_err(|error| Failure::Usage(format!("--set: {error}")))?;
    let keys = args.keys.as_deref().map(KeyKind::by_name).transpose();
    let options = Options {
        records: args.records,
        operations: args.operations,
        search_shares: args.searches.clone(),
        localities: args.locality.clone(),
        sizes: Vec::new(),
        keys: keys.map_err(Failure::Usage)?,
        scattered: args.scattered,
    };
    Ok(Bench {
        index: kind,
        settings,
        load: None,
        place: place_of(args)?,
        plan: Plan::new(&args.workload, &options).map_err(Failure::Usage)?,
        seed: args.seed,
    })
}

fn index_of(name: &str) -> Result<IndexKind, Failure> {
    IndexKind::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = IndexKind::ALL.iter().map(|kind| kind.info().name).collect();
        unknown("index", name, &names)
    })
}

/// A further kind of store is an arm here and a variant of [`Place`].
fn place_of(args: &BenchArgs) -> Result<Place, Failure> {
    match args.store.as_str() {
        "mem" => Ok(Place::Mem {
            page_bytes: args.page_bytes as usize,
        }),
        "sim" => {
            let protocol = protocol_of(&args.protocol)?;
            let device = Box::new(device::load(&args.device)?);
            Ok(Place::Sim { device, protocol })
        }
        other => match other.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(Place::File {
                path: path.into(),
                options: FileOptions {
                    page_bytes: args.page_bytes as usize,
                    direct: !args.buffered,
                    in_flight: args.in_flight,
                    ..FileOptions::default()
                },
            }),
            _ => Err(Failure::Usage(format!(
                "there is no store `{other}`; there are sim, mem and file:PATH"
            ))),
        },
    }
}

fn list(json: bool) {
    let infos: Vec<&Info> = IndexKind::ALL.iter().map(|kind| kind.info()).collect();
    if json {
        for info in infos {
            let settings = info.settings.iter().map(|setting| {
                json!({"name": setting.name, "default": setting.default, "what": setting.what})
            });
            let object = json!({
                "name": info.name,
                "idea": info.idea,
                "paper": info.paper,
                "ordered": info.ordered,
                "buffers": info.buffers,
                "search": info.costs[0],
                "insert": info.costs[1],
                "split_or_merge": info.costs[2],
                "settings": settings.collect::<Vec<_>>(),
            });
            say(&object.to_string());
        }
        return;
    }
    let new_table = || {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table
    };
    let mut costs = new_table();
    costs.set_header([
        "index",
        "paper",
        "order",
        "search",
        "insert",
        "split, merge",
        "idea",
    ]);
    let mut settings = new_table();
    settings.set_header(["index", "setting", "default", ""]);
    let mut add = |index: &str, setting: &flagstone::index::Setting| {
        settings.add_row([index, setting.name, setting.default, setting.what]);
    };
    for setting in flagstone::index::COMMON {
        add("all", setting);
    }
    for info in infos {
        let order = if info.ordered { "yes" } else { "" };
        let [search, insert, split] = info.costs;
        costs.add_row([
            info.name, info.paper, order, search, insert, split, info.idea,
        ]);
        info.settings
            .iter()
            .for_each(|setting| add(info.name, setting));
    }
    say(&costs.to_string());
    say("\nSettings, given by --set NAME=VALUE:\n");
    say(&settings.to_string());
    let mut workloads = new_table();
    workloads.set_header(["workload", ""]);
    for (name, what) in WORKLOADS {
        workloads.add_row([name, what]);
    }
    say("\nWorkloads of `flagstone index bench`:\n");
    say(&workloads.to_string());
}

fn table(record: &IndexRecord) {
    let place = record.device.as_deref().unwrap_or(match record.store {
        "file" => "a file",
        _ => "memory",
    });
    say(&format!(
        "{} under {}, {} keys, on {place}\n",
        record.index, record.workload, record.records
    ));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "window",
        "operations",
        "reads",
        "writes",
        "reads/op",
        "writes/op",
        "coarse",
        "hits",
        "us/op",
        "s",
        "memory KiB",
        "cpu us/op",
    ]);
    for window in &record.windows {
        let each = |sum: f64| sum / window.operations.max(1) as f64;
        let memory: u64 = window.memory_bytes.values().sum();
        table.add_row([
            window.name.clone(),
            window.operations.to_string(),
            window.reads.to_string(),
            window.writes.to_string(),
            format!("{:.3}", each(window.reads as f64)),
            format!("{:.3}", each(window.writes as f64)),
            window.coarse_pages.to_string(),
            format!("{:.1} %", window.hit_ratio * 100.0),
            format!("{:.2}", each(window.virtual_ns as f64 / 1e3)),
            format!("{:.3}", window.virtual_ns as f64 / 1e9),
            (memory / 1024).to_string(),
            format!("{:.2}", each(window.cpu_s * 1e6)),
        ]);
    }
    say(&table.to_string());
    say(
        "\ncoarse: pages of those written that went out several side by side; times but cpu are virtual, in a \
         file those of its requests",
    );
}
