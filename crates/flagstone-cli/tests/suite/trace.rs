//! `flagstone trace`: import, info and export from end to end, and the exit codes.

use super::run::{
    Place, bad, bad_with, command, flagstone, good, good_with, json, output, says, texts, words,
};

pub(crate) const WALDUMP: &str = "\
rmgr: Heap        len (rec/tot):     54/    54, tx:        700, lsn: 0/01, prev 0/00, desc: INSERT off 1, blkref #0: rel 1663/5/16396 blk 8, blkref #1: rel 1663/5/16396 fork vm blk 0
rmgr: Transaction len (rec/tot):     34/    34, tx:        700, lsn: 0/02, prev 0/01, desc: COMMIT 2026-11-21 21:28:08.660433 UTC
rmgr: Heap        len (rec/tot):     54/    54, tx:        701, lsn: 0/03, prev 0/02, desc: INSERT off 1, blkref #0: rel 1663/5/16396 blk 9
rmgr: Heap        len (rec/tot):     54/    54, tx:        702, lsn: 0/04, prev 0/03, desc: INSERT off 1, blkref #0: rel 1663/5/16400 blk 0
rmgr: Transaction len (rec/tot):     34/    34, tx:        702, lsn: 0/05, prev 0/04, desc: ABORT 2026-11-21 21:28:08.661433 UTC
";

#[test]
fn a_dump_is_imported_described_and_exported() {
    let place = Place::new("import");
    let trace = place.path("a.parquet");
    let (out, err) = good_with(&["trace", "import", "waldump", "-", "-o", &trace], WALDUMP);
    assert_eq!(out, "");
    says(&err, "2 transactions, 4 events, 2 pages of 8192 bytes");
    says(&err, "skipped: 1 × transactions that never end");
    says(&err, "skipped: 1 × block references to fork vm");

    let info = json(&["trace", "info", &trace, "--json"]);
    assert_eq!((&info["commits"], &info["aborts"]), (&1.into(), &1.into()));
    assert_eq!(info["distinct_pages"]["max"], 1);
    assert_eq!(info["duration_ns"], 1_000_000);
    assert_eq!(info["relations"][1]["name"], "1663/5/16400");
    assert_eq!(info["skipped"]["transactions that never end"], 1);
    assert_eq!(info["provenance"]["source"], "standard input");
    assert_eq!(
        info["provenance"]["source_bytes"],
        WALDUMP.len().to_string()
    );
    assert_eq!(info["trace_sha256"].as_str().unwrap().len(), 64);

    let (text, _) = good(&["trace", "info", &trace]);
    says(&text, "1663/5/16396");
    says(&text, "p99");

    let csv = "time_ns,transaction,op,page,relation\n0,0,write,0,1663/5/16396\n0,0,commit,,\n\
               666000,1,write,1,1663/5/16400\n1000000,1,abort,,\n";
    assert_eq!(good(&["trace", "export", "csv", &trace]).0, csv);
    let file = place.path("a.csv");
    good(&["trace", "export", "csv", &trace, "-o", &file]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), csv);

    let (_, err) = good_with(
        &words(&format!(
            "trace import waldump - -o {trace} --keep-unfinished"
        )),
        WALDUMP,
    );
    says(&err, "3 transactions");
    says(&err, "kept as aborted: 1");
    let (_, err) = good_with(
        &words(&format!("trace import waldump - -o {trace} --forks=all")),
        WALDUMP,
    );
    says(&err, "3 pages");
}

