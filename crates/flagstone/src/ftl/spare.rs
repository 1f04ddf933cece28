//! What every spare area starts with; the owner's own fields follow as the *tail*.

use crate::layout;
use crate::layout::{get, put};
use crate::units::Lpn;

layout! {
    /// The head of every spare area.
    pub header: 11 => {
        KIND: 1, "what the page is; 0xff in a blank page";
        LPN:  4, "logical page, translation page, log, or erase count, by kind";
        SEQ:  6, "write sequence: every program takes the next; a copy keeps its own or takes one";
    }
}

/// The longest tail that an owner may ask for.
pub const TAIL_BYTES_MAX: usize = 40;

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A version of a logical page.
    Data = 0x01,
    /// A version of a logical page that says it holds nothing (trim).
    Trim = 0x02,
    /// The last page of a full block: the spare records of all pages before it.
    Summary = 0x03,
    /// A page of the mapping table.
    Map = 0x10,
    /// A part of a root: where the mapping table is, which blocks are bad.
    Root = 0x11,
    /// A page of a log.
    Log = 0x12,
}

/// The head of a spare area that holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the page is.
    pub kind: Kind,
    /// The logical page for data; for the other kinds see [`header`].
    pub lpn: Lpn,
    /// The write sequence.
    pub seq: u64,
}

impl Header {
    /// Writes the head into the first bytes of a spare area.
    #[inline]
    pub fn emit(&self, spare: &mut [u8]) {
        spare[header::KIND.start] = self.kind as u8;
        put(spare, header::LPN, self.lpn.0.into());
        put(spare, header::SEQ, self.seq);
    }

    /// Reads it back; nothing for a blank page or an unknown kind.
    #[inline]
    pub fn parse(spare: &[u8]) -> Option<Header> {
        let kind = match spare[header::KIND.start] {
            0x01 => Kind::Data,
            0x02 => Kind::Trim,
            0x03 => Kind::Summary,
            0x10 => Kind::Map,
            0x11 => Kind::Root,
            0x12 => Kind::Log,
            _ => return None,
        };
        Some(Header {
            kind,
            lpn: Lpn(get(spare, header::LPN) as u32),
            seq: get(spare, header::SEQ),
        })
    }

    /// Whether this is a version of a logical page: data or trim.
    #[inline]
    pub fn is_version(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Trim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_these_bytes() {
        let header = Header {
            kind: Kind::Trim,
            lpn: Lpn(0x0403_0201),
            seq: 0x0a09_0807_0605,
        };
        let mut spare = [0xff; 12];
        header.emit(&mut spare);
        assert_eq!(spare, [2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xff]);
        assert_eq!(Header::parse(&spare), Some(header));
        assert_eq!(Header::parse(&[0xff; 12]), None);
    }
}
