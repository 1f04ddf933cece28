//! Invalid, truncated and missing files: one message that names the problem and a remedy.

use super::run::{Place, TINY, bad, command, flagstone, good, output, says, texts, words};
use super::trace::WALDUMP;
use std::fs;
use std::process::Command;

/// A valid trace, device file and experiment file.
fn right(place: &Place) -> [String; 3] {
    let (dump, trace) = (place.file("dump.txt", WALDUMP), place.path("t.parquet"));
    good(&["trace", "import", "waldump", &dump, "-o", &trace]);
    let experiment = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../flagstone-papers/experiments/sal.toml"
    );
    let own = place.path("own.toml");
    fs::copy(experiment, &own).unwrap();
    [trace, place.file("d.toml", TINY), own]
}

/// Commands that read each of the three files.
fn readers([trace, device, own]: [&str; 3]) -> [Vec<&str>; 5] {
    [
        vec!["trace", "info", trace],
        vec!["trace", "export", "csv", trace],
        vec!["compare", trace, "--protocols", "plain"],
        vec!["device", "show", device],
        vec!["reproduce", "--list", "--experiment", own],
    ]
}

#[test]
fn what_is_no_file_of_the_kind_is_said_to_be_none() {
    let place = Place::new("kinds");
    let all = right(&place);
    let [trace, device, own] = [&all[0], &all[1], &all[2]].map(String::as_str);
    for args in readers([trace, device, own]) {
        good(&args);
    }
    let folder = place.path("folder");
    fs::create_dir(&folder).unwrap();
    let empty = place.file("empty", "");
    let text = place.file("text ☃", "hello\n");
    let binary = place.path("binary");
    fs::write(&binary, [0, 159, 146, 150].repeat(2000)).unwrap();
    let long = place.path(&"a".repeat(300));
    let nothing = place.path("nothing");
    let below = place.path("text ☃/x");
    for (wrong, why) in [
        (&folder, "it is a folder"),
        (&empty, ""),
        (&text, ""),
        (&binary, ""),
        (&long, "too long"),
        (&nothing, "No such file"),
        (&below, "Not a directory"),
    ] {
        for args in readers([wrong; 3]) {
            let said = bad(&args);
            assert!(said.contains(wrong.as_str()), "{args:?}: {said}");
            assert!(said.contains(why), "{args:?}: {said}");
            assert!(!said.contains('\0'), "{args:?}: {said}");
        }
    }
    // Files without an end, and files that would block the reader.
    for endless in ["/dev/zero", "/dev/full"] {
        for args in readers([endless; 3]) {
            let said = bad(&args);
            let why = ["not a regular file", "more than 16777216 bytes"];
            assert!(why.iter().any(|why| said.contains(why)), "{said}");
        }
    }
    let pipe = place.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for args in &readers([&pipe; 3])[..3] {
        assert!(bad(args).contains("not a regular file"));
    }
}

#[test]
fn a_parquet_file_of_which_a_part_is_missing_is_cut_short() {
    let place = Place::new("clipped");
    let [trace, ..] = right(&place);
    let whole = fs::read(&trace).unwrap();
    let cut = place.path("cut.parquet");
    let info = |bytes: &[u8]| {
        fs::write(&cut, bytes).unwrap();
        let said = bad(&["trace", "info", &cut]);
        assert!(!said.contains("fill whole buffer"), "{said}");
        said
    };
    for tenth in 1..10 {
        let said = info(&whole[..whole.len() * tenth / 10]);
        assert!(said.contains("cut short"), "{tenth}: {said}");
        // A file whose end is intact, but whose middle has a gap.
        let gap = whole.len() * tenth / 20;
        let holed = [&whole[..4], &whole[4 + gap..]].concat();
        let said = info(&holed);
        assert!(
            said.contains("cut short") || said.contains("damaged"),
            "{tenth}: {said}"
        );
        // A file whose beginning is missing.
        let said = info(&whole[gap..]);
        assert!(said.contains("not a Parquet file"), "{tenth}: {said}");
    }
    assert!(info(b"").contains("it is empty"));
    assert!(info(&whole[..3]).contains("not a Parquet file"));
    assert!(info(&whole[..4]).contains("cut short"));
    assert!(info(&whole[..6]).contains("cut short"));
}

