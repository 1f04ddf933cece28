//! Key workloads: the loaded keys, and the windows of operations that are measured in sequence.

use super::keys::KeyKind;
use flagstone_lab::names::Named;
use flagstone_lab::no_such;
use serde::{Deserialize, Serialize};

/// Maximum number of records: their keys are in memory.
const RECORDS_MAX: u64 = 1 << 30;

/// Maximum number of operations per window: several weeks of them.
const OPERATIONS_MAX: u64 = 1 << 40;

/// The mix of operations in a window, as weights; they need not add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mix {
    /// A new key.
    pub insert: f64,
    /// A new value for an existing key.
    pub update: f64,
    /// Deletion of an existing key.
    pub delete: f64,
    /// A search of an existing key.
    pub search: f64,
    /// A search of a missing key.
    pub miss: f64,
    /// A scan of up to a hundred keys.
    pub scan: f64,
    /// A search, then an update, of the same key.
    pub modify: f64,
}

/// Selection among the existing keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyChoice {
    /// Uniform.
    Uniform,
    /// `Hot(0.8)`: 80 % of the accesses go to 20 % of the places, and so on within these: Zipf's
    /// law with one exponent (Knuth's 80-20 rule). A place is where an index stores a key: hot keys
    /// are adjacent, in key order for a tree, in bucket order for a hash index, whose hot buckets
    /// may be scattered (see [`KeyWorkload::scattered`]).
    Hot(f64),
    /// Zipf's law over keys, regardless of their places.
    Zipf(f64),
    /// Zipf's law over keys, newest first.
    Latest(f64),
}

/// The order in which keys are loaded, which determines the fill of a tree's leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadOrder {
    /// In the order of drawing: leaves are filled at random, to 69 %.
    #[default]
    Appearance,
    /// Sorted by key: each split leaf stays half full.
    Keys,
    /// Sorted by key and loaded at once: leaves are full, as after bulk loads.
    Packed,
}

impl LoadOrder {
    /// All, with their names.
    pub const ALL: [(LoadOrder, &'static str); 3] = [
        (LoadOrder::Appearance, "appearance"),
        (LoadOrder::Keys, "keys"),
        (LoadOrder::Packed, "packed"),
    ];
}

impl Named for LoadOrder {
    const WHAT: &'static str = "load_order";

    fn all() -> Vec<(Self, &'static str)> {
        LoadOrder::ALL.to_vec()
    }
}

/// A window of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSpec {
    /// Its name in results.
    pub name: String,
    /// Number of operations.
    pub operations: u64,
    /// The mix of operations.
    pub mix: Mix,
    /// The selection of keys.
    pub access: KeyChoice,
    /// Whether the index is flushed at the end, before it is measured.
    pub flush: bool,
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyWorkload {
    /// Its name.
    pub name: String,
    /// The kind of keys.
    pub keys: KeyKind,
    /// Number of keys inserted before the measurement.
    pub load: u64,
    /// Their order.
    pub load_order: LoadOrder,
    /// Number of unmeasured operations before the first window, with its mix.
    pub warm_up: u64,
    /// The windows.
    pub windows: Vec<WindowSpec>,
    /// Whether the hot buckets of a hash index are scattered, not adjacent.
    pub scattered: bool,
}

/// Parameters of a workload. The fields are keys of experiment files, and `flagstone index bench`
/// has an option for each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BenchOptions {
    /// Keys at the end of a trace that inserts; otherwise the number of loaded keys.
    pub records: u64,
    /// Operations of a window [default: the workload's].
    pub operations: Option<u64>,
    /// Shares of searches, one window for each (trace D, E).
    #[serde(default)]
    pub search_shares: Vec<f64>,
    /// Localities, one window for each (trace C), or a single one (trace E, F, H): 0.8 is "80-20".
    #[serde(default)]
    pub localities: Vec<f64>,
    /// Sizes as shares of `records`, one window for each (trace A, B, F, G).
    #[serde(default)]
    pub sizes: Vec<f64>,
    /// Kind of keys [default: the workload's].
    pub keys: Option<KeyKind>,
    /// Whether the hot buckets of a hash index are scattered (trace C, E).
    #[serde(default)]
    pub scattered: bool,
    /// Unmeasured operations before the first window, with its mix [default: the workload's].
    pub warm_up: Option<u64>,
    /// The order in which keys are loaded: `appearance`, `keys` or `packed`.
    #[serde(default, with = "flagstone_lab::names")]
    pub load_order: LoadOrder,
    /// Whether the index is flushed at the end of the last window, and the flush is measured.
    #[serde(default)]
    pub flush: bool,
}

