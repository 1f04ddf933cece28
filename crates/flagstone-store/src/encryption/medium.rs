//! A medium that encrypts writes, and decrypts and verifies reads.
//!
//! The layers above read and write pages of 4096 bytes as without encryption. Anything that fails
//! verification is passed up with a wrong checksum, so it looks like a damaged page, mark or
//! superblock.
//!
//! ```text
//!   above   | data 4032            | spare 34 | 0xff 16 | bytes 2 | generation 8 | CRC 4 |
//!   medium  | data, spare 34, bytes, CRC: 4072, encrypted                | generation 8 | tag 16 |
//! ```

use super::key::{LOCK_AT, LOCK_BYTES, Lock, Secret, cipher, locked};
use super::{lock, sealed_end, sealed_mark};
use crate::flash::{SAYS_AT, mark, mark_says, trailer};
use crate::medium::{Expecting, Medium, pieces};
use crate::superblock::{ENCRYPTED_VERSION, ENCRYPTED_VERSIONS, STORE_VERSION};
use crate::superblock::{MEDIUM_PAGE_BYTES, superblock};
use aes_gcm_siv::Aes256GcmSiv;
use aes_gcm_siv::aead::AeadInOut;
use flagstone::layout::{get, put};
use std::io;

type Page = [u8; MEDIUM_PAGE_BYTES];

/// Data bytes of a page.
const DATA: usize = MEDIUM_PAGE_BYTES - trailer::SIZE;
/// Encrypted bytes of a page.
const CLOSED: usize = MEDIUM_PAGE_BYTES - sealed_end::SIZE;
/// Encrypted bytes of data and spare area.
const SHOWN: usize = DATA + Encrypted::SPARE_BYTES;
const BYTES: usize = trailer::BYTES.end - trailer::BYTES.start;
/// Pages before the first mark.
const HEAD_PAGES: u64 = 2;
/// Authenticated bytes of a mark.
const MARKED: usize = mark::CRC.end;

/// An encrypting medium.
pub(super) struct Encrypted {
    inner: Box<dyn Medium>,
    cipher: Aes256GcmSiv,
    lock: Lock,
    /// Distance between two marks, in pages.
    stride: u64,
}

/// The range of a trailer field within a page.
fn trailer_at(field: std::ops::Range<usize>) -> std::ops::Range<usize> {
    DATA + field.start..DATA + field.end
}

/// The byte that fills the unused part of a spare area. Zero for tables at rest, which have no
/// spare area; the highest bit of their generation is set.
fn fill(generation: u64) -> u8 {
    if generation >> 63 == 0 { 0xff } else { 0 }
}

/// Input for nonces and associated data. Each kind of object has its own word.
struct Place {
    nonce: [u8; 12],
    about: [u8; 24],
}

impl Place {
    fn new(what: &[u8; 8], place: u64, generation: u64) -> Place {
        let mut made = Place {
            nonce: [0; 12],
            about: [0; 24],
        };
        made.nonce[..4].copy_from_slice(&(place as u32).to_le_bytes());
        made.nonce[4..].copy_from_slice(&generation.to_le_bytes());
        made.about[..8].copy_from_slice(what);
        made.about[8..16].copy_from_slice(&place.to_le_bytes());
        made.about[16..].copy_from_slice(&generation.to_le_bytes());
        made
    }
}

/// An authentication tag for data that is not encrypted.
fn tag(
    cipher: &Aes256GcmSiv,
    what: &[u8; 8],
    place: u64,
    generation: u64,
    bytes: &[u8],
) -> [u8; 16] {
    let at = Place::new(what, place, generation);
    let about = [&at.about[..], bytes].concat();
    let none: &mut [u8] = &mut [];
    let tag = cipher.encrypt_inout_detached(&at.nonce.into(), &about, none.into());
    tag.expect("nothing is not too long").into()
}

/// The checksum of a superblock page.
fn superblock_sum(page: &[u8]) -> u32 {
    crate::sum::crc32c(&page[..superblock::CRC.start])
}

