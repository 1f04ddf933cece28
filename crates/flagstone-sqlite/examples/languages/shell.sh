#!/usr/bin/env bash
# A store from SQLite's shell, `sqlite3`: writes, rolls back, opens again, verifies.
#
#   shell.sh LIBRARY FILE     # LIBRARY is libflagstone_sqlite, with its folder and without .so
set -euo pipefail
shell() {
    sqlite3 -bail -cmd ".load $1" -cmd ".open 'file:$2?vfs=flagstone'"
}

shell "$1" "$2" <<'SQL'
CREATE TABLE IF NOT EXISTS t (language, number, text);
BEGIN;
INSERT INTO t SELECT 'shell', value, printf('%0500d', value) FROM generate_series(1, 1000);
COMMIT;
BEGIN;
DELETE FROM t;
ROLLBACK;
SQL

shell "$1" "$2" <<'SQL' | grep -qx 'memory 1000|500500|500000 ok' || exit 1
.once /dev/null
SELECT 1;
SELECT (SELECT journal_mode FROM pragma_journal_mode) || ' '
    || (SELECT count(*) || '|' || sum(number) || '|' || sum(length(text)) FROM t
        WHERE language = 'shell')
    || ' ' || (SELECT group_concat(integrity_check) FROM pragma_integrity_check);
SQL
