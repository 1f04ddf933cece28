//! A PostgreSQL connection as a TPC-C [`Session`] and [`Loader`].

use std::collections::BTreeMap;
use std::error::Error as StdError;

use ::postgres::binary_copy::BinaryCopyInWriter;
use ::postgres::error::SqlState;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use ::postgres::{Client, Config, NoTls};

use flagstone_lab::tpcc::load::Loader;
use flagstone_lab::tpcc::schema::{ColumnKind, Table};
use flagstone_lab::tpcc::session::{AccessMode, Error, Row, Session, Statement, Value};

/// The isolation level of transactions that write. Read-only transactions see one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Isolation {
    /// Each statement sees committed data, and locks each row before it writes it. This keeps the
    /// consistency conditions, because no transaction writes back a value that it has read.
    #[default]
    ReadCommitted,
    /// Each transaction sees one snapshot. If two write the same row, one fails and is retried.
    RepeatableRead,
    /// Transactions behave as if they ran one after another.
    Serializable,
}

impl Isolation {
    /// The name of the level in SQL.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// A connection and its prepared statements.
pub(crate) struct PostgresSession {
    client: Client,
    isolation: Isolation,
    prepared: BTreeMap<&'static str, ::postgres::Statement>,
}

impl PostgresSession {
    /// Connects to the server of `config`, without TLS.
    pub(crate) fn connect(config: &Config, isolation: Isolation) -> Result<Self, Error> {
        let client = config
            .connect(NoTls)
            .map_err(|error| failure("connect", &error))?;
        Ok(PostgresSession {
            client,
            isolation,
            prepared: BTreeMap::new(),
        })
    }

    /// The connection itself, for statements that do not belong to TPC-C.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    fn prepare(&mut self, statement: &'static Statement) -> Result<::postgres::Statement, Error> {
        if let Some(prepared) = self.prepared.get(statement.name) {
            return Ok(prepared.clone());
        }
        let prepared = self
            .client
            .prepare(statement.sql)
            .map_err(|error| failure(statement.name, &error))?;
        self.prepared.insert(statement.name, prepared.clone());
        Ok(prepared)
    }

    fn simple(&mut self, sql: &str, name: &str) -> Result<(), Error> {
        self.client
            .batch_execute(sql)
            .map_err(|error| failure(name, &error))
    }
}

/// Translates an error with its detail and hint. Conflicts become a kind of their own.
pub(crate) fn failure(statement: &str, error: &::postgres::Error) -> Error {
    let statement = statement.to_owned();
    let Some(db) = error.as_db_error() else {
        // The text of this error is generic; the reason is in its source.
        let reason = error
            .source()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        return Error::Database {
            statement,
            message: format!("{error}{reason}"),
        };
    };
    let mut message = format!("{} (SQLSTATE {})", db.message(), db.code().code());
    for more in [db.detail(), db.hint()].into_iter().flatten() {
        message.push_str("; ");
        message.push_str(more);
    }
    let conflict = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ]
    .contains(db.code());
    if conflict {
        Error::Conflict { statement, message }
    } else {
        Error::Database { statement, message }
    }
}

impl Session for PostgresSession {
    fn begin(&mut self, access: AccessMode) -> Result<(), Error> {
        let sql = match (access, self.isolation) {
            (AccessMode::ReadOnly, Isolation::Serializable) => {
                "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"
            }
            (AccessMode::ReadOnly, _) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            (_, Isolation::ReadCommitted) => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            (_, Isolation::RepeatableRead) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            (_, Isolation::Serializable) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        };
        self.simple(sql, "begin")
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.simple("COMMIT", "commit")
    }

    fn rollback(&mut self) -> Result<(), Error> {
        self.simple("ROLLBACK", "rollback")
    }

    fn execute(&mut self, statement: &'static Statement, params: &[Value]) -> Result<u64, Error> {
        let prepared = self.prepare(statement)?;
        let params: Vec<Sent<'_>> = params.iter().map(Sent).collect();
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
        self.client
            .execute(&prepared, &params)
            .map_err(|error| failure(statement.name, &error))
    }

    fn query(
        &mut self,
        statement: &'static Statement,
        params: &[Value],
    ) -> Result<Vec<Row>, Error> {
        let prepared = self.prepare(statement)?;
        let params: Vec<Sent<'_>> = params.iter().map(Sent).collect();
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
        let rows = self
            .client
            .query(&prepared, &params)
            .map_err(|error| failure(statement.name, &error))?;
        rows.iter().map(|row| values(statement, row)).collect()
    }
}

impl Loader for PostgresSession {
    fn define(&mut self, sql: &str) -> Result<(), Error> {
        self.simple(sql, sql)
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, Error> {
        let name = format!("COPY {}", table.name);
        let fail = |error| failure(&name, &error);
        let columns: Vec<&str> = table.columns.iter().map(|(column, _)| *column).collect();
        let types: Vec<Type> = table
            .columns
            .iter()
            .map(|(_, kind)| type_of(*kind))
            .collect();
        let sql = format!(
            "COPY {} ({}) FROM STDIN WITH (FORMAT binary)",
            table.name,
            columns.join(", ")
        );
        let mut writer = BinaryCopyInWriter::new(self.client.copy_in(&sql).map_err(fail)?, &types);
        for row in rows {
            writer.write_raw(row.iter().map(Sent)).map_err(fail)?;
        }
        writer.finish().map_err(fail)
    }

    fn finish_load(&mut self) -> Result<(), Error> {
        self.simple("VACUUM ANALYZE", "VACUUM ANALYZE")
    }
}

fn type_of(kind: ColumnKind) -> Type {
    match kind {
        ColumnKind::Small => Type::INT2,
        ColumnKind::Number => Type::INT4,
        ColumnKind::Money | ColumnKind::Date => Type::INT8,
        ColumnKind::Fixed(_) => Type::BPCHAR,
        ColumnKind::Text(_) => Type::VARCHAR,
    }
}

fn values(statement: &'static Statement, row: &::postgres::Row) -> Result<Row, Error> {
    let get = |index: usize, ty: &Type| {
        Ok::<Value, ::postgres::Error>(match *ty {
            Type::INT2 => row.try_get::<_, Option<i16>>(index)?.map(i64::from).into(),
            Type::INT4 => row.try_get::<_, Option<i32>>(index)?.map(i64::from).into(),
            Type::INT8 => row.try_get::<_, Option<i64>>(index)?.into(),
            _ => row
                .try_get::<_, Option<String>>(index)?
                .map_or(Value::Null, Value::Text),
        })
    };
    row.columns()
        .iter()
        .enumerate()
        .map(|(index, column)| {
            get(index, column.type_()).map_err(|error| {
                Error::answer(statement, format!("column {}: {error}", column.name()))
            })
        })
        .collect()
}

/// A value that is sent as a parameter of a statement.
#[derive(Debug)]
struct Sent<'a>(&'a Value);

impl ToSql for Sent<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match (self.0, ty) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Int(value), &Type::INT2) => i16::try_from(*value)?.to_sql(ty, out),
            (Value::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(ty, out),
            (Value::Int(value), &Type::INT8) => value.to_sql(ty, out),
            (Value::Text(value), &(Type::TEXT | Type::VARCHAR | Type::BPCHAR)) => {
                value.to_sql(ty, out)
            }
            (value, ty) => Err(format!("{value:?} is not a value of type {ty}").into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(
            *ty,
            Type::INT2 | Type::INT4 | Type::INT8 | Type::TEXT | Type::VARCHAR | Type::BPCHAR
        )
    }

    to_sql_checked!();
}
