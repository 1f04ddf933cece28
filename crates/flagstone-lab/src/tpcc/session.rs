//! What a transaction needs from a database: a few operations, a statement type, a value type.
//!
//! The transactions only use [`Session`]. Statements are constants in SQL that both PostgreSQL and
//! SQLite accept: parameters are `$1`, `$2`, … and first occur in that order, because SQLite
//! numbers them by first occurrence.

/// A statement, prepared once per session.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    /// A unique name, for messages and as the key of prepared statements.
    pub name: &'static str,
    /// The text, with parameters `$1`, `$2`, ….
    pub sql: &'static str,
}

/// A parameter or a column of a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// No value.
    Null,
    /// Any integer.
    Int(i64),
    /// Any text.
    Text(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::Text(value)
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Value::Null, Value::Int)
    }
}

/// A row of a result or of a table.
pub type Row = Vec<Value>;

/// What a transaction will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// Read one consistent state.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Why a statement or a transaction failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Conflict with another transaction; roll back and try again.
    #[error("{statement}: in conflict with another transaction: {message}")]
    Conflict {
        /// The statement's name.
        statement: String,
        /// The database's message.
        message: String,
    },
    /// The database refused a statement, or the connection is gone.
    #[error("{statement}: {message}")]
    Database {
        /// The statement's name.
        statement: String,
        /// The database's message.
        message: String,
    },
    /// An unexpected answer: not a database filled by [`super::load`].
    #[error("{statement}: {message}; is this a TPC-C database of the expected size?")]
    Answer {
        /// The statement's name.
        statement: String,
        /// What is wrong with the answer.
        message: String,
    },
    /// The scale of the database is invalid.
    #[error("{0}")]
    Scale(String),
}

impl Error {
    /// The error for an answer of the wrong form.
    pub fn answer(statement: &Statement, message: impl Into<String>) -> Self {
        Error::Answer {
            statement: statement.name.to_owned(),
            message: message.into(),
        }
    }
}

/// A connection with at most one transaction open.
pub trait Session {
    /// Starts a transaction.
    fn begin(&mut self, access: AccessMode) -> Result<(), Error>;

    /// Commits the transaction. After an error the transaction is gone.
    fn commit(&mut self) -> Result<(), Error>;

    /// Rolls the transaction back; also required after any error within it.
    fn rollback(&mut self) -> Result<(), Error>;

    /// Runs a statement and returns the number of rows changed.
    fn execute(&mut self, statement: &'static Statement, params: &[Value]) -> Result<u64, Error>;

    /// Runs a statement and returns all rows of its result.
    fn query(&mut self, statement: &'static Statement, params: &[Value])
    -> Result<Vec<Row>, Error>;

    /// Runs a statement whose result has at most one row.
    fn query_opt(
        &mut self,
        statement: &'static Statement,
        params: &[Value],
    ) -> Result<Option<Row>, Error> {
        let mut rows = self.query(statement, params)?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            n => Err(Error::answer(
                statement,
                format!("{n} rows where at most one is expected"),
            )),
        }
    }

    /// Runs a statement whose result has exactly one row.
    fn query_one(&mut self, statement: &'static Statement, params: &[Value]) -> Result<Row, Error> {
        self.query_opt(statement, params)?
            .ok_or_else(|| Error::answer(statement, format!("no row for {params:?}")))
    }

    /// Runs a statement that must change exactly one row.
    fn execute_one(
        &mut self,
        statement: &'static Statement,
        params: &[Value],
    ) -> Result<(), Error> {
        match self.execute(statement, params)? {
            1 => Ok(()),
            n => Err(Error::answer(
                statement,
                format!("{n} rows changed for {params:?}"),
            )),
        }
    }
}

/// The columns of a row, read one by one with type checks.
pub struct Columns {
    statement: &'static Statement,
    rest: std::vec::IntoIter<Value>,
}

impl Columns {
    /// The columns of `row`, which `statement` returned.
    pub fn of(statement: &'static Statement, row: Row) -> Self {
        Columns {
            statement,
            rest: row.into_iter(),
        }
    }

    /// The next column, an integer.
    pub fn int(&mut self) -> Result<i64, Error> {
        match self.rest.next() {
            Some(Value::Int(value)) => Ok(value),
            other => Err(self.unexpected("an integer", other)),
        }
    }

    /// The next column, an integer or null.
    pub fn int_or_null(&mut self) -> Result<Option<i64>, Error> {
        match self.rest.next() {
            Some(Value::Int(value)) => Ok(Some(value)),
            Some(Value::Null) => Ok(None),
            other => Err(self.unexpected("an integer or null", other)),
        }
    }

    /// The next column, a text.
    pub fn text(&mut self) -> Result<String, Error> {
        match self.rest.next() {
            Some(Value::Text(value)) => Ok(value),
            other => Err(self.unexpected("a text", other)),
        }
    }

    fn unexpected(&self, wanted: &str, got: Option<Value>) -> Error {
        Error::answer(
            self.statement,
            format!("{got:?} where {wanted} is expected"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::consistency::CONDITIONS;
    use super::super::{customer, delivery, new_order, order_status, payment, stock_level};
    use super::*;

    fn statements() -> Vec<&'static Statement> {
        let mut all = vec![
            &new_order::WAREHOUSE,
            &new_order::DISTRICT,
            &new_order::CUSTOMER,
            &new_order::ORDER,
            &new_order::UNDELIVERED,
            &new_order::ITEM,
            &new_order::LINE,
            &payment::WAREHOUSE,
            &payment::DISTRICT,
            &payment::CUSTOMER,
            &payment::HISTORY,
            &customer::BY_NAME,
            &order_status::CUSTOMER,
            &order_status::ORDER,
            &order_status::LINES,
            &delivery::OLDEST,
            &delivery::TAKE,
            &delivery::ORDER,
            &delivery::LINES,
            &delivery::CUSTOMER,
            &stock_level::DISTRICT,
            &stock_level::LOW,
        ];
        all.extend(&new_order::STOCK);
        all.extend(CONDITIONS.iter().map(|condition| &condition.query));
        all
    }

    #[test]
    fn parameters_first_occur_in_the_order_of_their_numbers() {
        for statement in statements() {
            let mut seen = 0;
            for part in statement.sql.split('$').skip(1) {
                let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
                let number: usize = digits.parse().unwrap();
                assert!(number <= seen + 1, "{}: ${number}", statement.name);
                seen = seen.max(number);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = statements()
            .iter()
            .map(|statement| statement.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_column_of_another_type_is_an_error_that_names_the_statement() {
        let mut columns = Columns::of(&delivery::OLDEST, vec!["x".into()]);
        let error = columns.int().unwrap_err().to_string();
        assert!(
            error.starts_with("delivery oldest: ") && error.contains("an integer"),
            "{error}"
        );
        assert!(columns.text().is_err(), "there is no second column");
    }
}