impl BenchOptions {
    /// These options with scaled numbers of records and operations.
    #[must_use]
    pub fn scaled(&self, scale: impl Fn(u64) -> u64) -> BenchOptions {
        BenchOptions {
            records: scale(self.records),
            operations: self.operations.map(&scale),
            warm_up: self.warm_up.map(&scale),
            ..self.clone()
        }
    }
}

/// The names of all workloads, with descriptions.
pub const WORKLOADS: &[(&str, &str)] = &[
    (
        "A",
        "SAL-hashing's trace A: random insertions into an empty index",
    ),
    ("B", "trace B: random searches at each size of trace A"),
    ("C", "trace C: searches of growing locality"),
    (
        "D",
        "trace D: uniform searches and updates, one window per share of searches",
    ),
    ("E", "trace E: the same with 80-20 locality"),
    (
        "F",
        "trace F: successful and unsuccessful searches within one split cycle",
    ),
    (
        "G",
        "trace G: insertions through one split cycle, to measure their memory",
    ),
    ("H", "trace H: half searches, half updates"),
    ("ycsb-a", "YCSB: half reads, half updates, Zipf"),
    ("ycsb-b", "YCSB: 95 % reads, 5 % updates, Zipf"),
    ("ycsb-c", "YCSB: reads, Zipf"),
    ("ycsb-d", "YCSB: 95 % reads of the latest, 5 % insertions"),
    (
        "ycsb-e",
        "YCSB: 95 % short ranges, 5 % insertions, Zipf; for ordered indexes",
    ),
    (
        "ycsb-f",
        "YCSB: half reads, half reads with an update, Zipf",
    ),
    (
        "lazy-query-insert",
        "lazy-update tree's W-Query(Insert): 80 % searches, 20 % insertions",
    ),
    (
        "lazy-update-insert",
        "W-Update(Insert): 20 % searches, 80 % insertions",
    ),
    (
        "lazy-query-mix",
        "W-Query(Mix): 80 % searches, 12 % insertions, 8 % deletions",
    ),
    (
        "lazy-update-mix",
        "W-Update(Mix): 20 % searches, 48 % insertions, 32 % deletions",
    ),
];

fn spec(name: impl Into<String>, operations: u64, mix: Mix, access: KeyChoice) -> WindowSpec {
    let name = name.into();
    WindowSpec {
        name,
        operations,
        mix,
        access,
        flush: false,
    }
}

/// Fraction of the authors of [LazyBtree] §5.1 that are in the tree before the measurement.
const INITIAL: f64 = 540_936.0 / 610_907.0;

impl KeyWorkload {
    /// The workload with this name.
    ///
    /// # Errors
    /// No such workload, with a similar name; or invalid numbers.
    pub fn new(name: &str, options: &BenchOptions) -> Result<KeyWorkload, String> {
        let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
        if !names.contains(&name) {
            return Err(no_such("workload", name, &names));
        }
        let shares = options.search_shares.iter().chain(&options.sizes);
        if let Some(share) = shares
            .into_iter()
            .find(|share| !(0.0..=1.0).contains(*share))
        {
            return Err(format!("{share} is no share: use a number from 0 to 1"));
        }
        let mut localities = options.localities.iter();
        if let Some(locality) = localities.find(|share| !(0.5..1.0).contains(*share)) {
            return Err(format!(
                "{locality} is no locality: use a number from 0.5 (uniform) to below 1"
            ));
        }
        if let Some(operations) = options.operations
            && !(1..=OPERATIONS_MAX).contains(&operations)
        {
            return Err(format!(
                "a window has from 1 to {OPERATIONS_MAX} operations, not {operations}"
            ));
        }
        if !(1..=RECORDS_MAX).contains(&options.records) {
            return Err(format!(
                "a workload has from 1 to {RECORDS_MAX} records, not {}",
                options.records
            ));
        }
        let mut workload = KeyWorkload {
            name: name.into(),
            keys: KeyKind::Uniform,
            load: options.records,
            load_order: options.load_order,
            warm_up: 0,
            windows: Vec::new(),
            scattered: options.scattered,
        };
        if let Some(kind) = name.strip_prefix("ycsb-") {
            workload.ycsb(kind, options);
        } else if let Some(kind) = name.strip_prefix("lazy-") {
            workload.lazy(kind, options);
        } else {
            workload.sal(name, options);
        }
        workload.keys = options.keys.unwrap_or(workload.keys);
        workload.warm_up = options.warm_up.unwrap_or(workload.warm_up);
        if let Some(last) = workload.windows.last_mut() {
            last.flush |= options.flush;
        }
        if workload.windows.iter().all(|spec| spec.operations == 0) {
            return Err(format!(
                "{name} has no operation on so few records: use more than {}",
                options.records
            ));
        }
        if workload.most_keys() > RECORDS_MAX {
            return Err(format!(
                "{name} would come to {} records, and a workload has {RECORDS_MAX} at the most: use \
                 fewer operations",
                workload.most_keys()
            ));
        }
        Ok(workload)
    }

