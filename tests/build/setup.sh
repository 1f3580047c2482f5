# Sourced by the tests that build: $source_dir, a fresh $work, and functions.

set -euo pipefail
source_dir=${GW_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
work=${GW_WORK:-$(mktemp -d)}
rm -rf "$work"
mkdir -p "$work"

skip() {
    echo "SKIP: $*"
    exit 77
}

# need COMMAND: skips where it is missing
need() {
    command -v "$1" >/dev/null || skip "no $1 on this machine"
}

# build SOURCE "TARGET ..." [cmake argument ...]: in $work/build
build() {
    # shellcheck disable=SC2086
    if ! { cmake -S "$1" -B "$work/build" "${@:3}" && cmake --build "$work/build" -j 2 --target $2; } >"$work/log" 2>&1; then
        tail -n 60 "$work/log"
        exit 1
    fi
}
