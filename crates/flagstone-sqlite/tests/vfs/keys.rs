//! Databases in stores that are encrypted: URIs say where the key is.

#[cfg(feature = "encryption")]
use crate::support::{Sql, assert_well};
use crate::support::{Stores, text};
use rusqlite::Connection;

/// What SQLite says, and what `PRAGMA flagstone_error` says.
fn refusal(uri: &str) -> (String, String) {
    let db = Connection::open(uri).expect("SQLite opens at the first lock");
    let tried = db.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()));
    let said = tried.expect_err("it is refused").to_string();
    (said, text(&db, "PRAGMA flagstone_error"))
}

fn key(stores: &Stores, name: &str, digits: &str) -> String {
    std::fs::write(stores.path(name), digits.repeat(32)).expect("a file");
    format!("&key_file={}", stores.path(name).display())
}

#[test]
#[cfg(not(feature = "encryption"))]
fn a_key_is_refused_by_a_library_without_encryption() {
    let stores = Stores::new();
    let one = key(&stores, "one", "01");
    let (said, why) = refusal(&stores.uri("a.flag", &one));
    assert!(said.contains("not a database"), "{said}");
    assert!(why.contains("built without encryption"), "{why}");
    assert_eq!(stores.names(), ["one"], "nothing was made");
}

#[test]
#[cfg(feature = "encryption")]
fn a_database_opens_by_the_key_that_its_uri_names() {
    let stores = Stores::new();
    let (one, two) = (key(&stores, "one", "01"), key(&stores, "two", "02"));
    let db = Connection::open(stores.uri("a.flag", &one)).expect("a database");
    db.run(
        "CREATE TABLE t (x); WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n \
         WHERE i < 3000) INSERT INTO t SELECT 'a secret of row ' || i FROM n",
    );
    // Connections share an open store. One that names no key, or another, has no part in it.
    for parameters in ["", &two] {
        let (said, why) = refusal(&stores.uri("a.flag", parameters));
        assert!(said.contains("not a database"), "{said}");
        assert!(why.contains("give the key in the same way"), "{why}");
    }
    let beside = Connection::open(stores.uri("a.flag", &one)).expect("a database");
    assert_eq!(text(&beside, "SELECT count(*) FROM t"), "3000");
    // A copy has the key that its own URI names, and a plain one none.
    let copy = stores.uri("copy.flag", &two);
    db.execute("VACUUM INTO ?1", [copy]).expect("a copy");
    let plain = format!("file:{}?vfs=flagstone", stores.path("plain.flag").display());
    db.execute("VACUUM INTO ?1", [plain]).expect("a copy");
    drop((db, beside));
    let holds_secret = |name: &str| {
        let bytes = std::fs::read(stores.path(name)).expect("the store");
        bytes.windows(8).any(|window| window == b"a secret")
    };
    assert!(!holds_secret("a.flag") && !holds_secret("copy.flag"));
    // The control: without a key it can be read in the file.
    assert!(holds_secret("plain.flag"));
    for (name, parameters, expected) in [
        ("a.flag", "", "its key is needed"),
        ("a.flag", &two[..], "not the key of the store"),
        ("copy.flag", &one, "not the key of the store"),
        ("plain.flag", &one, "leave the key out"),
        (
            "a.flag",
            "&key_env=NO_SUCH_VARIABLE",
            "the variable NO_SUCH_VARIABLE",
        ),
    ] {
        let (said, why) = refusal(&stores.uri(name, parameters));
        assert!(said.contains("not a database"), "{said}");
        assert!(why.contains(expected), "{name}{parameters}: {why}");
    }
    let both = Connection::open(stores.uri("a.flag", &format!("{one}&key_env=K")));
    both.expect_err("two keys");
    for (name, parameters) in [("a.flag", &one), ("copy.flag", &two)] {
        let db = Connection::open(stores.uri(name, parameters)).expect("a database");
        assert_well(&db);
        assert_eq!(text(&db, "SELECT count(*) FROM t"), "3000");
    }
}
