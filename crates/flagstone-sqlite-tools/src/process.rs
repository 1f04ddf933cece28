//! What the kernel reports on this process and its files: bytes written, memory, descriptors, and
//! disk space.

use flagstone_terminal::Failure;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of the unit in which `stat` counts the space of a file.
const UNIT_BYTES: u64 = 512;

/// Peak memory of this process, in bytes.
pub(crate) fn memory() -> Result<u64, Failure> {
    let all = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = all.lines();
    let found = lines.find_map(|line| {
        let words = line.strip_prefix("VmHWM:")?;
        words.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let found = found.map(|kib| kib * 1024);
    found.ok_or_else(|| {
        Failure::Usage("the kernel does not report the memory of the process".into())
    })
}

/// The number of descriptors that this process has open.
pub(crate) fn descriptors() -> Result<u64, Failure> {
    // Reading the folder opens one descriptor itself.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

/// Disk space of a file and its side files (see [`files_of`]), in bytes.
pub(crate) fn room(path: &Path) -> Result<u64, Failure> {
    let mut room = 0;
    for file in files_of(path)? {
        // SQLite may delete its log at any moment.
        room += std::fs::metadata(file).map_or(0, |meta| meta.blocks() * UNIT_BYTES);
    }
    Ok(room)
}

/// Bytes that this process has caused to be written, as the kernel counts them.
pub(crate) fn written() -> Result<u64, Failure> {
    let all = std::fs::read_to_string("/proc/self/io")?;
    let mut lines = all.lines();
    let found = lines.find_map(|line| line.strip_prefix("write_bytes: ")?.trim().parse().ok());
    found.ok_or_else(|| {
        Failure::Usage("the kernel does not count the bytes that a process writes".into())
    })
}

/// A file and its side files, whose names are the file's name, a hyphen and a suffix.
pub(crate) fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name);
        if rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'-') {
            files.push(entry.path());
        }
    }
    Ok(files)
}
