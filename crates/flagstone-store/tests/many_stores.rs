//! Many stores in one process: what an open store takes of descriptors, and what a process hears
//! that has no more of them.
//!
//! The test of the limit runs in a process of its own, whose shell has lowered the limit.

use flagstone_store::{OpenOptions, PageStore, StoreError};
use std::path::Path;
use std::process::Command;

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

fn open(folder: &Path, number: usize) -> Result<PageStore, StoreError> {
    let path = folder.join(format!("{number}.flag"));
    let mut store = PageStore::open(&path, &OpenOptions::default())?;
    let tx = store.begin()?;
    store.write(tx, flagstone::units::Lpn(number as u32), b"some bytes")?;
    store.commit(tx)?;
    Ok(store)
}

#[test]
fn an_open_store_has_one_descriptor_and_a_limit_of_them_is_named() {
    let itself = std::env::current_exe().expect("a name");
    let limited = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 60 && exec \"$0\" --ignored --exact within_a_limit --nocapture",
        ])
        .arg(itself)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&limited.stdout);
    assert!(limited.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "its caller has lowered the limit"]
fn within_a_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = descriptors();
    let mut stores: Vec<PageStore> = Vec::new();
    for number in 0..10 {
        stores.push(open(folder.path(), number).expect("a store"));
    }
    // One of its own at most, and one for the whole process that forked ones inherit.
    assert!(
        descriptors() <= before + 11,
        "{} of 10",
        descriptors() - before
    );
    let refused = loop {
        match open(folder.path(), stores.len()) {
            Ok(store) => stores.push(store),
            Err(refused) => break refused,
        }
    };
    assert!(stores.len() > 40, "{} stores", stores.len());
    assert!(refused.is_out_of_descriptors(), "{refused}");
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
    // Those that are open go on, as long as there is not one descriptor more.
    for store in stores.iter_mut().take(2) {
        for _ in 0..200 {
            let tx = store.begin().expect("it begins");
            store
                .write(tx, flagstone::units::Lpn(1), b"other bytes")
                .expect("room");
            store.commit(tx).expect("it commits");
        }
    }
    stores.pop();
    stores.push(open(folder.path(), 1_000).expect("a store"));
}
