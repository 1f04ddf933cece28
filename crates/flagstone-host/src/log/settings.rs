//! Settings of a log: its place, and the settings of every recovery manager that has one.

use crate::{HostError, ManagerInfo};
use flagstone::settings::{BadSetting, Setting, Settings};
use flagstone::units::Lpn;

/// Log bytes cached in memory.
pub(crate) const BUFFER_BYTES: Setting = Setting {
    name: "log_buffer_bytes",
    default: "65536",
    what: "size of the log buffer in bytes: the maximum of log data in memory",
};

/// Log pages between checkpoints.
pub(crate) const CHECKPOINT_EVERY: Setting = Setting {
    name: "checkpoint_every",
    default: "0",
    what: "log pages between checkpoints; 0 means a quarter of the log",
};

/// Whether a force pads the last log page instead of packing pages.
pub(crate) const LOG_PADDED: Setting = Setting {
    name: "log_padded",
    default: "false",
    what: "whether a forced log page is padded, so that the next record begins a new page; \
           otherwise the page is rewritten with later records",
};

/// Settings of a log other than its pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogSettings {
    pub(crate) buffer_bytes: usize,
    pub(crate) checkpoint_every: u32,
    pub(crate) padded: bool,
}

impl LogSettings {
    pub(crate) fn of(
        manager: &ManagerInfo,
        settings: &Settings,
    ) -> Result<LogSettings, BadSetting> {
        Ok(LogSettings {
            buffer_bytes: settings.number(manager, BUFFER_BYTES.name, 0, 1 << 30)?,
            checkpoint_every: settings.number(manager, CHECKPOINT_EVERY.name, 0, u32::MAX)?,
            padded: settings.flag(manager, LOG_PADDED.name)?,
        })
    }
}

/// The pages of a log on the device, and its buffer size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPlace {
    pub(crate) first: Lpn,
    /// Number of pages, including the master.
    pub(crate) pages: u32,
    pub(crate) page_bytes: usize,
    pub(crate) buffer_bytes: usize,
    /// Bytes between checkpoints.
    pub(crate) checkpoint_bytes: u64,
    /// Whether a force pads its last page.
    pub(crate) padded: bool,
}

impl LogPlace {
    /// Places the log at the end of a device of `pages` pages. A log of fewer than `needed` pages
    /// is an error, which names `what` needs them.
    pub(crate) fn of(
        log_pages: u32,
        settings: LogSettings,
        pages: u32,
        page_bytes: usize,
        needed: u32,
        what: &str,
    ) -> Result<LogPlace, HostError> {
        if log_pages < needed || log_pages >= pages {
            return Err(HostError::Config(format!(
                "log_pages is {log_pages}: a log {what} needs at least {needed}, and the device has \
                 {pages} pages in all"
            )));
        }
        let checkpoint_pages = match settings.checkpoint_every {
            0 => log_pages / 4,
            pages => pages,
        };
        Ok(LogPlace {
            first: Lpn(pages - log_pages),
            pages: log_pages,
            page_bytes,
            buffer_bytes: settings.buffer_bytes,
            checkpoint_bytes: u64::from(checkpoint_pages.max(1)) * page_bytes as u64,
            padded: settings.padded,
        })
    }
}
