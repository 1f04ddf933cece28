//! The engine of Atomic-Write and MHL-M. A transaction commits by an append to a log, which says
//! where its pages are.
//!
//! ```text
//!   log page   | group 17 | T5 | 16 | part 0 of 1 | 2 | lpn 4 -> page 90 seq 31 | lpn 7 -> ... |
//! ```
//!
//! A *group* is the entries of one transaction, or of the pages that one collection moved. A group
//! counts once all its parts are on flash, and all pages that it names. Groups count in the order
//! of their numbers. This is the order of the commits, in whichever log a group lies.
//!
//! A log page is programmed side by side with the pages that it names, and any of them may land
//! first. So each log page has the number of a group up to which all groups were durable when the
//! log page was issued. Recovery checks the groups behind that one page by page: a page is the one
//! that a group names if its spare area has the same logical page and the same write sequence. No
//! two programs have the same write sequence. The first write after a restart writes a checkpoint,
//! and the sequence goes on far beyond the highest that the restart found.
//!
//! When the log is an eighth as long as the mapping table, a *checkpoint* writes the table itself,
//! and the logs start anew. So a restart reads at the most about an eighth more than the table.
//!
//! Codes       D2, D4 of [`aw`]
//! Codes       D5 of [`mhl_m`]

pub(super) mod aw;
pub(super) mod mhl_m;
mod protocol;
#[cfg(test)]
mod table;

use super::active::{Version, Writes};
use super::show::{Row, Rulings, rows};
use crate::ftl::{Ftl, FtlError, LogPage, Mounted, Slot, Stream, doubt_number};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::{BTreeMap, VecDeque};

layout! {
    /// The head of a log page.
    pub group_head: 32 => {
        GROUP:   8, "number of the group: the order of the commits";
        TX:      8, "highest transaction identifier that has committed";
        DURABLE: 8, "the last group up to which all were durable when the page was issued";
        PART:    2, "which page of the group this is, from 0";
        PARTS:   2, "pages of the group; it counts once all of them are there";
        ENTRIES: 4, "entries that follow";
    }
}

