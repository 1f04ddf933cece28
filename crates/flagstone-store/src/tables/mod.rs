//! Tables: named maps from byte strings to byte strings, in transactions.
//!
//! A [`Store`] is a file with any number of tables. Any number of threads read snapshots, and one
//! thread at a time writes:
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
//! A table is a tree of type `prefix-bptree`. All tables of a store share its pages. A transaction
//! changes copies of pages in memory. Its commit is one transaction of the page store.

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

/// Deliberate mistakes of test builds: controls that campaigns must detect.
///
/// Example: [`Mistaken`](flagstone::mistakes::Mistaken).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Pages freed by a transaction stay free after its rollback.
    FreedStaysFree,
    /// A dropped table's inner pages are freed before the pages that they reference.
    DropsRootFirst,
    /// The catalog keeps the old root when a table's root moves to a lower page.
    MovesRootUnnamed,
    /// Compaction leaves sparse nodes as they are.
    MergesNothing,
}

/// Records that this module keeps.
pub(crate) const LAYOUTS: [Layout; 3] =
    [catalog::LAYOUTS[0], catalog::LAYOUTS[1], hashed::LAYOUTS[0]];
