//! Conditions of a closed loop. Commands and experiment files share the type, so that a setting is
//! added in one place: commands fill in every field, and do not compile until they do.

use crate::driver::Plan;
use flagstone::units::Nanos;
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{Granularity, HostConfig};
use serde::{Deserialize, Serialize};

/// Conditions of a closed loop. The fields are keys of experiment files, with exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Number of clients in a closed loop.
    pub clients: u32,
    /// Open loop: transactions arrive at their recorded times, divided by this. Not a key of files:
    /// experiments run TPC-C, which has no times.
    #[serde(skip)]
    pub speedup: Option<f64>,
    /// The unit of locking, `pages` or `records`; without it, the default of the `stack`.
    #[serde(default, with = "crate::names")]
    pub locks: Option<Granularity>,
    /// Frames of the buffer pool.
    pub frames: u32,
    /// Eviction policy of the buffer pool.
    #[serde(default = "lru", with = "crate::names")]
    pub policy: PolicyKind,
    /// Whether pages of live transactions are written out (steal). For stacks without a log.
    #[serde(default = "steal")]
    pub steal: bool,
    /// Pages of the log, for stacks that have one.
    #[serde(default = "log_pages")]
    pub log_pages: u32,
    /// Pages of the log that a history writes, which precede the log of the run; by default as many
    /// as that has. Not a key of files.
    #[serde(skip)]
    pub history_log: Option<u32>,
    /// Mean delay before a victim restarts, in milliseconds; uniformly distributed from zero to
    /// twice this.
    pub back_off_ms: f64,
    /// Fraction of transactions that roll back instead of committing.
    pub abort_ratio: f64,
    /// Fraction of the logical pages to fill before the run.
    pub fill: f64,
    /// Whether the filled pages are then overwritten at random until garbage collection runs
    /// steadily.
    pub overwrite: bool,
    /// Number of transactions before the measurement, and number of measured transactions.
    pub warm_up: u64,
    /// See `warm_up`.
    pub transactions: u64,
    /// Seed of all random choices.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Whether every read is compared with the committed data. Takes as long as the run. Neither a
    /// key nor an option: only for tests and the benchmark of the loop.
    #[serde(skip)]
    pub check: bool,
}

fn lru() -> PolicyKind {
    PolicyKind::Lru
}

/// Default size of WAL's log, in pages.
pub fn log_pages() -> u32 {
    1024
}

fn steal() -> bool {
    true
}

fn one_seed() -> u64 {
    1
}

impl Default for Terms {
    /// One client on a blank device, without warm-up.
    fn default() -> Self {
        Terms {
            clients: 1,
            speedup: None,
            locks: None,
            frames: 512,
            policy: lru(),
            steal: true,
            log_pages: log_pages(),
            history_log: None,
            back_off_ms: 10.0,
            abort_ratio: 0.0,
            fill: 0.0,
            overwrite: false,
            warm_up: 0,
            transactions: u64::MAX,
            seed: one_seed(),
            check: false,
        }
    }
}

impl Terms {
    /// The parameters of the driver.
    pub fn plan(&self) -> Plan {
        Plan {
            clients: self.clients,
            speedup: self.speedup,
            abort_ratio: self.abort_ratio,
            back_off: Nanos((self.back_off_ms * 1e6) as u64),
            seed: self.seed,
            check: self.check,
        }
    }

    /// The settings of the database.
    pub(super) fn host(&self) -> HostConfig {
        let mut host = HostConfig::default();
        host.frames = self.frames as usize;
        host.policy = self.policy;
        host.log_pages = self.log_pages;
        host.steal = self.steal;
        host.granularity = self.locks;
        host
    }
}
