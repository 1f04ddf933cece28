//! The engine that drives clients over a database: settings, and what is measured.

use super::named::{self, fields_of, known, take};
use super::replay::{by_name, device_of, shares};
use super::{Library, Outcome, RunError};
use crate::closed::{Closed, ClosedRecord, Past};
use crate::driver::{Plan, Span};
use crate::effort;
use crate::tpcc::Scale;
use crate::tpcc::pages::{self, HotRows, Sizes};
use flagstone::buffer::PolicyKind;
use flagstone::commit::{Kind, Options};
use flagstone::host::{Granularity, HostConfig, Stack};
use flagstone::settings::Configurable;
use flagstone::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Table;

/// Settings of a closed loop, with the keys of an experiment file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClosedRun {
    /// The stack, as commands name it.
    stack: String,
    /// The device, with the keys of a device file.
    device: Table,
    /// Clients.
    clients: u32,
    /// TPC-C warehouses.
    warehouses: u32,
    /// Percent to which pages of warehouses and districts are filled.
    #[serde(default = "hundred")]
    hot_fill: u32,
    /// Places that a row has in its page, one for each of its last versions.
    #[serde(default = "one_version")]
    versions: u16,
    /// Whether an update reads its row first.
    #[serde(default)]
    reads_first: bool,
    /// Pages of each table that clients share to add rows to; 0 if each has its own.
    #[serde(default)]
    insert_targets: u32,
    /// When a transaction asks for rows of warehouses and districts: `first`, in the `order` of its
    /// profile, or `last`.
    #[serde(default = "in_order")]
    hot_rows: String,
    /// Share of its accesses that a transaction has made when it is rolled back; with 0 a rollback
    /// costs nothing.
    #[serde(default = "whole")]
    rolled_back_after: f64,
    /// What is locked, `pages` or `records`, or what the `stack` locks by itself.
    #[serde(default = "of_stack")]
    locks: String,
    /// Which transactions there are, by the pages that they write: `all`, `short` (at most ten) or
    /// `long` (more).
    #[serde(default = "all")]
    sizes: String,
    /// Frames of the buffer pool.
    frames: u32,
    /// Its eviction policy.
    #[serde(default = "lru")]
    policy: String,
    /// Whether pages of live transactions are written out, also where the protocol takes each once.
    #[serde(default)]
    steal: Option<bool>,
    /// Pages of the log.
    #[serde(default = "log_pages")]
    log_pages: u32,
    /// Mean back-off of a transaction that starts again, milliseconds.
    back_off_ms: f64,
    /// Share of transactions that are rolled back.
    abort_ratio: f64,
    /// Share of the logical pages that hold something before the run starts.
    fill: f64,
    /// Whether these are then overwritten at random until the collector works all the time.
    overwrite: bool,
    /// Pages that the workload has written before the run, with nothing else of what it does.
    #[serde(default)]
    history_pages: u64,
    /// Transactions before anything is counted, and those that are.
    warm_up: u64,
    /// See `warm_up`.
    transactions: u64,
    /// Seed of everything.
    #[serde(default = "one_seed")]
    seed: u64,
    /// Settings of the recovery manager, of the protocol below it and of the policy, by name.
    #[serde(flatten, skip_deserializing)]
    named: Table,
}

fn hundred() -> u32 {
    100
}

fn one_version() -> u16 {
    1
}

fn in_order() -> String {
    "order".into()
}

fn whole() -> f64 {
    1.0
}

fn of_stack() -> String {
    "stack".into()
}

fn all() -> String {
    "all".into()
}

fn lru() -> String {
    "lru".into()
}

fn log_pages() -> u32 {
    1024
}

fn one_seed() -> u64 {
    1
}

impl ClosedRun {
    pub(super) fn parse(mut table: Table) -> Result<ClosedRun, RunError> {
        known(
            &table,
            &[fields_of::<ClosedRun>(), &named::names()].concat(),
        )?;
        let mut run = take::<ClosedRun>(&mut table)?;
        run.named = table;
        // Where pages go out is the manager's own matter where it has a log.
        if !run.stack.starts_with("force:") {
            run.steal = None;
        }
        let setup = run.setup()?;
        run.sizes()?;
        run.hot_rows()?;
        // What a stack does not look at makes no difference between runs.
        if matches!(setup.stack, Stack::Force(_)) {
            run.log_pages = log_pages();
        }
        if setup.granularity() == setup.stack.granularity() {
            run.locks = of_stack();
        }
        let (manager, below) = (setup.stack.manager(), setup.stack.below().info());
        let policy = setup.host.policy.info();
        run.named
            .retain(|name, _| manager.has(name) || below.has(name) || policy.has(name));
        Ok(run)
    }

    fn sizes(&self) -> Result<Sizes, RunError> {
        let all = [
            (Sizes::All, "all"),
            (Sizes::AtMost(10), "short"),
            (Sizes::MoreThan(10), "long"),
        ];
        by_name("sizes", &self.sizes, &all)
    }

