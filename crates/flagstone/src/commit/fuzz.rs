//! Fuzzing entry points for the parsers of the protocols. Each function takes bytes, and returns
//! whether a parser accepted them.

use super::{counted::zones, flag_chain, mapping_log, records, shadow_log};

/// Parses a protocol's data in a root.
pub(crate) fn blob(bytes: &[u8]) -> bool {
    zones::is_blob(bytes) || shadow_log::is_blob(bytes)
}

/// Parses a page of a protocol's log.
pub(crate) fn log_page(bytes: &[u8]) -> bool {
    mapping_log::is_log_page(bytes) || shadow_log::is_log_page(bytes)
}

/// Parses the list behind the image of a page of records. The first byte is the number of entries.
pub(crate) fn list(bytes: &[u8]) -> bool {
    bytes
        .split_first()
        .is_some_and(|(&entries, list)| records::is_list(list, entries))
}

/// Parses the tail of a spare area, which every parser accepts.
pub(crate) fn tail(bytes: &[u8]) {
    flag_chain::read_tail(bytes);
    records::read_tail(bytes);
}
