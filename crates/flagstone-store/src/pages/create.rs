//! A new store on a blank medium.

use super::{FIRST_BLOCKS, OpenOptions, config, look};
use crate::error::{Doing, StoreError};
use crate::flash::{clear_marks, geometry, medium_bytes};
use crate::identity::Identity;
use crate::medium::Medium;
use crate::superblock::{Head, Lifetime, MEDIUM_PAGE_BYTES, Superblock};

/// Where there is no hope any more that a protocol needs but a larger store than was asked for.
const SUITABLE_MAX: u32 = 1024;

/// Blocks that lie in so many bytes of a medium.
pub(super) fn blocks_within(pages_per_block: u32, bytes: u64) -> u32 {
    let first = medium_bytes(pages_per_block, 0);
    let of_block = medium_bytes(pages_per_block, 1) - first;
    u32::try_from(bytes.saturating_sub(first) / of_block).unwrap_or(u32::MAX)
}

/// Makes a store on a blank medium.
pub(super) fn create(medium: &dyn Medium, options: &OpenOptions) -> Result<Head, StoreError> {
    if !options.create || options.read_only {
        return Err(StoreError::NotAStore(
            "there is no store here: it is empty".into(),
        ));
    }
    look::doubt_blank(medium)?;
    let info = options.protocol.info();
    if info.reprograms {
        return Err(StoreError::Options(format!(
            "{} sets flags by reprogramming pages, which a file cannot: use another protocol",
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
        shape.validate().map_err(|error| error.to_string())?;
        info.suits(&shape, &config())
    };
    while suits(blocks).is_err() && blocks < SUITABLE_MAX {
        blocks *= 2;
    }
    suits(blocks).map_err(StoreError::Options)?;
    let bytes = medium_bytes(options.pages_per_block, blocks);
    medium.reserve(bytes).doing("reserving room for a store")?;
    let mut superblock = Superblock {
        pages_per_block: options.pages_per_block,
        blocks,
        boot: 0,
        sequence: 0,
        protocol: options.protocol,
        closed: Some(true),
        rested: 0,
        sealed: false,
        identity: match options.identity {
            Some(number) => Identity::of(number),
            None => Identity::draw()?,
        },
        life: Lifetime {
            medium_bytes: MEDIUM_PAGE_BYTES as u64,
            ..Lifetime::default()
        },
    };
    let identity = superblock.identity;
    clear_marks(medium, options.pages_per_block, identity, 0..blocks)
        .doing("clearing marks of an older store")?;
    // The superblock must not speak of room that a cut takes away.
    medium.sync().doing("making the room of a store durable")?;
    superblock.write(medium).doing("writing the superblock")?;
    Ok(Head {
        superblock,
        damaged: None,
    })
}
