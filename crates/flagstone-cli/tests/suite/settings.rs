//! `--set`: a setting applies to all subjects that have it, is part of the result, and is refused
//! if no subject has it or its value is invalid.

use super::run::{Place, TINY, bad, good, says, words};

const SMALL: &str = "compare --workload uniform --requests 1600 --device";

/// Compares protocols on generated transactions and a tiny device.
fn compared(name: &str, args: &[&str]) -> (String, String) {
    let place = Place::new(name);
    let device = place.file("device.toml", TINY);
    good(&[&words(SMALL)[..], &[&device], args].concat())
}

fn lines(name: &str, args: &[&str]) -> Vec<String> {
    let (out, _) = compared(name, args);
    out.lines().map(String::from).collect()
}

#[test]
fn a_setting_is_of_the_protocols_that_have_it() {
    let protocols = ["--json", "--protocols", "plain,g-mixsl,lighttx,mhl-d"];
    let run = |more: &[&str]| lines("set-protocols", &[&protocols[..], more].concat());
    let [plain, group, light, mhl] = &run(&[])[..] else {
        panic!("a line each");
    };
    assert!(!plain.contains("\"settings\""), "{plain}");
    let set = run(&["--set", "zone_blocks=9", "--set", "g-mixsl.group=2"]);
    assert_eq!(&set[0], plain, "a protocol without it is as it was");
    assert!(set[1].contains("\"settings\":{\"group\":\"2\"}"), "{set:?}");
    for (set, before) in [(&set[2], light), (&set[3], mhl)] {
        says(set, "\"settings\":{\"zone_blocks\":\"9\"}");
        assert_ne!(set, before);
    }
    // The settings in the output are those that the run has used.
    let without = |line: &str| line.replace("\"settings\":{\"group\":\"2\"},", "");
    assert_ne!(&without(&set[1]), group);
    let one = run(&["--set", "mhl-d.zone_blocks=9"]);
    assert_eq!((&one[2], &one[3]), (light, &set[3]));
    // The order of options has no effect.
    let turned = run(&["--set", "g-mixsl.group=2", "--set", "zone_blocks=9"]);
    assert_eq!(turned, set);
}

#[test]
fn the_table_says_what_was_set_and_csv_has_a_column_for_it() {
    let protocols = ["--protocols", "cfc,afc,lighttx", "--set"];
    let args = [&protocols[..], &["block_flags=false"]].concat();
    let (table, _) = compared("set-table", &args);
    says(&table, "\nset: block_flags = false of cfc and afc\n");
    let csv = lines("set-csv", &[&args[..], &["--csv"]].concat());
    let columns = |line: &str| -> Vec<String> { line.split(',').map(String::from).collect() };
    let at = columns(&csv[0]).iter().position(|name| name == "settings");
    let at = at.expect("a column");
    let set: Vec<String> = csv[1..]
        .iter()
        .map(|line| columns(line)[at].clone())
        .collect();
    assert_eq!(set, ["block_flags=false", "block_flags=false", ""]);
}

#[test]
fn a_setting_of_a_database_is_of_its_manager_its_protocol_or_its_policy() {
    let stacks = words("--json --stack wal,cfc-ex,force:afc --policy cflru");
    let run = |more: &[&str]| lines("set-stacks", &[&stacks[..], more].concat());
    let [wal, flags, force] = &run(&[])[..] else {
        panic!("a line each");
    };
    let set = |setting: &str| run(&["--set", setting]);
    let [changed, same_flags, same_force] = &set("group_wait_us=900")[..] else {
        panic!("a line each");
    };
    says(changed, "\"settings\":{\"group_wait_us\":\"900\"}");
    assert_eq!((same_flags, same_force), (flags, force));
    assert_eq!(&set("max_c=2")[0], wal);
    assert!(set("max_c=2")[1].contains("\"settings\":{\"max_c\":\"2\"}"));
    assert!(set("block_flags=false")[2].contains("\"settings\":{\"block_flags\":\"false\"}"));
    for line in set("window=40") {
        says(&line, "\"settings\":{\"window\":\"40\"}");
    }
}

#[test]
fn what_nothing_has_and_what_cannot_be_is_refused() {
    let index = ["index", "bench", "--index", "sal", "--protocol", "g-mixsl"];
    let few = ["--records", "3000", "--device", "small", "--set"];
    let cases: [(&str, &str); 10] = [
        (
            "--protocols cfc,aw --set zone_blocks=9",
            "only mhl-d and lighttx have this setting, and none of them is selected",
        ),
        (
            "--protocols lighttx --set zone_block=9",
            "did you mean `zone_blocks`?",
        ),
        ("--set zone_blocks", "must be NAME=VALUE"),
        ("--set cfx.block_flags=true", "did you mean `cfc`?"),
        (
            "--protocols lighttx,aw --set zone_blocks=x",
            "zone_blocks of lighttx is `x`: use a number",
        ),
        (
            "--stack wal --set max_c=3",
            "only cfc-ex and afc-ex have this setting",
        ),
        (
            "--stack cfc-ex --set max_c=9",
            "max_c of cfc-ex is `9`: use a number from 2 to 8",
        ),
        (
            "--stack force:lighttx --set zone_blocks=x",
            "zone_blocks of lighttx is `x`",
        ),
        (
            "--stack wal --policy clock --set rounds=-1",
            "rounds of clock",
        ),
        ("--stack wal --set window=3", "only cflru has this setting"),
    ];
    for (args, why) in cases {
        let said = bad(&words(&format!(
            "compare --workload uniform --requests 99 {args}"
        )));
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let both = bad(&[&index[..], &few, &["group=4"]].concat());
    says(&both, "write sal.group or g-mixsl.group");
    let (out, _) = good(&[&index[..], &few, &["g-mixsl.group=4", "--json"]].concat());
    says(&out, "\"protocol_settings\":{\"group\":\"4\"}");
}

#[test]
fn a_filled_device_needs_the_settings_that_it_was_filled_with() {
    let place = Place::new("set-image");
    let (device, image) = (place.file("device.toml", TINY), place.path("image"));
    let fill = format!("device fill {device} --protocol lighttx -o {image}");
    let fill = words(&fill);
    let set = ["--set", "zone_blocks=9"];
    assert!(bad(&[&fill[..], &["--set", "group=9"]].concat()).contains("only g-mixsl has"));
    let bound = bad(&[&fill[..], &["--set", "zone_blocks=x"]].concat());
    says(&bound, "use a number");
    good(&[&fill[..], &set].concat());
    let compare = [&words(SMALL)[..], &[&device, "--image", &image]].concat();
    let (out, _) = good(&[&compare[..], &set, &["--json"]].concat());
    says(&out, "\"zone_blocks\":\"9\"");
    let other = bad(&compare);
    says(&other, "variant of its protocol");
}
