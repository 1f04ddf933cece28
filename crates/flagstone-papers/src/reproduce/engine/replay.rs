//! The engine that replays transactions on a device: settings and metrics.

use super::named::{self, fields_of, known, take};
use super::{Library, Outcome, RunError, each};
use flagstone::commit::{Device, Isolation, Kind, Options};
use flagstone::settings::Configurable;
use flagstone::units::Nanos;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::effort;
use flagstone_lab::no_such;
use flagstone_lab::replay::{
    Fill, InputName, ReplayError, ReplayRecord, Script, Setup, Terms, script_of,
};
use flagstone_lab::workload::{Drawn, Pattern};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use toml::Table;

/// Settings of a replay, with the keys of an experiment file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayRun {
    /// The protocol, by name.
    protocol: String,
    /// The device, with the keys of a device file.
    device: Table,
    /// The trace file, relative to the working directory; or use `workload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// Generated transactions: `uniform`, `zipf:THETA`, `sequential` or `sequential:SHARE`. They
    /// use the pages that are filled under the protocol with the fewest logical pages, so that all
    /// protocols get the same transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    /// Parameters of the workload.
    #[serde(flatten, skip_deserializing)]
    drawn: Drawn,
    /// Number of transactions, repeating them if there are fewer.
    transactions: Option<u32>,
    /// The isolation level; `loosest` or none for the protocol's loosest level.
    isolation: Option<String>,
    /// Further settings.
    #[serde(flatten, skip_deserializing)]
    terms: Terms,
    /// Settings of the protocol, by name.
    #[serde(flatten, skip_deserializing)]
    named: Table,
}

pub(super) fn by_name<T: Copy>(key: &str, name: &str, all: &[(T, &str)]) -> Result<T, RunError> {
    if let Some((found, _)) = all.iter().find(|(_, known)| *known == name) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    Err(RunError::of(name, no_such(key, name, &names)))
}

/// Checks that both are fractions.
pub(super) fn shares(abort_ratio: f64, fill: f64) -> Result<(), RunError> {
    for (key, share) in [("abort_ratio", abort_ratio), ("fill", fill)] {
        if !(0.0..=1.0).contains(&share) {
            let why = format!("{key} is {share}, it must be from 0 to 1");
            return Err(RunError::of(key, why));
        }
    }
    Ok(())
}

/// The device described by a table.
pub(super) fn device_of(table: &Table) -> Result<DeviceSpec, RunError> {
    let text = toml::to_string(table).map_err(|e| RunError::of("device", e.to_string()))?;
    DeviceSpec::parse(&text, "device").map_err(|why| {
        let unknown = why.split('`').nth(1).unwrap_or("device").to_string();
        RunError::of(&unknown, format!("the device is wrong: {why}"))
    })
}

impl ReplayRun {
    /// Parses settings and checks them.
    pub(super) fn parse(mut table: Table) -> Result<ReplayRun, RunError> {
        let own = [
            fields_of::<ReplayRun>(),
            fields_of::<Drawn>(),
            fields_of::<Terms>(),
        ];
        known(&table, &[&own.concat()[..], &named::names()].concat())?;
        let mut run = take::<ReplayRun>(&mut table)?;
        run.drawn = take(&mut table)?;
        run.terms = take(&mut table)?;
        run.named = table;
        run.setup()?;
        run.check_input()?;
        // Settings that a protocol does not have make no difference between runs.
        let info = run.kind()?.info();
        run.named.retain(|name, _| info.has(name));
        Ok(run)
    }

    fn kind(&self) -> Result<Kind, RunError> {
        let kinds: Vec<(Kind, &str)> = Kind::ALL.iter().map(|k| (*k, k.info().name)).collect();
        by_name("protocol", &self.protocol, &kinds)
    }

    /// The replay with these settings.
    fn setup(&self) -> Result<Setup, RunError> {
        let device = device_of(&self.device)?;
        let isolation = match &self.isolation {
            None => None,
            Some(name) if name == "loosest" => None,
            Some(name) => {
                let all = Isolation::ALL.map(|level| (level, level.name()));
                Some(by_name("isolation", name, &all)?)
            }
        };
        let terms = self.terms;
        shares(terms.abort_ratio, terms.fill)?;
        let is_no_factor = |factor: f64| !factor.is_finite() || factor <= 0.0;
        if terms.speedup.is_some_and(is_no_factor) {
            return Err(RunError::of("speedup", "speedup must be above 0"));
        }
        let kind = self.kind()?;
        let mut options = Options::default();
        options.settings = named::settings(&self.named)?.keep_those_of(kind.info());
        Ok(Setup {
            kind,
            options,
            device,
            isolation,
            terms,
        })
    }

