# Functions shared by the scripts in tools/ and vm/: error messages, and the
# cache for downloads and builds. To be sourced, not run.
# shellcheck shell=bash

# die MESSAGE: prints one line on standard error and exits. A script with
# documented exit codes sets die_status.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit "${die_status:-1}"
}

note() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# cache_dir: prints the folder for downloads, which is outside the source tree,
# because kernels take some hundred megabytes.
cache_dir() {
    local base=${PLIMSOLL_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}}
    [[ $base == /* ]] || die "the cache folder must be an absolute path, not '$base' (set PLIMSOLL_CACHE)"
    printf '%s\n' "$base/plimsoll"
}

# need COMMAND...: fails unless each command is on the PATH.
need() {
    local command
    for command in "$@"; do
        type -P "$command" >/dev/null || die "needs the command '$command', which is not installed"
    done
}
