//! The log of SAL-hashing's transactions: a stream of records in a ring of pages.
//!
//! A page is written again while it fills; a single page is there as it was or as it is. Each
//! restart begins a new epoch on a new page, so that what an earlier one left behind the end of
//! the log is not taken for its continuation.

use crate::index::{BackingStore, IndexError, Key, Result, Value, damaged};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Lpn, Nanos};

layout! {
    /// The first page of a store with SAL-hashing and its transactions.
    pub sal_master: 40 => {
        MAGIC:      8, "`sal-log` and a zero";
        EPOCH:      8, "restarts there were";
        PAGES:      8, "pages of the log, which follow";
        START:      8, "where the first record is that a restart needs";
        CHECKPOINT: 8, "where the last checkpoint is";
    }
}

layout! {
    /// The head of a page of SAL-hashing's log.
    pub sal_log_page: 20 => {
        SEQUENCE: 8, "its number, from 0; the ring has it at the remainder";
        EPOCH:    8, "restarts before it was written";
        USED:     4, "bytes of records that follow";
    }
}

layout! {
    /// The head of a record of SAL-hashing's log.
    pub sal_log_record: 21 => {
        BYTES: 4, "of the whole record";
        KIND:  1, "1 update, 2 and 3 undone in the buffer and beneath it, 4 commit, 5 end of a rollback, 6 begin and 7 end of a flush, 8 page, 9 checkpoint, 10 update carried on";
        TX:    8, "the transaction; of a flush its number";
        PREV:  8, "the transaction's record before; of an undo the next one to undo";
    }
}

layout! {
    /// An update of a key in SAL-hashing's log, or its undo.
    pub sal_log_update: 31 => {
        SET:       4, "the set";
        KEY:       8, "the key";
        HAS:       1, "1 if it has a value now, 0 if it was deleted";
        VALUE:     8, "the value";
        HAD:       1, "1 if it had a value";
        OLD:       8, "the value before";
        BUFFERED:  1, "1 if that was in the log buffer";
    }
}

/// Where a record begins in the stream, plus one; 0 is none.
pub(super) type Lsn = u64;

/// An update, or its undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) set: u32,
    pub(super) key: Key,
    pub(super) new: Option<Value>,
    pub(super) old: Option<Value>,
    pub(super) buffered: bool,
}

/// The contents of a record. Table 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Logged {
    Update(Update),
    RollLogBuffer(Update),
    RollFlushedSet(Update),
    Commit,
    Ended,
    /// Sets, and up to which update it has theirs.
    BeginFlush(Vec<u32>, Lsn),
    EndFlush,
    Page(Lpn, Vec<u8>),
    /// Transactions with their first records and the updates to undo first; dirty sets with their
    /// first updates.
    Checkpoint(Vec<(u64, Lsn, Lsn)>, Vec<(u32, Lsn)>),
    /// An update of a live transaction, and where it was logged first. Older records are not needed
    /// any more.
    Carried(Lsn, Update),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SalRecord {
    pub(super) tx: u64,
    pub(super) prev: Lsn,
    pub(super) entry: Logged,
}

fn words(body: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        body.extend_from_slice(&word.to_le_bytes());
    }
}

