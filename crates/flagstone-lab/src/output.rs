//! Result files, written atomically.
//!
//! A result is written to an unnamed file, made durable, and only then given the name that the user
//! chose; until then any previous file stays, whatever fails. A killed process leaves nothing
//! behind. If the file system does not support unnamed files, the draft is a hidden file beside the
//! result, which a killed process leaves.
//!
//! Only regular files that are not inputs of the same command may be replaced. A symbolic link
//! stays: its target is replaced. Pipes, sockets, devices and folders are refused.

use rustix::fs::{AtFlags, CWD, OFlags};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};
use thiserror::Error;

/// Maximum number of symbolic links to follow, as in the system.
const LINKS_MAX: usize = 40;

/// The destination of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    path: PathBuf,
    /// The path after resolving all symbolic links.
    file: PathBuf,
    /// Whether drafts are unnamed.
    unnamed: bool,
}

/// Why a result was not written. A previous file is unchanged.
#[derive(Debug, Error)]
#[error("{} cannot be written: {why}", path.display())]
pub struct OutputError {
    /// The file as the user named it.
    pub path: PathBuf,
    /// The reason.
    pub why: Why,
}

/// Why a result cannot be written to its destination.
#[derive(Debug, Error)]
pub enum Why {
    /// `-` was given for a result that cannot be written to standard output.
    #[error("this result cannot be written to standard output: give a file")]
    StandardOutput,
    /// The destination exists and is not a regular file.
    #[error("it is a {0}: a result can be written only to a regular file")]
    NoFile(&'static str),
    /// The destination should be a folder.
    #[error("it is not a folder")]
    NotAFolder,
    /// The name is not a valid file name.
    #[error("it is not a valid file name")]
    NoName,
    /// The destination is this input file.
    #[error("the output is the same file as the input {}: give another path", .0.display())]
    Input(PathBuf),
    /// The folder does not exist.
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// A system call failed.
    #[error("{0}")]
    Io(io::Error),
}

impl Output {
    /// Checks that a result can be written to `path`; changes nothing. `inputs` are the files from
    /// which the result is made; `-` is standard input.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn new(path: &Path, inputs: &[&Path]) -> Result<Output, OutputError> {
        let fail = |why| OutputError {
            path: path.into(),
            why,
        };
        if path == Path::new("-") {
            return Err(fail(Why::StandardOutput));
        }
        let there = replaceable(path).map_err(fail)?;
        if let Some(there) = &there {
            let same = |input: &&&Path| {
                let input = if **input == Path::new("-") {
                    Path::new("/dev/stdin")
                } else {
                    **input
                };
                fs::metadata(input).is_ok_and(|input| same_file(&input, there))
            };
            if let Some(input) = inputs.iter().find(same) {
                return Err(fail(Why::Input(input.to_path_buf())));
            }
            // A file that its owner has made read-only must not be replaced either.
            let opened = OpenOptions::new().write(true).open(path);
            opened.map_err(|error| fail(Why::Io(error)))?;
        }
        let file = behind_links(path).map_err(|error| fail(Why::Io(error)))?;
        // The name of an open file in /proc may refer to a file that was removed.
        let found = fs::metadata(&file).ok();
        let is_it = |there: &Metadata| found.as_ref().is_some_and(|found| same_file(found, there));
        if !there.as_ref().is_none_or(is_it) {
            return Err(fail(Why::NoName));
        }
        let mut output = Output {
            path: path.into(),
            file,
            unnamed: false,
        };
        if output.file.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(fail(Why::NoName));
        }
        if !output.folder().is_dir() {
            return Err(fail(Why::NoFolder(output.folder().into())));
        }
        // Detect unsupported operations now, not when there is a result to lose.
        let folder = output.folder();
        output.unnamed = unnamed(folder).is_ok_and(|file| link(&file, folder).is_ok());
        output.draft()?;
        Ok(output)
    }

    /// The file as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        match self.file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// An empty draft of the result.
    ///
    /// # Errors
    /// No file can be created in the folder.
    pub fn draft(&self) -> Result<Draft, OutputError> {
        let kind = if self.unnamed {
            unnamed(self.folder()).map(Kind::Unnamed)
        } else {
            hidden(self.folder()).map(Kind::Hidden)
        };
        let kind = kind.map_err(|error| self.failed(error))?;
        Ok(Draft {
            output: self.clone(),
            kind,
        })
    }

    /// Writes a complete result.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        let mut draft = self.draft()?;
        let written = draft.write_all(bytes);
        written.map_err(|error| self.failed(error))?;
        draft.finish()
    }

    /// The error for a failed system call.
    pub fn failed(&self, error: io::Error) -> OutputError {
        OutputError {
            path: self.path.clone(),
            why: Why::Io(error),
        }
    }
}

/// Creates a folder for results, and its parents.
///
/// # Errors
/// [`OutputError`].
pub fn make_folder(path: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(path).map_err(|error| OutputError {
        path: path.into(),
        why: if path.exists() && !path.is_dir() {
            Why::NotAFolder
        } else {
            Why::Io(error)
        },
    })
}

/// A result being written. Dropping it discards it.
#[derive(Debug)]
pub struct Draft {
    output: Output,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Unnamed(File),
    Hidden(NamedTempFile<File>),
}

