//! Pages and their free space: heaps with versions of rows, trees with entries, and pages added as
//! they grow.
//!
//! A row is only stored if it has moved, and then only its place; places of loaded rows and entries
//! are computed. A page is two counters: free bytes and next slot.

use super::relation::Relation;
use crate::workload::{Access, Rid, Verb};
use flagstone::units::Lpn;
use rustc_hash::FxHashMap;

/// Pages are numbered relation by relation; added pages follow all of them.
#[derive(Debug, Clone)]
pub(super) struct Space {
    /// Free bytes of a heap page; free entries of an index page.
    free: Vec<u16>,
    /// The next slot of each page.
    slots: Vec<u16>,
    page_bytes: u32,
    /// Number of pages after the load, which is the number of the first added page.
    loaded: u32,
    /// Relation of each added page, and the inner page above it if it is a leaf.
    added: Vec<(Relation, Option<u32>)>,
    /// Maximum number of pages.
    limit: u32,
    /// Whether a page was needed beyond the limit.
    pub(super) full: bool,
    heaps: Vec<Heap>,
    trees: Vec<Tree>,
    /// The leaf that continues a full leaf.
    continued: FxHashMap<u32, u32>,
    /// Changes of free space at the end of the running transaction.
    ends: Vec<End>,
}

#[derive(Debug, Clone)]
struct Heap {
    first: u32,
    pages: u32,
    rows: u64,
    per_page: u32,
    row_bytes: u16,
    /// The page to which each client adds rows.
    targets: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Tree {
    /// First page and number of pages of each level, from the leaves to the root.
    levels: Vec<(u32, u32)>,
    /// Entries per leaf after the load: 90 % of the capacity.
    per_leaf: u32,
    /// Capacity of a leaf in entries.
    capacity: u16,
    /// Children per inner page: 70 % of the capacity.
    fanout: u32,
}

#[derive(Debug, Clone, Copy)]
struct End {
    page: u32,
    bytes: u16,
    committed: bool,
    rolled_back: bool,
}

impl Space {
    /// A database with `rows` rows in each table, in the order of [`Relation::TABLES`]. Pages of
    /// the hot tables are filled to `hot_fill` percent.
    pub(super) fn new(rows: [u64; 9], page_bytes: u32, hot_fill: u32, limit: u32) -> Space {
        let mut space = Space {
            free: Vec::new(),
            slots: Vec::new(),
            page_bytes,
            loaded: 0,
            added: Vec::new(),
            limit,
            full: false,
            heaps: Vec::new(),
            trees: Vec::new(),
            continued: FxHashMap::default(),
            ends: Vec::new(),
        };
        for relation in Relation::ALL {
            let rows = rows[relation.heap() as usize];
            if relation.is_heap() {
                let hot = matches!(relation, Relation::Warehouse | Relation::District);
                space.lay_heap(relation, rows, if hot { hot_fill } else { 100 });
            } else {
                space.lay_tree(relation, rows);
            }
        }
        space.loaded = space.pages();
        space
    }

    /// Adds the pages of a table with `rows` rows, filled to `fill` percent.
    fn lay_heap(&mut self, relation: Relation, rows: u64, fill: u32) {
        let usable = relation.usable_bytes(self.page_bytes);
        let row_bytes = relation.tuple_bytes();
        let per_page = (relation.per_page(self.page_bytes) * fill / 100).max(1);
        let first = self.pages();
        let pages = rows.div_ceil(u64::from(per_page)).max(1) as u32;
        for page in 0..pages {
            let here = (rows - u64::from(page * per_page).min(rows)).min(u64::from(per_page));
            self.slots.push(here as u16);
            self.free.push((usable - here as u32 * row_bytes) as u16);
        }
        self.heaps.push(Heap {
            first,
            pages,
            rows,
            per_page,
            row_bytes: row_bytes as u16,
            targets: Vec::new(),
        });
    }

    /// Adds the pages of an index: leaves filled to 90 percent, and inner pages to 70, up to one
    /// root.
    fn lay_tree(&mut self, relation: Relation, entries: u64) {
        let capacity = relation.per_page(self.page_bytes);
        let per_leaf = capacity * 9 / 10;
        let fanout = capacity * 7 / 10;
        // The first page and number of pages of each level, the leaves first.
        let mut levels = vec![(
            self.pages(),
            entries.div_ceil(u64::from(per_leaf)).max(1) as u32,
        )];
        for leaf in 0..levels[0].1 {
            let here = (entries - u64::from(leaf * per_leaf).min(entries)).min(per_leaf.into());
            self.slots.push(here as u16);
            self.free.push((capacity - here as u32) as u16);
        }
        while let Some(&(_, pages @ 2..)) = levels.last() {
            let above = pages.div_ceil(fanout);
            levels.push((self.pages(), above));
            for page in 0..above {
                self.slots.push((pages - page * fanout).min(fanout) as u16);
                self.free.push(0);
            }
        }
        self.trees.push(Tree {
            levels,
            per_leaf,
            capacity: capacity as u16,
            fanout,
        });
    }

