//! Each kind of claim with each of its verdicts, from made-up data.

use super::claims::{Claim, Tolerances, parse};
use super::measure::Data;
use super::measure::tests::data;
use super::verdict::{Verdict, judge, number};
use Verdict::{Differs, Direction, Holds, NotMeasured, Tie, TooFew};

fn claim(kind: &str, rest: &str) -> Claim {
    let head =
        format!("[[claim]]\nid = \"p.c\"\nkind = \"{kind}\"\nwhere = \"1\"\nmetric = \"m\"\n");
    parse(&(head + rest)).unwrap().remove(0)
}

/// The claim that the ratio of `a` to `b` is `published`.
fn ratio(published: f64) -> Claim {
    let rule = "rule = [{ figure = \"f\", measure = \"a / b\" }]";
    claim("ratio", &format!("published = {published}\n{rule}"))
}

fn verdict(claim: &Claim, figure: &Data) -> Verdict {
    let tolerances = Tolerances::shipped();
    judge(claim, &tolerances, &|name| {
        (name == "f").then(|| figure.clone())
    })
    .verdict
}

fn quotient(value: f64) -> Data {
    data(&[1.0], &[("a", &[value]), ("b", &[1.0])])
}

#[test]
fn a_ratio_has_a_direction_and_a_size() {
    let more = ratio(1.35);
    for (value, wanted) in [
        (1.35, Holds),
        (1.22, Holds),
        (1.50, Holds),
        (1.10, Direction),
        (3.0, Direction),
        (1.0, Differs),
        (0.99, Differs),
        (f64::NAN, NotMeasured),
    ] {
        assert_eq!(verdict(&more, &quotient(value)), wanted, "{value}");
    }
    let less = ratio(0.5);
    for (value, wanted) in [
        (0.45, Holds),
        (0.9, Direction),
        (0.1, Direction),
        (1.01, Differs),
    ] {
        assert_eq!(verdict(&less, &quotient(value)), wanted, "{value}");
    }
    // A small effect holds only on its own side of 1; equality may be on either side.
    let slight = ratio(1.015);
    assert_eq!(verdict(&slight, &quotient(1.001)), Holds);
    assert_eq!(verdict(&slight, &quotient(0.999)), Differs);
    let same = ratio(1.0);
    assert_eq!(verdict(&same, &quotient(0.96)), Holds);
    assert_eq!(verdict(&same, &quotient(0.90)), Differs);
}

#[test]
fn a_claim_is_as_good_as_its_worst_part() {
    let ends = claim(
        "ratio",
        "published = [1.2, 1.5]\nat = [\"1\", \"2\"]\n\
         rule = [{ figure = \"f\", measure = [\"a@1 / b@1\", \"a@2 / b@2\"] }]",
    );
    let figure = |last| data(&[1.0, 2.0], &[("a", &[1.2, last]), ("b", &[1.0, 1.0])]);
    assert_eq!(verdict(&ends, &figure(1.45)), Holds);
    assert_eq!(verdict(&ends, &figure(1.05)), Direction);
    assert_eq!(verdict(&ends, &figure(0.8)), Differs);
    assert_eq!(verdict(&ends, &figure(f64::NAN)), NotMeasured);
    let two = claim(
        "ratio",
        "published = 1.2\nrule = [{ figure = \"f\", measure = \"a / b\" }, \
         { figure = \"other\", measure = \"a / b\" }]",
    );
    assert_eq!(verdict(&two, &quotient(1.2)), NotMeasured);
}

#[test]
fn a_value_is_near_or_of_the_same_magnitude_or_neither() {
    let value = claim(
        "value",
        "published = 10.0\nrule = [{ figure = \"f\", measure = \"a\" }]",
    );
    for (measured, wanted) in [
        (9.0, Holds),
        (12.4, Holds),
        (19.0, Direction),
        (21.0, Differs),
        (4.9, Differs),
    ] {
        assert_eq!(verdict(&value, &quotient(measured)), wanted, "{measured}");
    }
    let range = claim(
        "value",
        "published = [0.0, 0.5]\nrule = [{ figure = \"f\", measure = \"a\" }]",
    );
    assert_eq!(verdict(&range, &quotient(0.0)), Holds);
    assert_eq!(verdict(&range, &quotient(0.9)), Direction);
    // For a figure that is no ratio, 1 is a number like others.
    assert_eq!(verdict(&range, &quotient(1.0)), Direction);
    assert_eq!(verdict(&range, &quotient(1.1)), Differs);
}

