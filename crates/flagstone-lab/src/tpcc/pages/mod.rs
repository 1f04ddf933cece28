//! TPC-C at page level: the page and record accesses of the five transactions, without a database.
//! From the requests of [`Client`] it derives accesses: index pages on the search path, records
//! read, updated, inserted and deleted, and finally a commit or a rollback.
//!
//! A recording has one size and no reads, and fixes which transaction waited for which. Here the
//! numbers of warehouses and clients are free, and a restarted transaction repeats its accesses.
//!
//! The model of a database, with [`relation`] for the sizes of rows:
//!
//! - Rows take their size in PostgreSQL, and heaps are loaded full (`fillfactor` 100). The bytes
//!   that a simulation writes are few ([`Transaction::payload`]); only the layout has the real
//!   size.
//! - An update writes a new version: into the row's page if there is room for one, and no index
//!   changes (HOT); else into the page where the client adds rows, with an entry in each index.
//!   What it replaced is free once the transaction has ended. So each loaded page moves about one
//!   row, and what comes later stays: as with PostgreSQL since 8.3, without vacuum.
//! - Rows are added to a page that the client has for itself once the table's last one is full.
//! - Indexes are B-trees that were built 90 % full, inner pages 70 %. A full leaf is continued in a
//!   new one to its right. Entries stay where they were written, so that a record has one address
//!   for life; inner pages are never split, and deleted entries stay, as they do until a vacuum.
//! - A transaction is derived as a whole when it begins, after all that began before it. What is
//!   known of the others is what they will have done; a rolled back one leaves only dead rows.
//! - A row that is deleted or moved is written where it was, which is how it becomes dead.
//! - Locks are the host's. Of an index, the leaf entries that are read or written are records;
//!   inner pages are only touched. A record that the load wrote is not there until it is written.
//! - There are no pages of free space and visibility maps, no pruning outside an update, no toast.

mod book;
mod derive;
pub mod relation;
#[cfg(test)]
mod shape;
mod space;
mod versions;

use super::Scale;
use super::input::Terminal;
use super::mix::Client;
use super::random::Constants;
use crate::driver::{Source, SourceError};
use crate::names::Named;
use crate::workload::{Access, Transaction};
use derive::Database;
use flagstone::units::Lpn;
use relation::Relation;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use versions::Versions;

/// Which transactions are supplied, by the number of pages that they write: \[FlagCommit] §5.3.3
/// splits its trace at ten. Transactions that are left out still affect the tables, as if part of a
/// trace were replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sizes {
    /// All transactions.
    #[default]
    All,
    /// Transactions that write at most this many pages, including readers.
    AtMost(u32),
    /// Transactions that write more pages.
    MoreThan(u32),
}

impl Sizes {
    /// Whether a transaction that writes `pages` pages is dealt.
    pub fn take(self, pages: u32) -> bool {
        match self {
            Sizes::All => true,
            Sizes::AtMost(most) => pages <= most,
            Sizes::MoreThan(most) => pages > most,
        }
    }
}

impl Named for Sizes {
    const WHAT: &'static str = "sizes";

    fn all() -> Vec<(Self, &'static str)> {
        vec![
            (Sizes::All, "all"),
            (Sizes::AtMost(10), "short"),
            (Sizes::MoreThan(10), "long"),
        ]
    }
}

/// When a transaction accesses the most contended rows: those of warehouses and districts. A
/// paper's trace can have them anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HotRows {
    /// First: transactions conflict early, and a victim has lost little.
    First,
    /// In the order of the transaction's profile: mostly at the beginning.
    #[default]
    InOrder,
    /// Last: transactions conflict late, hold these locks only briefly, and a victim has done
    /// nearly all of its work.
    Last,
}

impl Named for HotRows {
    const WHAT: &'static str = "hot_rows";

    fn all() -> Vec<(Self, &'static str)> {
        vec![
            (HotRows::First, "first"),
            (HotRows::InOrder, "order"),
            (HotRows::Last, "last"),
        ]
    }
}

