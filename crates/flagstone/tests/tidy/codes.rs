//! Codes in comments: departures (`D3`), cases of a recovery table (`@B`), rules (`R5`).
//!
//! A code means something to a reader who can find it. Its definition begins a line (`D3. ...`,
//! `@B  ...`) in the same file, in another file of the same folder, or in a file of the folder
//! above. A comment about another module's code names that module in backquotes: "D12 of
//! `flagstone::commit::records`".

use super::{files, none, place, root, text, words};
use std::collections::BTreeSet;
use std::path::Path;

/// The text of a line that is a comment, without the signs.
fn comment(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once("//")?;
    Some(comment.trim_start_matches(['/', '!']))
}

/// Whether a word is a code other than a case.
fn is_code(word: &str) -> bool {
    let digits = word.strip_prefix(['D', 'R']).unwrap_or_default();
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

/// What a file defines.
fn definitions(path: &Path) -> BTreeSet<String> {
    let text = text(path);
    text.lines()
        .filter_map(comment)
        .filter_map(defined)
        .collect()
}

/// Codes of a file that are mentioned and defined nowhere near, with their lines.
fn undefined(text: &str, known: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // "of `module`", for the comment that it stands in.
    let mut named = false;
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = comment(line) else {
            named = false;
            continue;
        };
        named |= comment.contains("of `") || comment.contains("in `");
        let unknown = mentioned(comment)
            .into_iter()
            .filter(|code| !known.contains(code));
        if !named {
            found.extend(unknown.map(|code| (index + 1, code)));
        }
    }
    found
}

#[test]
fn every_code_is_defined_where_it_is_used() {
    let mut offences = Vec::new();
    let own = root().join("crates/flagstone/tests/tidy");
    for path in files(&root().join("crates"), ".rs") {
        if path.starts_with(&own) {
            continue;
        }
        let text = text(&path);
        let folder = path.parent().expect("files lie in folders");
        let mut near = files(folder, ".rs");
        if let Some(above) = folder.parent() {
            let beside = files(above, ".rs").into_iter();
            near.extend(beside.filter(|path| path.parent() == Some(above)));
        }
        let mut comments = text.lines().filter_map(comment);
        if comments.all(|line| mentioned(line).is_empty()) {
            continue;
        }
        let known = near.iter().flat_map(|path| definitions(path)).collect();
        for (line, code) in undefined(&text, &known) {
            offences.push(format!("{}: {code}", place(&path, line)));
        }
    }
    none(
        "every code is defined beside its use, or names the module that defines it",
        offences,
    );
}

#[test]
fn a_code_without_a_definition_is_found() {
    let known = BTreeSet::from(["D1".to_string(), "@A".to_string()]);
    let found = |text| undefined(text, &known);
    assert_eq!(
        found("// D1, @A and `D2` of `commit::scc`\n// D4 as well"),
        []
    );
    assert_eq!(
        found("let d2 = D2; // as R2 has it"),
        [(1, "R2".to_string())]
    );
    assert_eq!(found("\n/// @B"), [(2, "@B".to_string())]);
    assert_eq!(defined(" Departures  D1. A log."), Some("D1".to_string()));
    assert_eq!(defined("   @A        a verdict"), Some("@A".to_string()));
    assert_eq!(defined(" as R2 has it."), None);
}
