//! Golden databases in stores: with the ends of their pages in the pages, and apart. A program
//! opens them and finds what they held. data/golden/README.md says how they are made.

use crate::support::{Sql, Stores, assert_well, plain, text};
use std::fs;
use std::path::{Path, PathBuf};

/// What is asked of a golden database, and the answers.
const ANSWERS: [(&str, &str); 6] = [
    ("SELECT count(*) FROM people", "400"),
    ("SELECT sum(born) FROM people", "811470"),
    (
        "SELECT name FROM people INDEXED BY by_birth WHERE born = 2017 ORDER BY name LIMIT 1",
        "person 0026",
    ),
    ("SELECT length(data) FROM files", "20000"),
    (
        "SELECT hex(substr(data, 19999)) FROM files WHERE name = 'zeros'",
        "0000",
    ),
    (
        "SELECT count(*) FROM sqlite_master WHERE name = 'later'",
        "0",
    ),
];

fn path(form: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/golden");
    golden.join(format!("sqlite-v1/{form}.zst"))
}

const ROWS: &str = "CREATE TABLE people (name TEXT, born INTEGER); \
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
     INSERT INTO people SELECT printf('person %04d', i), 1991 + i % 78 FROM n; \
     CREATE INDEX by_birth ON people (born); \
     CREATE TABLE files (name TEXT PRIMARY KEY, data BLOB); \
     INSERT INTO files VALUES ('zeros', zeroblob(20000));";

/// A store as a process leaves it that is killed within a transaction, parts of which it has
/// written.
fn make(form: &str) -> Vec<u8> {
    let stores = Stores::new();
    if form == "apart" {
        let app = plain(&stores.path("app.db"));
        app.run(ROWS);
        let into = format!("VACUUM INTO '{}'", stores.uri("app.flag", ""));
        app.run(&into);
    }
    let db = stores.open("app.flag");
    if form == "store" {
        db.run(ROWS);
    }
    let spill = "PRAGMA cache_size = 10; BEGIN; CREATE TABLE later (x); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 90) \
         INSERT INTO later SELECT zeroblob(2000) FROM n;";
    db.run(spill);
    fs::read(stores.path("app.flag")).expect("a file")
}

#[test]
fn golden_databases_are_opened_with_what_they_held() {
    for form in ["store", "apart"] {
        if std::env::var_os("FLAGSTONE_BLESS").is_some() && !path(form).exists() {
            let packed = zstd::stream::encode_all(&make(form)[..], 19).expect("a vector takes it");
            fs::create_dir_all(path(form).parent().expect("a folder")).expect("it can be made");
            fs::write(path(form), packed).expect("it can be written");
        }
        let packed = fs::read(path(form)).expect("a golden database");
        let stores = Stores::new();
        let bytes = zstd::stream::decode_all(&packed[..]).expect("it is whole");
        fs::write(stores.path("app.flag"), bytes).expect("a file");
        let db = stores.open("app.flag");
        for (asked, answer) in ANSWERS {
            assert_eq!(text(&db, asked), answer, "{form}: {asked}");
        }
        assert_well(&db);
        db.run("INSERT INTO people VALUES ('another', 1)");
        assert_eq!(text(&db, "SELECT count(*) FROM people"), "401");
    }
}
