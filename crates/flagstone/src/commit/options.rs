//! Settings of commit protocols.

use crate::nand::Geometry;
use crate::units::Nanos;

/// When G-MixSL writes its log page (\[MixSL] §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// When so many transactions wait.
    Count(u32),
    /// When the records of the waiting transactions fill a page.
    PageFull,
}

/// Variants of a protocol.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Build the protocol as printed, without the repairs that its departures list.
    pub as_published: bool,
    /// CFC and AFC: one flag for all pages of a transaction in a block (\[FlagCommit] §3.4).
    pub block_flags: bool,
    /// G-MixSL: how groups are formed.
    pub group: Group,
    /// G-MixSL: how long a commit waits for others.
    pub group_timeout: Nanos,
    /// LightTx, MHL-D: blocks set aside at a zone slide; 0 takes 1/64 of the device, and at least
    /// what the planes and the collector need.
    pub zone_blocks: u32,
    /// MHL-D, MHL-M: log heads, at most [`Options::HEADS_MAX`]; 0 takes one a package, but at least
    /// two.
    pub log_heads: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            as_published: false,
            block_flags: true,
            group: Group::Count(8),
            group_timeout: Nanos::from_micros(2_000),
            zone_blocks: 0,
            log_heads: 0,
        }
    }
}

impl Options {
    /// The most log heads that a device can have.
    pub const HEADS_MAX: u32 = 64;

    /// Log heads on a device: the setting, or one a package but at least two.
    pub fn heads(&self, geometry: &Geometry) -> u32 {
        match self.log_heads {
            0 => geometry.packages().clamp(2, Options::HEADS_MAX),
            heads => heads.min(Options::HEADS_MAX),
        }
    }
}
