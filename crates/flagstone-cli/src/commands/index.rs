//! `flagstone index`: lists the indexes, and measures one under a workload.

use super::settings::{Given, Owner, as_json};
use super::{Failure, device, named, plain_table, progress_bar, protocol_of, say, unknown};
use flagstone::commit::{Kind, Options};
use flagstone_index::{COMMON, FileOptions, IndexError, IndexInfo, IndexKind};
use flagstone_papers::indexing::{
    Bench, BenchError, BenchOptions, IndexRecord, KeyChoice, KeyKind, KeyWorkload, LoadOrder,
    Place, WORKLOADS, WindowSpec,
};
use serde_json::json;
use std::process::ExitCode;

/// List the indexes, or run one under a workload in virtual time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the indexes, with their costs and settings.
    List {
        /// Print one JSON object per index, one per line.
        #[arg(long)]
        json: bool,
    },
    /// Load an index and measure operations: pages read and written, virtual time, memory.
    Bench(Box<BenchArgs>),
}

#[derive(Debug, clap::Args)]
struct BenchArgs {
    /// The index (see `flagstone index list`).
    #[arg(long)]
    index: String,
    /// Workload: A to H (SAL-hashing's traces), ycsb-a to ycsb-f, or one of the lazy-update tree's.
    #[arg(long, default_value = "ycsb-a")]
    workload: String,
    /// Storage: sim (a simulated device), mem (memory without latency), or file:PATH (a new file or
    /// a block device; times are then real).
    #[arg(long, default_value = "sim")]
    store: String,
    /// sim: a preset (see `flagstone device list`) or a TOML file [default: sal-high-end].
    /// Simulates as many of its blocks as the workload needs.
    #[arg(long)]
    device: Option<String>,
    /// sim: the commit protocol of the device [default: plain].
    #[arg(long)]
    protocol: Option<String>,
    /// Keys to load, or, for workloads that insert them, keys at the end.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Operations per window [default: the workload's]. A and G use the number of records instead.
    #[arg(long)]
    operations: Option<u64>,
    /// Distribution of keys: uniform, names or ascending [default: the workload's].
    #[arg(long, value_parser = named(KeyKind::ALL))]
    keys: Option<KeyKind>,
    /// D, E: shares of searches, one window for each.
    #[arg(long, value_delimiter = ',')]
    searches: Vec<f64>,
    /// C: localities, one window for each; D, E, H: a single locality. 0.8 means 80-20, 0.5
    /// uniform.
    #[arg(long, value_delimiter = ',')]
    locality: Vec<f64>,
    /// C, and D, E, H with a locality: scatter the hot buckets of a hash index instead of placing
    /// them side by side.
    #[arg(long)]
    scattered: bool,
    /// Bytes of memory for page frames and the index's own buffers [default: 1048576].
    #[arg(long)]
    memory: Option<u64>,
    /// Set a parameter of the index, or of the device's protocol; may be repeated. If both have the
    /// name, prefix it: `g-mixsl.group=4`.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// mem, file: bytes per page [default: 4096].
    #[arg(long, value_parser = clap::value_parser!(u32).range(256..=65536))]
    page_bytes: Option<u32>,
    /// file: maximum number of requests in flight [default: 8].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    in_flight: Option<u16>,
    /// file: use the system's page cache (no O_DIRECT).
    #[arg(long)]
    buffered: bool,
    /// Seed of keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const MORE_ROOM: &str = "use fewer --records, a larger --device, or --store mem";

/// Lists the indexes, or measures one.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
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
                BenchError::Index {
                    source: IndexError::Full { .. },
                    ..
                } => Failure::from(error).tip(MORE_ROOM),
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

/// The bench that the arguments describe. Refuses settings and options without effect.
fn bench_of(args: &BenchArgs) -> Result<Bench, Failure> {
    let kind = index_of(&args.index)?;
    let set = Given::parse(&args.set)?;
    if set.has("memory") && args.memory.is_some() {
        return Err(Failure::Usage(
            "--memory and --set memory are the same setting: give one of them".into(),
        ));
    }
    let protocol = if args.store == "sim" {
        Some(protocol_of(args.protocol.as_deref().unwrap_or("plain"))?)
    } else {
        None
    };
    check_settings(&set, kind, protocol)?;
    let mut settings = set.of(kind.info());
    if !set.has("memory") {
        settings.set("memory", args.memory.unwrap_or(1 << 20));
    }
    let options = BenchOptions {
        records: args.records,
        operations: args.operations,
        search_shares: args.searches.clone(),
        localities: args.locality.clone(),
        // Traces A, B and G have the sizes that the paper gives.
        sizes: Vec::new(),
        keys: args.keys,
        scattered: args.scattered,
        // Only experiment files set these: how a paper loads its index, and when it begins to
        // measure.
        warm_up: None,
        load_order: LoadOrder::Appearance,
        flush: false,
    };
    let workload = KeyWorkload::new(&args.workload, &options).map_err(Failure::Usage)?;
    let place = place_of(args, &set)?;
    check_use(args, &workload, kind.info())?;
    Ok(Bench {
        index: kind,
        settings,
        load: None,
        place,
        workload,
        seed: args.seed,
    })
}

/// Refuses settings that neither the index nor its protocol has, and ambiguous ones.
fn check_settings(set: &Given, index: IndexKind, protocol: Option<Kind>) -> Result<(), Failure> {
    let of_index = Owner::of(index.info());
    let of_protocol = protocol.map(|kind| Owner::of(kind.info()));
    if let Some(of_protocol) = &of_protocol
        && let Some(name) = set.ambiguous(&of_index, of_protocol)
    {
        let protocol = protocol.expect("it has settings");
        return Err(Failure::Usage(format!(
            "--set {name}: {index} and {protocol} both have this setting: write {index}.{name} or \
             {protocol}.{name}"
        )));
    }
    let indexes = IndexKind::ALL.iter().map(|kind| Owner::of(kind.info()));
    let all: Vec<Owner> = indexes.chain(Owner::protocols()).collect();
    let run: Vec<Owner> = [of_index].into_iter().chain(of_protocol).collect();
    set.check(&run, &all)
}

/// Refuses options that would have no effect.
fn check_use(args: &BenchArgs, workload: &KeyWorkload, info: &IndexInfo) -> Result<(), Failure> {
    let hot = |spec: &WindowSpec| matches!(spec.access, KeyChoice::Hot(share) if share > 0.5);
    let hash_places = !info.ordered && workload.windows.iter().any(hot);
    let is = |names: &[&str]| names.contains(&args.workload.as_str());
    let sim = args.store == "sim";
    let file = args.store.starts_with("file:");
    for (given, option, used, of) in [
        (args.device.is_some(), "--device", sim, "--store sim"),
        (args.protocol.is_some(), "--protocol", sim, "--store sim"),
        (
            args.page_bytes.is_some(),
            "--page-bytes",
            !sim,
            "--store mem and --store file; a simulated device has its own page size",
        ),
        (
            args.in_flight.is_some(),
            "--in-flight",
            file,
            "--store file",
        ),
        (args.buffered, "--buffered", file, "--store file"),
        (
            !args.searches.is_empty(),
            "--searches",
            is(&["D", "E"]),
            "the workloads D and E",
        ),
        (
            !args.locality.is_empty(),
            "--locality",
            is(&["C", "D", "E", "H"]),
            "the workloads C, D, E and H",
        ),
        (
            args.locality.len() > 1,
            "--locality with several",
            is(&["C"]),
            "the workload C",
        ),
        (
            args.operations.is_some(),
            "--operations",
            !is(&["A", "G"]),
            "workloads other than A and G, which insert each record once",
        ),
        (
            args.scattered,
            "--scattered",
            hash_places,
            "hash indexes under a workload with a locality above 0.5",
        ),
    ] {
        if given && !used {
            return Err(Failure::Usage(format!(
                "{option} applies only to {of}: leave it out"
            )));
        }
    }
    Ok(())
}

fn index_of(name: &str) -> Result<IndexKind, Failure> {
    IndexKind::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = IndexKind::ALL.iter().map(|kind| kind.info().name).collect();
        unknown("index", name, &names)
    })
}

