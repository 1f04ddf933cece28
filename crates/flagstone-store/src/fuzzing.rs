//! Entry points of the fuzz targets in `fuzz/`. Each function passes its bytes to parsers of a
//! store, and returns whether any parser accepted them. None may panic, whatever the bytes are. The
//! tests here run the same functions on seeded damage.
//!
//! Checksums reject nearly all damage. Where a function tests the code behind a checksum, it
//! corrects the checksum after the damage: a faulty writer would write a correct checksum, too.

mod held;
#[cfg(test)]
mod tests;

pub use held::{Held, disk, tables, typed};

use crate::flash::{DAMAGED, NEVER, emit_mark, generation_in, page_generation, page_sum};
use crate::flash::{mark, mark_sum, signer_of, trailer};
use crate::identity::Identity;
use crate::medium::{Memory, Recorded};
use crate::superblock::{MEDIUM_PAGE_BYTES, Superblock, superblock, superblock_v1};
use crate::{OpenOptions, PageStore, StoreError};
use flagstone::commit::Kind;
use flagstone::layout::{get, put};
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Pages per block of the stores here: the fewest that a store can have.
const PAGES_PER_BLOCK: u32 = 16;

/// A page of the medium that begins with `bytes`.
fn page_of(bytes: &[u8]) -> [u8; MEDIUM_PAGE_BYTES] {
    let mut page = [0; MEDIUM_PAGE_BYTES];
    let len = bytes.len().min(MEDIUM_PAGE_BYTES);
    page[..len].copy_from_slice(&bytes[..len]);
    page
}

/// Corrects the checksum of a superblock, according to its version.
fn seal_superblock(page: &mut [u8]) {
    let crc = match get(page, superblock::VERSION) {
        1 => superblock_v1::CRC,
        _ => superblock::CRC,
    };
    let sum = crate::sum::crc32c(&page[..crc.start]);
    put(page, crc, sum.into());
}

/// The identity of the stores used here.
const IDENTITY: u64 = 0x5eed_1de7_717f_1a95;

/// Corrects the checksum of a mark.
fn seal_mark(page: &mut [u8]) {
    let sum = mark_sum(page, Identity::of(IDENTITY));
    put(page, mark::CRC, sum);
}

/// Corrects the checksum of a page with page number `number`.
fn seal_page(page: &mut [u8], number: u32) {
    let end = MEDIUM_PAGE_BYTES - trailer::SIZE;
    let sum = page_sum(&page[..end + trailer::CRC.start], number, IDENTITY);
    put(&mut page[end..], trailer::CRC, sum.into());
}

/// Parses the two halves of `bytes` as superblocks, as they are and with corrected checksums. An
/// accepted superblock of the current version must encode to the same bytes.
pub fn head(bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut pages = [page_of(first), page_of(second)];
    let as_they_are = Superblock::read(&Memory::with(pages.concat()));
    for page in &mut pages {
        seal_superblock(page);
        if let Ok(Some(parsed)) = Superblock::parse(page) {
            let again = Superblock::parse(&parsed.emit());
            let again = again.expect("it was read").expect("it is one");
            // Version 1 does not store whether the store was closed.
            assert_eq!(again.closed, Some(parsed.closed == Some(true)));
            let closed = again.closed;
            assert_eq!(again, Superblock { closed, ..parsed });
        }
    }
    let sealed = Superblock::read(&Memory::with(pages.concat()));
    [as_they_are, sealed]
        .iter()
        .any(|head| matches!(head, Ok(Some(_))))
}

/// Reads a number (4 bytes), then a mark or page with that number, as it is and with a corrected
/// checksum. An accepted mark must encode to the same bytes.
pub fn page(bytes: &[u8]) -> bool {
    let Some((number, bytes)) = bytes.split_first_chunk() else {
        return false;
    };
    let number = u32::from_le_bytes(*number);
    let whole = page_of(bytes);
    let mut sealed = whole;
    seal_page(&mut sealed, number);
    let generation = get(
        &sealed[MEDIUM_PAGE_BYTES - trailer::SIZE..],
        trailer::GENERATION,
    );
    let identity = Identity::of(IDENTITY);
    let found = page_generation(&sealed, number, identity);
    assert!(found.is_none_or(|found| found == identity.combine(generation)));
    let mut sealed = whole;
    seal_mark(&mut sealed);
    page_generation(&whole, number, identity).is_some()
        || [whole, sealed].iter().any(|page| mark(page, number))
}

