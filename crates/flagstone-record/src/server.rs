//! Queries a server for its settings, positions in its log, and names of its relation files.

use std::collections::BTreeMap;

use ::postgres::Client;

use crate::postgres::failure;
use flagstone_lab::tpcc::session::Error;

/// A position in the log, which the server writes as `0/1634FA8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lsn(pub u64);

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl std::str::FromStr for Lsn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (high, low) = text.split_once('/')?;
            let part = |digits| u32::from_str_radix(digits, 16).ok().map(u64::from);
            Some(Lsn((part(high)? << 32) | part(low)?))
        };
        parse().ok_or_else(|| format!("`{text}` is not a position in the log, such as 0/1634FA8"))
    }
}

/// The settings that affect a recording or are kept in its provenance.
pub(crate) const SETTINGS: [&str; 15] = [
    "server_version",
    "block_size",
    "wal_level",
    "full_page_writes",
    "wal_log_hints",
    "data_checksums",
    "wal_compression",
    "autovacuum",
    "synchronous_commit",
    "fsync",
    "wal_keep_size",
    "max_wal_size",
    "checkpoint_timeout",
    "shared_buffers",
    "track_commit_timestamp",
];

/// A server: its settings by name, and some facts that are not settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Server {
    /// The value of each of [`SETTINGS`] that the server knows, as `SHOW` prints it.
    pub settings: BTreeMap<String, String>,
    /// The major version of the server, for example 15.
    pub major: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// The timeline to which the server writes.
    pub timeline: u32,
    /// The data directory; unknown if the user may not read all settings.
    pub data_directory: Option<String>,
}

impl Server {
    /// Queries the settings and facts of a server.
    pub(crate) fn ask(client: &mut Client) -> Result<Self, Error> {
        let mut server = Server::default();
        let all = "SELECT name, current_setting(name) FROM pg_settings \
                   WHERE name = ANY ($1) OR name IN ('data_directory', 'server_version_num')";
        let names: Vec<&str> = SETTINGS.to_vec();
        let rows = client
            .query(all, &[&names])
            .map_err(|error| failure("settings", &error))?;
        for row in rows {
            let (name, value): (String, String) = (row.get(0), row.get(1));
            match name.as_str() {
                "data_directory" => server.data_directory = Some(value),
                "server_version_num" => server.major = value.parse().unwrap_or(0) / 10_000,
                _ => {
                    server.settings.insert(name, value);
                }
            }
        }
        let number = |name: &str| server.settings.get(name).and_then(|text| text.parse().ok());
        server.page_bytes = number("block_size").unwrap_or(8_192);
        let facts = "SELECT timeline_id, pg_size_bytes(current_setting('wal_segment_size')) \
                     FROM pg_control_checkpoint()";
        let row = client
            .query_one(facts, &[])
            .map_err(|error| failure("control file", &error))?;
        server.timeline = row.get::<_, i32>(0) as u32;
        server.segment_bytes = row.get::<_, i64>(1) as u64;
        Ok(server)
    }

    /// Settings that make a recording less complete than it could be, each with advice.
    pub(crate) fn advice(&self) -> Vec<String> {
        let is = |name: &str, value: &str| self.settings.get(name).is_some_and(|v| v == value);
        let mut advice = Vec::new();
        let mut advise = |holds: bool, text: &str| {
            if holds {
                advice.push(text.to_owned());
            }
        };
        advise(
            is("wal_level", "minimal"),
            "wal_level is minimal: the log lacks changes to tables created or truncated in the \
             same transaction, and a slot cannot keep the log; set wal_level = replica",
        );
        advise(
            is("wal_level", "logical"),
            "wal_level is logical: the log has extra records for decoding; set wal_level = replica",
        );
        advise(
            is("full_page_writes", "on"),
            "full_page_writes is on: the log has whole pages after each checkpoint, is many times \
             longer and slows transactions down; on a server without valuable data set \
             full_page_writes = off",
        );
        advise(
            is("wal_log_hints", "on") || is("data_checksums", "on"),
            "hint bits are logged (wal_log_hints or data checksums): reads change pages outside of \
             transactions; use a cluster without both",
        );
        advise(
            is("autovacuum", "on"),
            "autovacuum is on: its transactions appear in the trace; set autovacuum = off while \
             recording",
        );
        advise(
            is("synchronous_commit", "on") && is("fsync", "on"),
            "synchronous_commit is on: each commit waits for the disk, so the times in the trace \
             are those of this disk; set synchronous_commit = off for a faster run",
        );
        advice
    }
}

