/* A store from C, with the VFS linked: writes, rolls back, opens again, verifies.
 *
 *     cc -I include examples/languages/c.c libflagstone_sqlite.a -lsqlite3 -lpthread -ldl -lm
 *
 *     c FILE */
#include <sqlite3.h>
#include <flagstone_sqlite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sqlite3 *open_store(const char *path) {
  sqlite3 *db;
  char *uri = sqlite3_mprintf("file:%s?vfs=flagstone", path);
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
  if (sqlite3_open_v2(uri, &db, flags, 0) != SQLITE_OK) {
    fprintf(stderr, "%s: %s\n", path, sqlite3_errmsg(db));
    exit(1);
  }
  sqlite3_free(uri);
  return db;
}

static void run(sqlite3 *db, const char *sql) {
  char *error;
  if (sqlite3_exec(db, sql, 0, 0, &error) != SQLITE_OK) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
}

static void expect(sqlite3 *db, const char *sql, const char *value) {
  sqlite3_stmt *statement;
  const char *found = 0;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, 0) == SQLITE_OK &&
      sqlite3_step(statement) == SQLITE_ROW) {
    found = (const char *)sqlite3_column_text(statement, 0);
  }
  if (found == 0 || strcmp(found, value) != 0) {
    fprintf(stderr, "%s: %s, not %s\n", sql, found ? found : sqlite3_errmsg(db), value);
    exit(1);
  }
  sqlite3_finalize(statement);
}

int main(int count, char **arguments) {
  sqlite3 *db;
  if (count != 2 || flagstone_sqlite_register(0) != SQLITE_OK) return 2;
  db = open_store(arguments[1]);
  run(db, "CREATE TABLE IF NOT EXISTS t (language, number, text);"
          "BEGIN;"
          "INSERT INTO t WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n"
          "  WHERE x < 1000) SELECT 'c', x, printf('%0500d', x) FROM n;"
          "COMMIT; BEGIN; DELETE FROM t; ROLLBACK");
  sqlite3_close(db);

  db = open_store(arguments[1]);
  expect(db, "SELECT count(*) || ' ' || sum(number) || ' ' || sum(length(text)) FROM t"
             " WHERE language = 'c'", "1000 500500 500000");
  expect(db, "PRAGMA integrity_check", "ok");
  sqlite3_close(db);
  return 0;
}
