//! The engine of CFC and AFC. The pages of a transaction are linked in their spare areas. Each page
//! has a flag that is reprogrammed in place.
//!
//! ```text
//! spare  0      11        17    23     27         31     32     33
//!        | head | version | xid | link | link seq | born | flag |
//!                                                 outside of the ECC and of summary pages
//! ```
//!
//! A *link* names a page by its place and by the low half of its write sequence ([`Link`]). Every
//! program has a write sequence of its own, and so has a relocated copy. A link whose target is
//! gone therefore never finds another page. A copy keeps the *version* of its original: the write
//! sequence of the first program of this content.
//!
//! Codes       D8 of [`cfc`] and [`afc`]

pub(super) mod afc;
mod carriers;
pub(super) mod cfc;
mod dirty_pages;
mod tables;
mod scan;
mod waits;

use carriers::{Carriers, copy_in_place_of};
use dirty_pages::DirtyPages;
use scan::{NO_UNIT, Scanned, Units, is_before, scan};
use tables::Tables;
use waits::Waits;

use super::{Info, Isolation, Mode};
use crate::ftl::{
    BlockState, Cause, Format, Ftl, FtlError, Header, PageKind, TAIL_BYTES_MAX, header,
};
use crate::layout;
use crate::layout::{get, put};
use crate::nand::FlashError;
use crate::settings::Setting;
use crate::units::{Lpn, Nanos, Ppn, TxId};

layout! {
    /// The tail of a spare area under CFC and AFC.
    pub spare: 22 => {
        VERSION:  6, "version of the logical page: the write sequence of its first program";
        XID:      6, "transaction that wrote it";
        LINK:     4, "a page that the transaction wrote before; all ones for none";
        LINK_SEQ: 4, "low half of the write sequence of that page";
        BORN:     1, "commit flag when the page was programmed";
        FLAG:     1, "commit flag, reprogrammed in place";
    }
}

/// Bytes of the flag, at the end of the tail.
pub(super) const FLAG_BYTES: usize = spare::FLAG.end - spare::FLAG.start;

const BLOCK_FLAGS: Setting = Setting {
    name: "block_flags",
    default: "true",
    what: "whether all pages of a transaction in a block share one flag ([FlagCommit] §3.4), \
           instead of one flag per page",
};

/// The description common to both protocols.
const INFO: Info = Info {
    paper: "FlagCommit",
    isolation: Isolation::NoPageConflict,
    reprograms: true,
    modes: &[
        Mode::new("block-flags", &[]),
        Mode::new("page-flags", &[(BLOCK_FLAGS.name, "false")]),
    ],
    settings: &[BLOCK_FLAGS],
    tail: &[spare::RECORD],
    format: Format {
        tail_bytes: spare::SIZE,
        flag_bytes: FLAG_BYTES,
        ..Format::NONE
    },
    ..Info::new("", "")
};

/// Identifies a page by its place and its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) at: Ppn,
    pub(super) seq: u32,
}

impl Link {
    pub(super) fn to(at: Ppn, seq: u64) -> Link {
        Link {
            at,
            seq: seq as u32,
        }
    }
}

/// The contents of the tail of a spare area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) version: u64,
    pub(super) xid: TxId,
    pub(super) link: Option<Link>,
    /// The flag with which the page was programmed. [`Tail::emit`] stores `flag` as both.
    pub(super) born: u8,
    pub(super) flag: u8,
}

impl Tail {
    pub(super) fn parse(tail: &[u8]) -> Tail {
        let at = Ppn(get(tail, spare::LINK) as u32);
        let seq = get(tail, spare::LINK_SEQ) as u32;
        Tail {
            version: get(tail, spare::VERSION),
            xid: TxId(get(tail, spare::XID)),
            link: (at != Ppn::NONE).then_some(Link { at, seq }),
            born: tail[spare::BORN.start],
            flag: tail[spare::FLAG.start],
        }
    }

    pub(super) fn emit(&self, tail: &mut [u8]) {
        let none = Link {
            at: Ppn::NONE,
            seq: u32::MAX,
        };
        let link = self.link.unwrap_or(none);
        put(tail, spare::VERSION, self.version);
        put(tail, spare::XID, self.xid.0);
        put(tail, spare::LINK, link.at.0.into());
        put(tail, spare::LINK_SEQ, link.seq.into());
        tail[spare::BORN.start] = self.flag;
        tail[spare::FLAG.start] = self.flag;
    }
}

