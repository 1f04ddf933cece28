//! The nine tables of clause 1.3, the indexes that the transactions need, and a tenth table that
//! records how the database was populated.

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A small number, up to 32767.
    Small,
    /// A number, up to 2^31 - 1.
    Number,
    /// Cents.
    Money,
    /// Microseconds since 1970, or null.
    Date,
    /// Text of exactly this many characters.
    Fixed(u16),
    /// Text of at most this many characters.
    Text(u16),
}

impl ColumnKind {
    /// The type's name in SQL.
    pub fn sql(self) -> String {
        match self {
            ColumnKind::Small => "smallint".to_owned(),
            ColumnKind::Number => "integer".to_owned(),
            ColumnKind::Money | ColumnKind::Date => "bigint".to_owned(),
            ColumnKind::Fixed(length) => format!("char({length})"),
            ColumnKind::Text(length) => format!("varchar({length})"),
        }
    }
}

/// A table: its columns in load order, and its indexes.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Name and kind of each column.
    pub columns: &'static [(&'static str, ColumnKind)],
    /// The primary key's columns, if it has one.
    pub primary_key: Option<&'static str>,
    /// Further indexes: name and columns.
    pub indexes: &'static [(&'static str, &'static str)],
}

impl Table {
    /// `CREATE TABLE` without keys, which are added after the rows.
    pub fn create(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|(name, kind)| format!("{name} {}", kind.sql()))
            .collect();
        format!("CREATE TABLE {} ({})", self.name, columns.join(", "))
    }

    /// The statements that create the indexes of a filled table.
    pub fn create_indexes(&self) -> Vec<String> {
        let primary = self
            .primary_key
            .map(|key| format!("CREATE UNIQUE INDEX {0}_pkey ON {0} ({key})", self.name));
        let others = self
            .indexes
            .iter()
            .map(|(name, key)| format!("CREATE INDEX {name} ON {} ({key})", self.name));
        primary.into_iter().chain(others).collect()
    }
}

use ColumnKind::{Date, Fixed, Money, Number, Small, Text};

/// Warehouses.
pub const WAREHOUSE: Table = Table {
    name: "warehouse",
    columns: &[
        ("w_id", Number),
        ("w_name", Text(10)),
        ("w_street_1", Text(20)),
        ("w_street_2", Text(20)),
        ("w_city", Text(20)),
        ("w_state", Fixed(2)),
        ("w_zip", Fixed(9)),
        ("w_tax", Number),
        ("w_ytd", Money),
    ],
    primary_key: Some("w_id"),
    indexes: &[],
};

/// Ten districts of each warehouse.
pub const DISTRICT: Table = Table {
    name: "district",
    columns: &[
        ("d_id", Small),
        ("d_w_id", Number),
        ("d_name", Text(10)),
        ("d_street_1", Text(20)),
        ("d_street_2", Text(20)),
        ("d_city", Text(20)),
        ("d_state", Fixed(2)),
        ("d_zip", Fixed(9)),
        ("d_tax", Number),
        ("d_ytd", Money),
        ("d_next_o_id", Number),
    ],
    primary_key: Some("d_w_id, d_id"),
    indexes: &[],
};

/// Customers of each district.
pub const CUSTOMER: Table = Table {
    name: "customer",
    columns: &[
        ("c_id", Number),
        ("c_d_id", Small),
        ("c_w_id", Number),
        ("c_first", Text(16)),
        ("c_middle", Fixed(2)),
        ("c_last", Text(16)),
        ("c_street_1", Text(20)),
        ("c_street_2", Text(20)),
        ("c_city", Text(20)),
        ("c_state", Fixed(2)),
        ("c_zip", Fixed(9)),
        ("c_phone", Fixed(16)),
        ("c_since", Date),
        ("c_credit", Fixed(2)),
        ("c_credit_lim", Money),
        ("c_discount", Number),
        ("c_balance", Money),
        ("c_ytd_payment", Money),
        ("c_payment_cnt", Number),
        ("c_delivery_cnt", Number),
        ("c_data", Text(500)),
    ],
    primary_key: Some("c_w_id, c_d_id, c_id"),
    indexes: &[("customer_by_name", "c_w_id, c_d_id, c_last, c_first")],
};

/// Payments.
pub const HISTORY: Table = Table {
    name: "history",
    columns: &[
        ("h_c_id", Number),
        ("h_c_d_id", Small),
        ("h_c_w_id", Number),
        ("h_d_id", Small),
        ("h_w_id", Number),
        ("h_date", Date),
        ("h_amount", Money),
        ("h_data", Text(24)),
    ],
    primary_key: None,
    indexes: &[],
};

