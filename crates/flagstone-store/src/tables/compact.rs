//! Tables that become smaller: nodes that deletions have left nearly empty are merged, and pages
//! get the lowest numbers. A store has room for its highest page, so that tables of which most was
//! deleted take what they took before, until their last pages have moved.
//!
//! Nodes and pages move in transactions of their own, a few at a time, each of which leads to all
//! tables as any other does. Others read and write between them.

use super::Mistake;
use super::catalog::Record;
use super::changed::Changed;
use super::read::{ReadTx, in_table, records, walk};
use super::store::Store;
use super::write::WriteTx;
use crate::error::StoreError;
use crate::pages::LEISURE;
use flagstone::index::prefix_bptree::{ByteTree, MergeFrom, Root};
use flagstone::index::{IndexError, Result as IndexResult};
use std::sync::atomic::{AtomicU64, Ordering};

/// Nodes that one transaction reads and pages that it writes, about. A value moves at once.
const STEP: usize = 512;

/// Idle work compacts tables that have `SPARSE_SHARE` times the pages that they need and
/// `SPARSE_BESIDE` more. A tree to which keys come in any order has 1.45 times what it needs.
const SPARSE_SHARE: f64 = 1.75;
const SPARSE_BESIDE: u64 = 64;

/// Rows that are removed for each page of a store, at least, before idle work counts nodes again.
const REMOVED_SHARE: u64 = 4;

/// Where the next part begins: a table, nothing for the first of them, and a place in its tree.
type Next<F> = (Option<String>, F);

/// Carries out a part in a tree, from a place on, and takes what it costs off the last argument.
/// Returns where to begin next; nothing at the end of the tree.
type Part<F> = fn(&mut ByteTree<&mut Changed>, F, &mut usize) -> IndexResult<Option<F>>;

fn merge(
    tree: &mut ByteTree<&mut Changed>,
    from: MergeFrom,
    left: &mut usize,
) -> IndexResult<Option<MergeFrom>> {
    tree.merge(from, left)
}

fn lower(
    tree: &mut ByteTree<&mut Changed>,
    from: Vec<u8>,
    left: &mut usize,
) -> IndexResult<Option<Vec<u8>>> {
    // A page that moves is taken and given back: the end stays while the part lasts.
    let end = tree.nodes().space.used();
    tree.lower(end, &from, left)
}

impl Store {
    /// Merges nodes of tables that deletions have left nearly empty, and gives the pages that
    /// tables hold the lowest numbers, by transactions of its own between those of others. Then it
    /// gives the room back that the store does not need any more
    /// ([`SharedPages::compact`](crate::SharedPages::compact)). Pages that are taken meanwhile may
    /// stay where they are, and so does a value that is larger than the room of a store that is
    /// full. Returns how many pages there are from the first to the highest one.
    ///
    /// # Errors
    /// As [`Store::write`] and [`WriteTx::commit`]. What has moved until then has.
    pub fn compact(&self) -> Result<u64, StoreError> {
        if !self.is_mistaken(Mistake::MergesNothing) {
            self.in_parts(merge)?;
        }
        self.in_parts(lower)?;
        let tx = self.write()?;
        let end = tx.changed().space.end();
        drop(tx);
        self.pages().compact()?;
        Ok(u64::from(end.0))
    }

