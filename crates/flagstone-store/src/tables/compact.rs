//! Tables whose pages get the lowest numbers: a store has room for its highest page, so that tables
//! of which most was deleted take what they took before, until their last pages have moved.
//!
//! Pages move in transactions of their own, a few at a time, each of which leads to all tables as
//! any other does. Others read and write between them.

use super::Mistake;
use super::catalog::Record;
use super::read::in_table;
use super::store::Store;
use super::write::WriteTx;
use crate::error::StoreError;
use flagstone::index::prefix_bptree::{ByteTree, Root};
use flagstone::units::Lpn;

/// Leaves that one transaction reads and pages that it writes, about. A value moves at once.
const STEP: usize = 512;

/// Where the next part begins: a table, nothing for the first of them, and a key.
type Next = (Option<String>, Vec<u8>);

impl Store {
    /// Gives the pages that tables hold the lowest numbers, by transactions of their own between
    /// those of others, and then the room back that the store does not need any more
    /// ([`SharedPages::compact`](crate::SharedPages::compact)). Pages that are taken meanwhile may
    /// stay where they are, and so does a value that is larger than the room of a store that is
    /// full. Returns how many pages there are from the first to the highest one.
    ///
    /// # Errors
    /// As [`Store::write`] and [`WriteTx::commit`]. What has moved until then has.
    pub fn compact(&self) -> Result<u64, StoreError> {
        let (mut next, mut most) = (Some(Next::default()), STEP);
        while let Some(from) = next.clone() {
            let mut tx = self.begin_to_write(true)?;
            let rest = tx.lower(from, most)?;
            match tx.commit() {
                Ok(()) => (next, most) = (rest, STEP.min(2 * most)),
                // A store that is full has room for a few at a time.
                Err(StoreError::Full(_)) if most > 1 => most /= 2,
                // Not for the pages of a large value, which stay where they are.
                Err(StoreError::Full(_)) => next = rest,
                Err(error) => return Err(error),
            }
        }
        let tx = self.write()?;
        let end = tx.changed().space.end();
        drop(tx);
        self.pages().compact()?;
        Ok(u64::from(end.0))
    }
}

impl WriteTx {
    /// Lowers a part of the tables, and the catalog after the last one. Returns where the next part
    /// begins; nothing after the catalog.
    fn lower(&mut self, (table, mut from): Next, most: usize) -> Result<Option<Next>, StoreError> {
        let end = self.changed().space.used();
        let (first, mut left) = (table.unwrap_or_default(), most);
        for (name, _) in self.tables()? {
            let Some(record) = self.record(&name)?.filter(|_| name >= first) else {
                continue;
            };
            if name > first {
                from.clear();
            }
            if left == 0 {
                return Ok(Some((Some(name), from)));
            }
            let (root, rest) = self.lower_tree(Some(&name), record.root, end, &from, &mut left)?;
            if root != record.root && !self.is_mistaken(Mistake::MovesRootUnnamed) {
                let lowered = Record { root, ..record };
                self.open.insert(name.as_str().into(), Some(lowered));
            }
            if let Some(key) = rest {
                return Ok(Some((Some(name), key)));
            }
        }
        let (root, _) = self.lower_tree(None, self.catalog, end, b"", &mut { usize::MAX })?;
        self.catalog = root;
        Ok(None)
    }

    fn lower_tree(
        &mut self,
        name: Option<&str>,
        root: Root,
        end: Lpn,
        from: &[u8],
        left: &mut usize,
    ) -> Result<(Root, Option<Vec<u8>>), StoreError> {
        let pages = self.changed_mut();
        let mut tree = ByteTree::over(&mut *pages, root)?;
        let rest = tree.lower(end, from, left);
        let root = tree.root();
        let rest = rest.map_err(|error| {
            let error = pages.explain(error);
            match name {
                Some(name) => in_table(name, None)(error),
                None => error,
            }
        })?;
        Ok((root, rest))
    }
}
