//! Stock-Level (clause 2.8): how many items of a district's last twenty orders are low, read only.

use super::input::StockLevel;
use super::session::{Columns, Error, Session, Statement, Value};

/// The district's next order number.
pub static DISTRICT: Statement = Statement {
    name: "stock-level district",
    sql: "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
};

/// Counts items in a range of orders with stock below the threshold.
pub static LOW: Statement = Statement {
    name: "stock-level low",
    sql: "SELECT count(DISTINCT s_i_id) FROM order_line \
          JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
          WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 AND ol_o_id < $4 \
          AND s_quantity < $5",
};

/// Counts within an open transaction.
pub fn stock_level(session: &mut impl Session, input: &StockLevel) -> Result<i64, Error> {
    let (w, d) = (input.warehouse, input.district);
    let row = session.query_one(&DISTRICT, &[w, d].map(Value::Int))?;
    let next = Columns::of(&DISTRICT, row).int()?;
    let params = [w, d, next - 20, next, input.threshold].map(Value::Int);
    Columns::of(&LOW, session.query_one(&LOW, &params)?).int()
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn the_last_twenty_orders_are_looked_at() {
        let mut fake = Fake::new(|statement, _| match statement.name {
            "stock-level district" => vec![vec![3_021.into()]],
            _ => vec![vec![12.into()]],
        });
        let input = StockLevel {
            warehouse: 1,
            district: 2,
            threshold: 15,
        };
        assert_eq!(stock_level(&mut fake, &input), Ok(12));
        assert_eq!(fake.log[1].1, [1, 2, 3_001, 3_021, 15].map(Value::Int));
    }
}