    /// Goes through all tables, a part of them in a transaction.
    fn in_parts<F: Clone + Default + PartialEq>(&self, act: Part<F>) -> Result<(), StoreError> {
        let (mut next, mut most) = (Some(Next::default()), STEP);
        while let Some(from) = next.clone() {
            let mut tx = self.begin_to_write(true)?;
            let rest = tx.carry_out(from.clone(), most, act)?;
            match tx.commit() {
                Ok(()) => (next, most) = (rest, STEP.min(2 * most)),
                // A store that is full has room for a few at a time.
                Err(StoreError::Full(_)) if most > 1 => most /= 2,
                // Not for the pages of a large value, which stay where they are, nor for a node
                // that merges, at which the rest would begin again.
                Err(StoreError::Full(_)) => next = rest.filter(|rest| *rest != from),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Compacts the store while nobody asks for anything, if its tables are sparse and it holds few
    /// pages for each of `pages`. Returns how many pages were given back.
    pub(super) fn compact_at_leisure(&self, pages: u32) -> Result<u32, StoreError> {
        let (newest, can_compact) = self.pages().with(|store| {
            let newest = store.device().ftl().last_seq();
            (newest, store.can_compact())
        });
        let leisure = self.leisure();
        let is_busy = self.has_writer() || !self.pages().has_no_open_group();
        if leisure.is_left_alone_at(newest) || !can_compact || is_busy {
            return Ok(0);
        }
        let held = self.pages().held();
        let holds = held.len() as u64;
        if holds > u64::from(pages) * LEISURE {
            return Ok(0);
        }
        leisure.leave_alone_at(newest);
        let end = held.last().map_or(0, |at| u64::from(at.0) + 1);
        let is_sparse = is_sparse(end, holds)
            || leisure.counts_after(holds / REMOVED_SHARE) && self.has_sparse_tables()?;
        if !is_sparse {
            return Ok(0);
        }
        match self.compact() {
            Err(error) if error.is_damage() => return Ok(0),
            done => done?,
        };
        let newest = self.pages().with(|store| store.device().ftl().last_seq());
        leisure.leave_alone_at(newest);
        let left = self.pages().held().len() as u64;
        Ok(u32::try_from(holds.saturating_sub(left)).unwrap_or(u32::MAX))
    }

    /// Whether the nodes of all tables need far fewer pages than they have. Damaged tables are not
    /// sparse: they are left as they are.
    fn has_sparse_tables(&self) -> Result<bool, StoreError> {
        let nodes = self.read().and_then(|read| read.nodes());
        match nodes {
            Ok((nodes, needed)) => Ok(is_sparse(nodes, needed)),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_sparse(pages: u64, needed: u64) -> bool {
    pages as f64 > needed as f64 * SPARSE_SHARE + SPARSE_BESIDE as f64
}

impl ReadTx {
    /// The number of nodes of all tables and of the catalog, and of pages that these need.
    fn nodes(&self) -> Result<(u64, u64), StoreError> {
        let Some(catalog) = &self.catalog else {
            return Ok((0, 0));
        };
        let (mut nodes, mut needed) = catalog.nodes()?;
        for (name, record) in records(catalog)? {
            let tree = walk(catalog.images().clone(), record.root)?;
            let of_table = tree.nodes().map_err(in_table(&name, None))?;
            nodes += of_table.0;
            needed += of_table.1;
        }
        Ok((nodes, needed))
    }
}

/// What idle work knows of the tables.
#[derive(Debug)]
pub(super) struct Leisure {
    /// The newest number of a program when the tables were looked at last.
    left_alone_at: AtomicU64,
    /// Rows that were removed since their nodes were counted; many while these never were.
    removed: AtomicU64,
}

impl Default for Leisure {
    fn default() -> Leisure {
        Leisure {
            left_alone_at: u64::MAX.into(),
            removed: UNKNOWN.into(),
        }
    }
}

/// Rows removed before a store was opened.
const UNKNOWN: u64 = 1 << 62;

impl Leisure {
    /// A row was removed.
    pub(super) fn has_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_left_alone_at(&self, newest: u64) -> bool {
        self.left_alone_at.load(Ordering::Relaxed) == newest
    }

    fn leave_alone_at(&self, newest: u64) {
        self.left_alone_at.store(newest, Ordering::Relaxed);
    }

    /// Whether more than `rows` rows were removed since this was the case.
    fn counts_after(&self, rows: u64) -> bool {
        let counts = self.removed.load(Ordering::Relaxed) > rows;
        if counts {
            self.removed.store(0, Ordering::Relaxed);
        }
        counts
    }
}

impl WriteTx {
    /// Carries out a part in some of the tables, and in the catalog after the last one. Returns
    /// where the next part begins; nothing after the catalog.
    fn carry_out<F: Default>(
        &mut self,
        (table, from): Next<F>,
        most: usize,
        act: Part<F>,
    ) -> Result<Option<Next<F>>, StoreError> {
        let (first, mut left) = (table.unwrap_or_default(), most);
        let mut from = Some(from);
        for (name, _) in self.tables()? {
            let Some(record) = self.record(&name)?.filter(|_| name >= first) else {
                continue;
            };
            let from = from.take().filter(|_| name == first).unwrap_or_default();
            if left == 0 {
                return Ok(Some((Some(name), from)));
            }
            let (root, rest) = self.in_tree(Some(&name), record.root, from, &mut left, act)?;
            if root != record.root && !self.is_mistaken(Mistake::MovesRootUnnamed) {
                let moved = Record { root, ..record };
                self.open.insert(name.as_str().into(), Some(moved));
            }
            if let Some(from) = rest {
                return Ok(Some((Some(name), from)));
            }
        }
        let all = &mut { usize::MAX };
        let (root, _) = self.in_tree(None, self.catalog, F::default(), all, act)?;
        self.catalog = root;
        Ok(None)
    }

    fn in_tree<F>(
        &mut self,
        name: Option<&str>,
        root: Root,
        from: F,
        left: &mut usize,
        act: Part<F>,
    ) -> Result<(Root, Option<F>), StoreError> {
        let pages = self.changed_mut();
        let mut tree = ByteTree::over(&mut *pages, root)?;
        let rest = act(&mut tree, from, left);
        let root = tree.root();
        let rest = rest.map_err(|error: IndexError| {
            let error = pages.explain(error);
            match name {
                Some(name) => in_table(name, None)(error),
                None => error,
            }
        })?;
        Ok((root, rest))
    }
}
