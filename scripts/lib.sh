# What several scripts do in the same way. They read this file once they are in the root of the clone.

# Prints the comment at the head of the script, and ends with exit code 2 or with that one.
usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "scripts/${0##*/}"
    exit "${1:-2}"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs packages of Debian, if any are named.
need_packages() {
    [ $# -gt 0 ] || return 0
    as_root apt-get update -q >&2
    as_root apt-get install -yq --no-install-recommends "$@" >&2
}

# Makes the folder of the script where cargo builds: sets `target` and `work`.
make_work() {
    mkdir -p "${CARGO_TARGET_DIR:-target}/${0##*/}"
    target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
    work=$target/${0##*/}
}