impl SalRecord {
    fn emit(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.resize(start + sal_log_record::SIZE, 0);
        let kind = match &self.entry {
            Logged::Update(update) => emit_update(1, *update, into),
            Logged::RollLogBuffer(update) => emit_update(2, *update, into),
            Logged::RollFlushedSet(update) => emit_update(3, *update, into),
            Logged::Carried(lsn, update) => {
                words(into, &[*lsn]);
                emit_update(10, *update, into)
            }
            Logged::Commit => 4,
            Logged::Ended => 5,
            Logged::BeginFlush(sets, covers) => {
                words(into, &[*covers]);
                sets.iter().for_each(|&set| words(into, &[u64::from(set)]));
                6
            }
            Logged::EndFlush => 7,
            Logged::Page(at, bytes) => {
                words(into, &[u64::from(at.0)]);
                into.extend_from_slice(bytes);
                8
            }
            Logged::Checkpoint(live, dirty) => {
                words(into, &[live.len() as u64]);
                live.iter()
                    .for_each(|&(tx, first, last)| words(into, &[tx, first, last]));
                dirty
                    .iter()
                    .for_each(|&(set, first)| words(into, &[u64::from(set), first]));
                9
            }
        };
        let bytes = (into.len() - start) as u64;
        let head = &mut into[start..];
        put(head, sal_log_record::BYTES, bytes);
        put(head, sal_log_record::KIND, kind);
        put(head, sal_log_record::TX, self.tx);
        put(head, sal_log_record::PREV, self.prev);
    }

    /// Nothing if the bytes are no whole record.
    fn parse(bytes: &[u8]) -> Option<(SalRecord, usize)> {
        let head = bytes.get(..sal_log_record::SIZE)?;
        let len = get(head, sal_log_record::BYTES) as usize;
        let body = bytes.get(sal_log_record::SIZE..len)?;
        let numbers = || body.chunks_exact(8).map(|word| get(word, 0..8));
        let entry = match get(head, sal_log_record::KIND) {
            1 => Logged::Update(parse_update(body)?),
            2 => Logged::RollLogBuffer(parse_update(body)?),
            3 => Logged::RollFlushedSet(parse_update(body)?),
            4 => Logged::Commit,
            5 => Logged::Ended,
            6 => {
                let sets = numbers().skip(1).map(|set| set as u32).collect();
                Logged::BeginFlush(sets, numbers().next()?)
            }
            7 => Logged::EndFlush,
            8 => Logged::Page(Lpn(numbers().next()? as u32), body.get(8..)?.to_vec()),
            9 => {
                let all: Vec<u64> = numbers().collect();
                let (count, tables) = all.split_first()?;
                let (live, dirty) = tables.split_at_checked((*count as usize).checked_mul(3)?)?;
                let live = live.chunks_exact(3).map(|t| (t[0], t[1], t[2])).collect();
                let dirty = dirty.chunks_exact(2).map(|s| (s[0] as u32, s[1])).collect();
                Logged::Checkpoint(live, dirty)
            }
            10 => Logged::Carried(numbers().next()?, parse_update(&body[8..])?),
            _ => return None,
        };
        let (tx, prev) = (
            get(head, sal_log_record::TX),
            get(head, sal_log_record::PREV),
        );
        Some((SalRecord { tx, prev, entry }, len))
    }
}

fn emit_update(kind: u64, update: Update, into: &mut Vec<u8>) -> u64 {
    let start = into.len();
    into.resize(start + sal_log_update::SIZE, 0);
    let body = &mut into[start..];
    put(body, sal_log_update::SET, u64::from(update.set));
    put(body, sal_log_update::KEY, update.key);
    put(body, sal_log_update::HAS, u64::from(update.new.is_some()));
    put(body, sal_log_update::VALUE, update.new.unwrap_or(0));
    put(body, sal_log_update::HAD, u64::from(update.old.is_some()));
    put(body, sal_log_update::OLD, update.old.unwrap_or(0));
    put(body, sal_log_update::BUFFERED, u64::from(update.buffered));
    kind
}

fn parse_update(body: &[u8]) -> Option<Update> {
    let body = body.get(..sal_log_update::SIZE)?;
    let value = |has, field| (get(body, has) == 1).then(|| get(body, field));
    Some(Update {
        set: get(body, sal_log_update::SET) as u32,
        key: get(body, sal_log_update::KEY),
        new: value(sal_log_update::HAS, sal_log_update::VALUE),
        old: value(sal_log_update::HAD, sal_log_update::OLD),
        buffered: get(body, sal_log_update::BUFFERED) == 1,
    })
}

