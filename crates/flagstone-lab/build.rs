//! Gives the program a fingerprint of the sources that decide what a run measures, so that results
//! kept on disk (`flagstone reproduce`) are not taken for those of another model.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let mut files = Vec::new();
    for folder in [
        "src",
        "../flagstone/src",
        "../flagstone-host/src",
        "../flagstone-btree/src",
        "../flagstone-index/src",
    ] {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files);
    }
    // Claims, verdicts and reports judge what was measured, and sweeps say what is run; they do not
    // change it.
    files.retain(|path| {
        let judges = path.starts_with("src/reproduce") || path.starts_with("src/sweep");
        !judges || path.starts_with("src/reproduce/engine")
    });
    files.sort();
    // FNV-1a: no cryptography is needed to notice an edit.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for path in &files {
        let name = path.to_string_lossy().into_owned().into_bytes();
        for byte in name.into_iter().chain(fs::read(path).unwrap_or_default()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=FLAGSTONE_MODEL={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
}
