//! Numbers of any size give a result, or an error that says what would work. Every run ends.

use super::run::{Place, TINY, bad, flagstone, good, says, texts, words};

const HUGE: &str = "99999999999999999999";

/// The names of all protocols.
fn protocols() -> Vec<String> {
    let (json, _) = good(&["protocols", "--json"]);
    let name = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["name"].as_str().unwrap().to_string()
    };
    json.lines().map(name).collect()
}

#[test]
fn a_fill_ends_whatever_share_of_the_blocks_is_to_be_free() {
    let place = Place::new("threshold");
    let image = place.path("image");
    for threshold in ["0", "0.0001", "0.02", "0.15"] {
        let device = place.file("d.toml", &format!("{TINY}gc_threshold = {threshold}\n"));
        for protocol in &protocols() {
            for fill in ["0.001", "0.5", "1"] {
                good(&words(&format!(
                    "device fill {device} --protocol {protocol} --fill {fill} -o {image}"
                )));
            }
        }
        // Devices of pages, and devices of records under a database.
        for more in [
            &format!("--gc-threshold {threshold}"),
            "--stack cfc-ex,afc-ex,wal,force:mhl-d --log-pages 64",
        ] {
            good(&words(&format!(
                "compare --workload uniform --requests 400 --device {device} --fill 0.4 {more}"
            )));
        }
    }
}

#[test]
fn a_share_that_leaves_no_room_names_one_that_does() {
    let place = Place::new("room");
    let image = place.path("image");
    for (share, advice) in [
        ("gc_threshold = 0.9", "lower the gc threshold to "),
        ("over_provision = 0.01", "raise the over-provisioning to "),
    ] {
        let key = share.split(' ').next().unwrap();
        let with = |share: &str| {
            let rest = TINY.lines().filter(|line| !line.starts_with(key));
            let text: Vec<&str> = rest.chain([share]).collect();
            place.file("d.toml", &text.join("\n"))
        };
        let device = with(share);
        let fill = |device: &str| {
            let args = ["device", "fill", device, "--protocol", "scc", "-o", &image];
            flagstone(&[&args[..], &["--fill", "0.2"]].concat())
        };
        let refused = fill(&device);
        let said = texts(&refused).1;
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let (_, rest) = said.split_once(advice).unwrap_or_else(|| panic!("{said}"));
        let works = rest.split_whitespace().next().unwrap();
        let device = with(&format!("{key} = {works}"));
        let done = fill(&device);
        assert_eq!(done.status.code(), Some(0), "{said}{}", texts(&done).1);
    }
    let none = place.file(
        "d.toml",
        "preset = \"small\"\n[ftl]\nover_provision = 0.9999999\n",
    );
    let said = bad(&["device", "show", &none]);
    says(&said, "lower it");
}

#[test]
fn numbers_of_a_device_are_right_or_refused_with_their_line() {
    let place = Place::new("device-numbers");
    let image = place.path("image");
    let geometry = "channels packages_per_channel planes_per_package blocks_per_plane \
                    pages_per_block page_bytes spare_bytes partial_programs";
    let tables = [
        ("geometry", geometry),
        ("timing", "read_us program_us erase_us transfer_ns_per_byte"),
        ("ftl", "over_provision gc_threshold victims static_wear_gap"),
        ("reliability", "ecc_bits endurance"),
    ];
    let values = "0 1 -1 0.5 1.0 4294967295 4294967296 1e7 1e300 nan inf -inf \"x\"";
    let values = [words(values), vec![HUGE]].concat();
    let (mut right, mut refused) = (0, 0);
    for (table, keys) in tables {
        for key in words(keys) {
            for value in &values {
                let line = format!("[{table}]\n{key} = {value}\n");
                let rest = TINY.replace(&format!("[{table}]\n"), &line);
                let doubled = rest.lines().filter(|other| {
                    !other.starts_with(key) || *other == format!("{key} = {value}")
                });
                let mut text = doubled.collect::<Vec<_>>().join("\n");
                if !rest.contains(&line) {
                    text = format!("{text}\n{line}");
                }
                let device = place.file("d.toml", &text);
                let shown = flagstone(&["device", "show", &device]);
                let said = texts(&shown).1;
                if shown.status.code() == Some(2) {
                    refused += 1;
                    assert!(said.contains("line "), "{key} = {value}: {said}");
                    continue;
                }
                assert_eq!(shown.status.code(), Some(0), "{key} = {value}: {said}");
                let filled = flagstone(&words(&format!(
                    "device fill {device} --protocol scc --fill 0.9 -o {image}"
                )));
                let said = texts(&filled).1;
                let code = filled.status.code();
                assert!(matches!(code, Some(0 | 2)), "{key} = {value}: {said}");
                right += u32::from(code == Some(0));
            }
        }
    }
    assert!(
        right > 30 && refused > 100,
        "{right} right, {refused} refused"
    );
}

