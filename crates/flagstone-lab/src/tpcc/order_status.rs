//! Order-Status (clause 2.6): a customer's last order, read only.

use super::customer::customer_id;
use super::input::OrderStatus;
use super::session::{Columns, Error, Session, Statement, Value};

/// The customer's balance and name.
pub static CUSTOMER: Statement = Statement {
    name: "order-status customer",
    sql: "SELECT c_balance, c_first, c_middle, c_last FROM customer \
          WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
};

/// The customer's last order.
pub static ORDER: Statement = Statement {
    name: "order-status order",
    sql: "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
          WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
};

/// The order's lines.
pub static LINES: Statement = Statement {
    name: "order-status lines",
    sql: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
          WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
};

/// The output of Order-Status on the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The customer's number.
    pub customer: i64,
    /// Cents.
    pub balance: i64,
    /// The last order's number.
    pub order: i64,
    /// The order's carrier, if it is delivered.
    pub carrier: Option<i64>,
    /// Number of the order's lines.
    pub lines: usize,
}

/// Runs the queries within an open transaction.
pub fn order_status(session: &mut impl Session, input: &OrderStatus) -> Result<Status, Error> {
    let (w, d) = (input.warehouse, input.district);
    let customer = customer_id(session, w, d, &input.customer)?;
    let key = [w, d, customer].map(Value::Int);
    let balance = Columns::of(&CUSTOMER, session.query_one(&CUSTOMER, &key)?).int()?;
    let mut columns = Columns::of(&ORDER, session.query_one(&ORDER, &key)?);
    let (order, _entered) = (columns.int()?, columns.int()?);
    let carrier = columns.int_or_null()?;
    let lines = session.query(&LINES, &[w, d, order].map(Value::Int))?.len();
    Ok(Status {
        customer,
        balance,
        order,
        carrier,
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, names};
    use super::super::input::Customer;
    use super::*;

    #[test]
    fn a_status_by_number_is_three_queries() {
        let mut fake = Fake::new(|statement, _| match statement.name {
            "order-status customer" => {
                vec![vec![(-10_00).into(), "A".into(), "OE".into(), "B".into()]]
            }
            "order-status order" => vec![vec![77.into(), 1.into(), Value::Null]],
            _ => vec![vec![]; 6],
        });
        let input = OrderStatus {
            warehouse: 1,
            district: 2,
            customer: Customer::Id(3),
        };
        let status = order_status(&mut fake, &input).unwrap();
        let expected = Status {
            customer: 3,
            balance: -10_00,
            order: 77,
            carrier: None,
            lines: 6,
        };
        assert_eq!(status, expected);
        assert_eq!(
            names(&fake.log),
            [
                "order-status customer",
                "order-status order",
                "order-status lines"
            ]
        );
        assert_eq!(fake.log[2].1, [1, 2, 77].map(Value::Int));
    }
}
