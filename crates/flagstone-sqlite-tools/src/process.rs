//! What the kernel says of this process and of the files that it has: bytes written, memory,
//! descriptors, room on disk.

use flagstone_terminal::Failure;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a unit in which the system counts the room of a file.
const UNIT_BYTES: u64 = 512;

/// The most memory that this process has had so far, in bytes.
pub(crate) fn memory() -> Result<u64, Failure> {
    let all = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = all.lines();
    let found = lines.find_map(|line| {
        let words = line.strip_prefix("VmHWM:")?;
        words.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let found = found.map(|kib| kib * 1024);
    found.ok_or_else(|| Failure::Usage("the kernel does not say how much memory it gave".into()))
}

/// Descriptors that this process has open.
pub(crate) fn descriptors() -> Result<u64, Failure> {
    // One of them reads the folder.
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64 - 1)
}

/// Bytes on disk that a file takes, with those whose names begin with its name and a hyphen.
pub(crate) fn room(path: &Path) -> Result<u64, Failure> {
    let mut room = 0;
    for file in files_of(path)? {
        // SQLite takes its log away when it likes.
        room += std::fs::metadata(file).map_or(0, |meta| meta.blocks() * UNIT_BYTES);
    }
    Ok(room)
}

/// Bytes that this process has had written, by the kernel's count.
pub(crate) fn written() -> Result<u64, Failure> {
    let all = std::fs::read_to_string("/proc/self/io")?;
    let mut lines = all.lines();
    let found = lines.find_map(|line| line.strip_prefix("write_bytes: ")?.trim().parse().ok());
    found.ok_or_else(|| {
        Failure::Usage("the kernel does not count the bytes that a process writes".into())
    })
}

/// A file and those whose names begin with its name and a hyphen: what a log adds.
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
