//! The build script of `flagstone-papers` and `flagstone-campaign`: computes a fingerprint of the
//! sources that affect measurements. Results stored on disk (`flagstone reproduce`) carry it, so
//! that results of another version are not mistaken for current ones.

use std::fs;
use std::path::{Path, PathBuf};

/// A crate that the lab uses, but that no stored result depends on.
const APART: &str = "flagstone-store";

fn main() {
    let mut crates = Vec::new();
    depend(Path::new("."), &mut crates);
    assert!(crates.len() > 1, "Cargo.toml names no crate by its path");
    let mut files = Vec::new();
    for folder in &crates {
        let manifest = folder.join("Cargo.toml");
        let sources = folder.join("src");
        for path in [&manifest, &sources] {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        collect(&sources, &mut files);
    }
    // Claims, verdicts and reports judge measurements, and sweeps select runs; neither changes a
    // measurement.
    files.retain(|path| {
        let path = path.strip_prefix("./src").unwrap_or(path);
        let judges = path.starts_with("reproduce") || path.starts_with("sweep");
        !judges || path.starts_with("reproduce/engine")
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

/// Adds a crate, and the workspace crates that it depends on.
fn depend(folder: &Path, crates: &mut Vec<PathBuf>) {
    if crates.contains(&folder.to_path_buf()) {
        return;
    }
    crates.push(folder.into());
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let manifest = manifest
        .split("[dev-dependencies]")
        .next()
        .unwrap_or_default();
    for rest in manifest.split("path = \"../").skip(1) {
        let name = rest.split('"').next().unwrap_or_default();
        if name != APART {
            depend(&Path::new("..").join(name), crates);
        }
    }
}

/// Adds the sources below a folder, and the tables that they include, such as those of devices.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|kind| kind == "rs" || kind == "toml")
        {
            files.push(path);
        }
    }
}
