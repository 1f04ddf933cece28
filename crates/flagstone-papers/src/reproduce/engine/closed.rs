//! The engine that runs clients on a database in a closed loop: settings and metrics.

use super::named::{self, fields_of, known, take};
use super::replay::{device_of, shares};
use super::{Library, Outcome, RunError, each};
use flagstone::commit::{Kind, Options};
use flagstone::settings::Configurable;
use flagstone_host::Stack;
use flagstone_lab::closed::{Closed, ClosedRecord, Fill, Past, Terms, log_pages};
use flagstone_lab::effort;
use flagstone_lab::names::Named;
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::pages::{PagesOptions, Sizes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Table;

/// Lower bound on the mean number of pages that a TPC-C transaction writes in a history.
const HISTORY_PAGES_MIN: u64 = 12;

/// The starting point of a run: a filled device with a history of transactions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    pub(super) fill: Fill,
    pub(super) life: Option<Life>,
}

/// The inputs of a history, and of the transactions after it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Life {
    pub(super) options: PagesOptions,
    pub(super) past: Past,
}

impl Start {
    /// A cache key: equal keys give equal devices.
    pub(super) fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// Settings of a closed loop, with the keys of an experiment file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClosedRun {
    /// The stack, by its command name.
    stack: String,
    /// The device, with the keys of a device file.
    device: Table,
    /// TPC-C warehouses.
    warehouses: u32,
    /// Number of pages that the workload writes before the run; its other operations are not
    /// simulated.
    #[serde(default)]
    history_pages: u64,
    /// Whether the log of the stack `wal` never reuses a page, so that each log page reduces the
    /// free space ([FlagCommit] §5.3 counts it). With `log_padded` each force takes a page.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    log_kept: bool,
    /// Parameters of the transactions. `compare` has none of these keys: it replays a trace.
    #[serde(flatten, skip_deserializing)]
    pages: PagesOptions,
    /// Conditions of the run: clients, fill, seed and so on.
    #[serde(flatten, skip_deserializing)]
    terms: Terms,
    /// Settings of the recovery manager, of the protocol below it and of the policy, by name.
    #[serde(flatten, skip_deserializing)]
    named: Table,
}

impl ClosedRun {
    /// Parses settings and checks them. Settings without effect are reset, so that equal runs have
    /// equal settings.
    pub(super) fn parse(mut table: Table) -> Result<ClosedRun, RunError> {
        let own = [
            fields_of::<ClosedRun>(),
            fields_of::<PagesOptions>(),
            fields_of::<Terms>(),
        ];
        known(&table, &[&own.concat()[..], &named::names()].concat())?;
        let mut run = take::<ClosedRun>(&mut table)?;
        run.pages = take(&mut table)?;
        run.terms = take(&mut table)?;
        run.named = table;
        // A manager with a log decides itself when pages are written.
        if !run.stack.starts_with("force:") {
            run.terms.steal = true;
        }
        let setup = run.setup()?;
        // Parameters that a stack ignores must not distinguish runs.
        if matches!(setup.stack, Stack::Force(_)) {
            run.terms.log_pages = log_pages();
        }
        run.log_kept &= setup.stack == Stack::Wal;
        if setup.granularity() == setup.stack.granularity() {
            run.terms.locks = None;
        }
        let (manager, below) = (setup.stack.manager(), setup.stack.below().info());
        let policy = setup.terms.policy.info();
        run.named
            .retain(|name, _| manager.has(name) || below.has(name) || policy.has(name));
        Ok(run)
    }

    /// The closed loop with these settings.
    fn setup(&self) -> Result<Closed, RunError> {
        let stack: Stack = self
            .stack
            .parse()
            .map_err(|error| RunError::of(&self.stack, format!("{error}")))?;
        shares(self.terms.abort_ratio, self.terms.fill)?;
        let after = self.pages.rolled_back_after;
        if !(0.0..=1.0).contains(&after) {
            let why = format!("rolled_back_after is {after}, it must be from 0 to 1");
            return Err(RunError::of("rolled_back_after", why));
        }
        let named = named::settings(&self.named)?;
        let mut options = Options::default();
        options.settings = named.clone().keep_those_of(stack.below().info());
        let mut setup = Closed {
            stack,
            options,
            device: device_of(&self.device)?,
            settings: named.clone().keep_those_of(stack.manager()),
            policy_settings: named.keep_those_of(self.terms.policy.info()),
            terms: self.terms,
            workload: format!("tpcc, {} warehouses", self.warehouses),
        };
        if self.log_kept && stack == Stack::Wal {
            self.keep_log(&mut setup)?;
        }
        let checked = setup.host().check(stack);
        checked.map_err(|error| RunError::of("stack", error.to_string()))?;
        Ok(setup)
    }