/// What is counted up is held against half of its range when it is read, so that the next one fits.
const NUMBER_MAX: u64 = u64::MAX / 2;

const MAGIC: u64 = u64::from_le_bytes(*b"sal-log\0");

/// The log.
#[derive(Debug)]
pub(super) struct Ring {
    page_bytes: usize,
    pages: u64,
    epoch: u64,
    /// Where the records are that a restart needs.
    pub(super) start: Lsn,
    pub(super) checkpoint: Lsn,
    /// Bytes from the beginning of a page on that is not yet full and forced.
    tail: Vec<u8>,
    tail_page: u64,
    /// Bytes of the tail that are forced.
    forced: usize,
}

/// Records with their places, by place.
pub(super) type LocatedRecords = Vec<(Lsn, SalRecord)>;

impl Ring {
    fn room(&self) -> usize {
        self.page_bytes - sal_log_page::SIZE
    }

    /// Reads the log of a store, if there is one, and begins a new epoch behind it.
    pub(super) fn open(
        store: &mut dyn BackingStore,
        pages: u64,
        mut now: Nanos,
    ) -> Result<(Ring, Option<LocatedRecords>, Nanos)> {
        let mut ring = Ring {
            page_bytes: store.page_bytes(),
            pages,
            epoch: 0,
            start: 1,
            checkpoint: 0,
            tail: Vec::new(),
            tail_page: 0,
            forced: 0,
        };
        let mut image = vec![0; ring.page_bytes];
        now = store.read(now, Lpn(0), &mut image)?;
        if get(&image, sal_master::MAGIC) == 0 {
            return Ok((ring, None, now));
        }
        let number = |field| get(&image, field);
        if number(sal_master::MAGIC) != MAGIC || number(sal_master::PAGES) != pages {
            return Err(IndexError::Settings(format!(
                "the store has no log of sal with {pages} pages: open it as it was made"
            )));
        }
        ring.start = number(sal_master::START);
        ring.checkpoint = number(sal_master::CHECKPOINT);
        ring.epoch = number(sal_master::EPOCH);
        if [ring.epoch, ring.start]
            .iter()
            .any(|&number| number > NUMBER_MAX)
            || ring.start == 0
        {
            return damaged(Lpn(0), "its log begins where no log can");
        }
        let (found, now) = ring.scan(store, now)?;
        if ring.end() < ring.start {
            return damaged(
                Lpn(0),
                "its log ends before the first record that a restart needs",
            );
        }
        if let Some((at, _)) = found.iter().find(|(_, record)| record.tx > NUMBER_MAX) {
            let page = (at - 1) / ring.room() as u64 % pages;
            return damaged(Lpn(1 + page as u32), "a record is of no transaction");
        }
        // Durable before anything is written in it.
        let now = ring.save(store, now)?;
        Ok((ring, Some(found), now))
    }

    fn scan(
        &mut self,
        store: &mut dyn BackingStore,
        mut now: Nanos,
    ) -> Result<(LocatedRecords, Nanos)> {
        let room = self.room();
        let mut at = (self.start - 1) as usize;
        let mut page = (at / room) as u64;
        let (mut found, mut bytes, mut epoch) = (LocatedRecords::new(), Vec::new(), None);
        let mut image = vec![0; self.page_bytes];
        let mut base = page as usize * room;
        let mut parse = |bytes: &[u8], at: &mut usize, base: usize| {
            while let Some((record, len)) = bytes.get(*at - base..).and_then(SalRecord::parse) {
                found.push((*at as Lsn + 1, record));
                *at += len;
            }
        };
        loop {
            now = store.read(now, Lpn(1 + (page % self.pages) as u32), &mut image)?;
            let used = get(&image, sal_log_page::USED) as usize;
            let this = get(&image, sal_log_page::EPOCH);
            let is_next = get(&image, sal_log_page::SEQUENCE) == page
                && (1..=room).contains(&used)
                && this <= NUMBER_MAX;
            let full = bytes.len() % room == 0;
            match epoch {
                _ if !is_next => break,
                Some(epoch) if this == epoch && full => {}
                Some(epoch) if this > epoch => {
                    parse(&bytes, &mut at, base);
                    bytes.clear();
                    base = page as usize * room;
                    at = base;
                }
                None => {}
                Some(_) => break,
            }
            epoch = Some(this);
            bytes.extend_from_slice(&image[sal_log_page::SIZE..][..used]);
            page += 1;
        }
        parse(&bytes, &mut at, base);
        self.tail_page = page;
        self.epoch = self.epoch.max(epoch.unwrap_or(0)) + 1;
        Ok((found, now))
    }

