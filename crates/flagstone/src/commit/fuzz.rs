//! For fuzzing: the parsers of the protocols, each behind a function of some bytes, which says
//! whether any parser took them.

use super::{counted::zones, flag_chain, mapping_log, records, shadow_log};

/// What a protocol keeps in a root.
pub(crate) fn blob(bytes: &[u8]) -> bool {
    zones::is_blob(bytes) || shadow_log::is_blob(bytes)
}

/// A page of a protocol's log.
pub(crate) fn log_page(bytes: &[u8]) -> bool {
    mapping_log::is_log_page(bytes) || shadow_log::is_log_page(bytes)
}

/// What stands behind the image of a page of records; the first byte is the number of entries.
pub(crate) fn list(bytes: &[u8]) -> bool {
    bytes
        .split_first()
        .is_some_and(|(&entries, list)| records::is_list(list, entries))
}

/// The tail of a spare area, which every parser takes.
pub(crate) fn tail(bytes: &[u8]) {
    flag_chain::read_tail(bytes);
    records::read_tail(bytes);
}
