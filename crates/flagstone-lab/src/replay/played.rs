//! A script as client transactions: each page that it reads or writes is one record.

use super::Script;
use crate::driver::Source;
use crate::driver::SourceError;
use crate::workload::{Access, Transaction, Verb};
use flagstone::units::Lpn;
use flagstone_host::Rid;

/// Supplies the transactions of a [`Script`] in its order.
#[derive(Debug, Clone)]
pub struct Played<'a> {
    script: &'a Script,
    next: usize,
    recorded_aborts: bool,
}

impl<'a> Played<'a> {
    /// Starts with the script's first transaction.
    pub fn new(script: &'a Script) -> Self {
        Played {
            script,
            next: 0,
            recorded_aborts: true,
        }
    }

    /// Sets whether transactions that were rolled back in the recording are rolled back here.
    #[must_use]
    pub fn with_recorded_aborts(self, recorded_aborts: bool) -> Self {
        Played {
            recorded_aborts,
            ..self
        }
    }
}

impl Source for Played<'_> {
    fn deal(
        &mut self,
        _: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, SourceError> {
        let Some(transaction) = self.script.transactions().get(self.next) else {
            return Ok(false);
        };
        into.number = self.next as u64;
        into.commits = !(roll_back || transaction.aborted && self.recorded_aborts);
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

    fn arrival(&self, after: usize) -> Option<u64> {
        let arrives = self.script.transactions().get(self.next + after);
        arrives.map(|transaction| transaction.start_ns)
    }

    fn reads_together(&self) -> bool {
        self.script.reads_together
    }

    fn pages(&self) -> u32 {
        self.script.logical_pages
    }
}
