//! The first two pages of a store: what it is, how large it is, how often it was opened, whether it
//! was closed, and what has been written in its life.
//!
//! The two are written in turn, so that one is whole whatever happens to the other. The valid one
//! with the higher sequence counts. A record lies in one sector, which a power cut does not tear:
//! a copy that is neither valid nor zeros was damaged. So was one that is valid at the place of the
//! other, and one of zeros beside any but the first. The lost copy may have been the newer one:
//! then the other copy is older than what the store holds ([`Head::may_be_older`]).

use crate::error::{Doing, StoreError};
use crate::identity::Identity;
use crate::medium::gaps::is_bad_sector;
use crate::medium::{Medium, SECTOR_BYTES};
use flagstone::commit::Kind;
use flagstone::layout;
use flagstone::layout::{get, put};

/// Bytes of a page of the medium: a page of the store with what the store keeps for itself.
pub const MEDIUM_PAGE_BYTES: usize = 4096;

/// The version of what a store has beyond the pages of its device. It goes up with any change that
/// makes older stores mean something else.
///
/// Stores of versions 1 and 2 are read, and become stores of this version when they are written to.
/// Version 3 is that of encrypted stores which were version 2 within.
pub const STORE_VERSION: u64 = 4;

/// The version in the superblock of a store that is encrypted, which is [`STORE_VERSION`] within. A
/// program that knows nothing of encryption refuses it.
pub(crate) const ENCRYPTED_VERSION: u64 = 5;

/// The versions in superblocks of encrypted stores, and which version each of them is within.
pub(crate) const ENCRYPTED_VERSIONS: [(u64, u64); 2] = [(3, 2), (ENCRYPTED_VERSION, STORE_VERSION)];

/// The first version whose stores have an identity.
const IDENTITY_VERSION: u64 = 4;

/// The oldest version that is read.
const OLDEST_VERSION: u64 = 1;

pub(crate) const MAGIC: &[u8; 8] = b"Flagston";

layout! {
    /// The head of a store, at its begin and at byte 4096.
    pub superblock: 128 => {
        MAGIC:    8,  "Flagston";
        VERSION:  2,  "of this record and of what follows it";
        PAGES:    2,  "pages of a block";
        BLOCKS:   4,  "blocks, each behind a page that is its mark; 0: the store is being made";
        BOOT:     4,  "counts the openings of the store that wrote to it";
        SEQUENCE: 8,  "counts superblocks";
        PROTOCOL: 16, "the commit protocol, by name, ended by zeros";
        CLOSED:   1,  "1: the store was closed, and all that was written is durable; else 0";
        SHAPE:    7,  "zeros: kept for other forms of pages";
        SINCE:    4,  "openings before the counters below began: 0 in a store made by version 2";
        UNCLOSED: 4,  "openings that ended without a close: what they counted last is lost";
        USER:     8,  "bytes that were given to the store to write, up to this superblock";
        MEDIUM:   8,  "bytes that were written to the medium, this superblock included";
        ERASES:   8,  "blocks that were erased";
        COMMITS:  8,  "transactions that were committed";
        CARRIED:  1,  "1: a compaction took the counters over from an older file; else 0";
        RESTED:   4,  "pages behind the last block that the close left for the next opening; or 0";
        IDENTITY: 8,  "the identity of the store; or 0 in a store made by version 1 or 2";
        SEALED:   8,  "the number of the last program, if every block has the summary that the close gave it, or an earlier one; else 0";
        LEFT:     4,  "blocks up to which the medium may hold what is left of a larger store, which this one was; or 0";
        KEPT:     7,  "zeros";
        CRC:      4,  "CRC-32C of the bytes before";
    }
}

layout! {
    /// The head of a store of version 1.
    pub superblock_v1: 64 => {
        MAGIC:    8,  "Flagston";
        VERSION:  2,  "1";
        PAGES:    2,  "pages of a block";
        BLOCKS:   4,  "blocks, each behind a page that is its mark";
        BOOT:     4,  "counts the openings of the store that wrote to it";
        SEQUENCE: 8,  "counts superblocks";
        PROTOCOL: 16, "the commit protocol, by name, ended by zeros";
        SHAPE:    16, "zeros";
        CRC:      4,  "CRC-32C of the bytes before";
    }
}

