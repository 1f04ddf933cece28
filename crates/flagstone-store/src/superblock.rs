//! The superblocks, in the first two pages of a store: its format, size, number of openings,
//! whether it was closed, and lifetime counters.
//!
//! The two are written alternately, so that one stays valid whatever happens to the other. The
//! valid one with the higher sequence is current. A record lies in one sector, which a power cut
//! cannot tear: a copy that is neither valid nor zeros was damaged. So was a valid copy in the
//! place of the other, and a zeroed copy, unless the other has the first sequence. The lost copy
//! may have been the newer one: then the other copy is older than the blocks
//! ([`Head::may_be_older`]).

use crate::error::{Doing, StoreError};
use crate::identity::Identity;
use crate::medium::gaps::is_bad_sector;
use crate::medium::{Medium, SECTOR_BYTES};
use flagstone::commit::Kind;
use flagstone::layout;
use flagstone::layout::{get, put};

/// Bytes of a page of the medium: the data of a store's page, and the trailer of the store.
pub const MEDIUM_PAGE_BYTES: usize = 4096;

/// The version of the format of a store, beyond the pages of its device. It increases with any
/// incompatible change.
///
/// Stores of versions 1 and 2 can be read, and are upgraded to this version by the first write.
/// Version 3 is that of encrypted stores with version 2 inside.
pub const STORE_VERSION: u64 = 4;

/// The version in the superblock of an encrypted store, which has [`STORE_VERSION`] inside. A
/// program without support for encryption refuses it.
pub(crate) const ENCRYPTED_VERSION: u64 = 5;

/// The versions in superblocks of encrypted stores, with the version that each has inside.
pub(crate) const ENCRYPTED_VERSIONS: [(u64, u64); 2] = [(3, 2), (ENCRYPTED_VERSION, STORE_VERSION)];

/// The first version whose stores have an identity.
const IDENTITY_VERSION: u64 = 4;

/// The oldest supported version.
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

/// Lifetime counters of a store.
///
/// Stored in the superblock, which is written at the first write of an opening, when the store
/// grows, and at a close. If the process is killed or loses power, later counts are lost.
///
/// ```
/// use flagstone::units::Lpn;
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let medium = Recorded::default();
/// for opening in 1..=3 {
///     let mut store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default())?;
///     let tx = store.begin()?;
///     store.write(tx, Lpn(0), &[7; 1000])?;
///     store.commit(tx)?;
///     let life = store.info().life;
///     assert_eq!((life.commits, life.user_bytes), (opening, 1000 * opening));
///     assert!(life.write_amplification() > Some(1.0));
///     store.close()?;
/// }
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Lifetime {
    /// Openings before counting began, in a store that an older version created.
    pub since: u32,
    /// Openings that ended without a close: their last counts are lost.
    pub unclosed: u32,
    /// Bytes that callers gave the store to write.
    pub user_bytes: u64,
    /// Bytes written to the medium.
    pub medium_bytes: u64,
    /// Number of block erases.
    pub erases: u64,
    /// Number of committed transactions.
    pub commits: u64,
    /// Whether a compaction copied the counters from an older file. The age of the file then does
    /// not tell over which time they were counted.
    pub carried: bool,
}

impl Lifetime {
    /// Bytes written to the medium per byte given to the store. `None` if no bytes were given.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.medium_bytes as f64 / self.user_bytes as f64)
    }
}

/// The contents of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) pages_per_block: u32,
    pub(crate) blocks: u32,
    pub(crate) boot: u32,
    pub(crate) sequence: u64,
    pub(crate) protocol: Kind,
    /// Whether the store was closed. `None` in superblocks of version 1.
    pub(crate) closed: Option<bool>,
    /// Number of pages with tables at rest behind the last block, see `flash::rest`.
    pub(crate) rested: u32,
    /// The number of the last program, if the close gave every block its summary.
    pub(crate) sealed: Option<u64>,
    pub(crate) identity: Identity,
    /// The block up to which the medium may hold remains of a larger store, see `flash::shrink`.
    pub(crate) left: u32,
    pub(crate) life: Lifetime,
}

