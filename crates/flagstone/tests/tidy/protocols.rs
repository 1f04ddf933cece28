//! What the file of a protocol must have, and what docs/protocols.md takes from it.

use super::{bless, files, header, none, papers, place, root, text, words};
use flagstone::commit::{Kind, Published};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The file of a protocol, by its name: in the folder of its family, or beside these.
pub(super) fn file_of(kind: Kind) -> PathBuf {
    let name = kind.info().name.replace('-', "_");
    let ends = [format!("{name}.rs"), format!("{name}/mod.rs")];
    let commit = root().join("crates/flagstone/src/commit");
    let mut found = files(&commit, ".rs").into_iter().filter(|path| {
        let within = path.strip_prefix(&commit).expect("it lies there");
        let is_file = |place: &Path| ends.iter().any(|end| place == Path::new(end));
        is_file(within) || is_file(within.components().skip(1).collect::<PathBuf>().as_path())
    });
    let path = found.next();
    assert!(found.next().is_none(), "{name} has two files");
    path.unwrap_or_else(|| panic!("{name} has no file"))
}

/// The lines of a section of a header, without its name.
fn section<'a>(header: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    let begin = header
        .iter()
        .position(|line| line.split(' ').next() == Some(name));
    let lines = header[begin.unwrap_or(header.len())..].iter();
    let cut = name.len();
    lines.enumerate().map(move |(index, line)| {
        if index == 0 {
            line[cut..].trim()
        } else {
            line.as_str()
        }
    })
}

/// The first sentence of a section, without its period.
fn sentence(header: &[String], name: &str) -> String {
    let text = section(header, name).map(str::trim).collect::<Vec<_>>();
    let text = text.join(" ");
    let end = text.find(". ").unwrap_or(text.len());
    text[..end].trim_end_matches('.').to_string()
}

/// The rows of a recovery table that a test goes through: the lines of its `cases!` that begin with
/// `"@A": `.
fn proved(test: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let mut is_in_table = false;
    for line in test.lines().map(str::trim_start) {
        is_in_table = (is_in_table || line.contains("= cases! {")) && line != "};";
        let row = line
            .strip_prefix('"')
            .and_then(|row| row.split_once("\": "));
        let row = row.filter(|(row, _)| is_in_table && row.starts_with('@'));
        rows.extend(row.map(|(row, _)| row.to_string()));
    }
    rows
}

/// The tests of a module of the library from outside: in `tests/suite`, the file or the folder of
/// its name.
fn tests_outside(path: &Path) -> Vec<PathBuf> {
    let krate = root().join("crates/flagstone");
    let module = if path.ends_with("mod.rs") {
        path.parent().expect("a folder").to_path_buf()
    } else {
        path.with_extension("")
    };
    if !module.starts_with(krate.join("src")) {
        return Vec::new();
    }
    let folder = krate
        .join("tests/suite")
        .join(module.file_name().expect("a module"));
    let mut tests = vec![folder.with_extension("rs")];
    tests.retain(|path| path.exists());
    if folder.exists() {
        tests.extend(files(&folder, ".rs"));
    }
    tests
}

/// The sources in the folder of a file and below, and its tests from outside. For the `mod.rs` of a
/// protocol also the files of its family.
fn tests_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = path.parent().expect("a folder");
    let family = folder.parent().filter(|_| path.ends_with("mod.rs"));
    let of_family = family.map_or(Vec::new(), |family| files(family, ".rs"));
    let family = family.map(Path::to_path_buf);
    let of_family = of_family
        .into_iter()
        .filter(move |path| path.parent() == family.as_deref());
    let beside = files(folder, ".rs").into_iter().chain(of_family);
    beside.chain(tests_outside(path))
}

#[test]
fn the_rows_that_a_program_shows_are_no_proof() {
    let shown = "recovery: rows! {\n    \"@A\": \"one\" => \"yes\";\n};\n";
    assert_eq!(proved(shown), [""; 0]);
    let test = "= cases! { |facts|\n    \"@A\": facts.one => true;\n};\n\"@B\": no row\n";
    assert_eq!(proved(test), ["@A"]);
}

#[test]
fn every_recovery_table_is_proved_row_by_row() {
    let sources = ["flagstone", "flagstone-host"].map(|krate| {
        let folder = root().join("crates").join(krate).join("src");
        files(&folder, ".rs")
    });
    // It has two of its four rows from `commit::records`, and redoes page by page what is left.
    let flag_ex = root().join("crates/flagstone-host/src/flag_ex/mod.rs");
    let mut offences = Vec::new();
    let mut tables = 0;
    for path in sources
        .into_iter()
        .flatten()
        .filter(|path| *path != flag_ex)
    {
        let header = header(&path);
        let first = header
            .iter()
            .filter_map(|line| words(line.trim_start().strip_prefix('@')?).next());
        let rows: Vec<String> = first.map(|row| format!("@{row}")).collect();
        if rows.is_empty() {
            continue;
        }
        tables += 1;
        if !tests_of(&path).any(|test| proved(&text(test)).eq(&rows)) {
            offences.push(format!("{}: {rows:?}", place(&path, 0)));
        }
    }
    assert!(tables > 10, "{tables} headers have a recovery table");
    none(
        "every row of a recovery table is a row of its proof",
        offences,
    );
}

