//! Power cuts under real transactions of SQLite: at every write and every sync of the medium, with
//! any of the sectors landed that were not synced.
//!
//! A run executes batches of SQL on a store over a [`Recorded`] medium, and on a database in memory
//! as the oracle. What each cut leaves is opened as a database of its own: `integrity_check` says
//! ok, and the contents are those before or after the batch that was under way. Some are written to
//! again, and cut again.
//!
//! The variable FLAGSTONE_SQLITE_CUTS says how many cuts to make.

mod attached;

use crate::lab::{Place, open, put, put_store};
use flagstone::commit::Kind;
use flagstone_store::medium::{Landing, Medium, Recorded};
use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::Value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Numbers that look like chance, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// All that a database says: its schema, its version and its rows.
fn contents(db: &Connection) -> rusqlite::Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut add = |sql: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut first = Vec::new();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                match row.get::<_, Value>(column)? {
                    Value::Text(text) => {
                        text.hash(&mut hasher);
                        if column == 0 {
                            first.push(text);
                        }
                    }
                    Value::Blob(bytes) => bytes.hash(&mut hasher),
                    Value::Integer(number) => number.hash(&mut hasher),
                    other => format!("{other:?}").hash(&mut hasher),
                }
            }
        }
        Ok(first)
    };
    add("PRAGMA user_version")?;
    for table in add("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name")? {
        add(&format!("SELECT * FROM \"{table}\" ORDER BY rowid"))?;
    }
    Ok(hasher.finish())
}

/// What to do at once.
enum Step {
    Sql(String),
    /// Closes the database and opens it again.
    Again,
}

/// A batch of SQL that ends outside of a transaction. Equal numbers give equal batches.
fn batch(dice: &mut Dice, number: u64) -> Step {
    let rows = |dice: &mut Dice, most: u64| {
        let (count, salt) = (dice.below(most) + 1, dice.below(1 << 20));
        format!(
            "INSERT INTO t (b, c) WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL
               SELECT x + 1 FROM n WHERE x < {count})
             SELECT CAST(printf('%0*d', (x * {salt}) % 900 + 1, {salt}) AS BLOB), hex(x * {salt})
             FROM n;"
        )
    };
    let change = |dice: &mut Dice| {
        let (of, at, salt) = (dice.below(9) + 2, dice.below(9), dice.below(1 << 20));
        format!(
            "UPDATE t SET b = printf('%0*d', (a * {salt}) % 1500, a), c = hex(a * {salt})
                 WHERE a % {of} = {at};"
        )
    };
    let remove = |dice: &mut Dice| {
        let (of, at) = (dice.below(5) + 2, dice.below(5));
        format!("DELETE FROM t WHERE a % {of} = {at};")
    };
    let cache = if dice.below(2) == 0 { 3 } else { 2000 };
    let synchronous = ["FULL", "FULL", "NORMAL", "OFF"][dice.below(4) as usize];
    let begin = format!("PRAGMA cache_size = {cache}; PRAGMA synchronous = {synchronous};");
    let sql = match dice.below(16) {
        _ if number == 0 => {
            "BEGIN; CREATE TABLE t (a INTEGER PRIMARY KEY, b, c); CREATE INDEX i ON t (c); COMMIT;"
                .into()
        }
        0..=3 => rows(dice, 40),
        4 | 5 => change(dice),
        6 => remove(dice),
        7 => format!(
            "BEGIN; {} {} {} ROLLBACK;",
            rows(dice, 60),
            change(dice),
            remove(dice)
        ),
        8 => format!(
            "BEGIN; {} SAVEPOINT s; {} {} ROLLBACK TO s; {} COMMIT;",
            rows(dice, 20),
            change(dice),
            remove(dice),
            rows(dice, 5)
        ),
        9 => "VACUUM;".into(),
        10 => format!(
            "BEGIN; DELETE FROM t WHERE length(b) > 5000; INSERT INTO t (b) VALUES (zeroblob({}));
             UPDATE t SET b = CAST(printf('%0*d', {}, 7) AS BLOB) WHERE length(b) > 5000; COMMIT;",
            dice.below(90_000) + 6000,
            dice.below(60_000) + 6000
        ),
        11 => "BEGIN; DROP INDEX IF EXISTS i; CREATE INDEX i ON t (c); COMMIT;".into(),
        12 => format!(
            "BEGIN; CREATE TABLE IF NOT EXISTS u{} (a); DELETE FROM t WHERE a % 2; COMMIT;",
            dice.below(3)
        ),
        13 => format!("PRAGMA user_version = {};", dice.below(1 << 30)),
        14 => "DROP TABLE IF EXISTS u0; PRAGMA incremental_vacuum;".into(),
        _ => return Step::Again,
    };
    Step::Sql(begin + &sql)
}

