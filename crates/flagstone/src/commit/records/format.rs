//! The data of a page version besides its image.

use super::book::Owned;
use super::{ENTRIES_MAX, Member};
use crate::ftl::{Cause, Ftl, FtlError, Header, TAIL_BYTES_MAX, header};
use crate::layout;
use crate::layout::{get, put};
use crate::nand::FlashError;
use crate::page::SlotNo;
use crate::units::{Nanos, Ppn, TxId};

layout! {
    /// The tail of a spare area under CFC_ex and AFC_ex; as many flags as the device has entries.
    pub spare: 17 => {
        VERSION: 6, "version of the logical page: the write sequence of its first program";
        LIST:    2, "bytes behind the page's image";
        ENTRIES: 1, "entries in them";
        FLAGS:   8, "commit flag of each entry, reprogrammed in place";
    }
}

layout! {
    /// One transaction's pending records in a version of a page; the slots follow, two bytes each.
    pub entry_head: 8 => {
        XID:   6, "the transaction";
        SLOTS: 2, "how many records";
    }
}

layout! {
    /// A record that a merge took from an older version; behind the entries.
    pub restored: 10 => {
        SLOT: 2, "the record";
        LSN:  8, "LSN of the page that it was taken from";
    }
}

/// The tail of a spare area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) version: u64,
    pub(super) list: u16,
    pub(super) entries: u8,
    pub(super) flags: [u8; ENTRIES_MAX],
}

impl Tail {
    /// Decodes a tail. Flags that the device does not have are `0xff`.
    pub(super) fn parse(tail: &[u8]) -> Tail {
        let mut flags = [0xff; ENTRIES_MAX];
        let kept = &tail[spare::FLAGS.start..];
        flags[..kept.len()].copy_from_slice(kept);
        Tail {
            version: get(tail, spare::VERSION),
            list: get(tail, spare::LIST) as u16,
            entries: tail[spare::ENTRIES.start].min(kept.len() as u8),
            flags,
        }
    }

    /// Number of entries in a tail that is longer than this device's: it has no flags for all.
    pub(super) fn too_many(tail: &[u8]) -> Option<u8> {
        let entries = tail[spare::ENTRIES.start];
        let flags = tail.len() - spare::FLAGS.start;
        (usize::from(entries) > flags).then_some(entries)
    }

    pub(super) fn emit(&self, tail: &mut [u8]) {
        put(tail, spare::VERSION, self.version);
        put(tail, spare::LIST, self.list.into());
        tail[spare::ENTRIES.start] = self.entries;
        let kept = tail.len() - spare::FLAGS.start;
        tail[spare::FLAGS.start..].copy_from_slice(&self.flags[..kept]);
    }
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tx: TxId,
    pub(super) slots: Box<[SlotNo]>,
}

/// The list of entries and older records behind the image of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct List {
    pub(super) entries: Vec<Entry>,
    /// Records of an older version, with that version's LSN.
    pub(super) restored: Vec<(SlotNo, u64)>,
}

/// Bytes after an image with this many entries, slots in them, and restored records.
pub(super) fn list_bytes(entries: usize, slots: usize, restored: usize) -> usize {
    entries * entry_head::SIZE + slots * 2 + restored * restored::SIZE
}

impl List {
    pub(super) fn bytes(&self) -> usize {
        let slots = self.entries.iter().map(|entry| entry.slots.len()).sum();
        list_bytes(self.entries.len(), slots, self.restored.len())
    }

    /// Appends the entries, each with its slots, and then the restored records.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            let mut head = [0; entry_head::SIZE];
            put(&mut head, entry_head::XID, entry.tx.0);
            put(&mut head, entry_head::SLOTS, entry.slots.len() as u64);
            out.extend_from_slice(&head);
            for slot in &entry.slots {
                out.extend_from_slice(&slot.to_le_bytes());
            }
        }
        for &(slot, lsn) in &self.restored {
            let mut record = [0; restored::SIZE];
            put(&mut record, restored::SLOT, slot.into());
            put(&mut record, restored::LSN, lsn);
            out.extend_from_slice(&record);
        }
    }

    /// Decodes a list with `entries` entries. `None` if the bytes are not a valid list.
    pub(super) fn parse(mut bytes: &[u8], entries: u8) -> Option<List> {
        let mut list = List::default();
        for _ in 0..entries {
            let (tx, slots, rest) = split_entry(bytes)?;
            let slot = |pair: &[u8]| SlotNo::from_le_bytes([pair[0], pair[1]]);
            list.entries.push(Entry {
                tx,
                slots: slots.chunks_exact(2).map(slot).collect(),
            });
            bytes = rest;
        }
        if !bytes.len().is_multiple_of(restored::SIZE) {
            return None;
        }
        for record in bytes.chunks_exact(restored::SIZE) {
            let slot = get(record, restored::SLOT) as SlotNo;
            list.restored.push((slot, get(record, restored::LSN)));
        }
        Some(list)
    }
}

/// Splits off the first entry of a list: transaction, bytes of its slots, remaining bytes.
fn split_entry(bytes: &[u8]) -> Option<(TxId, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(entry_head::SIZE)?;
    let slots = get(head, entry_head::SLOTS) as usize;
    let (slots, rest) = rest.split_at_checked(slots * 2)?;
    Some((TxId(get(head, entry_head::XID)), slots, rest))
}

