//! Suggests names similar to a misspelt one. Programs and the lab use it for their error messages.
#![forbid(unsafe_code)]

/// The entry of `known` most similar to `name`, if any is close.
pub fn nearest<S: AsRef<str>>(name: &str, known: &[S]) -> Option<String> {
    let likeness = |other: &S| strsim::jaro_winkler(name, other.as_ref());
    let best = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.7).then(|| best.as_ref().to_string())
}

/// The error that no `what` has this `name`: suggests a similar name, and lists all.
pub fn no_such<S: AsRef<str>>(what: &str, name: &str, known: &[S]) -> String {
    let names: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let names = names.join(", ");
    match nearest(name, known) {
        Some(meant) => {
            format!("there is no {what} `{name}`, did you mean `{meant}`? There are {names}")
        }
        None => format!("there is no {what} `{name}`; there are {names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{nearest, no_such};

    #[test]
    fn what_is_spelt_alike_is_named_and_nothing_else() {
        let known = ["fig7", "fig18", "throughput"];
        assert_eq!(nearest("troughput", &known).as_deref(), Some("throughput"));
        assert_eq!(nearest("zzz", &known), None);
        assert_eq!(nearest::<&str>("fig7", &[]), None);
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_that_there_are() {
        let known = ["scc", "bpcc"];
        assert_eq!(
            no_such("protocol", "ssc", &known),
            "there is no protocol `ssc`, did you mean `scc`? There are scc, bpcc"
        );
        assert_eq!(
            no_such("protocol", "x", &known),
            "there is no protocol `x`; there are scc, bpcc"
        );
    }
}