    /// Checks that there is one input, and only settings for that.
    fn check_input(&self) -> Result<(), RunError> {
        let both = "a replay has a trace or a workload: leave one of them out";
        match (&self.trace, &self.workload) {
            (None, None) => {
                let why = "a replay needs `trace`, a file, or `workload`, as in \"zipf:0.9\"";
                Err(RunError::of("trace", why))
            }
            (Some(_), Some(_)) => Err(RunError::of("workload", both)),
            (Some(_), None) => match self.drawn.given().iter().find(|(_, given)| *given) {
                None => Ok(()),
                Some((key, _)) => {
                    let why = format!(
                        "{key} applies only to a `workload`, and a trace is \
                                       replayed"
                    );
                    Err(RunError::of(key, why))
                }
            },
            (None, Some(name)) => {
                let pattern: Result<Pattern, _> = name.parse();
                pattern.map_err(|error| RunError::of("workload", error.to_string()))?;
                if self.terms.speedup.is_some() {
                    let why = "speedup applies only to recorded times, which a workload does not \
                               have";
                    return Err(RunError::of("speedup", why));
                }
                Ok(())
            }
        }
    }

    /// The generated transactions, over the pages filled under the protocol with the fewest.
    fn generated(&self, setup: &Setup, name: &str) -> Result<Script, String> {
        let capacity = |&kind: &Kind| {
            let options = Options::default();
            let device = setup.device.clone();
            let other = Setup {
                kind,
                options,
                device,
                ..*setup
            };
            other.capacity().ok()
        };
        let own = setup.capacity().ok();
        let least = Kind::ALL.iter().filter_map(capacity).chain(own).min();
        let least = least.unwrap_or_default();
        let Terms { fill, seed, .. } = self.terms;
        let pattern: Result<Pattern, _> = name.parse();
        let script =
            pattern.and_then(|pattern| script_of(&self.drawn.over(pattern, least, fill, seed)));
        script.map_err(|error| error.to_string())
    }

    /// The trace, if there is one.
    pub(super) fn trace(&self) -> Option<&Path> {
        self.trace.as_deref().map(Path::new)
    }

    /// Checksum of the trace; empty if missing, see [`super::Run::ready`]. Cached while the file
    /// is unchanged, because a sweep requests it for each of its tasks.
    pub(super) fn checksum(&self) -> String {
        type Known = BTreeMap<PathBuf, ((SystemTime, u64), String)>;
        static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
        let Some(path) = self.trace() else {
            return String::new();
        };
        let state = || {
            let found = fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        let Some(state) = state() else {
            return String::new();
        };
        let mut known = KNOWN.lock().expect("no thread has panicked with it");
        match known.get(path) {
            Some((then, checksum)) if *then == state => checksum.clone(),
            _ => {
                let checksum = flagstone_lab::trace::file::sha256(path).unwrap_or_default();
                known.insert(path.into(), (state, checksum.clone()));
                checksum
            }
        }
    }

    pub(super) fn is_atomic(&self) -> bool {
        self.kind() != Ok(Kind::Plain)
    }

    pub(super) fn name(&self) -> String {
        let isolation = self.isolation.as_deref().unwrap_or("loosest");
        format!(
            "{}, {isolation}, {:.0} % aborts",
            self.protocol,
            self.terms.abort_ratio * 100.0
        )
    }

    /// A cache key of the device on which the run starts.
    pub(super) fn fill_key(&self) -> Result<String, RunError> {
        Ok(key(&self.setup()?.fill()))
    }

    /// See [`super::Run::effort`]; an estimate for a trace that has not been read.
    pub(super) fn effort(&self) -> (u64, u64) {
        let filling = self.setup().map_or(0, |setup| setup.fill().filling());
        let requests = match (&self.workload, self.transactions) {
            (None, Some(most)) => u64::from(most) * 30,
            _ => self.drawn.requests(),
        };
        (filling, requests * effort::REPLAYED)
    }

    /// Executes the run. A protocol that does not suit the device is refused, which is no error.
    pub(super) fn outcome(&self, library: &Library) -> Result<Outcome, String> {
        let setup = self.setup().map_err(|error| error.to_string())?;
        let (name, whole) = match (&self.trace, &self.workload) {
            (Some(trace), _) => {
                let page_bytes = setup.device.geometry.page_bytes;
                (trace, library.script(trace, page_bytes)?)
            }
            (None, Some(name)) => {
                // If the protocol does not support the page size, it is the one to refuse.
                if let Err(ReplayError::Refused(why)) = setup.capacity() {
                    return Ok(Outcome::Refused(why));
                }
                (name, Arc::new(self.generated(&setup, name)?))
            }
            (None, None) => unreachable!("it was checked when it was read"),
        };
        let part = self
            .transactions
            .map(|length| whole.with_length(length as usize));
        let source = InputName {
            name: name.clone(),
            sha256: None,
        };
        let script = part.as_ref().unwrap_or(&whole);
        let fill = setup.fill();
        let outcome = if library.is_shared(&key(&fill)) {
            with_filled(fill, |device| setup.run_filled(device, script, &source))
        } else {
            setup.run(script, &source)
        };
        match outcome {
            Ok(record) => Ok(Outcome::Done {
                metrics: metrics(&record),
                seconds: record.timing.map_or(0.0, |timing| timing.wall_s),
            }),
            Err(ReplayError::Refused(why)) => Ok(Outcome::Refused(why)),
            Err(error) => Err(format!("{}: {error}", self.name())),
        }
    }
}

fn key(fill: &Fill) -> String {
    format!("{fill:?}")
}

thread_local! {
    /// The last filled device. Devices cannot move between threads, so each thread fills its own.
    static FILLED: RefCell<Option<(Fill, (Device, Nanos))>> = const { RefCell::new(None) };
}

/// Calls a function with a filled device, which may have been filled for another run.
fn with_filled(
    fill: Fill,
    run: impl FnOnce(&(Device, Nanos)) -> Result<ReplayRecord, ReplayError>,
) -> Result<ReplayRecord, ReplayError> {
    FILLED.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != fill) {
            // Free the old device before filling another.
            *kept = None;
            let device = fill.filled()?;
            *kept = Some((fill, device));
        }
        let (_, device) = kept.as_ref().expect("it was filled just now");
        run(device)
    })
}

