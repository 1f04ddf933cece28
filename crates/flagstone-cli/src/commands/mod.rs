//! The commands, one module each: its arguments, its execution, its output.

mod age;
pub(crate) mod apart;
pub(crate) mod break_;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod device;
pub(crate) mod examples;
pub(crate) mod explain;
pub(crate) mod index;
pub(crate) mod man;
pub(crate) mod mtd;
pub(crate) mod protocols;
pub(crate) mod replay;
pub(crate) mod reproduce;
mod runs;
pub(crate) mod sensitivity;
mod settings;
pub(crate) mod store;
pub(crate) mod sweep;
pub(crate) mod trace;
mod winners;

pub(crate) use flagstone_store_tools::protocol_of;
pub(crate) use flagstone_terminal::{Failure, mebibytes, plain_table, say, unknown, with_unit};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flagstone::commit::Kind;
use flagstone_host::Stack;
use flagstone_terminal::{
    NOT_DONE, excerpt, note, progress, progress_bar, share_bar, unless_closed,
};

/// A parser for an argument that is one of several names.
pub(crate) fn named<T: Copy + Send + Sync + 'static>(
    all: impl IntoIterator<Item = (T, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let all: Vec<(T, &str)> = all.into_iter().collect();
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    PossibleValuesParser::new(names).map(move |given| {
        let found = all.iter().find(|(_, name)| *name == given);
        found.expect("a name that is none is refused").0
    })
}

/// The stack called `name`.
pub(crate) fn stack_of(name: &str) -> Result<Stack, Failure> {
    name.parse().map_err(|_| {
        let names: Vec<String> = Stack::all().iter().map(Stack::to_string).collect();
        unknown("stack", name, &names)
    })
}

/// The protocols of a list such as `cfc,afc`, or `all`.
pub(crate) fn protocols_of(list: &str) -> Result<Vec<Kind>, Failure> {
    each_once(list, Kind::ALL, protocol_of)
}

/// The stacks of a list such as `wal,force:cfc`, or `all`.
pub(crate) fn stacks_of(list: &str) -> Result<Vec<Stack>, Failure> {
    each_once(list, &Stack::all(), stack_of)
}

/// The items of a list, or all for `all`. Duplicates are dropped with a note.
fn each_once<T: Copy + PartialEq>(
    list: &str,
    all: &[T],
    of: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    for name in list.split(',').map(str::trim) {
        let named = match name {
            "all" => all.to_vec(),
            name => vec![of(name)?],
        };
        let (twice, new): (Vec<T>, Vec<T>) = named.iter().partition(|one| found.contains(*one));
        if let (false, true) = (twice.is_empty(), new.is_empty()) {
            note(&format!("note: `{name}` is given twice and used once"));
        }
        found.extend(new);
    }
    Ok(found)
}

/// Parses a share, a number from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("must be a number from 0 to 1".into()),
    }
}
