//! The initial population of clause 4.3.3, as a stream of rows for each table and warehouse.
//!
//! Every table, warehouse and district has its own random stream. So orders and their lines agree
//! without being generated together, and rows do not depend on the order of generation.

use super::random::{Constants, Random, Stream, last_name};
use super::schema::{self, TABLES, Table};
use super::session::{Error, Row, Session, Value};
use super::{DISTRICTS, Scale};

/// A database that can be populated.
pub trait Loader: Session {
    /// Runs a statement that is not part of the transactions, outside of any transaction.
    fn define(&mut self, sql: &str) -> Result<(), Error>;

    /// Adds rows to a table in one transaction. Returns the number of rows.
    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, Error>;

    /// Brings a loaded database into the state of one that has been running: gathers statistics,
    /// and does work that the load deferred.
    fn finish_load(&mut self) -> Result<(), Error>;
}

/// Table numbers in [`Stream::Table`]. `Counts` is for the numbers of order lines.
#[derive(Clone, Copy)]
enum Part {
    Item,
    Warehouse,
    Stock,
    District,
    Customer,
    History,
    Orders,
    OrderLine,
    Counts,
}

/// The parameters that determine a population.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    /// Its size.
    pub scale: Scale,
    /// Its seed.
    pub seed: u64,
    /// The date of the load, microseconds since 1970.
    pub now: i64,
}

