//! What holds for the text of the project: layers, sizes, headers of protocols, documents that are
//! generated from code. `FLAGSTONE_BLESS=1 cargo test -p flagstone --test tidy` rewrites the
//! latter.

use flagstone::commit::Kind;
use flagstone::layout::Layout;
use flagstone::{commit, ftl, page};
use flagstone_host::buffer::PolicyKind;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "tidy/codes.rs"]
mod codes;
#[path = "tidy/examples.rs"]
mod examples;
#[path = "tidy/protocols.rs"]
mod protocols;
#[path = "tidy/pure.rs"]
mod pure;
#[path = "tidy/rows.rs"]
mod rows;
#[path = "tidy/targets.rs"]
mod targets;

/// Lines beyond which a source file is split. CONTRIBUTING.md advises half as many.
const LINES_MAX: usize = 800;
/// Columns of one line.
const COLUMNS_MAX: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a directory whose names end so, in order.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory of the project");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path
            .file_name()
            .expect("entries have names")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Modules of the library, in the order of lib.rs.
fn layers() -> Vec<String> {
    let lib = text(root().join("crates/flagstone/src/lib.rs"));
    let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod "));
    modules
        .map(|rest| rest.trim_end_matches(';').to_string())
        .collect()
}

/// Source files of one module of the library, with their text.
fn sources(module: &str) -> Vec<(PathBuf, String)> {
    let source = root().join("crates/flagstone/src");
    let mut paths = vec![source.join(format!("{module}.rs"))];
    paths.retain(|path| path.exists());
    if source.join(module).exists() {
        paths.extend(files(&source.join(module), ".rs"));
    }
    paths
        .into_iter()
        .map(|path| (path.clone(), text(path)))
        .collect()
}

/// Lines with their numbers, comments left out.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The words of a line: what stands between characters that no name has.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Fails with all offences at once.
fn none(what: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

fn place(path: &Path, line: usize) -> String {
    let root = root().canonicalize().expect("the root exists");
    let path = path.canonicalize().expect("the file exists");
    let path = path
        .strip_prefix(root)
        .expect("files of the project")
        .display()
        .to_string();
    if line == 0 {
        path
    } else {
        format!("{path}:{line}")
    }
}

#[test]
fn no_module_names_one_that_comes_after_it() {
    let layers = layers();
    let map = text(root().join("ARCHITECTURE.md"));
    let mut offences = Vec::new();
    for (index, module) in layers.iter().enumerate() {
        assert!(
            map.contains(&format!("| `{module}")),
            "the code map in ARCHITECTURE.md has no row for `{module}`"
        );
        for (path, text) in sources(module) {
            for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line)) {
                let grouped = line.contains("crate::{");
                let later = |later: &String| {
                    let name = format!("crate::{later}");
                    line.match_indices(&name).any(|(at, _)| {
                        let next = line[at + name.len()..].chars().next();
                        !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
                    })
                };
                if grouped || layers[index + 1..].iter().any(later) {
                    offences.push(format!("{}: {}", place(&path, number), line.trim()));
                }
            }
        }
    }
    none(
        "a layer names only what is below it, one `use crate::` a line",
        offences,
    );
}

#[test]
fn lower_layers_do_not_know_what_is_above() {
    let mut offences = Vec::new();
    let mut forbid = |module: &str, is_foreign: &dyn Fn(&str) -> bool| {
        for (path, text) in sources(module) {
            for (number, line) in code(&text) {
                for word in words(line).filter(|word| is_foreign(word)) {
                    offences.push(format!("{} names `{word}`", place(&path, number)));
                }
            }
        }
    };
    let is_transactional = |word: &str| {
        let word = word.to_lowercase();
        word == "tx" || word == "txid" || word.contains("transaction")
    };
    let names: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| kind.info().name.replace('-', "_"))
        .collect();
    let is_protocol = |word: &str| names.iter().any(|name| *name == word.to_lowercase());
    forbid("nand", &|word| {
        word == "Lpn" || word == "lpn" || is_transactional(word) || is_protocol(word)
    });
    forbid("ftl", &|word| is_transactional(word) || is_protocol(word));
    none(
        "`nand` knows no logical pages, `ftl` knows no transactions and no protocol",
        offences,
    );
}

