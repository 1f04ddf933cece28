//! One file a command: its arguments, what it runs, what it prints.

pub mod break_;
pub mod compare;
pub mod device;
pub mod index;
pub mod protocols;
mod record;
pub mod replay;
pub mod reproduce;
pub mod trace;

pub use flagstone_terminal::{Failure, say};

use flagstone::commit::Kind;
use flagstone::host::Stack;
use flagstone_lab::no_such;
use flagstone_terminal::{excerpt, note, progress, progress_bar, unless_closed};

/// There is no `what` called `name`: which one was probably meant, and all there are.
pub fn unknown<S: AsRef<str>>(what: &str, name: &str, known: &[S]) -> Failure {
    Failure::Usage(no_such(what, name, known))
}

/// The protocol of that name.
pub fn protocol_of(name: &str) -> Result<Kind, Failure> {
    Kind::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().name).collect();
        unknown("protocol", name, &names)
    })
}

/// The stack of that name.
pub fn stack_of(name: &str) -> Result<Stack, Failure> {
    name.parse().map_err(|_| {
        let names: Vec<String> = Stack::all().iter().map(Stack::to_string).collect();
        unknown("stack", name, &names)
    })
}

/// The protocols of a list like `cfc,afc` or `all`.
pub fn protocols_of(list: &str) -> Result<Vec<Kind>, Failure> {
    if list == "all" {
        return Ok(Kind::ALL.to_vec());
    }
    list.split(',')
        .map(|name| protocol_of(name.trim()))
        .collect()
}

/// A share of something, as an argument.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("it must be a number from 0 to 1".into()),
    }
}