/// Metrics by the names used in experiment files.
fn metrics(record: &ReplayRecord) -> BTreeMap<String, f64> {
    let committed = record.transactions_committed.max(1) as f64;
    let gc_busy_ms = record.gc_busy_ns as f64 / 1e6;
    // Pages programmed to make the mapping durable, per page that the host wrote. Excludes summary
    // pages, which do not depend on a mapping table.
    let programs = &record.flash["program"];
    let mapping = programs["mapping"] + programs["log"] - record.summary_pages;
    let host = record.host_pages_written.max(1) as f64;
    let mut metrics: BTreeMap<String, f64> = [
        ("throughput_tps", record.throughput_tps),
        (
            "ended_tps",
            (record.transactions_committed + record.transactions_aborted) as f64
                / (record.virtual_ns.max(1) as f64 / 1e9),
        ),
        ("committed", record.transactions_committed as f64),
        ("aborted", record.transactions_aborted as f64),
        ("virtual_s", record.virtual_ns as f64 / 1e9),
        ("response_ms", record.response_ns.mean / 1e6),
        ("response_p99_ms", record.response_ns.p99 as f64 / 1e6),
        ("isolation_wait_ms", record.isolation_wait_ns.mean / 1e6),
        ("commit_ms", record.commit_ns.mean / 1e6),
        ("gc_elapsed_ms", record.gc_ns as f64 / 1e6),
        ("gc_busy_ms", gc_busy_ms),
        ("gc_busy_ms_per_tx", gc_busy_ms / committed),
        ("gc_share", record.gc_share),
        ("write_amplification", record.write_amplification),
        ("mapping_per_host_page", mapping as f64 / host),
        ("collections", record.collections as f64),
        ("recovery_s", record.recovery_ns as f64 / 1e9),
        ("recovery_pages_read", record.recovery_pages_read as f64),
        ("erases", record.erases.total as f64),
        ("host_pages_written", record.host_pages_written as f64),
        (
            "protocol_memory_mb",
            record.protocol_memory_bytes() as f64 / 1048576.0,
        ),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect();
    if let Some(bytes) = record.bytes_under_way {
        metrics.insert("mb_under_way".into(), bytes as f64 / 1048576.0);
    }
    if let Some(saturated) = record.saturated {
        metrics.insert("saturated".into(), f64::from(u8::from(saturated)));
    }
    each(&mut metrics, &record.memory_bytes, 1048576.0, &record.flash);
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn run(protocol: &str, rest: &str) -> ReplayRun {
        let text = format!(
            "workload = \"zipf:0.9\"\nrequests = 600\npages_per_transaction = 10\n\
             protocol = \"{protocol}\"\nfill = 0.9\noverwrite = true\n\
             device = {{ preset = \"small\", geometry = {{ blocks_per_plane = 32 }}, \
             ftl = {{ over_provision = 0.25 }} }}\n{rest}"
        );
        ReplayRun::parse(toml::from_str(&text).unwrap()).unwrap()
    }

    fn metrics(run: &ReplayRun, library: &Library) -> BTreeMap<String, f64> {
        match run.outcome(library).unwrap() {
            Outcome::Done { metrics, .. } => metrics,
            Outcome::Refused(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_device_that_was_filled_for_another_run_makes_no_difference() {
        for kind in Kind::ALL {
            let name = kind.info().name;
            let runs = [run(name, ""), run(name, "abort_ratio = 0.3\nclients = 3")];
            let by: BTreeSet<String> = runs.iter().flat_map(ReplayRun::fill_key).collect();
            assert_eq!(by.len(), 1);
            let shared = Library::new(1).sharing(by);
            for run in &runs {
                let alone = metrics(run, &Library::new(1));
                assert!(alone["committed"] > 0.0);
                // The result is the same with a library whose device was used before.
                for _ in 0..2 {
                    assert_eq!(metrics(run, &shared), alone, "{name}");
                }
            }
        }
    }
}
