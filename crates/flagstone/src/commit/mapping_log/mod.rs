//! The mapping log of Atomic-Write and MHL-M: a transaction commits by appending where its pages
//! are.
//!
//! ```text
//!   log page   | group 17 | T5 | part 0 of 1 | 3 | lpn 4 -> page 90 | lpn 7 -> page 12 | ...
//! ```
//!
//! The entries of one transaction, or of the pages that one collection moved, are a *group*. It
//! counts once all of its parts are there; groups count in the order of their numbers, which is the
//! order of the commits, whichever log they lie in. When the logs are full, the mapping table
//! itself is written (a checkpoint) and they start anew.

#[cfg(test)]
mod tests;

use crate::ftl::{Ftl, FtlError, LogPage, Mounted, Slot};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use std::collections::BTreeMap;

layout! {
    /// The head of a log page.
    pub group_head: 24 => {
        GROUP:   8, "number of the group: the order of the commits";
        TX:      8, "highest transaction identifier that has committed";
        PART:    2, "which page of the group this is, from 0";
        PARTS:   2, "pages of the group; it counts once all of them are there";
        ENTRIES: 4, "entries that follow";
    }
}

layout! {
    /// Where a logical page is from now on.
    pub group_entry: 8 => {
        LPN: 4, "logical page";
        PPN: 4, "its page, all ones if it holds nothing";
    }
}

layout! {
    /// What a checkpoint keeps for the log.
    pub log_blob: 20 => {
        GROUP: 8, "the last group that the mapping table contains";
        TX:    8, "highest transaction identifier that has committed";
        LOGS:  4, "logs of the device";
    }
}

/// The logs, and what has to be durable before what.
pub(in crate::commit) struct MappingLog {
    logs: u32,
    group: u64,
    last_tx: TxId,
    /// When all groups so far are durable: what they made invalid may be erased from then on.
    durable: Nanos,
    /// When the last checkpoint is: what it made free may be used from then on.
    ready: Nanos,
    buffer: Vec<u8>,
}

impl MappingLog {
    /// Appends a group, all of whose pages are durable at `now`, and calls `publish`, which points
    /// the mapping table at them. Returns when the group is durable.
    pub(in crate::commit) fn append(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        log: u32,
        entries: &[(Lpn, Slot)],
        publish: impl FnOnce(&mut Ftl),
    ) -> Result<Nanos, FtlError> {
        let mut now = now.max(self.ready);
        if ftl.log_is_full() {
            now = self.checkpoint(ftl, now)?;
        }
        self.group += 1;
        let room = (ftl.geometry().page_bytes as usize - group_head::SIZE) / group_entry::SIZE;
        let parts = entries.len().div_ceil(room);
        let mut done = now;
        for (part, some) in entries.chunks(room).enumerate() {
            if part > 0 && ftl.log_is_full() {
                // The logs cannot take the rest: the checkpoint commits the group as a whole.
                publish(ftl);
                return self.checkpoint(ftl, done);
            }
            self.fill(part, parts, some);
            done = done.max(ftl.log(now, log as u8, &self.buffer)?.done);
        }
        publish(ftl);
        let done = ftl.sync(now, done)?;
        self.durable = self.durable.max(done);
        Ok(done)
    }

    fn fill(&mut self, part: usize, parts: usize, entries: &[(Lpn, Slot)]) {
        let page = &mut self.buffer;
        page.clear();
        page.resize(group_head::SIZE, 0);
        put(page, group_head::GROUP, self.group);
        put(page, group_head::TX, self.last_tx.0);
        put(page, group_head::PART, part as u64);
        put(page, group_head::PARTS, parts as u64);
        put(page, group_head::ENTRIES, entries.len() as u64);
        for &(at, slot) in entries {
            page.extend_from_slice(&at.0.to_le_bytes());
            let to = slot.ppn().unwrap_or(Ppn::NONE);
            page.extend_from_slice(&to.0.to_le_bytes());
        }
    }

