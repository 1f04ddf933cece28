//! Settings by name. An index, a protocol, a policy or a recovery manager declares its settings in
//! its own file. Code between that file and the user passes [`Settings`] on and names none of them,
//! so a new setting changes one file.
//!
//! ```
//! use flagstone::commit::Kind;
//! use flagstone::settings::Settings;
//!
//! let settings = Settings::new().with("log_heads", 2);
//! assert_eq!(settings.check(Kind::Aw.info()), Ok(()));
//! let wrong = Settings::new().with("log_hats", 2).check(Kind::Aw.info());
//! assert!(wrong.is_err_and(|why| why.to_string().contains("no setting `log_hats`")));
//! ```

use std::fmt;

/// A setting. Its owner declares it in its own file.
///
/// ```
/// use flagstone::settings::{Configurable, Setting, Settings, configurable, settings};
///
/// struct Cache {
///     name: &'static str,
///     settings: &'static [Setting],
/// }
/// configurable!(Cache);
///
/// let lru = Cache {
///     name: "lru",
///     settings: settings! { pages: "64", "pages in the cache"; },
/// };
/// assert!(lru.has("pages") && !lru.has("blocks"));
///
/// let chosen = Settings::new().with("pages", 16);
/// assert_eq!(chosen.number(&lru, "pages", 1, 1024), Ok(16));
/// assert_eq!(Settings::new().text(&lru, "pages"), "64");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The default value.
    pub default: &'static str,
    /// What the setting does, and which values it may have.
    pub what: &'static str,
}

/// The owner of settings: an index, a protocol, a policy or a recovery manager.
///
/// Example: [`Setting`].
pub trait Configurable {
    /// The owner's name.
    fn name(&self) -> &'static str;

    /// The settings that the owner declares, and those that all owners of its kind have.
    fn settings(&self) -> impl Iterator<Item = &'static Setting>;

    /// Whether the owner has a setting of this name.
    fn has(&self, name: &str) -> bool {
        self.settings().any(|setting| setting.name == name)
    }
}

/// Makes a description with fields `name` and `settings` an owner of settings. A second argument
/// names settings common to all owners of this kind.
#[macro_export]
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
pub use configurable;

/// For an enum with `NAMES`: displays a value by name, and parses it. The error for an unknown name
/// lists the valid names.
macro_rules! named {
    ($Kind:ident, |$name:ident, $names:ident| $unknown:expr) => {
        impl std::fmt::Display for $Kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let named = $Kind::NAMES.iter().find(|(_, kind)| kind == self);
                f.write_str(named.expect("all are named").0)
            }
        }

        impl std::str::FromStr for $Kind {
            type Err = String;

            fn from_str($name: &str) -> Result<Self, String> {
                let named = $Kind::NAMES.iter().find(|(known, _)| *known == $name);
                named.map(|&(_, kind)| kind).ok_or_else(|| {
                    let $names = $Kind::NAMES.map(|(name, _)| name).join(", ");
                    $unknown
                })
            }
        }
    };
}
pub(crate) use named;

/// Declares a registry: an enum whose variants have descriptions (`INFO` of a module) and are found
/// by the name in them.
#[macro_export]
macro_rules! registry {
    ($(#[$about:meta])* $Kind:ident: $Info:ty {
        $($(#[$doc:meta])* $variant:ident => $($module:ident)::+;)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $Kind {
            $($(#[$doc])* $variant,)+
        }

        impl $Kind {
            /// All variants.
            pub const ALL: &[$Kind] = &[$($Kind::$variant),+];

            /// The description of the variant.
            pub const fn info(self) -> &'static $Info {
                match self {
                    $($Kind::$variant => &$($module)::+::INFO,)+
                }
            }

            /// The variant with this name.
            pub fn by_name(name: &str) -> Option<$Kind> {
                $Kind::ALL.iter().copied().find(|kind| kind.info().name == name)
            }
        }

        impl std::fmt::Display for $Kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.info().name)
            }
        }
    };
}
pub use registry;

/// Declares settings as a table: names, defaults and descriptions. Settings that several owners
/// share come first, as `..NAME;`.
#[macro_export]
macro_rules! settings {
    ($(..$shared:ident;)* $($name:ident: $default:literal, $what:literal;)*) => {
        &[
            $($shared,)*
            $($crate::settings::Setting {
                name: stringify!($name),
                default: $default,
                what: $what,
            },)*
        ]
    };
}
pub use settings;

/// A setting that its owner does not have, or an invalid value. The text lists what is valid.
///
/// ```
/// use flagstone::commit::Kind;
/// use flagstone::settings::Settings;
///
/// let settings = Settings::new().with("zone_blocks", "many");
/// let wrong = settings.number(Kind::LightTx.info(), "zone_blocks", 1, 9).unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "zone_blocks of lighttx is `many`: use a number from 1 to 9"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSetting(pub String);

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSetting {}

/// Settings chosen by the user. All others have their defaults.
///
/// ```
/// use flagstone::settings::Settings;
///
/// let settings = Settings::new().with("b", 1).with("a", true).with("b", 2);
/// let given: Vec<_> = settings.given().collect();
/// assert_eq!(given, [("a", "true"), ("b", "2")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Settings {
    /// Sorted by name, so that equality does not depend on the order of assignment.
    given: Vec<(String, String)>,
}

impl Settings {
    /// Only defaults.
    pub fn new() -> Settings {
        Settings::default()
    }

    /// Adds a setting. A later value of the same setting replaces an earlier one.
    pub fn with(mut self, name: &str, value: impl ToString) -> Settings {
        self.set(name, value);
        self
    }

    /// Sets the value of a setting.
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

    /// The chosen settings and their values, sorted by name.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Keeps only the settings that `of` has, if these are settings of several owners.
    pub fn keep_those_of(mut self, of: &impl Configurable) -> Settings {
        self.given.retain(|(name, _)| of.has(name));
        self
    }

    /// Checks that `of` has every setting that was given.
    ///
    /// # Errors
    /// Names a setting that `of` does not have, and the settings that it has.
    pub fn check(&self, of: &impl Configurable) -> Result<(), BadSetting> {
        for (name, _) in &self.given {
            if !of.has(name) {
                let names: Vec<&str> = of.settings().map(|setting| setting.name).collect();
                let use_these = if names.is_empty() {
                    "it has none".to_string()
                } else {
                    format!("use {}", names.join(", "))
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
    /// `of` does not declare the setting.
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
    /// The value is not a number, or not within `least..=most`.
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

    /// The value of a setting that is one of several words.
    ///
    /// # Errors
    /// The value is none of these words.
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

    /// The value of a setting that is `true` or `false`.
    ///
    /// # Errors
    /// The value is neither.
    pub fn flag(&self, of: &impl Configurable, name: &str) -> Result<bool, BadSetting> {
        self.choice(of, name, &[("true", true), ("false", false)])
    }
}
