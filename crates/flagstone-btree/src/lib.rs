//! A B+-tree of byte strings, keys and values of any length, in pages of any kind.
//!
//! Tables of `flagstone-store` and the index `prefix-bptree` of `flagstone-index` use this tree. It
//! knows neither of them: [`ByteTree`] changes pages through the trait [`Nodes`], and [`Walk`]
//! reads pages that do not change through the trait [`Images`].
//!
//! Paper       \[PrefixBTree]: shortened separators in inner nodes, and the common prefix of the
//!             keys of a node. Slots, and pages for long values, are as in textbooks.
//! Idea        Entries are in leaves, in key order; inner nodes lead to the leaves. A separator
//!             between two leaves is the shortest key that distinguishes them, and a node stores
//!             the common prefix of its keys once. So more entries fit into a page, and a
//!             comparison reads fewer bytes. Nodes split and merge by bytes, not by entries.
//! Cost        A lookup reads one page per level that is not in memory. A change programs one page,
//!             a split or a move of entries to a sibling three, a merge two. A value of more than
//!             half of a page has pages of its own, which are written in one request and read in
//!             one request.
//!
//!   node.rs     nodes in pages            byte_tree.rs searches, changes, long values
//!   apart.rs    cutting a node in two     balance.rs   splits, merges
//!   nodes.rs    the pages below           check.rs     the consistency check
//!   walk.rs     reading in both orders    range.rs     ranges
//!   lower.rs    pages to lower numbers    merge.rs     sparse nodes to fuller ones
//!   fell.rs     freeing a tree in parts   lost.rs      unreadable parts
//!
//! Invariants  1. An entry takes at most half of a node, a key at most an eighth.
//!             2. Without prefix compression, the entries of a node other than the root fill at
//!                least a quarter of a page.
//!             3. All keys of a child are between the separators on both sides of the child in its
//!                parent.
//!             4. The pages of a long value are referenced by its entry, or by list pages that its
//!                entry references, and by nothing else.
//!
//! Departures  D1. Leaves have no sibling pointers. A range finds the next leaves through the inner
//!                 nodes, which are in memory, and requests several leaves at once
//!                 ([`ByteTree::range`]). A split or merge writes one page less.
//!             D2. The rule for underfull nodes is our own: a node that would fill less than a
//!                 quarter of a page without prefix compression merges with a sibling, or takes
//!                 entries from one.
//!             D3. A prefix does not grow when keys are removed. It shrinks only when a key without
//!                 it is inserted; the node is then rewritten.
//!             D4. If an insertion at the end of a node overflows it, the split moves a quarter of
//!                 the entries to the right. Ascending insertions thus leave nodes three quarters
//!                 full instead of half full.
#![forbid(unsafe_code)]

mod apart;
mod balance;
mod byte_tree;
mod check;
mod fell;
mod lost;
mod lower;
#[cfg(test)]
mod memory;
mod merge;
mod node;
mod nodes;
mod range;
mod walk;

use flagstone::layout::Layout;
use flagstone::units::Lpn;
use std::fmt;

pub use byte_tree::{ByteTree, Counts, Limits, Root, write_empty};
pub use fell::Felled;
pub use lost::Lost;
pub use merge::MergeFrom;
pub use nodes::Nodes;
pub use range::ReadAhead;
pub use walk::{AllFound, Cursor, FoundValue, Gap, Images, Walk};

/// Records of a node.
pub const LAYOUTS: &[Layout] = node::LAYOUTS;

/// Why a tree refuses a request, or cannot continue.
///
/// ```
/// use flagstone_btree::{Limits, TreeError};
///
/// assert_eq!(Limits::of(64), Err(TreeError::PageBytes(64)));
/// let full = TreeError::Full { pages: 100 };
/// assert!(full.to_string().starts_with("all 100 pages of the store are in use"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// A tree cannot use pages of this size.
    PageBytes(usize),
    /// No page is free.
    Full {
        /// Number of pages that the tree may use.
        pages: u32,
    },
    /// A page does not contain what the tree wrote there.
    Damaged {
        /// The page.
        at: Lpn,
        /// What is wrong with it.
        why: String,
    },
    /// A key or a value is longer than the tree supports.
    TooLong {
        /// Whether it is a key or a value.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum length.
        most: usize,
        /// The page size.
        page: usize,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::PageBytes(bytes) => write!(
                f,
                "pages of {bytes} bytes are too small or too large for prefix-bptree: use 128 to \
                 65536"
            ),
            TreeError::Full { pages } => write!(
                f,
                "all {pages} pages of the store are in use: give it more pages or delete records"
            ),
            TreeError::Damaged { at, why } => write!(f, "page {at} of the index: {why}"),
            TreeError::TooLong {
                what,
                bytes,
                most,
                page,
            } => write!(
                f,
                "a {what} of {bytes} bytes is too long: pages of {page} bytes take a {what} of \
                 {most}; shorten it, or use a store with larger pages"
            ),
        }
    }
}

impl std::error::Error for TreeError {}

/// The error for a page that does not contain what the tree wrote there.
fn damaged<T, E: From<TreeError>>(at: Lpn, why: &str) -> Result<T, E> {
    let why = why.to_string();
    Err(TreeError::Damaged { at, why }.into())
}
