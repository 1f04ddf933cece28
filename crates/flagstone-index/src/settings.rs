//! Settings common to all indexes.

use super::IndexInfo;
use flagstone::settings::{BadSetting, Setting, Settings, configurable, settings};
use flagstone_host::buffer::PolicyKind;

/// Settings common to all indexes.
pub const COMMON: &[Setting] = settings! {
    memory: "1048576",
        "bytes of memory for pages and for the index's own buffers";
    value_bytes: "8", "bytes of a value, 1 to 8; a key has 8";
    buffer: "lru", "eviction policy: lru, cflru, cfdc, fd-buffer or clock";
};

configurable!(IndexInfo, COMMON);

impl IndexInfo {
    /// Memory limit in bytes.
    ///
    /// # Errors
    /// Not a number.
    pub fn memory(&self, settings: &Settings) -> Result<u64, BadSetting> {
        settings.number(self, "memory", 0, 1 << 38)
    }

    /// Bytes per value.
    ///
    /// # Errors
    /// Not 1 to 8.
    pub fn value_bytes(&self, settings: &Settings) -> Result<usize, BadSetting> {
        settings.number(self, "value_bytes", 1, 8)
    }

    /// The eviction policy of the page cache, with its options.
    ///
    /// # Errors
    /// There is no policy of this name.
    pub fn buffer(&self, settings: &Settings) -> Result<(PolicyKind, Settings), BadSetting> {
        let words: Vec<(&str, PolicyKind)> = PolicyKind::ALL
            .iter()
            .map(|&kind| (kind.info().name, kind))
            .collect();
        let kind = settings.choice(self, "buffer", &words)?;
        Ok((kind, Settings::new()))
    }
}
