//! Creates stores: where this is allowed, and in an order that survives a power cut.

use super::room::next_blocks;
use super::{FIRST_BLOCKS, OpenOptions, config, look};
use crate::error::{Doing, StoreError};
use crate::flash::{blocks_in, clear_marks, geometry, last_used, medium_bytes};
use crate::identity::Identity;
use crate::medium::{Medium, SECTOR_BYTES};
use crate::superblock::{Found, Head, Lifetime, MEDIUM_PAGE_BYTES, Superblock};

/// Upper limit in blocks when searching for the smallest size that a protocol accepts.
const SUITABLE_MAX: u32 = 1024;

/// Number of blocks that fit in `bytes` bytes of a medium.
pub(super) fn blocks_within(pages_per_block: u32, bytes: u64) -> u32 {
    let first = medium_bytes(pages_per_block, 0);
    let of_block = medium_bytes(pages_per_block, 1) - first;
    u32::try_from(bytes.saturating_sub(first) / of_block).unwrap_or(u32::MAX)
}

/// Whether creation of a store was interrupted: its first superblock exists, and no block was ever
/// used. Creating it again loses nothing.
///
/// # Errors
/// The medium fails.
pub(super) fn is_unfinished(medium: &dyn Medium, head: &Head) -> Result<bool, StoreError> {
    let superblock = &head.superblock;
    if superblock.blocks > 0 || head.damaged.is_some() {
        return Ok(false);
    }
    let pages = superblock.pages_per_block;
    let has = medium.bytes().doing("asking for the length")?;
    let used = last_used(medium, pages, 0..blocks_in(has, pages), superblock.identity)
        .doing("reading a mark")?;
    Ok(used.is_none())
}

/// Whether a store may be created where `found` was found. Interrupted creations and empty files
/// may be replaced; anything else only with `OpenOptions::force`.
///
/// # Errors
/// Creation is not allowed. The error says why, and what to do.
fn may_create(medium: &dyn Medium, options: &OpenOptions, found: &Found) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::NotAStore(why.into()));
    let is_empty = medium.bytes().doing("asking for the length")? == 0;
    let may_write = options.create && !options.read_only;
    match found.head {
        Some(_) if may_write => return Ok(()),
        Some(_) => return refuse("the creation of this store was interrupted; it is empty"),
        None if is_empty && may_write => return Ok(()),
        None if is_empty => return refuse("there is no store here: it is empty"),
        None if may_write && options.force => return Ok(()),
        None => {}
    }
    if found.is_blank {
        look::doubt_blank(medium)?;
    }
    refuse(
        "this is not a Flagstone store: neither of its first two pages is a superblock; nothing \
         was changed. A store is created in an empty or missing file; to overwrite this file, use \
         `flagstone store create --force`, or `create=force` in a URI",
    )
}

/// The initial number of blocks of a new store.
///
/// # Errors
/// The options are invalid for any store.
pub(super) fn shape(options: &OpenOptions) -> Result<u32, StoreError> {
    let info = options.protocol.info();
    if info.reprograms {
        return Err(StoreError::Options(format!(
            "{} reprograms pages to set flags, which a file does not support: use another protocol",
            info.name
        )));
    }
    if !(16..=128).contains(&options.pages_per_block) {
        return Err(StoreError::Options(format!(
            "{} pages a block: use 16 to 128",
            options.pages_per_block
        )));
    }
    let of_block =
        medium_bytes(options.pages_per_block, 1) - medium_bytes(options.pages_per_block, 0);
    let wanted = u32::try_from(options.bytes / of_block).unwrap_or(u32::MAX);
    let mut blocks = wanted.max(FIRST_BLOCKS);
    let suits = |blocks| {
        let shape = geometry(options.pages_per_block, blocks);
        let is_too_large = shape.validate().is_err() && blocks > FIRST_BLOCKS;
        if is_too_large {
            let bytes = options.bytes;
            return Err(format!(
                "a store of {bytes} bytes is too large: use fewer bytes"
            ));
        }
        shape.validate().map_err(|error| error.to_string())?;
        info.suits(&shape, &config())
    };
    // The protocol may need more blocks than the caller asked for.
    while suits(blocks).is_err() && blocks < SUITABLE_MAX {
        blocks *= 2;
    }
    suits(blocks).map_err(StoreError::Options)?;
    Ok(blocks)
}

/// Creates a store where `found` was found.
///
/// The first superblock lists no blocks and is durable before anything else of the store is
/// written. So a cut leaves no store (overwritten contents have lost their first pages), an
/// interrupted creation, or a store. The second superblock follows once the room is durable.
///
/// # Errors
/// Something else is there, the options are invalid, or the medium fails.
pub(super) fn create(
    medium: &dyn Medium,
    options: &OpenOptions,
    found: &Found,
) -> Result<Head, StoreError> {
    may_create(medium, options, found)?;
    let blocks = shape(options)?;
    let bytes = medium_bytes(options.pages_per_block, blocks);
    let mut superblock = Superblock {
        pages_per_block: options.pages_per_block,
        blocks,
        boot: 0,
        sequence: 0,
        protocol: options.protocol,
        closed: Some(true),
        rested: 0,
        left: 0,
        sealed: None,
        identity: match options.identity {
            Some(number) => Identity::of(number),
            None => Identity::draw()?,
        },
        life: Lifetime {
            medium_bytes: (SECTOR_BYTES + MEDIUM_PAGE_BYTES) as u64,
            ..Lifetime::default()
        },
    };
    let identity = superblock.identity;
    let writing = "writing the superblock";
    if found.head.is_none() && medium.bytes().doing("asking for the length")? > 0 {
        // Reserve first: nothing is overwritten unless there is space.
        medium.reserve(bytes).doing("reserving room for a store")?;
        let blank = [0; 2 * MEDIUM_PAGE_BYTES];
        medium.write_at(0, &blank).doing(writing)?;
        medium.sync().doing(writing)?;
    }
    superblock.begin(medium).doing(writing)?;
    // A store of minimal size allocates its space as it is written.
    let making = if blocks == FIRST_BLOCKS {
        medium.lengthen(bytes)
    } else {
        medium.reserve(bytes)
    };
    making.doing("reserving room for a store")?;
    // Clear marks as far as the recovery of a lost superblock looks for blocks.
    let there = blocks_in(
        medium.bytes().doing("asking for the length")?,
        options.pages_per_block,
    );
    let doubted = blocks
        .saturating_add(next_blocks(options.pages_per_block, blocks))
        .min(there);
    clear_marks(
        medium,
        options.pages_per_block,
        identity,
        0..blocks.max(doubted),
    )
    .doing("clearing marks of an older store")?;
    // The superblock must not count space that a cut could take away.
    medium.sync().doing("making the room of a store durable")?;
    superblock.write(medium).doing(writing)?;
    Ok(Head {
        superblock,
        damaged: None,
    })
}
