//! Fuzz targets, which nothing builds but `cargo fuzz`: each function for fuzzing has one, and each
//! one is in the list of the workspace there.

use super::{files, none, root, text};
use std::path::PathBuf;

/// Functions that take bytes and say whether they are taken, with the modules that have them.
fn functions() -> Vec<(PathBuf, String)> {
    let all = files(&root().join("crates"), ".rs").into_iter();
    let fuzzing = all.filter(|path| {
        let is_tests = path.ends_with("tests.rs") || path.ancestors().any(|p| p.ends_with("tests"));
        path.to_string_lossy().contains("fuzzing") && !is_tests
    });
    let mut functions = Vec::new();
    for path in fuzzing {
        let text = text(&path);
        let names = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("pub fn ")?.split_once('(')?;
            (rest == "bytes: &[u8]) -> bool {").then(|| name.to_string())
        });
        functions.extend(names.map(|name| (path.clone(), name)));
    }
    functions
}

/// What is missing of the targets for some functions, with these targets and this manifest.
fn missing(functions: &[(PathBuf, String)], targets: &[String], manifest: &str) -> Vec<String> {
    let mut offences = Vec::new();
    for (path, name) in functions {
        let in_crate = path.components().rev().find_map(|part| {
            let part = part.as_os_str().to_str()?;
            part.starts_with("flagstone")
                .then(|| part.replace('-', "_"))
        });
        let call = format!("{}::fuzzing::{name}(", in_crate.unwrap_or_default());
        if !targets.iter().any(|target| target.contains(&call)) {
            offences.push(format!("{call}) has no target"));
        }
    }
    let listed = manifest.matches("path = \"fuzz_targets/").count();
    if listed != targets.len() {
        offences.push(format!("{listed} of {} are listed", targets.len()));
    }
    offences
}

#[test]
fn every_function_for_fuzzing_has_a_target() {
    let fuzz = root().join("fuzz");
    let targets = files(&fuzz.join("fuzz_targets"), ".rs").into_iter();
    let targets: Vec<String> = targets.map(text).collect();
    let (functions, manifest) = (functions(), text(fuzz.join("Cargo.toml")));
    none(
        "a parser has a fuzz target",
        missing(&functions, &targets, &manifest),
    );
    // The controls: a target that is gone, and one that is not listed.
    assert!(functions.len() > 15, "{functions:?}");
    assert_eq!(missing(&functions, &targets[1..], &manifest).len(), 2);
    let short = manifest.replacen("path = \"fuzz_targets/", "", 1);
    assert_eq!(missing(&functions, &targets, &short).len(), 1);
}
