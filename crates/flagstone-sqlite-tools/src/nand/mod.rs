//! Measures the cost of each engine's writes on simulated NAND, in virtual time: programs, erases,
//! and the lifetime of the cells.
//!
//! One client runs each workload again on databases of its own, whose writes and syncs are recorded
//! ([`vfs`] for SQLite's journal modes, [`store`] for a store). Then the pages of each sync are
//! written to a simulated device ([`play()`]). The device of a store uses the protocol `seal`; the
//! others are a page-mapping FTL without a commit protocol (`plain`), as in an ordinary drive. All
//! devices have equal chips and are filled to the same share.
//!
//! Writes of the file system's own metadata are not recorded, so SQLite's journal modes look better
//! here than they are.

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

/// The file of a database to which a page belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Database,
    Journal,
}

/// A page: its file, and its number in the file.
type Page = (Role, u32);

/// A recording: the pages that each sync made durable, in order.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    syncs: Vec<Vec<Page>>,
    /// Pages that the database had when the recording began.
    begins_with: u32,
}

impl Trace {
    /// The number of syncs that made something durable.
    #[cfg(test)]
    pub(crate) fn syncs(&self) -> usize {
        self.syncs.len()
    }

    /// The number of pages that a file needs to hold everything written to it.
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

/// Starts a new recording of a database, which begins with the pages that it has now.
pub(crate) fn start(engine: Engine, path: &Path) -> Result<(), Failure> {
    take(engine, path).map(|_| ())
}

/// Takes the recording of a database since [`start`].
pub(crate) fn take(engine: Engine, path: &Path) -> Result<Trace, Failure> {
    match engine {
        Engine::Flagstone => store::take(path),
        _ => Ok(vfs::take(path)),
    }
}

/// Plays the recordings of one workload. All devices have chips of one size, chosen so that the
/// largest database fits.
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