impl Draft {
    fn file(&mut self) -> &mut File {
        match &mut self.kind {
            Kind::Unnamed(file) => file,
            Kind::Hidden(file) => file.as_file_mut(),
        }
    }

    /// Makes the draft durable and gives it its name.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn finish(mut self) -> Result<(), OutputError> {
        let output = self.output.clone();
        let there = replaceable(&output.file);
        let there = there.map_err(|why| OutputError {
            path: output.path.clone(),
            why,
        })?;
        if let Some(there) = there {
            let kept = self.file().set_permissions(there.permissions());
            kept.map_err(|error| output.failed(error))?;
        }
        let synced = self.file().sync_all();
        let named = synced.and_then(|()| self.name());
        named.map_err(|error| output.failed(error))
    }

    fn name(self) -> io::Result<()> {
        let (folder, target) = (self.output.folder(), &self.output.file);
        let hidden = match self.kind {
            Kind::Hidden(file) => file.into_temp_path(),
            Kind::Unnamed(file) => link(&file, folder)?,
        };
        hidden.persist(target).map_err(|refused| refused.error)?;
        // Sync the folder if possible; the result is complete in any case.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// The existing file, if it may be replaced; `None` if nothing exists.
fn replaceable(path: &Path) -> Result<Option<Metadata>, Why> {
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Why::Io(error)),
    };
    let kind = there.file_type();
    match kind {
        _ if kind.is_file() => Ok(Some(there)),
        _ if kind.is_dir() => Err(Why::NoFile("folder")),
        _ if kind.is_fifo() => Err(Why::NoFile("pipe")),
        _ if kind.is_socket() => Err(Why::NoFile("socket")),
        _ => Err(Why::NoFile("device")),
    }
}

fn same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The final target of symbolic links, whether it exists or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&at) {
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            // Not a link, or missing.
            Err(_) => return Ok(at),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// An unnamed file, if the file system supports that.
fn unnamed(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .mode(0o666)
        .custom_flags(OFlags::TMPFILE.bits().cast_signed())
        .open(folder)
}

/// Gives an unnamed file a hidden name.
fn link(file: &File, folder: &Path) -> io::Result<TempPath> {
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    let link = |name: &Path| Ok(rustix::fs::linkat(CWD, &itself, CWD, name, follow)?);
    Ok(builder().make_in(folder, link)?.into_temp_path())
}

fn hidden(folder: &Path) -> io::Result<NamedTempFile<File>> {
    let create = |name: &Path| OpenOptions::new().write(true).create_new(true).open(name);
    builder().make_in(folder, create)
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flagstone-").suffix(".partial");
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with an existing file.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "before").unwrap();
        (folder, file)
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_result_takes_its_place_when_it_is_whole_and_a_draft_that_is_dropped_is_gone() {
        let (folder, file) = place();
        for path in [file.clone(), folder.path().join("new")] {
            let was = fs::read(&path).ok();
            let output = Output::new(&path, &[]).unwrap();
            let mut draft = output.draft().unwrap();
            draft.write_all(b"half").unwrap();
            assert_eq!(fs::read(&path).ok(), was);
            drop(draft);
            assert_eq!(fs::read(&path).ok(), was);
            output.write(b"whole").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"whole");
        }
        assert_eq!(names(folder.path()), ["file", "new"]);
    }

    /// The fallback for file systems without unnamed files.
    #[test]
    fn a_hidden_draft_does_the_same() {
        let (folder, file) = place();
        let draft = || Draft {
            output: Output::new(&file, &[]).unwrap(),
            kind: Kind::Hidden(hidden(folder.path()).unwrap()),
        };
        let mut half = draft();
        half.write_all(b"half").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(half);
        assert_eq!(names(folder.path()), ["file"]);
        assert_eq!(fs::read(&file).unwrap(), b"before");
        let mut whole = draft();
        whole.write_all(b"whole").unwrap();
        whole.finish().unwrap();
        assert_eq!(names(folder.path()), ["file"]);
        assert_eq!(fs::read(&file).unwrap(), b"whole");
    }

    /// The destination is checked again: what became a folder or a pipe meanwhile is not replaced.
    #[test]
    fn what_the_place_has_become_meanwhile_stays() {
        let (folder, file) = place();
        let output = Output::new(&file, &[]).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let error = output.write(b"whole").unwrap_err();
        assert!(matches!(error.why, Why::NoFile("folder")), "{error}");
        assert!(file.is_dir());
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn the_name_of_a_removed_file_is_none() {
        let (folder, file) = place();
        let open = File::open(&file).unwrap();
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        Output::new(Path::new(&name), &[]).unwrap();
        fs::remove_file(&file).unwrap();
        let removed = Output::new(Path::new(&name), &[]).unwrap_err();
        assert!(matches!(removed.why, Why::NoName), "{removed}");
        assert_eq!(names(folder.path()).len(), 0);
    }

    #[test]
    fn a_name_without_a_folder_is_one_of_this_folder() {
        let name = format!("flagstone-output-{}", std::process::id());
        let output = Output::new(Path::new(&name), &[]).unwrap();
        output.write(b"whole").unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"whole");
        fs::remove_file(&name).unwrap();
        for name in ["", ".", "..", "/"] {
            assert!(Output::new(Path::new(name), &[]).is_err(), "{name:?}");
        }
    }
}