/// Creates, fills and indexes the tables, which must not exist. `progress` receives the table and
/// the number of rows loaded so far; [`Scale::rows`] are expected.
pub fn load(
    loader: &mut impl Loader,
    population: &Population,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<u64, Error> {
    population.scale.check()?;
    for table in TABLES {
        loader.define(&table.create())?;
    }
    let mut loaded = 0;
    for table in TABLES {
        for warehouse in population.parts_of(table) {
            progress(table.name, loaded);
            loaded += loader.load(table, &mut *population.rows(table, warehouse))?;
        }
        for index in table.create_indexes() {
            loader.define(&index)?;
        }
    }
    progress("settling", loaded);
    loader.finish_load()?;
    Ok(loaded)
}

impl Population {
    /// The warehouses by which a table is loaded; a single 0 for tables without warehouses.
    pub fn parts_of(&self, table: &Table) -> std::ops::RangeInclusive<i64> {
        match table.name {
            "item" | "flagstone_population" => 0..=0,
            _ => 1..=self.scale.warehouses,
        }
    }

    /// The rows of a table for a warehouse.
    pub fn rows(&self, table: &Table, w: i64) -> Box<dyn Iterator<Item = Row> + '_> {
        match table.name {
            "item" => Box::new(self.items()),
            "warehouse" => Box::new(std::iter::once(self.warehouse(w))),
            "stock" => Box::new(self.stock(w)),
            "district" => Box::new((1..=DISTRICTS).map(move |d| self.district(w, d))),
            "customer" => Box::new((1..=DISTRICTS).flat_map(move |d| self.customers(w, d))),
            "history" => Box::new((1..=DISTRICTS).flat_map(move |d| self.history(w, d))),
            "orders" => Box::new((1..=DISTRICTS).flat_map(move |d| self.orders(w, d))),
            "new_order" => Box::new((1..=DISTRICTS).flat_map(move |d| self.new_orders(w, d))),
            "order_line" => Box::new((1..=DISTRICTS).flat_map(move |d| self.order_lines(w, d))),
            "flagstone_population" => Box::new(std::iter::once(self.record())),
            other => unreachable!("no table {other}"),
        }
    }

    fn random(&self, part: Part, w: i64, d: i64) -> Random {
        Random::new(self.seed, Stream::Table(part as u8, w, d))
    }

    fn record(&self) -> Row {
        let Scale {
            warehouses,
            customers,
            items,
        } = self.scale;
        row([
            warehouses,
            customers,
            items,
            Constants::load(self.seed).last_name,
        ])
    }

    fn items(&self) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::Item, 0, 0);
        (1..=self.scale.items).map(move |i| {
            vec![
                i.into(),
                random.uniform(1, 10_000).into(),
                random.letters(14, 24).into(),
                random.uniform(1_00, 100_00).into(),
                random.data().into(),
            ]
        })
    }

    fn warehouse(&self, w: i64) -> Row {
        let mut random = self.random(Part::Warehouse, w, 0);
        let mut row = vec![w.into(), random.letters(6, 10).into()];
        row.extend(address(&mut random));
        row.push(random.uniform(0, 2_000).into());
        row.push((DISTRICTS * self.scale.customers * FIRST_PAYMENT).into());
        row
    }

    fn stock(&self, w: i64) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::Stock, w, 0);
        (1..=self.scale.items).map(move |i| {
            let mut row = row([i, w, random.uniform(10, 100)]);
            row.extend((0..DISTRICTS).map(|_| Value::Text(random.letters(24, 24))));
            row.extend([0, 0, 0].map(Value::Int));
            row.push(random.data().into());
            row
        })
    }

    fn district(&self, w: i64, d: i64) -> Row {
        let mut random = self.random(Part::District, w, d);
        let mut row = vec![d.into(), w.into(), random.letters(6, 10).into()];
        row.extend(address(&mut random));
        row.push(random.uniform(0, 2_000).into());
        row.push((self.scale.customers * FIRST_PAYMENT).into());
        row.push((self.scale.customers + 1).into());
        row
    }

    /// The customers of a district.
    fn customers(&self, w: i64, d: i64) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::Customer, w, d);
        let (now, names) = (self.now, self.scale.last_name_max());
        let constant = Constants::load(self.seed).last_name;
        (1..=self.scale.customers).map(move |c| {
            // The first thousand customers have each name once.
            let name = match c {
                ..=1_000 => c - 1,
                _ => random.nurand(255, constant, 0, names),
            };
            let mut row = row([c, d, w]);
            row.push(random.letters(8, 16).into());
            row.extend(["OE".into(), last_name(name).into()]);
            row.extend(address(&mut random));
            row.push(random.digits(16, 16).into());
            row.push(now.into());
            row.push(if random.percent(10) { "BC" } else { "GC" }.into());
            row.extend([5_000_000, random.uniform(0, 5_000)].map(Value::Int));
            row.extend([-FIRST_PAYMENT, FIRST_PAYMENT, 1, 0].map(Value::Int));
            row.push(random.letters(300, 500).into());
            row
        })
    }

    fn history(&self, w: i64, d: i64) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::History, w, d);
        let now = self.now;
        (1..=self.scale.customers).map(move |c| {
            let mut row = row([c, d, w, d, w, now, FIRST_PAYMENT]);
            row.push(random.letters(12, 24).into());
            row
        })
    }

    /// Number of lines in each of a district's orders.
    fn line_counts(&self, w: i64, d: i64) -> impl Iterator<Item = i64> + use<> {
        let mut random = self.random(Part::Counts, w, d);
        (1..=self.scale.customers).map(move |_| random.uniform(5, 15))
    }

    /// The orders of a district, one per customer in random order; the newest have no carrier yet.
    fn orders(&self, w: i64, d: i64) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::Orders, w, d);
        let (now, undelivered) = (self.now, self.scale.first_undelivered());
        let customers = random.permutation(self.scale.customers);
        let counts = self.line_counts(w, d);
        (1..)
            .zip(customers)
            .zip(counts)
            .map(move |((o, customer), count)| {
                let carrier = (o < undelivered).then(|| random.uniform(1, 10));
                let mut row = row([o, d, w, customer, now]);
                row.extend([carrier.into(), count.into(), 1.into()]);
                row
            })
    }

    fn new_orders(&self, w: i64, d: i64) -> impl Iterator<Item = Row> + use<> {
        (self.scale.first_undelivered()..=self.scale.customers).map(move |o| row([o, d, w]))
    }

    /// The order lines of a district. Only those of undelivered orders have an amount.
    fn order_lines(&self, w: i64, d: i64) -> impl Iterator<Item = Row> + use<> {
        let mut random = self.random(Part::OrderLine, w, d);
        let (now, items) = (self.now, self.scale.items);
        let undelivered = self.scale.first_undelivered();
        let lines = (1..).zip(self.line_counts(w, d));
        lines
            .flat_map(|(o, count)| (1..=count).map(move |n| (o, n)))
            .map(move |(o, n)| {
                let delivered = o < undelivered;
                let mut row = row([o, d, w, n, random.uniform(1, items), w]);
                row.push(delivered.then_some(now).into());
                row.push(5.into());
                row.push(
                    if delivered {
                        0
                    } else {
                        random.uniform(1, 9_999_99)
                    }
                    .into(),
                );
                row.push(random.letters(24, 24).into());
                row
            })
    }
}

/// Every customer's payments before the load, in cents.
const FIRST_PAYMENT: i64 = 10_00;

fn row<const N: usize>(values: [i64; N]) -> Row {
    values.map(Value::Int).into()
}

/// Two streets, city, state and zip code.
fn address(random: &mut Random) -> [Value; 5] {
    [
        random.letters(10, 20).into(),
        random.letters(10, 20).into(),
        random.letters(10, 20).into(),
        random.letters(2, 2).into(),
        random.zip().into(),
    ]
}

/// The scale of a complete load and its constant for last names, of the table that marks it.
pub fn population_of(session: &mut impl Session) -> Result<(Scale, i64), Error> {
    use super::session::{Columns, Statement};
    static POPULATION: Statement = Statement {
        name: "population",
        sql: "SELECT warehouses, customers, items, last_name_constant FROM flagstone_population",
    };
    debug_assert_eq!(schema::POPULATION.columns.len(), 4);
    let mut columns = Columns::of(&POPULATION, session.query_one(&POPULATION, &[])?);
    let scale = Scale {
        warehouses: columns.int()?,
        customers: columns.int()?,
        items: columns.int()?,
    };
    Ok((scale, columns.int()?))
}

#[cfg(test)]
mod tests;
