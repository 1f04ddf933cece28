//! Settings with named values in files: written by name; the error for an unknown name lists the
//! valid ones. For fields: `#[serde(with = "flagstone_lab::names")]`.

use crate::no_such;
use flagstone_host::Granularity;
use flagstone_host::buffer::PolicyKind;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// A setting whose values have names.
pub trait Named: Copy + PartialEq {
    /// The name of the setting in messages.
    const WHAT: &'static str;

    /// The values with their names.
    fn all() -> Vec<(Self, &'static str)>;
}

/// The value with this name.
///
/// # Errors
/// Lists the valid names.
pub fn by_name<T: Named>(name: &str) -> Result<T, String> {
    let all = T::all();
    if let Some((found, _)) = all.iter().find(|(_, known)| *known == name) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    Err(no_such(T::WHAT, name, &names))
}

/// Writes the name of a value.
///
/// # Errors
/// The value has no name.
pub fn serialize<T: Named, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let all = T::all();
    match all.iter().find(|(known, _)| known == value) {
        Some((_, name)) => to.serialize_str(name),
        None => Err(S::Error::custom(format!(
            "a value of {} without a name",
            T::WHAT
        ))),
    }
}

/// Reads the name of a value.
///
/// # Errors
/// The name is unknown; lists the valid names.
pub fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
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

/// The unit of locking; `None` for the stack's default.
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
