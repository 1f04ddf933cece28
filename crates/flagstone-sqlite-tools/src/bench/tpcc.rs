//! TPC-C on SQLite. Tables, transactions and consistency conditions are those of the PostgreSQL
//! recordings, run over a connection to a database.

use super::Args;
use super::lane::{Client, Lane};
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::consistency::{self, When};
use flagstone_lab::tpcc::input::Terminal;
use flagstone_lab::tpcc::load::{self, Loader, Population};
use flagstone_lab::tpcc::mix;
use flagstone_lab::tpcc::random::Constants;
use flagstone_lab::tpcc::schema::Table;
use flagstone_lab::tpcc::session::{AccessMode, Error, Row, Session, Statement, Value};
use flagstone_terminal::Failure;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, params_from_iter};

/// The date of the load and of all transactions, in microseconds since 1970. It is constant, so
/// that equal runs insert equal rows.
const NOW: i64 = 1_700_000_000_000_000;

/// A SQLite connection as a TPC-C [`Session`].
struct SqliteSession(Connection);

/// A value as a parameter of a SQLite statement.
struct Sent<'a>(&'a Value);

impl ToSql for Sent<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Translates an error of SQLite. A database locked by another connection is a conflict.
fn failure(statement: &str, error: &rusqlite::Error) -> Error {
    let (statement, message) = (statement.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Conflict { statement, message }
        }
        _ => Error::Database { statement, message },
    }
}

fn value(statement: &'static Statement, found: ValueRef<'_>) -> Result<Value, Error> {
    Ok(match found {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        other => {
            let what = format!(
                "expected an integer or a text, found {:?}",
                other.data_type()
            );
            return Err(Error::answer(statement, what));
        }
    })
}

impl SqliteSession {
    fn simple(&mut self, name: &str, sql: &str) -> Result<(), Error> {
        self.0
            .execute_batch(sql)
            .map_err(|error| failure(name, &error))
    }
}

impl Session for SqliteSession {
    fn begin(&mut self, access: AccessMode) -> Result<(), Error> {
        match access {
            AccessMode::ReadOnly => self.simple("begin", "BEGIN"),
            // Two deferred transactions that both read and then write would block each other.
            AccessMode::ReadWrite => self.simple("begin", "BEGIN IMMEDIATE"),
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.simple("commit", "COMMIT")
    }

    fn rollback(&mut self) -> Result<(), Error> {
        // After some errors SQLite has already rolled back.
        if self.0.is_autocommit() {
            Ok(())
        } else {
            self.simple("rollback", "ROLLBACK")
        }
    }

    fn execute(&mut self, statement: &'static Statement, params: &[Value]) -> Result<u64, Error> {
        let fail = |error| failure(statement.name, &error);
        let mut prepared = self.0.prepare_cached(statement.sql).map_err(fail)?;
        let changed = prepared.execute(params_from_iter(params.iter().map(Sent)));
        Ok(changed.map_err(fail)? as u64)
    }

    fn query(
        &mut self,
        statement: &'static Statement,
        params: &[Value],
    ) -> Result<Vec<Row>, Error> {
        let fail = |error| failure(statement.name, &error);
        let mut prepared = self.0.prepare_cached(statement.sql).map_err(fail)?;
        let columns = prepared.column_count();
        let mut found = prepared
            .query(params_from_iter(params.iter().map(Sent)))
            .map_err(fail)?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(fail)? {
            let column = |at| value(statement, row.get_ref(at).map_err(fail)?);
            rows.push((0..columns).map(column).collect::<Result<Row, Error>>()?);
        }
        Ok(rows)
    }
}

impl Loader for SqliteSession {
    fn define(&mut self, sql: &str) -> Result<(), Error> {
        self.simple(sql, sql)
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, Error> {
        let places = vec!["?"; table.columns.len()].join(", ");
        let sql = format!("INSERT INTO {} VALUES ({places})", table.name);
        let fail = |error| failure(&sql, &error);
        self.0.execute_batch("BEGIN IMMEDIATE").map_err(fail)?;
        let mut loaded = 0;
        {
            let mut insert = self.0.prepare_cached(&sql).map_err(fail)?;
            for row in rows {
                insert
                    .execute(params_from_iter(row.iter().map(Sent)))
                    .map_err(fail)?;
                loaded += 1;
            }
        }
        self.0.execute_batch("COMMIT").map_err(fail)?;
        Ok(loaded)
    }

    fn finish_load(&mut self) -> Result<(), Error> {
        self.simple("ANALYZE", "ANALYZE")
    }
}

/// A TPC-C terminal.
struct AtTerminal {
    session: SqliteSession,
    client: mix::Client,
}

impl Client for AtTerminal {
    fn transaction(&mut self) -> Result<(), Failure> {
        self.client.next_request().run(&mut self.session, NOW)?;
        Ok(())
    }
}

/// Creates and populates the tables.
pub(super) fn fill(lane: &mut Lane, args: &Args) -> Result<(), Failure> {
    let population = Population {
        scale: Scale::standard(args.warehouses.into()),
        seed: args.seed,
        now: NOW,
    };
    load::load(
        &mut SqliteSession(lane.connect()?),
        &population,
        &mut |_, _| {},
    )?;
    Ok(())
}

/// Creates the clients of a database.
pub(super) fn clients(lane: &Lane, args: &Args) -> Result<Vec<Box<dyn Client>>, Failure> {
    let (scale, last_name) = load::population_of(&mut SqliteSession(lane.connect()?))?;
    let constants = Constants::run(args.seed, last_name);
    let one = |number| {
        let terminal = Terminal::of_client(number, scale, constants);
        let session = SqliteSession(lane.connect()?);
        let client = mix::Client::new(number, args.seed, terminal);
        Ok(Box::new(AtTerminal { session, client }) as Box<dyn Client>)
    };
    (0..args.threads).map(one).collect()
}

/// Checks the consistency conditions of TPC-C (clause 3.3.2) on a database.
pub(super) fn check(lane: &Lane) -> Result<(), Failure> {
    let findings = consistency::check(&mut SqliteSession(lane.connect()?), When::Used)?;
    match findings.iter().find(|finding| finding.violations > 0) {
        None => Ok(()),
        Some(finding) => Err(Failure::Failed(format!(
            "under {}, TPC-C's consistency condition {} ({}) does not hold in {} places",
            lane.engine.name(),
            finding.condition.number,
            finding.condition.title,
            finding.violations
        ))),
    }
}
