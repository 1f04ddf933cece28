//! Sensitivity analyses with short runs: results, storage, and errors.

use super::*;
use crate::reproduce::claims::{self, Tolerances};
use crate::reproduce::engine::Outcome;
use crate::reproduce::figures::{Experiment, Mode};
use crate::reproduce::verdict::Verdict;
use crate::reproduce::{Catalogue, Selection, runs};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::Path;

const EXPERIMENT: &str = r#"
paper = "p"
title = "t"
cite = "c"
[setting]
engine = "replay"
workload = "uniform"
requests = 400
device = { preset = "small" }
clients = 2
fill = 0.3
overwrite = false
[[figure]]
id = "f"
title = "f"
where = "1"
metric = "committed"
y = "transactions"
chart = "bars"
x = { label = "seed", key = "seed", values = [1] }
series = { key = "protocol", values = ["cfc", "scc"] }
"#;

const CLAIMS: &str = r#"
[[claim]]
id = "p.f.half"
kind = "value"
published = 25.0
where = "1"
metric = "m"
rule = [{ figure = "f", measure = "cfc" }]
[[claim]]
id = "p.f.more"
kind = "value"
published = 5000.0
where = "1"
metric = "m"
rule = [{ figure = "f", measure = "cfc" }]
[[claim]]
id = "p.f.same"
kind = "ratio"
published = 1.0
where = "1"
metric = "m"
rule = [{ figure = "f", measure = "cfc / scc" }]
"#;

const OPEN: &str = r#"
paper = "p"
[[open]]
axis = { key = "abort_ratio", values = [0.5, 2.0] }
where = "1"
reason = "r"
[[open]]
axis = { key = "clients", from = 1, to = 4, steps = 2, whole = true }
where = "1"
reason = "r"
"#;

fn catalogue() -> Catalogue {
    Catalogue {
        claims: claims::parse(CLAIMS).unwrap(),
        experiments: vec![Experiment::parse(EXPERIMENT).unwrap()],
        tolerances: Tolerances::shipped(),
    }
}

fn tried(design: &Design, samples: &Path, open: &OpenSettings) -> Vec<Tried> {
    let catalogue = catalogue();
    let selection = catalogue.select(&["p"]).unwrap();
    let trier = Trier::new(&catalogue, open, &selection, Mode::Quick);
    let points = design.points.iter();
    points
        .map(|point| trier.run(point, 2, samples, &|_, _| {}))
        .collect()
}

#[test]
fn what_a_claim_needs_is_found_and_what_nothing_gives_is_said() {
    let open = OpenSettings::parse(OPEN).unwrap();
    let design = Design::new(&open, 0, 1);
    let names: Vec<String> = design.points.iter().map(Point::name).collect();
    let all = [
        "default",
        "abort_ratio 0.5",
        "abort_ratio 2",
        "clients 1",
        "clients 4",
    ];
    assert_eq!(names, all);
    let folder = tempfile::tempdir().unwrap();
    let tried = tried(&design, folder.path(), &open);
    // An invalid setting gives no verdict on a claim.
    let why = tried[2].claims.as_ref().unwrap_err();
    assert!(why.contains("from 0 to 1"), "{why}");
    assert_eq!(tried[0].verdict("p.f.half"), Some(Verdict::Direction));
    assert_eq!(tried[1].verdict("p.f.half"), Some(Verdict::Holds));
    let needed = needed(&tried);
    let of = |claim: &str| needed.iter().find(|needed| needed.claim == claim);
    assert_eq!(of("p.f.half").unwrap().holds_at, [1]);
    assert_eq!(of("p.f.half").unwrap().tried, 3);
    assert!(of("p.f.more").unwrap().holds_at.is_empty());
    assert_eq!(of("p.f.same"), None, "it holds");
    assert_eq!(best(&tried)[..2], [1, 0]);
    let ranges = one_at_a_time(&design, &tried, "p.f.half", 0);
    assert_eq!(ranges[0].setting, "abort_ratio");
    assert_eq!((ranges[0].high, &*ranges[0].high_at), (50.0, "default"));
    assert!(ranges[0].low < 40.0 && ranges[0].low_at == "abort_ratio 0.5");
    assert_eq!(ranges[1].low, ranges[1].high, "clients change no count");
    // A climb adds settings to the best point that help alone, and ends when nothing does.
    assert!(
        climb(&tried, 0).is_empty(),
        "the one that helps is there already"
    );
}

