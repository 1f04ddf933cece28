/* Makes the VFS known to the program that runs SQLite's own tests. One program serves all sides of
 * the comparison, by what the environment says. scripts/sqlite-suite builds it (SQLITE_EXTRA_INIT).
 *
 *     FLAGSTONE_SUITE_VFS=flagstone   the VFS is the default one
 *     FLAGSTONE_SUITE_RESERVE=no      new databases get no reserved bytes: tests that count pages or
 *                                     bytes of a page then find what they expect
 */
#include "sqlite3.h"
#include "flagstone_sqlite.h"
#include <stdlib.h>
#include <string.h>

static int is(const char *variable, const char *value) {
  const char *has = getenv(variable);
  return has != 0 && strcmp(has, value) == 0;
}

static int control(sqlite3 *db, const char *name, int op, void *argument) {
  if (op == SQLITE_FCNTL_RESERVE_BYTES && is("FLAGSTONE_SUITE_RESERVE", "no")) return SQLITE_OK;
  return sqlite3_file_control(db, name, op, argument);
}

int flagstone_suite_init(const char *unused) {
  struct flagstone_sqlite_functions functions = {
    sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_malloc, control,
    sqlite3_uri_parameter, sqlite3_log, sqlite3_db_name,
    sqlite3_txn_state, sqlite3_next_stmt, sqlite3_stmt_busy, sqlite3_stmt_readonly,
  };
  (void)unused;
  return flagstone_sqlite_register_functions(&functions, is("FLAGSTONE_SUITE_VFS", "flagstone"));
}
