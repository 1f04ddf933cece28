//! The identity of a store: a random number that separates its pages from those of every other
//! store that its medium ever held.
//!
//! A block device may hold an older store, and generations repeat from store to store. The identity
//! is part of the checksum of each page and mark, and the generation in a page is combined with it.
//! So a page of another store has another generation than any page of this one, and reads as blank.
//!
//! ```text
//!   in a page    generation XOR identity
//!   checksums    CRC-32C of what it covers, and then of the identity (8 bytes)
//! ```
//!
//! Stores that versions 1 to 3 of the format made have none ([`Identity::NONE`]): their generations
//! and checksums are as these versions wrote them.

use crate::error::StoreError;

/// Set in every identity, and in no generation of a block: those count less than 2^30 openings. So
/// no page of a block has a generation of zero, which pages of zeros have.
const ALWAYS: u64 = 1 << 62;
/// In no identity: this bit tells tables at rest from pages of blocks.
const NEVER: u64 = 1 << 63;

/// The identity of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Identity(u64);

impl Identity {
    /// Bytes of an identity.
    pub(crate) const BYTES: usize = 8;

    /// The least one: generations of blocks are below it.
    pub(crate) const LEAST: u64 = ALWAYS;

    /// That of stores which older versions of the format made.
    pub(crate) const NONE: Identity = Identity(0);

    /// An identity made of a number; none, of 0.
    pub(crate) fn of(number: u64) -> Identity {
        match number {
            0 => Identity::NONE,
            _ => Identity(number & !NEVER | ALWAYS),
        }
    }

    /// The identity that a record has; nothing if no store has it.
    pub(crate) fn parse(number: u64) -> Option<Identity> {
        let identity = Identity::of(number);
        (identity.0 == number).then_some(identity)
    }

    /// A new identity, from the random source of the system.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn draw() -> Result<Identity, StoreError> {
        let mut bytes = [0; Identity::BYTES];
        random(&mut bytes)?;
        // A number of zero would be none.
        Ok(Identity::of(u64::from_le_bytes(bytes) | ALWAYS))
    }

    /// As a number, which is 0 for none.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// What a page says for a generation, and the generation for what a page says.
    pub(crate) fn combine(self, generation: u64) -> u64 {
        generation ^ self.0
    }

    /// Calls `sum` with the bytes of a number and of the identity: the end of what a checksum
    /// covers.
    pub(crate) fn end_of_sum(self, number: u32, sum: impl FnOnce(&[u8]) -> u32) -> u32 {
        let mut bytes = [0; 4 + Identity::BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..].copy_from_slice(&self.0.to_le_bytes());
        match self {
            Identity::NONE => sum(&bytes[..4]),
            _ => sum(&bytes),
        }
    }
}

/// Fills bytes from the random source of the system.
///
/// # Errors
/// The system has none.
pub(crate) fn random(into: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(into).map_err(|error| {
        StoreError::io(
            "asking the system for random bytes",
            std::io::Error::other(error),
        )
    })
}