/// The place of the store. A new kind of store needs an arm here and a variant of [`Place`].
fn place_of(args: &BenchArgs, set: &Given) -> Result<Place, Failure> {
    let page_bytes = args.page_bytes.unwrap_or(4096) as usize;
    match args.store.as_str() {
        "mem" => Ok(Place::Mem { page_bytes }),
        "sim" => {
            let protocol = protocol_of(args.protocol.as_deref().unwrap_or("plain"))?;
            let device = device::load(args.device.as_deref().unwrap_or("sal-high-end"))?;
            let device = Box::new(device);
            let mut options = Options::default();
            options.settings = set.of(protocol.info());
            Ok(Place::Sim {
                device,
                protocol,
                options,
            })
        }
        other => match other.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(Place::File {
                path: path.into(),
                options: FileOptions {
                    page_bytes,
                    direct: !args.buffered,
                    in_flight: args.in_flight.unwrap_or(8).into(),
                    ..FileOptions::default()
                },
            }),
            _ => Err(unknown("store", other, &["sim", "mem", "file:PATH"])),
        },
    }
}

/// Prints the indexes with their costs and settings, and the workloads.
fn list(json: bool) {
    let infos: Vec<&IndexInfo> = IndexKind::ALL.iter().map(|kind| kind.info()).collect();
    if json {
        for info in infos {
            let settings = info.settings.iter().map(as_json);
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
    let mut costs = plain_table();
    costs.set_header([
        "index",
        "paper",
        "order",
        "search",
        "insert",
        "split, merge",
        "idea",
    ]);
    let mut settings = plain_table();
    settings.set_header(["index", "setting", "default", ""]);
    let mut add = |index: &str, setting: &flagstone_index::Setting| {
        settings.add_row([index, setting.name, setting.default, setting.what]);
    };
    for setting in COMMON {
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
    let mut workloads = plain_table();
    workloads.set_header(["workload", ""]);
    for (name, what) in WORKLOADS {
        workloads.add_row([name, what]);
    }
    say("\nWorkloads of `flagstone index bench`:\n");
    say(&workloads.to_string());
}

/// Prints a row for each window of a bench.
fn table(record: &IndexRecord) {
    let place = record.device.as_deref().unwrap_or(match record.store {
        "file" => "a file",
        _ => "memory",
    });
    say(&format!(
        "{} under {}, {} keys, on {place}\n",
        record.index, record.workload, record.records
    ));
    let mut table = plain_table();
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
        "\ncoarse: pages written in coarse writes (several pages side by side); times except cpu \
         are virtual, or for a file those of its requests",
    );
}
