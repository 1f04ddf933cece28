//! Executes runs on several threads and stores each result in a file of its own, so that stopped
//! work can be resumed.

use super::engine::{AnyRun, Library, Outcome};
use flagstone_lab::effort::Effort;
use flagstone_lab::output::{Output, OutputError, make_folder};
use flagstone_lab::stop::Stop;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A stored result.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    settings: serde_json::Value,
    version: String,
    outcome: Outcome,
}

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEvent {
    /// The run starts.
    Started,
    /// The run is complete.
    Done,
    /// The result already existed.
    Found,
}

/// Storage for results of runs.
pub(crate) trait Keeping: Sync {
    /// The stored result of a run, if there is one.
    ///
    /// # Errors
    /// An invalid file is in its place that must not be replaced silently.
    fn find(&self, run: &AnyRun) -> Result<Option<Outcome>, String>;

    /// Stores a result.
    ///
    /// # Errors
    /// It cannot be written.
    fn keep(&self, run: &AnyRun, outcome: &Outcome) -> Result<(), String>;
}

/// Executes all runs without a result in `folder`. `watch` receives each event.
///
/// # Errors
/// The first run that failed, or the folder cannot be written. Earlier results are kept.
pub fn execute(
    runs: &BTreeMap<String, AnyRun>,
    jobs: usize,
    folder: &Path,
    watch: &(dyn Fn(&AnyRun, RunEvent) + Sync),
) -> Result<BTreeMap<String, Outcome>, String> {
    // Before creating a folder: runs that are not possible leave nothing behind.
    runs.values().try_for_each(AnyRun::ready)?;
    make_folder(folder).map_err(unwritten)?;
    all(runs, jobs, &Folder(folder), watch)
}

/// Executes all runs without a stored result.
///
/// # Errors
/// As [`execute`].
pub(crate) fn all(
    runs: &BTreeMap<String, AnyRun>,
    jobs: usize,
    keeping: &dyn Keeping,
    watch: &(dyn Fn(&AnyRun, RunEvent) + Sync),
) -> Result<BTreeMap<String, Outcome>, String> {
    // The filled devices with which more than one run starts.
    let mut words = BTreeSet::new();
    let again = |word: String| (!words.insert(word.clone())).then_some(word);
    let shared = runs.values().map(AnyRun::starts_from).filter_map(again);
    let library = Library::new(jobs.max(1)).sharing(shared.collect());
    let failed = AtomicBool::new(false);
    let (stop, effort) = (Stop::current(), Effort::current());
    let planned = planned(runs, &effort);
    let one = |(hash, run): (&String, &AnyRun)| -> Option<Result<(String, Outcome), String>> {
        match keeping.find(run) {
            Ok(None) => {}
            Ok(Some(outcome)) => {
                effort.drop(planned[&hash]);
                watch(run, RunEvent::Found);
                return Some(Ok((hash.clone(), outcome)));
            }
            Err(error) => return Some(Err(error)),
        }
        if failed.load(Ordering::Relaxed) {
            return None;
        }
        watch(run, RunEvent::Started);
        let outcome =
            stop.within(|| effort.within(&run.name(), planned[&hash], || run.outcome(&library)));
        let made = outcome.and_then(|outcome| {
            keeping.keep(run, &outcome)?;
            Ok((hash.clone(), outcome))
        });
        failed.fetch_or(made.is_err(), Ordering::Relaxed);
        watch(run, RunEvent::Done);
        Some(made)
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs.max(1))
        .build()
        .map_err(|error| error.to_string())?;
    // Hand out one run at a time, so that a long one does not delay others after it.
    pool.install(|| {
        let mut list: Vec<(&String, &AnyRun)> = runs.iter().collect();
        list.sort_by_cached_key(|(_, run)| run.starts_from());
        list.into_par_iter()
            .with_max_len(1)
            .filter_map(one)
            .collect()
    })
}

/// The cost of each run by its hash, which is added to the plan. Shared fills count once.
fn planned<'a>(runs: &'a BTreeMap<String, AnyRun>, effort: &Effort) -> BTreeMap<&'a String, u64> {
    let mut filled = BTreeSet::new();
    let one = |(hash, run): (&'a String, &AnyRun)| {
        let (filling, rest) = run.effort();
        let filling = if filled.insert(run.starts_from()) {
            filling
        } else {
            0
        };
        effort.plan(filling + rest);
        (hash, filling + rest)
    };
    runs.iter().map(one).collect()
}

