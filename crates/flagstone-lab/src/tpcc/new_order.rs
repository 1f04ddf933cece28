//! New-Order (clause 2.4): enter an order of 5 to 15 lines. One in a hundred names an item that
//! does not exist in its last line and is rolled back.

use super::input::{Line, NewOrder};
use super::random::ORIGINAL;
use super::session::{Columns, Error, Session, Statement, Value};

/// The warehouse's tax.
pub static WAREHOUSE: Statement = Statement {
    name: "new-order warehouse",
    sql: "SELECT w_tax FROM warehouse WHERE w_id = $1",
};

/// Takes the district's next order number.
pub static DISTRICT: Statement = Statement {
    name: "new-order district",
    sql: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
          RETURNING d_next_o_id - 1, d_tax",
};

/// The customer's discount, name and credit.
pub static CUSTOMER: Statement = Statement {
    name: "new-order customer",
    sql: "SELECT c_discount, c_last, c_credit FROM customer \
          WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
};

/// Inserts the order.
pub static ORDER: Statement = Statement {
    name: "new-order order",
    sql: "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
          VALUES ($1, $2, $3, $4, $5, $6, $7)",
};

/// Adds the order to the undelivered ones.
pub static UNDELIVERED: Statement = Statement {
    name: "new-order undelivered",
    sql: "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)",
};

/// Price, name and data of an item.
pub static ITEM: Statement = Statement {
    name: "new-order item",
    sql: "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
};

macro_rules! take_stock {
    ($($district:literal)*) => {
        [$(Statement {
            name: concat!("new-order stock ", $district),
            sql: concat!(
                "UPDATE stock SET \
                 s_quantity = CASE WHEN s_quantity >= $1 + 10 THEN s_quantity - $1 \
                 ELSE s_quantity - $1 + 91 END, \
                 s_ytd = s_ytd + $1, s_order_cnt = s_order_cnt + 1, \
                 s_remote_cnt = s_remote_cnt + $2 \
                 WHERE s_w_id = $3 AND s_i_id = $4 \
                 RETURNING s_quantity, s_data, s_dist_", $district),
        }),*]
    };
}

/// Takes an item out of stock. One statement per district, which has a column of its own.
pub static STOCK: [Statement; 10] = take_stock!("01" "02" "03" "04" "05" "06" "07" "08" "09" "10");

/// Inserts a line of the order.
pub static LINE: Statement = Statement {
    name: "new-order line",
    sql: "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, \
          ol_quantity, ol_amount, ol_dist_info) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
};

/// The output of New-Order on the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entered {
    /// The order's number.
    pub order: i64,
    /// The customer's last name.
    pub last_name: String,
    /// The customer's credit, `GC` or `BC`.
    pub credit: String,
    /// Each line's item name, remaining stock, brand (`true`) or generic, and amount in cents.
    pub lines: Vec<EnteredLine>,
    /// Total of all lines with discount and taxes, in cents.
    pub total: i64,
}

/// A line of [`Entered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnteredLine {
    /// The item's name.
    pub name: String,
    /// The supplier's remaining stock.
    pub stock: i64,
    /// Whether both item and stock entry are original.
    pub brand: bool,
    /// Cents.
    pub amount: i64,
}

/// Enters an order within an open transaction. `None` means that it must be rolled back: the last
/// line's item does not exist.
pub fn new_order(
    session: &mut impl Session,
    input: &NewOrder,
    now: i64,
) -> Result<Option<Entered>, Error> {
    let (w, d) = (input.warehouse, input.district);
    let row = session.query_one(&WAREHOUSE, &[w.into()])?;
    let warehouse_tax = Columns::of(&WAREHOUSE, row).int()?;
    let row = session.query_one(&DISTRICT, &[w.into(), d.into()])?;
    let mut district = Columns::of(&DISTRICT, row);
    let (order, district_tax) = (district.int()?, district.int()?);
    let row = session.query_one(&CUSTOMER, &[w, d, input.customer].map(Value::Int))?;
    let mut customer = Columns::of(&CUSTOMER, row);
    let (discount, last_name, credit) = (customer.int()?, customer.text()?, customer.text()?);

    let count = input.lines.len() as i64;
    let all_local = i64::from(input.lines.iter().all(|line| line.supplier == w));
    let values = [order, d, w, input.customer, now, count, all_local].map(Value::Int);
    session.execute_one(&ORDER, &values)?;
    session.execute_one(&UNDELIVERED, &[order, d, w].map(Value::Int))?;

    let mut lines = Vec::with_capacity(input.lines.len());
    for (number, line) in (1..).zip(&input.lines) {
        match enter_line(session, input, order, number, line)? {
            Some(line) => lines.push(line),
            None => return Ok(None),
        }
    }
    let sum = lines.iter().map(|line| line.amount).sum();
    let total = total(sum, discount, warehouse_tax + district_tax);
    Ok(Some(Entered {
        order,
        last_name,
        credit,
        lines,
        total,
    }))
}

