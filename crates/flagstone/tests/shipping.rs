//! Mistakes made on purpose are in no build that ships: nothing that keeps data asks for the
//! feature `mistakes`, neither stores, SQLite on them and the Python package, nor the plugin of
//! nbdkit and the programs that move data.
//!
//! Cargo builds the library once for all crates of one command, with the features that any of them
//! asks for. `.ci/run` asks it for the features of the crates that ship, and compiles them alone;
//! that mistakes take no room then is an assertion of `mistakes!`.

use flagstone::commit::{self, Options};
use flagstone_host::{self as host, HostConfig};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn by_default_none_is_made() {
    for (mistake, name) in commit::Mistake::ALL {
        assert!(!Options::default().mistake.is(mistake), "{name}");
    }
    let host = HostConfig::default().mistake;
    assert!(!host.is(host::Mistake::NoUndo));
}

/// Lines of one table of a crate's manifest.
fn table(krate: &str, header: &str) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = crates.join(krate).join("Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    let lines = text.lines().skip_while(|line| *line != header).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(str::to_string).collect()
}

/// Crates of this project on which a crate is built, itself included.
fn built_on(krate: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut next = vec![krate.to_string()];
    while let Some(krate) = next.pop() {
        let dependencies = table(&krate, "[dependencies]").into_iter();
        let names = dependencies.filter_map(|line| Some(line.split_once(" = ")?.0.to_string()));
        let own = names.filter(|name| name.starts_with("flagstone"));
        if all.insert(krate) {
            next.extend(own);
        }
    }
    all
}

/// Whether a crate asks for mistakes by its default features.
fn asks_by_default(krate: &str) -> bool {
    let mut lines = table(krate, "[features]").into_iter();
    lines.any(|line| line.starts_with("default = ") && line.contains("\"mistakes\""))
}

/// Whether a crate, or one that it is built on, asks for mistakes.
fn asks(krate: &str) -> bool {
    let asks = |line: &String| {
        let name = line.split_once(" = ").map_or("", |(name, _)| name);
        let has_defaults = !line.contains("default-features = false");
        let is_own = name.starts_with("flagstone");
        line.contains("\"mistakes\"") || is_own && has_defaults && asks_by_default(name)
    };
    let all = built_on(krate);
    let mut dependencies = all.iter().flat_map(|krate| table(krate, "[dependencies]"));
    asks_by_default(krate) || dependencies.any(|line| asks(&line))
}

#[test]
fn what_ships_asks_for_no_mistakes() {
    assert_eq!(table("flagstone", "[features]"), ["mistakes = []"]);
    for krate in ["flagstone-host", "flagstone-index"] {
        let features = table(krate, "[features]");
        let default = features.iter().any(|line| line.starts_with("default"));
        assert!(!default && !asks(krate), "{krate}");
    }
    for krate in [
        "flagstone-lab",
        "flagstone-nbd",
        "flagstone-py",
        "flagstone-record",
        "flagstone-sqlite-tools",
    ] {
        assert!(!asks(krate), "{krate}");
    }
    for krate in [
        "flagstone-btree",
        "flagstone-store",
        "flagstone-store-tools",
        "flagstone-sqlite",
    ] {
        assert!(!asks(krate), "{krate}");
        let all = built_on(krate);
        let foreign = ["flagstone-host", "flagstone-index", "flagstone-lab"];
        assert!(!foreign.iter().any(|name| all.contains(*name)), "{all:?}");
    }
    // The control: the program `flagstone` asks, unless it is built without its default features.
    assert!(asks("flagstone-cli"));
}
