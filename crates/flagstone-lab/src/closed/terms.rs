//! How a closed loop is carried out. Commands and experiment files share the type, so that a knob
//! is added in one place: commands fill in every field, and do not compile until they do.

use crate::driver::Plan;
use flagstone::units::Nanos;
use flagstone_host::buffer::PolicyKind;
use flagstone_host::{Granularity, HostConfig};
use serde::{Deserialize, Serialize};

/// How a closed loop is carried out. The fields are keys of experiment files, but two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Clients of a closed loop.
    pub clients: u32,
    /// Open loop: transactions arrive as in the recording, its times divided by this. No key:
    /// experiments run TPC-C, which has no times.
    #[serde(skip)]
    pub speedup: Option<f64>,
    /// What is locked, `pages` or `records`, or what the `stack` locks by itself.
    #[serde(default, with = "crate::names")]
    pub locks: Option<Granularity>,
    /// Frames of the buffer pool.
    pub frames: u32,
    /// Its eviction policy.
    #[serde(default = "lru", with = "crate::names")]
    pub policy: PolicyKind,
    /// Whether pages of live transactions are written out, also where the protocol takes each once.
    #[serde(default)]
    pub steal: Option<bool>,
    /// Pages of the log, of stacks that have one.
    #[serde(default = "log_pages")]
    pub log_pages: u32,
    /// Pages of the log that a history writes, which precede the log of the run; by default as
    /// many. It is not a key of files.
    #[serde(skip)]
    pub history_log: Option<u32>,
    /// The mean of the time after which a victim starts again, in milliseconds; it is uniform from
    /// nothing to twice this.
    pub back_off_ms: f64,
    /// Share of the transactions that are rolled back where they would commit.
    pub abort_ratio: f64,
    /// Share of the logical pages that hold something before the run starts.
    pub fill: f64,
    /// Whether these are then overwritten at random until the collector works all the time.
    pub overwrite: bool,
    /// Transactions before anything is counted, and those that are.
    pub warm_up: u64,
    /// See `warm_up`.
    pub transactions: u64,
    /// Seed of everything.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// Whether every read is held against what was committed. No key, and no option: it is for
    /// tests and the benchmark of the loop, and takes as long as the run.
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

fn one_seed() -> u64 {
    1
}

impl Default for Terms {
    /// One client on a blank device, all transactions counted.
    fn default() -> Self {
        Terms {
            clients: 1,
            speedup: None,
            locks: None,
            frames: 512,
            policy: lru(),
            steal: None,
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
    /// What of them is the driver's.
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

    /// What of them is the database's.
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
