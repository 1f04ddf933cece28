//! Commands on stores: what they print, what they refuse, and their messages about damaged stores.

use crate::run::{Place, bad, flagstone, found, good, json, says, words};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

/// A store with commits of a process that was killed or has closed it.
fn used(place: &Place, name: &str, closed: bool) -> String {
    use flagstone::units::Lpn;
    use flagstone_store::{OpenOptions, PageStore};
    let path = place.path(name);
    let mut options = OpenOptions::default();
    options.pages_per_block = 16;
    let mut store = PageStore::open(path.as_ref(), &options).unwrap();
    for number in 0..300u32 {
        let tx = store.begin().unwrap();
        store
            .write(tx, Lpn(number * 7 % 90), &[number as u8; 3000])
            .unwrap();
        store.commit(tx).unwrap();
    }
    if closed {
        store.close().unwrap();
    } else {
        // Restore the file as a killed process leaves it.
        let copy = fs::read(&path).unwrap();
        drop(store);
        fs::write(&path, copy).unwrap();
    }
    path
}

fn flip(path: &str, offset: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

/// The offset of a page's data in the file.
fn offset_of(path: &str, page: u32) -> u64 {
    let (out, _) = good(&["store", "dump", path, "--json"]);
    let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let facts = lines
        .into_iter()
        .find(|facts: &Value| facts["page"] == page)
        .unwrap();
    let number = |name: &str| facts[name].as_u64().unwrap();
    4096 * (2 + number("block") * 17 + 1 + number("page_in_block"))
}

#[test]
fn a_store_is_made_once_as_it_was_asked_for() {
    let place = Place::new("store-create");
    let path = place.path("a.flag");
    let made = json(&words(&format!(
        "store create {path} --size 20M --pages-per-block 32 --json"
    )));
    assert_eq!(made["protocol"], "seal");
    assert_eq!(made["pages_per_block"], 32);
    assert_eq!(made["closed"], true);
    assert!(
        (19 << 20..=20 << 20).contains(&made["bytes"].as_u64().unwrap()),
        "{made}"
    );
    assert_eq!(
        json(&["store", "info", &path, "--json"])["bytes"],
        made["bytes"]
    );
    let before = fs::read(&path).unwrap();
    assert!(bad(&["store", "create", &path]).contains("a file exists already"));
    assert_eq!(fs::read(&path).unwrap(), before);
    let other = place.path("b.flag");
    for (args, why) in [
        (&["--protocol", "seel"][..], "seal"),
        (&["--protocol", "cfc"], "reprogram"),
        (&["--size", "8Q"], "64M"),
        (&["--size", "999999T"], "64M"),
        (&["--pages-per-block", "7"], "use 16 to 128"),
    ] {
        let all = [&["store", "create", &other], args].concat();
        let error = bad(&all);
        says(&error, why);
        assert_eq!(place.names(), ["a.flag"]);
    }
}

#[test]
fn a_file_that_is_something_else_is_given_up_by_force_only() {
    let place = Place::new("store-force");
    let path = place.path("image");
    let image = [vec![0; 0x8001], b"CD001".to_vec(), vec![0; 90_000]].concat();
    fs::write(&path, &image).unwrap();
    assert!(bad(&["store", "create", &path]).contains("a file exists already"));
    for args in [
        &["store", "put", &path, "table", "key", "value"][..],
        &["store", "info", &path],
        &["store", "check", &path],
    ] {
        says(&bad(args), "not a Flagstone store");
        assert_eq!(fs::read(&path).unwrap(), image);
    }
    good(&["store", "create", &path, "--force"]);
    good(&["store", "check", &path]);
    let again = bad(&["store", "create", &path, "--force"]);
    says(&again, "a store exists already");
}

#[test]
fn whether_a_store_needs_recovery_is_said_without_a_write() {
    let place = Place::new("store-closed");
    for closed in [true, false] {
        let path = used(&place, "a.flag", closed);
        let before = fs::read(&path).unwrap();
        let info = json(&["store", "info", &path, "--json"]);
        assert_eq!(info["closed"], closed);
        assert_eq!(info["needs_recovery"], !closed);
        let (text, _) = good(&["store", "info", &path]);
        says(&text, "closed");
        assert_eq!(
            text.contains("the next opening recovers it"),
            !closed,
            "{text}"
        );
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_is_compacted_and_copied_with_all_that_it_holds() {
    let place = Place::new("store-whole");
    let path = used(&place, "a.flag", true);
    let pages = |path: &str| -> Vec<Value> {
        let mut pages = Vec::new();
        for at in 0..90 {
            let page = json(&["store", "dump", path, "--page", &at.to_string(), "--json"]);
            pages.push(page["hex"].clone());
        }
        pages
    };
    let before = pages(&path);
    let plan = json(&["store", "compact", &path, "--dry-run", "--json"]);
    let copied = json(&["store", "compact", &path, "--json"]);
    assert_eq!(copied["pages"], 90);
    assert_eq!(copied["bytes"], plan["bytes"]);
    let to = place.path("b.flag");
    let copied = json(&["store", "backup", &path, &to, "--json"]);
    assert_eq!(copied["pages"], 90);
    assert!(pages(&path) == before && pages(&to) == before);
    assert!(bad(&["store", "backup", &path, &to]).contains("--force"));
    assert!(bad(&["store", "backup", &path, &path, "--force"]).contains("input store itself"));
    good(&["store", "backup", &path, &to, "--force"]);
    let missing = place.path("none.flag");
    for args in [
        &["store", "compact", &missing][..],
        &["store", "backup", &missing, &to, "--force"],
        &["store", "repair", &missing, &to, "--force"],
        &["store", "wear", &missing],
        &["store", "dump", &missing],
    ] {
        assert!(bad(args).contains("No such file"));
    }
    assert!(pages(&to) == before);
    assert_eq!(place.names(), ["a.flag", "b.flag"]);
}

#[test]
fn wear_counts_what_was_written() {
    let place = Place::new("store-wear");
    let path = used(&place, "a.flag", true);
    let wear = json(&["store", "wear", &path, "--json"]);
    assert_eq!(wear["user_bytes"], 900_000);
    assert_eq!(wear["commits"], 300);
    assert_eq!(wear["counts_all"], true);
    let of_a_block = |which: &str| wear["erases_of_a_block"][which].as_u64().unwrap();
    assert!(of_a_block("least") <= of_a_block("median"), "{wear}");
    assert!(
        (1..=wear["erases"].as_u64().unwrap()).contains(&of_a_block("most")),
        "{wear}"
    );
    // Each write of a page writes at least one page of the medium.
    let written = wear["medium_bytes"].as_u64().unwrap();
    assert!((300 * 4096..900_000 * 6).contains(&written), "{wear}");
    let args = format!("store wear {path} --endurance-tb 1e-6 --days 10 --json");
    let args = words(&args);
    // The endurance of the drive is used up: exit code 1, and the output is complete.
    let wear: Value = serde_json::from_str(&found(&args).0).unwrap();
    assert_eq!(wear["end"], "here", "{wear}");
    let share = wear["endurance_used"].as_f64().unwrap();
    assert!((share - written as f64 / 1e6).abs() < 1e-9, "{wear}");
    assert_eq!(wear["days_left"], 0.0);
    assert!(bad(&["store", "wear", &path, "--endurance-tb", "0"]).contains("above 0"));
    assert!(bad(&["store", "wear", &path, "--days", "3"]).contains("--endurance-tb"));
    // A compaction replaces the file but keeps its counters.
    good(&["store", "wear", &path, "--endurance-tb", "1"]);
    good(&["store", "compact", &path]);
    let error = bad(&["store", "wear", &path, "--endurance-tb", "1"]);
    says(&error, "--days");
    let kept = json(&["store", "wear", &path, "--json"]);
    assert_eq!(kept["commits"], 300);
    assert_eq!(kept["user_bytes"], 900_000);
    let killed = used(&place, "b.flag", false);
    let (_, err) = good(&["store", "wear", &killed]);
    says(&err, "1 openings ended without a close");
    let wear = json(&["store", "wear", &killed, "--json"]);
    assert_eq!(wear["unclosed_openings"], 1, "{wear}");
}

#[test]
fn the_bytes_of_a_page_come_out_as_they_went_in() {
    let place = Place::new("store-dump");
    let path = used(&place, "a.flag", true);
    let output = flagstone(&["store", "dump", &path, "--page", "0", "--raw"]);
    // 270 * 7 is the largest multiple of 90 below 300 * 7.
    assert_eq!(output.stdout, [270u32 as u8; 3000]);
    let page = json(&["store", "dump", &path, "--page", "0", "--json"]);
    assert_eq!(page["hex"], "0e".repeat(3000));
    let (text, _) = good(&["store", "dump", &path, "--page", "0"]);
    says(&text, "page 0, 3000 bytes");
    says(&text, "0bb0  0e 0e");
    let (lines, _) = good(&["store", "dump", &path]);
    assert_eq!(lines.lines().count(), 90);
    assert!(bad(&["store", "dump", &path, "--page", "90"]).contains("is not in use"));
    assert!(bad(&["store", "dump", &path, "--raw"]).contains("--page"));
}

#[test]
fn tables_are_checked_copied_and_salvaged_with_their_store() {
    use flagstone::units::Lpn;
    use flagstone_store::{OpenOptions, PageStore, Store};
    let place = Place::new("store-tables");
    let path = place.path("a.flag");
    let store = Store::open(&path).unwrap();
    for round in 0..40u32 {
        let mut tx = store.write().unwrap();
        let mut table = tx.table("users").unwrap();
        for n in 0..50 {
            let key = format!("key {:04}", (round * 50 + n) % 600);
            table.insert(key.as_bytes(), &[round as u8; 300]).unwrap();
        }
        table.insert(b"long", &vec![round as u8; 50_000]).unwrap();
        tx.commit().unwrap();
    }
    store.close().unwrap();
    let rows = |path: &str| good(&["store", "scan", path, "users"]).0;
    let before = rows(&path);
    assert_eq!(before.lines().count(), 601);
    let well = |path: &str| {
        assert_eq!(
            json(&["store", "check", path, "--json"])["tables"]["ok"],
            true
        );
        assert!(
            good(&["store", "check", path])
                .0
                .contains("the tables are intact")
        );
        assert!(rows(path) == before);
    };
    well(&path);
    good(&["store", "compact", &path]);
    well(&path);
    let (copy, salvaged) = (place.path("b.flag"), place.path("c.flag"));
    good(&["store", "backup", &path, &copy]);
    well(&copy);
    good(&["store", "repair", &copy, &salvaged]);
    well(&salvaged);
    // A page of a table is lost, and the store stays intact. The check of tables has to find it.
    let mut pages = PageStore::open(copy.as_ref(), &OpenOptions::existing()).unwrap();
    let last = pages.highest().unwrap();
    assert!(last > Lpn(10));
    let tx = pages.begin().unwrap();
    pages.trim(tx, last).unwrap();
    pages.commit(tx).unwrap();
    pages.close().unwrap();
    let (out, _) = found(&["store", "check", &copy]);
    says(&out, "the store is intact");
    says(&out, "tables are damaged: table `users`");
    let (out, _) = found(&["store", "check", &copy, "--json"]);
    let damage: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(damage["ok"], false);
    assert_eq!(damage["tables"]["ok"], false);
    // A store of pages has no tables.
    let pages = used(&place, "d.flag", true);
    let refused = bad(&["store", "tables", &pages]);
    says(&refused, "holds pages of another kind");
    assert_eq!(
        json(&["store", "check", &pages, "--json"])["tables"],
        Value::Null
    );
}

#[test]
fn a_damaged_store_is_found_and_salvaged_with_a_list_of_what_is_lost() {
    let place = Place::new("store-repair");
    let path = used(&place, "a.flag", true);
    let to = place.path("b.flag");
    let (_, err) = good(&["store", "repair", &path, &to]);
    assert_eq!(err, "");
    assert!(bad(&["store", "repair", &path, &to]).contains("--force"));
    flip(&path, offset_of(&path, 5) + 50);
    let damaged = fs::read(&path).unwrap();
    let (out, _) = found(&["store", "check", &path, "--json"]);
    let damage: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(damage["ok"], false);
    let report = |more: &[&str]| {
        let args = [&["store", "repair", &path, &to, "--force", "--json"], more].concat();
        let (out, err) = found(&args);
        serde_json::from_str::<Value>(&out).expect(&err)
    };
    let lost = report(&[]);
    assert_eq!(lost["pages"], 89);
    assert_eq!(lost["whole"], false);
    assert_eq!(lost["lost"], Value::from(vec![5]));
    assert_eq!(damage["unreadable"], Value::from(vec![5]));
    assert!(
        fs::read(&path).unwrap() == damaged,
        "repair changes what it reads"
    );
    good(&["store", "check", &to]);
    // A damaged store is not copied.
    for args in [
        &["store", "compact", &path][..],
        &["store", "backup", &path, &to, "--force"],
    ] {
        assert!(bad(args).contains("page 5 cannot be read"));
    }
    assert!(fs::read(&path).unwrap() == damaged);
    // Damage both superblocks.
    for copy in [3, 4099] {
        flip(&path, copy);
    }
    assert!(bad(&["store", "info", &path]).contains("not a Flagstone store"));
    let unknown = bad(&["store", "repair", &path, &to, "--force"]);
    says(&unknown, "--protocol seal");
    let again = report(&["--protocol", "seal"]);
    assert_eq!(again["lost"], Value::from(vec![5]));
    // The second half of the file is missing.
    let path = used(&place, "c.flag", true);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let (out, _) = found(&["store", "check", &path]);
    says(&out, "end of the store is missing");
    let (_, err) = found(&["store", "repair", &path, &to, "--force"]);
    says(&err, "lost: the end of the store is missing");
    assert!(place.names() == ["a.flag", "b.flag", "c.flag"]);
}

#[test]
fn free_blocks_are_given_back_and_nothing_is_lost() {
    let place = Place::new("discard");
    let path = used(&place, "a.flag", true);
    let before = json(&["store", "check", &path, "--json"]);
    let given = json(&["store", "discard", &path, "--json"]);
    assert!(given["bytes_given_back"].is_u64(), "{given}");
    let after = json(&["store", "check", &path, "--json"]);
    assert_eq!(after["ok"], true);
    assert_eq!(after["pages"], before["pages"]);
    bad(&["store", "discard", &place.path("none.flag")]);
}

/// The store holds the first page of a database, in SQLite's file format.
#[test]
fn info_says_what_a_store_holds_and_whether_the_ends_of_its_pages_are_apart() {
    use flagstone::units::Lpn;
    use flagstone_store::{OpenOptions, PageStore};
    let place = Place::new("holds");
    for (reserved, apart) in [(64, false), (0, true)] {
        let path = place.path(&format!("{reserved}.flag"));
        let mut first = b"SQLite format 3\0\x10\x00\x01\x01".to_vec();
        first.push(reserved);
        first.resize(PageStore::PAGE_BYTES, 0);
        let mut store = PageStore::open(path.as_ref(), &OpenOptions::default()).unwrap();
        let tx = store.begin().unwrap();
        store.write(tx, Lpn(1), &first).unwrap();
        store.commit(tx).unwrap();
        store.close().unwrap();
        let info = json(&["store", "info", &path, "--json"]);
        assert_eq!(info["holds"], "database");
        assert_eq!(info["apart"], apart);
        let (said, _) = good(&["store", "info", &path]);
        assert_eq!(said.contains("VACUUM"), apart, "{said}");
        let (_, noted) = good(&["store", "compact", &path]);
        assert_eq!(noted.contains("VACUUM"), apart, "{noted}");
    }
    let path = used(&place, "pages.flag", true);
    let info = json(&["store", "info", &path, "--json"]);
    assert_eq!(info["holds"], "pages");
    assert_eq!(info["apart"], Value::Null);
}

/// Silent losses end with exit code 1, and a repeated run gives the same result.
#[test]
fn rot_is_found_without_checksums_and_its_run_is_told_again() {
    let rot = [
        "store",
        "break",
        "--rot",
        "--lie",
        "checksums",
        "--cuts",
        "5000",
    ];
    let (out, _) = found(&rot);
    says(&out, "undecidable");
    // An example of each kind of silent loss, also if no store was lost whole.
    says(&out, "as in rot.seal.checksums/");
    let lines = out.lines();
    let mut stories = lines.skip_while(|line| !line.starts_with("rot.seal.checksums/"));
    let (id, story) = stories
        .next()
        .and_then(|line| line.split_once(": "))
        .expect("a story");
    let (again, _) = found(&["store", "break", "--run", id]);
    says(&again, story);
    says(&again, "damaged: ");
    let error = bad(&["store", "break", "--rot", "--lie", "syncs"]);
    says(&error, "does not work with --rot");
    let error = bad(&["store", "break", "--lie", "horizon"]);
    says(&error, "add --rot");
    let json = [&rot[..], &["--json", "--tables"]].concat();
    let (out, _) = found(&json);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(found["outcomes"]["silent"].as_u64() > Some(0), "{out}");
}

#[test]
fn each_tool_has_a_manual_page_with_the_texts_of_its_help() {
    let place = Place::new("man");
    let folder = place.path("man1");
    good(&["man", &folder]);
    for tool in [
        "create", "info", "check", "wear", "dump", "compact", "discard", "backup", "repair",
        "break", "kill", "soak",
    ] {
        let page = fs::read_to_string(format!("{folder}/flagstone-store-{tool}.1")).unwrap();
        let (help, _) = good(&["store", tool, "--help"]);
        assert!(page.starts_with(".TH FLAGSTONE\\-STORE"), "{page}");
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "ARGUMENTS",
            "OPTIONS",
            "EXIT STATUS",
        ] {
            let is_there = page.contains(&format!(".SH {section}\n"));
            assert!(
                is_there || tool == "break" && section == "ARGUMENTS",
                "{tool}: {section}"
            );
        }
        // The manual page has every option of the help.
        for word in help
            .split_whitespace()
            .filter(|word| word.starts_with("--"))
        {
            let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            assert!(page.contains(&name.replace('-', "\\-")), "{tool}: {name}");
        }
        assert!(
            !page.contains('\u{1b}') && !page.contains("worker\\fR"),
            "{page}"
        );
    }
    let main = fs::read_to_string(format!("{folder}/flagstone.1")).unwrap();
    says(&main, "flagstone\\-store\\fR(1)");
}

#[test]
fn bench_measures_a_store_beside_the_floor_and_leaves_nothing() {
    let place = Place::new("store-bench");
    let folder = place.path("here");
    let args = format!("store bench {folder} --commits 100 --megabytes 8");
    let args = words(&args);
    let (out, _) = good(&[&args[..], &["--pages", "1,8", "--json"]].concat());
    let rows: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let of = |row: usize, field: &str| rows[row][field].as_f64().expect("a number");
    assert_eq!(of(0, "pages_a_commit"), 1.0);
    assert_eq!(of(1, "pages_a_commit"), 8.0);
    // Figures that do not depend on the machine: syncs and pages of each commit. A store that grows
    // writes zeros to each block before its first use.
    for (row, pages) in [(0, 1.0), (1, 8.0)] {
        assert!((1.0..1.5).contains(&of(row, "syncs_a_commit")), "{out}");
        let pages_written = of(row, "bytes_a_commit") / 4096.0;
        assert!((pages..8.0 * pages).contains(&pages_written), "{out}");
        assert!(rows[row]["store"]["per_s"].as_f64() > Some(0.0), "{out}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0);
    let (table, _) = good(&[&args[..], &["--pages", "2"]].concat());
    assert!(
        table.contains("floor = 1") && table.lines().count() == 2,
        "{table}"
    );
    std::fs::write(format!("{folder}/bench.flag"), "mine").expect("room");
    let error = bad(&args);
    says(&error, "exists already");
    assert_eq!(
        std::fs::read(format!("{folder}/bench.flag")).expect("a file"),
        b"mine"
    );
}

#[test]
fn a_store_in_use_is_refused_with_what_to_do_instead() {
    use flagstone_store::{OpenOptions, PageStore};
    let place = Place::new("store-in-use");
    let path = used(&place, "a.flag", true);
    let copy = place.path("copy.flag");
    let holder = PageStore::open(path.as_ref(), &OpenOptions::existing()).unwrap();
    for args in [
        &["store", "backup", &path, &copy][..],
        &["store", "check", &path],
    ] {
        let error = bad(args);
        let process = format!("in use by process {}", std::process::id());
        says(&error, &process);
        says(&error, "PRAGMA flagstone_backup");
    }
    holder.close().unwrap();
    good(&["store", "check", &path]);
}

#[test]
fn a_check_says_that_it_has_not_looked_at_a_database() {
    use flagstone::units::Lpn;
    use flagstone_store::{OpenOptions, PageStore};
    let place = Place::new("unchecked");
    let path = place.path("db.flag");
    let mut store = PageStore::open(path.as_ref(), &OpenOptions::default()).unwrap();
    let tx = store.begin().unwrap();
    // The first page of a database, as the VFS stores it.
    let mut page = vec![0; PageStore::PAGE_BYTES];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[16..18].copy_from_slice(&4096u16.to_be_bytes());
    store.write(tx, Lpn(0), &page).unwrap();
    store.commit(tx).unwrap();
    drop(store);
    let (out, _) = good(&["store", "check", &path]);
    says(&out, "the store is intact");
    says(&out, "not the database in it: use `--sqlite`");
    let out = json(&["store", "check", &path, "--json"]);
    assert_eq!(
        (&out["holds"], &out["database"]),
        (&Value::from("database"), &Value::Null)
    );
    // For pages the check says nothing about databases.
    let pages = used(&place, "pages.flag", true);
    let (out, _) = good(&["store", "check", &pages]);
    assert!(!out.contains("--sqlite"), "{out}");
    // The program with SQLite may be missing.
    let alone = place.path("flagstone");
    fs::copy(env!("CARGO_BIN_EXE_flagstone"), &alone).unwrap();
    let mut command = std::process::Command::new(&alone);
    command
        .args(["store", "check", &path, "--sqlite"])
        .env("PATH", "");
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    says(
        &String::from_utf8_lossy(&out.stderr),
        "-p flagstone-sqlite-tools",
    );
}

#[test]
fn a_row_that_is_refused_makes_no_store() {
    let place = Place::new("refused-row");
    let path = place.path("new.flag");
    let long = "k".repeat(5_000);
    for row in [["t", &long, "value"], ["", "key", "value"]] {
        bad(&[&["store", "put", &path], &row[..]].concat());
        assert!(!fs::exists(&path).unwrap(), "{row:?}");
    }
    good(&["store", "put", &path, "t", "key", "value"]);
}
