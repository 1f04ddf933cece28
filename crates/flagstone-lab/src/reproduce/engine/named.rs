//! Settings by name in an experiment file: whatever a protocol, a recovery manager or an eviction
//! policy declares is a key beside those of the engine.

use super::RunError;
use flagstone::buffer::PolicyKind;
use flagstone::commit::Kind;
use flagstone::host::Stack;
use flagstone::settings::{Configurable, Settings};
use toml::{Table, Value};

/// The names of all that are declared.
pub(super) fn names() -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut add = |name: &'static str| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for kind in Kind::ALL {
        kind.info().settings().for_each(|setting| add(setting.name));
    }
    for stack in Stack::all() {
        let manager = stack.manager();
        manager.settings().for_each(|setting| add(setting.name));
    }
    for policy in PolicyKind::ALL {
        policy
            .info()
            .settings()
            .for_each(|setting| add(setting.name));
    }
    names
}

/// What a table sets.
pub(super) fn settings(table: &Table) -> Result<Settings, RunError> {
    let mut settings = Settings::new();
    for (name, value) in table {
        match value {
            Value::String(text) => settings.set(name, text),
            Value::Integer(number) => settings.set(name, number),
            Value::Float(number) => settings.set(name, number),
            Value::Boolean(flag) => settings.set(name, flag),
            _ => return Err(RunError::of(name, format!("{name} is no plain value"))),
        }
    }
    Ok(settings)
}
