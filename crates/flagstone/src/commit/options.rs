//! Options of a commit protocol: settings by name, and modes of campaigns.

use super::{Info, Mistake};
use crate::mistakes::Mistaken;
use crate::nand::Geometry;
use crate::settings::{BadSetting, Setting, Settings};
use std::collections::VecDeque;

/// A named combination of settings.
///
/// ```
/// use flagstone::commit::Kind;
///
/// let names: Vec<_> = Kind::Cfc.info().modes.iter().map(|mode| mode.name).collect();
/// assert_eq!(names, ["block-flags", "page-flags"]);
/// assert_eq!(Kind::Cfc.info().modes[1].settings, [("block_flags", "false")]);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Mode {
    /// Its name.
    pub name: &'static str,
    /// Settings and their values; empty for the default.
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
///
/// ```
/// use flagstone::prelude::*;
///
/// let open = |options: &Options| {
///     let (chip, config) = (Box::new(Chip::default()), Config::default());
///     Device::open(chip, Kind::Aw, config, options, Nanos::ZERO)
/// };
/// assert!(open(&Options::default().with("log_heads", 4)).is_ok());
/// let refused = open(&Options::default().with("log_heads", 65)).err();
/// assert!(matches!(refused, Some(DeviceError::Unsuitable(why)) if why.contains("0 to 64")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Options {
    /// Build the protocol as printed, without the repairs that are listed as departures.
    pub as_published: bool,
    /// Settings that the protocol declares ([`Info::settings`]).
    pub settings: Settings,
    /// A rule of SEAL to leave out, for controls.
    pub mistake: Mistaken<Mistake>,
    /// The device was closed: all programs up to this number were durable, and all their blocks had
    /// summaries, as [`Device::end_blocks`](super::Device::end_blocks) returned. It may have been
    /// written to since.
    pub ended: Option<u64>,
    /// Whether a restart continues although durable data is damaged: see
    /// [`Device::damage`](super::Device::damage).
    pub salvages: bool,
    /// Whether a restart records what it decided and why: see
    /// [`Device::rulings`](super::Device::rulings).
    pub tells: bool,
}

impl Options {
    /// Adds a setting.
    pub fn with(mut self, name: &str, value: impl ToString) -> Options {
        self.settings.set(name, value);
        self
    }
}

/// The setting for the number of log heads.
pub(crate) const LOG_HEADS: Setting = Setting {
    name: "log_heads",
    default: "0",
    what: "number of log heads, at most 64; 0 means one per package, and at least two",
};

/// Maximum number of log heads.
pub(super) const HEADS_MAX: u32 = 64;

/// The log heads of a device. Each serves one transaction at a time.
#[derive(Debug, Clone)]
pub(super) struct Heads {
    pub(super) count: u32,
    /// Idle heads, longest idle first.
    idle: VecDeque<u32>,
}

impl Heads {
    pub(super) fn new(count: u32) -> Heads {
        let idle = (0..count).collect();
        Heads { count, idle }
    }

    /// Takes a head for a new transaction.
    pub(super) fn take(&mut self) -> u32 {
        let idle = self.idle.pop_front();
        idle.expect("the device keeps to live_max")
    }

    /// Returns the head of an ended transaction.
    pub(super) fn give(&mut self, head: u32) {
        self.idle.push_back(head);
    }
}

/// The number of log heads on a device: the setting, or one per package but at least two.
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
