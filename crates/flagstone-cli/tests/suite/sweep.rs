//! `flagstone sweep` and `flagstone sensitivity`: tasks as data, result files (complete or an
//! error), maps, and refusals.

use super::run::{Place, bad, command, good, says, words};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const FILE: &str = r#"
title = "small"
[setting]
engine = "replay"
workload = "zipf:0.9"
requests = 1_600
device = { preset = "small" }
fill = 0.3
overwrite = false
[[axis]]
key = "protocol"
values = ["plain", "cfc", "scc"]
[[axis]]
key = "clients"
values = [1, 8]
[[axis]]
key = "abort_ratio"
values = [0.0, 0.2, 0.4]
"#;

fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    files_but(folder, |_| false)
}

/// The files of a folder, except those whose name meets `is_none`, which are not read.
fn files_but(folder: &str, is_none: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for entry in entries {
        let name = entry.file_name().into_string().expect("a name");
        if !is_none(&name) {
            all.push((name, fs::read(entry.path()).expect("a result")));
        }
    }
    all.sort();
    all
}

#[test]
fn a_sweep_prints_and_writes_the_same_bytes_on_any_number_of_threads() {
    let place = Place::new("sweep-threads");
    let file = place.file("sweep.toml", FILE);
    let run = |name: &str, threads: &str| {
        let out = place.path(name);
        let args = format!("sweep {file} --out {out} --threads {threads} --json");
        let args = words(&args);
        (good(&args).0, files(&out))
    };
    let one = run("one", "1");
    assert_eq!(one, run("many", "4"));
    assert_eq!(one.1.len(), 18);
    assert_eq!(one.0.lines().count(), 18);
    let tasks = good(&["sweep", &file, "--list", "--json"]).0;
    for (task, result) in tasks.lines().zip(one.0.lines()) {
        let of = |line: &str| -> Value { serde_json::from_str(line).expect("an object") };
        let (task, result) = (of(task), of(result));
        assert_eq!(task["hash"], result["task"]);
        assert_eq!(task["at"], result["at"]);
        assert!(
            result["metrics"]["throughput_tps"].as_f64() > Some(0.0),
            "{result}"
        );
    }
    // A task that runs alone gives the same result.
    let hash = one.1[5].0.trim_end_matches(".json");
    let out = place.path("alone");
    good(&["sweep", &file, "--out", &out, "--only", hash]);
    assert_eq!(files(&out), [one.1[5].clone()]);
}

#[test]
fn a_sweep_that_was_killed_goes_on_and_a_changed_result_is_found() {
    let place = Place::new("sweep-kill");
    let file = place.file("sweep.toml", &FILE.replace("1_600", "60_000"));
    let whole = place.path("whole");
    good(&["sweep", &file, "--out", &whole, "--json"]);
    let out = place.path("killed");
    let mut child = command(&["sweep", &file, "--out", &out, "--threads", "1"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let began = Instant::now();
    // A result file has another name until it is complete.
    let is_partial = |name: &str| name.ends_with(".partial");
    while files_but(&out, is_partial).len() < 3 && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it runs");
    child.wait().expect("it is over");
    for entry in fs::read_dir(&out).expect("a folder").flatten() {
        if is_partial(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).expect("what the kill left half written");
        }
    }
    let before = files(&out);
    assert!(
        (3..18).contains(&before.len()),
        "killed in the middle: {}",
        before.len()
    );
    good(&["sweep", &file, "--out", &out, "--json"]);
    assert_eq!(files(&out), files(&whole));
    // The control: change a figure by hand.
    let (name, bytes) = &before[0];
    let text = String::from_utf8(bytes.clone()).expect("text");
    let changed = text.replacen("\"committed\": ", "\"committed\": 9", 1);
    assert_ne!(changed, text);
    fs::write(format!("{out}/{name}"), &changed).expect("written");
    let error = bad(&["sweep", &file, "--out", &out]);
    says(&error, name);
    says(&error, "changed after");
    assert_eq!(
        fs::read_to_string(format!("{out}/{name}")).expect("text"),
        changed
    );
}

#[test]
fn a_map_says_who_wins_and_its_page_needs_nothing_else() {
    let place = Place::new("sweep-map");
    let file = place.file("sweep.toml", FILE);
    let (out, page) = (place.path("out"), place.path("map.html"));
    let args = format!("sweep {file} --out {out} --map clients,abort_ratio --html {page}");
    let args = words(&args);
    let (text, _) = good(&args);
    says(&text, "throughput_tps over clients and abort_ratio");
    says(&text, "First or tied, of 6 points");
    assert!(!text.contains("plain at"), "{text}");
    let page = fs::read_to_string(&page).expect("a page");
    assert!(page.contains("class=\"map\"") && page.contains("All figures"));
    assert!(!page.contains("://") && !page.contains("<script src"));
    // Without a map there is a line for each task.
    let (text, _) = good(&["sweep", &file, "--out", &out]);
    says(&text, "18 tasks");
}

#[test]
fn what_cannot_be_swept_is_refused() {
    let place = Place::new("sweep-bad");
    let file = place.file("sweep.toml", FILE);
    let wrong = place.file("wrong.toml", &FILE.replace("\"scc\"", "\"sccc\""));
    let none = place.path("none.toml");
    let out = place.path("out");
    for (args, why) in [
        (&["sweep", &none][..], "cannot be read"),
        (&["sweep", &wrong], "did you mean `scc`"),
        (&["sweep", &file, "--only", "abc"], "there is no task `abc`"),
        (&["sweep", &file, "--map", "clients"], "two axes"),
        (
            &["sweep", &file, "--map", "clients,client"],
            "did you mean `clients`",
        ),
        (&["sweep", &file, "--map", "clients,protocol"], "three axes"),
        (&["sweep", &file, "--html", "x.html"], "--map X,Y"),
        (&["sensitivity", "flagcommit.fig12"], "did you mean"),
        (&["sensitivity", "all"], "one paper at a time"),
        (
            &words("sensitivity flagcommit --setting hot_row --list"),
            "did you mean `hot_rows`",
        ),
    ] {
        let error = bad(args);
        assert!(error.contains(why), "{args:?}: {error}");
    }
    let kept = ["sensitivity", "flagcommit.fig12a", "--kept", "--out", &out];
    let error = bad(&kept);
    says(&error, "without --kept first");
}

#[test]
fn what_a_paper_leaves_open_is_listed_with_its_reasons() {
    let (text, _) = good(&["sensitivity", "flagcommit", "--list"]);
    for word in [
        "insert_targets: ",
        "over_provision: 0.09 to 0.12",
        "hot_rows: first, last",
        "§5.1",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn claims_that_no_analysis_has_judged_are_listed_with_what_they_take() {
    let (all, _) = good(&["sensitivity", "--unanswered"]);
    says(&all, " of 108 claims have not been analysed");
    let listed = |line: &&str| line.ends_with(" runs a point");
    if let Some(first) = all.lines().find(listed) {
        let (claim, _) = first.trim().split_once(": ").unwrap();
        let (one, _) = good(&["sensitivity", "--unanswered", claim]);
        assert!(
            one.starts_with("1 of 1 claims") && one.contains(first),
            "{one}"
        );
    }
    // The control: a claim that has been judged is not listed.
    let (none, _) = good(&["sensitivity", "--unanswered", "sal.fig11a.low-end"]);
    assert!(none.starts_with("0 of 1 claims"), "{none}");
    let error = bad(&["sensitivity", "--unanswered", "--kept"]);
    says(&error, "--kept");
}