#[test]
fn files_are_short_and_say_why_they_exist() {
    let mut offences = Vec::new();
    for path in files(&root().join("crates"), ".rs") {
        let text = text(&path);
        let lines = text.lines().count();
        if lines > LINES_MAX {
            offences.push(format!("{} has {lines} lines", place(&path, 0)));
        }
        let is_rig = path.ends_with("tests/suite/main.rs");
        if !text.starts_with("//!") && !is_rig {
            offences.push(format!("{} does not begin with `//!`", place(&path, 0)));
        }
    }
    none(
        "a file has one reason, which its first lines give, and 800 lines at most",
        offences,
    );
}

#[test]
fn comments_are_at_most_100_columns() {
    let mut offences = Vec::new();
    for path in files(&root().join("crates"), ".rs") {
        for (index, line) in text(&path).lines().enumerate() {
            let columns = line.chars().count();
            // Code is rustfmt's; a row of a table cannot be broken.
            let is_comment = line.trim_start().starts_with("//");
            let is_row = line.trim_start().starts_with("//! |");
            if columns > COLUMNS_MAX && is_comment && !is_row {
                offences.push(format!("{} has {columns}", place(&path, index + 1)));
            }
        }
    }
    none("comments are at most 100 columns", offences);
}

/// Methods of `nand::Flash` that only a bare simulated chip has.
const OF_A_CHIP: [&str; 7] = [
    "forget",
    "copies_inside",
    "read_inside",
    "program_inside",
    "hint",
    "model",
    "into_model",
];

/// Fails if middleware would lose a method of `nand::Flash` because the method has a default.
#[test]
fn a_method_of_flash_is_forwarded_unless_only_a_chip_has_it() {
    let text = text(root().join("crates/flagstone/src/nand/mod.rs"));
    let (_, from) = text.split_once("pub trait Flash").expect("the trait");
    let (flash, forwards) = from.split_once("macro_rules!").expect("the macro");
    let methods = flash
        .lines()
        .filter_map(|line| line.strip_prefix("    fn "));
    let methods: Vec<&str> = methods.filter_map(|rest| rest.split('(').next()).collect();
    assert!(methods.len() > 20, "{methods:?}");
    let is_forwarded = |name: &str| forwards.contains(&format!(": fn {name}("));
    let lost = methods
        .iter()
        .filter(|name| is_forwarded(name) == OF_A_CHIP.contains(name));
    none(
        "a method is forwarded",
        lost.map(|name| name.to_string()).collect(),
    );
}

/// The header of a source file: its first lines, without the comment signs.
fn header(path: &Path) -> Vec<String> {
    let text = text(path);
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_string())
        .collect()
}

/// Keys that docs/papers.md defines.
fn papers() -> BTreeSet<String> {
    let papers = text(root().join("docs/papers.md"));
    let lines = papers.lines().filter_map(|line| line.strip_prefix("**["));
    lines
        .filter_map(|line| Some(line.split_once("]**")?.0.to_string()))
        .collect()
}

#[test]
fn every_eviction_policy_has_a_file_of_its_name_and_a_row_in_the_comparison() {
    let papers = papers();
    let comparison = text(root().join("docs/buffer.md"));
    let mut offences = Vec::new();
    for &kind in PolicyKind::ALL {
        let info = kind.info();
        let name = info.name.replace('-', "_");
        let buffer = root().join("crates/flagstone-host/src/buffer");
        let folder = buffer.join(&name).join("mod.rs");
        let path = if folder.exists() {
            folder
        } else {
            buffer.join(format!("{name}.rs"))
        };
        let header = header(&path);
        let cites = |line: &String| line.contains(&format!("[{}]", info.paper));
        if info.paper != "-" && !(papers.contains(info.paper) && header.iter().any(cites)) {
            offences.push(format!("{}: cites no paper", info.name));
        }
        if !comparison.contains(&format!("\n| `{}` |", info.name)) {
            offences.push(format!("{}: no row in docs/buffer.md", info.name));
        }
    }
    none("policies can be compared", offences);
}

