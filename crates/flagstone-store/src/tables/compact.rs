//! Compaction of tables: merges nodes that deletions left nearly empty, and moves pages to the
//! lowest numbers. A store has room for its highest page, so until the last pages have moved,
//! tables keep their size however many rows were deleted.
//!
//! Nodes and pages move in small transactions of their own. Each of them leaves all tables
//! complete, and other transactions run between them.

use super::Mistake;
use super::catalog::Record;
use super::changed::Changed;
use super::read::{ReadTx, in_table, records, walk};
use super::store::Store;
use super::write::WriteTx;
use crate::error::StoreError;
use crate::pages::LEISURE;
use flagstone_btree::{ByteTree, MergeFrom, Root};
use std::sync::atomic::{AtomicU64, Ordering};

/// Approximate number of nodes that one transaction reads and of pages that it writes. A value
/// moves as a whole.
const STEP: usize = 512;

/// Idle work compacts tables that have more than `SPARSE_SHARE` times the pages they need plus
/// `SPARSE_BESIDE`. A tree filled in random order has 1.45 times what it needs.
const SPARSE_SHARE: f64 = 1.75;
const SPARSE_BESIDE: u64 = 64;

/// Idle work counts nodes again once at least this many rows per page of the store were removed.
const REMOVED_SHARE: u64 = 4;

/// Where the next step begins: a table (`None` for the first one), and a place in its tree.
type Next<F> = (Option<String>, F);

/// Runs one step in a tree from the given place, and subtracts its cost from the last argument.
/// Returns where to continue; `None` at the end of the tree.
type Part<F> = fn(&mut ByteTree<&mut Changed>, F, &mut usize) -> Result<Option<F>, StoreError>;

fn merge(
    tree: &mut ByteTree<&mut Changed>,
    from: MergeFrom,
    left: &mut usize,
) -> Result<Option<MergeFrom>, StoreError> {
    tree.merge(from, left)
}

fn lower(
    tree: &mut ByteTree<&mut Changed>,
    from: Vec<u8>,
    left: &mut usize,
) -> Result<Option<Vec<u8>>, StoreError> {
    // A moved page is taken and the old one freed, so the end is constant during a step.
    let end = tree.nodes.space.used();
    tree.lower(end, &from, left)
}

impl Store {
    /// Merges table nodes that deletions left nearly empty, and moves pages of tables to the lowest
    /// numbers, in transactions of its own between those of others. Then gives room back to the
    /// medium ([`SharedPages::compact`](crate::SharedPages::compact)). Pages allocated meanwhile
    /// may stay in place, and so does a value that is larger than the free room of a full store.
    /// Returns the number of pages up to the highest one.
    ///
    /// # Errors
    /// As [`Store::write`] and [`WriteTx::commit`]. Steps committed before the error stay.
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

    /// Runs `act` over all tables, in steps of one transaction each. A step that finds no room is
    /// tried again with half of the nodes and pages.
    fn in_parts<F: Clone + Default + PartialEq>(&self, act: Part<F>) -> Result<(), StoreError> {
        let (mut next, mut most) = (Some(Next::default()), STEP);
        while let Some(from) = next.clone() {
            let mut tx = self.begin_to_write(true)?;
            let rest = tx.carry_out(from.clone(), most, act)?;
            match tx.commit() {
                Ok(()) => (next, most) = (rest, STEP.min(2 * most)),
                // A full store has space for small steps only.
                Err(StoreError::Full(_)) if most > 1 => most /= 2,
                // Continues behind a leaf whose large values find no room, and stay in place. Ends
                // at a node that finds no room to merge: the next step would begin there again.
                Err(StoreError::Full(_)) => next = rest.filter(|rest| *rest != from),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Compacts the store in idle time, if its tables are sparse and it holds at most [`LEISURE`]
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

    /// Whether all tables together have far more nodes than they need. Damaged tables do not count
    /// as sparse and are left unchanged.
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
    /// The number of nodes of all tables and the catalog, and the number of pages that they need.
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

/// What idle work remembers about the tables.
#[derive(Debug)]
pub(super) struct Leisure {
    /// The number of the newest program when the tables were last examined.
    left_alone_at: AtomicU64,
    /// Rows removed since nodes were counted; a large number if they never were.
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

/// Assumed number of removed rows when a store is opened.
const UNKNOWN: u64 = 1 << 62;

impl Leisure {
    /// Records that a row was removed.
    pub(super) fn has_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_left_alone_at(&self, newest: u64) -> bool {
        self.left_alone_at.load(Ordering::Relaxed) == newest
    }

    fn leave_alone_at(&self, newest: u64) {
        self.left_alone_at.store(newest, Ordering::Relaxed);
    }

    /// Whether more than `rows` rows were removed since this was last true.
    fn counts_after(&self, rows: u64) -> bool {
        let counts = self.removed.load(Ordering::Relaxed) > rows;
        if counts {
            self.removed.store(0, Ordering::Relaxed);
        }
        counts
    }
}

impl WriteTx {
    /// Runs one step of `act` from a place in a table on, until it has read and written some `most`
    /// nodes and pages, and over the whole catalog after the last table. Returns where the next
    /// step begins; `None` after the catalog.
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

    /// Runs `act` in the tree of table `name`, or of the catalog if that is `None`. Returns the
    /// tree's root, which may have moved, and where to continue.
    fn in_tree<F>(
        &mut self,
        name: Option<&str>,
        root: Root,
        from: F,
        left: &mut usize,
        act: Part<F>,
    ) -> Result<(Root, Option<F>), StoreError> {
        let pages = self.changed_mut();
        let mut tree = ByteTree::over(pages, root)?;
        let rest = act(&mut tree, from, left);
        let root = tree.root();
        let rest = rest.map_err(|error| match name {
            Some(name) => in_table(name, None)(error),
            None => error,
        })?;
        Ok((root, rest))
    }
}