/// The proof of a superblock page with its lock.
fn proof(cipher: &Aes256GcmSiv, place: u64, page: &[u8]) -> [u8; 16] {
    let sequence = get(page, superblock::SEQUENCE);
    let before = &page[..LOCK_AT + LOCK_BYTES];
    tag(cipher, b"head....", place, sequence, before)
}

/// Whether a superblock page was written with this data key.
pub(super) fn is_proven(cipher: &Aes256GcmSiv, place: u64, page: &[u8]) -> bool {
    locked(page).is_some() && page[LOCK_AT..][lock::PROOF] == proof(cipher, place, page)
}

impl Encrypted {
    /// Usable bytes of a spare area.
    pub(super) const SPARE_BYTES: usize = 34;

    pub(super) fn new(
        inner: Box<dyn Medium>,
        data_key: &Secret,
        lock: Lock,
        pages_per_block: u32,
    ) -> Encrypted {
        Encrypted {
            inner,
            cipher: cipher(data_key),
            lock,
            stride: u64::from(pages_per_block) + 1,
        }
    }

    /// Whether `place` holds a mark. Tables at rest may lie there as well.
    fn is_mark(&self, place: u64) -> bool {
        place >= HEAD_PAGES && (place - HEAD_PAGES).is_multiple_of(self.stride)
    }

    /// Encrypts page `place` of the medium for writing. Its place and contents tell its kind:
    /// superblock, mark, page of a block, or zeros.
    ///
    /// # Errors
    /// As [`Encrypted::close_page`].
    fn close(&self, place: u64, page: &[u8]) -> io::Result<Page> {
        let is_blank = page.iter().all(|&byte| byte == 0);
        Ok(if place < HEAD_PAGES && !is_blank {
            self.close_superblock(place, page)
        } else if self.is_mark(place) && (is_blank || page.starts_with(b"Mark")) {
            let mut closed: Page = page.try_into().expect("pages are whole");
            let tag = self.mark_tag(place, &closed);
            closed.copy_within(mark::IDENTITY, MARKED + sealed_mark::IDENTITY.start);
            closed[MARKED..][sealed_mark::TAG].copy_from_slice(&tag);
            closed
        } else if is_blank {
            [0; MEDIUM_PAGE_BYTES]
        } else {
            self.close_page(place, page)?
        })
    }

    /// Decrypts and verifies a page after reading.
    fn open(&self, place: u64, page: &mut Page) {
        if place < HEAD_PAGES {
            self.open_superblock(place, page);
        } else if self.is_mark(place) && !self.is_page(place, page) {
            self.open_mark(place, page);
        } else {
            self.open_page(place, page);
        }
    }

    /// Encrypts a page of a block, or of tables at rest.
    ///
    /// # Errors
    /// Its spare area is longer than [`Encrypted::SPARE_BYTES`].
    fn close_page(&self, place: u64, page: &[u8]) -> io::Result<Page> {
        let generation = get(page, trailer_at(trailer::GENERATION));
        let unused = &page[SHOWN..DATA + trailer::SPARE.end];
        if unused.iter().any(|&byte| byte != fill(generation)) {
            return Err(io::Error::other(format!(
                "the spare area of page {place} has more than there is room for"
            )));
        }
        let mut closed = [0; MEDIUM_PAGE_BYTES];
        closed[..SHOWN].copy_from_slice(&page[..SHOWN]);
        closed[SHOWN..SHOWN + BYTES].copy_from_slice(&page[trailer_at(trailer::BYTES)]);
        closed[SHOWN + BYTES..CLOSED].copy_from_slice(&page[trailer_at(trailer::CRC)]);
        let at = Place::new(b"page....", place, generation);
        let (bytes, end) = closed.split_at_mut(CLOSED);
        let tag = self
            .cipher
            .encrypt_inout_detached(&at.nonce.into(), &at.about, bytes.into());
        put(end, sealed_end::GENERATION, generation);
        end[sealed_end::TAG].copy_from_slice(&tag.expect("a page is not too long"));
        Ok(closed)
    }