/// Whether a page is the mark of a block. If so, it must encode to the same bytes.
fn mark(page: &[u8; MEDIUM_PAGE_BYTES], block: u32) -> bool {
    let found = page.first_chunk().expect("it is longer");
    let identity = Identity::of(IDENTITY);
    let generation = generation_in(found, block, identity);
    let is_mark = ![NEVER, DAMAGED].contains(&generation);
    if is_mark {
        let again = emit_mark(block, generation, identity);
        assert_eq!(again[..mark::IDENTITY.start], found[..mark::IDENTITY.start]);
    }
    let signed = page.first_chunk().expect("it is longer");
    if let Some((block, signer)) = signer_of(signed) {
        let found = generation_in(found, block, signer);
        assert!(![NEVER, DAMAGED].contains(&found));
    }
    is_mark
}

/// A whole store in memory. The first byte selects a protocol and whether the store was closed. The
/// rest is damage to such a store, [`EDIT`] bytes per edit. The store is opened, checked, read and
/// written.
pub fn store(bytes: &[u8]) -> bool {
    open_damaged(bytes).is_ok()
}

/// Opens a damaged store and returns its contents, or the error.
fn open_damaged(bytes: &[u8]) -> Result<Pages, StoreError> {
    static WHOLE: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let all = WHOLE.get_or_init(|| {
        let kinds = [false, true].into_iter();
        let kinds = kinds.flat_map(|closed| protocols().map(move |kind| contents(kind, closed)));
        kinds.collect()
    });
    let Some((&which, edits)) = bytes.split_first() else {
        return Err(StoreError::Options("it names no protocol".into()));
    };
    let mut contents = all[usize::from(which) % all.len()].clone();
    let blocks = get(&contents[MEDIUM_PAGE_BYTES..], superblock::BLOCKS) as u32;
    for edit in edits.chunks_exact(EDIT) {
        damage(&mut contents, blocks, edit);
    }
    use_store(contents)
}

/// The role of a page of the medium, with its number among pages of that role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Mark,
    Page(u32),
    /// Behind the last block: tables that a close left.
    AtRest(u32),
}

impl Part {
    fn of(at: usize, blocks: u32) -> Part {
        let stride = PAGES_PER_BLOCK + 1;
        let Some(behind) = (at as u32).checked_sub(2) else {
            return Part::Head;
        };
        match (behind / stride, behind % stride) {
            (block, _) if block >= blocks => Part::AtRest(behind - blocks * stride),
            (_, 0) => Part::Mark,
            (block, inside) => Part::Page(block * PAGES_PER_BLOCK + inside - 1),
        }
    }

    /// Corrects the checksum of a page of this role.
    fn seal(self, page: &mut [u8]) {
        match self {
            Part::Head => seal_superblock(page),
            Part::Mark => seal_mark(page),
            Part::Page(number) | Part::AtRest(number) => seal_page(page, number),
        }
    }
}

/// Bytes of one edit: the operation, a page of the medium (2), an offset in it (2), and a value.
pub const EDIT: usize = 6;

/// Applies one edit to a medium with a store of `blocks` blocks. Two bits of its page number select
/// the kind of page; the first byte also says whether the checksum is corrected afterwards.
fn damage(contents: &mut Vec<u8>, blocks: u32, edit: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
    let (place, value) = (word(3) % MEDIUM_PAGE_BYTES, edit[5]);
    // Damage to a page of zeros is of no interest.
    let pages = (0..).zip(contents.chunks_exact(MEDIUM_PAGE_BYTES));
    let written = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0));
    let written: Vec<usize> = written.map(|(at, _)| at).collect();
    // Superblocks, marks and tables of a close are few, but rich in fields: damage them more often.
    let is_asked = |&at: &usize| match (word(1) >> 14, Part::of(at, blocks)) {
        (0, part) => part == Part::Head,
        (1, part) => part == Part::Mark,
        (2, part) => matches!(part, Part::Page(_)),
        (_, part) => matches!(part, Part::AtRest(_)),
    };
    let asked: Vec<usize> = written.iter().copied().filter(is_asked).collect();
    if asked.is_empty() {
        return;
    }
    let at = asked[word(1) % asked.len()];
    let part = Part::of(at, blocks);
    let range = at * MEDIUM_PAGE_BYTES..(at + 1) * MEDIUM_PAGE_BYTES;
    let end = MEDIUM_PAGE_BYTES - trailer::SIZE;
    let place = match part {
        Part::Head => place % superblock::SIZE,
        Part::Mark => place % mark::SIZE,
        // Damage the trailer more often than user data.
        Part::Page(_) if edit[0] & 0x40 == 0 => end + place % trailer::SIZE,
        Part::Page(_) | Part::AtRest(_) => place,
    };
    let page = &mut contents[range.clone()];
    match edit[0] % 6 {
        0 => page[place] ^= value,
        1 => page[place] = value,
        // Overwrites an integer of up to eight bytes.
        2 => {
            let end = (place + 8).min(MEDIUM_PAGE_BYTES);
            page[place..end].fill(value);
        }
        3 => page.fill(0),
        4 => {
            let from = written[word(3) % written.len()] * MEDIUM_PAGE_BYTES;
            contents.copy_within(from..from + MEDIUM_PAGE_BYTES, range.start);
        }
        _ => return contents.truncate(range.start + place),
    }
    if edit[0] & 0x80 != 0 {
        part.seal(&mut contents[range]);
    }
}