    /// Maximum number of keys at any time.
    pub fn most_keys(&self) -> u64 {
        let inserted = |spec: &WindowSpec| {
            let Mix {
                insert,
                update,
                delete,
                search,
                miss,
                scan,
                modify,
            } = spec.mix;
            let all = insert + update + delete + search + miss + scan + modify;
            (spec.operations as f64 * insert / all).ceil() as u64
        };
        self.load + self.windows.iter().map(inserted).sum::<u64>()
    }

    fn ycsb(&mut self, kind: &str, options: &BenchOptions) {
        let (mut mix, mut access) = (Mix::default(), KeyChoice::Zipf(0.99));
        match kind {
            "a" => (mix.search, mix.update) = (0.5, 0.5),
            "b" => (mix.search, mix.update) = (0.95, 0.05),
            "c" => mix.search = 1.0,
            "d" => (mix.search, mix.insert, access) = (0.95, 0.05, KeyChoice::Latest(0.99)),
            "e" => (mix.scan, mix.insert) = (0.95, 0.05),
            _ => (mix.search, mix.modify) = (0.5, 0.5),
        }
        let operations = options.operations.unwrap_or(options.records);
        self.warm_up = operations / 10;
        self.windows.push(spec(kind, operations, mix, access));
    }

    /// [LazyBtree] §5.1. All four workloads insert the same keys, the new authors. In the mixes
    /// these insertions are 60 % of the updates.
    fn lazy(&mut self, kind: &str, options: &BenchOptions) {
        self.keys = KeyKind::Names;
        self.load = (options.records as f64 * INITIAL).round() as u64;
        let (load, mixture) = kind.split_once('-').expect("a listed name");
        let search = if load == "query" { 0.8 } else { 0.2 };
        let change = 1.0 - search;
        let (insert, delete) = match mixture {
            "insert" => (change, 0.0),
            _ => (0.6 * change, 0.4 * change),
        };
        let new = options.records - self.load;
        let operations = (new as f64 / insert).round() as u64;
        let mix = Mix {
            insert,
            delete,
            search,
            ..Mix::default()
        };
        let operations = options.operations.unwrap_or(operations);
        self.windows
            .push(spec(kind, operations, mix, KeyChoice::Uniform));
    }

