//! Payment (clause 2.5): a customer pays; updates customer, district and warehouse.

use super::customer::customer_id;
use super::input::Payment;
use super::session::{Columns, Error, Session, Statement, Value};

/// Adds to the warehouse's year-to-date total.
pub static WAREHOUSE: Statement = Statement {
    name: "payment warehouse",
    sql: "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2 RETURNING w_name",
};

/// Adds to the district's year-to-date total.
pub static DISTRICT: Statement = Statement {
    name: "payment district",
    sql: "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3 RETURNING d_name",
};

/// Credits the customer. For bad credit also adds a note to the data, of which the first 500
/// characters are kept.
pub static CUSTOMER: Statement = Statement {
    name: "payment customer",
    sql: "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $1, \
          c_payment_cnt = c_payment_cnt + 1, \
          c_data = CASE c_credit WHEN 'BC' THEN substr($2 || c_data, 1, 500) ELSE c_data END \
          WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5 \
          RETURNING c_first, c_last, c_credit, c_balance, substr(c_data, 1, 200)",
};

/// Records the payment.
pub static HISTORY: Statement = Statement {
    name: "payment history",
    sql: "INSERT INTO history \
          (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
};

/// The output of Payment on the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paid {
    /// The customer's number.
    pub customer: i64,
    /// The customer's first name.
    pub first_name: String,
    /// The customer's last name.
    pub last_name: String,
    /// The customer's credit, `GC` or `BC`.
    pub credit: String,
    /// New balance in cents.
    pub balance: i64,
    /// The first 200 characters of the data of a customer with bad credit.
    pub data: Option<String>,
}

/// Pays within an open transaction.
pub fn payment(session: &mut impl Session, input: &Payment, now: i64) -> Result<Paid, Error> {
    let Payment {
        warehouse: w,
        district: d,
        amount,
        ..
    } = *input;
    let (c_w, c_d) = (input.customer_warehouse, input.customer_district);
    let row = session.query_one(&WAREHOUSE, &[amount, w].map(Value::Int))?;
    let warehouse_name = Columns::of(&WAREHOUSE, row).text()?;
    let row = session.query_one(&DISTRICT, &[amount, w, d].map(Value::Int))?;
    let district_name = Columns::of(&DISTRICT, row).text()?;

    let customer = customer_id(session, c_w, c_d, &input.customer)?;
    let note = format!(
        "{customer} {c_d} {c_w} {d} {w} {}.{:02} ",
        amount / 100,
        amount % 100
    );
    let params = [
        amount.into(),
        note.into(),
        c_w.into(),
        c_d.into(),
        customer.into(),
    ];
    let mut columns = Columns::of(&CUSTOMER, session.query_one(&CUSTOMER, &params)?);
    let (first_name, last_name) = (columns.text()?, columns.text()?);
    let (credit, balance, data) = (columns.text()?, columns.int()?, columns.text()?);

    let mut values = [customer, c_d, c_w, d, w, now, amount]
        .map(Value::Int)
        .to_vec();
    values.push(format!("{warehouse_name}    {district_name}").into());
    session.execute_one(&HISTORY, &values)?;
    let data = (credit == "BC").then_some(data);
    Ok(Paid {
        customer,
        first_name,
        last_name,
        credit,
        balance,
        data,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, names};
    use super::super::input::Customer;
    use super::*;

    #[test]
    fn a_remote_payment_by_last_name_is_these_statements() {
        let mut fake = Fake::new(|statement, _| match statement.name {
            "payment warehouse" => vec![vec!["here".into()]],
            "payment district" => vec![vec!["there".into()]],
            "customer by name" => vec![vec![5.into()], vec![6.into()], vec![7.into()]],
            "payment customer" => {
                vec![vec![
                    "A".into(),
                    "B".into(),
                    "BC".into(),
                    (-20_00).into(),
                    "note".into(),
                ]]
            }
            _ => panic!("{} is not asked for", statement.name),
        });
        let input = Payment {
            warehouse: 1,
            district: 2,
            customer_warehouse: 3,
            customer_district: 4,
            customer: Customer::LastName("BAROUGHTABLE".to_owned()),
            amount: 10_05,
        };
        let paid = payment(&mut fake, &input, 99).unwrap();
        assert_eq!((paid.customer, paid.data.as_deref()), (6, Some("note")));
        assert_eq!(
            names(&fake.log),
            [
                "payment warehouse",
                "payment district",
                "customer by name",
                "payment customer",
                "payment history",
            ]
        );
        assert_eq!(fake.log[3].1[1], "6 4 3 2 1 10.05 ".into());
        assert_eq!(
            fake.log[4].1[..7],
            [6, 4, 3, 2, 1, 99, 10_05].map(Value::Int)
        );
        assert_eq!(fake.log[4].1[7], "here    there".into());
    }
}