/// The current superblock, and the state of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The current superblock.
    pub(crate) superblock: Superblock,
    /// The copy that is damaged (0 or 1), if any.
    pub(crate) damaged: Option<u8>,
}

impl Head {
    /// Whether a newer superblock, written when the store grew, may have been lost. A store that
    /// was just created has no second superblock yet, which looks the same.
    pub(crate) fn may_be_older(&self) -> bool {
        self.damaged.is_some() || self.superblock.sequence == 1
    }
}

/// The result of reading both superblocks.
pub(crate) struct Found {
    /// `None` if neither copy is a superblock.
    pub(crate) head: Option<Head>,
    /// Whether both copies are zeros.
    pub(crate) is_blank: bool,
}

/// Names the operation in errors about unreadable superblocks.
pub(crate) const READING_HEAD: &str = "reading the head of the store";

/// Reads the pages of both superblocks. An unreadable copy counts as damaged, since the other one
/// suffices: it reads as ones, and its error is returned as well.
///
/// # Errors
/// The medium fails, or both copies are unreadable.
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
    /// The offset of the copy with this sequence.
    pub(crate) fn place(sequence: u64) -> u64 {
        sequence % 2 * MEDIUM_PAGE_BYTES as u64
    }

    /// Encodes the superblock as a page of the medium, always in the current version.
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

    /// Decodes a page. `None` if it is no superblock, or a counter is impossibly large.
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
                "this store uses the protocol `{name}`, which this program does not support"
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
        let identity = if version >= IDENTITY_VERSION {
            get(page, superblock::IDENTITY)
        } else {
            0
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
            left: if version >= IDENTITY_VERSION {
                get(page, superblock::LEFT) as u32
            } else {
                0
            },
            life,
        };
        Ok(Some(parsed).filter(Superblock::can_be_counted_on))
    }

    /// Whether all counters are in the lower half of their range. No store exceeds that, and they
    /// can be incremented safely.
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

    /// Reads both copies and finds the current one. Openings, checks and repairs all use this rule.
    ///
    /// # Errors
    /// The medium fails, or a copy has a version or protocol that this program does not support.
    pub(crate) fn find(medium: &dyn Medium) -> Result<Found, StoreError> {
        let (pages, unread) = read_heads(medium)?;
        let mut found: Option<Superblock> = None;
        let (mut damaged, mut blank, mut refused) = (None, None, None);
        for (copy, page) in (0..).zip(pages.chunks_exact(MEDIUM_PAGE_BYTES)) {
            let newest = found.map_or(0, |other| other.sequence);
            let is_here = |sequence| Superblock::place(sequence) == copy * MEDIUM_PAGE_BYTES as u64;
            match Superblock::parse(page) {
                // Intact, but in the place of the other copy: no store wrote it there.
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
            // Only the first superblock may lack its other copy.
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

    /// Reads both copies and returns the current one. `None` if neither is a superblock.
    ///
    /// # Errors
    /// As [`Superblock::find`].
    pub(crate) fn read(medium: &dyn Medium) -> Result<Option<Head>, StoreError> {
        Ok(Superblock::find(medium)?.head)
    }

    /// Writes the first superblock and waits until it is durable. It counts no blocks: the store is
    /// being created. It is written as one sector, which lands whole or not at all.
    pub(crate) fn begin(&mut self, medium: &dyn Medium) -> std::io::Result<()> {
        let mut first = *self;
        (first.blocks, first.closed, first.sequence) = (0, Some(false), 1);
        self.sequence = 1;
        medium.write_at(Superblock::place(1), &first.emit()[..SECTOR_BYTES])?;
        medium.sync()
    }

    /// Advances to the next superblock. Returns its offset on the medium, and its page.
    pub(crate) fn advance(&mut self) -> (u64, Vec<u8>) {
        self.sequence += 1;
        (Superblock::place(self.sequence), self.emit())
    }

    /// Writes the next superblock and waits until it is durable.
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

    /// Such a superblock was once accepted, and the first write overflowed the number of openings.
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
