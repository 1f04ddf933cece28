//! Records of the host's log: contents and encoding.
//!
//! ```text
//!  | head 25: bytes, kind, xid, prev, page, slot, at, replaced | old bytes | new bytes |
//! ```
//!
//! Logging is physiological ([FlagCommit] §4.1, footnote): a record names a page and a slot, and
//! holds the bytes that changed in the record there. A 12-byte change makes a 49-byte log record,
//! about the 50 of [FlagCommit] Table 2.

use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::page::SlotNo;
use flagstone::units::{Lpn, TxId};

layout! {
    /// The head of a record of the host's log. Its place in the stream is its LSN.
    pub entry_head: 25 => {
        BYTES:    2, "of the whole record";
        KIND:     1, "what it says: begin 1, insert 2, update 3, delete 4, commit 5, abort 6, end 7, checkpoint begin 8, its transactions 9, its dirty pages 10, its end 11, nothing but the rest of a page 12; 128 more if it compensates, or is never undone";
        XID:      6, "the transaction; 0 if none";
        PREV:     6, "the transaction's record before; of one that compensates: the next to undo; 0 if none";
        PAGE:     4, "the page that changed";
        SLOT:     2, "the record in it";
        AT:       2, "where in the record the changed bytes begin";
        REPLACED: 2, "bytes that the new ones replace; they come before them, unless kind says 128";
    }
}

/// The position of a record in the log: bytes since the log was created. No record has LSN 0.
pub(crate) type Lsn = u64;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Begin,
    Insert,
    Update,
    Delete,
    Commit,
    Abort,
    End,
    CheckpointBegin,
    CheckpointTxs,
    CheckpointPages,
    CheckpointEnd,
    Filling,
}

const WHATS: [What; 12] = [
    What::Begin,
    What::Insert,
    What::Update,
    What::Delete,
    What::Commit,
    What::Abort,
    What::End,
    What::CheckpointBegin,
    What::CheckpointTxs,
    What::CheckpointPages,
    What::CheckpointEnd,
    What::Filling,
];

const COMPENSATES: u8 = 128;

impl What {
    /// Whether the log record changes a record of a page.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, What::Insert | What::Update | What::Delete)
    }

    /// Whether a restart rewrites such a record itself, so that it need not be kept.
    pub(super) fn is_bookkeeping(self) -> bool {
        self >= What::End
    }
}

/// A record of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogRecord<'a> {
    pub(crate) what: What,
    /// A compensation record: redone but never undone; `prev` is the next record to undo.
    pub(crate) compensates: bool,
    pub(crate) tx: TxId,
    pub(crate) prev: Lsn,
    pub(crate) page: Lpn,
    pub(crate) slot: SlotNo,
    pub(crate) at: u16,
    /// Number of replaced bytes: the length of `old`, which a compensation record omits.
    pub(crate) replaced: u16,
    pub(crate) old: &'a [u8],
    pub(crate) new: &'a [u8],
}

impl<'a> LogRecord<'a> {
    /// A record that belongs to no page.
    pub(crate) fn mark(what: What, tx: TxId, prev: Lsn, body: &'a [u8]) -> LogRecord<'a> {
        LogRecord {
            what,
            compensates: false,
            tx,
            prev,
            page: Lpn(0),
            slot: 0,
            at: 0,
            replaced: 0,
            old: &[],
            new: body,
        }
    }

    /// Size of a record with `body` bytes after its head.
    pub(crate) const fn bytes(body: usize) -> usize {
        entry_head::SIZE + body
    }

    /// Appends the record to a stream.
    pub(super) fn emit(&self, stream: &mut Vec<u8>) {
        let mut head = [0; entry_head::SIZE];
        let bytes = LogRecord::bytes(self.old.len() + self.new.len());
        let compensates = if self.compensates { COMPENSATES } else { 0 };
        put(&mut head, entry_head::BYTES, bytes as u64);
        head[entry_head::KIND.start] = (self.what as u8 + 1) | compensates;
        put(&mut head, entry_head::XID, self.tx.0);
        put(&mut head, entry_head::PREV, self.prev);
        put(&mut head, entry_head::PAGE, self.page.0.into());
        put(&mut head, entry_head::SLOT, self.slot.into());
        put(&mut head, entry_head::AT, self.at.into());
        put(&mut head, entry_head::REPLACED, self.replaced.into());
        stream.extend_from_slice(&head);
        stream.extend_from_slice(self.old);
        stream.extend_from_slice(self.new);
    }

    /// Decodes the record at the start of `bytes`. Also returns its length. `None` if it is
    /// incomplete or of no known kind.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(LogRecord<'a>, usize)> {
        let head = bytes.get(..entry_head::SIZE)?;
        let len = get(head, entry_head::BYTES) as usize;
        let body = bytes.get(entry_head::SIZE..len)?;
        let kind = head[entry_head::KIND.start];
        let what = *WHATS.get(usize::from(kind & !COMPENSATES).checked_sub(1)?)?;
        let compensates = kind & COMPENSATES != 0;
        let replaced = get(head, entry_head::REPLACED) as u16;
        let split = if compensates { 0 } else { replaced.into() };
        let entry = LogRecord {
            what,
            compensates,
            tx: TxId(get(head, entry_head::XID)),
            prev: get(head, entry_head::PREV),
            page: Lpn(get(head, entry_head::PAGE) as u32),
            slot: get(head, entry_head::SLOT) as SlotNo,
            at: get(head, entry_head::AT) as u16,
            replaced,
            old: body.get(..split)?,
            new: &body[split..],
        };
        Some((entry, len))
    }

    /// Size of the record that begins here, if its head is complete.
    pub(super) fn length(bytes: &[u8]) -> Option<usize> {
        let head = bytes.get(..entry_head::BYTES.end)?;
        Some(get(head, entry_head::BYTES) as usize)
    }
}

/// For fuzzing: decodes all records in `bytes`. Returns whether there is a first one.
pub(crate) fn is_log(mut bytes: &[u8]) -> bool {
    let whole = LogRecord::parse(bytes).is_some();
    while let Some((entry, len)) = LogRecord::parse(bytes) {
        let mut again = Vec::new();
        entry.emit(&mut again);
        assert_eq!(again, bytes[..len], "a record that is read is written");
        bytes = &bytes[len..];
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_parts_of_one_are_none() {
        let all = [
            LogRecord::mark(What::Commit, TxId(7), 99, b""),
            LogRecord {
                page: Lpn(5),
                slot: 3,
                at: 17,
                replaced: 2,
                old: b"ab",
                ..LogRecord::mark(What::Update, TxId(1 << 40), 1 << 41, b"xyz")
            },
            LogRecord {
                compensates: true,
                replaced: 3,
                ..LogRecord::mark(What::Update, TxId(9), 4, b"ab")
            },
        ];
        for entry in all {
            let mut stream = Vec::new();
            entry.emit(&mut stream);
            assert_eq!(LogRecord::parse(&stream), Some((entry, stream.len())));
            assert_eq!(LogRecord::length(&stream), Some(stream.len()));
            for cut in 0..stream.len() {
                assert_eq!(LogRecord::parse(&stream[..cut]), None);
            }
        }
    }

    #[test]
    fn a_small_change_makes_a_record_of_the_size_that_the_paper_assumes() {
        assert_eq!(LogRecord::bytes(12 + 12), 49);
    }
}
