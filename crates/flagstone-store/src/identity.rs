//! The identity of a store: a random number that distinguishes its pages from those of every other
//! store that was ever on the same medium.
//!
//! A block device may hold pages of an older store, and every store uses the same generations. So
//! the identity is included in the checksum of each page and mark, and the stored generation is
//! XORed with it. A page of another store therefore has a different generation, and reads as blank.
//!
//! ```text
//!   in a page    generation XOR identity
//!   checksums    CRC-32C of what it covers, and then of the identity (8 bytes)
//! ```
//!
//! Stores created by versions 1 to 3 of the format have no identity ([`Identity::NONE`]): their
//! generations and checksums are stored without one.

use crate::error::StoreError;

/// This bit is set in every identity and in no generation of a block, since a store counts fewer
/// than 2^30 openings. So no page stores the generation 0, which a page of zeros has.
const ALWAYS: u64 = 1 << 62;
/// This bit is clear in every identity: it marks the generation of tables at rest.
const NEVER: u64 = 1 << 63;

/// The identity of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Identity(u64);

impl Identity {
    /// Size of an identity in bytes.
    pub(crate) const BYTES: usize = 8;

    /// The smallest identity. Generations of blocks are smaller.
    pub(crate) const LEAST: u64 = ALWAYS;

    /// The identity of stores created by older versions of the format.
    pub(crate) const NONE: Identity = Identity(0);

    /// An identity from a number. Returns [`Identity::NONE`] for 0.
    pub(crate) fn of(number: u64) -> Identity {
        match number {
            0 => Identity::NONE,
            _ => Identity(number & !NEVER | ALWAYS),
        }
    }

    /// Decodes an identity from a record. `None` if the number is not a valid identity.
    pub(crate) fn parse(number: u64) -> Option<Identity> {
        let identity = Identity::of(number);
        (identity.0 == number).then_some(identity)
    }

    /// Draws a new identity from the system's random source.
    ///
    /// # Errors
    /// The system has no random source.
    pub(crate) fn draw() -> Result<Identity, StoreError> {
        let mut bytes = [0; Identity::BYTES];
        random(&mut bytes)?;
        // An identity is never zero.
        Ok(Identity::of(u64::from_le_bytes(bytes) | ALWAYS))
    }

    /// The identity as a number; 0 for [`Identity::NONE`].
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Converts a generation to its stored form, and back.
    pub(crate) fn combine(self, generation: u64) -> u64 {
        generation ^ self.0
    }

    /// Calls `sum` with the bytes of `number` and of the identity, which end the checksummed data.
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

/// Fills a buffer from the system's random source.
///
/// # Errors
/// The system has no random source.
pub(crate) fn random(into: &mut [u8]) -> Result<(), StoreError> {
    getrandom::fill(into).map_err(|error| {
        StoreError::io(
            "asking the system for random bytes",
            std::io::Error::other(error),
        )
    })
}
