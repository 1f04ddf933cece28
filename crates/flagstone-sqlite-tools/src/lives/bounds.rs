//! What a life in a store may cost, whatever its size.

use super::life::{Keeping, Life};
use super::{Row, number};

const MIB: f64 = (1u64 << 20) as f64;

/// A bound of docs/store.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Bytes to the medium of a life of small commits: 1.1 of those with SQLite's log.
    Written,
    /// The file while one transaction changes all: twice what is live, and what it changes.
    During,
    /// The file after VACUUM or a compaction: twice what is live, and a mebibyte.
    After,
    /// Memory: what the same life takes with SQLite's log, the cache of a store, and 32 bytes a
    /// page that the largest transaction changes.
    Memory,
    /// Descriptors of each connection to a small database: two. A store that grows has a third one
    /// while it fills a block with zeros.
    Descriptors,
    /// What trimming gives to the medium: a thousandth of what is trimmed, and a page a commit.
    Trimmed,
}

/// Bytes of the pages that a store keeps in memory at most: the default of its options.
const CACHE: f64 = 64.0 * MIB;

impl Bound {
    pub(super) const ALL: [Bound; 6] = [
        Bound::Written,
        Bound::During,
        Bound::After,
        Bound::Memory,
        Bound::Descriptors,
        Bound::Trimmed,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Bound::Written => "written",
            Bound::During => "during",
            Bound::After => "after",
            Bound::Memory => "memory",
            Bound::Descriptors => "descriptors",
            Bound::Trimmed => "trimmed",
        }
    }

    /// What was seen and what is the most, if the bound is one for such a life.
    pub(super) fn of(self, row: &Row) -> Option<(f64, f64)> {
        let log = row.log.as_ref();
        match self {
            Bound::Written if row.life.commits_rows() => {
                Some((row.get("written"), 1.1 * number(log?, "written")))
            }
            Bound::During if row.life == Life::Giant => {
                let most = 2.0 * row.get("live_most") + row.get("changed");
                Some((row.get("room_most"), most + MIB))
            }
            Bound::After if row.life.is_compacted() => {
                Some((row.get("room"), 2.0 * row.get("live") + MIB))
            }
            Bound::Memory => {
                let pages = row.get("changed") / 4096.0;
                let most = number(log?, "memory") + CACHE + 32.0 * pages;
                Some((row.get("memory"), most))
            }
            Bound::Descriptors if row.life.is_small() && row.keeping == Keeping::Store => {
                Some((row.get("descriptors"), 2.0 * row.get("connections")))
            }
            Bound::Trimmed if row.life == Life::Disk => {
                let most = row.get("trimmed") / 1000.0 + 4096.0 * row.get("trims");
                Some((row.get("trimming"), most))
            }
            _ => None,
        }
    }
}
