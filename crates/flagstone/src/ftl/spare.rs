//! The header of every spare area. The owner's fields follow as the *tail*.

#[cfg(doc)]
use super::trim_list;
use super::{Config, FtlError, PairedPages, doubt_number};
use crate::layout;
use crate::layout::{get, put};
use crate::units::Lpn;

layout! {
    /// The head of every spare area.
    pub header: 11 => {
        KIND: 1, "what the page is, in bit 3 whether it has checksums, in bit 2 whether `paired_pages` is `closed`, and in the top three bits the version of the format; 0xff in a blank page";
        LPN:  4, "logical page, the highest one of a list of trims, translation page, log, or erase count, by kind";
        SEQ:  6, "write sequence: every program takes the next; a copy keeps its own or takes one; its highest bit says whether `paired_pages` is `slc`";
    }
}

/// The version of everything that this library writes to flash: spare areas, roots, translation
/// pages, logs, pages of records, and the host's log. It increases with any incompatible change,
/// and is at most 6: 7 is a blank page.
pub const FORMAT_VERSION: u8 = 1;

/// Bit position of the version in the byte of the kind.
const VERSION_SHIFT: u32 = 5;
const KIND_BITS: u8 = (1 << VERSION_SHIFT) - 1;
const BLANK: u8 = 0xff >> VERSION_SHIFT;

/// Set in the byte of the kind if the page has [`sums`](super::sums).
pub(super) const CHECKED: u8 = 1 << 3;

/// Bits in each page for the settings with which it was written: in the byte of the kind, and in
/// the last byte of the write sequence. Reads toggle the bits of the present settings, so that the
/// layers above see only differences, and a mount refuses such a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks {
    kind: u8,
    seq: u8,
}

/// Set in the byte of the kind if pairs are closed, and in the last byte of the sequence if blocks
/// use lower pages only ([`PairedPages`]).
const CLOSED: u8 = 1 << 2;
const SLC: u8 = 1 << 7;

impl Marks {
    /// The marks for a configuration.
    pub(super) fn of(config: &Config) -> Marks {
        let checked = if config.checksums { CHECKED } else { 0 };
        let (kind, seq) = match config.paired_pages {
            PairedPages::Ignored => (0, 0),
            PairedPages::Closed => (CLOSED, 0),
            PairedPages::Slc => (0, SLC),
        };
        Marks {
            kind: kind | checked,
            seq,
        }
    }

    /// Whether no bit is set.
    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Marks::default()
    }

    /// Sets or removes the marks in a spare area. A blank page has none.
    pub(super) fn toggle(self, spare: &mut [u8]) {
        if spare
            .get(header::KIND.start)
            .is_none_or(|&kind| kind == 0xff)
        {
            return;
        }
        spare[header::KIND.start] ^= self.kind;
        if let Some(last) = spare.get_mut(header::SEQ.end - 1) {
            *last ^= self.seq;
        }
    }

    /// Whether a spare area belongs to a page without checksums, whatever its other marks are.
    pub(super) fn is_page_without_sums(spare: &[u8]) -> bool {
        let mut bare = [0xff; header::SIZE];
        bare.copy_from_slice(&spare[..header::SIZE]);
        bare[header::KIND.start] &= !CLOSED;
        Header::parse(&bare).is_some()
    }

    /// Refuses a page that was written with other settings, and names the difference.
    fn refuse(spare: &[u8]) -> Result<(), FtlError> {
        let (kind, seq) = (spare[header::KIND.start], spare[header::SEQ.end - 1]);
        if kind & CHECKED != 0 {
            return Err(FtlError::Foreign(
                "one of the device and its settings has checksums, and the other has none: open it \
                 with `checksums` as it was when the device was first written"
                    .into(),
            ));
        }
        let (one, other) = match (kind & CLOSED != 0, seq & SLC != 0) {
            (false, false) => return Ok(()),
            (true, false) => (PairedPages::Ignored, PairedPages::Closed),
            (false, true) => (PairedPages::Ignored, PairedPages::Slc),
            (true, true) => (PairedPages::Closed, PairedPages::Slc),
        };
        // A sequence that exceeds its range looks like the mark.
        let beyond = match other {
            PairedPages::Slc => "; or it has a write sequence that no device comes to",
            _ => "",
        };
        Err(FtlError::Foreign(format!(
            "one of the device and its settings has `paired_pages` at `{one}`, and the other at \
             `{other}`: open it with `paired_pages` as it was when the device was first \
             written{beyond}"
        )))
    }
}

/// Maximum length of a tail.
pub const TAIL_BYTES_MAX: usize = 40;

/// The kind of a page.
///
/// Example: [`Header`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PageKind {
    /// A version of a logical page.
    Data = 0x01,
    /// A version of a logical page without contents (trim).
    Trim = 0x02,
    /// The last page of a full block: the spare records of all pages before it.
    Summary = 0x03,
    /// A page of the mapping table.
    Map = 0x10,
    /// A part of a root: where the mapping table is, which blocks are bad.
    Root = 0x11,
    /// A page of a log.
    Log = 0x12,
    /// A trim of many logical pages: see [`trim_list`].
    Trims = 0x13,
}