    /// Number of pages in use.
    pub(super) fn pages(&self) -> u32 {
        self.free.len() as u32
    }

    /// The relation of a page.
    pub(super) fn relation_of(&self, page: u32) -> Relation {
        if let Some(added) = page.checked_sub(self.loaded) {
            return self.added[added as usize].0;
        }
        let first = |relation: &Relation| {
            if relation.is_heap() {
                self.heaps[*relation as usize].first
            } else {
                self.tree(*relation).levels[0].0
            }
        };
        let behind = Relation::ALL.partition_point(|relation| first(relation) <= page);
        Relation::ALL[behind - 1]
    }

    fn tree(&self, relation: Relation) -> &Tree {
        &self.trees[relation as usize - self.heaps.len()]
    }

    /// The place of a loaded row.
    pub(super) fn row(&self, heap: Relation, row: u64) -> Rid {
        let heap = &self.heaps[heap as usize];
        debug_assert!(row < heap.rows);
        let per_page = u64::from(heap.per_page);
        rid(
            heap.first + (row / per_page) as u32,
            (row % per_page) as u16,
        )
    }

    /// The place of a loaded entry, by its rank among the keys.
    pub(super) fn entry(&self, tree: Relation, rank: u64) -> Rid {
        let tree = self.tree(tree);
        let per_leaf = u64::from(tree.per_leaf);
        rid(
            tree.levels[0].0 + (rank / per_leaf) as u32,
            (rank % per_leaf) as u16,
        )
    }

    fn add(&mut self, relation: Relation, above: Option<u32>, free: u16) -> u32 {
        if self.pages() >= self.limit {
            self.full = true;
            return self.pages() - 1;
        }
        self.free.push(free);
        self.slots.push(0);
        self.added.push((relation, above));
        self.pages() - 1
    }

    /// Adds a row to the client's current page, or to a new one. Once the table's last page is full
    /// each client has its own page, like PostgreSQL's backends.
    pub(super) fn insert(&mut self, heap: Relation, client: u32, out: &mut Vec<Access>) -> Rid {
        let at = client as usize;
        let table = &mut self.heaps[heap as usize];
        if at >= table.targets.len() {
            table.targets.resize(at + 1, table.first + table.pages - 1);
        }
        let (mut page, bytes) = (table.targets[at], table.row_bytes);
        if self.free[page as usize] < bytes {
            let usable = heap.usable_bytes(self.page_bytes) as u16;
            page = self.add(heap, None, usable);
            self.heaps[heap as usize].targets[at] = page;
        }
        self.take(page, bytes);
        self.at_end(page, bytes, false, true);
        let slot = self.next_slot(page);
        out.push(access(Verb::Insert, rid(page, slot)));
        rid(page, slot)
    }

    /// Writes a new version of a row. If its page has space, nothing else changes. Otherwise writes
    /// it to the page where the client adds rows, and returns the new place.
    pub(super) fn update(
        &mut self,
        heap: Relation,
        at: Rid,
        client: u32,
        out: &mut Vec<Access>,
    ) -> Option<Rid> {
        let (page, bytes) = (at.page.0, self.heaps[heap as usize].row_bytes);
        if self.free[page as usize] >= bytes {
            self.take(page, bytes);
            self.at_end(page, bytes, true, true);
            out.push(access(Verb::Update, at));
            return None;
        }
        self.delete(heap, at, out);
        Some(self.insert(heap, client, out))
    }

    /// Deletes a row; its space is free after the commit.
    pub(super) fn delete(&mut self, heap: Relation, at: Rid, out: &mut Vec<Access>) {
        let bytes = self.heaps[heap as usize].row_bytes;
        self.at_end(at.page.0, bytes, true, false);
        out.push(access(Verb::Expire, at));
    }

