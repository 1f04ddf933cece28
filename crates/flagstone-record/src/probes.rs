//! Runs `bpftrace` on a server: checks the requirements, waits for first events, stops it.
//!
//! The write-ahead log contains no reads. A server built with probes (`--enable-dtrace`, as in the
//! packages of Debian and PostgreSQL) reports each access to a tracer in the kernel, for which root
//! privileges are needed. The server is neither changed nor restarted.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::server::Server;
use flagstone_lab::trace::bpftrace;

/// Pages of the buffer between the kernel and bpftrace, for each processor.
const QUEUE_PAGES: &str = "2048";
/// How long to wait until the tracer has attached and reports events.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why reads cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// This process does not run as root.
    #[error(
        "--reads needs root to trace the server: run this command with sudo, or leave --reads out \
         and record only the writes, from the log"
    )]
    NotRoot,
    /// bpftrace is not installed, or does not run.
    #[error(
        "--reads needs bpftrace, which does not run: {0}; install it (Debian: apt install \
         bpftrace), or leave --reads out and record only the writes, from the log"
    )]
    NotFound(String),
    /// The path of the server's executable is unknown.
    #[error(
        "cannot find the server's program: {0}; --reads must run on the server's machine; set \
         --pgdata to its data directory"
    )]
    ServerUnknown(String),
    /// The server's executable has no probes.
    #[error(
        "{} lacks the probes or symbols that --reads needs ({missing}): it was built without \
         --enable-dtrace, or its symbols were stripped; use the server of Debian's or PostgreSQL's \
         packages, or leave --reads out",
        server.display()
    )]
    NoProbes {
        /// The path of the server's executable.
        server: PathBuf,
        /// The probes or the symbol that it lacks.
        missing: String,
    },
    /// bpftrace ended with an error.
    #[error(
        "bpftrace failed ({status}): {message}; a container or a locked kernel may forbid tracing: \
         try on the host itself"
    )]
    Failed {
        /// Its exit status.
        status: String,
        /// Its output on standard error.
        message: String,
    },
    /// bpftrace runs but reports no event of the server.
    #[error(
        "bpftrace runs but saw no event of the server within {} s: check that the server runs {}, \
         on this machine",
        PATIENCE.as_secs(),
        .0.display()
    )]
    Blind(PathBuf),
    /// A file could not be read or written.
    #[error("{}: {error}; set TMPDIR to use another folder for temporary files", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// The server and programs needed for tracing, all checked by [`Probes::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probes {
    server: PathBuf,
}

impl Probes {
    /// Checks that this user can trace the server, and finds the required programs.
    pub(crate) fn find(server: &Server, data: Option<&Path>) -> Result<Self, ProbeError> {
        if !is_root() {
            return Err(ProbeError::NotRoot);
        }
        run(&["--version"])?;
        let server = executable(server, data)?;
        let usdt = format!("usdt:{}:postgresql:*", server.display());
        let uprobe = |name: &str| format!("uprobe:{}:{name}", server.display());
        let wanted = [
            (usdt.clone(), "transaction__start"),
            (usdt, "buffer__read__done"),
            (uprobe("MarkBufferDirty"), "MarkBufferDirty"),
            (uprobe("ReadBufferExtended"), "ReadBufferExtended"),
        ];
        for (pattern, name) in wanted {
            let listed = run(&["-l", &pattern])?;
            if !String::from_utf8_lossy(&listed.stdout).contains(name) {
                let missing = name.to_owned();
                return Err(ProbeError::NoProbes { server, missing });
            }
        }
        Ok(Probes { server })
    }

