//! Runs `pg_waldump`: finds the program and the log, and explains errors.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::server::{Lsn, Server};

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalError {
    /// The program is not found.
    #[error(
        "cannot find pg_waldump of PostgreSQL {major} ({tried}), which is in the server's package: \
         give its path, for example --waldump /usr/lib/postgresql/{major}/bin/pg_waldump"
    )]
    NotFound {
        /// The major version of the server.
        major: u32,
        /// The places that were searched.
        tried: String,
    },
    /// The program and the server have different versions.
    #[error(
        "{} is of PostgreSQL {found}, but the server is of {wanted}: set --waldump to pg_waldump \
         of PostgreSQL {wanted}",
        path.display()
    )]
    Version {
        /// The path of the program.
        path: PathBuf,
        /// The major version that the program prints.
        found: String,
        /// The major version of the server.
        wanted: u32,
    },
    /// The server does not tell its data directory.
    #[error(
        "the server does not report its data directory to this user: connect as a superuser or a \
         member of pg_read_all_settings, or set --pgdata"
    )]
    DirectoryUnknown,
    /// The directory of the log cannot be read.
    #[error(
        "cannot read {}: {error}; run this command on the server's machine as the server's user \
         (for example with sudo -u postgres), or set --pgdata to a data directory that can be read",
        path.display()
    )]
    Unreadable {
        /// The directory or file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The server has removed or recycled a segment of the log.
    #[error(
        "the server has already removed {segment} of its log from {}: set wal_keep_size to more \
         than a run writes (here at least {mebibytes}MB), or record fewer transactions",
        directory.display()
    )]
    Recycled {
        /// The name of the segment.
        segment: String,
        /// The directory of the log.
        directory: PathBuf,
        /// The size of the log of this run, in MiB, with a margin.
        mebibytes: u64,
    },
    /// The program ended with an error.
    #[error("{} failed ({status}): {message}", path.display())]
    Failed {
        /// The path of the program.
        path: PathBuf,
        /// Its exit status.
        status: String,
        /// Its output on standard error.
        message: String,
    },
}

/// `pg_waldump` and the log that it reads. Both were found accessible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wal {
    program: PathBuf,
    directory: PathBuf,
    segment_bytes: u64,
    timeline: u32,
}

impl Wal {
    /// Finds `pg_waldump` and the log of a server. `program` and `data` take precedence over the
    /// usual places.
    pub(crate) fn find(
        server: &Server,
        program: Option<&Path>,
        data: Option<&Path>,
    ) -> Result<Self, WalError> {
        Ok(Wal {
            program: find_program(server.major, program)?,
            directory: find_log(server, data)?,
            segment_bytes: server.segment_bytes,
            timeline: server.timeline,
        })
    }

    /// Runs `pg_waldump` on the log between two positions. `consume` reads its output.
    pub(crate) fn read<T>(
        &self,
        start: Lsn,
        end: Lsn,
        consume: impl FnOnce(&mut dyn BufRead) -> T,
    ) -> Result<T, WalError> {
        self.check_segments(start, end)?;
        let failed = |status: String, message: String| WalError::Failed {
            path: self.program.clone(),
            status,
            message: message.trim().to_owned(),
        };
        let start_failed = |error: std::io::Error| failed("not started".into(), error.to_string());
        let mut child = Command::new(&self.program)
            .arg("--path")
            .arg(&self.directory)
            .args(["--timeline", &self.timeline.to_string()])
            .args(["--start", &start.to_string(), "--end", &end.to_string()])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start_failed)?;
        let mut complaints = child.stderr.take().expect("piped");
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = complaints.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().expect("piped"));
        let result = consume(&mut output);
        // If `consume` has stopped early, closing the pipe makes the program end.
        let unread = output.fill_buf().is_ok_and(|rest| !rest.is_empty());
        drop(output);
        let status = child.wait().map_err(start_failed)?;
        let message = complaints.join().unwrap_or_default();
        if status.success() || unread {
            return Ok(result);
        }
        Err(failed(status.to_string(), message))
    }

    /// Checks that all segments of a range exist. A missing one has been recycled.
    fn check_segments(&self, start: Lsn, end: Lsn) -> Result<(), WalError> {
        let last = end.0.saturating_sub(1).max(start.0) / self.segment_bytes;
        for number in start.0 / self.segment_bytes..=last {
            let segment = segment_name(self.timeline, number, self.segment_bytes);
            if !self.directory.join(&segment).exists() {
                return Err(WalError::Recycled {
                    segment,
                    directory: self.directory.clone(),
                    mebibytes: (end.0 - start.0).div_ceil(1 << 20) + 64,
                });
            }
        }
        Ok(())
    }
}

/// The file name of a segment: the timeline, then the segment number in two parts.
fn segment_name(timeline: u32, number: u64, segment_bytes: u64) -> String {
    let parts = (1 << 32) / segment_bytes;
    format!("{timeline:08X}{:08X}{:08X}", number / parts, number % parts)
}