/// Enters line `number` of order `order` and takes its items from stock. `None` if the item does
/// not exist.
fn enter_line(
    session: &mut impl Session,
    input: &NewOrder,
    order: i64,
    number: i64,
    line: &Line,
) -> Result<Option<EnteredLine>, Error> {
    let (w, d) = (input.warehouse, input.district);
    let Some(row) = session.query_opt(&ITEM, &[line.item.into()])? else {
        return Ok(None);
    };
    let mut item = Columns::of(&ITEM, row);
    let (price, name, item_data) = (item.int()?, item.text()?, item.text()?);

    let statement = &STOCK[(d - 1) as usize];
    let remote = i64::from(line.supplier != w);
    let values = [line.quantity, remote, line.supplier, line.item].map(Value::Int);
    let mut stock = Columns::of(statement, session.query_one(statement, &values)?);
    let (left, stock_data, district_info) = (stock.int()?, stock.text()?, stock.text()?);

    let amount = line.quantity * price;
    let mut values = [
        order,
        d,
        w,
        number,
        line.item,
        line.supplier,
        line.quantity,
        amount,
    ]
    .map(Value::Int)
    .to_vec();
    values.push(district_info.into());
    session.execute_one(&LINE, &values)?;
    let brand = item_data.contains(ORIGINAL) && stock_data.contains(ORIGINAL);
    Ok(Some(EnteredLine {
        name,
        stock: left,
        brand,
        amount,
    }))
}

/// `sum × (1 - discount) × (1 + taxes)` in cents, rounded half up; rates in ten-thousandths.
fn total(sum: i64, discount: i64, taxes: i64) -> i64 {
    (sum * (10_000 - discount) * (10_000 + taxes) + 50_000_000) / 100_000_000
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, names};
    use super::*;

    fn input(items: &[i64]) -> NewOrder {
        let line = |&item| Line {
            item,
            supplier: if item == 9 { 4 } else { 2 },
            quantity: 3,
        };
        let lines = items.iter().map(line).collect();
        NewOrder {
            warehouse: 2,
            district: 7,
            customer: 42,
            lines,
        }
    }

    fn fake() -> Fake<'static> {
        Fake::new(|statement, params| match statement.name {
            "new-order warehouse" => vec![vec![1_000.into()]],
            "new-order district" => vec![vec![3_001.into(), 500.into()]],
            "new-order customer" => vec![vec![2_000.into(), "BARBARBAR".into(), "GC".into()]],
            "new-order item" if params[0] == Value::Int(100_001) => vec![],
            "new-order item" => vec![vec![2_50.into(), "thing".into(), "xORIGINALx".into()]],
            "new-order stock 07" => vec![vec![17.into(), "ORIGINAL".into(), "info".into()]],
            _ => panic!("{} is not asked for", statement.name),
        })
    }

    #[test]
    fn an_order_of_two_lines_is_these_statements() {
        let mut fake = fake();
        let entered = new_order(&mut fake, &input(&[8, 9]), 77).unwrap().unwrap();
        assert_eq!(
            names(&fake.log),
            [
                "new-order warehouse",
                "new-order district",
                "new-order customer",
                "new-order order",
                "new-order undelivered",
                "new-order item",
                "new-order stock 07",
                "new-order line",
                "new-order item",
                "new-order stock 07",
                "new-order line",
            ]
        );
        let ints = |values: &[i64]| values.iter().copied().map(Value::Int).collect::<Vec<_>>();
        assert_eq!(
            fake.log[3].1,
            ints(&[3_001, 7, 2, 42, 77, 2, 0]),
            "not all lines are local"
        );
        assert_eq!(fake.log[6].1, ints(&[3, 0, 2, 8]));
        assert_eq!(
            fake.log[9].1,
            ints(&[3, 1, 4, 9]),
            "the second line is remote"
        );
        assert_eq!(fake.log[10].1[..8], ints(&[3_001, 7, 2, 2, 9, 4, 3, 7_50]));
        assert_eq!(fake.log[10].1[8], "info".into());
        assert_eq!(entered.total, 13_80); // 15.00 - 20 % = 12.00, + 15 % = 13.80
        assert!(
            entered
                .lines
                .iter()
                .all(|line| line.brand && line.stock == 17)
        );
    }

    #[test]
    fn an_unused_item_in_the_last_line_asks_for_a_rollback() {
        let mut fake = fake();
        assert_eq!(new_order(&mut fake, &input(&[8, 100_001]), 77), Ok(None));
        assert_eq!(names(&fake.log)[7..], ["new-order line", "new-order item"]);
    }

    #[test]
    fn totals_round_half_up() {
        assert_eq!(total(1, 5_000, 0), 1);
        assert_eq!(total(1, 5_001, 0), 0);
        assert_eq!(total(15 * 10 * 100_00, 0, 4_000), 21_000_00);
    }
}