    /// Starts the tracer. Calls `stir` repeatedly until the tracer reports events; `stir` must make
    /// the server run some transactions.
    pub(crate) fn attach<E: From<ProbeError>>(
        &self,
        mut stir: impl FnMut() -> Result<(), E>,
    ) -> Result<Running, E> {
        let mut running = self.start()?;
        let begun = Instant::now();
        loop {
            stir()?;
            if running.sees()? {
                return Ok(running);
            }
            if begun.elapsed() > PATIENCE {
                return Err(ProbeError::Blind(self.server.clone()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn start(&self) -> Result<Running, ProbeError> {
        let name = format!("flagstone-probes-{}", std::process::id());
        let output = std::env::temp_dir().join(name);
        let complaints = output.with_extension("err");
        let complain = |path: &Path, error| ProbeError::File {
            path: path.to_owned(),
            error,
        };
        let stdout = create_anew(&output).map_err(|error| complain(&output, error))?;
        let stderr = create_anew(&complaints).map_err(|error| complain(&complaints, error))?;
        let child = Command::new("bpftrace")
            .args(["-e", &bpftrace::script(&self.server)])
            .env("BPFTRACE_PERF_RB_PAGES", QUEUE_PAGES)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(|error| ProbeError::NotFound(error.to_string()))?;
        Ok(Running {
            child,
            output,
            complaints,
        })
    }
}

/// Creates a new file, and fails if the path exists. The program runs as root, so it must not
/// follow a link that another user has put at this path.
fn create_anew(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(path)
}

/// A running bpftrace. Dropping it stops the process and deletes its files.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
    complaints: PathBuf,
}

impl Running {
    /// Whether the output contains an event of a transaction yet.
    fn sees(&mut self) -> Result<bool, ProbeError> {
        let status = self.child.try_wait();
        if let Ok(Some(status)) = status {
            return Err(self.failed(status.to_string()));
        }
        let mut head = Vec::new();
        self.open()?
            .take(4096)
            .read_to_end(&mut head)
            .map_err(|error| self.file(error))?;
        Ok(head.windows(3).any(|bytes| bytes == b"\nC "))
    }

    /// Stops the tracer. Returns its output.
    pub(crate) fn finish(mut self) -> Result<Seen, ProbeError> {
        // The last events are still on their way to bpftrace.
        std::thread::sleep(Duration::from_millis(300));
        self.interrupt();
        let status = self.child.wait().map_err(|error| self.file(error))?;
        if !status.success() {
            return Err(self.failed(status.to_string()));
        }
        Ok(Seen { running: self })
    }

    /// Interrupts bpftrace as Ctrl-C does, so that it writes out what it has buffered.
    fn interrupt(&self) {
        let process = self.child.id().to_string();
        let _ = Command::new("sh")
            .args(["-c", "kill -INT \"$0\"", &process])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }

    fn open(&self) -> Result<File, ProbeError> {
        File::open(&self.output).map_err(|error| self.file(error))
    }

    fn file(&self, error: std::io::Error) -> ProbeError {
        ProbeError::File {
            path: self.output.clone(),
            error,
        }
    }

    fn failed(&self, status: String) -> ProbeError {
        let said = std::fs::read_to_string(&self.complaints).unwrap_or_default();
        let message = said.trim().replace('\n', "; ");
        ProbeError::Failed { status, message }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.interrupt();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_file(&self.output);
        let _ = std::fs::remove_file(&self.complaints);
    }
}

/// The output of a bpftrace that has ended.
#[derive(Debug)]
pub(crate) struct Seen {
    running: Running,
}

impl Seen {
    /// The text of the output, for [`bpftrace::import`].
    pub(crate) fn text(&self) -> Result<BufReader<File>, ProbeError> {
        Ok(BufReader::with_capacity(1 << 20, self.running.open()?))
    }
}

/// Whether this process runs as root, by the owner of its folder in `/proc`.
fn is_root() -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0)
    }
    #[cfg(not(unix))]
    false
}

fn run(arguments: &[&str]) -> Result<Output, ProbeError> {
    Command::new("bpftrace")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| ProbeError::NotFound(error.to_string()))
}

/// The path of the server's executable, read from `postmaster.opts` in its data directory.
fn executable(server: &Server, data: Option<&Path>) -> Result<PathBuf, ProbeError> {
    let directory = data
        .map(Path::to_owned)
        .or_else(|| server.data_directory.as_ref().map(PathBuf::from))
        .ok_or_else(|| {
            ProbeError::ServerUnknown("the server does not report its data directory".into())
        })?;
    let file = directory.join("postmaster.opts");
    let unknown = |what: String| ProbeError::ServerUnknown(format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| unknown(error.to_string()))?;
    let program = text.split(" \"").next().unwrap_or_default().trim();
    std::fs::canonicalize(program).map_err(|error| unknown(format!("`{program}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_what_the_server_was_started_with() {
        let directory = std::env::temp_dir().join(format!("flagstone-pr-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("postmaster.opts");
        let mut server = Server::default();
        let unknown = executable(&server, None).unwrap_err().to_string();
        server.data_directory = Some(directory.display().to_string());
        let missing = executable(&server, None).unwrap_err().to_string();
        let program = std::env::current_exe().unwrap();
        std::fs::write(&file, format!("{} \"-D\" \"x\"\n", program.display())).unwrap();
        let found = executable(&server, None);
        std::fs::write(&file, "/nonexistent \"-D\" \"x\"\n").unwrap();
        let gone = executable(&server, None).unwrap_err().to_string();
        std::fs::remove_dir_all(&directory).unwrap();

        assert_eq!(found.unwrap(), std::fs::canonicalize(program).unwrap());
        for error in [&unknown, &missing, &gone] {
            assert!(error.contains("set --pgdata"), "{error}");
        }
        assert!(gone.contains("`/nonexistent`"), "{gone}");
    }

    /// Fails if root truncates one of its files because another user has put a link there.
    #[cfg(unix)]
    #[test]
    fn a_file_of_that_name_is_made_anew_and_a_link_not_followed() {
        let directory = std::env::temp_dir().join(format!("flagstone-an-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (own, link) = (directory.join("own"), directory.join("link"));
        std::fs::write(&own, "precious").unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let made = create_anew(&link);
        let (kept, is_link) = (std::fs::read_to_string(&own), link.is_symlink());
        let again = create_anew(&link);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(made.is_ok() && again.is_ok());
        assert_eq!((kept.unwrap().as_str(), is_link), ("precious", false));
    }

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        for (error, want) in [
            (ProbeError::NotRoot, "sudo"),
            (ProbeError::NotFound("no such file".into()), "apt install"),
            (ProbeError::Blind("/x/postgres".into()), "/x/postgres"),
            (
                ProbeError::NoProbes {
                    server: "/x/postgres".into(),
                    missing: "buffer__read__done".into(),
                },
                "--enable-dtrace",
            ),
        ] {
            let text = error.to_string();
            assert!(text.contains(want), "{text}");
        }
    }
}
