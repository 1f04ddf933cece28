//! Helpers that run the command in a temporary folder.

use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A time that no command of a test exceeds even on a busy machine, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// A device so small that it is filled in moments.
pub(crate) const TINY: &str = "preset = \"small\"\n[geometry]\nblocks_per_plane = 64\n\
                               pages_per_block = 8\n[ftl]\nover_provision = 0.4\n";

pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let place =
            std::env::temp_dir().join(format!("flagstone-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        Place(place)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// The names of all files in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command, without colours and with plain panic messages.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone"));
    command.args(args).env("NO_COLOR", "1");
    command
}

/// Splits a command line into words. No word may contain a blank.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub(crate) fn flagstone(args: &[&str]) -> Output {
    flagstone_with(args, "")
}

/// Runs a command with `input` as its standard input.
fn flagstone_with(args: &[&str], input: &str) -> Output {
    let mut command = command(args);
    command.stdin(Stdio::piped());
    output(command, input)
}

/// Runs a command to its end, and fails if it takes longer than [`PATIENCE`].
pub(crate) fn output(mut command: Command, input: &str) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A command that fails early may not read its input.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let [out, err] = [reader(out), reader(err)];
    let status = wait(&mut child, &command);
    Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
}

fn reader(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn wait(child: &mut Child, command: &Command) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn good(args: &[&str]) -> (String, String) {
    good_with(args, "")
}

/// Runs a command that must succeed, with `input` as its standard input.
pub(crate) fn good_with(args: &[&str], input: &str) -> (String, String) {
    let output = flagstone_with(args, input);
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
    (out, err)
}

/// Runs a command that must end with exit code 1. Returns what it prints.
pub(crate) fn found(args: &[&str]) -> (String, String) {
    let output = flagstone(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    texts(&output)
}

/// Runs a command that must succeed and print a JSON object. Returns the object.
pub(crate) fn json(args: &[&str]) -> Value {
    let (out, _) = good(args);
    serde_json::from_str(&out).unwrap()
}

pub(crate) fn bad(args: &[&str]) -> String {
    bad_with(args, "")
}

/// Runs a command that must fail with exit code 2. Returns its one message as one line.
pub(crate) fn bad_with(args: &[&str], input: &str) -> String {
    let output = flagstone_with(args, input);
    let (out, err) = texts(&output);
    assert_eq!(
        (output.status.code(), out.as_str()),
        (Some(2), ""),
        "{args:?}: {err}"
    );
    let errors = err.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{args:?}: {err}");
    err.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that `text` contains `part`.
#[track_caller]
pub(crate) fn says(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in: {text}");
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}
