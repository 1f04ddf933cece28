//! Space of the log: capacity, reserve, and padding of pages.

use super::{HostError, Log, LogRecord, Lsn, What};
use flagstone::units::TxId;

impl Log {
    /// Bytes that the ring holds.
    pub(crate) fn capacity(&self) -> u64 {
        (self.ring - 1) * self.payload
    }

    /// Bytes that can be appended before the oldest records must be dropped.
    pub(crate) fn room(&self) -> u64 {
        self.room_from(self.oldest)
    }

    /// Like [`Log::room`], for another oldest record.
    pub(crate) fn room_from(&self, oldest: Lsn) -> u64 {
        let begin = oldest / self.payload * self.payload;
        (begin + self.capacity()).saturating_sub(self.end())
    }

    /// Sets the number of bytes to keep free.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.kept = bytes;
    }

    /// Pads the last page, so that the next record begins a new one. Does nothing if less than half
    /// of the log is free, or nothing beyond the reserve, or if the padding is longer than a record
    /// can be.
    pub(crate) fn fill(&mut self) -> Result<(), HostError> {
        let used = self.end() % self.payload;
        if used == 0 || self.room() <= self.capacity() / 2 {
            return Ok(());
        }
        let least = LogRecord::bytes(0) as u64;
        let rest = self.payload - used;
        // A rest that is too short for a record: the padding takes the next page as well.
        let more = if rest < least { self.payload } else { 0 };
        // A record has at most 65,535 bytes.
        let is_too_long = rest + more > u16::MAX.into();
        if is_too_long || self.room() < self.kept.saturating_add(rest + more) {
            return Ok(());
        }
        let body = vec![0; (rest + more - least) as usize];
        let filling = LogRecord::mark(What::Filling, TxId(0), 0, &body);
        self.append(&filling)?;
        self.removed.fill(self.payload);
        Ok(())
    }
}
