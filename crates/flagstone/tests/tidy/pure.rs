//! Crates that touch nothing outside, and what each crate may depend on.

use super::{code, files, none, place, root, text};
use std::path::{Path, PathBuf};

/// Crates that touch nothing outside, from the bottom up, with the crates that each may use: below
/// it and from outside. Features may add others.
const PURE: [(&str, &[&str]); 4] = [
    ("flagstone", &["rustc-hash", "crc32fast"]),
    ("flagstone-host", &["flagstone", "rustc-hash"]),
    ("flagstone-btree", &["flagstone"]),
    (
        "flagstone-index",
        &["flagstone", "flagstone-btree", "flagstone-host"],
    ),
];

/// Lines of one table of a crate's manifest, without comments.
fn table(krate: &str, header: &str) -> Vec<String> {
    let manifest = text(root().join("crates").join(krate).join("Cargo.toml"));
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(str::to_string).collect()
}

/// All source files of the crates that touch nothing outside, with their text.
pub(super) fn sources() -> Vec<(PathBuf, String)> {
    let folders = PURE.map(|(krate, _)| root().join("crates").join(krate).join("src"));
    let paths = folders.iter().flat_map(|folder| files(folder, ".rs"));
    paths.map(|path| (path.clone(), text(path))).collect()
}

#[test]
fn the_library_and_what_the_papers_have_on_it_touch_nothing_outside() {
    let banned = [
        "std::time",
        "std::thread",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::io",
        "rand::",
        "rand_pcg::",
        "println!",
        "print!(",
        "eprint",
        "dbg!(",
        "Serialize",
        "static mut",
        "thread_local!",
        "collections::HashMap",
        "collections::HashSet",
        "RandomState",
    ];
    let mut offences = Vec::new();
    let in_file = |path: &Path| {
        let mut parts = path.ancestors();
        // Behind the feature `file`.
        parts.any(|part| part.ends_with("file_store") || part.ends_with("file_store.rs"))
    };
    for (path, text) in sources().iter().filter(|(path, _)| !in_file(path)) {
        for (number, line) in code(text) {
            if let Some(word) = banned.iter().find(|word| line.contains(**word)) {
                offences.push(format!("{} has `{word}`", place(path, number)));
            }
        }
    }
    none(
        "no I/O, no clock, no random numbers, no threads, no order of a random hash",
        offences,
    );
    for (krate, uses) in PURE {
        let lib = text(root().join("crates").join(krate).join("src/lib.rs"));
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{krate}");
        let lines = table(krate, "[dependencies]");
        let lines = lines
            .iter()
            .filter(|line| !line.contains("optional = true"));
        let names: Vec<&str> = lines
            .filter_map(|line| Some(line.split_once(" = ")?.0))
            .collect();
        assert_eq!(names, uses, "dependencies of {krate}: argue for another");
    }
}

/// A reader of stores meets no research index, no database of a paper and no lab.
#[test]
fn stores_stand_on_no_database_and_no_index_of_a_paper() {
    let own = |krate: &str| {
        let lines = table(krate, "[dependencies]").into_iter();
        let names = lines.filter_map(|line| Some(line.split_once(" = ")?.0.to_string()));
        names
            .filter(|name| name.starts_with("flagstone"))
            .collect::<Vec<_>>()
    };
    assert_eq!(own("flagstone-store"), ["flagstone", "flagstone-btree"]);
    assert_eq!(own("flagstone-sqlite"), ["flagstone", "flagstone-store"]);
    let tools = ["flagstone", "flagstone-store", "flagstone-terminal"];
    assert_eq!(own("flagstone-store-tools"), tools);
    assert_eq!(own("flagstone-terminal"), ["flagstone-names"]);
}
