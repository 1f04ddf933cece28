//! The same workloads on the same NAND in virtual time: what programs and erases each way of
//! keeping a database costs there, and how long the cells last.
//!
//! Each workload is carried out once more by one client, on databases of its own whose writes and
//! syncs are recorded ([`vfs`] for SQLite's own journals, [`store`] for a store). Then the pages of
//! each sync are written to a simulated device ([`play()`]). Those of a store have the protocol
//! `seal`. The others are on a page-mapping FTL with no protocol above it (`plain`), which is what
//! a drive is. All get chips of one size, filled to the same share.
//!
//! What the file system writes for itself is not among the pages, so SQLite's own journals look
//! better here than they are.

mod play;
mod store;
mod vfs;

use crate::bench::Args;
use crate::engine::Engine;
use flagstone_lab::device::DeviceSpec;
use flagstone_terminal::Failure;
pub(crate) use play::Played;
use rusqlite::Connection;
use std::path::Path;

/// Which file of a database a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Database,
    Journal,
}

/// A page of a file.
type Page = (Role, u32);

/// The pages that each sync made durable, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    syncs: Vec<Vec<Page>>,
    /// Pages of the database before the first of them.
    begins_with: u32,
}

impl Trace {
    /// How many syncs made something durable.
    #[cfg(test)]
    pub(crate) fn syncs(&self) -> usize {
        self.syncs.len()
    }

    /// Pages of a file that are needed to hold what was written to it.
    fn pages_of(&self, role: Role) -> u32 {
        let pages = self.syncs.iter().flatten().filter(|page| page.0 == role);
        let needed = pages.map(|page| page.1 + 1).max().unwrap_or(0);
        match role {
            Role::Database => needed.max(self.begins_with),
            Role::Journal => needed,
        }
    }
}

/// Opens a database whose writes and syncs are recorded.
pub(crate) fn open(engine: Engine, path: &Path) -> Result<Connection, Failure> {
    match engine {
        Engine::Flagstone => store::open(path),
        _ => vfs::open_recorded(path),
    }
}

/// Forgets what was recorded of a database so far, but for the pages that it has.
pub(crate) fn start(engine: Engine, path: &Path) -> Result<(), Failure> {
    take(engine, path).map(|_| ())
}

/// What was recorded of a database since the last time.
pub(crate) fn take(engine: Engine, path: &Path) -> Result<Trace, Failure> {
    match engine {
        Engine::Flagstone => store::take(path),
        _ => Ok(vfs::take(path)),
    }
}

/// Plays what was recorded under one workload on chips of one size: as large as the largest
/// database needs.
pub(crate) fn play(
    traces: &[(Engine, Trace)],
    args: &Args,
    transactions: u64,
) -> Result<Vec<Played>, Failure> {
    let spec = DeviceSpec::load(&args.nand).map_err(|error| Failure::Usage(error.to_string()))?;
    let pages = |trace: &Trace| [Role::Database, Role::Journal].map(|role| trace.pages_of(role));
    let needs = traces
        .iter()
        .map(|(_, trace)| pages(trace).iter().sum::<u32>());
    let needs = needs.max().unwrap_or(0);
    let fits = play::Fits::new(&spec, needs, args.nand_fill)?;
    let one =
        |(engine, trace): &(Engine, Trace)| fits.play(*engine, trace, transactions, args.seed);
    traces.iter().map(one).collect()
}
