//! `flagstone compare`: output is independent of threads and of other protocols, claims no more
//! than was measured, and no option is ignored.

use super::run::{Place, TINY, bad, good, says, words};
use flagstone::commit::Kind;
use flagstone_host::Stack;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

const SMALL: [&str; 4] = ["--workload", "uniform", "--requests", "1600"];

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../data/tpcc-postgres.parquet"
);

fn compare(args: &[&str]) -> (String, String) {
    good(&[&["compare"], args].concat())
}

/// An equally small device of MLC cells.
const MLC: &str = "preset = \"mixsl-mlc\"\n[geometry]\nblocks_per_plane = 32\n\
                   pages_per_block = 8\n[ftl]\nover_provision = 0.4\n";

/// Calls `run` with the arguments for generated transactions on the device file `device`.
fn on<T>(device: &str, args: &[&str], run: impl Fn(&[&str]) -> T) -> T {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let place = Place::new(&format!("compare-{call}"));
    let device = place.file("device.toml", device);
    run(&[&SMALL[..], args, &["--device", &device]].concat())
}

/// Compares protocols on generated transactions and a tiny device.
fn small(args: &[&str]) -> (String, String) {
    on(TINY, args, compare)
}

fn refused(args: &[&str]) -> String {
    bad(&[&["compare"], args].concat())
}

#[test]
fn any_number_of_threads_and_any_further_run_give_the_same_bytes() {
    let subjects = [
        &["--protocols", "cfc,bpcc,plain"][..],
        &["--stack", "wal,cfc-ex,force:aw"],
    ];
    let formats = [
        &[][..],
        &["--wide"],
        &["--json"],
        &["--csv"],
        &["--markdown"],
    ];
    for subject in subjects {
        for format in formats {
            let run = |threads| {
                let more = ["--seeds", "2", "--threads", threads];
                small(&[subject, format, &more].concat()).0
            };
            let once = run("1");
            assert!(!once.is_empty());
            assert_eq!(once, run("2"), "{subject:?} {format:?}");
        }
    }
}

#[test]
fn what_depends_on_the_machine_is_told_if_asked_for() {
    for subject in [["--protocols", "cfc"], ["--stack", "wal"]] {
        let with = |more: &[&str]| small(&[&subject, more].concat()).0;
        assert!(!with(&["--json"]).contains("wall"));
        assert!(with(&["--json", "--timing"]).contains("\"timing\":{\"wall_s\":"));
        assert!(with(&["--csv", "--timing"]).contains("timing.wall_s"));
    }
}

#[test]
fn the_columns_of_csv_are_the_same_for_all() {
    let head = |(out, _): (String, String)| {
        let lines: Vec<String> = out.lines().map(String::from).collect();
        let count = |line: &String| line.split(',').count();
        assert!(lines.iter().all(|line| count(line) == count(&lines[0])));
        lines[0].clone()
    };
    let of = |option, subject| head(small(&[option, subject, "--csv"]));
    let protocols = of("--protocols", "plain");
    assert_eq!(protocols, of("--protocols", "bpcc,mixsl,lighttx"));
    let recorded = ["--protocols", "cfc", "--fill", "0", "--speedup", "2"];
    let recorded = compare(&[&recorded[..], &[TRACE, "--csv"]].concat());
    assert_eq!(protocols, head(recorded));
    // Some count nothing that others do.
    let paired = MLC
        .replace("[ftl]", "pairing = \"distance-3\"\n[ftl]\nscrub_bits = 8")
        .replace("0.4", "0.75\npaired_pages = \"closed\"");
    let of_paired = |all| head(on(&paired, &["--protocols", all, "--csv"], compare));
    let closed = of_paired("plain");
    assert!(closed.contains("pages_left_out") && closed.contains("flash.read.scrub"));
    assert_eq!(closed, of_paired("seal,aw,plain"));
    let stacks = of("--stack", "force:plain");
    assert_eq!(stacks, of("--stack", "wal,cfc-ex,afc-ex,force:scc"));
}