/// The protocols that stores support.
fn protocols() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(|kind| !kind.info().reprograms)
}

/// The contents of a store's pages.
type Pages = BTreeMap<u32, Vec<u8>>;

/// Number of pages that the history writes to.
const PAGES: u32 = 40;

/// The writes of a round of the history. `None` trims the page.
fn writes(round: u32) -> impl Iterator<Item = (u32, Option<Vec<u8>>)> {
    (0..3).map(move |i| {
        let trims = round % 9 == 8 && i == 0;
        let bytes = vec![round as u8 + 1; 5 + (round * 31 + i) as usize % 900];
        ((round * 5 + i * 7) % PAGES, (!trims).then_some(bytes))
    })
}

/// Rounds of the history: enough to collect blocks and write roots.
const ROUNDS: u32 = 90;

/// Whether a round is rolled back. `plain` has no rollback.
fn aborts(protocol: Kind, round: u32) -> bool {
    round % 4 == 3 && protocol != Kind::Plain
}

/// Executes one round.
fn play(store: &mut PageStore, round: u32, aborts: bool) -> Result<(), StoreError> {
    let tx = store.begin()?;
    for (at, bytes) in writes(round) {
        match bytes {
            Some(bytes) => store.write(tx, Lpn(at), &bytes)?,
            None => store.trim(tx, Lpn(at))?,
        }
    }
    if aborts {
        store.abort(tx)
    } else {
        store.commit(tx)
    }
}

/// The medium after the history. The store was closed, or its process was killed.
fn contents(protocol: Kind, closed: bool) -> Vec<u8> {
    let medium = Recorded::default();
    let options = OpenOptions {
        pages_per_block: PAGES_PER_BLOCK,
        identity: Some(IDENTITY),
        ..OpenOptions::default().with_protocol(protocol)
    };
    let opened = PageStore::on(Box::new(medium.clone()), &options);
    let mut store = opened.expect("the medium is blank");
    for round in 0..ROUNDS {
        play(&mut store, round, aborts(protocol, round)).expect("there is room");
    }
    let killed = medium.snapshot();
    store.close().expect("the medium does not fail");
    if closed {
        medium.to_vec()
    } else {
        killed.to_vec()
    }
}

/// The expected contents of a store after the history.
#[cfg(test)]
fn pages(protocol: Kind) -> Pages {
    let mut pages = Pages::new();
    for round in (0..ROUNDS).filter(|&round| !aborts(protocol, round)) {
        for (at, bytes) in writes(round) {
            match bytes {
                Some(bytes) => pages.insert(at, bytes),
                None => pages.remove(&at),
            };
        }
    }
    pages
}

/// Opens a store, checks, reads and writes it. Returns its contents before the writes.
fn use_store(contents: Vec<u8>) -> Result<Pages, StoreError> {
    let opened = PageStore::on(Box::new(Memory::with(contents)), &OpenOptions::existing());
    let mut store = opened?;
    store.info();
    store.check()?;
    let (mut pages, mut page) = (Pages::new(), vec![0; PageStore::PAGE_BYTES]);
    for at in store.held().collect::<Vec<_>>() {
        store.facts(at);
        if let Ok(Some(bytes)) = store.read(None, at, &mut page) {
            pages.insert(at.0, page[..bytes].to_vec());
        }
    }
    for round in 0..6 {
        play(&mut store, round, false)?;
    }
    store.close()?;
    Ok(pages)
}
