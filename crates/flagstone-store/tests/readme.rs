//! The README's example of the key-value store is this program: it compiles, runs, and is printed
//! there as it is here.

use flagstone_store::Store;

/// Where the example begins and ends in this file.
const BEGIN: &str = "// the README begins\n";
const END: &str = "// the README ends";

#[rustfmt::skip]
fn example() -> Result<(), Box<dyn std::error::Error>> {
// the README begins
let store = Store::open("shop.flag")?;
let mut tx = store.write()?;                     // serialisable, with savepoints
tx.table("users")?.insert(b"ada", b"London")?;
tx.commit()?;                                    // durable

let users = store.read()?.table("users")?;       // a snapshot: does not wait
for pair in users.range("a".."f")?.rev() {
    let (name, city) = pair?;
    println!("{} in {}", name.escape_ascii(), city.escape_ascii());
}
// the README ends
    assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"London"[..]));
    Ok(())
}

#[test]
fn the_example_of_the_readme_is_this_program() {
    let (_, here) = include_str!("readme.rs").rsplit_once(BEGIN).unwrap();
    let (here, _) = here.split_once(END).unwrap();
    let readme = include_str!("../../../README.md");
    let shown = format!("```rust\nuse flagstone_store::Store;\n\n{here}```");
    assert!(
        readme.contains(&shown),
        "README.md shows another program than\n{shown}"
    );
}

#[test]
fn the_example_of_the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    example().unwrap();
}
