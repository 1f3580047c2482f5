# Sourced by the build tests: a fresh $GW_WORK and a way to skip.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source_dir=${GW_SOURCE:-$(cd "$here/../.." && pwd)}
work=${GW_WORK:-$(mktemp -d)}
rm -rf "$work"
mkdir -p "$work"

skip() {
    echo "SKIP: $*"
    exit 77
}
