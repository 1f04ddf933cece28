//! The keys of an experiment file. An engine's keys are the fields of its settings. Protocols,
//! recovery managers and eviction policies add the settings that they declare.

use super::RunError;
use flagstone::commit::Kind;
use flagstone::settings::{Configurable, Settings};
use flagstone_host::Stack;
use flagstone_host::buffer::PolicyKind;
use flagstone_lab::no_such;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use toml::{Table, Value};

/// The field names of a type: a setting of an engine is only declared as a field.
pub(super) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    /// A deserializer that only records the fields that a type requests.
    struct Asked(Option<&'static [&'static str]>);

    impl<'de> Deserializer<'de> for &mut Asked {
        type Error = Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("only fields are asked for"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Error> {
            self.0 = Some(fields);
            self.deserialize_any(visitor)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }

    let mut asked = Asked(None);
    let _ = T::deserialize(&mut asked);
    asked.0.expect("settings are a struct")
}

/// Checks that a table has only these keys.
///
/// # Errors
/// Names an unknown key.
pub(super) fn known(table: &Table, keys: &[&str]) -> Result<(), RunError> {
    match table.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(RunError::of(key, no_such("setting", key, keys))),
    }
}

/// Removes a type's fields from a table, and parses them.
///
/// # Errors
/// A field is missing, or has an invalid value.
pub(super) fn take<T: DeserializeOwned>(table: &mut Table) -> Result<T, RunError> {
    let names = fields_of::<T>().iter();
    let own: Table = names.filter_map(|&name| table.remove_entry(name)).collect();
    let read = own.try_into::<T>();
    read.map_err(|error| RunError::parsing(error.message()))
}

/// The names of all declared settings.
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

/// The settings in a table.
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
    use crate::reproduce::engine::{AnyRun, RunError, Settings};

    fn closed(stack: &str, more: &str) -> Result<AnyRun, RunError> {
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
    fn the_keys_of_an_engine_are_the_fields_of_its_settings() {
        for (engine, key, known) in [
            ("replay", "abort_ration", "abort_ratio"),
            ("replay", "transaction", "transactions"),
            ("closed", "warehouse", "warehouses"),
            ("index", "localitys", "localities"),
        ] {
            let text = format!("engine = \"{engine}\"\n{key} = 1\n");
            let unknown = Settings(toml::from_str(&text).expect("a table")).run();
            let unknown = unknown.expect_err("there is no such key");
            assert_eq!(unknown.key.as_deref(), Some(key));
            let advice = format!("did you mean `{known}`?");
            assert!(unknown.why.contains(&advice), "{unknown}");
        }
        // The field that collects named settings is not itself a key.
        let named = closed("wal", "named = 1").expect_err("it is no setting");
        assert_eq!(named.key.as_deref(), Some("named"));
    }

    #[test]
    fn a_run_is_written_as_a_file_that_makes_it_again() {
        let closed = "engine = \"closed\"\nstack = \"force:afc\"\nclients = 4\nwarehouses = 1\n\
             frames = 200\nback_off_ms = 1.5\nabort_ratio = 0.1\nfill = 0.9\noverwrite = true\n\
             warm_up = 10\ntransactions = 60\ndevice = { preset = \"small\" }\n\
             policy = \"cflru\"\nwindow = 30\nsteal = true\nseed = 7\n\
             hot_rows = \"last\"\nsizes = \"short\"\nhot_fill = 40\nversions = 3\n\
             reads_first = true\ninsert_targets = 2\nrolled_back_after = 0.5\n\
             history_pages = 100\nblock_flags = false";
        let index = "engine = \"index\"\nindex = \"linear\"\nworkload = \"D\"\nrecords = 80_000\n\
             store = \"mem\"\nset = { memory = 1_048_576 }\noperations = 9000\nscale = 0.5\n\
             search_shares = [0.5]\nlocalities = [0.8]\nsizes = [0.5, 1.0]\nscattered = true\n\
             keys = \"names\"\nwarm_up = 100\nload_order = \"packed\"\nflush = true\nseed = 7";
        let replay = "engine = \"replay\"\nprotocol = \"afc\"\nworkload = \"zipf:0.9\"\nfill = 0.5\n\
             device = { preset = \"small\" }\nrequests = 600\nread_share = 0.5\n\
             pages_per_transaction = 10\ntransactions = 50\nisolation = \"strict\"\nclients = 3\n\
             abort_ratio = 0.2\nrecorded_aborts = true\noverwrite = false\nseed = 7\n\
             block_flags = false";
        // Locking pages or records is only a choice with a log. Stealing pages is only a choice
        // without one.
        let logged = closed
            .replace("force:afc", "wal")
            .replace("steal = true", "locks = \"pages\"")
            .replace("block_flags = false", "log_pages = 300");
        for text in [closed, &logged, index, replay] {
            let table: toml::Table = toml::from_str(text).expect("a table");
            let run = Settings(table.clone()).run().expect("a run");
            let written = run.settings();
            // Each key is written with its value. Defaults that are added do not change the run.
            for (key, value) in &table {
                let value = serde_json::to_value(value).expect("plain values");
                assert_eq!(written.get(key), Some(&value), "{key}");
            }
            let written = written.as_object().expect("an object").iter();
            let given = written.filter(|(_, value)| !value.is_null());
            let again: toml::Table = given
                .map(|(key, value)| (key.clone(), toml::Value::try_from(value).expect("plain")))
                .collect();
            assert_eq!(Settings(again).run().expect("a run"), run);
        }
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
