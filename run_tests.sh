#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows in seconds what cuvmm changes, then runs all tests. With a preset (asan, tsan, debug), only
# runs the tests.
set -euo pipefail
dev="$(dirname "$(readlink -f "$0")")/dev"
(($# > 0)) || "$dev" quick
exec "$dev" test "$@"
