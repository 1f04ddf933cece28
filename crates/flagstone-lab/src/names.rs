//! Settings that have names in files: each is written by its name, and a name that does not exist
//! is answered with those that do. For fields: `#[serde(with = "crate::names")]`.

use crate::nearest::no_such;
use flagstone::buffer::PolicyKind;
use flagstone::host::Granularity;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// A setting with a name for each value.
pub(crate) trait Named: Copy + PartialEq {
    /// What it is called in messages.
    const WHAT: &'static str;

    /// The values that have names.
    fn all() -> Vec<(Self, &'static str)>;
}

/// The value of a name.
///
/// # Errors
/// Names those that there are.
pub(crate) fn by_name<T: Named>(name: &str) -> Result<T, String> {
    let all = T::all();
    if let Some((found, _)) = all.iter().find(|(_, known)| *known == name) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    Err(no_such(T::WHAT, name, &names))
}

pub(crate) fn serialize<T: Named, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let all = T::all();
    match all.iter().find(|(known, _)| known == value) {
        Some((_, name)) => to.serialize_str(name),
        None => Err(S::Error::custom(format!(
            "a value of {} without a name",
            T::WHAT
        ))),
    }
}

pub(crate) fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    by_name(&name).map_err(D::Error::custom)
}

impl Named for PolicyKind {
    const WHAT: &'static str = "policy";

    fn all() -> Vec<(Self, &'static str)> {
        let all = PolicyKind::ALL.iter();
        all.map(|kind| (*kind, kind.info().name)).collect()
    }
}

/// What is locked; none is what the stack locks by itself.
impl Named for Option<Granularity> {
    const WHAT: &'static str = "locks";

    fn all() -> Vec<(Self, &'static str)> {
        vec![
            (None, "stack"),
            (Some(Granularity::Page), "pages"),
            (Some(Granularity::Record), "records"),
        ]
    }
}
