//! Tables and indexes as relations of pages: the size of a row or entry, and how many fit a page.
//!
//! The sizes are PostgreSQL's. A page has a header of 24 bytes and a line pointer of 4 bytes for
//! each tuple. A row has a header of 24 bytes. Columns are aligned by their kind, texts have one
//! byte of length (four from 127 bytes on), and the whole is rounded up to 8. An index entry has a
//! header of 8 bytes. Texts count with the mean length of the population.

use super::super::schema::{self, ColumnKind, Table};

macro_rules! relations {
    ($($name:ident)+) => {
        /// A relation. Heaps come first, in the order of [`Relation::TABLES`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are those of the schema")]
        pub enum Relation {
            $($name),+
        }

        impl Relation {
            /// Heaps, then indexes.
            pub const ALL: [Relation; 19] = [$($name),+];
        }
    };
}

relations! {
    Warehouse District Customer History NewOrder Orders OrderLine Item Stock
    WarehousePkey DistrictPkey CustomerPkey CustomerByName NewOrderPkey OrdersPkey OrdersByCustomer
    OrderLinePkey ItemPkey StockPkey
}

use Relation::*;

impl Relation {
    /// The tables of the heaps.
    pub const TABLES: [&'static Table; 9] = [
        &schema::WAREHOUSE,
        &schema::DISTRICT,
        &schema::CUSTOMER,
        &schema::HISTORY,
        &schema::NEW_ORDER,
        &schema::ORDERS,
        &schema::ORDER_LINE,
        &schema::ITEM,
        &schema::STOCK,
    ];

    /// The heap that an index belongs to; a heap itself.
    pub fn heap(self) -> Relation {
        match self {
            WarehousePkey => Warehouse,
            DistrictPkey => District,
            CustomerPkey | CustomerByName => Customer,
            NewOrderPkey => NewOrder,
            OrdersPkey | OrdersByCustomer => Orders,
            OrderLinePkey => OrderLine,
            ItemPkey => Item,
            StockPkey => Stock,
            heap => heap,
        }
    }

    /// The indexes of a table.
    pub fn indexes(self) -> &'static [Relation] {
        match self {
            Warehouse => &[WarehousePkey],
            District => &[DistrictPkey],
            Customer => &[CustomerPkey, CustomerByName],
            NewOrder => &[NewOrderPkey],
            Orders => &[OrdersPkey, OrdersByCustomer],
            OrderLine => &[OrderLinePkey],
            Item => &[ItemPkey],
            Stock => &[StockPkey],
            _ => &[],
        }
    }

    /// Whether it is a heap.
    pub fn is_heap(self) -> bool {
        (self as usize) < Relation::TABLES.len()
    }

    fn table(self) -> &'static Table {
        Relation::TABLES[self.heap() as usize]
    }

    /// The name in the database.
    pub fn name(self) -> String {
        let table = self.table();
        match self {
            CustomerByName | OrdersByCustomer => table.indexes[0].0.to_owned(),
            heap if heap.is_heap() => table.name.to_owned(),
            _ => format!("{}_pkey", table.name),
        }
    }

    /// The columns of an index, comma-separated.
    fn key(self) -> &'static str {
        match self {
            CustomerByName | OrdersByCustomer => self.table().indexes[0].1,
            _ => self.table().primary_key.expect("an index has a key"),
        }
    }

    /// Bytes of a page that a row or entry takes, including the line pointer.
    pub fn tuple_bytes(self) -> u32 {
        let columns = self.table().columns;
        if self.is_heap() {
            let kinds = columns.iter().map(|(_, kind)| *kind);
            return (HEAP_HEADER + data_bytes(kinds)).next_multiple_of(8) + LINE_POINTER;
        }
        let kinds = self.key().split(", ").map(|name| {
            let column = columns.iter().find(|(column, _)| *column == name);
            column.expect("a key names columns").1
        });
        (INDEX_HEADER + data_bytes(kinds)).next_multiple_of(8) + LINE_POINTER
    }

    /// Bytes of a page available for rows or entries: an index page reserves 16 more.
    pub fn usable_bytes(self, page_bytes: u32) -> u32 {
        page_bytes - PAGE_HEADER - if self.is_heap() { 0 } else { 16 }
    }

    /// Number of rows or entries per page.
    pub fn per_page(self, page_bytes: u32) -> u32 {
        self.usable_bytes(page_bytes) / self.tuple_bytes()
    }
}

const PAGE_HEADER: u32 = 24;
const LINE_POINTER: u32 = 4;
const HEAP_HEADER: u32 = 24;
const INDEX_HEADER: u32 = 8;

/// Total size of columns, each aligned.
fn data_bytes(kinds: impl Iterator<Item = ColumnKind>) -> u32 {
    kinds.fold(0, |at, kind| {
        let (align, bytes) = match kind {
            ColumnKind::Small => (2, 2),
            ColumnKind::Number => (4, 4),
            ColumnKind::Money | ColumnKind::Date => (8, 8),
            ColumnKind::Fixed(length) => (1, 1 + u32::from(length)),
            ColumnKind::Text(most) => match mean_length(most) {
                short @ ..127 => (1, 1 + short),
                long => (4, 4 + long),
            },
        };
        at.next_multiple_of(align) + bytes
    })
}

/// The mean length of a text of at most `most` characters (clause 4.3.3.1 has the minimum).
fn mean_length(most: u16) -> u32 {
    match most {
        10 => 8,    // 6 to 10
        16 => 12,   // 8 to 16, and last names
        20 => 15,   // 10 to 20
        24 => 19,   // 14 to 24 of items; payments have 12 to 24
        50 => 38,   // 26 to 50
        500 => 400, // 300 to 500
        other => u32::from(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_a_page_are_postgresqls() {
        let per_page = |relation: Relation| relation.per_page(8192);
        let heaps = [70, 61, 13, 88, 185, 136, 75, 75, 24];
        for (relation, rows) in Relation::ALL.into_iter().zip(heaps) {
            assert_eq!(per_page(relation), rows, "{}", relation.name());
        }
        assert_eq!(per_page(StockPkey), 407);
        assert_eq!(per_page(CustomerPkey), 291);
        assert_eq!(per_page(OrderLinePkey), 291);
    }

    #[test]
    fn names_are_those_of_the_schema() {
        assert_eq!(OrdersByCustomer.name(), "orders_by_customer");
        assert_eq!(StockPkey.name(), "stock_pkey");
        assert_eq!(NewOrder.name(), "new_order");
        for relation in Relation::ALL.into_iter().filter(|r| r.is_heap()) {
            for index in relation.indexes() {
                assert_eq!(index.heap(), relation);
            }
        }
    }
}
