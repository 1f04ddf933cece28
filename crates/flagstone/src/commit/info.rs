//! The description of a commit protocol.

use super::roots::Own;
use super::show::Row;
use super::{Isolation, Mode, Options, heads, mapping_log};
use crate::ftl::{Config, Format, Ftl};
use crate::layout::Layout;
use crate::nand::Geometry;
use crate::settings::{BadSetting, Setting, configurable};

/// In [`Format::logs`] of a protocol: a log for each of its log heads, in lanes.
pub const LOG_PER_HEAD: u8 = u8::MAX;

/// A description of a protocol.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Info {
    /// The name in commands, results and file names.
    pub name: &'static str,
    /// One line on how it commits.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md.
    pub paper: &'static str,
    /// The section of the paper.
    pub section: &'static str,
    /// The loosest isolation that it supports.
    pub isolation: Isolation,
    /// Transactions that can be live at once on any device, if their number is bounded. For a given
    /// device see [`Protocol::live_max`](super::Protocol::live_max).
    pub live_max: Option<u32>,
    /// Whether pages are reprogrammed in place, which only SLC cells allow.
    pub reprograms: bool,
    /// Whether one transaction may write a page twice.
    pub rewrites: bool,
    /// Whether it keeps transactions apart at all; false for the control.
    pub atomic: bool,
    /// Whether the form that is printed in the paper loses data, so that there is a repaired form
    /// beside it.
    pub as_published: bool,
    /// Modes that campaigns try, the default first.
    pub modes: &'static [Mode],
    /// Its settings.
    pub settings: &'static [Setting],
    /// The format that it needs of the FTL. Its `logs` may be [`LOG_PER_HEAD`].
    pub format: Format,
    /// Its part of a spare area: records one behind the other, after the header of the FTL.
    pub tail: &'static [Layout],
    /// A page of its log, if it has one: the head, whose last field counts the entries, and an
    /// entry.
    pub log: &'static [Layout],
    /// What it keeps in a root, in fields ([`Info::root_fields`]), if it keeps anything there.
    pub(super) root: Option<Own>,
    /// The rows of its recovery table.
    pub recovery: &'static [Row],
    /// What a commit flag says, for protocols that have one.
    pub flag: Option<fn(u8) -> &'static str>,
}

impl Info {
    /// A protocol that keeps transactions apart, takes a page once in a transaction and one
    /// transaction at a time, and needs nothing of the FTL. What differs is set in the fields.
    pub const fn new(name: &'static str, idea: &'static str) -> Info {
        Info {
            name,
            idea,
            paper: "-",
            section: "-",
            isolation: Isolation::Strict,
            live_max: None,
            reprograms: false,
            rewrites: false,
            atomic: true,
            as_published: false,
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

    /// The format that the protocol needs of the FTL on a given device.
    ///
    /// # Errors
    /// A setting that the protocol does not have, or a value that it cannot have.
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

    /// Whether a device's cells and spare areas suit the protocol.
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