    fn hot_rows(&self) -> Result<HotRows, RunError> {
        let all = [
            (HotRows::First, "first"),
            (HotRows::InOrder, "order"),
            (HotRows::Last, "last"),
        ];
        by_name("hot_rows", &self.hot_rows, &all)
    }

    fn setup(&self) -> Result<Closed, RunError> {
        let stack: Stack = self
            .stack
            .parse()
            .map_err(|error| RunError::of(&self.stack, format!("{error}")))?;
        let policies: Vec<(PolicyKind, &str)> = PolicyKind::ALL
            .iter()
            .map(|kind| (*kind, kind.info().name))
            .collect();
        shares(self.abort_ratio, self.fill)?;
        if !(0.0..=1.0).contains(&self.rolled_back_after) {
            let why = format!(
                "rolled_back_after is {}, it must be from 0 to 1",
                self.rolled_back_after
            );
            return Err(RunError::of("rolled_back_after", why));
        }
        let locks = [
            (None, "stack"),
            (Some(Granularity::Page), "pages"),
            (Some(Granularity::Record), "records"),
        ];
        let mut host = HostConfig::default();
        host.frames = self.frames as usize;
        host.policy = by_name("policy", &self.policy, &policies)?;
        host.log_pages = self.log_pages;
        host.steal = self.steal;
        host.granularity = by_name("locks", &self.locks, &locks)?;
        let named = named::settings(&self.named)?;
        host.settings = named.clone().keep_those_of(stack.manager());
        host.policy_settings = named.clone().keep_those_of(host.policy.info());
        host.check(stack)
            .map_err(|error| RunError::of("stack", error.to_string()))?;
        let mut options = Options::default();
        options.settings = named.keep_those_of(stack.below().info());
        Ok(Closed {
            stack,
            options,
            device: device_of(&self.device)?,
            host,
            plan: Plan {
                clients: self.clients,
                speedup: None,
                abort_ratio: self.abort_ratio,
                back_off: Nanos((self.back_off_ms * 1e6) as u64),
                seed: self.seed,
                check: false,
            },
            fill: self.fill,
            overwrite: self.overwrite,
            warm_up: Span::Transactions(self.warm_up),
            measured: Span::Transactions(self.transactions),
            workload: format!("tpcc, {} warehouses", self.warehouses),
        })
    }

    pub(super) fn is_atomic(&self) -> bool {
        self.stack.parse() != Ok(Stack::Force(Kind::Plain))
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{}, {} frames, {:.0} % aborts, {} transactions",
            self.stack,
            self.frames,
            self.abort_ratio * 100.0,
            self.sizes
        )
    }

    /// The workload.
    fn options(&self, setup: &Closed) -> Result<pages::PagesOptions, RunError> {
        let mut options =
            pages::PagesOptions::new(Scale::standard(self.warehouses.into()), self.seed);
        options.page_bytes = setup.device.geometry.page_bytes;
        options.hot_fill = self.hot_fill;
        options.versions = self.versions;
        options.reads_first = self.reads_first;
        options.insert_targets = self.insert_targets;
        options.hot_rows = self.hot_rows()?;
        options.rolled_back_after = self.rolled_back_after;
        options.sizes = self.sizes()?;
        Ok(options)
    }

    /// What has happened before the run. What transactions were rolled back matters only to a
    /// page-level protocol on which pages of live transactions are written out.
    fn past(&self, setup: &Closed) -> Past {
        let (frames, abort_ratio) = match setup.stack {
            Stack::Force(kind) if setup.host.steal.unwrap_or(kind.info().rewrites) => {
                (setup.host.frames, self.abort_ratio)
            }
            _ => (usize::MAX, 0.0),
        };
        Past {
            pages: self.history_pages,
            clients: self.clients,
            frames,
            abort_ratio,
            seed: self.seed,
        }
    }

    /// See [`Closed::filled_by`]; and the history.
    pub(super) fn filled_by(&self) -> String {
        let by = || {
            let setup = self.setup()?;
            let history = match self.history_pages {
                0 => None,
                _ => Some((self.options(&setup)?, self.past(&setup))),
            };
            Ok(format!("{} {history:?}", setup.filled_by()))
        };
        by().unwrap_or_else(|error: RunError| error.why)
    }

    /// See [`super::Run::effort`].
    pub(super) fn effort(&self) -> (u64, u64) {
        let filling = self.setup().map_or(0, |setup| setup.setup().filling());
        let history = self.history_pages * effort::OVERWRITTEN;
        let transactions = self.warm_up.saturating_add(self.transactions);
        (
            filling + history,
            transactions.saturating_mul(effort::TRANSACTED),
        )
    }

    pub(super) fn outcome(&self, library: &Library) -> Result<Outcome, String> {
        let mut setup = self.setup().map_err(|error| error.to_string())?;
        let options = self.options(&setup).map_err(|error| error.to_string())?;
        let failed = |error: String| format!("{}: {error}", self.name());
        let lived = library.lived(&options, &self.past(&setup));
        let lived = lived.get().expect("it was made");
        let (history, source) = lived.as_ref().map_err(|error| failed(error.clone()))?;
        let mut source = source.clone();
        let chip = library
            .filled(self.filled_by(), &setup, history)
            .map_err(failed)?;
        setup.host.kept = history.kept();
        let record = setup.run_on(chip, &mut source);
        let record = record.map_err(|error| failed(error.to_string()))?;
        Ok(Outcome::Done {
            metrics: metrics(&record),
            seconds: record.timing.map_or(0.0, |timing| timing.wall_s),
        })
    }
}