/// A shadow page, as described by its spare area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shadow {
    pub(super) at: Ppn,
    pub(super) kind: PageKind,
    pub(super) lpn: Lpn,
    /// Low half of its write sequence.
    pub(super) seq: u32,
    pub(super) tail: Tail,
}

impl Shadow {
    pub(super) fn parse(at: Ppn, head: &Header, tail: &[u8]) -> Shadow {
        Shadow {
            at,
            kind: head.kind,
            lpn: head.lpn,
            seq: head.seq as u32,
            tail: Tail::parse(tail),
        }
    }

    /// The transaction of each page.
    pub(super) fn xids(pages: &[Shadow]) -> impl Iterator<Item = TxId> {
        pages.iter().map(|page| page.tail.xid)
    }

    pub(super) fn link_to_it(&self) -> Link {
        Link {
            at: self.at,
            seq: self.seq,
        }
    }
}

/// Reads the spare area of a page. Returns `None` if it is blank, of another kind, unreadable, or
/// not plausible; and when the read was done.
pub(super) fn read_shadow(
    ftl: &mut Ftl,
    now: Nanos,
    at: Ppn,
    cause: Cause,
) -> Result<(Option<Shadow>, Nanos), FtlError> {
    let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
    let record = ftl.record_bytes();
    match ftl.read(now, at, &mut [], &mut spare[..record], cause) {
        Ok(read) => {
            let head = Header::parse(&spare).filter(Header::is_version);
            let head = head.filter(|head| ftl.believes(at, head.lpn));
            let shadow = head.map(|head| Shadow::parse(at, &head, &spare[header::SIZE..record]));
            Ok((shadow, read.done))
        }
        Err(FlashError::Uncorrectable { done, .. }) => Ok((None, done)),
        Err(other) => Err(other.into()),
    }
}

/// Follows a link of a page of `xid` to its target, if that is still the intended page. With
/// `trusted` links, as printed, returns whatever page is there now.
pub(super) fn follow(
    ftl: &mut Ftl,
    now: Nanos,
    xid: TxId,
    link: Link,
    trusted: bool,
    cause: Cause,
) -> Result<(Option<Shadow>, Nanos), FtlError> {
    // A link on flash may name a page beyond the device.
    let is_written = link.at.0 < ftl.geometry().pages()
        && matches!(
            ftl.blocks.state(ftl.geometry().block_of(link.at)),
            BlockState::Open | BlockState::Full | BlockState::Victim | BlockState::Stuck
        );
    if !is_written {
        return Ok((None, now));
    }
    let (target, done) = read_shadow(ftl, now, link.at, cause)?;
    let meant = |target: &Shadow| trusted || (target.tail.xid == xid && target.seq == link.seq);
    Ok((target.filter(meant), done))
}

/// For fuzzing: reads a tail.
pub(super) fn read_tail(bytes: &[u8]) {
    let mut again = bytes.to_vec();
    let tail = Tail::parse(bytes);
    tail.emit(&mut again);
    // The encoded initial flag is the flag itself.
    assert_eq!(
        Tail::parse(&again),
        Tail {
            born: tail.flag,
            ..tail
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_these_bytes_and_comes_back() {
        let mut bytes = [0; spare::SIZE];
        let tail = Tail {
            version: 0x0605_0403_0201,
            xid: TxId(0x0c0b_0a09_0807),
            link: Some(Link::to(Ppn(0x100f_0e0d), 0xaaaa_1413_1211)),
            born: 0x15,
            flag: 0x15,
        };
        tail.emit(&mut bytes);
        let mut right: Vec<u8> = (1..=0x15).collect();
        right.push(0x15);
        assert_eq!(bytes.as_slice(), right);
        assert_eq!(Tail::parse(&bytes), tail);
        let first = Tail { link: None, ..tail };
        first.emit(&mut bytes);
        assert_eq!(Tail::parse(&bytes), first);
    }

    #[test]
    fn the_summary_of_a_64_page_block_fits_a_2_kib_page() {
        let record = header::SIZE + spare::SIZE - FLAG_BYTES;
        assert_eq!(record * 63, 2_016);
    }
}