    /// Decrypts a page in place. Returns whether it is authentic.
    fn decrypt(&self, place: u64, page: &mut Page) -> bool {
        let (bytes, end) = page.split_at_mut(CLOSED);
        let generation = get(end, sealed_end::GENERATION);
        let at = Place::new(b"page....", place, generation);
        let tag: [u8; 16] = end[sealed_end::TAG].try_into().expect("it has that size");
        let done = self.cipher.decrypt_inout_detached(
            &at.nonce.into(),
            &at.about,
            bytes.into(),
            &tag.into(),
        );
        done.is_ok()
    }

    fn is_page(&self, place: u64, page: &Page) -> bool {
        self.decrypt(place, &mut page.clone())
    }

    /// Decrypts a page of a block, or of tables at rest. One that fails authentication keeps its
    /// generation and gets an impossible length, so that the layer above finds it damaged.
    fn open_page(&self, place: u64, page: &mut Page) {
        let generation = get(page, CLOSED..CLOSED + 8);
        if generation == 0 {
            // No valid data was ever written there.
            page.fill(0);
            return;
        }
        let is_right = self.decrypt(place, page);
        let mut opened = [0; MEDIUM_PAGE_BYTES];
        put(&mut opened, trailer_at(trailer::GENERATION), generation);
        if is_right {
            opened[..SHOWN].copy_from_slice(&page[..SHOWN]);
            opened[SHOWN..DATA + trailer::SPARE.end].fill(fill(generation));
            opened[trailer_at(trailer::BYTES)].copy_from_slice(&page[SHOWN..SHOWN + BYTES]);
            opened[trailer_at(trailer::CRC)].copy_from_slice(&page[SHOWN + BYTES..CLOSED]);
        } else {
            // The page is damaged even if its checksum matches.
            opened[trailer_at(trailer::BYTES)].fill(0xff);
        }
        *page = opened;
    }

    fn mark_tag(&self, place: u64, page: &Page) -> [u8; 16] {
        let generation = get(page, mark::GENERATION);
        let bytes = &page[..MARKED];
        tag(&self.cipher, b"mark....", place, generation, bytes)
    }

    fn open_mark(&self, place: u64, page: &mut Page) {
        let tag = self.mark_tag(place, page);
        if page[MARKED..][sealed_mark::TAG] != tag {
            // A value that is neither a mark nor zeros.
            page[..MARKED].fill(0xff);
        }
        // The statement behind the mark is not encrypted, and has its own checksum.
        page[MARKED..SAYS_AT].fill(0);
        page[SAYS_AT + mark_says::SIZE..].fill(0);
    }

    /// Turns a plain superblock into one of an encrypted store. Changes its version, and adds the
    /// lock, which has the data key wrapped by the user's key, and the proof, a tag by the data key
    /// over all this. A superblock with a wrong checksum, which was damaged when it was read, must
    /// stay damaged: it gets a wrong checksum and a wrong proof.
    fn close_superblock(&self, place: u64, page: &[u8]) -> Page {
        let mut closed: Page = page.try_into().expect("pages are whole");
        let is_right = get(page, superblock::CRC) == superblock_sum(page).into();
        put(&mut closed, superblock::VERSION, ENCRYPTED_VERSION);
        let sum = superblock_sum(&closed);
        let sum = if is_right { sum } else { !sum };
        put(&mut closed, superblock::CRC, sum.into());
        // LOCK_BYTES end before the lock's own checksum and the proof.
        closed[LOCK_AT..][..LOCK_BYTES].copy_from_slice(&self.lock);
        let sum = crate::sum::crc32c(&closed[..LOCK_AT + LOCK_BYTES]);
        put(&mut closed[LOCK_AT..], lock::CRC, sum.into());
        let mut proof = proof(&self.cipher, place, &closed);
        if !is_right {
            proof[0] = !proof[0];
        }
        closed[LOCK_AT..][lock::PROOF].copy_from_slice(&proof);
        closed
    }

