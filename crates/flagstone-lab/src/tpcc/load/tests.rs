//! Compares the population with clause 4.3.3, and with the consistency conditions.

use std::collections::BTreeMap;

use super::super::random::last_name;
use super::super::schema::{self, ColumnKind};
use super::*;

const SMALL: Population = Population {
    scale: Scale {
        warehouses: 2,
        customers: 40,
        items: 120,
    },
    seed: 9,
    now: 1_000,
};

fn all(table: &Table) -> Vec<Row> {
    SMALL
        .parts_of(table)
        .flat_map(|w| SMALL.rows(table, w))
        .collect()
}

fn int(row: &Row, column: usize) -> i64 {
    match row[column] {
        Value::Int(value) => value,
        ref other => panic!("{other:?} is no number"),
    }
}

fn text(row: &Row, column: usize) -> &str {
    match &row[column] {
        Value::Text(value) => value,
        other => panic!("{other:?} is no text"),
    }
}

#[test]
fn every_value_fits_its_column() {
    for table in TABLES {
        for row in all(table) {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            for (value, (column, kind)) in row.iter().zip(table.columns) {
                let fits = match (value, kind) {
                    (Value::Int(n), ColumnKind::Small) => i16::try_from(*n).is_ok(),
                    (Value::Int(n), ColumnKind::Number) => i32::try_from(*n).is_ok(),
                    (Value::Int(_), ColumnKind::Money | ColumnKind::Date) => true,
                    (Value::Text(s), ColumnKind::Fixed(n)) => s.len() == usize::from(*n),
                    (Value::Text(s), ColumnKind::Text(n)) => s.len() <= usize::from(*n),
                    (Value::Null, _) => ["o_carrier_id", "ol_delivery_d"].contains(column),
                    _ => false,
                };
                assert!(fits, "{column} is {value:?}");
            }
        }
    }
}

#[test]
fn keys_are_unique_and_cardinalities_are_right() {
    let counts = [
        (&schema::ITEM, 120),
        (&schema::WAREHOUSE, 2),
        (&schema::STOCK, 240),
        (&schema::DISTRICT, 20),
        (&schema::CUSTOMER, 800),
        (&schema::HISTORY, 800),
        (&schema::ORDERS, 800),
        (&schema::NEW_ORDER, 20 * 12),
    ];
    for (table, count) in counts {
        assert_eq!(all(table).len(), count, "{}", table.name);
    }
    for table in TABLES {
        let Some(key) = table.primary_key else {
            continue;
        };
        let positions: Vec<usize> = key
            .split(", ")
            .map(|name| {
                table
                    .columns
                    .iter()
                    .position(|(column, _)| *column == name)
                    .unwrap()
            })
            .collect();
        let rows = all(table);
        let mut keys: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| positions.iter().map(|&p| int(row, p)).collect())
            .collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), rows.len(), "{}", table.name);
    }
}

#[test]
fn orders_lines_and_undelivered_orders_agree() {
    let mut lines: BTreeMap<[i64; 3], Vec<Row>> = BTreeMap::new();
    for row in all(&schema::ORDER_LINE) {
        lines
            .entry([int(&row, 2), int(&row, 1), int(&row, 0)])
            .or_default()
            .push(row);
    }
    let undelivered: Vec<[i64; 3]> = all(&schema::NEW_ORDER)
        .iter()
        .map(|r| [int(r, 2), int(r, 1), int(r, 0)])
        .collect();
    let mut customers: BTreeMap<[i64; 2], Vec<i64>> = BTreeMap::new();
    for order in all(&schema::ORDERS) {
        let key = [int(&order, 2), int(&order, 1), int(&order, 0)];
        let waiting = undelivered.contains(&key);
        assert_eq!(order[5] == Value::Null, waiting, "carrier of {key:?}");
        let lines = &lines[&key];
        assert_eq!(lines.len() as i64, int(&order, 6));
        assert!((5..=15).contains(&lines.len()));
        for line in lines {
            assert_eq!(line[6] == Value::Null, waiting);
            assert_eq!(int(line, 8) == 0, !waiting, "what is delivered is free");
        }
        customers
            .entry([key[0], key[1]])
            .or_default()
            .push(int(&order, 3));
    }
    for (district, mut customers) in customers {
        customers.sort_unstable();
        assert_eq!(
            customers,
            (1..=40).collect::<Vec<_>>(),
            "one order each in {district:?}"
        );
    }
}

#[test]
fn money_adds_up() {
    let mut paid: BTreeMap<[i64; 2], i64> = BTreeMap::new();
    for payment in all(&schema::HISTORY) {
        *paid
            .entry([int(&payment, 4), int(&payment, 3)])
            .or_default() += int(&payment, 6);
    }
    let mut takings: BTreeMap<i64, i64> = BTreeMap::new();
    for district in all(&schema::DISTRICT) {
        assert_eq!(
            int(&district, 9),
            paid[&[int(&district, 1), int(&district, 0)]]
        );
        assert_eq!(int(&district, 10), 41);
        *takings.entry(int(&district, 1)).or_default() += int(&district, 9);
    }
    for warehouse in all(&schema::WAREHOUSE) {
        assert_eq!(int(&warehouse, 8), takings[&int(&warehouse, 0)]);
    }
    for customer in all(&schema::CUSTOMER) {
        assert_eq!((int(&customer, 16), int(&customer, 17)), (-10_00, 10_00));
    }
    // At the specification's size a warehouse starts with 300,000.00.
    let standard = Population {
        scale: Scale::standard(1),
        ..SMALL
    };
    assert_eq!(int(&standard.warehouse(1), 8), 300_000_00);
}

#[test]
fn names_and_credits_are_distributed_as_specified() {
    let population = Population {
        scale: Scale::standard(1),
        ..SMALL
    };
    let customers: Vec<Row> = population.customers(1, 1).collect();
    assert_eq!(customers.len(), 3_000);
    for (number, row) in (0..1_000).zip(&customers) {
        assert_eq!(text(row, 5), last_name(number));
    }
    let bad = customers.iter().filter(|row| text(row, 13) == "BC").count();
    assert!((230..370).contains(&bad), "{bad} of 3000 have bad credit");
    let distinct = |rows: &[Row]| {
        let mut names: Vec<&str> = rows.iter().map(|row| text(row, 5)).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    assert!(
        distinct(&customers[1_000..]) < 800,
        "later names are skewed"
    );
    assert_eq!(population.scale.first_undelivered(), 2_101);
}

#[test]
fn a_population_is_the_same_every_time_and_another_for_another_seed() {
    let other = Population { seed: 10, ..SMALL };
    let stock = |population: &Population| population.stock(1).collect::<Vec<_>>();
    assert_eq!(stock(&SMALL), stock(&SMALL));
    assert_ne!(stock(&SMALL), stock(&other));
    assert_ne!(stock(&SMALL)[0][3], SMALL.stock(2).next().unwrap()[3]);
}

#[test]
fn impossible_scales_are_refused_in_words() {
    type Change = fn(&mut Scale);
    let changes: [(Change, &str); 4] = [
        (|scale| scale.warehouses = 0, "warehouse"),
        (|scale| scale.warehouses = 40_000, "warehouses"),
        (|scale| scale.customers = 10, "customers"),
        (|scale| scale.items = 0, "items"),
    ];
    for (change, word) in changes {
        let mut scale = Scale::standard(1);
        change(&mut scale);
        assert!(scale.check().unwrap_err().to_string().contains(word));
    }
    assert_eq!(Scale::standard(5).check(), Ok(()));
}
