//! Where a driver's transactions come from.

use crate::replay::Script;
use crate::tpcc::pages::{Access, Pages, PagesError, Transaction, Verb};
use flagstone::host::Rid;
use flagstone::units::Lpn;

/// Deals transactions to clients.
pub trait Source {
    /// The next transaction for a client, into `into`; `false` if there is none. With `roll_back`
    /// it has to end with a rollback.
    ///
    /// # Errors
    /// A database that cannot grow.
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError>;

    /// For an open loop: when the next transaction arrives, in nanoseconds of the recording;
    /// nothing if there is none.
    fn arrival(&self) -> Option<u64> {
        None
    }

    /// Pages of the database that it needs, where that is known.
    fn pages(&self) -> u32 {
        0
    }
}

impl Source for Pages {
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError> {
        Pages::deal(self, client, roll_back, into)?;
        Ok(true)
    }
}

/// A script as transactions on records: each page that it reads or writes is one record.
#[derive(Debug, Clone)]
pub struct Played<'a> {
    script: &'a Script,
    next: usize,
}

impl<'a> Played<'a> {
    /// From the script's first transaction on.
    pub fn new(script: &'a Script) -> Self {
        Played { script, next: 0 }
    }
}

impl Source for Played<'_> {
    fn deal(
        &mut self,
        _: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, PagesError> {
        let Some(transaction) = self.script.transactions().get(self.next) else {
            return Ok(false);
        };
        into.number = self.next as u64;
        into.commits = !transaction.aborted && !roll_back;
        into.accesses.clear();
        let all = [
            (Verb::Read, self.script.reads(transaction)),
            (Verb::Delete, self.script.trims(transaction)),
            (Verb::Update, self.script.writes(transaction)),
        ];
        for (verb, pages) in all {
            into.accesses.extend(pages.iter().map(|page| Access {
                verb,
                at: Rid {
                    page: Lpn(*page),
                    slot: 0,
                },
            }));
        }
        self.next += 1;
        Ok(true)
    }

    fn arrival(&self) -> Option<u64> {
        let next = self.script.transactions().get(self.next);
        next.map(|transaction| transaction.start_ns)
    }

    fn pages(&self) -> u32 {
        self.script.logical_pages
    }
}
