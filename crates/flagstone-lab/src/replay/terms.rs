//! How a replay is carried out: its load, what is rolled back, and what the device holds before.
//! Commands and experiment files share the type, so that a knob is added in one place.

use serde::{Deserialize, Serialize};

/// How a replay is carried out. The fields are keys of experiment files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Clients of a closed loop.
    #[serde(default = "one")]
    pub clients: u32,
    /// Open loop: transactions arrive at their recorded times, divided by this.
    pub speedup: Option<f64>,
    /// Share of the transactions that are rolled back although they were not in the recording.
    #[serde(default)]
    pub abort_ratio: f64,
    /// Whether transactions that were rolled back in the recording are rolled back here as well.
    #[serde(default)]
    pub recorded_aborts: bool,
    /// Share of the logical pages that are written in order before the run starts.
    pub fill: f64,
    /// Whether these are then overwritten at random, until the collector works all the time.
    pub overwrite: bool,
    /// Seed of the fill and of the extra aborts.
    #[serde(default = "one_seed")]
    pub seed: u64,
}

fn one() -> u32 {
    1
}

fn one_seed() -> u64 {
    1
}

impl Default for Terms {
    /// One client on a blank device, and the recording's own aborts.
    fn default() -> Self {
        Terms {
            overwrite: false,
            ..Terms::on_filled(0.0, 1)
        }
    }
}

impl Terms {
    /// One client on a device that is filled to a share and overwritten, and the recording's own
    /// aborts.
    pub fn on_filled(fill: f64, seed: u64) -> Terms {
        Terms {
            clients: 1,
            speedup: None,
            abort_ratio: 0.0,
            recorded_aborts: true,
            fill,
            overwrite: true,
            seed,
        }
    }
}