/// The verdicts on all claims of a paper from made-up results of a plan's runs, derived from the
/// run and `salt`, independent of the sources that a run's name depends on.
fn made_up(
    catalogue: &Catalogue,
    paper: &str,
    claims: &[&str],
    salt: u8,
    runs: &dyn Fn(&str) -> bool,
) -> Vec<(String, crate::reproduce::verdict::Judgement)> {
    let selection = catalogue.select_alone(claims).unwrap();
    let plan = catalogue.plan(&selection, Mode::Quick);
    let mut outcomes = std::collections::BTreeMap::new();
    for cell in plan.iter().flat_map(|(_, _, cells)| cells) {
        let hash = cell.run.hash();
        let settings = format!("{salt} {}", cell.run.settings());
        let number = Sha256::digest(settings)[..2]
            .iter()
            .fold(0, |high, low| 256 * high + u32::from(*low));
        if !runs(&hash) {
            continue;
        }
        let entry = outcomes.entry(hash).or_insert_with(|| Outcome::Done {
            metrics: std::collections::BTreeMap::new(),
            seconds: 0.0,
        });
        if let Outcome::Done { metrics, .. } = entry {
            for (nth, name) in cell.metric.split('+').enumerate() {
                let value = 1.0 + f64::from(number % 1009) + nth as f64;
                metrics.insert(name.to_string(), value);
            }
        }
    }
    let judged = catalogue.judge(&selection, Mode::Quick, plan, &outcomes);
    let own = judged.claims.into_iter();
    let own = own.filter(|judged| judged.claim.paper() == paper);
    own.map(|judged| (judged.claim.id, judged.judgement))
        .collect()
}

#[test]
fn a_claim_is_judged_by_the_runs_that_it_reads_as_by_all() {
    let catalogue = Catalogue::shipped();
    let (mut fewer, mut controls) = (0, 0);
    for open in OpenSettings::all() {
        let own = catalogue.claims.iter();
        let own = own.filter(|claim| claim.paper() == open.paper);
        let default = &Design::new(&open, 0, 1).points[0];
        for claim in own {
            let alone = catalogue.select_alone(&[&claim.id]).unwrap();
            let trier = Trier::new(&catalogue, &open, &alone, Mode::Quick);
            let plan = catalogue.plan(&alone, Mode::Quick);
            let read = trier.read(&plan);
            let judge = |salt, runs: &dyn Fn(&str) -> bool| {
                made_up(&catalogue, &open.paper, &[&claim.id], salt, runs)
            };
            let all = judge(0, &|_| true);
            let by_read = judge(0, &|hash| read.contains_key(hash));
            // The measured figure may have further points, which the verdict ignores.
            let verdicts = |all: &[(String, crate::reproduce::verdict::Judgement)]| {
                let parts = all.iter().flat_map(|(_, judgement)| &judgement.parts);
                let parts = parts.map(|part| (part.verdict, part.measured.clone()));
                parts.collect::<Vec<_>>()
            };
            assert_eq!(verdicts(&all), verdicts(&by_read), "{}", claim.id);
            fewer += usize::from(trier.runs(default) < runs(&plan).len());
            // Control: without one of these runs a claim has no verdict, or a different one. For
            // some results it may be the same by chance.
            let without = (0..4).any(|salt| {
                let all = judge(salt, &|_| true);
                read.keys().any(|left_out| {
                    let judged = judge(salt, &|hash| read.contains_key(hash) && hash != left_out);
                    verdicts(&judged) != verdicts(&all)
                })
            });
            controls += usize::from(without);
        }
    }
    assert!(
        fewer > 30,
        "{fewer} claims read fewer runs than their figures have"
    );
    assert_eq!(
        controls,
        catalogue.claims.len(),
        "each claim reads something"
    );
}

#[test]
fn where_nothing_more_holds_only_failing_claims_are_judged() {
    let open = OpenSettings::parse(OPEN).unwrap();
    let design = Design::new(&open, 0, 1);
    let catalogue = catalogue();
    let selection = catalogue.select(&["p"]).unwrap();
    let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
    let folder = tempfile::tempdir().unwrap();
    let run =
        |trier: &Trier<'_>, point: &Point| Some(trier.run(point, 2, folder.path(), &|_, _| {}));
    let default = run(&trier, &design.points[0]).unwrap();
    assert_eq!(default.verdict("p.f.same"), Some(Verdict::Holds));
    let at = |nth: usize| {
        let point: &Point = &design.points[nth];
        let tried = trier.run_failing(point, &default, &run).unwrap();
        (point.name(), tried)
    };
    let (name, helps) = at(1);
    assert_eq!(name, "abort_ratio 0.5");
    assert_eq!(
        helps,
        run(&trier, &design.points[1]).unwrap(),
        "all are judged"
    );
    let (name, helps_not) = at(3);
    assert_eq!(name, "clients 1");
    assert_eq!(helps_not.verdict("p.f.same"), None, "it holds by default");
    assert!(helps_not.verdict("p.f.more").is_some());
}

