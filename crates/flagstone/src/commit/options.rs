//! What a user chooses about a commit protocol: its settings by name, and modes of campaigns.

use super::{Info, Mistake};
use crate::mistakes::Mistaken;
use crate::nand::Geometry;
use crate::settings::{BadSetting, Setting, Settings};
use std::collections::VecDeque;

/// A mode by name, and the settings that make it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Settings with their values; none for the default.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Mode {
    pub(super) const fn new(
        name: &'static str,
        settings: &'static [(&'static str, &'static str)],
    ) -> Mode {
        Mode { name, settings }
    }
}

/// Variants of a protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Options {
    /// Build the protocol as printed, without the repairs that its departures list.
    pub as_published: bool,
    /// Settings that the protocol declares ([`Info::settings`]).
    pub settings: Settings,
    /// A rule of SEAL that is left out: only for controls.
    pub mistake: Mistaken<Mistake>,
    /// The device was closed: all programs up to this number were durable, and all their blocks
    /// had summaries, as [`Device::end_blocks`](super::Device::end_blocks) said. It may have been
    /// written to since.
    pub ended: Option<u64>,
    /// Whether a restart goes on where something was durable and is damaged: see
    /// [`Device::damage`](super::Device::damage).
    pub salvages: bool,
    /// Whether a restart tells what it decided and why: see
    /// [`Device::rulings`](super::Device::rulings).
    pub tells: bool,
}

impl Options {
    /// With one more setting.
    pub fn with(mut self, name: &str, value: impl ToString) -> Options {
        self.settings.set(name, value);
        self
    }
}

/// The setting of protocols that have a log for each of several heads.
pub(crate) const LOG_HEADS: Setting = Setting {
    name: "log_heads",
    default: "0",
    what: "log heads, at most 64; 0 takes one a package, but at least two",
};

/// The most log heads that a device can have.
pub(super) const HEADS_MAX: u32 = 64;

/// Heads of a device, each of which serves one transaction at a time.
#[derive(Debug, Clone)]
pub(super) struct Heads {
    pub(super) count: u32,
    /// Those that serve none, the longest idle first.
    idle: VecDeque<u32>,
}

impl Heads {
    pub(super) fn new(count: u32) -> Heads {
        let idle = (0..count).collect();
        Heads { count, idle }
    }

    /// The head of a transaction that begins.
    pub(super) fn take(&mut self) -> u32 {
        let idle = self.idle.pop_front();
        idle.expect("the device keeps to live_max")
    }

    /// Its transaction has ended.
    pub(super) fn give(&mut self, head: u32) {
        self.idle.push_back(head);
    }
}

/// Log heads on a device: the setting, or one a package but at least two.
pub(super) fn heads(
    info: &Info,
    geometry: &Geometry,
    options: &Options,
) -> Result<u32, BadSetting> {
    let heads = options
        .settings
        .number(info, LOG_HEADS.name, 0, HEADS_MAX)?;
    Ok(match heads {
        0 => geometry.packages().clamp(2, HEADS_MAX),
        heads => heads,
    })
}
