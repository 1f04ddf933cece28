//! Options that would have no effect are refused, with the reason.

use super::run::{Place, bad, good, says, words};

const LOG: &str = "fio version 2 iolog\nf read 0 4096\nf write 4096 4096\n";

#[test]
fn an_option_of_another_store_or_workload_is_refused() {
    let place = Place::new("useless");
    let file = format!("file:{}", place.path("pages"));
    let bench = |store: &str, more: &str| {
        format!("index bench --index linear --records 300 --store {store} {more}")
    };
    for (store, option, for_what) in [
        ("mem", "--protocol cfc", "--store sim"),
        ("mem", "--device small", "--store sim"),
        (&file, "--protocol cfc", "--store sim"),
        (&file, "--device small", "--store sim"),
        ("sim", "--page-bytes 4096", "--store mem and --store file"),
        ("mem", "--in-flight 2", "--store file"),
        ("sim", "--in-flight 2", "--store file"),
        ("mem", "--buffered", "--store file"),
        ("mem", "--searches 0.5", "workloads D and E"),
        ("mem", "--locality 0.8", "workloads C, D, E and H"),
        ("mem", "--scattered", "a locality above 0.5"),
    ] {
        let line = bench(store, &format!("--workload ycsb-c {option}"));
        let said = bad(&words(&line));
        for part in [words(option)[0], for_what, "leave it out"] {
            says(&said, part);
        }
    }
    assert_eq!(place.names(), Vec::<String>::new());
    for (more, for_what) in [
        ("A --operations 9", "workloads other than A and G"),
        ("G --operations 9", "workloads other than A and G"),
        ("H --locality 0.7,0.8", "the workload C"),
        ("H --searches 0.5", "workloads D and E"),
        ("C --locality 0.5 --scattered", "a locality above"),
    ] {
        let line = bench("mem", &format!("--workload {more}"));
        says(&bad(&words(&line)), for_what);
    }
    let ordered = ["index", "bench", "--index", "bptree", "--store", "mem"];
    let trace_c = ["--records", "300", "--workload", "C", "--scattered"];
    assert!(bad(&[&ordered[..], &trace_c].concat()).contains("hash indexes"));
    let twice = ["--memory", "100000", "--set", "memory=200000"];
    assert!(bad(&[&ordered[..], &twice].concat()).contains("are the same setting"));
    // Where the options have an effect, they are accepted.
    for (store, more) in [
        ("sim", "--device small --protocol cfc"),
        ("mem", "--page-bytes 512"),
        (&file, "--buffered --in-flight 2 --page-bytes 512"),
        ("mem", "--workload C --locality 0.6,0.9 --scattered"),
        ("mem", "--workload D --searches 0.5 --locality 0.8"),
    ] {
        good(&words(&bench(store, more)));
    }
}

#[test]
fn an_option_that_says_nothing_of_a_trace_is_refused() {
    let place = Place::new("useless-trace");
    let (log, trace) = (place.file("log", LOG), place.path("t.parquet"));
    let import = ["trace", "import", "fio", &log, "-o", &trace];
    let waits = bad(&[&import[..], &["--waits", "for-us"]].concat());
    says(&waits, "no wait in the log");
    good(&import);
    let (table, again) = (place.path("t.csv"), place.path("again.parquet"));
    good(&["trace", "export", "csv", &trace, "-o", &table]);
    let import = ["trace", "import", "csv", &table, "-o", &again];
    for option in [
        &["--delimiter", ";"][..],
        &["--skip-lines", "1"],
        &["--commit-at", "flush"],
        &["--time-unit", "ms"],
        &["--sector-bytes", "4096"],
        &["--max-request-bytes", "4096"],
        &["--any-rate"],
        &["--whole-pages"],
    ] {
        let said = bad(&[&import[..], option].concat());
        says(&said, option[0]);
        says(&said, "leave it out");
    }
    good(&import);
    let info = ["trace", "info", &trace, "--json", "--relations", "3"];
    assert!(bad(&info).contains("cannot be used with"));
}

#[test]
fn a_list_runs_nothing_and_takes_no_option_of_a_run() {
    for option in [
        &["--json"][..],
        &["--jobs", "2"],
        &["--full"],
        &["--out", "x"],
        &["--record", "x"],
    ] {
        let said = bad(&[&["reproduce", "--list"], option].concat());
        says(&said, "cannot be used with");
    }
    // The list has only what is named.
    let (list, _) = good(&["reproduce", "lighttx.fig19", "--list"]);
    let names: Vec<&str> = list.lines().collect();
    assert!(
        names.contains(&"lighttx.fig19") && names.len() > 2,
        "{list}"
    );
    let of = |name: &&str| *name == "lighttx.fig19" || name.starts_with("lighttx.fig19.");
    assert!(names.iter().all(of), "{list}");
    let (all, _) = good(&["reproduce", "--list"]);
    assert!(
        all.lines().count() > 100 && all.contains("sal.fig3"),
        "{all}"
    );
    let (sal, _) = good(&["reproduce", "sal", "--list"]);
    assert!(sal.lines().all(|name| name.starts_with("sal")), "{sal}");
    bad(&["reproduce", "fig1000", "--list"]);
}

#[test]
fn a_form_as_printed_that_does_not_differ_is_refused() {
    let place = Place::new("useless-form");
    let image = place.path("image");
    let fill = ["device", "fill", "small", "--as-published", "-o", &image];
    let said = bad(&[&fill[..], &["--protocol", "plain"]].concat());
    says(&said, "the published variant of plain does not differ");
    assert_eq!(place.names(), Vec::<String>::new());
}
