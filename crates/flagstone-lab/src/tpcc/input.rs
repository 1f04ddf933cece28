//! Input data of the five transactions (clauses 2.4.1 to 2.8.1), as entered at terminals.

use super::random::{Constants, Random, last_name};
use super::{DISTRICTS, Scale};

/// A terminal: its own warehouse and district, and the common scale and constants.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// The database's size.
    pub scale: Scale,
    /// The constants of NURand for this run.
    pub constants: Constants,
    /// The terminal's warehouse.
    pub warehouse: i64,
    /// The terminal's district, which only Stock-Level uses.
    pub district: i64,
}

/// How a customer is identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Customer {
    /// By number.
    Id(i64),
    /// By last name: the middle one of its customers in order of first names.
    LastName(String),
}

/// Input of New-Order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    /// Warehouse.
    pub warehouse: i64,
    /// District.
    pub district: i64,
    /// Customer.
    pub customer: i64,
    /// Lines, 5 to 15. In one of a hundred orders the last line's item does not exist.
    pub lines: Vec<Line>,
}

/// A line of a new order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Item.
    pub item: i64,
    /// Supplying warehouse; the home warehouse except for one line in a hundred.
    pub supplier: i64,
    /// Quantity.
    pub quantity: i64,
}

/// Input of Payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// Warehouse that receives the payment.
    pub warehouse: i64,
    /// District that receives the payment.
    pub district: i64,
    /// The customer's warehouse; a different one in 15 of 100 payments.
    pub customer_warehouse: i64,
    /// The customer's district.
    pub customer_district: i64,
    /// Customer.
    pub customer: Customer,
    /// Amount in cents.
    pub amount: i64,
}

/// Input of Order-Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderStatus {
    /// Warehouse.
    pub warehouse: i64,
    /// District.
    pub district: i64,
    /// Customer.
    pub customer: Customer,
}

/// Input of Delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Warehouse.
    pub warehouse: i64,
    /// Carrier.
    pub carrier: i64,
}

/// Input of Stock-Level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockLevel {
    /// Warehouse.
    pub warehouse: i64,
    /// District.
    pub district: i64,
    /// Stock below this counts as low.
    pub threshold: i64,
}

impl Terminal {
    /// The terminal of client number `client`: clients are assigned to warehouses in turn, and then
    /// to districts in turn.
    pub fn of_client(client: u32, scale: Scale, constants: Constants) -> Self {
        let client = i64::from(client);
        Terminal {
            scale,
            constants,
            warehouse: client % scale.warehouses + 1,
            district: client / scale.warehouses % DISTRICTS + 1,
        }
    }

    /// Input of New-Order (clause 2.4.1).
    pub fn new_order(&self, random: &mut Random) -> NewOrder {
        let district = random.uniform(1, DISTRICTS);
        let customer = self.customer_id(random);
        let count = random.uniform(5, 15);
        let unused_item = random.percent(1);
        let lines = (1..=count)
            .map(|n| {
                let item = random.nurand(8_191, self.constants.item, 1, self.scale.items);
                let remote = random.percent(1);
                Line {
                    item: if unused_item && n == count {
                        self.scale.items + 1
                    } else {
                        item
                    },
                    supplier: if remote {
                        self.other_warehouse(random)
                    } else {
                        self.warehouse
                    },
                    quantity: random.uniform(1, 10),
                }
            })
            .collect();
        NewOrder {
            warehouse: self.warehouse,
            district,
            customer,
            lines,
        }
    }

    /// Input of Payment (clause 2.5.1).
    pub fn payment(&self, random: &mut Random) -> Payment {
        let district = random.uniform(1, DISTRICTS);
        let (customer_warehouse, customer_district) = if random.percent(85) {
            (self.warehouse, district)
        } else {
            (self.other_warehouse(random), random.uniform(1, DISTRICTS))
        };
        Payment {
            warehouse: self.warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(random),
            amount: random.uniform(1_00, 5_000_00),
        }
    }

    /// Input of Order-Status (clause 2.6.1).
    pub fn order_status(&self, random: &mut Random) -> OrderStatus {
        OrderStatus {
            warehouse: self.warehouse,
            district: random.uniform(1, DISTRICTS),
            customer: self.customer(random),
        }
    }

    /// Input of Delivery (clause 2.7.1).
    pub fn delivery(&self, random: &mut Random) -> Delivery {
        Delivery {
            warehouse: self.warehouse,
            carrier: random.uniform(1, 10),
        }
    }