layout! {
    /// Where a logical page is from now on.
    pub group_entry: 14 => {
        LPN: 4, "logical page";
        PPN: 4, "its page, all ones if it holds nothing";
        SEQ: 6, "write sequence of that page";
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

/// The recovery table of both protocols.
const RECOVERY: &[Row] = rows! {
    "@A": "all parts are there, and it is called durable or all of its pages are there"
        => "applied, by its number";
    "@B": "a part is missing or cannot be read" => "absent";
    "@C": "a part was written before the checkpoint" => "in the mapping table";
    "@D": "it is not called durable, and a page is not there" => "absent";
};

/// Maximum number of programs between two log pages or checkpoints, so that no write sequence is
/// used by two starts of a device.
const UNSTATED_MAX: u64 = 1 << 23;

/// Number of lanes of each log, on planes of one channel: the pages that a transaction has just
/// written keep one of them busy, rarely both.
pub(in crate::commit) const LANES: usize = 2;

/// A group that no durable log page states as durable yet.
#[derive(Clone)]
struct Recent {
    group: u64,
    done: Nanos,
    /// When a log page that states its durability is durable, once one was issued.
    stated: Option<Nanos>,
    /// Blocks of the pages that it names, which must not be erased before.
    blocks: Vec<Pbn>,
}

/// The logs, and the order in which writes must become durable.
#[derive(Clone)]
pub(in crate::commit) struct MappingLog {
    logs: u32,
    group: u64,
    last_tx: TxId,
    recent: VecDeque<Recent>,
    /// The latest end of the groups that a log page states as durable. No log page is issued
    /// earlier.
    issue: Nanos,
    /// When all groups dropped from `recent` are stated as durable, or are in a checkpoint.
    stated: Nanos,
    /// When all groups so far are durable.
    durable: Nanos,
    /// When all commits so far are durable: from then on obsolete pages may be erased.
    committed: Nanos,
    /// When the last checkpoint is durable: blocks that it freed may be used from then on.
    ready: Nanos,
    /// Number of log pages since the last checkpoint, and its maximum.
    pages: u32,
    pages_max: u32,
    /// The highest write sequence for programs; 0 before the first checkpoint.
    seq_max: u64,
    /// When the checkpoint that present writes wait for is durable.
    begun: Nanos,
    /// For each log, the instant until which it is being written.
    busy: Vec<Nanos>,
    buffer: Vec<u8>,
}

/// Selects the log for a page.
#[derive(Debug, Clone, Copy)]
enum Lane {
    /// The log of the transaction's head.
    Of(u32),
    /// The log that can take it first.
    First,
}

impl MappingLog {
    /// Ensures that a page may be programmed. Returns when.
    #[inline]
    pub(in crate::commit) fn admit(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
    ) -> Result<Nanos, FtlError> {
        if ftl.last_seq() >= self.seq_max {
            self.begun = self.checkpoint(ftl, now)?;
        }
        Ok(now.max(self.begun))
    }

    /// Appends the writes of a transaction to a log, or to the next one in turn, and maps them.
    /// Returns when the log page and all data pages are durable.
    pub(in crate::commit) fn commit(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        log: Option<u32>,
        writes: &Writes,
    ) -> Result<Nanos, FtlError> {
        let now = self.admit(ftl, now)?.max(self.issue);
        let now = self.make_room(ftl, now)?;
        self.last_tx = self.last_tx.max(tx);
        let next = self.next_undurable(now);
        self.group += 1;
        let done = self.append(
            ftl,
            now,
            log.map_or(Lane::First, Lane::Of),
            next - 1,
            writes.done,
            writes.entries(),
            Some(writes),
        )?;
        self.committed = self.committed.max(done);
        self.remember(ftl, done, writes.entries());
        Ok(done)
    }

    /// Logs where a collection that began at `begun` has moved pages, all durable at `now`, before
    /// their block is erased. Returns when it may be erased. The log page is programmed
    /// concurrently with the copies, unless it must state that groups with pages in the victim are
    /// durable.
    pub(in crate::commit) fn moved(
        &mut self,
        ftl: &mut Ftl,
        begun: Nanos,
        now: Nanos,
        victim: Pbn,
        moved: &[Version],
    ) -> Result<Nanos, FtlError> {
        let now = ftl.sync(now, self.committed)?;
        let names_it = |group: &Recent| group.blocks.contains(&victim);
        // A log page states all groups up to one: stating the last of these is sufficient.
        if let Some(last) = self.recent.iter().rposition(names_it)
            && self.recent[last].stated.is_none()
        {
            return self.state(ftl, now, last, moved);
        }
        if moved.is_empty() {
            let named = self.recent.iter().filter(|group| names_it(group));
            let stated = named.filter_map(|group| group.stated);
            let stated = stated.fold(self.stated, Nanos::max);
            return ftl.sync(now, stated);
        }
        // The mapping table refers to the copies already: a checkpoint waits for them.
        self.durable = self.durable.max(now);
        let issued = self.admit(ftl, begun)?;
        let issued = self.make_room(ftl, issued)?;
        let next = self.next_undurable(issued);
        let issued = issued.max(self.issue);
        self.group += 1;
        let done = self.append(ftl, issued, Lane::First, next - 1, now, moved, None)?;
        self.remember(ftl, done, moved);
        Ok(done)
    }

    /// Records in the log that the groups up to index `last` are durable, and the pages moved by a
    /// collection, which are durable at `now`. Returns when the log page is durable.
    fn state(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        last: usize,
        moved: &[Version],
    ) -> Result<Nanos, FtlError> {
        let durable = self.recent.iter().take(last + 1).map(|group| group.done);
        let durable = durable.max().unwrap_or_default();
        let now = ftl.sync(now, durable)?;
        let now = self.make_room(ftl, now)?;
        let next = self.next_undurable(now);
        let now = now.max(self.issue);
        self.group += 1;
        // All earlier groups are durable, and so are the pages of this one: its log page states
        // itself.
        if next == self.group {
            return self.append(ftl, now, Lane::First, self.group, now, moved, None);
        }
        // Another collection is in progress, and its copies are in flight.
        let done = self.append(ftl, now, Lane::First, next - 1, now, moved, None)?;
        self.remember(ftl, done, moved);
        Ok(done)
    }

    /// The first group that is not durable at `now`: the next log page states the ones before it.
    /// Drops groups whose statement is durable, and raises `issue`.
    fn next_undurable(&mut self, now: Nanos) -> u64 {
        let is_stated = |group: &Recent| group.stated.is_some_and(|when| when <= now);
        while self.recent.front().is_some_and(is_stated) {
            let group = self.recent.pop_front().expect("there is one");
            self.stated = self.stated.max(group.stated.unwrap_or_default());
        }
        for group in &self.recent {
            if group.stated.is_none() && group.done > now {
                return group.group;
            }
            self.issue = self.issue.max(group.done);
        }
        self.group + 1
    }

    /// Records that the group appended last is durable at `done`.
    fn remember(&mut self, ftl: &Ftl, done: Nanos, entries: &[Version]) {
        let pages = entries.iter().filter_map(|entry| entry.slot.ppn());
        let mut blocks: Vec<Pbn> = pages.map(|at| ftl.geometry().block_of(at)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        self.recent.push_back(Recent {
            group: self.group,
            done,
            stated: None,
            blocks,
        });
    }

    fn make_room(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        if self.is_full(ftl) {
            return self.checkpoint(ftl, now);
        }
        Ok(now.max(self.ready))
    }

    fn is_full(&self, ftl: &Ftl) -> bool {
        self.pages >= self.pages_max || ftl.log_is_full()
    }

    /// Appends `entries` as one group to the logs of `lane`, and publishes `writes`, those of its
    /// transaction. `durable` is the last durable group at the time of issue, and `written` the
    /// time at which the pages of the group are durable.
    fn append(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        lane: Lane,
        durable: u64,
        written: Nanos,
        entries: &[Version],
        writes: Option<&Writes>,
    ) -> Result<Nanos, FtlError> {
        let room = (ftl.geometry().page_bytes as usize - group_head::SIZE) / group_entry::SIZE;
        let parts = entries.len().div_ceil(room).max(1);
        let mut done = now.max(written);
        // The head of a log page has two bytes for them.
        let are_too_many = parts > u16::MAX.into();
        for part in 0..parts {
            if are_too_many || (part > 0 && self.is_full(ftl)) {
                // The logs cannot take the rest: the checkpoint commits the whole group.
                self.durable = self.durable.max(done);
                return match writes {
                    Some(writes) => writes.publish_if(ftl, |ftl| self.checkpoint(ftl, now)),
                    None => self.checkpoint(ftl, now),
                };
            }
            let some = entries.chunks(room).nth(part).unwrap_or(&[]);
            self.fill(durable, part, parts, some);
            let log = match lane {
                Lane::Of(log) => {
                    let lanes = log as usize * LANES..(log as usize + 1) * LANES;
                    ftl.log_in_turn(Stream::Host, now, &self.busy, lanes)
                }
                Lane::First => {
                    let lanes = 0..self.busy.len();
                    ftl.log_in_turn(Stream::Host, now, &self.busy, lanes)
                }
            };
            self.busy[usize::from(log)] = ftl.log(now, log, &self.buffer)?.done;
            done = done.max(self.busy[usize::from(log)]);
            self.pages += 1;
        }
        if let Some(writes) = writes {
            writes.publish(ftl);
        }
        let done = ftl.sync(now, done)?;
        self.durable = self.durable.max(done);
        // The log page states these groups.
        for group in self
            .recent
            .iter_mut()
            .filter(|group| group.group <= durable)
        {
            group.stated.get_or_insert(done);
        }
        self.seq_max = ftl.last_seq() + UNSTATED_MAX;
        Ok(done)
    }

    /// Encodes page `part` of the `parts` pages of the current group into `buffer`.
    fn fill(&mut self, durable: u64, part: usize, parts: usize, entries: &[Version]) {
        let page = &mut self.buffer;
        page.clear();
        page.resize(group_head::SIZE, 0);
        put(page, group_head::GROUP, self.group);
        put(page, group_head::TX, self.last_tx.0);
        put(page, group_head::DURABLE, durable);
        put(page, group_head::PART, part as u64);
        put(page, group_head::PARTS, parts as u64);
        put(page, group_head::ENTRIES, entries.len() as u64);
        put_entries(page, entries);
    }

    /// Writes the mapping table, which empties the logs. Returns when that is durable.
    fn checkpoint(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        let mut blob = vec![0; log_blob::SIZE];
        put(&mut blob, log_blob::GROUP, self.group);
        put(&mut blob, log_blob::TX, self.last_tx.0);
        put(&mut blob, log_blob::LOGS, self.logs.into());
        let now = ftl.sync(now.max(self.ready), self.durable)?;
        self.ready = ftl.checkpoint(now, blob)?;
        ftl.erase_logs_ahead(self.ready)?;
        self.durable = self.durable.max(self.ready);
        self.stated = self.stated.max(self.ready);
        self.recent.clear();
        self.pages = 0;
        self.seq_max = ftl.last_seq() + UNSTATED_MAX;
        Ok(self.ready)
    }

    /// Updates the mapping table of a mounted device from its logs. Returns when all required pages
    /// were read. `trusting`: accepts a group without checking its pages, as printed.
    pub(in crate::commit) fn replay(
        ftl: &mut Ftl,
        mounted: &Mounted,
        logs: u32,
        trusting: bool,
        rulings: &mut Rulings,
    ) -> Result<(MappingLog, Nanos), FtlError> {
        let mut log = MappingLog {
            logs,
            group: 0,
            last_tx: TxId(0),
            recent: VecDeque::new(),
            issue: mounted.done,
            stated: mounted.done,
            durable: mounted.done,
            committed: mounted.done,
            ready: mounted.done,
            pages: 0,
            pages_max: pages_max(ftl, logs),
            seq_max: 0,
            begun: mounted.done,
            busy: vec![mounted.done; logs as usize * LANES],
            buffer: Vec::new(),
        };
        if mounted.has_root {
            // A root without a blob was written for a bad block before the first checkpoint.
            if let Some(blob) = mounted.blob.get(..log_blob::SIZE) {
                log.group = doubt_number("group", get(blob, log_blob::GROUP), 64)?;
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
        let (mut stated, in_table) = (log.group, log.group);
        for page in &mounted.logs {
            let (logical_pages, pages) = (ftl.logical_pages(), ftl.geometry().pages());
            let durable = Group::add(&mut groups, logical_pages, pages, page)?;
            stated = stated.max(durable);
        }
        let mut done = mounted.done;
        for (number, group) in groups {
            log.group = log.group.max(number);
            log.last_tx = log.last_tx.max(group.tx);
            let (found, of) = (group.parts.len(), group.of);
            let mut counts = found == of;
            let entries: Vec<Version> = group.parts.into_values().flatten().collect();
            if counts && number > stated && !trusting {
                for entry in &entries {
                    let Some(at) = entry.slot.ppn() else { continue };
                    let (read, head) = ftl.look_for(mounted.done, at)?;
                    done = done.max(read);
                    counts &= head.is_some_and(|h| (h.lpn, h.seq) == (entry.lpn, entry.seq));
                }
            }
            if rulings.listens() {
                let row = match (counts, found == of) {
                    (true, _) => "@A",
                    (false, true) => "@D",
                    (false, false) if number <= in_table => "@C",
                    (false, false) => "@B",
                };
                let called = if number <= stated { "" } else { " not" };
                let because = format!(
                    "group {number}: parts that are there: {found} of {of};{called} called durable"
                );
                let pages = entries.iter().filter_map(|entry| entry.slot.ppn());
                let counts = counts || row == "@C";
                rulings.say(row, Some(group.tx), pages.collect(), counts, because);
            }
            if counts {
                for entry in entries {
                    ftl.set_slot(entry.lpn, entry.slot);
                }
            }
        }
        ftl.skip_sequences(2 * UNSTATED_MAX);
        ftl.revive_mapped()?;
        ftl.finish_mount();
        Ok((log, done))
    }

    /// Adapts to a device that has grown.
    pub(in crate::commit) fn grown(&mut self, ftl: &Ftl) {
        self.pages_max = pages_max(ftl, self.logs);
    }

    /// Makes the next checkpoint wait until `done`: the mapping table refers to those pages.
    pub(in crate::commit) fn wait_for(&mut self, done: Nanos) {
        self.durable = self.durable.max(done);
    }

    /// The highest committed transaction identifier.
    pub(in crate::commit) fn last_tx(&self) -> TxId {
        self.last_tx
    }

    /// Memory in bytes.
    pub(in crate::commit) fn memory(&self) -> u64 {
        let recent = self
            .recent
            .iter()
            .map(|group| (size_of::<Recent>() + group.blocks.len() * size_of::<Pbn>()) as u64);
        self.buffer.len() as u64 + recent.sum::<u64>()
    }
}

/// Maximum number of log pages between two checkpoints.
fn pages_max(ftl: &Ftl, logs: u32) -> u32 {
    let geometry = ftl.geometry();
    let table = ftl.logical_pages().div_ceil(geometry.page_bytes / 4);
    (table / 8).max(logs * geometry.pages_per_block)
}

/// The parts of a group that were found.
struct Group {
    tx: TxId,
    /// Number of parts of the whole group.
    of: usize,
    parts: BTreeMap<usize, Vec<Version>>,
}

impl Group {
    /// Adds a log page to its group, validated against the number of logical and physical pages.
    /// Returns the last group that it states as durable.
    fn add(
        groups: &mut BTreeMap<u64, Group>,
        logical_pages: u32,
        pages: u32,
        page: &LogPage,
    ) -> Result<u64, FtlError> {
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
            if lpn.0 >= logical_pages || (ppn != Ppn::NONE && ppn.0 >= pages) {
                return foreign("names a page beyond the device");
            }
            let slot = if ppn == Ppn::NONE {
                Slot::Empty
            } else {
                Slot::Page(ppn)
            };
            let seq = get(entry, group_entry::SEQ);
            found.push(Version { lpn, slot, seq });
        }
        let group = groups
            .entry(doubt_number("group", get(data, group_head::GROUP), 64)?)
            .or_insert_with(|| Group {
                tx: TxId(get(data, group_head::TX)),
                of: get(data, group_head::PARTS) as usize,
                parts: BTreeMap::new(),
            });
        group
            .parts
            .insert(get(data, group_head::PART) as usize, found);
        doubt_number("group", get(data, group_head::DURABLE), 64)
    }
}

/// Appends entries to a log page.
fn put_entries(page: &mut Vec<u8>, entries: &[Version]) {
    for entry in entries {
        let mut bytes = [0; group_entry::SIZE];
        put(&mut bytes, group_entry::LPN, entry.lpn.0.into());
        let to = entry.slot.ppn().unwrap_or(Ppn::NONE);
        put(&mut bytes, group_entry::PPN, to.0.into());
        put(&mut bytes, group_entry::SEQ, entry.seq);
        page.extend_from_slice(&bytes);
    }
}

/// For fuzzing: whether bytes are a page of the log.
pub(super) fn is_log_page(bytes: &[u8]) -> bool {
    let page = LogPage {
        log: 0,
        at: Ppn(0),
        seq: 0,
        data: bytes.to_vec(),
    };
    Group::add(&mut BTreeMap::new(), 64, 512, &page).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::{Kind, Options};
    use crate::ftl::Config;
    use crate::nand::{Geometry, small};

    /// Fails if the head of a log page says a lower number of parts: a cut among them would leave a
    /// whole group of these.
    #[test]
    fn a_group_of_more_parts_than_a_head_can_say_is_in_a_checkpoint() {
        const GEOMETRY: Geometry = small::GEOMETRY;
        let (config, options) = (Config::small(16, None), Options::default());
        let format = Kind::Aw.info().format_on(&GEOMETRY, &options);
        let format = format.expect("all defaults");
        let chip = Box::new(small::chip(GEOMETRY));
        let mounted = Ftl::mount(chip, config, format, Nanos::ZERO);
        let (mut ftl, mounted) = mounted.expect("it is blank");
        let replayed = MappingLog::replay(&mut ftl, &mounted, 1, false, &mut Rulings::default());
        let (mut log, now) = replayed.expect("there is no log");
        let trim = Version {
            lpn: Lpn(3),
            slot: Slot::Empty,
            seq: 0,
        };
        let room = (GEOMETRY.page_bytes as usize - group_head::SIZE) / group_entry::SIZE;
        for (parts, pages) in [(2, 2), (1 << 16, 0)] {
            let entries = vec![trim; room * parts];
            let done = log.append(&mut ftl, now, Lane::First, 0, now, &entries, None);
            assert!(done.expect("there is room") > now);
            assert_eq!(log.pages, pages, "since a checkpoint");
        }
    }
}
