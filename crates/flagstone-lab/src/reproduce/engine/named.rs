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

#[cfg(test)]
mod tests {
    use crate::reproduce::engine::{Run, RunError, Settings};

    fn closed(stack: &str, more: &str) -> Result<Run, RunError> {
        let text = format!(
            "engine = \"closed\"\nstack = \"{stack}\"\nclients = 4\nwarehouses = 1\nframes = 200\n\
             back_off_ms = 1.0\nabort_ratio = 0.0\nfill = 0.9\noverwrite = true\nwarm_up = 10\n\
             transactions = 60\ndevice = {{ preset = \"small\" }}\n{more}"
        );
        Settings(toml::from_str(&text).expect("a table")).run()
    }

    #[test]
    fn a_setting_is_of_the_runs_whose_parts_declare_it() {
        let same = |stack, more| closed(stack, more) == closed(stack, "");
        assert!(!same("cfc-ex", "max_c = 2"));
        assert!(!same("force:afc", "block_flags = false"));
        assert!(!same("wal", "policy = \"cflru\"\nwindow = 30"));
        assert!(same("wal", "max_c = 2\nblock_flags = false\nwindow = 30"));
        assert!(same("force:plain", "group_wait_us = 300"));
    }

    #[test]
    fn a_setting_is_written_with_the_run_by_its_name() {
        let run = closed("cfc-ex", "max_c = 2").expect("a run");
        assert_eq!(run.settings()["max_c"], 2);
        assert!(
            closed("wal", "")
                .expect("a run")
                .settings()
                .get("max_c")
                .is_none()
        );
    }

    #[test]
    fn an_unknown_name_and_a_value_that_cannot_be_are_refused() {
        let unknown = closed("cfc-ex", "max_d = 2").unwrap_err();
        assert_eq!(unknown.key.as_deref(), Some("max_d"));
        assert!(unknown.why.contains("did you mean `max_c`?"), "{unknown}");
        let value = closed("cfc-ex", "max_c = 9").unwrap_err();
        assert!(value.why.contains("use a number from 2 to 8"), "{value}");
        let table = closed("cfc-ex", "max_c = { a = 1 }").unwrap_err();
        assert!(table.why.contains("no plain value"), "{table}");
    }
}
