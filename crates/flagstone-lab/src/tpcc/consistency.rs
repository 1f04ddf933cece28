//! The twelve consistency conditions of clause 3.3.2, each as a query that counts violations.

use super::session::{AccessMode, Columns, Error, Session, Statement};

/// A condition.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its number, clause 3.3.2.*n*.
    pub number: u32,
    /// The condition in words.
    pub title: &'static str,
    /// Whether it only holds for a fresh population: deliveries violate it.
    pub initially: bool,
    /// Counts violations.
    pub query: Statement,
}

/// The result of checking a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The condition.
    pub condition: &'static Condition,
    /// Number of warehouses, districts, customers, orders or lines that violate it.
    pub violations: i64,
}

/// When a database is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// After the population and before any transaction.
    Populated,
    /// After transactions.
    Used,
}

/// Checks all applicable conditions, each in a transaction of its own.
pub fn check(session: &mut impl Session, when: When) -> Result<Vec<Finding>, Error> {
    let due = |condition: &&Condition| when == When::Populated || !condition.initially;
    CONDITIONS
        .iter()
        .filter(due)
        .map(|condition| check_one(session, condition))
        .collect()
}

fn check_one(session: &mut impl Session, condition: &'static Condition) -> Result<Finding, Error> {
    session.begin(AccessMode::ReadOnly)?;
    let row = session.query_one(&condition.query, &[]);
    session.rollback()?;
    let violations = Columns::of(&condition.query, row?).int()?;
    Ok(Finding {
        condition,
        violations,
    })
}

/// Joins customers with the amounts of delivered lines.
macro_rules! delivered {
    () => {
        "LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS charged FROM orders \
         JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l \
         ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id "
    };
}

/// Joins customers with the amounts of payments.
macro_rules! paid {
    () => {
        "LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history \
         GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
         ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id "
    };
}

macro_rules! conditions {
    ($($number:literal $title:literal $(initially $initially:literal)? : $sql:expr;)*) => {
        [$(Condition {
            number: $number,
            title: $title,
            initially: false $(|| $initially)?,
            query: Statement { name: concat!("condition ", $number), sql: $sql },
        }),*]
    };
}

/// The conditions by number. `IS DISTINCT FROM` is spelled out, because SQLite lacks it.
pub static CONDITIONS: [Condition; 12] = conditions! {
    1 "a warehouse's takings are the sum of its districts'":
        "SELECT count(*) FROM warehouse \
         LEFT JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) d \
         ON d_w_id = w_id WHERE ytd IS NULL OR ytd <> w_ytd";
    2 "a district's next order follows its last order, and its last undelivered one if any":
        "SELECT count(*) FROM district \
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders \
         GROUP BY o_w_id, o_d_id) o ON o_w_id = d_w_id AND o_d_id = d_id \
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_new FROM new_order \
         GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id AND no_d_id = d_id \
         WHERE last IS NULL OR last <> d_next_o_id - 1 OR last_new <> d_next_o_id - 1";
    3 "a district's undelivered orders have numbers without a gap":
        "SELECT count(*) FROM (SELECT no_w_id, no_d_id FROM new_order \
         GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) v";
    4 "a district's orders have as many lines together as they say":
        "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders \
         GROUP BY o_w_id, o_d_id) o \
         LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line \
         GROUP BY ol_w_id, ol_d_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
         WHERE found IS NULL OR found <> said";
    5 "an order is without a carrier if and only if it is among the undelivered":
        "SELECT (SELECT count(*) FROM orders \
         LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)) \
         + (SELECT count(*) FROM new_order \
         LEFT JOIN orders ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE o_id IS NULL)";
    6 "each order has as many lines as it says":
        "SELECT count(*) FROM orders \
         LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS found FROM order_line \
         GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE found IS NULL OR found <> o_ol_cnt";
    7 "a line is without a delivery date if and only if its order is without a carrier":
        "SELECT count(*) FROM order_line \
         LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
         WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)";
    8 "a warehouse's takings are the sum of its payments":
        "SELECT count(*) FROM warehouse \
         LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) h \
         ON h_w_id = w_id WHERE paid IS NULL OR paid <> w_ytd";
    9 "a district's takings are the sum of its payments":
        "SELECT count(*) FROM district \
         LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history \
         GROUP BY h_w_id, h_d_id) h ON h_w_id = d_w_id AND h_d_id = d_id \
         WHERE paid IS NULL OR paid <> d_ytd";
    10 "a customer's balance is what was delivered less what was paid":
        concat!("SELECT count(*) FROM customer ", delivered!(), paid!(),
         "WHERE c_balance <> coalesce(charged, 0) - coalesce(paid, 0)");
    11 "a district has 2100 delivered orders (of a fresh population of 3000)" initially true:
        "SELECT count(*) FROM (SELECT o_w_id, o_d_id, count(*) AS entered FROM orders \
         GROUP BY o_w_id, o_d_id) o \
         LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS waiting FROM new_order \
         GROUP BY no_w_id, no_d_id) n ON no_w_id = o_w_id AND no_d_id = o_d_id \
         CROSS JOIN flagstone_population \
         WHERE entered - coalesce(waiting, 0) <> customers * 7 / 10";
    12 "a customer's balance and payments together are what was delivered":
        concat!("SELECT count(*) FROM customer ", delivered!(),
         "WHERE c_balance + c_ytd_payment <> coalesce(charged, 0)");
};

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn a_fresh_population_is_held_against_one_more_condition() {
        let numbers = |when| {
            let mut fake = Fake::new(|statement, _| {
                vec![vec![i64::from(statement.name == "condition 3").into()]]
            });
            let findings = check(&mut fake, when).unwrap();
            let violated: Vec<u32> = findings
                .iter()
                .filter(|finding| finding.violations > 0)
                .map(|finding| finding.condition.number)
                .collect();
            assert_eq!(violated, [3]);
            findings
                .iter()
                .map(|finding| finding.condition.number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(When::Populated), (1..=12).collect::<Vec<_>>());
        assert_eq!(numbers(When::Used), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]);
    }
}
