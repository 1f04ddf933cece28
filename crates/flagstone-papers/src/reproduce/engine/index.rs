//! The engine for key workloads on indexes: settings and metrics.

use super::named::{self, fields_of, known, take};
use super::replay::{by_name, device_of};
use super::{Outcome, RunError};
use crate::indexing::{Bench, BenchError, BenchOptions, IndexRecord, KeyWorkload, Place, Window};
use flagstone::commit::{Kind, Options};
use flagstone_index::{IndexKind, Settings};
use flagstone_lab::effort;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Settings of an index under a workload, with the keys of an experiment file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexRun {
    /// The index, by its name.
    index: String,
    /// Its settings, by name.
    #[serde(default)]
    set: Table,
    /// The workload, by name.
    workload: String,
    /// Further options of the workload. Numbers are those of the paper.
    #[serde(flatten, skip_deserializing)]
    options: BenchOptions,
    /// Factor for records, operations and the index's memory: settings have the paper's sizes, and
    /// a run has a fraction of them.
    #[serde(default = "whole")]
    scale: f64,
    /// Settings during loading, in addition to `set`.
    #[serde(default)]
    load: Table,
    /// Its storage: `sim` or `mem`.
    #[serde(default = "sim")]
    store: String,
    /// sim: the device, with the keys of a device file.
    #[serde(default)]
    device: Table,
    /// sim: the commit protocol.
    #[serde(default = "plain")]
    protocol: String,
    /// Seed of keys and operations.
    #[serde(default = "one_seed")]
    seed: u64,
}

fn whole() -> f64 {
    1.0
}

fn sim() -> String {
    "sim".into()
}

fn plain() -> String {
    "plain".into()
}

fn one_seed() -> u64 {
    1
}

/// Ratios of the cost of a page write to a page read, as swept in [LazyBtree] Fig. 12.
const RATIOS: [f64; 8] = [0.5, 1.0, 2.0, 2.5, 4.0, 6.0, 8.0, 10.0];

impl IndexRun {
    pub(super) fn parse(mut table: Table) -> Result<IndexRun, RunError> {
        let own = [fields_of::<IndexRun>(), fields_of::<BenchOptions>()].concat();
        known(&table, &own)?;
        let mut run = take::<IndexRun>(&mut table)?;
        run.options = take(&mut table)?;
        run.bench()?;
        Ok(run)
    }

    /// A number from the paper, scaled for this run.
    fn scaled(&self, number: u64) -> u64 {
        (number as f64 * self.scale).round() as u64
    }

    /// The index's settings with scaled memory.
    fn at_scale(&self, table: &Table) -> Table {
        let mut table = table.clone();
        if let Some(Value::Integer(memory)) = table.get_mut("memory") {
            *memory = self.scaled((*memory).max(0) as u64) as i64;
        }
        table
    }

    /// The bench with these settings, at the scale of the run.
    fn bench(&self) -> Result<Bench, RunError> {
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            let why = format!("scale = {}: a part of the whole, above 0 to 1", self.scale);
            return Err(RunError::of("scale", why));
        }
        let of = |kind: &IndexKind| (*kind, kind.info().name);
        let kinds: Vec<(IndexKind, &str)> = IndexKind::ALL.iter().map(of).collect();
        let index = by_name("index", &self.index, &kinds)?;
        let settings = settings(index, &self.at_scale(&self.set))?;
        // Settings during the load, if they differ from those of the windows.
        let load = if self.load.is_empty() {
            None
        } else {
            let mut table = self.set.clone();
            table.extend(self.load.clone());
            Some(self::settings(index, &self.at_scale(&table))?)
        };
        let options = self.options.scaled(|number| self.scaled(number));
        let workload = KeyWorkload::new(&self.workload, &options);
        let workload = workload.map_err(|why| RunError::of("workload", why))?;
        let page_bytes = 4096;
        let place = match self.store.as_str() {
            "mem" if self.device.is_empty() => Place::Mem { page_bytes },
            "mem" => Place::Mem {
                page_bytes: device_of(&self.device)?.geometry.page_bytes as usize,
            },
            "sim" => {
                let kinds: Vec<(Kind, &str)> =
                    Kind::ALL.iter().map(|k| (*k, k.info().name)).collect();
                Place::Sim {
                    device: Box::new(device_of(&self.device)?),
                    protocol: by_name("protocol", &self.protocol, &kinds)?,
                    options: Options::default(),
                }
            }
            other => {
                let why = format!("there is no store `{other}`; there are sim and mem");
                return Err(RunError::of("store", why));
            }
        };
        Ok(Bench {
            index,
            settings,
            load,
            place,
            workload,
            seed: self.seed,
        })
    }

    pub(super) fn name(&self) -> String {
        let policy = self.set.get("policy").and_then(Value::as_str);
        let policy = policy.map_or(String::new(), |policy| format!(" {policy}"));
        format!(
            "{}{policy}, {}, {} keys",
            self.index,
            self.workload,
            self.scaled(self.options.records)
        )
    }

    /// See [`super::Run::effort`]; an estimate until the run has begun.
    pub(super) fn effort(&self) -> u64 {
        let operations = self
            .options
            .records
            .max(self.options.operations.unwrap_or(0));
        self.scaled(2 * operations) * effort::INDEXED
    }

    /// Executes the run. A combination that an index does not support is refused, which is no
    /// error.
    pub(super) fn outcome(&self) -> Result<Outcome, String> {
        let bench = self.bench().map_err(|error| error.to_string())?;
        let reported = Cell::new(0);
        let progress = |done: u64, all: u64| {
            let more = done - reported.replace(done);
            effort::did(more * effort::INDEXED);
            effort::left((all - done.min(all)) * effort::INDEXED);
        };
        match bench.run(&progress) {
            Ok(record) => Ok(Outcome::Done {
                metrics: metrics(&record),
                seconds: record.load_s + record.windows.iter().map(|w| w.cpu_s).sum::<f64>(),
            }),
            // For example, ranges on an unordered index.
            Err(BenchError::Setup(why)) => Ok(Outcome::Refused(why)),
            Err(error) => Err(format!("{}: {error}", self.name())),
        }
    }
}

