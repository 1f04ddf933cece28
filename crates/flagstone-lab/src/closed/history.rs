//! The history of a device before a run: page writes of a workload that has been running for a long
//! time.
//!
//! On a device that was filled in order, the blocks of the database contain only dead pages, and
//! collection costs nothing at first. It reaches its long-term cost only after the database was
//! overwritten several times. Most of a simulation's time goes to clients that read, wait and log,
//! which does not affect the placement of pages. So this writes only the pages that transactions
//! change. Transactions run one after the other, with the protocol's own commits and rollbacks. Not
//! modelled: restarts, interleaving of transactions, versions with pending records, and the
//! contents of the host's log (which is written, to separate pages).
//!
//! A rolled back transaction leaves the pages that the pool had to write out before its end. The
//! pool is assumed to be shared evenly: a page is written out once its client has requested its
//! share of the frames in other pages.

use crate::driver::Source;
use crate::driver::SourceError;
use crate::effort;
use crate::stop;
use crate::workload::{Access, Transaction};
use flagstone::commit::{Device, DeviceError, RecordDevice};
use flagstone::units::{Lpn, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Parameters of a history, besides the source of its transactions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Past {
    /// Approximate number of pages written.
    pub pages: u64,
    /// Clients that take turns.
    pub clients: u32,
    /// Number of frames in their shared pool.
    pub frames: usize,
    /// Fraction of transactions that are rolled back.
    pub abort_ratio: f64,
    /// Seed for choosing these.
    pub seed: u64,
}

/// Transactions, as the pages that they leave on the device.
#[derive(Debug, Clone, Default)]
pub struct History {
    pages: Vec<u32>,
    /// End of each transaction in `pages`, and whether it commits.
    transactions: Vec<(u32, bool)>,
}

/// Pages of a log, written in turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) first: u32,
    pub(super) pages: u32,
}

impl History {
    /// Takes transactions from a source until they have written enough. The source continues from
    /// there.
    ///
    /// # Errors
    /// The database cannot grow.
    pub fn of(source: &mut impl Source, past: &Past) -> Result<History, SourceError> {
        let mut history = History::default();
        let mut dice = Pcg64Mcg::seed_from_u64(past.seed ^ 0x9a57);
        let share = past.frames / past.clients.max(1) as usize;
        let (mut transaction, mut seen) = (Transaction::default(), Vec::new());
        let mut client = 0;
        while (history.pages.len() as u64) < past.pages {
            stop::point();
            let roll_back = dice.random_bool(past.abort_ratio.clamp(0.0, 1.0));
            if !source.deal(client, roll_back, &mut transaction)? {
                break;
            }
            client = (client + 1) % past.clients.max(1);
            let from = history.pages.len();
            let left = asked_for(&transaction, share, &mut seen);
            if transaction.commits {
                transaction.distinct_pages(Access::writes, &mut seen);
                history.pages.extend_from_slice(&seen);
            } else {
                history.pages.extend(left);
            }
            if history.pages.len() > from {
                let end = history.pages.len() as u32;
                history.transactions.push((end, transaction.commits));
            }
        }
        Ok(history)
    }