/// A version read from flash.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) tail: Tail,
    pub(super) image: Vec<u8>,
    pub(super) list: List,
}

impl Version {
    fn parse(spare: &[u8], mut data: Vec<u8>) -> Option<Version> {
        Header::parse(spare).filter(Header::is_version)?;
        let tail = Tail::parse(&spare[header::SIZE..]);
        let bytes = data.len().checked_sub(tail.list.into())?;
        let list = List::parse(&data[bytes..], tail.entries)?;
        data.truncate(bytes);
        Some(Version {
            tail,
            image: data,
            list,
        })
    }
}

/// Reads a version. Returns `None` if the page is blank, of another kind, or unreadable; and when
/// the read was done.
pub(super) fn read_version(
    ftl: &mut Ftl,
    now: Nanos,
    at: Ppn,
    cause: Cause,
) -> Result<(Option<Version>, Nanos), FtlError> {
    let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
    let mut image = vec![0; ftl.geometry().page_bytes as usize];
    let record = ftl.record_bytes();
    let read = match ftl.read(now, at, &mut image, &mut spare[..record], cause) {
        Ok(read) => read,
        Err(FlashError::Uncorrectable { done, .. }) => return Ok((None, done)),
        Err(other) => return Err(other.into()),
    };
    image.truncate(read.data_bytes);
    Ok((Version::parse(&spare[..record], image), read.done))
}

/// The transactions with pending records in a page, and the slots of these records.
pub(super) fn entries_of(spare: &[u8], data: &[u8]) -> Vec<(TxId, Vec<SlotNo>)> {
    // A chip may store more bytes of a spare area than the device uses.
    let spare = &spare[..spare.len().min(header::SIZE + spare::SIZE)];
    let version = Version::parse(spare, data.to_vec());
    let entries = version.map_or(Vec::new(), |version| version.list.entries);
    let entry = |entry: Entry| (entry.tx, entry.slots.into_vec());
    entries.into_iter().map(entry).collect()
}

/// The entries of a page on flash, without a simulated read. `None` if the device does not support
/// that. `image` is a buffer of a page's size.
pub(super) fn peek_entries(ftl: &Ftl, at: Ppn, image: &mut [u8]) -> Option<Vec<Owned>> {
    let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
    let spare = &mut spare[..ftl.record_bytes()];
    ftl.peek(at, &mut [], spare)?;
    let mut entries = Vec::new();
    let Some(head) = Header::parse(spare).filter(Header::is_version) else {
        return Some(entries);
    };
    let tail = Tail::parse(&spare[header::SIZE..]);
    if tail.entries == 0 {
        return Some(entries);
    }
    let bytes = ftl.peek(at, image, spare)?;
    let mut list = match bytes.checked_sub(tail.list.into()) {
        Some(start) => &image[start..bytes],
        None => return Some(entries),
    };
    for index in 0..tail.entries {
        let Some((tx, _, rest)) = split_entry(list) else {
            break;
        };
        list = rest;
        let seq = head.seq as u32;
        entries.push(Owned {
            tx,
            member: Member { at, seq, index },
            flag: tail.flags[usize::from(index)],
        });
    }
    Some(entries)
}

/// For fuzzing: parses a list with `entries` entries, which must encode to the same bytes.
pub(in crate::commit) fn is_list(bytes: &[u8], entries: u8) -> bool {
    let Some(list) = List::parse(bytes, entries) else {
        return false;
    };
    let mut again = Vec::new();
    list.emit(&mut again);
    assert_eq!(again, bytes);
    true
}

/// For fuzzing: parses a tail with each number of flags.
pub(in crate::commit) fn read_tail(bytes: &[u8]) {
    for flags in 1..=ENTRIES_MAX {
        let bytes = &bytes[..spare::FLAGS.start + flags];
        let tail = Tail::parse(bytes);
        let mut again = bytes.to_vec();
        tail.emit(&mut again);
        assert_eq!(Tail::parse(&again), tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_and_a_list_have_these_bytes_and_come_back() {
        let tail = Tail {
            version: 0x0605_0403_0201,
            list: 0x0807,
            entries: 2,
            flags: [0xff, 0x0b, 0x0c, 0xff, 0xff, 0xff, 0xff, 0xff],
        };
        let mut bytes = [0; 12];
        tail.emit(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 2, 0xff, 0x0b, 0x0c]);
        assert_eq!(Tail::parse(&bytes), tail);
        let entry = |slots: &[SlotNo]| Entry {
            tx: TxId(0x0605_0403_0201),
            slots: slots.into(),
        };
        let list = List {
            entries: vec![entry(&[0x1211]), entry(&[7, 9])],
            restored: vec![(3, 400)],
        };
        let mut bytes = Vec::new();
        list.emit(&mut bytes);
        assert_eq!(bytes.len(), list.bytes());
        assert_eq!(bytes[..10], [1, 2, 3, 4, 5, 6, 1, 0, 0x11, 0x12]);
        assert_eq!(List::parse(&bytes, 2), Some(list));
        for cut in 1..bytes.len() {
            let _ = List::parse(&bytes[..cut], 2);
        }
        assert_eq!(List::parse(&bytes[..20], 2), None);
    }

    #[test]
    fn the_summary_of_a_64_page_block_fits_a_2_kib_page() {
        let record = header::SIZE + spare::FLAGS.start;
        assert!(record * 63 <= 2048);
    }
}