/// Runs SQL to its end; some pragmas want to be asked for each row.
fn run(db: &Connection, sql: &str) -> rusqlite::Result<()> {
    let mut batch = rusqlite::Batch::new(db, sql);
    while let Some(mut statement) = batch.next()? {
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

/// What a campaign runs on.
#[derive(Debug, Clone, Copy)]
struct Setting {
    kind: Kind,
    page: u32,
    /// Whether the database is copied from one without reserved bytes, before its first batch.
    is_apart: bool,
    /// Whether it is the control.
    is_plain: bool,
    /// Whether the medium means its syncs.
    lies: bool,
    /// Whether there is another connection, beside which commits wait for the medium apart.
    has_reader: bool,
}

/// What cuts have shown.
#[derive(Debug, Default)]
struct Found {
    /// In how many ways to cut at a moment.
    ways: usize,
    cuts: u64,
    bad: u64,
    batches: u64,
    /// The first that was bad.
    example: Option<String>,
}

/// What is wrong with what a cut has left, if anything.
fn wrong_with(db: &Connection, allowed: &[u64]) -> rusqlite::Result<Option<String>> {
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if check != "ok" {
        return Ok(Some(check));
    }
    let is_allowed = allowed.contains(&contents(db)?);
    Ok((!is_allowed).then(|| "it holds neither what was before nor what is after".into()))
}

impl Found {
    fn note(&mut self, wrong: rusqlite::Result<Option<String>>, at: impl FnOnce() -> String) {
        self.cuts += 1;
        let wrong = wrong.unwrap_or_else(|error| Some(error.to_string()));
        if let Some(wrong) = wrong {
            self.bad += 1;
            self.example
                .get_or_insert_with(|| format!("{}: {wrong}", at()));
        }
    }

    /// Cuts the power at some moments, in several ways, and looks at what is left.
    fn look(&mut self, setting: Setting, moments: &[Recorded], allowed: &[u64], depth: u32) {
        for moment in moments {
            let (seed, most) = (self.cuts.wrapping_mul(0x9e37_79b9), moment.pending());
            let landings = [
                Landing::Nothing,
                Landing::Everything,
                Landing::Sectors(seed),
                Landing::First(seed % most.max(1)),
                Landing::Pages(seed),
                Landing::Last(seed % most.max(1)),
                Landing::Sectors(seed + 1),
                Landing::First(1),
                Landing::Last(1),
                Landing::First(most.saturating_sub(1)),
                Landing::Pages(seed + 1),
                Landing::Sectors(seed + 2),
            ];
            // Where nothing waits, all landings are the same.
            let ways = if most == 0 { 1 } else { self.ways };
            let first = self.cuts as usize;
            for landing in landings
                .iter()
                .cycle()
                .skip(first % landings.len())
                .take(ways)
            {
                self.after(setting, moment.cut(*landing), *landing, allowed, depth);
            }
        }
    }

    /// Looks at what a cut has left; now and then writes to it, and cuts again.
    fn after(
        &mut self,
        setting: Setting,
        left: Recorded,
        landing: Landing,
        allowed: &[u64],
        depth: u32,
    ) {
        let again = match depth {
            1 => self.cuts.is_multiple_of(61),
            2 => self.cuts.is_multiple_of(401),
            _ => false,
        };
        let path = put(if setting.is_plain {
            Place::Plain(left.clone())
        } else {
            Place::Store(left.clone(), setting.kind)
        });
        let opened = open(&path);
        let wrong = opened.as_ref().map(|db| wrong_with(db, allowed));
        let is_well = matches!(wrong, Ok(Ok(None)));
        let wrong = wrong.unwrap_or_else(|error| Ok(Some(error.to_string())));
        let batches = self.batches;
        self.note(wrong, || {
            format!("{setting:?}, batch {batches}, {landing:?}")
        });
        if let (Ok(db), true) = (&opened, again && is_well) {
            let before = contents(db).expect("it was well");
            let salt = self.cuts;
            let moments = watched(&left, || {
                let _ = run(
                    db,
                    &format!(
                        "PRAGMA cache_size = 3; CREATE TABLE IF NOT EXISTS z (a, b);
                     INSERT INTO z VALUES ({salt}, printf('%0*d', 9000, 1));"
                    ),
                );
            });
            // Two transactions: the table may be there without the row.
            let after = contents(db).expect("it was well");
            let _ = run(db, &format!("DELETE FROM z WHERE a = {salt}"));
            let between = contents(db).expect("it was well");
            drop(opened);
            self.look(setting, &moments, &[before, between, after], depth + 1);
        }
    }
}

/// The moments before each operation of a medium while something goes on.
fn watched(medium: &Recorded, act: impl FnOnce()) -> Vec<Recorded> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    medium.watch(Some({
        let seen = Arc::clone(&seen);
        Box::new(move |medium: &Recorded| seen.lock().expect("one thread").push(medium.snapshot()))
    }));
    act();
    medium.watch(None);
    std::mem::take(&mut *seen.lock().expect("one thread"))
}

/// One database through some batches.
fn database(setting: Setting, seed: u64, batches: u64, found: &mut Found) {
    let medium = Recorded::default();
    let path = put(if setting.is_plain {
        Place::Plain(medium.clone())
    } else {
        Place::Store(medium.clone(), setting.kind)
    });
    let oracle = Connection::open_in_memory().expect("memory");
    let settings = format!(
        "PRAGMA page_size = {}; PRAGMA auto_vacuum = {};",
        setting.page,
        seed % 3
    );
    let start = |path: &Path| {
        let db = open(path).expect("it opens");
        run(&db, &settings).expect("settings");
        db
    };
    let mut db = Some(start(&path));
    let reader = setting
        .has_reader
        .then(|| open(&path).expect("it opens beside the other one"));
    if setting.lies {
        medium.lie();
    }
    if setting.is_apart {
        run(&oracle, "PRAGMA user_version = 1").expect("memory");
        let mut db = open(&path).expect("it opens");
        let copy = rusqlite::backup::Backup::new(&oracle, &mut db).expect("a backup");
        copy.run_to_completion(9, std::time::Duration::ZERO, None)
            .expect("it is copied");
    }
    let (mut dice, mut before) = (Dice(seed), contents(&oracle).expect("it is empty"));
    for number in 0..batches {
        let step = batch(&mut dice, number);
        let moments = watched(&medium, || match &step {
            Step::Again => {
                drop(db.take());
                db = Some(start(&path));
            }
            Step::Sql(sql) => {
                run(&oracle, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
                let db = db.as_ref().expect("it is open");
                run(db, sql).unwrap_or_else(|error| {
                    panic!(
                        "{setting:?}, {sql}: {error}: {}",
                        crate::support::text(db, "PRAGMA flagstone_error")
                    )
                });
            }
        });
        let after = contents(&oracle).expect("memory");
        let db = db.as_ref().expect("it is open");
        assert_eq!(
            contents(db).expect("it can be read"),
            after,
            "batch {number}"
        );
        if let Some(reader) = &reader {
            assert_eq!(contents(reader).expect("it can be read"), after);
        }
        found.batches += 1;
        found.look(setting, &moments, &[before, after], 1);
        found.look(setting, &[medium.snapshot()], &[after], 1);
        before = after;
    }
}

/// Databases until there were so many cuts.
fn campaign(settings: &[Setting], cuts: u64, ways: usize) -> Found {
    let mut found = Found {
        ways,
        ..Found::default()
    };
    for seed in 1.. {
        for setting in settings {
            database(*setting, seed, 16, &mut found);
        }
        if found.cuts >= cuts {
            break;
        }
    }
    found
}

fn on(kind: Kind, page: u32) -> Setting {
    Setting {
        kind,
        page,
        is_apart: false,
        is_plain: false,
        lies: false,
        has_reader: false,
    }
}

#[test]
fn power_cuts_leave_all_of_a_transaction_or_nothing() {
    let settings = [
        on(Kind::Seal, 4096),
        Setting {
            has_reader: true,
            ..on(Kind::Seal, 4096)
        },
        Setting {
            has_reader: true,
            ..on(Kind::Seal, 1024)
        },
        Setting {
            is_apart: true,
            ..on(Kind::Seal, 4096)
        },
        on(Kind::Seal, 1024),
        on(Kind::Seal, 8192),
        on(Kind::Seal, 512),
        on(Kind::Scc, 4096),
        on(Kind::LightTx, 4096),
    ];
    let wanted = std::env::var("FLAGSTONE_SQLITE_CUTS").ok();
    let found = match wanted.map(|wanted| wanted.parse().expect("a number of cuts")) {
        Some(wanted) => campaign(&settings, wanted, 12),
        None => campaign(&settings, 3000, 2),
    };
    println!(
        "{} cuts in {} batches, {} bad",
        found.cuts, found.batches, found.bad
    );
    assert_eq!(
        found.bad, 0,
        "of {}, the first: {:?}",
        found.cuts, found.example
    );
}

#[test]
fn control_power_cuts_break_a_plain_file_without_a_journal_on_disk() {
    let plain = Setting {
        is_plain: true,
        ..on(Kind::Seal, 4096)
    };
    let found = campaign(&[plain], 200, 1);
    println!(
        "{} cuts, {} bad: {:?}",
        found.cuts, found.bad, found.example
    );
    assert!(
        found.bad > found.cuts / 5,
        "{} of {}",
        found.bad,
        found.cuts
    );
}

#[test]
fn control_power_cuts_break_a_store_whose_medium_does_not_mean_its_syncs() {
    let lies = Setting {
        lies: true,
        ..on(Kind::Seal, 4096)
    };
    let beside = Setting {
        has_reader: true,
        ..lies
    };
    for lies in [lies, beside] {
        finds_lies(lies);
    }
}

fn finds_lies(lies: Setting) {
    let found = campaign(&[lies], 200, 1);
    println!(
        "{} cuts, {} bad: {:?}",
        found.cuts, found.bad, found.example
    );
    assert!(found.bad > 0, "of {}", found.cuts);
}

#[test]
fn a_medium_that_fails_anywhere_takes_nothing_that_was_acknowledged() {
    for has_reader in [false, true] {
        fails_anywhere(has_reader);
    }
}

fn fails_anywhere(has_reader: bool) {
    let (mut failures, mut at) = (0, 0);
    loop {
        let medium = Recorded::default();
        let path = put_store(medium.clone());
        let oracle = Connection::open_in_memory().expect("memory");
        let db = open(&path).expect("it opens");
        let reader = has_reader.then(|| open(&path).expect("it opens beside the other one"));
        run(&db, "PRAGMA cache_size = 3").expect("a setting");
        let mut before = contents(&oracle).expect("it is empty");
        medium.fail_at(Some(medium.operations() + at));
        let mut dice = Dice(77);
        let mut failed = None;
        for number in 0..12 {
            let Step::Sql(sql) = batch(&mut dice, number) else {
                continue;
            };
            run(&oracle, &sql).expect("memory");
            let after = contents(&oracle).expect("memory");
            if run(&db, &sql).is_err() {
                // From here on nothing succeeds, and it is said why.
                assert!(run(&db, "CREATE TABLE later (a)").is_err());
                let why = crate::support::text(&db, "PRAGMA flagstone_error");
                assert!(why.contains("as it was told to"), "{why}");
                failed = Some([before, after]);
                break;
            }
            before = after;
        }
        drop((db, reader));
        let Some(allowed) = failed else {
            break;
        };
        let mut found = Found {
            ways: 12,
            ..Found::default()
        };
        found.look(on(Kind::Seal, 4096), &[medium], &allowed, 9);
        assert_eq!(found.bad, 0, "operation {at}: {:?}", found.example);
        failures += 1;
        at += 1 + at / 8;
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_full_medium_rolls_the_transaction_back_and_later_goes_on() {
    let medium = Recorded::default();
    medium.give_at_most(Some(2 << 20));
    let path = put_store(medium.clone());
    let db = open(&path).expect("it opens");
    run(&db, "PRAGMA cache_size = 3; CREATE TABLE t (a)").expect("room");
    let rows = "INSERT INTO t WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL
                SELECT x + 1 FROM n WHERE x < 100) SELECT printf('%0*d', 3000, x) FROM n";
    let mut before = contents(&db).expect("it can be read");
    let error = loop {
        match run(&db, rows) {
            Ok(()) => before = contents(&db).expect("it can be read"),
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DiskFull)
    );
    assert_eq!(wrong_with(&db, &[before]).expect("it can be read"), None);
    medium.give_at_most(None);
    run(&db, rows).expect("there is room now");
    assert!(contents(&db).expect("it can be read") != before);
    drop(db);
    let db = open(&path).expect("it opens");
    crate::support::assert_well(&db);
}

/// Fails if a store stays as large as its medium after a transaction that found no room.
#[test]
fn a_transaction_that_finds_no_room_gives_back_what_it_took() {
    let medium = Recorded::default();
    medium.give_at_most(Some(24 << 20));
    let db = open(&put_store(medium.clone())).expect("it opens");
    let bytes = || medium.bytes().expect("a length");
    run(&db, "PRAGMA cache_size = 3; CREATE TABLE t (a, b)").expect("room");
    let rows = |count: u32| {
        let counted = format!("SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {count}");
        format!("INSERT INTO t WITH RECURSIVE n(x) AS ({counted}) SELECT x, zeroblob(3000) FROM n")
    };
    run(&db, &rows(300)).expect("room");
    let before = bytes();
    for _ in 0..3 {
        let error = run(&db, &rows(20_000)).expect_err("it is larger than the medium");
        assert_eq!(error.sqlite_error_code(), crate::support::FULL);
        assert!(bytes() <= before + (2 << 20), "{} of {before}", bytes());
        run(&db, &rows(10)).expect("room");
    }
    assert_eq!(crate::support::text(&db, "SELECT count(*) FROM t"), "330");
    crate::support::assert_well(&db);
}

/// A database that filled its medium, and was emptied by small DELETEs, has room for a VACUUM that
/// writes no more pages than the blocks which a full store keeps: 80 here.
#[test]
fn a_database_that_filled_its_medium_is_vacuumed_once_most_is_deleted() {
    for auto_vacuum in [0, 2] {
        let medium = Recorded::default();
        medium.give_at_most(Some(6 << 20));
        let db = open(&put_store(medium.clone())).expect("it opens");
        run(&db, &format!("PRAGMA auto_vacuum = {auto_vacuum}")).expect("a setting");
        run(&db, "CREATE TABLE t (n INTEGER PRIMARY KEY, b)").expect("room");
        let insert = "INSERT INTO t VALUES (NULL, randomblob(20000))";
        let error = loop {
            if let Err(error) = run(&db, insert) {
                break error;
            }
        };
        assert_eq!(error.sqlite_error_code(), crate::support::FULL);
        let rows: u64 = db
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .expect("it can be read");
        assert!(rows > 100, "{rows}");
        for below in (1..rows - 8).step_by(3) {
            run(&db, &format!("DELETE FROM t WHERE n < {below}")).expect("a DELETE has room");
        }
        run(&db, "VACUUM").expect("there is room");
        let pages: u64 = db
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .expect("it can be read");
        assert!(pages < 80, "{pages}");
        crate::support::assert_well(&db);
        run(&db, insert).expect("there is room again");
    }
}
