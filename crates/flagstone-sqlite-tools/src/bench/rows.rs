//! Clients that read and update random rows of one table.

use super::Args;
use super::lane::{Client, Lane};
use flagstone_terminal::{Failure, progress_bar};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rusqlite::Connection;

const VALUE_BYTES: usize = 100;
/// Bytes that a row takes in a database, including overhead.
const ROW_BYTES: u64 = 118;
/// Rows in a page of 4096 bytes.
const ROWS_A_PAGE: u64 = 4096 / ROW_BYTES;
/// Rows updated by each transaction that ages a database.
const ROWS_AGEING: u64 = 100;
/// Rows appended by each transaction that fills a database: some 100 megabytes.
const ROWS_FILLED: u64 = 1_000_000;
/// Rows appended by each transaction of the bulk load.
const ROWS_APPENDED: u64 = 100;
/// Rows read by each transaction that reads.
const ROWS_READ: u64 = 10;

/// The mix of transactions that a client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    /// Each transaction updates this many random rows.
    Update(u64),
    /// Nine of ten transactions read ten random rows, the tenth updates one.
    Mixed,
    /// Each transaction reads ten random rows.
    Read,
    /// Each transaction appends a hundred rows.
    Load,
}

/// A client and its random generator.
struct Rows {
    db: Connection,
    mix: Mix,
    dice: Pcg64Mcg,
    /// Rows with which the table was filled; their ids are below this number.
    rows: u64,
    /// The next row identifier to append, and the step between the identifiers of one client.
    next: u64,
    step: u64,
}

fn value(dice: &mut Pcg64Mcg) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    dice.fill(&mut bytes[..]);
    bytes
}

fn rows(args: &Args) -> u64 {
    args.megabytes * 1_000_000 / ROW_BYTES
}

/// Fills a database, and ages it if the arguments ask for that.
pub(super) fn fill(lane: &mut Lane, args: &Args) -> Result<(), Failure> {
    let db = &lane.db;
    let bar = progress_bar(rows(args), &format!("filling {}", lane.engine.name()));
    db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB NOT NULL); BEGIN")?;
    let mut dice = Pcg64Mcg::seed_from_u64(args.seed);
    {
        let mut insert = db.prepare("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
        for id in 0..rows(args) {
            insert.execute((id, value(&mut dice).as_slice()))?;
            // Bounds the log and the memory of a transaction.
            if (id + 1) % ROWS_FILLED == 0 {
                db.execute_batch("COMMIT; BEGIN")?;
                bar.inc(ROWS_FILLED);
            }
        }
    }
    db.execute_batch("COMMIT")?;
    bar.finish_and_clear();
    if args.aged {
        // Another seed than that of the filling: SQLite does not write a row whose value does not
        // change.
        let mut client = client(lane.connect()?, Mix::Update(ROWS_AGEING), u32::MAX, args)?;
        // Twice as many updates as pages: each random row is mostly in another page.
        for _ in 0..2 * rows(args) / ROWS_A_PAGE / ROWS_AGEING {
            client.transaction()?;
        }
    }
    Ok(())
}

/// Creates the clients of a database.
pub(super) fn clients(lane: &Lane, mix: Mix, args: &Args) -> Result<Vec<Box<dyn Client>>, Failure> {
    let one = |number| Ok(Box::new(client(lane.connect()?, mix, number, args)?) as Box<dyn Client>);
    (0..args.threads).map(one).collect()
}

fn client(db: Connection, mix: Mix, number: u32, args: &Args) -> Result<Rows, Failure> {
    let top: u64 = db.query_row("SELECT max(id) FROM t", [], |row| row.get(0))?;
    Ok(Rows {
        db,
        mix,
        dice: Pcg64Mcg::seed_from_u64(args.seed.wrapping_add(u64::from(number))),
        rows: rows(args),
        next: top + 1 + u64::from(number),
        step: args.threads.into(),
    })
}

impl Client for Rows {
    fn transaction(&mut self) -> Result<(), Failure> {
        let mix = match self.mix {
            Mix::Mixed if self.dice.random_range(0..10) == 0 => Mix::Update(1),
            Mix::Mixed => Mix::Read,
            other => other,
        };
        let (db, dice) = (&self.db, &mut self.dice);
        match mix {
            Mix::Update(count) => {
                let mut update = db.prepare_cached("UPDATE t SET v = ?2 WHERE id = ?1")?;
                let mut update = |dice: &mut Pcg64Mcg| {
                    let id = dice.random_range(0..self.rows);
                    update.execute((id, value(dice).as_slice()))
                };
                if count == 1 {
                    update(dice)?;
                } else {
                    db.execute_batch("BEGIN IMMEDIATE")?;
                    for _ in 0..count {
                        update(dice)?;
                    }
                    db.execute_batch("COMMIT")?;
                }
            }
            Mix::Read | Mix::Mixed => {
                let mut get = db.prepare_cached("SELECT v FROM t WHERE id = ?1")?;
                db.execute_batch("BEGIN")?;
                for _ in 0..ROWS_READ {
                    let id = dice.random_range(0..self.rows);
                    let found = get.query_row([id], |row| Ok(row.get_ref(0)?.as_blob()?.len()))?;
                    assert_eq!(found, VALUE_BYTES);
                }
                db.execute_batch("COMMIT")?;
            }
            Mix::Load => {
                db.execute_batch("BEGIN IMMEDIATE")?;
                let mut insert = db.prepare_cached("INSERT INTO t (id, v) VALUES (?1, ?2)")?;
                for _ in 0..ROWS_APPENDED {
                    insert.execute((self.next, value(dice).as_slice()))?;
                    self.next += self.step;
                }
                db.execute_batch("COMMIT")?;
            }
        }
        Ok(())
    }
}