    /// Appends the path down to a leaf.
    pub(super) fn descend(&self, tree: Relation, leaf: Lpn, out: &mut Vec<Access>) {
        let mut way = [0; 8];
        let mut length = 0;
        let mut above = self.above(tree, leaf.0);
        let mut level = 1;
        while let Some(page) = above {
            way[length] = page;
            length += 1;
            above = self.parent(tree, level, page);
            level += 1;
        }
        let touch = |page: &u32| access(Verb::Touch, rid(*page, 0));
        out.extend(way[..length].iter().rev().map(touch));
    }

    /// The inner page above a leaf.
    fn above(&self, tree: Relation, leaf: u32) -> Option<u32> {
        match leaf.checked_sub(self.loaded) {
            Some(added) => self.added[added as usize].1,
            None => self.parent(tree, 0, leaf),
        }
    }

    fn parent(&self, tree: Relation, level: usize, page: u32) -> Option<u32> {
        let tree = self.tree(tree);
        let above = tree.levels.get(level + 1)?;
        Some(above.0 + (page - tree.levels[level].0) / tree.fanout)
    }

    /// Descends to an entry and reads it.
    pub(super) fn look_up(&self, tree: Relation, entry: Rid, out: &mut Vec<Access>) {
        self.descend(tree, entry.page, out);
        out.push(access(Verb::Read, entry));
    }

    /// Adds an entry to a leaf. A full leaf is continued in a leaf to its right; with `own`, in a
    /// new leaf that only keys from this one on use.
    pub(super) fn add_entry(
        &mut self,
        tree: Relation,
        leaf: Lpn,
        own: bool,
        out: &mut Vec<Access>,
    ) -> Rid {
        self.descend(tree, leaf, out);
        let mut page = leaf.0;
        while self.free[page as usize] == 0 {
            page = match self.continued.get(&page) {
                Some(&next) if !own => next,
                _ => self.split(tree, page, out),
            };
            if self.full {
                break;
            }
        }
        self.free[page as usize] = self.free[page as usize].saturating_sub(1);
        let slot = self.next_slot(page);
        out.push(access(Verb::Insert, rid(page, slot)));
        rid(page, slot)
    }

    /// Continues a full leaf: writes the leaf, its new neighbour and the parent.
    fn split(&mut self, tree: Relation, leaf: u32, out: &mut Vec<Access>) -> u32 {
        let (above, capacity) = (self.above(tree, leaf), self.tree(tree).capacity);
        let new = self.add(tree, above, capacity);
        self.continued.insert(leaf, new);
        // Links between pages are a separate record, after the entries.
        out.push(access(Verb::Update, rid(leaf, capacity)));
        if let Some(above) = above {
            let child = self.next_slot(above) % capacity;
            out.push(access(Verb::Insert, rid(above, child)));
        }
        new
    }

    fn next_slot(&mut self, page: u32) -> u16 {
        let slot = &mut self.slots[page as usize];
        *slot = slot.wrapping_add(1);
        slot.wrapping_sub(1)
    }

    fn take(&mut self, page: u32, bytes: u16) {
        let free = &mut self.free[page as usize];
        *free = free.saturating_sub(bytes);
    }

    fn at_end(&mut self, page: u32, bytes: u16, committed: bool, rolled_back: bool) {
        self.ends.push(End {
            page,
            bytes,
            committed,
            rolled_back,
        });
    }

    /// Ends the transaction and frees its dead space.
    pub(super) fn end(&mut self, committed: bool) {
        for end in self.ends.drain(..) {
            if (committed && end.committed) || (!committed && end.rolled_back) {
                self.free[end.page as usize] += end.bytes;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn slots_used(&self) -> Vec<u16> {
        self.slots.clone()
    }

    #[cfg(test)]
    pub(super) fn is_inner(&self, page: u32) -> bool {
        let relation = self.relation_of(page);
        let behind = |tree: &Tree| tree.levels[0].0 + tree.levels[0].1;
        page < self.loaded && !relation.is_heap() && page >= behind(self.tree(relation))
    }

    /// Memory of the counters in bytes.
    pub(super) fn memory(&self) -> u64 {
        let counters = 2 * (self.free.capacity() + self.slots.capacity());
        let added = self.added.capacity() * size_of::<(Relation, Option<u32>)>();
        let targets: usize = self.heaps.iter().map(|heap| 4 * heap.targets.len()).sum();
        (counters + added + targets + self.continued.capacity() * 9) as u64
    }
}

fn rid(page: u32, slot: u16) -> Rid {
    Rid {
        page: Lpn(page),
        slot,
    }
}

fn access(verb: Verb, at: Rid) -> Access {
    Access { verb, at }
}
