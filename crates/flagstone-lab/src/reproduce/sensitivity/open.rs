//! Settings that a paper leaves open, as data: `experiments/PAPER.open.toml`.

use crate::nearest::no_such;
use crate::sweep::Axis;
use serde::Deserialize;
use toml::Table;

const FILES: [&str; 5] = [
    include_str!("../../../experiments/lighttx.open.toml"),
    include_str!("../../../experiments/flagcommit.open.toml"),
    include_str!("../../../experiments/mixsl.open.toml"),
    include_str!("../../../experiments/lazybtree.open.toml"),
    include_str!("../../../experiments/sal.open.toml"),
];

/// The settings that one paper leaves open.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSettings {
    /// The paper's key.
    pub paper: String,
    /// What all runs of an analysis have besides: mostly, how long they are. It lies over `quick`.
    #[serde(default)]
    pub window: Table,
    /// The settings.
    pub open: Vec<Open>,
}

/// One setting that is left open.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Which, and within which bounds: an axis as a sweep has it.
    pub axis: Axis,
    /// The runs that have it, by others of their settings; a list is any of its values. In these it
    /// lies over what a figure and its series set. All runs have it if this is left out, and what
    /// figures and series set lies over it.
    #[serde(default)]
    pub only: Table,
    /// Why the paper allows all of these.
    pub reason: String,
    /// The section that says what it does say.
    #[serde(rename = "where")]
    pub place: String,
}

impl OpenSettings {
    /// Reads a file.
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

    /// What comes with the program for a paper.
    ///
    /// # Panics
    /// A shipped file that cannot be read; a test reads them all.
    pub fn shipped(paper: &str) -> Option<OpenSettings> {
        let mut all = OpenSettings::all().into_iter();
        all.find(|open| open.paper == paper)
    }

    /// All that come with the program.
    ///
    /// # Panics
    /// As [`OpenSettings::shipped`].
    pub fn all() -> Vec<OpenSettings> {
        FILES
            .map(|text| OpenSettings::parse(text).expect("a shipped file"))
            .into()
    }

    /// Only these of the settings, in the file's order.
    ///
    /// # Errors
    /// One that there is not, and which was probably meant.
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