/// The directory of the log, after checking that its files can be read.
fn find_log(server: &Server, given: Option<&Path>) -> Result<PathBuf, WalError> {
    let data = given
        .map(Path::to_owned)
        .or_else(|| server.data_directory.as_ref().map(PathBuf::from))
        .ok_or(WalError::DirectoryUnknown)?;
    let directory = data.join("pg_wal");
    let unreadable = |path: &Path, error| WalError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let entries = std::fs::read_dir(&directory).map_err(|error| unreadable(&directory, error))?;
    let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    if let Some(file) = files.filter(|path| path.is_file()).min() {
        File::open(&file).map_err(|error| unreadable(&file, error))?;
    }
    Ok(directory)
}

fn find_program(major: u32, given: Option<&Path>) -> Result<PathBuf, WalError> {
    if let Some(path) = given {
        let path = if path.is_dir() {
            path.join("pg_waldump")
        } else {
            path.to_owned()
        };
        return match version_of(&path) {
            None => Err(WalError::NotFound {
                major,
                tried: format!("{} does not run", path.display()),
            }),
            Some(found) if found != major.to_string() => Err(WalError::Version {
                path,
                found,
                wanted: major,
            }),
            Some(_) => Ok(path),
        };
    }
    let mut candidates = vec![PathBuf::from("pg_waldump")];
    for directory in [
        format!("/usr/lib/postgresql/{major}/bin"),
        format!("/usr/pgsql-{major}/bin"),
        format!("/opt/homebrew/opt/postgresql@{major}/bin"),
        format!("/usr/local/opt/postgresql@{major}/bin"),
        "/usr/local/pgsql/bin".to_owned(),
    ] {
        candidates.push(Path::new(&directory).join("pg_waldump"));
    }
    let versions: Vec<Option<String>> = candidates.iter().map(|path| version_of(path)).collect();
    let wanted = major.to_string();
    if let Some(at) = versions
        .iter()
        .position(|found| found.as_ref() == Some(&wanted))
    {
        return Ok(candidates.swap_remove(at));
    }
    let others = candidates.into_iter().zip(versions);
    match others
        .filter_map(|(path, found)| found.map(|found| (path, found)))
        .next()
    {
        Some((path, found)) => Err(WalError::Version {
            path,
            found,
            wanted: major,
        }),
        None => {
            let tried = format!("not in PATH, not in /usr/lib/postgresql/{major}/bin");
            Err(WalError::NotFound { major, tried })
        }
    }
}

/// The major version that a `pg_waldump` prints, or `None` if it does not run.
fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// Parses a version line: `pg_waldump (PostgreSQL) 15.14 (Debian …)` is version 15.
fn parse_version(text: &str) -> Option<String> {
    let rest = text.split_once("(PostgreSQL)")?.1.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_named_as_the_server_names_them() {
        let mebibytes = 1 << 20;
        assert_eq!(
            segment_name(1, 5, 16 * mebibytes),
            "000000010000000000000005"
        );
        assert_eq!(
            segment_name(2, 256, 16 * mebibytes),
            "000000020000000100000000"
        );
        assert_eq!(
            segment_name(1, 5, 1024 * mebibytes),
            "000000010000000100000001"
        );
    }

    #[test]
    fn versions_are_read() {
        let text = "pg_waldump (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n";
        assert_eq!(parse_version(text).as_deref(), Some("15"));
        assert_eq!(
            parse_version("pg_waldump (PostgreSQL) 18beta1").as_deref(),
            Some("18")
        );
        assert_eq!(parse_version("something else 3"), None);
    }

    #[test]
    fn a_program_that_is_none_is_reported_with_what_to_do() {
        let error = find_program(15, Some(Path::new("/nonexistent/pg_waldump"))).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("--waldump /usr/lib/postgresql/15/bin"),
            "{error}"
        );
    }

    #[test]
    fn a_removed_segment_is_told_from_one_that_is_there() {
        let directory = std::env::temp_dir().join(format!("flagstone-wal-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("000000010000000000000002"), b"").unwrap();
        let wal = Wal {
            program: "pg_waldump".into(),
            directory: directory.clone(),
            segment_bytes: 1 << 24,
            timeline: 1,
        };
        let within = wal.check_segments(Lsn(2 << 24), Lsn(3 << 24));
        let before = wal.check_segments(Lsn((2 << 24) - 1), Lsn(3 << 24));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(
            within.is_ok(),
            "a range that ends with its segment needs no other: {within:?}"
        );
        let error = before.unwrap_err().to_string();
        assert!(error.contains("000000010000000000000001") && error.contains("wal_keep_size"));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_reported_with_what_to_do() {
        let mut server = Server::default();
        let error = find_log(&server, None).unwrap_err();
        assert!(error.to_string().contains("set --pgdata"), "{error}");
        server.data_directory = Some("/nonexistent".into());
        let error = find_log(&server, None).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("cannot read /nonexistent/pg_wal"),
            "{error}"
        );
        assert!(error.to_string().contains("sudo -u postgres"), "{error}");
    }
}