/// Parses an index's settings from a table.
fn settings(index: IndexKind, table: &Table) -> Result<Settings, RunError> {
    let settings = named::settings(table)?;
    let checked = settings.check(index.info());
    checked.map_err(|error| RunError::parsing(&error.to_string()))?;
    Ok(settings)
}

/// Metrics by the names used in experiment files: `reads` of all windows together, `reads.0.5` of
/// the window with that name, `reads.to.0.5` of all windows up to it.
fn metrics(record: &IndexRecord) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let mut put = |suffix: &str, windows: &[Window]| {
        let sum = |of: &dyn Fn(&Window) -> f64| windows.iter().map(of).sum::<f64>();
        let operations = sum(&|w| w.operations as f64).max(1.0);
        let reads = sum(&|w| w.reads as f64);
        let writes = sum(&|w| w.writes as f64);
        let virtual_s = sum(&|w| w.virtual_ns as f64 / 1e9);
        let named = [
            ("operations", operations),
            ("reads", reads),
            ("writes", writes),
            ("coarse_pages", sum(&|w| w.coarse_pages as f64)),
            ("reads_per_op", reads / operations),
            ("writes_per_op", writes / operations),
            ("virtual_s", virtual_s),
            ("us_per_op", virtual_s * 1e6 / operations),
            ("cpu_s", sum(&|w| w.cpu_s)),
            ("comparisons", sum(&|w| w.comparisons as f64)),
        ];
        for (name, value) in named {
            metrics.insert(format!("{name}{suffix}"), value);
        }
        for ratio in RATIOS {
            // In page reads per operation.
            let cost = (reads + ratio * writes) / operations;
            metrics.insert(format!("cost_at_{ratio}{suffix}"), cost);
        }
        if let Some(last) = windows.last() {
            metrics.insert(format!("hit_ratio{suffix}"), last.hit_ratio);
            for (name, bytes) in &last.memory_bytes {
                metrics.insert(format!("memory_kb.{name}{suffix}"), *bytes as f64 / 1024.0);
            }
            for (name, value) in &last.figures {
                metrics.insert(format!("figure.{name}{suffix}"), *value);
            }
        }
    };
    put("", &record.windows);
    for (nth, window) in record.windows.iter().enumerate() {
        put(&format!(".{}", window.name), std::slice::from_ref(window));
        put(&format!(".to.{}", window.name), &record.windows[..=nth]);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(more: &str) -> Result<IndexRun, RunError> {
        let text = format!(
            "index = \"linear\"\nworkload = \"D\"\nrecords = 80_000\nstore = \"mem\"\n\
             set = {{ memory = 1_048_576 }}\nload = {{ memory = 4_194_304 }}\n{more}"
        );
        IndexRun::parse(toml::from_str(&text).unwrap())
    }

    #[test]
    fn a_part_of_the_papers_sizes_is_as_if_all_of_them_were_smaller() {
        let bench = |more: &str| run(more).unwrap().bench().unwrap();
        let (whole, part) = (bench(""), bench("operations = 8000\nscale = 0.25"));
        assert_eq!((whole.workload.load, part.workload.load), (80_000, 20_000));
        let operations = |bench: &Bench| bench.workload.windows[0].operations;
        assert_eq!((operations(&whole), operations(&part)), (10_000, 2000));
        assert_eq!(part.settings, Settings::new().with("memory", 262_144));
        let load = Settings::new().with("memory", 1_048_576);
        assert_eq!(part.load, Some(load));
        for scale in ["0.0", "1.5", "nan"] {
            let error = run(&format!("scale = {scale}")).unwrap_err();
            assert_eq!(error.key.as_deref(), Some("scale"));
        }
    }
}
