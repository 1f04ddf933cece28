//! Compares a database with its copy: the numbers that an application keeps in the database header,
//! the schema, and each row of each table, value by value.
//!
//! Rows are read in the order of their table. Row identifiers without a column of their own are not
//! compared, because `VACUUM` may change them.

use flagstone_terminal::{Failure, progress_bar};
use rusqlite::{Connection, Row, Rows, Statement};

/// Settings in the database header that belong to the application.
const NUMBERS: [&str; 3] = ["user_version", "application_id", "encoding"];

/// Compares a database with its copy, and checks the integrity of the copy. Returns the number of
/// rows.
///
/// # Errors
/// One of them cannot be read, or they differ; the message says where.
pub(super) fn compare(source: &Connection, copy: &Connection) -> Result<u64, Failure> {
    let integrity: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if integrity != "ok" {
        return Err(Failure::Failed(format!("the copy is damaged: {integrity}")));
    }
    for number in NUMBERS {
        let sql = format!("SELECT '{number}', {number} FROM pragma_{number}");
        same_rows(number, &sql, source, copy, &mut |_| ())?;
    }
    let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
    same_rows("schema", schema, source, copy, &mut |_| ())?;
    let tables = tables(source)?;
    let mut rows = 0;
    for table in &tables {
        let count = format!("SELECT count(*) FROM {}", quoted(table));
        rows += source.query_row(&count, [], |row| row.get::<_, u64>(0))?;
    }
    let bar = progress_bar(rows, "comparing");
    for table in &tables {
        let sql = rows_of(source, table)?;
        same_rows(table, &sql, source, copy, &mut |more| bar.inc(more))?;
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// The tables that store rows themselves. Virtual tables store theirs in shadow tables.
fn tables(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name",
    )?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The statement that reads all stored values of a table. Omits virtual generated columns: they may
/// need functions that only the application registers.
fn rows_of(db: &Connection, table: &str) -> rusqlite::Result<String> {
    const COMPUTED: u32 = 2;
    let sql = "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden <> ?2 ORDER BY cid";
    let mut statement = db.prepare(sql)?;
    let names = statement.query_map((table, COMPUTED), |row| row.get::<_, String>(0))?;
    let names: rusqlite::Result<Vec<String>> = names.map(|name| Ok(quoted(&name?))).collect();
    let table = quoted(table);
    Ok(format!(
        "SELECT {} FROM {table} NOT INDEXED",
        names?.join(", ")
    ))
}

/// Compares the results of a statement on both databases, and reports progress by the number of
/// equal rows.
fn same_rows(
    what: &str,
    sql: &str,
    source: &Connection,
    copy: &Connection,
    equal: &mut dyn FnMut(u64),
) -> Result<(), Failure> {
    let differs = |row: u64, how: &str| {
        Err(Failure::Failed(format!(
            "{what}, row {row}: {how}; keep the original; if another process wrote to it \
             meanwhile, remove the copy and try again"
        )))
    };
    let (mut here, mut there) = (source.prepare(sql)?, copy.prepare(sql)?);
    let columns = here.column_count();
    let (mut here, mut there) = (all(&mut here)?, all(&mut there)?);
    for row in 1.. {
        match (here.next()?, there.next()?) {
            (None, None) => break,
            (Some(_), None) => return differs(row, "the copy does not have it"),
            (None, Some(_)) => return differs(row, "only the copy has it"),
            (Some(here), Some(there)) => match first_difference(columns, here, there)? {
                Some(column) => {
                    let how = format!("column {} differs in the copy", column + 1);
                    return differs(row, &how);
                }
                None => equal(1),
            },
        }
    }
    Ok(())
}

fn all<'a>(statement: &'a mut Statement<'_>) -> rusqlite::Result<Rows<'a>> {
    statement.query([])
}

fn first_difference(
    columns: usize,
    here: &Row<'_>,
    there: &Row<'_>,
) -> rusqlite::Result<Option<usize>> {
    for column in 0..columns {
        if here.get_ref(column)? != there.get_ref(column)? {
            return Ok(Some(column));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: &str = "
        PRAGMA application_id = 7; PRAGMA user_version = 3;
        CREATE TABLE plain (name TEXT, bytes BLOB, real REAL, twice AS (length(name) * 2));
        CREATE INDEX by_name ON plain (name);
        CREATE TABLE \"odd \"\" name\" (a, b, PRIMARY KEY (b, a)) WITHOUT ROWID;
        CREATE VIEW names AS SELECT name FROM plain;
        CREATE TRIGGER upper AFTER INSERT ON plain BEGIN
            UPDATE plain SET name = upper(name) WHERE rowid = new.rowid; END;
        CREATE VIRTUAL TABLE words USING fts5 (word);
        INSERT INTO plain (name, bytes, real) VALUES ('a', x'00ff', 0.5), ('b', NULL, 1e300);
        INSERT INTO \"odd \"\" name\" VALUES (1, 'x'), (2, 'x');
        INSERT INTO words VALUES ('stone');
        ANALYZE;";

    fn database(changes: &str) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(DATABASE).unwrap();
        db.execute_batch(changes).unwrap();
        db
    }

    #[test]
    fn a_copy_is_found_equal() {
        let source = database("DELETE FROM plain WHERE name = 'A'");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy.db");
        let into = path.to_str().unwrap();
        source.execute("VACUUM INTO ?1", [into]).unwrap();
        let rows = compare(&source, &Connection::open(&path).unwrap()).unwrap();
        assert!(rows > 3, "{rows}");
    }

    /// Each kind of difference has to be found, or the comparison would prove nothing.
    #[test]
    fn each_difference_is_found() {
        let changes = [
            ("PRAGMA user_version = 4", "user_version"),
            ("PRAGMA application_id = 8", "application_id"),
            ("DROP VIEW names", "schema"),
            ("DROP INDEX by_name", "schema"),
            ("DROP TRIGGER upper", "schema"),
            ("DELETE FROM plain WHERE name = 'B'", "plain, row 2"),
            ("UPDATE plain SET bytes = x'00fe'", "plain, row 1: column 2"),
            ("UPDATE plain SET name = 'C'", "plain, row 1: column 1"),
            ("UPDATE plain SET real = '0.5x'", "plain, row 1: column 3"),
            (
                "INSERT INTO \"odd \"\" name\" VALUES (3, 'x')",
                "odd \" name, row 3",
            ),
            ("INSERT INTO words VALUES ('flag')", "words_content, row 2"),
        ];
        for (change, found) in changes {
            let compared = compare(&database(""), &database(change));
            let Err(Failure::Failed(why)) = compared else {
                panic!("{change}: {compared:?}");
            };
            assert!(why.contains(found), "{change}: {why}");
        }
    }
}