/// What is measured, by the names that experiment files use.
fn metrics(record: &ClosedRecord) -> BTreeMap<String, f64> {
    let committed = record.committed.max(1) as f64;
    let gc = record.gc_busy_ns as f64 / 1e6;
    let memory: u64 = record.memory_bytes.values().sum();
    let mut metrics: BTreeMap<String, f64> = [
        ("throughput_tps", record.throughput_tps),
        ("committed", record.committed as f64),
        ("rolled_back", record.rolled_back as f64),
        ("restart_ratio", record.restart_ratio),
        ("waits_per_tx", record.waits as f64 / committed),
        ("virtual_s", record.virtual_ns as f64 / 1e9),
        ("response_ms", record.response_ns.mean / 1e6),
        // What [FlagCommit] §5.2 and [MixSL] §5.2 call the execution time of a transaction: their
        // clients, too, run it from its begin to its end, with its waits and its restarts.
        ("execution_ms", record.response_ns.mean / 1e6),
        ("isolation_wait_ms", record.isolation_wait_ns.mean / 1e6),
        ("attempt_ms", record.attempt_ns.mean / 1e6),
        ("commit_ms", record.commit_ns.mean / 1e6),
        ("pool_hit_ratio", record.pool_hit_ratio),
        ("pages_read_per_tx", record.pages_read as f64 / committed),
        (
            "pages_written_per_tx",
            record.pages_written as f64 / committed,
        ),
        ("log_pages", record.log_pages as f64),
        ("log_forces_per_tx", record.log_forces as f64 / committed),
        ("log_pages_per_tx", record.log_pages as f64 / committed),
        (
            "gc_elapsed_ms_per_tx",
            record.gc_ns as f64 / 1e6 / committed,
        ),
        ("gc_busy_ms", gc),
        ("gc_busy_ms_per_tx", gc / committed),
        ("gc_share", record.gc_share),
        (
            "gc_busy_ms_per_s",
            gc / (record.virtual_ns.max(1) as f64 / 1e9),
        ),
        ("write_amplification", record.write_amplification),
        ("recovery_s", record.recovery_ns as f64 / 1e9),
        ("memory_mb", memory as f64 / 1e6),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect();
    for (name, bytes) in &record.memory_bytes {
        metrics.insert(format!("memory_mb.{name}"), *bytes as f64 / 1e6);
    }
    for (operation, causes) in &record.flash {
        for (cause, count) in causes {
            metrics.insert(format!("{operation}s.{cause}"), *count as f64);
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stack: &str, abort_ratio: f64) -> ClosedRun {
        let text = format!(
            "stack = \"{stack}\"\nclients = 4\nwarehouses = 1\nframes = 200\n\
             back_off_ms = 1.0\nabort_ratio = {abort_ratio}\nfill = 0.9\noverwrite = true\n\
             warm_up = 10\ntransactions = 60\n\
             device = {{ preset = \"flagcommit-slc\", geometry = {{ page_bytes = 8192, \
             spare_bytes = 256, blocks_per_plane = 64, partial_programs = 9 }} }}\n"
        );
        ClosedRun::parse(toml::from_str(&text).unwrap()).unwrap()
    }

    fn metrics(run: &ClosedRun, library: &Library) -> BTreeMap<String, f64> {
        match run.outcome(library).unwrap() {
            Outcome::Done { metrics, .. } => metrics,
            Outcome::Refused(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_device_that_was_filled_for_another_run_makes_no_difference() {
        let runs = [
            run("force:cfc", 0.0),
            run("cfc-ex", 0.0),
            run("force:cfc", 0.3),
            run("cfc-ex", 0.3),
        ];
        assert_eq!(runs[0].filled_by(), runs[2].filled_by());
        assert_ne!(runs[0].filled_by(), runs[1].filled_by());
        let shared = Library::new(1);
        for run in &runs {
            let alone = metrics(run, &Library::new(1));
            assert!(alone["committed"] > 0.0);
            assert_eq!(metrics(run, &shared), alone, "{}", run.name());
        }
        assert_eq!(shared.devices.lock().unwrap().len(), 2);
    }
}