#[test]
fn a_point_at_which_there_is_nothing_to_measure_is_no_point_tried() {
    // Without aborts nothing is rolled back: an order of zeros.
    let claims = CLAIMS.replace(
        "kind = \"value\"\npublished = 25.0",
        "kind = \"order\"\nsays = \"s\"",
    );
    let claims = claims.replacen("measure = \"cfc\"", "order = [\"cfc\", \"scc\"]", 1);
    let experiment = EXPERIMENT.replace("\"committed\"", "\"aborted\"");
    let experiment = experiment.replace("fill =", "abort_ratio = 0.5\nfill =");
    let catalogue = Catalogue {
        claims: claims::parse(&claims).unwrap(),
        experiments: vec![Experiment::parse(&experiment).unwrap()],
        ..catalogue()
    };
    let open = OpenSettings::parse(&OPEN.replace("[0.5, 2.0]", "[0.0, 0.6]")).unwrap();
    let selection = catalogue.select_alone(&["p.f.half"]).unwrap();
    let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
    let folder = tempfile::tempdir().unwrap();
    let points = Design::new(&open, 0, 1).points;
    let points = points.iter().take(3);
    let mut tried: Vec<Tried> = points
        .map(|point| trier.run(point, 2, folder.path(), &|_, _| {}))
        .collect();
    assert_eq!(tried[1].verdict("p.f.half"), Some(Verdict::NotMeasured));
    assert_ne!(tried[2].verdict("p.f.half"), Some(Verdict::NotMeasured));
    // Treat the claim as not holding at the default, to ask what it needs.
    if let Ok(claims) = &mut tried[0].claims {
        claims.get_mut("p.f.half").unwrap().0 = Verdict::Differs;
    }
    assert_eq!(needed(&tried)[0].tried, 1, "nought says nothing");
}

#[test]
fn an_analysis_says_what_it_has_judged_and_keeps_the_effects_of_a_sample() {
    let text = OPEN.replace("values = [0.5, 2.0]", "from = 0.0, to = 0.8");
    let open = OpenSettings::parse(&text).unwrap();
    let design = Design::new(&open, 4, 1);
    let folder = tempfile::tempdir().unwrap();
    let tried = tried(&design, folder.path(), &open);
    let names = ["p".to_string()];
    let analysis = Analysis::new("p", &names, &design, &tried);
    let half = analysis
        .effect
        .iter()
        .find(|moved| moved.claim == "p.f.half");
    let half = half.unwrap();
    assert_eq!((half.points, &*half.share[0].setting), (4, "abort_ratio"));
    let share = &half.share[0];
    assert!(share.low <= share.total && share.total <= share.high);
    assert!(analysis.markdown().contains("| f: cfc | 4 | abort_ratio "));
    let read = Analysis::parse(&analysis.toml()).unwrap();
    assert_eq!(read, std::slice::from_ref(&analysis));
    // Without a sample there are no effects to report.
    let without = Analysis::new("p", &names, &Design::new(&open, 0, 1), &tried[..1]);
    assert!(without.effect.is_empty() && !without.markdown().contains("Total effects"));
    let claims: BTreeSet<String> = ["p.f.half", "p.f.other"].map(str::to_string).into();
    let left = unanswered(std::slice::from_ref(&without), &claims);
    assert_eq!(left, BTreeSet::from(["p.f.other".to_string()]));
    assert_eq!(unanswered(&[], &claims), claims);
    // An analysis without all points leaves its claims partly answered.
    let shipped = Analysis::shipped();
    let nowhere = |analysis: &&Analysis| {
        let mut answers = analysis.claim.iter();
        analysis.paper == "sal" && answers.any(|answer| answer.holds_at.is_empty())
    };
    let mut analysis = shipped.iter().find(nowhere).unwrap().clone();
    let claims: BTreeSet<String> = analysis.claim.iter().map(|one| one.id.clone()).collect();
    analysis.points = 5;
    let none: Vec<&Answer> = analysis
        .claim
        .iter()
        .filter(|one| one.holds_at.is_empty())
        .collect();
    let half = partly(std::slice::from_ref(&analysis), &claims);
    assert_eq!(half.len(), none.len());
    assert_eq!(half[&none[0].id], (5, 23));
    analysis.points = 23;
    assert!(partly(std::slice::from_ref(&analysis), &claims).is_empty());
}