/// The stored result of a run in `folder`, if there is one.
pub(crate) fn kept(run: &AnyRun, folder: &Path) -> Option<Outcome> {
    Folder(folder).find(run).ok()?
}

fn unwritten(error: OutputError) -> String {
    format!("{error}; results are kept there: use a writable folder with free space")
}

/// Results of `reproduce` in a folder. A result of another run is replaced.
struct Folder<'a>(&'a Path);

impl Folder<'_> {
    fn file(&self, run: &AnyRun) -> PathBuf {
        self.0.join(format!("{}.json", run.hash()))
    }
}

impl Keeping for Folder<'_> {
    fn find(&self, run: &AnyRun) -> Result<Option<Outcome>, String> {
        let kept = fs::read(self.file(run)).ok();
        let kept = kept.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let own = kept.filter(|kept| kept.settings == run.settings());
        Ok(own.map(|kept| kept.outcome))
    }

    fn keep(&self, run: &AnyRun, outcome: &Outcome) -> Result<(), String> {
        let kept = Kept {
            settings: run.settings(),
            version: env!("CARGO_PKG_VERSION").into(),
            outcome: outcome.clone(),
        };
        let text = serde_json::to_vec_pretty(&kept).expect("a result is plain JSON");
        let output = Output::new(&self.file(run), &[]);
        let written = output.and_then(|output| output.write(&text));
        written.map_err(unwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::engine::Settings;
    use std::sync::atomic::AtomicUsize;

    fn run(protocol: &str, isolation: &str) -> AnyRun {
        let trace = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../data/tpcc-postgres.parquet"
        );
        let text = format!(
            "engine = \"replay\"\ntrace = {trace:?}\nprotocol = \"{protocol}\"\n\
             isolation = \"{isolation}\"\ntransactions = 40\nfill = 0.0\noverwrite = false\n\
             device = {{ preset = \"small\" }}\n"
        );
        Settings(toml::from_str(&text).unwrap()).run().unwrap()
    }

    #[test]
    fn a_second_campaign_finds_what_the_first_has_made() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let runs: BTreeMap<String, AnyRun> =
            [("aw", "strict"), ("aw", "serializable"), ("scc", "strict")]
                .map(|(protocol, isolation)| run(protocol, isolation))
                .map(|run| (run.hash(), run))
                .into();
        let (made, found) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let watch = |_: &AnyRun, event: RunEvent| match event {
            RunEvent::Started => {}
            RunEvent::Done => _ = made.fetch_add(1, Ordering::Relaxed),
            RunEvent::Found => _ = found.fetch_add(1, Ordering::Relaxed),
        };
        let counts = || {
            (
                made.swap(0, Ordering::Relaxed),
                found.swap(0, Ordering::Relaxed),
            )
        };
        let first = execute(&runs, 2, folder, &watch).unwrap();
        assert_eq!(counts(), (3, 0));
        let committed = |outcome: &Outcome| outcome.metric("committed");
        let all: Vec<Option<f64>> = first.values().map(committed).collect();
        assert_eq!(
            all.iter().flatten().count(),
            2,
            "serializable is refused: {all:?}"
        );
        assert!(all.contains(&Some(40.0)));
        // A damaged result is recomputed; others are used.
        let one = runs.keys().next().unwrap();
        fs::write(folder.join(format!("{one}.json")), "{").unwrap();
        let second = execute(&runs, 1, folder, &watch).unwrap();
        assert_eq!(counts(), (1, 2));
        let metrics = |all: &BTreeMap<String, Outcome>| -> Vec<Option<f64>> {
            all.values()
                .map(|outcome| outcome.metric("ended_tps"))
                .collect()
        };
        assert_eq!(metrics(&first), metrics(&second));
    }

    #[test]
    fn a_run_that_cannot_be_made_says_why() {
        let mut runs = BTreeMap::new();
        let text = "engine = \"replay\"\ntrace = \"none.parquet\"\nprotocol = \"aw\"\nfill = 0.0\n\
                    overwrite = false\ndevice = { preset = \"small\" }\n";
        let run = Settings(toml::from_str(text).unwrap()).run().unwrap();
        runs.insert(run.hash(), run);
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("results");
        let error = execute(&runs, 1, &folder, &|_, _| {}).unwrap_err();
        assert!(error.contains("none.parquet does not exist"), "{error}");
        assert!(!folder.exists(), "nothing is made for runs that cannot be");
    }
}