#[test]
fn cited_papers_are_in_the_list() {
    let papers = papers();
    let mut offences = Vec::new();
    let mut paths = files(&root().join("crates"), ".rs");
    paths.extend(files(&root().join("docs"), ".md"));
    for path in paths {
        for (index, line) in text(&path).lines().enumerate() {
            for (at, _) in line.match_indices("] §") {
                let key = line[..at].rsplit_once('[').map_or("", |(_, key)| key);
                if !key.is_empty() && !papers.contains(key) {
                    offences.push(format!("{} cites [{key}]", place(&path, index + 1)));
                }
            }
        }
    }
    none("docs/papers.md has every paper that is cited", offences);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut offences = Vec::new();
    for path in files(&root(), ".md") {
        let directory = path.parent().expect("files lie in directories");
        for (index, line) in text(&path).lines().enumerate() {
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split([')', '#']).next().unwrap_or_default();
                let is_local = !target.is_empty() && !target.contains("://");
                if is_local && !directory.join(target).exists() {
                    offences.push(format!("{}: {target}", place(&path, index + 1)));
                }
            }
        }
    }
    none("links lead to files that are there", offences);
}

/// All records that are kept on flash.
fn layouts() -> impl Iterator<Item = &'static Layout> {
    let below = [ftl::LAYOUTS, page::LAYOUTS, commit::LAYOUTS];
    below
        .into_iter()
        .chain(flagstone_host::LAYOUTS.iter().copied())
        .chain(flagstone_index::LAYOUTS.iter().copied())
        .flatten()
}

#[test]
fn every_layout_is_listed() {
    let listed: Vec<&Layout> = layouts().collect();
    let mut missing = Vec::new();
    for (path, text) in pure::sources() {
        let mut lines = text.lines().skip_while(|line| *line != "layout! {");
        while lines.next().is_some() {
            let head = lines
                .by_ref()
                .find(|line| line.ends_with("=> {"))
                .expect("a name");
            let name = head.split(':').next().expect("a name").rsplit(' ').next();
            let name = format!("::{}", name.unwrap_or_default());
            let file = path.with_extension("");
            let module = if file.ends_with("mod") {
                path.parent()
            } else {
                Some(file.as_path())
            };
            let module = module
                .and_then(Path::file_name)
                .expect("a module")
                .to_string_lossy();
            let path = format!("{module}{name}");
            if !listed.iter().any(|record| record.path.ends_with(&path)) {
                missing.push(path);
            }
            while lines.clone().next().is_some_and(|line| line != "layout! {") {
                lines.next();
            }
        }
    }
    none("the modules' `LAYOUTS` have every record", missing);
}

/// Holds a generated block of a document against what it should be, or rewrites it. A block is
/// between `<!-- NAME: begin -->` and `<!-- NAME: end -->`.
fn bless(document: &str, name: &str, generated: &str) {
    let path = root().join("docs").join(document);
    let old = text(&path);
    let (begin, end) = (
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let (before, rest) = old.split_once(&begin).expect("the block begins");
    let (_, after) = rest.split_once(&end).expect("the block ends");
    let new = format!("{before}{begin}{generated}{end}{after}");
    if std::env::var_os("FLAGSTONE_BLESS").is_some() {
        fs::write(&path, new).expect("the document can be written");
    } else {
        assert!(
            old == new,
            "docs/{document} is out of date: FLAGSTONE_BLESS=1 cargo test -p flagstone --test tidy"
        );
    }
}

#[test]
fn the_document_of_the_format_is_current() {
    let mut out = String::new();
    for record in layouts() {
        let path = record.path.trim_start_matches("flagstone::");
        let path = path.trim_start_matches("flagstone_");
        let doc = record.doc.trim();
        let bytes = if record.size == 1 { "byte" } else { "bytes" };
        let _ = write!(out, "\n### `{path}`\n\n{doc} {} {bytes}.\n\n", record.size);
        out.push_str("| field | offset | bytes | meaning |\n|---|---:|---:|---|\n");
        for (name, offset, bytes, meaning) in record.fields {
            let name = name.to_lowercase();
            let _ = writeln!(out, "| `{name}` | {offset} | {bytes} | {meaning} |");
        }
    }
    bless("format.md", "records", &out);
}
