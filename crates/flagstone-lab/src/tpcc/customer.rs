//! Finds a customer by last name (clauses 2.5.2.2 and 2.6.2.2), for Payment and Order-Status.

use super::input::Customer;
use super::session::{Columns, Error, Session, Statement};

/// The customers with a last name, ordered by first name.
pub static BY_NAME: Statement = Statement {
    name: "customer by name",
    sql: "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 \
          ORDER BY c_first, c_id",
};

/// The customer's number. Among several with the same name, the middle one, rounded up.
pub fn customer_id(
    session: &mut impl Session,
    warehouse: i64,
    district: i64,
    customer: &Customer,
) -> Result<i64, Error> {
    let name = match customer {
        Customer::Id(id) => return Ok(*id),
        Customer::LastName(name) => name.as_str(),
    };
    let params = [warehouse.into(), district.into(), name.into()];
    let mut rows = session.query(&BY_NAME, &params)?;
    if rows.is_empty() {
        return Err(Error::answer(
            &BY_NAME,
            format!("no customer is called {name}"),
        ));
    }
    let middle = (rows.len() - 1) / 2;
    Columns::of(&BY_NAME, rows.swap_remove(middle)).int()
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn the_middle_one_of_a_name_is_meant() {
        for (count, middle) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
            let mut fake = Fake::new(|_, _| (1..=count).map(|id| vec![id.into()]).collect());
            let customer = Customer::LastName("BARBARBAR".to_owned());
            assert_eq!(
                customer_id(&mut fake, 1, 1, &customer),
                Ok(middle),
                "of {count}"
            );
        }
    }

    #[test]
    fn a_missing_name_is_an_error_that_says_so() {
        let mut fake = Fake::new(|_, _| vec![]);
        let customer = Customer::LastName("NOBODY".to_owned());
        let error = customer_id(&mut fake, 1, 1, &customer).unwrap_err();
        assert!(
            error.to_string().contains("no customer is called NOBODY"),
            "{error}"
        );
    }
}
