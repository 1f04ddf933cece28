//! Output files: complete or absent, only regular files replaced, never an input file.

use super::run::{Place, TINY, bad, command, good, output, says, texts, words};
use super::trace::WALDUMP;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Input files for the commands that write a file.
struct Writers {
    place: Place,
    dump: String,
    trace: String,
    device: String,
}

impl Writers {
    fn new(name: &str) -> Writers {
        let place = Place::new(name);
        let (dump, trace) = (place.file("dump.txt", WALDUMP), place.path("in.parquet"));
        good(&["trace", "import", "waldump", &dump, "-o", &trace]);
        let device = place.file("tiny.toml", TINY);
        Writers {
            place,
            dump,
            trace,
            device,
        }
    }

    /// Each command that writes to `to`, with the file that it reads.
    fn commands<'a>(&'a self, to: &'a str) -> [(Vec<&'a str>, &'a str); 3] {
        let import = vec!["trace", "import", "waldump", &self.dump, "-o", to];
        let export = vec!["trace", "export", "csv", &self.trace, "-o", to];
        let device = ["device", "fill", &self.device, "--protocol", "plain"];
        let fill = [&device[..], &["--fill", "0.1", "-o", to]].concat();
        [
            (import, &self.dump),
            (export, &self.trace),
            (fill, &self.device),
        ]
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn what_is_no_regular_file_is_refused_and_stays() {
    let writers = Writers::new("no-file");
    let place = &writers.place;
    let [fifo, socket, folder, device] =
        ["fifo", "socket", "folder", "device"].map(|name| place.path(name));
    assert!(run("mkfifo", &[&fifo]));
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::create_dir(&folder).unwrap();
    // Use a device node made here: a bug of this kind once replaced one of the system's.
    let has_device = run("mknod", &[&device, "c", "1", "7"]);
    let link = place.path("link");
    symlink(&fifo, &link).unwrap();
    let before = place.names();
    let mut targets = vec![
        (&fifo, "it is a pipe"),
        (&socket, "it is a socket"),
        (&folder, "it is a folder"),
        (&link, "it is a pipe"),
    ];
    if has_device {
        targets.push((&device, "it is a device"));
    }
    for (target, why) in targets {
        let kind = || fs::symlink_metadata(target).unwrap().file_type();
        let was = kind();
        for (args, _) in writers.commands(target) {
            let said = bad(&args);
            says(&said, why);
            assert_eq!(kind(), was, "{args:?}");
        }
    }
    if has_device {
        assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
    }
    assert_eq!(place.names(), before);
}

#[test]
fn a_name_that_is_none_is_refused() {
    let writers = Writers::new("no-name");
    let place = &writers.place;
    let slash = place.path("new") + "/";
    let (lost, under) = (place.path("lost/new"), place.path("dump.txt/new"));
    let before = place.names();
    for (name, why) in [
        (&slash, "not a valid file name"),
        (&lost, "there is no folder"),
        (&under, "Not a directory"),
    ] {
        for (args, _) in writers.commands(name) {
            let said = bad(&args);
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
    for (args, _) in writers.commands("-") {
        if args[1] == "export" {
            let (out, _) = good(&args);
            assert!(out.starts_with("time_ns,"), "{out}");
        } else {
            let said = bad(&args);
            says(&said, "cannot be written to standard output");
        }
    }
    assert!(!Path::new("-").exists());
    assert_eq!(place.names(), before);
}

#[test]
fn an_input_is_never_replaced_by_whatever_name() {
    let writers = Writers::new("input");
    let place = &writers.place;
    let [hard, soft, far] = ["hard", "soft", "far"].map(|name| place.path(name));
    let inputs = [&writers.dump, &writers.trace, &writers.device];
    for input in inputs {
        let bytes = fs::read(input).unwrap();
        fs::hard_link(input, &hard).unwrap();
        symlink(Path::new(input).file_name().unwrap(), &soft).unwrap();
        symlink(&soft, &far).unwrap();
        for name in [input, &hard, &soft, &far] {
            let same = |(_, read): &(Vec<&str>, &str)| read == input;
            for (args, _) in writers.commands(name).into_iter().filter(same) {
                let said = bad(&args);
                says(&said, "the output is the same file as the input");
            }
            assert_eq!(fs::read(input).unwrap(), bytes);
        }
        for name in [&hard, &soft, &far] {
            fs::remove_file(name).unwrap();
        }
    }
    // Standard input may be the output file as well.
    let mut import = command(&["trace", "import", "waldump", "-", "-o", &writers.dump]);
    import.stdin(File::open(&writers.dump).unwrap());
    let ended = output(import, "");
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        texts(&ended)
            .1
            .contains("the output is the same file as the input")
    );
    assert_eq!(fs::read_to_string(&writers.dump).unwrap(), WALDUMP);
}

#[test]
fn a_page_or_the_latencies_replace_no_input() {
    let writers = Writers::new("page");
    let (trace, device) = (&writers.trace, &writers.device);
    let compare = ["compare", trace, "--device", device, "--protocols", "plain"];
    let replay = ["replay", "a run", "--device", device];
    for (args, inputs) in [
        (&[&compare[..], &["--html"]].concat(), &[trace, device][..]),
        (&[&compare[..], &["--latencies"]].concat(), &[trace, device]),
        (
            &[&compare[..], &["--over", "clients=1:2", "--html"]].concat(),
            &[trace, device],
        ),
        (&[&replay[..], &["--html"]].concat(), &[device]),
    ] {
        for &input in inputs {
            let bytes = fs::read(input).unwrap();
            let said = bad(&[&args[..], &[input]].concat());
            says(&said, "the output is the same file as the input");
            assert!(fs::read(input).unwrap() == bytes, "{args:?}");
        }
    }
    // What cannot be written is refused before the first run.
    let nowhere = writers.place.path("lost/page.html");
    let said = bad(&[&compare[..], &["--html", &nowhere]].concat());
    says(&said, "there is no folder");
}

#[test]
fn a_link_stays_and_leads_to_the_result() {
    let writers = Writers::new("link");
    let place = &writers.place;
    let folder = place.path("elsewhere");
    fs::create_dir(&folder).unwrap();
    let [link, plain] = ["link", "plain"].map(|name| place.path(name));
    symlink("elsewhere/new", &link).unwrap();
    let target = format!("{folder}/new");
    for ((through, _), (straight, _)) in writers
        .commands(&link)
        .into_iter()
        .zip(writers.commands(&plain))
    {
        // The link dangles at first; later it leads to the output of the command before.
        good(&through);
        let kind = fs::symlink_metadata(&link).unwrap().file_type();
        assert!(kind.is_symlink(), "{through:?}");
        good(&straight);
        let there = fs::read(&target).unwrap();
        // A trace contains the command line that made it.
        let (same, wrote) = (fs::read(&plain).unwrap(), straight[1]);
        assert!(wrote == "import" || there == same, "{through:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
    let (here, there) = (place.path("here"), place.path("there"));
    symlink(&here, &there).unwrap();
    symlink(&there, &here).unwrap();
    for (args, _) in writers.commands(&here) {
        bad(&args);
    }
}

#[test]
fn what_was_there_stays_until_the_result_is_whole() {
    let writers = Writers::new("old");
    let place = &writers.place;
    let old = place.file("old", "before");
    let garbage = place.file("garbage", "hello\n");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    let before = place.names();
    for args in [
        &["trace", "import", "waldump", &garbage, "-o", &old][..],
        &["trace", "export", "csv", &garbage, "-o", &old],
        &["device", "fill", &garbage, "--protocol", "aw", "-o", &old],
    ] {
        bad(args);
        assert_eq!(fs::read_to_string(&old).unwrap(), "before");
    }
    assert_eq!(place.names(), before);
    for (args, _) in writers.commands(&old) {
        good(&args);
        let meta = fs::metadata(&old).unwrap();
        assert_ne!(fs::read(&old).unwrap(), b"before");
        assert_eq!(meta.permissions().mode() & 0o777, 0o640, "{args:?}");
    }
    assert_eq!(place.names(), before);
    // The owner has made the file read-only. Root may write it anyway.
    fs::set_permissions(&old, fs::Permissions::from_mode(0o400)).unwrap();
    let kept = fs::read(&old).unwrap();
    if OpenOptions::new().write(true).open(&old).is_err() {
        for (args, _) in writers.commands(&old) {
            assert!(bad(&args).contains("Permission denied"));
        }
        assert_eq!(fs::read(&old).unwrap(), kept);
    }
}

/// A log of fio whose contents cannot be compressed to less than 40 KiB.
fn long_log() -> String {
    let mut text = String::from("fio version 3 iolog\n");
    let mut page = 1_u64;
    for time in 0..40_000_u64 {
        page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!(
            "{} f write {} 4096\n",
            time * 40,
            (page >> 40) << 12
        ));
    }
    text
}

/// Commands whose output exceeds 40 KiB. The last argument of each is the output file.
fn long_results(place: &Place) -> Vec<Vec<String>> {
    let log = place.file("log", &long_log());
    let (trace, device) = (place.path("long.parquet"), place.file("tiny.toml", TINY));
    good(&["trace", "import", "fio", &log, "-o", &trace]);
    assert!(fs::metadata(&trace).unwrap().len() > 60_000);
    let fill = format!("device fill {device} --protocol scc --fill 0.6");
    let fill = words(&fill);
    [
        &["trace", "import", "fio", &log, "-o"][..],
        &["trace", "export", "csv", &trace, "-o"],
        &[&fill[..], &["-o"]].concat(),
    ]
    .map(|args| args.iter().map(|arg| arg.to_string()).collect())
    .to_vec()
}

/// Runs a shell script with a command and its output file as arguments.
fn in_shell(script: &str, args: &[String], file: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_flagstone")]);
    shell.args(args).arg(file).env("NO_COLOR", "1");
    output(shell, "")
}

#[test]
fn nothing_half_written_stays_where_files_may_not_grow() {
    let place = Place::new("limit");
    let commands = long_results(&place);
    let new = place.path("new");
    let before = [place.names(), vec!["new".into()]].concat();
    for args in commands {
        // The limit ends the command by a signal at once, or makes writing fail with an error.
        for trap in ["", "trap '' XFSZ; "] {
            let script = format!("{trap}ulimit -f 16; exec \"$@\"");
            fs::write(&new, "before").unwrap();
            let ended = in_shell(&script, &args, &new);
            assert!(!ended.status.success(), "{args:?}");
            if !trap.is_empty() {
                let said = texts(&ended).1;
                assert_eq!(ended.status.code(), Some(2), "{said}");
                says(&said, "File too large");
            }
            assert_eq!(fs::read(&new).unwrap(), b"before", "{args:?}");
            let mut expected = before.clone();
            expected.sort();
            assert_eq!(place.names(), expected, "{args:?}");
        }
        // Without the limit the same command succeeds.
        assert!(in_shell("exec \"$@\"", &args, &new).status.success());
        assert!(fs::metadata(&new).unwrap().len() > 20_000, "{args:?}");
    }
}

#[test]
fn nothing_half_written_stays_on_a_full_disk() {
    let place = Place::new("disk");
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    // Mount in a namespace of its own, which ends with the shell.
    let mount = |size: &str| format!("mount -t tmpfs -o size={size} none {disk}");
    let probe = mount("40k");
    if !run("unshare", &["--mount", "sh", "-c", &probe]) {
        eprintln!("no file system can be mounted here: not tested");
        return;
    }
    for args in long_results(&place) {
        let ended = |size: &str| {
            let script = format!(
                "{}; echo before > {disk}/new; \"$@\"; code=$?; ls -A {disk}; head -c 7 {disk}/new; \
                 exit $code",
                mount(size)
            );
            let mut shell = Command::new("unshare");
            shell.args(["--mount", "sh", "-c", &script, "sh"]);
            shell.arg(env!("CARGO_BIN_EXE_flagstone")).args(&args);
            shell.arg(format!("{disk}/new"));
            output(shell, "")
        };
        let full = ended("40k");
        let (out, said) = texts(&full);
        assert_eq!(full.status.code(), Some(2), "{said}");
        says(&said, "No space left on device");
        assert_eq!(out, "new\nbefore\n", "{args:?}");
        let roomy = ended("40m");
        assert_eq!(roomy.status.code(), Some(0), "{}", texts(&roomy).1);
    }
}

#[test]
fn a_report_has_a_place_or_nothing_is_run() {
    let place = Place::new("report");
    let (file, out) = (place.file("file", ""), place.path("out"));
    let reproduce = |out: &str| bad(&["reproduce", "sal.fig3", "--out", out]);
    let inside = reproduce(&format!("{file}/x"));
    says(&inside, "name another folder with --out");
    fs::create_dir_all(format!("{out}/index.html")).unwrap();
    let taken = reproduce(&out);
    says(&taken, "index.html cannot be written: it is a folder");
    fs::remove_dir(format!("{out}/index.html")).unwrap();
    // The report about an experiment file must not replace the file.
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../flagstone-papers/experiments/sal.toml"
    );
    let own = place.path("own.toml");
    fs::copy(shipped, &own).unwrap();
    fs::hard_link(&own, format!("{out}/index.html")).unwrap();
    let args = ["reproduce", "sal.fig3", "--out", &out, "--experiment", &own];
    let said = bad(&args);
    says(&said, "the output is the same file as the input");
    assert_eq!(fs::read(shipped).unwrap(), fs::read(&own).unwrap());
    fs::remove_file(format!("{out}/index.html")).unwrap();
    good(&args);
    assert!(fs::metadata(format!("{out}/index.html")).unwrap().len() > 1000);
}

#[test]
fn verdicts_are_recorded_in_the_place_of_those_on_the_same_claims() {
    let place = Place::new("verdicts");
    let kept = "[lighttx]\nsize = \"full\"\nseeds = 5\n\n[lighttx.verdict]\nfig8 = \"tie\"\n";
    let (file, out) = (place.file("verdicts.toml", kept), place.path("out"));
    let run = |name: &str| {
        good(&["reproduce", name, "--out", &out, "--record", &file]);
        fs::read_to_string(&file).unwrap()
    };
    let one = run("sal.fig3.worst");
    assert!(one.contains(kept.trim_end()), "{one}");
    let written = "[sal]\nsize = \"quick\"\nseeds = 1\n\n[sal.verdict]\n\"fig3.worst\" = \"holds\"";
    assert!(one.contains(written), "{one}");
    let two = run("sal.memory");
    assert!(
        two.contains("\"fig3.worst\" = \"holds\"\nmemory = \"holds\""),
        "{two}"
    );
    fs::write(&file, "[sal]\nsize = 1\n").unwrap();
    let said = bad(&["reproduce", "sal.memory", "--out", &out, "--record", &file]);
    says(&said, "verdicts.toml: line 2");
}

#[test]
fn a_result_that_the_standard_output_does_not_take_is_an_error() {
    let writers = Writers::new("stdout");
    let trace = writers.trace.as_str();
    let bench = words("index bench --index sal --store mem --records");
    for args in [
        &["protocols"][..],
        &["device", "list"],
        &["device", "show", "small"],
        &["device", "schema"],
        &["index", "list"],
        &[&bench[..], &["100"]].concat(),
        &["reproduce", "sal.fig3", "--list"],
        &["trace", "info", trace],
        &["trace", "info", trace, "--json"],
        &["trace", "export", "csv", trace],
    ] {
        let to = |stdout: Stdio| {
            let mut command = command(args);
            command
                .stdout(stdout)
                .stdin(Stdio::null())
                .stderr(Stdio::piped());
            command.output().unwrap()
        };
        let full = to(OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .into());
        let (_, said) = texts(&full);
        assert_eq!(full.status.code(), Some(2), "{args:?}: {said}");
        says(&said, "cannot write the result to standard output");
        // A closed pipe is not an error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = to(writer.into());
        assert_eq!(
            closed.status.code(),
            Some(0),
            "{args:?}: {}",
            texts(&closed).1
        );
    }
}

#[test]
fn a_new_result_may_be_read_by_whom_the_user_lets() {
    let writers = Writers::new("mode");
    let new = writers.place.path("new");
    for (args, _) in writers.commands(&new) {
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 026; exec \"$@\"", "sh"]);
        shell.arg(env!("CARGO_BIN_EXE_flagstone")).args(&args);
        assert!(output(shell, "").status.success());
        let meta = fs::metadata(&new).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o640, 1), "{args:?}");
        fs::remove_file(&new).unwrap();
    }
}
