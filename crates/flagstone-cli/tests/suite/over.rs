//! `flagstone compare --over` and `--html`: each point of a grid equals the comparison with its
//! settings, and pages are self-contained.

use super::run::{Place, TINY, bad, good, says, words};
use serde_json::Value;
use std::fs;

const WORKLOAD: &str = "compare --workload uniform --requests 1600 --protocols plain,seal,scc";

fn records(args: &[&str]) -> Vec<Value> {
    let (out, _) = good(args);
    let lines = out.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("an object a line")
}

#[test]
fn a_point_of_a_grid_is_the_comparison_with_its_settings() {
    let place = Place::new("over-point");
    let device = place.file("device.toml", TINY);
    let of = |more: &[&str]| {
        let args = [&words(WORKLOAD)[..], &["--device", &device, "--json"], more].concat();
        records(&args)
    };
    let grid = of(&["--over", "abort-ratio=0:0.25,fill=0.3..0.6:3"]);
    assert_eq!(grid.len(), 3 * 2 * 3);
    for (ratio, fill) in [("0", "0.3"), ("0.25", "0.45"), ("0.25", "0.6")] {
        let alone = of(&["--abort-ratio", ratio, "--fill", fill]);
        let is_here = |run: &&Value| {
            let at = |name: &str| run["over"][name].as_f64().map(|value| value.to_string());
            at("abort-ratio").as_deref() == Some(ratio) && at("fill").as_deref() == Some(fill)
        };
        let mut here: Vec<Value> = grid.iter().filter(is_here).cloned().collect();
        for run in &mut here {
            run.as_object_mut().expect("an object").remove("over");
        }
        assert_eq!(here, alone, "abort ratio {ratio}, fill {fill}");
    }
    // The points differ, so the grid does not play one point repeatedly.
    assert!(
        grid.iter()
            .any(|run| run["throughput_tps"] != grid[0]["throughput_tps"])
    );
}

#[test]
fn grids_print_the_same_bytes_on_any_number_of_threads() {
    let place = Place::new("over-threads");
    let device = place.file("device.toml", TINY);
    for format in [&[][..], &["--json"], &["--csv"], &["--markdown"]] {
        for over in ["clients=1:4", "clients=1:4,transaction-pages=1:8"] {
            let run = |threads| {
                let more = ["--device", &device, "--over", over, "--threads", threads];
                good(&[&words(WORKLOAD)[..], &more, format].concat()).0
            };
            let one = run("1");
            assert_eq!(one, run("4"), "{over}");
            assert!(one.lines().count() > 2, "{one}");
        }
    }
}

#[test]
fn a_grid_says_who_wins_and_its_page_needs_nothing_else() {
    let place = Place::new("over-page");
    let device = place.file("device.toml", TINY);
    for (over, marks) in [
        ("abort-ratio=0..0.4:3", &["<svg", "abort-ratio"][..]),
        (
            "abort-ratio=0..0.4:3,clients=1:4",
            &["class=\"map\"", "title=\""],
        ),
    ] {
        let path = place.path("grid.html");
        let more = ["--device", &device, "--over", over, "--html", &path];
        let (out, _) = good(&[&words(WORKLOAD)[..], &more].concat());
        says(&out, "First or tied, of ");
        assert!(
            !out.contains("plain at "),
            "it keeps nothing together: {out}"
        );
        let page = fs::read_to_string(&path).expect("a page");
        for mark in marks {
            assert!(page.contains(mark), "{mark}");
        }
        assert!(
            !page.contains("://") && !page.contains("<script src"),
            "{over}"
        );
        fs::remove_file(&path).expect("it is there");
    }
    let path = place.path("one.html");
    let (out, _) = good(
        &[
            &words(WORKLOAD)[..],
            &["--device", &device, "--html", &path],
        ]
        .concat(),
    );
    let page = fs::read_to_string(&path).expect("a page");
    assert!(out.contains("takes") && page.contains("class=\"bar\"") && page.contains("seal"));
}

#[test]
fn what_cannot_be_a_grid_is_refused() {
    for (args, why) in [
        (
            "--over full=1",
            "there is no setting `full`, did you mean `fill`",
        ),
        ("--over fill=0..1,clients=1,theta=1", "one or two settings"),
        ("--over fill=0.1,fill=0.2", "names fill twice"),
        ("--over fill=0.1:0.2 --fill 0.3", "leave one of them out"),
        ("--over clients=1:2,load=1:2", "open loop"),
        (
            "--over transaction-pages=1:2",
            "at transaction-pages 1: --pages-per-transaction",
        ),
        ("--over fill=0.1:0.2 --stack wal", "cannot be used with"),
    ] {
        let error = bad(&words(&format!("compare {args}")));
        assert!(error.contains(why), "{args:?}: {error}");
    }
}