#[test]
fn an_order_holds_at_every_point_or_on_average() {
    let order = claim(
        "order",
        "says = \"\"\nrule = [{ figure = \"f\", order = [\"a~b\", \"c\"] }]",
    );
    let xs = [1.0, 2.0];
    let nan = f64::NAN;
    let of = |claim, [a, b, c]: [[f64; 2]; 3]| {
        verdict(claim, &data(&xs, &[("a", &a), ("b", &b), ("c", &c)]))
    };
    for (series, wanted) in [
        ([[1.0, 1.0], [1.1, 1.0], [2.0, 1.1]], Holds),
        // Not comparable; out of order at one point; out of order on average; nothing to compare.
        ([[1.0, 1.0], [1.5, 1.0], [2.0, 1.6]], Direction),
        ([[1.0, 1.0], [1.0, 1.0], [3.0, 0.9]], Direction),
        ([[1.0, 1.0], [1.0, 1.0], [0.9, 0.9]], Differs),
        ([[1.0, 1.0], [1.0, 1.0], [nan, nan]], NotMeasured),
        // Zeros are in any order; a single larger value makes the order meaningful.
        ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], NotMeasured),
        ([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]], Holds),
        // A tie in the wrong direction is not an order.
        ([[1.0, 1.0], [1.0, 1.0], [0.99, 0.99]], Differs),
    ] {
        assert_eq!(of(&order, series), wanted, "{series:?}");
    }
    // Whether a sweep has one point or several.
    let single = |c: f64| data(&[1.0], &[("a", &[1.0]), ("b", &[1.0]), ("c", &[c])]);
    assert_eq!(verdict(&order, &single(1.01)), Holds);
    assert_eq!(verdict(&order, &single(0.99)), Differs);
    let any = claim(
        "order",
        "says = \"\"\nrule = [{ figure = \"f\", order = [\"a|b\", \"c\"] }]",
    );
    assert_eq!(of(&any, [[1.0, 1.0], [1.5, 1.0], [2.0, 1.6]]), Holds);
    // A member of a group that was not measured could be out of order.
    let missing = [[1.0, 1.0], [nan, nan], [2.0, 1.6]];
    assert_eq!(of(&any, missing), NotMeasured);
    assert_eq!(of(&order, missing), NotMeasured);
}

#[test]
fn what_a_protocol_supports_is_there() {
    let rule = "says = \"\"\nrule = [{ figure = \"f\", present = [\"a@1\"], absent = [\"b@1\"] }]";
    let claim = claim("order", rule);
    let with = |a: f64, b: f64| data(&[1.0], &[("a", &[a]), ("b", &[b])]);
    assert_eq!(verdict(&claim, &with(1.0, f64::NAN)), Holds);
    assert_eq!(verdict(&claim, &with(1.0, 1.0)), Differs);
    assert_eq!(verdict(&claim, &with(f64::NAN, f64::NAN)), Differs);
}

#[test]
fn a_trend_is_steady_or_from_end_to_end_or_neither() {
    let xs = [1.0, 2.0, 3.0];
    let one = |rule: &str, ys: [f64; 3]| {
        let rule = format!("says = \"\"\nrule = [{{ figure = \"f\", {rule} }}]");
        verdict(&claim("trend", &rule), &data(&xs, &[("a", &ys)]))
    };
    let (rises, falls, flat) = ("rises = [\"a\"]", "falls = [\"a\"]", "flat = [\"a\"]");
    assert_eq!(one(rises, [1.0, 1.5, 2.0]), Holds);
    assert_eq!(one(rises, [1.0, 2.5, 2.0]), Direction);
    assert_eq!(one(rises, [1.0, 1.0, 1.01]), Direction);
    assert_eq!(one(rises, [2.0, 1.5, 1.0]), Differs);
    assert_eq!(one(falls, [2.0, 1.5, 1.0]), Holds);
    assert_eq!(one(falls, [1.0, 1.0, 1.0]), Differs);
    assert_eq!(one(falls, [5.0, 0.0, 0.0]), Holds);
    assert_eq!(one(flat, [0.0, 0.0, 0.0]), Holds);
    assert_eq!(one(flat, [1.0, 1.04, 1.0]), Holds);
    assert_eq!(one(flat, [1.0, 1.1, 1.0]), Direction);
    assert_eq!(one(flat, [1.0, 1.3, 1.0]), Differs);
    let never = "never_falls = [\"a\"]";
    assert_eq!(one(never, [1.0, 1.0, 1.0]), Holds);
    assert_eq!(one(never, [1.0, 0.8, 0.7]), Differs);
    let until = "rises_until = { a = 2.0 }";
    assert_eq!(one(until, [1.0, 1.5, 0.5]), Holds);
    assert_eq!(one(until, [1.0, 0.5, 2.0]), Differs);
    let turns = "falls_until = { a = 2.0 }, rises_from = { a = 2.0 }";
    assert_eq!(one(turns, [1.0, 0.5, 2.0]), Holds);
    assert_eq!(one(turns, [1.0, 0.5, 0.4]), Differs);
    assert_eq!(one(turns, [1.0, 1.5, 2.0]), Differs);
    let peak = "peak = { a = 2.0 }";
    assert_eq!(one(peak, [1.0, 1.5, 0.5]), Holds);
    assert_eq!(one(peak, [1.6, 1.5, 0.5]), Direction);
    let far = "peak = { a = 1.0 }";
    assert_eq!(one(far, [1.0, 1.5, 2.0]), Differs);
}

