//! Encrypted stores on the command line: where a key may come from, the message for a wrong key,
//! and programs built without encryption.

use crate::run::{Place, bad, good};

#[test]
#[cfg(not(feature = "encryption"))]
fn a_program_without_encryption_says_so() {
    let place = Place::new("encrypted-without");
    let key = place.file("key", &"01".repeat(32));
    let (new, plain) = (place.path("a.flag"), place.path("plain.flag"));
    good(&["store", "create", &plain]);
    for args in [
        &["store", "create", &new, "--encrypt", "--key-file", &key][..],
        &["store", "info", &plain, "--key-file", &key],
        &["store", "rekey", &plain, "--key-file", &key],
        &["store", "bench", &new, "--encrypt"],
        &["store", "break", "--cuts", "10", "--encrypt"],
        &["store", "scan", &plain, "t", "--key-file", &key],
    ] {
        let error = bad(args);
        assert!(error.contains("--features encryption"), "{args:?}: {error}");
    }
    assert_eq!(place.names(), ["key", "plain.flag"], "nothing was made");
}

#[cfg(feature = "encryption")]
mod with {
    use super::*;
    use crate::run::{command, found, output, says, words};
    use std::fs;

    /// Two key files, and a store with a table that the first one opens.
    fn made(name: &str) -> (Place, String, [String; 2]) {
        let place = Place::new(name);
        let keys = ["01", "02"].map(|digits| place.file(digits, &digits.repeat(32)));
        let store = place.path("a.flag");
        let key = &keys[0];
        good(&words(&format!(
            "store create {store} --encrypt --key-file {key}"
        )));
        let value = "a secret that stays one".repeat(9);
        good(&[
            "store",
            "put",
            &store,
            "t",
            "k",
            &value,
            "--key-file",
            &keys[0],
        ]);
        (place, store, keys)
    }

    #[test]
    fn every_command_takes_the_key_and_none_goes_without() {
        let (place, store, [one, two]) = made("encrypted-all");
        let bytes = fs::read(&store).unwrap();
        assert!(!bytes.windows(8).any(|window| window == b"a secret"));
        let (copy, salvaged) = (place.path("copy.flag"), place.path("salvaged.flag"));
        let (backup, repair) = (format!("backup {copy}"), format!("repair {salvaged}"));
        let commands = [
            "info",
            "check",
            "wear",
            "dump",
            "tables",
            "tables --check",
            "get t k",
            "scan t",
            "put t k2 v",
            &backup,
            &repair,
            "compact",
            "compact --dry-run",
        ];
        let with = |command: &str, key: &str| {
            let (verb, more) = command.split_once(' ').unwrap_or((command, ""));
            format!("store {verb} {store} {more} {key}")
        };
        for command in commands {
            for (key, expected) in [
                ("", "--key-file, --key-env or --passphrase"),
                (
                    &*format!("--key-file {two}"),
                    "this is not the key of the store",
                ),
                ("--passphrase", "standard input is not a terminal"),
            ] {
                let line = with(command, key);
                let error = bad(&words(&line));
                assert!(error.contains(expected), "{line}: {error}");
            }
        }
        assert_eq!(fs::read(&store).unwrap(), bytes, "nothing was changed");
        for command in commands {
            good(&words(&with(command, &format!("--key-file {one}"))));
        }
        for store in [&store, &copy, &salvaged] {
            let (value, _) = good(&["store", "get", store, "t", "k", "--key-file", &one]);
            assert!(value.starts_with("a secret"), "{value}");
            let error = bad(&["store", "get", store, "t", "k"]);
            says(&error, "its key is needed");
        }
    }

    #[test]
    fn a_key_is_changed_and_no_page_is_written() {
        let (_place, store, [one, two]) = made("encrypted-rekey");
        let before = fs::read(&store).unwrap();
        let rekey = ["store", "rekey", &store];
        let with = |more: &[&'static str]| [&rekey[..], more].concat();
        let error = bad(&with(&[]));
        says(&error, "the current key is missing");
        let change = |old, new| {
            let keys = ["--key-file", old, "--new-key-file", new];
            [&rekey[..], &keys].concat()
        };
        says(&bad(&change(&two, &one)), "this is not the key");
        assert_eq!(fs::read(&store).unwrap(), before, "nothing was changed");
        good(&change(&one, &two));
        assert_eq!(fs::read(&store).unwrap()[8192..], before[8192..]);
        good(&["store", "check", &store, "--key-file", &two]);
        let error = bad(&["store", "check", &store, "--key-file", &one]);
        says(&error, "this is not the key");
    }

    #[test]
    fn keys_are_in_files_and_variables_only() {
        let (place, store, [one, _]) = made("encrypted-keys");
        let raw = place.path("raw");
        fs::write(&raw, [1; 32]).unwrap();
        good(&["store", "info", &store, "--key-file", &raw]);
        let mut from_variable = command(&["store", "info", &store, "--key-env", "STORE_KEY"]);
        from_variable.env("STORE_KEY", "01".repeat(32));
        assert_eq!(output(from_variable, "").status.code(), Some(0));
        let short = place.file("short", "0102");
        let none = place.path("none");
        for (key, expected) in [
            (&["--key-file", &short][..], "64 hexadecimal digits"),
            (&["--key-file", &none], "No such file"),
            (
                &["--key-env", "NO_SUCH_VARIABLE"],
                "the variable NO_SUCH_VARIABLE",
            ),
            (
                &["--key-env", "K", "--key-file", &one],
                "cannot be used with",
            ),
        ] {
            let error = bad(&[&["store", "info", &store], key].concat());
            assert!(error.contains(expected), "{key:?}: {error}");
        }
        let plain = place.path("plain.flag");
        let error = bad(&["store", "create", &plain, "--key-file", &one]);
        says(&error, "add --encrypt");
        let error = bad(&["store", "create", &plain, "--encrypt"]);
        says(&error, "standard input is not a terminal");
        let put = ["store", "put", &plain, "t", "k", "v", "--key-file", &one];
        let error = bad(&put);
        says(&error, "store create --encrypt");
        good(&["store", "create", &plain]);
        let error = bad(&["store", "info", &plain, "--key-file", &one]);
        says(&error, "leave the key out");
    }

    #[test]
    fn power_cuts_lose_nothing_and_a_lie_is_found() {
        let encrypted = ["store", "break", "--cuts", "200", "--encrypt"];
        good(&encrypted);
        let lie = [&encrypted[..], &["--lie", "syncs"]].concat();
        let (out, _) = found(&lie);
        let id = out
            .split_whitespace()
            .find(|word| word.contains(".encrypted"));
        let id = id.expect("a run id").trim_end_matches(':');
        found(&["store", "break", "--run", id]);
    }
}