/// What was done to a store in its life, as far as it was counted.
///
/// The superblock has these counters, and it is written at the first write of an opening, when the
/// store grows, and when it is closed. A process that is killed, or whose power fails, loses what
/// it has counted since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Lifetime {
    /// Openings before counting began: those of a store that an older version made.
    pub since: u32,
    /// Openings that ended without a close: what they counted last is lost.
    pub unclosed: u32,
    /// Bytes that were given to the store to write.
    pub user_bytes: u64,
    /// Bytes that were written to the medium.
    pub medium_bytes: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Whether a compaction took these over from an older file, so that the age of the file says
    /// nothing about them.
    pub carried: bool,
}

impl Lifetime {
    /// Bytes written to the medium for each byte that was given to the store; nothing while none
    /// was.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.medium_bytes as f64 / self.user_bytes as f64)
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
    /// Whether the store was closed; not known of one that version 1 wrote.
    pub(crate) closed: Option<bool>,
    /// Pages with tables behind the last block, see `flash::rest`.
    pub(crate) rested: u32,
    /// The number of the last program, if the close has given every block its summary.
    pub(crate) sealed: Option<u64>,
    pub(crate) identity: Identity,
    /// Blocks up to which the medium may hold what is left of a larger store, see `flash::shrink`.
    pub(crate) left: u32,
    pub(crate) life: Lifetime,
}

/// What the head of a store says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The one that counts.
    pub(crate) superblock: Superblock,
    /// The copies, 0 or 1, that are damaged.
    pub(crate) damaged: Option<u8>,
}

impl Head {
    /// Whether a newer superblock may have been lost, by which the store had grown. A store that
    /// was only just made has no second superblock yet, which looks the same.
    pub(crate) fn may_be_older(&self) -> bool {
        self.damaged.is_some() || self.superblock.sequence == 1
    }
}

/// What is found in the places of the two superblocks.
pub(crate) struct Found {
    /// What they say; nothing if neither is a superblock.
    pub(crate) head: Option<Head>,
    /// Whether both are zeros.
    pub(crate) is_blank: bool,
}

/// What fails where the superblocks cannot be read.
pub(crate) const READING_HEAD: &str = "reading the head of the store";

/// The pages of both superblocks. One that cannot be read is one that is damaged, for the other one
/// is enough: it reads as ones, and why it cannot be read is returned as well.
///
/// # Errors
/// The medium fails, or refuses to read both.
pub(crate) fn read_heads(
    medium: &dyn Medium,
) -> Result<(Vec<u8>, Option<std::io::Error>), StoreError> {
    let mut pages = vec![0; 2 * MEDIUM_PAGE_BYTES];
    let mut unread = None;
    for (page, place) in pages.chunks_exact_mut(MEDIUM_PAGE_BYTES).zip(0..) {
        match medium.read_at(place * MEDIUM_PAGE_BYTES as u64, page) {
            Err(error) if unread.is_none() && is_bad_sector(&error) => {
                page.fill(0xff);
                unread = Some(error);
            }
            read => read.doing(READING_HEAD)?,
        }
    }
    Ok((pages, unread))
}

impl Superblock {
    /// Where the one with a sequence lies.
    pub(crate) fn place(sequence: u64) -> u64 {
        sequence % 2 * MEDIUM_PAGE_BYTES as u64
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut page = vec![0; MEDIUM_PAGE_BYTES];
        page[superblock::MAGIC].copy_from_slice(MAGIC);
        put(&mut page, superblock::VERSION, STORE_VERSION);
        put(&mut page, superblock::PAGES, self.pages_per_block.into());
        put(&mut page, superblock::BLOCKS, self.blocks.into());
        put(&mut page, superblock::BOOT, self.boot.into());
        put(&mut page, superblock::SEQUENCE, self.sequence);
        let name = self.protocol.info().name.as_bytes();
        page[superblock::PROTOCOL][..name.len()].copy_from_slice(name);
        put(
            &mut page,
            superblock::CLOSED,
            (self.closed == Some(true)).into(),
        );
        let life = &self.life;
        put(&mut page, superblock::SINCE, life.since.into());
        put(&mut page, superblock::UNCLOSED, life.unclosed.into());
        put(&mut page, superblock::USER, life.user_bytes);
        put(&mut page, superblock::MEDIUM, life.medium_bytes);
        put(&mut page, superblock::ERASES, life.erases);
        put(&mut page, superblock::COMMITS, life.commits);
        put(&mut page, superblock::CARRIED, life.carried.into());
        put(&mut page, superblock::RESTED, self.rested.into());
        put(&mut page, superblock::SEALED, self.sealed.unwrap_or(0));
        put(&mut page, superblock::IDENTITY, self.identity.number());
        put(&mut page, superblock::LEFT, self.left.into());
        let sum = crate::sum::crc32c(&page[..superblock::CRC.start]);
        put(&mut page, superblock::CRC, sum.into());
        page
    }

