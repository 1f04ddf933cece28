//! Settings common to all indexes.

use super::IndexInfo;
use flagstone::settings::{BadSetting, Setting, Settings, configurable, settings};
use flagstone_host::buffer::PolicyKind;

/// Settings common to all indexes.
pub const COMMON: &[Setting] = settings! {
    memory: "1048576",
        "bytes of memory for pages and for the index's own buffers";
    value_bytes: "8", "bytes of a value, 1 to 8; a key has 8";
    buffer: "lru",
        "eviction policy: lru, cflru, cfdc, fd-buffer or clock; its settings may follow, as in \
         cfdc:cluster_pages=64,priority=25";
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

    /// The eviction policy of the page cache, with its settings.
    ///
    /// # Errors
    /// There is no policy of this name, or it has no such settings.
    pub fn buffer(&self, settings: &Settings) -> Result<(PolicyKind, Settings), BadSetting> {
        let text = settings.text(self, "buffer");
        let (name, given) = text.split_once(':').unwrap_or((text, ""));
        let words: Vec<(&str, PolicyKind)> = PolicyKind::ALL
            .iter()
            .map(|&kind| (kind.info().name, kind))
            .collect();
        let named = Settings::new().with("buffer", name);
        let kind = named.choice(self, "buffer", &words)?;
        let mut own = Settings::new();
        for pair in given.split(',').filter(|pair| !pair.is_empty()) {
            let Some((setting, value)) = pair.split_once('=') else {
                return Err(BadSetting(format!(
                    "buffer of {} is `{text}`: write settings of the policy as NAME=VALUE",
                    self.name
                )));
            };
            own.set(setting, value);
        }
        // Started only to check the policy's settings.
        kind.start(2, &own)?;
        Ok((kind, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IndexKind;

    #[test]
    fn a_policy_has_its_own_settings_behind_a_colon() {
        let linear = IndexKind::Linear.info();
        let buffer = |text: &str| linear.buffer(&Settings::new().with("buffer", text));
        let given = |text: &str| {
            let (kind, own) = buffer(text).expect("a policy with its settings");
            let own = own.given().map(|(name, value)| format!("{name}={value}"));
            (kind.info().name, own.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(given("cfdc"), ("cfdc", String::new()));
        let both = given("cfdc:cluster_pages=64,priority=25");
        assert_eq!(both, ("cfdc", "cluster_pages=64 priority=25".to_string()));
        for (text, why) in [
            ("mru", "use lru"),
            ("lru:cluster_pages=64", "lru has no setting `cluster_pages`"),
            ("cfdc:64", "NAME=VALUE"),
            ("cfdc:priority=101", "a number from 0 to 100"),
        ] {
            let error = buffer(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
