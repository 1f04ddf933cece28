//! Reads files named by a user, so that an unsuitable file gives an error instead of an endless
//! wait or exhausted memory.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Exceeds the size of any text that a user writes by hand.
const TEXT_MAX: u64 = 16 << 20;

/// Opens a file for reading. Refuses pipes, which would wait for a writer, and endless devices.
///
/// # Errors
/// System errors, or the file is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`].
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file written by hand, or of a pipe.
///
/// # Errors
/// System errors, text that is not UTF-8, or text of more than 16 MiB.
pub fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_MAX {
        let why = format!("it has more than {TEXT_MAX} bytes, and is no text to be read here");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let why = format!("it is no text: byte {at} is not UTF-8");
        io::Error::new(ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_what_does_not_end_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (file, odd) = (folder.path().join("file"), folder.path().join("odd"));
        fs::write(&file, "text").unwrap();
        fs::write(&odd, b"ab\xff").unwrap();
        assert_eq!(bytes(&file).unwrap(), b"text");
        assert_eq!(text(&file).unwrap(), "text");
        let said = |error: io::Result<String>| error.unwrap_err().to_string();
        assert!(said(text(&odd)).contains("byte 2 is not UTF-8"));
        assert!(said(text(Path::new("/dev/zero"))).contains("more than 16777216 bytes"));
        assert!(said(text(folder.path())).contains("a folder"));
        assert!(
            bytes(folder.path())
                .unwrap_err()
                .to_string()
                .contains("a folder")
        );
        let device = bytes(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(device.contains("not a regular file"), "{device}");
    }
}