/// Parameters of a stream of transactions. The fields are keys of experiment files, except those
/// that come from the device and the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PagesOptions {
    /// The database's size.
    #[serde(skip)]
    pub scale: Scale,
    /// Bytes of a page, 1024 to 32768.
    #[serde(skip)]
    pub page_bytes: u32,
    /// Seed of the population and of the clients' requests.
    #[serde(skip)]
    pub seed: u64,
    /// Fill of the pages of warehouses and districts in percent, 1 to 100. With few rows per page,
    /// fewer transactions conflict on a page.
    pub hot_fill: u32,
    /// Number of places that a row has in its page, one for each of its last versions. With 1, a
    /// row is always the same record.
    pub versions: u16,
    /// Whether a row is read before it is changed or inserted, so that a shared lock comes first.
    pub reads_first: bool,
    /// Number of pages of each table to which rows are added concurrently. Client *c* uses page *c*
    /// modulo this. With 0 each client has its own page, like a server's backend.
    pub insert_targets: u32,
    /// When a transaction accesses rows of warehouses and districts: `first`, in the `order` of its
    /// profile, or `last`.
    #[serde(with = "crate::names")]
    pub hot_rows: HotRows,
    /// Fraction of its accesses that a transaction makes before it is rolled back. With 0 a
    /// rollback costs nothing.
    pub rolled_back_after: f64,
    /// Maximum number of pages of the database.
    #[serde(skip)]
    pub pages_max: u32,
    /// Which transactions are supplied, by the number of pages that they write: `all`, `short` (at
    /// most ten) or `long` (more).
    #[serde(with = "crate::names")]
    pub sizes: Sizes,
}

impl Default for PagesOptions {
    fn default() -> Self {
        PagesOptions::new(Scale::standard(1), 1)
    }
}

impl PagesOptions {
    /// Options for PostgreSQL's page size, full pages, and unlimited growth.
    pub fn new(scale: Scale, seed: u64) -> PagesOptions {
        PagesOptions {
            scale,
            page_bytes: 8192,
            seed,
            hot_fill: 100,
            versions: 1,
            reads_first: false,
            insert_targets: 0,
            hot_rows: HotRows::InOrder,
            rolled_back_after: 1.0,
            pages_max: u32::MAX,
            sizes: Sizes::All,
        }
    }
}

/// Why no transaction can be generated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PagesError {
    /// The scale is impossible.
    #[error("{0}")]
    Scale(String),
    /// The page size is not supported.
    #[error("TPC-C's pages have 1024 to 32768 bytes, not {0}")]
    PageBytes(u32),
    /// The fill percentage is invalid.
    #[error("pages are filled to 1 to 100 percent, not {0}")]
    Fill(u32),
    /// The load does not fit.
    #[error(
        "a database of {warehouses} warehouses takes {needed} pages, there is room for {available}: \
         use a larger device or fewer warehouses"
    )]
    TooLarge {
        /// Number of warehouses.
        warehouses: i64,
        /// Number of pages after the load.
        needed: u32,
        /// Maximum number of pages.
        available: u32,
    },
    /// There is no room for more rows.
    #[error(
        "the database has grown to {pages} pages after {transactions} transactions and there is \
         room for no more: use a larger device, fewer warehouses or a shorter run"
    )]
    Full {
        /// Number of pages.
        pages: u32,
        /// Number of transactions generated.
        transactions: u64,
    },
}

impl From<PagesError> for SourceError {
    fn from(error: PagesError) -> Self {
        SourceError(error.to_string())
    }
}

/// Generates transactions for clients.
#[derive(Debug, Clone)]
pub struct Pages {
    options: PagesOptions,
    constants: Constants,
    clients: Vec<Client>,
    database: Database,
    versions: Versions,
    dealt: u64,
    scratch: Vec<u32>,
}