    /// Input of Stock-Level (clause 2.8.1).
    pub fn stock_level(&self, random: &mut Random) -> StockLevel {
        StockLevel {
            warehouse: self.warehouse,
            district: self.district,
            threshold: random.uniform(10, 20),
        }
    }

    /// By last name in 60 of 100 cases.
    fn customer(&self, random: &mut Random) -> Customer {
        if random.percent(60) {
            let names = self.scale.last_name_max();
            let number = random.nurand(255, self.constants.last_name, 0, names);
            Customer::LastName(last_name(number))
        } else {
            Customer::Id(self.customer_id(random))
        }
    }

    fn customer_id(&self, random: &mut Random) -> i64 {
        random.nurand(1_023, self.constants.customer, 1, self.scale.customers)
    }

    /// Any warehouse except the terminal's own, unless there is no other.
    fn other_warehouse(&self, random: &mut Random) -> i64 {
        if self.scale.warehouses == 1 {
            return self.warehouse;
        }
        let drawn = random.uniform(1, self.scale.warehouses - 1);
        if drawn < self.warehouse {
            drawn
        } else {
            drawn + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Stream;
    use super::*;

    fn terminal(warehouses: i64) -> (Terminal, Random) {
        let scale = Scale::standard(warehouses);
        let terminal = Terminal::of_client(1, scale, Constants::load(1));
        (terminal, Random::new(5, Stream::Client(1)))
    }

    /// Percentage of 20,000 draws that satisfy a condition.
    fn share<T>(mut draw: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> f64 {
        (0..20_000).filter(|_| holds(&draw())).count() as f64 / 200.0
    }

    #[track_caller]
    fn about(measured: f64, expected: f64) {
        assert!(
            (measured - expected).abs() < expected * 0.2 + 0.1,
            "{measured} for {expected}"
        );
    }

    #[test]
    fn new_orders_are_of_the_shares_that_the_specification_wants() {
        let (terminal, mut random) = terminal(5);
        let mut draw = || terminal.new_order(&mut random);
        about(
            share(&mut draw, |o| o.lines.iter().any(|l| l.item > 100_000)),
            1.0,
        );
        about(share(&mut draw, |o| o.lines[0].supplier != 2), 1.0);
        about(share(&mut draw, |o| o.lines.len() == 5), 100.0 / 11.0);
        let within = |o: &NewOrder| {
            let last = o.lines.len() - 1;
            (5..=15).contains(&o.lines.len())
                && (1..=10).contains(&o.district)
                && (1..=3_000).contains(&o.customer)
                && o.lines[..last]
                    .iter()
                    .all(|l| (1..=100_000).contains(&l.item))
                && o.lines.iter().all(|l| (1..=10).contains(&l.quantity))
                && o.lines.iter().all(|l| (1..=5).contains(&l.supplier))
        };
        assert_eq!(share(&mut draw, within), 100.0);
    }

    #[test]
    fn payments_are_of_the_shares_that_the_specification_wants() {
        let (terminal, mut random) = terminal(5);
        let mut draw = || terminal.payment(&mut random);
        about(
            share(&mut draw, |p| p.customer_warehouse != p.warehouse),
            15.0,
        );
        about(
            share(&mut draw, |p| matches!(p.customer, Customer::LastName(_))),
            60.0,
        );
        let home =
            |p: &Payment| p.customer_warehouse != p.warehouse || p.customer_district == p.district;
        assert_eq!(share(&mut draw, home), 100.0);
        assert_eq!(
            share(&mut draw, |p| (100..=500_000).contains(&p.amount)),
            100.0
        );
    }

    #[test]
    fn a_single_warehouse_is_its_own_remote() {
        let (terminal, mut random) = terminal(1);
        assert_eq!(
            share(
                || terminal.payment(&mut random),
                |p| p.customer_warehouse == 1
            ),
            100.0
        );
    }

    #[test]
    fn clients_spread_over_warehouses_and_then_districts() {
        let places: Vec<(i64, i64)> = (0..20)
            .map(|c| Terminal::of_client(c, Scale::standard(5), Constants::load(1)))
            .map(|t| (t.warehouse, t.district))
            .collect();
        assert_eq!(
            places[..6],
            [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2)]
        );
        assert_eq!(places[19], (5, 4));
    }
}
