/* SQLite on Flagstone stores: for programs that link libflagstone_sqlite (.a or .so) with their
 * SQLite (3.20 or newer). Include it after sqlite3.h, and call this once before the first store is
 * opened:
 *
 *     flagstone_sqlite_register(0);
 *     sqlite3_open_v2("file:app.flag?vfs=flagstone", &db,
 *                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, 0);
 */
#ifndef FLAGSTONE_SQLITE_H
#define FLAGSTONE_SQLITE_H

#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the VFS calls. */
struct flagstone_sqlite_functions {
  sqlite3_vfs *(*vfs_find)(const char *);
  int (*vfs_register)(sqlite3_vfs *, int);
  void *(*malloc)(int);
  int (*file_control)(sqlite3 *, const char *, int, void *);
  const char *(*uri_parameter)(const char *, const char *);
  void (*log)(int, const char *, ...);
  const char *(*db_name)(sqlite3 *, int); /* null before 3.39 */
  int (*txn_state)(sqlite3 *, const char *); /* null before 3.34 */
  sqlite3_stmt *(*next_stmt)(sqlite3 *, sqlite3_stmt *);
  int (*stmt_busy)(sqlite3_stmt *);
  int (*stmt_readonly)(sqlite3_stmt *);
};

int flagstone_sqlite_register_functions(const struct flagstone_sqlite_functions *, int is_default);

/* For sqlite3_auto_extension, cast to void (*)(void). */
int flagstone_sqlite_auto_extension(sqlite3 *, char **, const void *);

/* Makes the VFS "flagstone" known, and the default one if asked to. Returns SQLITE_OK or
 * SQLITE_ERROR. */
static inline int flagstone_sqlite_register(int is_default) {
  struct flagstone_sqlite_functions functions = {
    sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_malloc, sqlite3_file_control,
    sqlite3_uri_parameter, sqlite3_log,
#if SQLITE_VERSION_NUMBER >= 3039000
    sqlite3_db_name,
#else
    0,
#endif
#if SQLITE_VERSION_NUMBER >= 3034000
    sqlite3_txn_state,
#else
    0,
#endif
    sqlite3_next_stmt, sqlite3_stmt_busy, sqlite3_stmt_readonly,
  };
  int code = sqlite3_initialize();
  return code != SQLITE_OK ? code : flagstone_sqlite_register_functions(&functions, is_default);
}

#ifdef __cplusplus
}
#endif
#endif