#[test]
fn what_was_cut_is_refused_or_reported_by_every_reader() {
    let place = Place::new("tenths");
    let all = right(&place);
    let gzip = place.path("dump.gz");
    let mut packer = Command::new("gzip");
    packer.args(["-c", &place.path("dump.txt")]);
    fs::write(&gzip, packer.output().unwrap().stdout).unwrap();
    let whole: Vec<Vec<u8>> = all.iter().map(|path| fs::read(path).unwrap()).collect();
    let packed = fs::read(&gzip).unwrap();
    let out = place.path("out.parquet");
    for tenth in 0..10 {
        for (path, bytes) in all.iter().zip(&whole) {
            fs::write(path, &bytes[..bytes.len() * tenth / 10]).unwrap();
        }
        let [trace, device, own] = [&all[0], &all[1], &all[2]].map(String::as_str);
        let readers = readers([trace, device, own]);
        for args in readers.iter().filter(|args| args[0] != "device") {
            bad(args);
        }
        // A device file may still be valid with fewer lines.
        let show = flagstone(&["device", "show", device]);
        let said = texts(&show).1;
        assert!(!said.contains("panicked"), "{said}");
        fs::write(&gzip, &packed[..packed.len() * tenth / 10]).unwrap();
        let said = bad(&["trace", "import", "waldump", &gzip, "-o", &out]);
        assert!(
            tenth == 0 || said.contains("incomplete") || said.contains("line 1"),
            "{said}"
        );
    }
    assert!(!place.names().contains(&"out.parquet".to_string()));
}

#[test]
fn an_experiment_that_is_wrong_is_shown() {
    let place = Place::new("experiment");
    let [_, _, own] = right(&place);
    let text = fs::read_to_string(&own).unwrap();
    let wrong = place.file("wrong.toml", &text.replacen("chart = ", "chat = ", 1));
    let output = flagstone(&["reproduce", "--list", "--experiment", &wrong]);
    let (out, said) = texts(&output);
    assert_eq!(
        (output.status.code(), out.as_str()),
        (Some(2), ""),
        "{said}"
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with(&format!("error: {wrong}: line ")),
        "{said}"
    );
    let (code, mark) = (lines[2], lines[3]);
    assert_eq!(mark.find('^'), code.find("chat"), "{said}");
    assert!(mark.ends_with("^^^^") && !mark.ends_with("^^^^^"), "{said}");
    assert_eq!(lines[5], "  tip: did you mean `chart`?", "{said}");
}

#[test]
fn outside_of_a_clone_nothing_is_left_behind() {
    let place = Place::new("outside");
    for args in [
        &["reproduce", "lighttx.fig7"][..],
        &["reproduce", "all", "--full"],
        &["reproduce", "all", "--out", "mine"],
    ] {
        let mut command = command(args);
        command.current_dir(place.path(""));
        let ended = output(command, "");
        let said = texts(&ended).1;
        assert_eq!(ended.status.code(), Some(2), "{said}");
        says(&said, "from the root of a clone");
        assert_eq!(place.names(), Vec::<String>::new(), "{args:?}");
    }
}

#[test]
fn a_file_that_holds_something_is_no_store() {
    let place = Place::new("store");
    let mine = place.file("mine", "mine");
    let folder = place.path("folder");
    fs::create_dir(&folder).unwrap();
    let bench = |path: &str, more: &str| {
        format!(
            "index bench --index sal --buffered --store file:{path} --records 50000 \
             --memory 100000 {more}"
        )
    };
    let refused = |line: String| bad(&words(&line));
    let before = place.names();
    assert!(refused(bench(&mine, "")).contains("is not empty"));
    assert!(refused(bench(&folder, "")).contains("neither a file nor"));
    assert!(refused(bench("/dev/full", "")).contains("neither a file nor"));
    // An invalid workload or setting must not leave a file.
    let new = place.path("new");
    assert!(refused(bench(&new, "--workload ycsb-e")).contains("use a tree"));
    assert!(refused(bench(&new, "--set group=0")).contains("group"));
    assert!(refused(bench(&new, "--page-bytes 777")).contains("multiple of 512"));
    assert_eq!(place.names(), before);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
    let line = bench(&new, "");
    good(&words(&line));
    assert!(fs::metadata(&new).unwrap().len() > 0);
    assert!(refused(line).contains("is not empty"));
}

#[test]
fn names_that_are_nearly_right_are_suggested() {
    for (args, meant) in [
        ("compare --protocols cfx", "`cfc`?"),
        ("compare --protocols plain,lightx", "`lighttx`?"),
        ("break --protocol bpc", "`bpcc`?"),
        ("device show smal", "`small`?"),
        ("index bench --index bptre", "`bptree`?"),
        ("index bench --index sal --workload ycsb-g", "`ycsb-"),
        ("index bench --index sal --store men", "`mem`?"),
        ("index bench --index sal --protocol mxsl", "`mixsl`?"),
        ("index bench --index sal --set bach=3", "`batch`?"),
        ("reproduce lightx", "`lighttx`"),
    ] {
        let said = bad(&words(args));
        let meant = format!("did you mean {meant}");
        assert!(said.contains(&meant), "{args}: {said}");
    }
}
