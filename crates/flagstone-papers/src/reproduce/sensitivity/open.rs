//! Settings that a paper leaves open, as data: `experiments/PAPER.open.toml`.

use crate::sweep::Axis;
use flagstone_lab::no_such;
use serde::Deserialize;
use std::collections::BTreeMap;
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

    /// The names of the settings, in the file's order.
    pub fn names(&self) -> Vec<String> {
        let each = self.open.iter();
        each.map(|open| open.axis.name.clone()).collect()
    }

    /// Keeps only these settings, in the file's order. `NAME=VALUE,…` replaces the values of one.
    ///
    /// # Errors
    /// An unknown name, or an unknown value of a setting whose values have names; suggests a
    /// similar one.
    pub fn only<S: AsRef<str>>(mut self, asked: &[S]) -> Result<OpenSettings, String> {
        let mut values: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for asked in asked {
            let (name, own) = match asked.as_ref().split_once('=') {
                Some((name, own)) => (name, Some(own)),
                None => (asked.as_ref(), None),
            };
            values.insert(name, own);
        }
        let known = self.names();
        if let Some(wrong) = values
            .keys()
            .find(|name| !known.iter().any(|own| own == *name))
        {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(no_such("setting", wrong, &known));
        }
        let name = |open: &Open| open.axis.name.clone();
        self.open
            .retain(|open| values.contains_key(&name(open)[..]));
        for open in &mut self.open {
            if let Some(own) = values[&name(open)[..]] {
                let own: Vec<&str> = own.split(',').collect();
                open.axis.only(&own)?;
            }
        }
        Ok(self)
    }
}