    /// What a page says; nothing if it is no superblock, or counts more than any store comes to.
    pub(crate) fn parse(page: &[u8]) -> Result<Option<Superblock>, StoreError> {
        if page[superblock::MAGIC] != *MAGIC {
            return Ok(None);
        }
        let version = get(page, superblock::VERSION);
        let crc = match version {
            1 => superblock_v1::CRC,
            _ => superblock::CRC,
        };
        let sum = |end: usize| u64::from(crate::sum::crc32c(&page[..end]));
        let is_whole = get(page, crc.clone()) == sum(crc.start);
        let is_encrypted = ENCRYPTED_VERSIONS
            .iter()
            .any(|&(of_it, _)| of_it == version);
        if is_encrypted && is_whole {
            return Err(StoreError::Key(
                "the store is encrypted: its key is needed".into(),
            ));
        }
        if version > STORE_VERSION && is_whole {
            return Err(StoreError::NotAStore(format!(
                "this store has version {version} of the format, this program reads versions \
                 {OLDEST_VERSION} to {STORE_VERSION}: open it with the program that wrote it"
            )));
        }
        if version < OLDEST_VERSION || !is_whole {
            return Ok(None);
        }
        let name = &page[superblock::PROTOCOL];
        let end = name.iter().position(|&byte| byte == 0);
        let name = String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]);
        let protocol = Kind::by_name(&name).ok_or_else(|| {
            StoreError::NotAStore(format!(
                "this store uses the protocol `{name}`, which this program does not have"
            ))
        })?;
        let boot = get(page, superblock::BOOT) as u32;
        let (closed, life) = match version {
            1 => {
                let since = boot;
                let life = Lifetime {
                    since,
                    ..Lifetime::default()
                };
                (None, life)
            }
            _ => {
                let life = Lifetime {
                    since: get(page, superblock::SINCE) as u32,
                    unclosed: get(page, superblock::UNCLOSED) as u32,
                    user_bytes: get(page, superblock::USER),
                    medium_bytes: get(page, superblock::MEDIUM),
                    erases: get(page, superblock::ERASES),
                    commits: get(page, superblock::COMMITS),
                    carried: get(page, superblock::CARRIED) == 1,
                };
                (Some(get(page, superblock::CLOSED) == 1), life)
            }
        };
        let identity = match version >= IDENTITY_VERSION {
            true => get(page, superblock::IDENTITY),
            false => 0,
        };
        let Some(identity) = Identity::parse(identity) else {
            return Ok(None);
        };
        let parsed = Superblock {
            pages_per_block: get(page, superblock::PAGES) as u32,
            blocks: get(page, superblock::BLOCKS) as u32,
            boot,
            sequence: get(page, superblock::SEQUENCE),
            protocol,
            closed,
            sealed: (version >= IDENTITY_VERSION)
                .then(|| get(page, superblock::SEALED))
                .filter(|&number| number > 0),
            rested: match version {
                1 => 0,
                _ => get(page, superblock::RESTED) as u32,
            },
            identity,
            left: match version >= IDENTITY_VERSION {
                true => get(page, superblock::LEFT) as u32,
                false => 0,
            },
            life,
        };
        Ok(Some(parsed).filter(Superblock::can_be_counted_on))
    }

    /// Whether what is counted is in the lower half of its range: no store comes to more, and from
    /// there it can be counted on.
    fn can_be_counted_on(&self) -> bool {
        let life = &self.life;
        let openings = [self.boot, life.since, life.unclosed];
        let others = [
            self.sequence,
            self.sealed.unwrap_or(0),
            life.user_bytes,
            life.medium_bytes,
            life.erases,
            life.commits,
        ];
        openings.iter().all(|&number| number >> 31 == 0)
            && others.iter().all(|&number| number >> 63 == 0)
    }

    /// Looks at both, by the rule that an opening, a check and a repair share.
    ///
    /// # Errors
    /// The medium fails, or one of them is of another version or protocol than this program reads.
    pub(crate) fn find(medium: &dyn Medium) -> Result<Found, StoreError> {
        let (pages, unread) = read_heads(medium)?;
        let mut found: Option<Superblock> = None;
        let (mut damaged, mut blank, mut refused) = (None, None, None);
        for (copy, page) in (0..).zip(pages.chunks_exact(MEDIUM_PAGE_BYTES)) {
            let newest = found.map_or(0, |other| other.sequence);
            let is_here = |sequence| Superblock::place(sequence) == copy * MEDIUM_PAGE_BYTES as u64;
            match Superblock::parse(page) {
                Ok(Some(parsed)) if !is_here(parsed.sequence) => damaged = Some(copy as u8),
                Ok(Some(parsed)) if parsed.sequence > newest => found = Some(parsed),
                Ok(Some(_)) => {}
                Ok(None) if page.iter().any(|&byte| byte != 0) => damaged = Some(copy as u8),
                Ok(None) => blank = Some(copy as u8),
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let head = found.map(|superblock| Head {
            superblock,
            // Each is durable before the next is written: only the first stands alone.
            damaged: damaged.or(blank.filter(|_| superblock.sequence > 1)),
        });
        match unread {
            Some(error) if head.is_none() => Err(StoreError::io(READING_HEAD, error)),
            _ => Ok(Found {
                head,
                is_blank: head.is_none() && damaged.is_none(),
            }),
        }
    }

    /// Reads both and says which one counts; nothing if neither is a superblock.
    ///
    /// # Errors
    /// As [`Superblock::find`].
    pub(crate) fn read(medium: &dyn Medium) -> Result<Option<Head>, StoreError> {
        Ok(Superblock::find(medium)?.head)
    }

    /// Writes the first one of all, and waits until it is durable. It has no blocks: the store is
    /// being made. It is written as one sector, which lands whole or not at all.
    pub(crate) fn begin(&mut self, medium: &dyn Medium) -> std::io::Result<()> {
        let mut first = *self;
        (first.blocks, first.closed, first.sequence) = (0, Some(false), 1);
        self.sequence = 1;
        medium.write_at(Superblock::place(1), &first.emit()[..SECTOR_BYTES])?;
        medium.sync()
    }

    /// Goes on to the next one: its place on the medium, in bytes, and its page.
    pub(crate) fn advance(&mut self) -> (u64, Vec<u8>) {
        self.sequence += 1;
        (Superblock::place(self.sequence), self.emit())
    }

    /// Writes the next one and waits until it is durable.
    pub(crate) fn write(&mut self, medium: &dyn Medium) -> std::io::Result<()> {
        let (place, page) = self.advance();
        medium.write_at(place, &page)?;
        medium.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl Fn(&mut Superblock)) -> Result<Option<Superblock>, StoreError> {
        let mut superblock = Superblock {
            pages_per_block: 16,
            blocks: 16,
            boot: 1,
            sequence: 2,
            protocol: Kind::Seal,
            closed: Some(true),
            rested: 0,
            left: 0,
            sealed: None,
            identity: Identity::NONE,
            life: Lifetime::default(),
        };
        change(&mut superblock);
        Superblock::parse(&superblock.emit())
    }

    /// Such a superblock was believed. The first write counted the opening, which overflowed.
    #[test]
    fn numbers_that_no_store_comes_to_are_no_superblock() {
        let highest: [fn(&mut Superblock); 5] = [
            |it| it.boot = (1 << 31) - 1,
            |it| it.life.unclosed = (1 << 31) - 1,
            |it| it.sequence = (1 << 63) - 1,
            |it| it.life.medium_bytes = (1 << 63) - 1,
            |it| it.life.commits = (1 << 63) - 1,
        ];
        for change in highest {
            assert!(with(change).expect("it is no other version").is_some());
        }
        let beyond: [fn(&mut Superblock); 8] = [
            |it| it.boot = 1 << 31,
            |it| it.life.since = 1 << 31,
            |it| it.life.unclosed = u32::MAX,
            |it| it.sequence = 1 << 63,
            |it| it.life.user_bytes = u64::MAX,
            |it| it.life.medium_bytes = 1 << 63,
            |it| it.life.erases = 1 << 63,
            |it| it.life.commits = 1 << 63,
        ];
        for change in beyond {
            assert_eq!(with(change).expect("it is no other version"), None);
        }
    }
}
