//! Codes in comments and in names of tests: departures (`D3`), cases of a recovery table (`@B`),
//! rules and hazards (`R5`, `L2`).
//!
//! A code means something to a reader who can find it. Its definition begins a line (`D3. ...`,
//! `@B  ...`) in the same file or in the header of a module that the file is in. A comment about a
//! code of another module names that module in backquotes, and that module defines the code:
//! "D12 of `flagstone::commit::records`", "D1 to D5 of [`super::mixsl`]". The header of a module
//! can do so once for all its files, in a line for each module: "Codes  D6, D7 of [`g_mixsl`]".

use super::{files, none, place, root, text, words};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The text of a line that is a comment, without the signs.
fn comment(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once("//")?;
    Some(comment.trim_start_matches(['/', '!']))
}

/// Whether a word is a code other than a case.
fn is_code(word: &str) -> bool {
    let digits = word.strip_prefix(['D', 'R', 'L']).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_number && digits.len() <= 2
}

/// The codes that a comment mentions.
fn mentioned(comment: &str) -> BTreeSet<String> {
    let codes = words(comment).filter(|word| is_code(word));
    let mut all: BTreeSet<String> = codes.map(str::to_string).collect();
    for (at, _) in comment.match_indices('@') {
        let name: String = comment[at + 1..]
            .chars()
            .take_while(|c| c.is_alphanumeric())
            .collect();
        if name.len() == 1 && name.chars().all(|c| c.is_ascii_uppercase()) {
            all.insert(format!("@{name}"));
        }
    }
    all
}

/// The codes with which the name of a function begins: `fn d3_d4_what_is_tested`.
fn in_name(line: &str) -> BTreeSet<String> {
    let name = line.trim_start().strip_prefix("fn ").unwrap_or_default();
    let parts = name.split('_').map(str::to_uppercase);
    parts.take_while(|part| is_code(part)).collect()
}

/// The modules that a comment names in backquotes, by their last part.
fn modules(comment: &str) -> impl Iterator<Item = &str> {
    let quoted = comment.split('`').skip(1).step_by(2);
    quoted.map(|path| path.rsplit("::").next().unwrap_or_default())
}

/// The code that a line of a header defines: its first word, or the first after the section's name.
fn defined(comment: &str) -> Option<String> {
    let mut words = comment.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    for word in [first, second] {
        if let Some(code) = word.strip_suffix('.').filter(|code| is_code(code)) {
            return Some(code.to_string());
        }
    }
    let is_case = first.starts_with('@') && comment.starts_with("   ");
    is_case.then(|| first.to_string())
}

/// What a text defines.
fn definitions(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(comment)
        .filter_map(defined)
        .collect()
}

/// The codes that a header takes from other modules, each with those modules.
fn taken(text: &str) -> impl Iterator<Item = (String, Vec<&str>)> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! Codes "));
    lines.flat_map(|line| {
        let from: Vec<&str> = modules(line).collect();
        let codes = mentioned(line).into_iter();
        codes.map(move |code| (code, from.clone()))
    })
}

/// Codes of a text that are defined neither where it is nor in a module that the comment names,
/// with their lines.
fn undefined(
    text: &str,
    known: &BTreeSet<String>,
    defines: impl Fn(&str, &str) -> bool,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let unknown = |codes: BTreeSet<String>| codes.into_iter().filter(|code| !known.contains(code));
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        found.extend(unknown(in_name(lines[at])).map(|code| (at + 1, code)));
        // The comment that begins here, with all its lines.
        let block = lines[at..].iter().map_while(|line| comment(line));
        let block: Vec<&str> = block.collect();
        for (line, text) in (at + 1..).zip(&block) {
            let elsewhere = |code: &String| {
                let mut named = block.iter().flat_map(|text| modules(text));
                named.any(|module| defines(module, code))
            };
            let codes = unknown(mentioned(text)).filter(|code| !elsewhere(code));
            found.extend(codes.map(|code| (line, code)));
        }
        at += block.len().max(1);
    }
    found
}

