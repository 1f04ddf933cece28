//! Tables: named maps from byte strings to byte strings, in transactions.
//!
//! A [`Store`] is a file with any number of tables. Any number of threads read snapshots of it, and
//! one at a time writes:
//!
//! ```
//! use flagstone_store::Store;
//!
//! let folder = tempfile::tempdir()?;
//! let store = Store::open(folder.path().join("shop.flag"))?;
//!
//! let mut tx = store.write()?;
//! let mut users = tx.table("users")?;
//! users.insert(b"ada", b"London")?;
//! users.insert(b"emmy", b"Erlangen")?;
//! tx.commit()?;
//!
//! let read = store.read()?;
//! let users = read.table("users")?;
//! assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"London"[..]));
//! for pair in users.iter().rev() {
//!     let (name, city) = pair?;
//!     println!("{} in {}", name.escape_ascii(), city.escape_ascii());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A table is a tree of the library (`prefix-bptree`), in pages that all tables of a store share.
//! A transaction changes copies of pages in memory. Its commit is one transaction of the store.

mod catalog;
mod changed;
mod codec;
mod compact;
mod dropped;
mod hashed;
#[cfg(test)]
mod histories;
mod lost;
mod range;
mod read;
mod single;
mod space;
mod store;
mod table_mut;
#[cfg(test)]
mod tests;
mod write;

use flagstone::layout::Layout;

pub use catalog::{MAGIC, TableKind, VERSION};
pub use codec::{Codec, KeyCodec, Typed};
pub use lost::LostKeys;
pub use range::{KeyRange, Pair, Range};
pub use read::{ReadTx, Snapshot, Source, Table, Value};
pub use store::Store;
pub use table_mut::TableMut;
pub use write::{Commit, Savepoint, WriteTx};

/// Mistakes that a build for tests can make on purpose: controls, which campaigns must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Pages that a transaction gave back stay free when it is rolled back.
    FreedStaysFree,
    /// A table that is being dropped loses first the pages that lead to the others.
    DropsRootFirst,
    /// A table whose root gets a lower page is led to by its old one.
    MovesRootUnnamed,
    /// A compaction leaves nodes as sparse as deletions have left them.
    MergesNothing,
}

/// Records that this module keeps.
pub(crate) const LAYOUTS: [Layout; 3] =
    [catalog::LAYOUTS[0], catalog::LAYOUTS[1], hashed::LAYOUTS[0]];
