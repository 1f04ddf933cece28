//! Counters of a disk, as the kernel reports them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Counters of the disk that holds a folder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: u64,
    pub(crate) flushes: u64,
}

const SECTOR_BYTES: u64 = 512;

impl Counters {
    /// Reads the counters; `None` if the kernel has none for the disk of `folder`.
    pub(crate) fn of(folder: &Path) -> Option<Counters> {
        let device = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (
            (device >> 8) & 0xfff,
            device & 0xff | (device >> 12) & 0xfff00,
        );
        let all = std::fs::read_to_string("/proc/diskstats").ok()?;
        all.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at)?.parse::<u64>().ok();
            let is_it = number(0)? == major && number(1)? == minor;
            is_it.then(|| {
                Some(Counters {
                    bytes: number(9)? * SECTOR_BYTES,
                    flushes: number(18).unwrap_or(0),
                })
            })?
        })
    }

    /// The counters minus the earlier counters `before`.
    pub(crate) fn since(self, before: Counters) -> Counters {
        Counters {
            bytes: self.bytes - before.bytes,
            flushes: self.flushes - before.flushes,
        }
    }
}