/// The files of the modules that a file is in, itself the first: `a/b/c.rs` is in `a/b/mod.rs`, or
/// `a/b.rs`, and so on up to the crate.
fn around(path: &Path) -> Vec<PathBuf> {
    let mut around = vec![path.to_path_buf()];
    for folder in path.ancestors().skip(1) {
        if folder.ends_with("src") {
            around.push(folder.join("lib.rs"));
            break;
        }
        if folder.ends_with("tests") && folder.join("../src").exists() {
            break;
        }
        around.extend([folder.join("mod.rs"), folder.with_extension("rs")]);
    }
    around
}

#[test]
fn every_code_is_defined_where_it_is_used() {
    let own = root().join("crates/flagstone/tests/tidy");
    let mut texts = BTreeMap::new();
    for path in files(&root().join("crates"), ".rs") {
        if !path.starts_with(&own) {
            let text = text(&path);
            texts.insert(path, text);
        }
    }
    let all: BTreeMap<&PathBuf, BTreeSet<String>> = texts
        .iter()
        .map(|(path, text)| (path, definitions(text)))
        .collect();
    let defines = |module: &str, code: &str| {
        let is_module = |path: &Path| {
            let (file, folder) = (format!("{module}.rs"), format!("{module}/mod.rs"));
            let krate = format!("{}/src/lib.rs", module.replace('_', "-"));
            path.ends_with(file) || path.ends_with(folder) || path.ends_with(krate)
        };
        all.iter()
            .any(|(path, codes)| is_module(path) && codes.contains(code))
    };
    let mut offences = Vec::new();
    for (path, text) in &texts {
        let near = around(path);
        let near_codes = near.iter().filter_map(|path| all.get(path));
        let mut known: BTreeSet<String> = near_codes.flatten().cloned().collect();
        for (code, from) in near
            .iter()
            .filter_map(|path| texts.get(path))
            .flat_map(|t| taken(t))
        {
            if !from.is_empty() && from.iter().all(|module| defines(module, &code)) {
                known.insert(code);
            }
        }
        for (line, code) in undefined(text, &known, defines) {
            offences.push(format!("{}: {code}", place(path, line)));
        }
    }
    none(
        "every code is defined in its file or module, or names the module that defines it",
        offences,
    );
}

#[test]
fn a_code_without_a_definition_is_found() {
    let known = BTreeSet::from(["D1".to_string(), "@A".to_string()]);
    let defines = |module: &str, code: &str| module == "scc" && code == "D2";
    let found = |text| undefined(text, &known, defines);
    let code = |line, code: &str| (line, code.to_string());
    assert_eq!(found("// D1, @A and D2 of\n// [`commit::scc`]"), []);
    assert_eq!(found("// D2 of `commit::aw`"), [code(1, "D2")]);
    assert_eq!(found("// D3 of `commit::scc`"), [code(1, "D3")]);
    assert_eq!(found("// D2\nlet x;\n// of `scc`"), [code(1, "D2")]);
    assert_eq!(found("let d2 = D2; // as R2 has it"), [code(1, "R2")]);
    assert_eq!(found("\n/// @B"), [code(2, "@B")]);
    let tests = "fn d1_it_holds() {}\n    fn d1_l3_it_does_not() {}\nfn r2d2_is_a_name() {}";
    assert_eq!(found(tests), [code(2, "L3")]);
    let taken: Vec<_> =
        taken("//! Codes       D6, D7 of [`super::g_mixsl`]\n// Codes D8").collect();
    let from = vec!["g_mixsl"];
    assert_eq!(taken, [("D6".into(), from.clone()), ("D7".into(), from)]);
    assert_eq!(defined(" Departures  D1. A log."), Some("D1".to_string()));
    assert_eq!(defined("   @A        a verdict"), Some("@A".to_string()));
    assert_eq!(defined(" as R2 has it."), None);
}

#[test]
fn a_file_is_in_the_modules_of_its_folders() {
    let path = root().join("crates/flagstone/src/commit/records/tests/flags.rs");
    let around = around(&path);
    let has = |end: &str| around.iter().any(|path| path.ends_with(end));
    assert!(has("records/tests/flags.rs") && has("records/tests/mod.rs"));
    assert!(has("commit/records/mod.rs") && has("src/commit/mod.rs"));
    assert!(!has("src/mod.rs") && !has("records/merge.rs"));
}