/// The header of a page that is not blank.
///
/// ```
/// use flagstone::ftl::{Header, PageKind, header};
/// use flagstone::units::Lpn;
///
/// let written = Header { kind: PageKind::Data, lpn: Lpn(7), seq: 42 };
/// let mut spare = [0xff; header::SIZE];
/// assert_eq!(Header::parse(&spare), None);
/// written.emit(&mut spare);
/// assert_eq!(Header::parse(&spare), Some(written));
/// assert!(written.is_version());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the page.
    pub kind: PageKind,
    /// The logical page for data; for the other kinds see [`header`].
    pub lpn: Lpn,
    /// The write sequence.
    pub seq: u64,
}

impl Header {
    /// Encodes the header into the first bytes of a spare area.
    #[inline]
    pub fn emit(&self, spare: &mut [u8]) {
        spare[header::KIND.start] = self.kind as u8 | FORMAT_VERSION << VERSION_SHIFT;
        put(spare, header::LPN, self.lpn.0.into());
        put(spare, header::SEQ, self.seq);
    }

    /// Decodes a header. `None` for a blank page, an unknown kind or another version.
    #[inline]
    pub fn parse(spare: &[u8]) -> Option<Header> {
        let byte = spare[header::KIND.start];
        if byte >> VERSION_SHIFT != FORMAT_VERSION {
            return None;
        }
        let kind = match byte & KIND_BITS {
            0x01 => PageKind::Data,
            0x02 => PageKind::Trim,
            0x03 => PageKind::Summary,
            0x10 => PageKind::Map,
            0x11 => PageKind::Root,
            0x12 => PageKind::Log,
            0x13 => PageKind::Trims,
            _ => return None,
        };
        Some(Header {
            kind,
            lpn: Lpn(get(spare, header::LPN) as u32),
            seq: get(spare, header::SEQ),
        })
    }

    /// Like [`Header::parse`], while mounting: an unknown header is an error.
    ///
    /// # Errors
    /// The page was written with another version of the format, or has an impossible sequence.
    #[inline]
    pub(super) fn parse_any(spare: &[u8]) -> Result<Option<Header>, FtlError> {
        let version = spare[header::KIND.start] >> VERSION_SHIFT;
        if version != FORMAT_VERSION && version != BLANK {
            return Err(FtlError::Foreign(format!(
                "it was written with version {version} of the format, this program reads version \
                 {FORMAT_VERSION}: open it with the program that wrote it, or begin with a blank \
                 device"
            )));
        }
        if version == FORMAT_VERSION {
            Marks::refuse(spare)?;
        }
        let head = Header::parse(spare);
        if let Some(head) = head {
            doubt_number("write sequence", head.seq, 48)?;
        }
        Ok(head)
    }

    /// Whether the page is a version of logical pages: data, a trim, or a list of trims.
    #[inline]
    pub fn is_version(&self) -> bool {
        matches!(self.kind, PageKind::Data | PageKind::Trim | PageKind::Trims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_these_bytes() {
        let header = Header {
            kind: PageKind::Trim,
            lpn: Lpn(0x0403_0201),
            seq: 0x0a09_0807_0605,
        };
        let mut spare = [0xff; 12];
        header.emit(&mut spare);
        assert_eq!(spare, [0x22, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xff]);
        assert_eq!(Header::parse(&spare), Some(header));
        assert_eq!(Header::parse_any(&spare), Ok(Some(header)));
        assert_eq!(Header::parse(&[0xff; 12]), None);
        assert_eq!(Header::parse_any(&[0xff; 12]), Ok(None));
    }

    #[test]
    fn a_header_of_another_version_is_none_and_says_so() {
        let (kind, lpn, seq) = (PageKind::Root, Lpn(3), 4);
        let mut spare = [0xff; 12];
        Header { kind, lpn, seq }.emit(&mut spare);
        for version in (0..7).filter(|&version| version != FORMAT_VERSION) {
            spare[header::KIND.start] = kind as u8 | version << VERSION_SHIFT;
            assert_eq!(Header::parse(&spare), None);
            let Err(FtlError::Foreign(why)) = Header::parse_any(&spare) else {
                panic!("version {version} is taken");
            };
            assert!(why.contains(&format!("version {version} of the format")));
        }
    }

    #[test]
    fn a_sequence_that_could_be_the_last_one_is_refused() {
        let mut spare = [0xff; header::SIZE];
        let mut parse = |seq| {
            let (kind, lpn) = (PageKind::Data, Lpn(3));
            Header { kind, lpn, seq }.emit(&mut spare);
            Header::parse_any(&spare)
        };
        assert!(parse((1 << 47) - 1).is_ok());
        assert!(parse((1 << 48) - 1).is_err());
    }

    #[test]
    fn every_kind_leaves_the_version_its_bits() {
        for kind in [
            PageKind::Data,
            PageKind::Trim,
            PageKind::Summary,
            PageKind::Map,
            PageKind::Root,
            PageKind::Log,
            PageKind::Trims,
        ] {
            assert_eq!(kind as u8 & (!KIND_BITS | CHECKED), 0, "{kind:?}");
        }
        const { assert!(FORMAT_VERSION < BLANK) };
    }
}
