//! How a store is opened: what can be set, and the defaults.

use super::config;
use crate::error::StoreError;
use flagstone::commit::Kind;
use flagstone::ftl::{Config, Mistake};
use flagstone::mistakes::Mistaken;
use std::path::Path;

/// How a store is opened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Whether to make a store where there is none: in a file that is missing or empty, of length
    /// 0. Anything else that is no store is refused, and stays as it is.
    pub create: bool,
    /// Whether to make a store as well where something else is, which is lost: a file that is not
    /// empty, or a block device, which is never empty. A store that is there is opened and not
    /// replaced. It has no effect without `create`.
    pub force: bool,
    /// Whether to read only. Several may do so at once.
    pub read_only: bool,
    /// Whether to read from the medium what the system has in its cache, as a check wants it.
    pub uncached: bool,
    /// Whether to open what is left where the medium refuses to read some of its sectors. The store
    /// is only read then: a transaction whose pages are refused may look as if it had not
    /// committed.
    pub salvage: bool,
    /// The commit protocol of a new store: any that does not reprogram pages.
    pub protocol: Kind,
    /// Pages of a block of a new store, from 16 to 128.
    pub pages_per_block: u32,
    /// Bytes of a new store to begin with, as far as it needs no more. It grows from there.
    pub bytes: u64,
    /// How much room a store takes, as a multiple of what it holds, before it collects blocks that
    /// hold old versions instead of growing; at least 1.1.
    pub space: f64,
    /// Bytes of memory for pages, of a store that threads share (`SharedPages`); others have none.
    pub cache: u64,
    /// What the identity of a new store is made of; nothing for the random source of the system. It
    /// is for those who must get the same bytes each time: two stores with one identity on one
    /// medium, one after the other, are not told apart. 0 makes a store without an identity, as
    /// older versions of the format made them.
    #[doc(hidden)]
    pub identity: Option<u64>,
    /// Whether a block is collected as a whole by the commit that needs its room, and not in steps
    /// ahead of it. With it one can see what steps are good for.
    #[doc(hidden)]
    pub whole_collections: bool,
    /// A rule that is left out on purpose, in builds that can.
    #[doc(hidden)]
    pub mistake: Mistaken<Mistake>,
    /// The key of a store that is encrypted. A new store is encrypted with it.
    #[cfg(feature = "encryption")]
    pub key: Option<crate::Key>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            create: true,
            force: false,
            read_only: false,
            uncached: false,
            salvage: false,
            protocol: Kind::Seal,
            pages_per_block: 128,
            bytes: 0,
            space: 1.5,
            cache: 64 << 20,
            identity: None,
            whole_collections: false,
            mistake: Mistaken::default(),
            #[cfg(feature = "encryption")]
            key: None,
        }
    }
}

impl OpenOptions {
    /// Options to open a store that is there.
    pub fn existing() -> OpenOptions {
        OpenOptions {
            create: false,
            force: false,
            ..OpenOptions::default()
        }
    }

    /// As these, to make a store as well where something else is: see [`OpenOptions::force`].
    #[must_use]
    pub fn forced(self) -> OpenOptions {
        OpenOptions {
            create: true,
            force: true,
            ..self
        }
    }

    /// As these, for reading only.
    #[must_use]
    pub fn reading(self) -> OpenOptions {
        OpenOptions {
            create: false,
            force: false,
            read_only: true,
            ..self
        }
    }

    /// As these, reading from the medium and not from the system's cache.
    #[must_use]
    pub fn uncached(self) -> OpenOptions {
        OpenOptions {
            uncached: true,
            ..self
        }
    }

    /// As these, for reading what is left where the medium refuses to read some of its sectors.
    #[must_use]
    pub fn salvaging(self) -> OpenOptions {
        OpenOptions {
            salvage: true,
            ..self.reading()
        }
    }

    /// Whether they can be, for any store.
    ///
    /// # Errors
    /// The bound of the room cannot be kept.
    pub(crate) fn must_be_possible(&self) -> Result<(), StoreError> {
        match self.space >= 1.1 && self.space <= 100.0 {
            true => Ok(()),
            false => Err(StoreError::Options(format!(
                "the bound of the store is {} times what it holds: use 1.1 to 100",
                self.space
            ))),
        }
    }

    /// Whether an opening makes a store in a file, which is missing or empty.
    pub(crate) fn would_make(&self, path: &Path) -> bool {
        let is_free =
            std::fs::metadata(path).map_or(true, |meta| meta.is_file() && meta.len() == 0);
        self.create && !self.read_only && is_free
    }

    /// The settings of the translation layer.
    pub(super) fn config(&self) -> Config {
        let mut config = config();
        config.works_ahead = !self.whole_collections;
        config.mistake = self.mistake;
        config
    }

    /// Whether a key is set.
    pub(super) fn has_key(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.key.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    /// As these, with the key of others.
    pub(crate) fn with_key_of(self, other: &OpenOptions) -> OpenOptions {
        #[cfg(feature = "encryption")]
        return OpenOptions {
            key: other.key.clone(),
            ..self
        };
        #[cfg(not(feature = "encryption"))]
        {
            let _ = other;
            self
        }
    }

    /// As these, with another protocol for a new store.
    #[must_use]
    pub fn with_protocol(self, protocol: Kind) -> OpenOptions {
        OpenOptions { protocol, ..self }
    }
}
