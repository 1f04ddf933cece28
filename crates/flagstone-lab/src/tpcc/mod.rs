//! TPC-C: the transactions of which recordings are made.
//!
//! A driver after the TPC Benchmark C standard specification, revision 5.11, cited here as `[TPC-C]
//! clause`. Its purpose is to make a database change its pages like an order-entry system, not to
//! produce benchmark results. It departs from the specification in these points:
//!
//! - Money is in cents and rates are in ten-thousandths, both as integers, and dates are
//!   microseconds since 1970: exact and the same in every engine.
//! - No keying and think times (clause 5.2.5): clients run back to back.
//! - A delivery runs at once and is not queued (clause 2.7.2).
//! - Foreign keys are not declared; the consistency conditions are checked instead.
//!
//! In reading order: [`session`] is what a transaction needs of a database, [`schema`] the tables,
//! [`random`] the specification's random quantities, [`load`] the population, [`input`] what a
//! terminal asks for; then a file for each transaction, [`mix`] which deals and retries
//! them, and [`consistency`]. The program `flagstone-record` runs all this on PostgreSQL and makes
//! a trace of it. [`pages`] needs no database: it derives what the transactions would do to pages
//! and records.

#![allow(
    clippy::inconsistent_digit_grouping,
    reason = "5_000_00 is 5,000.00 in cents"
)]

pub mod session;
pub mod schema;
pub mod random;
pub mod load;
pub mod input;
pub mod customer;
pub mod new_order;
pub mod payment;
pub mod order_status;
pub mod delivery;
pub mod stock_level;
pub mod mix;
pub mod pages;
pub mod consistency;

#[cfg(test)]
mod fake;

/// The size of a database. Only [`Scale::standard`] conforms to the specification; smaller ones
/// keep its proportions, for tests and small traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, at least 1.
    pub warehouses: i64,
    /// Customers per district, and initial number of orders per district.
    pub customers: i64,
    /// Number of items; each warehouse has a stock entry for each.
    pub items: i64,
}

/// Districts per warehouse.
pub const DISTRICTS: i64 = 10;

impl Scale {
    /// The specified cardinalities (clause 1.2.1): 3,000 customers per district, 100,000 items.
    pub fn standard(warehouses: i64) -> Self {
        Scale {
            warehouses,
            customers: 3_000,
            items: 100_000,
        }
    }

    /// The oldest order of a district that is undelivered after the load; 2,101 of 3,000.
    pub fn first_undelivered(&self) -> i64 {
        self.customers * 7 / 10 + 1
    }

    /// The largest number from which a customer's last name is made.
    pub fn last_name_max(&self) -> i64 {
        self.customers.min(1_000) - 1
    }

    /// Rows that [`load::load`] writes, assuming ten lines per order.
    pub fn rows(&self) -> u64 {
        let districts = self.warehouses * DISTRICTS;
        let orders = districts * self.customers;
        let undelivered = districts * (self.customers - self.first_undelivered() + 1);
        let stock = self.warehouses * self.items;
        (self.items + stock + self.warehouses + districts + 13 * orders + undelivered) as u64
    }

    /// Refuses cardinalities with which the transactions could not run.
    pub fn check(&self) -> Result<(), session::Error> {
        let complain = |what: &str| Err(session::Error::Scale(what.to_owned()));
        match self {
            Scale {
                warehouses: ..1, ..
            } => complain("at least 1 warehouse is needed"),
            Scale {
                warehouses: 32_768..,
                ..
            } => complain("at most 32767 warehouses are supported"),
            Scale {
                customers: ..30, ..
            } => complain("at least 30 customers a district are needed"),
            Scale {
                customers: 3_001.., ..
            } => complain("at most 3000 customers a district"),
            Scale { items: ..100, .. } => complain("at least 100 items are needed"),
            Scale {
                items: 100_001.., ..
            } => complain("at most 100000 items"),
            _ => Ok(()),
        }
    }
}
