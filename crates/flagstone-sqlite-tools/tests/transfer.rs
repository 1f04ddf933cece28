//! Imports and exports appear whole or not at all, with the owner and mode of their source.

use rusqlite::Connection;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn program(arguments: &[&Path], what: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone-sqlite"));
    command.arg(what).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn database(path: &Path, rows: u32) {
    let db = Connection::open(path).expect("a database");
    db.execute_batch(&format!(
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b);
         INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n
         WHERE x < {rows}) SELECT x, randomblob(400) FROM n"
    ))
    .expect("rows");
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o777
}

#[test]
fn a_copy_keeps_the_mode_of_its_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    database(&at("app.db"), 10);
    for wanted in [0o600, 0o640, 0o644] {
        let set = std::fs::set_permissions(at("app.db"), PermissionsExt::from_mode(wanted));
        set.expect("it is ours");
        let imported = program(&[&at("app.db"), &at("app.flag")], "import").status();
        assert!(imported.expect("it runs").success());
        assert_eq!(mode(&at("app.flag")), wanted);
        let exported = program(&[&at("app.flag"), &at("back.db")], "export").status();
        assert!(exported.expect("it runs").success());
        assert_eq!(mode(&at("back.db")), wanted);
        std::fs::remove_file(at("app.flag")).expect("it is there");
        std::fs::remove_file(at("back.db")).expect("it is there");
    }
}

#[test]
fn a_killed_import_or_export_leaves_nothing_under_the_final_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    database(&at("app.db"), 20_000);
    let whole = program(&[&at("app.db"), &at("whole.flag")], "import").status();
    assert!(whole.expect("it runs").success());
    let copies = [
        ("import", "app.db", "new.flag"),
        ("export", "whole.flag", "new.db"),
    ];
    let mut killed = 0;
    for (what, from, to) in copies {
        for delay in (0..12).map(|step| 5 + step * 15) {
            let mut child = program(&[&at(from), &at(to)], what)
                .spawn()
                .expect("it runs");
            std::thread::sleep(Duration::from_millis(delay));
            child.kill().expect("it is ours");
            let is_done = child.wait().expect("it ends").success();
            killed += u32::from(!is_done);
            if at(to).exists() {
                // The copy has its final name, so it must be complete.
                assert!(
                    at(to).metadata().expect("a file").len() > 8_000_000,
                    "{what}, {delay} ms"
                );
                std::fs::remove_file(at(to)).expect("it is there");
            }
        }
        let again = program(&[&at(from), &at(to)], what).status();
        assert!(
            again.expect("it runs").success(),
            "{what} goes on after kills"
        );
    }
    assert!(
        killed > 4,
        "the control: {killed} were killed before their end"
    );
}
