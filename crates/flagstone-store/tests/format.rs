//! The document of a store's format is what the code says.

use std::fmt::Write;
use std::path::PathBuf;

/// What docs/store-format.md holds below this line is written by this file.
const GENERATED: &str = "<!-- below: generated, see crates/flagstone-store/tests/format.rs -->\n";

#[test]
fn the_document_of_the_format_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/store-format.md");
    let old = std::fs::read_to_string(&path).expect("the document");
    let (by_hand, _) = old.split_once(GENERATED).expect("a generated part");
    let mut new = format!("{by_hand}{GENERATED}");
    for record in flagstone_store::LAYOUTS
        .iter()
        .chain(flagstone_mtd::LAYOUTS)
    {
        let name = record.path.rsplit("::").next().expect("a module");
        let doc = record.doc.trim();
        let _ = write!(new, "\n### `{name}`\n\n{doc} {} bytes.\n\n", record.size);
        new.push_str("| field | offset | bytes | meaning |\n|---|---:|---:|---|\n");
        for (name, offset, bytes, meaning) in record.fields {
            let name = name.to_lowercase();
            let _ = writeln!(new, "| `{name}` | {offset} | {bytes} | {meaning} |");
        }
    }
    if std::env::var_os("FLAGSTONE_BLESS").is_some() {
        std::fs::write(&path, new).expect("the document can be written");
    } else {
        assert!(
            old == new,
            "docs/store-format.md is out of date: FLAGSTONE_BLESS=1 cargo test -p flagstone-store"
        );
    }
}
