//! Upper bounds on the cost of a life in a store.

use super::life::{Keeping, Life};
use super::{Row, number};

const MIB: f64 = (1u64 << 20) as f64;

/// A bound stated in docs/store.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Bytes written by a life of small commits: at most 1.1 times those with SQLite's log.
    Written,
    /// File size while a transaction changes everything: at most twice the live bytes plus the
    /// change.
    During,
    /// File size after VACUUM or a compaction: at most twice the live bytes plus a mebibyte.
    After,
    /// Memory: at most that of the same life with SQLite's log, plus a store's cache, plus 32 bytes
    /// for each page that the largest transaction changes.
    Memory,
    /// File descriptors: at most two per connection to a small database; three per connection to
    /// one that grows, while the store fills a new block with zeros.
    Descriptors,
    /// Bytes written by trimming: at most a thousandth of the trimmed bytes, plus a page per
    /// commit.
    Trimmed,
}

/// Maximum size of a store's page cache in bytes: the default of its options.
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

    /// The measured value and its limit, or `None` if the bound does not apply to the life.
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
