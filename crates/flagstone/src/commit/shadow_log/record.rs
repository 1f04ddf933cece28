//! What a log page holds: how transactions ended, one record each.

use crate::ftl::{Ftl, FtlError};
use crate::layout;
use crate::layout::{get, put};
use crate::units::TxId;

layout! {
    /// The head of a log page. As many records follow.
    pub log_page: 2 => {
        COUNT: 2, "records in this page";
    }
}

layout! {
    /// A record of the log.
    pub log_record: 7 => {
        XID: 6, "transaction that has ended";
        STATUS: 1, "C/A of the paper: 1 committed, 0 aborted";
    }
}

/// The log record of an ended transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct LogRecord {
    pub(in super::super) tx: TxId,
    pub(in super::super) committed: bool,
}

/// Number of records in a log page.
pub(in super::super) fn records_per_page(ftl: &Ftl) -> usize {
    ((ftl.geometry().page_bytes as usize - log_page::SIZE) / log_record::SIZE)
        .min(u16::MAX as usize)
}

pub(super) fn emit_log_page(records: &[LogRecord]) -> Vec<u8> {
    let mut bytes = vec![0; log_page::SIZE + records.len() * log_record::SIZE];
    let (head, rest) = bytes.split_at_mut(log_page::SIZE);
    put(head, log_page::COUNT, records.len() as u64);
    for (bytes, record) in rest.chunks_exact_mut(log_record::SIZE).zip(records) {
        put(bytes, log_record::XID, record.tx.0);
        put(bytes, log_record::STATUS, record.committed.into());
    }
    bytes
}

pub(super) fn parse_log_page(bytes: &[u8]) -> Result<Vec<LogRecord>, FtlError> {
    let foreign = || FtlError::Foreign("a log page that ends early".into());
    let (head, rest) = bytes.split_at_checked(log_page::SIZE).ok_or_else(foreign)?;
    let records = get(head, log_page::COUNT) as usize;
    let rest = rest.get(..records * log_record::SIZE).ok_or_else(foreign)?;
    let record = |bytes: &[u8]| LogRecord {
        tx: TxId(get(bytes, log_record::XID)),
        committed: get(bytes, log_record::STATUS) == 1,
    };
    Ok(rest.chunks_exact(log_record::SIZE).map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_page_has_these_bytes() {
        let record = |tx, committed| LogRecord {
            tx: TxId(tx),
            committed,
        };
        let bytes = emit_log_page(&[record(0x0102, true), record(3, false)]);
        assert_eq!(bytes, [2, 0, 2, 1, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0]);
        let records = parse_log_page(&bytes).unwrap();
        assert_eq!(records, [record(0x0102, true), record(3, false)]);
        assert!(parse_log_page(&bytes[..15]).is_err());
        assert!(parse_log_page(&[]).is_err());
    }
}
