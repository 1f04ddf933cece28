//! Options for opening a store, and their defaults.

use super::config;
use crate::error::StoreError;
use flagstone::commit::Kind;
use flagstone::ftl::{Config, Mistake};
use flagstone::mistakes::Mistaken;
use std::path::Path;

/// Options for opening a store.
///
/// ```
/// use flagstone::commit::Kind;
/// use flagstone_store::medium::Recorded;
/// use flagstone_store::{OpenOptions, PageStore, StoreError};
///
/// let mut options = OpenOptions::default().with_protocol(Kind::SealR);
/// options.pages_per_block = 64;
/// let medium = Recorded::default();
/// PageStore::on(Box::new(medium.clone()), &options)?.close()?;
///
/// // Protocol and shape are those of the store. Later openings do not choose them.
/// let store = PageStore::on(Box::new(medium), &OpenOptions::existing().reading())?;
/// let info = store.info();
/// assert_eq!((info.protocol, info.pages_per_block), (Kind::SealR, 64));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Create a store if the file is missing or empty (length 0). Anything else that is not a store
    /// is refused and left unchanged.
    pub create: bool,
    /// Also create a store over other contents, which are lost: a nonempty file, or a block device,
    /// which is never empty. An existing store is opened, not replaced. No effect without `create`.
    pub force: bool,
    /// Open read-only. Several handles may do so at once.
    pub read_only: bool,
    /// Read from the medium, bypassing the system's cache, as checks need.
    pub uncached: bool,
    /// Open what is left if the medium refuses to read some sectors. The store is then read-only. A
    /// transaction with unreadable pages may look uncommitted.
    pub salvage: bool,
    /// Commit protocol of a new store: any that does not reprogram pages.
    pub protocol: Kind,
    /// Pages per block of a new store, from 16 to 128.
    pub pages_per_block: u32,
    /// Initial bytes of a new store, unless it needs more. It grows from there.
    pub bytes: u64,
    /// Maximum size of a store as a multiple of its contents; at least 1.1. At that size it
    /// collects blocks with old versions instead of growing.
    pub space: f64,
    /// Bytes of page cache of a store that threads share (`SharedPages`). Other stores have none.
    pub cache: u64,
    /// Seed for the identity of a new store; `None` uses the system's random source. For callers
    /// that need the same bytes each time: two stores with the same identity, created one after the
    /// other on one medium, cannot be told apart. 0 creates a store without an identity, like older
    /// versions of the format.
    #[doc(hidden)]
    pub identity: Option<u64>,
    /// Collect a block entirely within the commit that needs its room, not in steps ahead of it.
    /// Shows the benefit of steps.
    #[doc(hidden)]
    pub whole_collections: bool,
    /// A rule to omit on purpose, in builds that support mistakes.
    #[doc(hidden)]
    pub mistake: Mistaken<Mistake>,
    /// Key of an encrypted store. A new store is encrypted with it.
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
    /// Options to open an existing store.
    pub fn existing() -> OpenOptions {
        OpenOptions {
            create: false,
            force: false,
            ..OpenOptions::default()
        }
    }

    /// Also creates a store over other contents, see [`OpenOptions::force`].
    #[must_use]
    pub fn forced(self) -> OpenOptions {
        OpenOptions {
            create: true,
            force: true,
            ..self
        }
    }

    /// Opens read-only.
    #[must_use]
    pub fn reading(self) -> OpenOptions {
        OpenOptions {
            create: false,
            force: false,
            read_only: true,
            ..self
        }
    }

    /// Reads from the medium, not from the system's cache.
    #[must_use]
    pub fn uncached(self) -> OpenOptions {
        OpenOptions {
            uncached: true,
            ..self
        }
    }

    /// Reads what is left if the medium refuses to read some sectors, see [`OpenOptions::salvage`].
    #[must_use]
    pub fn salvaging(self) -> OpenOptions {
        OpenOptions {
            salvage: true,
            ..self.reading()
        }
    }

    /// These options, for reading only if they are to salvage.
    pub(super) fn only_to_salvage(&self) -> OpenOptions {
        let options = self.clone();
        if options.salvage {
            options.reading()
        } else {
            options
        }
    }

    /// Validates the options that concern any store.
    ///
    /// # Errors
    /// The bound of the room cannot be kept.
    pub(crate) fn must_be_possible(&self) -> Result<(), StoreError> {
        if self.space >= 1.1 && self.space <= 100.0 {
            Ok(())
        } else {
            Err(StoreError::Options(format!(
                "the bound of the store is {} times what it holds: use 1.1 to 100",
                self.space
            )))
        }
    }

    /// Whether an opening would create a store at `path`: the file is missing or empty.
    pub(crate) fn would_make(&self, path: &Path) -> bool {
        let is_free =
            std::fs::metadata(path).map_or(true, |meta| meta.is_file() && meta.len() == 0);
        self.create && !self.read_only && is_free
    }

    /// Translation layer settings.
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

    /// These options with the key of `other`.
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

    /// These options with `protocol` for a new store.
    #[must_use]
    pub fn with_protocol(self, protocol: Kind) -> OpenOptions {
        OpenOptions { protocol, ..self }
    }
}