#[test]
fn every_block_format_is_imported() {
    let place = Place::new("block");
    let trace = place.path("a.parquet");
    for (format, options, text) in [
        (
            "disksim",
            &["--time-unit", "ms"][..],
            "0 0 0 16 0\n1 0 8 8 1\n",
        ),
        (
            "msr",
            &[],
            "128166385295514663,hm,0,Write,0,8192,1\n128166385295524663,hm,0,Read,0,1,1\n",
        ),
        (
            "blkparse",
            &["--action", "Q"],
            "8,0 3 1 0.000000000 697 Q W 0 + 16 [x]\n8,0 3 2 0.001000000 697 Q R 0 + 8 [x]\n",
        ),
        (
            "fio",
            &[],
            "fio version 3 iolog\n0 f write 0 8192\n1000 f read 0 4096\n",
        ),
        ("spc", &[], "0,0,8192,W,0\n0,0,4096,r,0.001\n"),
        (
            "csv",
            &["--preset", "tencent", "--time-unit", "ms"],
            "7,0,16,1,9\n8,0,8,0,9\n",
        ),
        (
            "csv",
            &[
                "--columns",
                "op,time:ms,offset:kib,bytes",
                "--delimiter",
                ";",
            ],
            "op;ms;kib;bytes\nw;0;0;8192\nr;1;4;1\n",
        ),
    ] {
        let input = place.file("input", text);
        let args = [&["trace", "import", format, &input, "-o", &trace], options].concat();
        let (_, err) = good(&args);
        says(&err, "2 transactions, 5 events, 2 pages of 4096");
        says(&err, "0.001 s, 1000.0 requests/s");
        let (json, _) = good(&["trace", "info", &trace, "--json"]);
        says(&json, "\"source\":\"input\"");
    }
}

/// Export and import keep a trace with aborts, relations and reads, except its provenance.
#[test]
fn an_exported_table_is_read_back() {
    let place = Place::new("round");
    let (first, table, second) = (place.path("1"), place.path("csv"), place.path("2"));
    good_with(&["trace", "import", "waldump", "-", "-o", &first], WALDUMP);
    good(&["trace", "export", "csv", &first, "-o", &table]);
    let import = format!("trace import csv {table} --page-bytes 8192 -o {second}");
    good(&words(&import));
    assert_eq!(
        good(&["trace", "export", "csv", &second]).0,
        std::fs::read_to_string(&table).unwrap()
    );
    let [first, second] = [first, second].map(|trace| json(&["trace", "info", &trace, "--json"]));
    for entry in [
        "relations",
        "page_bytes",
        "pages",
        "commits",
        "aborts",
        "duration_ns",
    ] {
        assert_eq!(first[entry], second[entry], "{entry}");
    }
}

#[test]
fn wrong_use_and_wrong_input_are_2() {
    let place = Place::new("wrong");
    let trace = place.path("a.parquet");
    let text = place.file("text", "hello\n");
    let unit = bad(&["trace", "import", "disksim", &text, "-o", &trace]);
    says(&unit, "--time-unit");
    bad(&words(&format!(
        "trace import disksim {text} -o {trace} --time-unit min"
    )));
    let page = bad(&words(&format!(
        "trace import fio {text} -o {trace} --page-bytes=3000"
    )));
    says(&page, "a power of two");
    assert_eq!(flagstone(&["trace"]).status.code(), Some(2));
    bad(&["trace", "import", "waldump", "-"]);

    let unknown = bad(&["trace", "import", "csv", &text, "-o", &trace]);
    says(
        &unknown,
        "describe the columns, for example --columns time:us,op",
    );
    let columns = bad(&words(&format!(
        "trace import csv {text} -o {trace} --columns time,op,offset:bytes,bytes"
    )));
    says(&columns, "state time:s, time:ms");

    let foreign = bad(&["trace", "import", "waldump", &text, "-o", &trace]);
    says(&foreign, "line 1: not the output of pg_waldump");
    let absent = bad(&["trace", "import", "waldump", "no-such-file", "-o", &trace]);
    says(&absent, "no-such-file cannot be read: No such file");
    let format = |name: &str| bad(&["trace", "import", name, &text, "-o", &trace]);
    says(&format("fiu"), "trace import csv --preset fiu");
    says(
        &format("tpc"),
        "no trace format `tpc`: use waldump, blkparse, fio, or csv",
    );
    let log = place.file("x.log", "fio version 3 iolog\n0 f read 0 4096\n");
    says(
        &bad(&["compare", &log]),
        "to convert it, use `flagstone trace import fio`",
    );
    let info = bad(&["trace", "info", &text]);
    says(&info, "not a Parquet file");
    assert!(!std::path::Path::new(&trace).exists());
    let nowhere = place.path("no/such/place.parquet");
    let nowhere = bad_with(
        &["trace", "import", "waldump", "-", "-o", &nowhere],
        WALDUMP,
    );
    says(&nowhere, "there is no folder");
}

