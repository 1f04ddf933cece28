//! Stores that are encrypted and authenticated.
//!
//! ```text
//!   user's key, or Argon2id of a passphrase ──wraps──> data key ──> pages, marks, superblocks
//! ```
//!
//! Everything that a store writes passes a medium that encrypts it ([`Encrypted`]); the layers
//! above know nothing of it. The data key is random and never changes. It lies in both superblocks,
//! wrapped by the key of the user ([`lock`]): another key wraps it anew, and no data is written.
//!
//! The cipher is AES-256-GCM-SIV. Its nonce, and its associated data, are the place of a page on
//! the medium and the generation of its block. These two are never used twice together. So a page
//! counts at its place only, and as long as its block was not erased.
//!
//! | part | encrypted | authentic | why |
//! |---|---|---|---|
//! | data, spare area and length of a page | yes | yes | they are the user's, or say whose they are |
//! | generation of a page | no | yes | it is compared with that of the mark before anything else |
//! | mark | no | yes | it decides which pages count; it has a tag, also while its block has no pages |
//! | superblock | no | yes | it decides what is a store; its counters must be readable without damage |
//! | tables at rest | yes | yes | they are pages, and their generation is the number of their superblock |
//!
//! Three things are not protected. An older copy of the medium can be put back, as a whole or by
//! whole blocks with their marks. After a crash pages of zeros can take the place of the newest
//! ones, as a power cut leaves them as well. And the sizes, places and times of writes can be seen.
//!
//! [`Encrypted`]: medium::Encrypted

#[cfg(feature = "encryption")]
mod key;
#[cfg(feature = "encryption")]
mod medium;
mod source;

#[cfg(feature = "encryption")]
pub use key::{Key, rekey};
pub use source::KeySource;

use flagstone::layout;

layout! {
    /// What follows the superblock of a store that is encrypted. Its version is 5; or 3, for one
    /// that is version 2 within.
    pub lock: 104 => {
        KIND:   1,  "1: the key is the user's; 2: it is made of a passphrase by Argon2id";
        MEMORY: 4,  "KiB that Argon2id takes; or 0";
        PASSES: 2,  "passes that it makes; or 0";
        LANES:  1,  "its lanes; or 0";
        SALT:   16, "its salt; or zeros";
        NONCE:  12, "of the wrapped data key, random";
        KEY:    32, "the data key, by AES-256-GCM-SIV; the bytes before are associated data";
        TAG:    16, "its tag";
        CRC:    4,  "CRC-32C of the superblock and of the bytes before";
        PROOF:  16, "a tag by the data key over the superblock and the bytes before";
    }
}

layout! {
    /// What ends a page of a store that is encrypted, instead of `trailer`. Before it are 4032
    /// bytes of data, the first 34 of the spare area, the bytes of data and the CRC-32C, encrypted.
    pub sealed_end: 24 => {
        GENERATION: 8,  "the erase of its block that it follows";
        TAG:        16, "of the encrypted bytes; place and generation are nonce and associated data";
    }
}

layout! {
    /// What follows the checksum of a mark, or 20 zeros where a block had no pages yet, in a store
    /// that is encrypted.
    pub sealed_mark: 24 => {
        TAG:      16, "over the 20 bytes; the place and the generation are its nonce";
        IDENTITY: 8,  "as in a mark that is not encrypted";
    }
}

/// A program without encryption leaves a medium as it is. A store that is encrypted says so itself.
#[cfg(not(feature = "encryption"))]
pub(crate) fn dress(
    medium: Box<dyn crate::medium::Medium>,
    _: &crate::OpenOptions,
) -> Result<Box<dyn crate::medium::Medium>, crate::StoreError> {
    Ok(medium)
}

#[cfg(feature = "encryption")]
pub(crate) use key::dress;

#[cfg(all(test, feature = "encryption"))]
mod tests;
