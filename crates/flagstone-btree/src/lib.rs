//! A B+-tree of byte strings, keys and values of any length, in pages of any kind.
//!
//! Tables of `flagstone-store` and the index `prefix-bptree` of `flagstone-index` use this tree. It
//! knows neither of them: [`ByteTree`] changes pages through the trait [`Nodes`], and [`Walk`]
//! reads pages that do not change through the trait [`Images`].
//!
//! Paper       \[PrefixBTree]: what inner nodes keep of keys, and what all keys of a node begin
//!             with. Slots, and pages for long values, are those of the textbooks.
//! Idea        Entries lie in leaves, in order; inner nodes lead to them. A key between two leaves
//!             is the shortest that tells them apart, and a node keeps once what its keys begin
//!             with alike; so more entries fit a page, and a comparison looks at fewer bytes.
//!             A node splits or merges by bytes and not by entries.
//! Cost        As many reads as there are levels, less what the memory holds; one program for a
//!             change, three for a split, for entries that move to a sibling, two for a merge. A
//!             value of more than half of a page has pages of its own, that are written in one
//!             request and read in one.
//!
//!   node.rs     nodes in pages            byte_tree.rs searches, changes, long values
//!   apart.rs    cutting a node in two     balance.rs   splits, merges
//!   nodes.rs    the pages below           check.rs     the check of the whole
//!   walk.rs     reading, both ways        range.rs     ranges
//!   lower.rs    pages to lower numbers    merge.rs     sparse nodes to fuller ones
//!   fell.rs     freeing a tree in parts   lost.rs      unreadable parts
//!
//! Invariants  1. No entry takes more than half of a node; a key has an eighth of one at most.
//!             2. The entries of a node other than the root would fill a quarter of a page or more
//!                without a prefix.
//!             3. All keys of a child lie between those beside it in its parent.
//!             4. The pages of a long value are named by its entry, or by pages that its entry
//!                names where there are too many of them; and by nothing else.
//!
//! Departures  D1. Leaves do not name their neighbours. A range finds the next leaf from above,
//!                 where the nodes are in memory, and asks for as many at once as it needs and may
//!                 ([`ByteTree::range`]); a split or merge has a page less to write.
//!             D2. What happens to nodes with too little is our own: one that would not fill a
//!                 quarter of a page without prefixes merges with a sibling or takes from one.
//!             D3. A prefix is not made longer when keys go, and shorter only by a key without it:
//!                 the node is then written anew.
//!             D4. A node that an entry at its end has made too full is cut near there: a quarter
//!                 goes to the right. Keys that come in order leave three quarters behind and not
//!                 a half.
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