#[test]
fn a_trace_drives_databases_closed_and_open() {
    let place = Place::new("stacks");
    let (input, trace) = (place.file("wal.txt", WALDUMP), place.path("t.parquet"));
    good(&["trace", "import", "waldump", &input, "-o", &trace]);
    let compare = format!("compare {trace} --stack wal,force:cfc --fill 0.01 --json");
    let compare = words(&compare);
    let (closed, _) = good(&compare);
    let (open, _) = good(&[&compare[..], &["--speedup", "0.5"]].concat());
    for (out, speedup) in [(&closed, "\"speedup\":null"), (&open, "\"speedup\":0.5")] {
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        for (line, stack) in lines.iter().zip(["wal", "force:cfc"]) {
            assert!(line.contains(&format!("\"stack\":\"{stack}\"")), "{line}");
            says(line, "\"committed\":1,\"rolled_back\":1");
            says(line, speedup);
        }
    }
    let wrong = bad(&["compare", &trace, "--stack", "wall"]);
    says(&wrong, "no stack `wall`");
}

#[test]
fn a_saved_device_serves_a_comparison_and_a_wrong_one_is_refused() {
    let place = Place::new("image");
    let (input, trace) = (place.file("wal.txt", WALDUMP), place.path("t.parquet"));
    good(&["trace", "import", "waldump", &input, "-o", &trace]);
    let image = place.path("cfc.image");
    let fill = format!("device fill small --protocol cfc --fill 0.05 -o {image}");
    let fill = words(&fill);
    let (_, said) = good(&fill);
    says(&said, "cfc on small, 5 % full");
    let (out, _) = good(&["compare", &trace, "--image", &image, "--json"]);
    says(&out, "\"protocol\":\"cfc\"");
    says(&out, "\"fill\":0.0");

    let refused =
        |image: &str, more: &[&str]| bad(&[&["compare", &trace, "--image", image], more].concat());
    let error = refused(&image, &["--device", "flagcommit-slc"]);
    says(&error, "holds a device with another");
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    says(&refused(&image, &[]), "make the image again");
    says(&refused(&input, &[]), "is not the image of a device");
    says(&refused(&place.path("none"), &[]), "could not be read");
}

/// The program contains the shipped trace. A reason why no row can run is noted once.
#[test]
fn an_installed_program_compares_the_shipped_trace() {
    let place = Place::new("shipped");
    let device = place.file("device.toml", super::run::TINY);
    let mut command = command(&["compare", "--device", &device]);
    command.current_dir(place.path(""));
    let ended = output(command, "");
    let said = texts(&ended).1;
    says(&said, "error: the trace uses 114114 logical pages");
    assert_eq!(said.matches("use a larger device").count(), 1, "{said}");
}

#[test]
fn what_lies_between_flushes_is_a_transaction_and_reads_are_told_apart() {
    let place = Place::new("flushes");
    let trace = place.path("f.parquet");
    let log = "fio version 3 iolog\n0 a add\n1 a open\n2 a write 0 16384\n3 a read 0 8192\n\
               4 a write 16384 8192\n5 a datasync\n6 a write 0 8192\n7 a datasync\n";
    let import = format!("trace import fio - --page-bytes 8192 -o {trace}");
    let import = words(&import);
    good_with(&[&import[..], &["--commit-at", "flush"]].concat(), log);
    let info = json(&["trace", "info", &trace, "--json"]);
    assert_eq!(info["transactions"], 3);
    assert_eq!(info["read_only"], 1);
    let device = place.file("device.toml", super::run::TINY);
    let compare = format!("compare {trace} --device {device} --protocols seal");
    let compare = words(&compare);
    let (out, err) = good(&compare);
    says(
        &out,
        "3 committed and 0 rolled back transactions (1 of them read-only)",
    );
    says(&err, "trace pages have 8192 bytes");
    says(&err, "each trace page becomes");
    let error = bad(&words(&format!(
        "trace import msr - -o {trace} --commit-at flush"
    )));
    says(&error, "unexpected argument");
}
