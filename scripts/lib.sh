# Shared by the scripts of the tree; source it, do not run it.
#
#   GW_JOBS  parallel jobs of builds and tests, default 2

set -euo pipefail

gw_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
gw_jobs=${GW_JOBS:-2}
gw_deps=--check
export LC_ALL=C.UTF-8 CTEST_PARALLEL_LEVEL=$gw_jobs

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# gw_need SET: the packages of scripts/deps SET. Only a user's --install (gw_deps=--install) lets a command install them;
# otherwise a missing package is an error that names the command.
gw_need() {
    "$gw_root/scripts/deps" "$gw_deps" "$1"
}

# gw_build PRESET [cmake argument ...]: configures and builds one preset of CMakePresets.json.
gw_build() {
    local preset=$1
    shift
    (cd "$gw_root" && cmake --preset "$preset" "$@" && cmake --build --preset "$preset" -j "$gw_jobs") </dev/null
}
