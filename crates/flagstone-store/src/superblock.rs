//! The first two pages of a store: what it is, how large it is, and how often it was opened.
//!
//! The two are written in turn, so that one is whole whatever happens to the other. The valid one
//! with the higher sequence counts.

use crate::error::StoreError;
use crate::medium::Medium;
use flagstone::commit::Kind;
use flagstone::layout;
use flagstone::layout::{get, put};

/// Bytes of a page of the medium: a page of the store with what the store keeps for itself.
pub const MEDIUM_PAGE_BYTES: usize = 4096;

/// The version of what a store has beyond the pages of its device. It goes up with any change that
/// makes older stores mean something else.
pub const STORE_VERSION: u64 = 1;

const MAGIC: &[u8; 8] = b"Flagston";

layout! {
    /// The head of a store, at its begin and at byte 4096.
    pub superblock: 64 => {
        MAGIC:    8,  "Flagston";
        VERSION:  2,  "of this record and of what follows it";
        PAGES:    2,  "pages of a block";
        BLOCKS:   4,  "blocks, each behind a page that is its mark";
        BOOT:     4,  "counts the openings of the store that wrote to it";
        SEQUENCE: 8,  "counts superblocks";
        PROTOCOL: 16, "the commit protocol, by name, ended by zeros";
        SHAPE:    16, "zeros: kept for other forms of pages";
        CRC:      4,  "CRC-32C of the bytes before";
    }
}

/// What a superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) pages_per_block: u32,
    pub(crate) blocks: u32,
    pub(crate) boot: u32,
    pub(crate) sequence: u64,
    pub(crate) protocol: Kind,
}

impl Superblock {
    /// Where the one with a sequence lies.
    fn place(sequence: u64) -> u64 {
        sequence % 2 * MEDIUM_PAGE_BYTES as u64
    }

    fn emit(&self) -> Vec<u8> {
        let mut page = vec![0; MEDIUM_PAGE_BYTES];
        page[superblock::MAGIC].copy_from_slice(MAGIC);
        put(&mut page, superblock::VERSION, STORE_VERSION);
        put(&mut page, superblock::PAGES, self.pages_per_block.into());
        put(&mut page, superblock::BLOCKS, self.blocks.into());
        put(&mut page, superblock::BOOT, self.boot.into());
        put(&mut page, superblock::SEQUENCE, self.sequence);
        let name = self.protocol.info().name.as_bytes();
        page[superblock::PROTOCOL][..name.len()].copy_from_slice(name);
        let sum = crc32c::crc32c(&page[..superblock::CRC.start]);
        put(&mut page, superblock::CRC, sum.into());
        page
    }

    fn parse(page: &[u8]) -> Result<Option<Superblock>, StoreError> {
        let sum = u64::from(crc32c::crc32c(&page[..superblock::CRC.start]));
        if page[superblock::MAGIC] != *MAGIC || get(page, superblock::CRC) != sum {
            return Ok(None);
        }
        let version = get(page, superblock::VERSION);
        if version != STORE_VERSION {
            return Err(StoreError::NotAStore(format!(
                "this store has version {version} of the format, this program reads version \
                 {STORE_VERSION}: open it with the program that wrote it"
            )));
        }
        let name = &page[superblock::PROTOCOL];
        let end = name.iter().position(|&byte| byte == 0);
        let name = String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]);
        let protocol = Kind::by_name(&name).ok_or_else(|| {
            StoreError::NotAStore(format!(
                "this store uses the protocol `{name}`, which this program does not have"
            ))
        })?;
        Ok(Some(Superblock {
            pages_per_block: get(page, superblock::PAGES) as u32,
            blocks: get(page, superblock::BLOCKS) as u32,
            boot: get(page, superblock::BOOT) as u32,
            sequence: get(page, superblock::SEQUENCE),
            protocol,
        }))
    }

    /// Reads the one that counts; nothing if the medium is blank.
    ///
    /// # Errors
    /// What is there is no store, or one of another version.
    pub(crate) fn read(medium: &dyn Medium) -> Result<Option<Superblock>, StoreError> {
        let mut pages = vec![0; 2 * MEDIUM_PAGE_BYTES];
        let read = medium.read_at(0, &mut pages);
        read.map_err(|error| StoreError::io("reading the head of the store", error))?;
        let mut found: Option<Superblock> = None;
        for page in pages.chunks_exact(MEDIUM_PAGE_BYTES) {
            let newest = found.map_or(0, |other| other.sequence);
            if let Some(parsed) = Superblock::parse(page)?
                && parsed.sequence > newest
            {
                found = Some(parsed);
            }
        }
        if found.is_none() && pages.iter().any(|&byte| byte != 0) {
            return Err(StoreError::NotAStore(
                "this is not a Flagstone store: neither of its first two pages is a superblock; \
                 nothing was changed"
                    .into(),
            ));
        }
        Ok(found)
    }

    /// Writes the next one and waits until it is durable.
    pub(crate) fn write(&mut self, medium: &mut dyn Medium) -> std::io::Result<()> {
        self.sequence += 1;
        medium.write_at(Superblock::place(self.sequence), &self.emit())?;
        medium.sync()
    }
}
