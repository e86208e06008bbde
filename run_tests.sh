#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What cuvmm changes, in seconds; then all tests. With a preset (asan, tsan, debug) the tests alone.
set -euo pipefail
dev="$(dirname "$(readlink -f "$0")")/dev"
(($# > 0)) || "$dev" quick
exec "$dev" test "$@"
