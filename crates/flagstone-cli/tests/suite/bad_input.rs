//! Invalid input to all commands but `trace`: an exit code, and a message with the problem, the
//! place and a remedy. Nothing panics, and no result is lost silently.

use super::run::{Place, bad, flagstone, says};

const BENCH: [&str; 6] = ["index", "bench", "--index", "bptree", "--store", "mem"];

#[test]
fn numbers_that_cannot_be_are_refused_and_not_tried() {
    let bench = |more: &[&str]| bad(&[&BENCH[..], more].concat());
    let small = bench(&["--records", "1000", "--memory", "10"]);
    says(
        &small,
        "memory is 10 bytes, and bptree on pages of 4096 takes 8192 at least",
    );
    let most = u64::MAX.to_string();
    let large = bench(&["--memory", &most]);
    says(&large, "use a number from 0 to");
    for records in ["0", &most] {
        let records = bench(&["--records", records]);
        says(&records, "from 1 to 1073741824");
    }
    let cuts = |cuts| bad(&["break", "--protocol", "cfc", "--cuts", cuts]);
    assert!(cuts("0").contains("a number from 1 to"));
    assert!(cuts("many").contains("`exhaustive` or `landings`, not `many`"));
    let uniform = ["compare", "--workload", "uniform"];
    let compare = |more: &[&str]| bad(&[&uniform[..], more].concat());
    assert!(compare(&["--requests", "0"]).contains("0 is not in 1.."));
    let full = compare(&["--gc-threshold", "0.99", "--protocols", "cfc"]);
    says(&full, "lower the gc threshold");
}

#[test]
fn a_warm_up_that_leaves_nothing_to_count_is_refused() {
    let wal = ["compare", "--workload", "uniform", "--stack", "wal"];
    let few = ["--requests", "80", "--fill", "0.01", "--warm-up", "100"];
    let refused = bad(&[&wal[..], &few[..]].concat());
    says(&refused, "no more transactions than that");
}

/// Protocols with flags do not work on MLC cells. The others live on.
#[test]
fn a_life_leaves_out_protocols_that_the_cells_do_not_allow() {
    let place = Place::new("age");
    let mlc = place.file(
        "mlc.toml",
        "preset = \"worn\"\n[geometry]\ncell = \"mlc\"\n",
    );
    let age = |protocols| {
        let line = ["device", "age", &mlc, "--for", "12h", "--json"];
        flagstone(&[&line[..], &["--protocol", protocols]].concat())
    };
    let both = age("cfc,scc");
    assert_eq!(both.status.code(), Some(0));
    says(
        &String::from_utf8(both.stdout).unwrap(),
        "\"protocol\":\"scc\"",
    );
    says(
        &String::from_utf8(both.stderr).unwrap(),
        "left out: cfc sets",
    );
    let none = age("cfc");
    assert_eq!((none.status.code(), &none.stdout[..]), (Some(2), &b""[..]));
}

/// Fails if nothing was committed and nothing is reported as lost.
#[test]
fn a_store_that_no_worker_can_open_is_an_error_of_kill() {
    let place = Place::new("kill");
    let store = place.path("missing/s.flag");
    for tables in [&[][..], &["--tables"]] {
        let line = ["store", "kill", &store, "--times", "2"];
        let refused = flagstone(&[&line[..], tables].concat());
        let said = String::from_utf8(refused.stderr).unwrap();
        says(&said, "a worker ended before it was killed");
        says(&said, "No such file");
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    }
}

#[test]
fn an_index_on_what_has_no_transactions_is_refused() {
    let refused = bad(&["break", "--index", "sal", "--on", "wal,plain"]);
    says(
        &refused,
        "sal@plain: an index needs a protocol or database with transactions",
    );
    says(&refused, "use another --on");
    says(
        &bad(&["replay", "sal@plain/g1/b1/w4x24/f0/s7/n1/c3-5f-n"]),
        "sal@plain",
    );
}

#[test]
fn a_sabotage_of_something_else_is_refused() {
    for (sabotage, name) in [
        ("one-death", "--stack cfc-ex"),
        ("room-not-kept", "--index lazy-bptree"),
    ] {
        let of = ["break", "--protocol", "cfc", "--sabotage", sabotage];
        let refused = bad(&of);
        says(&refused, name);
    }
}

#[test]
fn what_is_no_raw_nand_is_refused_with_what_to_name() {
    for action in ["info", "create", "check", "load", "verify"] {
        let refused = bad(&["mtd", action, "/dev/null"]);
        let says = refused.contains("/dev/null: not an MTD device");
        assert!(says && refused.contains("/dev/mtd0"), "{refused}");
    }
    let absent = bad(&["mtd", "info", "/dev/mtd-that-is-not"]);
    says(&absent, "/dev/mtd-that-is-not");
}