    /// [SAL] §4.
    fn sal(&mut self, trace: &str, options: &BenchOptions) {
        let searches = Mix {
            search: 1.0,
            ..Mix::default()
        };
        let inserts = Mix {
            insert: 1.0,
            ..Mix::default()
        };
        let or = |list: &[f64], default: &[f64]| -> Vec<f64> {
            if list.is_empty() {
                default.to_vec()
            } else {
                list.to_vec()
            }
        };
        // The paper measures 10 million operations on 80 million records.
        let operations = options.operations.unwrap_or((options.records / 8).max(1));
        let sizes = or(&options.sizes, &[0.0625, 0.125, 0.25, 0.5, 1.0]);
        match trace {
            "A" | "B" | "G" => {
                self.load = 0;
                let mut have = 0;
                for size in sizes {
                    let until = (options.records as f64 * size).round() as u64;
                    let more = until.saturating_sub(have);
                    have += more;
                    let name = if trace == "B" {
                        format!("grow-{size}")
                    } else {
                        size.to_string()
                    };
                    let grow = spec(name, more, inserts, KeyChoice::Uniform);
                    // [SAL] §4.3 measures the memory when all log regions are merged.
                    let flush = trace == "G";
                    self.windows.push(WindowSpec { flush, ..grow });
                    if trace == "B" {
                        self.windows.push(spec(
                            size.to_string(),
                            operations,
                            searches,
                            KeyChoice::Uniform,
                        ));
                    }
                }
            }
            "C" => {
                for locality in or(&options.localities, &[0.5, 0.6, 0.7, 0.8, 0.9]) {
                    self.windows.push(spec(
                        locality.to_string(),
                        operations,
                        searches,
                        KeyChoice::Hot(locality),
                    ));
                }
            }
            "F" => {
                let misses = Mix {
                    miss: 1.0,
                    ..Mix::default()
                };
                self.windows
                    .push(spec("successful", operations, searches, KeyChoice::Uniform));
                self.windows
                    .push(spec("unsuccessful", operations, misses, KeyChoice::Uniform));
            }
            _ => {
                let locality = options.localities.first().copied();
                let access = match (trace, locality) {
                    ("E", None) => KeyChoice::Hot(0.8),
                    (_, None) => KeyChoice::Uniform,
                    (_, Some(locality)) => KeyChoice::Hot(locality),
                };
                let shares = match trace {
                    "H" => vec![0.5],
                    _ => or(&options.search_shares, &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
                };
                for search in shares {
                    let mix = Mix {
                        search,
                        update: 1.0 - search,
                        ..Mix::default()
                    };
                    self.windows
                        .push(spec(search.to_string(), operations, mix, access));
                }
                self.warm_up = operations / 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(records: u64) -> BenchOptions {
        BenchOptions {
            records,
            ..BenchOptions::default()
        }
    }

    #[test]
    fn every_listed_workload_is_one() {
        for (name, _) in WORKLOADS {
            let workload = KeyWorkload::new(name, &options(10_000)).unwrap();
            assert!(
                !workload.windows.is_empty() && workload.most_keys() >= 10_000,
                "{workload:?}"
            );
        }
        let error = KeyWorkload::new("ycsb-g", &options(1)).unwrap_err();
        assert!(error.contains("did you mean `ycsb-"), "{error}");
        assert!(KeyWorkload::new("A", &options(0)).is_err());
    }

    #[test]
    fn numbers_that_nothing_comes_of_are_refused() {
        let refused = |name: &str, change: fn(&mut BenchOptions)| {
            let mut options = options(1000);
            change(&mut options);
            KeyWorkload::new(name, &options).unwrap_err()
        };
        for operations in [0, u64::MAX] {
            let mut options = options(1000);
            options.operations = Some(operations);
            let error = KeyWorkload::new("ycsb-a", &options).unwrap_err();
            assert!(error.contains("from 1 to"), "{error}");
        }
        let many = refused("ycsb-d", |options| options.operations = Some(1 << 40));
        assert!(many.contains("fewer operations"), "{many}");
        let few = refused("lazy-update-mix", |options| options.records = 1);
        assert!(few.contains("no operation on so few records"), "{few}");
        for locality in [0.0, 0.49, 1.0, f64::NAN, -1.0] {
            let mut options = options(1000);
            options.localities = vec![0.5, locality];
            let error = KeyWorkload::new("C", &options).unwrap_err();
            assert!(error.contains("is no locality"), "{error}");
        }
        let share = refused("D", |options| options.search_shares = vec![f64::NAN]);
        assert!(share.contains("is no share"), "{share}");
    }

    #[test]
    fn the_papers_counts_come_out() {
        let workload = |name| KeyWorkload::new(name, &options(610_907)).unwrap();
        let insert = workload("lazy-query-insert");
        assert_eq!(insert.load, 540_936);
        assert_eq!(insert.windows[0].operations, 69_971 * 5);
        assert_eq!(workload("lazy-query-mix").windows[0].operations, 583_092);
        assert_eq!(workload("lazy-update-mix").windows[0].operations, 145_773);
        let a = KeyWorkload::new("A", &options(160)).unwrap();
        let grown: Vec<u64> = a.windows.iter().map(|spec| spec.operations).collect();
        assert_eq!(grown, [10, 10, 20, 40, 80]);
    }
}
