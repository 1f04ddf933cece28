//! Entry points of a fuzz target, as in `flagstone_lab::fuzzing`: files and words of experiments.

use crate::reproduce::claims;
use crate::reproduce::figures::Experiment;
use crate::reproduce::measure::Expr;
use crate::reproduce::sensitivity::{Analysis, OpenSettings};
use crate::sweep::{Sweep, Task};
use flagstone_lab::workload::{Pattern, WorkloadError};

/// A parser of a text. The error says why the text was not accepted.
type Parse = fn(&str) -> Result<(), String>;

/// File formats and arguments by which users describe experiments.
pub const PLANS: [(&str, Parse); 8] = [
    ("experiments", |text| {
        Experiment::parse(text)
            .map(drop)
            .map_err(|why| why.to_string())
    }),
    ("claims", |text| claims::parse(text).map(drop)),
    ("open settings", |text| OpenSettings::parse(text).map(drop)),
    ("sweep", |text| {
        Sweep::parse(text).map(drop).map_err(|why| why.to_string())
    }),
    ("analyses", |text| {
        for analysis in Analysis::parse(text)? {
            Analysis::parse(&analysis.toml())?;
        }
        Ok(())
    }),
    ("expression", |text| Expr::parse(text).map(drop)),
    ("workload", |text| {
        let pattern: Pattern = text.parse().map_err(|why: WorkloadError| why.to_string())?;
        assert_eq!(pattern.to_string().parse(), Ok(pattern));
        Ok(())
    }),
    ("task", |text| {
        let task = Task::from_json(text).map_err(|why| why.to_string())?;
        let again = Task::from_json(&task.json()).map_err(|why| why.to_string())?;
        assert_eq!(again.json(), task.json());
        Ok(())
    }),
];

/// Parses a file or argument of an experiment, of the kind selected by the first byte.
pub fn sweep(bytes: &[u8]) -> bool {
    let Some((&which, text)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let (name, parse) = PLANS[usize::from(which) % PLANS.len()];
    match parse(text) {
        Ok(()) => true,
        Err(why) => {
            assert!(!why.is_empty(), "{name}");
            false
        }
    }
}