#[test]
fn a_table_in_a_pipe_fits_a_hundred_characters() {
    for subject in [["--protocols", "all"], ["--stack", "all"]] {
        for more in [&[][..], &["--seeds", "2"]] {
            let (out, _) = small(&[&subject, more].concat());
            let widest = out.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(100), "{out}");
        }
    }
    let (out, _) = small(&["--protocols", "cfc", "--wide"]);
    says(&out, "RAM KiB");
    says(&out, "p99.9");
}

/// The rows of a Markdown table, each as a map from headings to cells.
fn rows(markdown: &str) -> Vec<BTreeMap<String, String>> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_string()).collect()
    };
    let mut lines = markdown.lines();
    let heads = cells(lines.next().expect("a head"));
    lines
        .skip(1)
        .map(|line| heads.iter().cloned().zip(cells(line)).collect())
        .collect()
}

#[test]
fn at_an_arrival_rate_rows_are_ranked_by_their_latency() {
    let with = |speedup, more: &[&str]| {
        let args = ["--fill", "0", "--speedup", speedup, TRACE];
        compare(&[&args[..], &["--protocols", "scc,mhl-d,aw"], more].concat()).0
    };
    let calm = rows(&with("0.5", &["--markdown"]));
    let p99 = |row: &BTreeMap<String, String>| row["p99"].parse::<f64>().unwrap();
    assert!(calm.iter().all(|row| row["keeps up"] == "yes"), "{calm:?}");
    assert!(calm.is_sorted_by_key(p99), "{calm:?}");
    assert_eq!(calm[0]["relative"], "1.00");
    let rushed = with("5", &[]).replace('\n', " ");
    says(&rushed, "2196.2 arrivals per second");
    says(&rushed, "None keeps up with 2196 tx/s");
    assert!(!rushed.contains("First"), "{rushed}");
}

#[test]
fn one_seed_says_less_than_several() {
    let of = ["--protocols", "scc,bpcc,cfc"];
    let one = small(&of).0.replace('\n', " ");
    says(&one, "with this seed");
    says(&one, "--seeds 5 shows");
    let several = small(&[&of[..], &["--seeds", "3"]].concat()).0;
    let several = several.replace('\n', " ");
    // Without collisions the two cyclic protocols behave alike.
    let tie =
        "Tied for the first place by tx/s, as their ranges over 3 seeds overlap: scc and bpcc.";
    says(&several, tie);
    says(&several, "tx/s range");
    // One record for each run, with its seed.
    let (json, _) = small(&[&of[..], &["--seeds", "3", "--seed", "7", "--json"]].concat());
    let seeds: Vec<&str> = json.lines().filter_map(seed_of).collect();
    assert_eq!(seeds, ["7", "8", "9", "7", "8", "9", "7", "8", "9"]);
}

fn seed_of(json: &str) -> Option<&str> {
    let rest = json.split_once("\"seed\":")?.1;
    rest.split(',').next()
}

#[test]
fn nothing_committed_is_no_number() {
    for subject in [["--protocols", "cfc,afc"], ["--stack", "wal,force:cfc"]] {
        let (out, _) = small(&[&subject[..], &["--abort-ratio", "1", "--wide"]].concat());
        assert!(!out.contains("NaN") && !out.contains("inf"), "{out}");
        says(&out, "No transaction was committed");
    }
}

#[test]
fn a_run_that_collects_little_says_so_and_a_longer_one_does_not() {
    let place = Place::new("compare-few");
    let device = place.file("device.toml", TINY);
    let line = format!("--workload uniform --requests 80 --protocols seal,scc --device {device}");
    let few = "Few blocks were collected in the run (";
    assert!(compare(&words(&line)).0.contains(few));
    let (text, _) = compare(&words(&format!("{line} --repeat 50")));
    assert!(!text.contains(few), "{text}");
    assert!(text.contains(" 4000 page writes"), "{text}");
}