#[test]
fn a_climb_joins_what_helps_alone() {
    let point = |names: &[&str], kind: PointKind| Point {
        kind,
        at: names
            .iter()
            .map(|name| (name.to_string(), 1.into()))
            .collect(),
        set: names
            .iter()
            .map(|name| (name.to_string(), 1.into()))
            .collect(),
        over: Vec::new(),
    };
    let made = |point: Point, holds: &[&str]| Tried {
        point,
        claims: Ok(["a", "b", "c"]
            .map(|claim| {
                let verdict = if holds.contains(&claim) {
                    Verdict::Holds
                } else {
                    Verdict::Differs
                };
                (claim.to_string(), (verdict, Vec::new()))
            })
            .into()),
    };
    let mut tried = vec![
        made(point(&[], PointKind::Default), &["a"]),
        made(point(&["x"], PointKind::One(0)), &["a", "b"]),
        made(point(&["y"], PointKind::One(1)), &["c"]),
        made(point(&["z"], PointKind::One(2)), &["a"]),
    ];
    let next = climb(&tried, 0);
    let names: Vec<String> = next.iter().map(Point::name).collect();
    assert_eq!(names, ["x 1, y 1"]);
    assert_eq!(next[0].set.len(), 2);
    tried.push(made(next[0].clone(), &["a"]));
    assert!(
        climb(&tried, 1).is_empty(),
        "the first round found nothing better"
    );
    tried.pop();
    tried.push(made(next[0].clone(), &["a", "b", "c"]));
    assert!(climb(&tried, 1).is_empty(), "there is nothing left to add");
}

#[test]
fn what_is_kept_is_judged_without_a_run_and_what_is_missing_is_left_out() {
    let open = OpenSettings::parse(OPEN).unwrap();
    let design = Design::new(&open, 0, 1);
    let folder = tempfile::tempdir().unwrap();
    let made = tried(&design, folder.path(), &open);
    let catalogue = catalogue();
    let selection = catalogue.select(&["p"]).unwrap();
    let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
    let empty = tempfile::tempdir().unwrap();
    for (point, made) in design.points.iter().zip(&made) {
        let kept = trier.kept(point, folder.path());
        assert_eq!(kept.is_some(), made.claims.is_ok());
        assert!(kept.is_none_or(|kept| kept == *made));
        assert_eq!(trier.kept(point, empty.path()), None);
    }
}

#[test]
fn a_sample_has_the_points_of_saltelli_and_its_effects_name_the_setting_that_counts() {
    let text = OPEN.replace("values = [0.5, 2.0]", "from = 0.0, to = 0.8");
    let open = OpenSettings::parse(&text).unwrap();
    let design = Design::new(&open, 4, 1);
    let sample = design.points.iter();
    let sample =
        sample.filter(|point| !matches!(point.kind, PointKind::Default | PointKind::One(_)));
    assert_eq!(sample.count(), 4 * (2 + 2));
    let folder = tempfile::tempdir().unwrap();
    let tried = tried(&design, folder.path(), &open);
    let (points, effects) = total_effects(&design, &tried, "p.f.half", 0).unwrap();
    assert_eq!(points, 4);
    assert_eq!(effects[0].0, "abort_ratio");
    assert_eq!(effects[1].1.total.value, 0.0, "clients change no count");
    // If one of its runs is missing, a sample point is left out.
    let without: Vec<Tried> = tried[..tried.len() - 1].to_vec();
    assert_eq!(
        total_effects(&design, &without, "p.f.half", 0).unwrap().0,
        3
    );
}

