//! The provenance of a recording, which is kept in the metadata of the trace.

use std::collections::BTreeMap;
use std::time::Duration;

use ::postgres::Config;

use super::Options;
use crate::server::Server;
use flagstone_lab::tpcc::Scale;
use flagstone_lab::tpcc::mix::{Counts, TransactionKind};

/// What is known after a run, from which the provenance is made.
pub(super) struct Facts<'a> {
    pub(super) config: &'a Config,
    pub(super) server: &'a Server,
    pub(super) scale: Scale,
    /// Facts that the source of the trace adds.
    pub(super) notes: BTreeMap<&'static str, String>,
    pub(super) elapsed: Duration,
    pub(super) date: String,
}

impl Facts<'_> {
    /// The entries for the metadata of the trace.
    pub(super) fn provenance(
        &self,
        options: &Options,
        command: &str,
        counts: &Counts,
    ) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut note = |name: &str, value: String| facts.insert(name.to_owned(), value);
        note(
            "command",
            without_password(command, &options.url, self.config),
        );
        for (name, value) in &self.notes {
            note(name, value.clone());
        }
        note("flagstone", env!("CARGO_PKG_VERSION").to_owned());
        note("recorded_at", self.date.clone());
        note("tpcc.warehouses", self.scale.warehouses.to_string());
        note("tpcc.clients", options.clients.to_string());
        note("tpcc.seed", options.seed.to_string());
        note("tpcc.mix", TransactionKind::mix());
        note("tpcc.isolation", options.isolation.sql().to_owned());
        note(
            "tpcc.elapsed_s",
            format!("{:.3}", self.elapsed.as_secs_f64()),
        );
        for (kind, _) in TransactionKind::DECK {
            let count = counts.of(kind);
            let text = format!(
                "{} committed, {} rolled back, {} tried again",
                count.committed, count.rolled_back, count.conflicts
            );
            note(&format!("tpcc.{}", kind.name()), text);
        }
        for (name, value) in &self.server.settings {
            note(&format!("postgres.{name}"), value.clone());
        }
        facts
    }
}

/// The command line without a connection string that contains a password.
fn without_password(command: &str, url: &str, config: &Config) -> String {
    const LEFT_OUT: &str = "(a connection with a password)";
    match config.get_password() {
        None => command.to_owned(),
        Some(_) if command.contains(url) => command.replace(url, LEFT_OUT),
        // The string is quoted in an unexpected way, so leave out the whole command line.
        Some(_) => format!("flagstone trace record postgres --url {LEFT_OUT} …"),
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    #[test]
    fn passwords_are_not_stored() {
        let stored = |url: &str, command: &str| {
            without_password(command, url, &Config::from_str(url).unwrap())
        };
        let open = "postgres://u@h/db";
        assert_eq!(
            stored(open, "x --url postgres://u@h/db -o y"),
            "x --url postgres://u@h/db -o y"
        );
        for url in [
            "postgres://u:secret@h/db",
            "postgres://h/db?user=u&password=secret",
            "host=h password = 'sec ret' user=u",
        ] {
            let plain = stored(url, &format!("x --url {url} -o y"));
            assert_eq!(plain, "x --url (a connection with a password) -o y");
            let quoted = stored(url, &format!("x --url '{}' -o y", url.replace('=', "\\=")));
            assert!(!quoted.contains("sec"), "{quoted}");
        }
    }
}
