# Shared by the scripts in tools/ and vm/: how they fail, and where they keep
# what they have downloaded or built. To be sourced, not run.
# shellcheck shell=bash

# die MESSAGE: one readable line on standard error. A script with an exit-code
# contract of its own sets die_status.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit "${die_status:-1}"
}

note() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# cache_dir: prints the folder for downloads, which lies outside the source tree
# because a kernel and its kin are some hundred megabytes.
cache_dir() {
    local base=${PLIMSOLL_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}}
    [[ $base == /* ]] || die "the cache folder must be an absolute path, not '$base' (set PLIMSOLL_CACHE)"
    printf '%s\n' "$base/plimsoll"
}

# need COMMAND...: fails unless each is on the PATH.
need() {
    local command
    for command in "$@"; do
        type -P "$command" >/dev/null || die "needs the command '$command', which is not installed"
    done
}
