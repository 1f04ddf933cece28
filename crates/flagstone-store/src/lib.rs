//! Flagstone on real media.
//!
//! Contains what the library itself must not use: files, threads, the clock.
//!
//! A [`PageStore`] keeps pages in a file and commits them in transactions:
//!
//! ```
//! use flagstone::units::Lpn;
//! use flagstone_store::{OpenOptions, PageStore};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("pages.flag");
//! let mut store = PageStore::open(&path, &OpenOptions::default())?;
//! let tx = store.begin()?;
//! store.write(tx, Lpn(7), b"seven")?;
//! store.commit(tx)?;
//! drop(store);
//!
//! let mut store = PageStore::open(&path, &OpenOptions::existing())?;
//! let mut page = vec![0; PageStore::PAGE_BYTES];
//! assert_eq!(store.read(None, Lpn(7), &mut page)?, Some(5));
//! assert_eq!(&page[..5], b"seven");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod aligned;
mod chunks;
mod encryption;
mod error;
mod flash;
#[doc(hidden)]
pub mod fuzzing;
mod holds;
mod identity;
pub mod medium;
mod pace;
mod pages;
mod shared;
mod sum;
mod superblock;
pub mod tables;
pub mod tools;
mod volume;

pub use chunks::{Chunks, Cut, Pages, Version};
pub use encryption::KeySource;
#[cfg(feature = "encryption")]
pub use encryption::{Key, rekey};
pub use error::StoreError;
pub use flagstone_btree::TreeError;
#[doc(hidden)]
pub use flash::{Glance, Shown};
pub use flash::{MediumStats, page_sum};
pub use holds::Holds;
pub use pace::Pace;
pub use pages::{Asked, CheckReport, Looked, OpenOptions, PageFacts, PageStore, StoreInfo};
pub use shared::{Changes, PageBytes, PageSnapshot, SharedPages, Ticket, Turn};
pub use superblock::{Lifetime, MEDIUM_PAGE_BYTES, STORE_VERSION};
pub use tables::{ReadTx, Store, Table, TableKind, TableMut, WriteTx};
pub use volume::{Volume, can_be_size};

/// The record layouts of a store, beyond those of its device.
pub const LAYOUTS: &[flagstone::layout::Layout] = &[
    superblock::superblock::RECORD,
    superblock::superblock_v1::RECORD,
    flash::mark::RECORD,
    flash::mark_says::RECORD,
    flash::trailer::RECORD,
    flash::rest::rested_block::RECORD,
    tables::LAYOUTS[0],
    tables::LAYOUTS[1],
    tables::LAYOUTS[2],
    volume::volume::RECORD,
    encryption::lock::RECORD,
    encryption::sealed_end::RECORD,
    encryption::sealed_mark::RECORD,
];