    /// Gives the logs of the history and of the run enough logical pages after the filled ones that
    /// none is reused. Log pages that are never written take nothing from the reserve.
    fn keep_log(&self, setup: &mut Closed) -> Result<(), RunError> {
        let refused = |error: String| RunError::of("log_kept", error);
        let pages = setup.device_fill().capacity();
        let pages = pages.map_err(|error| refused(error.to_string()))?;
        // Checkpoints are as frequent as in a log that is reused.
        let name = "checkpoint_every";
        if setup.settings.given().all(|(given, _)| given != name) {
            setup.settings.set(name, setup.terms.log_pages / 4);
        }
        let filled = (f64::from(pages) * self.terms.fill).floor();
        let [of_history, of_run] = self.rooms_of_log();
        let all = filled + f64::from(of_history) + f64::from(of_run);
        if all > f64::from(u32::MAX) {
            return Err(refused("there are too many transactions".into()));
        }
        setup.device.config.logical_pages = Some(all as u32);
        setup.terms = Terms {
            fill: (filled + 0.5) / all,
            log_pages: of_run,
            history_log: Some(of_history),
            ..setup.terms
        };
        Ok(())
    }

    /// Log pages to keep for the history, and the maximum that the run's log may write: 1.2 per
    /// transaction, plus the minimum. A history of transactions with fewer pages than
    /// [`HISTORY_PAGES_MIN`] writes more log; its oldest log pages are reused.
    fn rooms_of_log(&self) -> [u32; 2] {
        let transactions = self.terms.warm_up.saturating_add(self.terms.transactions);
        let of_run = transactions.saturating_add(transactions / 5);
        let of_history = self.history_pages / HISTORY_PAGES_MIN;
        [of_history, of_run].map(|pages| {
            let pages = pages.saturating_add(log_pages().into());
            u32::try_from(pages).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn is_atomic(&self) -> bool {
        self.stack.parse() != Ok(Stack::Force(Kind::Plain))
    }

    pub(super) fn name(&self) -> String {
        let sizes = Sizes::all().into_iter();
        let mut sizes = sizes.filter(|(sizes, _)| *sizes == self.pages.sizes);
        format!(
            "{}, {} frames, {:.0} % aborts, {} transactions",
            self.stack,
            self.terms.frames,
            self.terms.abort_ratio * 100.0,
            sizes.next().map_or("", |(_, name)| name)
        )
    }

    /// The parameters of the workload.
    fn options(&self, setup: &Closed) -> PagesOptions {
        PagesOptions {
            scale: Scale::standard(self.warehouses.into()),
            page_bytes: setup.device.geometry.page_bytes,
            seed: self.terms.seed,
            ..self.pages
        }
    }

    /// The history before the run. Rolled-back transactions matter only to a page-level protocol
    /// under which pages of live transactions are written out.
    fn past(&self, setup: &Closed) -> Past {
        let terms = &self.terms;
        let (frames, abort_ratio) = match setup.stack {
            Stack::Force(_) if terms.steal => (terms.frames as usize, terms.abort_ratio),
            _ => (usize::MAX, 0.0),
        };
        Past {
            pages: self.history_pages,
            clients: terms.clients,
            frames,
            abort_ratio,
            seed: terms.seed,
        }
    }

    /// The starting point of the run.
    pub(super) fn start(&self) -> Result<Start, RunError> {
        let setup = self.setup()?;
        let fill = setup.fill();
        Ok(Start {
            fill: fill.map_err(|error| RunError::of("stack", error.to_string()))?,
            life: (self.history_pages > 0).then(|| self.life(&setup)),
        })
    }

    fn life(&self, setup: &Closed) -> Life {
        Life {
            options: self.options(setup),
            past: self.past(setup),
        }
    }

    /// Whether the log of a run exceeded the pages set aside for it.
    fn reuses_log(&self, record: &ClosedRecord) -> bool {
        let terms = &self.terms;
        let all = (terms.warm_up + terms.transactions) as f64;
        let of_run = record.log_pages as f64 * all / terms.transactions as f64;
        of_run > f64::from(self.rooms_of_log()[1])
    }

    /// See [`super::Run::effort`].
    pub(super) fn effort(&self) -> (u64, u64) {
        let filling = self
            .setup()
            .map_or(0, |setup| setup.device_fill().filling());
        let history = self.history_pages * effort::OVERWRITTEN;
        let transactions = self.terms.warm_up.saturating_add(self.terms.transactions);
        (
            filling + history,
            transactions.saturating_mul(effort::TRANSACTED),
        )
    }

    /// Executes the run on a filled device of `library`, which other runs share.
    pub(super) fn outcome(&self, library: &Library) -> Result<Outcome, String> {
        let setup = self.setup().map_err(|error| error.to_string())?;
        let start = self.start().map_err(|error| error.to_string())?;
        let failed = |error: String| format!("{}: {error}", self.name());
        let lived = library.lived(&self.life(&setup));
        let lived = lived.get().expect("it was made");
        let (_, source) = lived.as_ref().map_err(|error| failed(error.clone()))?;
        let mut source = source.clone();
        let chip = library.filled(&start).map_err(failed)?;
        let record = setup.run_on(chip, &mut source);
        let record = record.map_err(|error| failed(error.to_string()))?;
        if self.log_kept && self.reuses_log(&record) {
            return Err(failed(
                "the log has used a page again, in spite of log_kept".into(),
            ));
        }
        Ok(Outcome::Done {
            metrics: metrics(&record),
            seconds: record.timing.map_or(0.0, |timing| timing.wall_s),
        })
    }
}

/// Metrics by the names used in experiment files.
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
        // The execution time of a transaction in [FlagCommit] §5.2 and [MixSL] §5.2: from begin to
        // end, including waits and restarts.
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
            "log_pages_if_removed_per_tx",
            record.log_pages_if_removed as f64 / committed,
        ),
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
    if record.gc_share > 0.0 {
        // The time of all flash operations.
        metrics.insert("busy_ms_per_tx".into(), gc / record.gc_share / committed);
    }
    each(&mut metrics, &record.memory_bytes, 1e6, &record.flash);
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A run of a stack, with keys of an experiment besides the usual ones or in their place.
    fn run(stack: &str, keys: &str) -> ClosedRun {
        try_run(stack, keys).unwrap()
    }

    fn try_run(stack: &str, keys: &str) -> Result<ClosedRun, RunError> {
        let usual = format!(
            "stack = \"{stack}\"\nclients = 4\nwarehouses = 1\nframes = 200\n\
             back_off_ms = 1.0\nabort_ratio = 0.0\nfill = 0.9\noverwrite = true\nwarm_up = 10\n\
             transactions = 60\ndevice = {}",
            device("")
        );
        let name = |line: &str| line.split(' ').next().map(str::to_string);
        let given: Vec<_> = keys.lines().map(name).collect();
        let usual = usual.lines().filter(|line| !given.contains(&name(line)));
        let usual: Vec<&str> = usual.collect();
        let text = format!("{}\n{keys}", usual.join("\n"));
        ClosedRun::parse(toml::from_str(&text).unwrap())
    }

    fn device(more: &str) -> String {
        format!(
            "{{ preset = \"flagcommit-slc\", geometry = {{ page_bytes = 8192, spare_bytes = 256, \
             blocks_per_plane = 64, partial_programs = 9 }}{more} }}"
        )
    }

    fn metrics(run: &ClosedRun, library: &Library) -> BTreeMap<String, f64> {
        match run.outcome(library).unwrap() {
            Outcome::Done { metrics, .. } => metrics,
            Outcome::Refused(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_device_that_was_filled_for_another_run_makes_no_difference() {
        for stack in ["force:cfc", "wal", "cfc-ex"] {
            let shared = Library::new(1);
            for keys in ["", "log_pages = 64", "abort_ratio = 0.3"] {
                let run = run(stack, keys);
                let alone = metrics(&run, &Library::new(1));
                assert!(alone["committed"] > 0.0);
                assert_eq!(metrics(&run, &shared), alone, "{}", run.name());
            }
        }
    }

    /// Another value for each key of an experiment file that belongs to the engine.
    fn others() -> Vec<(&'static str, String)> {
        let mut others = vec![("device", device(", ftl = { over_provision = 0.2 }"))];
        let plain = [
            ("stack", "\"force:afc\""),
            ("warehouses", "2"),
            ("history_pages", "400"),
            ("log_kept", "true"),
            ("hot_fill", "50"),
            ("versions", "2"),
            ("reads_first", "true"),
            ("insert_targets", "2"),
            ("hot_rows", "\"last\""),
            ("rolled_back_after", "0.5"),
            ("sizes", "\"long\""),
            ("clients", "2"),
            ("locks", "\"pages\""),
            ("frames", "8"),
            ("policy", "\"cfdc\""),
            ("steal", "false"),
            ("log_pages", "64"),
            ("back_off_ms", "3.0"),
            ("abort_ratio", "0.3"),
            ("fill", "0.8"),
            ("overwrite", "false"),
            ("warm_up", "20"),
            ("transactions", "50"),
            ("seed", "2"),
        ];
        others.extend(plain.map(|(key, value)| (key, value.to_string())));
        others
    }

    /// Keys of an experiment file of which another value changes the device on which a run starts,
    /// but not the cache key.
    fn unnoticed(stack: &str, key: &dyn Fn(&Start) -> String) -> Vec<String> {
        let start = |line: &str| {
            let name = |line: &str| line.split(' ').next().map(str::to_string);
            let used = ["history_pages = 300", "abort_ratio = 0.2"].into_iter();
            let used = used.filter(|own| name(own) != name(line));
            let lines: Vec<&str> = used.chain([line]).collect();
            try_run(stack, &lines.join("\n"))?.start()
        };
        let contents = |start: &Start| Library::new(1).filled(start).unwrap().contents();
        let usual = start("").unwrap();
        let filled = contents(&usual);
        let settings = named::names().into_iter().flat_map(|name| {
            let values = ["true", "false", "2", "16", "\"all\"", "\"page-full\""];
            values.map(|value| (name, value.to_string()))
        });
        let lines = others().into_iter().chain(settings);
        let lines = lines.map(|(name, value)| (name, format!("{name} = {value}")));
        let is_unnoticed = |(_, line): &(&str, String)| {
            // A value that the stack does not take changes nothing.
            let Ok(start) = start(line) else { return false };
            start != usual && key(&start) == key(&usual) && contents(&start) != filled
        };
        let found = lines.filter(is_unnoticed);
        found.map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn whatever_changes_the_device_of_a_start_changes_its_key() {
        let own = [
            fields_of::<ClosedRun>(),
            fields_of::<PagesOptions>(),
            fields_of::<Terms>(),
        ];
        let varied: BTreeSet<&str> = others().iter().map(|(name, _)| *name).collect();
        assert_eq!(varied, own.concat().into_iter().collect());
        let stacks = ["force:cfc", "force:bpcc", "force:g-mixsl", "wal", "cfc-ex"];
        for stack in stacks {
            assert_eq!(unnoticed(stack, &Start::key), [""; 0], "{stack}");
        }
        // Controls: keys without a part.
        let without = |part: &'static str, end: &'static str| {
            move |start: &Start| {
                let key = start.key();
                let (before, after) = key.split_once(part).expect("the part");
                format!("{before}{}", after.split_once(end).expect("its end").1)
            }
        };
        assert_eq!(unnoticed("wal", &without("log: ", "}")), ["log_pages"]);
        let past = without("abort_ratio: ", ",");
        assert_eq!(unnoticed("force:cfc", &past), ["abort_ratio"]);
    }

    #[test]
    fn a_log_that_is_kept_takes_from_the_reserve_what_it_writes() {
        // A small device, whose blocks are all collected in the run.
        let device = "device = { preset = \"flagcommit-slc\", geometry = { page_bytes = 8192, \
                      spare_bytes = 256, planes_per_package = 1, blocks_per_plane = 64, \
                      partial_programs = 9 }, \
                      ftl = { over_provision = 0.4, victims = \"greedy\" } }";
        let keys = |more: &str| format!("transactions = 2000\n{device}\n{more}");
        let reused = run("wal", &keys(""));
        let kept = run("wal", &keys("log_kept = true\nlog_padded = true"));
        let filled = |run: &ClosedRun| {
            let setup = run.setup().unwrap();
            let pages = f64::from(setup.device_fill().capacity().unwrap());
            ((pages * setup.terms.fill) as u32, setup.host().log_pages)
        };
        assert_eq!(filled(&reused).0, filled(&kept).0);
        assert_eq!([filled(&reused).1, filled(&kept).1], [1024, 3436]);
        let library = Library::new(1);
        // A page for each force in both, so that only what becomes of them differs.
        let padded = run("wal", &keys("log_padded = true\ncheckpoint_every = 256"));
        let [padded, kept] = [padded, kept].map(|run| metrics(&run, &library));
        assert!(kept["log_pages"] > 1_500.0 && padded["log_pages"] > 1_500.0);
        let collection = "gc_busy_ms_per_tx";
        assert!(
            kept[collection] > padded[collection],
            "{kept:?}, {padded:?}"
        );
        // Other stacks ignore the key.
        assert_eq!(
            run("cfc-ex", &keys("log_kept = true")),
            run("cfc-ex", &keys(""))
        );
    }
}
