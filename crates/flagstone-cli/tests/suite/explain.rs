//! `explain` and `replay`: text, pages, and what they refuse.

use super::run::{Place, bad, found, good, says};

/// A run of docs/power-loss.md that loses an acknowledged commit by a deliberate mistake.
const LOSES: &str = "seal.pairs-ignored/g0/b0/w1x2/f64/s3040/n2/o2-a0-n/o0-ac-n";

#[test]
fn a_protocol_is_explained_as_text_and_as_a_page() {
    let place = Place::new("explain");
    let (text, _) = good(&["explain", "scc"]);
    for part in [
        "is rolled back",
        "The power fails",
        "--- as published ---",
        "← wrong",
        "@C",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let path = place.path("scc.html");
    let (out, err) = good(&["explain", "scc", "--html", &path]);
    assert_eq!(out, "");
    says(&err, "scc.html: open it in a browser");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("T3 is rolled back"));
    let (json, _) = good(&["explain", "scc", "--json"]);
    assert!(
        page.contains(&json.trim()[..100]),
        "the page holds the data"
    );
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let place = Place::new("explain-bad");
    let unknown = bad(&["explain", "sael"]);
    says(&unknown, "no protocol `sael`");
    says(&unknown, "seal");
    let nowhere = place.path("none/x.html");
    let refused = bad(&["explain", "seal", "--html", &nowhere]);
    says(&refused, "x.html");
    let both = ["explain", "seal", "--json", "--html", &place.path("x.html")];
    assert!(bad(&both).contains("cannot be used with"));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_counterexample_is_told_with_why_and_is_a_page() {
    let place = Place::new("replay");
    let (text, _) = found(&["replay", LOSES]);
    for part in [
        "VIOLATED: ",
        "an acknowledged commit must be there",
        "of others",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let path = place.path("run.html");
    // Writing a page does not change the verdict.
    found(&["replay", LOSES, "--html", &path]);
    says(&std::fs::read_to_string(&path).unwrap(), "VIOLATED: ");
    let right = LOSES.replace(".pairs-ignored", "");
    let (text, _) = good(&["replay", &right]);
    says(&text, "\nholds: ");
}