#[test]
fn a_grid_has_every_combination_of_the_given_values_and_the_defaults() {
    let open = OpenSettings::shipped("flagcommit").unwrap();
    let asked = ["insert_targets=4", "hot_fill=3,20", "locks"];
    let design = Design::grid(&open.clone().only(&asked).unwrap());
    let names: BTreeSet<String> = design.points.iter().map(Point::name).collect();
    assert_eq!((design.points.len(), names.len()), (2 * 3 * 2, 2 * 3 * 2));
    assert_eq!(design.points[0].kind, PointKind::Default);
    let alone = |point: &&Point| matches!(point.kind, PointKind::One(_));
    let alone: Vec<Point> = design.points.iter().filter(alone).cloned().collect();
    assert_eq!(alone.len(), 1 + 2 + 1);
    let all = design.points.last().unwrap();
    assert_eq!(all.name(), "hot_fill 20, insert_targets 4, locks pages");
    // The setting of some runs only lies over these; the others are laid as one.
    assert_eq!((all.set.len(), all.over.len()), (2, 1));
    // A point that changes one setting is that of a design without a grid.
    let one = open.clone().only(&["locks"]).unwrap();
    let own = &Design::new(&one, 0, 1).points[1];
    assert!(
        alone
            .iter()
            .any(|point| point.over == own.over && point.at == own.at)
    );
    let wrong = open.clone().only(&["page=on three packages"]);
    assert!(wrong.unwrap_err().contains("on two packages"));
    assert!(
        open.only(&["hot_filled=3"])
            .unwrap_err()
            .contains("hot_fill")
    );
}

#[test]
fn every_setting_that_a_paper_leaves_open_changes_some_run() {
    let catalogue = Catalogue::shipped();
    for open in OpenSettings::all() {
        let selection: Selection = catalogue.select(&[&open.paper]).unwrap();
        let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
        let design = Design::new(&open, 1, 1);
        let names = |point: &Point| -> BTreeSet<String> {
            let figures = trier.figures(point);
            let figures = figures.unwrap_or_else(|error| panic!("{}: {error}", point.name()));
            runs(&figures).into_keys().collect()
        };
        let default = names(&design.points[0]);
        for (nth, setting) in design.settings.iter().enumerate() {
            let own = design.points.iter();
            let mut own = own.filter(|point| point.kind == PointKind::One(nth));
            assert!(
                own.any(|point| names(point) != default),
                "{}: {setting} changes nothing",
                open.paper
            );
            assert!(open.open[nth].reason.len() > 40 && !open.open[nth].place.is_empty());
        }
    }
}

#[test]
fn a_setting_for_some_runs_lies_over_their_figures_own() {
    // The figure itself sets the number of clients of its series.
    let own = "series = { points = [\
        { name = \"cfc\", set = { protocol = \"cfc\", abort_ratio = 0.0 } }, \
        { name = \"scc\", set = { protocol = \"scc\", abort_ratio = 0.0 } } ] }";
    let (text, _) = EXPERIMENT.split_once("series =").unwrap();
    let experiment = Experiment::parse(&format!("{text}{own}\n")).unwrap();
    let catalogue = Catalogue {
        experiments: vec![experiment],
        ..catalogue()
    };
    let selection = catalogue.select(&["p"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let changed = |only: &str| {
        let text = OPEN.replacen("[0.5, 2.0] }", &format!("[0.5] }}\n{only}"), 1);
        let open = OpenSettings::parse(&text).unwrap();
        let trier = Trier::new(&catalogue, &open, &selection, Mode::Quick);
        let design = Design::new(&open, 0, 1);
        let point = &design.points[1];
        assert_eq!(point.name(), "abort_ratio 0.5");
        let cells = &trier.figures(point).unwrap()[0].2;
        let ratio = |at: usize| cells[at].run.settings()["abort_ratio"].as_f64().unwrap();
        let tried = trier.run(point, 2, folder.path(), &|_, _| {});
        (ratio(0), ratio(1), tried.value("p.f.half", 0).unwrap())
    };
    // Control: without `only` the figure's own value is used.
    assert_eq!(changed(""), (0.0, 0.0, 50.0));
    let (cfc, scc, committed) = changed("only = { protocol = [\"cfc\", \"lighttx\"] }");
    assert_eq!((cfc, scc), (0.5, 0.0));
    assert!(committed < 40.0);
    let nested = "only = { protocol = \"scc\", device = { preset = \"small\" } }";
    assert_eq!(changed(nested), (0.0, 0.5, 50.0));
    let other = "only = { protocol = \"scc\", device = { preset = \"large\" } }";
    assert_eq!(changed(other), (0.0, 0.0, 50.0));
}

#[test]
fn a_wrong_file_is_refused() {
    for (from, to, why) in [
        (
            "reason = \"r\"\n[[open]]",
            "[[open]]",
            "missing field `reason`",
        ),
        ("key = \"abort_ratio\", ", "", "need a `key`"),
        ("to = 4", "to = 1", "is empty"),
        ("paper", "papers", "unknown field `papers`"),
    ] {
        let error = OpenSettings::parse(&OPEN.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
