//! Recovery tables that a program shows ([`flagstone::commit::Info::recovery`]) have the rows of
//! the header of the protocol's file.

use super::protocols::file_of;
use super::{none, text};
use flagstone::commit::Kind;
use std::collections::BTreeSet;

/// The codes of the rows that a header has.
fn codes(header: &str) -> BTreeSet<String> {
    let rows = header
        .lines()
        .filter_map(|line| line.strip_prefix("//!   @"));
    let code = |row: &str| row.split_whitespace().next().map(|word| format!("@{word}"));
    rows.filter_map(code).collect()
}

/// Protocols that show other rows than their headers have. A header without rows takes those of
/// its family.
fn offences(shown: impl Fn(Kind) -> Vec<&'static str>) -> Vec<String> {
    let mut offences = Vec::new();
    for &kind in Kind::ALL {
        let header = codes(&text(file_of(kind)));
        let shown: BTreeSet<String> = shown(kind).iter().map(|code| code.to_string()).collect();
        if shown.is_empty() || (!header.is_empty() && header != shown) {
            offences.push(format!("{kind}: header {header:?}, shown {shown:?}"));
        }
    }
    offences
}

fn shown(kind: Kind) -> Vec<&'static str> {
    kind.info().recovery.iter().map(|row| row.code).collect()
}

#[test]
fn recovery_tables_that_are_shown_are_those_of_the_headers() {
    none("a protocol shows the rows of its header", offences(shown));
}

#[test]
fn a_row_that_is_not_shown_is_noticed() {
    let short = |kind| {
        let mut rows = shown(kind);
        rows.pop();
        rows
    };
    let found = offences(short);
    assert!(
        found.iter().any(|line| line.starts_with("seal:")),
        "{found:?}"
    );
}
