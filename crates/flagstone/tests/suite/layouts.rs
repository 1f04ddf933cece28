//! Records on flash, by their names in docs/format.md.

use flagstone::layout::Layout;
use flagstone::{commit, ftl};
use std::ops::Range;

/// The declaration of a record, by the end of its path.
fn record(path: &str) -> &'static Layout {
    let all = ftl::LAYOUTS.iter().chain(commit::LAYOUTS);
    let mut found = all.filter(|record| record.path.ends_with(&format!("::{path}")));
    let (record, other) = (found.next(), found.next());
    assert!(other.is_none(), "two records are called {path}");
    record.unwrap_or_else(|| panic!("no record is called {path}"))
}

/// Bytes of a record.
pub(crate) fn size(path: &str) -> usize {
    record(path).size
}

/// The place of a field in a record.
pub(crate) fn field(path: &str, name: &str) -> Range<usize> {
    let mut fields = record(path).fields.iter();
    let field = fields.find(|(field, ..)| *field == name);
    let (_, offset, bytes, _) = field.unwrap_or_else(|| panic!("{path} has no {name}"));
    *offset..offset + bytes
}
