//! Settings of an index by name, so that one with new settings is a file and not a change of
//! everything that passes them on.

use super::{IndexError, Info};
use crate::buffer::{PolicyKind, PolicyOptions};

/// A setting that an index has.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value where none is given.
    pub default: &'static str,
    /// What it does, and what it may be.
    pub what: &'static str,
}

/// Settings that every index has.
pub const COMMON: &[Setting] = &[
    Setting {
        name: "memory",
        default: "1048576",
        what: "bytes of memory for pages, and for the index's own buffers where it has any",
    },
    Setting {
        name: "value_bytes",
        default: "8",
        what: "bytes of a value, 1 to 8; a key has 8",
    },
    Setting {
        name: "buffer",
        default: "lru",
        what: "which page leaves the memory: lru, cflru, cfdc, fd-buffer or clock",
    },
];

/// What a user chose. What is not there has its default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Settings {
    given: Vec<(String, String)>,
}

impl Settings {
    /// All defaults.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// With one more setting; a later one of the same name replaces an earlier one.
    pub fn with(mut self, name: &str, value: impl ToString) -> Settings {
        self.set(name, value);
        self
    }

    /// Sets one.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        let value = value.to_string();
        match self.given.iter_mut().find(|(given, _)| given == name) {
            Some(slot) => slot.1 = value,
            None => self.given.push((name.to_string(), value)),
        }
    }

    /// What was given.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether an index has all that was given.
    ///
    /// # Errors
    /// Names what it does not have, and what it has.
    pub fn check(&self, info: &Info) -> Result<(), IndexError> {
        let known = || COMMON.iter().chain(info.settings);
        for (name, _) in &self.given {
            if !known().any(|setting| setting.name == name) {
                let names: Vec<&str> = known().map(|setting| setting.name).collect();
                return Err(IndexError::Settings(format!(
                    "{} has no setting `{name}`: use {}",
                    info.name,
                    names.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The value of a setting, as text.
    ///
    /// # Panics
    /// The index does not declare it.
    pub fn text<'a>(&'a self, info: &'a Info, name: &str) -> &'a str {
        if let Some((_, value)) = self.given.iter().find(|(given, _)| given == name) {
            return value;
        }
        let setting = COMMON.iter().chain(info.settings).find(|s| s.name == name);
        setting.expect("a setting that is declared").default
    }

    /// The value of a setting that is a number.
    ///
    /// # Errors
    /// It is not one, or not within `least..=most`.
    pub fn number<T>(&self, info: &Info, name: &str, least: T, most: T) -> Result<T, IndexError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let text = self.text(info, name);
        match text.parse::<T>() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(IndexError::Settings(format!(
                "{name} of {} is `{text}`: use a number from {least} to {most}",
                info.name
            ))),
        }
    }

    /// Which of several words a setting is.
    ///
    /// # Errors
    /// It is none of them.
    pub fn choice<T: Copy>(
        &self,
        info: &Info,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<T, IndexError> {
        let text = self.text(info, name);
        match words.iter().find(|(word, _)| *word == text) {
            Some(&(_, value)) => Ok(value),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(IndexError::Settings(format!(
                    "{name} of {} is `{text}`: use {}",
                    info.name,
                    words.join(", ")
                )))
            }
        }
    }

    /// Whether a setting that is `true` or `false` is true.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, info: &Info, name: &str) -> Result<bool, IndexError> {
        self.choice(info, name, &[("true", true), ("false", false)])
    }

    /// Bytes of memory.
    ///
    /// # Errors
    /// No number.
    pub fn memory(&self, info: &Info) -> Result<u64, IndexError> {
        self.number(info, "memory", 0, 1 << 38)
    }

    /// Bytes of a value.
    ///
    /// # Errors
    /// Not 1 to 8.
    pub fn value_bytes(&self, info: &Info) -> Result<usize, IndexError> {
        self.number(info, "value_bytes", 1, 8)
    }

    /// Which page leaves the memory.
    ///
    /// # Errors
    /// No policy of this name.
    pub fn buffer(&self, info: &Info) -> Result<(PolicyKind, PolicyOptions), IndexError> {
        let words: Vec<(&str, PolicyKind)> = PolicyKind::ALL
            .iter()
            .map(|&kind| (kind.info().name, kind))
            .collect();
        let kind = self.choice(info, "buffer", &words)?;
        Ok((kind, PolicyOptions::default()))
    }
}
