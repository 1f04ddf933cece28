//! Values of arguments and results: numbers with units, names, tables.

use crate::Failure;
use comfy_table::{Table, presets};
use flagstone_names::no_such;

/// The error for an unknown `name` of a `what`. It suggests the most similar name of `known`, and
/// lists all of them.
pub fn unknown<S: AsRef<str>>(what: &str, name: &str, known: &[S]) -> Failure {
    Failure::Usage(no_such(what, name, known))
}

/// A table without lines between cells.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Parses a number followed by one of `units`, and multiplies both. Returns `None` if `text` has
/// another form or the product is too large.
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find_map(|(unit, each)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*each)
    })
}

/// Formats a number of bytes for people.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::with_unit;

    #[test]
    fn a_number_with_a_unit_is_taken_whole_or_not_at_all() {
        let units = [("", 1), ("K", 1 << 10), ("h", 3_600)];
        for (text, number) in [("7", 7), ("2K", 2048), ("3h", 10_800)] {
            assert_eq!(with_unit(text, &units), Some(number), "{text}");
        }
        for text in ["", "h", "1é", "-1h", "1 h", "1x", "18446744073709551615K"] {
            assert_eq!(with_unit(text, &units), None, "{text}");
        }
    }
}
