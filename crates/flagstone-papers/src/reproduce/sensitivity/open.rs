//! Settings that a paper leaves open, as data: `experiments/PAPER.open.toml`.

use crate::sweep::Axis;
use flagstone_lab::no_such;
use serde::Deserialize;
use toml::Table;

const FILES: [&str; 5] = [
    include_str!("../../../experiments/lighttx.open.toml"),
    include_str!("../../../experiments/flagcommit.open.toml"),
    include_str!("../../../experiments/mixsl.open.toml"),
    include_str!("../../../experiments/lazybtree.open.toml"),
    include_str!("../../../experiments/sal.open.toml"),
];

/// The open settings of one paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSettings {
    /// The paper's key.
    pub paper: String,
    /// Common settings of an analysis, mostly the length of its runs. Override `quick`.
    #[serde(default)]
    pub window: Table,
    /// The settings.
    pub open: Vec<Open>,
}

/// An open setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The setting and its bounds: an axis as in a sweep.
    pub axis: Axis,
    /// Condition on the other settings of the runs that get this setting; a list stands for any of
    /// its values. In these runs it overrides the settings of a figure and its series. Without a
    /// condition all runs get it, but figures and series override it.
    #[serde(default)]
    pub only: Table,
    /// Why the paper allows all of these values.
    pub reason: String,
    /// The section of the paper.
    #[serde(rename = "where")]
    pub place: String,
}

impl OpenSettings {
    /// Parses a file.
    ///
    /// # Errors
    /// Line and reason.
    pub fn parse(text: &str) -> Result<OpenSettings, String> {
        let mut file: OpenSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        for open in &mut file.open {
            open.axis.name_by_key();
            if let Some(why) = open.axis.wrong() {
                return Err(format!("setting {}: {why}", open.axis.name));
            }
        }
        Ok(file)
    }

    /// The shipped file for a paper.
    ///
    /// # Panics
    /// A shipped file is invalid; a test reads all of them.
    pub fn shipped(paper: &str) -> Option<OpenSettings> {
        let mut all = OpenSettings::all().into_iter();
        all.find(|open| open.paper == paper)
    }

    /// All shipped files.
    ///
    /// # Panics
    /// As [`OpenSettings::shipped`].
    pub fn all() -> Vec<OpenSettings> {
        FILES
            .map(|text| OpenSettings::parse(text).expect("a shipped file"))
            .into()
    }

    /// Keeps only these settings, in the file's order.
    ///
    /// # Errors
    /// An unknown name; suggests a similar one.
    pub fn only<S: AsRef<str>>(mut self, names: &[S]) -> Result<OpenSettings, String> {
        let known: Vec<&str> = self
            .open
            .iter()
            .map(|open| open.axis.name.as_str())
            .collect();
        let is_known = |name: &&str| known.contains(name);
        let mut asked = names.iter().map(AsRef::as_ref);
        if let Some(wrong) = asked.find(|name| !is_known(name)) {
            return Err(no_such("setting", wrong, &known));
        }
        let is_asked = |name: &str| names.iter().any(|asked| asked.as_ref() == name);
        self.open.retain(|open| is_asked(&open.axis.name));
        Ok(self)
    }
}