impl Pages {
    /// A database after the load.
    ///
    /// # Errors
    /// Invalid options.
    pub fn new(options: &PagesOptions) -> Result<Pages, PagesError> {
        let complain = |error: super::session::Error| PagesError::Scale(error.to_string());
        options.scale.check().map_err(complain)?;
        if !(1024..=32_768).contains(&options.page_bytes) {
            return Err(PagesError::PageBytes(options.page_bytes));
        }
        if !(1..=100).contains(&options.hot_fill) {
            return Err(PagesError::Fill(options.hot_fill));
        }
        let database = Database::new(options);
        if database.pages() > options.pages_max {
            return Err(PagesError::TooLarge {
                warehouses: options.scale.warehouses,
                needed: database.pages(),
                available: options.pages_max,
            });
        }
        let loaded = Constants::load(options.seed).last_name;
        Ok(Pages {
            options: *options,
            constants: Constants::run(options.seed, loaded),
            clients: Vec::new(),
            database,
            versions: Versions::new(options.versions, options.reads_first),
            dealt: 0,
            scratch: Vec::new(),
        })
    }

    /// Current number of pages of the database.
    pub fn pages(&self) -> u32 {
        self.database.pages()
    }

    /// The relation of a page below [`Pages::pages`].
    pub fn relation_of(&self, page: Lpn) -> Relation {
        self.database.relation_of(page)
    }

    /// Writes the next transaction of a client to `into`. If `roll_back` is set, it ends with a
    /// rollback.
    ///
    /// # Errors
    /// [`PagesError::Full`] if the database cannot grow.
    pub fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<(), PagesError> {
        while self.clients.len() <= client as usize {
            let number = self.clients.len() as u32;
            let terminal = Terminal::of_client(number, self.options.scale, self.constants);
            self.clients
                .push(Client::new(number, self.options.seed, terminal));
        }
        let adder = match self.options.insert_targets {
            0 => client,
            shared => client % shared,
        };
        loop {
            let request = self.clients[client as usize].next_request();
            into.number = self.dealt;
            into.accesses.clear();
            into.commits = self
                .database
                .derive(adder, &request, roll_back, &mut into.accesses);
            self.versions.name(&mut into.accesses, |page| {
                self.database.relation_of(Lpn(page))
            });
            self.order_hot_rows(&mut into.accesses);
            self.dealt += 1;
            if self.database.is_full() {
                return Err(PagesError::Full {
                    pages: self.pages(),
                    transactions: self.dealt,
                });
            }
            let is_wanted = self.options.sizes == Sizes::All || {
                into.distinct_pages(Access::writes, &mut self.scratch);
                self.options.sizes.take(self.scratch.len() as u32)
            };
            if is_wanted {
                break;
            }
        }
        // Select by the complete transaction: a rolled-back one may be cut to few accesses.
        if !into.commits {
            let all = into.accesses.len() as f64;
            let made = (all * self.options.rolled_back_after.clamp(0.0, 1.0)).round();
            into.accesses.truncate(made as usize);
        }
        Ok(())
    }

    /// Moves accesses to rows of warehouses and districts to the front or the end. Otherwise the
    /// order is unchanged.
    fn order_hot_rows(&self, accesses: &mut [Access]) {
        let is_hot = |access: &Access| {
            let relation = self.database.relation_of(access.at.page);
            matches!(relation, Relation::Warehouse | Relation::District)
        };
        match self.options.hot_rows {
            HotRows::First => accesses.sort_by_key(|access| !is_hot(access)),
            HotRows::InOrder => {}
            HotRows::Last => accesses.sort_by_key(is_hot),
        }
    }

    /// Memory of the model in bytes.
    pub fn memory(&self) -> u64 {
        self.database.memory() + self.versions.memory()
    }
}

impl Source for Pages {
    fn deal(
        &mut self,
        client: u32,
        roll_back: bool,
        into: &mut Transaction,
    ) -> Result<bool, SourceError> {
        Pages::deal(self, client, roll_back, into)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
