//! Pragmas on a store: which ones SQLite handles, and which ones the VFS answers.

use flagstone_store::CheckReport;
use std::path::PathBuf;

/// The VFS's reaction to a pragma.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// SQLite handles it.
    Pass,
    /// Ignore the pragma and return this text.
    Text(String),
    /// Fail with this error message.
    Refuse(String),
    /// Copy the store to this file.
    Backup(PathBuf),
    /// Check the store.
    Check,
    /// Collect garbage ahead of need, moving at most this many pages.
    Idle(u32),
}

/// The reaction to a pragma. `can_look` is `true` if the VFS can see a journal that SQLite itself
/// keeps in memory. `refuses_wal` makes requests for a write-ahead log errors. `last_error` answers
/// `flagstone_error`.
pub(crate) fn answer(
    name: &str,
    value: Option<&str>,
    can_look: bool,
    refuses_wal: bool,
    last_error: &str,
) -> Answer {
    match name.to_ascii_lowercase().as_str() {
        "journal_mode" => match value.map(str::to_ascii_lowercase).as_deref() {
            Some("memory") if can_look => Answer::Pass,
            // SQLite gives the same answer where WAL is impossible. Many programs request WAL
            // everywhere, and would stop at an error.
            Some("wal") if refuses_wal => Answer::Refuse(
                "a Flagstone store needs no write-ahead log: each transaction is already durable \
                 with one write and one sync. Leave journal_mode unchanged"
                    .into(),
            ),
            // A journal on disk would never be read, and without one ROLLBACK would be undefined.
            _ => Answer::Text("memory".into()),
        },
        "flagstone_backup" => match value {
            Some(to) => Answer::Backup(to.into()),
            None => Answer::Refuse(
                "give the path of a new file: PRAGMA \
                                    flagstone_backup='copy.flag'"
                    .into(),
            ),
        },
        "flagstone_check" => Answer::Check,
        "flagstone_idle" => match value.map(str::parse) {
            Some(Ok(pages)) => Answer::Idle(pages),
            _ => Answer::Refuse(
                "give the maximum number of pages to move: PRAGMA \
                                 flagstone_idle=256"
                    .into(),
            ),
        },
        "flagstone_error" => Answer::Text(last_error.into()),
        _ => Answer::Pass,
    }
}

/// The result of a check, in the form of SQLite's own checks.
pub(crate) fn verdict(report: &CheckReport) -> String {
    let lost = report.unreadable.iter();
    let lost = lost.map(|at| format!("page {at} of the store cannot be read"));
    let wrong: Vec<String> = report.wrong.iter().cloned().chain(lost).collect();
    if wrong.is_empty() {
        "ok".into()
    } else {
        wrong.join("\n")
    }
}

/// Whether a pragma requests the page size for which a store reserves bytes. `None` if it requests
/// no page size.
pub(crate) fn page_for_reserved_bytes(name: &str, value: Option<&str>) -> Option<bool> {
    let is_page_size = name.eq_ignore_ascii_case("page_size");
    value.filter(|_| is_page_size).map(|value| value == "4096")
}

/// Whether a pragma makes a connection keep its locks (`true`) or release them (`false`). `None`
/// for other pragmas.
pub(crate) fn keeps_locks(name: &str, value: Option<&str>) -> Option<bool> {
    let value = value.filter(|_| name.eq_ignore_ascii_case("locking_mode"))?;
    let modes = ["normal", "exclusive"];
    let mode = modes
        .iter()
        .position(|mode| value.eq_ignore_ascii_case(mode))?;
    Some(mode == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_kept_in_exclusive_mode() {
        assert_eq!(keeps_locks("Locking_Mode", Some("EXCLUSIVE")), Some(true));
        assert_eq!(keeps_locks("locking_mode", Some("normal")), Some(false));
        assert_eq!(keeps_locks("locking_mode", None), None);
        assert_eq!(keeps_locks("locking_mode", Some("other")), None);
        assert_eq!(keeps_locks("cache_size", Some("exclusive")), None);
    }

    #[test]
    fn a_backup_needs_a_name() {
        let backup = |value| answer("Flagstone_Backup", value, true, false, "");
        assert_eq!(backup(Some("a.flag")), Answer::Backup("a.flag".into()));
        assert!(matches!(backup(None), Answer::Refuse(_)));
        assert_eq!(
            answer("flagstone_check", None, true, false, ""),
            Answer::Check
        );
    }

    #[test]
    fn idle_time_needs_a_number_of_pages() {
        let idle = |value| answer("flagstone_idle", value, true, false, "");
        assert_eq!(idle(Some("256")), Answer::Idle(256));
        for wrong in [None, Some("-1"), Some("much")] {
            assert!(matches!(idle(wrong), Answer::Refuse(_)), "{wrong:?}");
        }
    }

    #[test]
    fn no_mode_is_silently_unsafe() {
        let memory = Answer::Text("memory".into());
        for mode in ["off", "OFF", "delete", "Truncate", "persist", "nonsense"] {
            assert_eq!(
                answer("journal_mode", Some(mode), true, false, ""),
                memory,
                "{mode}"
            );
        }
        assert_eq!(answer("Journal_Mode", None, true, false, ""), memory);
        assert_eq!(
            answer("journal_mode", Some("MEMORY"), true, false, ""),
            Answer::Pass
        );
        assert_eq!(
            answer("journal_mode", Some("MEMORY"), false, false, ""),
            memory
        );
        assert_eq!(answer("journal_mode", Some("WAL"), true, false, ""), memory);
        assert!(matches!(
            answer("journal_mode", Some("WAL"), true, true, ""),
            Answer::Refuse(_)
        ));
        assert_eq!(
            answer("cache_size", Some("5"), true, false, ""),
            Answer::Pass
        );
    }
}
