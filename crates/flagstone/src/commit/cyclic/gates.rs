//! Waits before the next version of a page.

use crate::commit::table_bytes;
use crate::ftl::{Ftl, FtlError};
use crate::units::{Lpn, Nanos};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy)]
struct Gate {
    until: Nanos,
    /// Whether a transaction has already waited for that instant.
    waited: bool,
}

/// Instants before which a page's next version must not be programmed: it would decide the meaning
/// of an older version, or of a link to one, while a power cut can still undo that.
#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    closed: FxHashMap<Lpn, Gate>,
    /// The latest instant of the gates that were dropped.
    floor: Nanos,
    /// Maximum number of gates before past ones are dropped.
    limit: usize,
}

impl Gates {
    const LIMIT_MIN: usize = 4096;

    /// Closes a page until an instant. `waited`: whether a transaction has waited for it.
    pub(super) fn close(&mut self, at: Lpn, until: Nanos, waited: bool) {
        let gate = self.closed.entry(at).or_insert(Gate { until, waited });
        gate.until = gate.until.max(until);
        gate.waited &= waited;
    }

    /// Waits until a page's next version may be programmed.
    pub(super) fn pass(&mut self, ftl: &mut Ftl, now: Nanos, at: Lpn) -> Result<Nanos, FtlError> {
        let now = now.max(self.floor);
        let Some(gate) = self.closed.get_mut(&at) else {
            return Ok(now);
        };
        let until = gate.until;
        if until <= now && gate.waited {
            self.closed.remove(&at);
            return Ok(now);
        }
        // Keep the gate: if this version is rolled back, the next one may come before `until`.
        gate.waited = true;
        ftl.sync(now, until)
    }

    /// Drops past gates if there are many.
    pub(super) fn forget(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        if self.closed.len() < self.limit.max(Gates::LIMIT_MIN) {
            return Ok(());
        }
        // A single background wait for all instants for which no transaction has waited.
        let open = self.closed.values().filter(|gate| !gate.waited);
        if let Some(until) = open.map(|gate| gate.until).max() {
            ftl.sync(now, until)?;
        }
        let floor = &mut self.floor;
        self.closed.retain(|_, gate| {
            gate.waited = true;
            if gate.until <= now {
                *floor = gate.until.max(*floor);
            }
            gate.until > now
        });
        self.limit = 2 * self.closed.len();
        Ok(())
    }

    pub(super) fn memory(&self) -> u64 {
        table_bytes::<Lpn, Gate>(self.closed.len())
    }
}
