//! Recovery tables as data, for tests. A test copies the table of a protocol's header row by row,
//! enumerates every combination of facts, and compares the code's verdicts with the table.
//!
//! ```
//! use flagstone::cases::{Case, cases, prove};
//!
//! let table: [Case<i32, bool>; 2] = cases! { |n|
//!     "negative": *n < 0 => false;
//!     "other": *n >= 0 => true;
//! };
//! prove(&table, &[-1, 0, 1], |n| *n >= 0);
//! ```

use std::fmt::Debug;

/// A row of a recovery table.
///
/// ```
/// use flagstone::cases::{Case, look_up};
///
/// /// A page counts if the flag of its transaction says so, or if a root names it.
/// const TABLE: [Case<(bool, bool), &str>; 2] = [
///     Case {
///         row: "named",
///         holds: |(flag, root)| *flag || *root,
///         verdict: |_| "counts",
///     },
///     Case {
///         row: "garbage",
///         holds: |(flag, root)| !flag && !root,
///         verdict: |_| "does not count",
///     },
/// ];
/// assert_eq!(look_up(&TABLE, &(false, true)), ("named", "counts"));
/// assert_eq!(look_up(&TABLE, &(false, false)), ("garbage", "does not count"));
/// ```
pub struct Case<F, V> {
    /// The row's code in the header, one letter after an `@`.
    pub row: &'static str,
    /// Whether the row applies to these facts.
    pub holds: fn(&F) -> bool,
    /// The row's verdict for these facts.
    pub verdict: fn(&F) -> V,
}

/// A recovery table: each row has a code, a condition on the facts, and a verdict.
#[macro_export]
macro_rules! cases {
    (|$facts:ident| $($row:literal: $holds:expr => $verdict:expr;)+) => {
        [$($crate::cases::Case {
            row: $row,
            holds: |$facts| $holds,
            verdict: |$facts| {
                let _ = $facts;
                $verdict
            },
        }),+]
    };
}
pub use cases;

/// The row that applies to some facts, and its verdict.
///
/// # Panics
/// No row applies, or more than one.
pub fn look_up<F: Debug, V>(table: &[Case<F, V>], facts: &F) -> (&'static str, V) {
    let mut rows = table.iter().filter(|case| (case.holds)(facts));
    let case = rows.next();
    let case = case.unwrap_or_else(|| panic!("no row of the table is about {facts:?}"));
    if let Some(other) = rows.next() {
        panic!("{} and {} are about {facts:?}", case.row, other.row);
    }
    (case.row, (case.verdict)(facts))
}

/// Compares code with a table: exactly one row applies to each combination, every row applies to
/// one, and the verdicts are equal.
///
/// # Panics
/// Code and table differ, or a row applies to no combination.
pub fn prove<F: Debug, V: Debug + PartialEq>(
    table: &[Case<F, V>],
    all: &[F],
    mut code: impl FnMut(&F) -> V,
) {
    let mut met = vec![0; table.len()];
    for facts in all {
        let (row, verdict) = look_up(table, facts);
        assert_eq!(code(facts), verdict, "{row}: {facts:?}");
        let at = table.iter().position(|case| case.row == row);
        met[at.expect("it was looked up")] += 1;
    }
    for (case, met) in table.iter().zip(met) {
        assert!(met > 0, "no combination of facts is {}", case.row);
    }
}

/// Compares the rows that code names with a table: code must name the row that applies.
///
/// # Panics
/// Code names another row.
pub fn prove_rows<F: Debug, V>(
    table: &[Case<F, V>],
    all: &[F],
    mut named: impl FnMut(&F) -> &'static str,
) {
    for facts in all {
        assert_eq!(named(facts), look_up(table, facts).0, "{facts:?}");
    }
}

/// The rows in which code with a mistake differs from a table. A control: if there are none, the
/// table proves nothing.
///
/// # Panics
/// No row applies to a combination, or more than one.
pub fn rows_that_differ<F: Debug, V: Debug + PartialEq>(
    table: &[Case<F, V>],
    all: &[F],
    mut code: impl FnMut(&F) -> V,
) -> Vec<&'static str> {
    let mut rows: Vec<&'static str> = Vec::new();
    for facts in all {
        let (row, verdict) = look_up(table, facts);
        if code(facts) != verdict && !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_unstable();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGN: [Case<i32, bool>; 2] = cases! { |n|
        "@A": *n < 0 => false;
        "@B": *n >= 0 => true;
    };

    #[test]
    fn a_table_is_proved_by_code_that_agrees_with_it() {
        prove(&SIGN, &[-1, 0, 1], |n| *n >= 0);
        assert_eq!(rows_that_differ(&SIGN, &[-1, 0, 1], |n| *n > 0), ["@B"]);
    }

    #[test]
    fn the_row_that_code_names_is_the_one_of_the_table() {
        prove_rows(&SIGN, &[-1, 0, 1], |n| if *n < 0 { "@A" } else { "@B" });
    }

    #[test]
    #[should_panic(expected = "0")]
    fn another_row_is_noticed() {
        prove_rows(&SIGN, &[-1, 0, 1], |n| if *n < 1 { "@A" } else { "@B" });
    }

    #[test]
    #[should_panic(expected = "@B: 0")]
    fn code_that_differs_is_noticed() {
        prove(&SIGN, &[-1, 0, 1], |n| *n > 0);
    }

    #[test]
    #[should_panic(expected = "no combination of facts is @A")]
    fn a_row_that_is_about_nothing_is_noticed() {
        prove(&SIGN, &[0, 1], |n| *n >= 0);
    }

    #[test]
    #[should_panic(expected = "no row of the table is about -1")]
    fn facts_without_a_row_are_noticed() {
        prove(&SIGN[1..], &[-1, 0], |n| *n >= 0);
    }

    #[test]
    #[should_panic(expected = "@B and @B are about 1")]
    fn facts_with_two_rows_are_noticed() {
        let [_, row] = SIGN;
        let [_, again] = SIGN;
        prove(&[row, again], &[1], |n| *n >= 0);
    }
}
