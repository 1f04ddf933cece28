//! An unusable output path is reported before the program asks anything of a server.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

#[test]
fn a_trace_goes_to_a_regular_file_or_nothing_is_run() {
    let name = format!("flagstone-record-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let said = |output: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flagstone-record"));
        command.args(["postgres", "--url", "host=/nowhere", "-o", output]);
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
        String::from_utf8(ended.stderr).unwrap()
    };
    let path = |name: &str| folder.join(name).to_str().unwrap().to_string();
    for (output, why) in [
        (path("pipe"), "it is a pipe"),
        (path(""), "it is a folder"),
        (path("no/such"), "there is no folder"),
        ("-".into(), "cannot be written to standard output"),
        // If the output path is usable, the error is that there is no server.
        (path("new"), "cannot connect to"),
    ] {
        let error = said(&output);
        assert!(
            error.starts_with("error: ") && error.contains(why),
            "{error}"
        );
    }
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
}
