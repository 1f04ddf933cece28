#!/usr/bin/env bash
# Records TPC-C transactions from a throw-away PostgreSQL: makes a cluster in a temporary directory,
# with the settings under which its log shows best what transactions do to pages, runs
# `flagstone-record postgres --load` against it, and removes it again.
#
#   scripts/record-postgres.sh --warehouses 5 --clients 20 --seconds 60 -o trace.parquet
#
# All arguments go to `flagstone-record postgres`; see its --help. Environment:
#   PGBIN             directory of initdb, pg_ctl and pg_waldump (default: found by itself)
#   FLAGSTONE_RECORD  the command to run (default: cargo run --quiet -p flagstone-record --)
#   TMPDIR            where the cluster is made: about 300 MB a warehouse (default: /tmp)
#
# PostgreSQL does not run as root; started by root, this script runs the server (and only it) as the
# user postgres.
set -euo pipefail

die() {
    printf 'record-postgres.sh: %s\n' "$*" >&2
    exit 1
}

if [ $# -eq 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
    exit 2
fi

# The newest PostgreSQL that has all three programs.
find_programs() {
    local directory newest=
    if command -v pg_config >/dev/null; then
        directory=$(pg_config --bindir)
        if [ -x "$directory/initdb" ] && [ -x "$directory/pg_waldump" ]; then
            newest=$directory
        fi
    fi
    for directory in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin; do
        if [ -x "$directory/initdb" ] && [ -x "$directory/pg_waldump" ]; then
            newest=$directory
        fi
    done
    printf '%s' "$newest"
}

bin=${PGBIN:-$(find_programs)}
[ -n "$bin" ] || die "no PostgreSQL server found; install one (Debian: apt install postgresql) or set PGBIN"
for program in initdb pg_ctl pg_waldump; do
    [ -x "$bin/$program" ] || die "$bin/$program is missing; set PGBIN to the directory that has it"
done
read -r -a record <<<"${FLAGSTONE_RECORD:-cargo run --quiet -p flagstone-record --}"

# As the user that runs the server.
if [ "$(id -u)" -eq 0 ]; then
    id postgres >/dev/null 2>&1 || die "run as root, this script needs the user postgres for the server"
    # shellcheck disable=SC2016 # the shell that su starts expands them
    as_server() { su postgres -s /bin/sh -c 'cd / && exec "$0" "$@"' -- "$@"; }
else
    as_server() { "$@"; }
fi

directory=$(mktemp -d "${TMPDIR:-/tmp}/flagstone-postgres.XXXXXX")
stop() {
    if [ -e "$directory/data/postmaster.pid" ]; then
        as_server "$bin/pg_ctl" -D "$directory/data" -m immediate -w stop >/dev/null || true
    fi
    rm -rf "$directory"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ "$(id -u)" -eq 0 ]; then
    chown postgres "$directory"
fi

printf 'making a cluster in %s with %s\n' "$directory" "$("$bin/postgres" --version)" >&2
as_server "$bin/initdb" -D "$directory/data" -U postgres --auth=trust --locale=C --encoding=UTF8 \
    --no-sync >/dev/null
cat >>"$directory/data/postgresql.conf" <<SETTINGS
# Reached through a socket in this directory alone.
listen_addresses = ''
unix_socket_directories = '$directory'
# No pages in the log, only what changed; nobody needs this cluster after a crash.
full_page_writes = off
fsync = off
synchronous_commit = off
# No transactions but ours.
autovacuum = off
# The log stays until it is read, and no checkpoint comes in between.
wal_level = replica
wal_keep_size = 64GB
max_wal_size = 64GB
checkpoint_timeout = 1d
shared_buffers = 512MB
max_connections = 300
SETTINGS
as_server "$bin/pg_ctl" -D "$directory/data" -l "$directory/log" -w start >/dev/null || {
    cat "$directory/log" >&2
    die "the server does not start"
}

# With --reads the log is not read.
waldump=(--waldump "$bin/pg_waldump")
for argument in "$@"; do
    if [ "$argument" = --reads ]; then
        waldump=()
    fi
done
"${record[@]}" postgres \
    --url "host=$directory user=postgres dbname=postgres" \
    "${waldump[@]}" --load "$@"
