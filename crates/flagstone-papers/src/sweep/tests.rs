//! Short sweeps: identical bytes whoever runs them, detected damage, maps, invalid files.

use super::*;
use crate::reproduce::execute::RunEvent;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

const TEXT: &str = r#"
title = "who wins"
[setting]
engine = "replay"
workload = "zipf:0.9"
requests = 400
device = { preset = "small" }
fill = 0.3
overwrite = false
clients = 2
[[axis]]
key = "protocol"
values = ["plain", "cfc", "scc"]
[[axis]]
key = "abort_ratio"
values = [0.0, 0.5]
[[axis]]
name = "clients"
key = "clients"
from = 1
to = 16
steps = 2
whole = true
log = true
[map]
x = "clients"
y = "abort_ratio"
metric = "throughput_tps"
better = "higher"
margin = 0.1
"#;

fn made(sweep: &Sweep, threads: usize, folder: &std::path::Path) -> (Vec<Kept>, usize) {
    let count = AtomicUsize::new(0);
    let watch = |_: &_, event: RunEvent| {
        if event == RunEvent::Done {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let kept = run(sweep, threads, folder, &watch).unwrap();
    (kept, count.into_inner())
}

fn files(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_grid_has_a_task_for_each_place_and_each_can_be_run_alone() {
    let sweep = Sweep::parse(TEXT).unwrap();
    assert_eq!(sweep.tasks.len(), 12);
    assert_eq!(
        sweep.tasks[0].place(),
        "abort_ratio 0, clients 1, protocol plain"
    );
    assert_eq!(
        sweep.tasks[1].place(),
        "abort_ratio 0, clients 16, protocol plain"
    );
    let one = tempfile::tempdir().unwrap();
    let (kept, count) = made(&sweep, 1, one.path());
    assert_eq!(count, 12);
    let many = tempfile::tempdir().unwrap();
    made(&sweep, 3, many.path());
    assert_eq!(files(one.path()), files(many.path()));
    // A worker elsewhere only has the text of a task.
    let task = Task::from_json(&sweep.tasks[7].json()).unwrap();
    assert_eq!(task, sweep.tasks[7]);
    let alone = task
        .result(&crate::reproduce::engine::Library::new(1))
        .unwrap();
    assert_eq!(alone, kept[7]);
    assert_eq!(
        alone.bytes(),
        fs::read(one.path().join(task.file_name())).unwrap()
    );
}

#[test]
fn what_is_there_is_not_run_again_and_what_is_not_whole_is_named() {
    let sweep = Sweep::parse(TEXT).unwrap();
    let folder = tempfile::tempdir().unwrap();
    made(&sweep, 2, folder.path());
    let before = files(folder.path());
    let lost = folder.path().join(sweep.tasks[3].file_name());
    fs::remove_file(&lost).unwrap();
    assert_eq!(made(&sweep, 2, folder.path()).1, 1, "only what is missing");
    assert_eq!(files(folder.path()), before);
    // Controls: each kind of damage is detected, and nothing is overwritten.
    let whole = fs::read(&lost).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let changed = text.replacen("\"throughput_tps\": ", "\"throughput_tps\": 1", 1);
    assert_ne!(changed, text);
    let other = fs::read(folder.path().join(sweep.tasks[4].file_name())).unwrap();
    for (bytes, why) in [
        (&whole[..whole.len() / 2], "torn"),
        (changed.as_bytes(), "changed after it was written"),
        (text.trim_end().as_bytes(), "changed after it was written"),
        (&other, "another task"),
        (b"", "torn"),
    ] {
        fs::write(&lost, bytes).unwrap();
        let error = run(&sweep, 2, folder.path(), &|_, _| {}).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
        assert!(error.contains(&sweep.tasks[3].file_name()), "{error}");
        assert_eq!(fs::read(&lost).unwrap(), bytes);
    }
}

#[test]
fn a_result_with_an_infinite_metric_is_kept_and_read_without_it() {
    let text = "title = \"t\"\nsetting = { engine = \"formula\" }\n[[axis]]\n\
                key = \"formula.page_bytes\"\nvalues = [0.0, 4096.0]\n";
    let sweep = Sweep::parse(text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (first, count) = made(&sweep, 1, folder.path());
    assert_eq!(count, 2);
    assert_eq!(first[0].metric("memory_bound"), None);
    assert!(first[1].metric("memory_bound").is_some());
    assert_eq!(made(&sweep, 1, folder.path()), (first, 0));
}

#[test]
fn a_task_of_another_program_is_refused() {
    let task = &Sweep::parse(TEXT).unwrap().tasks[0];
    let foreign = task.json().replace(&task.hash, "00112233445566778899");
    let error = Task::from_json(&foreign).unwrap_err();
    assert!(matches!(error, TaskError::Foreign { .. }), "{error}");
    let wrong = task.json().replace("zipf:0.9", "zip:0.9");
    assert!(matches!(
        Task::from_json(&wrong),
        Err(TaskError::Settings(_))
    ));
    assert!(matches!(Task::from_json("{}"), Err(TaskError::Form(_))));
}

#[test]
fn a_sample_varies_ranges_together_and_goes_over_lists_at_each_point() {
    let text =
        TEXT.replace("values = [0.0, 0.5]", "from = 0.0\nto = 0.5") + "[sample]\npoints = 8\n";
    let sweep = Sweep::parse(&text).unwrap();
    assert_eq!(sweep.tasks.len(), 24);
    let ratios: Vec<f64> = sweep
        .tasks
        .iter()
        .map(|task| task.at["abort_ratio"].as_float().unwrap())
        .collect();
    assert!(
        ratios
            .chunks(3)
            .all(|three| three.iter().all(|one| *one == three[0]))
    );
    // One point in each eighth of the range.
    let mut hit = [false; 8];
    ratios
        .iter()
        .for_each(|ratio| hit[(ratio * 16.0) as usize] = true);
    assert_eq!(hit, [true; 8]);
    let other = Sweep::parse(&(text + "seed = 2\n")).unwrap();
    assert_ne!(other.tasks[0].hash, sweep.tasks[0].hash);
}

#[test]
fn a_map_draws_ties_as_ties_and_the_control_never_wins() {
    let sweep = Sweep::parse(TEXT).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (results, _) = made(&sweep, 2, folder.path());
    let with = |change: fn(&mut MapSpec)| {
        let mut spec = sweep.map.clone().unwrap();
        change(&mut spec);
        Map::of(&sweep, &spec, &results)
    };
    let wide = with(|spec| spec.margin = 0.999).unwrap();
    assert_eq!(wide.across.values, ["1", "16"]);
    assert_eq!(wide.down.values, ["0", "0.5"]);
    assert_eq!(wide.cells.len(), 4);
    for cell in &wide.cells {
        assert_eq!(cell.places, 1);
        assert_eq!(
            cell.winners.len(),
            2,
            "within such a margin both tie: {cell:?}"
        );
        assert_eq!(cell.means[0], ("plain".into(), None));
    }
    let exact = with(|spec| spec.margin = 0.0).unwrap();
    assert!(exact.cells.iter().any(|cell| cell.winners.len() == 1));
    let lower = with(|spec| (spec.better, spec.margin) = (Better::Lower, 0.0)).unwrap();
    assert_ne!(lower.cells[0].winners[0], exact.cells[0].winners[0]);
    let none = with(|spec| spec.metric = "throughput".into()).unwrap_err();
    assert!(none.contains("no result has"), "{none}");
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    for (from, to, line, why) in [
        ("steps = 2", "step = 2", 22, "unknown field `step`"),
        (
            "\"abort_ratio\"\nvalues",
            "\"abort_ration\"\nvalues",
            15,
            "did you mean `abort_ratio`",
        ),
        ("\"cfc\"", "\"cfcc\"", 13, "did you mean `cfc`"),
        ("zipf:0.9", "zip:0.9", 5, "unknown workload"),
        ("to = 16", "to = 1", 18, "is empty"),
        ("to = 16", "", 18, "`from` and `to`"),
        ("\ny = \"abort_ratio\"", "\ny = \"abort\"", 25, "no axis"),
        (
            "\ny = \"abort_ratio\"",
            "\ny = \"clients\"",
            25,
            "three axes",
        ),
        (
            "requests = 400",
            "requests = 400\ntrace = \"t\"",
            5,
            "leave one of them out",
        ),
    ] {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT);
        let error = Sweep::parse(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(
            error.starts_with(&format!("line {line}, ")),
            "{to}: {error}"
        );
    }
}

#[test]
fn too_much_is_refused_before_anything_is_made() {
    let text = TEXT.replace("steps = 2\n", "steps = 9999\n").replace(
        "[0.0, 0.5]",
        &format!("{:?}", (0..200).map(|n| n as f64 / 1e3).collect::<Vec<_>>()),
    );
    let error = Sweep::parse(&text.replace("to = 16", "to = 16000")).unwrap_err();
    assert!(
        error.to_string().contains("more than 1000000 tasks"),
        "{error}"
    );
    let none = Sweep::parse(&format!("{TEXT}[sample]\npoints = 0\n")).unwrap_err();
    assert!(none.to_string().contains("1 to 65536 points"), "{none}");
}

#[test]
fn the_examples_that_are_shipped_are_sweeps_with_a_map() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sweeps");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let sweep = Sweep::parse(&fs::read_to_string(&path).unwrap());
        let sweep = sweep.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            sweep.map.is_some() && sweep.tasks.len() > 50,
            "{}",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 2);
}