    /// Turns a superblock of an encrypted store into one of the plain format of its version, with a
    /// right checksum only if its proof is right.
    fn open_superblock(&self, place: u64, page: &mut Page) {
        if page.iter().all(|&byte| byte == 0) {
            return;
        }
        let is_right = is_proven(&self.cipher, place, &page[..]);
        page[superblock::SIZE..].fill(0);
        let version = get(&page[..], superblock::VERSION);
        let mut versions = ENCRYPTED_VERSIONS.iter();
        let within = versions.find(|&&(of_it, _)| of_it == version);
        let within = within.map_or(STORE_VERSION, |&(_, within)| within);
        put(&mut page[..], superblock::VERSION, within);
        let sum = superblock_sum(&page[..]);
        let sum = if is_right { sum } else { !sum };
        put(&mut page[..], superblock::CRC, sum.into());
    }
}

impl Medium for Encrypted {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let page_bytes = MEDIUM_PAGE_BYTES as u64;
        let first = offset / page_bytes;
        let end = (offset + into.len() as u64).div_ceil(page_bytes);
        let mut pages = vec![[0; MEDIUM_PAGE_BYTES]; (end - first) as usize];
        self.inner
            .read_at(first * page_bytes, pages.as_flattened_mut())?;
        let mut rest = into;
        let parts = pieces(MEDIUM_PAGE_BYTES, offset, rest.len() as u64);
        for (page, (place, inside, bytes)) in pages.iter_mut().zip(parts) {
            let (now, later) = rest.split_at_mut(bytes);
            rest = later;
            // A read of this length from a place of a mark is a read of the mark.
            if bytes == mark::SIZE && self.is_mark(place) {
                self.open_mark(place, page)
            } else {
                self.open(place, page)
            }
            now.copy_from_slice(&page[inside..inside + bytes]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let parts: Vec<&[u8]> = bytes.chunks(MEDIUM_PAGE_BYTES).collect();
        self.write_joined(offset, &parts)
    }

    fn write_joined(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let first = offset / MEDIUM_PAGE_BYTES as u64;
        let places = (first..).zip(parts);
        // A superblock may be written as its first sector only.
        let close = |(place, part): (u64, &&[u8])| {
            let mut page = [0; MEDIUM_PAGE_BYTES];
            page[..part.len()].copy_from_slice(part);
            self.close(place, &page)
        };
        let closed: io::Result<Vec<Page>> = places.map(close).collect();
        let closed = closed?;
        let closed = closed.iter().zip(parts);
        let closed: Vec<&[u8]> = closed.map(|(page, part)| &page[..part.len()]).collect();
        self.inner.write_joined(offset, &closed)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn most(&self) -> Option<u64> {
        self.inner.most()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)
    }

    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        self.inner.lengthen(bytes)
    }

    fn can_shorten(&self) -> bool {
        self.inner.can_shorten()
    }

    /// A store that grows again writes new marks before it uses these blocks.
    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.inner.shorten(bytes)
    }

    fn is_thin(&self) -> bool {
        self.inner.is_thin()
    }

    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.take(offset, bytes)
    }

    fn left(&self) -> Option<u64> {
        self.inner.left()
    }

    /// Keeps the mark: an authentic mark says that its block has no pages; zeros do not.
    fn prepare(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        let (offset, bytes) = self.but_mark(offset, bytes);
        self.inner.prepare(offset, bytes)
    }

    fn expecting(&self) -> Option<Expecting> {
        self.inner.expecting()
    }

    fn refresh(&self) -> io::Result<()> {
        self.inner.refresh()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.inner.discard(offset, bytes)
    }

    fn prepare_ahead(&self, offset: u64, bytes: usize) {
        let (offset, bytes) = self.but_mark(offset, bytes);
        self.inner.prepare_ahead(offset, bytes);
    }

    fn end_preparing(&self, offset: u64, bytes: usize) {
        let (offset, bytes) = self.but_mark(offset, bytes);
        self.inner.end_preparing(offset, bytes);
    }
}

impl Encrypted {
    /// The part of a range after the mark at its begin.
    fn but_mark(&self, offset: u64, bytes: usize) -> (u64, usize) {
        if self.is_mark(offset / MEDIUM_PAGE_BYTES as u64) {
            (offset + MEDIUM_PAGE_BYTES as u64, bytes - MEDIUM_PAGE_BYTES)
        } else {
            (offset, bytes)
        }
    }
}