/// Flushes all pages and returns the end of the log. Needs the right to run `CHECKPOINT`.
pub(crate) fn checkpoint_and_mark(client: &mut Client) -> Result<Lsn, Error> {
    client
        .batch_execute("CHECKPOINT")
        .map_err(|error| failure("CHECKPOINT", &error))?;
    mark(client)
}

/// The current end of the log.
pub(crate) fn mark(client: &mut Client) -> Result<Lsn, Error> {
    let fail = |error| failure("position in the log", &error);
    let row = client
        .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
        .map_err(fail)?;
    let text: String = row.get(0);
    text.parse().map_err(|message| Error::Database {
        statement: "position in the log".to_owned(),
        message,
    })
}

/// Flushes the log up to now by a synchronous commit. The transaction must write to the log, or the
/// server does not flush; it writes a logical message, which changes no page.
pub(crate) fn flush(client: &mut Client) -> Result<(), Error> {
    let sql = "BEGIN; SET LOCAL synchronous_commit = local; \
               SELECT pg_logical_emit_message(true, 'flagstone', 'end'); COMMIT";
    client
        .batch_execute(sql)
        .map_err(|error| failure("flush of the log", &error))
}

/// Runs some transactions that access no page, so that a tracer has events to report.
pub(crate) fn stir(client: &mut Client) -> Result<(), Error> {
    for _ in 0..50 {
        client
            .batch_execute("SELECT 1")
            .map_err(|error| failure("SELECT 1", &error))?;
    }
    Ok(())
}

/// The date and time of the server, in UTC.
pub(crate) fn date(client: &mut Client) -> Result<String, Error> {
    let sql = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let row = client
        .query_one(sql, &[])
        .map_err(|error| failure("date", &error))?;
    Ok(row.get(0))
}

/// Makes the server keep its log from now on, while this connection is open. Needs the REPLICATION
/// attribute, a `wal_level` above minimal, and a free replication slot.
pub(crate) fn keep_log(client: &mut Client) -> Result<(), Error> {
    let sql = "SELECT pg_create_physical_replication_slot(\
               'flagstone_' || pg_backend_pid(), true, true)";
    client
        .query_one(sql, &[])
        .map(drop)
        .map_err(|error| failure("slot", &error))
}

/// The names of the relations of this database and of shared ones. The keys are
/// `tablespace/database/filenode`, as `pg_waldump` prints them.
pub(crate) fn relation_names(client: &mut Client) -> Result<BTreeMap<String, String>, Error> {
    let sql = "SELECT coalesce(nullif(reltablespace, 0), dattablespace)::text || '/' || \
               CASE WHEN relisshared THEN '0' ELSE d.oid::text END || '/' || \
               pg_relation_filenode(c.oid)::text, \
               CASE nspname WHEN 'public' THEN relname::text \
               ELSE nspname || '.' || relname END \
               FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
               JOIN pg_database d ON datname = current_database() \
               WHERE pg_relation_filenode(c.oid) IS NOT NULL";
    let rows = client
        .query(sql, &[])
        .map_err(|error| failure("relations", &error))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_and_printed() {
        for text in ["0/1634FA8", "1F/0", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<Lsn>().unwrap().to_string(), text);
        }
        for text in ["", "0", "0/", "0/XYZ", "1/2/3", "0/100000000"] {
            let error = text.parse::<Lsn>().unwrap_err();
            assert!(error.contains("0/1634FA8"), "{error}");
        }
    }

    #[test]
    fn the_recommended_settings_need_no_advice_and_the_usual_ones_some() {
        let server = |settings: &[(&str, &str)]| Server {
            settings: settings
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
            ..Server::default()
        };
        let good = [
            ("wal_level", "replica"),
            ("full_page_writes", "off"),
            ("autovacuum", "off"),
            ("synchronous_commit", "off"),
        ];
        assert_eq!(server(&good).advice(), Vec::<String>::new());
        let usual = [
            ("wal_level", "replica"),
            ("full_page_writes", "on"),
            ("autovacuum", "on"),
            ("synchronous_commit", "on"),
            ("fsync", "on"),
        ];
        let advice = server(&usual).advice();
        assert_eq!(advice.len(), 3);
        assert!(
            advice
                .iter()
                .all(|text| text.contains("; set ") || text.contains("set "))
        );
    }
}
