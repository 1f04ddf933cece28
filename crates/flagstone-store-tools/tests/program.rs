//! Tests that run `flagstone-store` as users do. The tests of `flagstone store` in `flagstone-cli`
//! cover each command in detail.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs the program in `folder`. Returns its exit code, standard output and standard error.
fn run(folder: &Path, line: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_flagstone-store"))
        .args(line.split(' '))
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = output.status.code().expect("no signal");
    (code, text(output.stdout), text(output.stderr))
}

/// Runs a command that must succeed. Returns its standard output.
#[track_caller]
fn good(folder: &Path, line: &str) -> String {
    let (code, out, err) = run(folder, line);
    assert_eq!(code, 0, "{line}: {err}");
    out
}

/// A folder with the store `a.flag`, whose table `users` has many rows.
fn made() -> TempDir {
    let place = TempDir::new().expect("a folder");
    good(place.path(), "create a.flag --pages-per-block 16");
    for n in 0..20 {
        good(place.path(), &format!("put a.flag users key{n} value{n}"));
    }
    place
}

#[test]
fn a_store_is_made_used_checked_and_copied() {
    let place = made();
    let folder = place.path();
    assert_eq!(good(folder, "get a.flag users key7"), "value7");
    assert_eq!(good(folder, "scan a.flag users").lines().count(), 20);
    good(folder, "compact a.flag");
    good(folder, "discard a.flag");
    good(folder, "backup a.flag b.flag");
    good(folder, "repair b.flag c.flag");
    for store in ["a.flag", "b.flag", "c.flag"] {
        let out = good(folder, &format!("check {store} --json"));
        let checked: Value = serde_json::from_str(&out).expect("an object");
        assert_eq!(checked["ok"], true, "{out}");
        assert_eq!(checked["tables"]["ok"], true, "{out}");
    }
    let out = good(folder, "info a.flag --json");
    let info: Value = serde_json::from_str(&out).expect("an object");
    assert_eq!(
        (&info["holds"], &info["closed"]),
        (&"tables".into(), &true.into())
    );
}

#[test]
fn verdicts_end_with_1_and_failures_with_2() {
    let place = made();
    let folder = place.path();
    let (code, _, err) = run(folder, "get a.flag users nobody");
    assert_eq!(code, 1, "{err}");
    let (code, _, err) = run(folder, "info none.flag");
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("error: "), "{err}");
    let (code, _, err) = run(folder, "soak folder");
    assert_eq!(code, 2, "{err}");
}

/// Fails if a create that failed removes the link to a place that is not there.
#[test]
fn a_failed_create_removes_no_link() {
    let place = TempDir::new().expect("a folder");
    let link = place.path().join("a.flag");
    std::os::unix::fs::symlink("absent/a.flag", &link).expect("a link");
    let (code, _, err) = run(place.path(), "create a.flag");
    assert_eq!(code, 2, "{err}");
    assert!(link.is_symlink());
    fs::create_dir(place.path().join("absent")).expect("a folder");
    good(place.path(), "create a.flag");
    good(place.path(), "info a.flag");
}

/// `flagstone store` runs the same commands, so messages must not name that program here.
#[test]
fn messages_name_this_program() {
    let place = made();
    let folder = place.path();
    let facts = good(folder, "dump a.flag --json");
    let facts: Value = serde_json::from_str(facts.lines().last().expect("a page")).expect("JSON");
    let number = |name: &str| facts[name].as_u64().expect("a number") as usize;
    // A block is its mark and 16 pages. Two superblocks precede the first block.
    let at = 4096 * (2 + number("block") * 17 + 1 + number("page_in_block"));
    let store = folder.join("a.flag");
    let mut bytes = fs::read(&store).expect("the store");
    bytes[at + 50] ^= 4;
    fs::write(&store, bytes).expect("room");
    let (code, out, _) = run(folder, "check a.flag");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("`flagstone-store repair` salvages"), "{out}");

    fs::write(folder.join("key"), [1; 32]).expect("room");
    let (code, _, err) = run(folder, "put new.flag t k v --key-file key");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("`flagstone-store create --encrypt`"), "{err}");
    if !cfg!(feature = "encryption") {
        let (code, _, err) = run(folder, "create new.flag --encrypt --key-file key");
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains("-p flagstone-store-tools --features encryption"),
            "{err}"
        );
    }
}

#[cfg(feature = "encryption")]
#[test]
fn an_encrypted_store_needs_its_key() {
    let place = TempDir::new().expect("a folder");
    let folder = place.path();
    fs::write(folder.join("key"), [1; 32]).expect("room");
    fs::write(folder.join("new"), [2; 32]).expect("room");
    good(folder, "create a.flag --encrypt --key-file key");
    good(folder, "put a.flag t k v --key-file key");
    good(folder, "rekey a.flag --key-file key --new-key-file new");
    assert_eq!(good(folder, "get a.flag t k --key-file new"), "v");
    let (code, _, err) = run(folder, "get a.flag t k");
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("--key-file, --key-env or --passphrase"),
        "{err}"
    );
}

/// Fails if `create --force` opens the store that is there and reports a new one. It must not need
/// the key of that store: without a key argument it would ask for a new passphrase.
#[cfg(feature = "encryption")]
#[test]
fn force_makes_no_store_in_the_place_of_an_encrypted_one() {
    let place = TempDir::new().expect("a folder");
    let folder = place.path();
    fs::write(folder.join("key"), [1; 32]).expect("room");
    fs::write(folder.join("new"), [2; 32]).expect("room");
    good(folder, "create a.flag --encrypt --key-file key");
    good(folder, "put a.flag t k v --key-file key");
    for key in [
        "",
        " --encrypt",
        " --encrypt --key-file key",
        " --encrypt --key-file new",
    ] {
        let line = format!("create a.flag --force{key}");
        let (code, _, err) = run(folder, &line);
        assert_eq!(code, 2, "{line}: {err}");
        assert!(err.contains("a store exists already"), "{line}: {err}");
    }
    assert_eq!(good(folder, "get a.flag t k --key-file key"), "v");
    fs::write(folder.join("other"), [7; 9_000]).expect("room");
    good(folder, "create other --force --encrypt --key-file key");
    good(folder, "info other --key-file key");
}

/// Fails if a message shows the bytes of a variable that holds a key.
#[test]
#[cfg(feature = "encryption")]
fn a_key_in_a_variable_is_never_shown() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = TempDir::new().expect("a folder");
    let info = |key: &[u8]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flagstone-store"))
            .args(["create", "a.flag", "--encrypt", "--key-env", "STORE_KEY"])
            .current_dir(place.path())
            .env("STORE_KEY", OsStr::from_bytes(key))
            .output();
        let output = output.expect("the program runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    // Bytes that are no text.
    let (code, err) = info(&[b"secret"[..].to_vec(), vec![0xff; 5]].concat());
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("STORE_KEY") && !err.contains("secret"),
        "{err}"
    );
    assert_eq!(info(&[0xff; 32]).0, Some(0), "a key of 32 bytes");
}
