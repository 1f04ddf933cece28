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

# Gets the source of a Debian package into `work`, from where this machine gets its packages.
debian_source() {
    if ls "$work/$1"_*.orig.tar.* >/dev/null 2>&1; then
        return
    fi
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    sources() {
        # shellcheck disable=SC2016 # apt expands them
        apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(LABEL)' \
            'Created-By: Packages' |
            awk '$4 == "Debian" { print "deb-src", $1, $2, $3 }' | sort -u >"$work/apt/sources.list"
        [ -s "$work/apt/sources.list" ]
    }
    if ! sources; then
        as_root apt-get update -q >&2
        sources || die "apt has no source of Debian packages"
    fi
    local apt=(apt-get -q -o "Dir::Etc::SourceList=$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache"
        -o "APT::Sandbox::User=$(id -un)")
    "${apt[@]}" update >&2
    (cd "$work" && "${apt[@]}" source --download-only "$1" >&2)
}

# The protocols that `explain` of the given program knows: the registry, and the record-level ones.
explained() {
    "$@" protocols --json | sed -E 's/.*"name":"([^"]*)","page_written.*/\1/'
    echo cfc-ex afc-ex
}