#[test]
fn a_crossing_is_near_or_somewhere_or_nowhere() {
    let xs = [0.0, 0.2, 0.4, 0.6];
    let rule = "published = 0.2\nrule = [{ figure = \"f\", cross = [\"a\", \"b\"] }]";
    let cross = claim("cross", rule);
    let with = |a: &[f64]| data(&xs, &[("a", a), ("b", &[1.0, 1.0, 1.0, 1.0])]);
    assert_eq!(verdict(&cross, &with(&[0.8, 0.9, 1.2, 1.4])), Holds);
    assert_eq!(verdict(&cross, &with(&[0.5, 0.6, 0.8, 1.4])), Direction);
    assert_eq!(verdict(&cross, &with(&[0.5, 0.6, 0.7, 0.8])), Direction);
    assert_eq!(verdict(&cross, &with(&[1.4, 1.2, 0.9, 0.8])), Differs);
    let rule =
        "published = 0.4\nrule = [{ figure = \"f\", cross = [\"a\", \"b\"], converge = true }]";
    let converge = claim("cross", rule);
    assert_eq!(verdict(&converge, &with(&[1.4, 1.2, 1.01, 1.0])), Holds);
    assert_eq!(verdict(&converge, &with(&[1.4, 1.3, 1.2, 1.1])), Direction);
    assert_eq!(verdict(&converge, &with(&[1.1, 1.2, 1.3, 1.4])), Differs);
}

#[test]
fn claims_on_few_events_say_nothing() {
    let least = Tolerances::shipped().count.least;
    let on = |claim: &Claim, events: f64| {
        let mut figure = data(&[1.0, 2.0], &[("a", &[1.0, 2.0]), ("b", &[2.0, 4.0])]);
        let points = figure.series.iter_mut().flat_map(|(_, points)| points);
        points.for_each(|point| point.events = Some(1_000.0));
        figure.series[1].1[1].events = Some(events);
        verdict(claim, &figure)
    };
    let rule = |kind, rule: &str| {
        claim(
            kind,
            &format!("says = \"\"\nrule = [{{ figure = \"f\", {rule} }}]"),
        )
    };
    for (claim, wanted) in [
        (ratio(0.5), Holds),
        (ratio(2.0), Differs),
        (rule("order", "order = [\"a\", \"b\"]"), Holds),
        (rule("trend", "rises = [\"b\"]"), Holds),
        (rule("cross", "cross = [\"a\", \"b\"]"), Differs),
    ] {
        assert_eq!(on(&claim, least), wanted);
        assert_eq!(on(&claim, least - 1.0), TooFew);
    }
    // Other series and points do not matter, and a part that differs decides.
    assert_eq!(on(&rule("trend", "rises = [\"a\"]"), 1.0), Holds);
    assert_eq!(
        on(&rule("trend", "rises = [\"b\"], falls = [\"a\"]"), 1.0),
        Differs
    );
    let at = "published = 0.5\nrule = [{ figure = \"f\", measure = \"a@1 / b@1\" }]";
    assert_eq!(on(&claim("ratio", at), 1.0), Holds);
}

#[test]
fn numbers_keep_what_can_be_compared() {
    let all = [0.0, 0.00247, 0.126, 1.196, 41.82, 131072.4, 250.04];
    let words: Vec<String> = all.into_iter().map(number).collect();
    assert_eq!(
        words,
        ["0", "0.00247", "0.126", "1.196", "41.82", "131072", "250.0"]
    );
}

#[test]
fn a_claim_that_some_seeds_have_and_others_do_not_is_a_tie() {
    let across = |seeds: &[Verdict]| Verdict::across(seeds).expect("a seed");
    assert_eq!(across(&[Holds, Differs, Holds]), Tie);
    assert_eq!(across(&[Differs, Direction]), Tie);
    assert_eq!(across(&[Differs, Differs]), Differs);
    assert_eq!(across(&[Holds, Direction, Holds]), Direction);
    assert_eq!(across(&[Holds, Holds]), Holds);
    assert_eq!(across(&[Holds, NotMeasured]), NotMeasured);
    assert_eq!(across(&[Holds, TooFew]), TooFew);
    assert_eq!(across(&[Differs, TooFew, Holds]), TooFew);
    assert_eq!(Verdict::across(&[]), None);
}