#[test]
fn numbers_of_an_index_are_right_or_refused() {
    let bench = words("index bench --store mem --records 2000 --index");
    let (json, _) = good(&["index", "list", "--json"]);
    let (mut right, mut refused) = (0, 0);
    for line in json.lines() {
        let index: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = index["name"].as_str().unwrap();
        let settings = index["settings"].as_array().unwrap();
        let own = settings
            .iter()
            .map(|setting| setting["name"].as_str().unwrap());
        for setting in own.chain(["memory", "value_bytes"]) {
            for value in words("0 1 -1 0.1 4 200 18446744073709551615 nan")
                .into_iter()
                .chain([HUGE])
            {
                let set = format!("{setting}={value}");
                let output = flagstone(&[&bench[..], &[name, "--set", &set]].concat());
                let said = texts(&output).1;
                match output.status.code() {
                    Some(0) => right += 1,
                    Some(2) => refused += 1,
                    _ => panic!("{name} {set}: {said}"),
                }
                assert!(!said.contains("panicked"), "{name} {set}: {said}");
            }
        }
    }
    assert!(
        right > 40 && refused > 100,
        "{right} right, {refused} refused"
    );
}

#[test]
fn a_tree_of_tiny_nodes_has_room() {
    let bench = "index bench --records 30000 --operations 100 --index";
    for index in ["bptree", "lazy-bptree"] {
        for store in ["mem", "sim"] {
            good(&words(&format!(
                "{bench} {index} --store {store} --set order=1"
            )));
        }
    }
    // For a device that is too small, the message says what size would do.
    let place = Place::new("tiny-nodes");
    let device = place.file("tiny.toml", TINY);
    let small = bad(&words(&format!(
        "{bench} bptree --set order=1 --device {device}"
    )));
    says(&small, "use fewer --records, a larger --device");
}

#[test]
fn numbers_of_the_command_line_are_refused_where_they_are_wrong() {
    let bench = ["index", "bench", "--index", "linear", "--store", "mem"];
    for (option, value) in [
        ("--records", "0"),
        ("--records", HUGE),
        ("--records", "-1"),
        ("--operations", "0"),
        ("--operations", "18446744073709551615"),
        ("--memory", "-1"),
        ("--memory", "0"),
        ("--memory", "18446744073709551615"),
        ("--page-bytes", "0"),
        ("--page-bytes", "255"),
        ("--page-bytes", "65537"),
        ("--seed", "-1"),
        ("--seed", HUGE),
    ] {
        bad(&[&bench[..], &[option, value]].concat());
    }
    for list in ["-1", "nan", "2", "0.5,-0.1", ""] {
        bad(&[&bench[..], &["--workload", "D", "--searches", list]].concat());
        bad(&[&bench[..], &["--workload", "C", "--locality", list]].concat());
    }
    let place = Place::new("line-numbers");
    let image = place.path("image");
    for fill in ["-1", "1.1", "nan", "inf", "-0.5", "1e400", "x", ""] {
        let args = ["device", "fill", "small", "--protocol", "aw", "-o", &image];
        let said = bad(&[&args[..], &["--fill", fill]].concat());
        assert!(said.contains("--fill") && !said.contains("tip:"), "{said}");
    }
    assert_eq!(place.names(), Vec::<String>::new());
    for jobs in ["0", "-1", "65536"] {
        bad(&["reproduce", "sal.fig3", "--jobs", jobs]);
    }
}
