//! Conditions of a replay: its load, additional rollbacks, and the contents of the device before
//! it. Commands and experiment files share the type, so that a setting is added in one place.

use serde::{Deserialize, Serialize};

/// Conditions of a replay. The fields are keys of experiment files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Number of clients in a closed loop.
    #[serde(default = "one")]
    pub clients: u32,
    /// Open loop: transactions arrive at their recorded times, divided by this.
    pub speedup: Option<f64>,
    /// Fraction of transactions that are rolled back although they committed in the recording.
    #[serde(default)]
    pub abort_ratio: f64,
    /// Whether transactions that were rolled back in the recording are also rolled back in the
    /// replay.
    #[serde(default)]
    pub recorded_aborts: bool,
    /// Fraction of the logical pages to fill, in order, before the run.
    pub fill: f64,
    /// Whether the filled pages are then overwritten at random, until garbage collection runs
    /// steadily.
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
    /// One client on a blank device, with the recording's own rollbacks.
    fn default() -> Self {
        Terms {
            overwrite: false,
            ..Terms::on_filled(0.0, 1)
        }
    }
}

impl Terms {
    /// One client on a device that is filled to the fraction `fill` and overwritten, with the
    /// recording's own rollbacks.
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
