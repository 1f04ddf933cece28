//! SEAL with bounded restarts.
//!
//! Paper       none: a protocol of this project, described in docs/seal.md.
//! Idea        As SEAL. Now and then a checkpoint writes the mapping table. From then on blocks are
//!             written only after a root has announced them, so that a restart reads the table and
//!             the announced blocks, and no others.
//! Commit      As SEAL.
//! Cost        k programs for k pages; a root for each lot of blocks, and mapping pages at a
//!             checkpoint. Recovery reads the mapping table and at most a share of the blocks.
//!
//!   root      | unto 6 | last xid 6 | blocks 4 | block ... | xid 6, cv 6 | ... |  super::bounds
//!
//! Invariants  those of SEAL, and
//!             8. Each page that counts is in the mapping table on flash, or lies in a block that
//!                the newest durable root names, with a place above `unto`.
//!             9. All commits up to `unto` are durable before the root that says so.
//!
//! Recovery    as SEAL, in the blocks that the root names. A version whose place is not above
//!             `unto` is in the mapping table, or was replaced before.
//!
//! Departures  none: there is no paper.

use super::INFO as SEAL;
use super::bounds::{self, Bounds};
use super::settings::{LINGER, TRIMS, UNDECIDED};
use crate::commit::{Info, Options, Recovered};
use crate::ftl::{Format, Ftl, FtlError, Mounted};
use crate::settings::Setting;

const CHECKPOINT: Setting = Setting {
    name: "checkpoint",
    default: "0",
    what: "maximum number of blocks that a restart reads, without those of live transactions; 0 \
           means a fifth of the device, and at least two lots of blocks",
};

pub(in crate::commit) const INFO: Info = Info {
    name: "seal-r",
    idea: "as seal, with checkpoints of the mapping table, which bound what a restart reads",
    settings: &[LINGER, UNDECIDED, TRIMS, CHECKPOINT],
    root: Some(bounds::fields),
    format: Format {
        persist_map: true,
        zoned: true,
        rests: false,
        ..SEAL.format
    },
    ..SEAL
};

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let most = options
        .settings
        .number(&INFO, CHECKPOINT.name, 0, u32::MAX)?;
    let bounds = Bounds::mount(ftl, &mounted, most)?;
    super::start(ftl, &mounted, &INFO, options, Some(bounds))
}
