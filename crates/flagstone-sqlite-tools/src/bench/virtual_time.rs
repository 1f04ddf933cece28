//! Runs the workloads again with one client, records them and plays them on simulated NAND.

use super::{Args, Databases, Workload, lane};
use crate::engine::Engine;
use crate::nand::{self, Played, Trace};
use flagstone_terminal::Failure;
use std::path::Path;

/// Records workloads on databases of its own.
pub(super) struct Recorder<'a> {
    /// The arguments of the benchmark, with the number of clients set to one.
    args: Args,
    databases: Databases<'a>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        args: &Args,
        engines: &'a [(Engine, &'static str)],
        folder: &'a Path,
    ) -> Recorder<'a> {
        Recorder {
            args: Args {
                threads: 1,
                ..args.clone()
            },
            databases: Databases::new(engines, folder, true),
        }
    }

    /// Plays a workload on NAND for each engine. Returns nothing if `--nand` is `none`.
    pub(super) fn play(&mut self, workload: Workload, name: &str) -> Result<Vec<Played>, Failure> {
        if self.args.nand == "none" {
            return Ok(Vec::new());
        }
        let traces = self.record(workload, name)?;
        nand::play(&traces, &self.args, self.args.transactions)
    }

    /// Runs and records a workload with each engine.
    fn record(&mut self, workload: Workload, name: &str) -> Result<Vec<(Engine, Trace)>, Failure> {
        let lanes = self.databases.lanes(workload, &self.args)?;
        let traces = lane::record(lanes, name, self.args.transactions)?;
        for lane in self.databases.of_tpcc.drain(..) {
            lane.remove()?;
        }
        Ok(traces)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Mix;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    const TRANSACTIONS: u64 = 300;

    fn played(nand: &str) -> (Vec<(Engine, Trace)>, Vec<Played>) {
        let folder = tempfile::tempdir().expect("a place");
        let cli = [
            "bench",
            ".",
            "--megabytes",
            "2",
            "--transactions",
            "300",
            "--nand",
            nand,
        ];
        let args = Cli::parse_from(cli).args;
        let mut recorder = Recorder::new(&args, &Engine::ALL, folder.path());
        let update = Workload::Rows(Mix::Update(1));
        let traces = recorder.record(update, "update-1").expect("it runs");
        let played = nand::play(&traces, &args, TRANSACTIONS).expect("it fits");
        (traces, played)
    }

    #[test]
    fn equal_runs_cost_the_same_and_a_store_the_least() {
        let (traces, first) = played("small");
        let (_, again) = played("small");
        assert_eq!(first, again);
        let syncs = |engine: Engine| {
            let mut all = traces.iter();
            let found = all.find(|(other, _)| *other == engine);
            found.expect("all were recorded").1.syncs() as u64
        };
        assert_eq!(syncs(Engine::Flagstone), TRANSACTIONS);
        // Each transaction syncs the log; a checkpoint syncs the log and the database.
        let full = TRANSACTIONS..TRANSACTIONS + 20;
        assert!(
            full.contains(&syncs(Engine::WalFull)),
            "{}",
            syncs(Engine::WalFull)
        );
        assert!(
            syncs(Engine::WalNormal) < 20,
            "{}",
            syncs(Engine::WalNormal)
        );
        // Three syncs for each transaction: the journal, its header, and the database.
        assert_eq!(syncs(Engine::Delete), 3 * TRANSACTIONS);
        let programs = |at: usize| first[at].programs();
        let [store, full, normal, delete] = [0, 1, 2, 3].map(programs);
        assert!(store < full && full < delete, "{store} {full} {delete}");
        assert!(normal <= full, "{normal} {full}");
        assert!(first[0].lasts() > first[3].lasts());
    }

    #[test]
    fn an_unknown_chip_is_named() {
        let folder = tempfile::tempdir().expect("a place");
        let args = Cli::parse_from(["bench", ".", "--nand", "smal", "--megabytes", "1"]).args;
        let mut recorder = Recorder::new(&args, &Engine::ALL[..1], folder.path());
        let error = recorder.play(Workload::Rows(Mix::Read), "read");
        let error = error.expect_err("there is none");
        assert!(error.why().contains("small"), "{}", error.why());
    }
}