    /// Number of pages that it writes.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn each(&self) -> impl Iterator<Item = (&[u32], bool)> {
        let mut from = 0;
        self.transactions.iter().map(move |&(end, commits)| {
            let pages = &self.pages[from..end as usize];
            from = end as usize;
            (pages, commits)
        })
    }

    /// Applies the history to a page device.
    pub(super) fn on_pages(
        &self,
        device: &mut Device,
        mut now: Nanos,
        log: Option<Ring>,
    ) -> Result<Nanos, DeviceError> {
        // Number of commits that wait for their group.
        let mut waiting = 0;
        for (n, (pages, commits)) in self.each().enumerate() {
            stop::point();
            effort::did(effort::OVERWRITTEN * pages.len() as u64);
            let tx = match device.begin(now) {
                Err(DeviceError::TooManyLive { .. }) if waiting > 0 => {
                    now = acknowledged(device, now, true, &mut waiting)?;
                    device.begin(now)?
                }
                begun => begun?,
            };
            for &page in pages {
                let mut written = device.write(now, tx, Lpn(page), &[]);
                if waiting > 0 && matches!(written, Err(DeviceError::Conflict { .. })) {
                    now = acknowledged(device, now, true, &mut waiting)?;
                    written = device.write(now, tx, Lpn(page), &[]);
                }
                now = written?.next;
            }
            if !commits {
                now = device.abort(now, tx)?;
                continue;
            }
            match device.commit(now, tx)? {
                Some(done) => now = done,
                None => waiting += 1,
            }
            if waiting > 0 {
                now = acknowledged(device, now, false, &mut waiting)?;
            }
            if let Some(ring) = log {
                let tx = device.begin(now)?;
                now = device.write(now, tx, ring.at(n), &[])?.next;
                now = device.commit(now, tx)?.unwrap_or(now);
            }
        }
        acknowledged(device, now, true, &mut waiting)
    }

    /// Applies the history to a record device. A rolled back transaction leaves nothing there:
    /// later page versions omit its records.
    pub(super) fn on_records(
        &self,
        device: &mut RecordDevice,
        mut now: Nanos,
        log: Ring,
    ) -> Result<Nanos, DeviceError> {
        for (n, (pages, commits)) in self.each().enumerate() {
            stop::point();
            effort::did(effort::OVERWRITTEN * pages.len() as u64);
            for &page in pages.iter().filter(|_| commits) {
                now = now.max(device.write(now, Lpn(page), &[], &[])?);
            }
            now = now.max(device.write(now, log.at(n), &[], &[])?);
        }
        Ok(now)
    }
}

impl Ring {
    fn at(self, n: usize) -> Lpn {
        Lpn(self.first + (n % self.pages as usize) as u32)
    }
}

fn acknowledged(
    device: &mut Device,
    now: Nanos,
    flush: bool,
    waiting: &mut usize,
) -> Result<Nanos, DeviceError> {
    let done = device.acknowledged(now, flush)?;
    *waiting -= done.len();
    Ok(done.into_iter().map(|(_, at)| at).fold(now, Nanos::max))
}

/// Simulates a transaction's page requests in a pool with `share` frames for it, under LRU. Returns
/// changed pages that are evicted at the end: those after which `share` others were requested.
fn asked_for(transaction: &Transaction, share: usize, lately: &mut Vec<u32>) -> Vec<u32> {
    // Requested pages, most recent last, and those that have changed.
    lately.clear();
    let mut changed: Vec<u32> = Vec::new();
    for access in &transaction.accesses {
        let page = access.at.page.0;
        let known = lately.iter().rposition(|&other| other == page);
        known.map(|place| lately.remove(place));
        lately.push(page);
        if access.writes() && !changed.contains(&page) {
            changed.push(page);
        }
    }
    let out = lately.len().saturating_sub(share);
    changed.retain(|page| lately[..out].contains(page));
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Verb;
    use flagstone_host::Rid;

    fn transaction(commits: bool, accesses: &[(Verb, u32)]) -> Transaction {
        let at = |page| Rid {
            page: Lpn(page),
            slot: 0,
        };
        let accesses = accesses
            .iter()
            .map(|&(verb, page)| Access { verb, at: at(page) });
        Transaction {
            commits,
            accesses: accesses.collect(),
            ..Transaction::default()
        }
    }

    #[test]
    fn a_rollback_leaves_the_changed_pages_that_were_not_asked_for_lately() {
        use Verb::{Read, Touch, Update};
        let accesses = [
            (Update, 1),
            (Update, 2),
            (Touch, 3),
            (Update, 4),
            (Read, 1),
            (Read, 5),
            (Read, 5),
        ];
        let rolled_back = transaction(false, &accesses);
        let left = |share| asked_for(&rolled_back, share, &mut Vec::new());
        assert_eq!(left(0), [1, 2, 4]);
        assert_eq!(left(2), [2, 4]);
        assert_eq!(left(4), [2]);
        assert_eq!(left(5), [0; 0]);
    }
}