#[test]
fn what_is_read_before_it_is_written_was_filled_and_that_is_said() {
    let place = Place::new("compare-reads");
    let device = place.file("device.toml", TINY);
    // Pages 0 and 90 are read; page 91 is written before it is read.
    let log = "128166372000000000,h,0,Read,0,4096,0\n\
               128166372000000010,h,0,Read,368640,4096,0\n\
               128166372000000020,h,0,Write,372736,4096,0\n\
               128166372000000030,h,0,Read,372736,4096,0\n";
    let (log, trace) = (place.file("log.csv", log), place.path("log.parquet"));
    good(&["trace", "import", "msr", &log, "-o", &trace]);
    let args = [
        &trace[..],
        "--device",
        &device,
        "--fill",
        "0",
        "--protocols",
        "plain",
    ];
    let (text, _) = compare(&args);
    let said = "pages that the trace reads before it writes them were filled beforehand";
    assert!(text.contains(said), "{text}");
    let (json, _) = compare(&[&args[..], &["--json"]].concat());
    let record: serde_json::Value = serde_json::from_str(&json).expect("a record");
    assert_eq!(record["flash"]["read"]["host"], 3, "{json}");
    assert_eq!(record["pages_filled_for_reads"], 2, "{json}");
}

#[test]
fn the_times_of_each_transaction_are_written_as_the_table_has_them() {
    let place = Place::new("compare-times");
    let device = place.file("device.toml", TINY);
    let write = |name: &str, threads: &str| {
        let path = place.path(name);
        let line = format!(
            "--workload uniform --requests 800 --read-share 0.4 --protocols seal,aw --seeds 2 \
             --device {device} --latencies {path} --threads {threads} --json"
        );
        let (text, _) = compare(&words(&line));
        let count = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).expect("a record");
            record["transactions_committed"].as_u64().expect("a count")
        };
        (
            text.lines().map(count).sum::<u64>(),
            std::fs::read(path).expect("a file"),
        )
    };
    let (committed, bytes) = write("one.parquet", "1");
    assert_eq!(write("two.parquet", "2"), (committed, bytes.clone()));
    // Eight bytes follow the rows. The row count is in the footer, which another test reads.
    assert_eq!(
        (&bytes[..4], &bytes[bytes.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
    assert!(committed > 300);
    let refused = refused(&words("--stack wal --latencies times.parquet"));
    assert!(refused.contains("--latencies"), "{refused}");
}

#[test]
fn what_is_named_twice_is_taken_once() {
    let names = |args: &[&str]| {
        let (out, err) = small(&[args, &["--csv"]].concat());
        (out.lines().count() - 1, err)
    };
    let (runs, said) = names(&["--protocols", "cfc,cfc"]);
    assert_eq!(runs, 1);
    says(&said, "`cfc` is given twice and used once");
    let (all, said) = names(&["--protocols", "cfc,all"]);
    assert_eq!((all, said.contains("twice")), (Kind::ALL.len(), false));
    let (runs, said) = names(&["--stack", "wal,wal"]);
    assert!(runs == 1 && said.contains("`wal` is given twice"), "{said}");
    let unknown = refused(&["--stack", "wall"]);
    says(&unknown, "did you mean `wal`");
    let unknown = refused(&["--protocols", "cfc,bpc"]);
    says(&unknown, "did you mean `bpcc`");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let cases: [(&str, &str); 20] = [
        ("--frames 9", "add --stack"),
        ("--policy clock", "add --stack"),
        ("--log-pages 99", "add --stack"),
        ("--warm-up 9", "add --stack"),
        ("--protocols cfc --warm-up 9", "add --stack"),
        ("--requests 9", "add --workload"),
        ("--read-share 0.5", "add --workload"),
        ("--pages-per-transaction 9", "add --workload"),
        ("--workload uniform --speedup 2", "recorded times"),
        ("--clients 2 --speedup 2", "cannot be used with"),
        ("--stack wal --protocols cfc", "cannot be used with"),
        ("--stack wal --isolation strict", "cannot be used with"),
        ("--stack force:cfc --log-pages 99", "has none of them"),
        ("--stack wal --as-published", "has no effect here"),
        ("--protocols plain --as-published", "has no effect here"),
        ("--image x --fill 0.5", "cannot be used with"),
        ("--image x --seeds 2", "an image is filled already"),
        ("--image x --seed 2", "an image is filled already"),
        ("--json --wide", "only to the table"),
        ("--timing", "only to --json and --csv"),
    ];
    for (args, why) in cases {
        let said = refused(&words(args));
        assert!(said.contains(why), "{args:?}: {said}");
    }
    says(&refused(&[TRACE, "--read-share", "0.5"]), "add --workload");
    let both = refused(&[TRACE, "--workload", "uniform"]);
    says(&both, "cannot be used with");
    for args in [["--fill", "-1"], ["--speedup", "0"], ["--threads", "0"]] {
        let said = refused(&args);
        says(&said, "invalid value");
    }
}

#[test]
fn arrivals_beyond_the_end_of_time_are_refused() {
    let place = Place::new("compare-long");
    let year_ns = 31_536_000_000_000_000_u64;
    let table = format!(
        "time_ns,transaction,op,page,relation\n0,0,write,0,\n0,0,commit,,\n\
         {year_ns},1,write,1,\n{year_ns},1,commit,,\n"
    );
    let (table, trace) = (place.file("a.csv", &table), place.path("a.parquet"));
    let trace = trace.as_str();
    good(&["trace", "import", "csv", &table, "-o", trace]);
    let stacks = [trace, "--stack", "wal", "--speedup", "1e-3"];
    says(&refused(&stacks), "more than 18 years");
    let runs = [trace, "--protocols", "plain", "--fill", "0"];
    for more in [
        &["--speedup", "1e-3"][..],
        &["--speedup", "1e-300"],
        &["--over", "load=1e-3"],
        &["--speedup", "1", "--repeat", "20"],
        &["--speedup", "5", "--repeat", "10000"],
    ] {
        let said = refused(&[&runs[..], more].concat());
        says(&said, "more than 18 years");
    }
    compare(&[&runs[..], &["--speedup", "1", "--repeat", "18"]].concat());
    // In a closed loop the times of the trace do not matter.
    compare(&[&runs[..], &["--repeat", "600"]].concat());
}

#[test]
fn what_a_device_does_not_suit_is_told_where_it_runs() {
    let (_, said) = on(MLC, &["--stack", "wal,cfc-ex"], compare);
    says(&said, "left out: cfc-ex");
    says(&said, "(--device small suits it)");
    let said = on(MLC, &["--protocols", "cfc"], refused);
    let where_else =
        "(--device small suits it, and so do lighttx, flagcommit-slc, lazybtree, worn)";
    says(&said, where_else);
    // Another device would refuse it for the same reason.
    let full = ["--protocols", "cfc", "--gc-threshold", "0.99"];
    assert!(!on(MLC, &full, refused).contains("suits it"));
    // A device with the cells of the default one suits all stacks.
    let (out, said) = small(&["--stack", "all", "--csv"]);
    assert_eq!(out.lines().count() - 1, Stack::all().len());
    assert_eq!(said.as_str(), "");
}

/// With `FLAGSTONE_BLESS=1` the test writes the columns into the document.
#[test]
fn every_column_is_defined_in_help_and_in_the_document() {
    let (help, _) = compare(&["--help"]);
    let defined = help
        .split_once("Columns for protocols:")
        .expect("columns")
        .1;
    let (defined, _) = defined.split_once("\nExamples:").expect("examples");
    let defined = format!(
        "```text\nColumns for protocols:{}\n```\n",
        defined.trim_end()
    );
    for args in [["--protocols", "cfc"], ["--stack", "wal"]] {
        let (table, _) = small(&[&args[..], &["--markdown"]].concat());
        for heading in rows(&table)[0].keys() {
            assert!(defined.contains(&format!("\n  {heading} ")), "{heading}");
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let (begin, end) = ("<!-- columns: begin -->\n", "<!-- columns: end -->");
    let (before, rest) = text.split_once(begin).expect("where columns begin");
    let (written, after) = rest.split_once(end).expect("where columns end");
    if std::env::var_os("FLAGSTONE_BLESS").is_some() {
        std::fs::write(path, [before, begin, &defined, end, after].concat()).expect("written");
        return;
    }
    assert_eq!(written, defined, "run with FLAGSTONE_BLESS=1");
}
