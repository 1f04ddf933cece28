//! Settings by name, so that an index, a protocol, a policy or a recovery manager with a new one is
//! a file and not a change of everything that passes them on.

use std::fmt;

/// A setting, as the file of its owner declares it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value where none is given.
    pub default: &'static str,
    /// What it does, and what it may be.
    pub what: &'static str,
}

/// What has settings: an index, a protocol, a policy, a recovery manager.
pub trait Configurable {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The settings that it declares, and those of its kind that all have.
    fn settings(&self) -> impl Iterator<Item = &'static Setting>;

    /// Whether it has a setting.
    fn has(&self, name: &str) -> bool {
        self.settings().any(|setting| setting.name == name)
    }
}

/// Makes a description configurable. It has fields `name` and `settings`. Settings that all of its
/// kind have may be given besides.
macro_rules! configurable {
    ($info:ty) => {
        $crate::settings::configurable!($info, &[]);
    };
    ($info:ty, $common:expr) => {
        impl $crate::settings::Configurable for $info {
            fn name(&self) -> &'static str {
                self.name
            }

            fn settings(&self) -> impl Iterator<Item = &'static $crate::settings::Setting> {
                let common: &'static [$crate::settings::Setting] = $common;
                common.iter().chain(self.settings)
            }
        }
    };
}
pub(crate) use configurable;

/// A setting that is not there, or a value that it cannot have. Says what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSetting(pub String);

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

/// What a user chose. What is not there has its default.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Settings {
    /// In the order of the names: settings are equal in whatever order they were given.
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
        let found = self
            .given
            .binary_search_by(|(given, _)| given.as_str().cmp(name));
        match found {
            Ok(at) => self.given[at].1 = value,
            Err(at) => self.given.insert(at, (name.to_string(), value)),
        }
    }

    /// What was given, in the order of the names.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Leaves out what `of` does not have: settings of several owners, of which one is run.
    pub fn keep_those_of(mut self, of: &impl Configurable) -> Settings {
        self.given.retain(|(name, _)| of.has(name));
        self
    }

    /// Whether all that was given is there.
    ///
    /// # Errors
    /// Names what is not, and what is.
    pub fn check(&self, of: &impl Configurable) -> Result<(), BadSetting> {
        for (name, _) in &self.given {
            if !of.has(name) {
                let names: Vec<&str> = of.settings().map(|setting| setting.name).collect();
                let use_these = match names.is_empty() {
                    true => "it has none".to_string(),
                    false => format!("use {}", names.join(", ")),
                };
                let owner = of.name();
                return Err(BadSetting(format!(
                    "{owner} has no setting `{name}`: {use_these}"
                )));
            }
        }
        Ok(())
    }

    /// The value of a setting, as text.
    ///
    /// # Panics
    /// Nobody declares it.
    pub fn text(&self, of: &impl Configurable, name: &str) -> &str {
        if let Some((_, value)) = self.given.iter().find(|(given, _)| given == name) {
            return value;
        }
        let setting = of.settings().find(|setting| setting.name == name);
        setting.expect("a setting that is declared").default
    }

    /// The value of a setting that is a number.
    ///
    /// # Errors
    /// It is not one, or not within `least..=most`.
    pub fn number<T>(
        &self,
        of: &impl Configurable,
        name: &str,
        least: T,
        most: T,
    ) -> Result<T, BadSetting>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let text = self.text(of, name);
        match text.parse::<T>() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(BadSetting(format!(
                "{name} of {} is `{text}`: use a number from {least} to {most}",
                of.name()
            ))),
        }
    }

    /// Which of several words a setting is.
    ///
    /// # Errors
    /// It is none of them.
    pub fn choice<T: Copy>(
        &self,
        of: &impl Configurable,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<T, BadSetting> {
        let text = self.text(of, name);
        match words.iter().find(|(word, _)| *word == text) {
            Some(&(_, value)) => Ok(value),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(BadSetting(format!(
                    "{name} of {} is `{text}`: use {}",
                    of.name(),
                    words.join(", ")
                )))
            }
        }
    }

    /// Whether a setting that is `true` or `false` is true.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, of: &impl Configurable, name: &str) -> Result<bool, BadSetting> {
        self.choice(of, name, &[("true", true), ("false", false)])
    }
}