/// Orders that are not delivered yet.
pub const NEW_ORDER: Table = Table {
    name: "new_order",
    columns: &[("no_o_id", Number), ("no_d_id", Small), ("no_w_id", Number)],
    primary_key: Some("no_w_id, no_d_id, no_o_id"),
    indexes: &[],
};

/// Orders; `order` itself is an SQL keyword.
pub const ORDERS: Table = Table {
    name: "orders",
    columns: &[
        ("o_id", Number),
        ("o_d_id", Small),
        ("o_w_id", Number),
        ("o_c_id", Number),
        ("o_entry_d", Date),
        ("o_carrier_id", Small),
        ("o_ol_cnt", Small),
        ("o_all_local", Small),
    ],
    primary_key: Some("o_w_id, o_d_id, o_id"),
    indexes: &[("orders_by_customer", "o_w_id, o_d_id, o_c_id, o_id")],
};

/// Lines of orders.
pub const ORDER_LINE: Table = Table {
    name: "order_line",
    columns: &[
        ("ol_o_id", Number),
        ("ol_d_id", Small),
        ("ol_w_id", Number),
        ("ol_number", Small),
        ("ol_i_id", Number),
        ("ol_supply_w_id", Number),
        ("ol_delivery_d", Date),
        ("ol_quantity", Small),
        ("ol_amount", Money),
        ("ol_dist_info", Fixed(24)),
    ],
    primary_key: Some("ol_w_id, ol_d_id, ol_o_id, ol_number"),
    indexes: &[],
};

/// Items for sale.
pub const ITEM: Table = Table {
    name: "item",
    columns: &[
        ("i_id", Number),
        ("i_im_id", Number),
        ("i_name", Text(24)),
        ("i_price", Money),
        ("i_data", Text(50)),
    ],
    primary_key: Some("i_id"),
    indexes: &[],
};

/// Stock of each item in each warehouse.
pub const STOCK: Table = Table {
    name: "stock",
    columns: &[
        ("s_i_id", Number),
        ("s_w_id", Number),
        ("s_quantity", Small),
        ("s_dist_01", Fixed(24)),
        ("s_dist_02", Fixed(24)),
        ("s_dist_03", Fixed(24)),
        ("s_dist_04", Fixed(24)),
        ("s_dist_05", Fixed(24)),
        ("s_dist_06", Fixed(24)),
        ("s_dist_07", Fixed(24)),
        ("s_dist_08", Fixed(24)),
        ("s_dist_09", Fixed(24)),
        ("s_dist_10", Fixed(24)),
        ("s_ytd", Number),
        ("s_order_cnt", Number),
        ("s_remote_cnt", Number),
        ("s_data", Text(50)),
    ],
    primary_key: Some("s_w_id, s_i_id"),
    indexes: &[],
};

/// How the database was populated; not part of the specification.
pub const POPULATION: Table = Table {
    name: "flagstone_population",
    columns: &[
        ("warehouses", Number),
        ("customers", Number),
        ("items", Number),
        ("last_name_constant", Number),
    ],
    primary_key: None,
    indexes: &[],
};

/// All tables in the order in which they are loaded. The last one marks a complete load.
pub const TABLES: [&Table; 10] = [
    &ITEM,
    &WAREHOUSE,
    &STOCK,
    &DISTRICT,
    &CUSTOMER,
    &HISTORY,
    &ORDERS,
    &NEW_ORDER,
    &ORDER_LINE,
    &POPULATION,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_the_expected_text() {
        assert_eq!(
            NEW_ORDER.create(),
            "CREATE TABLE new_order (no_o_id integer, no_d_id smallint, no_w_id integer)"
        );
        assert_eq!(
            ORDERS.create_indexes(),
            [
                "CREATE UNIQUE INDEX orders_pkey ON orders (o_w_id, o_d_id, o_id)",
                "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
            ]
        );
    }

    #[test]
    fn keys_name_columns_of_their_table() {
        for table in TABLES {
            let keys = table
                .primary_key
                .into_iter()
                .chain(table.indexes.iter().map(|(_, key)| *key));
            for column in keys.flat_map(|key| key.split(", ")) {
                assert!(
                    table.columns.iter().any(|(name, _)| *name == column),
                    "{column}"
                );
            }
        }
    }
}