    /// Writes the master page.
    pub(super) fn save(&mut self, store: &mut dyn BackingStore, now: Nanos) -> Result<Nanos> {
        let mut image = vec![0; self.page_bytes];
        put(&mut image, sal_master::MAGIC, MAGIC);
        put(&mut image, sal_master::EPOCH, self.epoch);
        put(&mut image, sal_master::PAGES, self.pages);
        put(&mut image, sal_master::START, self.start);
        put(&mut image, sal_master::CHECKPOINT, self.checkpoint);
        Ok(store.write(now, &[(Lpn(0), &image)])?)
    }

    /// Where the next record will be.
    pub(super) fn end(&self) -> Lsn {
        self.tail_page * self.room() as u64 + self.tail.len() as u64 + 1
    }

    /// Pages between the first record that is needed and the last.
    fn used(&self) -> u64 {
        (self.end() - self.start) / self.room() as u64 + 2
    }

    /// Whether so many updates, carried on, take more than a quarter of the log.
    pub(super) fn is_filled_by(&self, updates: usize) -> bool {
        let each = sal_log_record::SIZE + size_of::<Lsn>() + sal_log_update::SIZE;
        (updates * each) as u64 > self.room() as u64 * self.pages / 4
    }

    /// Whether a third of the log is in use: the rest is for restarts, each of which may be cut.
    pub(super) fn is_third_full(&self) -> bool {
        self.used() > self.pages / 3
    }

    /// Whether an eighth of the log was filled from a place on.
    pub(super) fn has_grown_since(&self, from: Lsn) -> bool {
        self.end() - from > self.room() as u64 * self.pages / 8
    }

    /// Adds a record; it is in memory until [`Ring::force`].
    pub(super) fn append(&mut self, record: &SalRecord) -> Lsn {
        let lsn = self.end();
        record.emit(&mut self.tail);
        lsn
    }

    /// Makes all records durable.
    pub(super) fn force(&mut self, store: &mut dyn BackingStore, now: Nanos) -> Result<Nanos> {
        if self.forced == self.tail.len() {
            return Ok(now);
        }
        if self.used() > self.pages {
            let pages = self.pages as u32;
            return Err(IndexError::LogFull { pages });
        }
        let room = self.room();
        let mut images = Vec::new();
        for (i, part) in self.tail.chunks(room).enumerate() {
            let mut image = vec![0; self.page_bytes];
            let page = self.tail_page + i as u64;
            put(&mut image, sal_log_page::SEQUENCE, page);
            put(&mut image, sal_log_page::EPOCH, self.epoch);
            put(&mut image, sal_log_page::USED, part.len() as u64);
            image[sal_log_page::SIZE..][..part.len()].copy_from_slice(part);
            images.push((Lpn(1 + (page % self.pages) as u32), image));
        }
        let pages: Vec<(Lpn, &[u8])> = images.iter().map(|(at, image)| (*at, &image[..])).collect();
        let done = store.write(now, &pages)?;
        let full = self.tail.len() / room;
        self.tail.drain(..full * room);
        self.tail_page += full as u64;
        self.forced = self.tail.len();
        Ok(done)
    }
}