    /// Writes the mapping table, after which the logs are empty. Returns when that is durable.
    fn checkpoint(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        let mut blob = vec![0; log_blob::SIZE];
        put(&mut blob, log_blob::GROUP, self.group);
        put(&mut blob, log_blob::TX, self.last_tx.0);
        put(&mut blob, log_blob::LOGS, self.logs.into());
        let now = ftl.sync(now, self.durable)?;
        self.ready = ftl.checkpoint(now, blob)?;
        self.durable = self.durable.max(self.ready);
        Ok(self.ready)
    }

    /// The transaction whose group comes next.
    pub(in crate::commit) fn commits(&mut self, tx: TxId) {
        self.last_tx = self.last_tx.max(tx);
    }

    /// Waits at `now` until every group so far is durable: before one that depends on them, and
    /// before the erase of what they made invalid.
    pub(in crate::commit) fn settle(&self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        ftl.sync(now, self.durable)
    }

    /// Brings the mapping table up to date with the logs of a mounted device.
    pub(in crate::commit) fn replay(
        ftl: &mut Ftl,
        mounted: &Mounted,
        logs: u32,
    ) -> Result<MappingLog, FtlError> {
        let mut log = MappingLog {
            logs,
            group: 0,
            last_tx: TxId(0),
            durable: mounted.done,
            ready: mounted.done,
            buffer: Vec::new(),
        };
        if mounted.has_root {
            // A root without a blob was written for a bad block, before the first checkpoint.
            if let Some(blob) = mounted.blob.get(..log_blob::SIZE) {
                log.group = get(blob, log_blob::GROUP);
                log.last_tx = TxId(get(blob, log_blob::TX));
                let written = get(blob, log_blob::LOGS);
                if written != u64::from(logs) {
                    return Err(FtlError::Foreign(format!(
                        "it was written with {written} mapping logs, now there are {logs}"
                    )));
                }
            }
        }
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        for page in &mounted.logs {
            Group::add(&mut groups, ftl, page)?;
        }
        for (number, group) in groups {
            log.group = log.group.max(number);
            log.last_tx = log.last_tx.max(group.tx);
            if group.parts.len() == group.of {
                for (at, slot) in group.parts.into_values().flatten() {
                    ftl.set_slot(at, slot);
                }
            }
        }
        ftl.revive_mapped();
        ftl.finish_mount();
        Ok(log)
    }

    /// The highest transaction identifier that has committed.
    pub(in crate::commit) fn last_tx(&self) -> TxId {
        self.last_tx
    }

    /// Bytes in memory.
    pub(in crate::commit) fn memory(&self) -> u64 {
        self.buffer.capacity() as u64
    }
}

/// The parts of a group that were found.
struct Group {
    tx: TxId,
    of: usize,
    parts: BTreeMap<usize, Vec<(Lpn, Slot)>>,
}

impl Group {
    fn add(groups: &mut BTreeMap<u64, Group>, ftl: &Ftl, page: &LogPage) -> Result<(), FtlError> {
        let foreign = |what: &str| {
            let seq = page.seq;
            Err(FtlError::Foreign(format!(
                "the log page with sequence {seq} {what}"
            )))
        };
        let data = &page.data;
        if data.len() < group_head::SIZE {
            return foreign("is too short");
        }
        let entries = get(data, group_head::ENTRIES) as usize;
        let Some(list) = data[group_head::SIZE..].get(..entries * group_entry::SIZE) else {
            return foreign("ends early");
        };
        let mut found = Vec::with_capacity(entries);
        for entry in list.chunks_exact(group_entry::SIZE) {
            let lpn = Lpn(get(entry, group_entry::LPN) as u32);
            let ppn = Ppn(get(entry, group_entry::PPN) as u32);
            if lpn.0 >= ftl.logical_pages() || (ppn != Ppn::NONE && ppn.0 >= ftl.geometry().pages())
            {
                return foreign("names a page beyond the device");
            }
            let slot = if ppn == Ppn::NONE {
                Slot::Empty
            } else {
                Slot::Page(ppn)
            };
            found.push((lpn, slot));
        }
        let group = groups
            .entry(get(data, group_head::GROUP))
            .or_insert_with(|| Group {
                tx: TxId(get(data, group_head::TX)),
                of: get(data, group_head::PARTS) as usize,
                parts: BTreeMap::new(),
            });
        group
            .parts
            .insert(get(data, group_head::PART) as usize, found);
        Ok(())
    }
}
