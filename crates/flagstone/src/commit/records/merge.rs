//! What a reader finds in a page: its newest version, with each aborted record replaced by its
//! newest committed copy ([FlagCommit] §4.3).

use super::format::{Version as OnFlash, read_version};
use super::versions::Version;
use crate::ftl::{Cause, Ftl, FtlError};
use crate::page::{Page, SlotNo};
use crate::units::{Nanos, Ppn, TxId};

/// Larger than any page: merged records may not fit a page.
const ANY_SIZE: usize = 1 << 24;

/// A page as readers see it.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) image: Vec<u8>,
    /// Records of an older version than the image, with that version's LSN.
    pub(super) restored: Vec<(SlotNo, u64)>,
    /// When the last read was done.
    pub(super) done: Nanos,
}

/// An older version, and its restored records.
type Older = (Page, Vec<(SlotNo, u64)>);

fn read(
    ftl: &mut Ftl,
    now: Nanos,
    at: Ppn,
    cause: Cause,
    done: &mut Nanos,
) -> Result<OnFlash, FtlError> {
    let (version, read) = read_version(ftl, now, at, cause)?;
    *done = (*done).max(read);
    version.ok_or(FtlError::Unreadable { at })
}

/// Merges the versions of a page, `list`, newest first: the newest, with each record of an aborted
/// transaction replaced by its newest committed copy. Records of `undecided` transactions remain.
/// Reads all required versions concurrently.
pub(super) fn merge(
    ftl: &mut Ftl,
    now: Nanos,
    list: &[Version],
    undecided: impl Fn(TxId) -> bool,
    cause: Cause,
) -> Result<Merged, FtlError> {
    let mut done = now;
    let mut newest = read(ftl, now, list[0].at, cause, &mut done)?;
    let mut restored = std::mem::take(&mut newest.list.restored);
    let aborted: Vec<SlotNo> = list[0]
        .held
        .iter()
        .filter(|held| !undecided(held.tx))
        .flat_map(|held| held.slots.iter().copied())
        .collect();
    if aborted.is_empty() {
        return Ok(Merged {
            image: newest.image,
            restored,
            done,
        });
    }
    let records = |version: &OnFlash, at| {
        Page::parse(&version.image).map_err(|_| FtlError::Unreadable { at })
    };
    let mut page = records(&newest, list[0].at)?;
    restored.retain(|(slot, _)| !aborted.contains(slot));
    let mut older: Vec<Option<Older>> = vec![None; list.len()];
    for slot in aborted {
        let Some(from) = (1..list.len()).find(|&i| list[i].has_committed(slot)) else {
            // No version has a committed copy: the record did not exist before.
            page.remove(slot);
            restored.push((slot, 0));
            continue;
        };
        if older[from].is_none() {
            let at = list[from].at;
            let version = read(ftl, now, at, cause, &mut done)?;
            older[from] = Some((records(&version, at)?, version.list.restored));
        }
        let (source, its) = older[from].as_ref().expect("read above");
        // The source may itself have the record from an older version.
        let lsn = its.iter().find(|(other, _)| *other == slot);
        restored.push((slot, lsn.map_or(source.lsn(), |&(_, lsn)| lsn)));
        page.copy_from(source, slot, ANY_SIZE)
            .map_err(|_| FtlError::Unreadable { at: list[from].at })?;
    }
    restored.sort_unstable();
    let mut image = Vec::new();
    page.emit(ANY_SIZE, &mut image)
        .map_err(|_| FtlError::Unreadable { at: list[0].at })?;
    Ok(Merged {
        image,
        restored,
        done,
    })
}
