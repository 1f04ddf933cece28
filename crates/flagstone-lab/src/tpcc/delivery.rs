//! Delivery (clause 2.7): the oldest undelivered order of each of a warehouse's districts.

use super::DISTRICTS;
use super::input::Delivery;
use super::session::{Columns, Error, Session, Statement, Value};

/// The oldest undelivered order.
pub static OLDEST: Statement = Statement {
    name: "delivery oldest",
    sql: "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 \
          ORDER BY no_o_id LIMIT 1",
};

/// Removes the order from the undelivered ones.
pub static TAKE: Statement = Statement {
    name: "delivery take",
    sql: "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
};

/// Sets the carrier of the order.
pub static ORDER: Statement = Statement {
    name: "delivery order",
    sql: "UPDATE orders SET o_carrier_id = $1 WHERE o_w_id = $2 AND o_d_id = $3 AND o_id = $4 \
          RETURNING o_c_id",
};

/// Sets the delivery date of the order's lines.
pub static LINES: Statement = Statement {
    name: "delivery lines",
    sql: "UPDATE order_line SET ol_delivery_d = $1 \
          WHERE ol_w_id = $2 AND ol_d_id = $3 AND ol_o_id = $4 RETURNING ol_amount",
};

/// Adds the order's amount to the customer's balance.
pub static CUSTOMER: Statement = Statement {
    name: "delivery customer",
    sql: "UPDATE customer SET c_balance = c_balance + $1, c_delivery_cnt = c_delivery_cnt + 1 \
          WHERE c_w_id = $2 AND c_d_id = $3 AND c_id = $4",
};

/// The delivered orders, by district; districts without an undelivered one are skipped.
pub type Delivered = Vec<(i64, i64)>;

/// Delivers within an open transaction.
pub fn delivery(
    session: &mut impl Session,
    input: &Delivery,
    now: i64,
) -> Result<Delivered, Error> {
    let w = input.warehouse;
    let mut delivered = Vec::with_capacity(DISTRICTS as usize);
    for d in 1..=DISTRICTS {
        let Some(order) = take_oldest(session, w, d)? else {
            continue;
        };
        let row = session.query_one(&ORDER, &[input.carrier, w, d, order].map(Value::Int))?;
        let customer = Columns::of(&ORDER, row).int()?;
        let mut total = 0;
        for row in session.query(&LINES, &[now, w, d, order].map(Value::Int))? {
            total += Columns::of(&LINES, row).int()?;
        }
        session.execute_one(&CUSTOMER, &[total, w, d, customer].map(Value::Int))?;
        delivered.push((d, order));
    }
    Ok(delivered)
}

/// Takes the oldest undelivered order of a district. If the isolation level lets the two statements
/// see different states, another delivery may take the order in between; then this takes the next
/// one.
fn take_oldest(session: &mut impl Session, w: i64, d: i64) -> Result<Option<i64>, Error> {
    loop {
        let Some(row) = session.query_opt(&OLDEST, &[w, d].map(Value::Int))? else {
            return Ok(None);
        };
        let order = Columns::of(&OLDEST, row).int()?;
        match session.execute(&TAKE, &[w, d, order].map(Value::Int))? {
            0 => continue,
            1 => return Ok(Some(order)),
            n => {
                return Err(Error::answer(
                    &TAKE,
                    format!("{n} orders have the number {order}"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, names};
    use super::*;

    const DELIVERY: Delivery = Delivery {
        warehouse: 1,
        carrier: 9,
    };

    #[test]
    fn ten_districts_are_delivered_and_an_empty_one_is_passed_over() {
        let mut fake = Fake::new(|statement, params| match statement.name {
            "delivery oldest" if params[1] == Value::Int(4) => vec![],
            "delivery oldest" => vec![vec![2_101.into()]],
            "delivery order" => vec![vec![11.into()]],
            "delivery lines" => vec![vec![1_00.into()], vec![2_50.into()]],
            _ => panic!("{} is not asked for", statement.name),
        });
        let delivered = delivery(&mut fake, &DELIVERY, 88).unwrap();
        assert_eq!(delivered.len(), 9);
        assert!(!delivered.iter().any(|(d, _)| *d == 4));
        assert_eq!(
            names(&fake.log)[..5],
            [
                "delivery oldest",
                "delivery take",
                "delivery order",
                "delivery lines",
                "delivery customer",
            ]
        );
        assert_eq!(fake.log[4].1, [3_50, 1, 1, 11].map(Value::Int));
    }

    #[test]
    fn an_order_that_another_delivery_took_is_not_delivered_twice() {
        let mut asked = 0;
        let mut fake = Fake::new(move |statement, _| match statement.name {
            "delivery oldest" => {
                asked += 1;
                vec![vec![(2_100 + asked).into()]]
            }
            "delivery order" => vec![vec![11.into()]],
            _ => vec![],
        });
        fake.changed = |statement, params| {
            u64::from(!(statement.name == "delivery take" && params[2] == Value::Int(2_101)))
        };
        let delivered = delivery(&mut fake, &DELIVERY, 88).unwrap();
        assert_eq!(delivered[..2], [(1, 2_102), (2, 2_103)]);
    }
}
