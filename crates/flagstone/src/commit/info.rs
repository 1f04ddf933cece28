//! Descriptions of commit protocols.

use super::roots::Own;
use super::show::Row;
use super::{Isolation, Mode, Options, heads, mapping_log};
use crate::ftl::{Config, Format, Ftl};
use crate::layout::Layout;
use crate::nand::Geometry;
use crate::settings::{BadSetting, Setting, configurable};

/// Value of [`Format::logs`] for protocols with one log per log head, in lanes.
pub const LOG_PER_HEAD: u8 = u8::MAX;

/// A form printed in a paper that loses data. [`Options::as_published`] selects it.
///
/// ```
/// use flagstone::commit::Kind;
///
/// let printed = Kind::Scc.info().published.expect("it loses data");
/// assert!(printed.loses.starts_with("An aborted transaction comes back"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The departures that it leaves out, by their numbers in the header of the protocol's file.
    pub without: &'static str,
    /// What is lost without them.
    pub loses: &'static str,
}

/// The description of a protocol.
///
/// ```
/// use flagstone::prelude::*;
///
/// let info = Kind::Cfc.info();
/// assert_eq!((info.name, info.reprograms, info.atomic), ("cfc", true, true));
///
/// // It sets flags in programmed pages, which is not possible with multi-level cells.
/// let mut geometry = Geometry::default();
/// assert_eq!(info.suits(&geometry, &Config::default()), Ok(()));
/// geometry.cell = Cell::Mlc;
/// assert!(info.suits(&geometry, &Config::default()).is_err());
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Info {
    /// The name in commands, results and file names.
    pub name: &'static str,
    /// How it commits, in one line.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// The section of the paper.
    pub section: &'static str,
    /// The loosest supported isolation.
    pub isolation: Isolation,
    /// Maximum number of live transactions on any device, if bounded. For a specific device see
    /// [`Protocol::live_max`](super::Protocol::live_max).
    pub live_max: Option<u32>,
    /// Whether it reprograms pages in place, which requires SLC cells.
    pub reprograms: bool,
    /// Whether transactions are atomic; false for the control.
    pub atomic: bool,
    /// Whether it takes writes outside of transactions
    /// ([`Device::write_outside`](super::Device::write_outside)).
    pub outside: bool,
    /// The form printed in the paper, if it loses data. The default is then a repaired form.
    pub published: Option<Published>,
    /// Modes for campaigns, the default first.
    pub modes: &'static [Mode],
    /// Its settings.
    pub settings: &'static [Setting],
    /// The format that it requires of the FTL. `logs` may be [`LOG_PER_HEAD`].
    pub format: Format,
    /// Its records in a spare area, in order, after the header of the FTL.
    pub tail: &'static [Layout],
    /// The records of a log page, if it has a log: the head, whose last field is the number of
    /// entries, and an entry.
    pub log: &'static [Layout],
    /// Decodes its data in a root ([`Info::root_fields`]), if it has any.
    pub(super) root: Option<Own>,
    /// The rows of its recovery table.
    pub recovery: &'static [Row],
    /// Describes the value of a commit flag, for protocols that have one.
    pub flag: Option<fn(u8) -> &'static str>,
}

impl Info {
    /// Defaults: an atomic protocol that takes one transaction at a time, and requires nothing of
    /// the FTL. The fields of a protocol override this.
    pub const fn new(name: &'static str, idea: &'static str) -> Info {
        Info {
            name,
            idea,
            paper: "-",
            section: "-",
            isolation: Isolation::Strict,
            live_max: None,
            reprograms: false,
            atomic: true,
            outside: false,
            published: None,
            modes: &[],
            settings: &[],
            format: Format::NONE,
            tail: &[],
            log: &[],
            root: None,
            recovery: &[],
            flag: None,
        }
    }

    /// The format that the protocol requires of the FTL on a device.
    ///
    /// # Errors
    /// The protocol lacks a setting, or does not accept its value.
    pub fn format_on(&self, geometry: &Geometry, options: &Options) -> Result<Format, BadSetting> {
        options.settings.check(self)?;
        let logs = match self.format.logs {
            LOG_PER_HEAD => (heads(self, geometry, options)? as usize * mapping_log::LANES) as u8,
            logs => logs,
        };
        Ok(Format {
            logs,
            ..self.format
        })
    }

    /// Checks whether a device's cells and spare areas suit the protocol.
    ///
    /// # Errors
    /// Says what does not.
    pub fn suits(&self, geometry: &Geometry, config: &Config) -> Result<(), String> {
        if self.reprograms && geometry.cell.programs_per_page() < 2 {
            return Err(format!(
                "{} sets commit flags by partial page programming, which {} cells do not allow; \
                 use an SLC device with partial_programs of at least 2",
                self.name, geometry.cell
            ));
        }
        let format = self.format_on(geometry, &Options::default());
        let format = format.map_err(|error| error.0)?;
        Ftl::capacity(geometry, config, &format)
            .map(|_| ())
            .map_err(|error| error.0)
    }
}

configurable!(Info);
