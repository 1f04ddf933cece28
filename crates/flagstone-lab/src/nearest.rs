//! The name that was probably meant.

/// The one of `known` that is spelt most like `name`, if any is close.
pub fn nearest<S: AsRef<str>>(name: &str, known: &[S]) -> Option<String> {
    let likeness = |other: &S| strsim::jaro_winkler(name, other.as_ref());
    let best = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.7).then(|| best.as_ref().to_string())
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn what_is_spelt_alike_is_named_and_nothing_else() {
        let known = ["fig7", "fig18", "throughput"];
        assert_eq!(nearest("troughput", &known).as_deref(), Some("throughput"));
        assert_eq!(nearest("zzz", &known), None);
        assert_eq!(nearest::<&str>("fig7", &[]), None);
    }
}