#[test]
fn every_protocol_has_a_file_of_its_name_with_the_sections_that_all_have() {
    let sections = [
        "Paper",
        "Idea",
        "Commit",
        "Cost",
        "Invariants",
        "Recovery",
        "Departures",
    ];
    let papers = papers();
    let mut offences = Vec::new();
    for &kind in Kind::ALL {
        let info = kind.info();
        let path = file_of(kind);
        let header = header(&path);
        let mut places = Vec::new();
        for section in sections {
            let place = header
                .iter()
                .position(|line| line.split(' ').next() == Some(section));
            match place {
                Some(place) => places.push(place),
                None => offences.push(format!("{}: no section {section}", info.name)),
            }
        }
        if !places.is_sorted() {
            offences.push(format!("{}: sections in another order", info.name));
        }
        let cited = header
            .iter()
            .any(|line| line.contains(&format!("[{}]", info.paper)));
        if info.paper != "-" && !(cited && papers.contains(info.paper)) {
            let paper = info.paper;
            offences.push(format!(
                "{}: cites no [{paper}] that docs/papers.md has",
                info.name
            ));
        }
    }
    none("protocol files can be read side by side", offences);
}

/// A row for each protocol: its commit point and cost by its header, the rest by its description.
#[test]
fn the_table_of_protocols_is_current() {
    let mut out =
        String::from("| | commit point | cost | isolation | paper |\n|---|---|---|---|---|\n");
    for &kind in Kind::ALL {
        let (info, header) = (kind.info(), header(&file_of(kind)));
        let (commit, cost) = (sentence(&header, "Commit"), sentence(&header, "Cost"));
        let mut isolation = info.isolation.name().to_string();
        for (has, what) in [(!info.atomic, " (not atomic)"), (info.reprograms, "; SLC")] {
            if has {
                isolation += what;
            }
        }
        let paper = match (info.paper, info.section) {
            ("-", "-") => "–".to_string(),
            ("-", page) => format!("[{0}]({0})", page.trim_start_matches("docs/")),
            (paper, section) => format!("[{paper}] {section}"),
        };
        let name = info.name;
        let _ = writeln!(
            out,
            "| `{name}` | {commit} | {cost} | {isolation} | {paper} |"
        );
    }
    bless("protocols.md", "table", &out);
}

#[test]
fn the_table_of_printed_forms_is_current() {
    let mut out = String::from("\n| | left out | what is lost |\n|---|---|---|\n");
    // Protocols of one family may share a row.
    let mut rows: Vec<(Published, Vec<String>)> = Vec::new();
    for kind in Kind::ALL {
        let info = kind.info();
        let Some(printed) = info.published else {
            continue;
        };
        let name = format!("`{}`", info.name);
        match rows.iter_mut().find(|(other, _)| *other == printed) {
            Some((_, names)) => names.push(name),
            None => rows.push((printed, vec![name])),
        }
    }
    assert!(!rows.is_empty());
    for (Published { without, loses }, names) in rows {
        let _ = writeln!(out, "| {} | {without} | {loses} |", names.join(", "));
    }
    out.push('\n');
    bless("protocols.md", "published", &out);
}

#[test]
fn the_list_of_departures_is_current() {
    let mut out = String::new();
    for &kind in Kind::ALL {
        let _ = write!(out, "\n### {}\n\n", kind.info().name);
        let mut departures = Vec::new();
        for line in section(&header(&file_of(kind)), "Departures") {
            let line = line.trim();
            let is_new = line.starts_with("As published:") || departures.is_empty() || {
                let number = line.strip_prefix('D').and_then(|rest| rest.split_once('.'));
                number.is_some_and(|(digits, _)| digits.chars().all(|c| c.is_ascii_digit()))
            };
            match departures.last_mut() {
                _ if line.is_empty() => {}
                Some(last) if !is_new => *last = format!("{last} {line}"),
                _ => departures.push(line.to_string()),
            }
        }
        for departure in departures {
            let departure = departure.replace("[`super::", "[`").replace("`]", "`");
            let departure = departure.replace('<', "\\<");
            let _ = writeln!(out, "- {}", departure.replace("[`", "`"));
        }
    }
    bless("protocols.md", "departures", &out);
}
