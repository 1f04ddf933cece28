//! The files of golden devices and stores: made once, packed, never changed.
//! data/golden/README.md says how they are made.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder or file of that name among the golden ones.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../data/golden")
        .join(name)
}

/// Writes a file that is not there yet, if that is asked for.
pub(crate) fn make(path: &Path, bytes: impl FnOnce() -> Vec<u8>) {
    if std::env::var_os("FLAGSTONE_BLESS").is_none() || path.exists() {
        return;
    }
    let packed = zstd::stream::encode_all(&bytes()[..], 19).expect("a vector takes it");
    fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
    fs::write(path, packed).expect("it can be written");
}

/// What a file holds.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    let packed = fs::read(path).expect("a golden file");
    zstd::stream::decode_all(&packed[..]).expect("it is whole")
}
