//! Examples of public types: each type of the library and of the stores has one that runs, or a
//! line that links to one.

use super::{files, none, place, root, text};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The crates whose types have examples.
const CRATES: [&str; 2] = ["flagstone", "flagstone-store"];

/// A public type in a source text.
struct Type<'a> {
    name: &'a str,
    line: usize,
    /// The lines of its doc comment, without comment signs.
    doc: Vec<&'a str>,
}

impl<'a> Type<'a> {
    /// Whether its doc comment has an example: a block that is not marked as text.
    fn has_example(&self) -> bool {
        let fences = self.doc.iter().filter(|line| line.starts_with("```"));
        fences.step_by(2).any(|opening| *opening == "```")
    }

    /// What its doc comment names as places of examples.
    fn links(&self) -> impl Iterator<Item = &'a str> {
        let places = self.doc.iter().filter_map(|line| {
            let at = line.find("Example: [").or(line.find("Examples: ["))?;
            Some(&line[at..])
        });
        let links = places.flat_map(|places| places.split("[`").skip(1));
        links.filter_map(|rest| Some(rest.split_once('`')?.0))
    }
}

/// The name of the public type that a line declares. The library's lints refuse a `pub` that is not
/// reachable from outside, so each one counts. Two macros declare types as well (`address!` and
/// `registry!`): there the name, or name and description, follows the doc comment.
fn declared<'a>(line: &'a str, before: Option<&str>) -> Option<&'a str> {
    let line = line.trim_start();
    let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
    let declaration = line.strip_prefix("pub ").and_then(|rest| {
        let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
        kinds.iter().find_map(|kind| rest.strip_prefix(kind))
    });
    let in_macro = || {
        let (name, rest) = line.split_once(": ").unwrap_or((line, "Info {"));
        let is_name = name.chars().all(char::is_alphanumeric) && rest == "Info {";
        let is_documented = before.is_some_and(|before| before.trim_start().starts_with("///"));
        (is_name && is_documented).then_some(name)
    };
    let rest = declaration.or_else(in_macro)?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    name.starts_with(char::is_uppercase).then_some(name)
}

/// The public types of a source text, without hidden ones.
fn types(text: &str) -> Vec<Type<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut types = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| lines[index]);
        let Some(name) = declared(line, before) else {
            continue;
        };
        let above = lines[..index].iter().rev().map(|line| line.trim_start());
        let above = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let above: Vec<&str> = above.collect();
        if above.iter().any(|line| line.contains("doc(hidden)")) {
            continue;
        }
        let doc = above
            .iter()
            .rev()
            .filter_map(|line| line.strip_prefix("///"));
        types.push(Type {
            name,
            line: index + 1,
            doc: doc.map(str::trim).collect(),
        });
    }
    types
}

/// Types without an example and without a link to one. A type that is linked to has an example.
fn lacking<'a>(types: &'a [Type<'a>]) -> Vec<(&'a str, usize)> {
    let all: BTreeSet<&str> = types.iter().map(|one| one.name).collect();
    let shown = types.iter().filter(|one| one.has_example());
    let shown: BTreeSet<&str> = shown.map(|one| one.name).collect();
    let leads = |link: &str| !all.contains(link) || shown.contains(link);
    let lacks = types.iter().filter(|one| {
        let mut links = one.links().peekable();
        !one.has_example() && (links.peek().is_none() || !links.all(leads))
    });
    lacks.map(|one| (one.name, one.line)).collect()
}

#[test]
fn every_public_type_has_an_example() {
    let mut offences = Vec::new();
    for krate in CRATES {
        let source = root().join("crates").join(krate).join("src");
        let paths = files(&source, ".rs").into_iter();
        // Functions for fuzzing are hidden with their module.
        let is_hidden = |path: &PathBuf| {
            let within = path.strip_prefix(&source).expect("it lies there");
            within.starts_with("fuzzing") || within.ends_with("fuzzing.rs")
        };
        let paths = paths.filter(|path| !is_hidden(path));
        let sources: Vec<_> = paths.map(|path| (text(&path), path)).collect();
        let found = sources.iter().flat_map(|(text, path)| {
            let place_of = move |one: &Type<'_>| place(path, one.line);
            types(text)
                .into_iter()
                .map(move |one| (place_of(&one), one))
        });
        let (places, found): (Vec<String>, Vec<Type<'_>>) = found.unzip();
        assert!(found.len() > 50, "{krate} has {} types", found.len());
        for (name, line) in lacking(&found) {
            let index = found
                .iter()
                .position(|one| (one.name, one.line) == (name, line));
            let place = &places[index.expect("it is one of them")];
            offences.push(format!("{place}: `{name}`"));
        }
    }
    none(
        "a public type has an example, or a line such as \"Example: [`Ftl`].\"",
        offences,
    );
}

/// The controls.
#[test]
fn a_type_without_an_example_is_noticed() {
    let lacking_in = |text: &str| {
        let types = types(text);
        let lacking = lacking(&types);
        lacking
            .iter()
            .map(|(name, _)| name.to_string())
            .collect::<Vec<_>>()
    };
    let shown = "/// A.\n///\n/// ```\n/// f();\n/// ```\n#[derive(Debug)]\npub struct A;\n";
    let linked = "/// B. Example: [`A`].\npub enum B {}\n";
    assert!(lacking_in(&format!("{shown}\n{linked}")).is_empty());

    // Without a comment, without an example, with a picture only, of a macro, with a link to a
    // type that has no example.
    assert_eq!(lacking_in("pub trait A {}\n"), ["A"]);
    assert_eq!(
        lacking_in("/// A type.\n#[derive(Debug)]\npub struct A;\n"),
        ["A"]
    );
    assert_eq!(
        lacking_in("/// ```text\n/// | a |\n/// ```\npub type A = u8;\n"),
        ["A"]
    );
    assert_eq!(
        lacking_in("address! {\n    /// A page.\n    Lpn\n}\n"),
        ["Lpn"]
    );
    assert_eq!(lacking_in("/// All.\nKind: Info {\n"), ["Kind"]);
    let other = linked.replace("`A`", "`C`");
    assert_eq!(
        lacking_in(&format!("{other}\n/// C.\npub struct C;\n")),
        ["B", "C"]
    );

    // An example above another item is none of the type; a hidden type needs none.
    assert_eq!(
        lacking_in(&format!("{shown}\n/// D.\npub struct D;\n")),
        ["D"]
    );
    assert!(lacking_in("/// A.\n#[doc(hidden)]\npub struct A;\n").is_empty());
}
